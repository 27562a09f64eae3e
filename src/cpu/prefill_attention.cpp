#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "base/checked_math.h"
#include "cpu/attention.h"
#include "cpu/matmul_input.h"
#include "model/tuning.h"
#include "ref/host_kv.h"

namespace ridge::cpu {
namespace {

// Consecutive rows of one sequence.
struct QueryBlock {
    int32_t span, first_row, n_rows;
};

const PromptUnit& unit_of(const Kernels& kernels, const KvLayer& kv) {
    return rounds_to_bf16(kernels, kv) ? kernels.attention.prompt_bf16
                                       : kernels.attention.prompt_f32;
}

class PrefillAttention {
  public:
    PrefillAttention(Step& s, Heads q, const KvLayer& kv, Heads out)
        : s_(s),
          unit_(unit_of(kernels_of(s), kv)),
          q_(q),
          kv_(kv),
          out_(out),
          d_(kv.d_head),
          heads_per_kv_(q.n_heads / kv.n_kv_heads),
          depth_(round_up(d_, kPromptDepth)),
          rows_of_block_(rows_of_block(rows_class_of_cpu(RowClass::kPrompt, q.rows.n_rows))),
          max_queries_(round_up(
              std::max(rows_of_block(kFewPrompts), rows_of_block(kManyPrompts)) * heads_per_kv_,
              unit_.tile_rows)) {
        CHECK(q.n_heads % kv.n_kv_heads == 0);
        blocks_ = s.scratch(q.rows.n_rows, 4);
        Room room{};
        room_ = s.scratch(s.pool.size(), cut_room(nullptr, room));
    }

    // Threads share the pairs of query block and K/V head, those that see most first.
    void run() {
        const int64_t n_blocks = list_blocks();
        const QueryBlock* blocks = query_blocks();
        s_.pool.parallel_for(n_blocks * kv_.n_kv_heads, 1,
                             [&](int64_t begin, int64_t end, int worker) {
                                 for (int64_t i = begin; i < end; i++) {
                                     attend(blocks[i / kv_.n_kv_heads], i % kv_.n_kv_heads, worker);
                                 }
                             });
    }

  private:
    // Of prompts of few rows, and of more: memory is planned for both.
    int64_t rows_of_block(int size) const {
        const int chosen =
            tuning_of(s_, attention_call(RowClass::kPrompt, size, q_.n_heads, kv_)).block_rows;
        return std::max<int64_t>(1, (chosen > 0 ? chosen : unit_.block_rows) / heads_per_kv_);
    }
    static_assert(sizeof(QueryBlock) <= 4 * sizeof(float));
    QueryBlock* query_blocks() const {
        return reinterpret_cast<QueryBlock*>(blocks_.row<float>(0));
    }

    int64_t list_blocks() const {
        int64_t n = 0;
        const std::span<const SequenceSpan> spans = s_.batch.spans;
        for (size_t i = 0; i < spans.size(); i++) {
            if (spans[i].row_class != RowClass::kPrompt) continue;
            const int32_t last = spans[i].first_row + spans[i].n_rows - 1;
            CHECK(s_.batch.positions[static_cast<size_t>(last)] < kv_.n_slots);
            for (int64_t end = spans[i].n_rows; end > 0; end -= rows_of_block_) {
                const int64_t first = std::max<int64_t>(0, end - rows_of_block_);
                query_blocks()[n++] = {static_cast<int32_t>(i),
                                       static_cast<int32_t>(spans[i].first_row + first),
                                       static_cast<int32_t>(end - first)};
            }
        }
        return n;
    }

    int32_t position(const QueryBlock& block, int64_t row) const {
        return s_.batch.positions[static_cast<size_t>(block.first_row + row)];
    }

    // A thread's room, cut up: operands as large as they are in float32.
    struct Room {
        float *k, *v, *finite_v, *q, *out, *scores, *weights, *highest, *sum;
        int32_t* visible;
    };
    int64_t cut_room(float* at, Room& room) const {
        int64_t used = 0;
        auto take = [&](float*& part, int64_t n) {
            if (at != nullptr) part = at + used;
            used += round_up(n, kLineFloats);
        };
        take(room.k, kTilePositions * depth_);
        take(room.v, kTilePositions * d_);
        take(room.finite_v, kTilePositions * d_);
        take(room.q, max_queries_ * depth_);
        take(room.out, max_queries_ * d_);
        take(room.scores, kPromptRows * kTilePositions);
        take(room.weights, kPromptRows * kTilePositions);
        take(room.highest, max_queries_);
        take(room.sum, max_queries_ * kPromptSumLanes);
        float* visible = nullptr;
        take(visible, max_queries_);
        room.visible = reinterpret_cast<int32_t*>(visible);
        return used;
    }

