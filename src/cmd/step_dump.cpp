#include "cmd/step_dump.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "cmd/output.h"

namespace ridge {

// Source: NumPy Enhancement Proposal 1: a magic string, the version, the length of a header that
// makes all that comes before the data a multiple of 64, and the header, a Python dictionary.
std::string npy_of(const Rows& rows) {
    static_assert(std::endian::native == std::endian::little, "the header says <f4");
    CHECK(rows.dtype == DType::kF32);
    constexpr size_t kAlign = 64, kPreamble = 10;
    std::string header =
        fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}, {}), }}", rows.n_rows,
                    rows.n_cols);
    const size_t n = kPreamble + header.size() + 1;
    header.append((kAlign - n % kAlign) % kAlign, ' ');
    header += '\n';
    std::string file("\x93NUMPY\x01\x00", 8);
    file += static_cast<char>(header.size() & 0xff);
    file += static_cast<char>(header.size() >> 8);
    file += header;
    for (int64_t i = 0; i < rows.n_rows; i++) {
        file.append(reinterpret_cast<const char*>(rows.row<float>(i)),
                    static_cast<size_t>(rows.n_cols) * sizeof(float));
    }
    return file;
}

static void write_whole(const std::string& path, std::string_view bytes) {
    FileWriter file(path, true);
    file.append(bytes);
    file.commit();
}

StepDump::StepDump(std::string folder) : folder_(std::move(folder)), made_(make_folders(folder_)) {
    try {
        FileWriter(index_path(), true);  // what could not be written is not computed
    } catch (const Error&) {
        remove_made();
        throw;
    }
}

StepDump::~StepDump() {
    if (!finished_) remove_made();
}

void StepDump::remove_made() const {
    std::for_each(made_.rbegin(), made_.rend(), try_remove);
}

void StepDump::add(const NodeSpan& span, std::string_view stage, const Rows& out) {
    if (out.buffer == nullptr || out.n_rows == 0) return;
    std::string place = span.layer >= 0 ? fmt::format("layer{}.", span.layer) : std::string();
    if (stage != span.node) place += fmt::format("{}.", stage);
    const std::string name = fmt::format("{:04}.{}{}.npy", entries_.size(), place, span.node);
    if (entries_.empty()) try_remove(index_path());  // of an earlier dump, whose files are replaced
    write_whole(folder_ + "/" + name, npy_of(out));
    made_.push_back(folder_ + "/" + name);
    Json entry;
    entry["file"] = name;
    entry["node"] = std::string(span.node);
    entry["stage"] = std::string(stage);
    entry["layer"] = span.layer;
    entry["checkpoint"] = std::string(span.checkpoint);
    entry["shape"] = {out.n_rows, out.n_cols};
    entries_.push_back(std::move(entry));
}

void StepDump::finish(std::string step_name, std::span<const Token> tokens, int64_t first_position,
                      int n_sequences) {
    Json index;
    index["step"] = std::move(step_name);
    index["n_sequences"] = n_sequences;
    index["first_position"] = first_position;
    index["tokens"] = std::vector<Token>(tokens.begin(), tokens.end());
    index["nodes"] = entries_;
    write_whole(index_path(), dump_json(index) + "\n");
    finished_ = true;
}

size_t StepDump::n_files() const {
    return entries_.size();
}

}  // namespace ridge
