#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "cpu/attention.h"
#include "cpu/matmul_input.h"
#include "ref/host_kv.h"

namespace ridge::cpu {
namespace {

constexpr int64_t kQueriesOfBlock = 60;  // query rows of all heads that meet a tile at once, about

int64_t round_up(int64_t n, int64_t multiple) {
    return (n + multiple - 1) / multiple * multiple;
}

// Consecutive rows of one sequence.
struct QueryBlock {
    int32_t span, first_row, n_rows;
};

class PrefillAttention {
  public:
    PrefillAttention(Step& s, Heads q, const KvLayer& kv, Heads out)
        : s_(s),
          kernels_(kernels_of(s).attention),
          q_(q),
          kv_(kv),
          out_(out),
          d_(kv.d_head),
          group_(q.n_heads / kv.n_kv_heads),
          rows_of_block_(std::max<int64_t>(1, kQueriesOfBlock / group_)),
          max_queries_(round_up(rows_of_block_ * group_, kPromptTileRows)) {
        CHECK(q.n_heads % kv.n_kv_heads == 0);
        blocks_ = s.scratch(q.rows.n_rows, 4);
        room_ = s.scratch(s.pool.size(),
                          2 * kTilePositions * d_ + max_queries_ * (2 * d_ + kTilePositions + 3));
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

    // A thread's room, cut up.
    struct Room {
        float *k, *v, *q, *out, *weights, *highest, *sum;
        int32_t* visible;
    };
    Room room_of(int worker) const {
        Room room{};
        float* at = room_.row<float>(worker);
        auto take = [&](int64_t n) {
            at += n;
            return at - n;
        };
        room.k = take(kTilePositions * d_);
        room.v = take(kTilePositions * d_);
        room.q = take(max_queries_ * d_);
        room.out = take(max_queries_ * d_);
        room.weights = take(max_queries_ * kTilePositions);
        room.highest = take(max_queries_);
        room.sum = take(max_queries_);
        room.visible = reinterpret_cast<int32_t*>(take(max_queries_));
        return room;
    }

    // Queries scaled, padded with zeros to whole tiles of rows; nothing summed yet.
    void begin(const QueryBlock& block, int64_t head, int64_t n_queries, const Room& room) const {
        const auto scale = static_cast<float>(std::numbers::log2e / std::sqrt(double(d_)));
        for (int64_t r = 0; r < block.n_rows; r++) {
            const float* from = q_.head<float>(block.first_row + r, head * group_);
            float* to = room.q + r * group_ * d_;
            for (int64_t i = 0; i < group_ * d_; i++) to[i] = from[i] * scale;
        }
        std::fill(room.q + block.n_rows * group_ * d_, room.q + n_queries * d_, 0.0f);
        std::fill(room.out, room.out + n_queries * d_, 0.0f);
        std::fill(room.highest, room.highest + n_queries, -std::numeric_limits<float>::infinity());
        std::fill(room.sum, room.sum + n_queries, 0.0f);
        std::fill(room.visible, room.visible + n_queries, 0);
    }

    void attend(const QueryBlock& block, int64_t head, int worker) const {
        const Room room = room_of(worker);
        const KvView& view = s_.batch.spans[static_cast<size_t>(block.span)].kv;
        const int64_t n_queries = round_up(block.n_rows * group_, kPromptTileRows);
        begin(block, head, n_queries, room);
        int32_t last = -1;
        for (int64_t r = 0; r < block.n_rows; r++) last = std::max(last, position(block, r));
        for (int64_t first = 0; first <= last; first += kTilePositions) {
            int n_seen = 0;
            for (int64_t r = 0; r < block.n_rows; r++) {
                const auto n = static_cast<int32_t>(
                    std::clamp<int64_t>(position(block, r) + 1 - first, 0, kTilePositions));
                std::fill_n(room.visible + r * group_, group_, n);
                n_seen = std::max(n_seen, n);
            }
            const auto n_positions = static_cast<int>(round_up(n_seen, kHeadMultiple));
            const int64_t page = view.page(first / kTilePositions);
            const auto d = static_cast<int>(d_);
            kernels_.unpack_k[static_cast<size_t>(kv_.k_dtype)](
                reinterpret_cast<const uint8_t*>(host_k_tile(kv_, page, head)), d, n_positions,
                room.k);
            kernels_.unpack_v[static_cast<size_t>(kv_.v_dtype)](
                reinterpret_cast<const uint8_t*>(host_v_tile(kv_, page, head)), d, n_seen, room.v);
            kernels_.prompt_tile({room.q, room.k, room.v, room.visible, room.weights, room.highest,
                                  room.sum, room.out, n_queries, d_, n_positions});
        }
        finish(block, head, room);
    }

    void finish(const QueryBlock& block, int64_t head, const Room& room) const {
        for (int64_t r = 0; r < block.n_rows; r++) {
            for (int64_t h = 0; h < group_; h++) {
                const int64_t query = r * group_ + h;
                const float* from = room.out + query * d_;
                float* to = out_.head<float>(block.first_row + r, head * group_ + h);
                const float sum = position(block, r) < 0 ? 1.0f : room.sum[query];  // 1: zeros
                for (int64_t i = 0; i < d_; i++) to[i] = from[i] / sum;
            }
        }
    }

    Step& s_;
    const AttentionKernels& kernels_;
    Heads q_;
    KvLayer kv_;
    Heads out_;
    int64_t d_, group_, rows_of_block_, max_queries_;
    Rows blocks_, room_;
};

}  // namespace

// attend_prompt_rows: flash attention (Dao et al. 2022) over tiles of 64 positions from position 0
//   on, with an online softmax (Milakov and Gimelshein 2018) for each row and head. A row's result
//   depends on its own query and cache alone: not on the rows beside it, nor on where the prompt
//   was cut.
//   Threads share the pairs of a K/V head and a block of some 60 query rows, counting each of the
//   heads that share the K/V head: a tile is converted to f32 once for all of them, and both
//   products are blocked in registers. Tiles behind a block's last position are skipped, and of
//   its last tile all but 16 positions at most. Flops: 4 * d_head for each head, row and position
//   seen; bytes: the cache's K and V once for each block.
void attend_prompt_rows(Step& s, Heads q, KvLayer kv, Heads out) {
    ScratchScope scope(s.memory);
    PrefillAttention attention(s, q, kv, out);
    if (!s.planning) attention.run();
}

}  // namespace ridge::cpu
