#include "base/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "base/printable.h"
#include "base/system.h"
#include "base/timer.h"

namespace ridge {
namespace {

// What different threads write lies so far apart: two lines of 64 bytes, since Intel's prefetcher
// fetches lines in pairs, or one of Apple's.
constexpr size_t kCacheLine = 128;

// How long a worker watches for the next loop before it is parked. Waking it takes some 10 to 50
// us, so watching pays for gaps of about that length, and a request that has ended costs this much
// once.
constexpr int64_t kWatchNs = 100'000;

// How long the caller watches for the last pieces to end. They are short; where they have not ended
// by then, their thread has most likely lost its CPU to another process, and may want this one.
constexpr int64_t kJoinNs = 30'000;

// Tells the core that this is a loop of waiting: it saves power and leaves its other hyperthread
// the execution units.
inline void spin_pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

// Waits for ready() for about limit_ns, or until give_up(); false where it has not come. The first
// looks cost less than reading the clock would.
template <class Ready, class GiveUp>
bool spin(int64_t limit_ns, const Ready& ready, const GiveUp& give_up) {
    std::optional<Timer> timer;
    for (;;) {
        for (int i = 0; i < 32; i++) {
            if (ready()) return true;
            spin_pause();
        }
        if (limit_ns == 0 || (timer && timer->elapsed_ns() >= limit_ns) || give_up()) return false;
        if (!timer) timer.emplace();
    }
}

// Pieces [begin, end) of a loop that nobody has claimed yet, as one word.
struct Range {
    uint32_t begin = 0, end = 0;

    static Range of(uint64_t word) {
        return {static_cast<uint32_t>(word), static_cast<uint32_t>(word >> 32)};
    }
    uint64_t word() const { return uint64_t{end} << 32 | begin; }
    uint32_t size() const { return end - begin; }
};

}  // namespace

// Every thread has a range of pieces of its own, takes them from the front one at a time, and takes
// half of another's from the back when it has none left.
//
// Why a thread that comes late never touches a loop that has ended: it claims pieces by exchanging
// the word of a range that is not empty, and these pieces belong to whichever loop is current at
// that very moment, whatever the thread had seen before. That loop cannot end before the pieces are
// given back to `n_open`, so its description `loop` stays as it is for as long as the thread reads
// it. Without a piece a thread reads nothing but atomics.
struct ThreadPool::State {
    struct Loop {
        BodyRef body{};
        int64_t n = 0, grain = 1;
        uint64_t number = 0;  // n_loops once all of its ranges are there
        LoopRecord* record = nullptr;
    };
    struct alignas(kCacheLine) Share {
        std::atomic<uint64_t> range{0};
    };

    explicit State(int n_threads) : shares(static_cast<size_t>(n_threads)) {}

    // Loops so far: what threads watch. Rises when a loop's ranges are there to be claimed.
    alignas(kCacheLine) std::atomic<uint64_t> n_loops{0};
    // Where the caller was when the loop began. Where another process holds the other CPUs, the
    // system lets a worker run in the caller's place, which then must not watch for what only the
    // caller can bring.
    std::atomic<int> caller_cpu{-1};
    // Pieces that have not been given back; the loop has ended when it is 0.
    alignas(kCacheLine) std::atomic<int64_t> n_open{0};
    // Written by the caller while no piece is out, read by those that hold one.
    alignas(kCacheLine) Loop loop;
    // One for each thread. All are empty while there is no loop.
    std::vector<Share> shares;

    // Rarely written from here on.
    alignas(kCacheLine) std::atomic<int> n_parked{0};  // workers; changes under the mutex only
    std::atomic<bool> caller_parked{false}, stopping{false};
    bool watches = false;  // otherwise threads look a few times only before they are parked
    std::mutex mutex;
    std::condition_variable wake, joined;
    uint64_t n_wakes = 0;  // guarded by mutex

    std::vector<std::thread> threads;
    std::vector<int> cores;  // where threads are pinned: cores[0] for the caller
    std::optional<ThreadPin> caller_pin;

    // Takes the first piece of the thread's own range, whose last word is kept in `seen`. Acquire,
    // here and in steal(): pairs with the store of the range, through the exchanges in between
    // (they continue its release sequence). Orders the reading of `loop`, and of all that the
    // caller wrote before, after the claim.
    static Range claim(std::atomic<uint64_t>& own, uint64_t& seen) {
        seen = own.load(std::memory_order_relaxed);
        for (;;) {
            const Range range = Range::of(seen);
            if (range.size() == 0) return {};
            const Range rest{range.begin + 1, range.end};
            if (own.compare_exchange_weak(seen, rest.word(), std::memory_order_acquire,
                                          std::memory_order_relaxed)) {
                return {range.begin, rest.begin};
            }
        }
    }

