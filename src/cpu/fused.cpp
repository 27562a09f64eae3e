#include "cpu/fused.h"

#include <algorithm>

#include "cpu/attention.h"
#include "cpu/matmul.h"

namespace ridge::cpu {
namespace {

// What follows QKV, for one row: heads are normed and rotated where they lie, and K and V go
// straight into the cache.
class QkvFinish {
  public:
    QkvFinish(Step& s, const Layer& layer, KvLayer kv)
        : s_(s),
          kernels_(kernels_of(s)),
          c_(s.config),
          q_norm_(vector_of(layer.q_norm)),
          k_norm_(vector_of(layer.k_norm)),
          kv_(kv),
          n_pairs_(static_cast<int64_t>(s.rope_table.frequency.size())),
          turns_(s.scratch(s.pool.size(), 2 * n_pairs_)) {}

    void operator()(Rows qkv) {
        // A few rows are finished sooner than other threads are told of them.
        const int64_t grain = std::max<int64_t>(1, kGrainElements / qkv.n_cols);
        s_.pool.parallel_for(qkv.n_rows, grain, [&](int64_t begin, int64_t end, int worker) {
            for (int64_t i = begin; i < end; i++) finish(qkv.row<float>(i), i, worker);
        });
    }

  private:
    static constexpr int64_t kGrainElements = 16384;

    static const float* vector_of(const Tensor& vector) {
        if (!vector) return nullptr;
        CHECK(vector.format->id == FormatId::kF32);
        return reinterpret_cast<const float*>(vector.planes[0].data);
    }

    void finish(float* q, int64_t row, int worker) {
        float *k = q + c_.d_q(), *v = k + c_.d_kv();
        if (q_norm_ != nullptr) norm(q, c_.n_heads, q_norm_);
        if (k_norm_ != nullptr) norm(k, c_.n_kv_heads, k_norm_);
        const int32_t position = s_.batch.positions[static_cast<size_t>(row)];
        const int64_t slot = s_.batch.slots[static_cast<size_t>(row)];
        if (position >= 0) {
            float* cosine = turns_.row<float>(worker);
            float* sine = cosine + n_pairs_;
            kernels_.rows.rope_angles(position, s_.rope_table.frequency.data(), n_pairs_, cosine,
                                      sine);
            const auto rotate = s_.rope_table.style == RopeStyle::kHalfSplit
                                    ? kernels_.rows.rope_half_split
                                    : kernels_.rows.rope_interleaved;
            rotate(q, c_.n_heads, c_.d_head, n_pairs_, cosine, sine);
            rotate(k, c_.n_kv_heads, c_.d_head, n_pairs_, cosine, sine);
        }
        if (slot >= 0) append_row(kernels_, kv_, slot, k, v);
    }

    void norm(float* heads, int64_t n_heads, const float* weight) {
        for (int64_t h = 0; h < n_heads; h++) {
            float* head = heads + h * c_.d_head;
            kernels_.rows.rms_norm(head, c_.d_head, weight, c_.norm_eps, head);
        }
    }

    Step& s_;
    const Kernels& kernels_;
    const Config& c_;
    const float *q_norm_, *k_norm_;
    KvLayer kv_;
    int64_t n_pairs_;
    Rows turns_;
};

// x += in W^T, row class by row class.
void add_projection(Step& s, const Linear& linear, Rows in, Rows x) {
    for_each_matmul(s, in.n_cols, linear, Matmul::Input::kRows,
                    [&](Matmul& matmul, int64_t first, int64_t n) {
                        matmul.set_input(in.slice(first, n));
                        matmul.add_to(x.slice(first, n));
                    });
}

}  // namespace

std::string_view unfit_for_attn_in(const Step& s, const Layer&, const Rows&, const Rows& qkv,
                                   const KvLayer& kv) {
    const Config& c = s.config;
    const Heads k(qkv.cols(c.d_q(), c.d_kv()), c.n_kv_heads, c.d_head);
    return unfit_for_append(s, k, k, kv);
}

// attn_in_fused: rows are normed as they are rounded for the product; then one pass over the three
// weights; then one over each row's heads.
void attn_in_fused(Step& s, const Layer& layer, Rows x, Rows qkv, KvLayer kv) {
    for_each_matmul(s, x.n_cols, {layer.q, layer.k, layer.v}, Matmul::Input::kNormed,
                    [&](Matmul& matmul, int64_t first, int64_t n) {
                        matmul.set_normed_input(x.slice(first, n), layer.attn_norm,
                                                s.config.norm_eps);
                        matmul.store(qkv.slice(first, n));
                    });
    QkvFinish finish(s, layer, kv);
    if (!s.planning) finish(qkv);
}

// attn_out_fused: the residual is added as products are stored.
void attn_out_fused(Step& s, const Layer& layer, Rows a, Rows x) {
    add_projection(s, layer.o, a, x);
}

// ffn_in_fused: a thread multiplies the same rows of gate and up, and stores their SwiGLU: neither
// product leaves its cache.
void ffn_in_fused(Step& s, const Layer& layer, Rows x, Rows out) {
    for_each_matmul(s, x.n_cols, {layer.gate, layer.up}, Matmul::Input::kNormed,
                    [&](Matmul& matmul, int64_t first, int64_t n) {
                        matmul.set_normed_input(x.slice(first, n), layer.ffn_norm,
                                                s.config.norm_eps);
                        matmul.store_swiglu(out.slice(first, n));
                    });
}

// ffn_out_fused: as attn_out.
void ffn_out_fused(Step& s, const Layer& layer, Rows f, Rows x) {
    add_projection(s, layer.down, f, x);
}

}  // namespace ridge::cpu
