#include "cmd/label_places.h"

#include <algorithm>
#include <cmath>

namespace ridge {
namespace {

constexpr double kPi = 3.14159265358979323846;
constexpr double kGap = 4;                // between a mark and its label
constexpr double kRing = 12;              // from one ring of places to the next
constexpr int kRings = 60, kAngles = 24;  // tried
// Pixels that a label goes to stand on one line less, or on one lead, or for its own lead to cross
// one label or lead less.
constexpr double kLineCost = 40, kLeadCost = 200;

LabelBox box_around(double x, double y, double width, double height) {
    return {x - width / 2, y - height / 2, x + width / 2, y + height / 2};
}

// Whether a piece of the line lies within the box: what the four sides leave of it.
bool crosses(const LabelLine& line, const LabelBox& box) {
    double from = 0, to = 1;
    auto clip = [&](double start, double step, double low, double high) {
        if (step == 0) return start >= low && start <= high;
        double a = (low - start) / step, b = (high - start) / step;
        if (a > b) std::swap(a, b);
        from = std::max(from, a), to = std::min(to, b);
        return from < to;
    };
    return clip(line.x0, line.x1 - line.x0, box.left, box.right) &&
           clip(line.y0, line.y1 - line.y0, box.top, box.bottom);
}

bool is_within(const LabelBox& box, const LabelBox& frame) {
    return box.left >= frame.left && box.right <= frame.right && box.top >= frame.top &&
           box.bottom <= frame.bottom;
}

// The centre of a label that stands off its point at this angle, `distance` from the mark's edge.
LabelBox box_at(const LabelWish& wish, double angle, double distance) {
    const double dx = std::cos(angle), dy = std::sin(angle);
    const double reach = wish.radius + kGap + distance;
    return box_around(wish.x + dx * (reach + wish.width / 2),
                      wish.y + dy * (reach + wish.height / 2), wish.width, wish.height);
}

// Straight lines cross where each has the other's ends on both sides.
bool cross(const LabelLine& a, const LabelLine& b) {
    auto side = [](const LabelLine& l, double x, double y) {
        return (l.x1 - l.x0) * (y - l.y0) - (l.y1 - l.y0) * (x - l.x0);
    };
    return side(a, b.x0, b.y0) * side(a, b.x1, b.y1) < 0 &&
           side(b, a.x0, a.y0) * side(b, a.x1, a.y1) < 0;
}

class Places {
  public:
    Places(std::span<const LabelWish> wishes, const LabelBox& frame,
           std::span<const LabelBox> taken, std::span<const LabelLine> lines)
        : frame_(frame), lines_(lines), blocked_(taken.begin(), taken.end()) {
        for (const LabelWish& wish : wishes) {
            blocked_.push_back(box_around(wish.x, wish.y, 2 * wish.radius, 2 * wish.radius));
        }
    }

    LabelBox place(const LabelWish& wish) {
        LabelBox best = fallback(wish);
        double best_cost = HUGE_VAL;
        for (int ring = 0; ring < kRings && ring * kRing < best_cost; ring++) {
            for (int i = 0; i < kAngles; i++) {
                const LabelBox box = box_at(wish, 2 * kPi * i / kAngles, ring * kRing);
                if (!is_within(box, frame_) || is_blocked(box)) continue;
                const double cost = ring * kRing + cost_of(wish, box);
                if (cost < best_cost) best_cost = cost, best = box;
            }
        }
        blocked_.push_back(best);
        labels_.push_back(best);
        if (const auto lead = lead_of(wish, best)) leads_.push_back(*lead);
        return best;
    }

  private:
    bool is_blocked(const LabelBox& box) const {
        return std::any_of(blocked_.begin(), blocked_.end(),
                           [&](const LabelBox& other) { return box.meets(other); });
    }

    double cost_of(const LabelWish& wish, const LabelBox& box) const {
        double cost = 0;
        for (const LabelLine& line : lines_) cost += crosses(line, box) ? kLineCost : 0;
        for (const LabelLine& lead : leads_) cost += crosses(lead, box) ? kLeadCost : 0;
        const auto own = lead_of(wish, box);
        if (!own) return cost;
        for (const LabelBox& label : labels_) cost += crosses(*own, label) ? kLeadCost : 0;
        for (const LabelLine& lead : leads_) cost += cross(*own, lead) ? kLeadCost : 0;
        return cost;
    }

    LabelBox fallback(const LabelWish& wish) const {
        auto within = [](double at, double size, double low, double high) {
            return std::max(low + size / 2, std::min(at, high - size / 2));
        };
        return box_around(within(wish.x, wish.width, frame_.left, frame_.right),
                          within(wish.y, wish.height, frame_.top, frame_.bottom), wish.width,
                          wish.height);
    }

    const LabelBox frame_;
    std::span<const LabelLine> lines_;
    std::vector<LabelBox> blocked_, labels_;
    std::vector<LabelLine> leads_;
};

}  // namespace

std::optional<LabelLine> lead_of(const LabelWish& wish, const LabelBox& box) {
    const double x = std::clamp(wish.x, box.left, box.right);
    const double y = std::clamp(wish.y, box.top, box.bottom);
    if (std::hypot(x - wish.x, y - wish.y) < wish.radius + kGap + kRing / 2) return std::nullopt;
    return LabelLine{wish.x, wish.y, x, y};
}

std::vector<LabelBox> place_labels(std::span<const LabelWish> wishes, const LabelBox& frame,
                                   std::span<const LabelBox> taken,
                                   std::span<const LabelLine> lines) {
    Places places(wishes, frame, taken, lines);
    std::vector<LabelBox> boxes;
    for (const LabelWish& wish : wishes) boxes.push_back(places.place(wish));
    return boxes;
}

}  // namespace ridge
