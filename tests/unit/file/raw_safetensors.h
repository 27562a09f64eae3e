#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace ridge {

struct RawWeight {
    std::string name, dtype;
    std::vector<int64_t> shape;
    std::string data;
};

inline std::string safetensors_bytes(const std::vector<RawWeight>& weights) {
    std::string header = "{", data;
    for (const RawWeight& weight : weights) {
        std::string shape;
        for (int64_t dim : weight.shape) shape += (shape.empty() ? "" : ",") + std::to_string(dim);
        if (header.size() > 1) header += ',';
        header += '"' + weight.name + R"(":{"dtype":")" + weight.dtype + R"(","shape":[)" + shape +
                  R"(],"data_offsets":[)" + std::to_string(data.size()) + ',' +
                  std::to_string(data.size() + weight.data.size()) + "]}";
        data += weight.data;
    }
    header += '}';
    uint64_t n = header.size();
    std::string out(sizeof n, '\0');
    memcpy(out.data(), &n, sizeof n);
    return out + header + data;
}

}  // namespace ridge
