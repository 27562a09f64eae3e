#pragma once

#include <cuda_fp16.h>

#include <cstdint>

#include "cuda/device/async.cuh"
#include "cuda/device/fragments.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/device/numbers.cuh"
#include "cuda/device/prefill_items.cuh"

// How pages of the cache come to shared memory as operands of tensor units: K [d_head][64] and
// V [64][d_head], as in the cache, in f16 or bf16.

namespace ridge::cuda::prefill {

constexpr int kStripRows = 16;  // of an operand a
constexpr int kPage = kKvPagePositions;

// Rows of a matrix in shared memory lie 16 bytes further apart than they are long: an odd number of
// 16 bytes, as n is a multiple of 16, so that eight of them lie in different banks.
constexpr int row_bytes_of(int n) {
    return 2 * n + 16;
}
constexpr int k_bytes_of(int d) {
    return d * row_bytes_of(kPage);
}
constexpr int v_bytes_of(int d) {
    return kPage * row_bytes_of(d);
}
constexpr int q8_tile_bytes(int d) {
    return kPage * (d + d / kKvScaleElements * 2);
}

// Codes 2 `half` and 2 `half` + 1 of four int8 times two f16 scales, rounded once. A code, of 128
// more, becomes the lowest bits of the mantissa of 1024.
__device__ inline uint32_t scaled_codes(uint32_t codes, int half, uint32_t scales) {
    const uint32_t biased =
        __byte_perm(codes ^ 0x80808080u, 0x64646464u, half == 0 ? 0x4140u : 0x4342u);
    constexpr uint32_t kBias = 0x64806480;  // 1024 + 128, twice
    __half2 x, bias, scale;
    memcpy(&x, &biased, 4), memcpy(&bias, &kBias, 4), memcpy(&scale, &scales, 4);
    const __half2 product = __hmul2(__hsub2(x, bias), scale);
    uint32_t pair;
    memcpy(&pair, &product, 4);
    return pair;
}

// What a kernel is made for. kAny in place of d_head: every multiple of 16 up to 256; in place of a
// type: K and V of any. A warp takes Strips strips of 16 pairs. Queries stay in registers, or in
// shared memory where registers are too few.
template <int D, int Type, int Strips, int Warps, int BlocksAnSm, bool SharedQueries = false>
struct Shape {
    static constexpr int kType = Type, kStrips = Strips, kMostWarps = Warps;
    static constexpr int kBlocksAnSm = BlocksAnSm;
    static constexpr bool kWhole = D != kAny;
    static constexpr int kMostD = kWhole ? D : 256;
    static constexpr bool kIsF16 = Type == int(DType::kF16) || Type == int(DType::kQ8_0);
    // How many numbers of 16 bits stand for one: of queries, of K and V, of weights.
    static constexpr int kQueryParts = kIsF16 ? 1 : 2;
    static constexpr int kTileParts = Type == kAny ? 2 : 1;
    static constexpr int kWeightParts = kTileParts;
    static constexpr bool kIsDirect = Type == int(DType::kF16) || Type == int(DType::kBF16);
    static_assert(kMostD % 16 == 0 && (Type == kAny) == (D == kAny));

    const int d;

    __host__ __device__ explicit Shape(int d_head) : d(kWhole ? D : d_head) {}
    __device__ int n_warps() const {
        return kWhole ? kMostWarps : static_cast<int>(blockDim.x) / 32;
    }
    __device__ int n_threads() const { return 32 * n_warps(); }
    __device__ int n_pairs() const { return n_warps() * kStrips * kStripRows; }

    __host__ __device__ int k_bytes() const { return k_bytes_of(d); }  // of one part
    __host__ __device__ int tile_bytes() const { return k_bytes_of(d) + v_bytes_of(d); }
    // Direct: two turns of K and V; else K and V in parts, and behind them a page as it lies in
    // the cache, which of any type is not fetched ahead. Then queries.
    __host__ __device__ int raw_offset() const { return kTileParts * tile_bytes(); }
    __host__ __device__ int query_offset() const {
        if (kIsDirect) return 2 * tile_bytes();
        return raw_offset() + (kType == int(DType::kQ8_0) ? 2 * q8_tile_bytes(d) : 0);
    }
    static constexpr bool kQueriesAreShared = SharedQueries;
    __host__ __device__ int shared_bytes(int warps) const {
        constexpr int kLaneBytes = 16 * 32;  // of 16 elements of a strip's queries
        return query_offset() +
               (kQueriesAreShared ? warps * kStrips * (d / 16) * kQueryParts * kLaneBytes : 0);
    }

