#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cmd/bench_report.h"

namespace ridge {

// Results of another run, which new ones are put beside: what `bench -o json` or `-o jsonl` wrote,
// or llama-bench in the same formats.
class OlderResults {
  public:
    // `text` is what the file holds, `path` what errors call it. Error for what is neither format,
    // or holds no result.
    static OlderResults parse(std::string_view text, const std::string& path);

    // Median tok/s of the same test of a model of the same file name, with as many threads and the
    // same types of the cache; of several the one at the same checkpoint, or else the last. 0:
    // there is none.
    double rate_of(const BenchResult& result) const;

  private:
    struct Entry {
        std::string model, checkpoint, type_k, type_v;
        BenchTest test;
        int64_t n_threads = 0;
        double rate = 0;
    };
    std::vector<Entry> entries_;
};

}  // namespace ridge
