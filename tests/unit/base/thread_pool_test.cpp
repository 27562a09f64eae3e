#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <random>
#include <set>
#include <thread>
#include <vector>

namespace ridge {
namespace {

// Runs one loop and checks that each index was visited once, in pieces of at most `grain`.
void check_loop(ThreadPool& pool, int64_t n, int64_t grain) {
    SCOPED_TRACE(testing::Message()
                 << "n " << n << " grain " << grain << " threads " << pool.size());
    // Plain integers: two visits of one index by different threads would be a race that
    // ThreadSanitizer reports, and the sum below shows.
    std::vector<int> visits(static_cast<size_t>(n), 0);
    std::vector<int> n_pieces(static_cast<size_t>(pool.size()), 0);
    std::atomic<bool> bad_piece{false};
    pool.parallel_for(n, grain, [&](int64_t begin, int64_t end, int worker) {
        if (begin < 0 || begin >= end || end > n || end - begin > grain || worker < 0 ||
            worker >= pool.size()) {
            bad_piece = true;
            return;
        }
        n_pieces[static_cast<size_t>(worker)]++;  // no two threads share a worker number
        for (int64_t i = begin; i < end; i++) visits[static_cast<size_t>(i)]++;
    });
    ASSERT_FALSE(bad_piece);
    for (int64_t i = 0; i < n; i++) ASSERT_EQ(visits[static_cast<size_t>(i)], 1) << i;
}

TEST(ThreadPoolTest, each_index_is_visited_once) {
    for (int n_threads : {1, 2, 3, 8}) {
        ThreadPool pool(n_threads);
        EXPECT_EQ(pool.size(), n_threads);
        for (int64_t n : {0, 1, 2, 3, 7, 64, 1000, 10'000})
            for (int64_t grain : {1, 2, 5, 64, 9'999, 10'000, 20'000}) check_loop(pool, n, grain);
    }
}

TEST(ThreadPoolTest, random_loops_one_after_the_other) {
    uint32_t seed = std::random_device{}();
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    ThreadPool pool(4);
    for (int i = 0; i < 500; i++) check_loop(pool, random() % 300, 1 + random() % 40);
}

TEST(ThreadPoolTest, what_the_loop_wrote_is_seen_when_it_returns) {
    ThreadPool pool(3);
    int64_t sum = 0;
    std::vector<int64_t> squares(100);
    for (int round = 0; round < 300; round++) {
        pool.parallel_for(100, 1, [&](int64_t begin, int64_t, int) {
            squares[static_cast<size_t>(begin)] = begin * begin + round;
        });
        sum = 0;
        for (int64_t square : squares) sum += square;
        ASSERT_EQ(sum, 328'350 + 100 * round);
    }
}

TEST(ThreadPoolTest, the_threads_do_share_the_work) {
    ThreadPool pool(2);
    std::mutex mutex;
    std::set<std::thread::id> ids;
    // Both pieces wait for the other: one thread alone would never get past the first.
    std::atomic<int> n_arrived{0};
    pool.parallel_for(2, 1, [&](int64_t, int64_t, int) {
        n_arrived++;
        while (n_arrived < 2) std::this_thread::yield();
        std::lock_guard lock(mutex);
        ids.insert(std::this_thread::get_id());
    });
    EXPECT_EQ(ids.size(), 2u);
}

TEST(ThreadPoolTest, pools_come_and_go) {
    for (int i = 0; i < 200; i++) {
        ThreadPool pool(1 + i % 4);
        if (i % 3 != 0) check_loop(pool, i, 2);
    }
}

TEST(ThreadPoolTest, pools_of_different_threads_do_not_meet) {
    std::vector<std::thread> owners;
    for (int i = 0; i < 3; i++) {
        owners.emplace_back([] {
            ThreadPool pool(2);
            for (int round = 0; round < 100; round++) check_loop(pool, 50, 3);
        });
    }
    for (std::thread& owner : owners) owner.join();
}

}  // namespace
}  // namespace ridge