    // Two numbers of operands, and back.
    __device__ static uint32_t two(float low, float high) {
        return kIsF16 ? two_f16(low, high) : two_bf16(low, high);
    }
    __device__ static float2 floats(uint32_t pair) {
        return kIsF16 ? floats_of_f16(pair) : floats_of_bf16(pair);
    }
    __device__ static void multiply_add(float (&sums)[4], const uint32_t (&a)[4],
                                        const uint32_t (&b)[2]) {
        if constexpr (kIsF16) {
            mma_f16(sums, a, b);
        } else {
            mma_bf16(sums, a, b);
        }
    }
    // Whether one of two is infinite or no number.
    __device__ static bool is_finite(uint32_t number) {
        constexpr uint32_t kExponent = kIsF16 ? 0x7c00u : 0x7f80u;
        return (number & kExponent) != kExponent;
    }
    __device__ static bool are_finite(uint32_t pair) {
        return is_finite(pair) && is_finite(pair >> 16);
    }
};

// Eight numbers that lie side by side in a tile of the cache, from number i on, of which scale i of
// q8_0 is number `scale` of its tile's and those beside it, or where they share one the same.
__device__ inline void read_eight(DType type, const std::byte* tile, int d, int i, int scale,
                                  bool share_scale, float (&x)[8]) {
    if (type == DType::kF32) {
        const auto* from = reinterpret_cast<const float4*>(tile + 4 * i);
        const float4 low = from[0], high = from[1];
        x[0] = low.x, x[1] = low.y, x[2] = low.z, x[3] = low.w;
        x[4] = high.x, x[5] = high.y, x[6] = high.z, x[7] = high.w;
        return;
    }
    if (type == DType::kQ8_0) {
        const uint2 codes = *reinterpret_cast<const uint2*>(tile + i);
        const uint32_t low = codes.x ^ 0x80808080u, high = codes.y ^ 0x80808080u;
        const auto* scales = reinterpret_cast<const __half*>(tile + kPage * d) + scale;
#pragma unroll
        for (int e = 0; e < 8; e++) {
            const float code = shifted_code(e < 4 ? low : high, e % 4) - kCodeShift;
            x[e] = code * __half2float(scales[share_scale ? 0 : e]);
        }
        return;
    }
    const uint4 four = *reinterpret_cast<const uint4*>(tile + 2 * i);
    const uint32_t pairs[] = {four.x, four.y, four.z, four.w};
#pragma unroll
    for (int e = 0; e < 4; e++) {
        const float2 two = type == DType::kF16 ? floats_of_f16(pairs[e]) : floats_of_bf16(pairs[e]);
        x[2 * e] = two.x, x[2 * e + 1] = two.y;
    }
}

// Brings the pages of positions first to end of a sequence's K/V head to a block of threads, page
// after page. Rows of V that no row of the tile sees become zeros: 0 times what a page holds behind
// its sequence would be NaN where that is.
template <class S>
class Pages {
  public:
    // Fetches the first, if there is one.
    __device__ __forceinline__ Pages(const S& s, const PromptRows& a, const RowTile& tile,
                                     int first, int end, std::byte* shared)
        : s_(s), a_(a), tile_(tile), end_(end), fetched_(first), shared_(shared) {
        find_page();
        fetch();
    }
    // Page `index` is there for all threads, those before have been read by all of them.
    __device__ __forceinline__ void next(int index) {
        wait_for_copies<0>();
        __syncthreads();  // all copies have arrived, and the page before has been read
        if constexpr (S::kIsDirect) {
            turn_ ^= 1;
        } else {
            convert(index);
            __syncthreads();  // operands are there, and what they were made of has been read
        }
        fetch();
    }
    // K and V of that page: their first part.
    __device__ std::byte* k() const {
        return shared_ + (S::kIsDirect ? (turn_ ^ 1) * s_.tile_bytes() : 0);
    }
    __device__ std::byte* v() const { return k() + S::kTileParts * s_.k_bytes(); }
    // Whether V, of positions up to the last that a row of the tile sees, has numbers that are not
    // finite. All threads.
    __device__ bool is_finite() const {
        bool finite = true;
        for (int i = thread(); i < kPage * s_.d / 2; i += s_.n_threads()) {
            finite = finite && S::are_finite(*v_pair(i));
        }
        return __syncthreads_and(finite) != 0;
    }
    // Numbers of V that are not finite become 0. All threads.
    __device__ void mend() const {
        __syncthreads();  // V has been read
        for (int i = thread(); i < kPage * s_.d / 2; i += s_.n_threads()) {
            uint32_t* pair = v_pair(i);
            if (!S::is_finite(*pair)) *pair &= 0xffff0000u;
            if (!S::is_finite(*pair >> 16)) *pair &= 0xffffu;
        }
        __syncthreads();  // V is finite
    }

