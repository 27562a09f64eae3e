#include "kernels_on_host/host_device.h"

// Kernels come behind it.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "base/checked_math.h"
#include "cases/random_weights.h"
#include "cuda/device/matvec_row.cuh"
#include "cuda/device/matvec_rows.cuh"
#include "format/packing.h"
#include "support/seed.h"

// matvec's kernels on a host (host_device.h), every kind of chunk: products beside float64's of the
// weights in the tiles, and a row's bits alone and in company.

namespace ridge::cuda::matvec {
namespace {

struct Format {
    std::string name;
    FormatId id;
    int group_size = 0;
    FormatId group_scales = FormatId::kF16;
};

// What is multiplied: weights of d_in x d_out, one beside the other or, with `swiglu`, two whose
// SwiGLU is stored.
struct Problem {
    int64_t d_in, d_out;
    int n_weights;
    bool swiglu, normed;
    int n_rows;
};

class Call {
  public:
    Call(const Format& format, const Problem& problem, bool pairs)
        : problem_(problem), random_(test_seed()), weights_(test_seed()) {
        for (int i = 0; i < problem.n_weights; i++) pack(format, i);
        std::uniform_real_distribution<float> of_x(-3, 3), of_norm(0.5f, 1.5f);
        x_.resize(static_cast<size_t>(problem.d_in * problem.n_rows));
        for (float& x : x_) x = of_x(random_);
        norm_.resize(static_cast<size_t>(problem.d_in));
        for (float& norm : norm_) norm = of_norm(random_);
        rounded_.resize(256 << 10);
        fill_args(pairs);
    }
    // Rows `first` and up: whose products are at `out`.
    MatvecArgs args(int first, int n_rows, std::vector<float>& out) {
        MatvecArgs a = args_;
        out.resize(static_cast<size_t>(problem_.n_rows) * static_cast<size_t>(a.out_stride));
        a.n_rows = n_rows, a.x = x_.data() + first * problem_.d_in;
        a.out = out.data() + first * a.out_stride, a.rounded = rounded_.data();
        return a;
    }
    // In float64, of row 0: relative L2 of what is at `out`.
    double error_of(const std::vector<float>& out) const {
        double square = 0;
        for (int64_t k = 0; k < problem_.d_in; k++) square += std::pow(double{x_[at(k)]}, 2);
        const auto d_in = static_cast<double>(problem_.d_in);
        const double scale = problem_.normed ? 1 / std::sqrt(square / d_in + double{args_.eps}) : 1;
        double error = 0, all = 0;
        for (int w = 0; w < (problem_.swiglu ? 1 : problem_.n_weights); w++) {
            for (int64_t row = 0; row < problem_.d_out; row++) {
                double want = product(w, row) * scale;
                if (problem_.swiglu) {
                    want = want / (1 + std::exp(-want)) * product(1, row) * scale;
                }
                error += std::pow(double{out[at(w * problem_.d_out + row)]} - want, 2);
                all += want * want;
            }
        }
        return std::sqrt(error / all);
    }

