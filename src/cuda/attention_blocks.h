#pragma once

#include <cstdint>

#include "base/host_device.h"

namespace ridge::cuda {

// How decode attention cuts a row's positions into blocks, whose sums are merged in order, from
// position 0 on. A row's own position, the shape of the cache and the kernel that is made for it
// decide, so that its result is the same in any company and on any device that runs that kernel.
constexpr int kMostBlocks = 64;       // of a row
constexpr int kRowItems = 256;        // blocks of all head groups of a row, about as many as run
constexpr int kRoundsOfOneBlock = 2;  // rows of no more are not cut: merging would take longer
// Of the most that rows are cut into, a binary logarithm: many head groups leave each row eight, so
// that a single one still spreads over the device.
constexpr int kLeastBlockShift = 3;

struct BlockCut {
    int round;       // positions that a block takes at once, a multiple of a page
    int most_shift;  // of a row's blocks at most, the binary logarithm

    // Of a masked row, too: one, which is empty.
    RIDGE_HOST_DEVICE constexpr int block_positions(int n_positions) const {
        if (n_positions <= kRoundsOfOneBlock * round) return kRoundsOfOneBlock * round;
        const int all = round << most_shift;
        return (n_positions + all - 1) / all * round;
    }
    // The most that a row of up to n_positions has.
    constexpr int most_blocks(int64_t n_positions) const {
        const int64_t n = (n_positions + round - 1) / round;
        return n >> most_shift > 0 ? 1 << most_shift : static_cast<int>(n < 1 ? 1 : n);
    }
};

constexpr BlockCut block_cut(int round, int n_head_groups) {
    BlockCut cut{round, kLeastBlockShift};
    while (1 << cut.most_shift < kMostBlocks && n_head_groups << cut.most_shift < kRowItems) {
        cut.most_shift++;
    }
    return cut;
}

}  // namespace ridge::cuda
