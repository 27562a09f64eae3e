#pragma once

#include <cmath>
#include <cstdint>

#include "cuda/device/decode_feed.cuh"
#include "cuda/device/decode_fragments.cuh"
#include "cuda/device/decode_shape.cuh"
#include "cuda/device/mma.cuh"

// Decode attention on tensor units: a warp's units of positions.

namespace ridge::cuda::decode {

// Where all scores are -inf they are not told from one another: exp2(-inf - 0) is 0.
__device__ __forceinline__ float base_of(float highest) {
    return highest == -INFINITY ? 0.0f : highest;
}

// x = high + low, where infinity times the low part of a number is nothing that counts.
__device__ __forceinline__ float sum_of_parts(float high, float low) {
    const float sum = high + low;
    return sum != sum ? high : sum;
}

template <class S>
__device__ __forceinline__ void multiply_add(float (&sums)[4], const uint32_t (&a)[4], uint32_t low,
                                             uint32_t high) {
    const uint32_t b[2] = {low, high};
    if constexpr (S::kIsF16) {
        mma_f16(sums, a, b);
    } else {
        mma_bf16(sums, a, b);
    }
}

// What a warp makes of its units. A product's 16 rows are 16 positions of K, then 16 elements of V;
// its columns are query heads (TensorShape). So a lane 4 g + t has scores and weights of the heads
// that t has, at positions that g has, which become the other operand of the second product by
// transposing matrices of 8 x 8; and of the result two elements of every 16.
template <class S>
class Units {
  public:
    __device__ __forceinline__ Units(const S& s, const Room<S>& room, int lane)
        : s_(s),
          lane_(lane),
          g_(lane / 4),
          queries_(shared_address(room.queries) + lane % 8 * S::query_row(s.d) + lane / 8 * 16) {
        const int matrix = lane / 8, row = lane % 8;
        // Matrices of K are rows 0 to 7 and 8 to 15 at positions 0 to 7 and 8 to 15 each; of codes,
        // two of which are a number of 16 bits, rows 0 to 31 at positions 0 to 15.
        key_ = S::kHasCodes ? S::key_place(8 * matrix + row, 0)
                            : S::key_place(row + matrix / 2 * 8, matrix % 2);
        // Of V positions 0 to 7 and 8 to 15 at elements 0 to 7 and 8 to 15 each; of codes even and
        // odd positions, in which order K's come, at elements 0 to 15 and 16 to 31.
        value_ = S::kHasCodes ? S::value_place(s.d, 2 * row + matrix % 2, matrix / 2)
                              : S::value_place(s.d, row + matrix / 2 * 8, matrix % 2);
        settle(queries_), settle(key_), settle(value_);
        clear(sums_);
    }

    // Queries are there.
    __device__ __forceinline__ void begin(const float* powers) {
#pragma unroll
        for (int h = 0; h < kHeads; h++) {
            power_[h] = powers[kHeads * (lane_ % 4) + h];
            highest_[h] = -INFINITY, total_[h] = 0;
        }
    }

    // Of K in shared memory, of which n_visible positions are to be seen. What sums so far are
    // relative to changes.
    __device__ __forceinline__ void weigh(SharedAddress keys, int n_visible) {
        float products[2 * S::kProducts][kStrips][4];
        clear(products);
        score(keys, products);
#pragma unroll
        for (int h = 0; h < kHeads; h++) {
            float highest = highest_[h];
#pragma unroll
            for (int m = 0; m < kStrips; m++) {
#pragma unroll
                for (int r = 0; r < 2; r++) {
                    float& weight = weights_[m][r][h];
                    const float x =
                        S::kProducts == 1
                            ? sum_of_parts(products[0][m][2 * r], products[0][m][2 * r + 1])
                            : sum_of_parts(products[0][m][2 * r + h],
                                           products[S::kProducts - 1][m][2 * r + h]);
                    weight = position(m, r) < n_visible ? x * power_[h] : -INFINITY;
                    highest = fmaxf(highest, weight);
                }
            }
#pragma unroll
            for (int bit = 4; bit < 32; bit *= 2) {
                highest = fmaxf(highest, __shfl_xor_sync(kAllLanes, highest, bit));
            }
            const float base = base_of(highest);
            shrink_[h] = exp2_near(highest_[h] - base);
            highest_[h] = highest;
            float total = 0;
#pragma unroll
            for (int m = 0; m < kStrips; m++) {
#pragma unroll
                for (int r = 0; r < 2; r++) {
                    weights_[m][r][h] = exp2_near(weights_[m][r][h] - (base - kLift));
                    total += weights_[m][r][h];
                }
            }
            total_[h] = fmaf(total_[h], shrink_[h], total);
        }
    }