  private:
    static size_t at(int64_t i) { return static_cast<size_t>(i); }
    void pack(const Format& format, int i) {
        const CaseWeight weight{problem_.d_out, format.id, false, format.group_size,
                                format.group_scales};
        const Linear linear =
            weights_.linear(weight, problem_.d_in, 1.0f, static_cast<uint64_t>(i));
        Packing packing(linear.weight, tiles_layout(), nullptr);
        packing.settle();
        parts_.emplace_back(static_cast<size_t>(packing.n_bytes()));
        for (int64_t p = 0; p < packing.n_parts(); p++) packing.pack(p, parts_.back().data());
        geometry_ = tile_geometry(packing.view(parts_.back().data()));
    }
    void fill_args(bool pairs) {
        MatvecArgs& a = args_;
        const auto d_in = static_cast<int>(problem_.d_in), d_out = static_cast<int>(problem_.d_out);
        a.geometry = geometry_, a.offset = geometry_.kind.offset;
        a.epilogue = problem_.swiglu ? Epilogue::kSwiglu : Epilogue::kStore;
        a.n_weights = problem_.n_weights;
        for (int i = 0; i < a.n_weights; i++) {
            a.weights[i] = {part_of(i, 0), nullptr, ceil_div(d_out, kTileRows), d_out, i * d_out};
        }
        number_units(a, pairs);
        a.x_stride = a.d_in = d_in, a.has_quads = d_in % 4 == 0;
        a.norm = problem_.normed ? norm_.data() : nullptr;
        a.per_element = 1.0f / static_cast<float>(d_in), a.eps = 1e-5f;
        a.out_stride = a.n_weights * d_out;
    }
    const uint8_t* part_of(int weight, int64_t tile) const {
        return reinterpret_cast<const uint8_t*>(parts_[at(weight)].data()) +
               tile * geometry_.part_bytes;
    }
    // Of the row without its root mean square.
    double product(int weight, int64_t row) const {
        const uint8_t* part = part_of(weight, row / kTileRows);
        double sum = 0;
        for (int64_t k = 0; k < problem_.d_in; k++) {
            const double x = double{x_[at(k)]} * (problem_.normed ? double{norm_[at(k)]} : 1);
            const auto r = static_cast<int>(row % kTileRows);
            sum += x * double{tile_element(geometry_, part, r, k)};
        }
        return sum;
    }

