#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "cpu/interleaved_geometry.h"
#include "cpu/isa/wide_bytes.h"
#include "cpu/kernels.h"
#include "format/block_parts.h"

// How rows of a weight become a group (interleaved_geometry.h), of every format: PackKernels. The
// codes of 16 rows are taken out of their blocks, a byte each, and turned over in words of four:
// a vector then has the same four elements of all rows.

namespace ridge::cpu {
namespace {

// Of the rows from 4 `four` on, four for each lane, the words of 16 bytes a row: word[i] has all
// rows' i-th.
inline void load_words(const uint8_t* const* rows, int four, int64_t at, Wide8* word) {
    Wide8 row[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        row[i] = gather_lanes([&](int lane) { return rows[4 * (four + lane) + i] + at; });
    }
    transpose_words(row, word);
}

// --- floats ---

// 64 bytes of each row; of rows that are not there, or end before, the rest is made up of `filler`.
struct PaddedRows {
    alignas(64) uint8_t bytes[kGroupRows][64];
    const uint8_t* rows[kGroupRows];

    PaddedRows(const GroupRows& from, int64_t row_bytes, int64_t at, uint16_t filler) {
        const int64_t left = row_bytes - at;
        for (int r = 0; r < kGroupRows; r++) {
            for (int i = 0; i < 64; i += 2) memcpy(&bytes[r][i], &filler, sizeof filler);
            rows[r] = bytes[r];
            if (r >= from.n_rows || left <= 0) continue;
            memcpy(bytes[r], from.plane[0][r] + at, static_cast<size_t>(left < 64 ? left : 64));
        }
    }
};

// Calls write(rows, at, i) for each 64 bytes of the rows, all there.
template <class Write>
inline void for_each_64(const GroupRows& rows, int64_t row_bytes, int64_t n, uint16_t filler,
                        Write write) {
    for (int64_t i = 0; i < n; i++) {
        if (rows.n_rows == kGroupRows && 64 * (i + 1) <= row_bytes) {
            write(rows.plane[0], 64 * i, i);
        } else {
            const PaddedRows padded(rows, row_bytes, 64 * i, filler);
            write(padded.rows, int64_t{0}, i);
        }
    }
}

// 16 words of each row: F32, and pairs of BF16.
inline void write_words(const uint8_t* const* rows, int64_t at, uint8_t* out) {
    for (int i = 0; i < 4; i++) {
        for (int four = 0; four < 4; four += kLanes) {
            Wide8 word[4];
            load_words(rows, four, at + 16 * i, word);
            for (int w = 0; w < 4; w++) {
                store_wide(out + 256 * i + 64 * w + 16 * four, word[w]);
            }
        }
    }
}

// 32 halves of each row: F16. Of two words, the first halves of four rows and then the second ones.
inline void write_halves(const uint8_t* const* rows, int64_t at, uint8_t* out) {
    for (int i = 0; i < 4; i++, out += 256) {
        for (int four = 0; four < 4; four += kLanes) {
            Wide8 word[4];
            load_words(rows, four, at + 16 * i, word);
            for (int w = 0; w < 4; w += 2) {
                const auto a = as<Wide16>(word[w]), b = as<Wide16>(word[w + 1]);
                // Elements 2 w and 2 w + 2; 2 w + 1 and 2 w + 3.
                uint64_t of_four_rows[2][kWideBytes / 8];
                store_wide(reinterpret_cast<uint8_t*>(of_four_rows[0]),
                           shuffle_lanes<Pick::kEven>(a, b));
                store_wide(reinterpret_cast<uint8_t*>(of_four_rows[1]),
                           shuffle_lanes<Pick::kOdd>(a, b));
                for (int lane = 0; lane < kLanes; lane++) {
                    for (int k = 0; k < 4; k++) {
                        memcpy(out + 32 * (2 * w + k) + 8 * (four + lane),
                               &of_four_rows[k % 2][2 * lane + k / 2], 8);
                    }
                }
            }
        }
    }
}

template <int kElementBytes, void (*write)(const uint8_t* const*, int64_t, uint8_t*)>
void pack_floats(const GroupRows& rows, uint8_t* out) {
    const int64_t n = round_up_to(rows.n_cols, 32) * kElementBytes / 64;
    for_each_64(
        rows, rows.n_cols * kElementBytes, n, 0,
        [&](const uint8_t* const* row, int64_t at, int64_t i) { write(row, at, out + 1024 * i); });
}

// --- codes, as bytes, to planes of 4, 2 and 1 bits ---

struct Codes {
    alignas(64) uint8_t code[kGroupRows][kSuperBlock];
};

// Bits `from` .. of each byte of a word become bits `to` .. of it, as many as `bits`.
template <int bits, int from, int to>
inline Wide8 move_bits(Wide8 word) {
    const auto wide = as<Wide16>(word);
    const Wide16 moved =
        to >= from ? wide << (to >= from ? to - from : 0) : wide >> (to >= from ? 0 : from - to);
    return as<Wide8>(moved) & all_of<Wide8>((((1 << bits) - 1) << to) & 255);
}

// Code bits from_bit .. of the words of a block: 8 / bits words in a byte.
template <int bits, int from_bit>
inline void write_plane(const Wide8* word, uint8_t* out) {
    if constexpr (bits == 8) {
        for (int v = 0; v < 8; v++) store_wide(out + 64 * v, word[v]);
    } else if constexpr (bits == 4) {
        for (int v = 0; v < 4; v++) {
            store_wide(out + 64 * v, move_bits<4, from_bit, 0>(word[2 * v]) |
                                         move_bits<4, from_bit, 4>(word[2 * v + 1]));
        }
    } else if constexpr (bits == 2) {
        for (int v = 0; v < 2; v++) {
            const Wide8* w = word + 4 * v;
            store_wide(out + 64 * v,
                       move_bits<2, from_bit, 0>(w[0]) | move_bits<2, from_bit, 2>(w[1]) |
                           move_bits<2, from_bit, 4>(w[2]) | move_bits<2, from_bit, 6>(w[3]));
        }
    } else {
        store_wide(out,
                   move_bits<1, from_bit, 0>(word[0]) | move_bits<1, from_bit, 1>(word[1]) |
                       move_bits<1, from_bit, 2>(word[2]) | move_bits<1, from_bit, 3>(word[3]) |
                       move_bits<1, from_bit, 4>(word[4]) | move_bits<1, from_bit, 5>(word[5]) |
                       move_bits<1, from_bit, 6>(word[6]) | move_bits<1, from_bit, 7>(word[7]));
    }
}

// One plane for each power of two in the width, the low bits first.
template <int bits>
inline void write_block(const uint8_t* const* rows, int block, uint8_t* out) {
    for (int four = 0; four < 4; four += kLanes, out += kWideBytes) {
        Wide8 word[8];
        load_words(rows, four, 32 * block, word);
        load_words(rows, four, 32 * block + 16, word + 4);
        if constexpr (bits == 3) {
            write_plane<2, 0>(word, out);
            write_plane<1, 2>(word, out + kBits2);
        } else if constexpr (bits == 5) {
            write_plane<4, 0>(word, out);
            write_plane<1, 4>(word, out + kBits4);
        } else if constexpr (bits == 6) {
            write_plane<4, 0>(word, out);
            write_plane<2, 4>(word, out + kBits4);
        } else {
            write_plane<bits, 0>(word, out);
        }
    }
}

// --- taking blocks apart: codes to `code`, scales to their places of row r ---

// Low nibbles, then high ones. As vectors: of loops that short g++ makes no vectors everywhere.
inline void split_nibbles(const uint8_t* qs, uint8_t* code) {
    const auto v = load_wide<Lane>(qs);
    store_wide(code, v & 15);
    store_wide(code + 16, v >> 4);
}
// Bit i of the four bytes as 16 in code i, for the first or the second half of a block.
template <int half>
inline Lane fifth_bits_of(Lane bits) {
    const Lane bytes = __builtin_shufflevector(
        bits, bits, 2 * half, 2 * half, 2 * half, 2 * half, 2 * half, 2 * half, 2 * half, 2 * half,
        2 * half + 1, 2 * half + 1, 2 * half + 1, 2 * half + 1, 2 * half + 1, 2 * half + 1,
        2 * half + 1, 2 * half + 1);
    const Lane mask = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    return as<Lane>((bytes & mask) == mask) & 16;
}
template <class Block>
inline void split_fives(const Block& b, uint8_t* code) {
    using Words = uint32_t __attribute__((vector_size(16)));
    Words fifth{};
    memcpy(&fifth, b.qh, sizeof b.qh);
    const auto bits = as<Lane>(fifth);
    const auto v = load_wide<Lane>(b.qs);
    store_wide(code, (v & 15) | fifth_bits_of<0>(bits));
    store_wide(code + 16, (v >> 4) | fifth_bits_of<1>(bits));
}
inline void split(const BlockQ4_0& b, uint8_t* code) {
    split_nibbles(b.qs, code);
}
inline void split(const BlockQ4_1& b, uint8_t* code) {
    split_nibbles(b.qs, code);
}
inline void split(const BlockIQ4_NL& b, uint8_t* code) {
    split_nibbles(b.qs, code);
}
inline void split(const BlockQ5_0& b, uint8_t* code) {
    split_fives(b, code);
}
inline void split(const BlockQ5_1& b, uint8_t* code) {
    split_fives(b, code);
}
inline void split(const BlockQ8_0& b, uint8_t* __restrict code) {
    for (int i = 0; i < 32; i++) code[i] = static_cast<uint8_t>(b.qs[i] + 128);
}
inline void split(const BlockQ2_K& b, uint8_t* __restrict code) {
#pragma GCC unroll 8
    for (int c = 0; c < 8; c++) {
        for (int i = 0; i < 32; i++) {
            code[32 * c + i] = (b.qs[32 * (c / 4) + i] >> (2 * (c % 4))) & 3;
        }
    }
}
inline void split(const BlockQ3_K& b, uint8_t* __restrict code) {
#pragma GCC unroll 8
    for (int c = 0; c < 8; c++) {
        for (int i = 0; i < 32; i++) {
            code[32 * c + i] = static_cast<uint8_t>(
                ((b.qs[32 * (c / 4) + i] >> (2 * (c % 4))) & 3) | ((b.hmask[i] >> c) & 1) << 2);
        }
    }
}
inline void split(const BlockQ4_K& b, uint8_t* __restrict code) {
#pragma GCC unroll 8
    for (int c = 0; c < 8; c++) {
        for (int i = 0; i < 32; i++) {
            code[32 * c + i] = (b.qs[32 * (c / 2) + i] >> (4 * (c % 2))) & 15;
        }
    }
}
inline void split(const BlockQ5_K& b, uint8_t* __restrict code) {
#pragma GCC unroll 8
    for (int c = 0; c < 8; c++) {
        for (int i = 0; i < 32; i++) {
            code[32 * c + i] = static_cast<uint8_t>(
                ((b.qs[32 * (c / 2) + i] >> (4 * (c % 2))) & 15) | ((b.qh[i] >> c) & 1) << 4);
        }
    }
}
inline void split(const BlockQ6_K& b, uint8_t* __restrict code) {
#pragma GCC unroll 8
    for (int c = 0; c < 8; c++) {
        const int h = c / 4, j = c % 4;
        for (int i = 0; i < 32; i++) {
            const int low = (b.ql[64 * h + 32 * (j % 2) + i] >> (4 * (j / 2))) & 15;
            const int high = (b.qh[32 * h + i] >> (2 * j)) & 3;
            code[32 * c + i] = static_cast<uint8_t>(low | high << 4);
        }
    }
}
inline void split(const BlockIQ4_XS& b, uint8_t* code) {
    for (int c = 0; c < 8; c++) split_nibbles(b.qs + 16 * c, code + 32 * c);
}

inline void put_u16(uint8_t* at, int index, uint16_t value) {
    memcpy(at + 2 * index, &value, 2);
}

// `part` is which of a super-block's two small blocks it is.
template <class Block>
inline void put_scales(const Block& b, int part, int r, uint8_t* scales) {
    put_u16(scales, 16 * part + r, b.d);
}
inline void put_min_scales(uint16_t d, uint16_t m, int part, int r, uint8_t* scales) {
    put_u16(scales, 32 * part + r, d), put_u16(scales, 32 * part + 16 + r, m);
}
inline void put_scales(const BlockQ4_1& b, int part, int r, uint8_t* scales) {
    put_min_scales(b.d, b.m, part, r, scales);
}
inline void put_scales(const BlockQ5_1& b, int part, int r, uint8_t* scales) {
    put_min_scales(b.d, b.m, part, r, scales);
}
// The six-bit scales and mins of a super-block, bytes first: number n of row r at [n][r]. Those of
// rows that are not there stay zeros.
template <class Block>
constexpr bool kSixBits = std::is_same_v<Block, BlockQ4_K> || std::is_same_v<Block, BlockQ5_K>;
struct SixBits {
    alignas(64) uint8_t number[16][kGroupRows] = {};

