#pragma once

#include <vector>

#include "cases/subject.h"

namespace ridge {

// What cases are run on: every checkpoint of the CUDA backend that changes an operator. Its kernels
// round what tensor units multiply; of attention the reference rounds as they do, since an error of
// a score is one of an exponent: large scores would tell the two apart. What else is rounded stays
// in proportion.
std::vector<Subject> cuda_subjects(Op op, const Caps& caps);

// Of a Hopper GPU that is not there: for tables that are asked what they would run.
Caps caps_without_device();

}  // namespace ridge
