#pragma once

#include <algorithm>
#include <climits>
#include <cstdint>

#include "cuda/device/fragments.cuh"
#include "cuda/device/instructions.cuh"
#include "cuda/device/tile_codes.cuh"

namespace ridge::cuda {

// Chunks of weights in tiles (cuda/tiles.h) that come from global memory to the registers of the
// warp that multiplies them, straight or by way of shared memory: a tile lies in the order in which
// lanes hold it.

// Codes of a chunk: the lane's, and their high bits.
__device__ inline void load_codes(ChunkCodes<Codes::kFour>& c, const uint8_t* codes, const uint8_t*,
                                  bool wanted) {
    load_once(c.w, codes, wanted);
}
__device__ inline void load_codes(ChunkCodes<Codes::kFive>& c, const uint8_t* codes,
                                  const uint8_t* high, bool wanted) {
    load_once(c.w, codes, wanted), load_once(c.h, high, wanted);
}
__device__ inline void load_codes(ChunkCodes<Codes::kSix>& c, const uint8_t* codes,
                                  const uint8_t* high, bool wanted) {
    load_once(c.w, codes, wanted), load_once(c.h, high, wanted);
}
template <Codes kCodes>
__device__ inline void load_codes(ChunkCodes<kCodes>& c, const uint8_t* codes, const uint8_t*,
                                  bool wanted) {
#pragma unroll
    for (size_t i = 0; i < sizeof c.w / sizeof c.w[0]; i++) {
        load_once(c.w[i], codes + 512 * i, wanted);
    }
}

// The same from shared memory, at the addresses of the chunk's codes and high bits.
__device__ inline void take_codes(ChunkCodes<Codes::kFour>& c, SharedAddress codes, SharedAddress,
                                  int lane) {
    load_shared(c.w, codes + 16 * lane);
}
__device__ inline void take_codes(ChunkCodes<Codes::kFive>& c, SharedAddress codes,
                                  SharedAddress high, int lane) {
    load_shared(c.w, codes + 16 * lane), load_shared(c.h, high + 4 * lane);
}
__device__ inline void take_codes(ChunkCodes<Codes::kSix>& c, SharedAddress codes,
                                  SharedAddress high, int lane) {
    load_shared(c.w, codes + 16 * lane), load_shared(c.h, high + 8 * lane);
}
__device__ inline void take_codes(ChunkCodes<Codes::kEight>& c, SharedAddress codes, SharedAddress,
                                  int lane) {
    load_shared(c.w[0], codes + 16 * lane), load_shared(c.w[1], codes + 512 + 16 * lane);
}

// What a block's products of codes and x are multiplied by, and the sum of x over the block; of row
// g + 8 the latter kByteUpper times what is (tile_codes.cuh).
//   total += scale * products + add * sum
struct BlockScale {
    float lower, upper, add_lower, add_upper;
};

// Elements along k that share a scale.
constexpr int scale_block_of(Scales scales) {
    if (scales == Scales::kNone) return 0;
    return scales == Scales::kSuper16 || scales == Scales::kSuper16Min ? 16 : 32;
}

// Where what a lane has of a chunk lies. What is whole steps of 512 elements behind it is loaded by
// addresses that differ by constants.
struct ChunkSource {
    const uint8_t *codes, *high, *scales, *supers;
    int group_step, group_block;  // kGroup: bytes to the next step's, to the next block's scales

    __device__ ChunkSource at(int64_t n_bytes) const {
        return {codes + n_bytes,  high + n_bytes, scales + n_bytes,
                supers + n_bytes, group_step,     group_block};
    }
};
constexpr int kSourceStep = 512 / kTileChunk;  // chunks

// By way of shared memory a warp's chunks come in stages of kOf. A piece of sixteen bytes of what
// they have beside their codes, their sides: of which of a stage's chunks it is, where it lies from
// the part's beginning on for a warp's first stage, and how far on that of the next is; in bytes.
struct SideSource {
    int chunk, first, step;
};

// Of a kind of scales, and where they are groups of their type. kBlock: elements that share a
// scale; of_block(): those of rows g and g + 8; kAdds: whether something is added.
template <Scales kScales, class T = void>
struct StreamedScales;

// Scales that lie chunk by chunk, a lane's Small in each, and where super-blocks share something
// its Super.
struct NoSuper {};
template <Scales kScales, class Small, class Super = NoSuper>
struct ScalePlanes {
    static constexpr bool kHasSuper = super_bytes(kScales) > 0;
    static constexpr int kSmall = sizeof(Small), kSuper = kHasSuper ? sizeof(Super) : 0;
    static_assert(scale_bytes(kScales) == 8 * kSmall && super_bytes(kScales) == 8 * kSuper);
    static constexpr int kBlock = scale_block_of(kScales), kRegisters = (kSmall + kSuper) / 4;