    const Problem problem_;
    std::mt19937_64 random_;
    RandomWeights weights_;
    std::vector<std::vector<std::byte>> parts_;
    std::vector<float> x_, norm_;
    std::vector<uint8_t> rounded_;
    TileGeometry geometry_;
    MatvecArgs args_{};
};

// As launch_shape does, on a third as many blocks as there are units.
template <class Chunk, class Shape>
void check_shape(const Format& format, const Problem& problem) {
    SCOPED_TRACE(format.name + " " + std::to_string(problem.d_in));
    constexpr int kWarps = Shape::kWarps, kSides = Shape::kSides, kThreads = 32 * kWarps;
    constexpr int kDepth = depth_of<Chunk, kSides>;
    constexpr bool kAreCodes = Chunk::kBlock > 0;
    Call call(format, problem, kSides == 2 && !problem.swiglu);
    const auto plan_for = [&](const MatvecArgs& a) {
        return shared_plan(a.geometry.n_chunks, a.n_rows, kSides, kWarps, Chunk::kBlock,
                           problem.normed);
    };
    std::vector<float> together, alone, by_registers;
    MatvecArgs a = call.args(0, problem.n_rows, together);
    const auto n_blocks = static_cast<unsigned>(std::max(a.n_units / 3, 1));
    a.plan = plan_for(a);
    host_device::run_grid(static_cast<unsigned>(ceil_div(problem.n_rows * kThreads, kRoundThreads)),
                          kRoundThreads, 0, [&] { round_rows_kernel<Chunk::kBlock, kWarps>(a); });
    host_device::run_grid(n_blocks, kThreads, a.plan.n_bytes, [&] {
        matvec_kernel<Chunk, kWarps, kSides, kDepth, 16 / kWarps, false, 0>(a);
    });
    for (int row = 0; row < problem.n_rows; row++) {
        MatvecArgs one = call.args(row, 1, by_registers);
        one.plan = plan_for(one);
        // One row of codes is enough to see that it is the same.
        if (!kAreCodes || row == 0) {
            host_device::run_grid(n_blocks, kThreads, one.plan.n_bytes, [&] {
                matvec_kernel<Chunk, kWarps, kSides, kDepth, 16 / kWarps, true,
                              kAreCodes ? 0 : Shape::kQuads>(one);
            });
        }
        if constexpr (kAreCodes) {
            one = call.args(row, 1, alone);
            host_device::run_grid(n_blocks, kThreads, RowPlan<Chunk, Shape>::kBytes,
                                  [&] { matvec_row_kernel<Chunk, Shape>(one); });
        }
    }
    if constexpr (!kAreCodes) alone = by_registers;
    EXPECT_LT(call.error_of(alone), kAreCodes ? 2e-4 : 1e-3);
    EXPECT_TRUE(memcmp(alone.data(), together.data(), alone.size() * sizeof(float)) == 0);
    EXPECT_TRUE(memcmp(alone.data(), by_registers.data(),
                       static_cast<size_t>(a.out_stride) * sizeof(float)) == 0);
}

// Every shape that there are kernels for; tiles that are not full, rows that stages do not fill.
template <class Chunk>
void check_format(const Format& format) {
    check_shape<Chunk, RowShape<8, 1, 4, true, 2>>(format, {2048, 40, 2, false, true, 2});
    check_shape<Chunk, RowShape<8, 1, 4, true, 4>>(format, {4096, 24, 1, false, true, 5});
    check_shape<Chunk, RowShape<8, 1, 5, true, 3>>(format, {2560, 40, 1, false, false, 2});
    check_shape<Chunk, RowShape<8, 2, 4, true, 2>>(format, {2048, 40, 2, true, true, 3});
    check_shape<Chunk, RowShape<8, 2, 5, true, 3>>(format, {2560, 100, 1, false, true, 2});
    check_shape<Chunk, RowShape<16, 1, 4, true, 2>>(format, {4096, 24, 1, false, false, 2});
    check_shape<Chunk, RowShape<16, 1, 4, true, 4>>(format, {8192, 16, 1, false, false, 2});
    check_shape<Chunk, RowShape<16, 1, 4, false, 5>>(format, {9728, 24, 1, false, true, 2});
    check_shape<Chunk, RowShape<16, 1, 4, false, 6>>(format, {11008, 16, 1, false, false, 2});
}
template <Codes codes, Scales scales, class T = void>
void check(const Format& format) {
    check_format<StreamedChunk<codes, scales, T>>(format);
}

TEST(MatvecOnHost, multiplies_codes_of_four_bits) {
    check<Codes::kFour, Scales::kSmall>({"Q4_0", FormatId::kQ4_0});
    check<Codes::kFour, Scales::kSmallMin>({"Q4_1", FormatId::kQ4_1});
    check<Codes::kFour, Scales::kSuper>({"Q4_K", FormatId::kQ4_K});
    check<Codes::kFour, Scales::kSuper16Min>({"Q2_K", FormatId::kQ2_K});
    check<Codes::kFour, Scales::kSuper16>({"Q3_K", FormatId::kQ3_K});
}
TEST(MatvecOnHost, multiplies_codes_of_five_and_six_bits) {
    check<Codes::kFive, Scales::kSmall>({"Q5_0", FormatId::kQ5_0});
    check<Codes::kFive, Scales::kSmallMin>({"Q5_1", FormatId::kQ5_1});
    check<Codes::kFive, Scales::kSuper>({"Q5_K", FormatId::kQ5_K});
    check<Codes::kSix, Scales::kSuper16>({"Q6_K", FormatId::kQ6_K});
}
TEST(MatvecOnHost, multiplies_codes_of_eight_bits) {
    check<Codes::kEight, Scales::kSmall>({"Q8_0", FormatId::kQ8_0});
    check<Codes::kEight, Scales::kSuper16>({"IQ4_XS", FormatId::kIQ4_XS});
}
TEST(MatvecOnHost, multiplies_groups) {
    check<Codes::kFour, Scales::kGroup, __half>({"affine4", FormatId::kAffine4, 64});
    check<Codes::kFour, Scales::kGroup, float>(
        {"affine4 of f32", FormatId::kAffine4, 128, FormatId::kF32});
    check<Codes::kEight, Scales::kGroup, __nv_bfloat16>(
        {"affine8 of bf16", FormatId::kAffine8, 32, FormatId::kBF16});
}
TEST(MatvecOnHost, multiplies_f16) {
    check<Codes::kF16, Scales::kNone>({"BF16", FormatId::kBF16});
}

}  // namespace
}  // namespace ridge::cuda::matvec
