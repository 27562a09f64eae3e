#include "base/system.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <set>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/timer.h"

namespace ridge {
namespace {

TEST(SystemTest, memory_figures_are_plausible) {
    EXPECT_GT(available_memory_bytes(), uint64_t{1} << 20);
    EXPECT_GT(resident_memory_bytes(), uint64_t{1} << 18);
    uint64_t before = peak_memory_bytes();
    std::vector<char> block(uint64_t{64} << 20);
    std::memset(block.data(), 1, block.size());
    EXPECT_GE(peak_memory_bytes(), before);
    EXPECT_GE(peak_memory_bytes(), uint64_t{64} << 20);
    EXPECT_GE(resident_memory_bytes(), uint64_t{64} << 20) << static_cast<int>(block[5]);
}

TEST(SystemTest, there_is_a_thread_and_a_processor) {
    EXPECT_GE(default_n_threads(), 1);
    EXPECT_LE(default_n_threads(),
              static_cast<int>(std::max(1u, std::thread::hardware_concurrency())));
    EXPECT_FALSE(cpu_name().empty());
}

TEST(SystemTest, threads_cores_and_cpus_agree) {
    std::vector<int> cores = physical_cores();
    ASSERT_FALSE(cores.empty());
    EXPECT_EQ(std::set<int>(cores.begin(), cores.end()).size(), cores.size());
    EXPECT_LE(default_n_threads(), static_cast<int>(cores.size()));
    EXPECT_LE(default_n_threads(), n_allowed_cpus());
}

TEST(SystemTest, a_pinned_thread_has_one_cpu_and_gets_the_others_back) {
    std::vector<int> before = physical_cores();
    {
        ThreadPin pin(before.back());
        EXPECT_EQ(physical_cores(), std::vector<int>{before.back()});
        EXPECT_EQ(n_allowed_cpus(), 1);
        EXPECT_EQ(default_n_threads(), 1);
        EXPECT_EQ(current_cpu(), before.back());
    }
    EXPECT_EQ(physical_cores(), before);
    EXPECT_THROW(ThreadPin(100'000), Error);
    EXPECT_EQ(physical_cores(), before);
}

TEST(SystemTest, a_pipe_is_no_terminal_and_the_width_is_positive) {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    EXPECT_FALSE(is_terminal(ends[0]));
    close(ends[0]), close(ends[1]);
}

TEST(SystemTest, the_locale_is_read_from_the_environment) {
    std::vector<std::pair<const char*, bool>> cases = {
        {"en_US.UTF-8", true}, {"C.utf8", true}, {"de_DE.utf-8", true},
        {"C", false},          {"POSIX", false}, {"en_US.ISO-8859-1", false}};
    const char* before = std::getenv("LC_ALL");
    std::string kept = before != nullptr ? before : "";
    for (auto [value, want] : cases) {
        setenv("LC_ALL", value, 1);
        EXPECT_EQ(locale_is_utf8(), want) << value;
    }
    setenv("LC_ALL", "", 1);  // empty: the next variable decides
    setenv("LC_CTYPE", "C.UTF-8", 1);
    EXPECT_TRUE(locale_is_utf8());
    unsetenv("LC_CTYPE");
    if (before != nullptr) {
        setenv("LC_ALL", kept.c_str(), 1);
    } else {
        unsetenv("LC_ALL");
    }
}

TEST(SystemTest, seeds_differ) {
    std::set<uint64_t> seeds;
    for (int i = 0; i < 100; i++) seeds.insert(random_seed());
    EXPECT_EQ(seeds.size(), 100u);
}

TEST(SystemDeathTest, one_interrupt_sets_the_flag_and_two_end_the_program) {
    ::testing::FLAGS_gtest_death_test_style = "threadsafe";
    EXPECT_EXIT(
        {
            catch_interrupts();
            if (interrupted()) _exit(1);
            raise(SIGINT);
            if (!interrupted()) _exit(2);
            clear_interrupt();
            if (interrupted()) _exit(3);
            raise(SIGINT);
            _exit(interrupted() ? 0 : 4);
        },
        ::testing::ExitedWithCode(0), "");
    EXPECT_EXIT(
        {
            catch_interrupts();
            raise(SIGINT);
            raise(SIGINT);
            _exit(0);
        },
        ::testing::ExitedWithCode(130), "");
}

TEST(SystemDeathTest, sigterm_and_sighup_set_the_flag_for_good_and_say_the_status) {
    ::testing::FLAGS_gtest_death_test_style = "threadsafe";
    for (auto [number, status] : {std::pair(SIGTERM, 143), std::pair(SIGHUP, 129)}) {
        EXPECT_EXIT(
            {
                catch_interrupts();
                raise(SIGINT);
                if (interrupt_status() != 130) _exit(1);
                raise(number);
                raise(number);
                clear_interrupt();
                _exit(interrupted() ? interrupt_status() : 2);
            },
            ::testing::ExitedWithCode(status), "");
    }
    EXPECT_EXIT(
        {
            signal(SIGHUP, SIG_IGN);
            catch_interrupts();
            raise(SIGHUP);
            _exit(interrupted() ? 1 : 0);
        },
        ::testing::ExitedWithCode(0), "");
}

TEST(SystemDeathTest, waiting_for_input_hears_an_interrupt_that_came_just_before) {
    ::testing::FLAGS_gtest_death_test_style = "threadsafe";
    EXPECT_EXIT(
        {
            catch_interrupts();
            int ends[2];
            if (pipe(ends) != 0) _exit(1);
            raise(SIGINT);
            if (wait_for_input(ends[0])) _exit(2);
            clear_interrupt();
            if (write(ends[1], "x", 1) != 1) _exit(3);
            if (!wait_for_input(ends[0])) _exit(4);
            char byte;
            if (read(ends[0], &byte, 1) != 1) _exit(5);
            pid_t self = getpid();
            std::thread late([self] {
                std::this_thread::sleep_for(std::chrono::milliseconds(50));
                kill(self, SIGINT);
            });
            bool heard = !wait_for_input(ends[0]);
            late.join();
            _exit(heard ? 0 : 6);
        },
        ::testing::ExitedWithCode(0), "");
}

TEST(SystemDeathTest, writing_to_a_closed_pipe_is_an_error_and_no_signal) {
    ::testing::FLAGS_gtest_death_test_style = "threadsafe";
    EXPECT_EXIT(
        {
            catch_interrupts();
            int ends[2];
            if (pipe(ends) != 0) _exit(1);
            close(ends[0]);
            _exit(write(ends[1], "x", 1) == -1 && errno == EPIPE ? 0 : 2);
        },
        ::testing::ExitedWithCode(0), "");
}

TEST(TimerTest, time_does_not_run_backwards) {
    Timer timer;
    int64_t first = timer.elapsed_ns(), second = timer.elapsed_ns();
    EXPECT_GE(first, 0);
    EXPECT_GE(second, first);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    EXPECT_GE(timer.elapsed_ms(), 2.0);
    timer.restart();
    EXPECT_LT(timer.elapsed_ns(), second + 3'600'000'000'000);
}

}  // namespace
}  // namespace ridge
