#pragma once

namespace ridge::cpu {
namespace {

// How wide a register of the including file's instruction set is.
#if defined(__AVX512F__)
constexpr int kVectorBytes = 64;
#elif defined(__AVX2__)
constexpr int kVectorBytes = 32;
#else
constexpr int kVectorBytes = 16;
#endif

}  // namespace
}  // namespace ridge::cpu
