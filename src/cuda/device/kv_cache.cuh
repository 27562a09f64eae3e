#pragma once

#include <cstddef>
#include <cstdint>

#include "ref/host_kv.h"

namespace ridge::cuda {

// Where a layer's K and V lie in device memory: tiles as ref/host_kv.h has them, so that every
// tile begins at a multiple of 16 bytes where d_head is a multiple of 8.
struct KvTiles {
    std::byte *k, *v;  // page 0
    int64_t k_page_bytes, v_page_bytes, k_group_bytes, v_group_bytes;
    int k_tile_bytes, v_tile_bytes, d_head, n_kv_heads;
    DType k_dtype, v_dtype;

    explicit KvTiles(const KvLayer& kv)
        : k(kv.k->data() + kv.k_offset),
          v(kv.v->data() + kv.v_offset),
          k_page_bytes(kv.page_bytes(kv.k_dtype)),
          v_page_bytes(kv.page_bytes(kv.v_dtype)),
          k_group_bytes(group_bytes(kv, k_page_bytes)),
          v_group_bytes(group_bytes(kv, v_page_bytes)),
          k_tile_bytes(static_cast<int>(host_kv_tile_bytes(kv.k_dtype, kv.d_head))),
          v_tile_bytes(static_cast<int>(host_kv_tile_bytes(kv.v_dtype, kv.d_head))),
          d_head(kv.d_head),
          n_kv_heads(kv.n_kv_heads),
          k_dtype(kv.k_dtype),
          v_dtype(kv.v_dtype) {}

    __device__ std::byte* k_tile(int64_t page, int head) const {
        return k + page / kKvGroupPages * k_group_bytes + page % kKvGroupPages * k_page_bytes +
               head * k_tile_bytes;
    }
    __device__ std::byte* v_tile(int64_t page, int head) const {
        return v + page / kKvGroupPages * v_group_bytes + page % kKvGroupPages * v_page_bytes +
               head * v_tile_bytes;
    }
    // Position p of a page.
    __device__ HostKvRow k_row(int64_t page, int p, int head) const {
        return {k_tile(page, head), k_dtype, d_head, p, p, kKvPagePositions};
    }
    __device__ HostKvRow v_row(int64_t page, int p, int head) const {
        return {v_tile(page, head),
                v_dtype,
                d_head,
                int64_t{p} * d_head,
                int64_t{p} * (d_head / kKvScaleElements),
                1};
    }

  private:
    // From kKvGroupPages pages to the next.
    static int64_t group_bytes(const KvLayer& kv, int64_t page_bytes) {
        return kv.group_stride == 0 ? kKvGroupPages * page_bytes : kv.group_stride;
    }
};

}  // namespace ridge::cuda