    Small small;
    Super super;

    __device__ static void open(ChunkSource& from, const uint8_t* part, const TileGeometry& g,
                                int chunk, int lane) {
        from.scales = part + g.scales + chunk * scale_bytes(kScales) + lane / 4 * kSmall;
        if constexpr (kHasSuper) {
            from.supers = part + g.supers + chunk / 4 * super_bytes(kScales) + lane / 4 * kSuper;
        }
    }
    __device__ void load(const ChunkSource& from, int apart, bool wanted) {
        load_once(small, from.scales + apart * kSourceStep * scale_bytes(kScales), wanted);
        if constexpr (kHasSuper) {
            load_once(super, from.supers + apart * kSourceStep / 4 * super_bytes(kScales), wanted);
        }
    }

    // In shared memory: scales of a stage's chunks, then what their super-blocks share.
    static constexpr int kSideBytes = scale_bytes(kScales) + super_bytes(kScales);
    template <int kWarps, int kOf>
    __device__ static SideSource side_source(const TileGeometry& g, int warp, int at) {
        constexpr int kSmallBytes = scale_bytes(kScales), kSuperBytes = super_bytes(kScales);
        static_assert(kWarps % 4 == 0);
        if (!kHasSuper || at < kOf * kSmallBytes) {
            const int chunk = at / kSmallBytes;
            return {chunk, g.scales + (warp + chunk * kWarps) * kSmallBytes + at % kSmallBytes,
                    kOf * kWarps * kSmallBytes};
        }
        at -= kOf * kSmallBytes;
        const int chunk = at / std::max(kSuperBytes, 1);
        return {chunk,
                g.supers + (warp + chunk * kWarps) / 4 * kSuperBytes + at - chunk * kSuperBytes,
                kOf * kWarps / 4 * kSuperBytes};
    }
    // Of chunk `chunk` of the stage, of rows g and g + 8.
    template <int kOf>
    __device__ void take(SharedAddress sides, int chunk, int row) {
        load_shared(small, sides + chunk * scale_bytes(kScales) + row * kSmall);
        if constexpr (kHasSuper) {
            load_shared(super, sides + kOf * scale_bytes(kScales) + chunk * super_bytes(kScales) +
                                   row * kSuper);
        }
    }
};

template <>
struct StreamedScales<Scales::kNone> {
    static constexpr int kBlock = 0, kRegisters = 0;
    static constexpr bool kAdds = false;
    __device__ static void open(ChunkSource&, const uint8_t*, const TileGeometry&, int, int) {}
    __device__ void load(const ChunkSource&, int, bool) {}

