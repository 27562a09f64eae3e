#pragma once

#include <cmath>
#include <cstdint>

#include "cuda/device/async.cuh"
#include "cuda/device/numbers.cuh"
#include "cuda/device/prefill_tiles.cuh"

// A prompt's attention, of one block of threads: a tile of pairs against pages in order.

namespace ridge::cuda::prefill {

__device__ __forceinline__ float sum_of_four(float x) {  // lanes that share a row
    x += __shfl_xor_sync(kAllLanes, x, 1);
    return x + __shfl_xor_sync(kAllLanes, x, 2);
}
__device__ __forceinline__ float max_of_four(float x) {
    x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, 1));
    return fmaxf(x, __shfl_xor_sync(kAllLanes, x, 2));
}

// Where all scores are -inf they are not told from one another: exp2(-inf - 0) is 0.
__device__ __forceinline__ float base_of(float highest) {
    return highest == -INFINITY ? 0.0f : highest;
}

// The highest score, in powers of two, and the sum of weights relative to it.
//   No member has a value from the start: nvcc 13.0 gives such values to the first row alone of an
//   array of arrays, and zeros to the others. forget() sets them all.
struct State {
    float highest, total;
};

// Nothing has been seen.
template <int n_strips>
__device__ __forceinline__ void forget(State (&states)[n_strips][2]) {
#pragma unroll
    for (int m = 0; m < n_strips; m++) {
        states[m][0].highest = states[m][1].highest = -INFINITY;
        states[m][0].total = states[m][1].total = 0;
    }
}

// How a segment's sums are added to those before it: by these factors.
struct Joined {
    State state;
    float before, own;

    __device__ Joined(State sums, State segment) {
        state.highest = fmaxf(sums.highest, segment.highest);
        const float base = base_of(state.highest);
        before = exp2_near(sums.highest - base), own = exp2_near(segment.highest - base);
        state.total = fmaf(own, segment.total, before * sums.total);
    }
    __device__ float operator()(float sum, float segment) const {
        return fmaf(own, segment, before * sum);
    }
};

// The pairs of a lane: lane 4 g + t has columns of rows g and g + 8 of each of its warp's strips.
template <class S>
struct LanePairs {
    int first;                    // pair of strip 0, row g
    int position[S::kStrips][2];  // that the pair's row sees last, -1: none
    int last, least;              // of the warp, as in RowTile

    __device__ __forceinline__ LanePairs(const PromptRows& a, const RowTile& tile, int warp,
                                         int lane)
        : first(tile.first_pair + warp * S::kStrips * kStripRows + lane / 4), least(INT_MAX) {
        last = -1;
#pragma unroll
        for (int m = 0; m < S::kStrips; m++) {
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const bool is_there = pair(m, h) < tile.end_pair;
                const int p = is_there ? a.positions[tile.row(pair(m, h))] : -1;
                position[m][h] = p;
                last = max(last, p);
                if (p >= 0) least = min(least, p);
            }
        }
        last = max_of_warp(last), least = min_of_warp(least);
    }
    __device__ int pair(int strip, int half) const {
        return first + strip * kStripRows + half * 8;
    }
};

// Queries as operands a, in parts. Those of f16 are brought to below 2 by a power of two for each
// pair, which what their scores are multiplied by takes back: none overflows.
template <class S>
class Queries {
  public:
    float factor[S::kStrips][2];  // of a pair's scores

