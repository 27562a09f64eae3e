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

constexpr int kKvGroupPages = 4;  // pages of a layer's K, or V, that lie one behind the other

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

// One layer's keys and values. How they are placed within a page is the backend's affair: only
// kv_append, attention and their fused forms look inside.
struct KvLayer {
    const Buffer* k = nullptr;  // n_slots positions in k_dtype, rounded up to whole pages
    const Buffer* v = nullptr;
    DType k_dtype = DType::kF16, v_dtype = DType::kF16;
    int64_t n_slots = 0;
    int n_kv_heads = 0, d_head = 0;
    bool exact = false;  // nothing is rounded further in attention: the layer's weights are F32
    int64_t k_offset = 0, v_offset = 0;  // bytes to page 0
    int64_t group_stride = 0;  // bytes from kKvGroupPages pages to the next; 0: nothing between

    int64_t page_bytes(DType dtype) const {  // of K or V
        return kKvPagePositions * n_kv_heads * kv_head_bytes(dtype, d_head);
    }
    int64_t k_page(int64_t page) const { return k_offset + page_offset(page, page_bytes(k_dtype)); }
    int64_t v_page(int64_t page) const { return v_offset + page_offset(page, page_bytes(v_dtype)); }
    int64_t page_offset(int64_t page, int64_t page_bytes) const {
        if (group_stride == 0) return page * page_bytes;
        return page / kKvGroupPages * group_stride + page % kKvGroupPages * page_bytes;
    }
};

// Owns the storage of all layers for n_slots positions: for each kKvGroupPages pages of every layer
// K, then V. So a step reads stretches of some 100 KiB, which memory delivers at its full rate; and
// memory is touched from the front on as a sequence grows, so that it can lie in huge pages
// without many more of them than positions need.
struct KvCache {
    Buffer pages;
    DType k_dtype = DType::kF16, v_dtype = DType::kF16;
    int64_t n_slots = 0;
    int n_layers = 0, n_kv_heads = 0, d_head = 0;

    KvLayer layer(int index) const {
        KvLayer kv;
        kv.k = kv.v = &pages;
        kv.k_dtype = k_dtype, kv.v_dtype = v_dtype;
        kv.n_slots = n_slots, kv.n_kv_heads = n_kv_heads, kv.d_head = d_head;
        const int64_t k_bytes = kKvGroupPages * kv.page_bytes(k_dtype);
        const int64_t v_bytes = kKvGroupPages * kv.page_bytes(v_dtype);
        kv.group_stride = n_layers * (k_bytes + v_bytes);
        kv.k_offset = index * (k_bytes + v_bytes);
        kv.v_offset = kv.k_offset + k_bytes;
        return kv;
    }
    size_t n_bytes() const {  // that `pages` is to have
        const int64_t n_groups = (kv_pages_of(n_slots) + kKvGroupPages - 1) / kKvGroupPages;
        return static_cast<size_t>(n_groups) * static_cast<size_t>(layer(0).group_stride);
    }
};

// Error where the heads of the model cannot be stored so: q8_0 wants d_head a multiple of 32.
void check_kv_types(const Config& config, DType k_dtype, DType v_dtype);

// A cache for the model, without its storage. Error as above.
KvCache describe_kv_cache(const Config& config, DType k_dtype, DType v_dtype, int64_t n_slots);

// Bytes of keys and values that one position takes over all layers. Error as above.
int64_t kv_bytes_per_position(const Config& config, DType k_dtype, DType v_dtype);

}  // namespace ridge
