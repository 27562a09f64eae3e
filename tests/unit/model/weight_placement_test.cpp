#include "model/weight_placement.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>

namespace ridge {
namespace {

constexpr int64_t kOther = 1000, kLayer = 100;

std::vector<int64_t> alike(int n_layers) {
    return std::vector<int64_t>(static_cast<size_t>(n_layers), kLayer);
}

TEST(WeightPlacement, all_weights_stay_where_they_fit) {
    const WeightPlacement placement = place_weights(alike(16), kOther, kOther + 16 * kLayer, false);
    EXPECT_TRUE(placement.streamed.empty());
    EXPECT_EQ(placement.resident_bytes, kOther + 16 * kLayer);
    EXPECT_EQ(placement.device_bytes(), placement.resident_bytes);
    EXPECT_EQ(placement.bytes_a_step(), 0);
}

TEST(WeightPlacement, as_many_layers_stay_as_fit_beside_two_buffers) {
    for (int n_layers = 3; n_layers <= 33; n_layers++) {
        for (int64_t room = kOther; room < kOther + n_layers * kLayer; room += kLayer / 2) {
            SCOPED_TRACE(testing::Message() << n_layers << " layers, room " << room);
            const WeightPlacement placement = place_weights(alike(n_layers), kOther, room, false);
            const auto n = static_cast<int64_t>(placement.streamed.size());
            const int64_t n_fitting = (room - kOther) / kLayer - kStreamBuffers;
            int64_t expected = std::max(n_layers - n_fitting, int64_t{4});
            expected += expected % 2;  // so that a step's last and first use different buffers
            EXPECT_EQ(n, std::min<int64_t>(expected, n_layers));
            EXPECT_EQ(placement.buffer_bytes, kLayer);
            EXPECT_EQ(placement.streamed_bytes, n * kLayer);
            EXPECT_EQ(placement.resident_bytes, kOther + (n_layers - n) * kLayer);
            if (n_fitting >= 0) {
                EXPECT_LE(placement.device_bytes(), room);
            }
        }
    }
}

TEST(WeightPlacement, streamed_layers_are_ascending_and_evenly_spread) {
    const WeightPlacement placement = place_weights(alike(16), kOther, kOther + 10 * kLayer, false);
    std::vector<int> layers;
    for (const auto& streamed : placement.streamed) layers.push_back(streamed.layer);
    EXPECT_EQ(layers, (std::vector<int>{0, 2, 4, 6, 8, 10, 12, 14}));
}

TEST(WeightPlacement, buffers_hold_the_largest_streamed_layer_and_all_bytes_are_counted_once) {
    const std::vector<int64_t> bytes = {300, 100, 200, 500, 100, 400, 100, 100, 250};
    const int64_t total = std::accumulate(bytes.begin(), bytes.end(), kOther);
    for (int64_t room = kOther + 1000; room <= total; room += 50) {
        const WeightPlacement placement = place_weights(bytes, kOther, room, false);
        EXPECT_LE(placement.device_bytes(), room);
        EXPECT_EQ(placement.resident_bytes + placement.streamed_bytes, total);
        std::set<int> seen;
        for (const auto& streamed : placement.streamed) {
            EXPECT_EQ(streamed.n_bytes, bytes[static_cast<size_t>(streamed.layer)]);
            EXPECT_LE(streamed.n_bytes, placement.buffer_bytes);
            EXPECT_TRUE(seen.insert(streamed.layer).second);
        }
    }
}

TEST(WeightPlacement, no_layer_stays_where_that_is_asked) {
    const WeightPlacement placement = place_weights(alike(5), kOther, 1 << 30, true);
    EXPECT_EQ(placement.streamed.size(), 5u);
    EXPECT_EQ(placement.device_bytes(), kOther + 2 * kLayer);
    EXPECT_EQ(placement.bytes_a_step(), 5 * kLayer);
}

TEST(WeightPlacement, layers_that_have_a_buffer_for_themselves_come_once) {
    EXPECT_EQ(place_weights(alike(1), kOther, 1 << 30, true).bytes_a_step(), 0);
    EXPECT_EQ(place_weights(alike(2), kOther, 1 << 30, true).bytes_a_step(), 0);
    EXPECT_EQ(place_weights(alike(3), kOther, 1 << 30, true).bytes_a_step(), 2 * kLayer);
}

TEST(WeightPlacement, what_does_not_fit_at_all_tells_how_much_room_it_wants) {
    const WeightPlacement placement = place_weights(alike(16), kOther, kOther + kLayer, false);
    EXPECT_EQ(placement.streamed.size(), 16u);
    EXPECT_EQ(placement.device_bytes(), kOther + 2 * kLayer);
}

}  // namespace
}  // namespace ridge