    // Of V in shared memory.
    __device__ __forceinline__ void add(SharedAddress values, int n_visible) {
        if constexpr (S::kHasCodes) {
            add_codes(values, n_visible);
        } else {
            shrink(1);
            uint32_t b[S::kProducts][kStrips][2];
            make_operand([&](int m, int r, int h) { return weights_[m][r][h]; }, b);
#pragma unroll
            for (int e = 0; e < S::kMostD / 16; e++) {
                if (!S::kWhole && 16 * e >= s_.d) break;
#pragma unroll
                for (int m = 0; m < kStrips; m++) {
                    uint32_t a[4];
                    const int place = S::kAlternates ? (value_ ^ 32 * e) : value_ + 32 * e;
                    load_transposed(a, values + place + m * 16 * S::value_row(s_.d));
#pragma unroll
                    for (int p = 0; p < S::kProducts; p++) {
                        multiply_add<S>(sums_[e], a, b[p][m][0], b[p][m][1]);
                    }
                }
            }
        }
    }

    // The sums [kHeads][d + kSumGap], and what they are relative to, for all warps to read.
    __device__ __forceinline__ void put(float* sums, float2* states) {
#pragma unroll
        for (int h = 0; h < kHeads; h++) {
            float total = total_[h];
#pragma unroll
            for (int bit = 4; bit < 32; bit *= 2) {
                total += __shfl_xor_sync(kAllLanes, total, bit);
            }
            if (g_ == 0) states[kHeads * (lane_ % 4) + h] = {highest_[h], total};
        }
        const float power = S::kHasCodes ? power_of(exponent_) : 1;
        float* to = sums + lane_ % 4 * kHeads * (s_.d + kSumGap) + (S::kHasCodes ? 2 * g_ : g_);
#pragma unroll
        for (int e = 0; e < S::kMostD / 16; e++) {
            if (!S::kWhole && 16 * e >= s_.d) break;
#pragma unroll
            for (int r = 0; r < 2; r++) {
                float* at = to + 16 * e + (S::kHasCodes ? r : 8 * r);
                if constexpr (S::kProducts == 1) {
                    *at = sum_of_parts(sums_[e][2 * r], sums_[e][2 * r + 1]) * power;
                } else {
                    at[0] = sums_[e][2 * r] * power;
                    at[s_.d + kSumGap] = sums_[e][2 * r + 1] * power;
                }
            }
        }
    }

  private:
    static constexpr int kHeads = S::kLaneHeads, kStrips = kUnit / 16;
    // Weights, and with them sums and totals, are 2^kLift times what they are: so two numbers of
    // f16 have 22 bits of weights down to 2^-26 of the highest.
    static constexpr float kLift = S::kIsF16 ? 14 : 0;

    // Of the unit, that row g + 8 r of strip m has.
    __device__ int position(int m, int r) const {
        return 16 * m + (S::kHasCodes ? 2 * g_ + r : g_ + 8 * r);
    }

