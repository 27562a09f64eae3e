#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/step_trace.h"
#include "text/token.h"

namespace ridge {

// What every call of a step wrote, each as a NumPy file (format version 1.0, float32, [rows,
// columns]) in a folder of its own, and index.json, which lists them in their order beside the
// tokens that the step was given. Files of other names in the folder stay.
class StepDump {
  public:
    // Makes the folder where there is none. Error where that fails, or no file can be written
    // there.
    explicit StepDump(std::string folder);
    // Without finish() what it wrote and made is removed.
    ~StepDump();
    StepDump(const StepDump&) = delete;

    // A call that has ended, and its result in memory of the host. Calls without a result are
    // passed over.
    void add(const NodeSpan& span, std::string_view stage, const Rows& out);
    // tokens [first_position + rows]: of the first of the step's sequences, up to its last row.
    // Rows of files are those of the first sequence, then those of the others.
    void finish(std::string step_name, std::span<const Token> tokens, int64_t first_position,
                int n_sequences);

    size_t n_files() const;

  private:
    void remove_made() const;
    std::string index_path() const { return folder_ + "/index.json"; }

    std::string folder_;
    std::vector<std::string> made_;  // folders, and then files
    std::vector<nlohmann::ordered_json> entries_;
    bool finished_ = false;
};

// The whole file of a matrix of float32.
std::string npy_of(const Rows& rows);

}  // namespace ridge
