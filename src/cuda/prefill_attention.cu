#include <algorithm>
#include <cmath>
#include <numbers>

#include "cuda/check.h"
#include "cuda/decode_attention.h"
#include "cuda/device/prefill_rows.cuh"
#include "cuda/prefill_attention.h"
#include "model/step.h"
#include "model/tuning.h"

namespace ridge::cuda {
namespace {

using namespace prefill;

// Sums of segments that scratch has room for, at most: where there are more, blocks take all
// segments of their rows, with the same result.
constexpr int64_t kMostPartBytes = int64_t{64} << 20;

int64_t most_parts(const KvLayer& kv) {
    return kMostPartBytes / ((kv.d_head + 2) * static_cast<int64_t>(sizeof(float)));
}

// A kernel for one kind of cache, and how it is launched.
struct PromptKernel {
    void (*kernel)(PromptRows) = nullptr;
    int n_pairs = 0;  // of a tile
    int n_threads = 0, shared_bytes = 0;
};

template <class S>
PromptKernel kernel_of(int d_head, int n_warps = S::kMostWarps) {
    const S s(d_head);
    return {attend_prompt_rows_kernel<S>, n_warps * S::kStrips * kStripRows, 32 * n_warps,
            s.shared_bytes(n_warps)};
}

template <DType type>
PromptKernel kernel_of_type(int d_head) {
    constexpr int kType = static_cast<int>(type);
    // The second part of queries takes 32 registers more.
    constexpr int kBlocks = type == DType::kBF16 ? 2 : 3;
    if (d_head == 64) return kernel_of<Shape<64, kType, 2, 4, 2>>(64);
    return kernel_of<Shape<128, kType, 1, 4, kBlocks>>(128);
}

// shared_bytes_a_block: that the device has.
PromptKernel kernel_of(const KvLayer& kv, int shared_bytes_a_block) {
    if (kv.k_dtype == kv.v_dtype && (kv.d_head == 64 || kv.d_head == 128)) {
        if (kv.k_dtype == DType::kF16) return kernel_of_type<DType::kF16>(kv.d_head);
        if (kv.k_dtype == DType::kBF16) return kernel_of_type<DType::kBF16>(kv.d_head);
        if (kv.k_dtype == DType::kQ8_0) return kernel_of_type<DType::kQ8_0>(kv.d_head);
    }
    using Any = Shape<kAny, kAny, 1, 4, 1, true>;
    int n_warps = Any::kMostWarps;
    while (n_warps > 1 && Any(kv.d_head).shared_bytes(n_warps) > shared_bytes_a_block) n_warps /= 2;
    return kernel_of<Any>(kv.d_head, n_warps);
}

// Few tiles against many positions leave multiprocessors idle: each segment gets blocks of its own
// then. It is nothing to the results. 0: none does.
int segments_apart(const Context& context, const AttentionTuning& tuning, const KvLayer& kv,
                   int64_t n_heads, int n_rows, int n_tiles, int last_position) {
    if (int64_t{n_tiles} * kv.n_kv_heads >= int64_t{tuning.tiles_an_sm} * context.n_sms) return 0;
    const int n_segments = segments_of(int64_t{last_position} + 1);
    return n_segments < 2 || n_rows * n_heads * n_segments > most_parts(kv) ? 0 : n_segments;
}

class PrefillAttention {
  public:
    PrefillAttention(Step& s, Heads q, const KvLayer& kv, Heads out)
        : context_(context_of(s)),
          batch_(s.batch),
          kv_(kv),
          args_(kv),
          tuning_(tuning_of(s, attention_call(RowClass::kPrompt, 0, q.n_heads, kv))),
          kernel_(kernel_of(kv, context_.shared_bytes_a_block)) {
        n_parts_ = std::min(q.rows.n_rows * q.n_heads * segments_of(kv.n_slots), most_parts(kv));
        const Rows sums = s.scratch(n_parts_, kv.d_head), states = s.scratch(n_parts_, 2);
        if (s.planning) return;
        args_.q = device_rows<const float>(q.rows), args_.q_stride = q.rows.stride;
        args_.out = device_rows<float>(out.rows), args_.out_stride = out.rows.stride;
        const Mirror& mirror = context_.mirror;
        args_.positions = mirror.positions, args_.pages = mirror.pages;
        args_.sequences = mirror.sequences;
        args_.heads_per_kv = static_cast<int>(q.n_heads / kv.n_kv_heads);
        args_.scale = static_cast<float>(std::numbers::log2e / std::sqrt(double(kv.d_head)));
        sums_ = device_rows<float>(sums);
        states_ = reinterpret_cast<float2*>(device_rows<float>(states));
        check(cudaFuncSetAttribute(kernel_.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                   kernel_.shared_bytes),
              "prefill attention: shared memory");
    }

