#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace ridge {

// A fixed set of threads that run one loop at a time. The caller is one of them: a pool of 1 starts
// no thread. Between loops the threads are parked and use no CPU.
class ThreadPool {
  public:
    explicit ThreadPool(int n_threads);  // Error where the system does not start so many
    ~ThreadPool();
    ThreadPool(const ThreadPool&) = delete;
    ThreadPool& operator=(const ThreadPool&) = delete;

    int size() const { return n_threads_; }

    // Calls body(begin, end, worker) until [0, n) is covered, each index once, in pieces of at most
    // `grain`; returns when all are done. worker is in [0, size()). The body must not throw, and
    // must not call the pool.
    void parallel_for(int64_t n, int64_t grain,
                      const std::function<void(int64_t, int64_t, int)>& body);

  private:
    struct State;
    int n_threads_;
    std::unique_ptr<State> state_;
};

}  // namespace ridge
