#include "base/mapped_file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/printable.h"

namespace ridge {
namespace {

// The mapped ranges, for the SIGBUS handler alone. A signal handler can reach nothing but globals;
// the slots are written by MappedFile and read only on the way to exit.
struct GuardSlot {
    std::atomic<const std::byte*> begin{nullptr};
    std::atomic<size_t> size{0};
    std::atomic<const char*> path{nullptr};  // printable: the handler writes it as it is
    std::atomic<bool> used{false};
};
constexpr int kGuardSlots = 1024;
GuardSlot guard_slots[kGuardSlots];

void write_text(const char* text) {
    ssize_t ignored = write(STDERR_FILENO, text, strlen(text));
    (void)ignored;
}

extern "C" void on_sigbus(int, siginfo_t* info, void*) {
    auto* at = static_cast<const std::byte*>(info->si_addr);
    for (GuardSlot& slot : guard_slots) {
        const std::byte* begin = slot.begin.load();
        if (begin == nullptr || at < begin || at >= begin + slot.size.load()) continue;
        write_text("ridge: ");
        write_text(slot.path.load());
        write_text(": the file was cut short, or could not be read, while it was in use\n");
        _exit(1);
    }
    signal(SIGBUS, SIG_DFL);  // not ours: let it end the program as it would have
    raise(SIGBUS);
}

int take_guard_slot(const std::byte* data, size_t size, const char* path) {
    static const bool installed = [] {
        struct sigaction action = {};
        action.sa_sigaction = on_sigbus;
        action.sa_flags = SA_SIGINFO;
        sigaction(SIGBUS, &action, nullptr);
        return true;
    }();
    (void)installed;
    for (int i = 0; i < kGuardSlots; i++) {
        bool expected = false;
        if (!guard_slots[i].used.compare_exchange_strong(expected, true)) continue;
        guard_slots[i].path = strdup(path);
        guard_slots[i].size = size;
        guard_slots[i].begin = data;
        return i;
    }
    throw Error("{}: more than {} files mapped at once", printable(path), kGuardSlots);
}

void release_guard_slot(int slot) {
    if (slot < 0) return;
    guard_slots[slot].begin = nullptr;
    free(const_cast<char*>(guard_slots[slot].path.exchange(nullptr)));
    guard_slots[slot].used = false;
}

const char* kind_of(mode_t mode) {
    if (S_ISDIR(mode)) return "a directory";
    if (S_ISFIFO(mode)) return "a FIFO";
    if (S_ISCHR(mode) || S_ISBLK(mode)) return "a device";
    if (S_ISSOCK(mode)) return "a socket";
    return "not a regular file";
}

}  // namespace

MappedFile MappedFile::open(const std::string& path) {
    int fd = ::open(path.c_str(),
                    O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // non-blocking: a FIFO must not hang
    if (fd < 0) throw Error("{}: cannot open: {}", printable(path), strerror(errno));
    struct stat info = {};
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        close(fd);
        throw Error("{}: is {}, expected a regular file", printable(path), kind_of(info.st_mode));
    }
    MappedFile file;
    file.path_ = path;
    file.size_ = static_cast<size_t>(info.st_size);
    if (file.size_ > 0) {
        void* data = mmap(nullptr, file.size_, PROT_READ, MAP_PRIVATE, fd, 0);
        int error = errno;
        close(fd);
        if (data == MAP_FAILED) throw Error("{}: cannot map: {}", printable(path), strerror(error));
        file.data_ = static_cast<std::byte*>(data);
        file.guard_slot_ = take_guard_slot(file.data_, file.size_, printable(path).c_str());
    } else {
        close(fd);
    }
    return file;
}

MappedFile MappedFile::anonymous(size_t size, std::string name) {
    MappedFile file;
    file.path_ = std::move(name);
    file.size_ = size;
    file.anonymous_ = true;
    if (size > 0) {
        void* data = reserve_memory(size);
        if (data == nullptr) throw Error("{}: no memory for {} bytes", printable(file.path_), size);
        file.data_ = static_cast<std::byte*>(data);
    }
    return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      anonymous_(other.anonymous_),
      guard_slot_(std::exchange(other.guard_slot_, -1)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(anonymous_, other.anonymous_);
    std::swap(guard_slot_, other.guard_slot_);
    return *this;
}

MappedFile::~MappedFile() {
    release_guard_slot(guard_slot_);
    if (data_ != nullptr) munmap(data_, size_);
}

std::span<std::byte> MappedFile::writable_bytes() {
    CHECK(anonymous_);
    return {data_, size_};
}

void MappedFile::drop_pages(size_t offset, size_t n_bytes) const {
    if (anonymous_) return;  // there is no file to read them from again
    discard_pages(offset, n_bytes);
}

void MappedFile::discard_pages(size_t offset, size_t n_bytes) const {
    CHECK(offset <= size_ && n_bytes <= size_ - offset);
    size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    size_t begin = (offset + page - 1) / page * page, end = (offset + n_bytes) / page * page;
    if (begin < end) madvise(data_ + begin, end - begin, MADV_DONTNEED);
}

void MappedFile::prefetch() const {
    if (size_ > 0 && !anonymous_) madvise(data_, size_, MADV_WILLNEED);
}

}  // namespace ridge
