#include "base/files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/printable.h"
#include "base/system.h"

namespace ridge {
namespace {

struct FileDescriptor {
    int fd;
    ~FileDescriptor() {
        if (fd > STDERR_FILENO) close(fd);
    }
};

// Gives the temporary file the name `path` if nothing has that name; false, with errno, otherwise.
bool rename_to_new(const char* temporary, const char* path) {
    if (link(temporary, path) == 0) {  // fails where the name exists, which rename() would not
        unlink(temporary);
        return true;
    }
    if (errno != EPERM && errno != EOPNOTSUPP && errno != ENOSYS) return false;
    // A file system without hard links: claim the name, then rename over the claim.
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) return false;
    close(fd);
    return rename(temporary, path) == 0;
}

// Makes a file that nobody else has, named after `path`, and opens it for writing; the name takes
// its end. -1, with errno, where that cannot be. mkstemp() would not honour the umask.
int open_temporary(std::string& path, unsigned mode) {
    constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz0123456789";
    const std::string stem = path + ".";
    for (int i = 0; i < 100; i++) {
        path = stem;
        uint64_t random = random_seed();
        for (int n = 0; n < 8; n++, random /= kLetters.size())
            path += kLetters[random % kLetters.size()];
        int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
        if (fd >= 0 || errno != EEXIST) return fd;
    }
    return -1;
}

std::string xdg_folder(const char* variable, const char* below_home) {
    const char* base = std::getenv(variable);
    if (base != nullptr && base[0] == '/')
        return std::string(base) + "/ridge";  // the standard: relative is ignored
    const char* home = std::getenv("HOME");
    if (home == nullptr || home[0] == 0) return {};
    return std::string(home) + below_home + "/ridge";
}

}  // namespace

FileKind file_kind(const std::string& path) {
    struct stat info = {};
    if (stat(path.c_str(), &info) != 0) return FileKind::kMissing;
    if (S_ISREG(info.st_mode)) return FileKind::kRegular;
    return S_ISDIR(info.st_mode) ? FileKind::kDirectory : FileKind::kOther;
}

bool same_file(const std::string& a, const std::string& b) {
    struct stat one = {}, two = {};
    return stat(a.c_str(), &one) == 0 && stat(b.c_str(), &two) == 0 && one.st_dev == two.st_dev &&
           one.st_ino == two.st_ino;
}

std::string read_file(const std::string& path, uint64_t max_bytes) {
    bool standard_input = path == "-";
    FileDescriptor file{standard_input ? STDIN_FILENO
                                       : open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
    if (file.fd < 0) throw Error("{}: cannot open: {}", printable(path), strerror(errno));
    if (!standard_input) {
        struct stat info = {};
        if (fstat(file.fd, &info) != 0)
            throw Error("{}: cannot read: {}", printable(path), strerror(errno));
        if (S_ISDIR(info.st_mode))
            throw Error("{}: is a directory, expected a file", printable(path));
        // A pipe that a shell made (<(...)) is welcome; it is read like standard input.
        if (!S_ISREG(info.st_mode)) fcntl(file.fd, F_SETFL, fcntl(file.fd, F_GETFL) & ~O_NONBLOCK);
    }
    std::string bytes;
    char chunk[65536];
    for (;;) {
        ssize_t n = read(file.fd, chunk, sizeof chunk);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) throw Error("{}: cannot read: {}", printable(path), strerror(errno));
        if (n == 0) return bytes;
        if (bytes.size() + static_cast<size_t>(n) > max_bytes) {
            throw Error("{}: is larger than {} bytes",
                        standard_input ? "standard input" : printable(path), max_bytes);
        }
        bytes.append(chunk, static_cast<size_t>(n));
    }
}

void write_file(const std::string& path, std::string_view bytes, bool replace) {
    FileWriter file(path, replace, 0600);
    file.append(bytes);
    file.commit();
}

FileWriter::FileWriter(std::string path, bool replace, unsigned mode)
    : path_(std::move(path)), temporary_(path_), replace_(replace), fd_(-1) {
    const FileKind kind = file_kind(path_);
    if (kind == FileKind::kDirectory || kind == FileKind::kOther) {
        // Renaming over a device or a FIFO would put an ordinary file in its place.
        throw Error("{}: is {}, expected the name of a file", printable(path_),
                    kind == FileKind::kDirectory ? "a directory" : "a device, a FIFO or a socket");
    }
    if (!replace && kind == FileKind::kRegular) {
        throw Error("{}: exists already; it was left as it was", printable(path_));
    }
    fd_ = open_temporary(temporary_, mode);
    if (fd_ < 0) throw Error("{}: cannot write: {}", printable(path_), strerror(errno));
}

FileWriter::~FileWriter() {
    close(fd_);
    if (!temporary_.empty()) unlink(temporary_.c_str());
}

void FileWriter::append(std::string_view bytes) {
    const int error = write_bytes(fd_, bytes);
    if (error != 0) throw Error("{}: cannot write: {}", printable(path_), strerror(error));
}

void FileWriter::commit() {
    if (fsync(fd_) != 0 && errno != EINVAL && errno != EROFS) {
        throw Error("{}: cannot write: {}", printable(path_), strerror(errno));
    }
    bool done = replace_ ? rename(temporary_.c_str(), path_.c_str()) == 0
                         : rename_to_new(temporary_.c_str(), path_.c_str());
    if (!done) throw Error("{}: cannot write: {}", printable(path_), strerror(errno));
    temporary_.clear();
}

std::vector<std::string> list_folder(const std::string& path) {
    DIR* folder = opendir(path.c_str());
    if (folder == nullptr) throw Error("{}: cannot list: {}", printable(path), strerror(errno));
    std::vector<std::string> names;
    while (const dirent* entry = readdir(folder)) {
        std::string name = entry->d_name;
        if (name != "." && name != "..") names.push_back(name);
    }
    closedir(folder);
    std::sort(names.begin(), names.end());
    return names;
}

std::vector<std::string> make_folders(const std::string& path) {
    std::vector<std::string> made;
    for (size_t at = 1; at <= path.size(); at++) {
        if (at < path.size() && path[at] != '/') continue;
        std::string part = path.substr(0, at);
        if (mkdir(part.c_str(), 0700) == 0) {
            made.push_back(std::move(part));
        } else if (errno != EEXIST) {
            throw Error("{}: cannot make the folder: {}", printable(part), strerror(errno));
        }
    }
    if (file_kind(path) != FileKind::kDirectory)
        throw Error("{}: cannot make the folder: a file has that name", printable(path));
    return made;
}

void try_remove(const std::string& path) {
    std::remove(path.c_str());
}

FolderLock::FolderLock(const std::string& path)
    : fd_(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    constexpr int kMostTries = 400;
    constexpr useconds_t kRestUs = 5000;
    if (fd_ < 0) return;
    for (int i = 0; i < kMostTries && flock(fd_, LOCK_EX | LOCK_NB) != 0; i++) {
        if (errno != EWOULDBLOCK && errno != EINTR) return;
        usleep(kRestUs);
    }
}

FolderLock::~FolderLock() {
    if (fd_ >= 0) close(fd_);
}

std::string state_folder() {
    return xdg_folder("XDG_STATE_HOME", "/.local/state");
}
std::string cache_folder() {
    return xdg_folder("XDG_CACHE_HOME", "/.cache");
}

}  // namespace ridge
