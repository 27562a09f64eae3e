#pragma once

#include <string>
#include <vector>

namespace ridge {

// A table in Markdown whose columns line up: the first n_left to the left, the others to the right.
// The first row is the head; all have as many cells.
std::string aligned_table(const std::vector<std::vector<std::string>>& rows, size_t n_left);

}  // namespace ridge
