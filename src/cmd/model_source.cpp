#include "cmd/model_source.h"

#include <algorithm>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/mapped_file.h"
#include "base/printable.h"
#include "model/synth_plan.h"

namespace ridge {
namespace {

constexpr std::string_view kSynthPrefix = "synth:";

// A JSON file begins with a brace, a GGUF file does not.
bool looks_like_json(const std::string& path) {
    MappedFile file = MappedFile::open(path);
    std::string_view head(reinterpret_cast<const char*>(file.bytes().data()),
                          std::min<size_t>(file.bytes().size(), 64));
    size_t first = head.find_first_not_of(" \t\r\n\xef\xbb\xbf");
    return first != std::string_view::npos && head[first] == '{';
}

void add_ids(const Json* object, std::vector<Token>& ids) {
    if (object == nullptr || !object->is_object()) return;
    auto found = object->find("eos_token_id");
    if (found == object->end()) return;
    auto add = [&](const Json& value) {
        if (!value.is_number_integer()) return;
        auto id = value.get<int64_t>();
        if (id >= 0 && id <= INT32_MAX) ids.push_back(static_cast<Token>(id));
    };
    if (found->is_array()) {
        for (const Json& value : *found) add(value);
    } else {
        add(*found);
    }
}

}  // namespace

bool is_synth(const std::string& model) {
    return model.rfind(kSynthPrefix, 0) == 0;
}

ModelFile open_model_file(const std::string& model) {
    if (!is_synth(model)) return ModelFile::open(model);
    std::string rest = model.substr(kSynthPrefix.size());
    size_t colon = rest.find(':');
    if (colon == std::string::npos) {
        throw Error(ErrorKind::kUsage,
                    "-m {}: expected synth:NAME:FORMAT, such as synth:llama-3.2-1b:Q4_0",
                    printable(model));
    }
    SynthPlan plan = plan_synth(rest.substr(0, colon), rest.substr(colon + 1));
    MappedFile image = plan.writer.build(plan.title);
    std::byte* bytes = image.writable_bytes().data();
    for (size_t i = 0; i < plan.tensors.size(); i++) {
        const SynthTensor& tensor = plan.tensors[i];
        if (tensor.values.empty()) continue;
        tensor.format->encode_row(tensor.values.data(), tensor.n_cols(),
                                  bytes + plan.writer.tensor_offset(static_cast<int>(i)));
    }
    return ModelFile::from_memory(std::move(image));
}

Tokenizer open_tokenizer(const std::string& model, const std::string& pre) {
    if (!is_synth(model)) {
        FileKind kind = file_kind(model);
        bool json = kind == FileKind::kDirectory
                        ? file_kind(model + "/tokenizer.json") == FileKind::kRegular
                        : kind == FileKind::kRegular && looks_like_json(model);
        if (json) return Tokenizer::open_json(model, pre);
    }
    return Tokenizer::open(open_model_file(model), pre);
}

bool has_tokenizer(const ModelFile& file) {
    return file.type() == FileType::kGguf ? file.metadata().contains("tokenizer.ggml.model")
                                          : file.tokenizer_json_path().has_value();
}

std::vector<Token> bare_end_tokens(const ModelFile& file) {
    std::vector<Token> ids;
    if (file.type() == FileType::kGguf) {
        if (auto id = file.metadata().find_u32("tokenizer.ggml.eos_token_id"))
            ids.push_back(static_cast<Token>(*id));
    } else {
        add_ids(&file.config(), ids);
        add_ids(file.generation_config(), ids);
    }
    return ids;
}

}  // namespace ridge
