#pragma once

#include <string>
#include <string_view>

namespace ridge {

// True where one quick pass shows that nfc() would give the text back unchanged; false says
// nothing.
bool is_surely_nfc(std::string_view text);

// Unicode's canonical composition (NFC, UAX #15), by Unicode 9 as the published tokenizers have it,
// in time n log n for any input: also for long runs of combining marks. Bytes that are not UTF-8
// stay as they are and compose with nothing.
std::string nfc(std::string_view text);

}  // namespace ridge
