#pragma once

#include <cstddef>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/token.h"

namespace ridge {

// A token that is found as a whole in text, before anything else is done with it. The flags are
// those of a tokenizer.json.
struct AddedToken {
    Token id;
    bool left_strip = false;   // takes the white space before it
    bool right_strip = false;  // takes the white space after it
    bool single_word = false;  // does not count next to a word character
};

constexpr size_t kMaxAddedTokenBytes = 512;  // bounds what a look at one place of a text costs

// Finds added tokens: the leftmost, and of several that begin there the longest.
class AddedTokenMatcher {
  public:
    struct Match {
        size_t begin, end;  // white space that the token takes included
        Token id;
    };

    AddedTokenMatcher();
    void add(std::string_view text, const AddedToken& token);  // 1 to kMaxAddedTokenBytes bytes
    // The first match that lies in text[begin, end). White space is taken from all of the text,
    // but not from before `begin`.
    std::optional<Match> find(std::string_view text, size_t begin, size_t end) const;

  private:
    struct Node {
        int token = -1;  // index into tokens_
    };
    int child(int node, unsigned char byte) const;

    std::vector<AddedToken> tokens_;
    std::vector<Node> nodes_;
    std::unordered_map<uint64_t, int> children_;  // node * 256 + byte -> node
    bool first_[256] = {};                        // bytes that a token begins with
};

}  // namespace ridge
