#include "cuda/case_device.h"

#include <cuda_runtime_api.h>

#include "cuda/check.h"
#include "cuda/context.h"
#include "cuda/memory.h"
#include "cuda/mirror.h"
#include "cuda/packet.h"
#include "cuda/sample_mirror.h"

namespace ridge {
namespace {

using cuda::check;

// Shares the backend's way of preparing weights; the batch's mirror is its own.
class CudaCaseDevice : public CaseDevice {
  public:
    explicit CudaCaseDevice(const CudaOptions& options) : backend_(make_cuda_backend(options)) {
        context_ = *static_cast<const cuda::Context*>(backend_->caps().kernels);
        context_.graphs = nullptr, context_.packet = &packet_;
    }

    Caps caps() const {
        Caps caps = backend_->caps();
        caps.kernels = &context_;
        return caps;
    }

    Buffer alloc(size_t n_bytes) override {
        return cuda::device_buffer(n_bytes, "memory of a case");
    }
    void upload(const Buffer& host, const Buffer& device) override {
        check(cudaMemcpyAsync(device.data(), host.data(), host.n_bytes(), cudaMemcpyHostToDevice,
                              context_.stream),
              "operands of a case");
    }
    void download(const Buffer& device, const Buffer& host) override {
        check(cudaMemcpyAsync(host.data(), device.data(), host.n_bytes(), cudaMemcpyDeviceToHost,
                              context_.stream),
              "results of a case");
        wait();
    }
    Tensor prepare(const Tensor& weight, const Layout& layout) override {
        return backend_->prepare(weight, layout);
    }
    void begin(const Batch& batch, const RopeTable& rope, int64_t n_pages) override {
        mirror_ = cuda::BatchMirror(batch.n_rows(), n_pages, rope, context_.stream);
        context_.mirror = mirror_.mirror();
        sampling_ =
            cuda::SampleMirror(static_cast<int64_t>(batch.logit_rows.size()), context_.stream);
        context_.sampling = &sampling_;
        wait();
        packet_.clear();
        mirror_.add(batch, packet_);
        packet_.send(context_.stream, 0, nullptr);
        wait();  // the packet may be needed again
    }
    void wait() override {
        check(cudaStreamSynchronize(context_.stream), "case");
        sampling_.collect(0);
    }

  private:
    std::unique_ptr<Backend> backend_;
    cuda::Context context_;
    cuda::Packet packet_;
    cuda::BatchMirror mirror_;
    cuda::SampleMirror sampling_;
};

}  // namespace

CudaCases make_cuda_cases(const CudaOptions& options) {
    auto device = std::make_unique<CudaCaseDevice>(options);
    const Caps caps = device->caps();
    return {std::move(device), caps};
}

}  // namespace ridge
