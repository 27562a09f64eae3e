#include <gtest/gtest.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <string>
#include <thread>

#include "base/system.h"

namespace ridge {
namespace {

// A pipe holds less than what is written, so that the writer waits; signals come meanwhile.
TEST(WriteBytes, goes_on_after_a_signal) {
    struct sigaction action = {}, before = {};
    action.sa_handler = [](int) {};  // no SA_RESTART, as for interrupts
    sigaction(SIGUSR1, &action, &before);
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    std::string sent(size_t{300} << 10, 0);
    for (size_t i = 0; i < sent.size(); i++) sent[i] = static_cast<char>(i * 31 % 251);

    std::atomic<int> error = -1;
    std::thread writer([&] { error = write_bytes(ends[1], sent); });
    std::string got;
    char some[4096];
    while (got.size() < sent.size()) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        pthread_kill(writer.native_handle(), SIGUSR1);
        const ssize_t n = read(ends[0], some, sizeof some);
        if (n > 0) got.append(some, static_cast<size_t>(n));
    }
    writer.join();
    EXPECT_EQ(error, 0);
    EXPECT_EQ(got, sent);
    close(ends[0]), close(ends[1]);
    sigaction(SIGUSR1, &before, nullptr);
}

TEST(WriteBytes, says_what_failed) {
    EXPECT_EQ(write_bytes(-1, "x"), EBADF);
    EXPECT_EQ(write_bytes(-1, ""), 0);
}

}  // namespace
}  // namespace ridge
