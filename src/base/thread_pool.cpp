#include "base/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/error.h"

namespace ridge {

struct ThreadPool::State {
    std::mutex mutex;
    std::condition_variable start, done;
    uint64_t generation = 0;  // counts loops; guarded by mutex
    int n_busy = 0;           // workers still inside the current loop; guarded by mutex
    bool stopping = false;

    // The current loop: written under the mutex before `generation` moves, read by workers after
    // they see it move.
    const BodyRef* body = nullptr;
    int64_t n = 0, grain = 1;
    std::atomic<int64_t> next{0};

    std::vector<std::thread> threads;

    void stop() {
        {
            std::lock_guard lock(mutex);
            stopping = true;
        }
        start.notify_all();
        for (std::thread& thread : threads) thread.join();
    }

    void work(int worker) {
        for (;;) {
            int64_t begin = next.fetch_add(grain, std::memory_order_relaxed);
            if (begin >= n) return;
            (*body)(begin, std::min(begin + grain, n), worker);
        }
    }

    void thread_main(int worker) {
        uint64_t seen = 0;
        for (;;) {
            {
                std::unique_lock lock(mutex);
                start.wait(lock, [&] { return stopping || generation != seen; });
                if (stopping) return;
                seen = generation;
            }
            work(worker);
            std::lock_guard lock(mutex);
            if (--n_busy == 0) done.notify_one();
        }
    }
};

ThreadPool::ThreadPool(int n_threads) : n_threads_(n_threads), state_(std::make_unique<State>()) {
    CHECK(n_threads >= 1);
    int n_started = 1;
    try {
        for (; n_started < n_threads; n_started++) {
            state_->threads.emplace_back(
                [state = state_.get(), n_started] { state->thread_main(n_started); });
        }
    } catch (const std::system_error&) {
        state_->stop();
        throw Error("the system lets this process start {} threads, {} were asked for", n_started,
                    n_threads);
    }
}

ThreadPool::~ThreadPool() {
    state_->stop();
}

void ThreadPool::run(int64_t n, int64_t grain, BodyRef body) {
    CHECK(n >= 0 && grain >= 1);
    if (n == 0) return;
    if (n_threads_ == 1 || n <= grain) {
        for (int64_t begin = 0; begin < n; begin += grain)
            body(begin, std::min(begin + grain, n), 0);
        return;
    }
    State& s = *state_;
    {
        std::lock_guard lock(s.mutex);
        s.body = &body, s.n = n, s.grain = grain;
        s.next.store(0, std::memory_order_relaxed);
        s.n_busy = n_threads_ - 1;
        s.generation++;
    }
    s.start.notify_all();
    s.work(0);
    std::unique_lock lock(s.mutex);
    s.done.wait(lock, [&] { return s.n_busy == 0; });
}

}  // namespace ridge