    // Queries scaled; nothing summed yet. Those that pad the last tile of rows see nothing.
    void begin(const QueryBlock& block, int64_t head, int64_t n_queries, const Room& room) const {
        const auto scale = static_cast<float>(std::numbers::log2e / std::sqrt(double(d_)));
        for (int64_t query = 0; query < block.n_rows * heads_per_kv_; query++) {
            const int64_t row = block.first_row + query / heads_per_kv_;
            unit_.set_query(q_.head<float>(row, head * heads_per_kv_ + query % heads_per_kv_),
                            scale, static_cast<int>(d_), query, room.q);
        }
        std::fill(room.out, room.out + n_queries * d_, 0.0f);
        std::fill(room.highest, room.highest + n_queries, -std::numeric_limits<float>::infinity());
        std::fill(room.sum, room.sum + n_queries * kPromptSumLanes, 0.0f);
        std::fill(room.visible, room.visible + n_queries, 0);
    }

    void attend(const QueryBlock& block, int64_t head, int worker) const {
        Room room{};
        cut_room(room_.row<float>(worker), room);
        const KvView& view = s_.batch.spans[static_cast<size_t>(block.span)].kv;
        const int64_t n_queries = round_up(block.n_rows * heads_per_kv_, unit_.tile_rows);
        begin(block, head, n_queries, room);
        int32_t last = -1;
        for (int64_t r = 0; r < block.n_rows; r++) last = std::max(last, position(block, r));
        for (int64_t first = 0; first <= last; first += kTilePositions) {
            int most = 0, least = kTilePositions;
            for (int64_t r = 0; r < block.n_rows; r++) {
                const auto n = static_cast<int32_t>(
                    std::clamp<int64_t>(position(block, r) + 1 - first, 0, kTilePositions));
                std::fill_n(room.visible + r * heads_per_kv_, heads_per_kv_, n);
                most = std::max(most, n);
                if (position(block, r) >= 0) least = std::min(least, n);
            }
            const int64_t page = view.page(first / kTilePositions);
            const auto d = static_cast<int>(d_);
            unit_.unpack_k[static_cast<size_t>(kv_.k_dtype)](
                reinterpret_cast<const uint8_t*>(host_k_tile(kv_, page, head)), d,
                static_cast<int>(round_up(most, unit_.positions)), room.k);
            unit_.unpack_v[static_cast<size_t>(kv_.v_dtype)](
                reinterpret_cast<const uint8_t*>(host_v_tile(kv_, page, head)), d, most, room.v);
            const bool hidden =
                least < most && unit_.hide_nonfinite(room.v, d, most, room.finite_v);
            unit_.attend({room.q, room.k, hidden ? room.finite_v : room.v,
                          hidden ? room.v : nullptr, room.visible, room.highest, room.sum, room.out,
                          room.scores, room.weights, n_queries, d});
        }
        finish(block, head, room);
    }

    void finish(const QueryBlock& block, int64_t head, const Room& room) const {
        for (int64_t query = 0; query < block.n_rows * heads_per_kv_; query++) {
            const int64_t r = query / heads_per_kv_;
            float* to =
                out_.head<float>(block.first_row + r, head * heads_per_kv_ + query % heads_per_kv_);
            if (position(block, r) < 0) {
                std::fill(to, to + d_, 0.0f);
                continue;
            }
            const float *from = room.out + query * d_, *sums = room.sum + query * kPromptSumLanes;
            float sum = 0;
            for (int i = 0; i < kPromptSumLanes; i++) sum += sums[i];
            for (int64_t i = 0; i < d_; i++) to[i] = from[i] / sum;
        }
    }

    static constexpr int64_t kLineFloats = 16;

    Step& s_;
    const PromptUnit& unit_;
    Heads q_;
    KvLayer kv_;
    Heads out_;
    int64_t d_, heads_per_kv_, depth_, rows_of_block_, max_queries_;
    Rows blocks_, room_;
};

}  // namespace

bool rounds_to_bf16(const Kernels& kernels, const KvLayer& kv) {
    return kernels.attention.prompt_bf16.attend != nullptr && !kv.exact &&
           kv.k_dtype != DType::kF32 && kv.v_dtype != DType::kF32;
}

// attend_prompt_rows: flash attention (Dao et al. 2022) over tiles of 64 positions from position 0
//   on, with an online softmax (Milakov and Gimelshein 2018) for each row and head. A row's result
//   depends on its own query and cache alone: not on the rows beside it, nor on where the prompt
//   was cut.
//   Threads share the pairs of a K/V head and a block of query rows, PromptUnit::block_rows or so,
//   counting each of the heads that share the K/V head: a tile is converted to the unit's operands
//   once for all of them, and both products are blocked in registers. Tiles behind a block's last
//   position are skipped, and what is behind it in its last tile, up to a multiple of
//   PromptUnit::positions. Flops: 4 * d_head for each head, row and position seen; bytes: the
//   cache's K and V once for each block.
void attend_prompt_rows(Step& s, Heads q, KvLayer kv, Heads out) {
    ScratchScope scope(s.memory);
    PrefillAttention attention(s, q, kv, out);
    if (!s.planning) attention.run();
}

}  // namespace ridge::cpu