    // Spans first to end, which are of class prompt.
    void run(size_t first, size_t end) {
        PromptRows a = args_;
        a.first_span = static_cast<int>(first), a.n_spans = static_cast<int>(end - first);
        a.first_row = batch_.spans[first].first_row;
        for (size_t i = first; i < end; i++) {
            const int n_rows = batch_.spans[i].n_rows;
            a.n_rows += n_rows, a.n_tiles += tiles_of(n_rows, a.heads_per_kv, kernel_.n_pairs);
        }
        if (a.n_rows == 0) return;
        split(a);
        const dim3 grid(static_cast<unsigned>(a.kv.n_kv_heads), static_cast<unsigned>(a.n_tiles),
                        static_cast<unsigned>(a.sums == nullptr ? 1 : a.n_segments));
        launch_dependent(context_, kernel_.kernel, grid, static_cast<unsigned>(kernel_.n_threads),
                         static_cast<size_t>(kernel_.shared_bytes), "prefill attention", a);
        if (a.sums == nullptr) return;
        const int n_blocks = (a.n_rows * a.n_heads() + kAddWarps - 1) / kAddWarps;
        launch_dependent(context_, add_segments_kernel, dim3(static_cast<unsigned>(n_blocks)),
                         32 * kAddWarps, 0, "prefill attention: adding segments", a);
    }

  private:
    void split(PromptRows& a) const {
        const auto positions = batch_.positions.subspan(static_cast<size_t>(a.first_row),
                                                        static_cast<size_t>(a.n_rows));
        const int last = *std::max_element(positions.begin(), positions.end());
        a.n_segments =
            segments_apart(context_, tuning_, kv_, a.n_heads(), a.n_rows, a.n_tiles, last);
        if (a.n_segments == 0) return;
        CHECK(int64_t{a.n_rows} * a.n_heads() * a.n_segments <= n_parts_);
        a.sums = sums_, a.states = states_;
    }

    const Context& context_;
    const Batch& batch_;
    const KvLayer kv_;
    PromptRows args_;
    const AttentionTuning tuning_;
    PromptKernel kernel_;
    int64_t n_parts_ = 0;
    float* sums_ = nullptr;
    float2* states_ = nullptr;
};

// attend_prompt_rows: blocks of prompt rows against pages of the cache (Dao 2023: FlashAttention-2)
//   A pair is a row and one of the query heads that share a K/V head. A block of 4 warps takes 128
//   pairs (d_head 128: 64), so that K and V are read once for all of them. It walks the pages of
//   64 positions from 0 on, brought to shared memory by asynchronous copies one page ahead; a warp
//   has 32 (16) pairs, whose queries, scores, weights and sums stay in registers.
//   Sums: a row's scores are summed over d_head in order, its sums over positions in order, in
//   segments of 1,024 positions from 0 on, which are then added in order. So a row's bits depend on
//   its position alone: neither on the rows beside it, nor on whether a block takes all segments or
//   one. What a row does not see weighs exactly 0.
//   Numbers: operands are f16 (caches in f16 and q8_0) or bf16; sums, scores and the softmax f32.
//   q in f16 scaled by a power of two for each pair, in bf16 in two parts (16 bits); q8_0's codes
//   times their scale rounded to f16, infinite where an f16 cache would be. Weights are rounded
//   to f16, their sum is of what they were before; to bf16, their sum is of the rounded ones. Other
//   types, mixtures of them, and d_head other than 64 and 128: everything in two parts of bf16.
//   Bytes: q and out once; K and V once for each tile of pairs. Flops: 4 d_head for each query
//   head, row and position seen.
void attend_prompt_rows(Step& s, Heads q, KvLayer kv, Heads out) {
    CHECK(q.n_heads % kv.n_kv_heads == 0 && q.d_head == kv.d_head && out.n_heads == q.n_heads);
    CHECK(q.rows.n_rows == s.batch.n_rows() && out.rows.n_rows == q.rows.n_rows);
    ScratchScope scope(s.memory);  // kernels run in the stream's order
    PrefillAttention attention(s, q, kv, out);
    if (s.planning) return;
    const std::span<const SequenceSpan> spans = s.batch.spans;
    const auto is_prompt = [&](size_t i) { return spans[i].row_class == RowClass::kPrompt; };
    for (size_t first = 0, end; first < spans.size(); first = end) {
        end = first + 1;
        if (!is_prompt(first)) continue;
        while (end < spans.size() && is_prompt(end)) end++;
        attention.run(first, end);
    }
}

}  // namespace

std::string_view unfit_for_prefill_attention(const Step& s, const Heads& q, const KvLayer& kv,
                                             const Heads& out) {
    if (s.batch.has(RowClass::kDecode)) {
        const std::string_view reason = unfit_for_decode_attention(s, q, kv, out);
        if (!reason.empty()) return reason;
    }
    if (!s.batch.has(RowClass::kPrompt)) return "";
    if (kv.exact) return "weights are F32: nothing is rounded further";
    if (kv.d_head % 16 != 0) return "d_head is not a multiple of 16";
    if (kv.d_head > 256) return "d_head is above 256";
    const int most = context_of(s).shared_bytes_a_block;
    return kernel_of(kv, most).shared_bytes <= most ? "" : "too little shared memory";
}

int segments_apart(const Caps& caps, const KvLayer& kv, int n_heads, int n_rows,
                   int last_position) {
    const Context& context = *static_cast<const Context*>(caps.kernels);
    const int n_pairs = kernel_of(kv, context.shared_bytes_a_block).n_pairs;
    const int n_tiles = tiles_of(n_rows, n_heads / kv.n_kv_heads, n_pairs);
    return segments_apart(context, {}, kv, n_heads, n_rows, n_tiles, last_position);
}

void prefill_attention(Step& s, Heads q, KvLayer kv, Heads out) {
    if (s.batch.has(RowClass::kPrompt)) attend_prompt_rows(s, q, kv, out);
    if (s.batch.has(RowClass::kDecode)) attend_decode_rows(s, q, kv, out);
}

}  // namespace ridge::cuda
