#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/check.h"
#include "model/config.h"
#include "model/rows.h"

namespace ridge {

constexpr int kKvPagePositions = 64;  // positions of one page of a paged sequence
constexpr int kKvScaleElements = 32;  // q8_0: elements of one position and head that share a scale

constexpr int64_t kv_pages_of(int64_t n_positions) {
    return (n_positions + kKvPagePositions - 1) / kKvPagePositions;
}

// Bytes of the d_head elements of one position and head: K's or V's. q8_0: x[i] = scale[i / 32] *
// code[i], int8 codes and f16 scales, d_head a multiple of 32.
constexpr int64_t kv_head_bytes(DType dtype, int64_t d_head) {
    if (dtype == DType::kQ8_0) return d_head + d_head / kKvScaleElements * 2;
    return d_head * dtype_bytes(dtype);
}

// Where the positions of one sequence lie among the cache's slots.
struct KvView {
    const int32_t* page_table = nullptr;  // [kv_pages_of(n_ctx)] pages; null: contiguous
    int64_t base_slot = 0;  // contiguous: where position 0 lies, the first slot of a page

    // The page that holds positions kKvPagePositions * index and up.
    int64_t page(int64_t index) const {
        if (page_table != nullptr) return page_table[index];
        CHECK(base_slot % kKvPagePositions == 0);
        return base_slot / kKvPagePositions + index;
    }
    int64_t slot(int64_t position) const {
        return page(position / kKvPagePositions) * kKvPagePositions + position % kKvPagePositions;
    }
};

// One layer's keys and values. How they are placed is the backend's affair: only kv_append,
// attention and their fused forms look inside.
struct KvLayer {
    const Buffer* k = nullptr;  // n_slots positions in k_dtype
    const Buffer* v = nullptr;
    DType k_dtype = DType::kF16, v_dtype = DType::kF16;
    int64_t n_slots = 0;
    int n_kv_heads = 0, d_head = 0;
};

// Owns the storage of all layers for n_slots positions.
struct KvCache {
    std::vector<Buffer> k, v;  // [n_layers]
    DType k_dtype = DType::kF16, v_dtype = DType::kF16;
    int64_t n_slots = 0;
    int n_kv_heads = 0, d_head = 0;

    KvLayer layer(int index) const {
        return {&k[index], &v[index], k_dtype, v_dtype, n_slots, n_kv_heads, d_head};
    }
};

// Error where the heads of the model cannot be stored so: q8_0 wants d_head a multiple of 32.
void check_kv_types(const Config& config, DType k_dtype, DType v_dtype);

// Bytes of keys and values that one position takes over all layers. Error as above.
int64_t kv_bytes_per_position(const Config& config, DType k_dtype, DType v_dtype);

}  // namespace ridge
