#include <fmt/format.h>

#include "base/json.h"
#include "base/printable.h"
#include "base/system.h"
#include "cmd/build_info.h"
#include "cmd/command_line.h"
#include "cmd/commands.h"
#include "cmd/options.h"
#include "cmd/output.h"
#include "engine/engine.h"

namespace ridge {
namespace {

// Of those that kernels may be written for, what this CPU has.
std::vector<std::string> instruction_sets() {
    std::vector<std::string> found;
#if defined(__x86_64__)
    __builtin_cpu_init();
#define RIDGE_ADD_IF_FOUND(name) \
    if (__builtin_cpu_supports(name)) found.emplace_back(name)
    RIDGE_ADD_IF_FOUND("sse4.2");
    RIDGE_ADD_IF_FOUND("avx");
    RIDGE_ADD_IF_FOUND("avx2");
    RIDGE_ADD_IF_FOUND("fma");
    RIDGE_ADD_IF_FOUND("avx512f");
    RIDGE_ADD_IF_FOUND("avx512bw");
    RIDGE_ADD_IF_FOUND("avx512vl");
    RIDGE_ADD_IF_FOUND("avx512vnni");
    RIDGE_ADD_IF_FOUND("avx512bf16");
#undef RIDGE_ADD_IF_FOUND
#elif defined(__aarch64__)
    found.emplace_back("neon");
#endif
    return found;
}

}  // namespace

int version_command(const std::vector<std::string>& arguments) {
    CommandLine line("version", "Shows the version, the build, and what the machine has.",
                     "ridge version --json");
    bool as_json = false, quiet = false;
    line.flag("--json", "one JSON object", as_json);
    add_quiet_option(line, quiet);
    if (!line.parse(arguments)) return 0;

    const BuildInfo& build = build_info();
    Output output;
    if (as_json) {
        Json json;
        json["version"] = std::string(build.version);
        json["commit"] = std::string(build.commit);
        json["compiler"] = std::string(build.compiler);
        json["build_type"] = std::string(build.build_type);
        json["cpu"] = cpu_name();
        json["n_threads"] = default_n_threads();
        json["instruction_sets"] = instruction_sets();
        json["devices"] = device_names();
        output.write_json(json);
    } else {
        std::string sets, devices;
        for (const std::string& name : device_names())
            devices += (devices.empty() ? "" : ", ") + name;
        for (const std::string& set : instruction_sets()) sets += " " + set;
        output.write(fmt::format(
            "ridge {}{}\nbuilt by {}, {}\ndevices: {}\ncpu: {}, {} threads,{}\n", build.version,
            build.commit.empty() ? "" : fmt::format(" ({})", build.commit), build.compiler,
            build.build_type, devices, printable(cpu_name()), default_n_threads(),
            sets.empty() ? " no instruction sets beyond the baseline" : sets));
    }
    output.flush();
    return 0;
}

}  // namespace ridge
