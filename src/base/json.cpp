#include "base/json.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "base/printable.h"

namespace ridge {
namespace {

struct Place {
    size_t line, column;
};

Place place_of(std::string_view text, size_t at) {
    Place place{1, 1};
    for (char c : text.substr(0, std::min(at, text.size()))) {
        if (c == '\n') {
            place.line++, place.column = 1;
        } else {
            place.column++;
        }
    }
    return place;
}

// An ordered object is filled in quadratic time: each key is compared with those before it. All
// objects of a text together may cost as much as four of the largest.
constexpr size_t kMaxOrderedKeys = 10'000;
constexpr uint64_t kMaxKeyComparisons = 2 * uint64_t{kMaxOrderedKeys} * (kMaxOrderedKeys + 1);

void scan(std::string_view text, std::string_view what, int max_depth, size_t max_keys) {
    int depth = 0;
    bool in_string = false;
    std::vector<size_t> n_members;  // of each open object so far; 0: an array
    uint64_t n_compared = 0;
    for (size_t at = 0; at < text.size(); at++) {
        char c = text[at];
        if (in_string) {
            if (c == '\\') {
                at++;
            } else if (c == '"') {
                in_string = false;
            }
            continue;
        }
        if (c == '"') {
            in_string = true;
        } else if (c == '[' || c == '{') {
            if (++depth > max_depth) {
                Place place = place_of(text, at);
                throw Error("{}: JSON is nested deeper than {} levels at line {}, column {}", what,
                            max_depth, place.line, place.column);
            }
            n_members.push_back(c == '{' ? 1 : 0);
        } else if (c == ']' || c == '}') {
            depth--;
            if (!n_members.empty()) n_members.pop_back();
        } else if (c == ',' && max_keys > 0 && !n_members.empty() && n_members.back() > 0) {
            if (++n_members.back() > max_keys) {
                throw Error("{}: a JSON object has more than {} keys", what, max_keys);
            }
            n_compared += n_members.back();
            if (n_compared > kMaxKeyComparisons) {
                throw Error("{}: JSON objects with too many keys: more than {} comparisons", what,
                            kMaxKeyComparisons);
            }
        }
    }
}

template <class Value>
Value parse(std::string_view text, std::string_view what) {
    try {
        return Value::parse(text.begin(), text.end());
    } catch (const typename Value::parse_error& e) {
        Place place = place_of(text, e.byte > 0 ? e.byte - 1 : 0);
        std::string reason = e.what();
        size_t colon = reason.find(": ", reason.find("column"));
        if (colon != std::string::npos) reason = reason.substr(colon + 2);
        throw Error("{}: not valid JSON at line {}, column {}: {}", what, place.line, place.column,
                    printable(reason));
    } catch (const typename Value::exception& e) {
        throw Error("{}: not valid JSON: {}", what, printable(e.what()));
    }
}

}  // namespace

void check_json_depth(std::string_view text, std::string_view what, int max_depth) {
    scan(text, what, max_depth, 0);
}

Json parse_json(std::string_view text, std::string_view what, int max_depth) {
    scan(text, what, max_depth, kMaxOrderedKeys);
    return parse<Json>(text, what);
}

JsonMap parse_json_map(std::string_view text, std::string_view what, int max_depth) {
    scan(text, what, max_depth, 0);
    return parse<JsonMap>(text, what);
}

}  // namespace ridge
