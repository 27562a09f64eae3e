#include <fmt/format.h>

#include "base/cpu_features.h"
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

template <class Names>
std::string joined(const Names& names, std::string_view between) {
    std::string text;
    for (const auto& name : names)
        text += (text.empty() ? "" : std::string(between)) + std::string(name);
    return text;
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
        json["cpu_features"] = cpu_feature_names();
        json["cpu_isas"] = cpu_isa_names();
        json["cpu_isa"] = cpu_isa_names().back();
        json["devices"] = device_names();
        output.write_json(json);
    } else {
        const std::vector<std::string_view> features = cpu_feature_names();
        output.write(fmt::format(
            "ridge {}{}\nbuilt by {}, {}\ndevices: {}\ncpu: {}, {}\nfeatures: {}\n"
            "kernels: {} (of {})\n",
            build.version, build.commit.empty() ? "" : fmt::format(" ({})", build.commit),
            build.compiler, build.build_type, joined(device_names(), ", "), printable(cpu_name()),
            counted(default_n_threads(), "thread"),
            features.empty() ? "none beyond the baseline" : joined(features, " "),
            cpu_isa_names().back(), joined(cpu_isa_names(), ", ")));
    }
    output.flush();
    return 0;
}

}  // namespace ridge
