#pragma once

#include <string>

namespace ridge {

// Makes the files of a published model in `folder` from a description that
// scripts/goldens/real_headers.py wrote: headers to the byte, vocabularies of made-up strings,
// tensors as holes that take no space. Returns what to open: the GGUF file, or the folder.
std::string make_sparse_model(const std::string& description, const std::string& folder);

}  // namespace ridge
