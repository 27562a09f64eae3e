// Reads the input as a tokenizer.json, and encodes and decodes with what it gives.

#include <cstddef>
#include <cstdint>

#include "base/error.h"
#include "text/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t n_bytes) {
    using namespace ridge;
    std::string_view json(reinterpret_cast<const char*>(data), n_bytes);
    try {
        Tokenizer tokenizer = Tokenizer::from_json(json, "fuzz");
        std::string_view text = json.substr(0, 300);
        tokenizer.decode(tokenizer.encode(text, {.parse_special = true}), true);
        TextSpan spans[] = {{text, true}, {"a b", false}, {text.substr(text.size() / 2), false}};
        tokenizer.decode(tokenizer.encode(spans), false);
    } catch (const Error&) {
    }
    return 0;
}
