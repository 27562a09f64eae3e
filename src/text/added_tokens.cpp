#include "text/added_tokens.h"

#include "base/check.h"
#include "base/utf8.h"
#include "text/unicode.h"

namespace ridge {
namespace {

// The offset of the character that ends at `end` (> 0).
size_t previous_char(std::string_view text, size_t end) {
    size_t begin = end - 1;
    while (begin > 0 && end - begin < 4 && (static_cast<uint8_t>(text[begin]) & 0xc0) == 0x80) {
        begin--;
    }
    return begin;
}

uint32_t code_at(std::string_view text, size_t at) {
    return decode_utf8(text.substr(at)).code;
}

}  // namespace

AddedTokenMatcher::AddedTokenMatcher() : nodes_(1) {}

int AddedTokenMatcher::child(int node, unsigned char byte) const {
    auto found = children_.find(static_cast<uint64_t>(node) * 256 + byte);
    return found == children_.end() ? -1 : found->second;
}

void AddedTokenMatcher::add(std::string_view text, const AddedToken& token) {
    CHECK(!text.empty() && text.size() <= kMaxAddedTokenBytes);
    first_[static_cast<unsigned char>(text[0])] = true;
    int node = 0;
    for (char c : text) {
        uint64_t edge = static_cast<uint64_t>(node) * 256 + static_cast<unsigned char>(c);
        auto [it, inserted] = children_.emplace(edge, static_cast<int>(nodes_.size()));
        if (inserted) nodes_.emplace_back();
        node = it->second;
    }
    if (nodes_[static_cast<size_t>(node)].token >= 0) return;  // the first of equal texts
    nodes_[static_cast<size_t>(node)].token = static_cast<int>(tokens_.size());
    tokens_.push_back(token);
}

std::optional<AddedTokenMatcher::Match> AddedTokenMatcher::find(std::string_view text, size_t begin,
                                                                size_t end) const {
    for (size_t at = begin; at < end; at++) {
        if (!first_[static_cast<unsigned char>(text[at])]) continue;
        int longest = -1;
        size_t match_end = at;
        int node = 0;
        for (size_t i = at; i < end; i++) {
            node = child(node, static_cast<unsigned char>(text[i]));
            if (node < 0) break;
            if (nodes_[static_cast<size_t>(node)].token >= 0) {
                longest = nodes_[static_cast<size_t>(node)].token;
                match_end = i + 1;
            }
        }
        if (longest < 0) continue;
        const AddedToken& token = tokens_[static_cast<size_t>(longest)];
        if (token.single_word &&
            ((at > 0 && is_word_char(code_at(text, previous_char(text, at)))) ||
             (match_end < text.size() && is_word_char(code_at(text, match_end))))) {
            at = match_end - 1;
            continue;
        }
        Match match{at, match_end, token.id};
        while (token.left_strip && match.begin > begin) {
            size_t previous = previous_char(text, match.begin);
            if (previous < begin || !is_white_space(code_at(text, previous))) break;
            match.begin = previous;
        }
        while (token.right_strip && match.end < text.size() &&
               is_white_space(code_at(text, match.end))) {
            match.end += decode_utf8(text.substr(match.end)).n_bytes;
        }
        return match;
    }
    return std::nullopt;
}

}  // namespace ridge
