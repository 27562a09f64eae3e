#include "cuda/context.h"
#include "cuda/device/async.cuh"
#include "cuda/device/quads.cuh"
#include "cuda/device/turns.cuh"
#include "cuda/row_ops.h"

namespace ridge::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kHeadsOfBlock = 16;  // that share one making of sines and cosines
// Sines and cosines of a row in shared memory that no attribute has to be asked for.
constexpr int kMaxPairs = 4096;

struct Rotation {
    float* x;  // [n_rows, n_heads, d_head]
    int64_t stride, d_head;
    const int32_t* positions;  // [n_rows]; -1: the row stays as it is
    const double* frequency;   // [n_pairs], radians a position
    int n_heads, n_pairs;
};

// rope: (a, b) -> (a cos t - b sin t, a sin t + b cos t), t = position[i] * frequency[pair]
//   x [n_rows, n_heads, d_head] f32, in place; what lies behind the last pair stays.
//   A block for up to kHeadsOfBlock heads of a row: sine and cosine of each pair are made once, in
//   shared memory, for all of them. A thread turns a pair, or with kAligned four pairs that lie
//   side by side in one or two runs of 16 bytes. Bytes 16 * n_rows * n_heads * n_pairs; flops 6 a
//   pair.
template <bool kHalfSplit, bool kAligned>
__global__ void __launch_bounds__(kThreads) rope_rows(Rotation r) {
    extern __shared__ float2 turns[];  // [n_pairs] sine, cosine
    const int32_t position = r.positions[blockIdx.x];
    for (int pair = static_cast<int>(threadIdx.x); pair < r.n_pairs; pair += kThreads) {
        turns[pair] = sine_and_cosine(position, r.frequency[pair]);
    }
    wait_for_previous_kernel();  // positions are nobody's product; x is
    let_next_kernel_start();
    if (position < 0) return;  // the whole block
    __syncthreads();           // turns is complete
    constexpr int kPairs = kAligned ? 4 : 1;
    const int first_head = static_cast<int>(blockIdx.y) * kHeadsOfBlock;
    const int n_parts = r.n_pairs / kPairs;  // of a head
    const int n = min(r.n_heads - first_head, kHeadsOfBlock) * n_parts;
    for (int i = static_cast<int>(threadIdx.x); i < n; i += kThreads) {
        const int pair = i % n_parts * kPairs;
        float* head = r.x + blockIdx.x * r.stride + (first_head + i / n_parts) * r.d_head;
        if constexpr (!kAligned) {
            float* a = head + (kHalfSplit ? pair : 2 * pair);
            rotate(turns[pair], a[0], a[kHalfSplit ? r.n_pairs : 1]);
            continue;
        }
        auto* low = reinterpret_cast<float4*>(head + (kHalfSplit ? pair : 2 * pair));
        auto* high = kHalfSplit ? low + r.n_pairs / 4 : low + 1;
        float4 a = *low, b = *high;
        if constexpr (kHalfSplit) {
            rotate(turns[pair], a.x, b.x);
            rotate(turns[pair + 1], a.y, b.y);
            rotate(turns[pair + 2], a.z, b.z);
            rotate(turns[pair + 3], a.w, b.w);
        } else {
            rotate(turns[pair], a.x, a.y);
            rotate(turns[pair + 1], a.z, a.w);
            rotate(turns[pair + 2], b.x, b.y);
            rotate(turns[pair + 3], b.z, b.w);
        }
        *low = a, *high = b;
    }
}

}  // namespace

void rope(Step& s, Heads x, Positions position, const RopeTable& table) {
    if (s.planning) return;
    CHECK(position.data() == s.batch.positions.data() && &table == &s.rope_table);
    const auto n_pairs = static_cast<int>(table.frequency.size());
    CHECK(2 * n_pairs <= x.d_head && n_pairs <= kMaxPairs);
    const Context& c = context_of(s);
    const Rotation rotation{device_rows<float>(x.rows),
                            x.rows.stride,
                            x.d_head,
                            c.mirror.positions,
                            c.mirror.rope_frequency,
                            static_cast<int>(x.n_heads),
                            n_pairs};
    const bool aligned = has_aligned_quads(x.rows, x.d_head) && n_pairs % 4 == 0;
    const bool half_split = table.style == RopeStyle::kHalfSplit;
    const auto kernel = half_split ? (aligned ? rope_rows<true, true> : rope_rows<true, false>)
                                   : (aligned ? rope_rows<false, true> : rope_rows<false, false>);
    const dim3 grid(static_cast<unsigned>(x.rows.n_rows),
                    static_cast<unsigned>((x.n_heads + kHeadsOfBlock - 1) / kHeadsOfBlock));
    launch_dependent(c, kernel, grid, kThreads, static_cast<size_t>(n_pairs) * sizeof(float2),
                     "rope", rotation);
}

}  // namespace ridge::cuda
