#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace ridge {

// Objects keep the order of their keys, which chat templates and printed results need. Look-ups are
// linear in the number of keys: files with very many keys (a tokenizer's vocabulary) are read with
// JsonMap or a SAX handler.
using Json = nlohmann::ordered_json;
using JsonMap = nlohmann::json;

constexpr int kMaxJsonDepth = 64;

// Parses the whole of `text`; `what` names it in errors. Throws Error for bad syntax (with line and
// column), nesting beyond `max_depth` (the library parses any depth and overflows the stack when it
// destroys the value), and, for Json, an object of more than 10,000 keys, or objects that together
// cost more than four such. A key given twice keeps its last value.
Json parse_json(std::string_view text, std::string_view what, int max_depth = kMaxJsonDepth);
JsonMap parse_json_map(std::string_view text, std::string_view what, int max_depth = kMaxJsonDepth);

// Throws the same errors as parse_json without building a value: for SAX readers.
void check_json_depth(std::string_view text, std::string_view what, int max_depth = kMaxJsonDepth);

}  // namespace ridge
