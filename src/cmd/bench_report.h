#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cmd/output.h"
#include "engine/engine.h"

namespace ridge {

// What `bench` has measured, and how it is written: as a table, CSV, JSON or JSON Lines. Fields
// that llama-bench has too carry its names.

// n_prompt tokens after n_depth others, then n_gen steps of n_parallel sequences at once.
struct BenchTest {
    int64_t n_prompt = 0, n_gen = 0, n_depth = 0;
    int n_parallel = 1;

    int64_t n_tokens() const { return n_prompt + n_gen * n_parallel; }  // that are computed
};
std::string last_part(const std::string& path);  // of a model: "c" of "a/b/c/"
std::string test_name(const BenchTest& test);    // "pp512", "tg128 x 8 @ d2048", "pp512+tg128"

// Another program at the same test, in the same rounds.
struct PeerResult {
    std::string name;   // as --peer has it
    std::string about;  // JSON: what it says of itself, and of how it holds the model
    std::vector<int64_t> samples_ns;
    // Whether it draws the token that Ridge draws after the same prompt, where there is one alone.
    std::optional<bool> same_token;
};

struct BenchResult {
    ModelInfo model;
    BenchTest test;
    std::string type_k, type_v;
    int n_ubatch = 0;
    int64_t time_s = 0;                   // since 1970, UTC: when the test began
    std::vector<int64_t> samples_ns;      // one for each repetition
    std::vector<double> read_walls_gbps;  // measured before the first sample and after each
    std::vector<double> links_gbps;       // the same, where layers are streamed
    // Median of the earlier run that results are put beside, where there is one; 0: it does not
    // have the test.
    std::optional<double> compared_ts;
    std::vector<PeerResult> peers;
};

struct Spread {
    double mean = 0, median = 0;
    double stddev = 0;  // of the samples (n - 1); 0 of one
};
Spread spread_of(std::span<const double> samples);  // of at least one

// Bytes that a decode step needs for each of its tokens: the weights once for all sequences, and
// the keys and values of each at the average position. 0 for a test with a prompt, which memory
// does not bound.
double bytes_per_token(const ModelInfo& model, const BenchTest& test);  // of the file's weights
double read_bytes_per_token(const ModelInfo& model, const BenchTest& test);  // as they are packed

// Of the rate at which layers can be streamed, the share at which they were: the median over the
// samples of generation. 0 where there are none, or with a prompt.
double share_of_link(const BenchResult& result);

enum class BenchFormat { kMarkdown, kCsv, kJson, kJsonLines };

// What the table has to show so that no two of its rows look alike, known before the first.
struct BenchColumns {
    bool n_ubatch = false;                // prompt steps of several sizes
    bool compared = false;                // results of an earlier run
    bool peers = false;                   // other programs beside Ridge
    bool full_paths = false;              // models of one name in several folders
    int model_width = 0, test_width = 0;  // of the longest cells, where the usual width is less
};
// The columns for these models, tests and numbers of tokens of a prompt's step.
BenchColumns columns_of(std::span<const std::string> models, std::span<const BenchTest> tests,
                        std::span<const int64_t> n_ubatch);

// Writes results to standard output as they come.
class BenchReport {
  public:
    BenchReport(Output& output, BenchFormat format, const BenchColumns& columns)
        : output_(output), format_(format), columns_(columns) {}

    void add(const BenchResult& result);
    // What has to follow the last result; nothing where there was none.
    void finish();

  private:
    void add_row(const BenchResult& result);
    void add_peer_row(const BenchResult& result, const PeerResult& peer);
    std::string name_of(const ModelInfo& model) const;

    Output& output_;
    BenchFormat format_;
    BenchColumns columns_;
    bool begun_ = false;
    bool has_wall_ = false, has_link_ = false;  // in a row that was written
    std::vector<std::string> notes_;            // of those rows, about fallbacks
    std::vector<std::string> peer_notes_;       // about the peers
    std::string gpu_;                           // that the last row's model ran on
    std::string tuned_;                         // how that was tuned
};

}  // namespace ridge
