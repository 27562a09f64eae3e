#pragma once

#include <cstdint>
#include <cstring>

#include "cpu/isa/block_formats.h"
#include "cpu/isa/compact_kernels.h"

// Prompts on tiles of bf16, written once over a type T of tile registers (tiles_amx.h, and
// tiles_scalar.h, which does the same in plain C++ and lets every machine test this) and a vector
// type V.
//
// A tile holds 16 rows of 64 bytes. C [16 input rows][16 weight rows] f32 += A [16 input rows][32
// k] bf16 times B [16 pairs along k][16 weight rows][2] bf16: B is a block of a packed BF16 group
// as it lies, and what the other formats are unpacked to. Four C's share each load of two A's and
// two B's. Blocks of int8 have scales of their own every 32 elements, which is half a tile's
// length: taking sums out of the tiles that often costs more than bf16's products.
//
// The unit multiplies on its own while the vector units unpack the next slice, if what they do is
// small between any two products: there are few tile registers behind the eight that have names,
// and an instruction that waits for one holds up all that follow.

namespace ridge::cpu {
namespace {

// --- pieces: a quarter of a block, eight elements along k of a group's 16 rows ---
//
// A Piece::unpack<quarter> writes its 256 bytes of the block's [16 pairs][16 rows][2] at `out`: bit
// for bit what format/decode.h gives, rounded once more. A block's quarters come in order.

// Offsets are powers of two, so that one fused product and sum is exact up to its own rounding.
template <class V, class F>
struct BlockPiece {
    template <int quarter>
    [[gnu::always_inline]] static void unpack(const uint8_t* group, const PackedShape& shape,
                                              int64_t block, uint8_t* out) {
        const int64_t scale_bytes = F::scale_bytes(shape);
        group += block / F::kBlocks * (scale_bytes + F::kBlocks * F::kCodeBytes);
        const int b = static_cast<int>(block % F::kBlocks);
        for (int row = 0; row < kGroupRows; row += V::kRows) {
            unpack_rows<quarter>(group + scale_bytes + b * F::kCodeBytes + 4 * row,
                                 typename F::template Scales<V>(group, shape, row), b,
                                 out + 4 * row);
        }
    }

  private:
    template <int quarter, class Scales>
    [[gnu::always_inline]] static void unpack_rows(const uint8_t* block, const Scales& scales,
                                                   int b, uint8_t* out) {
        using Float = typename V::Float;
        constexpr int kOffset = F::kOffset - (F::Codes::kWide && !V::kUnsignedWide ? 128 : 0);
        constexpr float kNegatedOffset = -static_cast<float>(kOffset);
        typename V::Int c[8];
        F::Codes::template load<V>(block, c);
        Float scale, shift;
        if constexpr (Scales::kHalves) {
            scale = scales.scale(b, quarter / 2);
            if constexpr (Scales::kMins) shift = scales.min(b, quarter / 2);
        } else {
            scale = scales.scale(b);
            if constexpr (Scales::kMins) shift = scales.min(b);
        }
        if constexpr (!Scales::kMins) shift = V::mul(scale, V::broadcast(&kNegatedOffset));
        auto element = [&](Float code) {
            if constexpr (Scales::kMins) return V::add(V::mul(scale, code), shift);
            return V::fma(scale, code, shift);
        };
#pragma GCC unroll 2
        for (int j = 2 * quarter; j < 2 * quarter + 2; j++) {
            V::store_bf16_pairs(out + 128 * j, element(V::template code_floats<0>(c[j])),
                                element(V::template code_floats<1>(c[j])));
            V::store_bf16_pairs(out + 128 * j + 64, element(V::template code_floats<2>(c[j])),
                                element(V::template code_floats<3>(c[j])));
        }
    }
};

template <class V>
struct F16Piece {
    template <int quarter>
    [[gnu::always_inline]] static void unpack(const uint8_t* group, const PackedShape&,
                                              int64_t block, uint8_t* out) {
        for (int pair = 4 * quarter; pair < 4 * quarter + 4; pair++) {
            for (int row = 0; row < kGroupRows; row += V::kRows) {
                typename V::Float w[2];
                FloatF16::load<V>(group + block * kGeometryF16.code_bytes, pair, row, w);
                V::store_bf16_pairs(out + 64 * pair + 4 * row, w[0], w[1]);
            }
        }
    }
};

template <class V>
struct CompactPiece {
    template <int quarter>
    [[gnu::always_inline]] static void unpack(const uint8_t* data, const PackedShape& shape,
                                              int64_t block, uint8_t* out) {
        static_assert(kCompactUnits == 4);
        const CompactGroup group(data, shape.n_supers);
        if (!group.compact) {
            memcpy(out + 256 * quarter, group.supers + 1024 * block + 256 * quarter, 256);
            return;
        }
        const auto table = V::load_table(group.table);
        const uint8_t* unit =
            group.supers + block * kCompactSuperBytes + kCompactUnitBytes * quarter;
        for (int row = 0; row < kGroupRows; row += V::kRows) {
            typename V::Int pairs[4];
            unit_pairs<V>(table, unit + 4 * row, pairs);
            for (int i = 0; i < 4; i++) {
                V::store_bytes(out + 256 * quarter + 64 * i + 4 * row, pairs[i]);
            }
        }
        if constexpr (quarter == 3) {
            group.mend_super(block, out);
        }
    }
};

// BF16 as it is, which is multiplied where it lies.
struct PlainPiece {
    template <int quarter>
    static void unpack(const uint8_t*, const PackedShape&, int64_t, uint8_t*) {}
};

// An UnpackKernel.
template <class Piece>
void unpack_pieces(const uint8_t* group, const PackedShape& shape, int64_t first_block,
                   int64_t n_blocks, uint8_t* codes, float*, float*) {
    for (int64_t b = first_block; b < first_block + n_blocks; b++, codes += 1024) {
        Piece::template unpack<0>(group, shape, b, codes);
        Piece::template unpack<1>(group, shape, b, codes);
        Piece::template unpack<2>(group, shape, b, codes);
        Piece::template unpack<3>(group, shape, b, codes);
    }
}

// --- products ---

constexpr int kPieces = 4 * kPanelGroups;  // of a panel's block

// What is done between products: pieces of the next slice.
template <class Piece>
class NextSlice {
  public:
    explicit NextSlice(const TileSlice& slice) : slice_(slice) {
        // In 65536ths, of one piece. To the next slice there is time enough to fetch all.
        if (slice.n_blocks > 0) lines_ = (slice.n_lines << 16) / (4 * slice.n_blocks);
    }

