#include "cpu/ceilings.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "cpu/kernels_of_isa.h"
#include "format/format.h"
#include "support/seed.h"

namespace ridge::cpu {
namespace {

constexpr int64_t kKiB = 1024, kMiB = 1024 * kKiB;

std::vector<int64_t> buffers_of(const std::vector<ProbedLevel>& levels) {
    std::vector<int64_t> bytes;
    for (const ProbedLevel& level : levels) bytes.push_back(level.buffer_bytes);
    return bytes;
}

TEST(ProbedLevels, lie_inside_their_cache_and_beyond_the_one_before) {
    const std::vector<DataCache> caches = {{1, 48 * kKiB, 1}, {2, kMiB, 1}, {3, 32 * kMiB, 8}};
    const std::vector<ProbedLevel> one = probed_levels(caches, 1, 0);
    ASSERT_EQ(one.size(), 4u);
    EXPECT_EQ(one[0].name, "L1");
    EXPECT_EQ(one[2].level_bytes, 32 * kMiB);
    EXPECT_EQ(one[3].name, "memory");
    EXPECT_EQ(one[3].level_bytes, 0);
    // 48 K / 2; 1 M / 4, since three times 48 K is less; 32 M / 4; 16 times 32 M.
    EXPECT_EQ(buffers_of(one), (std::vector<int64_t>{24 * kKiB, 256 * kKiB, 8 * kMiB, 512 * kMiB}));
    // Of eight threads each has 4 M of the third: three times the second, 3 M, is beyond it; the
    // least for memory is 64 M.
    EXPECT_EQ(buffers_of(probed_levels(caches, 8, 0)),
              (std::vector<int64_t>{24 * kKiB, 256 * kKiB, 3 * kMiB, 64 * kMiB}));
    // More threads than cores that share it share no further.
    EXPECT_EQ(probed_levels(caches, 64, 0)[2].level_bytes, 4 * kMiB);
}

TEST(ProbedLevels, a_third_cache_no_larger_than_the_second_comes_behind_it) {
    const std::vector<DataCache> caches = {{1, 48 * kKiB, 1}, {2, 2 * kMiB, 1}, {3, 30 * kMiB, 16}};
    const ProbedLevel third = probed_levels(caches, 16, 0)[2];
    EXPECT_EQ(third.level_bytes, 30 * kMiB / 16);
    EXPECT_GT(third.buffer_bytes, 2 * kMiB);
    EXPECT_LT(third.buffer_bytes, 2 * kMiB + third.level_bytes);
}

TEST(ProbedLevels, take_no_more_than_a_quarter_of_the_memory_that_there_is) {
    const std::vector<ProbedLevel> levels = probed_levels({}, 4, 256 * kMiB);
    ASSERT_EQ(levels.size(), 1u) << "caches are unknown";
    EXPECT_EQ(levels[0].buffer_bytes, 16 * kMiB);
}

class Probes : public ::testing::TestWithParam<Isa> {
  protected:
    const ProbeKernels probes_ = kernels_of_isa(GetParam()).probes;
};

TEST_P(Probes, read_every_byte_and_none_behind_the_last_run) {
    const uint64_t seed = test_seed();
    SCOPED_TRACE("seed " + std::to_string(seed));
    constexpr size_t kRuns = 5;
    for (auto read : {probes_.read, probes_.read_ahead}) {
        std::vector<uint8_t> data(kRuns * kProbeBytes);
        const auto n_bytes = static_cast<int64_t>(data.size());
        EXPECT_EQ(read(data.data(), n_bytes), 0u);
        for (size_t i = 0; i < kProbeBytes; i++) {
            const size_t at = (i + seed) % kRuns * kProbeBytes + i;
            data[at] = 1;
            EXPECT_NE(read(data.data(), n_bytes), 0u) << "byte " << at;
            data[at] = 0;
        }
        data.back() = 1;
        EXPECT_EQ(read(data.data(), n_bytes - 1), 0u);
    }
}

TEST_P(Probes, copy_whole_runs) {
    std::vector<uint8_t> from(3 * kProbeBytes), to(4 * kProbeBytes, 0xee);
    for (size_t i = 0; i < from.size(); i++) from[i] = static_cast<uint8_t>(i % 251 + 1);
    probes_.copy(from.data(), to.data(), static_cast<int64_t>(from.size()));
    EXPECT_TRUE(std::equal(from.begin(), from.end(), to.begin()));
    EXPECT_TRUE(std::all_of(to.begin() + 3 * kProbeBytes, to.end(),
                            [](uint8_t byte) { return byte == 0xee; }));
}

// What comes of a number of rounds is not what comes of another, so that each is computed.
TEST_P(Probes, compute_every_round) {
    ASSERT_NE(probes_.arithmetic[kF32Fma].run, nullptr);
    std::vector<uint8_t> operands(kOperandBytes);
    for (int i = 0; i < kNumProbes; i++) {
        const ArithmeticProbe& probe = probes_.arithmetic[i];
        if (probe.run == nullptr) continue;
        SCOPED_TRACE(probe.instruction);
        EXPECT_GT(probe.ops_per_round, 0);
        for (size_t b = 0; b < operands.size(); b += 4) {  // float32 and pairs of bf16 near 0.5
            operands[b] = static_cast<uint8_t>(b / 4 % 64 + 1), operands[b + 1] = 0x3f;
            operands[b + 2] = static_cast<uint8_t>(b / 4 % 61 + 1), operands[b + 3] = 0x3f;
        }
        EXPECT_EQ(probe.run(operands.data(), 3), probe.run(operands.data(), 3));
        for (int64_t n = 0; n < 4; n++) {
            EXPECT_NE(probe.run(operands.data(), n), probe.run(operands.data(), n + 1)) << n;
        }
    }
}

TEST_P(Probes, a_kernel_stands_before_the_arithmetic_of_its_operands) {
    const Kernels kernels = kernels_of_isa(GetParam());
    auto name_of = [&](ProbeIndex index, std::string_view name) {
        return probes_.arithmetic[index].run != nullptr ? name : "f32";
    };
    auto of = [&](std::string_view node, std::string_view checkpoint, std::string_view format,
                  RowClass row_class = RowClass::kDecode) {
        return arithmetic_of(kernels, node, checkpoint, find_format(format), row_class);
    };
    EXPECT_EQ(of("matmul", "plain", "Q4_0"), "f32");
    EXPECT_EQ(of("matmul", "matvec", "Q4_0"), name_of(kInt8Dot, "int8"));
    EXPECT_EQ(of("ffn_in", "fused", "Q6_K"), name_of(kInt8Dot, "int8"));
    EXPECT_EQ(of("ffn_in", "fused", "F32"), "f32");
    EXPECT_EQ(of("ffn_in", "fused", "F32", RowClass::kPrompt), "f32");
    EXPECT_EQ(of("embed_rows", "plain", "Q4_0"), "f32");
    EXPECT_EQ(of("rms_norm", "row_ops", ""), "f32");
    EXPECT_EQ(of("attention", "prefill_attention", ""), "f32") << "of decode rows";
    if (GetParam() == Isa::kAvx512) {
        EXPECT_EQ(of("attention", "prefill_attention", "", RowClass::kPrompt),
                  name_of(kBf16Dot, "bf16"));
        EXPECT_EQ(of("matmul", "gemm", "BF16", RowClass::kPrompt), name_of(kBf16Dot, "bf16"));
        EXPECT_EQ(of("matmul", "gemm", "Q4_K", RowClass::kPrompt), "int8");
    }
}

std::string isa_of(const ::testing::TestParamInfo<Isa>& info) {
    return std::string(isa_name(info.param));
}
INSTANTIATE_TEST_SUITE_P(Isa, Probes, ::testing::ValuesIn(available_isas()), isa_of);

TEST(Ceilings, are_measured_in_turns_with_what_is_held_against_them) {
    ThreadPool pool(2);
    const ProbeKernels probes = kernels_of_isa(available_isas().back()).probes;
    std::vector<double> shares;
    const Ceilings ceilings = measure_ceilings(
        probes, pool, 64 * kMiB,
        {.progress = {}, .between = [&](double share) { shares.push_back(share); }});
    ASSERT_FALSE(ceilings.list.empty());
    EXPECT_TRUE(std::is_sorted(shares.begin(), shares.end()));
    EXPECT_EQ(shares.front(), 0);
    int n_memory = 0, n_f32 = 0;
    for (const Ceiling& ceiling : ceilings.list) {
        EXPECT_EQ(ceiling.rates.size(), shares.size()) << ceiling.name;
        EXPECT_GT(ceiling.rate, 0) << ceiling.name;
        EXPECT_EQ(ceiling.theoretical, 0) << "nobody can say for sure";
        EXPECT_EQ(ceiling.buffer_bytes > 0, ceiling.kind != CeilingKind::kArithmetic);
        n_memory += ceiling.name == "memory";
        n_f32 += ceiling.name == "f32";
    }
    EXPECT_EQ(n_memory, 4) << "reading and copying, of one thread and of two";
    EXPECT_EQ(n_f32, 2);
    EXPECT_GT(ceilings.dispatch_us, 0);
    EXPECT_GT(ceilings.share_run, 0);
}

// As on a machine that is so busy that the first repetition takes all the time there is.
TEST(Ceilings, end_with_a_repetition_when_the_time_is_over) {
    ThreadPool pool(3);
    const ProbeKernels probes = kernels_of_isa(available_isas().back()).probes;
    size_t n_turns = 0, n_asked = 0;
    const Ceilings ceilings = measure_ceilings(
        probes, pool, 64 * kMiB,
        {.progress = [&](double) { n_asked++; }, .between = [&](double) { n_turns++; }}, 1e-3);
    EXPECT_EQ(n_turns, 1u);
    for (const Ceiling& ceiling : ceilings.list) {
        EXPECT_EQ(ceiling.rates.size(), 1u) << ceiling.name;
        EXPECT_GT(ceiling.rate, 0) << ceiling.name;
    }
    EXPECT_GT(ceilings.dispatch_us, 0);
    EXPECT_GT(n_asked, 3 * ceilings.list.size()) << "a signal is looked for before each sample";
}

TEST(Ceilings, can_be_given_up) {
    struct Enough {};
    ThreadPool pool(1);
    const ProbeKernels probes = kernels_of_isa(Isa::kScalar).probes;
    EXPECT_THROW(measure_ceilings(probes, pool, 64 * kMiB,
                                  {.progress = {},
                                   .between =
                                       [](double share) {
                                           if (share > 0.1) throw Enough();
                                       }}),
                 Enough);
}

}  // namespace
}  // namespace ridge::cpu
