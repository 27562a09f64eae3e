#include "text/added_tokens.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "base/check.h"
#include "base/utf8.h"
#include "text/unicode.h"

namespace ridge {
namespace {

constexpr size_t kBlockBytes = 8 * kMaxAddedTokenBytes;  // of text, read at once

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

AddedTokenMatcher::AddedTokenMatcher(const std::vector<Entry>& entries) {
    std::string all;
    for (const Entry& entry : entries) {
        CHECK(!entry.text.empty() && entry.text.size() <= kMaxAddedTokenBytes);
        CHECK(entry.text.size() <= kMaxAddedTokensBytes - all.size());
        all.append(entry.text.rbegin(), entry.text.rend());
        tokens_.push_back({entry.token, static_cast<uint32_t>(entry.text.size())});
        max_bytes_ = std::max(max_bytes_, entry.text.size());
    }
    std::vector<std::string_view> backwards;
    for (size_t at = 0; const Found& found : tokens_) {
        backwards.push_back(std::string_view(all).substr(at, found.n_bytes));
        at += found.n_bytes;
    }
    std::vector<uint32_t> numbers(tokens_.size());
    std::iota(numbers.begin(), numbers.end(), 0);
    std::sort(numbers.begin(), numbers.end(), [&](uint32_t a, uint32_t b) {
        int order = backwards[a].compare(backwards[b]);
        return order != 0 ? order < 0 : a < b;
    });
    auto same = [&](uint32_t a, uint32_t b) { return backwards[a] == backwards[b]; };
    numbers.erase(std::unique(numbers.begin(), numbers.end(), same), numbers.end());
    build(backwards, numbers);
}

// `numbers` are those of the tokens, in the order of `backwards`: what goes through one node lies
// together, and the token that ends in it comes first.
void AddedTokenMatcher::build(const std::vector<std::string_view>& backwards,
                              const std::vector<uint32_t>& numbers) {
    struct Range {
        uint32_t begin, end;  // in `numbers`
    };
    add_node(0, 0);
    std::vector<Range> level = {{0, static_cast<uint32_t>(numbers.size())}}, next_level;
    uint32_t node = 0;
    for (size_t depth = 0; !level.empty(); depth++) {
        next_level.clear();
        for (Range range : level) {
            first_child_.push_back(static_cast<uint32_t>(bytes_.size()));
            longest_.push_back(node == 0 ? kNone : longest_[fallbacks_[node]]);
            if (range.begin < range.end && backwards[numbers[range.begin]].size() == depth) {
                longest_[node] = numbers[range.begin++];
            }
            while (range.begin < range.end) {
                char byte = backwards[numbers[range.begin]][depth];
                uint32_t end = range.begin + 1;
                while (end < range.end && backwards[numbers[end]][depth] == byte) end++;
                next_level.push_back({range.begin, end});
                auto code = static_cast<uint8_t>(byte);
                if (node == 0) of_root_[code] = static_cast<uint32_t>(bytes_.size());
                add_node(code, node == 0 ? 0 : next(fallbacks_[node], code));
                range.begin = end;
            }
            node++;
        }
        level.swap(next_level);
    }
    first_child_.push_back(static_cast<uint32_t>(bytes_.size()));
    bytes_.shrink_to_fit();
    for (auto* numbers_of_nodes : {&first_child_, &fallbacks_, &longest_}) {
        numbers_of_nodes->shrink_to_fit();
    }
}

void AddedTokenMatcher::add_node(uint8_t byte, uint32_t fallback) {
    bytes_.push_back(byte);
    fallbacks_.push_back(fallback);
}

uint32_t AddedTokenMatcher::child(uint32_t node, uint8_t byte) const {
    auto begin = bytes_.begin() + first_child_[node], end = bytes_.begin() + first_child_[node + 1];
    auto at = std::lower_bound(begin, end, byte);
    return at == end || *at != byte ? 0 : static_cast<uint32_t>(at - bytes_.begin());
}

// Where the automaton goes from a node by a byte. A fallback is nearer to the root, so that over a
// text, or along a token, there are no more of them than bytes.
uint32_t AddedTokenMatcher::next(uint32_t node, uint8_t byte) const {
    while (node != 0) {
        if (uint32_t found = child(node, byte)) return found;
        node = fallbacks_[node];
    }
    return of_root_[byte];
}

AddedTokenMatcher::Search AddedTokenMatcher::search(std::string_view text, size_t begin,
                                                    size_t end) const {
    return Search(*this, text, begin, end);
}

// Notes where tokens begin in the next kBlockBytes. Tokens that begin there may end behind them:
// the automaton is started where the last of these can end.
void AddedTokenMatcher::Search::read_block() {
    const AddedTokenMatcher& matcher = matcher_;
    size_t begin = std::max(at_, n_read_);
    n_read_ = begin + std::min(end_ - begin, kBlockBytes);
    uint32_t node = 0;
    for (size_t at = n_read_ + std::min(end_ - n_read_, matcher.max_bytes_); at-- > begin;) {
        node = matcher.next(node, static_cast<uint8_t>(text_[at]));
        if (node == 0 || at >= n_read_) continue;
        uint32_t token = matcher.longest_[node];
        if (token != kNone) begins_.push_back({at, token});
    }
}

bool AddedTokenMatcher::Search::stands_alone(size_t begin, size_t end) const {
    return (begin == 0 || !is_word_char(code_at(text_, previous_char(text_, begin)))) &&
           (end >= text_.size() || !is_word_char(code_at(text_, end)));
}

std::optional<AddedTokenMatcher::Match> AddedTokenMatcher::Search::next() {
    while (true) {
        while (!begins_.empty() && begins_.back().at < at_) begins_.pop_back();
        if (begins_.empty()) {
            if (std::max(at_, n_read_) >= end_) return std::nullopt;
            read_block();
            continue;
        }
        const Found& found = matcher_.tokens_[begins_.back().token];
        const AddedToken& token = found.token;
        Match match{begins_.back().at, begins_.back().at + found.n_bytes, token.id};
        at_ = match.end;
        if (token.single_word && !stands_alone(match.begin, match.end)) continue;
        while (token.left_strip && match.begin > left_) {
            size_t previous = previous_char(text_, match.begin);
            if (previous < left_ || !is_white_space(code_at(text_, previous))) break;
            match.begin = previous;
        }
        while (token.right_strip && match.end < text_.size() &&
               is_white_space(code_at(text_, match.end))) {
            match.end += decode_utf8(text_.substr(match.end)).n_bytes;
        }
        at_ = left_ = match.end;
        return match;
    }
}

}  // namespace ridge
