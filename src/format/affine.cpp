#include "format/affine.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "format/encode.h"
#include "format/float_rows.h"

namespace ridge {
namespace {

int scale_bytes(FormatId format) {
    return format == FormatId::kF32 ? 4 : 2;
}

float read_scale(const std::byte* plane, FormatId format, int64_t group) {
    const std::byte* at = plane + group * scale_bytes(format);
    float value;
    if (format == FormatId::kF32) {
        memcpy(&value, at, sizeof(value));
    } else if (format == FormatId::kF16) {
        f16_row_to_float(at, 1, &value);
    } else {
        bf16_row_to_float(at, 1, &value);
    }
    return value;
}

// Returns the value as it will be read back.
float write_scale(std::byte* plane, FormatId format, int64_t group, float value) {
    std::byte* at = plane + group * scale_bytes(format);
    if (format == FormatId::kF32) {
        memcpy(at, &value, sizeof(value));
    } else {
        uint16_t bits = format == FormatId::kF16 ? finite_f16(value) : finite_bf16(value);
        memcpy(at, &bits, sizeof(bits));
    }
    return read_scale(plane, format, group);
}

void check_row(int64_t n, int group_size, FormatId scale_format) {
    CHECK(is_affine_group_size(group_size) && n >= 0 && n % group_size == 0);
    CHECK(scale_format == FormatId::kF32 || scale_format == FormatId::kF16 ||
          scale_format == FormatId::kBF16);
}

void decode_group4(const uint8_t* __restrict codes, int n, float scale, float bias,
                   float* __restrict out) {
    for (int i = 0; i < n / 2; i++) {
        out[2 * i] = scale * static_cast<float>(codes[i] & 15) + bias;
        out[2 * i + 1] = scale * static_cast<float>(codes[i] >> 4) + bias;
    }
}

void decode_group8(const uint8_t* __restrict codes, int n, float scale, float bias,
                   float* __restrict out) {
    for (int i = 0; i < n; i++) out[i] = scale * static_cast<float>(codes[i]) + bias;
}

}  // namespace

bool is_affine(FormatId format) {
    return format == FormatId::kAffine4 || format == FormatId::kAffine8;
}

bool is_affine_group_size(int64_t group_size) {
    return group_size == 32 || group_size == 64 || group_size == 128;
}

void decode_affine4_row(const RowPlanes& row, int64_t n, float* out) {
    check_row(n, row.group_size, row.scale_format);
    const auto* codes = reinterpret_cast<const uint8_t*>(row.codes);
    for (int64_t at = 0, group = 0; at < n; at += row.group_size, group++) {
        decode_group4(codes + at / 2, row.group_size,
                      read_scale(row.scales, row.scale_format, group),
                      read_scale(row.biases, row.scale_format, group), out + at);
    }
}

void decode_affine8_row(const RowPlanes& row, int64_t n, float* out) {
    check_row(n, row.group_size, row.scale_format);
    const auto* codes = reinterpret_cast<const uint8_t*>(row.codes);
    for (int64_t at = 0, group = 0; at < n; at += row.group_size, group++) {
        decode_group8(codes + at, row.group_size, read_scale(row.scales, row.scale_format, group),
                      read_scale(row.biases, row.scale_format, group), out + at);
    }
}

void encode_affine(const float* x, int64_t n, int bits, int group_size, FormatId scale_format,
                   std::byte* codes, std::byte* scales, std::byte* biases) {
    check_row(n, group_size, scale_format);
    CHECK(bits == 4 || bits == 8);
    const int top = (1 << bits) - 1;
    memset(codes, 0, static_cast<size_t>(n * bits / 8));
    for (int64_t at = 0, group = 0; at < n; at += group_size, group++) {
        float low = finite(x[at]), high = low;
        for (int i = 1; i < group_size; i++) {
            low = std::min(low, finite(x[at + i]));
            high = std::max(high, finite(x[at + i]));
        }
        // The scale reaches from the bias as stored to the maximum; halves, so that no difference
        // of two floats overflows.
        const float bias = write_scale(biases, scale_format, group, low);
        const float step = (high / 2 - bias / 2) / (static_cast<float>(top) / 2);
        const float scale = write_scale(scales, scale_format, group, step);
        for (int i = 0; i < group_size; i++) {
            const float distance = finite(x[at + i]) / 2 - bias / 2;
            const int code = scale == 0 ? 0 : nearest(distance / scale * 2, 0, top);
            const int64_t bit = (at + i) * bits;
            codes[bit / 8] |= std::byte(code << (bit % 8));
        }
    }
}

}  // namespace ridge
