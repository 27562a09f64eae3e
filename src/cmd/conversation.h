#pragma once

#include <string>
#include <string_view>

#include "base/json.h"

namespace ridge {

// A conversation as chat templates take it: an array of {"role": ..., "content": ...}.
class Conversation {
  public:
    const Json& messages() const { return messages_; }
    size_t size() const { return messages_.size(); }
    bool ends_with(std::string_view role) const;

    void add(std::string_view role, std::string_view content);
    void drop_last();

    // The system message stands at the head; empty text takes it away.
    void set_system(std::string_view text);
    std::string system() const;  // empty where there is none
    void reset();                // only the system message stays

    // {"messages": [...]}, mode 0600; an existing file is an error and stays.
    void save(const std::string& path) const;
    // Error, and the conversation as it was, where the file is not a regular one of at most 16 MiB
    // that holds such an object, or the array alone, with the roles system (first only), user and
    // assistant and contents that are strings.
    void load(const std::string& path);

  private:
    Json messages_ = Json::array();
};

// The messages in `text`, checked as load() says; `what` names it in errors.
Json parse_conversation(std::string_view text, std::string_view what);

}  // namespace ridge
