#pragma once

#include <cstdint>

namespace ridge {

using Token = int32_t;  // an id in a model's vocabulary

}  // namespace ridge
