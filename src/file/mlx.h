#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "file/folder_jsons.h"
#include "file/name_index.h"

namespace ridge {

// How one module of an MLX checkpoint is quantised: x = scale * code + bias in groups of a row.
struct AffineShape {
    int bits;        // 4 or 8
    int group_size;  // 32, 64 or 128
};

// `quantization` of config.json (`quantization_config` in some): {"group_size", "bits"} for all
// modules, and the same, or false, under a module's path for that one. Error for what is not affine
// of 4 or 8 bits, naming key and value; only modules that are asked for are looked at.
class MlxQuantization {
  public:
    explicit MlxQuantization(const FolderJsons& jsons);

    // Empty where the configuration says that the module is not quantised.
    std::optional<AffineShape> of(std::string_view module) const;

  private:
    AffineShape read(const Json& settings, const std::string& at) const;

    std::string config_path_;
    std::string key_;  // of config.json
    const Json* settings_ = nullptr;
    std::vector<const Json*> values_;
    NameIndex modules_;  // into values_: a look-up in Json is linear
};

}  // namespace ridge
