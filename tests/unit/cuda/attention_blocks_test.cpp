#include "cuda/attention_blocks.h"

#include <gtest/gtest.h>

namespace ridge::cuda {
namespace {

constexpr int kPage = 64;

int blocks_of(const BlockCut& cut, int n_positions) {
    const int size = cut.block_positions(n_positions);
    return (n_positions + size - 1) / size;
}

// All positions are in some block, none of which is empty; room for parts is enough for every row
// of a cache; and blocks begin with a page.
TEST(AttentionBlocks, cover_every_row_with_no_more_than_there_is_room_for) {
    for (int round : {128, 256}) {
        for (int n_head_groups : {1, 2, 3, 8, 32, 100, 4096}) {
            const BlockCut cut = block_cut(round, n_head_groups);
            for (int n = 1; n < 200000; n = n < 3000 ? n + 1 : n + n / 29) {
                const int size = cut.block_positions(n), n_blocks = blocks_of(cut, n);
                ASSERT_EQ(size % kPage, 0) << n;
                ASSERT_GT(n, (n_blocks - 1) * size) << n;
                ASSERT_LE(n_blocks, kMostBlocks) << n;
                ASSERT_LE(n_blocks, cut.most_blocks(n)) << n;
                ASSERT_LE(n_blocks, cut.most_blocks(n + 1000)) << n;
                if (n <= 2 * round) {
                    ASSERT_EQ(n_blocks, 1) << n;
                } else {
                    ASSERT_GT(n_blocks, 1) << n;
                }
            }
            EXPECT_GT(cut.block_positions(0), 0);  // of a masked row
            EXPECT_EQ(cut.most_blocks(0), 1);
        }
    }
}

TEST(AttentionBlocks, are_as_many_as_run_at_a_time) {
    EXPECT_EQ(blocks_of(block_cut(256, 8), 32000), 32);
    EXPECT_EQ(blocks_of(block_cut(128, 8), 32000), 32);
    EXPECT_EQ(blocks_of(block_cut(256, 2), 32768), kMostBlocks);
    EXPECT_EQ(blocks_of(block_cut(128, 64), 131072), 8);
}

}  // namespace
}  // namespace ridge::cuda
