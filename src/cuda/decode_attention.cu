#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/checked_math.h"
#include "cuda/check.h"
#include "cuda/decode_attention.h"
#include "cuda/device/decode_feed.cuh"
#include "cuda/device/decode_queries.cuh"
#include "model/step.h"

namespace ridge::cuda {
namespace {

using namespace decode;

// That registers and shared memory have room for.
constexpr int blocks_an_sm(int group) {
    return group <= 4 ? 4 : 2;
}

// sums[h][e] += factors[h] * x[e]                      sums [G][8], factors [G] in shared memory
template <int G>
__device__ __forceinline__ void multiply_add(const float (&x)[kChunk], const float* factors,
                                             float (&sums)[G * kChunk]) {
    float factor[G];
    if constexpr (G % 4 == 0) {
#pragma unroll
        for (int h = 0; h < G; h += 4) {
            const float4 four = *reinterpret_cast<const float4*>(factors + h);
            factor[h] = four.x, factor[h + 1] = four.y, factor[h + 2] = four.z,
            factor[h + 3] = four.w;
        }
    } else if constexpr (G == 2) {
        const float2 two = *reinterpret_cast<const float2*>(factors);
        factor[0] = two.x, factor[1] = two.y;
    } else {
        factor[0] = *factors;
    }
#pragma unroll
    for (int h = 0; h < G; h++) {
#pragma unroll
        for (int e = 0; e < kChunk; e++) {
            sums[h * kChunk + e] = fmaf(factor[h], x[e], sums[h * kChunk + e]);
        }
    }
}

// scores[h][p] += q[h, k] * K[k, p] for the rows k of a batch that this lane has, and its 8
// positions p.                                         queries [d][G]
template <class S, int G = S::kGroup>
__device__ __forceinline__ void add_scores(const S& s, const std::byte* slot, int batch, int lane,
                                           const float* queries, float (&scores)[G * kChunk]) {
    float scale[kChunk], shift[kChunk];
    if (s.k_type == DType::kQ8_0) {
        read_scales(slot, kBatch, lane, scale);
#pragma unroll
        for (int e = 0; e < kChunk; e++) shift[e] = -kCodeShift * scale[e];
    }
#pragma unroll
    for (int i = 0; i < kBatch; i++) {
        const int chunk = kBatch * batch + i;
        if (!S::kWhole && chunk >= s.k_chunks) break;
        float x[kChunk];
        read_chunk(s.k_type, slot, i, lane, x);
        if (s.k_type == DType::kQ8_0) {
#pragma unroll
            for (int e = 0; e < kChunk; e++) x[e] = fmaf(x[e], scale[e], shift[e]);
        }
        multiply_add<G>(x, queries + (chunk * 8 + lane / 4) * G, scores);
    }
}

// sums[h][e] += weights[h, p] * V[p, e] for the positions p of a batch that this lane has, and its
// 8 elements e.
template <class S, int G = S::kGroup>
__device__ __forceinline__ void add_values(const S& s, const Feed<S>& feed, const std::byte* slot,
                                           int batch, int lane, const float* weights,
                                           float (&sums)[G * kChunk]) {
#pragma unroll
    for (int i = 0; i < kBatch; i++) {
        const int chunk = kBatch * batch + i;
        if (!S::kWhole && chunk >= s.v_chunks) break;
        const int row = feed.v_row() + chunk * s.rows_at_once;
        float x[kChunk];
        read_chunk(s.v_type, slot, i, lane, x);
        if (s.v_type == DType::kQ8_0) {
            const float scale = read_scale(slot, kBatch, i, lane, feed.scale_index(row) % 2);
            const float shift = -kCodeShift * scale;
#pragma unroll
            for (int e = 0; e < kChunk; e++) x[e] = fmaf(x[e], scale, shift);
        }
        // Of rows beyond the half page, and of lanes without one, x is 0: any weight will do.
        const int p = S::kWhole ? row : min(row, kWarpPositions - 1);
        multiply_add<G>(x, weights + p * G + p / kChunk * weight_gap(G), sums);
    }
}

// Adds what two lanes that differ in `bit` have for the same N numbers, and leaves each with half
// of the sums: the lane whose bit is set has the upper.
template <int N, int M>
__device__ __forceinline__ void fold(float (&x)[M], int lane, int bit) {
    const bool upper = (lane & bit) != 0;
#pragma unroll
    for (int i = 0; i < N / 2; i++) {
        const float other = upper ? x[i] : x[i + N / 2];
        const float own = upper ? x[i + N / 2] : x[i];
        x[i] = own + __shfl_xor_sync(kAllLanes, other, bit);
    }
}

// After three folds lane 4 g + c has of [G][8 positions of chunk c] numbers G g to G g + G - 1, all
// of head G g / 8. 32 / G lanes share a head: those beside each other, the first being lane
// 32 / G * head.
template <int G>
__device__ __forceinline__ float max_of_head(float x) {
#pragma unroll
    for (int bit = 1; bit < 32 / G; bit *= 2) x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, bit));
    return x;
}
template <int G>
__device__ __forceinline__ float sum_of_head(float x) {
#pragma unroll
    for (int bit = 1; bit < 32 / G; bit *= 2) x += __shfl_xor_sync(kAllLanes, x, bit);
    return x;
}

