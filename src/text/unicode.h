#pragma once

#include <cstdint>

namespace ridge {

// The classes of characters that the published pre-tokenizers tell apart.
enum class CharClass : uint8_t {
    kLetter,   // \p{L}
    kNumber,   // \p{N}
    kNewline,  // \r and \n
    kSpace,    // the rest of White_Space
    kOther,    // everything else: marks, signs, controls, unassigned code points
};

// By Unicode 16, which the published tokenizers' regular expressions use; where the installed
// utf8proc is newer, by its version.
CharClass char_class(uint32_t code);

bool is_white_space(uint32_t code);  // Unicode's White_Space property

// \w of UTS #18: alphabetic characters, marks, decimal digits, connectors and joiners.
bool is_word_char(uint32_t code);

}  // namespace ridge
