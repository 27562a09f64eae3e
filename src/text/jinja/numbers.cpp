#include "text/jinja/numbers.h"

#include <charconv>
#include <cmath>
#include <cstdio>

#include "base/utf8.h"
#include "text/jinja/unicode.h"

namespace ridge::jinja {
namespace {

std::string_view strip_space(std::string_view text) {
    auto space_at = [&](size_t at) { return is_space(decode_utf8(text.substr(at)).code); };
    while (!text.empty() && space_at(0)) text.remove_prefix(utf8_length(text[0]));
    while (!text.empty()) {
        size_t last = text.size() - 1;
        while (last > 0 && !is_utf8_start(text[last])) last--;
        if (!space_at(last)) break;
        text = text.substr(0, last);
    }
    return text;
}

int digit_value(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'z') return c - 'a' + 10;
    if (c >= 'A' && c <= 'Z') return c - 'A' + 10;
    return 99;
}

}  // namespace

std::string real_text(double value) {
    if (std::isnan(value)) return "nan";
    if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
    char buffer[40];
    auto [end, error] =
        std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific);
    (void)error;  // the buffer holds every double
    std::string_view text(buffer, static_cast<size_t>(end - buffer));
    size_t mark = text.find('e');
    int exponent = 0;
    size_t sign_at = mark + (text[mark + 1] == '+' ? 2 : 1);
    std::from_chars(text.data() + sign_at, text.data() + text.size(), exponent);
    std::string sign = text[0] == '-' ? "-" : "";
    std::string digits;
    for (char c : text.substr(0, mark)) {
        if (c >= '0' && c <= '9') digits += c;
    }
    int n = static_cast<int>(digits.size());
    if (exponent < -4 || exponent >= 16) {
        std::string out = sign + digits.substr(0, 1);
        if (n > 1) out += "." + digits.substr(1);
        int size = exponent < 0 ? -exponent : exponent;
        return out + (exponent < 0 ? "e-" : "e+") + (size < 10 ? "0" : "") + std::to_string(size);
    }
    if (exponent < 0) {
        return sign + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
    }
    if (n <= exponent + 1) {
        return sign + digits + std::string(static_cast<size_t>(exponent + 1 - n), '0') + ".0";
    }
    size_t whole = static_cast<size_t>(exponent + 1);
    return sign + digits.substr(0, whole) + "." + digits.substr(whole);
}

std::optional<int64_t> parse_literal_int(std::string_view digits) {
    std::optional<ParsedInt> parsed = parse_int(digits, 0);
    if (!parsed) parsed = parse_int(digits, 10);  // 00
    if (!parsed || !parsed->fits) return std::nullopt;
    return parsed->value;
}

std::optional<ParsedInt> parse_int(std::string_view text, int base) {
    text = strip_space(text);
    bool negative = !text.empty() && text[0] == '-';
    if (!text.empty() && (text[0] == '-' || text[0] == '+')) text.remove_prefix(1);
    bool prefixed = false;
    if (text.size() > 1 && text[0] == '0') {
        char mark = static_cast<char>(text[1] | 0x20);
        int marked = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
        if (marked != 0 && (base == 0 || base == marked)) {
            base = marked;
            text.remove_prefix(2);
            prefixed = true;
        }
    }
    if (base == 0) {
        base = 10;
        // Python refuses "012" here, where the base would be guessed.
        if (text.size() > 1 && text[0] == '0' &&
            text.find_first_not_of("0_") != std::string_view::npos) {
            return std::nullopt;
        }
    }
    uint64_t value = 0;
    bool fits = true, after_digit = prefixed;
    if (text.empty()) return std::nullopt;
    for (char c : text) {
        if (c == '_' && after_digit) {
            after_digit = false;
            continue;
        }
        int digit = digit_value(c);
        if (digit >= base) return std::nullopt;
        after_digit = true;
        fits = fits && !__builtin_mul_overflow(value, static_cast<uint64_t>(base), &value) &&
               !__builtin_add_overflow(value, static_cast<uint64_t>(digit), &value);
    }
    if (!after_digit) return std::nullopt;
    uint64_t bound = (uint64_t{1} << 63) - (negative ? 0 : 1);
    fits = fits && value <= bound;
    return ParsedInt{static_cast<int64_t>(negative ? ~value + 1 : value), fits};
}

