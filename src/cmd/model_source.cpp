#include "cmd/model_source.h"

#include <algorithm>
#include <string_view>

#include "base/files.h"
#include "base/mapped_file.h"

namespace ridge {
namespace {

// A JSON file begins with a brace, a GGUF file does not.
bool looks_like_json(const std::string& path) {
    MappedFile file = MappedFile::open(path);
    std::string_view head(reinterpret_cast<const char*>(file.bytes().data()),
                          std::min<size_t>(file.bytes().size(), 64));
    size_t first = head.find_first_not_of(" \t\r\n\xef\xbb\xbf");
    return first != std::string_view::npos && head[first] == '{';
}

}  // namespace

Tokenizer open_tokenizer(const std::string& model, const std::string& pre) {
    if (!is_synth(model)) {
        FileKind kind = file_kind(model);
        bool json = kind == FileKind::kDirectory
                        ? file_kind(model + "/tokenizer.json") == FileKind::kRegular
                        : kind == FileKind::kRegular && looks_like_json(model);
        if (json) return Tokenizer::open_json(model, pre);
    }
    return Tokenizer::open(open_model_header(model), pre);
}

}  // namespace ridge
