#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ridge::jinja {

// What Python's str methods ask of a code point.
bool is_space(uint32_t code);
bool is_alpha(uint32_t code);
bool is_decimal(uint32_t code);
bool is_digit(uint32_t code);
bool is_numeric(uint32_t code);
bool is_lower(uint32_t code);
bool is_upper(uint32_t code);
bool is_title(uint32_t code);  // one of the few titlecase letters
bool is_cased(uint32_t code);  // lower, upper or title
bool is_case_ignorable(uint32_t code);
bool is_printable(uint32_t code);  // repr() shows it as it is
bool is_identifier_part(uint32_t code);

// Full case mappings (Unicode's SpecialCasing included, but for the final sigma, which depends on
// its neighbours), appended to `out`.
void append_upper(std::string& out, uint32_t code);
void append_lower(std::string& out, uint32_t code);
void append_title(std::string& out, uint32_t code);
void append_casefold(std::string& out, uint32_t code);

bool is_ascii(std::string_view text);
// Bytes of the UTF-8 character that starts with this byte; the text is valid.
inline size_t utf8_length(char lead) {
    auto byte = static_cast<unsigned char>(lead);
    return byte < 0x80 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
}
inline bool is_utf8_start(char byte) {
    return (static_cast<unsigned char>(byte) & 0xc0) != 0x80;
}

// Position of the first byte that is not UTF-8, or npos.
size_t find_invalid_utf8(std::string_view text);

}  // namespace ridge::jinja
