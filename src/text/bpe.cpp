#include "text/bpe.h"

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "base/system.h"

namespace ridge {

MergeTable::MergeTable() : key_(random_seed() | 1) {}

void MergeTable::reserve(size_t n_merges) {
    CHECK(n_merges_ == 0);
    slots_.assign(std::bit_ceil(n_merges + n_merges / 2 + 1), Merge{-1, -1, -1, 0});
}

size_t MergeTable::slot_of(Token left, Token right) const {
    uint64_t pair = uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
    uint64_t h = (pair ^ key_) * 0x9e3779b97f4a7c15u;
    h = (h ^ (h >> 32)) * key_;
    return (h ^ (h >> 29)) & (slots_.size() - 1);
}

void MergeTable::add(const Merge& merge) {
    CHECK(merge.left >= 0 && merge.right >= 0 && n_merges_ + 1 < slots_.size());
    size_t slot = slot_of(merge.left, merge.right);
    for (; slots_[slot].left >= 0; slot = (slot + 1) & (slots_.size() - 1)) {
        if (slots_[slot].left == merge.left && slots_[slot].right == merge.right) return;
    }
    slots_[slot] = merge;
    n_merges_++;
}

const Merge* MergeTable::find(Token left, Token right) const {
    if (n_merges_ == 0 || left < 0 || right < 0) return nullptr;
    size_t slot = slot_of(left, right);
    for (; slots_[slot].left >= 0; slot = (slot + 1) & (slots_.size() - 1)) {
        if (slots_[slot].left == left && slots_[slot].right == right) return &slots_[slot];
    }
    return nullptr;
}

void Merger::consider(const std::vector<Symbol>& symbols, int32_t left, int32_t right) {
    const Merge* merge =
        merges_.find(symbols[static_cast<size_t>(left)].id, symbols[static_cast<size_t>(right)].id);
    if (merge != nullptr) {
        heap_.push_back({merge->rank, left, merge->left, merge->right, merge->merged});
    }
}

void Merger::merge(std::vector<Symbol>& symbols) {
    CHECK(symbols.size() < size_t{1} << 31);
    int32_t n = static_cast<int32_t>(symbols.size());
    auto later = [](const Candidate& a, const Candidate& b) {
        return a.rank != b.rank ? a.rank > b.rank : a.at > b.at;
    };
    links_.resize(symbols.size());
    heap_.clear();
    for (int32_t i = 0; i < n; i++) {
        links_[static_cast<size_t>(i)] = {i - 1, i + 1 < n ? i + 1 : -1};
        if (i + 1 < n) consider(symbols, i, i + 1);
    }
    std::make_heap(heap_.begin(), heap_.end(), later);

    auto push_pair = [&](int32_t left, int32_t right) {
        size_t before = heap_.size();
        consider(symbols, left, right);
        if (heap_.size() > before) std::push_heap(heap_.begin(), heap_.end(), later);
    };
    constexpr Token kGone = -2;  // the symbol is part of the one before it
    while (!heap_.empty()) {
        std::pop_heap(heap_.begin(), heap_.end(), later);
        Candidate best = heap_.back();
        heap_.pop_back();
        Symbol& left = symbols[static_cast<size_t>(best.at)];
        Links& links = links_[static_cast<size_t>(best.at)];
        int32_t right = links.next;
        // A pair that has changed since it was found is no candidate any more.
        if (left.id != best.left || right < 0) continue;
        if (symbols[static_cast<size_t>(right)].id != best.right) continue;
        left.id = best.merged;
        symbols[static_cast<size_t>(right)].id = kGone;
        links.next = links_[static_cast<size_t>(right)].next;
        if (links.next >= 0) {
            links_[static_cast<size_t>(links.next)].previous = best.at;
            push_pair(best.at, links.next);
        }
        if (links.previous >= 0) push_pair(links.previous, best.at);
    }
    std::erase_if(symbols, [](const Symbol& symbol) { return symbol.id == kGone; });
}

}  // namespace ridge
