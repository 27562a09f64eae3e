#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/config.h"
#include "model/rows.h"

namespace ridge {

constexpr int kKvPagePositions = 64;  // positions of one page of a paged sequence

// Where the positions of one sequence lie among the cache's slots.
struct KvView {
    const int32_t* page_table =
        nullptr;  // [ceil(n_ctx / kKvPagePositions)] pages; null: contiguous from base_slot
    int64_t base_slot = 0;

    int64_t slot(int64_t position) const {
        if (page_table == nullptr) return base_slot + position;
        return int64_t{page_table[position / kKvPagePositions]} * kKvPagePositions +
               position % kKvPagePositions;
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

// Bytes of keys and values that one position takes over all layers.
int64_t kv_bytes_per_position(const Config& config, DType k_dtype, DType v_dtype);

}  // namespace ridge
