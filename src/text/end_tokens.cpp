#include "text/end_tokens.h"

#include "base/error.h"
#include "base/printable.h"

namespace ridge {

void add_eos_token_ids(const Json* config, const std::string& where, int64_t n_vocab,
                       std::vector<Token>& ids) {
    if (config == nullptr || !config->is_object()) return;
    auto found = config->find("eos_token_id");
    if (found == config->end() || found->is_null()) return;
    auto add = [&](const Json& id) {
        if (!id.is_number_unsigned() || id.get<uint64_t>() >= static_cast<uint64_t>(n_vocab)) {
            std::string text = id.dump(-1, ' ', true, Json::error_handler_t::replace);
            throw Error("{}: eos_token_id is {}, expected a token from 0 to {}", where,
                        printable(text, 60), n_vocab - 1);
        }
        ids.push_back(id.get<Token>());
    };
    if (!found->is_array()) return add(*found);
    for (const Json& id : *found) add(id);
}

}  // namespace ridge
