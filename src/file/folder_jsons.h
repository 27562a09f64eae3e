#pragma once

#include <optional>
#include <string>

#include "base/json.h"

namespace ridge {

// The JSON files beside safetensors. Each is an object; a file that is absent is empty here.
struct FolderJsons {
    std::string config_path;  // for errors
    Json config;
    std::optional<Json> generation_config, tokenizer_config, chat_template;
    std::optional<std::string> chat_template_jinja;  // a text, not JSON
    std::optional<std::string> tokenizer_json_path;
    std::string folder;
};

constexpr uint64_t kMaxJsonBytes = 16 << 20;

// Reads them; config.json must be there.
FolderJsons read_folder_jsons(const std::string& folder);

// A JSON file, an object, of at most kMaxJsonBytes. Error for one that is no regular file: a FIFO
// would be waited for without end.
Json read_json_object(const std::string& path);
std::string read_text_file(const std::string& path);  // the same limits

// As ModelFile::chat_template.
std::optional<std::string> chat_template_of(const FolderJsons& jsons);

}  // namespace ridge
