#pragma once

#include <string_view>

#include "model/tables.h"

namespace ridge::cuda {

// Operators on rows of activations, f32.
void rms_norm(Step& s, Heads x, const Tensor& weight, float eps, Heads out);
void add(Step& s, Rows y, Rows x);
void rope(Step& s, Heads x, Positions position, const RopeTable& table);
void swiglu(Step& s, Rows gate_up, Rows out);

}  // namespace ridge::cuda