    __device__ __forceinline__ Queries(const S& s, const PromptRows& a, const RowTile& tile,
                                       const LanePairs<S>& pairs, std::byte* shared, int warp,
                                       int lane)
        : s_(s) {
        if constexpr (S::kQueriesAreShared) {
            shared_ = reinterpret_cast<uint4*>(shared + s.query_offset()) +
                      warp * S::kStrips * n_steps() * S::kQueryParts * 32 + lane;
        }
#pragma unroll
        for (int m = 0; m < S::kStrips; m++) {
            const float* rows[2];
            float inverse[2];
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const int pair = pairs.pair(m, h);
                rows[h] = nullptr;
                if (pair < tile.end_pair) {
                    rows[h] = a.q + tile.row(pair) * a.q_stride + int64_t{tile.head(pair)} * s.d;
                }
                factor[m][h] = a.scale, inverse[h] = 1;
                if constexpr (S::kIsF16) {
                    const float power = power_of(rows[h], lane);
                    factor[m][h] *= power, inverse[h] = 1 / power;
                }
            }
#pragma unroll
            for (int k = 0; k < S::kMostD / 16; k++) {
                if (!S::kWhole && k >= n_steps()) break;
                uint32_t parts[S::kQueryParts][4];
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    const int h = i % 2, column = 16 * k + i / 2 * 8 + lane % 4 * 2;
                    float x = 0, y = 0;
                    if (rows[h] != nullptr) {
                        x = rows[h][column] * inverse[h], y = rows[h][column + 1] * inverse[h];
                    }
                    parts[0][i] = S::two(x, y);
                    if constexpr (S::kQueryParts == 2) {
                        const float2 high = S::floats(parts[0][i]);
                        parts[1][i] = S::two(x - high.x, y - high.y);
                    }
                }
#pragma unroll
                for (int part = 0; part < S::kQueryParts; part++) keep(m, k, part, parts[part]);
            }
        }
    }
    __device__ __forceinline__ int n_steps() const {
        return s_.d / 16;
    }
    // Of a strip, elements 16 k to 16 k + 15.
    __device__ __forceinline__ void get(int strip, int k, int part, uint32_t (&x)[4]) const {
        if constexpr (S::kQueriesAreShared) {
            const uint4 four = shared_[((strip * n_steps() + k) * S::kQueryParts + part) * 32];
            x[0] = four.x, x[1] = four.y, x[2] = four.z, x[3] = four.w;
        } else {
#pragma unroll
            for (int i = 0; i < 4; i++) x[i] = registers_[strip][k][part][i];
        }
    }

  private:
    // The power of two at or below the greatest magnitude of a row, within what can be divided by.
    __device__ float power_of(const float* row, int lane) const {
        float highest = 0;
        if (row != nullptr) {
            for (int column = lane % 4 * 2; column < s_.d; column += 8) {
                highest = fmaxf(highest, fmaxf(fabsf(row[column]), fabsf(row[column + 1])));
            }
        }
        constexpr uint32_t kLeast = 27u << 23, kMost = 227u << 23;  // 2^-100, 2^100
        const uint32_t bits = __float_as_uint(max_of_four(highest)) & 0x7f800000u;
        return __uint_as_float(min(max(bits, kLeast), kMost));
    }
    __device__ __forceinline__ void keep(int strip, int k, int part, const uint32_t (&x)[4]) {
        if constexpr (S::kQueriesAreShared) {
            shared_[((strip * n_steps() + k) * S::kQueryParts + part) * 32] = {x[0], x[1], x[2],
                                                                               x[3]};
        } else {
#pragma unroll
            for (int i = 0; i < 4; i++) registers_[strip][k][part][i] = x[i];
        }
    }

    const S& s_;
    uint4* shared_ = nullptr;  // of this lane, which alone reads it
    uint32_t registers_[S::kQueriesAreShared ? 1 : S::kStrips]
                       [S::kQueriesAreShared ? 1 : S::kMostD / 16][S::kQueryParts][4];
};

// Where a lane says that a matrix of 16 rows of operands lies, from row 0 and column 0 on.
__device__ __forceinline__ SharedAddress lane_address(const std::byte* matrix, int row_bytes,
                                                      int lane) {
    return shared_address(matrix) + lane % 16 * row_bytes + lane / 16 * 16;
}

// Operands b of 16 rows and 2 times 8 columns.
template <class S>
struct Operands {
    uint32_t parts[S::kTileParts][4];

    __device__ __forceinline__ Operands(SharedAddress at, int part_bytes) {
#pragma unroll
        for (int i = 0; i < S::kTileParts; i++) load_transposed(parts[i], at + i * part_bytes);
    }
    // sums += a times one of the two. a in parts, of which products of two second ones are left out
    template <int kParts>
    __device__ __forceinline__ void multiply_add(const uint32_t (&a)[kParts][4], int which,
                                                 float (&sums)[4]) const {
        const uint32_t first[2] = {parts[0][2 * which], parts[0][2 * which + 1]};
        S::multiply_add(sums, a[0], first);
        if constexpr (kParts == 2) S::multiply_add(sums, a[1], first);
        if constexpr (S::kTileParts == 2) {
            const uint32_t second[2] = {parts[1][2 * which], parts[1][2 * which + 1]};
            S::multiply_add(sums, a[0], second);
        }
    }
};

