#include <algorithm>
#include <cmath>
#include <numbers>

#include "cpu/attention.h"
#include "cpu/matmul_input.h"
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

// The tiles of one block and head: K's in order, then V's.
struct BlockTiles {
    const KvView* view;
    int64_t head, first_page;
    int n_positions;

    int n_tiles() const { return (n_positions + kTilePositions - 1) / kTilePositions; }
    const uint8_t* k(const KvLayer& kv, int tile) const {
        return reinterpret_cast<const uint8_t*>(
            host_k_tile(kv, view->page(first_page + tile), head));
    }
    const uint8_t* v(const KvLayer& kv, int tile) const {
        return reinterpret_cast<const uint8_t*>(
            host_v_tile(kv, view->page(first_page + tile), head));
    }
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
          group_(q.n_heads / kv.n_kv_heads),
          max_blocks_(blocks_of(kv.n_slots) + q.rows.n_rows) {
        CHECK(q.n_heads % kv.n_kv_heads == 0);
        rows_ = s.scratch(q.rows.n_rows, sizeof(DecodeRow) / sizeof(float));
        room_ = s.scratch(s.pool.size(), group_ * (kBlockPositions + d_));
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

    void run_round(int64_t n_rows, int64_t n_blocks) {
        const DecodeRow* rows = decode_rows();
        s_.pool.parallel_for(
            n_blocks * kv_.n_kv_heads, 1, [&](int64_t begin, int64_t end, int worker) {
                const DecodeRow* row = std::upper_bound(rows, rows + n_rows, begin / kv_.n_kv_heads,
                                                        [](int64_t block, const DecodeRow& r) {
                                                            return block < r.first_block;
                                                        }) -
                                       1;
                for (int64_t item = begin; item < end; item++) {
                    const BlockTiles tiles = tiles_of(row, item);
                    const DecodeRow* now = row;
                    const uint8_t* next =
                        item + 1 < end ? tiles_of(row, item + 1).k(kv_, 0) : nullptr;
                    run_block(*now, item / kv_.n_kv_heads, tiles, next, room_.row<float>(worker));
                }
            });
        s_.pool.parallel_for(n_rows * q_.n_heads, kMergeGrain,
                             [&](int64_t begin, int64_t end, int) {
                                 for (int64_t i = begin; i < end; i++) {
                                     merge(rows[i / q_.n_heads], i % q_.n_heads);
                                 }
                             });
    }

    // Of an item, which is in `row` or in a later one, to which it is moved.
    BlockTiles tiles_of(const DecodeRow*& row, int64_t item) const {
        const int64_t block = item / kv_.n_kv_heads;
        while (block >= row->first_block + blocks_of(row->n_positions)) row++;
        const int64_t index = block - row->first_block;
        const int64_t left = row->n_positions - index * kBlockPositions;
        return {&s_.batch.spans[static_cast<size_t>(row->span)].kv, item % kv_.n_kv_heads,
                index * kBlockPages, static_cast<int>(std::min<int64_t>(left, kBlockPositions))};
    }

    Ahead ahead(const uint8_t* next, DType dtype, int steps) const {
        const int64_t lines = host_kv_tile_bytes(dtype, d_) / 64;
        return {next, static_cast<int>((lines + steps - 1) / steps)};
    }

    // The block's sums for the heads that share the K/V head. next: the tile of K that this thread
    // reads after it, or null.
    void run_block(const DecodeRow& row, int64_t block, const BlockTiles& tiles,
                   const uint8_t* next, float* room) {
        const auto group = static_cast<int>(group_);
        const int n_tiles = tiles.n_tiles(), d = static_cast<int>(d_);
        const int64_t first_head = tiles.head * group_;
        float *scores = room, *q = room + group_ * kBlockPositions;
        const auto scale = static_cast<float>(std::numbers::log2e / std::sqrt(double(d_)));
        const float* from = q_.head<float>(row.row, first_head);
        for (int64_t i = 0; i < group_ * d_; i++) q[i] = from[i] * scale;

        for (int t = 0; t < n_tiles; t++) {
            const Ahead then = t + 1 < n_tiles ? ahead(tiles.k(kv_, t + 1), kv_.k_dtype, d)
                                               : ahead(tiles.v(kv_, 0), kv_.v_dtype, d);
            kernels_.scores[static_cast<size_t>(kv_.k_dtype)](
                tiles.k(kv_, t), d, q, group, then, scores + t * kTilePositions, kBlockPositions);
        }
        for (int64_t h = 0; h < group_; h++) {
            float& highest = highest_.row<float>(first_head + h)[block];
            totals_.row<float>(first_head + h)[block] =
                kernels_.exp_weights(scores + h * kBlockPositions, tiles.n_positions, &highest);
        }
        float* sums = sums_.row<float>(block) + first_head * d_;
        std::fill(sums, sums + group_ * d_, 0.0f);
        for (int t = 0; t < n_tiles; t++) {
            const int n = std::min(kTilePositions, tiles.n_positions - t * kTilePositions);
            Ahead then{tiles.v(kv_, t), 0};
            if (t + 1 < n_tiles) {
                then = ahead(tiles.v(kv_, t + 1), kv_.v_dtype, n);
            } else if (next != nullptr) {
                then = ahead(next, kv_.k_dtype, n);
            }
            kernels_.sum_values[static_cast<size_t>(kv_.v_dtype)](
                tiles.v(kv_, t), d, n, scores + t * kTilePositions, kBlockPositions, group, then,
                sums);
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
    int64_t d_, group_, max_blocks_;
    Rows rows_, room_, sums_, highest_, totals_;
};

bool has_class(const Batch& batch, RowClass row_class) {
    return std::any_of(batch.spans.begin(), batch.spans.end(),
                       [&](const SequenceSpan& span) { return span.row_class == row_class; });
}

}  // namespace

bool attention_fits(const Step&, const Heads&, const KvLayer& kv, const Heads&) {
    return kv.d_head % kHeadMultiple == 0;
}

// attend_decode_rows: flash decoding (Dao et al. 2023) over blocks of 256 positions from position
//   0 on: of each block and head the largest score, the sum of weights and the weighted sum of V,
//   then the blocks of a row merged in order. A row's result depends on its own cache alone.
//   Threads share the pairs of block and K/V head; the heads that share it read its tiles together,
//   a tile of K and a tile of V being converted in registers and the next one being fetched
//   meanwhile. Bytes: the cache's K and V once; 2 * 2 * n_heads * d_head flops a position.
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
