#include <gtest/gtest.h>

#include "engine/prepare_weights.h"

// A prompt's steps have as many rows as their device wants, unless weights would have to give way.

namespace ridge {
namespace {

// Of which only the bytes of weights are asked: 10 for each tensor.
class Device : public Backend {
  public:
    explicit Device(bool can_stream) : can_stream_(can_stream) {}
    std::string_view name() const override { return "device"; }
    std::span<const Checkpoint> checkpoints() const override { return {}; }
    Caps caps() const override { return {}; }
    uint64_t free_memory_bytes() const override { return 0; }
    Buffer alloc(size_t) override { return {}; }
    void prepare(std::span<Tensor* const>, const Layout&, int, const PrepareEvents&) override {}
    int64_t least_bytes(const Tensor&, const Layout&) const override { return 10; }
    KvCache make_kv_cache(const Config&, DType, DType, int64_t) override { return {}; }
    bool can_stream() const override { return can_stream_; }
    std::vector<Fallback> plan(const Model&, const KvCache&, int, int) override { return {}; }
    Ticket step(const Model&, const KvCache&, const Batch&) override { return {}; }
    StepResult wait(Ticket) override { return {}; }
    double measure_read_gbps(const Model&) override { return 0; }

  private:
    bool can_stream_;
};

constexpr int kLayers = 12;
constexpr int64_t kLayerBytes = 9 * 10, kOtherBytes = 3 * 10;  // as Weights has tensors
constexpr int64_t kAllBytes = kLayers * kLayerBytes + kOtherBytes;

// Steps take a byte for each row.
int chosen(int64_t memory_bytes, int n_wanted, bool stream = false, bool can_stream = true) {
    Model model;
    for (int i = 0; i < kLayers; i++) model.weights.layers.emplace_back().index = i;
    for_each_tensor(model.weights, false,
                    [](Tensor& tensor) { tensor.format = &format_of(FormatId::kF32); });
    const PrepareOptions options{.repack = false,
                                 .stream = stream,
                                 .memory_bytes = static_cast<uint64_t>(memory_bytes),
                                 .cache = "the KV cache"};
    return choose_step_rows(options, KvCache{}, Device(can_stream), model, n_wanted,
                            [](int n_rows) { return int64_t{n_rows}; });
}

TEST(StepRows, are_as_many_as_fit_beside_all_weights) {
    EXPECT_EQ(chosen(kAllBytes + 2048, 2048), 2048);
    EXPECT_EQ(chosen(kAllBytes + 2047, 2048), 1024);
    EXPECT_EQ(chosen(kAllBytes + 1023, 2048), 512);
    EXPECT_EQ(chosen(kAllBytes + 512, 2048), 512);
    EXPECT_EQ(chosen(kAllBytes + 700, 700), 700);
    EXPECT_EQ(chosen(kAllBytes + 699, 700), 512);
}

TEST(StepRows, stream_no_layer_more_than_few_rows_would) {
    // Four streamed layers want memory for ten and two more.
    constexpr int64_t kFourStreamed = kAllBytes - 2 * kLayerBytes;
    EXPECT_EQ(chosen(kFourStreamed + 512, 2048), 512);
    EXPECT_EQ(chosen(kFourStreamed + 512 + kLayerBytes, 600), 600);
    // All layers: memory for two, however few fit.
    constexpr int64_t kAllStreamed = kOtherBytes + 2 * kLayerBytes;
    EXPECT_EQ(chosen(kAllStreamed + 2048, 2048, true), 2048);
    EXPECT_EQ(chosen(kAllStreamed + 2047, 2048, true), 1024);
    EXPECT_EQ(chosen(kAllStreamed + 511, 2048), 512);
}

TEST(StepRows, are_what_is_wanted_where_memory_is_the_hosts) {
    EXPECT_EQ(chosen(1, 2048, false, false), 2048);
    EXPECT_EQ(chosen(1, 512), 512);
    EXPECT_EQ(chosen(1, 40), 40);
}

}  // namespace
}  // namespace ridge
