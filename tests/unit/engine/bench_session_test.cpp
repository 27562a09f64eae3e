#include "engine/bench_session.h"

#include <gtest/gtest.h>

#include <functional>

#include "base/error.h"
#include "support/error_of.h"

namespace ridge {
namespace {

constexpr int64_t kDepth = 70;  // past one page of the cache

OpenOptions tiny() {
    OpenOptions options;
    options.model = "synth:tiny-qwen3:Q8_0";
    options.n_threads = 2;
    return options;
}

std::unique_ptr<BenchSession> open(std::vector<int64_t> n_positions, int n_step_rows = 32) {
    return BenchSession::open(tiny(), std::move(n_positions), n_step_rows);
}

// What decode draws at kDepth in a session that has done nothing else.
std::vector<Token> drawn_at_depth(int n_sequences) {
    auto session = open(std::vector<int64_t>(static_cast<size_t>(n_sequences), 100));
    session->fill(n_sequences, kDepth);
    return session->decode(n_sequences, kDepth, 9);
}

TEST(BenchSession, a_cache_filled_in_parts_is_the_same_as_one_filled_at_once) {
    auto session = open({100});
    session->fill(1, 11);
    session->fill(1, kDepth);
    EXPECT_EQ(session->decode(1, kDepth, 9), drawn_at_depth(1));
}

TEST(BenchSession, what_a_test_wrote_over_is_filled_again) {
    auto session = open({100});
    session->fill(1, kDepth);
    session->decode(1, 0, 20);
    session->fill(1, kDepth);
    EXPECT_EQ(session->decode(1, kDepth, 9), drawn_at_depth(1));
    session->fill(1, kDepth);
    EXPECT_EQ(session->decode(1, kDepth, 9), drawn_at_depth(1)) << "repeats begin alike";
}

TEST(BenchSession, sequences_differ_and_none_depends_on_its_neighbours) {
    std::vector<Token> together = drawn_at_depth(3);
    ASSERT_EQ(together.size(), 3u);
    EXPECT_EQ(together[0], drawn_at_depth(1)[0]);
    EXPECT_EQ(together[1], drawn_at_depth(2)[1]);
    EXPECT_FALSE(together[0] == together[1] && together[1] == together[2]);
}

TEST(BenchSession, a_prompt_may_be_cut_anywhere) {
    auto whole = open({100}, 256), parts = open({100}, 7);
    whole->fill(1, 30);
    parts->fill(1, 30);
    Token drawn = whole->prompt(30, 60);
    EXPECT_GE(drawn, 0);
    EXPECT_EQ(parts->prompt(30, 60), drawn);
    EXPECT_EQ(parts->decode(1, 90, 10), whole->decode(1, 90, 10)) << "right behind the prompt";
}

TEST(BenchSession, refuses_a_cache_beyond_memory_in_one_line) {
    std::string message = error_of([] { open({int64_t{1} << 40}); });
    EXPECT_NE(message.find("GB needed for a KV cache of 1099511627776 positions"),
              std::string::npos)
        << message;
    EXPECT_EQ(message.find('\n'), std::string::npos);
}

TEST(BenchSession, tells_how_far_it_is_within_a_step) {
    std::vector<double> shares;
    auto session =
        BenchSession::open(tiny(), {200}, 100, {}, [&](double done) { shares.push_back(done); });
    auto told = [&](const std::function<void()>& call, double most) {
        shares.clear();
        call();
        EXPECT_GT(shares.size(), 5u);
        EXPECT_EQ(shares.front(), 0);
        EXPECT_LT(shares.back(), 1);
        double before = 0;
        for (double share : shares) {
            EXPECT_GE(share, before);
            EXPECT_LE(share - before, most);
            before = share;
        }
    };
    told([&] { session->fill(1, 100); }, 0.12);  // one step of two layers
    told([&] { session->prompt(100, 100); }, 0.12);
    told([&] { session->decode(1, 100, 50); }, 0.01);
}

TEST(BenchSession, can_be_ended_within_a_step_and_goes_on_from_what_was_whole) {
    int n_left = 1000;
    auto session = BenchSession::open(tiny(), {100}, 10, {}, [&](double) {
        if (--n_left == 0) throw Error("enough");
    });
    for (int within : {1, 3, 15, 20, 28}) {
        n_left = within;
        EXPECT_THROW(session->fill(1, kDepth), Error);
    }
    n_left = 1000;
    session->fill(1, kDepth);
    EXPECT_EQ(session->decode(1, kDepth, 9), drawn_at_depth(1));
    n_left = 7;
    EXPECT_THROW(session->decode(1, kDepth, 9), Error);
    n_left = 1000;
    session->fill(1, kDepth);
    EXPECT_EQ(session->decode(1, kDepth, 9), drawn_at_depth(1));
    EXPECT_EQ(session->info().n_ctx, 100);
}

}  // namespace
}  // namespace ridge
