#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/token.h"

namespace ridge {

// Values of options. Each takes the whole text or throws Error(kUsage) in one line: `where` (the
// option, the variable or the command that the value was given to), the value, what was expected.

int64_t parse_integer(std::string_view where, std::string_view text, int64_t min, int64_t max);
double parse_number(std::string_view where, std::string_view text, double min, double max);
uint64_t parse_seed(std::string_view where, std::string_view text);  // 0 .. 2^64 - 1
// The same, or none for "-1".
std::optional<uint64_t> parse_seed_or_none(std::string_view where, std::string_view text);

// One of `choices`, exactly.
std::string parse_choice(std::string_view where, std::string_view text,
                         const std::vector<std::string>& choices);

// "8", "1,2,8", and ranges: "1-4" is 1,2,3,4; "128-512+128" is 128,256,384,512; "128-1024*2" is
// 128,256,512,1024. Each number from `min` to `max`; at most kMaxListValues of them.
constexpr size_t kMaxListValues = 1000;
std::vector<int64_t> parse_integers(std::string_view where, std::string_view text, int64_t min,
                                    int64_t max);

// Words with commas between; none may be empty. `expected` is what errors call them.
std::vector<std::string> parse_words(std::string_view where, std::string_view text,
                                     std::string_view expected = "words");

// "1,2,3", "1 2 3" or "[1, 2, 3]"; empty text gives no ids.
std::vector<Token> parse_ids(std::string_view where, std::string_view text);

// "ID+BIAS" or "ID-BIAS", several with commas between; BIAS may be inf.
std::vector<std::pair<Token, float>> parse_logit_bias(std::string_view where,
                                                      std::string_view text);

// "2026-11-29": a day that the calendar has.
std::string parse_date(std::string_view where, std::string_view text);

}  // namespace ridge
