#include <gtest/gtest.h>

#include "cuda/backend.h"
#include "cuda/check.h"
#include "support/error_of.h"

// What is said of a device that is not there or cannot be used. None is needed.

namespace ridge {
namespace {

std::string error_of_opening(Fault::Kind kind, int device = 0) {
    return error_of(
        [&] { make_cuda_backend({.device = device, .threads = {1}, .fault = {kind}}); });
}

TEST(Devices, none_is_told_in_one_line) {
    EXPECT_EQ(error_of_opening(Fault::kNoDriver), "cuda:0: no NVIDIA driver");
    EXPECT_EQ(error_of_opening(Fault::kNoGpu), "cuda:0: no GPU that the driver shows");
    EXPECT_EQ(find_cuda_devices({Fault::kNoDriver}).missing, "no NVIDIA driver");
    EXPECT_TRUE(find_cuda_devices({Fault::kNoGpu}).devices.empty());
}

TEST(Devices, a_driver_that_fails_is_not_one_that_is_missing) {
    const CudaDevices found = find_cuda_devices({Fault::kBadDriver});
    EXPECT_TRUE(found.driver_fails);
    EXPECT_NE(found.missing.find("(cudaErrorSystemDriverMismatch)"), std::string::npos);
    EXPECT_NE(error_of_opening(Fault::kBadDriver).find("cuda:0: "), std::string::npos);
    for (Fault::Kind kind : {Fault::kNoDriver, Fault::kNoGpu, Fault::kTooOld}) {
        EXPECT_FALSE(find_cuda_devices({kind}).driver_fails) << int{kind};
    }
}

TEST(Devices, one_that_is_too_old_or_full_is_told_with_its_name) {
    EXPECT_EQ(error_of_opening(Fault::kTooOld),
              "cuda:0: a GPU made up for tests: compute capability 7.5, expected 8.0 or higher");
    EXPECT_EQ(error_of_opening(Fault::kNoContext),
              "cuda:0: a GPU made up for tests: its memory is full");
    const CudaDevices found = find_cuda_devices({Fault::kTooOld});
    ASSERT_EQ(found.devices.size(), 1u);
    EXPECT_EQ(found.missing, "");
    EXPECT_NE(found.devices[0].unusable, "");
}

TEST(Devices, one_that_is_not_there_is_told_with_how_many_there_are) {
    EXPECT_EQ(error_of_opening(Fault::kTooOld, 1), "cuda:1: this machine has 1 GPU");
    EXPECT_EQ(error_of_opening(Fault::kTooOld, -1), "cuda:-1: this machine has 1 GPU");
}

TEST(Check, errors_name_what_was_being_done_and_what_the_runtime_says) {
    EXPECT_EQ(error_of([] { cuda::check(cudaErrorLaunchFailure, "step"); }),
              "cuda: step: unspecified launch failure (cudaErrorLaunchFailure)");
    EXPECT_EQ(error_of([] { cuda::check(cudaSuccess, "step"); }), "no error");
}

TEST(Fault, is_read_from_its_name) {
    EXPECT_EQ(parse_fault("").kind, Fault::kNone);
    EXPECT_EQ(parse_fault("bad-driver").kind, Fault::kBadDriver);
    EXPECT_EQ(parse_fault("too-old").kind, Fault::kTooOld);
    EXPECT_EQ(parse_fault("full").kind, Fault::kNoContext);
    const Fault lost = parse_fault("lost@12");
    EXPECT_EQ(lost.kind, Fault::kLost);
    EXPECT_EQ(lost.after, 12);
    for (const char* text :
         {"lost", "lost@", "lost@-1", "lost@1x", "full@99999999999999999999", "old", "LOST@1"}) {
        EXPECT_NE(error_of([&] { parse_fault(text); }).find("RIDGE_CUDA_FAULT"), std::string::npos)
            << text;
    }
}

}  // namespace
}  // namespace ridge
