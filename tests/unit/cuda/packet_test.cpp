#include "cuda/packet.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "cuda/context.h"
#include "cuda/sample_mirror.h"
#include "model/batch.h"

// What comes to the device in a packet that travels with its kernel's arguments.

namespace ridge::cuda {
namespace {

// The kernel, on memory of the host.
void deliver(const Delivery& d) {
    ASSERT_EQ(d.pinned, nullptr);
    for (int p = 0; p < d.n_pieces; p++) {
        const Piece& piece = d.pieces[p];
        auto* to = static_cast<uint32_t*>(piece.to);
        for (int i = 0; i < piece.n_words; i++) {
            to[i] = word_for_device(piece, d.within[piece.first + i], d.drawn);
        }
    }
}

TEST(Packet, brings_each_piece_to_its_place_and_nothing_behind_it) {
    Packet packet;
    for (size_t n :
         {size_t{1}, size_t{3}, size_t{8}}) {  // the last of 4-byte elements stands alone
        std::vector<int32_t> a(n + 1, -7), b(n + 1, -7), none(1, -7);
        std::vector<int64_t> c(n + 1, -7);
        const auto count = static_cast<int64_t>(n);
        packet.clear();
        std::fill_n(packet.add(a.data(), count), n, 5);
        packet.add(none.data(), 0);
        std::fill_n(packet.add(c.data(), count), n, int64_t{-1} << 40);
        std::fill_n(packet.add(b.data(), count), n, -6);
        deliver(packet.close(0, nullptr));
        for (size_t i = 0; i < n; i++) {
            EXPECT_EQ(a[i], 5);
            EXPECT_EQ(b[i], -6) << "a number that is no token stays negative";
            EXPECT_EQ(c[i], int64_t{-1} << 40);
        }
        EXPECT_EQ(a[n], -7);
        EXPECT_EQ(b[n], -7);
        EXPECT_EQ(c[n], -7);
        EXPECT_EQ(none[0], -7);
    }
}

TEST(Packet, takes_tokens_from_what_was_drawn) {
    const Token drawn[] = {11, 12, 13};
    const Token given[] = {drawn_by(2), 0, drawn_by(0), 7, drawn_by(2), drawn_by(1)};
    std::vector<Token> tokens(6, -7);
    Packet packet;
    packet.clear();
    std::copy(std::begin(given), std::end(given), packet.add_tokens(tokens.data(), 6));
    deliver(packet.close(1, drawn));
    EXPECT_EQ(tokens, (std::vector<Token>{13, 0, 11, 7, 13, 12}));
}

TEST(Packet, holds_a_decode_step_of_eight_rows_with_penalties_without_pinned_memory) {
    std::vector<int32_t> words(kWordsWithin);
    Packet packet;
    packet.clear();
    int32_t* to = packet.add(words.data(), kWordsWithin);
    for (int32_t i = 0; i < kWordsWithin; i++) to[i] = i;
    deliver(packet.close(0, nullptr));
    for (int32_t i = 0; i < kWordsWithin; i++) EXPECT_EQ(words[static_cast<size_t>(i)], i);
    // Tokens, positions, slots, spans and logit rows; how they are drawn, with 64 tokens each.
    constexpr size_t kOfRow = sizeof(Token) + sizeof(int32_t) + sizeof(int64_t) + sizeof(int32_t) +
                              sizeof(Sequence) + sizeof(int32_t) + sizeof(RowDraw) +
                              64 * sizeof(Token);
    EXPECT_GE(kWordsWithin * sizeof(uint32_t), 8 * kOfRow + sizeof(DrawnPlace));
}

}  // namespace
}  // namespace ridge::cuda
