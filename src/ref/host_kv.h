#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/check.h"
#include "base/half.h"
#include "base/host_device.h"
#include "model/kv_cache.h"

namespace ridge {

// The KV cache of backends that run on the host. K and V of a layer and page are each [n_kv_heads]
// tiles, one behind the other: a tile is one page of kKvPagePositions = 64 positions of one head.
//
//   K  [d_head][64]   positions side by side, which a dot product with q has in its lanes
//   V  [64][d_head]   elements side by side, which a sum over positions has in its lanes
//
// in f32, f16 or bf16; in q8_0 int8 codes in that order and behind them f16 scales, K's
// [d_head / 32][64] and V's [64][d_head / 32]. A step reads whole tiles, and of many heads whole
// pages, without a gap.

constexpr int64_t host_kv_tile_bytes(DType dtype, int64_t d_head) {
    return kKvPagePositions * kv_head_bytes(dtype, d_head);
}

// Of K or V of one layer alone: whole pages.
inline size_t host_kv_bytes(int64_t n_slots, int n_kv_heads, int d_head, DType dtype) {
    return static_cast<size_t>(kv_pages_of(n_slots)) * static_cast<size_t>(n_kv_heads) *
           static_cast<size_t>(host_kv_tile_bytes(dtype, d_head));
}

inline std::byte* host_k_tile(const KvLayer& kv, int64_t page, int64_t head) {
    CHECK(page >= 0 && page < kv_pages_of(kv.n_slots) && head >= 0 && head < kv.n_kv_heads);
    return kv.k->data() + kv.k_page(page) + head * host_kv_tile_bytes(kv.k_dtype, kv.d_head);
}
inline std::byte* host_v_tile(const KvLayer& kv, int64_t page, int64_t head) {
    CHECK(page >= 0 && page < kv_pages_of(kv.n_slots) && head >= 0 && head < kv.n_kv_heads);
    return kv.v->data() + kv.v_page(page) + head * host_kv_tile_bytes(kv.v_dtype, kv.d_head);
}

// The d_head elements of one position in a tile: element i is number first + i * stride of the
// tile, its scale in q8_0 number first_scale + i / 32 * stride of the tile's scales.
struct HostKvRow {
    std::byte* tile;
    DType dtype;
    int64_t d_head, first, first_scale, stride;

    RIDGE_HOST_DEVICE std::byte* element(int64_t i, int bytes) const {
        return tile + (first + i * stride) * bytes;
    }
    RIDGE_HOST_DEVICE std::byte* scale(int64_t block) const {
        return tile + kKvPagePositions * d_head + (first_scale + block * stride) * 2;
    }
};
inline HostKvRow host_k(const KvLayer& kv, int64_t slot, int64_t head) {
    CHECK(slot >= 0 && slot < kv.n_slots);
    const int64_t p = slot % kKvPagePositions;
    return {host_k_tile(kv, slot / kKvPagePositions, head),
            kv.k_dtype,
            kv.d_head,
            p,
            p,
            kKvPagePositions};
}
inline HostKvRow host_v(const KvLayer& kv, int64_t slot, int64_t head) {
    CHECK(slot >= 0 && slot < kv.n_slots);
    const int64_t p = slot % kKvPagePositions, d = kv.d_head;
    return {host_v_tile(kv, slot / kKvPagePositions, head),
            kv.v_dtype,
            d,
            p * d,
            p * (d / kKvScaleElements),
            1};
}

template <class T>
RIDGE_HOST_DEVICE T read_as(const std::byte* from) {
    T value;
    memcpy(&value, from, sizeof value);
    return value;
}
template <class T>
RIDGE_HOST_DEVICE void write_as(T value, std::byte* to) {
    memcpy(to, &value, sizeof value);
}

// out[i] = element i as float32: exactly, of q8_0 scale * code rounded once. out [d_head]
RIDGE_HOST_DEVICE inline void load_row(const HostKvRow& row, float* out) {
    for (int64_t i = 0; i < row.d_head; i++) {
        switch (row.dtype) {
            case DType::kF32:
                out[i] = read_as<float>(row.element(i, 4));
                break;
            case DType::kF16:
                out[i] = to_float(read_as<f16>(row.element(i, 2)));
                break;
            case DType::kBF16:
                out[i] = to_float(read_as<bf16>(row.element(i, 2)));
                break;
            case DType::kQ8_0:
                out[i] = to_float(read_as<f16>(row.scale(i / kKvScaleElements))) *
                         static_cast<float>(read_as<int8_t>(row.element(i, 1)));
                break;
        }
    }
}

// Of 32 elements of q8_0: scale = max |x| / 127 in f16, code = x / scale to nearest even, which the
// rounding of the scale may take past 127 and is then 127. Codes are 0 where the scale is 0, and
// where it is no number: beyond 127 times f16's range, or of a NaN.
// highest: max |x| as bits, which order as magnitudes do, with NaN above all.
RIDGE_HOST_DEVICE inline f16 q8_scale(uint32_t highest) {
    const float x = std::bit_cast<float>(highest);
    return to_f16(std::isnan(x) ? x : x / 127.0f);
}
RIDGE_HOST_DEVICE inline float q8_inverse(f16 scale) {
    const float rounded = to_float(scale);
    return std::isfinite(rounded) && rounded > 0 ? 1.0f / rounded : 0.0f;
}
RIDGE_HOST_DEVICE inline int8_t q8_code(float x, float inverse) {
    const float code = inverse == 0 ? 0.0f : std::nearbyint(x * inverse);
    return static_cast<int8_t>(std::clamp(code, -127.0f, 127.0f));
}

RIDGE_HOST_DEVICE inline void store_q8_block(const float* x, const HostKvRow& row, int64_t block) {
    uint32_t highest = 0;
    for (int i = 0; i < kKvScaleElements; i++) {
        highest = std::max(highest, std::bit_cast<uint32_t>(x[i]) & 0x7fffffffu);
    }
    const f16 scale = q8_scale(highest);
    const float inverse = q8_inverse(scale);
    for (int i = 0; i < kKvScaleElements; i++) {
        write_as(q8_code(x[i], inverse), row.element(block * kKvScaleElements + i, 1));
    }
    write_as(scale, row.scale(block));
}

// Element i = x, rounded to nearest even; beyond the range of f16 infinite. Not of q8_0.
RIDGE_HOST_DEVICE inline void store_element(float x, const HostKvRow& row, int64_t i) {
    if (row.dtype == DType::kF32) {
        write_as(x, row.element(i, 4));
    } else if (row.dtype == DType::kF16) {
        write_as(to_f16(x), row.element(i, 2));
    } else {
        write_as(to_bf16(x), row.element(i, 2));
    }
}

// x [d_head]
RIDGE_HOST_DEVICE inline void store_row(const float* x, const HostKvRow& row) {
    if (row.dtype == DType::kQ8_0) {
        for (int64_t b = 0; b < row.d_head / kKvScaleElements; b++) {
            store_q8_block(x + b * kKvScaleElements, row, b);
        }
        return;
    }
    for (int64_t i = 0; i < row.d_head; i++) store_element(x[i], row, i);
}

}  // namespace ridge