    static constexpr int kSideBytes = 0;
};

template <>
struct StreamedScales<Scales::kSmall> : ScalePlanes<Scales::kSmall, uint2> {
    // small: row g: blocks 0, 1; row g + 8
    static constexpr bool kAdds = false;
    __device__ BlockScale of_block(int block, float) const {
        const float2 a = floats_of_f16(small.x), b = floats_of_f16(small.y);
        return {block == 0 ? a.x : a.y, block == 0 ? b.x : b.y, 0, 0};
    }
};

template <>
struct StreamedScales<Scales::kSmallMin> : ScalePlanes<Scales::kSmallMin, uint4> {
    // small: row g: d, m of block 0, of block 1; row g + 8
    static constexpr bool kAdds = true;
    __device__ BlockScale of_block(int block, float per_upper) const {
        const float2 a = floats_of_f16(block == 0 ? small.x : small.y),
                     b = floats_of_f16(block == 0 ? small.z : small.w);
        return {a.x, b.x, a.y, b.y * per_upper};
    }
};

template <>
struct StreamedScales<Scales::kSuper> : ScalePlanes<Scales::kSuper, uint2, uint2> {
    // small: row g: scale, min of block 0, of block 1; row g + 8
    // super: row g: d, dmin; row g + 8
    static constexpr bool kAdds = true;
    __device__ BlockScale of_block(int block, float per_upper) const {
        const float2 a = floats_of_f16(super.x), b = floats_of_f16(super.y);
        const float min_a = -a.y, min_b = -b.y * per_upper;
        return {a.x * byte_of(small.x, 2 * block), b.x * byte_of(small.y, 2 * block),
                min_a * byte_of(small.x, 2 * block + 1), min_b * byte_of(small.y, 2 * block + 1)};
    }
};

template <>
struct StreamedScales<Scales::kSuper16> : ScalePlanes<Scales::kSuper16, uint2, uint32_t> {
    // small: row g: scales of the four mma; row g + 8
    // super: d of row g, of row g + 8
    static constexpr bool kAdds = false;
    __device__ BlockScale of_block(int block, float) const {
        const float2 d = floats_of_f16(super);
        return {d.x * signed_byte_of(small.x, block), d.y * signed_byte_of(small.y, block), 0, 0};
    }
};

template <>
struct StreamedScales<Scales::kSuper16Min> : ScalePlanes<Scales::kSuper16Min, uint4, uint2> {
    // small: row g: scale, min of the four mma; row g + 8
    // super: row g: d, dmin; row g + 8
    static constexpr bool kAdds = true;
    __device__ BlockScale of_block(int block, float per_upper) const {
        const float2 a = floats_of_f16(super.x), b = floats_of_f16(super.y);
        const float min_a = -a.y, min_b = -b.y * per_upper;
        const uint32_t first = block < 2 ? small.x : small.y,
                       second = block < 2 ? small.z : small.w;
        const int at = block % 2 * 2;
        return {a.x * byte_of(first, at), b.x * byte_of(second, at), min_a * byte_of(first, at + 1),
                min_b * byte_of(second, at + 1)};
    }
};

// T: f16, bf16 or float.
template <class T>
struct StreamedScales<Scales::kGroup, T> {
    static constexpr int kBlock = 32, kRegisters = 2 * sizeof(T);
    using Pair = std::conditional_t<sizeof(T) == 4, uint4, uint2>;
    Pair w[2];  // of each block: row g: scale, bias; row g + 8

    __device__ static void open(ChunkSource& from, const uint8_t* part, const TileGeometry& g,
                                int chunk, int lane) {
        const int group = chunk * kTileChunk / g.group_size,
                  second = (chunk * kTileChunk + 32) / g.group_size;
        from.scales = part + g.scales + group * kGroupBytes + lane / 4 * (kGroupBytes / 8);
        from.group_step = kSourceStep * kTileChunk / g.group_size * kGroupBytes;
        from.group_block = (second - group) * kGroupBytes;
    }
    __device__ void load(const ChunkSource& from, int apart, bool wanted) {
        load_once(w[0], from.scales + apart * from.group_step, wanted);
        load_once(w[1], from.scales + apart * from.group_step + from.group_block, wanted);
    }

    // Of both blocks, also where they share a group.
    static constexpr int kGroupBytes = 8 * static_cast<int>(sizeof(Pair)),
                         kSideBytes = 2 * kGroupBytes;
    template <int kWarps, int kOf>
    __device__ static SideSource side_source(const TileGeometry& g, int warp, int at) {
        const int chunk = at / kSideBytes, block = at % kSideBytes / kGroupBytes,
                  group = ((warp + chunk * kWarps) * kTileChunk + block * 32) / g.group_size;
        return {chunk, g.scales + group * kGroupBytes + at % kGroupBytes,
                kOf * kWarps * kTileChunk / g.group_size * kGroupBytes};
    }
    template <int kOf>
    __device__ void take(SharedAddress sides, int chunk, int row) {
        const SharedAddress at =
            sides + chunk * kSideBytes + row * static_cast<uint32_t>(sizeof(Pair));
        load_shared(w[0], at), load_shared(w[1], at + kGroupBytes);
    }
    static constexpr bool kAdds = true;
    __device__ BlockScale of_block(int block, float per_upper) const {
        T of_block[4];
        memcpy(of_block, block == 0 ? &w[0] : &w[1], sizeof of_block);
        return {group_number(of_block[0]), group_number(of_block[2]), group_number(of_block[1]),
                group_number(of_block[3]) * per_upper};
    }
};

// A chunk as a warp holds it.
template <Codes kCodes, Scales kScales, class T = void>
struct StreamedChunk {
    using OfCodes = ChunkCodes<kCodes>;
    using OfScales = StreamedScales<kScales, T>;
    static constexpr int kBlock = OfScales::kBlock;
    static constexpr int kUpper = ChunkCodes<kCodes>::kByteUpper;
    // Whether products are multiplied by the powers of the weight's rows.
    static constexpr bool kHasPowers = kCodes == Codes::kF16;

