#include "base/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/check.h"
#include "base/error.h"
#include "base/printable.h"
#include "base/timer.h"

extern char** environ;

namespace ridge {
namespace {

// Both ends are closed when another program starts, but for what it is given.
struct Pipe {
    int read_end = -1, write_end = -1;

    Pipe() {
        int ends[2];
        if (pipe2(ends, O_CLOEXEC) != 0) throw Error("cannot make a pipe: {}", strerror(errno));
        read_end = ends[0], write_end = ends[1];
    }
    ~Pipe() {
        close_end(read_end);
        close_end(write_end);
    }
    Pipe(const Pipe&) = delete;

    static void close_end(int& fd) {
        if (fd >= 0) close(fd);
        fd = -1;
    }
};

struct Actions {
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;

    explicit Actions(bool own_group) {
        posix_spawn_file_actions_init(&actions);
        posix_spawnattr_init(&attributes);
        // The program ignores SIGPIPE; the other one ends by it, as programs do.
        sigset_t defaults;
        sigemptyset(&defaults);
        sigaddset(&defaults, SIGPIPE);
        posix_spawnattr_setsigdefault(&attributes, &defaults);
        posix_spawnattr_setpgroup(&attributes, 0);
        const int flags = POSIX_SPAWN_SETSIGDEF | (own_group ? POSIX_SPAWN_SETPGROUP : 0);
        posix_spawnattr_setflags(&attributes, static_cast<short>(flags));
    }
    ~Actions() {
        posix_spawn_file_actions_destroy(&actions);
        posix_spawnattr_destroy(&attributes);
    }
    Actions(const Actions&) = delete;
};

// A child that is waited for in any case: where an error ends the talk, it is ended, too.
struct Child {
    pid_t id = -1;
    bool has_group = false;  // of its own, which ends with it

    ~Child() {
        if (id < 0) return;
        kill(has_group ? -id : id, SIGKILL);
        wait();
    }
    // Whether it ends by itself within so long.
    bool ends_within(std::chrono::milliseconds time) {
        constexpr auto kStep = std::chrono::milliseconds(5);
        for (; time.count() > 0; time -= kStep) {
            siginfo_t info = {};
            constexpr int kHow = WEXITED | WNOHANG | WNOWAIT;
            if (waitid(P_PID, static_cast<id_t>(id), &info, kHow) == 0 && info.si_pid != 0) {
                return true;
            }
            std::this_thread::sleep_for(kStep);
        }
        return false;
    }
    int wait() {
        int status = 0;
        while (waitpid(id, &status, 0) < 0 && errno == EINTR) {
        }
        id = -1;
        return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
};

// Appends what can be read; closes the end where nothing will come any more.
void read_some(int& fd, const std::string& name, size_t max_bytes, std::string& text) {
    char bytes[16384];
    const ssize_t n = read(fd, bytes, sizeof bytes);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (n <= 0) return Pipe::close_end(fd);
    text.append(bytes, static_cast<size_t>(n));
    if (text.size() > max_bytes) {
        throw Error("{}: wrote more than {} bytes", printable(name), max_bytes);
    }
}

void write_some(int& fd, std::string_view& input) {
    const ssize_t n = write(fd, input.data(), input.size());
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (n > 0) input.remove_prefix(static_cast<size_t>(n));
    if (n < 0 || input.empty()) Pipe::close_end(fd);  // one that reads no further is no error
}

// Of whoever waits: how long until it looks at the clock and calls idle().
constexpr int kPollMs = 100;

// Who waits for another program: for how long, and what is called meanwhile.
struct Patience {
    double seconds;
    const std::function<void()>& idle;
    Timer timer = Timer();

