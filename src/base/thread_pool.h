#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace ridge {

struct ThreadPoolOptions {
    int n_threads;  // the caller included, at least 1
    bool pin;       // keep thread i on the i-th physical core that this process may use

    ThreadPoolOptions(int n_threads, bool pin = false)  // NOLINT: an int is enough in most places
        : n_threads(n_threads), pin(pin) {}
};

// When the threads of a pool worked, for traces. A thread that claimed nothing of a loop has no
// span of it.
class LoopRecord {
  public:
    struct Span {
        int64_t loop;              // its number
        int64_t begin_ns, end_ns;  // monotonic_ns(): from the first piece to the end of the last
    };

    // Forgets what there is. Room is taken for the same number of spans of each thread; those of
    // later loops are counted, not kept.
    void clear(int n_threads);
    std::span<const Span> spans(int thread) const {
        return threads_[static_cast<size_t>(thread)].spans;
    }
    int n_threads() const { return static_cast<int>(threads_.size()); }
    int64_t n_loops() const { return n_loops_; }  // those that the caller ran alone among them

  private:
    friend class ThreadPool;

    struct alignas(128) Thread {  // written by that thread alone
        std::vector<Span> spans;
    };
    std::vector<Thread> threads_;
    int64_t n_loops_ = 0;

    void add(int thread, const Span& span);
};

// A fixed set of threads that run one loop at a time. The caller is one of them: a pool of 1 starts
// no thread.
//
// Between loops the other threads watch for the next one for 0.1 ms, so that the loops of a decode
// step, some microseconds apart, start at once; after that they are parked and use no CPU. A pool
// with more threads than CPUs parks them at once instead, since watching would take the CPU from
// those that have work.
//
// A loop is cut into one range of pieces for each thread, which takes them in order: each thread
// reads memory in one long stretch. One that has no more takes half of what another has left, from
// the end, so that a slow or late thread holds nobody up for longer than a piece. The loop ends
// when all pieces have; threads that claimed none are not waited for.
class ThreadPool {
  public:
    // Error where the system does not start so many threads or, with `pin`, where there are fewer
    // cores or no way to pin. The calling thread itself is pinned by its first loop; it gets its
    // CPUs back when the pool ends on that thread. Threads that it starts meanwhile stay on its
    // core.
    explicit ThreadPool(const ThreadPoolOptions& options);
    ~ThreadPool();
    ThreadPool(const ThreadPool&) = delete;
    ThreadPool& operator=(const ThreadPool&) = delete;

    int size() const { return n_threads_; }

    // Calls body(begin, end, worker) until [0, n) is covered, each index once, in pieces of at most
    // `grain`; returns when all are done. worker is in [0, size()). The body must not throw, and
    // must not call the pool. What the caller wrote before the loop is seen by every body, what the
    // bodies wrote by the caller after it. One thread at a time may call.
    template <class Body>
    void parallel_for(int64_t n, int64_t grain, const Body& body) {
        run(n, grain, {&body, [](const void* self, int64_t begin, int64_t end, int worker) {
                           (*static_cast<const Body*>(self))(begin, end, worker);
                       }});
    }

    // Between loops: those that follow are noted there; null: nowhere.
    void record(LoopRecord* record) { record_ = record; }

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
    LoopRecord* record_ = nullptr;
    std::unique_ptr<State> state_;
};

}  // namespace ridge
