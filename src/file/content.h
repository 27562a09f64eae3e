#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace ridge {

// What a file is, by its first bytes. Names and suffixes are not looked at.
enum class Content { kGguf, kSafetensors, kOther };
Content content_of(std::span<const std::byte> bytes);

// Throws the Error for a file that is something else: what its first bytes look like (a web page, a
// git-lfs pointer, an archive, ...), and `expected`.
[[noreturn]] void refuse_content(const std::string& path, std::span<const std::byte> bytes,
                                 const char* expected);

}  // namespace ridge
