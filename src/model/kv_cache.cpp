#include "model/kv_cache.h"

namespace ridge {

int64_t kv_bytes_per_position(const Config& config, DType k_dtype, DType v_dtype) {
    return int64_t{config.n_layers} * config.d_kv() * (dtype_bytes(k_dtype) + dtype_bytes(v_dtype));
}

}  // namespace ridge
