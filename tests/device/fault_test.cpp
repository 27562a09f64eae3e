#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <cstdlib>

#include "base/files.h"

// The program on a device that fails, each in a process of its own: a kernel that fails spoils all
// that the process does on the device. Needs a GPU, and the program beside the folder of this one.

namespace ridge {
namespace {

// RIDGE_BINARY in the environment where it lies elsewhere than it was built.
std::string program() {
    const char* path = std::getenv("RIDGE_BINARY");
    return path == nullptr ? RIDGE_BINARY : path;
}

std::string device() {
    const char* name = std::getenv("RIDGE_TEST_DEVICE");
    return name == nullptr ? "cuda:0" : name;
}

struct Result {
    int status;
    std::string output;  // standard output and error
};

Result output_of(const std::string& command) {
    Result result{-1, ""};
    FILE* pipe = popen(command.c_str(), "r");
    if (pipe == nullptr) return result;
    std::array<char, 4096> bytes;
    for (size_t n; (n = fread(bytes.data(), 1, bytes.size(), pipe)) > 0;) {
        result.output.append(bytes.data(), n);
    }
    result.status = pclose(pipe);
    return result;
}

Result run_with_fault(const std::string& fault, const std::string& arguments) {
    return output_of(
        fmt::format("RIDGE_CUDA_FAULT={} {} run -m synth:smollm2-135m:Q8_0 --ids 1,2,3 --json -q "
                    "--ignore-eos {} 2>&1",
                    fault, program(), arguments));
}

class Faults : public testing::Test {
  protected:
    void SetUp() override {
        if (file_kind(program()) != FileKind::kRegular) {
            GTEST_SKIP() << program() << " is not there; RIDGE_BINARY names the program";
        }
    }
};

void expect_one_line(const std::string& fault, const std::string& arguments,
                     const std::string& part) {
    SCOPED_TRACE(fault + " " + arguments);
    const Result result = run_with_fault(fault, arguments);
    EXPECT_EQ(result.status, 1 << 8) << "exit status 1, no signal";
    EXPECT_EQ(result.output.rfind("ridge: ", 0), 0u) << result.output;
    EXPECT_EQ(result.output.find('\n'), result.output.size() - 1) << result.output;
    EXPECT_NE(result.output.find(part), std::string::npos) << result.output;
}

TEST_F(Faults, a_lost_device_ends_the_run_in_one_line) {
    for (int n_steps : {0, 1, 2, 7}) {  // a prompt, the first decode step, one that is captured
        expect_one_line(fmt::format("lost@{}", n_steps), "-n 16 --device " + device(),
                        "(cudaError");
        expect_one_line(fmt::format("lost@{}", n_steps),
                        "-n 16 --stream-weights --device " + device(), "(cudaError");
    }
}

TEST_F(Faults, a_lost_device_ends_a_conversation) {
    const Result result = output_of(fmt::format(
        "printf 'one\\ntwo\\n' | RIDGE_CUDA_FAULT=lost@6 {} chat -m synth:smollm2-135m:Q8_0 -q "
        "--ignore-eos -n 16 --device {} 2>&1 >/dev/null",
        program(), device()));
    EXPECT_EQ(result.status, 1 << 8) << "exit status 1, no signal";
    EXPECT_EQ(result.output.rfind("ridge: ", 0), 0u) << result.output;
    EXPECT_EQ(result.output.find('\n'), result.output.size() - 1) << result.output;
    EXPECT_NE(result.output.find(device() + ": step: "), std::string::npos) << result.output;
}

TEST_F(Faults, full_memory_ends_the_run_in_one_line) {
    for (int n_allocations : {0, 1, 2, 3}) {
        expect_one_line(fmt::format("full@{}", n_allocations), "-n 4 --device " + device(),
                        "no memory for");
    }
}

TEST_F(Faults, the_cpu_runs_beside_a_device_that_cannot_be_used) {
    for (const char* fault : {"no-driver", "no-gpu", "too-old", "full", "lost@0", "full@0"}) {
        EXPECT_EQ(run_with_fault(fault, "-n 2 --device cpu").status, 0) << fault;
    }
}

}  // namespace
}  // namespace ridge
