#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "model/step_trace.h"

namespace ridge {

// Steps on a line of time, in the Chrome trace format, which Perfetto and chrome://tracing open:
// one track of nested calls of nodes, and one for each thread with the loops that it worked for, or
// one of a device with its kernels.
// Source: "Trace Event Format", the description of Chrome's trace viewer; events of the phases X
// (complete) and M (metadata), in microseconds.
class Timeline {
  public:
    explicit Timeline(std::string process_name);
    ~Timeline();
    Timeline(const Timeline&) = delete;

    void add(std::string_view step_name, const StepTrace& trace);
    std::string text() const;  // the whole file

  private:
    void name_tracks(int n_threads, bool on_device);
    void add_launches(const StepTrace& trace);
    void add_event(std::string_view name, std::string_view category, int track, int64_t begin_ns,
                   int64_t end_ns, nlohmann::ordered_json arguments);

    std::vector<nlohmann::ordered_json> events_;
    std::string process_name_;
    int n_named_ = 0;       // threads whose tracks have names
    int64_t zero_ns_ = -1;  // when the first step began
};

}  // namespace ridge
