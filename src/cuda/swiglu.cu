#include "cuda/context.h"
#include "cuda/device/async.cuh"
#include "cuda/device/quads.cuh"
#include "cuda/row_ops.h"

namespace ridge::cuda {
namespace {

constexpr int kThreads = 256;

// g / (1 + exp(-g)) * u. The exponential is taken of -|g| alone, so that nothing overflows;
// silu(-0) is -0.
__device__ float swiglu_of(float g, float u) {
    const float e = expf(-fabsf(g));
    const float share = (g < 0 ? e : 1.0f) / (1.0f + e);
    return g * share * u;
}

// swiglu: out[i, j] = silu(g) * u, g = gate_up[i, j], u = gate_up[i, d_ff + j]
//   gate_up [n_rows, 2 * d_ff], out [n_rows, d_ff] f32. One pass, a thread for each quad.
//   Bytes 12 * n_rows * d_ff.
template <bool kAligned>
__global__ void __launch_bounds__(kThreads)
    swiglu_quads(const float* gate_up, int64_t stride, int64_t d_ff, float* out,
                 int64_t out_stride) {
    wait_for_previous_kernel();
    let_next_kernel_start();
    const int64_t quad = int64_t{blockIdx.y} * kThreads + threadIdx.x;
    if (quad >= (d_ff + 3) / 4) return;
    const float* gate = gate_up + blockIdx.x * stride;
    const float4 g = load_quad<kAligned>(gate, quad, d_ff);
    const float4 u = load_quad<kAligned>(gate + d_ff, quad, d_ff);
    const float4 result = {swiglu_of(g.x, u.x), swiglu_of(g.y, u.y), swiglu_of(g.z, u.z),
                           swiglu_of(g.w, u.w)};
    store_quad<kAligned>(result, out + blockIdx.x * out_stride, quad, d_ff);
}

}  // namespace

void swiglu(Step& s, Rows gate_up, Rows out) {
    if (s.planning) return;
    CHECK(gate_up.n_rows == out.n_rows && gate_up.n_cols == 2 * out.n_cols);
    const int64_t d_ff = out.n_cols;
    const dim3 grid(static_cast<unsigned>(out.n_rows),
                    static_cast<unsigned>((quads_of(d_ff) + kThreads - 1) / kThreads));
    const bool aligned = has_aligned_quads(gate_up, d_ff) && has_aligned_quads(out, d_ff);
    const auto kernel = aligned ? swiglu_quads<true> : swiglu_quads<false>;
    launch_dependent(context_of(s), kernel, grid, kThreads, 0, "swiglu",
                     device_rows<const float>(gate_up), gate_up.stride, d_ff,
                     device_rows<float>(out), out.stride);
}

}  // namespace ridge::cuda
