#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "base/check.h"
#include "model/batch.h"
#include "model/step.h"

namespace ridge::cuda {

// One span of the batch as kernels see it: where its cache lies (model/kv_cache.h, KvView).
struct Sequence {
    int32_t first_row = 0, n_rows = 0;
    int32_t pages = -1;     // where its page table starts in Mirror::pages; -1: contiguous
    int32_t base_page = 0;  // contiguous: the page of position 0

    // The page that holds positions kKvPagePositions * index and up; `tables` is Mirror::pages.
    __host__ __device__ int64_t page(const int32_t* tables, int64_t index) const {
        return pages >= 0 ? tables[pages + index] : base_page + index;
    }
};

// The batch in device memory. The addresses stay the same from step to step, so that a captured
// graph serves every batch of its size.
struct Mirror {
    Token* tokens;             // [n_rows]
    int32_t* positions;        // [n_rows]; -1: masked
    int64_t* slots;            // [n_rows]; -1: nowhere
    int32_t* sequence_of_row;  // [n_rows]
    Sequence* sequences;       // [n_spans]
    int32_t* logit_rows;       // [n_logit_rows]
    int32_t* pages;            // page tables, one behind the other
    double* rope_frequency;    // [d_rope / 2], of the model
};

// What kernels need beside their operands: Tables::kernels of this backend.
struct Context {
    cudaStream_t stream = nullptr;
    int n_sms = 0;
    int shared_bytes_an_sm = 0;
    int capability = 0;  // 90 for 9.0
    Mirror mirror{};
};

inline const Context& context_of(const Step& s) {
    CHECK(s.tables.kernels != nullptr);
    return *static_cast<const Context*>(s.tables.kernels);
}

// Device address of the first element.
template <class T>
T* device_rows(const Rows& rows) {
    CHECK(sizeof(T) == static_cast<size_t>(dtype_bytes(rows.dtype)));
    return reinterpret_cast<T*>(rows.buffer->data() + rows.offset_bytes);
}
template <class T>
T* device_plane(const Tensor& tensor, int plane = 0) {
    return reinterpret_cast<T*>(
        const_cast<std::byte*>(tensor.planes[static_cast<size_t>(plane)].data));
}

}  // namespace ridge::cuda
