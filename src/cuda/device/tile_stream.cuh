#pragma once

#include <cstdint>

#include "cuda/device/fragments.cuh"
#include "cuda/device/tile_codes.cuh"

namespace ridge::cuda {

// Chunks of weights in tiles (cuda/tiles.h) that come from global memory to the registers of the
// warp that multiplies them, straight or by way of shared memory: a tile lies in the order in which
// lanes hold it.

// What is read once, where it is wanted: 16 bytes a lane do not push anything out of the first
// cache, which every kernel begins with empty. Volatile, so that it stays before the wait for the
// kernel before; without a branch, so that one piece of code serves the last chunks, too.
template <class T>
__device__ inline void load_once(T& x, const uint8_t* at, bool wanted) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16);
    if constexpr (sizeof(T) == 16) {
        asm volatile(
            "{.reg .pred p; setp.ne.b32 p, %5, 0;\n"
            "@p ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];}"
            : "+r"(x.x), "+r"(x.y), "+r"(x.z), "+r"(x.w)
            : "l"(at), "r"(static_cast<int>(wanted)));
    } else if constexpr (sizeof(T) == 8) {
        asm volatile(
            "{.reg .pred p; setp.ne.b32 p, %3, 0;\n"
            "@p ld.global.nc.v2.u32 {%0, %1}, [%2];}"
            : "+r"(x.x), "+r"(x.y)
            : "l"(at), "r"(static_cast<int>(wanted)));
    } else {
        asm volatile(
            "{.reg .pred p; setp.ne.b32 p, %2, 0;\n"
            "@p ld.global.nc.u32 %0, [%1];}"
            : "+r"(x)
            : "l"(at), "r"(static_cast<int>(wanted)));
    }
}

// What lies at an address in shared memory. Volatile, so that it stays behind the wait for the
// copies that bring it.
template <class T>
__device__ inline void load_shared(T& x, SharedAddress at) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16);
    if constexpr (sizeof(T) == 16) {
        asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
                     : "r"(at));
    } else if constexpr (sizeof(T) == 8) {
        asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(x.x), "=r"(x.y) : "r"(at));
    } else {
        asm volatile("ld.shared.u32 %0, [%1];" : "=r"(x) : "r"(at));
    }
}

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

// The same from shared memory, at the addresses of the chunk's codes and high bits; of those that
// come that way (cuda/matvec.cu).
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
// Scales of a chunk for rows g and g + 8, and what they make of the sums of a block: `sums`, of
// each row's two columns, began at -excess * x, x being the column's sum over the block's elements
// and excess what codes have too much (start), so that
//   total += scale * sums + add * x
// of row g + 8 kUpper times (tile_codes.cuh). PerStart is kUpper / -excess; formats that add
// something have no offset, so that the excess is kBias.
struct PerStart {
    float lower, upper;
};
__device__ inline void add_scaled_sums(float scale, const float* sums, float* total) {
    total[0] = fmaf(scale, sums[0], total[0]);
    total[1] = fmaf(scale, sums[1], total[1]);
}
__device__ inline void add_scaled_sums(float scale, float add_per_start, const float* sums,
                                       const float* start, float* total) {
    total[0] = fmaf(add_per_start, start[0], fmaf(scale, sums[0], total[0]));
    total[1] = fmaf(add_per_start, start[1], fmaf(scale, sums[1], total[1]));
}

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

// Where the sixteen bytes lie that a lane brings of what a chunk has beside its codes, its side:
// from the part's beginning for a warp's first chunk, and on from there to its next; in bytes.
struct SideSource {
    int first, step;
};

