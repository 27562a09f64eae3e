#include "cli/program.h"

#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <stdexcept>

namespace ridge::cli {
namespace {

void check(bool good, const char* what) {
    if (!good) throw std::runtime_error(what);
}

struct Folder {
    std::string path;
    Folder() {
        char name[] = "/tmp/ridge-cli-XXXXXX";
        check(mkdtemp(name) != nullptr, "mkdtemp");
        path = name;
    }
    ~Folder() {
        std::error_code ignored;
        std::filesystem::remove_all(path, ignored);
    }
};

[[noreturn]] void execute(const Arguments& arguments,
                          const std::map<std::string, std::string>& environment) {
    std::map<std::string, std::string> all = {{"PATH", "/usr/bin:/bin"},
                                              {"HOME", scratch_folder()},
                                              {"XDG_STATE_HOME", scratch_folder() + "/state"},
                                              {"TERM", "xterm"}};
    // Sanitizers and coverage are told what to do by variables.
    for (const char* name : {"ASAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS", "LD_LIBRARY_PATH"}) {
        if (const char* value = getenv(name)) all[name] = value;
    }
    for (const auto& [name, value] : environment) all[name] = value;
    std::vector<std::string> texts = {RIDGE_BINARY};
    texts.insert(texts.end(), arguments.begin(), arguments.end());
    std::vector<std::string> variables;
    for (const auto& [name, value] : all) variables.push_back(name + "=" + value);
    std::vector<char*> argv, envp;
    for (std::string& text : texts) argv.push_back(text.data());
    for (std::string& variable : variables) envp.push_back(variable.data());
    argv.push_back(nullptr), envp.push_back(nullptr);
    execve(RIDGE_BINARY, argv.data(), envp.data());
    _exit(127);
}

int status_of(pid_t child) {
    int status = 0;
    check(waitpid(child, &status, 0) == child, "waitpid");
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

struct Pipe {
    int read_end = -1, write_end = -1;
    Pipe() {
        int ends[2];
        check(pipe2(ends, O_CLOEXEC) == 0, "pipe2");
        read_end = ends[0], write_end = ends[1];
    }
    ~Pipe() { close_read(), close_write(); }
    void close_read() {
        if (read_end >= 0) close(read_end);
        read_end = -1;
    }
    void close_write() {
        if (write_end >= 0) close(write_end);
        write_end = -1;
    }
};

// Feeds the input and gathers both outputs until all are at their end.
void exchange(pid_t child, const Setting& setting, Pipe& in, Pipe& out, Pipe& err, Result& result) {
    size_t written = 0;
    bool interrupted = false;
    if (setting.input.empty()) in.close_write();
    while (out.read_end >= 0 || err.read_end >= 0) {
        pollfd fds[3] = {
            {in.write_end, POLLOUT, 0}, {out.read_end, POLLIN, 0}, {err.read_end, POLLIN, 0}};
        const bool asking = setting.interrupt_when && !interrupted;
        const int n_ready = poll(fds, 3, asking ? 5 : 300'000);
        check(n_ready > 0 || asking, "the program said nothing for five minutes");
        if (fds[0].revents != 0) {
            ssize_t n =
                write(in.write_end, setting.input.data() + written, setting.input.size() - written);
            if (n > 0) written += static_cast<size_t>(n);
            if (n <= 0 || written == setting.input.size()) in.close_write();
        }
        char bytes[4096];
        if (fds[1].revents != 0) {
            ssize_t n = read(out.read_end, bytes, sizeof bytes);
            if (n > 0) result.out.append(bytes, static_cast<size_t>(n));
            if (n <= 0 || result.out.size() >= setting.read_at_most) out.close_read();
        }
        if (fds[2].revents != 0) {
            ssize_t n = read(err.read_end, bytes, sizeof bytes);
            if (n > 0) result.err.append(bytes, static_cast<size_t>(n));
            if (n <= 0) err.close_read();
        }
        if (!interrupted && ((!setting.interrupt_after.empty() &&
                              result.out.find(setting.interrupt_after) != std::string::npos) ||
                             (asking && setting.interrupt_when()))) {
            interrupted = true;
            kill(child, setting.signal);
        }
    }
}

}  // namespace

Result run(const Arguments& arguments, const Setting& setting) {
    signal(SIGPIPE, SIG_IGN);
    scratch_folder();  // made by the parent, which removes it
    Pipe in, out, err;
    pid_t child = fork();
    check(child >= 0, "fork");
    if (child == 0) {
        signal(SIGPIPE, SIG_DFL);
        dup2(in.read_end, 0);
        dup2(err.write_end, 2);
        if (setting.close_output) {
            close(1);
        } else if (!setting.output_path.empty()) {
            dup2(open(setting.output_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), 1);
        } else {
            dup2(out.write_end, 1);
        }
        if (setting.max_file_bytes > 0) {
            const rlimit limit = {setting.max_file_bytes, setting.max_file_bytes};
            setrlimit(RLIMIT_FSIZE, &limit);
        }
        execute(arguments, setting.environment);
    }
    in.close_read(), out.close_write(), err.close_write();
    Result result;
    exchange(child, setting, in, out, err, result);
    result.status = status_of(child);
    return result;
}

const std::string& scratch_folder() {
    static const Folder folder;
    return folder.path;
}

const std::string& tiny_model() {
    static const std::string path = [] {
        std::string file = scratch_folder() + "/tiny.gguf";
        Result result = run({"synth", "tiny-llama3", "--format", "Q4_0", "-o", file, "-q"});
        check(result.status == 0, "ridge synth failed");
        return file;
    }();
    return path;
}

std::string write_scratch(const std::string& name, const std::string& bytes) {
    std::string path = scratch_folder() + "/" + name;
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
}

bool Terminal::available() {
    int fd = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (fd < 0) return false;
    const char* name = ptsname(fd);
    bool found = name != nullptr && access(name, F_OK) == 0;
    close(fd);
    return found;
}

Terminal::Terminal(const Arguments& arguments,
                   const std::map<std::string, std::string>& environment) {
    scratch_folder();  // made by the parent, which removes it
    winsize size = {40, 160, 0, 0};
    child_ = forkpty(&fd_, nullptr, nullptr, &size);
    check(child_ >= 0, "forkpty");
    if (child_ == 0) execute(arguments, environment);
}

Terminal::~Terminal() {
    if (child_ > 0) {
        kill(child_, SIGKILL);
        status_of(child_);
    }
    close(fd_);
}

void Terminal::send(const std::string& keys) {
    check(write(fd_, keys.data(), keys.size()) == static_cast<ssize_t>(keys.size()), "write");
}

bool Terminal::read_some(double seconds) {
    pollfd fd = {fd_, POLLIN, 0};
    if (poll(&fd, 1, static_cast<int>(seconds * 1000)) <= 0) return false;
    char bytes[4096];
    ssize_t n = read(fd_, bytes, sizeof bytes);
    if (n > 0) seen_.append(bytes, static_cast<size_t>(n));
    return n > 0;
}

bool Terminal::wait_for(const std::string& text, double seconds) {
    using Clock = std::chrono::steady_clock;
    auto end = Clock::now() + std::chrono::duration<double>(seconds);
    for (;;) {
        size_t at = seen_.find(text, waited_);
        if (at != std::string::npos) {
            waited_ = at + text.size();
            return true;
        }
        double left = std::chrono::duration<double>(end - Clock::now()).count();
        if (left <= 0 || !read_some(left)) return false;
    }
}

int Terminal::finish() {
    while (read_some(60)) {
    }
    pollfd fd = {fd_, POLLIN, 0};
    if (poll(&fd, 1, 0) == 0) kill(child_, SIGKILL);  // it waits for more input
    int status = status_of(child_);
    child_ = -1;
    return status;
}

}  // namespace ridge::cli
