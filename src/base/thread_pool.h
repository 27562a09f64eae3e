#pragma once

#include <cstdint>
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
    template <class Body>
    void parallel_for(int64_t n, int64_t grain, const Body& body) {
        run(n, grain, {&body, [](const void* self, int64_t begin, int64_t end, int worker) {
                           (*static_cast<const Body*>(self))(begin, end, worker);
                       }});
    }

  private:
    // A body by address: a std::function of a lambda with a few captures would be a heap allocation
    // a loop.
    struct BodyRef {
        const void* self;
        void (*call)(const void* self, int64_t begin, int64_t end, int worker);

        void operator()(int64_t begin, int64_t end, int worker) const {
            call(self, begin, end, worker);
        }
    };
    void run(int64_t n, int64_t grain, BodyRef body);

    struct State;
    int n_threads_;
    std::unique_ptr<State> state_;
};

}  // namespace ridge
