#include "cmd/model_json.h"

#include "base/json.h"
#include "cmd/fallbacks.h"
#include "cmd/tuning_info.h"

namespace ridge {

nlohmann::ordered_json model_json(const ModelInfo& info) {
    Json json;
    json["path"] = info.path;
    json["name"] = info.name;
    json["architecture"] = info.architecture;
    json["format"] = info.format;
    json["n_parameters"] = info.n_parameters;
    json["weight_bytes"] = info.weight_bytes;
    json["n_ctx"] = info.n_ctx;
    json["device"] = info.device;
    json["streamed_layers"] = info.stream.n_layers;
    json["checkpoint"] = info.checkpoint;
    json["isa"] = info.isa;
    json["fallbacks"] = fallbacks_json(info.fallbacks);
    json["n_threads"] = info.n_threads;
    json["tuning"] = tuning_json(info.tuning);
    return json;
}

}  // namespace ridge
