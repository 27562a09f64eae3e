#include "file/mlx.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/printable.h"
#include "format/affine.h"

namespace ridge {
namespace {

std::string value_text(const Json& value) {
    // Invalid UTF-8 is replaced: dump() would throw.
    return printable(value.dump(-1, ' ', false, Json::error_handler_t::replace), 60);
}

}  // namespace

MlxQuantization::MlxQuantization(const FolderJsons& jsons)
    : config_path_(printable(jsons.config_path, 0)) {
    for (const char* key : {"quantization", "quantization_config"}) {
        auto found = jsons.config.find(key);
        if (found == jsons.config.end() || found->is_null()) continue;
        if (!found->is_object()) {
            throw Error("{}: {} is {}, expected an object", config_path_, key, value_text(*found));
        }
        if (auto method = found->find("quant_method"); method != found->end()) {
            throw Error(
                "{}: {}.quant_method is {}, expected none: of quantised safetensors only MLX's "
                "affine ones are read",
                config_path_, key, value_text(*method));
        }
        key_ = key;
        settings_ = &*found;
        break;
    }
    if (settings_ == nullptr) return;
    modules_ = NameIndex(settings_->size());
    for (const auto& item : settings_->items()) {
        modules_.add(item.key());
        values_.push_back(&item.value());
    }
    modules_.sort();
}

AffineShape MlxQuantization::read(const Json& settings, const std::string& at) const {
    if (auto mode = settings.find("mode"); mode != settings.end() && *mode != "affine") {
        throw Error("{}: {}.mode is {}, expected \"affine\"", config_path_, at, value_text(*mode));
    }
    auto number = [&](const char* key, const char* expected, auto is_known) {
        auto found = settings.find(key);
        if (found == settings.end()) {
            throw Error("{}: {}.{} is missing, expected {}", config_path_, at, key, expected);
        }
        bool fits = found->is_number_unsigned() && found->template get<uint64_t>() <= 1024;
        if (!fits || !is_known(found->template get<int>())) {
            throw Error("{}: {}.{} is {}, expected {}", config_path_, at, key, value_text(*found),
                        expected);
        }
        return found->template get<int>();
    };
    AffineShape shape = {};
    shape.bits = number("bits", "4 or 8", [](int n) { return n == 4 || n == 8; });
    shape.group_size = number("group_size", "32, 64 or 128", is_affine_group_size);
    return shape;
}

std::optional<AffineShape> MlxQuantization::of(std::string_view module) const {
    if (settings_ == nullptr) {
        throw Error(
            "{}: has no \"quantization\", but {}.weight holds the codes of a quantised weight",
            config_path_, printable(module));
    }
    auto found = modules_.find(module);
    if (!found) return read(*settings_, key_);
    const Json& value = *values_[*found];
    if (value.is_boolean()) {
        return value.get<bool>() ? std::optional(read(*settings_, key_)) : std::nullopt;
    }
    std::string at = fmt::format("{}.{}", key_, printable(module));
    if (!value.is_object()) {
        throw Error("{}: {} is {}, expected an object or false", config_path_, at,
                    value_text(value));
    }
    return read(value, at);
}

}  // namespace ridge
