#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace ridge {

// A regular file mapped read-only, or an anonymous block of memory with the same face. Move-only.
//
// A file that is cut short while it is mapped makes the next access beyond its end a SIGBUS. The
// first MappedFile installs a handler that prints one line naming the file, restores nothing and
// exits with status 1.
class MappedFile {
  public:
    MappedFile() = default;
    // Throws Error when the path cannot be opened or is not a regular file (directory, FIFO,
    // device: named so).
    static MappedFile open(const std::string& path);
    // Zeroed anonymous memory of `size` bytes, writable through writable_bytes(); `name` stands for
    // a path in messages.
    static MappedFile anonymous(size_t size, std::string name);

    MappedFile(MappedFile&& other) noexcept;
    MappedFile& operator=(MappedFile&& other) noexcept;
    ~MappedFile();

    const std::string& path() const { return path_; }
    std::span<const std::byte> bytes() const { return {data_, size_}; }
    std::span<std::byte> writable_bytes();  // anonymous() only

    // Says that the whole pages inside [offset, offset + n_bytes) are not needed soon: resident
    // memory shrinks, and a later read comes from the file again.
    void drop_pages(size_t offset, size_t n_bytes) const;
    // Says that they are not needed again at all: an anonymous block loses what it held there.
    void discard_pages(size_t offset, size_t n_bytes) const;
    // Starts reading the file ahead.
    void prefetch() const;

  private:
    std::string path_;
    std::byte* data_ = nullptr;
    size_t size_ = 0;
    bool anonymous_ = false;
    int guard_slot_ = -1;
};

}  // namespace ridge
