#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "cuda/device/decode_items.cuh"

// What a kernel of decode attention is made for, and where things lie in its shared memory.

namespace ridge::cuda::decode {

constexpr int kUnit = 32;      // positions that a warp takes at a time, half a page
constexpr int kAny = -1;       // of a template's parameter: known when the kernel runs
constexpr int kMostGroup = 8;  // query heads of a K/V head that a block takes at once

static_assert(kKvPagePositions == 2 * kUnit);

// Sums of a warp: [kHeads][d + kSumGap], which brings what lanes write at once to different banks.
constexpr int kSumGap = 8;

// Kernels of tensor units, K and V of one type of f16, bf16 or q8_0. D: d_head, or kAny: every
// multiple of 16 (of q8_0: 32) up to 256. Heads: query heads that there are columns for, 4 or 8.
template <int D, DType Type, int Heads, int Warps>
struct TensorShape {
    static constexpr bool kIsTensor = true;
    static constexpr int kHeads = Heads, kWarps = Warps, kThreads = 32 * Warps;
    static constexpr bool kWhole = D != kAny;
    // With room for another kernel's blocks beside them (matvec).
    static constexpr int kBlocksAnSm = kWhole ? 16 / Warps : 2;
    static constexpr int kMostD = kWhole ? D : kMostHead;
    static constexpr DType kType = Type;
    static constexpr bool kHasCodes = Type == DType::kQ8_0, kIsF16 = Type != DType::kBF16;
    // Numbers of 16 bits that stand for a query's and for a weight: what the first rounds away is
    // the second. Of four heads each has two columns of a product, 2 h and 2 h + 1; of eight heads
    // there are two products. So a lane of t has one head of four, t, or two of eight.
    static constexpr int kProducts = Heads == 4 ? 1 : 2;
    static constexpr int kLaneHeads = Heads == 4 ? 1 : 2;
    static_assert(Heads == 4 || Heads == 8);
    static_assert(kMostD % 32 == 0);

    const int d;

    __device__ explicit TensorShape(const KvTiles& kv) : d(kWhole ? D : kv.d_head) {}
    __device__ static constexpr DType key_type(const KvTiles&) { return Type; }
    __device__ static constexpr DType value_type(const KvTiles&) { return Type; }

    // A unit of K [d][32], and q8_0's scales [d / 32][32] behind it. Rows lie without a gap; which
    // of a row's pieces of 16 bytes lies where alternates, so that eight rows' lie in different
    // banks.
    static constexpr int kKeyRow = kHasCodes ? kUnit : 2 * kUnit;
    __host__ __device__ static constexpr int key_place(int k, int piece) {
        return k * kKeyRow + 16 * (kHasCodes ? piece ^ (k >> 2 & 1) : piece ^ (k >> 1 & 3));
    }
    __host__ __device__ static constexpr int key_scales(int d) { return d * kKeyRow; }
    __host__ __device__ static constexpr int key_bytes(int d) {
        return d * kKeyRow + (kHasCodes ? d / kKvScaleElements * 2 * kUnit : 0);
    }
    // A unit of V [32][d], and q8_0's scales [32][d / 32]. Rows are an odd number of pieces apart,
    // or where they are a power of two long alternate as K's do.
    static constexpr bool kAlternates = kWhole && !kHasCodes;
    static_assert(!kAlternates || D % 64 == 0);
    __host__ __device__ static constexpr int value_pieces(int d) {
        return kHasCodes ? d / 16 : d / 8;
    }
    __host__ __device__ static constexpr int value_row(int d) {
        return 16 * (kAlternates ? value_pieces(d) : value_pieces(d) | 1);
    }
    __host__ __device__ static constexpr int value_place(int d, int p, int piece) {
        return p * value_row(d) + 16 * (kAlternates ? piece ^ (p & 7) : piece);
    }
    __host__ __device__ static constexpr int value_scales(int d) { return kUnit * value_row(d); }
    __host__ __device__ static constexpr int value_bytes(int d) {
        return kUnit * value_row(d) + (kHasCodes ? d / kKvScaleElements * 2 * kUnit : 0);
    }
    // Of a warp: a unit of K and one of V, and in their place at the end of an item its sums.
    __host__ __device__ static constexpr int warp_bytes(int d) {
        const int units = key_bytes(d) + value_bytes(d);
        const int sums = Heads * (d + kSumGap) * int{sizeof(float)};
        return ((units > sums ? units : sums) + 127) / 128 * 128;
    }
    // Queries [8 * kProducts][d], two parts of each: rows of an odd number of pieces, and what is
    // read behind the last where d is not a multiple of 32.
    __host__ __device__ static constexpr int query_row(int d) { return 2 * d + 16; }
    __host__ __device__ static constexpr int query_bytes(int d) {
        return 8 * kProducts * query_row(d) + 32;
    }
};

// Of every d_head up to 256, and every pair of types: without tensor units.
template <int Heads>
struct AnyShape {
    static constexpr bool kIsTensor = false;
    static constexpr int kHeads = Heads, kWarps = 8, kThreads = 32 * kWarps;
    static constexpr int kBlocksAnSm = 1;
    static constexpr bool kWhole = false;
    static constexpr int kMostD = kMostHead;

