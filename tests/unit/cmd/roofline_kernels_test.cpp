#include "cmd/roofline_kernels.h"

#include <gtest/gtest.h>

namespace ridge {
namespace {

Ceiling level(const char* name, int64_t n_bytes, int n_threads, double gbps) {
    Ceiling ceiling;
    ceiling.kind = CeilingKind::kRead, ceiling.name = name, ceiling.n_threads = n_threads;
    ceiling.level_bytes = n_bytes, ceiling.rate = gbps;
    return ceiling;
}

Ceiling arithmetic(const char* name, int n_threads, double rate) {
    Ceiling ceiling;
    ceiling.kind = CeilingKind::kArithmetic, ceiling.name = name, ceiling.n_threads = n_threads;
    ceiling.rate = rate;
    return ceiling;
}

// Two threads: a first cache of 100 KB each at 1,000 GB/s, a last one of 10 MB each at 200, memory
// at 50; 500 GFLOP/s, and 2,000 of int8; 1 us a launch. Those of one thread do not count.
Ceilings machine() {
    Ceilings ceilings;
    ceilings.list = {level("L1", 100'000, 1, 500),    level("memory", 0, 1, 40),
                     arithmetic("f32", 1, 250),       level("L1", 100'000, 2, 1000),
                     level("L3", 10'000'000, 2, 200), level("memory", 0, 2, 50),
                     arithmetic("f32", 2, 500),       arithmetic("int8", 2, 2000)};
    ceilings.dispatch_us = 1;
    return ceilings;
}

NodeGroup group(int64_t weights, int64_t activations, int64_t flops, double us,
                int64_t n_calls = 1) {
    NodeGroup g;
    g.stage = "ffn_in", g.node = "matmul", g.checkpoint = "gemm", g.n_calls = n_calls;
    g.work.weight_bytes = weights, g.work.activation_bytes = activations, g.work.flops = flops;
    g.samples_ns = {1000 * us};
    return g;
}

TEST(Roof, takes_the_ceilings_of_all_threads_and_what_they_have_of_a_cache_together) {
    const Roof roof(machine());
    ASSERT_EQ(roof.levels().size(), 3u);
    EXPECT_EQ(roof.level_of(200'000).name, "L1");
    EXPECT_EQ(roof.level_of(200'001).name, "L3");
    EXPECT_EQ(roof.level_of(20'000'001).name, "memory");
    EXPECT_EQ(roof.gflops("int8"), 2000);
    EXPECT_EQ(roof.gflops("of another kind"), 500) << "as f32";
}

// A GPU is one whole, and what lies in its shared memory is gone when a kernel ends.
TEST(Roof, of_a_device_without_threads_leaves_out_memory_that_nothing_stays_in) {
    Ceilings gpu;
    gpu.list = {level("shared memory", 30'000'000, 0, 30000), level("L2", 60'000'000, 0, 6000),
                level("memory", 0, 0, 4000), arithmetic("f32", 0, 60000)};
    gpu.list[0].is_scratchpad = true;
    gpu.dispatch_us = 1;
    const Roof roof(gpu);
    ASSERT_EQ(roof.levels().size(), 2u);
    EXPECT_EQ(roof.level_of(1000).name, "L2");
    EXPECT_EQ(roof.level_of(60'000'001).name, "memory");
    // 2 us of bytes are more than one launch, and less than the three that its call takes.
    NodeGroup g = group(8'000'000, 0, 0, 5);
    EXPECT_EQ(place_kernel(g, 500'000'000, "f32", roof).bound, Bound::kMemory);
    g.n_launches = 3;
    EXPECT_EQ(place_kernel(g, 500'000'000, "f32", roof).bound, Bound::kLaunch);
}

TEST(PlacedKernel, that_streams_weights_is_bound_by_memory) {
    // 100 MB at 50 GB/s: 2,000 us; 200 MFLOP at 2,000: 100 us.
    const NodeGroup g = group(100'000'000, 8'000, 200'000'000, 2500);
    const PlacedKernel k = place_kernel(g, 500'000'000, "int8", Roof(machine()));
    EXPECT_EQ(k.bound, Bound::kMemory);
    EXPECT_EQ(k.bound_text(), "memory");
    EXPECT_NEAR(k.roof_us, 2000.008, 1e-9) << "its rows lie in the first cache";
    EXPECT_NEAR(k.share_of_roof(), 0.8, 1e-4);
    EXPECT_NEAR(k.gbps, 40, 0.01);
    EXPECT_NEAR(k.gflops, 80, 1e-9);
    EXPECT_NEAR(k.intensity, 2, 1e-3);
    EXPECT_EQ(k.name(), "ffn_in/matmul");
}

TEST(PlacedKernel, whose_whole_step_fits_in_a_cache_is_bound_by_it) {
    const NodeGroup g = group(1'000'000, 8'000, 2'000'000, 10);
    const PlacedKernel k = place_kernel(g, 15'000'000, "int8", Roof(machine()));
    EXPECT_EQ(k.bound, Bound::kCache);
    EXPECT_EQ(k.bound_text(), "L3");
    EXPECT_NEAR(k.roof_us, 5.008, 1e-9);
}

TEST(PlacedKernel, of_many_rows_is_bound_by_its_kind_of_arithmetic) {
    const NodeGroup g = group(10'000'000, 4'000'000, 4'000'000'000, 4000);
    const PlacedKernel k = place_kernel(g, 500'000'000, "int8", Roof(machine()));
    EXPECT_EQ(k.bound, Bound::kArithmetic);
    EXPECT_EQ(k.bound_text(), "int8");
    EXPECT_NEAR(k.roof_us, 2000, 1e-9);
    EXPECT_NEAR(k.share_of_roof(), 0.5, 1e-9);
}

TEST(PlacedKernel, of_rows_alone_is_bound_by_the_level_that_holds_a_call_s) {
    // 30 calls of 5 MB: the last cache; all of them together would not fit.
    const NodeGroup g = group(0, 150'000'000, 1'000'000, 1000, 30);
    const PlacedKernel k = place_kernel(g, 500'000'000, "f32", Roof(machine()));
    EXPECT_EQ(k.bound_text(), "L3");
    EXPECT_NEAR(k.roof_us, 750, 1e-9);
}

TEST(PlacedKernel, with_less_work_than_a_launch_takes_is_bound_by_that) {
    // 10 calls of 8 KB: 0.08 us in all.
    const NodeGroup g = group(0, 80'000, 20'000, 15, 10);
    const PlacedKernel k = place_kernel(g, 500'000'000, "f32", Roof(machine()));
    EXPECT_EQ(k.bound, Bound::kLaunch);
    EXPECT_EQ(k.bound_text(), "launch");
}

TEST(PlacedKernel, that_moves_and_computes_nothing_has_no_rates) {
    const PlacedKernel k = place_kernel(group(0, 0, 0, 0), 0, "f32", Roof(machine()));
    EXPECT_EQ(k.gbps, 0);
    EXPECT_EQ(k.intensity, 0);
    EXPECT_EQ(k.share_of_roof(), 0);
}

}  // namespace
}  // namespace ridge
