#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace ridge {

// A cache that data of one CPU goes through, as the operating system describes it.
struct DataCache {
    int level = 1;
    int64_t n_bytes = 0;
    int n_sharers = 1;  // physical cores of the affinity that share it, at least 1
};

// Those of the lowest CPU that the calling thread may use, the nearest first; empty where the
// system does not tell.
std::vector<DataCache> data_caches();

// Linux's lists of CPUs: "0-3,8\n" is 0,1,2,3,8. Empty for what is none.
std::vector<int> parse_cpu_list(std::string_view text);
// Linux's sizes of caches, in bytes: "48K\n". 0 for what is none.
int64_t parse_cache_size(std::string_view text);

}  // namespace ridge
