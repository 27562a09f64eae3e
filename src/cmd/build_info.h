#pragma once

#include <string_view>

namespace ridge {

// Of this build, fixed when it was made.
struct BuildInfo {
    std::string_view version;  // "0.1.0"
    std::string_view commit;  // abbreviated, "-dirty" behind it where tracked files differed; empty
                              // where it was not built from a checkout
    std::string_view compiler;    // "GNU 12.2.0"
    std::string_view build_type;  // "RelWithDebInfo"
};
const BuildInfo& build_info();

}  // namespace ridge
