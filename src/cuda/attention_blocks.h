#pragma once

#include <cstdint>

#include "base/host_device.h"

namespace ridge::cuda {

// How decode attention cuts a row's positions into blocks, whose sums are merged in order: from
// position 0 on, of 256 positions each, or of twice as many until there are no more than 64. A
// row's own position decides, and nothing else, so that its result is the same in any company.
constexpr int kLeastBlockPositions = 256, kMostBlocks = 64;

RIDGE_HOST_DEVICE constexpr int block_shift(int n_positions) {  // the binary logarithm
    int shift = 8;
    while ((n_positions - 1) >> shift >= kMostBlocks) shift++;
    static_assert(kLeastBlockPositions == 1 << 8);
    return shift;
}
// Of a masked row, too: one, which is empty.
RIDGE_HOST_DEVICE constexpr int blocks_of(int n_positions) {
    return n_positions <= kLeastBlockPositions
               ? 1
               : ((n_positions - 1) >> block_shift(n_positions)) + 1;
}

// Rows of so few positions have too few blocks to fill a device: each of the query heads that share
// a K/V head is then a block of threads of its own.
constexpr int kHeadsApartPositions = 256;

// The most that a row of up to n_positions has.
constexpr int most_blocks(int64_t n_positions) {
    constexpr int64_t kAll = int64_t{kLeastBlockPositions} * kMostBlocks;
    return n_positions >= kAll ? kMostBlocks : blocks_of(static_cast<int>(n_positions));
}

}  // namespace ridge::cuda
