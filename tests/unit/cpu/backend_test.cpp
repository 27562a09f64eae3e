#include "cpu/backend.h"

#include <gtest/gtest.h>

#include "support/error_of.h"

namespace ridge {
namespace {

TEST(CpuBackend, says_what_it_has_no_memory_for_and_what_would_need_less) {
    auto backend = make_cpu_backend({1, ""});
    Config config;
    config.n_layers = 1, config.n_kv_heads = 1, config.d_head = 64;
    EXPECT_EQ(error_of([&] {
                  backend->make_kv_cache(config, DType::kF16, DType::kF16, int64_t{1} << 44);
              }),
              "cpu: the system gives no 4503599.627 GB for the KV cache, which -c makes smaller; a "
              "limit of this process (ulimit -v) may be in the way");
    EXPECT_NE(error_of([&] { backend->alloc(size_t{1} << 55); }).find("for a buffer"),
              std::string::npos);
}

}  // namespace
}  // namespace ridge
