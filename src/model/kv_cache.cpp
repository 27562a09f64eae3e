#include "model/kv_cache.h"

#include "base/error.h"

namespace ridge {

void check_kv_types(const Config& config, DType k_dtype, DType v_dtype) {
    if (config.d_head % kKvScaleElements == 0) return;
    if (k_dtype != DType::kQ8_0 && v_dtype != DType::kQ8_0) return;
    throw Error("KV cache of q8_0: d_head is {}, expected a multiple of {}; f16 and bf16 take any",
                config.d_head, kKvScaleElements);
}

int64_t kv_bytes_per_position(const Config& config, DType k_dtype, DType v_dtype) {
    check_kv_types(config, k_dtype, v_dtype);
    return int64_t{config.n_layers} * config.n_kv_heads *
           (kv_head_bytes(k_dtype, config.d_head) + kv_head_bytes(v_dtype, config.d_head));
}

}  // namespace ridge