// Of a kind of scales, and where they are groups of their type. kBlock: elements that share a
// scale; apply(): block `block` of the chunk's, sums[0], sums[1] and total[0], total[1] of row g,
// the others of row g + 8.
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

    // The side of a chunk in shared memory: scales, then what its super-block shares.
    static constexpr int kSideBytes = scale_bytes(kScales) + super_bytes(kScales);
    template <int kWarps>
    __device__ static SideSource side_source(const TileGeometry& g, int warp, int at) {
        constexpr int kSmallBytes = scale_bytes(kScales), kSuperBytes = super_bytes(kScales);
        static_assert(kWarps % 4 == 0);
        if (!kHasSuper || at < kSmallBytes) {
            return {g.scales + warp * kSmallBytes + at, kWarps * kSmallBytes};
        }
        return {g.supers + warp / 4 * kSuperBytes + at - kSmallBytes, kWarps / 4 * kSuperBytes};
    }
    __device__ void take(SharedAddress side, int lane) {
        load_shared(small, side + lane / 4 * kSmall);
        if constexpr (kHasSuper) {
            load_shared(super, side + scale_bytes(kScales) + lane / 4 * kSuper);
        }
    }
};

template <>
struct StreamedScales<Scales::kNone> {
    static constexpr int kBlock = 0, kRegisters = 0;
    __device__ static void open(ChunkSource&, const uint8_t*, const TileGeometry&, int, int) {}
    __device__ void load(const ChunkSource&, int, bool) {}

    static constexpr int kSideBytes = 0;
};

template <>
struct StreamedScales<Scales::kSmall> : ScalePlanes<Scales::kSmall, uint2> {
    // small: row g: blocks 0, 1; row g + 8
    __device__ void apply(int block, PerStart, const float (&)[4], const float (&sums)[4],
                          float (&total)[4]) const {
        const float2 a = floats_of_f16(small.x), b = floats_of_f16(small.y);
        add_scaled_sums(block == 0 ? a.x : a.y, sums, total);
        add_scaled_sums(block == 0 ? b.x : b.y, sums + 2, total + 2);
    }
};

template <>
struct StreamedScales<Scales::kSmallMin> : ScalePlanes<Scales::kSmallMin, uint4> {
    // small: row g: d, m of block 0, of block 1; row g + 8
    __device__ void apply(int block, PerStart per_start, const float (&start)[4],
                          const float (&sums)[4], float (&total)[4]) const {
        const float2 a = floats_of_f16(block == 0 ? small.x : small.y),
                     b = floats_of_f16(block == 0 ? small.z : small.w);
        add_scaled_sums(a.x, a.y * per_start.lower, sums, start, total);
        add_scaled_sums(b.x, b.y * per_start.upper, sums + 2, start, total + 2);
    }
};

template <>
struct StreamedScales<Scales::kSuper> : ScalePlanes<Scales::kSuper, uint2, uint2> {
    // small: row g: scale, min of block 0, of block 1; row g + 8
    // super: row g: d, dmin; row g + 8
    __device__ void apply(int block, PerStart per_start, const float (&start)[4],
                          const float (&sums)[4], float (&total)[4]) const {
        const float2 a = floats_of_f16(super.x), b = floats_of_f16(super.y);
        const float min_a = -a.y * per_start.lower, min_b = -b.y * per_start.upper;
        add_scaled_sums(a.x * byte_of(small.x, 2 * block), min_a * byte_of(small.x, 2 * block + 1),
                        sums, start, total);
        add_scaled_sums(b.x * byte_of(small.y, 2 * block), min_b * byte_of(small.y, 2 * block + 1),
                        sums + 2, start, total + 2);
    }
};

template <>
struct StreamedScales<Scales::kSuper16> : ScalePlanes<Scales::kSuper16, uint2, uint32_t> {
    // small: row g: scales of the four mma; row g + 8
    // super: d of row g, of row g + 8
    __device__ void apply(int block, PerStart, const float (&)[4], const float (&sums)[4],
                          float (&total)[4]) const {
        const float2 d = floats_of_f16(super);
        add_scaled_sums(d.x * signed_byte_of(small.x, block), sums, total);
        add_scaled_sums(d.y * signed_byte_of(small.y, block), sums + 2, total + 2);
    }
};

