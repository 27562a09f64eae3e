#include "text/bpe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "base/timer.h"
#include "support/seed.h"

namespace ridge {
namespace {

// The definition, in quadratic time: find the best pair of all, join it, begin again.
std::vector<Token> merged_plainly(const std::map<std::pair<Token, Token>, Merge>& merges,
                                  std::vector<Token> ids) {
    for (;;) {
        const Merge* best = nullptr;
        size_t at = 0;
        for (size_t i = 0; i + 1 < ids.size(); i++) {
            auto found = merges.find({ids[i], ids[i + 1]});
            if (found != merges.end() && (best == nullptr || found->second.rank < best->rank)) {
                best = &found->second;
                at = i;
            }
        }
        if (best == nullptr) return ids;
        ids[at] = best->merged;
        ids.erase(ids.begin() + static_cast<ptrdiff_t>(at) + 1);
    }
}

TEST(Merger, joins_the_pair_of_lowest_rank_first) {
    uint64_t seed = test_seed();
    std::mt19937_64 random(seed);
    for (int round = 0; round < 300; round++) {
        Token n_ids = 3;
        std::map<std::pair<Token, Token>, Merge> merges;
        bool equal_ranks = round % 3 == 0;
        for (uint32_t rank = 0; rank < 20; rank++) {
            Token left = static_cast<Token>(random() % static_cast<uint64_t>(n_ids));
            Token right = static_cast<Token>(random() % static_cast<uint64_t>(n_ids));
            if (merges.contains({left, right})) continue;
            uint32_t used = equal_ranks ? rank / 4 : rank;
            merges[{left, right}] = {left, right, n_ids++, used};
        }
        MergeTable table;
        table.reserve(merges.size());
        for (const auto& [pair, merge] : merges) table.add(merge);
        Merger merger(table);
        for (int text = 0; text < 20; text++) {
            std::vector<Token> ids;
            std::vector<Symbol> symbols;
            for (size_t n = random() % 30; n > 0; n--) {
                Token id = static_cast<Token>(random() % 4) - 1;  // -1: merges with nothing
                symbols.push_back({id, static_cast<uint32_t>(ids.size())});
                ids.push_back(id);
            }
            merger.merge(symbols);
            std::vector<Token> got;
            for (const Symbol& symbol : symbols) got.push_back(symbol.id);
            ASSERT_EQ(got, merged_plainly(merges, ids));
        }
    }
}

TEST(Merger, keeps_where_each_symbol_begins) {
    MergeTable table;
    table.reserve(1);
    table.add({0, 0, 1, 0});
    std::vector<Symbol> symbols = {{0, 0}, {0, 3}, {0, 4}, {2, 6}};
    Merger(table).merge(symbols);
    ASSERT_EQ(symbols.size(), 3u);
    EXPECT_EQ(symbols[0].begin, 0u);
    EXPECT_EQ(symbols[1].begin, 4u);
    EXPECT_EQ(symbols[2].begin, 6u);
}

// Each merge makes the first symbol one longer, the case that is worst for a plain scan.
TEST(Merger, is_linear_where_one_symbol_swallows_the_text) {
    constexpr int n = 200'000;
    MergeTable table;
    table.reserve(n);
    for (Token i = 1; i < n; i++) table.add({i, 0, i + 1, static_cast<uint32_t>(i)});
    std::vector<Symbol> symbols(n, Symbol{0, 0});
    symbols[0].id = 1;
    Timer timer;
    Merger(table).merge(symbols);
    EXPECT_LT(timer.elapsed_ms(), 2'000);
    ASSERT_EQ(symbols.size(), 1u);
    EXPECT_EQ(symbols[0].id, n);
}

TEST(MergeTable, keeps_the_first_of_two_merges_of_a_pair) {
    MergeTable table;
    EXPECT_EQ(table.find(0, 0), nullptr);
    table.reserve(3);
    table.add({1, 2, 3, 0});
    table.add({1, 2, 4, 1});
    ASSERT_NE(table.find(1, 2), nullptr);
    EXPECT_EQ(table.find(1, 2)->merged, 3);
    EXPECT_EQ(table.find(2, 1), nullptr);
    EXPECT_EQ(table.find(-1, 1), nullptr);
    EXPECT_EQ(table.size(), 1u);
}

}  // namespace
}  // namespace ridge
