#include "cuda/context.h"
#include "cuda/device/async.cuh"
#include "cuda/device/kv_cache.cuh"
#include "cuda/kv_append.h"

namespace ridge::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kTogether = 32;  // rows of K that are stored together

// kv_append: cache[slot[i]] = k[i], v[i]; slot -1 is skipped
//   k, v [n_rows, n_kv_heads, d_head] f32; cache as ref/host_kv.h lays it out, with the same bits:
//   one rounding. One thread for each element; in q8_0 a warp finds the highest of the 32 that
//   share a scale. Block (i, pieces of a row, K or V). Elements of K lie 64 numbers apart in their
//   tile, neighbouring positions side by side: of kTogether rows and more a block takes 8 columns
//   of 32 rows of K, not 256 of one, so that what a warp stores lies together. Bytes: 4 d_head read
//   and as many as the type has written, for each row, head and K or V.
__global__ void __launch_bounds__(kThreads)
    kv_append_kernel(const float* k, int64_t k_stride, const float* v, int64_t v_stride,
                     const int64_t* slots, int n_rows, bool k_together,
                     const __grid_constant__ KvTiles kv) {
    constexpr int kColumns = kThreads / kTogether;  // of K, that a block stores together
    const int thread = static_cast<int>(threadIdx.x), block = static_cast<int>(blockIdx.x);
    const bool is_k = blockIdx.z == 0, together = is_k && k_together;
    const int row = together ? block / kTogether * kTogether + thread % kTogether : block;
    const int column = static_cast<int>(blockIdx.y) * kThreads +
                       (together ? block % kTogether * kColumns + thread / kTogether : thread);
    // Of q8_0 n_kv_heads * d_head is a multiple of 32: warps leave as a whole.
    if (column >= kv.n_kv_heads * kv.d_head || row >= n_rows) return;
    wait_for_previous_kernel();
    let_next_kernel_start();
    const float x = is_k ? k[row * k_stride + column] : v[row * v_stride + column];
    const int64_t slot = slots[row];
    if (slot < 0) return;
    const int64_t page = slot / kKvPagePositions;
    const int p = static_cast<int>(slot % kKvPagePositions);
    const int head = column / kv.d_head, i = column % kv.d_head;
    const HostKvRow to = is_k ? kv.k_row(page, p, head) : kv.v_row(page, p, head);
    if (to.dtype != DType::kQ8_0) return store_element(x, to, i);
    static_assert(kKvScaleElements == 32);
    const f16 scale = q8_scale(__reduce_max_sync(0xffffffffu, __float_as_uint(x) & 0x7fffffffu));
    write_as(q8_code(x, q8_inverse(scale)), to.element(i, 1));
    if (i % kKvScaleElements == 0) write_as(scale, to.scale(i / kKvScaleElements));
}

}  // namespace

void kv_append(Step& s, Heads k, Heads v, KvLayer kv) {
    if (s.planning) return;
    const Context& c = context_of(s);
    const int64_t n_columns = int64_t{kv.n_kv_heads} * kv.d_head;
    CHECK(k.rows.n_cols == n_columns && v.rows.n_cols == n_columns);
    CHECK(k.rows.n_rows == s.batch.n_rows() && v.rows.n_rows == k.rows.n_rows);
    const int64_t n_rows = k.rows.n_rows;
    const bool k_together = n_rows >= kTogether && kv.k_dtype != DType::kQ8_0;
    const int64_t n_blocks = k_together ? (n_rows + kTogether - 1) / kTogether * kTogether : n_rows;
    const dim3 grid(static_cast<unsigned>(n_blocks),
                    static_cast<unsigned>((n_columns + kThreads - 1) / kThreads), 2);
    launch_dependent(c, kv_append_kernel, grid, kThreads, 0, "kv_append",
                     device_rows<const float>(k.rows), k.rows.stride,
                     device_rows<const float>(v.rows), v.rows.stride, c.mirror.slots,
                     static_cast<int>(n_rows), k_together, KvTiles(kv));
}

}  // namespace ridge::cuda