// scores[m][n] = q[m] . K of a page: of a lane rows g and g + 8, positions 8 n + 2 t and 8 n + 2 t
// + 1
template <class S>
__device__ __forceinline__ void find_scores(const S& s, const Queries<S>& queries,
                                            const Pages<S>& pages, int lane,
                                            float (&scores)[S::kStrips][kPage / 8][4]) {
#pragma unroll
    for (int m = 0; m < S::kStrips; m++) {
#pragma unroll
        for (int n = 0; n < kPage / 8; n++) {
            scores[m][n][0] = scores[m][n][1] = scores[m][n][2] = scores[m][n][3] = 0;
        }
    }
    constexpr int kRow = row_bytes_of(kPage);
    const SharedAddress k = lane_address(pages.k(), kRow, lane);
    const auto add_step = [&](int step) {
        uint32_t q[S::kStrips][S::kQueryParts][4];
#pragma unroll
        for (int m = 0; m < S::kStrips; m++) {
#pragma unroll
            for (int part = 0; part < S::kQueryParts; part++) {
                queries.get(m, step, part, q[m][part]);
            }
        }
#pragma unroll
        for (int n = 0; n < kPage / 16; n++) {
            const Operands<S> b(k + step * 16 * kRow + n * 32, s.k_bytes());
#pragma unroll
            for (int m = 0; m < S::kStrips; m++) {
                b.multiply_add(q[m], 0, scores[m][2 * n]);
                b.multiply_add(q[m], 1, scores[m][2 * n + 1]);
            }
        }
    };
    if constexpr (S::kWhole) {
#pragma unroll
        for (int step = 0; step < S::kMostD / 16; step++) add_step(step);
    } else {
#pragma unroll 1
        for (int step = 0; step < queries.n_steps(); step++) add_step(step);
    }
}

// Weights of a page as operands a: [strips][16 positions each][parts][4].
template <class S>
using Weights = uint32_t[S::kStrips][kPage / 16][S::kWeightParts][4];

// Scores to weights; what the pairs' sums so far are multiplied by goes to `shrink`. Positions
// behind a row's own, of which the page has some if `has_hidden`, weigh nothing.
template <class S>
__device__ __forceinline__ void weigh(float (&scores)[S::kStrips][kPage / 8][4],
                                      const LanePairs<S>& pairs, const Queries<S>& queries,
                                      int page, bool has_hidden, int lane,
                                      State (&states)[S::kStrips][2], Weights<S>& weights,
                                      float (&shrink)[S::kStrips][2]) {
#pragma unroll
    for (int m = 0; m < S::kStrips; m++) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            if (has_hidden) {
                const int n_visible = pairs.position[m][h] + 1 - page * kPage - lane % 4 * 2;
#pragma unroll
                for (int n = 0; n < kPage / 8; n++) {
                    if (8 * n >= n_visible) scores[m][n][2 * h] = -INFINITY;
                    if (8 * n + 1 >= n_visible) scores[m][n][2 * h + 1] = -INFINITY;
                }
            }
            float raw = -INFINITY;
#pragma unroll
            for (int n = 0; n < kPage / 8; n++) {
                raw = fmaxf(raw, fmaxf(scores[m][n][2 * h], scores[m][n][2 * h + 1]));
            }
            State& state = states[m][h];
            const float factor = queries.factor[m][h];
            const float highest = fmaxf(state.highest, max_of_four(raw) * factor);
            const float base = base_of(highest);
            shrink[m][h] = exp2_near(state.highest - base);
            float total = state.total * shrink[m][h];
#pragma unroll
            for (int n = 0; n < kPage / 8; n++) {
                const float x = exp2_near(fmaf(scores[m][n][2 * h], factor, -base));
                const float y = exp2_near(fmaf(scores[m][n][2 * h + 1], factor, -base));
                uint32_t(&parts)[S::kWeightParts][4] = weights[m][n / 2];
                const int i = n % 2 * 2 + h;
                parts[0][i] = S::two(x, y);
                if constexpr (S::kIsF16) {
                    total += x + y;
                } else {
                    const float2 rounded = S::floats(parts[0][i]);
                    if constexpr (S::kWeightParts == 2) {
                        parts[1][i] = S::two(x - rounded.x, y - rounded.y);
                        total += x + y;
                    } else {
                        total += rounded.x + rounded.y;
                    }
                }
            }
            state = {highest, total};
        }
    }
}

template <class S>
using Sums = float[S::kStrips][S::kMostD / 8][4];

template <class S>
__device__ __forceinline__ void shrink_sums(const float (&shrink)[S::kStrips][2], Sums<S>& sums) {
    bool changes = false;
#pragma unroll
    for (int m = 0; m < S::kStrips; m++) {
        changes = changes || shrink[m][0] != 1 || shrink[m][1] != 1;
    }
    if (!__any_sync(kAllLanes, changes)) return;  // most often: times 1 is exact
#pragma unroll
    for (int m = 0; m < S::kStrips; m++) {
#pragma unroll
        for (int n = 0; n < S::kMostD / 8; n++) {
#pragma unroll
            for (int i = 0; i < 4; i++) sums[m][n][i] *= shrink[m][i / 2];
        }
    }
}

