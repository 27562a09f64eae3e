#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/json.h"
#include "base/printable.h"
#include "engine/engine_impl.h"

namespace ridge {
namespace {

// A setting that a file may wish for, with its names in GGUF and in generation_config.json.
struct Wish {
    const char *gguf, *hf;  // hf null: not there
    double low, high;
    bool integer;
    void (*apply)(SampleParams&, double);
};

constexpr double kMaxInt = std::numeric_limits<int32_t>::max();
constexpr double kMaxFloat = std::numeric_limits<float>::max();

constexpr Wish kWishes[] = {
    {"temp", "temperature", 0, kMaxFloat, false,
     [](SampleParams& p, double v) { p.temperature = static_cast<float>(v); }},
    {"top_k", "top_k", 0, kMaxInt, true,
     [](SampleParams& p, double v) { p.top_k = static_cast<int>(v); }},
    {"top_p", "top_p", 0, 1, false,
     [](SampleParams& p, double v) { p.top_p = static_cast<float>(v); }},
    {"min_p", "min_p", 0, 1, false,
     [](SampleParams& p, double v) { p.min_p = static_cast<float>(v); }},
    {"penalty_repeat", "repetition_penalty", 1e-6, kMaxFloat, false,
     [](SampleParams& p, double v) { p.repeat_penalty = static_cast<float>(v); }},
    {"penalty_last_n", nullptr, -1, kMaxInt, true,
     [](SampleParams& p, double v) { p.penalty_last_n = static_cast<int>(v); }},
};

void apply(const Wish& wish, std::string_view where, std::string_view key, double value,
           SampleParams& params) {
    bool fits = value >= wish.low && value <= wish.high;
    if (!fits || (wish.integer && value != std::floor(value))) {
        throw Error("{}: {} is {}, expected {} from {} to {}", where, key, value,
                    wish.integer ? "an integer" : "a number", wish.low, wish.high);
    }
    wish.apply(params, value);
}

}  // namespace

SampleParams read_default_sampling(const ModelFile& file) {
    SampleParams params;
    if (file.type() == FileType::kGguf) {
        for (const Wish& wish : kWishes) {
            std::string key = std::string("general.sampling.") + wish.gguf;
            const GgufEntry* entry = file.metadata().find(key);
            if (entry == nullptr) continue;
            bool real =
                entry->type == GgufValueType::kFloat32 || entry->type == GgufValueType::kFloat64;
            double value = real ? *file.metadata().find_f32(key)
                                : static_cast<double>(*file.metadata().find_i64(key));
            apply(wish, printable(file.path()), key, value, params);
        }
        return params;
    }
    const Json* config = file.generation_config();
    if (config == nullptr) return params;
    std::string where = printable(file.path()) + ": generation_config.json";
    for (const Wish& wish : kWishes) {
        if (wish.hf == nullptr) continue;
        auto value = config->find(wish.hf);
        if (value == config->end() || value->is_null()) continue;
        if (!value->is_number()) throw Error("{}: {} is not a number", where, wish.hf);
        apply(wish, where, wish.hf, value->get<double>(), params);
    }
    auto do_sample = config->find("do_sample");
    if (do_sample != config->end() && do_sample->is_boolean() && !do_sample->get<bool>())
        params.temperature = 0;
    return params;
}

}  // namespace ridge
