#include "cmd/values.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/printable.h"
#include "text/jinja/clock.h"

namespace ridge {
namespace {

[[noreturn]] void fail(std::string_view where, std::string_view text, const std::string& expected) {
    throw Error(ErrorKind::kUsage, "{} \"{}\": expected {}", where, printable(text, 80), expected);
}

template <class Number>
std::optional<Number> read(std::string_view text) {
    Number value{};
    auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || text.empty())
        return std::nullopt;
    return value;
}

bool is_separator(char c) {
    return c == ',' || c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

}  // namespace

int64_t parse_integer(std::string_view where, std::string_view text, int64_t min, int64_t max) {
    std::optional<int64_t> value = read<int64_t>(text);
    if (!value || *value < min || *value > max)
        fail(where, text, fmt::format("a whole number from {} to {}", min, max));
    return *value;
}

double parse_number(std::string_view where, std::string_view text, double min, double max) {
    std::optional<double> value = read<double>(text);
    if (!value || !std::isfinite(*value) || *value < min || *value > max)
        fail(where, text, fmt::format("a number from {} to {}", min, max));
    return *value;
}

uint64_t parse_seed(std::string_view where, std::string_view text) {
    std::optional<uint64_t> value = read<uint64_t>(text);
    if (!value) fail(where, text, "a whole number from 0 to 18446744073709551615");
    return *value;
}

std::optional<uint64_t> parse_seed_or_none(std::string_view where, std::string_view text) {
    if (text == "-1") return std::nullopt;
    std::optional<uint64_t> value = read<uint64_t>(text);
    if (!value) {
        fail(where, text,
             "-1 for a new seed each time, or a whole number from 0 to 18446744073709551615");
    }
    return value;
}

std::string parse_choice(std::string_view where, std::string_view text,
                         const std::vector<std::string>& choices) {
    std::string listed;
    for (const std::string& choice : choices) {
        if (text == choice) return choice;
        listed += (listed.empty() ? "" : ", ") + choice;
    }
    fail(where, text, "one of " + listed);
}

namespace {

// "first", "first-last", "first-last+step" or "first-last*factor".
struct Range {
    int64_t first = 0, last = 0, step = 1, factor = 1;

    bool advance(int64_t& value) const {  // never beyond last
        if (factor == 1 ? value > last - step : value > last / factor) return false;
        value = value * factor + (factor == 1 ? step : 0);
        return true;
    }
};

std::optional<Range> read_range(std::string_view text) {
    Range range;
    size_t dash = text.find('-'), change = text.find_first_of("+*");
    std::optional<int64_t> first = read<int64_t>(text.substr(0, std::min(dash, change)));
    if (!first) return std::nullopt;
    range.first = range.last = *first;
    if (dash == std::string_view::npos) return change == dash ? std::optional(range) : std::nullopt;
    if (change < dash) return std::nullopt;
    std::optional<int64_t> last = read<int64_t>(text.substr(dash + 1, change - dash - 1));
    if (!last || *last < *first) return std::nullopt;
    range.last = *last;
    if (change == std::string_view::npos) return range;
    std::optional<int64_t> by = read<int64_t>(text.substr(change + 1));
    bool multiply = text[change] == '*';
    if (!by || *by < (multiply ? 2 : 1) || (multiply && *first < 1)) return std::nullopt;
    (multiply ? range.factor : range.step) = *by;
    return range;
}

}  // namespace

std::vector<int64_t> parse_integers(std::string_view where, std::string_view text, int64_t min,
                                    int64_t max) {
    std::vector<int64_t> values;
    for (std::string_view rest = text;;) {
        std::string_view one = rest.substr(0, rest.find(','));
        std::optional<Range> range = read_range(one);
        if (!range || range->first < min || range->last > max) {
            fail(where, one.empty() ? text : one,
                 fmt::format("whole numbers from {} to {} with commas between, or ranges as in "
                             "128-512+128 or 128-1024*2",
                             min, max));
        }
        int64_t value = range->first;
        do {
            if (values.size() == kMaxListValues)
                fail(where, text, fmt::format("at most {} numbers", kMaxListValues));
            values.push_back(value);
        } while (range->advance(value));
        if (one.size() == rest.size()) return values;
        rest.remove_prefix(one.size() + 1);
    }
}

std::vector<std::string> parse_words(std::string_view where, std::string_view text,
                                     std::string_view expected) {
    std::vector<std::string> words;
    for (std::string_view rest = text;;) {
        std::string_view one = rest.substr(0, rest.find(','));
        if (one.empty()) fail(where, text, fmt::format("{} with commas between", expected));
        words.emplace_back(one);
        if (one.size() == rest.size()) return words;
        rest.remove_prefix(one.size() + 1);
    }
}

std::vector<Token> parse_ids(std::string_view where, std::string_view text) {
    auto trim = [&] {
        while (!text.empty() && is_separator(text.front())) text.remove_prefix(1);
        while (!text.empty() && is_separator(text.back())) text.remove_suffix(1);
    };
    trim();
    if (text.size() >= 2 && text.front() == '[' && text.back() == ']') {
        text = text.substr(1, text.size() - 2);
        trim();
    }
    const std::string_view whole = text;
    std::vector<Token> ids;
    while (!text.empty()) {
        size_t n = static_cast<size_t>(std::find_if(text.begin(), text.end(), is_separator) -
                                       text.begin());
        std::optional<Token> id = read<Token>(text.substr(0, n));
        if (!id || *id < 0) fail(where, text.substr(0, n), "token ids, as in 1,2,3");
        ids.push_back(*id);
        text.remove_prefix(n);
        int n_commas = 0;
        while (!text.empty() && is_separator(text.front())) {
            n_commas += text.front() == ',' ? 1 : 0;
            text.remove_prefix(1);
        }
        if (n_commas > 1) fail(where, whole, "token ids with one comma between, as in 1,2,3");
    }
    return ids;
}

std::vector<std::pair<Token, float>> parse_logit_bias(std::string_view where,
                                                      std::string_view text) {
    const std::string expected = "a token id and a signed number, as in 15043+1 or 15043-inf";
    std::vector<std::pair<Token, float>> biases;
    std::string_view rest = text;
    for (;;) {
        std::string_view one = rest.substr(0, rest.find(','));
        size_t sign = one.find_first_of("+-");
        if (sign == std::string_view::npos) fail(where, one, expected);
        std::optional<Token> id = read<Token>(one.substr(0, sign));
        std::string_view magnitude = one.substr(sign + 1);
        bool infinite = magnitude == "inf" || magnitude == "infinity";
        std::optional<float> value =
            infinite ? std::numeric_limits<float>::infinity() : read<float>(magnitude);
        // "+inf" would leave nothing to compare the token with.
        if (!id || *id < 0 || !value || std::isnan(*value) || std::signbit(*value) ||
            (std::isinf(*value) && (!infinite || one[sign] == '+')))
            fail(where, one, expected);
        biases.emplace_back(*id, one[sign] == '-' ? -*value : *value);
        if (one.size() == rest.size()) return biases;
        rest.remove_prefix(one.size() + 1);
    }
}

std::string parse_date(std::string_view where, std::string_view text) {
    if (!jinja::read_date(text)) fail(where, text, "a date as in 2026-11-29");
    return std::string(text);
}

}  // namespace ridge
