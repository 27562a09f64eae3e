#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/checked_math.h"
#include "cuda/check.h"
#include "cuda/decode_attention.h"
#include "cuda/device/decode_kernel.cuh"
#include "model/step.h"

namespace ridge::cuda {
namespace {

using namespace decode;

// More warps where a unit is small, so that as much is on its way.
template <DType type, int kHeads>
Kernel kernel_of_type(int d) {
    if (d == 64) return kernel_of_shape<TensorShape<64, type, kHeads, 8>>(d);
    if (d == 128) return kernel_of_shape<TensorShape<128, type, kHeads, 4>>(d);
    return kernel_of_any_head(type, kHeads, d);
}
template <int kHeads>
Kernel kernel_of(const Context& c, const KvLayer& kv) {
    const int d = kv.d_head;
    Kernel kernel{};
    if (kv.k_dtype == kv.v_dtype && d % 16 == 0) {
        if (kv.k_dtype == DType::kF16) kernel = kernel_of_type<DType::kF16, kHeads>(d);
        if (kv.k_dtype == DType::kBF16) kernel = kernel_of_type<DType::kBF16, kHeads>(d);
        if (kv.k_dtype == DType::kQ8_0) kernel = kernel_of_type<DType::kQ8_0, kHeads>(d);
    }
    // Units of long heads take more than some devices have.
    const bool fits = kernel.run != nullptr && kernel.shared_bytes <= c.shared_bytes_a_block;
    return fits ? kernel : kernel_of_shape<AnyShape<kHeads>>(d);
}

// How query heads are grouped: turns of at most kMostGroup, as even as can be.
struct Groups {
    int heads_per_kv, n_turns, heads_at_once;

    Groups(int64_t n_heads, const KvLayer& kv)
        : heads_per_kv(static_cast<int>(n_heads / kv.n_kv_heads)),
          n_turns(ceil_div(heads_per_kv, kMostGroup)),
          heads_at_once(ceil_div(heads_per_kv, n_turns)) {}
};

class DecodeAttention {
  public:
    // fresh: q is not there yet, but what it is made of.
    DecodeAttention(Step& s, Heads q, const KvLayer& kv, Heads out, const FreshRows& fresh = {})
        : context_(context_of(s)), args_(kv) {
        const Groups groups(q.n_heads, kv);
        kernel_ =
            groups.heads_at_once <= 4 ? kernel_of<4>(context_, kv) : kernel_of<8>(context_, kv);
        args_.fresh = fresh;
        const int n_head_groups = kv.n_kv_heads * groups.n_turns;
        most_rows_ = static_cast<int>(
            std::min<int64_t>(q.rows.n_rows, std::clamp(kArrivals / n_head_groups, 1, kMostRows)));
        args_.cut = block_cut(kernel_.n_threads / 32 * kUnit, n_head_groups);
        args_.most_blocks = args_.cut.most_blocks(kv.n_slots);
        const int64_t n_parts = int64_t{most_rows_} * n_head_groups * args_.most_blocks;
        const Rows sums = s.scratch(n_parts, int64_t{groups.heads_at_once} * kv.d_head);
        const Rows states = s.scratch(n_parts, 2 * groups.heads_at_once);
        if (s.planning) return;
        args_.q = device_rows<const float>(q.rows), args_.q_stride = q.rows.stride;
        args_.out = device_rows<float>(out.rows), args_.out_stride = out.rows.stride;
        const Mirror& mirror = context_.mirror;
        args_.positions = mirror.positions, args_.sequence_of_row = mirror.sequence_of_row;
        args_.pages = mirror.pages, args_.sequences = mirror.sequences;
        args_.heads_per_kv = groups.heads_per_kv, args_.n_turns = groups.n_turns;
        args_.heads_at_once = groups.heads_at_once;
        args_.scale = static_cast<float>(std::numbers::log2e / std::sqrt(double(kv.d_head)));
        args_.sums = reinterpret_cast<float4*>(device_rows<float>(sums));
        args_.states = reinterpret_cast<float2*>(device_rows<float>(states));
        args_.arrivals = context_.arrivals;
        check(cudaFuncSetAttribute(kernel_.run, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                   kernel_.shared_bytes),
              "decode attention: shared memory");
        divide_memory_alike(kernel_.run, "decode attention");
    }

    // Rows first to end of the batch, which are of class decode. As many blocks as run at once, or
    // one for each head group: their number is nothing to the results.
    void run(int first, int end) {
        const int blocks_an_sm = std::clamp(
            context_.shared_bytes_an_sm / 100 * kDecodeCarveout / (kernel_.shared_bytes + 1024), 1,
            kernel_.blocks_an_sm);
        const int n_at_once = context_.n_sms * blocks_an_sm;
        for (; first < end; first += most_rows_) {
            args_.first_row = first, args_.n_rows = std::min(most_rows_, end - first);
            const int most_items = args_.n_rows * args_.most_blocks;
            const int n = std::clamp(n_at_once / args_.n_head_groups(), 1, most_items);
            const dim3 grid(static_cast<unsigned>(args_.kv.n_kv_heads), static_cast<unsigned>(n),
                            static_cast<unsigned>(args_.n_turns));
            launch_dependent(context_, kernel_.run, grid, static_cast<unsigned>(kernel_.n_threads),
                             static_cast<size_t>(kernel_.shared_bytes), "decode attention", args_);
        }
    }

