#include "model/tables.h"

#include "base/error.h"
#include "base/printable.h"

namespace ridge {

Tables resolve_tables(std::span<const Checkpoint> list, std::string_view name, const Caps& caps) {
    std::string known;
    bool found = name.empty();
    for (const Checkpoint& checkpoint : list) {
        known += known.empty() ? "" : ", ";
        known += checkpoint.name;
        found = found || checkpoint.name == name;
    }
    if (!found) {
        throw Error(ErrorKind::kUsage, "--checkpoint \"{}\": expected one of {}",
                    printable(name, 80), known);
    }
    Tables tables;
    for (const Checkpoint& checkpoint : list) {
        checkpoint.apply(tables, caps);
        if (checkpoint.name == name) break;
    }
    return tables;
}

}  // namespace ridge
