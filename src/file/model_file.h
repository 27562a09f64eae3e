#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/mapped_file.h"
#include "file/gguf.h"
#include "format/tensor.h"

namespace ridge {

enum class FileType { kGguf, kSafetensors };

// One view over a model on disk: a GGUF file (or its split parts), or a folder with safetensors and
// their JSON files. What kind it is, its first bytes say, never its name. Tensors stay mapped; a
// Tensor is valid while this lives.
//
// Tensor names are canonical: those of GGUF (token_embd.weight, blk.3.attn_q.weight,
// output_norm.weight, ...). Hugging Face names (model.layers.3.self_attn.q_proj.weight) are
// translated; what has no translation keeps its name. Tensor::name is the file's own name, for
// messages.
class ModelFile {
  public:
    static ModelFile open(const std::string& path);
    static ModelFile from_memory(
        MappedFile gguf_image);  // a GGUF image; its path() names it in messages

    FileType type() const;
    const std::string& path() const;              // as the user gave it
    std::vector<std::string> file_paths() const;  // every mapped file
    uint64_t file_bytes() const;                  // of all mapped files

    const Tensor* find(std::string_view canonical_name) const;  // null where absent
    const std::vector<std::string>& tensor_names() const;       // canonical, in file order
    const Tensor& tensor(size_t index) const;                   // parallel to tensor_names()
    const std::string& file_of(const Tensor& tensor) const;     // path of the file that holds it

    const GgufMetadata& metadata() const;   // GGUF; CHECKs type()
    const Json& config() const;             // config.json; CHECKs type()
    const Json* generation_config() const;  // generation_config.json; null where absent
    const Json* tokenizer_config() const;   // tokenizer_config.json; null where absent
    std::optional<std::string> tokenizer_json_path()
        const;  // path of tokenizer.json where there is one
    std::optional<std::string> chat_template()
        const;  // GGUF key, tokenizer_config.json, or chat_template.jinja

    // The pages of a tensor that has been packed elsewhere: resident memory shrinks by them.
    void drop_pages(const Tensor& tensor) const;
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
