#pragma once

#include <cstdint>
#include <ctime>
#include <string>

namespace ridge {

// What the operating system says of the machine and of this process.

uint64_t available_memory_bytes();  // what can be had without swapping, within the cgroup's limit;
                                    // 0: unknown
uint64_t peak_memory_bytes();       // highest resident memory of this process so far
uint64_t resident_memory_bytes();
int default_n_threads();  // CPUs that affinity and the cgroup's cpu.max (rounded down) allow, at
                          // least 1
std::string cpu_name();

bool is_terminal(int fd);  // 0 standard input, 1 standard output, 2 standard error
bool locale_is_utf8();

// For the start of a program: standard streams that were closed are opened on /dev/null, so that no
// file takes their place (a write to standard output is still an error), and SIGPIPE is ignored.
void prepare_process();

// Ctrl-C. After catch_interrupts() the first SIGINT only sets a flag; a second one before the flag
// is cleared ends the program with status 130. SIGPIPE is ignored: writes report EPIPE instead.
void catch_interrupts();
bool interrupted();
void clear_interrupt();
// Waits until `fd` has something to read, or its end: true. False after Ctrl-C, also one that came
// just before: a read alone would miss that and wait for the next key.
bool wait_for_input(int fd);

uint64_t random_seed();  // 64 bits from the system's generator

std::tm local_time(std::time_t seconds);  // in the time zone of this process

}  // namespace ridge