// Where all scores are -inf they are not told from one another: exp2(-inf - 0) is 0.
__device__ __forceinline__ float base_of(float highest) {
    return highest == -INFINITY ? 0.0f : highest;
}

// Of the head that a lane weighs.
struct Softmax {
    float highest = -INFINITY;
    float total = 0;  // of the lane's own weights
};

// Scores of a half page to weights in shared memory. Returns what sums so far are multiplied by.
template <int G>
__device__ __forceinline__ float weigh(float (&scores)[G * kChunk], int lane, int n_visible,
                                       Softmax& softmax, float* weights) {
    const int first = G * (lane / 4) % kChunk, chunk = lane % 4, head = G * (lane / 4) / kChunk;
    float highest = softmax.highest;
#pragma unroll
    for (int i = 0; i < G; i++) {
        if (chunk * kChunk + first + i >= n_visible) scores[i] = -INFINITY;
        highest = fmaxf(highest, scores[i]);
    }
    highest = max_of_head<G>(highest);
    const float base = base_of(highest), shrink = exp2_near(softmax.highest - base);
    float* to = weights + (chunk * kChunk + first) * G + chunk * weight_gap(G) + head;
    float total = softmax.total * shrink;
#pragma unroll
    for (int i = 0; i < G; i++) {
        const float weight = exp2_near(scores[i] - base);
        to[i * G] = weight;
        total += weight;
    }
    softmax = {highest, total};
    return shrink;
}

__device__ __forceinline__ void add_times(float factor, float4 x, float4& sum) {
    sum.x = fmaf(factor, x.x, sum.x), sum.y = fmaf(factor, x.y, sum.y);
    sum.z = fmaf(factor, x.z, sum.z), sum.w = fmaf(factor, x.w, sum.w);
}

// Four elements of a head's result.
__device__ void store(const DecodeRows& a, const Item& item, int64_t column, float4 sum,
                      float total) {
    float* to = a.out + (a.first_row + item.row) * a.out_stride + column;
    const bool masked = item.n_positions == 0;
    const float inverse = 1 / total;
    to[0] = masked ? 0 : sum.x * inverse, to[1] = masked ? 0 : sum.y * inverse;
    to[2] = masked ? 0 : sum.z * inverse, to[3] = masked ? 0 : sum.w * inverse;
}

