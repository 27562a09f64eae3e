#pragma once

#include <cstddef>

namespace ridge {

// Zeroed, page-aligned memory that is committed page by page as it is first touched. Null where
// there is none.
void* reserve_memory(size_t n_bytes);
void release_memory(void* data, size_t n_bytes);

}  // namespace ridge
