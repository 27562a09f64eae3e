#include "base/system.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <numeric>
#include <optional>
#include <set>
#include <vector>

#include "base/cgroup.h"
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

// A small file of /proc or /sys; empty where there is none.
std::string file_text(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
}

// Folders of this process's groups: of version 2 where no controller is named, of version 1's
// hierarchy otherwise.
std::vector<std::string> own_cgroup_folders(std::string_view controller) {
    return cgroup_folders(file_text("/proc/self/cgroup"), file_text("/proc/self/mountinfo"),
                          controller);
}

uint64_t cgroup_memory_left() {
    uint64_t left = UINT64_MAX;
    for (const std::string& folder : own_cgroup_folders("")) {
        std::ifstream limit_file(folder + "/memory.max"), used_file(folder + "/memory.current");
        uint64_t limit = 0, used = 0;
        if (!(limit_file >> limit) || !(used_file >> used)) continue;  // "max", or no cgroup v2
        uint64_t cache = proc_value((folder + "/memory.stat").c_str(), "inactive_file ");
        used -= std::min(used, cache);
        left = std::min(left, limit > used ? limit - used : 1);
    }
    return left;
}

#if defined(__linux__)

// A set of CPUs as the kernel takes it, for numbers below n_cpus.
struct CpuSet {
    explicit CpuSet(size_t n_cpus) : words((n_cpus + kBits - 1) / kBits, 0) {}
    static constexpr size_t kBits = 8 * sizeof(unsigned long);

    size_t n_bytes() const { return words.size() * sizeof(unsigned long); }
    cpu_set_t* data() { return reinterpret_cast<cpu_set_t*>(words.data()); }
    unsigned long bit(size_t cpu) const { return 1ul << cpu % kBits; }

    std::vector<unsigned long> words;
};

// CPUs that the calling thread may use, ascending, at least one.
std::vector<int> affinity() {
    // The call fails where the set is smaller than the kernel's own.
    for (size_t n_cpus = 1024; n_cpus <= size_t{1} << 20; n_cpus *= 2) {
        CpuSet set(n_cpus);
        if (sched_getaffinity(0, set.n_bytes(), set.data()) != 0) continue;
        std::vector<int> cpus;
        for (size_t cpu = 0; cpu < n_cpus; cpu++) {
            if (set.words[cpu / CpuSet::kBits] & set.bit(cpu))
                cpus.push_back(static_cast<int>(cpu));
        }
        return cpus;
    }
    return {0};
}

void set_affinity(const std::vector<int>& cpus) {
    auto highest = static_cast<size_t>(*std::max_element(cpus.begin(), cpus.end()));
    CpuSet set(std::max<size_t>(highest + 1, 1024));
    for (int cpu : cpus) {
        auto at = static_cast<size_t>(cpu);
        set.words[at / CpuSet::kBits] |= set.bit(at);
    }
    if (sched_setaffinity(0, set.n_bytes(), set.data()) != 0)
        throw Error("cannot pin a thread to CPU {}: {}", cpus.front(), strerror(errno));
}

#else

std::vector<int> affinity() {
    auto n_cpus = static_cast<size_t>(std::max(1l, sysconf(_SC_NPROCESSORS_ONLN)));
    std::vector<int> cpus(n_cpus);
    std::iota(cpus.begin(), cpus.end(), 0);
    return cpus;
}

void set_affinity(const std::vector<int>&) {
    throw Error("cannot pin threads: this system has no call for it");
}

#endif

// n, or fewer where the time that a group may use is less than that of n CPUs.
int limit_by_cgroup(int n) {
    auto limit = [&](std::optional<double> cpus) {
        if (cpus && *cpus < n) n = std::max(1, static_cast<int>(*cpus));
    };
    for (const std::string& folder : own_cgroup_folders(""))
        limit(parse_cpu_max(file_text(folder + "/cpu.max")));
    for (const std::string& folder : own_cgroup_folders("cpu")) {
        limit(parse_cfs_quota(file_text(folder + "/cpu.cfs_quota_us"),
                              file_text(folder + "/cpu.cfs_period_us")));
    }
    return n;
}

