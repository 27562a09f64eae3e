#include "file/huggingface_names.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace ridge {
namespace {

using NamePair = std::pair<std::string_view, std::string_view>;

constexpr NamePair kModelNames[] = {
    {"model.embed_tokens", "token_embd"},
    {"model.norm", "output_norm"},
    {"lm_head", "output"},
};

constexpr NamePair kLayerNames[] = {
    {"input_layernorm", "attn_norm"},    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},      {"self_attn.v_proj", "attn_v"},
    {"self_attn.o_proj", "attn_output"}, {"self_attn.q_norm", "attn_q_norm"},
    {"self_attn.k_norm", "attn_k_norm"}, {"post_attention_layernorm", "ffn_norm"},
    {"mlp.gate_proj", "ffn_gate"},       {"mlp.up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},
};

template <size_t N>
std::optional<std::string_view> translate(const NamePair (&table)[N], std::string_view name) {
    auto found = std::find_if(std::begin(table), std::end(table),
                              [&](const NamePair& row) { return row.first == name; });
    return found == std::end(table) ? std::nullopt : std::optional(found->second);
}

}  // namespace

std::string canonical_name(std::string_view huggingface_name) {
    constexpr std::string_view kLayers = "model.layers.";
    std::string unchanged(huggingface_name);
    size_t dot = huggingface_name.rfind('.');
    if (dot == std::string_view::npos) return unchanged;
    std::string_view module = huggingface_name.substr(0, dot);
    std::string kind(huggingface_name.substr(dot));  // ".weight" or ".bias"
    if (kind != ".weight" && kind != ".bias") return unchanged;
    if (auto name = translate(kModelNames, module)) return std::string(*name) + kind;

    if (!module.starts_with(kLayers)) return unchanged;
    module.remove_prefix(kLayers.size());
    size_t n_digits = std::min(module.find_first_not_of("0123456789"), module.size());
    std::string number(module.substr(0, n_digits));
    bool is_number = n_digits == 1 || (n_digits > 1 && n_digits <= 6 && number[0] != '0');
    if (!is_number || n_digits >= module.size() || module[n_digits] != '.') return unchanged;
    auto name = translate(kLayerNames, module.substr(n_digits + 1));
    return name ? "blk." + number + "." + std::string(*name) + kind : unchanged;
}

}  // namespace ridge