    ChunkCodes<kCodes> codes;
    OfScales scales;
    static constexpr int kRegisters =
        (code_bytes(kCodes) + high_bytes(kCodes)) / 128 + OfScales::kRegisters;

    // Chunk `chunk` of a part, and the ones behind it.
    __device__ static ChunkSource open(const uint8_t* part, const TileGeometry& g, int chunk,
                                       int lane) {
        ChunkSource from{};
        from.codes = part + chunk * code_bytes(kCodes) + 16 * lane;
        from.high = part + g.high + chunk * high_bytes(kCodes) + high_bytes(kCodes) / 32 * lane;
        OfScales::open(from, part, g, chunk, lane);
        return from;
    }
    // From a chunk to one that is n_chunks, a multiple of a step, behind it, in a part that lies
    // n_bytes behind.
    __device__ static void advance(ChunkSource& from, int n_chunks, int64_t n_bytes) {
        from.codes += n_bytes + n_chunks * code_bytes(kCodes);
        from.high += n_bytes + n_chunks * high_bytes(kCodes);
        from.supers += n_bytes + n_chunks / 4 * super_bytes(kScales);
        from.scales +=
            n_bytes + (kScales == Scales::kGroup ? n_chunks / kSourceStep * from.group_step
                                                 : n_chunks * scale_bytes(kScales));
    }
    // What lies `apart` steps behind, where it is wanted.
    __device__ void load(const ChunkSource& from, int apart, bool wanted) {
        load_codes(codes, from.codes + apart * kSourceStep * code_bytes(kCodes),
                   from.high + apart * kSourceStep * high_bytes(kCodes), wanted);
        scales.load(from, apart, wanted);
    }

    // By way of shared memory: codes of kOf chunks, their high bits, and the sides of scales.
    static constexpr int kCodeBytes = code_bytes(kCodes), kHighBytes = high_bytes(kCodes),
                         kSideBytes = kHighBytes + OfScales::kSideBytes,
                         kBytes = kCodeBytes + kSideBytes;

    // Piece `piece` of the sides of chunks warp, warp + kWarps and so on of a part. A multiple of
    // 512 elements is from one to the next, so that scales are a constant distance apart. Behind
    // the last piece there is one of a chunk that no part has.
    template <int kWarps, int kOf>
    __device__ static SideSource side_source(const TileGeometry& g, int warp, int piece) {
        static_assert(kWarps % kSourceStep == 0);
        const int at = 16 * piece;
        if (at >= kOf * kSideBytes) return {INT_MAX / kWarps, 0, 0};
        if (at < kOf * kHighBytes) {
            const int chunk = at / std::max(kHighBytes, 1);
            return {chunk, g.high + warp * kHighBytes + at + chunk * (kWarps - 1) * kHighBytes,
                    kOf * kWarps * kHighBytes};
        }
        return OfScales::template side_source<kWarps, kOf>(g, warp, at - kOf * kHighBytes);
    }

    // Eight blocks along k that each have a scale, an octet: chunks 4 i to 4 i + 3 of a warp's, or
    // 2 i and 2 i + 1. What its four pairs of blocks give is added to four sums, one octet after
    // the other, and these in pairs at the end: it does not matter whether a thread has one of them
    // or all.
    static constexpr int kBlocks = kBlock == 0 ? 1 : kTileChunk / std::max(kBlock, 1),
                         kOctetChunks = kBlock == 0 ? 1 : 8 / kBlocks;

    // total += 16 rows of the chunk times the columns of x. x: the lane's sixteen elements of its
    // column.
    __device__ __forceinline__ void multiply_f16(const uint4 (&x)[2], float (&total)[4]) const {
#pragma unroll
        for (int m = 0; m < 4; m++) {
            const uint32_t b[2] = {word_of(x[m / 2], m % 2 * 2), word_of(x[m / 2], m % 2 * 2 + 1)};
            uint32_t operand[4];
            codes.operand(m, operand);
            mma_f16(total, operand, b);
        }
    }

