#include "file/model_file.h"

#include <functional>

#include "base/check.h"
#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/printable.h"
#include "file/content.h"
#include "file/model_parts.h"

namespace ridge {

struct ModelFile::Impl {
    FileType type;
    std::string path;
    ModelParts parts;
    NameIndex index;  // views of parts.names

    // The file that holds this address, and where in it.
    struct Place {
        const MappedFile& file;
        size_t offset;
    };
    Place place_of(const std::byte* data) const {
        for (const MappedFile& file : parts.files) {
            std::span<const std::byte> bytes = file.bytes();
            std::less<const std::byte*> less;
            if (less(data, bytes.data()) || !less(data, bytes.data() + bytes.size())) continue;
            return {file, static_cast<size_t>(data - bytes.data())};
        }
        CHECK(!"a tensor of this file");
        __builtin_unreachable();
    }
};

ModelFile::ModelFile(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {
    const ModelParts& parts = impl_->parts;
    impl_->index = NameIndex(parts.names.size());
    for (const std::string& name : parts.names) impl_->index.add(name);
    if (auto twice = impl_->index.sort()) {
        // Within one file the readers have seen to it: these are of two, or of two names with one
        // translation.
        const Tensor& tensor = parts.tensors[*twice];
        throw Error("{}: tensor {} is there twice", printable(file_of(tensor), 0),
                    printable(tensor.name));
    }
}

ModelFile::ModelFile(ModelFile&&) noexcept = default;
ModelFile& ModelFile::operator=(ModelFile&&) noexcept = default;
ModelFile::~ModelFile() = default;

ModelFile ModelFile::from_memory(MappedFile gguf_image) {
    auto impl = std::make_unique<Impl>();
    impl->type = FileType::kGguf;
    impl->path = gguf_image.path();
    impl->parts = open_gguf_model(std::move(gguf_image));
    return ModelFile(std::move(impl));
}

ModelFile ModelFile::open(const std::string& path) {
    auto impl = std::make_unique<Impl>();
    impl->path = path;
    std::string file_path = path;
    if (file_kind(path) == FileKind::kDirectory) {
        FolderModel found = find_folder_model(path);
        if (found.gguf_path.empty()) {
            impl->type = FileType::kSafetensors;
            impl->parts = open_safetensors_folder(found.folder);
            return ModelFile(std::move(impl));
        }
        file_path = found.gguf_path;
    }
    MappedFile file = MappedFile::open(file_path);
    switch (content_of(file.bytes())) {
        case Content::kGguf:
            impl->type = FileType::kGguf;
            impl->parts = open_gguf_model(std::move(file));
            break;
        case Content::kSafetensors:
            impl->type = FileType::kSafetensors;
            impl->parts = open_safetensors_file(std::move(file));
            break;
        case Content::kOther:
            refuse_content(file_path, file.bytes(), "a GGUF file (\"GGUF\") or a safetensors file");
    }
    return ModelFile(std::move(impl));
}

FileType ModelFile::type() const {
    return impl_->type;
}

const std::string& ModelFile::path() const {
    return impl_->path;
}

std::vector<std::string> ModelFile::file_paths() const {
    std::vector<std::string> paths;
    for (const MappedFile& file : impl_->parts.files) paths.push_back(file.path());
    return paths;
}

uint64_t ModelFile::file_bytes() const {
    uint64_t n = 0;
    for (const MappedFile& file : impl_->parts.files) n += file.bytes().size();
    return n;
}

const Tensor* ModelFile::find(std::string_view canonical_name) const {
    auto found = impl_->index.find(canonical_name);
    return found ? &impl_->parts.tensors[*found] : nullptr;
}

const std::vector<std::string>& ModelFile::tensor_names() const {
    return impl_->parts.names;
}

const Tensor& ModelFile::tensor(size_t index) const {
    return impl_->parts.tensors.at(index);
}

const std::string& ModelFile::file_of(const Tensor& tensor) const {
    return impl_->place_of(tensor.planes[0].data).file.path();
}

const GgufMetadata& ModelFile::metadata() const {
    CHECK(impl_->type == FileType::kGguf);
    return *impl_->parts.metadata;
}

const Json& ModelFile::config() const {
    CHECK(impl_->type == FileType::kSafetensors);
    return impl_->parts.jsons.config;
}

const Json* ModelFile::generation_config() const {
    const std::optional<Json>& value = impl_->parts.jsons.generation_config;
    return value ? &*value : nullptr;
}

const Json* ModelFile::tokenizer_config() const {
    const std::optional<Json>& value = impl_->parts.jsons.tokenizer_config;
    return value ? &*value : nullptr;
}

std::optional<std::string> ModelFile::tokenizer_json_path() const {
    return impl_->parts.jsons.tokenizer_json_path;
}

std::optional<std::string> ModelFile::chat_template() const {
    const ModelParts& parts = impl_->parts;
    if (impl_->type == FileType::kSafetensors) return chat_template_of(parts.jsons);
    std::optional<std::string_view> text = parts.metadata->find_string("tokenizer.chat_template");
    return text ? std::optional<std::string>(*text) : std::nullopt;
}

// Calls visit(file, offset, n_bytes) for each of a tensor's planes.
template <class Impl, class Visit>
static void for_each_plane(const Impl& impl, const Tensor& tensor, Visit visit) {
    for (const Plane& plane : tensor.planes) {
        if (plane.data == nullptr) continue;
        auto place = impl.place_of(plane.data);
        visit(place.file, place.offset, static_cast<size_t>(tensor.n_rows() * plane.stride_bytes));
    }
}

void ModelFile::drop_pages(const Tensor& tensor) const {
    for_each_plane(*impl_, tensor, [](const MappedFile& file, size_t offset, size_t n_bytes) {
        file.drop_pages(offset, n_bytes);
    });
}

void ModelFile::discard(const Tensor& tensor) const {
    for_each_plane(*impl_, tensor, [](const MappedFile& file, size_t offset, size_t n_bytes) {
        file.discard_pages(offset, n_bytes);
    });
}

void ModelFile::prefetch() const {
    for (const MappedFile& file : impl_->parts.files) file.prefetch();
}

}  // namespace ridge
