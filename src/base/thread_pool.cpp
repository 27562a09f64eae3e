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

// How long the caller watches for the last runs to end. They are short; where they have not ended
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

// How a loop's pieces are cut into runs, by ticket. Each round has a run for every thread; runs of
// the first round hold five eighths of a thread's even share, and those of each round at most three
// eighths of the round before, down to one piece. A thread at six tenths of the others' speed, or
// one that comes late, does not hold the loop up. Runs are long because each has a price: what a
// thread prefetches beyond its end, the next one's thread reads again.
class Cut {
  public:
    Cut() = default;
    Cut(int64_t n_pieces, int n_threads)
        : n_pieces_(n_pieces),
          n_threads_(n_threads),
          longest_(std::max<int64_t>(n_pieces * 5 / (8 * int64_t{n_threads}), 1)) {}

    struct Run {
        int64_t begin, end;  // pieces
    };
    Run run(int64_t ticket) const {
        int64_t begin = 0, length = longest_;
        for (; length > 1 && ticket >= n_threads_; length = next_length(length)) {
            begin += length * n_threads_;
            ticket -= n_threads_;
        }
        begin += length * ticket;
        return {begin, begin + length};
    }

    // All rounds of more than one piece a run lie below n_pieces: their lengths sum to at most
    // longest * (1 + 3/8 + 9/64 + ...) = 8/5 * longest for each thread.
    int64_t n_tickets() const {
        int64_t n = 0, covered = 0;
        for (int64_t length = longest_; length > 1; length = next_length(length)) {
            covered += length * n_threads_;
            n += n_threads_;
        }
        return n + (n_pieces_ - covered);
    }

  private:
    static int64_t next_length(int64_t length) { return std::max<int64_t>(length * 3 / 8, 1); }

    int64_t n_pieces_ = 0, n_threads_ = 1, longest_ = 1;
};

}  // namespace

// Why a thread that comes late never touches a loop that has ended: it learns everything from the
// one word `tickets`, by one read-modify-write. That returns a ticket below the number of tickets
// in the same word, or it returns none. A ticket belongs to whichever loop is in the word at that
// very moment, whatever the thread had seen before; that loop cannot end before the ticket is given
// back to `n_open`, so its description `loop` stays as it is for as long as the thread reads it.
// Without a ticket a thread reads nothing but atomics. No generation is counted that could wrap.
struct ThreadPool::State {
    struct Loop {
        BodyRef body{};
        int64_t n = 0, grain = 1;
        Cut cut;
    };

    // Number of tickets << 32 | next ticket. The next one runs past the number by at most one for
    // each thread: a thread takes a ticket only after it has seen one left.
    alignas(kCacheLine) std::atomic<uint64_t> tickets{0};
    // Loops so far. Tells a thread that watches that there are loops, even where others were
    // quicker to take every ticket; nothing is ordered by it.
    std::atomic<uint32_t> n_loops{0};
    // Where the caller was when the loop began. Where another process holds the other CPUs, the
    // system lets a worker run in the caller's place, which then must not watch for what only the
    // caller can bring.
    std::atomic<int> caller_cpu{-1};
    // Tickets that have not been given back; the loop has ended when it is 0.
    alignas(kCacheLine) std::atomic<int64_t> n_open{0};
    // Written by the caller while no ticket is out, read by those that hold one.
    alignas(kCacheLine) Loop loop;

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

    static bool has_ticket(uint64_t word) { return static_cast<uint32_t>(word) < word >> 32; }

