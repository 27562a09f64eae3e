#pragma once

#include <cstdint>
#include <ctime>
#include <string>
#include <thread>
#include <vector>

namespace ridge {

// What the operating system says of the machine and of this process.

uint64_t available_memory_bytes();  // what can be had without swapping, within the cgroup's limit;
                                    // 0: unknown
uint64_t peak_memory_bytes();       // highest resident memory of this process so far
uint64_t resident_memory_bytes();
std::string program_path();  // of this very program; "ridge" where the system does not tell
std::string cpu_name();
std::string nvidia_driver_version();  // "580.159.04"; empty where there is none, or it is unknown
std::string os_name();                // "Linux 6.1.0-18-amd64 x86_64"

// CPUs (hyperthreads count) that this process may use at a time: those of its affinity, no more
// than the time that its cgroups allow (rounded down), at least 1.
int n_allowed_cpus();
// One CPU of each physical core that the affinity of the calling thread touches, its lowest, in
// ascending order; at least one. Where the system does not tell cores from hyperthreads, every CPU.
std::vector<int> physical_cores();
// Physical cores of the affinity, no more than the cgroups allow, at least 1: a second hyperthread
// brings no bandwidth and no arithmetic.
int default_n_threads();

int64_t thread_cpu_ns();  // that the calling thread has had a CPU so far

int current_cpu();  // that the calling thread runs on at this moment; -1 where the system does not
                    // say

// Keeps the thread that makes it on one CPU until it ends on that same thread. Threads started
// meanwhile inherit the CPU, for good. Error where the system cannot.
class ThreadPin {
  public:
    explicit ThreadPin(int cpu);
    ~ThreadPin();
    ThreadPin(const ThreadPin&) = delete;
    ThreadPin& operator=(const ThreadPin&) = delete;

  private:
    std::thread::id thread_ = std::this_thread::get_id();
    std::vector<int> before_;  // CPUs that the thread could use
};

// All of it to an open file, a signal in between or not. 0, or the errno of what failed.
int write_bytes(int fd, std::string_view bytes);
bool is_terminal(int fd);  // 0 standard input, 1 standard output, 2 standard error
bool locale_is_utf8();

// For the start of a program: standard streams that were closed are opened on /dev/null, so that no
// file takes their place (a write to standard output is still an error). SIGPIPE and SIGXFSZ are
// ignored: a write without a reader, or beyond the limit of a file's size, is an error.
void prepare_process();

// Signals that ask the program to end. After catch_interrupts() the first SIGINT (Ctrl-C), and
// every SIGTERM and SIGHUP (unless it was ignored, as nohup has it), only set a flag; a SIGINT
// while the flag is set ends the program with status 130. SIGPIPE is ignored: writes report EPIPE
// instead.
void catch_interrupts();
bool interrupted();
int interrupt_status();  // that the program is to end with: 130, after SIGTERM 143, SIGHUP 129
void clear_interrupt();  // after SIGINT; the others stay
// Waits until `fd` has something to read, or its end: true. False once interrupted(), also
// just before: a read alone would miss that and wait for the next key.
bool wait_for_input(int fd);

uint64_t random_seed();  // 64 bits from the system's generator

std::tm local_time(std::time_t seconds);  // in the time zone of this process

}  // namespace ridge
