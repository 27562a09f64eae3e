#include "base/system.h"

#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

namespace ridge {
namespace {

// First number after `key` in a file of "key value" lines; 0 where absent. Values in /proc are in
// kB.
uint64_t proc_value(const char* path, const char* key) {
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
        if (line.rfind(key, 0) == 0)
            return std::strtoull(line.c_str() + std::strlen(key), nullptr, 10);
    }
    return 0;
}

// The file of this process's own cgroup (v2), or of the root's, where a container shows its limits.
std::string cgroup_file(const char* name) {
    std::ifstream self("/proc/self/cgroup");
    std::string line;
    while (std::getline(self, line)) {
        if (line.rfind("0::", 0) != 0) continue;
        std::string path = "/sys/fs/cgroup" + line.substr(3) + "/" + name;
        if (access(path.c_str(), R_OK) == 0) return path;
    }
    return std::string("/sys/fs/cgroup/") + name;
}

uint64_t cgroup_memory_left() {
    std::ifstream limit_file(cgroup_file("memory.max")), used_file(cgroup_file("memory.current"));
    uint64_t limit = 0, used = 0;
    if (!(limit_file >> limit) || !(used_file >> used))
        return UINT64_MAX;  // "max", or no cgroup v2
    uint64_t cache = proc_value(cgroup_file("memory.stat").c_str(), "inactive_file ");
    used -= std::min(used, cache);
    return limit > used ? limit - used : 0;
}

std::atomic<bool> interrupt_flag{
    false};  // set by the signal handler, which can reach nothing but a global

extern "C" void on_sigint(int) {
    if (interrupt_flag.exchange(true)) _exit(130);
}

}  // namespace

uint64_t available_memory_bytes() {
    uint64_t available = proc_value("/proc/meminfo", "MemAvailable:") * 1024;
    return std::min(available, cgroup_memory_left());
}

uint64_t peak_memory_bytes() {
    rusage usage = {};
    getrusage(RUSAGE_SELF, &usage);
    return static_cast<uint64_t>(usage.ru_maxrss) * 1024;
}

uint64_t resident_memory_bytes() {
    return proc_value("/proc/self/status", "VmRSS:") * 1024;
}

int default_n_threads() {
    cpu_set_t set;
    CPU_ZERO(&set);
    int n = sched_getaffinity(0, sizeof set, &set) == 0
                ? CPU_COUNT(&set)
                : static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
    std::ifstream file(cgroup_file("cpu.max"));
    double quota = 0, period = 0;
    if (file >> quota >> period && period > 0) n = std::min(n, static_cast<int>(quota / period));
    return std::max(n, 1);
}

std::string cpu_name() {
    std::ifstream file("/proc/cpuinfo");
    for (std::string line; std::getline(file, line);) {
        size_t colon = line.find(": ");
        if (line.rfind("model name", 0) == 0 && colon != std::string::npos)
            return line.substr(colon + 2);
    }
    return "unknown CPU";
}

bool is_terminal(int fd) {
    return isatty(fd) == 1;
}

int terminal_columns() {
    winsize size = {};
    for (int fd : {STDERR_FILENO, STDOUT_FILENO}) {
        if (ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
    }
    return 80;
}

bool locale_is_utf8() {
    for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
        const char* value = std::getenv(name);
        if (value == nullptr || value[0] == 0) continue;
        return std::strstr(value, "UTF-8") != nullptr || std::strstr(value, "utf8") != nullptr;
    }
    return false;
}

void catch_interrupts() {
    struct sigaction action = {};
    action.sa_handler = on_sigint;  // no SA_RESTART: a blocking read returns
    sigaction(SIGINT, &action, nullptr);
    signal(SIGPIPE, SIG_IGN);
}

bool interrupted() {
    return interrupt_flag.load(std::memory_order_relaxed);
}
void clear_interrupt() {
    interrupt_flag = false;
}

uint64_t random_seed() {
    uint64_t seed = 0;
    if (getrandom(&seed, sizeof seed, 0) != sizeof seed) {
        seed = static_cast<uint64_t>(std::chrono::system_clock::now().time_since_epoch().count());
    }
    return seed;
}

}  // namespace ridge