    // Piece i of kPieces of the slice's block b.
    [[gnu::always_inline]] void unpack(int i, int64_t b) const {
        const int g = i / 4;
        const int64_t block = slice_.first_block + b;
        uint8_t* out = slice_.codes[g] + 1024 * b;
        switch (i % 4) {
            case 0:
                Piece::template unpack<0>(slice_.groups[g], slice_.shape, block, out);
                break;
            case 1:
                Piece::template unpack<1>(slice_.groups[g], slice_.shape, block, out);
                break;
            case 2:
                Piece::template unpack<2>(slice_.groups[g], slice_.shape, block, out);
                break;
            default:
                Piece::template unpack<3>(slice_.groups[g], slice_.shape, block, out);
                break;
        }
        const int64_t at = 4 * b + i % 4;
        for (int64_t line = lines_ * at >> 16; line < lines_ * (at + 1) >> 16; line++) {
            __builtin_prefetch(slice_.ahead[g] + 64 * line, 0, 2);  // to the second cache
        }
    }
    int64_t n_blocks() const { return slice_.n_blocks; }

  private:
    const TileSlice& slice_;
    int64_t lines_ = 0;
};

// Registers: C 0..3, A 4 and 5, B 6 and 7.
struct TileStep {
    const uint16_t *high, *low;  // A: of rows 0 to 15 and of rows 16 to 31
    const uint8_t *b0, *b1;