// This warp's part of an item: sums, with what they are relative to, in its ring and in states.
// waits: for the kernel before, of which the cache's older positions are not the product.
template <class S>
__device__ __forceinline__ void attend(const S& s, const DecodeRows& a, const HeadGroup& heads,
                                       const Item& item, const Room& room, double frequency,
                                       bool waits, int warp, int lane) {
    constexpr int G = S::kGroup;
    std::byte* ring = room.rings + warp * s.ring_bytes;
    float* weights = room.weights + warp * weight_floats(G);
    Feed<S> feed(s, a, item, heads.kv_head, ring, warp, lane);

    if (a.fresh.is_there()) {
        static_assert(kMostPairs <= kThreads);
        if (static_cast<int>(threadIdx.x) < a.fresh.n_pairs) {
            room.turns[threadIdx.x] = sine_and_cosine(item.n_positions - 1, frequency);
        }
        if (waits) wait_for_previous_kernel();
        __syncthreads();  // turns are there
        make_queries(s, a, heads, item, room, warp, lane);
    } else {
        fetch_queries(s, a, heads, item, room);
    }
    __syncthreads();  // queries are there, and the new position
    if (item.has_fresh) score_fresh(s, item, room, warp, lane);

    float sums[G * kChunk] = {};
    Softmax softmax;
#pragma unroll 1
    for (int t = 0; t < feed.n_tiles(); t++) {
        float scores[G * kChunk] = {};
#pragma unroll 1
        for (int b = 0; b < s.k_batches; b++) {
            add_scores(s, feed.next(), b, lane, room.queries, scores);
        }
        fold<G * kChunk>(scores, lane, 16);
        fold<G * kChunk / 2>(scores, lane, 8);
        fold<G * kChunk / 4>(scores, lane, 4);
        __syncwarp();  // the weights before have been read
        const float shrink = weigh<G>(scores, lane, feed.n_visible(t), softmax, weights);
        __syncwarp();  // the weights are there
#pragma unroll
        for (int h = 0; h < G; h++) {
            const float factor = __shfl_sync(kAllLanes, shrink, 32 / G * h);
#pragma unroll
            for (int e = 0; e < kChunk; e++) sums[h * kChunk + e] *= factor;
        }
#pragma unroll 1
        for (int b = 0; b < s.v_batches; b++) {
            add_values(s, feed, feed.next(), b, lane, weights, sums);
        }
    }

    const float total = sum_of_head<G>(softmax.total);
    __syncwarp();  // every lane has read its last batch
    auto* to = reinterpret_cast<float4*>(ring);
#pragma unroll
    for (int i = 0; i < 2 * G; i++) {
        to[i * 32 + lane] = {sums[4 * i], sums[4 * i + 1], sums[4 * i + 2], sums[4 * i + 3]};
    }
    if (lane % (32 / G) == 0) {
        room.states[warp * G + lane / (32 / G)] = {softmax.highest, total};
    }
}

// The parts of a row and head group: [a.most_blocks][group] heads, of which sums are [d_head / 4].
__device__ int64_t first_part(const DecodeRows& a, const HeadGroup& heads, const Item& item,
                              int group) {
    const int64_t pair = int64_t{item.row} * a.n_head_groups() + heads.number;
    return pair * a.most_blocks * group;
}

// The warps' sums together: the result where the row has one block, else a part of it.
template <class S, int kGroup>
__device__ __forceinline__ void finish_block(const S& s, const DecodeRows& a,
                                             const HeadGroup& heads, const Item& item,
                                             const Room& room) {
    constexpr int G = S::kGroup;
    const int vectors = s.d / 4;  // of a head
    const int64_t part = first_part(a, heads, item, kGroup) + item.block * kGroup + item.first_head;
    for (int i = static_cast<int>(threadIdx.x); i < item.n_heads * vectors; i += kThreads) {
        const int h = i / vectors, v = i % vectors;
        float highest = -INFINITY;
        for (int w = 0; w < kWarps; w++) highest = fmaxf(highest, room.states[w * G + h].x);
        const float2 fresh = item.has_fresh ? room.states[kWarps * G + h] : float2{-INFINITY, 0};
        highest = fmaxf(highest, fresh.x);
        const float base = base_of(highest);
        float4 sum{};
        float total = 0;
#pragma unroll
        for (int w = 0; w < kWarps; w++) {
            const auto* of_warp = reinterpret_cast<const float4*>(room.rings + w * s.ring_bytes);
            float4 rows{};
#pragma unroll
            for (int r = 0; r < s.rows_at_once; r++) {
                add_times(1, of_warp[(2 * h + v % 2) * 32 + r * s.row_lanes + v / 2], rows);
            }
            const float2 state = room.states[w * G + h];
            const float factor = exp2_near(state.x - base);
            add_times(factor, rows, sum);
            total = fmaf(factor, state.y, total);
        }
        if (item.has_fresh) {
            const float factor = exp2_near(fresh.x - base);
            add_times(factor, reinterpret_cast<const float4*>(room.v)[v], sum);
            total += factor;
        }
        if (item.n_blocks == 1) {
            store(a, item, (heads.first + item.first_head) * s.d + 4 * i, sum, total);
        } else {
            a.sums[part * vectors + i] = sum;
            if (v == 0) a.states[part + h] = {highest, total};
        }
    }
}

