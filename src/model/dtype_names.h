#pragma once

#include <array>
#include <string_view>

#include "model/rows.h"

namespace ridge {

// In the order of DType: as options, files and tables name types of the KV cache.
inline constexpr std::array<std::string_view, 4> kDTypeNames = {"f32", "f16", "bf16", "q8_0"};

constexpr std::string_view dtype_name(DType dtype) {
    return kDTypeNames[static_cast<size_t>(dtype)];
}

}  // namespace ridge
