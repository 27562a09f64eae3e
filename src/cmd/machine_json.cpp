#include "cmd/machine_json.h"

#include <fmt/format.h>

#include <chrono>

#include "base/json.h"
#include "base/system.h"

namespace ridge {

nlohmann::ordered_json machine_json(const ModelInfo& model) {
    nlohmann::ordered_json machine = {
        {"cpu", cpu_name()}, {"n_cores", default_n_threads()}, {"os", os_name()}};
    if (model.gpu.empty()) return machine;
    machine["gpu"] = model.gpu;
    machine["driver"] = model.driver;
    machine["runtime"] = model.runtime;
    if (model.gpu_sm_mhz > 0) machine["gpu_highest_sm_mhz"] = model.gpu_sm_mhz;
    if (model.gpu_memory_mhz > 0) machine["gpu_highest_memory_mhz"] = model.gpu_memory_mhz;
    return machine;
}

int64_t now_s() {
    return std::chrono::duration_cast<std::chrono::seconds>(
               std::chrono::system_clock::now().time_since_epoch())
        .count();
}

std::string date_of(int64_t time_s) {
    const std::chrono::year_month_day day(
        std::chrono::sys_days(std::chrono::floor<std::chrono::days>(std::chrono::seconds(time_s))));
    return fmt::format("{:04}-{:02}-{:02}", int{day.year()}, unsigned{day.month()},
                       unsigned{day.day()});
}

std::string time_of(int64_t time_s) {
    const int64_t of_day = time_s % 86400;
    return fmt::format("{}T{:02}:{:02}:{:02}Z", date_of(time_s), of_day / 3600, of_day / 60 % 60,
                       of_day % 60);
}

}  // namespace ridge