// Whether this item is the last of its row and head group: all others' parts can be seen then.
__device__ bool is_last(const DecodeRows& a, const HeadGroup& heads, const Item& item,
                        const Room& room) {
    __threadfence();  // this thread's sums come before the arrival
    __syncthreads();  // so do those of all threads
    if (threadIdx.x == 0) {
        uint32_t* arrivals = a.arrivals + item.row * a.n_head_groups() + heads.number;
        *room.is_last = atomicAdd(arrivals, 1u) == static_cast<uint32_t>(item.n_items - 1);
        if (*room.is_last) *arrivals = 0;
        __threadfence();  // the others' sums come after their arrivals
    }
    __syncthreads();  // is_last is there
    return *room.is_last;
}

// The parts of a row and head group, in the order of blocks. Teams of threads take blocks in turns,
// and add what they have in the order of teams: their number depends on the shape alone.
template <int kGroup>
__device__ __forceinline__ void merge_blocks(int d, const DecodeRows& a, const HeadGroup& heads,
                                             const Item& item, const Room& room, int warp,
                                             int lane) {
    static_assert(kMostBlocks == 64);
    auto* factors = reinterpret_cast<float*>(room.rings);              // [kGroup][kMostBlocks]
    float* totals = factors + kMostGroup * kMostBlocks;                // [kGroup]
    auto* team_sums = reinterpret_cast<float4*>(totals + kMostGroup);  // [kThreads]
    const int64_t first = first_part(a, heads, item, kGroup);
    for (int h = warp; h < heads.n; h += kWarps) {
        const float2 nothing{-INFINITY, 0};
        const float2* states = a.states + first + h;
        const float2 low = lane < item.n_blocks ? __ldcg(states + lane * kGroup) : nothing;
        const float2 high =
            lane + 32 < item.n_blocks ? __ldcg(states + (lane + 32) * kGroup) : nothing;
        const float base = base_of(max_of_head<1>(fmaxf(low.x, high.x)));
        const float factor = exp2_near(low.x - base), high_factor = exp2_near(high.x - base);
        const float total = sum_of_head<1>(fmaf(factor, low.y, high_factor * high.y));
        factors[h * kMostBlocks + lane] = factor;
        factors[h * kMostBlocks + lane + 32] = high_factor;
        if (lane == 0) totals[h] = total;
    }
    __syncthreads();  // factors and totals are there

    const int vectors = d / 4, n = heads.n * vectors;
    const int width = min(n, kThreads), n_teams = kThreads / width;
    const int thread = static_cast<int>(threadIdx.x), team = thread / width;
    for (int i = thread % width; i < n && team < n_teams; i += width) {
        const float* factor = factors + i / vectors * kMostBlocks;
        const float4* parts = a.sums + first * vectors + i;
        float4 sum{};
#pragma unroll 8
        for (int b = team; b < item.n_blocks; b += n_teams) {
            add_times(factor[b], __ldcg(parts + b * kGroup * vectors), sum);
        }
        if (n_teams > 1) {
            team_sums[thread] = sum;  // width is n: the loop has one turn
        } else {
            store(a, item, heads.first * d + 4 * i, sum, totals[i / vectors]);
        }
    }
    if (n_teams == 1) return;
    __syncthreads();  // team_sums are there
    if (team > 0) return;
    float4 sum = team_sums[thread];
    for (int t = 1; t < n_teams; t++) add_times(1, team_sums[t * width + thread], sum);
    store(a, item, heads.first * d + 4 * thread, sum, totals[thread / vectors]);
}

