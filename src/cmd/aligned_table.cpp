#include "cmd/aligned_table.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"

namespace ridge {

// Columns that a text of UTF-8 takes, where each character takes one: what fmt pads by.
static size_t width_of(const std::string& text) {
    return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
        return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
    }));
}

std::string aligned_table(const std::vector<std::vector<std::string>>& rows, size_t n_left) {
    CHECK(!rows.empty());
    std::vector<size_t> widths(rows.front().size(), 3);  // of a rule's cell, at the least
    for (const auto& row : rows) {
        CHECK(row.size() == widths.size());
        for (size_t i = 0; i < row.size(); i++) widths[i] = std::max(widths[i], width_of(row[i]));
    }
    auto line_of = [&](const std::vector<std::string>& row) {
        std::string line = "|";
        for (size_t i = 0; i < row.size(); i++) {
            line += i < n_left ? fmt::format(" {:<{}} |", row[i], widths[i])
                               : fmt::format(" {:>{}} |", row[i], widths[i]);
        }
        return line + "\n";
    };
    std::string text = line_of(rows.front()) + "|";
    for (size_t i = 0; i < widths.size(); i++) {
        text += i < n_left ? ":" + std::string(widths[i] + 1, '-') + "|"
                           : std::string(widths[i] + 1, '-') + ":|";
    }
    text += "\n";
    for (size_t i = 1; i < rows.size(); i++) text += line_of(rows[i]);
    return text;
}

}  // namespace ridge
