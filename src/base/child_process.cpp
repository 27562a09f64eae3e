#include "base/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/printable.h"

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

    Actions() {
        posix_spawn_file_actions_init(&actions);
        posix_spawnattr_init(&attributes);
        // The program ignores SIGPIPE; the other one ends by it, as programs do.
        sigset_t defaults;
        sigemptyset(&defaults);
        sigaddset(&defaults, SIGPIPE);
        posix_spawnattr_setsigdefault(&attributes, &defaults);
        posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
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

    ~Child() {
        if (id < 0) return;
        kill(id, SIGKILL);
        wait();
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

void talk(const std::string& name, std::string_view input, size_t max_bytes, Pipe& in, Pipe& out,
          Pipe& errors, ChildResult& result) {
    fcntl(in.write_end, F_SETFL, O_NONBLOCK);
    if (input.empty()) Pipe::close_end(in.write_end);
    while (in.write_end >= 0 || out.read_end >= 0 || errors.read_end >= 0) {
        pollfd fds[3] = {{in.write_end, POLLOUT, 0},
                         {out.read_end, POLLIN, 0},
                         {errors.read_end, POLLIN, 0}};  // those that are closed are ignored
        if (poll(fds, 3, -1) < 0 && errno != EINTR) {
            throw Error("{}: {}", printable(name), strerror(errno));
        }
        if (fds[0].revents != 0) write_some(in.write_end, input);
        if (fds[1].revents != 0) read_some(out.read_end, name, max_bytes, result.output);
        if (fds[2].revents != 0) read_some(errors.read_end, name, max_bytes, result.errors);
    }
}

}  // namespace

std::optional<ChildResult> run_child(const std::vector<std::string>& arguments,
                                     std::string_view input, size_t max_bytes) {
    Pipe in, out, errors;
    Actions start;
    posix_spawn_file_actions_adddup2(&start.actions, in.read_end, STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&start.actions, out.write_end, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&start.actions, errors.write_end, STDERR_FILENO);
    std::vector<char*> pointers;
    for (const std::string& argument : arguments) {
        pointers.push_back(const_cast<char*>(argument.c_str()));
    }
    pointers.push_back(nullptr);
    Child child;
    const int error = posix_spawnp(&child.id, pointers[0], &start.actions, &start.attributes,
                                   pointers.data(), environ);
    if (error != 0) {
        child.id = -1;
        if (error == ENOENT) return std::nullopt;
        throw Error("{}: cannot be started: {}", printable(arguments[0]), strerror(error));
    }
    Pipe::close_end(in.read_end);
    Pipe::close_end(out.write_end);
    Pipe::close_end(errors.write_end);
    ChildResult result;
    talk(arguments[0], input, max_bytes, in, out, errors, result);
    result.status = child.wait();
    return result;
}

}  // namespace ridge
