#include "cmd/conversation.h"

#include "base/error.h"
#include "base/files.h"
#include "base/printable.h"

namespace ridge {
namespace {

constexpr uint64_t kMaxFileBytes = uint64_t{16} << 20;
constexpr int kMaxDepth = 8;

// Member `key` of a message, a string.
const std::string& string_member(const Json& message, const char* key, const std::string& place) {
    auto found = message.find(key);
    if (found == message.end()) throw Error("{} has no \"{}\"", place, key);
    if (!found->is_string()) {
        throw Error("{} has a \"{}\" that is {}, expected a string", place, key,
                    found->type_name());
    }
    return found->get_ref<const std::string&>();
}

}  // namespace

bool Conversation::ends_with(std::string_view role) const {
    return !messages_.empty() && messages_.back()["role"].get_ref<const std::string&>() == role;
}

void Conversation::add(std::string_view role, std::string_view content) {
    Json message;
    message["role"] = role;
    message["content"] = content;
    messages_.push_back(std::move(message));
}

void Conversation::drop_last() {
    if (!messages_.empty()) messages_.erase(messages_.size() - 1);
}

std::string Conversation::system() const {
    if (messages_.empty() || messages_[0]["role"] != "system") return {};
    return messages_[0]["content"].get<std::string>();
}

void Conversation::set_system(std::string_view text) {
    Json changed = Json::array();
    if (!text.empty()) {
        Json message;
        message["role"] = "system";
        message["content"] = text;
        changed.push_back(std::move(message));
    }
    for (Json& message : messages_) {
        if (message["role"] != "system") changed.push_back(std::move(message));
    }
    messages_ = std::move(changed);
}

void Conversation::reset() {
    std::string text = system();
    messages_ = Json::array();
    set_system(text);
}

void Conversation::save(const std::string& path) const {
    Json file;
    file["messages"] = messages_;
    write_file(path, file.dump(2, ' ', false, Json::error_handler_t::replace) + "\n", false);
}

void Conversation::load(const std::string& path) {
    switch (file_kind(path)) {
        case FileKind::kMissing:
            throw Error("{}: no such file", printable(path));
        case FileKind::kRegular:
            break;
        default:
            throw Error("{}: is not a regular file", printable(path));
    }
    // "-" would be standard input.
    std::string bytes = read_file(path == "-" ? "./-" : path, kMaxFileBytes);
    messages_ = parse_conversation(bytes, printable(path));
}

Json parse_conversation(std::string_view text, std::string_view what) {
    Json file = parse_json(text, what, kMaxDepth);
    if (file.is_object()) {
        auto found = file.find("messages");
        if (found == file.end()) throw Error("{}: has no \"messages\"", what);
        Json inner = std::move(*found);
        file = std::move(inner);
    }
    if (!file.is_array()) {
        throw Error("{}: messages are {}, expected an array", what, file.type_name());
    }
    Json messages = Json::array();
    for (size_t i = 0; i < file.size(); i++) {
        std::string place = fmt::format("{}: message {}", what, i + 1);
        if (!file[i].is_object()) {
            throw Error("{} is {}, expected an object", place, file[i].type_name());
        }
        const std::string& role = string_member(file[i], "role", place);
        const std::string& content = string_member(file[i], "content", place);
        if (role != "user" && role != "assistant" && role != "system") {
            throw Error("{} has the role \"{}\", expected system, user or assistant", place,
                        printable(role, 40));
        }
        if (role == "system" && i > 0) {
            throw Error("{} has the role \"system\", which only the first may have", place);
        }
        Json message;
        message["role"] = role;
        message["content"] = content;
        messages.push_back(std::move(message));
    }
    return messages;
}

}  // namespace ridge
