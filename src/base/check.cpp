#include "base/check.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace ridge {

void check_failed(const char* condition, const char* file, int line) {
    // A compiler cache may name sources from the build folder; the project's root is where a reader
    // starts.
    while (std::strncmp(file, "../", 3) == 0) file += 3;
    std::fprintf(stderr, "%s:%d: CHECK failed: %s\n", file, line, condition);
    std::abort();
}

}  // namespace ridge
