#include "model/synth.h"

#include "base/error.h"
#include "base/files.h"
#include "base/printable.h"
#include "base/system.h"
#include "cmd/command_line.h"
#include "cmd/commands.h"
#include "cmd/output.h"
#include "cmd/values.h"

namespace ridge {
namespace {

std::string joined(const std::vector<std::string>& words) {
    std::string text;
    for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
    return text;
}

}  // namespace

int synth_command(const std::vector<std::string>& arguments) {
    CommandLine line("synth",
                     "Writes a model with the shapes of a published one and random weights.",
                     "ridge synth llama-3.2-1b --format Q4_K_M -o llama.gguf");
    std::string name, format, path;
    uint64_t seed = 1;
    bool force = false, list = false, quiet = false;
    line.positional("NAME", "model to imitate; --list shows those known", name);
    line.name("--format", "FORMAT", "format of the weights, or a mixture such as Q4_K_M", format);
    line.name("-o,--output", "FILE", "file to write", path);
    line.value("-s,--seed", "N", "seed of the weights (default: 1)",
               [&](Where where, const std::string& text) { seed = parse_seed(where, text); });
    line.flag("--force", "write over an existing file", force);
    line.flag("--list", "list names and formats", list);
    line.flag("-q,--quiet", "nothing on standard error but errors", quiet);
    if (!line.parse(arguments)) return 0;

    Output output;
    if (list) {
        output.write("names:   " + joined(synth_names()) + "\nformats: " + joined(synth_formats()) +
                     "\n");
        output.flush();
        return 0;
    }
    for (auto [value, what] : {std::pair(&name, "NAME"), std::pair(&format, "--format FORMAT"),
                               std::pair(&path, "-o FILE")}) {
        if (value->empty())
            throw Error(ErrorKind::kUsage, "synth: {} is missing; see ridge synth --help", what);
    }
    if (path == "-") {
        throw Error(ErrorKind::kUsage,
                    "synth: -o -: a model goes to a file, not to standard output; expected its "
                    "name (./- for a file that is called -)");
    }
    catch_interrupts();
    StatusLine status(!quiet);
    write_synth(name, format, seed, path, force, [&](double share) {
        stop_if_interrupted();
        status.show("writing " + path, share);
    });
    status.clear();
    if (!quiet) say(fmt::format("wrote {}", printable(path)));
    return 0;
}

}  // namespace ridge
