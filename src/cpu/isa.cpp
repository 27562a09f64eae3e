#include "cpu/isa.h"

#include <algorithm>

#include "base/check.h"
#include "base/cpu_features.h"
#include "base/error.h"
#include "base/printable.h"

namespace ridge {
namespace {

struct IsaRow {
    Isa isa;
    std::string_view name;
};
constexpr IsaRow kIsas[] = {{Isa::kScalar, "scalar"},
                            {Isa::kAvx2, "avx2"},
                            {Isa::kAvx512, "avx512"},
                            {Isa::kAmx, "amx"},
                            {Isa::kNeon, "neon"}};

std::string names_of(const std::vector<Isa>& isas) {
    std::string names;
    for (Isa isa : isas) names += (names.empty() ? "" : ", ") + std::string(isa_name(isa));
    return names;
}

}  // namespace

std::string_view isa_name(Isa isa) {
    for (const IsaRow& row : kIsas) {
        if (row.isa == isa) return row.name;
    }
    CHECK(!"an instruction set without a name");
    return {};
}

std::vector<Isa> available_isas() {
    std::vector<Isa> isas = {Isa::kScalar};
    const CpuFeatures& cpu = cpu_features();
    const bool avx512 =
        cpu.avx512f && cpu.avx512bw && cpu.avx512vl && cpu.avx512dq && cpu.avx512_vnni;
    if (cpu.avx2 && cpu.fma && cpu.f16c) isas.push_back(Isa::kAvx2);
    if (isas.size() == 2 && avx512) isas.push_back(Isa::kAvx512);
    if (isas.size() == 3 && cpu.avx512_bf16 && cpu.amx_bf16) {
        isas.push_back(Isa::kAmx);
    }
    if (cpu.neon_dotprod) isas.push_back(Isa::kNeon);
    return isas;
}

std::string known_isas() {
    std::vector<Isa> isas;
    for (const IsaRow& row : kIsas) isas.push_back(row.isa);
    return names_of(isas);
}

Isa choose_isa(std::string_view cap) {
    const std::vector<Isa> isas = available_isas();
    if (cap.empty()) return isas.back();
    for (const IsaRow& row : kIsas) {
        if (row.name != cap) continue;
        if (std::find(isas.begin(), isas.end(), row.isa) != isas.end()) return row.isa;
        throw Error(ErrorKind::kUsage, "--cpu-isa {}: this machine does not have it; it has {}",
                    cap, names_of(isas));
    }
    throw Error(ErrorKind::kUsage, "--cpu-isa \"{}\": expected one of {}", printable(cap, 80),
                known_isas());
}

}  // namespace ridge