  private:
    __device__ static int thread() { return static_cast<int>(threadIdx.x); }
    __device__ uint32_t* v_pair(int i) const {
        const int in_row = s_.d / 2;
        return reinterpret_cast<uint32_t*>(v() + i / in_row * row_bytes_of(s_.d)) + i % in_row;
    }
    __device__ int n_visible(int index) const { return min(kPage, tile_.last + 1 - index * kPage); }
    // Where the page to be fetched next is: looked up one page ahead, since it is waited for.
    __device__ __forceinline__ void find_page() {
        if (fetched_ < end_) page_ = static_cast<int>(tile_.sequence.page(a_.pages, fetched_));
    }

    __device__ __forceinline__ void fetch() {
        if constexpr (S::kType == kAny) return;
        if (fetched_ < end_) {
            const std::byte* k = a_.kv.k_tile(page_, tile_.kv_head);
            const std::byte* v = a_.kv.v_tile(page_, tile_.kv_head);
            if constexpr (S::kIsDirect) {
                fetch_operands(k, v, n_visible(fetched_));
            } else {
                fetch_raw(k, v);
            }
            fetched_++;
            find_page();
        }
        commit_copies();
    }
    // A thread's first chunk of 16 bytes of operands, and those that follow it: kThreads / kInRow
    // rows further on each.
    template <int kRowLength>
    struct Chunks {
        static constexpr int kThreads = 32 * S::kMostWarps, kInRow = kRowLength / 8;
        static constexpr int kRowBytes = row_bytes_of(kRowLength);
        static constexpr int kRowsOn = kThreads / kInRow;
        static constexpr int n = kPage * S::kMostD / 8 / kThreads;
        static_assert(kThreads % kInRow == 0 && kPage * S::kMostD / 8 % kThreads == 0);
        int row, column;  // of the first; columns in chunks

        __device__ Chunks()
            : row(static_cast<int>(threadIdx.x / kInRow)),
              column(static_cast<int>(threadIdx.x % kInRow)) {}
        __device__ int first_byte() const { return row * kRowBytes + column * 16; }
        __device__ static constexpr int bytes_on(int i) { return i * kRowsOn * kRowBytes; }
    };
    using KChunks = Chunks<kPage>;
    using VChunks = Chunks<S::kMostD>;

    // To the turn that is not being read.
    __device__ __forceinline__ void fetch_operands(const std::byte* k, const std::byte* v,
                                                   int n_visible) {
        const KChunks of_k;
        const VChunks of_v;
        const SharedAddress to = shared_address(shared_) + turn_ * s_.tile_bytes();
        const SharedAddress to_k = to + of_k.first_byte();
        const SharedAddress to_v = to + s_.k_bytes() + of_v.first_byte();
        k += thread() * 16, v += thread() * 16;
        const int n_visible_rows = n_visible - of_v.row;
#pragma unroll
        for (int i = 0; i < KChunks::n; i++) {
            copy_async(to_k + KChunks::bytes_on(i), k + i * KChunks::kThreads * 16, true);
        }
#pragma unroll
        for (int i = 0; i < VChunks::n; i++) {
            copy_async(to_v + VChunks::bytes_on(i), v + i * VChunks::kThreads * 16,
                       i * VChunks::kRowsOn < n_visible_rows);
        }
    }
    // As it lies in the cache: of K, then of V.
    __device__ __forceinline__ void fetch_raw(const std::byte* k, const std::byte* v) {
        constexpr int kStep = 16 * 32 * S::kMostWarps, kBytes = q8_tile_bytes(S::kMostD);
        static_assert(kBytes % 16 == 0);
        const int first = thread() * 16;
        const SharedAddress to = shared_address(shared_) + s_.raw_offset() + first;
        k += first, v += first;
#pragma unroll
        for (int at = 0; at < kBytes; at += kStep) {
            if (at + kStep > kBytes && first >= kBytes - at) break;
            copy_async(to + at, k + at, true);
            copy_async(to + kBytes + at, v + at, true);
        }
    }

