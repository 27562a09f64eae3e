#pragma once

#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "cases/subject.h"
#include "cpu/kernels.h"

namespace ridge {

// The kernels of one instruction set, or of a part of one: of AVX-512 without its BF16, which the
// machine may have beside it; and AMX's on tiles in plain C++.
struct IsaKernels {
    std::string_view name;
    cpu::Kernels kernels;
};
constexpr std::string_view kTilesName = "tiles in plain C++";

// All of the names, of which no machine has every one. "avx512 without bf16" is a part of
// "avx512", the tiles in plain C++ are of "amx".
std::vector<std::string_view> isa_kernels_names();
// Whether `name` is of the instruction set that --cpu-isa calls so.
bool is_of_isa(std::string_view name, std::string_view isa);

// Those that this machine can run and that are wanted. BF16 weights become compact with all of
// them.
std::deque<IsaKernels> kernels_of_all_isas(const std::function<bool(std::string_view)>& wanted);

// What cases are run on: every checkpoint of the CPU with every one of `kernels`, which live on.
// The reference itself is none where there is another.
std::vector<Subject> cpu_subjects(Op op, const std::deque<IsaKernels>& kernels, int n_threads);

}  // namespace ridge