    // Takes the second half of another thread's range, whichever has most left.
    Range steal(size_t thief) {
        for (;;) {
            std::atomic<uint64_t>* victim = nullptr;
            uint64_t word = 0;
            for (size_t i = 1; i < shares.size(); i++) {
                std::atomic<uint64_t>& share = shares[(thief + i) % shares.size()].range;
                const uint64_t other = share.load(std::memory_order_relaxed);
                if (Range::of(other).size() > Range::of(word).size()) {
                    victim = &share, word = other;
                }
            }
            if (victim == nullptr) return {};
            const Range range = Range::of(word);
            const Range rest{range.begin, range.end - (range.size() + 1) / 2};
            if (victim->compare_exchange_strong(word, rest.word(), std::memory_order_acquire,
                                                std::memory_order_relaxed)) {
                return {rest.end, range.end};
            }
        }
    }

    // Runs what it can claim of the current loop, if there is one.
    void work(int worker) {
        std::atomic<uint64_t>& own = shares[static_cast<size_t>(worker)].range;
        int64_t n_done = 0, begin_ns = 0;
        for (uint64_t seen = 0;;) {
            Range run = claim(own, seen);
            if (run.size() == 0) {
                run = steal(static_cast<size_t>(worker));
                if (run.size() == 0) break;
                // All but the first are offered to others again, if the thread's own range is still
                // as empty as it was: the pieces may be of a newer loop, whose caller has put
                // others there, or is about to. Acquire: where the loop is counted, all of its
                // ranges have been stored, and none will overwrite what is offered. Release:
                // whoever claims of them reads `loop`, too.
                const Range rest{run.begin + 1, run.end};
                if (n_loops.load(std::memory_order_acquire) == loop.number &&
                    own.compare_exchange_strong(seen, rest.word(), std::memory_order_release,
                                                std::memory_order_relaxed)) {
                    run.end = rest.begin;
                }
            }
            if (n_done == 0 && loop.record != nullptr) begin_ns = monotonic_ns();
            for (int64_t piece = run.begin; piece < run.end; piece++) {
                const int64_t begin = piece * loop.grain;
                loop.body(begin, begin + std::min(loop.n - begin, loop.grain), worker);
            }
            n_done += run.size();
        }
        if (n_done > 0 && loop.record != nullptr) {
            loop.record->add(worker, {loop.record->n_loops_, begin_ns, monotonic_ns()});
        }
        // All n_done pieces are of one loop: it does not end while they are held. Release: what
        // the bodies wrote, and the last look at `loop`, come before; the caller acquires in
        // join(). Sequentially consistent, with the next line: see join().
        if (n_done > 0 && n_open.fetch_sub(n_done, std::memory_order_seq_cst) == n_done &&
            caller_parked.load(std::memory_order_seq_cst)) {
            // The caller holds the mutex from its last look at n_open until it is in wait().
            { std::lock_guard lock(mutex); }
            joined.notify_one();
        }
    }

    void thread_main(int worker) {
        uint64_t n_seen = 0;  // loops
        while (!stopping.load(std::memory_order_relaxed)) {
            // Relaxed: only a reason to look at the ranges. Nothing but joining follows `stopping`.
            auto has_news = [&] {
                return n_loops.load(std::memory_order_relaxed) != n_seen ||
                       stopping.load(std::memory_order_relaxed);
            };
            auto is_in_the_way = [&] {
                int cpu = current_cpu();
                return cpu >= 0 && cpu == caller_cpu.load(std::memory_order_relaxed);
            };
            if (!spin(watches ? kWatchNs : 0, has_news, is_in_the_way)) park(n_seen);
            // Acquire: the ranges of that loop are seen, or what has become of them.
            n_seen = n_loops.load(std::memory_order_acquire);
            work(worker);
        }
    }

    // A worker says that it is parked and then looks for a loop once more; the caller publishes a
    // loop (or `stopping`) and then looks for parked workers. All four are sequentially consistent,
    // so at least one of the two sees the other: no loop is slept through.
    //
    // What says so is an exchange, here and in join(), where a store would do by the rules of C++:
    // qemu-user 7.2 on x86 lets a load overtake a sequentially consistent store of a 64-bit ARM
    // program, and a caller then sleeps for ever. Both cost the same, once a loop.
    void park(uint64_t n_seen) {
        std::unique_lock lock(mutex);
        n_parked.fetch_add(1, std::memory_order_seq_cst);
        if (n_loops.load(std::memory_order_seq_cst) != n_seen ||
            stopping.load(std::memory_order_seq_cst)) {
            n_parked.fetch_sub(1, std::memory_order_relaxed);
            return;
        }
        uint64_t seen = n_wakes;
        wake.wait(lock, [&] { return n_wakes != seen; });
    }

    void wake_parked() {
        if (n_parked.load(std::memory_order_seq_cst) == 0) return;
        {
            // A worker that was counted is in wait() once the mutex is free. They are uncounted
            // here and not by themselves, so that the next loops do not wake them again.
            std::lock_guard lock(mutex);
            n_parked.store(0, std::memory_order_relaxed);
            n_wakes++;
        }
        wake.notify_all();
    }