// What the signal handler writes to; it can reach nothing but globals. The pipe wakes who waits in
// wait_for_input(), whichever thread the signal came to.
std::atomic<int> interrupt_signal{0};  // 0: none
int interrupt_pipe[2] = {-1, -1};

extern "C" void on_interrupt(int signal) {
    if (signal == SIGINT) {
        int none = 0;
        if (!interrupt_signal.compare_exchange_strong(none, SIGINT)) _exit(128 + SIGINT);
    } else {
        interrupt_signal = signal;
    }
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

std::string program_path() {
    char path[4096];
    const ssize_t n = readlink("/proc/self/exe", path, sizeof path);
    return n > 0 && static_cast<size_t>(n) < sizeof path ? std::string(path, static_cast<size_t>(n))
                                                         : "ridge";
}

int n_allowed_cpus() {
    return limit_by_cgroup(static_cast<int>(affinity().size()));
}

std::vector<int> physical_cores() {
    std::vector<int> cores;
    std::set<int> seen;
    for (int cpu : affinity()) {
        std::string siblings = file_text(
            fmt::format("/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list", cpu));
        if (seen.insert(first_cpu(siblings).value_or(cpu)).second) cores.push_back(cpu);
    }
    return cores;
}

int default_n_threads() {
    return limit_by_cgroup(static_cast<int>(physical_cores().size()));
}

int current_cpu() {
#if defined(__linux__)
    return sched_getcpu();
#else
    return -1;
#endif
}

int64_t thread_cpu_ns() {
    timespec time = {};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

ThreadPin::ThreadPin(int cpu) : before_(affinity()) {
    set_affinity({cpu});
}

ThreadPin::~ThreadPin() {
    if (std::this_thread::get_id() != thread_) return;
    try {
        set_affinity(before_);
    } catch (const Error&) {
        // The CPUs were taken from this process meanwhile; it stays where it is.
    }
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

// The first word of the driver's line that is numbers with dots between: "NVRM version: NVIDIA UNIX
// x86_64 Kernel Module  580.159.04  Tue ...".
std::string nvidia_driver_version() {
    std::ifstream file("/proc/driver/nvidia/version");
    for (std::string word; file >> word;) {
        if (word.find('.') != std::string::npos &&
            word.find_first_not_of("0123456789.") == std::string::npos) {
            return word;
        }
    }
    return {};
}

std::string os_name() {
    utsname name = {};
    if (uname(&name) != 0) return "unknown system";
    return std::string(name.sysname) + " " + name.release + " " + name.machine;
}

int write_bytes(int fd, std::string_view bytes) {
    while (!bytes.empty()) {
        const ssize_t n = write(fd, bytes.data(), bytes.size());
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return errno;
        bytes.remove_prefix(static_cast<size_t>(n));
    }
    return 0;
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
    signal(SIGXFSZ, SIG_IGN);
}

void catch_interrupts() {
    if (interrupt_pipe[0] < 0 && pipe2(interrupt_pipe, O_CLOEXEC | O_NONBLOCK) != 0) {
        throw Error("cannot make a pipe: {}", strerror(errno));
    }
    struct sigaction action = {};
    action.sa_handler = on_interrupt;  // no SA_RESTART: a blocking read returns
    sigaction(SIGINT, &action, nullptr);
    for (int number : {SIGTERM, SIGHUP}) {
        struct sigaction before = {};
        sigaction(number, nullptr, &before);
        if (before.sa_handler != SIG_IGN) sigaction(number, &action, nullptr);  // nohup
    }
    signal(SIGPIPE, SIG_IGN);
}

bool interrupted() {
    return interrupt_signal.load(std::memory_order_relaxed) != 0;
}
int interrupt_status() {
    const int number = interrupt_signal;
    return 128 + (number != 0 ? number : SIGINT);
}
void clear_interrupt() {
    char bytes[16];
    while (read(interrupt_pipe[0], bytes, sizeof bytes) > 0) {
    }
    int ctrl_c = SIGINT;
    interrupt_signal.compare_exchange_strong(ctrl_c, 0);
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
