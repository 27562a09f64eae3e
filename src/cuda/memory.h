#pragma once

#include <cstddef>
#include <string_view>

#include "model/rows.h"

namespace ridge::cuda {

// Memory of the current device, and pinned memory of the host, which copies to it do not wait for.
// `what` it is for is said in the Error where there is none.
Buffer device_buffer(size_t n_bytes, std::string_view what);
Buffer pinned_buffer(size_t n_bytes, std::string_view what);

}  // namespace ridge::cuda
