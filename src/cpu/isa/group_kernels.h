#pragma once

#include <cstdint>

#include "cpu/isa/block_formats.h"
#include "cpu/kernels.h"

// Dot products of a group of 16 interleaved weight rows with 1 to 8 activation rows, written once
// over a vector type V (isa/block_formats.h). A V of fewer than 16 rows passes over the group once
// for each part of kRows rows.
//
// A block of 32 elements along k is one chain of eight 4-way integer dot products, exact, scaled
// once by (weight scale * activation scale): the order over k is the same for any number of rows.
// Weights are read once for up to V::kMaxRows rows, prefetched PackedShape::ahead_bytes ahead.

namespace ridge::cpu {
namespace {

// What a dot product of codes starts from, so that it ends as that of (code - offset).
template <class V, int offset>
inline typename V::Int start(const int32_t* negated_sum) {
    if constexpr (offset == 0) {
        return V::zero();
    } else {
        return V::template broadcast_times<offset>(negated_sum);
    }
}

template <class V, bool kWide>
inline typename V::Int dot(typename V::Int acc, typename V::Int c, const int8_t* x) {
    if constexpr (kWide) {
        return V::dot_wide(acc, c, x);
    } else {
        return V::dot(acc, c, x);
    }
}

// Whether V takes an operand of its dot products from a lane of 16 codes.
template <class V>
constexpr bool kHasCodeLanes = requires(const int8_t* x) {
    V::load_codes(x);
};

// Adds the products of 4 n codes of x with c[0 .. n), n a multiple of 4.
template <class V, bool kWide, int n>
inline typename V::Int dots(typename V::Int sum, const typename V::Int* c, const int8_t* x) {
    if constexpr (kHasCodeLanes<V>) {
#pragma GCC unroll 2
        for (int j = 0; j < n; j += 4) {
            const auto codes = V::load_codes(x + 4 * j);
            sum = V::template dot_lane<0>(sum, c[j], codes);
            sum = V::template dot_lane<1>(sum, c[j + 1], codes);
            sum = V::template dot_lane<2>(sum, c[j + 2], codes);
            sum = V::template dot_lane<3>(sum, c[j + 3], codes);
        }
    } else {
#pragma GCC unroll 8
        for (int j = 0; j < n; j++) sum = dot<V, kWide>(sum, c[j], x + 4 * j);
    }
    return sum;
}

// Where kN rows of the activations lie. Several are in a strip of kDecodeStripRows, at fixed
// distances.
template <int kN>
struct StripRows {
    static constexpr int64_t step = kDecodeStripRows;
    int64_t strip, first;
    StripRows(const Activations&, int64_t row) : strip(row / step), first(row % step) {}
};
template <>
struct StripRows<1> {
    int64_t step, strip, first;
    StripRows(const Activations& x, int64_t row)
        : step(x.rows_in_strip), strip(row / step), first(row % step) {}
};

// One part of kRows weight rows times kN activation rows.
template <class V, class F, int kN>
inline void dot_part(const uint8_t* group, const PackedShape& shape, const Activations& x,
                     int64_t first_row, int first_weight_row, float* tile) {
    using Int = typename V::Int;
    using Float = typename V::Float;
    using Scales = typename F::template Scales<V>;
    using Codes = typename F::Codes;
    // A V whose products are of signed bytes has taken 128 from wide codes.
    constexpr int kOffset = F::kOffset - (Codes::kWide && !V::kUnsignedWide ? 128 : 0);
    const int64_t scale_bytes = F::scale_bytes(shape);
    const int64_t super_bytes = scale_bytes + F::kBlocks * F::kCodeBytes;
    // Of a super-block, scales included, for each of its blocks.
    const int64_t lines = (super_bytes + 64 * F::kBlocks - 1) / (64 * F::kBlocks);
    const StripRows<kN> rows(x, first_row);
    const int8_t* codes = x.codes + rows.strip * x.code_stride + 32 * rows.first;
    const int64_t block0 = rows.strip * x.block_stride + rows.first;

    Float acc[kN];
#pragma GCC unroll 8
    for (int r = 0; r < kN; r++) acc[r] = V::zero_float();
    for (int64_t s = 0; s < shape.n_supers; s++, group += super_bytes) {
        const Scales scales(group, shape, first_weight_row);
        const uint8_t* block = group + scale_bytes + 4 * first_weight_row;
        for (int b = 0; b < F::kBlocks; b++, block += F::kCodeBytes) {
            if (first_weight_row == 0) {
                const uint8_t* ahead = group + shape.ahead_bytes + 64 * lines * b;
                for (int64_t i = 0; i < lines; i++) V::prefetch(ahead + 64 * i);
            }
            Int c[8];
            Codes::template load<V>(block, c);
            const int64_t at = s * F::kBlocks + b;
            if constexpr (!Scales::kHalves) {
                const Float scale = scales.scale(b);
#pragma GCC unroll 8
                for (int r = 0; r < kN; r++) {
                    const int64_t xb = block0 + rows.step * at + r;
                    const int8_t* xc = codes + 32 * (rows.step * at + r);
                    const Int sum =
                        dots<V, Codes::kWide, 8>(start<V, kOffset>(x.negated_sums + xb), c, xc);
                    acc[r] = V::fma(V::to_float(sum), V::mul(scale, V::broadcast(x.scales + xb)),
                                    acc[r]);
                    if constexpr (Scales::kMins) {
                        acc[r] = V::fma(scales.min(b), V::broadcast(x.scaled_sums + xb), acc[r]);
                    }
                }
            } else {
                const Float scale[2] = {scales.scale(b, 0), scales.scale(b, 1)};
#pragma GCC unroll 8
                for (int r = 0; r < kN; r++) {
                    const int64_t xb = block0 + rows.step * at + r;
                    const int64_t xh = xb + rows.step * at;
                    const int8_t* xc = codes + 32 * (rows.step * at + r);
                    Int sum[2];
#pragma GCC unroll 8
                    for (int h = 0; h < 2; h++) {
                        sum[h] = dots<V, Codes::kWide, 4>(
                            start<V, kOffset>(x.negated_half_sums + xh + rows.step * h), c + 4 * h,
                            xc + 16 * h);
                    }
                    const Float both = V::fma(V::to_float(sum[1]), scale[1],
                                              V::mul(V::to_float(sum[0]), scale[0]));
                    acc[r] = V::fma(both, V::broadcast(x.scales + xb), acc[r]);
                    if constexpr (Scales::kMins) {
#pragma GCC unroll 8
                        for (int h = 0; h < 2; h++) {
                            acc[r] = V::fma(scales.min(b, h),
                                            V::broadcast(x.scaled_half_sums + xh + rows.step * h),
                                            acc[r]);
                        }
                    }
                }
            }
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < kN; r++) V::store(tile + 16 * r + first_weight_row, acc[r]);
}

// Sums of products of float32 with pairs along k of weights: two chains, of even and odd k, added
// at the end.
template <class V, int kN>
struct FloatSums {
    const StripRows<kN> rows;
    const float* values;
    typename V::Float even[kN], odd[kN];

    FloatSums(const Activations& x, int64_t first_row)
        : rows(x, first_row), values(x.values + rows.strip * x.value_stride + rows.first) {
#pragma GCC unroll 8
        for (int r = 0; r < kN; r++) even[r] = odd[r] = V::zero_float();
    }
    // Pair i of the four that are next.
    [[gnu::always_inline]] void add(int i, const typename V::Float* w) {
#pragma GCC unroll 8
        for (int r = 0; r < kN; r++) {
            const float* v = values + 2 * i * rows.step + r;
            even[r] = V::fma(w[0], V::broadcast(v), even[r]);
            odd[r] = V::fma(w[1], V::broadcast(v + rows.step), odd[r]);
        }
    }
    [[gnu::always_inline]] void add_bf16(int i, typename V::Int pair) {
        typename V::Float w[2];
        V::bf16_pairs(pair, w);
        add(i, w);
    }
    void next_four() {
        values += 8 * rows.step;
    }
    void store(float* tile) const {
#pragma GCC unroll 8
        for (int r = 0; r < kN; r++) V::store(tile + 16 * r, V::add(even[r], odd[r]));
    }
};

template <class V, class F, int kN>
inline void dot_part_floats(const uint8_t* group, const PackedShape& shape, const Activations& x,
                            int64_t first_row, int first_weight_row, float* tile) {
    constexpr int kLines = F::kGeometry.code_bytes / 64 / 4;  // of four pairs
    FloatSums<V, kN> sums(x, first_row);
    for (int64_t s = 0; s < shape.n_supers; s++, group += F::kGeometry.code_bytes) {
        for (int four = 0; four < 4; four++) {
            if (first_weight_row == 0) {
                for (int i = 0; i < kLines; i++) {
                    V::prefetch(group + 64 * (kLines * four + i) + shape.ahead_bytes);
                }
            }
#pragma GCC unroll 4
            for (int i = 0; i < 4; i++) {
                typename V::Float w[2];
                F::template load<V>(group, 4 * four + i, first_weight_row, w);
                sums.add(i, w);
            }
            sums.next_four();
        }
    }
    sums.store(tile + first_weight_row);
}

// BF16, whose pairs S (FloatSums, or what multiplies bf16) takes as they lie.
template <class V, class S>
inline void dot_part_bf16(const uint8_t* group, const PackedShape& shape, const Activations& x,
                          int64_t first_row, int first_weight_row, float* tile) {
    S sums(x, first_row);
    for (int64_t four = 0; four < 4 * shape.n_supers; four++, group += 256) {
        if (first_weight_row == 0) {
            for (int i = 0; i < 4; i++) V::prefetch(group + 64 * i + shape.ahead_bytes);
        }
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            sums.add_bf16(i, V::load(group + 64 * i + 4 * first_weight_row));
        }
        sums.next_four();
    }
    sums.store(tile + first_weight_row);
}

// What group_kernel takes: the part of each, for kN rows at a time.
template <class F>
struct IntGroup {
    template <class V, int kN>
    static void part(const uint8_t* group, const PackedShape& shape, const Activations& x,
                     int64_t first_row, int first_weight_row, float* tile) {
        dot_part<V, F, kN>(group, shape, x, first_row, first_weight_row, tile);
    }
};
template <class F>
struct FloatGroup {
    template <class V, int kN>
    static void part(const uint8_t* group, const PackedShape& shape, const Activations& x,
                     int64_t first_row, int first_weight_row, float* tile) {
        dot_part_floats<V, F, kN>(group, shape, x, first_row, first_weight_row, tile);
    }
};
template <template <class, int> class Sums>
struct Bf16Group {
    template <class V, int kN>
    static void part(const uint8_t* group, const PackedShape& shape, const Activations& x,
                     int64_t first_row, int first_weight_row, float* tile) {
        dot_part_bf16<V, Sums<V, kN>>(group, shape, x, first_row, first_weight_row, tile);
    }
};

// Rows by eights, fours, twos and ones, as far as V has registers for them. A single row goes
// through `Single`, which may hold more weight rows at once, since there are fewer sums to hold.
template <class V, class Single, class G>
void group_kernel(const uint8_t* group, const PackedShape& shape, const Activations& x,
                  int64_t first_row, int n_rows, float* tile) {
    auto rows = [&](auto part, int n, int weight_rows) {
        for (int w = 0; w < kGroupRows; w += weight_rows) {
            part(group, shape, x, first_row, w, tile);
        }
        first_row += n, n_rows -= n, tile += 16 * n;
    };
    if constexpr (V::kMaxRows >= 8) {
        while (n_rows >= 8) rows(G::template part<V, 8>, 8, V::kRows);
    }
    if constexpr (V::kMaxRows >= 4) {
        while (n_rows >= 4) rows(G::template part<V, 4>, 4, V::kRows);
    }
    while (n_rows >= 2) rows(G::template part<V, 2>, 2, V::kRows);
    if (n_rows > 0) rows(G::template part<Single, 1>, 1, Single::kRows);
}

// In the order of FormatId.
template <class V, class Single = V, class FloatSingle = Single>
void fill_group_kernels(Kernels& into) {
    const GroupKernel kernels[kNumWeightFormats] = {
        group_kernel<V, FloatSingle, FloatGroup<FloatF32>>,
        group_kernel<V, FloatSingle, FloatGroup<FloatF16>>,
        group_kernel<V, FloatSingle, Bf16Group<FloatSums>>,
        group_kernel<V, Single, IntGroup<FormatQ4_0>>,
        group_kernel<V, Single, IntGroup<FormatQ4_1>>,
        group_kernel<V, Single, IntGroup<FormatQ5_0>>,
        group_kernel<V, Single, IntGroup<FormatQ5_1>>,
        group_kernel<V, Single, IntGroup<FormatQ8_0>>,
        group_kernel<V, Single, IntGroup<FormatQ2_K>>,
        group_kernel<V, Single, IntGroup<FormatQ3_K>>,
        group_kernel<V, Single, IntGroup<FormatQ4_K>>,
        group_kernel<V, Single, IntGroup<FormatQ5_K>>,
        group_kernel<V, Single, IntGroup<FormatQ6_K>>,
        group_kernel<V, Single, IntGroup<FormatIQ4_NL>>,
        group_kernel<V, Single, IntGroup<FormatIQ4_XS>>,
        group_kernel<V, Single, IntGroup<FormatAffine4>>,
        group_kernel<V, Single, IntGroup<FormatAffine8>>,
    };
    into.ahead_bytes = V::kPrefetchBytes;
    for (int i = 0; i < kNumWeightFormats; i++) {
        into.group[i] = kernels[i];
        into.group_operands[i] = i <= kBF16Index ? Operands::kF32 : Operands::kInt8;
    }
}

}  // namespace
}  // namespace ridge::cpu
