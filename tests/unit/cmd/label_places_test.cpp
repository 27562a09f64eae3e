#include "cmd/label_places.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>

#include "support/seed.h"

namespace ridge {
namespace {

constexpr LabelBox kFrame = {0, 0, 1400, 700};

bool is_inside(const LabelBox& box) {
    return box.left >= kFrame.left && box.right <= kFrame.right && box.top >= kFrame.top &&
           box.bottom <= kFrame.bottom;
}

TEST(LabelPlaces, one_label_stands_beside_its_mark) {
    const LabelWish wish = {700, 350, 10, 100, 20};
    const LabelBox box = place_labels(std::vector{wish}, kFrame, {}, {}).front();
    EXPECT_FALSE(box.meets({690, 340, 710, 360}));
    EXPECT_FALSE(lead_of(wish, box)) << "it needs no line to be told";
    EXPECT_NEAR(box.right - box.left, 100, 1e-9);
}

TEST(LabelPlaces, labels_of_crowded_points_lie_over_nothing) {
    const uint64_t seed = test_seed();
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    for (int round = 0; round < 20; round++) {
        std::vector<LabelWish> wishes;
        std::uniform_real_distribution<double> x(5, 1395), y(5, 695), near(-20, 20), width(60, 220);
        for (int cluster = 0; cluster < 5; cluster++) {
            const double at_x = x(random), at_y = y(random);
            for (int i = 0; i < 5; i++) {
                wishes.push_back({std::clamp(at_x + near(random), 5.0, 1395.0),
                                  std::clamp(at_y + near(random), 5.0, 695.0), 6, width(random),
                                  24});
            }
        }
        const std::vector<LabelBox> taken = {{0, 0, 300, 80}, {1200, 600, 1400, 700}};
        const std::vector<LabelLine> lines = {{0, 600, 800, 100}};
        const std::vector<LabelBox> boxes = place_labels(wishes, kFrame, taken, lines);
        ASSERT_EQ(boxes.size(), wishes.size());
        for (size_t i = 0; i < boxes.size(); i++) {
            EXPECT_TRUE(is_inside(boxes[i]));
            for (size_t j = 0; j < i; j++) EXPECT_FALSE(boxes[i].meets(boxes[j])) << i << " " << j;
            for (const LabelBox& box : taken) EXPECT_FALSE(boxes[i].meets(box)) << i;
            for (const LabelWish& w : wishes) {
                EXPECT_FALSE(boxes[i].meets({w.x - 6, w.y - 6, w.x + 6, w.y + 6})) << i;
            }
        }
    }
}

TEST(LabelPlaces, a_line_nearby_is_left_free) {
    const LabelWish wish = {700, 350, 5, 100, 20};
    // Through the point, level: above and below it there is room.
    const std::vector<LabelLine> lines = {{0, 350, 1400, 350}};
    const LabelBox box = place_labels(std::vector{wish}, kFrame, {}, lines).front();
    EXPECT_TRUE(box.bottom <= 350 || box.top >= 350);
}

TEST(LabelPlaces, more_labels_than_fit_stay_in_the_frame) {
    const std::vector<LabelWish> wishes(30, {50, 20, 4, 90, 18});
    const LabelBox frame = {0, 0, 100, 40};
    for (const LabelBox& box : place_labels(wishes, frame, {}, {})) {
        EXPECT_GE(box.left, 0);
        EXPECT_LE(box.right, 100);
        EXPECT_GE(box.top, 0);
        EXPECT_LE(box.bottom, 40);
    }
}

TEST(LabelPlaces, a_far_label_is_led_to_by_a_line) {
    const auto lead = lead_of({10, 10, 5, 40, 20}, {100, 100, 140, 120});
    ASSERT_TRUE(lead);
    EXPECT_EQ(lead->x0, 10);
    EXPECT_EQ(lead->x1, 100);
    EXPECT_EQ(lead->y1, 100);
}

}  // namespace
}  // namespace ridge
