#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ridge::jinja {

// Python's numbers as text, and back.

std::string real_text(double value);  // repr(): shortest digits that read back, "1e+16", "nan"

// Digits of a literal in the template: decimal, 0x, 0o, 0b; empty where it does not fit 64 bits.
std::optional<int64_t> parse_literal_int(std::string_view digits);
// int(text, base) and float(text): surrounding whitespace, a sign, single underscores between
// digits. Empty where the text is not such a number.
struct ParsedInt {
    int64_t value;
    bool fits;  // false: a number, but beyond 64 bits
};
std::optional<ParsedInt> parse_int(std::string_view text, int base);
std::optional<double> parse_real(std::string_view text);

double round_decimal(double value, int64_t n_digits);  // round(value, n): exact, ties to even

// value as text with n digits in the manner of C's printf: 'e', 'f' or 'g' (upper case likewise).
std::string printf_real(double value, char style, int precision, bool alternate);

int compare(int64_t a, double b);  // exact: -1, 0 or 1; b is not NaN

}  // namespace ridge::jinja