// kGroup: of the parts, S::kGroup or where heads are apart that of the others.
template <class S, int kGroup>
__device__ __forceinline__ void run_item(const DecodeRows& a, const HeadGroup& heads,
                                         const Item& item, std::byte* shared, double frequency,
                                         bool waits, int warp, int lane) {
    const S s(a.kv);
    const Room room(s, shared);
    attend(s, a, heads, item, room, frequency, waits, warp, lane);
    __syncthreads();  // all warps' sums are there
    keep_fresh(s, a, heads, item, room, warp);
    finish_block<S, kGroup>(s, a, heads, item, room);
}

template <int D, int K, int V, int G>
__global__ void __launch_bounds__(kThreads, blocks_an_sm(G))
    attend_decode_rows_kernel(const __grid_constant__ DecodeRows a) {
    extern __shared__ float4 shared[];
    auto* base = reinterpret_cast<std::byte*>(shared);
    const Shape<D, K, V, G> s(a.kv);
    const Room room(s, base);
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    let_next_kernel_start();
    // Of the pair that this thread turns: asked for early, as it takes its time.
    const double frequency =
        static_cast<int>(threadIdx.x) < a.fresh.n_pairs ? a.fresh.frequency[threadIdx.x] : 0;
    const HeadGroup heads(a);
    const LaneRows rows(a, heads.n, lane);
    const int n_items = rows.n_items();
    // The batch is nobody's product; q and the cache are, or what has just been projected.
    bool waits = a.fresh.is_there();
    if (!waits) wait_for_previous_kernel();
    for (int i = static_cast<int>(blockIdx.y); i < n_items; i += static_cast<int>(gridDim.y)) {
        const Item item = rows.item(i);
        if (G > 1 && item.n_positions <= kHeadsApartPositions) {
            run_item<Shape<D, K, V, 1>, G>(a, heads, item, base, frequency, waits, warp, lane);
        } else {
            run_item<Shape<D, K, V, G>, G>(a, heads, item, base, frequency, waits, warp, lane);
        }
        waits = false;
        if (item.n_blocks > 1 && is_last(a, heads, item, room)) {
            merge_blocks<G>(s.d, a, heads, item, room, warp, lane);
        }
        __syncthreads();  // shared memory has been read
    }
}

using Kernel = void (*)(DecodeRows);

template <int D, int K, int V>
Kernel kernel_of(int group) {
    switch (group) {
        case 1:
            return attend_decode_rows_kernel<D, K, V, 1>;
        case 2:
            return attend_decode_rows_kernel<D, K, V, 2>;
        case 4:
            return attend_decode_rows_kernel<D, K, V, 4>;
        default:
            CHECK(group == 8);
            return attend_decode_rows_kernel<D, K, V, 8>;
    }
}

template <DType type>
Kernel kernel_of_type(int d, int group) {
    constexpr int kType = static_cast<int>(type);
    return d == 64 ? kernel_of<64, kType, kType>(group) : kernel_of<128, kType, kType>(group);
}

Kernel kernel_of(const KvLayer& kv, int group) {
    if (kv.k_dtype == kv.v_dtype && (kv.d_head == 64 || kv.d_head == 128)) {
        if (kv.k_dtype == DType::kF16) return kernel_of_type<DType::kF16>(kv.d_head, group);
        if (kv.k_dtype == DType::kBF16) return kernel_of_type<DType::kBF16>(kv.d_head, group);
        if (kv.k_dtype == DType::kQ8_0) return kernel_of_type<DType::kQ8_0>(kv.d_head, group);
    }
    return kernel_of<kAny, kAny, kAny>(group);
}

