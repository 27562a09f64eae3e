#pragma once

#include <cstddef>

namespace ridge {

// Zeroed, page-aligned memory that is committed page by page as it is first touched. Null where
// there is none.
void* reserve_memory(size_t n_bytes);
// Says that the block will be read over and over, and is better off in huge pages where the system
// has them: fewer translations to look up. A wish; nothing fails.
void advise_huge_pages(void* data, size_t n_bytes);
void release_memory(void* data, size_t n_bytes);

}  // namespace ridge
