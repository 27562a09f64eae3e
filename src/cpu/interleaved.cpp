#include "cpu/interleaved.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/half.h"
#include "cpu/compact.h"
#include "format/decode.h"
#include "format/float_rows.h"

namespace ridge::cpu {
namespace {

// The codes of 16 rows of one super-block, as bytes: what blocks are taken apart to and read back
// from.
struct Codes {
    alignas(64) uint8_t code[kGroupRows][kSuperBlock];
};

uint32_t four_codes(const Codes& codes, int row, int block, int j) {
    uint32_t four;
    memcpy(&four, &codes.code[row][32 * block + 4 * j], sizeof four);
    return four;
}

// out[r] = four bytes of row r: the codes 4 j .. of `n` neighbouring j, each `bits` wide, one above
// the other from code bit `from_bit` on. `mask` keeps the bits that are wanted, in each byte.
void pack_plane(const Codes& codes, int block, int bits, int from_bit, uint8_t* out) {
    const int per_byte = 8 / bits;
    const uint32_t mask = bits == 8 ? 0xffffffffu : ((1u << bits) - 1) * 0x01010101u;
    for (int vector = 0; vector < bits; vector++) {
        for (int r = 0; r < kGroupRows; r++) {
            uint32_t word = 0;
            for (int i = 0; i < per_byte; i++) {
                const uint32_t four = four_codes(codes, r, block, vector * per_byte + i);
                word |= ((four >> from_bit) & mask) << (bits * i);
            }
            memcpy(out + 64 * vector + 4 * r, &word, sizeof word);
        }
    }
}

// One plane for each power of two in the width, the low bits first.
void pack_codes(const Codes& codes, int block, int bits, uint8_t* out) {
    switch (bits) {
        case 3:
            pack_plane(codes, block, 2, 0, out);
            return pack_plane(codes, block, 1, 2, out + kBits2);
        case 5:
            pack_plane(codes, block, 4, 0, out);
            return pack_plane(codes, block, 1, 4, out + kBits4);
        case 6:
            pack_plane(codes, block, 4, 0, out);
            return pack_plane(codes, block, 2, 4, out + kBits4);
        default:
            return pack_plane(codes, block, bits, 0, out);
    }
}

int plane_code(const uint8_t* plane, int bits, int row, int k) {
    const int j = k / 4, per_byte = 8 / bits;
    const int byte = plane[64 * (j / per_byte) + 4 * row + k % 4];
    return (byte >> (bits * (j % per_byte))) & ((1 << bits) - 1);
}

// Code k (0..31) of row `row` in a packed block.
int packed_code(const uint8_t* block, int bits, int row, int k) {
    switch (bits) {
        case 3:
            return plane_code(block, 2, row, k) | plane_code(block + kBits2, 1, row, k) << 2;
        case 5:
            return plane_code(block, 4, row, k) | plane_code(block + kBits4, 1, row, k) << 4;
        case 6:
            return plane_code(block, 4, row, k) | plane_code(block + kBits4, 2, row, k) << 4;
        default:
            return plane_code(block, bits, row, k);
    }
}

void put_u16(uint8_t* at, int index, uint16_t value) {
    memcpy(at + 2 * index, &value, 2);
}
uint16_t get_u16(const uint8_t* at, int index) {
    uint16_t value;
    memcpy(&value, at + 2 * index, 2);
    return value;
}
float get_f16(const uint8_t* at, int index) {
    return to_float(f16{get_u16(at, index)});
}

// --- taking blocks apart: codes to `code`, scales to their places of row r ---

void split_nibbles(const uint8_t* qs, uint8_t* code) {
    for (int i = 0; i < 16; i++) code[i] = qs[i] & 15, code[i + 16] = qs[i] >> 4;
}
void split(const BlockQ4_0& b, uint8_t* code) {
    split_nibbles(b.qs, code);
}
void split(const BlockQ4_1& b, uint8_t* code) {
    split_nibbles(b.qs, code);
}
void split(const BlockIQ4_NL& b, uint8_t* code) {
    split_nibbles(b.qs, code);
}
void split(const BlockQ5_0& b, uint8_t* code) {
    five_bit_codes(b, code);
}
void split(const BlockQ5_1& b, uint8_t* code) {
    five_bit_codes(b, code);
}
void split(const BlockQ8_0& b, uint8_t* code) {
    for (int i = 0; i < 32; i++) code[i] = static_cast<uint8_t>(b.qs[i] + 128);
}
void split(const BlockQ2_K& b, uint8_t* code) {
    for (int c = 0; c < 8; c++) {
        for (int i = 0; i < 32; i++) {
            code[32 * c + i] = (b.qs[32 * (c / 4) + i] >> (2 * (c % 4))) & 3;
        }
    }
}
void split(const BlockQ3_K& b, uint8_t* code) {
    for (int c = 0; c < 8; c++) {
        for (int i = 0; i < 32; i++) {
            code[32 * c + i] = static_cast<uint8_t>(
                ((b.qs[32 * (c / 4) + i] >> (2 * (c % 4))) & 3) | ((b.hmask[i] >> c) & 1) << 2);
        }
    }
}
void split(const BlockQ4_K& b, uint8_t* code) {
    for (int c = 0; c < 8; c++) {
        for (int i = 0; i < 32; i++) {
            code[32 * c + i] = (b.qs[32 * (c / 2) + i] >> (4 * (c % 2))) & 15;
        }
    }
}
void split(const BlockQ5_K& b, uint8_t* code) {
    for (int c = 0; c < 8; c++) {
        for (int i = 0; i < 32; i++) {
            code[32 * c + i] = static_cast<uint8_t>(
                ((b.qs[32 * (c / 2) + i] >> (4 * (c % 2))) & 15) | ((b.qh[i] >> c) & 1) << 4);
        }
    }
}
void split(const BlockQ6_K& b, uint8_t* code) {
    for (int c = 0; c < 8; c++) {
        const int h = c / 4, j = c % 4;
        for (int i = 0; i < 32; i++) {
            const int low = (b.ql[64 * h + 32 * (j % 2) + i] >> (4 * (j / 2))) & 15;
            const int high = (b.qh[32 * h + i] >> (2 * j)) & 3;
            code[32 * c + i] = static_cast<uint8_t>(low | high << 4);
        }
    }
}
void split(const BlockIQ4_XS& b, uint8_t* code) {
    for (int c = 0; c < 8; c++) split_nibbles(b.qs + 16 * c, code + 32 * c);
}

// `part` is which of a super-block's two small blocks it is.
template <class Block>
void put_scales(const Block& b, int part, int r, uint8_t* scales) {
    put_u16(scales, 16 * part + r, b.d);
}
void put_min_scales(uint16_t d, uint16_t m, int part, int r, uint8_t* scales) {
    put_u16(scales, 32 * part + r, d), put_u16(scales, 32 * part + 16 + r, m);
}
void put_scales(const BlockQ4_1& b, int part, int r, uint8_t* scales) {
    put_min_scales(b.d, b.m, part, r, scales);
}
void put_scales(const BlockQ5_1& b, int part, int r, uint8_t* scales) {
    put_min_scales(b.d, b.m, part, r, scales);
}
// Number n of 16 of row r, to vectors of zeros.
void put_six_bits(int number, int n, int r, uint8_t* vectors) {
    const int v = n / 4, at = 16 * (n % 4) + r;
    vectors[64 * (v / 2) + at] |= static_cast<uint8_t>((number & 15) << 4 * (v % 2));
    vectors[128 + at] |= static_cast<uint8_t>(number >> 4 << 2 * v);
}
int get_six_bits(const uint8_t* vectors, int n, int r) {
    const int v = n / 4, at = 16 * (n % 4) + r;
    return (vectors[64 * (v / 2) + at] >> 4 * (v % 2) & 15) | (vectors[128 + at] >> 2 * v & 3) << 4;
}
template <class Block>
void put_k_scales(const Block& b, int r, uint8_t* scales) {
    put_u16(scales, r, b.d), put_u16(scales, 16 + r, b.dmin);
    for (int k = 0; k < 8; k++) {
        const ScaleMin small = k_scale_min(b.scales, k);
        put_six_bits(small.scale, k, r, scales + 64);
        put_six_bits(small.min, 8 + k, r, scales + 64);
    }
}
void put_scales(const BlockQ4_K& b, int, int r, uint8_t* scales) {
    put_k_scales(b, r, scales);
}
void put_scales(const BlockQ5_K& b, int, int r, uint8_t* scales) {
    put_k_scales(b, r, scales);
}
void put_scales(const BlockQ2_K& b, int, int r, uint8_t* scales) {
    put_u16(scales, r, b.d), put_u16(scales, 16 + r, b.dmin);
    for (int s = 0; s < 16; s++) scales[64 + 16 * s + r] = b.scales[s];
}
void put_scales(const BlockQ3_K& b, int, int r, uint8_t* scales) {
    put_u16(scales, r, b.d);
    int8_t small[16];
    q3_k_scales(b, small);
    for (int s = 0; s < 16; s++) scales[64 + 16 * s + r] = static_cast<uint8_t>(small[s]);
}
void put_scales(const BlockQ6_K& b, int, int r, uint8_t* scales) {
    put_u16(scales, r, b.d);
    for (int s = 0; s < 16; s++) scales[64 + 16 * s + r] = static_cast<uint8_t>(b.scales[s]);
}
void put_scales(const BlockIQ4_XS& b, int, int r, uint8_t* scales) {
    put_u16(scales, r, b.d);
    for (int k = 0; k < 8; k++) {
        scales[64 + 16 * k + r] = static_cast<uint8_t>(iq4_xs_scale(b, k));
    }
}

// Rows that the weight has in a group: the others are zeros.
int rows_in_group(const Tensor& weight, int64_t group) {
    return static_cast<int>(std::min<int64_t>(kGroupRows, weight.n_rows() - group * kGroupRows));
}
const std::byte* row_data(const Tensor& weight, int plane, int64_t row) {
    const Plane& p = weight.planes[static_cast<size_t>(plane)];
    return p.data + row * p.row_stride_bytes;
}

template <class Block, int kBits>
void pack_blocks(const Tensor& weight, int64_t group, const Geometry& g, uint8_t* out) {
    constexpr int kElements = sizeof(Block) >= sizeof(BlockQ2_K) ? kSuperBlock : kSmallBlock;
    const int n_rows = rows_in_group(weight, group);
    const int64_t n_blocks = weight.n_cols() / kElements;
    const int per_super = g.super_elements / kElements;
    const int64_t n_supers = (n_blocks + per_super - 1) / per_super;
    Codes codes;
    for (int64_t s = 0; s < n_supers; s++, out += g.super_bytes()) {
        // Of rows and blocks that are not there, scales and codes are zeros.
        memset(out, 0, static_cast<size_t>(g.scale_bytes));
        if (n_rows < kGroupRows || (s + 1) * per_super > n_blocks) memset(&codes, 0, sizeof codes);
        for (int r = 0; r < n_rows; r++) {
            auto* row = reinterpret_cast<const Block*>(row_data(weight, 0, group * kGroupRows + r));
            for (int part = 0; part < per_super && s * per_super + part < n_blocks; part++) {
                const Block& block = row[s * per_super + part];
                split(block, &codes.code[r][kElements * part]);
                put_scales(block, part, r, out);
            }
        }
        for (int b = 0; b < g.n_blocks(); b++) {
            pack_codes(codes, b, kBits, out + g.scale_bytes + b * g.code_bytes);
        }
    }
}

template <int kBits>
void pack_affine(const Tensor& weight, int64_t group, const Geometry& g, uint8_t* out) {
    const int n_rows = rows_in_group(weight, group);
    const int64_t n_cols = weight.n_cols();
    const int type_bytes = weight.scale_format == FormatId::kF32 ? 4 : 2;
    const int per_super = kAffineSuper / weight.group_size;
    Codes codes;
    for (int64_t first = 0; first < n_cols; first += kAffineSuper, out += g.super_bytes()) {
        const auto n = static_cast<int>(std::min<int64_t>(kAffineSuper, n_cols - first));
        memset(out, 0, static_cast<size_t>(g.scale_bytes));
        memset(&codes, 0, sizeof codes);
        for (int r = 0; r < n_rows; r++) {
            const int64_t row = group * kGroupRows + r;
            auto* bytes = reinterpret_cast<const uint8_t*>(row_data(weight, 0, row));
            for (int i = 0; i < n; i++) {
                const int64_t k = first + i;
                codes.code[r][i] = kBits == 8 ? bytes[k] : (bytes[k / 2] >> (4 * (k % 2))) & 15;
            }
            for (int i = 0; i < n / weight.group_size; i++) {
                const int64_t at = (first / weight.group_size + i) * type_bytes;
                memcpy(out + (i * kGroupRows + r) * type_bytes, row_data(weight, 1, row) + at,
                       static_cast<size_t>(type_bytes));
                memcpy(out + ((per_super + i) * kGroupRows + r) * type_bytes,
                       row_data(weight, 2, row) + at, static_cast<size_t>(type_bytes));
            }
        }
        for (int b = 0; b < g.n_blocks(); b++) {
            pack_codes(codes, b, kBits, out + g.scale_bytes + b * g.code_bytes);
        }
    }
}

// Units of kUnitBytes (one element, or a pair of BF16) of 16 rows side by side.
template <class Unit>
void pack_floats(const Tensor& weight, int64_t group, const Geometry& g, uint8_t* out) {
    const int n_rows = rows_in_group(weight, group);
    const int64_t row_bytes = weight.n_cols() * weight.format->block_bytes;
    const auto n_units = row_bytes / static_cast<int64_t>(sizeof(Unit));
    const int64_t padded = packed_shape(weight).n_supers * g.super_bytes() /
                           (kGroupRows * static_cast<int64_t>(sizeof(Unit)));
    const bool whole =
        n_rows == kGroupRows && padded * static_cast<int64_t>(sizeof(Unit)) == row_bytes;
    if (!whole) memset(out, 0, static_cast<size_t>(padded) * kGroupRows * sizeof(Unit));
    // Sixteen units of a row at a time: what is written stays in the first cache.
    for (int64_t first = 0; first < n_units; first += 16) {
        const int64_t end = std::min(first + 16, n_units);
        for (int r = 0; r < n_rows; r++) {
            const std::byte* row = row_data(weight, 0, group * kGroupRows + r);
            for (int64_t i = first; i < end; i++) {
                memcpy(out + (i * kGroupRows + r) * static_cast<int64_t>(sizeof(Unit)),
                       row + i * static_cast<int64_t>(sizeof(Unit)), sizeof(Unit));
            }
        }
    }
    if (n_units * static_cast<int64_t>(sizeof(Unit)) == row_bytes) return;
    for (int r = 0; r < n_rows; r++) {  // an odd BF16 at the end
        memcpy(out + (n_units * kGroupRows + r) * static_cast<int64_t>(sizeof(Unit)),
               row_data(weight, 0, group * kGroupRows + r) +
                   n_units * static_cast<int64_t>(sizeof(Unit)),
               static_cast<size_t>(row_bytes) % sizeof(Unit));
    }
}

// --- reading one row back, element by element, with the equations of format/decode.h ---

struct Place {
    const uint8_t* scales;       // of the super-block
    const uint8_t* block;        // codes of the block of 32
    int block_in_super, row, k;  // k 0..31 in the block
};

template <int kBits, int kOffset>
float small_element(const Place& p) {
    const float d = get_f16(p.scales, 16 * p.block_in_super + p.row);
    return d * static_cast<float>(packed_code(p.block, kBits, p.row, p.k) - kOffset);
}
template <int kBits>
float small_min_element(const Place& p) {
    const float d = get_f16(p.scales, 32 * p.block_in_super + p.row),
                m = get_f16(p.scales, 32 * p.block_in_super + 16 + p.row);
    return d * static_cast<float>(packed_code(p.block, kBits, p.row, p.k)) + m;
}
template <int kBits>
float k_element(const Place& p) {
    const int small_scale = get_six_bits(p.scales + 64, p.block_in_super, p.row),
              small_min = get_six_bits(p.scales + 64, 8 + p.block_in_super, p.row);
    const float scale = get_f16(p.scales, p.row) * static_cast<float>(small_scale);
    const float min = get_f16(p.scales, 16 + p.row) * static_cast<float>(small_min);
    return scale * static_cast<float>(packed_code(p.block, kBits, p.row, p.k)) - min;
}
float q2_k_element(const Place& p) {
    const uint8_t small = p.scales[64 + 16 * (2 * p.block_in_super + p.k / 16) + p.row];
    const float scale = get_f16(p.scales, p.row) * static_cast<float>(small & 15);
    const float min = get_f16(p.scales, 16 + p.row) * static_cast<float>(small >> 4);
    return scale * static_cast<float>(packed_code(p.block, 2, p.row, p.k)) - min;
}
template <int kBits, int kOffset>
float signed_scale_element(const Place& p) {
    const auto small =
        static_cast<int8_t>(p.scales[64 + 16 * (2 * p.block_in_super + p.k / 16) + p.row]);
    const float scale = get_f16(p.scales, p.row) * static_cast<float>(small);
    return scale * static_cast<float>(packed_code(p.block, kBits, p.row, p.k) - kOffset);
}
float iq4_nl_element(const Place& p) {
    return get_f16(p.scales, 16 * p.block_in_super + p.row) *
           static_cast<float>(kIq4Values[packed_code(p.block, 4, p.row, p.k)]);
}
float iq4_xs_element(const Place& p) {
    const auto small = static_cast<int8_t>(p.scales[64 + 16 * p.block_in_super + p.row]);
    return get_f16(p.scales, p.row) * static_cast<float>(small) *
           static_cast<float>(kIq4Values[packed_code(p.block, 4, p.row, p.k)]);
}

// One row's elements of a block of 32: `element` is inlined, so that what is the same for all of
// them (scales, the width of codes) is read once.
template <auto element>
void unpack_block(const Place& first, int n, float* __restrict out) {
    Place p = first;
    for (p.k = 0; p.k < n; p.k++) out[p.k] = element(p);
}

using UnpackBlock = void (*)(const Place& first, int n, float* out);
using Pack = void (*)(const Tensor& weight, int64_t group, const Geometry& g, uint8_t* out);

// In the order of FormatId.
struct Interleaved {
    Geometry geometry;
    Pack pack;
    UnpackBlock unpack_block;  // null: floats and affine formats
};
constexpr Interleaved kInterleaved[kNumFormats] = {
    {kGeometryF32, pack_floats<uint32_t>, nullptr},
    {kGeometryF16, pack_floats<uint16_t>, nullptr},
    {kGeometryBF16, pack_floats<uint32_t>, nullptr},
    {kGeometryQ4_0, pack_blocks<BlockQ4_0, 4>, unpack_block<small_element<4, 8>>},
    {kGeometryQ4_1, pack_blocks<BlockQ4_1, 4>, unpack_block<small_min_element<4>>},
    {kGeometryQ5_0, pack_blocks<BlockQ5_0, 5>, unpack_block<small_element<5, 16>>},
    {kGeometryQ5_1, pack_blocks<BlockQ5_1, 5>, unpack_block<small_min_element<5>>},
    {kGeometryQ8_0, pack_blocks<BlockQ8_0, 8>, unpack_block<small_element<8, 128>>},
    {kGeometryQ2_K, pack_blocks<BlockQ2_K, 2>, unpack_block<q2_k_element>},
    {kGeometryQ3_K, pack_blocks<BlockQ3_K, 3>, unpack_block<signed_scale_element<3, 4>>},
    {kGeometryQ4_K, pack_blocks<BlockQ4_K, 4>, unpack_block<k_element<4>>},
    {kGeometryQ5_K, pack_blocks<BlockQ5_K, 5>, unpack_block<k_element<5>>},
    {kGeometryQ6_K, pack_blocks<BlockQ6_K, 6>, unpack_block<signed_scale_element<6, 32>>},
    {kGeometryIQ4_NL, pack_blocks<BlockIQ4_NL, 4>, unpack_block<iq4_nl_element>},
    {kGeometryIQ4_XS, pack_blocks<BlockIQ4_XS, 4>, unpack_block<iq4_xs_element>},
    {{}, pack_affine<4>, nullptr},
    {{}, pack_affine<8>, nullptr},
};
static_assert(kNumWeightFormats == kNumFormats);
static_assert(kF16Index == static_cast<int>(FormatId::kF16));
static_assert(kBF16Index == static_cast<int>(FormatId::kBF16));

const Interleaved& interleaved(const Tensor& weight) {
    CHECK(weight.format != nullptr && weight.n_dims > 1);
    return kInterleaved[static_cast<size_t>(weight.format->id)];
}

bool is_affine_format(const Tensor& weight) {
    return weight.format->id == FormatId::kAffine4 || weight.format->id == FormatId::kAffine8;
}

float load_scale(const uint8_t* at, int index, FormatId type) {
    if (type == FormatId::kF16) return get_f16(at, index);
    if (type == FormatId::kBF16) return to_float(bf16{get_u16(at, index)});
    float value;
    memcpy(&value, at + 4 * index, sizeof value);
    return value;
}

template <int kBits>
void unpack_affine_block(const Tensor& weight, const Place& first, int n, float* __restrict out) {
    Place p = first;
    const int in_super = 32 * p.block_in_super / weight.group_size;  // a group has 32 or more
    const int per_super = kAffineSuper / weight.group_size;
    const float scale = load_scale(p.scales, 16 * in_super + p.row, weight.scale_format);
    const float bias =
        load_scale(p.scales, 16 * (per_super + in_super) + p.row, weight.scale_format);
    for (p.k = 0; p.k < n; p.k++) {
        out[p.k] = scale * static_cast<float>(packed_code(p.block, kBits, p.row, p.k)) + bias;
    }
}

void unpack_floats(const Tensor& weight, const uint8_t* group, int row, float* __restrict out) {
    const FormatId format = weight.format->id;
    for (int64_t k = 0; k < weight.n_cols(); k++) {
        const auto pair = static_cast<int>((k / 2 * kGroupRows + row) * 2 + k % 2);
        out[k] = format == FormatId::kBF16
                     ? to_float(bf16{get_u16(group, pair)})
                     : load_scale(group, static_cast<int>(k * kGroupRows + row), format);
    }
}

void unpack_interleaved(const Tensor& weight, int64_t row, float* out) {
    const Interleaved& format = interleaved(weight);
    const Geometry g = geometry_of(weight);
    const uint8_t* group = group_data(weight, row / kGroupRows);
    const int r = static_cast<int>(row % kGroupRows);
    if (g.scale_bytes == 0) return unpack_floats(weight, group, r, out);
    for (int64_t k = 0; k < weight.n_cols(); k += 32) {
        const uint8_t* super = group + k / g.super_elements * g.super_bytes();
        const int block = static_cast<int>(k % g.super_elements) / 32;
        const Place place{super, super + g.scale_bytes + block * g.code_bytes, block, r, 0};
        const int n = static_cast<int>(std::min<int64_t>(32, weight.n_cols() - k));
        if (format.unpack_block != nullptr) {
            format.unpack_block(place, n, out + k);
        } else if (weight.format->id == FormatId::kAffine4) {
            unpack_affine_block<4>(weight, place, n, out + k);
        } else {
            unpack_affine_block<8>(weight, place, n, out + k);
        }
    }
}

void pack_part(const Tensor& row_major, int64_t part, const PartPlan&, const void*,
               std::byte* out) {
    pack_group(row_major, part, out);
}

constexpr Layout kLayout = {.name = "interleaved",
                            .unpack_row = unpack_interleaved,
                            .rows_in_part = kGroupRows,
                            .pack_part = pack_part,
                            .part_bytes = group_bytes,
                            .smaller = compact_layout_for};

}  // namespace

const Layout& interleaved_layout() {
    return kLayout;
}

Geometry geometry_of(const Tensor& weight) {
    if (!is_affine_format(weight)) return interleaved(weight).geometry;
    return geometry_affine(weight.format->id == FormatId::kAffine4 ? 4 : 8, weight.group_size,
                           weight.scale_format == FormatId::kF32 ? 4 : 2);
}

PackedShape packed_shape(const Tensor& weight) {
    const int super = geometry_of(weight).super_elements;
    PackedShape shape{};
    shape.n_supers = (weight.n_cols() + super - 1) / super;
    shape.group_size = weight.group_size;
    shape.scale_dtype = weight.scale_format == FormatId::kF32   ? 0
                        : weight.scale_format == FormatId::kF16 ? 1
                                                                : 2;
    return shape;
}

int64_t group_bytes(const Tensor& weight) {
    return packed_shape(weight).n_supers * geometry_of(weight).super_bytes();
}

void pack_group(const Tensor& weight, int64_t group, std::byte* out) {
    CHECK(weight.layout == &row_major_layout() && group >= 0 && group < n_groups(weight));
    interleaved(weight).pack(weight, group, geometry_of(weight), reinterpret_cast<uint8_t*>(out));
}

}  // namespace ridge::cpu