    // products[part][m] = K^T q of strip m; of four heads a lane has both parts in part 0.
    __device__ __forceinline__ void score(SharedAddress keys,
                                          float (&products)[2 * S::kProducts][kStrips][4]) {
#pragma unroll
        for (int i = 0; i < S::kMostD / 32; i++) {  // 32 elements, which in q8_0 share a scale
            if (!S::kWhole && 32 * i >= s_.d) break;
            uint32_t b[S::kProducts][4];
#pragma unroll
            for (int p = 0; p < S::kProducts; p++) {
                load_matrices(b[p], queries_ + p * 8 * S::query_row(s_.d) + 64 * i);
            }
#pragma unroll
            for (int m = 0; m < kStrips; m++) {
                if constexpr (S::kHasCodes) {
                    score_codes(keys, i, m, b, products);
                } else {
                    score_numbers(keys, i, m, b, products);
                }
            }
        }
        if constexpr (!S::kHasCodes) {
#pragma unroll
            for (int p = 0; p < S::kProducts; p++) {
#pragma unroll
                for (int m = 0; m < kStrips; m++) {
#pragma unroll
                    for (int c = 0; c < 4; c++)
                        products[p][m][c] += products[S::kProducts + p][m][c];
                }
            }
        }
    }
    __device__ __forceinline__ void score_numbers(SharedAddress keys, int i, int m,
                                                  const uint32_t (&b)[S::kProducts][4],
                                                  float (&products)[2 * S::kProducts][kStrips][4]) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            if (!S::kWhole && 32 * i + 16 * half >= s_.d) break;
            uint32_t a[4];
            load_transposed(a, keys + (key_ ^ 32 * m) + (32 * i + 16 * half) * S::kKeyRow);
#pragma unroll
            for (int p = 0; p < S::kProducts; p++) {
                // Chains of sums are half as long as d_head is.
                multiply_add<S>(products[S::kProducts * half + p][m], a, b[p][2 * half],
                                b[p][2 * half + 1]);
            }
        }
    }
    __device__ __forceinline__ void score_codes(SharedAddress keys, int i, int m,
                                                const uint32_t (&b)[S::kProducts][4],
                                                float (&products)[2 * S::kProducts][kStrips][4]) {
        uint32_t codes[4];  // rows 8 j to 8 j + 7
        load_transposed(codes, keys + (key_ ^ 16 * m) + 32 * i * S::kKeyRow);
        const float2 scale = floats_of_f16(
            load_shared(keys + S::key_scales(s_.d) + 2 * (i * kUnit + 16 * m + 2 * g_)));
        float sums[S::kProducts][4];
        clear(sums);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const uint32_t a[4] = {two_codes(codes[2 * half], 0), two_codes(codes[2 * half], 1),
                                   two_codes(codes[2 * half + 1], 0),
                                   two_codes(codes[2 * half + 1], 1)};
#pragma unroll
            for (int p = 0; p < S::kProducts; p++) {
                multiply_add<S>(sums[p], a, b[p][2 * half], b[p][2 * half + 1]);
            }
        }
