#pragma once

#include <cstdint>
#include <span>

#include "cpu/kernels.h"

namespace ridge::cpu {

// Prompts on tile registers: panels of 32 weight rows, several at a time, so that a part of the
// input that fits in the second cache is multiplied with all of them while it is there.

// A panel, and where its sums go.
struct TilePanel {
    const GemmKernel* gemm;               // one with `tiles`
    const uint8_t* groups[kPanelGroups];  // packed
    const uint8_t* supers[kPanelGroups];  // the first super-block of each
    PackedShape shape;
    int64_t super_bytes, super_blocks;  // of a super-block; blocks of 32 elements in it
    int64_t n_blocks;
    float* sums;  // [strips of 32 rows][kTileStripFloats]
};

// What a thread needs for unpacked slices, in floats, in excess of those for sums.
constexpr int64_t kTileRoomBytes = 2 * kPanelGroups * 8192, kTileRoomAlign = 4096;
constexpr int64_t kTileRoomFloats = (kTileRoomBytes + kTileRoomAlign) / 4;

// How many panels at once are best for so many input rows, at most `limit` >= 1.
int64_t tile_panels_at_once(int64_t n_rows, int64_t limit);
// Room for the sums of so many panels, or of two, in floats: never less for more rows.
int64_t tile_sum_floats(int64_t n_rows, int64_t limit);

// The sums of all panels with all rows of x, on the calling thread. room [kTileRoomFloats]
void multiply_tile_panels(const Kernels& kernels, std::span<const TilePanel> panels,
                          const Activations& x, int64_t n_rows, float* room);

// Sums of input row `row` in the sums of a panel: to out [kPanelRows].
void tile_row(const float* sums, int64_t row, float* out);

}  // namespace ridge::cpu
