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

// A prompt's query rows against one tile: heads_per_kv rows, the heads that share the K/V head, of
// each of n_rows / heads_per_kv positions.
// Two units multiply them, float32 and bf16; `depth` is d_head rounded up to 32.
//
//             float32                   bf16, in pairs along what is summed over
//   q         [n_rows, d_head]          [n_rows, depth], zeros behind d_head
//   k         [d_head, 64]              [depth / 2][64][2], zeros behind d_head
//   v         [64, d_head]              [32][d_head][2]
//   weights   [kPromptRows, 64] room    [kPromptRows, 64] room
//
// What a row does not see contributes nothing, whatever it is.
constexpr int kPromptRows = 64;  // that are multiplied at a time, at the most
constexpr int kPromptSumLanes = 16;
constexpr int kPromptDepth = 32;
struct PromptTile {
    const void *q, *k, *v;
    // v is finite where some row does not see all positions that another sees: elements that are
    // not are 0 there, and this is v with them. Else null.
    const void* nonfinite_v;
    const int32_t* visible;  // [n_rows] how many of the tile's positions the row sees, 0 .. 64
    float* highest;          // [n_rows] an integer, at least the largest score so far
    float* sum;              // [n_rows, 16] of exp2(score - highest), in lanes
    float* out;              // [n_rows, d_head] sum of exp2(score - highest) V
    float* scores;           // [kPromptRows, 64] room
    void* weights;
    int64_t n_rows;  // a multiple of the unit's tile_rows; the rows of padding see nothing
    int d_head;
};

// What multiplies prompts.
struct PromptUnit {
    int tile_rows;   // rows are there in multiples of this
    int block_rows;  // that should meet a tile that was unpacked, about
    int positions;   // of v beyond those that are seen are zeros up to a multiple of this
    // Row `row` of q = x * scale, rounded as the unit's operands are. x [d_head]
    void (*set_query)(const float* x, float scale, int d_head, int64_t row, void* q);
    // One tile of the cache to the unit's operands: n_positions of it, and zeros in v up to the
    // next multiple of `positions`; k may hold anything there.
    void (*unpack_k[kNumKvTypes])(const uint8_t* k_tile, int d_head, int n_positions, void* k);
    void (*unpack_v[kNumKvTypes])(const uint8_t* v_tile, int d_head, int n_positions, void* v);
    // Whether n_positions of v hold anything but finite numbers: if so, finite is v with zeros in
    // their place.
    bool (*hide_nonfinite)(const void* v, int d_head, int n_positions, void* finite);
    // Scores of the tile, weights, and their sum of values; what was summed before is brought to
    // the new highest score.
    void (*attend)(const PromptTile& tile);
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

    PromptUnit prompt_f32;
    PromptUnit prompt_bf16;  // attend: null where the machine multiplies no bf16

    // x [d_head] f32 into one position of a tile, rounded as ref/host_kv.h says.
    void (*store_k[kNumKvTypes])(const float* x, int d_head, int position, uint8_t* k_tile);
    void (*store_v[kNumKvTypes])(const float* x, int d_head, int position, uint8_t* v_tile);
};

}  // namespace ridge::cpu
