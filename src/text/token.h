#pragma once

#include <cstdint>

namespace ridge {

using Token = int32_t;  // an id in a model's vocabulary

// What a vocabulary says a token is for.
enum class TokenType : uint8_t {
    kNormal,       // text
    kUnknown,      // stands for what the vocabulary cannot write
    kControl,      // markup: turns, ends; never made from plain text
    kUserDefined,  // added after training: found as a whole, before the text around it is split
    kUnused,       // an id that nothing makes
    kByte,         // one byte, for characters that have no token ("<0x0A>")
};

}  // namespace ridge
