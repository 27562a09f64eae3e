#include "engine/model_source.h"

#include <limits>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "base/mapped_file.h"
#include "base/printable.h"
#include "model/synth.h"
#include "model/synth_plan.h"

namespace ridge {
namespace {

constexpr std::string_view kSynthPrefix = "synth:";

std::pair<std::string, std::string> synth_name_and_format(const std::string& model) {
    std::string rest = model.substr(kSynthPrefix.size());
    size_t colon = rest.find(':');
    if (colon == std::string::npos) {
        throw Error(ErrorKind::kUsage,
                    "-m {}: expected synth:NAME:FORMAT, such as synth:llama-3.2-1b:Q4_0",
                    printable(model));
    }
    return {rest.substr(0, colon), rest.substr(colon + 1)};
}

// eos_token_id of a Hugging Face file: a number or a list of them.
void add_end_ids(const Json* object, std::vector<Token>& ids) {
    if (object == nullptr || !object->is_object()) return;
    auto found = object->find("eos_token_id");
    if (found == object->end()) return;
    auto add = [&](const Json& value) {
        if (!value.is_number_integer()) return;
        auto id = value.get<int64_t>();
        if (id >= 0 && id <= std::numeric_limits<Token>::max()) {
            ids.push_back(static_cast<Token>(id));
        }
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

ModelFile open_model_file(const std::string& model, uint64_t synth_seed,
                          const std::function<void(double)>& progress) {
    if (!is_synth(model)) return ModelFile::open(model);
    auto [name, format] = synth_name_and_format(model);
    return make_synth(name, format, synth_seed, progress);
}

ModelFile open_model_header(const std::string& model) {
    if (!is_synth(model)) return ModelFile::open(model);
    auto [name, format] = synth_name_and_format(model);
    SynthPlan plan = plan_synth(name, format);
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

bool holds_tokenizer(const ModelFile& file) {
    return file.type() == FileType::kGguf ? file.metadata().contains("tokenizer.ggml.model")
                                          : file.tokenizer_json_path().has_value();
}

std::vector<Token> bare_end_tokens(const ModelFile& file) {
    std::vector<Token> ids;
    if (file.type() == FileType::kGguf) {
        for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                "tokenizer.ggml.eom_token_id"}) {
            auto id = file.metadata().find_u32(key);
            if (id && *id <= static_cast<uint32_t>(std::numeric_limits<Token>::max())) {
                ids.push_back(static_cast<Token>(*id));
            }
        }
    } else {
        add_end_ids(&file.config(), ids);
        add_end_ids(file.generation_config(), ids);
    }
    return ids;
}

}  // namespace ridge
