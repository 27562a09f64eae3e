#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/thread_pool.h"
#include "cases/case.h"
#include "cases/case_run.h"
#include "cases/subject.h"

namespace ridge {

// What is claimed of every kernel of an operator.
enum class Claim : uint8_t {
    kAgrees,   // results are the reference's, each element, and nothing else is written to
    kThreads,  // the same bits on 1, 2 and more threads, and of weights that lie as files have them
    kRows,     // a row's bits do not depend on the rows beside it
    kCuts,     // nor on how a prompt is cut into steps
    kLater,    // nor on what later positions hold, be it no number
};
constexpr int kNumClaims = 5;
std::string_view claim_name(Claim claim);  // "agrees", "threads", ...
std::string_view claim_text(Claim claim);  // as above, to stand behind "that"

// A case, and what it shows. The cases of all_cases() show the first two claims.
struct Check {
    Case c;
    std::vector<Claim> claims;
};
std::vector<Check> checks_of(Op op);

struct Finding {
    Claim claim;
    std::string fault{};      // empty: the claim holds; else where it first does not
    Difference difference{};  // kAgrees: from the reference
    double from_exact = 0;    // kAgrees: relative L2 from ref/ on operands that nobody rounds
};

// Where checks run: on the host with several numbers of threads, or on a device.
struct CheckPlace {
    explicit CheckPlace(int n_most_threads = 3) : many(n_most_threads) {}

    ThreadPool one{1}, two{2}, many;
    CaseDevice* device = nullptr;
};

// One check with inputs of its own, for subject after subject.
class CheckRun {
  public:
    // The place must live on. An Error where the reference itself writes what it should not.
    CheckRun(const Check& check, uint64_t seed, CheckPlace& place);

    // What is found of each claim; of a device none of numbers of threads.
    std::vector<Finding> run(const Subject& subject);

  private:
    // The case at the subject's tables; what it writes outside its rows goes to `fault`.
    Outputs run_on(const Subject& subject, const Case& c, std::string& fault);
    const Outputs& reference_of(const Tables& reference, const std::string& operands);
    void run_case(const Subject& subject, std::vector<Finding>& findings);
    std::string compare_numbers_of_rows(const Subject& subject);
    std::string compare_sequences(const Subject& subject);
    std::string compare_cuts(const Subject& subject);
    std::string compare_later_positions(const Subject& subject);

    const Check check_;
    const uint64_t seed_;
    CheckPlace& place_;
    std::optional<CaseRun> run_;                 // of the claims of all_cases()
    std::map<std::string, Outputs> references_;  // by operands
};

}  // namespace ridge
