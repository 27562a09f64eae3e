#include "model/kv_cache.h"

#include "base/error.h"

namespace ridge {

void check_kv_types(const Config& config, DType k_dtype, DType v_dtype) {
    if (config.d_head % kKvScaleElements == 0) return;
    if (k_dtype != DType::kQ8_0 && v_dtype != DType::kQ8_0) return;
    throw Error("KV cache of q8_0: d_head is {}, expected a multiple of {}; f16 and bf16 take any",
                config.d_head, kKvScaleElements);
}

KvCache describe_kv_cache(const Config& config, DType k_dtype, DType v_dtype, int64_t n_slots) {
    check_kv_types(config, k_dtype, v_dtype);
    KvCache cache;
    cache.k_dtype = k_dtype, cache.v_dtype = v_dtype;
    cache.n_slots = n_slots, cache.n_layers = config.n_layers;
    cache.n_kv_heads = config.n_kv_heads, cache.d_head = config.d_head;
    return cache;
}

int64_t kv_bytes_per_position(const Config& config, DType k_dtype, DType v_dtype) {
    check_kv_types(config, k_dtype, v_dtype);
    return int64_t{config.n_layers} * config.n_kv_heads *
           (kv_head_bytes(k_dtype, config.d_head) + kv_head_bytes(v_dtype, config.d_head));
}

}  // namespace ridge