std::optional<double> parse_real(std::string_view text) {
    text = strip_space(text);
    std::string plain;
    for (size_t i = 0; i < text.size(); i++) {
        if (text[i] != '_') {
            plain += text[i];
            continue;
        }
        bool between = i > 0 && i + 1 < text.size() && digit_value(text[i - 1]) < 10 &&
                       digit_value(text[i + 1]) < 10;
        if (!between) return std::nullopt;
    }
    bool negative = !plain.empty() && plain[0] == '-';
    if (negative || (!plain.empty() && plain[0] == '+')) plain.erase(0, 1);
    std::string lower;
    for (char c : plain) lower += c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
    double value;
    if (lower == "inf" || lower == "infinity") {
        value = INFINITY;
    } else if (lower == "nan") {
        value = NAN;
    } else {
        if (lower.find_first_not_of("0123456789.e+-") != std::string::npos) return std::nullopt;
        const char* end = plain.data() + plain.size();
        auto [at, error] = std::from_chars(plain.data(), end, value);
        if (at != end || plain.empty() || plain[0] == '-') return std::nullopt;
        if (error == std::errc::result_out_of_range) {
            // Too large is infinite, too small is zero: the sign of the exponent tells them apart.
            value = lower.find("e-") == std::string::npos ? INFINITY : 0.0;
        } else if (error != std::errc()) {
            return std::nullopt;
        }
    }
    return negative ? -value : value;
}

double round_decimal(double value, int64_t n_digits) {
    if (!std::isfinite(value) || value == 0 || n_digits > 330) return value;
    if (n_digits < -310) return std::copysign(0.0, value);
    // Every double is a decimal of at most 1,074 digits behind the point.
    std::string exact(1500, '\0');
    int size = std::snprintf(exact.data(), exact.size(), "%.1074f", std::fabs(value));
    exact.resize(static_cast<size_t>(size));
    int64_t point = static_cast<int64_t>(exact.find('.'));
    std::string digits =
        exact.substr(0, static_cast<size_t>(point)) + exact.substr(static_cast<size_t>(point) + 1);
    int64_t keep = point + n_digits;  // digits that stay
    if (keep < 0) return std::copysign(0.0, value);
    std::string kept = "0" + digits.substr(0, static_cast<size_t>(keep));
    std::string rest = digits.substr(static_cast<size_t>(keep));
    bool half =
        !rest.empty() && rest[0] == '5' && rest.find_first_not_of('0', 1) == std::string::npos;
    bool up = !rest.empty() && (half ? (kept.back() - '0') % 2 != 0 : rest[0] >= '5');
    for (size_t i = kept.size(); up && i-- > 0;) {
        up = kept[i] == '9';
        kept[i] = up ? '0' : static_cast<char>(kept[i] + 1);
    }
    std::string text = kept + "e" + std::to_string(-n_digits);
    double rounded = 0;
    std::from_chars(text.data(), text.data() + text.size(), rounded);
    return std::copysign(rounded, value);
}

std::string printf_real(double value, char style, int precision, bool alternate) {
    const char format[] = {'%', '#', '.', '*', style, '\0'};
    const char plain[] = {'%', '.', '*', style, '\0'};
    const char* chosen = alternate ? format : plain;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    int size = std::snprintf(nullptr, 0, chosen, precision, value);
    std::string out(static_cast<size_t>(size) + 1, '\0');
    std::snprintf(out.data(), out.size(), chosen, precision, value);
#pragma GCC diagnostic pop
    out.pop_back();
    return out;
}

int compare(int64_t a, double b) {
    if (b >= 9223372036854775808.0) return -1;
    if (b < -9223372036854775808.0) return 1;
    auto whole = static_cast<int64_t>(b);  // towards zero
    if (a != whole) return a < whole ? -1 : 1;
    double rest = b - static_cast<double>(whole);
    return rest > 0 ? -1 : rest < 0 ? 1 : 0;
}

}  // namespace ridge::jinja
