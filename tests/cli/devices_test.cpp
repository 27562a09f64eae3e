#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cli/checks.h"
#include "cli/program.h"

namespace ridge::cli {
namespace {

// Devices that tests make up, with RIDGE_CUDA_FAULT. No GPU is needed.
class CudaDevices : public testing::Test {
  protected:
    void SetUp() override {
        if (run({"devices"}).out.find("no CUDA backend") != std::string::npos) {
            const std::string why = "--device cuda:0: this build of Ridge has no CUDA backend";
            expect_error(on("cuda:0"), 2, why);
            for (const Arguments& measuring : measuring_on("cuda:0")) {
                expect_error(measuring, 2, why);
            }
            GTEST_SKIP() << "built without CUDA";
        }
    }
    static Arguments on(const std::string& device) {
        return {"run",      "-m",     "synth:tiny-llama3:Q8_0",
                "--ids",    "1,2",    "-n",
                "4",        "--json", "--greedy",
                "--device", device};
    }
    // Commands that look into a device's steps, and at the device itself.
    static std::vector<Arguments> measuring_on(const std::string& device) {
        const std::string model = "synth:tiny-llama3:Q8_0";
        return {{"trace", "-m", model, "--device", device, "--replay", "ffn_in", "--json"},
                {"roofline", "-m", model, "--device", device, "--json"},
                {"roofline", "--device", device},
                {"bench", "progression", "-m", model, "--device", device, "--json"}};
    }
    static Setting with_fault(const std::string& fault) {
        Setting setting;
        setting.environment["RIDGE_CUDA_FAULT"] = fault;
        return setting;
    }
};

TEST_F(CudaDevices, what_hinders_one_is_one_line) {
    expect_error(on("cuda:0"), 1, "cuda:0: no NVIDIA driver", with_fault("no-driver"));
    expect_error(on("cuda:0"), 1, "cuda:0: no GPU", with_fault("no-gpu"));
    expect_error(on("cuda:0"), 1, "compute capability 7.5, expected 8.0 or higher",
                 with_fault("too-old"));
    expect_error(on("cuda:0"), 1, "its memory is full", with_fault("full"));
    expect_error(on("cuda:1"), 2, "cuda:1: this machine has 1 GPU", with_fault("full"));
    expect_error(on("cuda:0"), 2, "RIDGE_CUDA_FAULT \"smoke\"", with_fault("smoke"));
}

TEST_F(CudaDevices, what_hinders_a_measurement_is_one_line) {
    for (const Arguments& measuring : measuring_on("cuda:0")) {
        expect_error(measuring, 1, "cuda:0: no NVIDIA driver", with_fault("no-driver"));
        expect_error(measuring, 1, "its memory is full", with_fault("full"));
    }
    for (const Arguments& measuring : measuring_on("cuda:1")) {
        expect_error(measuring, 2, "cuda:1: this machine has 1 GPU", with_fault("full"));
    }
}

TEST_F(CudaDevices, the_cpu_runs_beside_one_that_cannot_be_used) {
    const std::string want = run(on("cpu")).out;
    for (const char* fault : {"no-driver", "bad-driver", "no-gpu", "too-old", "full"}) {
        SCOPED_TRACE(fault);
        const Result named = run(on("cpu"), with_fault(fault));
        EXPECT_EQ(named.status, 0);
        EXPECT_EQ(named.out, want);
        EXPECT_EQ(named.err.find("cuda"), std::string::npos) << named.err;
        EXPECT_EQ(run(on("auto"), with_fault(fault)).out, want);
    }
}

TEST_F(CudaDevices, auto_says_why_there_is_a_gpu_that_it_does_not_take) {
    const Result too_old = run(on("auto"), with_fault("too-old"));
    EXPECT_NE(too_old.err.find("ridge: --device auto: cpu, since cuda:0, "), std::string::npos)
        << too_old.err;
    const Result failing = run(on("auto"), with_fault("bad-driver"));
    EXPECT_NE(failing.err.find("ridge: --device auto: cpu, since the NVIDIA driver fails: "),
              std::string::npos)
        << failing.err;
    for (const char* fault : {"no-driver", "no-gpu"}) {
        EXPECT_EQ(run(on("auto"), with_fault(fault)).err.find("--device auto"), std::string::npos);
    }
    for (const char* fault : {"too-old", "bad-driver"}) {
        EXPECT_EQ(run(with(on("auto"), {"-q"}), with_fault(fault)).err, "");
    }
}

TEST_F(CudaDevices, bench_says_once_how_auto_chose) {
    const Result timed = run({"bench", "-m", "synth:tiny-llama3:Q8_0", "-p", "0", "-n", "1", "-r",
                              "1", "--checkpoint", "ref,plain", "-ctk", "f16,f32"},
                             with_fault("too-old"));
    EXPECT_EQ(timed.status, 0) << timed.err;
    const size_t at = timed.err.find("ridge: --device auto: cpu, since cuda:0, ");
    EXPECT_NE(at, std::string::npos) << timed.err;
    EXPECT_EQ(timed.err.find("--device auto", at + 10), std::string::npos) << timed.err;
}

TEST_F(CudaDevices, an_instruction_set_is_judged_before_a_gpu_is_opened) {
    expect_error(with(on("cuda:0"), {"--cpu-isa", "mmx"}), 2, "--cpu-isa \"mmx\": expected one of",
                 with_fault("no-gpu"));
    Setting setting = with_fault("no-gpu");
    setting.environment["RIDGE_CPU_ISA"] = "mmx";
    expect_error(on("cuda:0"), 2, "RIDGE_CPU_ISA \"mmx\": expected one of", setting);
}

TEST_F(CudaDevices, are_listed_with_what_hinders_them) {
    const Result listed = run({"devices"}, with_fault("too-old"));
    EXPECT_EQ(listed.status, 0);
    EXPECT_NE(listed.out.find("cuda:0   a GPU made up for tests: compute capability 7.5"),
              std::string::npos)
        << listed.out;
}

}  // namespace
}  // namespace ridge::cli
