#include <fmt/format.h>

#include "base/json.h"
#include "base/printable.h"
#include "cmd/command_line.h"
#include "cmd/commands.h"
#include "cmd/options.h"
#include "cmd/output.h"
#include "engine/engine.h"

namespace ridge {
namespace {

Json device_json(const DeviceInfo& device) {
    Json json;
    json["device"] = device.device;
    json["name"] = device.name;
    json["memory_bytes"] = device.memory_bytes;
    json["free_bytes"] = device.free_bytes;
    json["usable"] = device.unusable.empty();
    json["unusable"] = device.unusable;
    return json;
}

// "cuda:0   NVIDIA H200, 150.8 GB, 150.1 GB free"
std::string device_text(const DeviceInfo& device) {
    std::string text = fmt::format("{:<8}", device.device);
    if (!device.name.empty()) text += " " + printable(device.name);
    if (device.memory_bytes > 0) {
        text += fmt::format(", {:.1f} GB", 1e-9 * static_cast<double>(device.memory_bytes));
    }
    if (device.free_bytes > 0) {
        text += fmt::format(", {:.1f} GB free", 1e-9 * static_cast<double>(device.free_bytes));
    }
    if (!device.unusable.empty()) {
        text += (device.name.empty() ? " " : ": ") + printable(device.unusable);
    }
    return text + "\n";
}

}  // namespace

int devices_command(const std::vector<std::string>& arguments) {
    CommandLine line("devices",
                     "Lists the devices that --device can name, and what hinders others.",
                     "ridge devices --json");
    bool as_json = false, quiet = false;
    line.flag("--json", "one JSON array, an object for each device", as_json);
    add_quiet_option(line, quiet);
    if (!line.parse(arguments)) return 0;

    Output output;
    Json all = Json::array();
    for (const DeviceInfo& device : find_devices()) {
        if (as_json) {
            all.push_back(device_json(device));
        } else {
            output.write(device_text(device));
        }
    }
    if (as_json) output.write_json(all);
    output.flush();
    return 0;
}

}  // namespace ridge
