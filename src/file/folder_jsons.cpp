#include "file/folder_jsons.h"

#include <algorithm>

#include "base/error.h"
#include "base/files.h"
#include "base/printable.h"
#include "file/paths.h"

namespace ridge {
namespace {

std::string template_text(const Json& value, const std::string& path, const char* field) {
    if (!value.is_string()) {
        throw Error("{}: {} is of type {}, expected a string", printable(path, 0), field,
                    value.type_name());
    }
    return value.get<std::string>();
}

// A list of {"name": ..., "template": ...}.
std::string default_template(const Json& list, const std::string& path) {
    std::string names;
    for (const Json& item : list) {
        if (!item.is_object() || !item.contains("name") || !item["name"].is_string() ||
            !item.contains("template")) {
            throw Error(
                "{}: an element of chat_template is {}, expected {{\"name\", \"template\"}}",
                printable(path, 0), printable(item.dump(-1, ' ', true), 60));
        }
        std::string name = item["name"].get<std::string>();
        if (name == "default") return template_text(item["template"], path, "chat_template");
        names += (names.empty() ? "" : ", ") + printable(name, 60);
    }
    throw Error("{}: chat_template has the templates {}, expected one named default",
                printable(path, 0), names.empty() ? "(none)" : printable(names));
}

}  // namespace

namespace {

// What is missing is reported when it is opened.
void refuse_what_is_no_file(const std::string& path) {
    FileKind kind = file_kind(path);
    if (kind == FileKind::kDirectory || kind == FileKind::kOther) {
        throw Error("{}: is not a regular file", printable(path, 0));
    }
}

}  // namespace

std::string read_text_file(const std::string& path) {
    refuse_what_is_no_file(path);
    return read_file(path, kMaxJsonBytes);
}

Json read_json_object(const std::string& path) {
    Json value = parse_json(read_text_file(path), printable(path, 0));
    if (!value.is_object()) {
        throw Error("{}: is a JSON {}, expected an object", printable(path, 0), value.type_name());
    }
    return value;
}

FolderJsons read_folder_jsons(const std::string& folder) {
    // By listing: a link that leads nowhere is reported when it is opened, not taken for absent.
    std::vector<std::string> names = list_folder(folder);
    auto has = [&](const char* name) {
        return std::binary_search(names.begin(), names.end(), name);
    };
    auto read = [&](const char* name) {
        return has(name) ? std::optional<Json>(read_json_object(join_path(folder, name)))
                         : std::nullopt;
    };
    FolderJsons jsons;
    jsons.folder = folder;
    jsons.config_path = join_path(folder, "config.json");
    if (!has("config.json")) {
        throw Error("{}: is missing; a safetensors model needs it",
                    printable(jsons.config_path, 0));
    }
    jsons.config = read_json_object(jsons.config_path);
    jsons.generation_config = read("generation_config.json");
    jsons.tokenizer_config = read("tokenizer_config.json");
    jsons.chat_template = read("chat_template.json");
    if (has("chat_template.jinja")) {
        jsons.chat_template_jinja = read_text_file(join_path(folder, "chat_template.jinja"));
    }
    if (has("tokenizer.json")) {
        jsons.tokenizer_json_path = join_path(folder, "tokenizer.json");
        refuse_what_is_no_file(*jsons.tokenizer_json_path);
    }
    return jsons;
}

std::optional<std::string> chat_template_of(const FolderJsons& jsons) {
    if (jsons.chat_template_jinja) return jsons.chat_template_jinja;
    for (const auto& [json, name] : {std::pair(&jsons.chat_template, "chat_template.json"),
                                     std::pair(&jsons.tokenizer_config, "tokenizer_config.json")}) {
        if (!*json || !(*json)->contains("chat_template")) continue;
        const Json& value = (**json)["chat_template"];
        if (value.is_null()) continue;
        std::string path = join_path(jsons.folder, name);
        return value.is_array() ? default_template(value, path)
                                : template_text(value, path, "chat_template");
    }
    return std::nullopt;
}

}  // namespace ridge
