#pragma once

#include <gtest/gtest.h>

#include <string>

#include "base/files.h"
#include "base/json.h"
#include "text/chat_template.h"

namespace ridge {

inline std::string chat_folder() {
    return std::string(RIDGE_TESTS_DIR) + "/golden_data/chat/";
}

inline std::string read_chat_file(const std::string& name) {
    return read_file(chat_folder() + name, uint64_t{16} << 20);
}

inline Json read_chat_json(const std::string& name) {
    return parse_json(read_chat_file(name), name);
}

// Renders a template that sees `variables`, and no messages.
inline std::vector<RenderedSpan> render_template(const std::string& source,
                                                 const Json& variables = Json::object()) {
    ChatInput input;
    input.messages = Json::array();
    input.extra = variables;
    input.date = "2026-11-29";
    return ChatTemplate::compile(source, "test", "<s>", "</s>").render(input);
}

inline std::string text_of(const std::string& source, const Json& variables = Json::object()) {
    return joined(render_template(source, variables));
}

// The message of the Error that compiling or rendering ends in; "" where there is none.
inline std::string error_of(const std::string& source, const Json& variables = Json::object()) {
    try {
        render_template(source, variables);
    } catch (const Error& e) {
        return e.what();
    }
    return "";
}

}  // namespace ridge
