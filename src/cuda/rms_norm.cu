#include <algorithm>

#include "cuda/context.h"
#include "cuda/device/async.cuh"
#include "cuda/device/block.cuh"
#include "cuda/device/quads.cuh"
#include "cuda/row_ops.h"

namespace ridge::cuda {
namespace {

constexpr int kShortRow = 256;    // elements, up to which a head has one warp
constexpr int kWarpsOfHeads = 8;  // that share a block, each with a head of its own
constexpr int kThreadsOfAdd = 256;

__device__ double sum_of_squares(float4 v, double sum) {
    const double x = v.x, y = v.y, z = v.z, w = v.w;
    return fma(x, x, fma(y, y, fma(z, z, fma(w, w, sum))));
}
__device__ float4 normed(float4 v, float scale, float4 w) {
    return {v.x * scale * w.x, v.y * scale * w.y, v.z * scale * w.z, v.w * scale * w.w};
}

struct Norm {
    const float* x;  // [n_rows, n_heads, d]
    int64_t x_stride;
    const float* weight;  // [d]
    double eps, inverse_d;
    int64_t d, n_heads, n_rows;
    float* out;  // as x, which it may be
    int64_t out_stride;

    __device__ float scale(double sum) const {
        return static_cast<float>(rsqrt(sum * inverse_d + eps));
    }
};

// rms_norm of short heads (Q's and K's): out[i, h] = x[i, h] / sqrt(mean(x[i, h]^2) + eps) * weight
//   d of at most kShortRow. A warp for each head of a row, whose lanes hold it in registers: x is
//   read once. Squares are summed in f64, where nothing that f32 holds overflows; one rounding to
//   f32 of the scale, and of each product.
//   Bytes 8 * n_rows * n_heads * d + 4 * d.
template <bool kAligned>
__global__ void __launch_bounds__(32 * kWarpsOfHeads) rms_norm_heads(Norm n) {
    constexpr int kQuads = kShortRow / 4 / 32;  // of a lane
    const int64_t n_quads = (n.d + 3) / 4;
    float4 v[kQuads] = {}, w[kQuads] = {};
#pragma unroll
    for (int q = 0; q < kQuads; q++) {
        const int64_t quad = lane_of_thread() + 32 * q;
        if (quad < n_quads) w[q] = load_quad<kAligned>(n.weight, quad, n.d);
    }
    wait_for_previous_kernel();  // weights are nobody's product; x is
    let_next_kernel_start();
    const int64_t index = int64_t{blockIdx.x} * kWarpsOfHeads + warp_of_thread();
    if (index >= n.n_rows * n.n_heads) return;  // the whole warp
    const int64_t row = index / n.n_heads, head = index % n.n_heads;
    const float* in = n.x + row * n.x_stride + head * n.d;
    float* to = n.out + row * n.out_stride + head * n.d;
    double sum = 0;
#pragma unroll
    for (int q = 0; q < kQuads; q++) {
        const int64_t quad = lane_of_thread() + 32 * q;
        if (quad < n_quads) v[q] = load_quad<kAligned>(in, quad, n.d);
        sum = sum_of_squares(v[q], sum);
    }
    const float scale = n.scale(warp_sum(sum));
#pragma unroll
    for (int q = 0; q < kQuads; q++) {
        const int64_t quad = lane_of_thread() + 32 * q;
        if (quad < n_quads) store_quad<kAligned>(normed(v[q], scale, w[q]), to, quad, n.d);
    }
}

// rms_norm of any row: the same in two levels, the threads of a warp, then the warps of a block.
//   A block of up to 1,024 threads for each head of a row, quads dealt out in turns. A thread's
//   first quad, which up to d = 4,096 is all it has, waits in registers with its weights; others
//   are read again, from the first level cache. x and out may be the same: a thread writes what
//   it alone has read.
//   Bytes as above.
template <bool kAligned>
__global__ void __launch_bounds__(1024) rms_norm_two_level(Norm n) {
    __shared__ double partial[32];
    __shared__ float scale_of_row;
    const float* in = n.x + blockIdx.x * n.x_stride + blockIdx.y * n.d;
    float* to = n.out + blockIdx.x * n.out_stride + blockIdx.y * n.d;
    const int64_t n_quads = (n.d + 3) / 4, first = threadIdx.x;
    const float4 zero = {0, 0, 0, 0};
    const float4 w = first < n_quads ? load_quad<kAligned>(n.weight, first, n.d) : zero;
    wait_for_previous_kernel();  // weights are nobody's product; x is
    let_next_kernel_start();
    const float4 v = first < n_quads ? load_quad<kAligned>(in, first, n.d) : zero;
    double sum = sum_of_squares(v, 0);
    for (int64_t quad = first + blockDim.x; quad < n_quads; quad += blockDim.x) {
        sum = sum_of_squares(load_quad<kAligned>(in, quad, n.d), sum);
    }
    sum = warp_sum(sum);
    if (lane_of_thread() == 0) partial[warp_of_thread()] = sum;
    __syncthreads();  // the warps' sums are there
    if (warp_of_thread() == 0) {
        const bool is_used = first < blockDim.x / 32;
        const double all = warp_sum(is_used ? partial[first] : 0.0);
        if (first == 0) scale_of_row = n.scale(all);
    }
    __syncthreads();  // and the scale
    const float scale = scale_of_row;
    if (first < n_quads) store_quad<kAligned>(normed(v, scale, w), to, first, n.d);
    for (int64_t quad = first + blockDim.x; quad < n_quads; quad += blockDim.x) {
        const float4 value = load_quad<kAligned>(in, quad, n.d);
        const float4 weight = load_quad<kAligned>(n.weight, quad, n.d);
        store_quad<kAligned>(normed(value, scale, weight), to, quad, n.d);
    }
}

// add: x[i] += y[i]                               x, y [n_rows, d]
//   A thread for each quad. Bytes 12 * n_rows * d.
template <bool kAligned>
__global__ void __launch_bounds__(kThreadsOfAdd)
    add_quads(const float* y, int64_t y_stride, int64_t d, float* x, int64_t x_stride) {
    wait_for_previous_kernel();
    let_next_kernel_start();
    const int64_t quad = int64_t{blockIdx.y} * kThreadsOfAdd + threadIdx.x;
    if (quad >= (d + 3) / 4) return;
    float* to = x + blockIdx.x * x_stride;
    const float4 b = load_quad<kAligned>(y + blockIdx.x * y_stride, quad, d);
    const float4 a = load_quad<kAligned>(to, quad, d);
    store_quad<kAligned>({a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w}, to, quad, d);
}

}  // namespace

void rms_norm(Step& s, Heads x, const Tensor& weight, float eps, Heads out) {
    if (s.planning) return;
    CHECK(weight.format->id == FormatId::kF32 && weight.n_cols() == x.d_head);
    CHECK(out.d_head == x.d_head && out.n_heads == x.n_heads && out.rows.n_rows == x.rows.n_rows);
    const int64_t d = x.d_head;
    const Norm norm{device_rows<const float>(x.rows),
                    x.rows.stride,
                    device_plane<const float>(weight),
                    double{eps},
                    1 / static_cast<double>(d),
                    d,
                    x.n_heads,
                    x.rows.n_rows,
                    device_rows<float>(out.rows),
                    out.rows.stride};
    const bool aligned = has_aligned_quads(x.rows, d) && has_aligned_quads(out.rows, d) &&
                         reinterpret_cast<uintptr_t>(norm.weight) % 16 == 0;
    const Context& c = context_of(s);
    if (d <= kShortRow) {
        const int64_t n_blocks = (norm.n_rows * norm.n_heads + kWarpsOfHeads - 1) / kWarpsOfHeads;
        const auto kernel = aligned ? rms_norm_heads<true> : rms_norm_heads<false>;
        launch_dependent(c, kernel, dim3(static_cast<unsigned>(n_blocks)), 32 * kWarpsOfHeads, 0,
                         "rms_norm", norm);
    } else {
        const dim3 grid(static_cast<unsigned>(norm.n_rows), static_cast<unsigned>(norm.n_heads));
        const auto n_threads =
            static_cast<unsigned>(std::min<int64_t>((quads_of(d) + 31) / 32 * 32, 1024));
        const auto kernel = aligned ? rms_norm_two_level<true> : rms_norm_two_level<false>;
        launch_dependent(c, kernel, grid, n_threads, 0, "rms_norm", norm);
    }
}

void add(Step& s, Rows y, Rows x) {
    if (s.planning) return;
    CHECK(y.n_rows == x.n_rows && y.n_cols == x.n_cols);
    const int64_t d = x.n_cols;
    const dim3 grid(static_cast<unsigned>(x.n_rows),
                    static_cast<unsigned>((quads_of(d) + kThreadsOfAdd - 1) / kThreadsOfAdd));
    const bool aligned = has_aligned_quads(y, d) && has_aligned_quads(x, d);
    const auto kernel = aligned ? add_quads<true> : add_quads<false>;
    launch_dependent(context_of(s), kernel, grid, kThreadsOfAdd, 0, "add",
                     device_rows<const float>(y), y.stride, d, device_rows<float>(x), x.stride);
}

}  // namespace ridge::cuda
