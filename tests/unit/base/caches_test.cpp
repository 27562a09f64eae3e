#include "base/caches.h"

#include <gtest/gtest.h>

#include "base/system.h"

namespace ridge {
namespace {

TEST(Caches, lists_of_cpus_are_numbers_and_ranges) {
    EXPECT_EQ(parse_cpu_list("3\n"), (std::vector<int>{3}));
    EXPECT_EQ(parse_cpu_list("0-2,8,10-11"), (std::vector<int>{0, 1, 2, 8, 10, 11}));
    for (const char* bad : {"", "\n", "x", "1-", "3-1", "1,", "1,,2", "1 2", "-1", "0-4000000000",
                            "99999999999999999999", "1-2x"}) {
        EXPECT_TRUE(parse_cpu_list(bad).empty()) << bad;
    }
}

TEST(Caches, sizes_are_numbers_with_a_unit) {
    EXPECT_EQ(parse_cache_size("48K\n"), 48 << 10);
    EXPECT_EQ(parse_cache_size("2M"), 2 << 20);
    EXPECT_EQ(parse_cache_size("512"), 512);
    for (const char* bad : {"", "K", "-1K", "0K", "48KB", "4 K", "99999999999999999999K"}) {
        EXPECT_EQ(parse_cache_size(bad), 0) << bad;
    }
}

// A container may hide them: then there are none.
TEST(Caches, of_this_machine_grow_with_their_level) {
    int level = 0;
    for (const DataCache& cache : data_caches()) {
        EXPECT_GT(cache.level, level);
        EXPECT_GE(cache.n_bytes, 4096);
        EXPECT_GE(cache.n_sharers, 1);
        EXPECT_LE(cache.n_sharers, static_cast<int>(physical_cores().size()));
        level = cache.level;
    }
}

}  // namespace
}  // namespace ridge
