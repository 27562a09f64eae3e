#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cases/case.h"

namespace ridge {

// What `bench ops` has measured of one case, and how it is written.

constexpr std::string_view kPlainCheckpoint = "plain";

struct OpResult {
    std::string checkpoint;
    std::string isa;                 // where it is not the one that all others ran on; or empty
    std::vector<double> samples_ns;  // of one call each
};

// Another program at the same case, in the same rounds.
struct PeerOpResult {
    std::string name;        // as --peer has it
    std::string variant;     // how it did it: "bf16"; or empty
    std::string unfit;       // why it did not; the rest is empty then
    int64_t n_bytes = 0;     // of its operands and results
    double relative_l2 = 0;  // of its result, as it was held against the equation
    std::vector<double> samples_ns;
};

struct CaseResult {
    Case c;
    std::vector<OpResult> results;
    std::vector<PeerOpResult> peers;
};

// The kernel of the least median, whatever its instruction set.
const OpResult& fastest_of(const CaseResult& result);

// What another program needs to time the same work.
nlohmann::ordered_json shape_json(const Case& c);
std::string ops_table(const std::vector<CaseResult>& results);
// An object for each case.
nlohmann::ordered_json ops_json(const std::vector<CaseResult>& results);

}  // namespace ridge
