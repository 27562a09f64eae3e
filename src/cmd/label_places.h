#pragma once

#include <optional>
#include <span>
#include <vector>

namespace ridge {

// Places for labels beside the points that they name, none over another. Pixels, y downwards.

struct LabelBox {
    double left = 0, top = 0, right = 0, bottom = 0;

    bool meets(const LabelBox& other) const {
        return left < other.right && other.left < right && top < other.bottom && other.top < bottom;
    }
};

struct LabelWish {
    double x = 0, y = 0;           // the point
    double radius = 6;             // of its mark
    double width = 0, height = 0;  // of the label
};

struct LabelLine {
    double x0, y0, x1, y1;
};

// From a point to the nearest spot of its label; none where they lie side by side.
std::optional<LabelLine> lead_of(const LabelWish& wish, const LabelBox& box);

// One box for each wish, which takes its turn in order, so that the first are the nearest to their
// points: within the frame, over no other label, no `taken` box and no mark. Of what is left it is
// the place nearest to the point, where places that cover `lines` or leads, or whose own lead
// crosses labels, count as farther. Where there is none at all, one within the frame: they are too
// many for it.
std::vector<LabelBox> place_labels(std::span<const LabelWish> wishes, const LabelBox& frame,
                                   std::span<const LabelBox> taken,
                                   std::span<const LabelLine> lines);

}  // namespace ridge
