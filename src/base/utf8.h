#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace ridge {

// One step through UTF-8 text. Where the bytes are not UTF-8 (overlong forms, surrogates and values
// above U+10FFFF included), `valid` is false, `code` is U+FFFD and `n_bytes` is the length of the
// maximal ill-formed prefix (at least 1), as Unicode's "substitution of maximal subparts" has it.
struct Utf8Char {
    uint32_t code;
    uint8_t n_bytes;
    bool valid;
    bool truncated;  // invalid only because the text ends inside a sequence that could still become
                     // valid
};

Utf8Char decode_utf8(std::string_view text);  // text is not empty
void append_utf8(std::string& out, uint32_t code);

}  // namespace ridge
