#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "cmd/command_line.h"

namespace ridge {

// Other programs that do the same work, to be timed in turns with Ridge. Each is a process that
// stays: it gets requests and gives answers, an object of JSON in a line each. What they are is
// written in bench/peers/README.md.

enum class PeerWork { kModels, kOps };  // of ridge bench, and of ridge bench ops

struct PeerOptions {
    std::vector<std::string> names;
    std::string program, python, folder;  // empty: as is usual
    double time_limit_s = 600;            // of an answer
};
// --peer and what goes with it.
void add_peer_options(CommandLine& line, PeerOptions& options, PeerWork work);

// What it may use: the same as Ridge.
struct PeerPlace {
    int n_threads = 1;
    bool pin = false;  // to the first so many physical cores
};

class Peer {
  public:
    // Starts it. Error in one line, with what to install, where it is not there. Processes inherit
    // the CPUs of the calling thread, which must not be pinned. `idle` is called while it is waited
    // for, and may throw.
    Peer(std::string name, const PeerOptions& options, PeerWork work, const PeerPlace& place,
         std::function<void()> idle);
    ~Peer();
    Peer(Peer&&) noexcept;

    const std::string& name() const { return name_; }
    // What it says of itself: "name", "version" and others.
    const nlohmann::ordered_json& about() const { return *about_; }

    // Error where it refuses, fails, or does not answer in time with an object.
    nlohmann::ordered_json ask(const nlohmann::ordered_json& request);
    // The time that it answers with, in ns. A short rest comes before and after, in which threads
    // that look for work, its own or Ridge's, go to sleep.
    double ask_ns(const nlohmann::ordered_json& request, nlohmann::ordered_json* answer = nullptr);

  private:
    struct State;
    std::string name_;
    std::unique_ptr<nlohmann::ordered_json> about_;
    std::unique_ptr<State> state_;
};

// Starts all that are asked for.
std::vector<Peer> start_peers(const PeerOptions& options, PeerWork work, const PeerPlace& place,
                              const std::function<void()>& idle);
// Error where one cannot be run, before anything is timed.
void check_peers(const PeerOptions& options, PeerWork work);
// "PyTorch 2.15.0".
std::string peer_title(const nlohmann::ordered_json& about);

}  // namespace ridge