    const int d;

    __device__ explicit AnyShape(const KvTiles& kv) : d(kv.d_head) {}
    __device__ static DType key_type(const KvTiles& kv) { return kv.k_dtype; }
    __device__ static DType value_type(const KvTiles& kv) { return kv.v_dtype; }
    __host__ __device__ static constexpr int warp_bytes(int d) {
        return Heads * (d + kSumGap) * int{sizeof(float)};
    }
    __host__ __device__ static constexpr int query_bytes(int d) {  // [kHeads][d] f32
        return Heads * d * int{sizeof(float)};
    }
};

// f(i) for every 32nd of a head's elements from `lane` on.
template <class S, class F>
__device__ __forceinline__ void for_each_element(const S& s, int lane, F f) {
#pragma unroll
    for (int j = 0; j < S::kMostD / 32; j++) {
        if (S::kWhole || lane + 32 * j < s.d) f(lane + 32 * j);
    }
}

// A block's shared memory.
template <class S>
struct Room {
    std::byte* warps;    // [kWarps][warp_bytes], or what blocks are merged with
    std::byte* queries;  // [query_bytes]
    float* powers;       // [kHeads] what scores are to be multiplied by
    NewRow k, v;
    float2* states;  // [kWarps][kHeads] the highest score, and the sum of weights
    bool* is_last;

    __device__ Room(const S& s, std::byte* at) : warps(at) {
        queries = warps + warps_bytes(s.d);
        states = reinterpret_cast<float2*>(queries + S::query_bytes(s.d));
        powers = reinterpret_cast<float*>(states + S::kWarps * S::kHeads);
        auto* rows = reinterpret_cast<std::byte*>(powers + S::kHeads);
        k = new_row(rows, s.d), v = new_row(rows + new_row_bytes(s.d), s.d);
        is_last = reinterpret_cast<bool*>(rows + 2 * new_row_bytes(s.d));
    }
    __device__ float* sums(const S& s, int warp) const {
        return reinterpret_cast<float*>(warps + warp * S::warp_bytes(s.d));
    }

    __host__ __device__ static constexpr int warps_bytes(int d) {
        const int merging =
            kMostGroup * (kMostBlocks + 1) * int{sizeof(float)} + S::kThreads * int{sizeof(float4)};
        const int own = S::kWarps * S::warp_bytes(d);
        return own > merging ? own : merging;
    }
    static constexpr int bytes(int d) {
        return warps_bytes(d) + S::query_bytes(d) + S::kWarps * S::kHeads * int{sizeof(float2)} +
               S::kHeads * int{sizeof(float)} + 2 * new_row_bytes(d) + 16;
    }

  private:
    __device__ static NewRow new_row(std::byte* at, int d) {
        auto* x = reinterpret_cast<float*>(at);
        auto* codes = reinterpret_cast<int8_t*>(x + d);
        return {x, codes, reinterpret_cast<__half*>(codes + d)};
    }
};

}  // namespace ridge::cuda::decode
