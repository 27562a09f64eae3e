#pragma once

#include <optional>
#include <vector>

#include "text/jinja/runtime.h"

namespace ridge::jinja {

// Python's string functions on code points. All keep the origin of every character.

int64_t count_chars(std::string_view text);
size_t byte_of_char(std::string_view text, int64_t n);  // of the n-th character, or the size

// Finds a needle again and again in linear time, whatever the two are.
class Finder {
  public:
    explicit Finder(std::string_view needle);
    size_t find(std::string_view text, size_t from) const;  // npos: not there

  private:
    std::string_view needle_;
    std::vector<uint32_t> borders_;  // of a long needle: Knuth, Morris, Pratt
};
size_t find_text(std::string_view text, std::string_view needle, size_t from = 0);
size_t rfind_text(Runtime& rt, std::string_view text, std::string_view needle);

enum class Side { kBoth, kLeft, kRight };
Str strip(Runtime& rt, const Str& text, const Value& chars, Side side);  // kNone, kMissing: space

std::vector<Str> split_space(Runtime& rt, const Str& text, int64_t max_splits);
std::vector<Str> rsplit_space(Runtime& rt, const Str& text, int64_t max_splits);
std::vector<Str> split(Runtime& rt, const Str& text, const Str& separator, int64_t max_splits);
std::vector<Str> rsplit(Runtime& rt, const Str& text, const Str& separator, int64_t max_splits);
std::vector<Str> split_lines(Runtime& rt, const Str& text, bool keep_ends);

Str replace(Runtime& rt, const Str& text, const Str& from, const Str& to, int64_t max_times);
Str join(Runtime& rt, const Str& separator, Items items);  // str() of each
int64_t count_text(Runtime& rt, std::string_view text, std::string_view needle);

Str upper(Runtime& rt, const Str& text);
Str lower(Runtime& rt, const Str& text);
Str casefold(Runtime& rt, const Str& text);
Str swap_case(Runtime& rt, const Str& text);
Str capitalize(Runtime& rt, const Str& text);
Str title(Runtime& rt, const Str& text);         // str.title
Str title_filter(Runtime& rt, const Str& text);  // the filter: words begin behind space and -({[<

// Fills to `width` characters.
Str pad(Runtime& rt, const Str& text, int64_t width, const Str& fill, Side text_side);
Str center(Runtime& rt, const Str& text, int64_t width, const Str& fill);
Str zero_fill(Runtime& rt, const Str& text, int64_t width);
Str expand_tabs(Runtime& rt, const Str& text, int64_t tab_size);
Str reverse_text(Runtime& rt, const Str& text);
Str escape_html(Runtime& rt, const Str& text);  // & < > " ' as markup

enum class CharClass { kAlnum, kAlpha, kAscii, kDecimal, kDigit, kNumeric, kPrintable, kSpace };
bool all_chars(Runtime& rt, std::string_view text, CharClass wanted);
bool is_lower_text(Runtime& rt, std::string_view text);
bool is_upper_text(Runtime& rt, std::string_view text);
bool is_title_text(Runtime& rt, std::string_view text);

}  // namespace ridge::jinja
