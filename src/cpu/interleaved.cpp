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

uint16_t get_u16(const uint8_t* at, int64_t index) {
    uint16_t value;
    memcpy(&value, at + 2 * index, 2);
    return value;
}
float get_f16(const uint8_t* at, int64_t index) {
    return to_float(f16{get_u16(at, index)});
}

int get_six_bits(const uint8_t* vectors, int n, int r) {
    const int v = n / 4, at = 16 * (n % 4) + r;
    return (vectors[64 * (v / 2) + at] >> 4 * (v % 2) & 15) | (vectors[128 + at] >> 2 * v & 3) << 4;
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

// In the order of FormatId.
struct Interleaved {
    Geometry geometry;
    UnpackBlock unpack_block;  // null: floats and affine formats
};
constexpr Interleaved kInterleaved[kNumFormats] = {
    {kGeometryF32, nullptr},
    {kGeometryF16, nullptr},
    {kGeometryBF16, nullptr},
    {kGeometryQ4_0, unpack_block<small_element<4, 8>>},
    {kGeometryQ4_1, unpack_block<small_min_element<4>>},
    {kGeometryQ5_0, unpack_block<small_element<5, 16>>},
    {kGeometryQ5_1, unpack_block<small_min_element<5>>},
    {kGeometryQ8_0, unpack_block<small_element<8, 128>>},
    {kGeometryQ2_K, unpack_block<q2_k_element>},
    {kGeometryQ3_K, unpack_block<signed_scale_element<3, 4>>},
    {kGeometryQ4_K, unpack_block<k_element<4>>},
    {kGeometryQ5_K, unpack_block<k_element<5>>},
    {kGeometryQ6_K, unpack_block<signed_scale_element<6, 32>>},
    {kGeometryIQ4_NL, unpack_block<iq4_nl_element>},
    {kGeometryIQ4_XS, unpack_block<iq4_xs_element>},
    {{}, nullptr},
    {{}, nullptr},
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

float load_scale(const uint8_t* at, int64_t index, FormatId type) {
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
        out[k] = format == FormatId::kBF16
                     ? to_float(bf16{get_u16(group, (k / 2 * kGroupRows + row) * 2 + k % 2)})
                     : load_scale(group, k * kGroupRows + row, format);
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

void pack_part(const Tensor& row_major, int64_t part, const PartPlan&, const void* kernels,
               std::byte* out) {
    CHECK(kernels != nullptr);
    pack_group(*static_cast<const Kernels*>(kernels), row_major, part, out);
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

GroupRows rows_of_group(const Tensor& weight, int64_t group) {
    CHECK(weight.layout == &row_major_layout() && group >= 0 && group < n_groups(weight));
    const int64_t first = group * kGroupRows;
    GroupRows rows{};
    rows.n_rows = static_cast<int>(std::min<int64_t>(kGroupRows, weight.n_rows() - first));
    rows.n_cols = weight.n_cols();
    const PackedShape shape = packed_shape(weight);
    rows.group_size = shape.group_size, rows.scale_dtype = shape.scale_dtype;
    for (size_t p = 0; p < weight.planes.size(); p++) {
        const Plane& plane = weight.planes[p];
        for (int r = 0; r < rows.n_rows && plane.data != nullptr; r++) {
            rows.plane[p][r] =
                reinterpret_cast<const uint8_t*>(plane.data) + (first + r) * plane.stride_bytes;
        }
    }
    return rows;
}

void pack_group(const Kernels& kernels, const Tensor& weight, int64_t group, std::byte* out) {
    kernels.pack[static_cast<size_t>(weight.format->id)](rows_of_group(weight, group),
                                                         reinterpret_cast<uint8_t*>(out));
}

}  // namespace ridge::cpu