    // Error where the time is over; `what` it is that has not come.
    void check(const std::string& name, std::string_view what) const {
        if (timer.elapsed_ms() > 1e3 * seconds) {
            throw Error("{}: {} within {:g} s", printable(name), what, seconds);
        }
        if (idle) idle();
    }
};

void talk(const std::string& name, std::string_view input, size_t max_bytes,
          const Patience& patience, Pipe& in, Pipe& out, Pipe& errors, ChildResult& result) {
    if (input.empty()) Pipe::close_end(in.write_end);
    while (in.write_end >= 0 || out.read_end >= 0 || errors.read_end >= 0) {
        patience.check(name, "did not end");
        pollfd fds[3] = {{in.write_end, POLLOUT, 0},
                         {out.read_end, POLLIN, 0},
                         {errors.read_end, POLLIN, 0}};  // those that are closed are ignored
        if (poll(fds, 3, kPollMs) < 0) {
            if (errno == EINTR) continue;
            throw Error("{}: {}", printable(name), strerror(errno));
        }
        if (fds[0].revents != 0) write_some(in.write_end, input);
        if (fds[1].revents != 0) read_some(out.read_end, name, max_bytes, result.output);
        if (fds[2].revents != 0) read_some(errors.read_end, name, max_bytes, result.errors);
    }
}

// Starts the program on these pipes, of which only the ends of this side stay open; writing to it
// never waits. False where there is none of this name.
bool start_child(const std::vector<std::string>& arguments, Pipe& in, Pipe& out, Pipe& errors,
                 Child& child) {
    Actions start(child.has_group);
    posix_spawn_file_actions_adddup2(&start.actions, in.read_end, STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&start.actions, out.write_end, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&start.actions, errors.write_end, STDERR_FILENO);
    std::vector<char*> pointers;
    for (const std::string& argument : arguments) {
        pointers.push_back(const_cast<char*>(argument.c_str()));
    }
    pointers.push_back(nullptr);
    const int error = posix_spawnp(&child.id, pointers[0], &start.actions, &start.attributes,
                                   pointers.data(), environ);
    if (error != 0) {
        child.id = -1;
        if (error == ENOENT) return false;
        throw Error("{}: cannot be started: {}", printable(arguments[0]), strerror(error));
    }
    Pipe::close_end(in.read_end);
    Pipe::close_end(out.write_end);
    Pipe::close_end(errors.write_end);
    fcntl(in.write_end, F_SETFL, O_NONBLOCK);
    return true;
}

// Of what a program wrote to standard error: its last line that is not empty.
std::string last_line(std::string_view text) {
    const size_t last = text.find_last_not_of(" \t\r\n");
    if (last == std::string_view::npos) return {};
    const size_t end = text.rfind('\n', last);
    const size_t begin = end == std::string_view::npos ? 0 : end + 1;
    return printable(text.substr(begin, last + 1 - begin), 300);
}

}  // namespace

std::optional<ChildResult> run_child(const std::vector<std::string>& arguments,
                                     std::string_view input, size_t max_bytes, double seconds,
                                     const std::function<void()>& idle) {
    const Patience patience{seconds, idle};
    Pipe in, out, errors;
    Child child;
    if (!start_child(arguments, in, out, errors, child)) return std::nullopt;
    ChildResult result;
    talk(arguments[0], input, max_bytes, patience, in, out, errors, result);
    // One that has closed both of its streams need not have ended.
    while (!child.ends_within(std::chrono::milliseconds(kPollMs))) {
        patience.check(arguments[0], "did not end");
    }
    result.status = child.wait();
    return result;
}

struct ChildTalk::State {
    std::string name;
    Pipe in, out, errors;
    Child child{.has_group = true};  // ends before the pipes do
    bool failed = false;
    std::string output;  // that came, and was not asked for yet
    std::string said;    // on standard error, the end of it

    void read_errors() {
        constexpr size_t kKept = 4096, kMost = size_t{1} << 20;
        read_some(errors.read_end, name, kMost, said);
        if (said.size() > kKept) said.erase(0, said.size() - kKept);
    }

    // Why there will be no answer: it has closed its standard output.
    Error ended() {
        Pipe::close_end(in.write_end);
        if (!child.ends_within(std::chrono::seconds(1))) {
            return Error("{}: closed its standard output", printable(name));
        }
        while (errors.read_end >= 0) {  // what is left of it; a child of its own may hold it open
            pollfd fd = {errors.read_end, POLLIN, 0};
            if (poll(&fd, 1, 0) <= 0) break;
            read_errors();
        }
        const int status = child.wait();
        const std::string how = status > 128 ? fmt::format("by signal {}", status - 128)
                                             : fmt::format("with status {}", status);
        const std::string why = last_line(said);
        return Error("{}: ended {}{}{}", printable(name), how, why.empty() ? "" : ": ", why);
    }

    // What can be read or written within a tenth of a second.
    void exchange(std::string_view& input, size_t max_bytes) {
        pollfd fds[3] = {{input.empty() ? -1 : in.write_end, POLLOUT, 0},
                         {out.read_end, POLLIN, 0},
                         {errors.read_end, POLLIN, 0}};  // those below 0 are ignored
        if (poll(fds, 3, kPollMs) < 0) {
            if (errno == EINTR) return;
            throw Error("{}: {}", printable(name), strerror(errno));
        }
        if (fds[0].revents != 0) {
            const ssize_t n = write(in.write_end, input.data(), input.size());
            if (n > 0) input.remove_prefix(static_cast<size_t>(n));
            if (n < 0 && errno != EINTR && errno != EAGAIN) input = {};  // reading tells the end
        }
        if (fds[1].revents != 0) read_some(out.read_end, name, max_bytes, output);
        if (fds[2].revents != 0) read_errors();
    }
};

ChildTalk::ChildTalk(std::unique_ptr<State> state) : state_(std::move(state)) {}

ChildTalk::~ChildTalk() {
    Pipe::close_end(state_->in.write_end);
    if (state_->child.id < 0 || state_->failed) return;
    if (state_->child.ends_within(std::chrono::seconds(1))) state_->child.wait();
}

std::unique_ptr<ChildTalk> ChildTalk::start(std::string name,
                                            const std::vector<std::string>& arguments) {
    auto state = std::make_unique<State>();
    state->name = std::move(name);
    if (!start_child(arguments, state->in, state->out, state->errors, state->child)) {
        return nullptr;
    }
    return std::unique_ptr<ChildTalk>(new ChildTalk(std::move(state)));
}

std::string ChildTalk::ask(std::string_view line, double seconds, size_t max_bytes,
                           const std::function<void()>& idle) {
    State& state = *state_;
    CHECK(!state.failed);
    state.failed = true;  // until there is an answer
    const std::string text = std::string(line) + "\n";
    std::string_view input = text;
    const Patience patience{seconds, idle};
    size_t end;
    while ((end = state.output.find('\n')) == std::string::npos) {
        if (state.out.read_end < 0) throw state.ended();
        patience.check(state.name, "no answer");
        state.exchange(input, max_bytes);
    }
    std::string answer = state.output.substr(0, end);
    state.output.erase(0, end + 1);
    state.failed = false;
    return answer;
}

}  // namespace ridge
