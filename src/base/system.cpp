#include "base/system.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <vector>

#include "base/error.h"

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

// The folders of this process's own cgroup (v2) and of those above it, whose limits hold as well.
// In a container its own is the root.
std::vector<std::string> cgroup_folders() {
    const std::string root = "/sys/fs/cgroup";
    std::vector<std::string> folders;
    std::ifstream self("/proc/self/cgroup");
    for (std::string line; std::getline(self, line);) {
        if (line.rfind("0::/", 0) != 0) continue;
        for (std::string path = line.substr(3); path.size() > 1; path.resize(path.rfind('/')))
            folders.push_back(root + path);
    }
    folders.push_back(root);
    return folders;
}

uint64_t cgroup_memory_left() {
    uint64_t left = UINT64_MAX;
    for (const std::string& folder : cgroup_folders()) {
        std::ifstream limit_file(folder + "/memory.max"), used_file(folder + "/memory.current");
        uint64_t limit = 0, used = 0;
        if (!(limit_file >> limit) || !(used_file >> used)) continue;  // "max", or no cgroup v2
        uint64_t cache = proc_value((folder + "/memory.stat").c_str(), "inactive_file ");
        used -= std::min(used, cache);
        left = std::min(left, limit > used ? limit - used : 1);
    }
    return left;
}

// What the signal handler writes to; it can reach nothing but globals. The pipe wakes who waits in
// wait_for_input(), whichever thread the signal came to.
std::atomic<bool> interrupt_flag{false};
int interrupt_pipe[2] = {-1, -1};

extern "C" void on_sigint(int) {
    if (interrupt_flag.exchange(true)) _exit(130);
    int error = errno;
    ssize_t ignored = write(interrupt_pipe[1], "", 1);
    (void)ignored;
    errno = error;
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
    for (const std::string& folder : cgroup_folders()) {
        std::ifstream file(folder + "/cpu.max");  // "max 100000" where there is no limit
        double quota = 0, period = 0;
        if (file >> quota >> period && period > 0 && quota < n * period)
            n = static_cast<int>(quota / period);
    }
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

bool locale_is_utf8() {
    for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
        const char* value = std::getenv(name);
        if (value == nullptr || value[0] == 0) continue;
        return strcasestr(value, "utf-8") != nullptr || strcasestr(value, "utf8") != nullptr;
    }
    return false;
}

void prepare_process() {
    for (int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
        if (fcntl(fd, F_GETFD) != -1 || errno != EBADF) continue;
        // The lowest free number is this one: those below it are open by now.
        if (open("/dev/null", fd == STDERR_FILENO ? O_WRONLY : O_RDONLY) != fd) _exit(1);
    }
    signal(SIGPIPE, SIG_IGN);
}

void catch_interrupts() {
    if (interrupt_pipe[0] < 0 && pipe2(interrupt_pipe, O_CLOEXEC | O_NONBLOCK) != 0) {
        throw Error("cannot make a pipe: {}", strerror(errno));
    }
    struct sigaction action = {};
    action.sa_handler = on_sigint;  // no SA_RESTART: a blocking read returns
    sigaction(SIGINT, &action, nullptr);
    signal(SIGPIPE, SIG_IGN);
}

bool interrupted() {
    return interrupt_flag.load(std::memory_order_relaxed);
}
void clear_interrupt() {
    char bytes[16];
    while (read(interrupt_pipe[0], bytes, sizeof bytes) > 0) {
    }
    interrupt_flag = false;
}

bool wait_for_input(int fd) {
    pollfd fds[2] = {{fd, POLLIN, 0}, {interrupt_pipe[0], POLLIN, 0}};  // a negative one is ignored
    for (;;) {
        if (interrupted()) return false;
        if (poll(fds, 2, -1) > 0 && fds[0].revents != 0) return !interrupted();
    }
}

uint64_t random_seed() {
    uint64_t seed = 0;
    if (getrandom(&seed, sizeof seed, 0) != sizeof seed) {
        seed = static_cast<uint64_t>(std::chrono::system_clock::now().time_since_epoch().count());
    }
    return seed;
}

std::tm local_time(std::time_t seconds) {
    std::tm local = {};
    localtime_r(&seconds, &local);
    return local;
}

}  // namespace ridge