// sums[m][n] += weights[m] V of a page: elements 8 n + 2 t and 8 n + 2 t + 1
template <class S>
__device__ __forceinline__ void add_values(const S& s, const Weights<S>& weights,
                                           const Pages<S>& pages, int lane, Sums<S>& sums) {
    const int row_bytes = row_bytes_of(s.d);
    const SharedAddress v = lane_address(pages.v(), row_bytes, lane);
#pragma unroll
    for (int step = 0; step < kPage / 16; step++) {
#pragma unroll
        for (int n = 0; n < S::kMostD / 16; n++) {
            if (!S::kWhole && 16 * n >= s.d) break;
            const Operands<S> b(v + step * 16 * row_bytes + n * 32, v_bytes_of(s.d));
#pragma unroll
            for (int m = 0; m < S::kStrips; m++) {
                b.multiply_add(weights[m][step], 0, sums[m][2 * n]);
                b.multiply_add(weights[m][step], 1, sums[m][2 * n + 1]);
            }
        }
    }
}

// Elements of V that are no numbers or infinite reach the sums of pairs that see their position,
// and no others: 0 times them would be NaN. Others are left out.
template <class S>
__device__ __forceinline__ void add_not_finite(const S& s, const LanePairs<S>& pairs,
                                               const Pages<S>& pages, int page, int lane,
                                               Sums<S>& sums) {
    const std::byte* v = pages.v() + lane % 4 * 4;
#pragma unroll 1
    for (int p = 0; p < kPage; p++, v += row_bytes_of(s.d)) {
#pragma unroll
        for (int n = 0; n < S::kMostD / 8; n++) {
            if (!S::kWhole && 8 * n >= s.d) break;
            const uint32_t pair = *reinterpret_cast<const uint32_t*>(v + n * 16);
            if (S::are_finite(pair)) continue;
            const float2 two = S::floats(pair);
#pragma unroll
            for (int m = 0; m < S::kStrips; m++) {
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    if (pairs.position[m][h] < page * kPage + p) continue;
                    if (!S::is_finite(pair)) sums[m][n][2 * h] += two.x;
                    if (!S::is_finite(pair >> 16)) sums[m][n][2 * h + 1] += two.y;
                }
            }
        }
    }
}

// The end of a segment: its sums go to their part, or are added to those of the segments before,
// which wait in `out` unless there are none; behind the last the result goes there.
template <class S>
__device__ __forceinline__ void finish_segment(const S& s, const PromptRows& a, const RowTile& tile,
                                               const LanePairs<S>& pairs, int segment, bool is_last,
                                               int lane, const Sums<S>& sums,
                                               const State (&states)[S::kStrips][2],
                                               State (&joined)[S::kStrips][2]) {
#pragma unroll
    for (int m = 0; m < S::kStrips; m++) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const State own{states[m][h].highest, sum_of_four(states[m][h].total)};
            const int pair = pairs.pair(m, h), position = pairs.position[m][h];
            if (pair >= tile.end_pair) continue;
            const int row = tile.row(pair), head = tile.head(pair), column = lane % 4 * 2;
            if (a.sums != nullptr) {
                const int64_t part = a.part(row - a.first_row, head, segment);
                float* to = a.sums + part * s.d + column;
#pragma unroll
                for (int n = 0; n < S::kMostD / 8; n++) {
                    if (!S::kWhole && 8 * n >= s.d) break;
                    *reinterpret_cast<float2*>(to + 8 * n) = {sums[m][n][2 * h],
                                                              sums[m][n][2 * h + 1]};
                }
                if (column == 0) a.states[part] = {own.highest, own.total};
                continue;
            }
            const Joined join(joined[m][h], own);
            const bool sees = position >= segment * kSegmentPositions;
            if (segment == 0) {
                joined[m][h] = own;
            } else if (sees) {
                joined[m][h] = join.state;
            }
            const float inverse = 1 / joined[m][h].total;
            float* to = a.out + row * a.out_stride + int64_t{head} * s.d + column;
#pragma unroll
            for (int n = 0; n < S::kMostD / 8; n++) {
                if (!S::kWhole && 8 * n >= s.d) break;
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    float x = sums[m][n][2 * h + e];
                    if (segment > 0) {
                        const float before = to[8 * n + e];
                        x = sees ? join(before, x) : before;
                    }
                    if (is_last) x = position < 0 ? 0 : x * inverse;
                    to[8 * n + e] = x;
                }
            }
        }
    }
}

