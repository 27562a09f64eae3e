#pragma once

#include <span>
#include <string>

namespace ridge {

// FNV-1a (Fowler, Noll, Vo), 64 bits, over the little-endian bytes of the float32 logits, as 16
// hexadecimal digits: two runs agree in it exactly where they agree in every bit.
std::string logits_hash(std::span<const float> logits);

}  // namespace ridge