  private:
    const Context& context_;
    Kernel kernel_{};
    DecodeRows args_;
    int most_rows_ = 0;
};

}  // namespace

std::string_view unfit_for_decode_attention(const Step&, const Heads& q, const KvLayer& kv,
                                            const Heads&) {
    static_assert(kArrivals == 4096);
    if (q.n_heads > kArrivals) return "there are more than 4,096 heads";
    if (kv.d_head % 8 != 0) return "d_head is not a multiple of 8";
    return kv.d_head <= kMostHead ? "" : "d_head is above 256";
}

// attend_decode_rows: flash decoding (Dao et al. 2023) over blocks of positions
//   (cuda/attention_blocks.h), with an online softmax in each.
//   The grid fills the device, whatever the positions are: [n_kv_heads][any][n_turns] blocks of 4
//   or 8 warps find on the device which blocks of which rows there are, and take them in turns
//   (Item). A warp takes units of 32 positions, every fourth or eighth of the item's, whose K and V
//   come by asynchronous copies (Feed) and are multiplied with up to 8 query heads on tensor units
//   (Units): queries and weights are two numbers of 16 bits each, sums are f32. Other pairs of
//   types, and d_head that is no multiple of 16, go without tensor units, in f32. Of fresh rows
//   (DecodeRows::fresh) copies begin before the kernel waits for the projections, as older
//   positions are no kernel's product since the step began; the newest position is put into its
//   unit. The warps' sums are added in order; of rows with more than one block the last to finish
//   adds all blocks' in order.
//   Bytes: the cache's K and V once, and for each block and query head d_head + 2 f32 written and
//   read. Flops: 4 d_head for each query head and position, on tensor units 16 d_head for each K/V
//   head, or 32 with more than four query heads.
void attend_decode_rows(Step& s, Heads q, KvLayer kv, Heads out) {
    CHECK(q.n_heads % kv.n_kv_heads == 0 && q.d_head == kv.d_head && out.n_heads == q.n_heads);
    CHECK(q.rows.n_rows == s.batch.n_rows() && out.rows.n_rows == q.rows.n_rows);
    ScratchScope scope(s.memory);  // kernels run in the stream's order
    DecodeAttention attention(s, q, kv, out);
    if (s.planning) return;
    const std::span<const SequenceSpan> spans = s.batch.spans;
    for (size_t i = 0; i < spans.size(); i++) {
        if (spans[i].row_class != RowClass::kDecode) continue;
        const int first = spans[i].first_row;
        int end = first + spans[i].n_rows;
        while (i + 1 < spans.size() && spans[i + 1].row_class == RowClass::kDecode) {
            end += spans[++i].n_rows;
        }
        attention.run(first, end);
    }
}

void attend_fresh_rows(Step& s, const Layer& layer, Rows qkv, KvLayer kv, Rows out) {
    const Config& config = s.config;
    const Context& c = context_of(s);
    FreshRows fresh;
    if (!s.planning) {
        fresh.qkv = device_rows<const float>(qkv), fresh.stride = qkv.stride;
        if (config.qk_norm) {
            fresh.q_norm = device_plane<const float>(layer.q_norm);
            fresh.k_norm = device_plane<const float>(layer.k_norm);
        }
        fresh.eps = config.norm_eps, fresh.n_heads = config.n_heads;
        fresh.slots = c.mirror.slots, fresh.frequency = c.mirror.rope_frequency;
        fresh.n_pairs = static_cast<int>(s.rope_table.frequency.size());
        fresh.half_split = s.rope_table.style == RopeStyle::kHalfSplit;
        CHECK(fresh.n_pairs <= kMostPairs);
    }
    ScratchScope scope(s.memory);
    DecodeAttention attention(s, Heads(qkv.cols(0, config.d_q()), config.n_heads, config.d_head),
                              kv, Heads(out, config.n_heads, config.d_head), fresh);
    if (!s.planning) attention.run(0, static_cast<int>(qkv.n_rows));
}

void decode_attention(Step& s, Heads q, KvLayer kv, Heads out) {
    if (s.batch.has(RowClass::kPrompt)) {
        // All rows: kernels below find a row's data by its place in the batch.
        ScratchScope scope(s.memory);
        s.ops.attention.below("decode_attention", s, q, kv, out);
    }
    if (s.batch.has(RowClass::kDecode)) attend_decode_rows(s, q, kv, out);
}

}  // namespace ridge::cuda