// How query heads are grouped: turns of at most kMostGroup, as even as can be.
struct Groups {
    int heads_per_kv, n_turns, heads_at_once, group;  // group: heads_at_once as kernels have it

    Groups(int64_t n_heads, const KvLayer& kv)
        : heads_per_kv(static_cast<int>(n_heads / kv.n_kv_heads)),
          n_turns(ceil_div(heads_per_kv, kMostGroup)),
          heads_at_once(ceil_div(heads_per_kv, n_turns)),
          group(1) {
        while (group < heads_at_once) group *= 2;
    }
};

class DecodeAttention {
  public:
    // fresh: q is not there yet, but what it is made of.
    DecodeAttention(Step& s, Heads q, const KvLayer& kv, Heads out, const FreshRows& fresh = {})
        : context_(context_of(s)), groups_(q.n_heads, kv), args_(kv) {
        args_.fresh = fresh;
        const int n_head_groups = kv.n_kv_heads * groups_.n_turns;
        most_rows_ = static_cast<int>(
            std::min<int64_t>(q.rows.n_rows, std::clamp(kArrivals / n_head_groups, 1, kMostRows)));
        args_.most_blocks = most_blocks(kv.n_slots);
        const int64_t n_parts = int64_t{most_rows_} * n_head_groups * args_.most_blocks;
        const Rows sums = s.scratch(n_parts, int64_t{groups_.group} * kv.d_head);
        const Rows states = s.scratch(n_parts, 2 * groups_.group);
        if (s.planning) return;
        args_.q = device_rows<const float>(q.rows), args_.q_stride = q.rows.stride;
        args_.out = device_rows<float>(out.rows), args_.out_stride = out.rows.stride;
        const Mirror& mirror = context_.mirror;
        args_.positions = mirror.positions, args_.sequence_of_row = mirror.sequence_of_row;
        args_.pages = mirror.pages, args_.sequences = mirror.sequences;
        args_.heads_per_kv = groups_.heads_per_kv, args_.n_turns = groups_.n_turns;
        args_.heads_at_once = groups_.heads_at_once;
        args_.scale = static_cast<float>(std::numbers::log2e / std::sqrt(double(kv.d_head)));
        args_.sums = reinterpret_cast<float4*>(device_rows<float>(sums));
        args_.states = reinterpret_cast<float2*>(device_rows<float>(states));
        args_.arrivals = context_.arrivals;
        kernel_ = kernel_of(kv, groups_.group);
        shared_bytes_ = shared_bytes_of(kv.k_dtype, kv.v_dtype, kv.d_head, groups_.group);
        check(cudaFuncSetAttribute(kernel_, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                   shared_bytes_),
              "decode attention: shared memory");
        divide_memory_alike(kernel_, "decode attention");
    }

    // Rows first to end of the batch, which are of class decode. As many blocks as run at once, or
    // one for each head group: their number is nothing to the results.
    void run(int first, int end) {
        const int n_at_once = context_.n_sms * blocks_an_sm(groups_.group);
        for (; first < end; first += most_rows_) {
            args_.first_row = first, args_.n_rows = std::min(most_rows_, end - first);
            const int most_items = args_.n_rows * std::max(args_.most_blocks, args_.heads_at_once);
            const int n = std::clamp(n_at_once / args_.n_head_groups(), 1, most_items);
            const dim3 grid(static_cast<unsigned>(args_.kv.n_kv_heads), static_cast<unsigned>(n),
                            static_cast<unsigned>(args_.n_turns));
            launch_dependent(context_, kernel_, grid, kThreads, static_cast<size_t>(shared_bytes_),
                             "decode attention", args_);
        }
    }

  private:
    const Context& context_;
    Groups groups_;
    DecodeRows args_;
    Kernel kernel_ = nullptr;
    int most_rows_ = 0, shared_bytes_ = 0;
};

}  // namespace

