#pragma once

#include <cstdint>
#include <string_view>

#include "cuda/context.h"
#include "format/format.h"
#include "model/batch.h"
#include "model/ceiling.h"

namespace ridge::cuda {

// The maker's figures for a device, dense and at its highest clock: GB/s, and 1e9 operations a
// second. 0: not known for sure.
struct Peaks {
    double memory = 0, f32 = 0, tensor_16 = 0, tensor_int8 = 0;
};
// `name`: as the driver calls it.
Peaks peaks_of(std::string_view name);

// Rates of reading shared memory (of all multiprocessors together), of reading and copying in the
// second cache and in memory, and of each kind of arithmetic that kernels use, on the whole device;
// and of kernels that do nothing, one behind the other in a graph. Some seconds. `n_free_bytes`: of
// memory, of which at most a half is taken, and no more than 1 GiB.
Ceilings measure_ceilings(const Context& c, std::string_view device_name, int64_t n_free_bytes,
                          const CeilingEvents& events);

// See Backend::arithmetic_of. What lies in tiles is multiplied in f16, as are scores and values of
// attention.
std::string_view arithmetic_of(std::string_view node, std::string_view checkpoint,
                               const Format* format);

}  // namespace ridge::cuda