    template <class Block>
    void put(const Block& b, int r) {
#pragma GCC unroll 8
        for (int k = 0; k < 8; k++) {
            const ScaleMin small = k_scale_min(b.scales, k);
            number[k][r] = small.scale, number[8 + k][r] = small.min;
        }
    }
    // Four numbers of all rows are a vector: two of them share one for their low nibbles, all of
    // them one for their high bits.
    void write(uint8_t* out) const {
        for (int i = 0; i < 64; i += kWideBytes) {
            Wide8 v[4];
            for (int n = 0; n < 4; n++) v[n] = load_wide<Wide8>(number[4 * n] + i);
            store_wide(out + i, move_bits<4, 0, 0>(v[0]) | move_bits<4, 0, 4>(v[1]));
            store_wide(out + 64 + i, move_bits<4, 0, 0>(v[2]) | move_bits<4, 0, 4>(v[3]));
            store_wide(out + 128 + i, move_bits<2, 4, 0>(v[0]) | move_bits<2, 4, 2>(v[1]) |
                                          move_bits<2, 4, 4>(v[2]) | move_bits<2, 4, 6>(v[3]));
        }
    }
};
template <class Block>
inline void put_k_scales(const Block& b, int r, uint8_t* scales) {
    put_u16(scales, r, b.d), put_u16(scales, 16 + r, b.dmin);
}
inline void put_scales(const BlockQ4_K& b, int, int r, uint8_t* scales) {
    put_k_scales(b, r, scales);
}
inline void put_scales(const BlockQ5_K& b, int, int r, uint8_t* scales) {
    put_k_scales(b, r, scales);
}
inline void put_scales(const BlockQ2_K& b, int, int r, uint8_t* scales) {
    put_u16(scales, r, b.d), put_u16(scales, 16 + r, b.dmin);
    for (int s = 0; s < 16; s++) scales[64 + 16 * s + r] = b.scales[s];
}
inline void put_scales(const BlockQ3_K& b, int, int r, uint8_t* scales) {
    put_u16(scales, r, b.d);
    int8_t small[16];
    q3_k_scales(b, small);
    for (int s = 0; s < 16; s++) scales[64 + 16 * s + r] = static_cast<uint8_t>(small[s]);
}
inline void put_scales(const BlockQ6_K& b, int, int r, uint8_t* scales) {
    put_u16(scales, r, b.d);
    for (int s = 0; s < 16; s++) scales[64 + 16 * s + r] = static_cast<uint8_t>(b.scales[s]);
}
inline void put_scales(const BlockIQ4_XS& b, int, int r, uint8_t* scales) {
    put_u16(scales, r, b.d);
    for (int k = 0; k < 8; k++) {
        scales[64 + 16 * k + r] = static_cast<uint8_t>(iq4_xs_scale(b, k));
    }
}

// --- groups ---

inline void code_rows(const Codes& codes, const uint8_t** rows) {
    for (int r = 0; r < kGroupRows; r++) rows[r] = codes.code[r];
}

template <class Block, int kBits, const Geometry& g>
void pack_blocks(const GroupRows& rows, uint8_t* out) {
    constexpr int kElements = sizeof(Block) >= sizeof(BlockQ2_K) ? kSuperBlock : kSmallBlock;
    constexpr int kPerSuper = g.super_elements / kElements;
    const int64_t n_blocks = rows.n_cols / kElements;
    const int64_t n_supers = (n_blocks + kPerSuper - 1) / kPerSuper;
    Codes codes;
    SixBits six_bits;
    const uint8_t* code_row[kGroupRows];
    code_rows(codes, code_row);
    for (int64_t s = 0; s < n_supers; s++, out += g.super_bytes()) {
        // Of rows and blocks that are not there, scales and codes are zeros.
        memset(out, 0, static_cast<size_t>(g.scale_bytes));
        if (rows.n_rows < kGroupRows || (s + 1) * kPerSuper > n_blocks) {
            memset(&codes, 0, sizeof codes);
        }
        for (int r = 0; r < rows.n_rows; r++) {
            auto* row = reinterpret_cast<const Block*>(rows.plane[0][r]);
            for (int part = 0; part < kPerSuper && s * kPerSuper + part < n_blocks; part++) {
                const Block& block = row[s * kPerSuper + part];
                split(block, &codes.code[r][kElements * part]);
                put_scales(block, part, r, out);
                if constexpr (kSixBits<Block>) six_bits.put(block, r);
            }
        }
        if constexpr (kSixBits<Block>) six_bits.write(out + 64);
        for (int b = 0; b < g.n_blocks(); b++) {
            write_block<kBits>(code_row, b, out + g.scale_bytes + b * g.code_bytes);
        }
    }
}

template <int kBits>
void pack_affine(const GroupRows& rows, uint8_t* out) {
    const int type_bytes = rows.scale_dtype == 0 ? 4 : 2;
    const int per_super = kAffineSuper / rows.group_size;
    const Geometry g = geometry_affine(kBits, rows.group_size, type_bytes);
    Codes codes;
    const uint8_t* code_row[kGroupRows];
    code_rows(codes, code_row);
    for (int64_t first = 0; first < rows.n_cols; first += kAffineSuper, out += g.super_bytes()) {
        const int64_t left = rows.n_cols - first;
        const int n = static_cast<int>(left < kAffineSuper ? left : kAffineSuper);
        memset(out, 0, static_cast<size_t>(g.scale_bytes));
        if (rows.n_rows < kGroupRows || n < kAffineSuper) memset(&codes, 0, sizeof codes);
        for (int r = 0; r < rows.n_rows; r++) {
            const uint8_t* bytes = rows.plane[0][r] + first * kBits / 8;
            uint8_t* __restrict code = codes.code[r];
            for (int i = 0; i < n / (8 / kBits); i++) {
                if constexpr (kBits == 8) {
                    code[i] = bytes[i];
                } else {
                    code[2 * i] = bytes[i] & 15, code[2 * i + 1] = bytes[i] >> 4;
                }
            }
            for (int i = 0; i < n / rows.group_size; i++) {
                const int64_t at = (first / rows.group_size + i) * type_bytes;
                const auto size = static_cast<size_t>(type_bytes);
                memcpy(out + (i * kGroupRows + r) * type_bytes, rows.plane[1][r] + at, size);
                memcpy(out + ((per_super + i) * kGroupRows + r) * type_bytes, rows.plane[2][r] + at,
                       size);
            }
        }
        for (int b = 0; b < g.n_blocks(); b++) {
            write_block<kBits>(code_row, b, out + g.scale_bytes + b * g.code_bytes);
        }
    }
}

// In the order of FormatId.
void fill_pack_kernels(PackKernel* table) {
    const PackKernel kernels[kNumWeightFormats] = {
        pack_floats<4, write_words>,
        pack_floats<2, write_halves>,
        pack_floats<2, write_words>,
        pack_blocks<BlockQ4_0, 4, kGeometryQ4_0>,
        pack_blocks<BlockQ4_1, 4, kGeometryQ4_1>,
        pack_blocks<BlockQ5_0, 5, kGeometryQ5_0>,
        pack_blocks<BlockQ5_1, 5, kGeometryQ5_1>,
        pack_blocks<BlockQ8_0, 8, kGeometryQ8_0>,
        pack_blocks<BlockQ2_K, 2, kGeometryQ2_K>,
        pack_blocks<BlockQ3_K, 3, kGeometryQ3_K>,
        pack_blocks<BlockQ4_K, 4, kGeometryQ4_K>,
        pack_blocks<BlockQ5_K, 5, kGeometryQ5_K>,
        pack_blocks<BlockQ6_K, 6, kGeometryQ6_K>,
        pack_blocks<BlockIQ4_NL, 4, kGeometryIQ4_NL>,
        pack_blocks<BlockIQ4_XS, 4, kGeometryIQ4_XS>,
        pack_affine<4>,
        pack_affine<8>,
    };
    for (int i = 0; i < kNumWeightFormats; i++) table[i] = kernels[i];
}

}  // namespace
}  // namespace ridge::cpu
