#pragma once

#include <cstdint>

namespace ridge::cpu {

// The functions of attention and of its cache that are written once for each instruction set: a
// part of Kernels (kernels.h). Pointers and integers alone, as there. Tiles of the cache lie as
// ref/host_kv.h says: K [d_head][64], V [64][d_head]; d_head is a multiple of kHeadMultiple.

constexpr int kTilePositions = 64;  // kKvPagePositions
constexpr int kHeadMultiple = 16;
constexpr int kNumKvTypes = 4;        // in the order of DType: f32, f16, bf16, q8_0
constexpr int kBlockPositions = 256;  // decode: positions that share a maximum

// A prompt's query rows against one tile: the rows of n_rows / group positions, group heads each.
// n_rows is a multiple of kPromptTileRows; the rows of padding see nothing.
constexpr int kPromptTileRows = 6;
struct PromptTile {
    const float* q;          // [n_rows, d_head], scaled so that exp2 of a score is its weight
    const float* k;          // [d_head, 64] f32
    const float* v;          // [64, d_head] f32, zeros where no row sees a position
    const int32_t* visible;  // [n_rows] how many of the tile's positions the row sees, 0 .. 64
    float* weights;          // [n_rows, 64] room
    float* highest;          // [n_rows] largest score so far
    float* sum;              // [n_rows] of exp2(score - highest)
    float* out;              // [n_rows, d_head] sum of exp2(score - highest) V
    int64_t n_rows, d_head;
    int n_positions;  // of the tile that are looked at: a multiple of 16, at least every visible
};

struct AttentionKernels {
    // scores[h, p] = sum_d q[h, d] * K[d, p]     all 64 positions; d in order
    //   q [n_heads, d_head], scores [n_heads, score_stride]; next: the tile that is read after this
    //   one, which is fetched into the cache meanwhile
    void (*scores[kNumKvTypes])(const uint8_t* k_tile, int d_head, const float* q, int n_heads,
                                const uint8_t* next, float* scores, int64_t score_stride);
    // out[h, d] += sum_p weights[h, p] * V[p, d]     positions 0 .. n_positions, in order
    //   weights [n_heads, weight_stride], out [n_heads, d_head]
    void (*sum_values[kNumKvTypes])(const uint8_t* v_tile, int d_head, int n_positions,
                                    const float* weights, int64_t weight_stride, int n_heads,
                                    const uint8_t* next, float* out);
    // x[i] = exp2(x[i] - highest), highest = max x; returns the sum. n at most kBlockPositions;
    // x has room for n rounded up to 16, and zeros there afterwards.
    float (*exp_weights)(float* x, int n, float* highest);
    // out[d] = sum_b exp2(highest[b] - max) sums[b, d] / sum_b exp2(highest[b] - max) total[b]
    //   sums [n_blocks, sum_stride], highest and total [n_blocks], b in order
    void (*merge_blocks)(const float* sums, int64_t sum_stride, const float* highest,
                         const float* total, int64_t n_blocks, int64_t d_head, float* out);

    // One tile to float32. k_out [d_head, 64]: n_positions, a multiple of 16, of each d; v_out
    // [64, d_head]: n_positions, and zeros up to the next multiple of 16.
    void (*unpack_k[kNumKvTypes])(const uint8_t* k_tile, int d_head, int n_positions, float* k_out);
    void (*unpack_v[kNumKvTypes])(const uint8_t* v_tile, int d_head, int n_positions, float* v_out);
    // Scores of the tile, weights, and their sum of values, with what was summed before brought to
    // the new highest score.
    void (*prompt_tile)(const PromptTile& tile);

    // x [d_head] f32 into one position of a tile, rounded as ref/host_kv.h says.
    void (*store_k[kNumKvTypes])(const float* x, int d_head, int position, uint8_t* k_tile);
    void (*store_v[kNumKvTypes])(const float* x, int d_head, int position, uint8_t* v_tile);
};

}  // namespace ridge::cpu
