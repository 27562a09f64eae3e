#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ridge {

// Whole small files. Every error names the path and what the system said.

enum class FileKind { kMissing, kRegular, kDirectory, kOther };
FileKind file_kind(const std::string& path);  // follows links
// Whether both paths lead to one file that exists: through links, or as two names of it.
bool same_file(const std::string& a, const std::string& b);

// The bytes of a regular file of at most `max_bytes`; Error otherwise. A path of "-" reads standard
// input.
std::string read_file(const std::string& path, uint64_t max_bytes);

// Writes through a temporary file in the same folder, mode 0600, renamed into place. With `replace`
// false an existing file is an error, and stays as it was.
void write_file(const std::string& path, std::string_view bytes, bool replace);

// The same for what is too large to hold: pieces are appended, and nothing has the name `path`
// before commit(). Without it the temporary file is removed. From the mode the umask is taken.
class FileWriter {
  public:
    FileWriter(std::string path, bool replace, unsigned mode = 0666);
    ~FileWriter();
    FileWriter(const FileWriter&) = delete;
    FileWriter& operator=(const FileWriter&) = delete;

    void append(std::string_view bytes);
    void commit();

  private:
    std::string path_, temporary_;  // temporary_ is empty once there is none
    bool replace_;
    int fd_;
};

// Names of the entries of a folder, sorted, without "." and "..".
std::vector<std::string> list_folder(const std::string& path);

// Like mkdir -p, mode 0700. Returns those that were not there, the outermost first.
std::vector<std::string> make_folders(const std::string& path);

// For what a program cleans up behind itself: a file, or a folder that is empty. Anything else
// stays, and nothing is an error.
void try_remove(const std::string& path);

// While one lives, another process waits for one of the same folder: for what is read there,
// changed and written again. Waiting ends after two seconds, without it, and so it is where the
// file system has no locks: files must be whole either way.
class FolderLock {
  public:
    explicit FolderLock(const std::string& path);
    ~FolderLock();
    FolderLock(const FolderLock&) = delete;
    FolderLock& operator=(const FolderLock&) = delete;

  private:
    int fd_;
};

// $XDG_STATE_HOME/ridge and $XDG_CACHE_HOME/ridge, with the standard's defaults under $HOME; empty
// without a home.
std::string state_folder();
std::string cache_folder();

}  // namespace ridge
