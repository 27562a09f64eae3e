#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"
#include "file/gguf.h"
#include "format/tensor.h"

namespace ridge {

using Json = nlohmann::ordered_json;  // as in base/json.h, which users of the values include

enum class FileType { kGguf, kSafetensors };

// One view over a model on disk. What a file is, its first bytes say, never its name.
//
// - GGUF: one file, or any one part of a split model (NAME-00002-of-00003.gguf), which opens all.
// - safetensors: a folder with config.json and model.safetensors, or with
//   model.safetensors.index.json and its shards; or one such file beside its config.json. MLX
//   checkpoints (`quantization` in config.json) give affine4 and affine8 tensors: the codes
//   X.weight with X.scales and X.biases become one Tensor of three planes.
// - A folder that holds one GGUF model and no safetensors, or a Hugging Face cache folder
//   (models--OWNER--NAME), whose snapshot of refs/main, or only snapshot, is taken.
//
// Tensors stay mapped and uncopied; a Tensor is valid while this lives. The planes of a safetensors
// file need not be aligned to their elements.
//
// Tensor names are canonical: those of GGUF (token_embd.weight, blk.3.attn_q.weight,
// output_norm.weight, ...). Hugging Face names (model.layers.3.self_attn.q_proj.weight) are
// translated; what has no translation keeps its name. Tensor::name is the file's own name, for
// messages. Tensors without elements, and rotary_emb.inv_freq, are left out.
//
// Everything is checked on opening, the shapes that a model needs excepted: Error names file,
// field, value and what was expected.
class ModelFile {
  public:
    static ModelFile open(const std::string& path);
    // A GGUF image; its path() names it in messages.
    static ModelFile from_memory(MappedFile gguf_image);

    FileType type() const;
    const std::string& path() const;              // as the user gave it
    std::vector<std::string> file_paths() const;  // every mapped file
    uint64_t file_bytes() const;                  // of all mapped files

    const Tensor* find(std::string_view canonical_name) const;  // null where absent
    const std::vector<std::string>& tensor_names() const;       // canonical, in file order
    const Tensor& tensor(size_t index) const;                   // parallel to tensor_names()
    // Path of the file that holds the tensor (its first plane). One of this file's tensors.
    const std::string& file_of(const Tensor& tensor) const;

    const GgufMetadata& metadata() const;   // GGUF (split: of the first part); CHECKs type()
    const Json& config() const;             // config.json, an object; CHECKs type()
    const Json* generation_config() const;  // generation_config.json; null where absent
    const Json* tokenizer_config() const;   // tokenizer_config.json; null where absent
    // Path of tokenizer.json where there is one.
    std::optional<std::string> tokenizer_json_path() const;
    // GGUF: tokenizer.chat_template. safetensors, as transformers has it: chat_template.jinja, else
    // chat_template.json, else chat_template of tokenizer_config.json (of several, the one named
    // "default"; Error where none is).
    std::optional<std::string> chat_template() const;

    // The pages of a tensor that has been packed elsewhere: resident memory shrinks by them.
    void drop_pages(const Tensor& tensor) const;
    // ... that will not be read again: what is in memory without a file is given back, too.
    void discard(const Tensor& tensor) const;
    void prefetch() const;

    ModelFile(ModelFile&&) noexcept;
    ModelFile& operator=(ModelFile&&) noexcept;
    ~ModelFile();

  private:
    struct Impl;
    explicit ModelFile(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace ridge
