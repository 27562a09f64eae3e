#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "text/token.h"

namespace ridge {

struct Merge {
    Token left, right, merged;
    uint32_t rank;  // lower ranks merge first
};

// The merges of a vocabulary, by pair. Symbols may have ids beyond the vocabulary: whoever adds the
// merges says what they stand for.
class MergeTable {
  public:
    MergeTable();
    void reserve(size_t n_merges);
    void add(const Merge& merge);  // of two with the same pair the first one stays
    const Merge* find(Token left, Token right) const;
    size_t size() const { return n_merges_; }

  private:
    size_t slot_of(Token left, Token right) const;

    uint64_t key_;
    std::vector<Merge> slots_;  // a power of two of them; left -1: free
    size_t n_merges_ = 0;
};

// One symbol of a text that is being merged: an id and the bytes of the text it covers.
struct Symbol {
    Token id;        // -1: unknown, merges with nothing
    uint32_t begin;  // offset in the text; it ends where the next symbol begins
};

// Byte-pair encoding: while two neighbours have a merge, the pair of lowest rank (the leftmost of
// equals) becomes one symbol. Takes O(n log n) for n symbols, without recursion. The memory is kept
// from one call to the next.
class Merger {
  public:
    explicit Merger(const MergeTable& merges) : merges_(merges) {}
    void merge(std::vector<Symbol>& symbols);  // at most 2^31 - 1

  private:
    struct Links {
        int32_t previous, next;
    };
    struct Candidate {
        uint32_t rank;
        int32_t at;  // index of the left symbol
        Token left, right, merged;
    };
    void consider(const std::vector<Symbol>& symbols, int32_t left, int32_t right);

    const MergeTable& merges_;
    std::vector<Links> links_;
    std::vector<Candidate> heap_;
};

}  // namespace ridge
