#pragma once

#include "model/tables.h"

namespace ridge::cpu {

// Operators on rows of activations, made of the functions of RowKernels. What one thread does in
// less time than a loop over all threads takes to start runs on the calling thread: a decode step's
// norms and rotations. A row's results do not depend on the number of rows, nor on threads.
void rms_norm(Step& s, Heads x, const Tensor& weight, float eps, Heads out);
void rope(Step& s, Heads x, Positions position, const RopeTable& table);
void swiglu(Step& s, Rows gate_up, Rows out);
void add(Step& s, Rows y, Rows x);

}  // namespace ridge::cpu