    __device__ __forceinline__ void convert(int index) {
        if constexpr (S::kType == kAny) {
            convert_any(index);
        } else {
            convert_k();
            convert_v(n_visible(index));
        }
    }
    // Codes and scales to f16, eight at a time.
    __device__ __forceinline__ void convert_k() const {
        const KChunks chunks;
        const std::byte* codes = shared_ + s_.raw_offset() + thread() * 8;
        const std::byte* scales =
            shared_ + s_.raw_offset() + kPage * S::kMostD + chunks.column * 16;
        std::byte* to = k() + chunks.first_byte();
#pragma unroll
        for (int i = 0; i < KChunks::n; i++) {
            const uint2 eight = *reinterpret_cast<const uint2*>(codes + i * KChunks::kThreads * 8);
            const int block = (chunks.row + i * KChunks::kRowsOn) / kKvScaleElements;
            const uint4 scale = *reinterpret_cast<const uint4*>(scales + block * kPage * 2);
            *reinterpret_cast<uint4*>(to + KChunks::bytes_on(i)) = {
                scaled_codes(eight.x, 0, scale.x), scaled_codes(eight.x, 1, scale.y),
                scaled_codes(eight.y, 0, scale.z), scaled_codes(eight.y, 1, scale.w)};
        }
    }
    __device__ __forceinline__ void convert_v(int n_visible) const {
        const VChunks chunks;
        constexpr int kScaleRow = S::kMostD / kKvScaleElements * 2;
        const std::byte* raw = shared_ + s_.raw_offset() + q8_tile_bytes(S::kMostD);
        const std::byte* codes = raw + thread() * 8;
        const std::byte* scales =
            raw + kPage * S::kMostD + chunks.row * kScaleRow + chunks.column / 4 * 2;
        std::byte* to = v() + chunks.first_byte();
        const int n_visible_rows = n_visible - chunks.row;
#pragma unroll
        for (int i = 0; i < VChunks::n; i++) {
            const int rows_on = i * VChunks::kRowsOn;
            const uint2 eight = *reinterpret_cast<const uint2*>(codes + i * VChunks::kThreads * 8);
            const uint32_t one = *reinterpret_cast<const uint16_t*>(scales + rows_on * kScaleRow);
            const uint32_t scale = one | one << 16;
            uint4 four{scaled_codes(eight.x, 0, scale), scaled_codes(eight.x, 1, scale),
                       scaled_codes(eight.y, 0, scale), scaled_codes(eight.y, 1, scale)};
            if (rows_on >= n_visible_rows) four = {0, 0, 0, 0};
            *reinterpret_cast<uint4*>(to + VChunks::bytes_on(i)) = four;
        }
    }
    // Straight from the cache, in two parts of bf16.
    __device__ __forceinline__ void convert_any(int index) {
        const std::byte* from_k = a_.kv.k_tile(page_, tile_.kv_head);
        const std::byte* from_v = a_.kv.v_tile(page_, tile_.kv_head);
        const int d = s_.d, in_row = d / 8, scales_in_row = d / kKvScaleElements;
        const int v_row_bytes = row_bytes_of(d), v_bytes = v_bytes_of(d);
        for (int i = thread(); i < d * 8; i += s_.n_threads()) {
            float x[8];
            int row = i / 8, chunk = i % 8;
            read_eight(a_.kv.k_dtype, from_k, d, i * 8, row / kKvScaleElements * kPage + chunk * 8,
                       false, x);
            store_parts(x, k() + row * row_bytes_of(kPage) + chunk * 16, s_.k_bytes());
            row = i / in_row, chunk = i % in_row;
            if (row < n_visible(index)) {
                read_eight(a_.kv.v_dtype, from_v, d, i * 8, row * scales_in_row + chunk / 4, true,
                           x);
            } else {
#pragma unroll
                for (float& one : x) one = 0;
            }
            store_parts(x, v() + row * v_row_bytes + chunk * 16, v_bytes);
        }
        fetched_++;
        find_page();
    }
    // The second part of what is not finite is 0.
    __device__ static void store_parts(const float (&x)[8], std::byte* to, int part_bytes) {
        uint32_t high[4], low[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            high[i] = S::two(x[2 * i], x[2 * i + 1]);
            const float2 of_high = S::floats(high[i]);
            low[i] = S::two(S::is_finite(high[i]) ? x[2 * i] - of_high.x : 0,
                            S::is_finite(high[i] >> 16) ? x[2 * i + 1] - of_high.y : 0);
        }
        *reinterpret_cast<uint4*>(to) = {high[0], high[1], high[2], high[3]};
        *reinterpret_cast<uint4*>(to + part_bytes) = {low[0], low[1], low[2], low[3]};
    }

    const S& s_;
    const PromptRows& a_;
    const RowTile& tile_;
    const int end_;
    int fetched_;   // the page to be fetched next
    int page_ = 0;  // where it is
    int turn_ = 0;  // direct: where it goes
    std::byte* const shared_;
};

}  // namespace ridge::cuda::prefill
