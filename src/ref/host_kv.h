#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/check.h"
#include "base/half.h"
#include "format/float_rows.h"
#include "model/kv_cache.h"

namespace ridge {

// The KV cache of backends that run on the host: K and V of a layer are each
// [n_slots, n_kv_heads, d_head], contiguous, in k_dtype and v_dtype.

inline size_t host_kv_bytes(int64_t n_slots, int n_kv_heads, int d_head, DType dtype) {
    return static_cast<size_t>(n_slots) * static_cast<size_t>(n_kv_heads) *
           static_cast<size_t>(d_head) * static_cast<size_t>(dtype_bytes(dtype));
}

// Bytes from the start of K or V to head `head` of slot `slot`: [d_head] follow there.
inline size_t host_kv_offset(const KvLayer& kv, DType dtype, int64_t slot, int64_t head) {
    CHECK(slot >= 0 && slot < kv.n_slots && head >= 0 && head < kv.n_kv_heads);
    return static_cast<size_t>((slot * kv.n_kv_heads + head) * kv.d_head * dtype_bytes(dtype));
}

// [d_head] in k_dtype, and in v_dtype.
inline std::byte* host_k(const KvLayer& kv, int64_t slot, int64_t head) {
    return kv.k->data() + host_kv_offset(kv, kv.k_dtype, slot, head);
}
inline std::byte* host_v(const KvLayer& kv, int64_t slot, int64_t head) {
    return kv.v->data() + host_kv_offset(kv, kv.v_dtype, slot, head);
}

// out[i] = from[i] as float32, exactly. from [n] dtype, out [n].
inline void load_floats(const std::byte* from, DType dtype, int64_t n, float* out) {
    switch (dtype) {
        case DType::kF32:
            memcpy(out, from, static_cast<size_t>(n) * sizeof(float));
            break;
        case DType::kF16:
            f16_row_to_float(from, n, out);
            break;
        case DType::kBF16:
            bf16_row_to_float(from, n, out);
            break;
    }
}

// to[i] = x[i], rounded to nearest even; beyond the range of f16 infinite. x [n], to [n] dtype.
inline void store_floats(const float* x, int64_t n, DType dtype, std::byte* to) {
    switch (dtype) {
        case DType::kF32:
            memcpy(to, x, static_cast<size_t>(n) * sizeof(float));
            break;
        case DType::kF16:
            for (int64_t i = 0; i < n; i++) reinterpret_cast<f16*>(to)[i] = to_f16(x[i]);
            break;
        case DType::kBF16:
            for (int64_t i = 0; i < n; i++) reinterpret_cast<bf16*>(to)[i] = to_bf16(x[i]);
            break;
    }
}

}  // namespace ridge