    // Runs what it can claim of the current loop, if there is one.
    void work(int worker) {
        int64_t n_done = 0;
        // Relaxed: only a reason to try.
        while (has_ticket(tickets.load(std::memory_order_relaxed))) {
            // Acquire: pairs with the store in run(), through the other claims in between (they
            // continue its release sequence). Orders the reading of `loop`, and of all that the
            // caller wrote before, after the claim.
            uint64_t word = tickets.fetch_add(1, std::memory_order_acquire);
            if (!has_ticket(word)) break;
            Cut::Run run = loop.cut.run(static_cast<uint32_t>(word));
            for (int64_t piece = run.begin; piece < run.end; piece++) {
                int64_t begin = piece * loop.grain;
                int64_t n_left = loop.n - begin;
                loop.body(begin, begin + std::min(n_left, loop.grain), worker);
            }
            n_done++;
        }
        // All n_done tickets are of one loop: it does not end while they are held. Release: what
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
        while (!stopping.load(std::memory_order_relaxed)) {
            // Relaxed: work() looks again, and acquires. Nothing but joining follows `stopping`.
            uint32_t n_loops_before = n_loops.load(std::memory_order_relaxed);
            auto has_news = [&] {
                return has_ticket(tickets.load(std::memory_order_relaxed)) ||
                       stopping.load(std::memory_order_relaxed);
            };
            auto is_in_the_way = [&] {
                int cpu = current_cpu();
                return cpu >= 0 && cpu == caller_cpu.load(std::memory_order_relaxed);
            };
            bool seen = spin(watches ? kWatchNs : 0, has_news, is_in_the_way);
            if (!seen && !is_in_the_way() &&
                n_loops.load(std::memory_order_relaxed) != n_loops_before)
                continue;
            if (!seen) park();
            work(worker);
        }
    }

    // A worker says that it is parked and then looks for a loop once more; the caller publishes a
    // loop (or `stopping`) and then looks for parked workers. All four are sequentially consistent,
    // so at least one of the two sees the other: no loop is slept through.
    void park() {
        std::unique_lock lock(mutex);
        n_parked.fetch_add(1, std::memory_order_seq_cst);
        if (has_ticket(tickets.load(std::memory_order_seq_cst)) ||
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

    // Waits until no ticket is out. Acquire: pairs with the release of every worker that gave
    // tickets back (each continues the release sequences of those before), so that all they wrote
    // is seen, and the next loop is described only after their last look at this one.
    void join() {
        auto ended = [&] { return n_open.load(std::memory_order_acquire) == 0; };
        if (spin(watches ? kJoinNs : 0, ended, [] { return false; })) return;
        // As in park(): the caller says that it is parked and then looks at n_open; the worker that
        // brings n_open to 0 does so and then looks at caller_parked.
        std::unique_lock lock(mutex);
        caller_parked.store(true, std::memory_order_seq_cst);
        joined.wait(lock, [&] { return n_open.load(std::memory_order_seq_cst) == 0; });
        caller_parked.store(false, std::memory_order_relaxed);
    }

    void stop() {
        stopping.store(true, std::memory_order_seq_cst);
        wake_parked();
        for (std::thread& thread : threads) thread.join();
    }
};

ThreadPool::ThreadPool(const ThreadPoolOptions& options)
    : n_threads_(options.n_threads), state_(std::make_unique<State>()) {
    CHECK(n_threads_ >= 1);
    State& s = *state_;
    if (options.pin) {
        s.cores = physical_cores();
        if (static_cast<int>(s.cores.size()) < n_threads_) {
            throw Error(ErrorKind::kUsage,
                        "cannot pin {} threads: this process may use {} physical cores", n_threads_,
                        s.cores.size());
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
    if (n_threads_ == 1 || n <= grain) {
        for (int64_t begin = 0; begin < n;) {
            int64_t end = begin + std::min(n - begin, grain);
            body(begin, end, 0);
            begin = end;
        }
        return;
    }
    int64_t n_pieces = n / grain + (n % grain != 0);
    s.loop = {body, n, grain, Cut(n_pieces, n_threads_)};
    int64_t n_tickets = s.loop.cut.n_tickets();
    s.n_open.store(n_tickets, std::memory_order_relaxed);
    s.n_loops.store(s.n_loops.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    s.caller_cpu.store(current_cpu(), std::memory_order_relaxed);
    // Release: `loop` and n_open are seen by whoever gets a ticket. Sequentially consistent, with
    // the look at n_parked that follows: see park().
    s.tickets.store(static_cast<uint64_t>(n_tickets) << 32, std::memory_order_seq_cst);
    s.wake_parked();
    s.work(0);
    s.join();
}

}  // namespace ridge
