#include <algorithm>
#include <cmath>
#include <numbers>

#include "cpu/attention.h"
#include "cpu/matmul_input.h"
#include "model/tuning.h"
#include "ref/host_kv.h"

namespace ridge::cpu {
namespace {

constexpr int64_t kBlockPages = kBlockPositions / kKvPagePositions;

int64_t blocks_of(int64_t n_positions) {
    return (n_positions + kBlockPositions - 1) / kBlockPositions;
}

// A decode row, and where its blocks are among those of its round.
struct DecodeRow {
    int32_t row, span, n_positions, first_block;
};

// The tiles of one block and some neighbouring K/V heads, as they lie in memory: page by page, of
// each its heads.
struct BlockTiles {
    const DecodeRow* row;
    const KvView* view;
    int64_t block, first_page, first_head;
    int n_positions, n_heads;

    int n_tiles() const { return (n_positions + kTilePositions - 1) / kTilePositions * n_heads; }
    int64_t head(int tile) const { return first_head + tile % n_heads; }
    int first_position(int tile) const { return tile / n_heads * kTilePositions; }
    const uint8_t* k(const KvLayer& kv, int tile) const {
        return reinterpret_cast<const uint8_t*>(host_k_tile(kv, page(tile), head(tile)));
    }
    const uint8_t* v(const KvLayer& kv, int tile) const {
        return reinterpret_cast<const uint8_t*>(host_v_tile(kv, page(tile), head(tile)));
    }

  private:
    int64_t page(int tile) const { return view->page(first_page + tile / n_heads); }
};

class DecodeAttention {
  public:
    DecodeAttention(Step& s, Heads q, const KvLayer& kv, Heads out)
        : s_(s),
          kernels_(kernels_of(s).attention),
          q_(q),
          kv_(kv),
          out_(out),
          d_(kv.d_head),
          heads_per_kv_(q.n_heads / kv.n_kv_heads),
          max_blocks_(blocks_of(kv.n_slots) + q.rows.n_rows) {
        CHECK(q.n_heads % kv.n_kv_heads == 0);
        rows_ = s.scratch(q.rows.n_rows, sizeof(DecodeRow) / sizeof(float));
        room_ = s.scratch(s.pool.size(), q.n_heads * (kBlockPositions + d_));
        sums_ = s.scratch(max_blocks_, q.n_heads * d_);
        highest_ = s.scratch(q.n_heads, max_blocks_);
        totals_ = s.scratch(q.n_heads, max_blocks_);
    }

    // Rows in rounds whose blocks fit: all at once, but where sequences share their pages.
    void run() {
        int64_t n_rows = 0, n_blocks = 0;
        const std::span<const SequenceSpan> spans = s_.batch.spans;
        for (size_t i = 0; i < spans.size(); i++) {
            if (spans[i].row_class != RowClass::kDecode) continue;
            for (int32_t row = spans[i].first_row; row < spans[i].first_row + spans[i].n_rows;
                 row++) {
                const int32_t n = s_.batch.positions[static_cast<size_t>(row)] + 1;
                CHECK(n <= kv_.n_slots);
                if (n_blocks + blocks_of(n) > max_blocks_) {
                    run_round(n_rows, n_blocks);
                    n_rows = n_blocks = 0;
                }
                decode_rows()[n_rows++] = {row, static_cast<int32_t>(i), n,
                                           static_cast<int32_t>(n_blocks)};
                n_blocks += blocks_of(n);
            }
        }
        run_round(n_rows, n_blocks);
    }

  private:
    DecodeRow* decode_rows() const { return reinterpret_cast<DecodeRow*>(rows_.row<float>(0)); }

