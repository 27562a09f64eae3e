#include "base/memory.h"

#include <sys/mman.h>

namespace ridge {

void* reserve_memory(size_t n_bytes) {
    void* data = mmap(nullptr, n_bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return data == MAP_FAILED ? nullptr : data;
}

void advise_huge_pages(void* data, size_t n_bytes) {
#ifdef MADV_HUGEPAGE
    madvise(data, n_bytes, MADV_HUGEPAGE);
#else
    (void)data, (void)n_bytes;
#endif
}

void release_memory(void* data, size_t n_bytes) {
    munmap(data, n_bytes);
}

}  // namespace ridge
