#include "cmd/step_json.h"

#include <string>

#include "base/json.h"

namespace ridge {

nlohmann::ordered_json matrices_json(std::span<const NodeGroup::Matrix> matrices) {
    Json list = Json::array();
    for (const NodeGroup::Matrix& matrix : matrices) {
        Json one;
        one["format"] = std::string(matrix.format);
        one["shape"] = {matrix.n_rows, matrix.n_cols};
        list.push_back(std::move(one));
    }
    return list;
}

nlohmann::ordered_json bytes_json(const Work& work) {
    Json json;
    json["weights"] = work.weight_bytes;
    json["kv"] = work.kv_bytes;
    json["activations"] = work.activation_bytes;
    return json;
}

}  // namespace ridge
