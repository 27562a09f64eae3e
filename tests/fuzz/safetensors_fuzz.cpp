// Reads the input as a safetensors file and touches the first and last byte of each tensor.

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/error.h"
#include "file/huggingface_names.h"
#include "file/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t n_bytes) {
    using namespace ridge;
    try {
        std::span<const std::byte> bytes = std::as_bytes(std::span(data, n_bytes));
        unsigned sum = 0;
        for (const SafetensorsTensor& tensor : read_safetensors(bytes, "fuzz")) {
            canonical_name(tensor.name);
            if (tensor.empty()) continue;
            sum += std::to_integer<unsigned>(bytes[tensor.offset]);
            sum += std::to_integer<unsigned>(bytes[tensor.offset + tensor.n_bytes - 1]);
        }
        volatile unsigned sink = sum;  // keeps the reads
        (void)sink;
    } catch (const Error&) {
    }
    return 0;
}