template <>
struct StreamedScales<Scales::kSuper16Min> : ScalePlanes<Scales::kSuper16Min, uint4, uint2> {
    // small: row g: scale, min of the four mma; row g + 8
    // super: row g: d, dmin; row g + 8
    __device__ void apply(int block, PerStart per_start, const float (&start)[4],
                          const float (&sums)[4], float (&total)[4]) const {
        const float2 a = floats_of_f16(super.x), b = floats_of_f16(super.y);
        const float min_a = -a.y * per_start.lower, min_b = -b.y * per_start.upper;
        const uint32_t first = block < 2 ? small.x : small.y,
                       second = block < 2 ? small.z : small.w;
        const int at = block % 2 * 2;
        add_scaled_sums(a.x * byte_of(first, at), min_a * byte_of(first, at + 1), sums, start,
                        total);
        add_scaled_sums(b.x * byte_of(second, at), min_b * byte_of(second, at + 1), sums + 2, start,
                        total + 2);
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
    template <int kWarps>
    __device__ static SideSource side_source(const TileGeometry& g, int warp, int at) {
        const int group = (warp * kTileChunk + at / kGroupBytes * 32) / g.group_size;
        return {g.scales + group * kGroupBytes + at % kGroupBytes,
                kWarps * kTileChunk / g.group_size * kGroupBytes};
    }
    __device__ void take(SharedAddress side, int lane) {
        const SharedAddress at = side + lane / 4 * static_cast<uint32_t>(sizeof(Pair));
        load_shared(w[0], at), load_shared(w[1], at + kGroupBytes);
    }
    __device__ void apply(int block, PerStart per_start, const float (&start)[4],
                          const float (&sums)[4], float (&total)[4]) const {
        T of_block[4];
        memcpy(of_block, &w[block], sizeof of_block);
        add_scaled_sums(group_number(of_block[0]), group_number(of_block[1]) * per_start.lower,
                        sums, start, total);
        add_scaled_sums(group_number(of_block[2]), group_number(of_block[3]) * per_start.upper,
                        sums + 2, start, total + 2);
    }
};

// A chunk as a warp holds it.
template <Codes kCodes, Scales kScales, class T = void>
struct StreamedChunk {
    using Scaling = StreamedScales<kScales, T>;
    static constexpr int kBlock = Scaling::kBlock;
    static constexpr int kUpper = ChunkCodes<kCodes>::kUpper;
    // Whether products are multiplied by the powers of the weight's rows.
    static constexpr bool kHasPowers = kCodes == Codes::kF16;

    static constexpr float excess(bool upper, int offset) {
        return excess_of<kCodes>(upper, offset);
    }

    ChunkCodes<kCodes> codes;
    Scaling scales;
    static constexpr int kRegisters =
        (code_bytes(kCodes) + high_bytes(kCodes)) / 128 + Scaling::kRegisters;

