#include "text/vocabulary.h"

#include <bit>
#include <cstring>

#include "base/system.h"

namespace ridge {
namespace {

__extension__ typedef unsigned __int128 uint128;

uint64_t fold(uint64_t a, uint64_t b) {
    uint128 product = static_cast<uint128>(a) * b;
    return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

}  // namespace

Vocabulary::Vocabulary() : key_(random_seed() | 1) {}

void Vocabulary::reserve(size_t n_tokens, size_t n_bytes) {
    bytes_.reserve(n_bytes);
    starts_.reserve(n_tokens + 1);
    types_.reserve(n_tokens);
}

void Vocabulary::add(std::string_view bytes, TokenType type) {
    bytes_ += bytes;
    starts_.push_back(bytes_.size());
    types_.push_back(type);
}

void Vocabulary::build_index() {
    fill(normal_, kNormalOnly);
    fill(others_, kOthers);
}

void Vocabulary::fill(Index& index, IndexKind kind) const {
    size_t n = 0;
    for (TokenType type : types_) n += (type == TokenType::kNormal) == (kind == kNormalOnly);
    index.slots.assign(std::bit_ceil(2 * n + 1), -1);
    size_t mask = index.slots.size() - 1;
    for (Token token = 0; token < size(); token++) {
        if ((type(token) == TokenType::kNormal) != (kind == kNormalOnly)) continue;
        size_t slot = hash(bytes(token)) & mask;
        while (index.slots[slot] >= 0 && bytes(index.slots[slot]) != bytes(token)) {
            slot = (slot + 1) & mask;
        }
        if (index.slots[slot] < 0) index.slots[slot] = token;
    }
}

std::optional<Token> Vocabulary::find(const Index& index, std::string_view text) const {
    if (index.slots.empty()) return std::nullopt;
    size_t mask = index.slots.size() - 1;
    for (size_t slot = hash(text) & mask; index.slots[slot] >= 0; slot = (slot + 1) & mask) {
        if (bytes(index.slots[slot]) == text) return index.slots[slot];
    }
    return std::nullopt;
}

std::optional<Token> Vocabulary::find_normal(std::string_view bytes) const {
    return find(normal_, bytes);
}

std::optional<Token> Vocabulary::find_any(std::string_view bytes) const {
    std::optional<Token> token = find(others_, bytes);
    return token ? token : find(normal_, bytes);
}

uint64_t Vocabulary::hash(std::string_view bytes) const {
    uint64_t h = key_ ^ bytes.size();
    size_t at = 0;
    for (; at + 8 <= bytes.size(); at += 8) {
        uint64_t word;
        memcpy(&word, bytes.data() + at, 8);
        h = fold(h ^ word, key_ + at);
    }
    uint64_t rest = 0;
    if (at < bytes.size()) memcpy(&rest, bytes.data() + at, bytes.size() - at);
    return fold(h ^ rest, key_ ^ 0x9e3779b97f4a7c15u);
}

}  // namespace ridge