    // Waits until no piece is out. Acquire: pairs with the release of every worker that gave
    // pieces back (each continues the release sequences of those before), so that all they wrote
    // is seen, and the next loop is described only after their last look at this one.
    void join() {
        auto ended = [&] { return n_open.load(std::memory_order_acquire) == 0; };
        if (spin(watches ? kJoinNs : 0, ended, [] { return false; })) return;
        // As in park(): the caller says that it is parked and then looks at n_open; the worker that
        // brings n_open to 0 does so and then looks at caller_parked.
        std::unique_lock lock(mutex);
        caller_parked.exchange(true, std::memory_order_seq_cst);
        joined.wait(lock, [&] { return n_open.load(std::memory_order_seq_cst) == 0; });
        caller_parked.store(false, std::memory_order_relaxed);
    }

    void stop() {
        stopping.exchange(true, std::memory_order_seq_cst);
        wake_parked();
        for (std::thread& thread : threads) thread.join();
    }
};

void LoopRecord::clear(int n_threads) {
    constexpr size_t kSpans = size_t{1} << 16;
    threads_.resize(static_cast<size_t>(n_threads));
    for (Thread& thread : threads_) {
        thread.spans.clear();
        thread.spans.reserve(kSpans);
    }
    n_loops_ = 0;
}

// Within the room that there is: threads that work for a loop must not throw.
void LoopRecord::add(int thread, const Span& span) {
    std::vector<Span>& spans = threads_[static_cast<size_t>(thread)].spans;
    if (spans.size() < spans.capacity()) spans.push_back(span);
}

ThreadPool::ThreadPool(const ThreadPoolOptions& options)
    : n_threads_(options.n_threads), state_(std::make_unique<State>(n_threads_)) {
    CHECK(n_threads_ >= 1);
    State& s = *state_;
    if (options.pin) {
        s.cores = physical_cores();
        if (static_cast<int>(s.cores.size()) < n_threads_) {
            throw Error(ErrorKind::kUsage, "cannot pin {}: this process may use {}",
                        counted(n_threads_, "thread"),
                        counted(static_cast<int64_t>(s.cores.size()), "physical core"));
        }
    }
    s.watches = n_threads_ <= n_allowed_cpus();
    int n_started = 1;
    s.threads.reserve(static_cast<size_t>(n_threads_));
    try {
        for (; n_started < n_threads_; n_started++) {
            // The new thread inherits the core of the one that starts it.
            std::optional<ThreadPin> pin;
            if (options.pin) pin.emplace(s.cores[static_cast<size_t>(n_started)]);
            s.threads.emplace_back([&s, n_started] { s.thread_main(n_started); });
        }
    } catch (const std::system_error&) {
        s.stop();
        throw Error("the system lets this process start {} threads, {} were asked for", n_started,
                    n_threads_);
    } catch (const Error&) {
        s.stop();
        throw;
    }
}

ThreadPool::~ThreadPool() {
    state_->stop();
}

void ThreadPool::run(int64_t n, int64_t grain, BodyRef body) {
    CHECK(n >= 0 && grain >= 1);
    State& s = *state_;
    if (!s.cores.empty() && !s.caller_pin) s.caller_pin.emplace(s.cores[0]);
    if (n == 0) return;
    const int64_t begin_ns = record_ != nullptr ? monotonic_ns() : 0;
    if (record_ != nullptr) record_->n_loops_++;
    if (n_threads_ == 1 || n <= grain) {
        for (int64_t begin = 0; begin < n;) {
            int64_t end = begin + std::min(n - begin, grain);
            body(begin, end, 0);
            begin = end;
        }
        if (record_ != nullptr) record_->add(0, {record_->n_loops_, begin_ns, monotonic_ns()});
        return;
    }
    const int64_t n_pieces = n / grain + (n % grain != 0);
    CHECK(n_pieces <= UINT32_MAX);
    const uint64_t number = s.n_loops.load(std::memory_order_relaxed) + 1;
    s.loop = {body, n, grain, number, record_};
    s.n_open.store(n_pieces, std::memory_order_relaxed);
    s.caller_cpu.store(current_cpu(), std::memory_order_relaxed);
    auto first_piece = [&](int64_t thread) {
        return static_cast<uint32_t>((n_pieces * thread + n_threads_ - 1) / n_threads_);
    };
    for (int i = 0; i < n_threads_; i++) {
        const Range range{first_piece(i), first_piece(i + 1)};
        // Release: `loop` and n_open are seen by whoever claims of it.
        s.shares[static_cast<size_t>(i)].range.store(range.word(), std::memory_order_release);
    }
    // Release: the ranges are seen by whoever sees the loop. Sequentially consistent, with the look
    // at n_parked that follows: see park().
    s.n_loops.exchange(number, std::memory_order_seq_cst);
    s.wake_parked();
    s.work(0);
    s.join();
}

}  // namespace ridge
