#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/files.h"
#include "base/printable.h"
#include "file/content.h"
#include "file/model_parts.h"
#include "file/paths.h"

namespace ridge {
namespace {

constexpr uint64_t kMaxRefBytes = 4096;
constexpr size_t kMaxListed = 8;  // names in an error

bool holds(const std::vector<std::string>& names, std::string_view name) {
    return std::binary_search(names.begin(), names.end(), name);
}

std::string list_text(const std::vector<std::string>& names) {
    std::string text;
    for (size_t i = 0; i < names.size() && i < kMaxListed; i++) {
        text += (i > 0 ? ", " : "") + printable(names[i], 100);
    }
    if (names.size() > kMaxListed) text += fmt::format(", and {} more", names.size() - kMaxListed);
    return names.empty() ? "nothing" : text;
}

std::string trimmed(std::string text) {
    constexpr const char* kSpace = " \t\r\n";
    text.erase(text.find_last_not_of(kSpace) + 1);
    text.erase(0, std::min(text.find_first_not_of(kSpace), text.size()));
    return text;
}

// The snapshot of a Hugging Face cache folder: snapshots/<revision>, where refs/main names the
// revision; without it, the only one there is.
std::string find_snapshot(const std::string& cache_folder) {
    std::string snapshots = join_path(cache_folder, "snapshots");
    std::string ref = join_path(join_path(cache_folder, "refs"), "main");
    if (file_kind(ref) == FileKind::kRegular) {
        std::string revision = trimmed(read_file(ref, kMaxRefBytes));
        if (!is_plain_name(revision)) {
            throw Error("{}: names the revision \"{}\", expected the name of a folder in snapshots",
                        printable(ref, 0), printable(revision));
        }
        std::string snapshot = join_path(snapshots, revision);
        if (file_kind(snapshot) == FileKind::kDirectory) return snapshot;
    }
    std::vector<std::string> revisions;
    for (const std::string& name : list_folder(snapshots)) {
        if (file_kind(join_path(snapshots, name)) == FileKind::kDirectory)
            revisions.push_back(name);
    }
    if (revisions.size() != 1) {
        throw Error("{}: holds {}, expected one snapshot, or one that refs/main names",
                    printable(snapshots, 0), list_text(revisions));
    }
    return join_path(snapshots, revisions[0]);
}

bool is_gguf(const std::string& path) {
    if (file_kind(path) != FileKind::kRegular) return false;
    try {
        return content_of(MappedFile::open(path).bytes()) == Content::kGguf;
    } catch (const Error&) {
        return false;  // what cannot be read is no candidate; opening it by name says why
    }
}

// The GGUF models among the files, the parts of a split one counted once: first part, how many.
struct GgufModel {
    std::string first_part;
    uint32_t n_found = 0;
};

std::vector<GgufModel> find_gguf_models(const std::string& folder,
                                        const std::vector<std::string>& names) {
    std::map<std::string, GgufModel> models;  // by the name with the part's number left out
    for (const std::string& name : names) {   // sorted: the first part comes first
        if (!is_gguf(join_path(folder, name))) continue;
        std::string key = name;
        if (auto split = parse_split_name(name)) {
            key = fmt::format("{}/{}/{}", split->prefix, split->count, split->suffix);
        }
        GgufModel& model = models[key];
        if (model.n_found++ == 0) model.first_part = name;
    }
    std::vector<GgufModel> found;
    for (auto& [key, model] : models) found.push_back(std::move(model));
    return found;
}

[[noreturn]] void refuse_folder(const std::string& folder, const std::vector<std::string>& names) {
    constexpr const char* kExpected =
        "expected config.json with model.safetensors (or model.safetensors.index.json), or one "
        "GGUF "
        "file";
    auto is_pytorch = [](const std::string& name) {
        return name.starts_with("pytorch_model") || name.ends_with(".pth") || name.ends_with(".pt");
    };
    auto pytorch = std::find_if(names.begin(), names.end(), is_pytorch);
    if (pytorch != names.end()) {
        throw Error("{}: holds PyTorch weights ({}), which are not read, {}; convert them",
                    printable(folder, 0), printable(*pytorch), kExpected);
    }
    throw Error("{}: holds no model that is known, {}; found {}", printable(folder, 0), kExpected,
                list_text(names));
}

}  // namespace

FolderModel find_folder_model(const std::string& path) {
    std::string folder = path;
    std::vector<std::string> names = list_folder(folder);
    if (holds(names, "snapshots") && !holds(names, "config.json")) {
        folder = find_snapshot(folder);
        names = list_folder(folder);
    }
    if (holds(names, "model.safetensors") || holds(names, "model.safetensors.index.json")) {
        return {folder, {}};
    }
    std::vector<GgufModel> models = find_gguf_models(folder, names);
    if (models.empty()) refuse_folder(folder, names);
    if (models.size() > 1) {
        std::vector<std::string> list;
        for (const GgufModel& model : models) list.push_back(model.first_part);
        throw Error("{}: holds {} GGUF models, name one of them: {}", printable(folder, 0),
                    models.size(), list_text(list));
    }
    return {folder, join_path(folder, models[0].first_part)};
}

}  // namespace ridge
