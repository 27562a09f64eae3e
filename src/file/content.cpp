#include "file/content.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "base/error.h"
#include "base/printable.h"

namespace ridge {
namespace {

using namespace std::string_view_literals;

struct Signature {
    std::string_view bytes;
    const char* meaning;
};

constexpr const char* kHtml = "a web page: did a download fail?";
constexpr const char* kOldGgml = "a GGML file from before GGUF: convert the model again";

constexpr Signature kSignatures[] = {
    {"version https://git-lfs"sv, "a git-lfs pointer, not the file itself: run git lfs pull"},
    {"<htm"sv, kHtml},
    {"<HTM"sv, kHtml},
    {"<!DO"sv, kHtml},
    {"<!do"sv, kHtml},
    {"<?xml"sv, "an XML page: did a download fail?"},
    {"PK\x03\x04"sv,
     "a zip archive, as PyTorch checkpoints are: convert it to safetensors or GGUF"},
    {"\x80\x02"sv, "a Python pickle, as old PyTorch checkpoints are: convert it to safetensors"},
    {"\x89HDF"sv, "an HDF5 file: convert it to safetensors or GGUF"},
    {"\x1f\x8b"sv, "gzip: unpack it first"},
    {"BZh"sv, "bzip2: unpack it first"},
    {"\xfd"
     "7zXZ"sv,
     "xz: unpack it first"},
    {"\x28\xb5\x2f\xfd"sv, "zstd: unpack it first"},
    {"GGML"sv, kOldGgml},
    {"lmgg"sv, kOldGgml},
    {"fmgg"sv, kOldGgml},
    {"tjgg"sv, kOldGgml},
    {"algg"sv, kOldGgml},
    {"\x7f"
     "ELF"sv,
     "a program"},
    {"{"sv, "JSON: give the folder that holds it"},
    {"\0\0\0\0\0\0\0\0"sv, "zeros, or a safetensors header length of 0: did a download stop?"},
};

std::string_view text_of(std::span<const std::byte> bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

const Signature* find_signature(std::string_view text) {
    auto found = std::find_if(std::begin(kSignatures), std::end(kSignatures),
                              [&](const auto& s) { return text.starts_with(s.bytes); });
    return found == std::end(kSignatures) ? nullptr : found;
}

}  // namespace

Content content_of(std::span<const std::byte> bytes) {
    std::string_view text = text_of(bytes);
    if (text.starts_with("GGUF")) return Content::kGguf;
    if (text.size() < 9) return Content::kOther;
    // safetensors: the length of the header, then the header, which is a JSON object. Its length
    // may look like the signature of something else (640 is that of a pickle), so both together
    // come first. One of the two alone is taken for safetensors, too, where no signature says
    // otherwise: the reader tells what is wrong with the header.
    uint64_t header_bytes;
    memcpy(&header_bytes, text.data(), sizeof header_bytes);
    bool length_fits = header_bytes <= text.size() - sizeof header_bytes, opens = text[8] == '{';
    if (length_fits && opens) return Content::kSafetensors;
    if (find_signature(text) != nullptr) return Content::kOther;
    return length_fits || opens ? Content::kSafetensors : Content::kOther;
}

void refuse_content(const std::string& path, std::span<const std::byte> bytes,
                    const char* expected) {
    std::string file = printable(path, 0);
    std::string_view text = text_of(bytes);
    if (text.size() < 4) {
        throw Error("{}: the file has {} bytes, no room for a magic, expected {}", file,
                    text.size(), expected);
    }
    std::string first = printable(text.substr(0, std::min<size_t>(text.size(), 8)), 0);
    const Signature* signature = find_signature(text);
    throw Error("{}: magic is \"{}\"{}, expected {}", file, first,
                signature == nullptr ? "" : fmt::format(" ({})", signature->meaning), expected);
}

}  // namespace ridge