#pragma unroll
        for (int p = 0; p < S::kProducts; p++) {
#pragma unroll
            for (int c = 0; c < 4; c++) {
                products[p][m][c] = fmaf(sums[p][c], c < 2 ? scale.x : scale.y, products[p][m][c]);
            }
        }
    }

    __device__ __forceinline__ void shrink(float power) {
#pragma unroll
        for (int e = 0; e < S::kMostD / 16; e++) {
            if (!S::kWhole && 16 * e >= s_.d) break;
#pragma unroll
            for (int c = 0; c < 4; c++) sums_[e][c] *= shrink_[c % 2 * (kHeads - 1)] * power;
        }
    }

    // Of weights in two parts each.
    template <class Weight>
    __device__ __forceinline__ void make_operand(Weight weight,
                                                 uint32_t (&b)[S::kProducts][kStrips][2]) {
#pragma unroll
        for (int m = 0; m < kStrips; m++) {
#pragma unroll
            for (int r = 0; r < 2; r++) {
                if constexpr (S::kProducts == 1) {
                    const float x = weight(m, r, 0);
                    b[0][m][r] = transposed(two(x, x - rounded(x)));
                } else {
                    const float x = weight(m, r, 0), y = weight(m, r, 1);
                    b[0][m][r] = transposed(two(x, y));
                    b[S::kProducts - 1][m][r] = transposed(two(x - rounded(x), y - rounded(y)));
                }
            }
        }
    }
    __device__ static uint32_t two(float low, float high) {
        return S::kIsF16 ? two_f16(low, high) : two_bf16(low, high);
    }
    __device__ static float rounded(float x) {
        return S::kIsF16 ? __half2float(__float2half_rn(x))
                         : __bfloat162float(__float2bfloat16_rn(x));
    }

    // Scales are brought to 1 and below by the power of two of the highest so far, and weights are
    // multiplied by them.
    __device__ __forceinline__ void add_codes(SharedAddress values, int n_visible) {
        constexpr int kBlocks = S::kMostD / kKvScaleElements;
        const int n_blocks = s_.d / kKvScaleElements;
        uint16_t scales[kStrips][2][kBlocks];
        uint32_t highest = 0;
#pragma unroll
        for (int m = 0; m < kStrips; m++) {
#pragma unroll
            for (int r = 0; r < 2; r++) {
#pragma unroll
                for (int i = 0; i < kBlocks; i++) {
                    if (!S::kWhole && i >= n_blocks) break;
                    const int p = position(m, r);
                    const uint16_t scale =
                        load_shared_half(values + S::value_scales(s_.d) + (p * n_blocks + i) * 2);
                    scales[m][r][i] = p < n_visible ? scale : uint16_t{0};
                    highest = max(highest, scales[m][r][i] & 0x7c00u);
                }
            }
        }
        const int exponent =
            max(exponent_, static_cast<int>(__reduce_max_sync(kAllLanes, highest) >> 10));
        shrink(power_of(exponent_ - exponent + kExponentBias));
        exponent_ = exponent;
        const float inverse = power_of(2 * kExponentBias - exponent);
#pragma unroll
        for (int i = 0; i < kBlocks; i++) {
            if (!S::kWhole && i >= n_blocks) break;
            uint32_t b[S::kProducts][kStrips][2];
            make_operand(
                [&](int m, int r, int h) {
                    return weights_[m][r][h] *
                           (__half2float(__ushort_as_half(scales[m][r][i])) * inverse);
                },
                b);
#pragma unroll
            for (int m = 0; m < kStrips; m++) {
                uint32_t codes[4];  // even and odd positions, at elements 0 to 15 and 16 to 31
                load_transposed(codes, values + value_ + 32 * i + m * 16 * S::value_row(s_.d));
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    const uint32_t a[4] = {
                        two_codes(codes[2 * half], 0), two_codes(codes[2 * half], 1),
                        two_codes(codes[2 * half + 1], 0), two_codes(codes[2 * half + 1], 1)};
#pragma unroll
                    for (int p = 0; p < S::kProducts; p++) {
                        multiply_add<S>(sums_[2 * i + half], a, b[p][m][0], b[p][m][1]);
                    }
                }
            }
        }
    }
    static constexpr int kExponentBias = 15;  // f16's
    // 2^(exponent - kExponentBias)
    __device__ static float power_of(int exponent) {
        return __uint_as_float(static_cast<uint32_t>(exponent + 127 - kExponentBias) << 23);
    }

    const S& s_;
    const int lane_, g_;
    SharedAddress queries_;
    int key_, value_;  // of the lane's row of matrices, from a unit's first
    float power_[kHeads], highest_[kHeads], total_[kHeads], shrink_[kHeads];
    float weights_[kStrips][2][kHeads];
    float sums_[S::kMostD / 16][4];
    int exponent_ = 0;  // of scales of V that sums are relative to
};

// This warp's part of an item.
template <class S>
__device__ __forceinline__ void attend_units(const S& s, const Item& item, const Room<S>& room,
                                             Feed<S>& feed, Units<S>& units, int warp) {
    units.begin(room.powers);
#pragma unroll 1
    for (int unit = warp; unit < feed.n_units(); unit += S::kWarps) {
        const int n_visible = item.n_in_block - unit * kUnit;
        const bool is_newest = item.has_fresh && unit == feed.n_units() - 1;
        feed.wait();
        if (is_newest) feed.put_key(room.k);
        units.weigh(feed.keys(), n_visible);
        __syncwarp();  // K has been read
        feed.fetch_keys();
        feed.wait();
        if (is_newest) feed.put_value(room.v);
        units.add(feed.values(), n_visible);
        __syncwarp();  // V has been read
        feed.fetch_values();
    }
    if (warp < feed.n_units()) units.put(room.sums(s, warp), room.states + warp * S::kHeads);
}

}  // namespace ridge::cuda::decode
