#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "cases/case.h"
#include "format/tensor.h"
#include "model/weights.h"

namespace ridge {

// Makes weights of normal elements in any format, row_major, and owns their bytes. Few rows of a
// large one are distinct: quantising them costs more than running a case. What `stream` does not
// tell apart is the same.
class RandomWeights {
  public:
    explicit RandomWeights(uint64_t seed) : seed_(seed) {}
    RandomWeights(const RandomWeights&) = delete;

    Tensor matrix(const CaseWeight& weight, int64_t d_in, float scale, uint64_t stream);
    // [n] f32; elements of mean `mean`.
    Tensor vector(int64_t n, float mean, float scale, uint64_t stream);
    // A matrix, and a bias of the same scale where `weight` has one.
    Linear linear(const CaseWeight& weight, int64_t d_in, float scale, uint64_t stream);

  private:
    std::byte* allocate(int64_t n_bytes);

    uint64_t seed_;
    std::deque<std::vector<std::byte>> bytes_;
};

}  // namespace ridge
