#include "engine/tuning_cache.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/printable.h"
#include "base/system.h"
#include "engine/engine.h"
#include "model/dtype_names.h"

namespace ridge {
namespace {

constexpr uint64_t kMaxFileBytes = uint64_t{4} << 20;
constexpr size_t kMaxChoicesOfOp = 1024, kMaxChoices = 2 * kMaxChoicesOfOp, kMaxText = 200;
constexpr int64_t kMaxDimension = int64_t{1} << 32;
constexpr int kMaxHeads = 1 << 20;
constexpr int kVersion = 1;

std::string_view class_name(RowClass row_class) {
    return row_class == RowClass::kPrompt ? "prompt" : "decode";
}

// --- writing ---

template <class T>
Json values_json(const T& values) {
    Json json = Json::object();
    for (const auto& parameter : parameters_of(static_cast<const T*>(nullptr))) {
        if (values.*parameter.value == T{}.*parameter.value) continue;
        json[std::string(parameter.name)] = values.*parameter.value;
    }
    return json;
}

template <class Call, class T>
Json choice_json(std::string_view op, const TuningChoice<Call, T>& choice) {
    Json json;
    json["op"] = std::string(op);
    json["rows"] = std::string(class_name(choice.call.row_class));
    json["size"] = choice.call.size;
    if constexpr (std::is_same_v<Call, MatmulCall>) {
        json["d_in"] = choice.call.d_in;
        json["weights"] = Json::array();
        for (const MatmulCall::Weight& weight : choice.call.weights) {
            if (weight.d_out == 0) continue;
            json["weights"].push_back(
                {{"d_out", weight.d_out}, {"format", std::string(format_of(weight.format).name)}});
        }
    } else {
        json["n_heads"] = choice.call.n_heads;
        json["n_kv_heads"] = choice.call.n_kv_heads;
        json["d_head"] = choice.call.d_head;
        json["type_k"] = std::string(dtype_name(choice.call.k_dtype));
        json["type_v"] = std::string(dtype_name(choice.call.v_dtype));
    }
    json["values"] = values_json(choice.values);
    json["before_ns"] = choice.before_ns;
    json["after_ns"] = choice.after_ns;
    return json;
}

// --- reading ---

// An object of the file, and what errors call it.
class Reader {
  public:
    Reader(const Json& json, std::string what) : json_(json), what_(std::move(what)) {
        if (!json.is_object()) throw Error("{} is {}, expected an object", what_, json.type_name());
    }

    const Json& at(const char* key) const {
        const auto found = json_.find(key);
        if (found == json_.end()) throw Error("{} has no {}", what_, key);
        return *found;
    }
    std::string text(const char* key) const {
        const Json& value = at(key);
        if (!value.is_string()) {
            throw Error("{}: {} is {}, expected a string", what_, key, value.type_name());
        }
        auto text = value.get<std::string>();
        if (text.size() > kMaxText) {
            throw Error("{}: {} has {} bytes, expected at most {}", what_, key, text.size(),
                        kMaxText);
        }
        return text;
    }
    int64_t integer(const char* key, int64_t min, int64_t max) const {
        return checked_integer(at(key), key, min, max);
    }
    int64_t checked_integer(const Json& value, std::string_view key, int64_t min,
                            int64_t max) const {
        // Unsigned ones of more than 63 bits are no int64_t.
        const bool is_small = value.is_number_integer() &&
                              (!value.is_number_unsigned() || value.get<uint64_t>() <= INT64_MAX);
        const int64_t number = is_small ? value.get<int64_t>() : 0;
        if (!is_small || number < min || number > max) {
            throw Error("{}: {} is {}, expected {} to {}", what_, printable(key, 40),
                        printable(value.dump(-1, ' ', true), 40), min, max);
        }
        return number;
    }
    double time_ns(const char* key) const {
        constexpr double kMaxNs = 1e15;
        const Json& value = at(key);
        const double number = value.is_number() ? value.get<double>() : -1;
        if (!(number >= 0 && number <= kMaxNs)) {
            throw Error("{}: {} is {}, expected nanoseconds", what_, key,
                        printable(value.dump(-1, ' ', true), 40));
        }
        return number;
    }
    template <size_t n>
    size_t one_of(const char* key, const std::array<std::string_view, n>& names) const {
        const std::string name = text(key);
        const auto found = std::find(names.begin(), names.end(), name);
        if (found != names.end()) return static_cast<size_t>(found - names.begin());
        std::string expected;
        for (std::string_view one : names) {
            expected += expected.empty() ? "" : ", ";
            expected += one;
        }
        throw Error("{}: {} is \"{}\", expected one of {}", what_, key, printable(name, 40),
                    expected);
    }
    const std::string& what() const { return what_; }

