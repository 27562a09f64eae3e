#include "engine/model_source.h"

#include <optional>
#include <utility>

#include "base/error.h"
#include "base/mapped_file.h"
#include "base/printable.h"
#include "model/synth.h"
#include "model/synth_plan.h"
#include "text/end_tokens.h"

namespace ridge {
namespace {

constexpr std::string_view kSynthPrefix = "synth:";

std::pair<std::string, std::string> synth_name_and_format(const std::string& model) {
    std::string rest = model.substr(kSynthPrefix.size());
    size_t colon = rest.find(':');
    if (colon == std::string::npos || colon == 0 || colon + 1 == rest.size()) {
        throw Error(ErrorKind::kUsage,
                    "-m {}: expected synth:NAME:FORMAT, such as synth:llama-3.2-1b:Q4_0",
                    printable(model));
    }
    return {rest.substr(0, colon), rest.substr(colon + 1)};
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

std::vector<Token> bare_end_tokens(const ModelFile& file, int64_t n_vocab) {
    std::vector<Token> ids;
    if (file.type() == FileType::kSafetensors) {
        add_eos_token_ids(&file.config(), printable(file.path()) + ": config.json", n_vocab, ids);
        add_eos_token_ids(file.generation_config(),
                          printable(file.path()) + ": generation_config.json", n_vocab, ids);
        return ids;
    }
    for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                            "tokenizer.ggml.eom_token_id"}) {
        std::optional<int64_t> id = file.metadata().find_i64(key);
        if (!id) continue;
        if (*id < 0 || *id >= n_vocab) {
            throw Error("{}: {} is {}, expected a token from 0 to {}", printable(file.path()), key,
                        *id, n_vocab - 1);
        }
        ids.push_back(static_cast<Token>(*id));
    }
    return ids;
}

}  // namespace ridge
