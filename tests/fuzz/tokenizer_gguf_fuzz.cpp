// Reads the tokenizer of the input, a GGUF image, and encodes and decodes with it.

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/error.h"
#include "file/model_file.h"
#include "text/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t n_bytes) {
    using namespace ridge;
    try {
        MappedFile image = MappedFile::anonymous(n_bytes, "fuzz");
        if (n_bytes > 0) memcpy(image.writable_bytes().data(), data, n_bytes);
        Tokenizer tokenizer = Tokenizer::open(ModelFile::from_memory(std::move(image)));
        std::string_view text(reinterpret_cast<const char*>(data), n_bytes < 300 ? n_bytes : 300);
        tokenizer.decode(tokenizer.encode(text, {.parse_special = true}), true);
        TextSpan spans[] = {{text, true}, {"a b", false}, {text.substr(text.size() / 2), false}};
        tokenizer.decode(tokenizer.encode(spans), false);
    } catch (const Error&) {
    }
    return 0;
}