std::string_view unfit_for_decode_attention(const Step&, const Heads& q, const KvLayer& kv,
                                            const Heads&) {
    static_assert(kArrivals == 4096);
    if (q.n_heads > kArrivals) return "there are more than 4,096 heads";
    if (kv.d_head % kChunk != 0) return "d_head is not a multiple of 8";
    return kv.d_head <= 32 * kChunk ? "" : "d_head is above 256";
}

// attend_decode_rows: flash decoding (Dao et al. 2023) over blocks of positions
//   (cuda/attention_blocks.h), with an online softmax in each.
//   The grid fills the device, whatever the positions are: [n_kv_heads][any][n_turns] blocks of 4
//   warps find on the device which blocks of which rows there are, and take them in turns (Item). A
//   warp takes half pages of 32 positions, every fourth of the item's: K's rows with positions in
//   lanes (8 in each, 8 rows at once), then V's with elements in lanes (8 in each), each read once
//   for up to 8 query heads that share them, converted in registers; products and sums are f32.
//   What comes next is always on its way to shared memory (Feed). Of fresh rows (DecodeRows::fresh)
//   that begins before the kernel waits for the projections, as older positions are no kernel's
//   product since the step began; the newest joins as a part of its own. The four warps' sums are
//   added in order; of rows with more than one block the last to finish adds all blocks' in order.
//   Bytes: the cache's K and V once, and for each block and query head d_head + 2 f32 written and
//   read. Flops: 4 d_head for each query head and position.
void attend_decode_rows(Step& s, Heads q, KvLayer kv, Heads out) {
    CHECK(q.n_heads % kv.n_kv_heads == 0 && q.d_head == kv.d_head && out.n_heads == q.n_heads);
    CHECK(q.rows.n_rows == s.batch.n_rows() && out.rows.n_rows == q.rows.n_rows);
    ScratchScope scope(s.memory);  // kernels run in the stream's order
    DecodeAttention attention(s, q, kv, out);
    if (s.planning) return;
    const std::span<const SequenceSpan> spans = s.batch.spans;
    for (size_t i = 0; i < spans.size(); i++) {
        if (spans[i].row_class != RowClass::kDecode) continue;
        const int first = spans[i].first_row;
        int end = first + spans[i].n_rows;
        while (i + 1 < spans.size() && spans[i + 1].row_class == RowClass::kDecode) {
            end += spans[++i].n_rows;
        }
        attention.run(first, end);
    }
}

void attend_fresh_rows(Step& s, const Layer& layer, Rows qkv, KvLayer kv, Rows out) {
    const Config& config = s.config;
    const Context& c = context_of(s);
    FreshRows fresh;
    if (!s.planning) {
        fresh.qkv = device_rows<const float>(qkv), fresh.stride = qkv.stride;
        if (config.qk_norm) {
            fresh.q_norm = device_plane<const float>(layer.q_norm);
            fresh.k_norm = device_plane<const float>(layer.k_norm);
        }
        fresh.eps = config.norm_eps, fresh.n_heads = config.n_heads;
        fresh.slots = c.mirror.slots, fresh.frequency = c.mirror.rope_frequency;
        fresh.n_pairs = static_cast<int>(s.rope_table.frequency.size());
        fresh.half_split = s.rope_table.style == RopeStyle::kHalfSplit;
        CHECK(fresh.n_pairs <= kMostPairs);
    }
    ScratchScope scope(s.memory);
    DecodeAttention attention(s, Heads(qkv.cols(0, config.d_q()), config.n_heads, config.d_head),
                              kv, Heads(out, config.n_heads, config.d_head), fresh);
    if (!s.planning) attention.run(0, static_cast<int>(qkv.n_rows));
}

void decode_attention(Step& s, Heads q, KvLayer kv, Heads out) {
    if (s.batch.has(RowClass::kPrompt)) {
        // All rows: kernels below find a row's data by its place in the batch.
        ScratchScope scope(s.memory);
        s.ops.attention.below("decode_attention", s, q, kv, out);
    }
    if (s.batch.has(RowClass::kDecode)) attend_decode_rows(s, q, kv, out);
}

}  // namespace ridge::cuda
