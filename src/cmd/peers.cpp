#include "cmd/peers.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>
#include <utility>

#include "base/child_process.h"
#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/printable.h"
#include "base/system.h"
#include "cmd/output.h"
#include "cmd/values.h"

namespace ridge {
namespace {

constexpr size_t kMaxAnswerBytes = size_t{1} << 20;
constexpr auto kRest = std::chrono::milliseconds(30);

// A peer that is known by name. What is to be installed where it is missing it says itself.
struct KnownPeer {
    std::string_view name;
    std::string_view script;  // in bench/peers; empty: a program that lies beside this one
    bool models, ops;
};
constexpr KnownPeer kPeers[] = {
    {"llama.cpp", "llama_cpp_peer.py", true, false},
    {"torch", "torch_peer.py", true, true},
    {"torch.compile", "torch_peer.py", true, true},
    {"jax", "jax_peer.py", false, true},
    {"mlx", "mlx_peer.py", true, true},
    {"cublas", "torch_peer.py", false, true},
    {"cublaslt", "torch_peer.py", false, true},
    {"onednn", "", false, true},
};
constexpr std::string_view kOneDnnProgram = "onednn-peer";

const KnownPeer* find_peer(std::string_view name) {
    for (const KnownPeer& peer : kPeers) {
        if (peer.name == name) return &peer;
    }
    return nullptr;
}

bool can(const KnownPeer& peer, PeerWork work) {
    return work == PeerWork::kModels ? peer.models : peer.ops;
}

std::string known_names(PeerWork work) {
    std::string names;
    for (const KnownPeer& peer : kPeers) {
        if (!can(peer, work)) continue;
        if (!names.empty()) names += ", ";
        names += peer.name;
    }
    return names;
}

std::string folder_of_program() {
    const std::string path = program_path();
    const size_t slash = path.rfind('/');
    return slash == std::string::npos ? "." : path.substr(0, slash);
}

// Where the scripts are: in the sources, which are the current folder or hold the build.
std::string folder_of_scripts(const PeerOptions& options) {
    if (!options.folder.empty()) return options.folder;
    constexpr std::string_view kScripts = "bench/peers";
    std::string beside = folder_of_program() + "/../../" + std::string(kScripts);
    if (file_kind(std::string(kScripts)) != FileKind::kDirectory &&
        file_kind(beside) == FileKind::kDirectory) {
        return beside;
    }
    return std::string(kScripts);
}

// What starts a peer. Error(kUsage) for one that is not known and has no program.
std::vector<std::string> command_of(const std::string& name, const PeerOptions& options,
                                    PeerWork work) {
    const KnownPeer* peer = find_peer(name);
    const bool is_llama_bench = peer != nullptr && peer->name == "llama.cpp";
    if (!options.program.empty() && !is_llama_bench) return {options.program};
    if (peer == nullptr || !can(*peer, work)) {
        throw Error(ErrorKind::kUsage,
                    "--peer \"{}\": expected one of {}, or a name of your own with --peer-program",
                    printable(name, 80), known_names(work));
    }
    if (peer->script.empty()) {
        const std::string program = folder_of_program() + "/" + std::string(kOneDnnProgram);
        if (file_kind(program) == FileKind::kRegular) return {program};
        throw Error(
            "--peer {}: no {}; configure with -DRIDGE_ONEDNN=ON (needs libdnnl-dev) and build the "
            "target {}",
            name, printable(program), kOneDnnProgram);
    }
    const std::string script = folder_of_scripts(options) + "/" + std::string(peer->script);
    if (file_kind(script) != FileKind::kRegular) {
        throw Error("--peer {}: no {}; give the folder of the peers' scripts by --peer-folder",
                    name, printable(script));
    }
    std::vector<std::string> command = {options.python.empty() ? "python3" : options.python,
                                        script};
    if (!options.program.empty()) command.insert(command.end(), {"--program", options.program});
    return command;
}

// Why the system finds no program to start: a file that is there may name another that is not.
std::string not_found(const std::string& program) {
    constexpr uint64_t kMaxScriptBytes = uint64_t{1} << 20;
    if (program.find('/') == std::string::npos || file_kind(program) != FileKind::kRegular) {
        return "no program " + printable(program);
    }
    std::string script;
    try {
        script = read_file(program, kMaxScriptBytes);
    } catch (const Error&) {  // none that a person wrote
    }
    if (!script.starts_with("#!")) {
        return fmt::format("{} is there, but not what loads it", printable(program));
    }
    const size_t begin = std::min(script.find_first_not_of(" \t", 2), script.size());
    const std::string interpreter =
        script.substr(begin, script.find_first_of(" \t\r\n", begin) - begin);
    return fmt::format("{} is there, but not {}, which its first line names", printable(program),
                       printable(interpreter));
}

}  // namespace

struct Peer::State {
    std::unique_ptr<ChildTalk> talk;
    double time_limit_s;
    std::function<void()> idle;
};

void add_peer_options(CommandLine& line, PeerOptions& options, PeerWork work) {
    line.section("Others beside Ridge, in turns");
    line.value(
        "--peer", "LIST",
        fmt::format("time these too: {}, or one of your own (--peer-program)", known_names(work)),
        [&options](Where where, const std::string& text) {
            for (std::string& name : parse_words(where, text)) {
                const auto& names = options.names;
                if (std::find(names.begin(), names.end(), name) == names.end()) {
                    options.names.push_back(std::move(name));
                }
            }
        });
    line.name("--peer-program", "PROGRAM",
              work == PeerWork::kModels
                  ? "what runs in place of bench/peers' own; for llama.cpp a llama-bench"
                  : "what runs in place of bench/peers' own",
              options.program);
    line.name("--peer-python", "PYTHON", "a Python that has their packages (default: python3)",
              options.python);
    line.name("--peer-folder", "FOLDER", "where their scripts are (default: bench/peers)",
              options.folder);
    line.value("--peer-time-limit", "SECONDS",
               "of one answer, loading and compiling included (default: 600)",
               [&options](Where where, const std::string& text) {
                   options.time_limit_s = parse_number(where, text, 0.01, 1e6);
               });
    for (const char* name :
         {"--peer-program", "--peer-python", "--peer-folder", "--peer-time-limit"}) {
        line.needs(name, "--peer");
    }
}

Peer::Peer(std::string name, const PeerOptions& options, PeerWork work, const PeerPlace& place,
           std::function<void()> idle)
    : name_(std::move(name)), state_(std::make_unique<State>()) {
    const std::vector<std::string> command = command_of(name_, options, work);
    state_->talk = ChildTalk::start("--peer " + name_, command);
    state_->time_limit_s = options.time_limit_s;
    state_->idle = std::move(idle);
    if (state_->talk == nullptr) {
        throw Error("--peer {}: {}{}", name_, not_found(command[0]),
                    options.program.empty()
                        ? "; give a Python that has the peer's packages by --peer-python"
                        : "");
    }
    Json request;
    request["request"] = "hello";
    request["peer"] = name_;
    request["n_threads"] = place.n_threads;
    request["cpus"] = Json();
    if (place.pin) {
        std::vector<int> cpus = physical_cores();
        cpus.resize(std::min(cpus.size(), static_cast<size_t>(place.n_threads)));
        request["cpus"] = cpus;
    }
    about_ = std::make_unique<Json>(ask(request));
}

Peer::~Peer() = default;
Peer::Peer(Peer&&) noexcept = default;

Json Peer::ask(const Json& request) {
    const std::string text =
        state_->talk->ask(dump_json(request), state_->time_limit_s, kMaxAnswerBytes, state_->idle);
    Json answer;
    try {
        answer = parse_json(text, "its answer");
    } catch (const Error&) {  // what it wrote says more than where that is no JSON
    }
    if (!answer.is_object()) {
        throw Error("--peer {}: its answer is {}, expected an object of JSON in a line", name_,
                    text.empty() ? "an empty line" : printable(text, 80));
    }
    const auto error = answer.find("error");
    if (error == answer.end()) return answer;
    throw Error("--peer {}: {}", name_,
                printable(error->is_string() ? error->get<std::string>() : dump_json(*error), 400));
}

double Peer::ask_ns(const Json& request, Json* answer) {
    std::this_thread::sleep_for(kRest);
    Json said = ask(request);
    std::this_thread::sleep_for(kRest);
    const auto ns = said.find("ns");
    const double time = ns != said.end() && ns->is_number() ? ns->get<double>() : 0;
    if (!(time > 0) || !std::isfinite(time)) {
        throw Error("--peer {}: it took {} ns, expected a number above 0", name_,
                    ns == said.end() ? "no" : printable(dump_json(*ns), 80));
    }
    if (answer != nullptr) *answer = std::move(said);
    return time;
}

std::vector<Peer> start_peers(const PeerOptions& options, PeerWork work, const PeerPlace& place,
                              const std::function<void()>& idle) {
    std::vector<Peer> peers;
    for (const std::string& name : options.names) {
        peers.emplace_back(name, options, work, place, idle);
    }
    return peers;
}

void check_peers(const PeerOptions& options, PeerWork work) {
    if (!options.program.empty() && options.names.size() > 1) {
        throw Error(ErrorKind::kUsage, "--peer-program: expected one --peer, which it runs");
    }
    for (const std::string& name : options.names) command_of(name, options, work);
}

std::string peer_title(const Json& about) {
    std::string title;
    for (const char* key : {"name", "version"}) {
        const auto found = about.find(key);
        if (found == about.end() || !found->is_string()) continue;
        if (!title.empty()) title += " ";
        title += found->get<std::string>();
    }
    return title;
}

}  // namespace ridge
