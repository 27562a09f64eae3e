#include "engine/case_session.h"

#include <deque>
#include <utility>

#include "base/check.h"
#include "cpu/case_subjects.h"
#include "cpu/checkpoints.h"
#include "cpu/isa.h"
#include "cpu/kernels_of_isa.h"
#include "engine/devices.h"
#ifdef RIDGE_HAS_CUDA
#include "cuda/case_device.h"
#include "cuda/case_subjects.h"
#include "cuda/checkpoints.h"
#endif

namespace ridge {
namespace {

constexpr int kThreads = 3;

class CpuCases : public CaseSession {
  public:
    explicit CpuCases(std::deque<IsaKernels> kernels) : kernels_(std::move(kernels)) {}

    std::string backend() const override { return "cpu"; }
    std::string device() const override { return "cpu"; }
    std::span<const Checkpoint> checkpoints() const override { return cpu_checkpoints(); }
    std::vector<Subject> subjects(Op op) const override {
        return cpu_subjects(op, kernels_, kThreads);
    }

  private:
    std::deque<IsaKernels> kernels_;
};

#ifdef RIDGE_HAS_CUDA
class CudaDeviceCases : public CaseSession {
  public:
    // No device: tables to be looked at.
    CudaDeviceCases() : caps_(caps_without_device()) {}
    explicit CudaDeviceCases(int index)
        : cases_(make_cuda_cases({.device = index, .threads = kThreads})),
          caps_(cases_.caps),
          index_(index) {}

    std::string backend() const override { return "cuda"; }
    std::string device() const override { return "cuda:" + std::to_string(index_); }
    std::string gpu() const override {
        for (const DeviceInfo& info : find_devices()) {
            if (info.device == device()) return info.name;
        }
        return {};
    }
    CaseDevice* case_device() const override { return cases_.device.get(); }
    std::span<const Checkpoint> checkpoints() const override { return cuda_checkpoints(); }
    std::vector<Subject> subjects(Op op) const override { return cuda_subjects(op, caps_); }

  private:
    CudaCases cases_;
    Caps caps_;
    int index_ = 0;
};
#endif

std::string first_device() {
    for (const std::string& name : device_names()) {
        if (cuda_index(name)) return name;
    }
    return "cpu";
}

}  // namespace

std::unique_ptr<CaseSession> CaseSession::open(OpenOptions options) {
    choose_isa(options.cpu_isa);
    if (options.device == "auto") options.device = first_device();
    if (options.device == "cpu") {
        return std::make_unique<CpuCases>(kernels_of_all_isas([&](std::string_view name) {
            return options.cpu_isa.empty() || is_of_isa(name, options.cpu_isa);
        }));
    }
#ifdef RIDGE_HAS_CUDA
    if (const std::optional<int> index = cuda_index(options.device)) {
        return std::make_unique<CudaDeviceCases>(*index);
    }
#endif
    open_device(options);  // says in an Error what is wrong with it
    CHECK(!"a device that has no cases");
    return nullptr;
}

std::vector<std::unique_ptr<CaseSession>> CaseSession::all_backends() {
    std::deque<IsaKernels> kernels;
    for (std::string_view name : isa_kernels_names()) {
        kernels.push_back({name, cpu::kernels_of_isa(Isa::kScalar)});
    }
    std::vector<std::unique_ptr<CaseSession>> all;
    all.push_back(std::make_unique<CpuCases>(std::move(kernels)));
#ifdef RIDGE_HAS_CUDA
    all.push_back(std::make_unique<CudaDeviceCases>());
#endif
    return all;
}

}  // namespace ridge
