#include "kernels_on_host/host_device.h"

#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <vector>

// What kernels declare.
namespace ridge::cuda::matvec {
extern uint8_t shared[256 << 10];
alignas(16) uint8_t shared[256 << 10];
}  // namespace ridge::cuda::matvec

namespace ridge::host_device {
namespace {

constexpr size_t kStackBytes = 64 << 10;
size_t n_shared_bytes = 0;

// A barrier of threads that take turns.
struct Barrier {
    int n_arrived = 0;
    unsigned generation = 0;
};

class Block {
  public:
    void run(int n_threads, const std::function<void()>& kernel) {
        kernel_ = &kernel;
        warps_.assign(static_cast<size_t>(n_threads / 32), {});
        lanes_.resize(warps_.size());
        barrier_ = {};
        threads_.resize(static_cast<size_t>(n_threads));
        for (Thread& thread : threads_) {
            thread.is_done = false;
            thread.stack.resize(kStackBytes);
            getcontext(&thread.context);
            thread.context.uc_stack.ss_sp = thread.stack.data();
            thread.context.uc_stack.ss_size = thread.stack.size();
            thread.context.uc_link = nullptr;
            makecontext(&thread.context, enter, 0);
        }
        for (bool is_any_left = true; is_any_left;) {
            is_any_left = false;
            for (size_t i = 0; i < threads_.size(); i++) {
                if (threads_[i].is_done) continue;
                is_any_left = true;
                current_ = i, threadIdx.x = static_cast<unsigned>(i);
                swapcontext(&scheduler_, &threads_[i].context);
            }
        }
    }
    void wait(Barrier& barrier, int n_threads) {
        const unsigned generation = barrier.generation;
        if (++barrier.n_arrived == n_threads) {
            barrier.n_arrived = 0, barrier.generation++;
            return;
        }
        while (barrier.generation == generation) leave();
    }
    void wait_for_warp() { wait(warps_[current_ / 32], 32); }
    void wait_for_block() { wait(barrier_, static_cast<int>(threads_.size())); }
    std::array<LaneWords, 32>& lanes() { return lanes_[current_ / 32]; }
    int lane() const { return static_cast<int>(current_ % 32); }

  private:
    struct Thread {
        ucontext_t context;
        std::vector<char> stack;
        bool is_done = false;
    };

    static void enter();
    void leave() { swapcontext(&threads_[current_].context, &scheduler_); }

    const std::function<void()>* kernel_ = nullptr;
    std::vector<Thread> threads_;
    std::vector<Barrier> warps_;
    std::vector<std::array<LaneWords, 32>> lanes_;
    Barrier barrier_;
    ucontext_t scheduler_;
    size_t current_ = 0;
};

Block& block() {
    static Block the_block;
    return the_block;
}

void Block::enter() {
    (*block().kernel_)();
    block().threads_[block().current_].is_done = true;
    block().leave();
}

}  // namespace

uint8_t* in_shared_memory(uint32_t address, size_t n_bytes) {
    const bool is_there = address + n_bytes <= n_shared_bytes;
    if (!is_there || address % std::min<size_t>(n_bytes, 16) != 0) {
        std::fprintf(stderr, "shared memory: %zu bytes at %u of %zu\n", n_bytes, address,
                     n_shared_bytes);
        std::abort();
    }
    return cuda::matvec::shared + address;
}
uint32_t shared_address_of(const void* at) {
    return static_cast<uint32_t>(static_cast<const uint8_t*>(at) - cuda::matvec::shared);
}

void run_grid(unsigned n_blocks, int n_threads, int n_bytes, const std::function<void()>& kernel) {
    n_shared_bytes = static_cast<size_t>(n_bytes);
    gridDim = dim3(n_blocks), blockDim = dim3(static_cast<unsigned>(n_threads));
    for (unsigned b = 0; b < n_blocks; b++) {
        blockIdx.x = b;
        std::fill(std::begin(cuda::matvec::shared), std::end(cuda::matvec::shared), uint8_t{255});
        block().run(n_threads, kernel);
    }
}

const std::array<LaneWords, 32>& exchange(const LaneWords& mine) {
    block().lanes()[static_cast<size_t>(lane())] = mine;
    sync_warp();
    return block().lanes();
}
void end_exchange() {
    sync_warp();
}
int lane() {
    return block().lane();
}
void sync_warp() {
    block().wait_for_warp();
}
void sync_block() {
    block().wait_for_block();
}

}  // namespace ridge::host_device
