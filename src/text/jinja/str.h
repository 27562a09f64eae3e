#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace ridge::jinja {

// Text as the interpreter holds it: UTF-8 bytes that somebody else owns (the template, the
// messages, or the run's memory), and for each byte whether it was written by the template
// ("trusted": a control token in it counts) or came from a message, a tool or an argument. A slice
// shares the bytes and the marks.
struct Str {
    const char* data = "";
    const uint8_t* marks = nullptr;  // [size] 1 where trusted; null: `trusted` holds for every byte
    uint32_t size = 0;
    bool trusted = true;  // read only where marks is null
    bool markup = false;  // went through `safe` or `escape`

    static Str of(std::string_view text, bool trusted) {
        return {text.data(), nullptr, static_cast<uint32_t>(text.size()), trusted, false};
    }
    std::string_view view() const { return {data, size}; }
    bool empty() const { return size == 0; }
    bool trusted_at(size_t i) const { return marks != nullptr ? marks[i] != 0 : trusted; }
    Str slice(size_t begin, size_t end) const {  // begin <= end <= size
        return {data + begin, marks != nullptr ? marks + begin : nullptr,
                static_cast<uint32_t>(end - begin), trusted, markup};
    }
    bool all_trusted() const {
        if (marks == nullptr) return trusted;
        for (uint32_t i = 0; i < size; i++) {
            if (marks[i] == 0) return false;
        }
        return true;
    }
};

}  // namespace ridge::jinja
