#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "file/folder_jsons.h"
#include "file/gguf.h"
#include "format/tensor.h"

namespace ridge {

// What the readers of the two kinds of model hand to ModelFile.
struct ModelParts {
    std::vector<MappedFile> files;
    std::vector<std::string> names;        // canonical
    std::vector<Tensor> tensors;           // parallel to names; they point into files
    std::optional<GgufMetadata> metadata;  // GGUF
    FolderJsons jsons;                     // safetensors
};

// A GGUF model whose file, or one of whose parts, is `file`. Other parts are found beside it.
ModelParts open_gguf_model(MappedFile file);

// A safetensors model: a folder with config.json and model.safetensors, or the shards that its
// index names.
ModelParts open_safetensors_folder(const std::string& folder);
// A safetensors file with its config.json beside it; a shard that an index beside it names opens
// all.
ModelParts open_safetensors_file(MappedFile file);

// The model that a folder holds, as ModelFile::open describes.
struct FolderModel {
    std::string folder;     // a cache folder's snapshot, or the folder itself
    std::string gguf_path;  // empty: safetensors
};
FolderModel find_folder_model(const std::string& path);

}  // namespace ridge
