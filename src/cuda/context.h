#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/check.h"
#include "cuda/check.h"
#include "model/batch.h"
#include "model/step.h"
#include "model/step_trace.h"

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

// Counters for blocks of one kernel to tell which of them is the last to arrive.
constexpr int kArrivals = 4096;
// Room for what matvec makes of several rows before it multiplies them: as much as a block's shared
// memory may have.
constexpr int kRoundedBytes = 256 << 10;

class GraphCache;    // cuda/graph.h
class Packet;        // cuda/packet.h
class SampleMirror;  // cuda/sample_mirror.h
class WeightStream;  // cuda/weight_stream.h

// What kernels need beside their operands: Tables::kernels of this backend.
struct Context {
    cudaStream_t stream = nullptr;
    int n_sms = 0;
    int shared_bytes_an_sm = 0, shared_bytes_a_block = 0;
    int capability = 0;  // 90 for 9.0
    Mirror mirror{};
    // [kArrivals] zeros, to which the last block of those that count sets its counter back.
    uint32_t* arrivals = nullptr;
    uint8_t* rounded_rows = nullptr;  // [kRoundedBytes]
    SampleMirror* sampling = nullptr;
    Packet* packet = nullptr;
    GraphCache* graphs = nullptr;     // null: steps are not captured
    WeightStream* weights = nullptr;  // of streamed layers; null: there are none
    StepTrace* trace = nullptr;       // of a step that is traced, or captured for it
};

inline const Context& context_of(const Step& s) {
    CHECK(s.tables.kernels != nullptr);
    return *static_cast<const Context*>(s.tables.kernels);
}

// Whether every span is a sequence with one decode row.
inline bool have_one_decode_row_each(std::span<const SequenceSpan> spans) {
    return std::all_of(spans.begin(), spans.end(), [](const SequenceSpan& span) {
        return span.row_class == RowClass::kDecode && span.n_rows == 1;
    });
}

// For kernels of a decode step: one division of a multiprocessor's memory between shared memory and
// the first cache, in per cent. It is changed only when nothing runs there, which would keep a
// kernel from starting beside the one before; and weights on their way to registers take room in
// the cache. 60 to 80 were the best of 0 to 100 on an H200, 80 where attention reads long contexts
// (docs/kernels/matmul.md); what 85 asks for is the size that 80 gets there, 196 KiB.
constexpr int kDecodeCarveout = 85;

template <class Kernel>
void divide_memory_alike(Kernel* kernel, std::string_view name) {
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                               kDecodeCarveout),
          name);
}

// Before each launch: notes it in a trace, where there is one. False: it is left out.
inline bool launches(const Context& c, std::string_view name, dim3 blocks, unsigned n_threads,
                     size_t shared_bytes = 0) {
    return c.trace == nullptr || c.trace->launches(name, {blocks.x, blocks.y, blocks.z}, n_threads,
                                                   static_cast<int64_t>(shared_bytes));
}

// Launches a kernel that calls wait_for_previous_kernel() (device/async.cuh): where the device can,
// it starts while the one before it ends.
template <class... Parameters, class... Arguments>
void launch_dependent(const Context& c, void (*kernel)(Parameters...), dim3 grid,
                      unsigned n_threads, size_t shared_bytes, std::string_view name,
                      const Arguments&... arguments) {
    if (!launches(c, name, grid, n_threads, shared_bytes)) return;
    cudaLaunchConfig_t config{};
    config.gridDim = grid, config.blockDim = dim3(n_threads);
    config.dynamicSmemBytes = shared_bytes, config.stream = c.stream;
    cudaLaunchAttribute attribute{};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    config.attrs = &attribute, config.numAttrs = c.capability >= 90 ? 1 : 0;
    void* pointers[] = {const_cast<void*>(static_cast<const void*>(&arguments))...};
    check(cudaLaunchKernelExC(&config, reinterpret_cast<const void*>(kernel), pointers), name);
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