    // Chunk `chunk` of a part, and the ones behind it.
    __device__ static ChunkSource open(const uint8_t* part, const TileGeometry& g, int chunk,
                                       int lane) {
        ChunkSource from{};
        from.codes = part + chunk * code_bytes(kCodes) + 16 * lane;
        from.high = part + g.high + chunk * high_bytes(kCodes) + high_bytes(kCodes) / 32 * lane;
        Scaling::open(from, part, g, chunk, lane);
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

    // In shared memory: codes, high bits, and the side that scales have.
    static constexpr int kCodeBytes = code_bytes(kCodes), kHighBytes = high_bytes(kCodes),
                         kSideBytes = kHighBytes + Scaling::kSideBytes,
                         kBytes = kCodeBytes + kSideBytes;
    static_assert(kSideBytes % 16 == 0 && kSideBytes <= 32 * 16);

    // Of a lane, of the chunks warp, warp + kWarps and so on of a part. A multiple of 512 elements
    // is from one to the next, so that scales are a constant distance apart.
    template <int kWarps>
    __device__ static SideSource side_source(const TileGeometry& g, int warp, int lane) {
        static_assert(kWarps % kSourceStep == 0);
        const int at = 16 * lane;
        if (at < kHighBytes) return {g.high + warp * kHighBytes + at, kWarps * kHighBytes};
        return Scaling::template side_source<kWarps>(g, warp, at - kHighBytes);
    }
    // Brings the lane's bytes to shared memory. to: the chunk's place, 16 * lane added; has_side:
    // whether 16 * lane is within a side.
    __device__ static void copy(SharedAddress to, const uint8_t* of_codes, const uint8_t* of_side,
                                bool has_side) {
#pragma unroll
        for (int i = 0; i < kCodeBytes; i += 512) copy_async(to + i, of_codes + i);
        if (has_side) copy_async(to + kCodeBytes, of_side);
    }
    __device__ void take(SharedAddress from, int lane) {
        take_codes(codes, from, from + kCodeBytes, lane);
        scales.take(from + kCodeBytes + kHighBytes, lane);
    }

    // What the sums of block `block` of the chunk begin with, in columns 2 t and 2 t + 1 of a lower
    // and of an upper row: starts are [block] {lower, upper} of a single row, else
    // [block][t] {2 t, 2 t + 1, of lower rows, both of upper rows}.
    template <bool kSingle>
    static __device__ void load_start(const float* starts, int block, int lane, float (&to)[4]) {
        if constexpr (kSingle) {
            const float2 start = reinterpret_cast<const float2*>(starts)[block];
            to[0] = to[1] = start.x, to[2] = to[3] = start.y;
        } else {
            const float4 start = reinterpret_cast<const float4*>(starts)[4 * block + lane % 4];
            to[0] = start.x, to[1] = start.y, to[2] = start.z, to[3] = start.w;
        }
    }

    // total += the chunk's 16 rows times the columns of x, kUpper times of the upper rows. x: the
    // lane's sixteen elements of its column; starts: of the chunk's blocks.
    template <bool kSingle>
    __device__ void multiply(const uint4 (&x)[2], const float* starts, int lane,
                             float (&total)[4]) const {
        multiply_from(
            x, [&](int block, float(&to)[4]) { load_start<kSingle>(starts, block, lane, to); },
            total);
    }
    // The same of the chunk of a single row that lies at an address in shared memory
    // (Input::kByChunk): its first column, total[0] and total[2] of the lanes t = 0, are the row's.
    __device__ void multiply_row(SharedAddress row, int lane, float (&total)[4]) const {
        uint4 x[2];
        load_shared(x[0], row + 32 * (lane % 4)), load_shared(x[1], row + 32 * (lane % 4) + 16);
        multiply_from(
            x,
            [&](int block, float(&to)[4]) {
                uint4 start;
                load_shared(start, row + 2 * kTileChunk + 16 * block);
                to[0] = __uint_as_float(start.x), to[1] = __uint_as_float(start.y);
                to[2] = __uint_as_float(start.z), to[3] = __uint_as_float(start.w);
            },
            total);
    }

  private:
    // load_start(block, to): what the sums of a block begin with.
    template <class LoadStart>
    __device__ __forceinline__ void multiply_from(const uint4 (&x)[2], LoadStart load_start_of,
                                                  float (&total)[4]) const {
        auto multiply_sixteen = [&](int m, float(&to)[4]) {
            const uint32_t b[2] = {word_of(x[m / 2], m % 2 * 2), word_of(x[m / 2], m % 2 * 2 + 1)};
            uint32_t operand[4];
            codes.operand(m, operand);
            mma_f16(to, operand, b);
        };
        if constexpr (kBlock == 0) {
#pragma unroll
            for (int m = 0; m < 4; m++) multiply_sixteen(m, total);
        } else {
            constexpr int kMmas = kBlock / 16, kBlocks = 4 / kMmas;
            constexpr float kPerBias = -1.0f / ChunkCodes<kCodes>::kBias;
            constexpr PerStart kPerStart{kPerBias, kUpper * kPerBias};
            float starts_of[kBlocks][4], sums[kBlocks][4];
#pragma unroll
            for (int block = 0; block < kBlocks; block++) {
                load_start_of(block, starts_of[block]);
#pragma unroll
                for (int i = 0; i < 4; i++) sums[block][i] = starts_of[block][i];
            }
#pragma unroll
            for (int i = 0; i < kMmas; i++) {
#pragma unroll
                for (int block = 0; block < kBlocks; block++) {
                    multiply_sixteen(block * kMmas + i, sums[block]);
                }
            }
#pragma unroll
            for (int block = 0; block < kBlocks; block++) {
                scales.apply(block, kPerStart, starts_of[block], sums[block], total);
            }
        }
    }
};

}  // namespace ridge::cuda