    // Codes times x in fixed point: columns 2 t and 2 t + 1 of a product are the high and the low
    // bytes of one row of x, or of one block of it.
    //
    // sums += 16 rows of block `block` times x, the lane's words of its column.
    static constexpr int kWords = std::max(kBlock, 16) / 16;
    __device__ static __forceinline__ void multiply_block(const OfCodes& codes, int block,
                                                          const uint32_t (&x)[kWords],
                                                          int (&sums)[4]) {
        uint32_t rows[2 * kWords];
#pragma unroll
        for (int i = 0; i < kWords; i++) {
            codes.rows(block * kWords + i, rows[2 * i], rows[2 * i + 1]);
        }
        if constexpr (kWords == 2) {
            mma_codes(sums, rows, x);
        } else {
            mma_codes(sums, rows, x[0]);
        }
    }
    // What sums of two blocks begin with. of_x: of x over them, times -offset where codes have one.
    __device__ static __forceinline__ void begin_sums(const int (&of_x)[2], int (&sums)[2][4]) {
        clear(sums);
        if constexpr (!OfScales::kAdds) {
#pragma unroll
            for (int s = 0; s < 2; s++) sums[s][1] = of_x[s], sums[s][3] = kUpper * of_x[s];
        }
    }
    // What two blocks give of rows g and g + 8, in the one order there is. a, b: sums of the two,
    // less what codes have too much; of_x: of x over them, where something is added.
    __device__ static __forceinline__ void add_pair(const OfScales& scales, int block,
                                                    const int (&a)[4], const int (&b)[4],
                                                    const int (&of_x)[2], float (&pair)[2]) {
        const BlockScale of_a = scales.of_block(block, kUpper),
                         of_b = scales.of_block(block + 1, kUpper);
        auto whole = [](int high, int low) { return static_cast<float>(256 * high + low); };
        pair[0] = fmaf(of_b.lower, whole(b[0], b[1]), of_a.lower * whole(a[0], a[1]));
        pair[1] = fmaf(of_b.upper, whole(b[2], b[3]), of_a.upper * whole(a[2], a[3]));
        if constexpr (OfScales::kAdds) {
            const auto x_a = static_cast<float>(of_x[0]), x_b = static_cast<float>(of_x[1]);
            pair[0] = fmaf(of_b.add_lower, x_b, fmaf(of_a.add_lower, x_a, pair[0]));
            pair[1] = fmaf(of_b.add_upper, x_b, fmaf(of_a.add_upper, x_a, pair[1]));
        }
    }
    // to[pair of blocks] += {rows g, g + 8} of the chunk times rows t and, where n_groups is 2,
    // 4 + t of x. x: the lane's words of its column of either; x_sums: of the chunk's first pair of
    // blocks (SharedPlan), of row t, or where kSingle of the only one.
    template <bool kSingle>
    __device__ __forceinline__ void multiply_rows(const uint4 (&x)[2], const int* x_sums,
                                                  int n_groups, float (*to)[4]) const {
#pragma unroll
        for (int block = 0; block < kBlocks; block += 2) {
            int4 of_rows{};
            if constexpr (kSingle) {
                const int2 of_row = *reinterpret_cast<const int2*>(x_sums + block);
                of_rows.x = of_row.x, of_rows.y = of_row.y;
            } else {
                of_rows = *reinterpret_cast<const int4*>(x_sums + 8 * block);
            }
#pragma unroll
            for (int group = 0; group < 2; group++) {
                if (group == n_groups) break;
                const int of_x[2] = {group == 0 ? of_rows.x : of_rows.z,
                                     group == 0 ? of_rows.y : of_rows.w};
                int sums[2][4];
                begin_sums(of_x, sums);
#pragma unroll
                for (int s = 0; s < 2; s++) {
                    uint32_t words[kWords];
#pragma unroll
                    for (int i = 0; i < kWords; i++) {
                        words[i] = word_of(x[group], (block + s) * kWords + i);
                    }
                    multiply_block(codes, block + s, words, sums[s]);
                }
                float pair[2];
                add_pair(scales, block, sums[0], sums[1], of_x, pair);
#pragma unroll
                for (int row = 0; row < 2; row++) to[block / 2][2 * row + group] += pair[row];
            }
        }
    }
};

}  // namespace ridge::cuda
