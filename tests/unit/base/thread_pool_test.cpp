#include "base/thread_pool.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <limits>
#include <mutex>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/system.h"
#include "base/timer.h"
#include "support/seed.h"

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
    uint64_t seed = test_seed();
    SCOPED_TRACE("RIDGE_SEED=" + std::to_string(seed));
    std::mt19937_64 random(seed);
    ThreadPool pool(4);
    for (int i = 0; i < 500; i++)
        check_loop(pool, static_cast<int64_t>(random() % 300),
                   1 + static_cast<int64_t>(random() % 40));
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

// Loops whose pieces wait for each other, so that every thread is needed, begin while the others
// watch, are parked, and are just being parked.
TEST(ThreadPoolTest, no_loop_is_slept_through) {
    uint64_t seed = test_seed();
    SCOPED_TRACE("RIDGE_SEED=" + std::to_string(seed));
    std::mt19937_64 random(seed);
    for (int n_threads : {2, 3}) {
        ThreadPool pool(n_threads);
        for (int round = 0; round < 600; round++) {
            // Most are about as long as a thread watches.
            auto gap = std::chrono::nanoseconds(round % 100 == 0 ? 3'000'000
                                                : round % 4 == 0 ? random() % 200'000
                                                                 : 98'000 + random() % 8'000);
            auto end = std::chrono::steady_clock::now() + gap;
            while (std::chrono::steady_clock::now() < end) {
            }
            std::atomic<int> n_arrived{0}, n_alone{0};
            pool.parallel_for(n_threads, 1, [&](int64_t, int64_t, int) {
                auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
                n_arrived++;
                while (n_arrived < n_threads && n_alone == 0) {
                    std::this_thread::yield();
                    if (std::chrono::steady_clock::now() > limit) n_alone++;
                }
            });
            ASSERT_EQ(n_alone, 0) << n_threads << " threads, round " << round;
        }
    }
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

// A thread that comes late to a loop must not run pieces of it in the next one, with the next one's
// body or size. Each loop's slots are on this thread's stack and hold the loop's number: a piece
// that is run twice, in the wrong loop, or after the loop's end shows as a wrong sum, or as a write
// to memory that is gone.
TEST(ThreadPoolTest, tiny_loops_of_fresh_sizes_never_meet) {
    uint64_t seed = test_seed();
    SCOPED_TRACE("RIDGE_SEED=" + std::to_string(seed));
    std::mt19937_64 random(seed);
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    constexpr int64_t kLoops = 4'000;
#else
    constexpr int64_t kLoops = 40'000;
#endif
    for (int n_threads = 1; n_threads <= 8; n_threads++) {
        ThreadPool pool(n_threads);
        for (int64_t loop = 0; loop < kLoops; loop++) {
            auto n = static_cast<int64_t>(random() % 3 == 0 ? random() % 3 : random() % 40);
            auto grain = static_cast<int64_t>(1 + random() % (random() % 2 == 0 ? 2 : 50));
            int64_t slots[40] = {};
            pool.parallel_for(n, grain, [&, loop](int64_t begin, int64_t end, int) {
                for (int64_t i = begin; i < end; i++) slots[i] += loop * 40 + i + 1;
            });
            for (int64_t i = 0; i < 40; i++)
                ASSERT_EQ(slots[i], i < n ? loop * 40 + i + 1 : 0) << n << " by " << grain;
            // Now and then long enough for the others to be parked, or on their way there.
            if (loop % 1000 == 0)
                std::this_thread::sleep_for(std::chrono::microseconds(random() % 400));
        }
    }
}

// A thread that is late takes pieces while the caller is still handing out the ranges of the next
// loop. (Where these overwrote what it had taken, one loop of some 100,000 never ended.)
TEST(ThreadPoolTest, no_piece_is_lost_between_loops) {
    ThreadPool pool(4);
    for (int i = 0; i < 100'000; i++) {
        std::atomic<int> n{0};
        pool.parallel_for(24, 1, [&](int64_t begin, int64_t end, int) {
            n.fetch_add(static_cast<int>(end - begin), std::memory_order_relaxed);
        });
        ASSERT_EQ(n, 24) << "loop " << i;
    }
}

TEST(ThreadPoolTest, the_largest_sizes_are_cut_without_overflow) {
    constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
    for (int n_threads : {1, 2, 7}) {
        ThreadPool pool(n_threads);
        for (int64_t grain : {kMax, kMax - 1, kMax / 2, kMax / 1000}) {
            std::atomic<uint64_t> covered{0};
            pool.parallel_for(kMax, grain, [&](int64_t begin, int64_t end, int) {
                covered += static_cast<uint64_t>(end - begin);
            });
            EXPECT_EQ(covered, static_cast<uint64_t>(kMax)) << grain;
        }
    }
}

// Most pieces that a thread runs follow the one that it ran before.
TEST(ThreadPoolTest, threads_take_contiguous_runs) {
    constexpr int64_t kN = 100'000;
    ThreadPool pool(2);
    std::vector<int64_t> last(2, -1), n_jumps(2, 0);
    pool.parallel_for(kN, 1, [&](int64_t begin, int64_t end, int worker) {
        auto w = static_cast<size_t>(worker);
        n_jumps[w] += begin != last[w];
        last[w] = end;
    });
    EXPECT_LT(n_jumps[0] + n_jumps[1], kN / 100);
}

double cpu_ms() {
    rusage usage = {};
    getrusage(RUSAGE_SELF, &usage);
    auto ms = [](const timeval& t) {
        return 1e3 * static_cast<double>(t.tv_sec) + 1e-3 * static_cast<double>(t.tv_usec);
    };
    return ms(usage.ru_utime) + ms(usage.ru_stime);
}

TEST(ThreadPoolTest, idle_threads_use_no_cpu) {
    for (int n_threads : {2, 4}) {
        ThreadPool pool(n_threads);
        check_loop(pool, 100, 1);
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        double before = cpu_ms();
        std::this_thread::sleep_for(std::chrono::milliseconds(200));
        EXPECT_LT(cpu_ms() - before, 20) << n_threads << " threads";
        check_loop(pool, 100, 1);
    }
}

// Loops that the caller runs alone, and those that threads share.
TEST(ThreadPoolTest, a_record_holds_when_threads_worked) {
    ThreadPool pool(3);
    LoopRecord record;
    record.clear(pool.size());
    pool.record(&record);
    const int64_t begin_ns = monotonic_ns();
    constexpr int64_t kLoops = 50;
    std::vector<std::vector<std::atomic<int>>> worked(kLoops);
    for (int64_t loop = 0; loop < kLoops; loop++) {
        auto& of_loop = worked[static_cast<size_t>(loop)] = std::vector<std::atomic<int>>(3);
        pool.parallel_for(1 + loop % 20, 1, [&](int64_t, int64_t, int worker) {
            of_loop[static_cast<size_t>(worker)] = 1;
        });
    }
    const int64_t end_ns = monotonic_ns();
    pool.record(nullptr);
    pool.parallel_for(20, 1, [](int64_t, int64_t, int) {});
    EXPECT_EQ(record.n_loops(), kLoops);
    ASSERT_EQ(record.n_threads(), 3);
    for (int thread = 0; thread < 3; thread++) {
        int64_t last_ns = begin_ns;
        for (const LoopRecord::Span& span : record.spans(thread)) {
            EXPECT_LE(last_ns, span.begin_ns);
            EXPECT_LE(span.begin_ns, span.end_ns);
            last_ns = span.end_ns;
            auto& did = worked[static_cast<size_t>(span.loop - 1)][static_cast<size_t>(thread)];
            EXPECT_EQ(did.exchange(0), 1) << "thread " << thread << ", loop " << span.loop;
        }
        EXPECT_LE(last_ns, end_ns);
    }
    for (const auto& of_loop : worked) {
        for (const auto& left : of_loop) EXPECT_EQ(left, 0) << "work without a span";
    }
}

TEST(ThreadPoolTest, pinned_threads_stay_on_their_core) {
    std::vector<int> cores = physical_cores();
    auto n_threads = static_cast<int>(std::min<size_t>(cores.size(), 4));
    {
        ThreadPool pool({n_threads, true});
        std::atomic<int> n_arrived{0};
        std::vector<std::vector<int>> seen(static_cast<size_t>(n_threads));
        // Each piece waits for all: every thread runs one. Its CPUs are then its core alone.
        pool.parallel_for(n_threads, 1, [&](int64_t, int64_t, int worker) {
            n_arrived++;
            while (n_arrived < n_threads) std::this_thread::yield();
            seen[static_cast<size_t>(worker)] = physical_cores();
        });
        for (size_t i = 0; i < seen.size(); i++)
            EXPECT_EQ(seen[i], std::vector<int>{cores[i]}) << "thread " << i;
    }
    EXPECT_EQ(physical_cores(), cores);  // the caller's are as they were
}

TEST(ThreadPoolTest, more_pinned_threads_than_cores_are_refused) {
    auto n_cores = static_cast<int>(physical_cores().size());
    try {
        ThreadPool pool({n_cores + 1, true});
        FAIL() << "expected an Error";
    } catch (const Error& error) {
        EXPECT_EQ(std::string(error.what()),
                  "cannot pin " + std::to_string(n_cores + 1) + " threads: this process may use " +
                      std::to_string(n_cores) + " physical core" + (n_cores == 1 ? "" : "s"));
    }
}

}  // namespace
}  // namespace ridge