  private:
    const Json& json_;
    const std::string what_;
};

// Values of parameters that calls of this class have.
template <class T>
T read_values(const Reader& choice, std::string_view backend, RowClass row_class) {
    const Json& json = choice.at("values");
    if (!json.is_object()) {
        throw Error("{}: values is {}, expected an object", choice.what(), json.type_name());
    }
    const auto parameters = parameters_of(static_cast<const T*>(nullptr));
    T values;
    for (const auto& item : json.items()) {
        const std::string& key = item.key();
        const Json& value = item.value();
        const auto parameter = std::find_if(parameters.begin(), parameters.end(), [&](auto& p) {
            return p.name == key && p.backend == backend && p.row_class == row_class;
        });
        if (parameter == parameters.end()) {
            throw Error("{}: \"{}\" is no value of such a call", choice.what(), printable(key, 40));
        }
        const auto number =
            static_cast<int>(choice.checked_integer(value, key, parameter->min, parameter->max));
        if (number % parameter->multiple != 0) {
            throw Error("{}: {} is {}, expected a multiple of {}", choice.what(), parameter->name,
                        number, parameter->multiple);
        }
        values.*parameter->value = number;
    }
    return values;
}

MatmulChoice read_matmul(const Reader& reader, std::string_view backend, RowClass row_class) {
    MatmulChoice choice{};
    choice.call.row_class = row_class;
    choice.call.size = static_cast<int>(reader.integer("size", 0, kMaxSizeClass));
    choice.call.d_in = reader.integer("d_in", 1, kMaxDimension);
    const Json& weights = reader.at("weights");
    if (!weights.is_array() || weights.empty() || weights.size() > choice.call.weights.size()) {
        throw Error("{}: expected one to three weights", reader.what());
    }
    for (size_t i = 0; i < weights.size(); i++) {
        const Reader weight(weights[i], reader.what() + ": a weight");
        const std::string name = weight.text("format");
        const Format* format = find_format(name);
        if (format == nullptr) {
            throw Error("{}: unknown format \"{}\"", weight.what(), printable(name, 40));
        }
        choice.call.weights[i] = {weight.integer("d_out", 1, kMaxDimension), format->id};
    }
    choice.values = read_values<MatmulTuning>(reader, backend, row_class);
    return choice;
}

AttentionChoice read_attention(const Reader& reader, std::string_view backend, RowClass row_class) {
    AttentionChoice choice{};
    choice.call.row_class = row_class;
    choice.call.size = static_cast<int>(reader.integer("size", 0, kMaxSizeClass));
    choice.call.n_heads = static_cast<int>(reader.integer("n_heads", 1, kMaxHeads));
    choice.call.n_kv_heads = static_cast<int>(reader.integer("n_kv_heads", 1, kMaxHeads));
    choice.call.d_head = static_cast<int>(reader.integer("d_head", 1, kMaxHeads));
    choice.call.k_dtype = static_cast<DType>(reader.one_of("type_k", kDTypeNames));
    choice.call.v_dtype = static_cast<DType>(reader.one_of("type_v", kDTypeNames));
    choice.values = read_values<AttentionTuning>(reader, backend, row_class);
    return choice;
}

void read_choice(const Reader& reader, TuningCache& cache) {
    constexpr std::array<std::string_view, 2> kOps = {"matmul", "attention"},
                                              kClasses = {"prompt", "decode"};
    const size_t op = reader.one_of("op", kOps);
    const RowClass row_class =
        reader.one_of("rows", kClasses) == 0 ? RowClass::kPrompt : RowClass::kDecode;
    const auto add = [&](auto choice) {
        choice.before_ns = reader.time_ns("before_ns");
        choice.after_ns = reader.time_ns("after_ns");
        cache.add(choice);
    };
    if (op == 0) {
        add(read_matmul(reader, cache.key.backend, row_class));
    } else {
        add(read_attention(reader, cache.key.backend, row_class));
    }
}

template <class Choice>
void add_choice(std::vector<Choice>& choices, const Choice& choice) {
    const auto same = std::find_if(choices.begin(), choices.end(),
                                   [&](const Choice& other) { return other.call == choice.call; });
    if (same != choices.end()) {
        *same = choice;
        return;
    }
    if (choices.size() == kMaxChoicesOfOp) choices.erase(choices.begin());
    choices.push_back(choice);
}

std::string prompt_text(int size) {
    return size == 0 ? "prompts" : fmt::format("prompts to {} rows", int64_t{64} * size);
}

template <class T>
std::string text_of_changes(const T& values) {
    std::string text;
    for (const auto& parameter : parameters_of(static_cast<const T*>(nullptr))) {
        if (values.*parameter.value == T{}.*parameter.value) continue;
        text += fmt::format("{}{} {}", text.empty() ? "" : ", ", parameter.name,
                            values.*parameter.value);
    }
    return text;
}

}  // namespace

TuningKey tuning_key(std::string_view gpu, std::string_view isa, int n_threads,
                     std::string_view build) {
    if (!gpu.empty()) return {"cuda", std::string(gpu), {}, 0, std::string(build)};
    return {"cpu", cpu_name(), std::string(isa), n_threads, std::string(build)};
}

size_t TuningCache::n_changes() const {
    const auto n_in = [](const auto& choices) {
        return static_cast<size_t>(std::count_if(choices.begin(), choices.end(), [](auto& choice) {
            return choice.values != decltype(choice.values)();
        }));
    };
    return n_in(matmuls) + n_in(attentions);
}

Tuning TuningCache::tuning() const {
    Tuning tuning;
    for (const MatmulChoice& choice : matmuls) tuning.set(choice.call, choice.values);
    for (const AttentionChoice& choice : attentions) tuning.set(choice.call, choice.values);
    return tuning;
}

void TuningCache::add(const MatmulChoice& choice) {
    add_choice(matmuls, choice);
}
void TuningCache::add(const AttentionChoice& choice) {
    add_choice(attentions, choice);
}

std::string changes_text(const MatmulTuning& values) {
    return text_of_changes(values);
}
std::string changes_text(const AttentionTuning& values) {
    return text_of_changes(values);
}

std::string device_text(const TuningKey& key) {
    if (key.isa.empty()) return key.device;
    return fmt::format("{}, {}, {}", key.device, key.isa, counted(key.n_threads, "thread"));
}

std::string call_text(const MatmulCall& call) {
    std::string weights;
    for (const MatmulCall::Weight& weight : call.weights) {
        if (weight.d_out == 0) continue;
        weights += fmt::format("{}{} {}", weights.empty() ? "" : " + ",
                               format_of(weight.format).name, weight.d_out);
    }
    return fmt::format("matmul: {} x {}, {}", call.d_in, weights,
                       call.row_class == RowClass::kPrompt ? prompt_text(call.size)
                       : call.size == 1                    ? "1 row"
                                                           : "several rows");
}

std::string call_text(const AttentionCall& call) {
    std::string types(dtype_name(call.k_dtype));
    if (call.k_dtype != call.v_dtype) {
        types += fmt::format(" {}", dtype_name(call.v_dtype));
    }
    return fmt::format("attention: {} heads of {}, {} of K and V in {}, {}", call.n_heads,
                       call.d_head, call.n_kv_heads, types,
                       call.row_class == RowClass::kPrompt
                           ? prompt_text(call.size)
                           : fmt::format("decode, to {} of positions",
                                         counted(int64_t{1} << std::min(call.size, 40), "block")));
}

std::string tuning_path(const std::string& folder, const TuningKey& key) {
    std::string name;
    for (char c : key.device) {
        const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0;
        if (plain) name += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
        if (!plain && !name.empty() && name.back() != '-') name += '-';
    }
    while (!name.empty() && name.back() == '-') name.pop_back();
    name = key.backend + "-" + name.substr(0, 100);
    if (key.backend == "cpu")
        name += fmt::format("-{}-{}", key.isa, counted(key.n_threads, "thread"));
    std::replace(name.begin(), name.end(), ' ', '-');
    return folder + "/" + name + ".json";
}

std::string tuning_text(const TuningCache& cache) {
    Json json;
    json["version"] = kVersion;
    json["backend"] = cache.key.backend;
    json["device"] = cache.key.device;
    json["isa"] = cache.key.isa;
    json["n_threads"] = cache.key.n_threads;
    json["build"] = cache.key.build;
    json["time"] = cache.time;
    json["choices"] = Json::array();
    for (const MatmulChoice& c : cache.matmuls) json["choices"].push_back(choice_json("matmul", c));
    for (const AttentionChoice& c : cache.attentions) {
        json["choices"].push_back(choice_json("attention", c));
    }
    return json.dump(1, ' ', true, Json::error_handler_t::replace) + "\n";
}

TuningCache parse_tuning(std::string_view text, std::string_view what) {
    const Json json = parse_json(text, what);
    const Reader reader(json, std::string(what));
    reader.integer("version", kVersion, kVersion);
    TuningCache cache;
    constexpr std::array<std::string_view, 2> kBackends = {"cpu", "cuda"};
    cache.key.backend = kBackends[reader.one_of("backend", kBackends)];
    cache.key.device = reader.text("device");
    cache.key.isa = reader.text("isa");
    cache.key.n_threads = static_cast<int>(reader.integer("n_threads", 0, 1024));
    cache.key.build = reader.text("build");
    cache.time = reader.text("time");
    const Json& choices = reader.at("choices");
    if (!choices.is_array()) {
        throw Error("{}: choices is {}, expected an array", what, choices.type_name());
    }
    if (choices.size() > kMaxChoices) {
        throw Error("{}: it has {} choices, expected at most {}", what, choices.size(),
                    kMaxChoices);
    }
    for (size_t i = 0; i < choices.size(); i++) {
        read_choice(Reader(choices[i], fmt::format("{}: choice {}", what, i + 1)), cache);
    }
    return cache;
}

void add_to_tuning(const std::string& folder, const TuningCache& found) {
    make_folders(folder);
    const FolderLock lock(folder);
    TuningCache cache = load_tuning(folder, found.key).cache.value_or(TuningCache{});
    cache.key = found.key;
    cache.time = found.time;
    for (const MatmulChoice& choice : found.matmuls) cache.add(choice);
    for (const AttentionChoice& choice : found.attentions) cache.add(choice);
    write_file(tuning_path(folder, cache.key), tuning_text(cache), true);
}

TuningInfo tuning_info(const LoadedTuning& loaded) {
    TuningInfo info;
    info.ignored = loaded.ignored;
    if (!loaded.cache) return info;
    info.n_choices = static_cast<int>(loaded.cache->n_choices());
    info.n_changes = static_cast<int>(loaded.cache->n_changes());
    info.time = loaded.cache->time;
    return info;
}

LoadedTuning load_tuning(const std::string& folder, const TuningKey& key) {
    if (folder.empty()) return {};
    const std::string path = tuning_path(folder, key);
    const std::string what = printable(path);
    try {
        const FileKind kind = file_kind(path);
        if (kind == FileKind::kMissing) return {};
        if (kind == FileKind::kOther) {  // reading one might never end
            throw Error("{}: is a device, a FIFO or a socket, expected a file", what);
        }
        TuningCache cache = parse_tuning(read_file(path, kMaxFileBytes), what);
        TuningKey same_build = cache.key;
        same_build.build = key.build;
        if (same_build != key) {
            return {{},
                    fmt::format("tuning ignored: {} is for another device, {}", what,
                                printable(device_text(cache.key), 120))};
        }
        if (cache.key.build != key.build) {
            return {{},
                    fmt::format("tuning ignored: {} was measured with build {}, and this is "
                                "{}; ridge tune measures anew",
                                what, printable(cache.key.build, 60), printable(key.build, 60))};
        }
        return {std::move(cache), {}};
    } catch (const Error& e) {
        return {{}, fmt::format("tuning ignored: {}", e.what())};
    }
}

}  // namespace ridge
