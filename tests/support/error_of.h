#pragma once

#include <functional>
#include <string>

#include "base/error.h"

namespace ridge {

// The message of the Error that the action ends in, or "no error".
inline std::string error_of(const std::function<void()>& action) {
    try {
        action();
    } catch (const Error& e) {
        return e.what();
    }
    return "no error";
}

}  // namespace ridge
