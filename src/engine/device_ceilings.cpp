#include "engine/device_ceilings.h"

#include <utility>

#include "engine/devices.h"

namespace ridge {

DeviceCeilings measure_device_ceilings(const OpenOptions& options, const CeilingEvents& events) {
    OpenedDevice opened = open_device(options);
    Backend& backend = *opened.backend;
    DeviceCeilings result;
    result.device.device = backend.name();
    result.device.device_reason = std::move(opened.reason);
    result.device.n_threads = backend.caps().n_threads;
    result.device.isa = backend.caps().isa;
    DeviceFacts facts = backend.facts();
    result.device.gpu = std::move(facts.name), result.device.driver = std::move(facts.driver);
    result.device.runtime = std::move(facts.runtime);
    result.device.gpu_sm_mhz = facts.sm_mhz, result.device.gpu_memory_mhz = facts.memory_mhz;
    result.ceilings = backend.measure_ceilings(events);
    return result;
}

}  // namespace ridge