    // An item is a block and as many heads as leave some items to every thread: the more heads, the
    // longer the stretches of memory that a thread reads.
    void run_round(int64_t n_rows, int64_t n_blocks) {
        const DecodeRow* rows = decode_rows();
        const AttentionTuning& tuning = tuning_of(
            s_, attention_call(RowClass::kDecode, blocks_class(n_blocks), q_.n_heads, kv_));
        const int64_t n_wanted = int64_t{tuning.thread_items} * s_.pool.size();
        const int64_t n_parts =
            std::clamp<int64_t>(n_wanted / std::max<int64_t>(1, n_blocks), 1, kv_.n_kv_heads);
        const int64_t n_heads = (kv_.n_kv_heads + n_parts - 1) / n_parts;
        const int64_t n_items = (kv_.n_kv_heads + n_heads - 1) / n_heads;  // of a block
        auto tiles_of = [&](const DecodeRow* row, int64_t item) {
            const int64_t block = item / n_items, head = item % n_items * n_heads;
            while (block >= row->first_block + blocks_of(row->n_positions)) row++;
            const int64_t index = block - row->first_block;
            const int64_t left = row->n_positions - index * kBlockPositions;
            return BlockTiles{row,
                              &s_.batch.spans[static_cast<size_t>(row->span)].kv,
                              block,
                              index * kBlockPages,
                              head,
                              static_cast<int>(std::min<int64_t>(left, kBlockPositions)),
                              static_cast<int>(std::min(n_heads, kv_.n_kv_heads - head))};
        };
        s_.pool.parallel_for(n_blocks * n_items, 1, [&](int64_t begin, int64_t end, int worker) {
            const DecodeRow* row = std::upper_bound(rows, rows + n_rows, begin / n_items,
                                                    [](int64_t block, const DecodeRow& r) {
                                                        return block < r.first_block;
                                                    }) -
                                   1;
            BlockTiles tiles = tiles_of(row, begin);
            for (int64_t item = begin; item < end; item++) {
                const bool last = item + 1 == end;
                const BlockTiles next = last ? tiles : tiles_of(tiles.row, item + 1);
                run_block(tiles, next.k(kv_, 0), room_.row<float>(worker));
                tiles = next;
            }
        });
        s_.pool.parallel_for(n_rows * q_.n_heads, kMergeGrain,
                             [&](int64_t begin, int64_t end, int) {
                                 for (int64_t i = begin; i < end; i++) {
                                     merge(rows[i / q_.n_heads], i % q_.n_heads);
                                 }
                             });
    }

    // The sums of one item. next: the tile of K that this thread reads after it.
    void run_block(const BlockTiles& tiles, const uint8_t* next, float* room) {
        const auto heads_per_kv = static_cast<int>(heads_per_kv_), d = static_cast<int>(d_);
        const int n_tiles = tiles.n_tiles();
        const int64_t first_head = tiles.first_head * heads_per_kv_,
                      n_heads = tiles.n_heads * heads_per_kv_;
        float *scores = room, *q = room + n_heads * kBlockPositions;
        const auto scale = static_cast<float>(std::numbers::log2e / std::sqrt(double(d_)));
        const float* from = q_.head<float>(tiles.row->row, first_head);
        for (int64_t i = 0; i < n_heads * d_; i++) q[i] = from[i] * scale;

        const auto score = kernels_.scores[static_cast<size_t>(kv_.k_dtype)];
        for (int t = 0; t < n_tiles; t++) {
            const int64_t h = (tiles.head(t) - tiles.first_head) * heads_per_kv_;
            score(tiles.k(kv_, t), d, q + h * d_, heads_per_kv,
                  t + 1 < n_tiles ? tiles.k(kv_, t + 1) : tiles.v(kv_, 0),
                  scores + h * kBlockPositions + tiles.first_position(t), kBlockPositions);
        }
        for (int64_t h = 0; h < n_heads; h++) {
            float& highest = highest_.row<float>(first_head + h)[tiles.block];
            totals_.row<float>(first_head + h)[tiles.block] =
                kernels_.exp_weights(scores + h * kBlockPositions, tiles.n_positions, &highest);
        }
        float* sums = sums_.row<float>(tiles.block) + first_head * d_;
        std::fill(sums, sums + n_heads * d_, 0.0f);
        const auto sum_values = kernels_.sum_values[static_cast<size_t>(kv_.v_dtype)];
        for (int t = 0; t < n_tiles; t++) {
            const int64_t h = (tiles.head(t) - tiles.first_head) * heads_per_kv_;
            const int first = tiles.first_position(t);
            sum_values(tiles.v(kv_, t), d, std::min(kTilePositions, tiles.n_positions - first),
                       scores + h * kBlockPositions + first, kBlockPositions, heads_per_kv,
                       t + 1 < n_tiles ? tiles.v(kv_, t + 1) : next, sums + h * d_);
        }
    }

