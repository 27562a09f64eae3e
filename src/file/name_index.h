#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace ridge {

// Finds positions by name. Sorted, not hashed: names that a file chose cannot make it slow.
class NameIndex {
  public:
    NameIndex() = default;
    // Views of the names at positions 0, 1, ...; they outlive the index.
    explicit NameIndex(size_t n) { sorted_.reserve(n); }
    void add(std::string_view name) {
        sorted_.emplace_back(name, static_cast<uint32_t>(sorted_.size()));
    }
    // After the last add(), before the first find(). Returns the position of a name that an earlier
    // position has, too.
    std::optional<size_t> sort() {
        std::sort(sorted_.begin(), sorted_.end());
        auto twice = std::adjacent_find(sorted_.begin(), sorted_.end(),
                                        [](auto& a, auto& b) { return a.first == b.first; });
        if (twice == sorted_.end()) return std::nullopt;
        return std::next(twice)->second;
    }
    std::optional<size_t> find(std::string_view name) const {
        auto found = std::lower_bound(sorted_.begin(), sorted_.end(), name,
                                      [](auto& a, std::string_view b) { return a.first < b; });
        if (found == sorted_.end() || found->first != name) return std::nullopt;
        return found->second;
    }

  private:
    std::vector<std::pair<std::string_view, uint32_t>> sorted_;
};

}  // namespace ridge
