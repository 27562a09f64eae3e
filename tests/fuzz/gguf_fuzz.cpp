// Opens the input as a GGUF image, then uses all that it gives: every metadata value by every
// look-up, and the first and last row of each tensor.

#include <cstring>
#include <vector>

#include "base/error.h"
#include "file/model_file.h"

namespace ridge {
namespace {

template <class Action>
void ignore_error(Action action) {
    try {
        action();
    } catch (const Error&) {
    }
}

void use_metadata(const GgufMetadata& metadata) {
    for (const GgufEntry& entry : metadata.entries()) {
        gguf_type_text(entry);
        gguf_value_text(entry);
        ignore_error([&] { metadata.find_u32(entry.key); });
        ignore_error([&] { metadata.find_u64(entry.key); });
        ignore_error([&] { metadata.find_i64(entry.key); });
        ignore_error([&] { metadata.find_f32(entry.key); });
        ignore_error([&] { metadata.find_bool(entry.key); });
        ignore_error([&] { metadata.find_string(entry.key); });
        ignore_error([&] { metadata.find_strings(entry.key); });
        ignore_error([&] { metadata.find_i32s(entry.key); });
        ignore_error([&] { metadata.find_f32s(entry.key); });
    }
}

void use_tensors(const ModelFile& file) {
    std::vector<float> row;
    for (size_t i = 0; i < file.tensor_names().size(); i++) {
        const Tensor& tensor = file.tensor(i);
        row.resize(static_cast<size_t>(tensor.n_cols()));
        unpack_row(tensor, 0, row.data());
        unpack_row(tensor, tensor.n_rows() - 1, row.data());
        file.drop_pages(tensor);
    }
}

}  // namespace
}  // namespace ridge

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t n_bytes) {
    using namespace ridge;
    ignore_error([&] {
        MappedFile image = MappedFile::anonymous(n_bytes, "fuzz");
        if (n_bytes > 0) memcpy(image.writable_bytes().data(), data, n_bytes);
        ModelFile file = ModelFile::from_memory(std::move(image));
        use_metadata(file.metadata());
        use_tensors(file);
    });
    return 0;
}
