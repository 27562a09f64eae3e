#include "engine/devices.h"

#include <charconv>

#include "base/error.h"
#include "base/printable.h"
#include "base/system.h"
#include "base/thread_pool.h"
#include "cpu/backend.h"
#include "cpu/isa.h"
#ifdef RIDGE_HAS_CUDA
#include "cuda/backend.h"
#endif

namespace ridge {
namespace {

ThreadPoolOptions threads_of(const OpenOptions& options) {
    return {options.n_threads > 0 ? options.n_threads : default_n_threads(), options.pin};
}

DeviceInfo cpu_info() {
    DeviceInfo info;
    info.device = "cpu", info.name = cpu_name();
    info.free_bytes = available_memory_bytes();
    return info;
}

// Why there are no GPUs; `fails`: it is not that there are none, or no driver.
struct Missing {
    std::string why;
    bool fails = false;
};

#ifdef RIDGE_HAS_CUDA
std::vector<DeviceInfo> find_cuda(Missing& missing) {
    std::vector<DeviceInfo> found;
    CudaDevices cuda = find_cuda_devices();
    missing = {cuda.missing, cuda.driver_fails};
    for (const CudaDevice& device : cuda.devices) {
        DeviceInfo info;
        info.device = "cuda:" + std::to_string(device.index), info.name = device.name;
        info.memory_bytes = device.memory_bytes, info.free_bytes = device.free_bytes;
        info.unusable = device.unusable;
        found.push_back(std::move(info));
    }
    return found;
}
std::unique_ptr<Backend> open_cuda(const OpenOptions& options, int index) {
    return make_cuda_backend({index, options.memory_bytes, threads_of(options)});
}
#else
constexpr std::string_view kNotBuilt = "this build of Ridge has no CUDA backend";
std::vector<DeviceInfo> find_cuda(Missing& missing) {
    missing.why = kNotBuilt;
    return {};
}
std::unique_ptr<Backend> open_cuda(const OpenOptions& options, int) {
    throw Error(ErrorKind::kUsage, "--device {}: {}", printable(options.device), kNotBuilt);
}
#endif

std::unique_ptr<Backend> open_cpu(const OpenOptions& options) {
    return make_cpu_backend({threads_of(options), options.cpu_isa, options.memory_bytes});
}

// The first GPU that can run Ridge, else the CPU.
OpenedDevice choose_device(const OpenOptions& options) {
    Missing missing;
    std::string unusable;
    for (const DeviceInfo& device : find_cuda(missing)) {
        if (device.unusable.empty()) {
            return {open_cuda(options, *cuda_index(device.device)),
                    fmt::format("--device auto: {}, {}", device.device, device.name)};
        }
        if (!unusable.empty()) continue;
        unusable = fmt::format("--device auto: cpu, since {}, {}, cannot be used: {}",
                               device.device, device.name, device.unusable);
    }
    if (missing.fails) {
        unusable =
            fmt::format("--device auto: cpu, since the NVIDIA driver fails: {}", missing.why);
    }
    return {open_cpu(options), unusable};
}

}  // namespace

std::optional<int> cuda_index(std::string_view device) {
    constexpr std::string_view kName = "cuda";
    if (!device.starts_with(kName)) return std::nullopt;
    device.remove_prefix(kName.size());
    if (device.empty()) return 0;
    if (device.size() < 2 || device[0] != ':') return std::nullopt;
    int index = 0;
    const auto [end, error] =
        std::from_chars(device.data() + 1, device.data() + device.size(), index);
    if (error != std::errc() || end != device.data() + device.size() || index < 0) {
        return std::nullopt;
    }
    return index;
}

std::vector<DeviceInfo> find_devices() {
    std::vector<DeviceInfo> devices{cpu_info()};
    Missing missing;
    for (DeviceInfo& device : find_cuda(missing)) devices.push_back(std::move(device));
    if (!missing.why.empty()) {
        DeviceInfo none;
        none.device = "cuda", none.unusable = missing.why;
        devices.push_back(none);
    }
    return devices;
}

std::string expected_devices() {
    return "one of auto, cpu, cuda:N (ridge devices lists them)";
}

std::vector<std::string> device_names() {
    std::vector<std::string> names;
    for (const DeviceInfo& device : find_devices()) {
        if (device.unusable.empty()) names.push_back(device.device);
    }
    return names;
}

OpenedDevice open_device(const OpenOptions& options) {
    choose_isa(options.cpu_isa);  // what is wrong with it is told where a GPU runs, too
    if (options.device == "auto") return choose_device(options);
    if (options.device == "cpu") return {open_cpu(options), {}};
    if (const std::optional<int> index = cuda_index(options.device)) {
        return {open_cuda(options, *index), {}};
    }
    throw Error(ErrorKind::kUsage, "--device \"{}\": expected {}", printable(options.device, 80),
                expected_devices());
}

}  // namespace ridge