// attend_prompt_rows_kernel: src/cuda/prefill_attention.cu says what it computes
//   Block (K/V head, tile from the last on, segment where each has blocks of its own).
template <class S>
__global__ void __launch_bounds__(32 * S::kMostWarps, S::kBlocksAnSm)
    attend_prompt_rows_kernel(const __grid_constant__ PromptRows a) {
    extern __shared__ uint4 shared_quads[];
    auto* shared = reinterpret_cast<std::byte*>(shared_quads);
    const S s(a.kv.d_head);
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    const RowTile tile(a, a.n_tiles - 1 - static_cast<int>(blockIdx.y), s.n_pairs(),
                       static_cast<int>(blockIdx.x), lane);
    const LanePairs<S> pairs(a, tile, warp, lane);
    const int n_pages = (tile.last + kPage) / kPage;
    const bool is_split = a.sums != nullptr;
    const int first = is_split ? static_cast<int>(blockIdx.z) * kSegmentPages : 0;
    const int end = is_split ? min(n_pages, first + kSegmentPages) : n_pages;
    wait_for_previous_kernel();  // the batch is nobody's product; q and the cache are
    let_next_kernel_start();
    if (is_split && first >= end) return;

    Pages<S> pages(s, a, tile, first, end, shared);
    const Queries<S> queries(s, a, tile, pairs, shared, warp, lane);
    State joined[S::kStrips][2];
    forget(joined);
    int page = first;
    do {
        const int segment = page / kSegmentPages;
        const int segment_end = min(end, (segment + 1) * kSegmentPages);
        State states[S::kStrips][2];
        forget(states);
        Sums<S> sums = {};
#pragma unroll 1
        for (; page < segment_end; page++) {
            pages.next(page);
            const bool sees = page * kPage <= pairs.last;
            Weights<S> weights;
            if (sees) {
                float scores[S::kStrips][kPage / 8][4], shrink[S::kStrips][2];
                find_scores(s, queries, pages, lane, scores);
                weigh<S>(scores, pairs, queries, page, (page + 1) * kPage > pairs.least + 1, lane,
                         states, weights, shrink);
                shrink_sums<S>(shrink, sums);
            }
            if ((page + 1) * kPage > tile.least + 1 && !pages.is_finite()) {
                add_not_finite(s, pairs, pages, page, lane, sums);
                pages.mend();
            }
            if (sees) add_values(s, weights, pages, lane, sums);
        }
        finish_segment(s, a, tile, pairs, segment, page >= end, lane, sums, states, joined);
    } while (page < end);
}

// add_segments_kernel: what blocks of segments have left, in order: as finish_segment does.
//   A warp for each row and query head.
constexpr int kAddWarps = 4, kMostColumns = 8;  // of a lane
__global__ void __launch_bounds__(32 * kAddWarps)
    add_segments_kernel(const __grid_constant__ PromptRows a) {
    const int lane = static_cast<int>(threadIdx.x) % 32, d = a.kv.d_head;
    const auto pair = static_cast<int>(blockIdx.x * kAddWarps + threadIdx.x / 32);
    wait_for_previous_kernel();
    let_next_kernel_start();
    if (pair >= a.n_rows * a.n_heads()) return;
    const int row = pair / a.n_heads(), head = pair % a.n_heads();
    const int position = a.positions[a.first_row + row];
    const int64_t first = a.part(row, head, 0);
    float sums[kMostColumns] = {};
    State state{-INFINITY, 0};
    for (int segment = 0; segment < segments_of(int64_t{position} + 1); segment++) {
        const float2 of_part = a.states[first + segment];
        const State own{of_part.x, of_part.y};
        const Joined join(state, own);
        state = segment == 0 ? own : join.state;
        const float* from = a.sums + (first + segment) * d;
#pragma unroll
        for (int i = 0; i < kMostColumns; i++) {
            const int column = i * 32 + lane;
            if (column >= d) break;
            sums[i] = segment == 0 ? from[column] : join(sums[i], from[column]);
        }
    }
    const float inverse = 1 / state.total;
    float* to = a.out + (a.first_row + row) * a.out_stride + int64_t{head} * d;
#pragma unroll
    for (int i = 0; i < kMostColumns; i++) {
        const int column = i * 32 + lane;
        if (column < d) to[column] = position < 0 ? 0 : sums[i] * inverse;
    }
}

}  // namespace ridge::cuda::prefill
