#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/token.h"

namespace ridge {

// The tokens of a model: the bytes each stands for, what it is for, and the way back from bytes.
//
// Look-ups hash with a random key, so that no file can choose tokens that all collide.
class Vocabulary {
  public:
    Vocabulary();
    void reserve(size_t n_tokens, size_t n_bytes);
    void add(std::string_view bytes, TokenType type);  // the next id
    void build_index();                                // once, after the last add()

    int size() const { return static_cast<int>(types_.size()); }
    bool contains(Token token) const { return token >= 0 && token < size(); }
    std::string_view bytes(Token token) const {  // token is in the vocabulary
        size_t begin = starts_[static_cast<size_t>(token)];
        return std::string_view(bytes_).substr(begin,
                                               starts_[static_cast<size_t>(token) + 1] - begin);
    }
    TokenType type(Token token) const { return types_[static_cast<size_t>(token)]; }

    // The token that plain text may become: of type kNormal. Of equal ones the lowest id.
    std::optional<Token> find_normal(std::string_view bytes) const;
    // Of any type; control and user-defined ones first.
    std::optional<Token> find_any(std::string_view bytes) const;

  private:
    enum IndexKind { kNormalOnly, kOthers };
    struct Index {
        std::vector<Token> slots;  // a power of two of them; -1: free
    };
    void fill(Index& index, IndexKind kind) const;
    std::optional<Token> find(const Index& index, std::string_view bytes) const;
    uint64_t hash(std::string_view bytes) const;

    uint64_t key_;
    std::string bytes_;
    std::vector<size_t> starts_{0};  // [size() + 1]
    std::vector<TokenType> types_;
    Index normal_, others_;
};

}  // namespace ridge
