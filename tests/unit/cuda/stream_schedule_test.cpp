#include "cuda/stream_schedule.h"

#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <random>

#include "support/seed.h"

// Two queues that run as a device may run them: each in its order, one beside the other in any.

namespace ridge::cuda {
namespace {

// What is put into a queue runs when its `ready` holds. Events are counters: a wait that was put in
// waits for what had been recorded by then.
class Queues {
  public:
    void computed(int buffer) {
        const int n = ++n_computed_put_[at(buffer)];
        computing_.push_back(
            {[] { return true; }, [this, buffer, n] { computed_[at(buffer)] = n; }});
    }
    void copy(int layer, int buffer) {
        n_copies++;
        EXPECT_EQ(buffer, layer % kStreamBuffers);
        const int n = n_computed_put_[at(buffer)];
        copying_.push_back({[this, buffer, n] { return computed_[at(buffer)] >= n; }, [] {}});
        // A copy takes a while, in which the buffer holds nothing that can be used.
        copying_.push_back({[] { return true; }, [this, buffer] { begin_copy(buffer); }});
        copying_.push_back(
            {[] { return true; }, [this, layer, buffer] { held_[at(buffer)] = layer; }});
        const int n_copied = ++n_copied_put_[at(buffer)];
        copying_.push_back(
            {[] { return true; }, [this, buffer, n_copied] { copied_[at(buffer)] = n_copied; }});
    }
    void wait(int buffer) {
        const int n = n_copied_put_[at(buffer)];
        computing_.push_back({[this, buffer, n] { return copied_[at(buffer)] >= n; }, [] {}});
    }
    // A layer's kernels: the buffer holds its weights from the first to the last.
    void compute(int layer) {
        const int buffer = layer % kStreamBuffers;
        computing_.push_back({[] { return true; },
                              [this, layer, buffer] {
                                  EXPECT_EQ(held_[at(buffer)], layer) << "as it begins";
                                  in_use_[at(buffer)] = true;
                              }});
        computing_.push_back({[] { return true; },
                              [this, layer, buffer] {
                                  EXPECT_EQ(held_[at(buffer)], layer) << "as it ends";
                                  in_use_[at(buffer)] = false;
                                  n_computed++;
                              }});
    }

    // Runs up to n entries, of a queue that can go on, which one is random.
    void run(std::mt19937& random, int n) {
        for (; n > 0 && !is_empty(); n--) {
            std::deque<Entry>* queue = random() % 2 == 0 ? &computing_ : &copying_;
            if (!can_run(*queue)) queue = queue == &computing_ ? &copying_ : &computing_;
            ASSERT_TRUE(can_run(*queue)) << "each queue waits for the other";
            queue->front().run();
            queue->pop_front();
        }
    }
    bool is_empty() const { return computing_.empty() && copying_.empty(); }

    int n_copies = 0, n_computed = 0;

  private:
    struct Entry {
        std::function<bool()> ready;
        std::function<void()> run;
    };
    using Counters = std::array<int, kStreamBuffers>;
    static bool can_run(const std::deque<Entry>& queue) {
        return !queue.empty() && queue.front().ready();
    }
    static size_t at(int buffer) { return static_cast<size_t>(buffer); }

    void begin_copy(int buffer) {
        EXPECT_FALSE(in_use_[at(buffer)]) << "buffer " << buffer;
        held_[at(buffer)] = -1;
    }

    std::deque<Entry> computing_, copying_;
    Counters n_computed_put_{}, computed_{}, n_copied_put_{}, copied_{}, held_{-1, -1};
    std::array<bool, kStreamBuffers> in_use_{};
};

// One step that the host puts into the queues, up to the kernels of layer `end`; those run
// meanwhile as far as they like.
void step(StreamSchedule& schedule, Queues& queues, int n_layers, int end, std::mt19937& random) {
    for (int layer = 0; layer < n_layers; layer++) {
        schedule.before(layer, queues);
        if (layer == end) return;
        queues.compute(layer);
        queues.run(random, static_cast<int>(random() % 12));
        schedule.after(layer, queues);
    }
}

constexpr int kNever = -1;

TEST(StreamSchedule, every_layer_is_computed_from_its_own_weights) {
    std::mt19937 random(static_cast<uint32_t>(test_seed()));
    for (int n_layers = 1; n_layers <= 9; n_layers++) {
        for (int round = 0; round < 50; round++) {
            SCOPED_TRACE(testing::Message() << n_layers << " layers, RIDGE_SEED=" << test_seed());
            StreamSchedule schedule(n_layers);
            Queues queues;
            for (int i = 0; i < 5; i++) step(schedule, queues, n_layers, kNever, random);
            queues.run(random, 1 << 20);
            EXPECT_EQ(queues.n_computed, 5 * n_layers);
            if (testing::Test::HasFailure()) return;
        }
    }
}

// Kernels of a layer may still be going on when the step that they belong to has been given up.
TEST(StreamSchedule, a_step_that_ends_within_does_no_harm) {
    std::mt19937 random(static_cast<uint32_t>(test_seed()));
    for (int n_layers = 1; n_layers <= 9; n_layers++) {
        for (int round = 0; round < 100; round++) {
            SCOPED_TRACE(testing::Message() << n_layers << " layers, RIDGE_SEED=" << test_seed());
            StreamSchedule schedule(n_layers);
            Queues queues;
            for (int i = 0; i < 6; i++) {
                const bool whole = random() % 2 == 0;
                const int end = static_cast<int>(random()) % n_layers;
                step(schedule, queues, n_layers, whole ? kNever : std::abs(end), random);
                if (random() % 4 == 0) {  // between steps something else is copied to the buffers
                    queues.run(random, 1 << 20);
                    schedule.forget();
                }
            }
            queues.run(random, 1 << 20);
            EXPECT_TRUE(queues.is_empty());
            if (testing::Test::HasFailure()) return;
        }
    }
}

TEST(StreamSchedule, a_step_copies_each_layer_once_and_the_first_ones_of_the_next) {
    std::mt19937 random(1);
    for (int n_layers : {4, 5, 8}) {
        StreamSchedule schedule(n_layers);
        Queues queues;
        for (int n_steps = 1; n_steps <= 3; n_steps++) {
            step(schedule, queues, n_layers, kNever, random);
            EXPECT_EQ(queues.n_copies, n_steps * n_layers + kStreamBuffers);
        }
    }
}

TEST(StreamSchedule, layers_that_have_a_buffer_for_themselves_stay_there) {
    std::mt19937 random(1);
    for (int n_layers : {1, 2, 3}) {
        StreamSchedule schedule(n_layers);
        Queues queues;
        for (int i = 0; i < 10; i++) step(schedule, queues, n_layers, kNever, random);
        EXPECT_EQ(queues.n_copies, n_layers < 3 ? n_layers : 1 + 2 * 10 + 1);
    }
}

}  // namespace
}  // namespace ridge::cuda