    template <class T>
    void first_half() const {
        T::template load<6>(b0, 64);
        T::template load<4>(high, 64);
        T::template dot_bf16<0, 4, 6>();
        T::template load<7>(b1, 64);
        T::template dot_bf16<1, 4, 7>();
    }
    template <class T>
    void second_half() const {
        T::template load<5>(low, 64);
        T::template dot_bf16<2, 5, 6>();
        T::template dot_bf16<3, 5, 7>();
    }
    void advance() { high += kTileElements, low += kTileElements, b0 += 1024, b1 += 1024; }
};

template <class T, int t>
void exchange_sums(float* held, const float* sums, bool are_new) {
    if (held != nullptr) T::template store<t>(held + t * kTileFloats, 64);
    if (are_new) {
        T::template zero<t>();
    } else {
        T::template load<t>(sums + t * kTileFloats, 64);
    }
}

// A strip's first step. The sums of the strip before leave the registers one by one, just before
// the first product that needs the place: the unit is not idle meanwhile.
template <class T>
void first_step(const TileStep& step, float* held, const float* sums, bool are_new) {
    exchange_sums<T, 0>(held, sums, are_new);
    T::template load<6>(step.b0, 64);
    T::template load<4>(step.high, 64);
    T::template dot_bf16<0, 4, 6>();
    exchange_sums<T, 1>(held, sums, are_new);
    T::template load<7>(step.b1, 64);
    T::template dot_bf16<1, 4, 7>();
    exchange_sums<T, 2>(held, sums, are_new);
    T::template load<5>(step.low, 64);
    T::template dot_bf16<2, 5, 6>();
    exchange_sums<T, 3>(held, sums, are_new);
    T::template dot_bf16<3, 5, 7>();
}

// A TileKernel. The pieces of each block are shared out evenly over the strips. A piece of block b
// is unpacked in the step that has just loaded block b: the processor takes a store for what a load
// reads if they lie a multiple of 4 KiB apart, and holds the load up, so what is stored lies as far
// as can be from what is loaded next.
template <class T, class Piece>
void multiply_tiles(const Panel& panel, const Activations& x, int64_t first_block, int64_t n_blocks,
                    int64_t n_rows, TileSums& sums, const TileSlice& slice) {
    const NextSlice<Piece> next(slice);
    const int64_t n_strips = (n_rows + kPaddedRows - 1) / kPaddedRows;
    const int64_t n_both = n_blocks < next.n_blocks() ? n_blocks : next.n_blocks();
    for (int64_t strip = 0; strip < n_strips; strip++) {
        const uint16_t* high = x.bf16 + 2 * strip * x.bf16_stride + kTileElements * first_block;
        TileStep step{high, high + x.bf16_stride, panel.codes[0], panel.codes[1]};
        const auto piece = static_cast<int>(kPieces * strip / n_strips);
        const auto end = static_cast<int>(kPieces * (strip + 1) / n_strips);
        float* to = sums.sums + strip * kTileStripFloats;
        first_step<T>(step, sums.held, to, sums.are_new);
        sums.held = to;
        int64_t b = 0;
        if (piece < end) {
            if (n_both > 0) {
                for (int i = piece; i < end; i++) next.unpack(i, 0);
            }
            for (b = 1; b < n_both; b++) {
                step.advance();
                step.first_half<T>();
                if (end - piece > 1) next.unpack(piece, b);
                step.second_half<T>();
                for (int i = end - piece > 1 ? piece + 1 : piece; i < end; i++) next.unpack(i, b);
            }
            b = n_both > 0 ? n_both - 1 : 0;
        }
        for (b++; b < n_blocks; b++) {
            step.advance();
            step.first_half<T>();
            step.second_half<T>();
        }
    }
    for (int64_t b = n_both; b < next.n_blocks(); b++) {
        for (int i = 0; i < kPieces; i++) next.unpack(i, b);
    }
}

template <class T>
void end_tiles(TileSums& sums) {
    if (sums.held != nullptr) {
        T::template store<0>(sums.held, 64);
        T::template store<1>(sums.held + kTileFloats, 64);
        T::template store<2>(sums.held + 2 * kTileFloats, 64);
        T::template store<3>(sums.held + 3 * kTileFloats, 64);
    }
    sums.held = nullptr;
    T::end();
}

// 16 KiB of a panel: with as much of a strip's inputs, and its sums, in the first cache.
constexpr int kTileSliceBlocks = 8;

template <class T, class Piece>
constexpr GemmKernel tile_gemm() {
    return {Operands::kBF16,      kTileSliceBlocks, 0,
            unpack_pieces<Piece>, nullptr,          multiply_tiles<T, Piece>};
}

// All formats but F32, whose products stay float32.
template <class T, class V>
void fill_tile_gemm_kernels(Kernels& kernels) {
    const GemmKernel in_order[kNumWeightFormats - 1] = {
        // of FormatId
        tile_gemm<T, F16Piece<V>>(),
        {Operands::kBF16, kTileSliceBlocks, 0, nullptr, nullptr, multiply_tiles<T, PlainPiece>},
        tile_gemm<T, BlockPiece<V, FormatQ4_0>>(),
        tile_gemm<T, BlockPiece<V, FormatQ4_1>>(),
        tile_gemm<T, BlockPiece<V, FormatQ5_0>>(),
        tile_gemm<T, BlockPiece<V, FormatQ5_1>>(),
        tile_gemm<T, BlockPiece<V, FormatQ8_0>>(),
        tile_gemm<T, BlockPiece<V, FormatQ2_K>>(),
        tile_gemm<T, BlockPiece<V, FormatQ3_K>>(),
        tile_gemm<T, BlockPiece<V, FormatQ4_K>>(),
        tile_gemm<T, BlockPiece<V, FormatQ5_K>>(),
        tile_gemm<T, BlockPiece<V, FormatQ6_K>>(),
        tile_gemm<T, BlockPiece<V, FormatIQ4_NL>>(),
        tile_gemm<T, BlockPiece<V, FormatIQ4_XS>>(),
        tile_gemm<T, BlockPiece<V, FormatAffine4>>(),
        tile_gemm<T, BlockPiece<V, FormatAffine8>>(),
    };
    for (int i = 1; i < kNumWeightFormats; i++) kernels.gemm[i] = in_order[i - 1];
    kernels.compact.gemm = tile_gemm<T, CompactPiece<V>>();
    kernels.tiles = {T::begin, end_tiles<T>};
}

}  // namespace
}  // namespace ridge::cpu