    void merge(const DecodeRow& row, int64_t head) {
        float* out = out_.head<float>(row.row, head);
        if (row.n_positions == 0) {  // a masked row
            std::fill(out, out + d_, 0.0f);
            return;
        }
        kernels_.merge_blocks(sums_.row<float>(row.first_block) + head * d_, sums_.stride,
                              highest_.row<float>(head) + row.first_block,
                              totals_.row<float>(head) + row.first_block,
                              blocks_of(row.n_positions), d_, out);
    }

    static constexpr int64_t kMergeGrain = 16;  // heads

    Step& s_;
    const AttentionKernels& kernels_;
    Heads q_;
    KvLayer kv_;
    Heads out_;
    int64_t d_, heads_per_kv_, max_blocks_;
    Rows rows_, room_, sums_, highest_, totals_;
};

bool has_class(const Batch& batch, RowClass row_class) {
    return std::any_of(batch.spans.begin(), batch.spans.end(),
                       [&](const SequenceSpan& span) { return span.row_class == row_class; });
}

}  // namespace

std::string_view unfit_for_attention(const Step& s, const Heads& q, const KvLayer& kv,
                                     const Heads&) {
    return unfit_for_append(s, q, q, kv);
}

// attend_decode_rows: flash decoding (Dao et al. 2023) over blocks of 256 positions from position
//   0 on: of each block and head the largest score, the sum of weights and the weighted sum of V,
//   then the blocks of a row merged in order. A row's result depends on its own cache alone.
//   Threads share the pairs of block and K/V heads, which they read as they lie in memory; the
//   heads that share a K/V head read its tiles together, converted in registers. Bytes: the cache's
//   K and V once; 2 * 2 * n_heads * d_head flops a position.
void attend_decode_rows(Step& s, Heads q, KvLayer kv, Heads out) {
    ScratchScope scope(s.memory);
    DecodeAttention attention(s, q, kv, out);
    if (!s.planning) attention.run();
}

void decode_attention(Step& s, Heads q, KvLayer kv, Heads out) {
    if (has_class(s.batch, RowClass::kDecode)) attend_decode_rows(s, q, kv, out);
    // Prompts one by one: what is below sees each as a batch of its own.
    for (const SequenceSpan& span : s.batch.spans) {
        if (span.row_class != RowClass::kPrompt) continue;
        const auto first = static_cast<size_t>(span.first_row);
        const auto n = static_cast<size_t>(span.n_rows);
        SequenceSpan alone = span;
        alone.first_row = 0;
        const Batch batch{s.batch.tokens.subspan(first, n),
                          s.batch.positions.subspan(first, n),
                          s.batch.slots.subspan(first, n),
                          {&alone, 1},
                          {},
                          {}};
        Step step{s.tables, s.ops,    s.stages, s.config,  s.rope_table,
                  batch,    s.memory, s.pool,   s.planning};
        step.fallbacks = s.fallbacks;
        ScratchScope scope(s.memory);
        const Heads q_rows(q.rows.slice(span.first_row, span.n_rows), q.n_heads, q.d_head);
        const Heads out_rows(out.rows.slice(span.first_row, span.n_rows), q.n_heads, q.d_head);
        s.ops.attention.below("decode_attention", step, q_rows, kv, out_rows);
    }
}

void prefill_attention(Step& s, Heads q, KvLayer kv, Heads out) {
    if (has_class(s.batch, RowClass::kDecode)) attend_decode_rows(s, q, kv, out);
    if (has_class(s.batch, RowClass::kPrompt)) attend_prompt_rows(s, q, kv, out);
}

}  // namespace ridge::cpu
