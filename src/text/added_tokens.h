#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
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

constexpr size_t kMaxAddedTokenBytes = 512;               // bounds how far a search looks ahead
constexpr size_t kMaxAddedTokensBytes = size_t{1} << 26;  // of all together

// Finds added tokens: the leftmost, and of several that begin there the longest. Takes time linear
// in the text, whatever the tokens, and 13 bytes of memory for each of theirs.
//
// The automaton is that of Aho and Corasick 1975 over the tokens read backwards. Text is read from
// its end, so that the longest token that ends where the automaton has come to, backwards, is the
// longest that begins there.
class AddedTokenMatcher {
  public:
    struct Entry {
        std::string_view text;  // 1 to kMaxAddedTokenBytes bytes; not kept
        AddedToken token;
    };
    struct Match {
        size_t begin, end;  // white space that the token takes included
        Token id;
    };
    class Search;

    // Texts of at most kMaxAddedTokensBytes together. Of equal ones the first counts.
    explicit AddedTokenMatcher(const std::vector<Entry>& entries);

    // The tokens that lie in text[begin, end), from left to right. White space is taken from all of
    // the text, but not from before `begin` or from a token found before. The matcher and the text
    // must outlive the search.
    Search search(std::string_view text, size_t begin, size_t end) const;

  private:
    struct Found {
        AddedToken token;
        uint32_t n_bytes;
    };
    static constexpr uint32_t kNone = UINT32_MAX;

    void build(const std::vector<std::string_view>& backwards,
               const std::vector<uint32_t>& numbers);
    void add_node(uint8_t byte, uint32_t fallback);
    uint32_t child(uint32_t node, uint8_t byte) const;  // 0: none
    uint32_t next(uint32_t node, uint8_t byte) const;

    std::vector<Found> tokens_;
    size_t max_bytes_ = 0;  // of a token

    // Nodes go by depth, and those of one parent lie together, by their bytes; 0 is the root.
    std::vector<uint8_t> bytes_;           // that lead to a node from its parent
    std::vector<uint32_t> first_child_;    // [n_nodes + 1]
    std::vector<uint32_t> fallbacks_;      // the node of the longest proper suffix
    std::vector<uint32_t> longest_;        // the longest token that ends here, or kNone
    std::array<uint32_t, 256> of_root_{};  // its children by byte, 0: none
};

class AddedTokenMatcher::Search {
  public:
    std::optional<Match> next();

  private:
    friend AddedTokenMatcher;
    struct Begin {
        size_t at;
        uint32_t token;  // the longest that begins there
    };
    Search(const AddedTokenMatcher& matcher, std::string_view text, size_t begin, size_t end)
        : matcher_(matcher), text_(text), at_(begin), left_(begin), end_(end), n_read_(begin) {}
    void read_block();
    bool stands_alone(size_t begin, size_t end) const;

    const AddedTokenMatcher& matcher_;
    std::string_view text_;
    size_t at_;    // where the search goes on
    size_t left_;  // what lies before it is not given again
    size_t end_;
    size_t n_read_;              // where what has been read ends
    std::vector<Begin> begins_;  // of what has been read, the first one last
};

}  // namespace ridge
