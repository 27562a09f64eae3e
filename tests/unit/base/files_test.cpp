#include "base/files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <optional>
#include <thread>

#include "base/error.h"
#include "support/error_of.h"
#include "support/temporary_folder.h"

namespace ridge {
namespace {

mode_t mode_of(const std::string& path) {
    struct stat info = {};
    EXPECT_EQ(stat(path.c_str(), &info), 0) << path;
    return info.st_mode & 07777;
}

// Sets a variable of the environment while it lives; nullptr removes it.
class ScopedVariable {
  public:
    ScopedVariable(const char* name, const char* value) : name_(name) {
        if (const char* before = std::getenv(name)) before_ = before;
        set(value);
    }
    ~ScopedVariable() { set(before_ ? before_->c_str() : nullptr); }

  private:
    void set(const char* value) {
        if (value != nullptr) {
            setenv(name_, value, 1);
        } else {
            unsetenv(name_);
        }
    }
    const char* name_;
    std::optional<std::string> before_;
};

TEST(FilesTest, kinds_are_told_apart_through_links) {
    TemporaryFolder folder;
    std::string file = folder.write("file", "x");
    ASSERT_EQ(mkfifo(folder.path("fifo").c_str(), 0600), 0);
    ASSERT_EQ(symlink("file", folder.path("link").c_str()), 0);
    ASSERT_EQ(symlink("nowhere", folder.path("dangling").c_str()), 0);
    EXPECT_EQ(file_kind(file), FileKind::kRegular);
    EXPECT_EQ(file_kind(folder.path("link")), FileKind::kRegular);
    EXPECT_EQ(file_kind(folder.path()), FileKind::kDirectory);
    EXPECT_EQ(file_kind(folder.path("fifo")), FileKind::kOther);
    EXPECT_EQ(file_kind("/dev/null"), FileKind::kOther);
    EXPECT_EQ(file_kind(folder.path("dangling")), FileKind::kMissing);
    EXPECT_EQ(file_kind(folder.path("missing")), FileKind::kMissing);
}

TEST(FilesTest, reading_gives_all_bytes_up_to_the_limit) {
    TemporaryFolder folder;
    std::string bytes(200'000, 'a');
    bytes[0] = '\0', bytes.back() = '\xff';
    std::string path = folder.write("file", bytes);
    EXPECT_EQ(read_file(path, bytes.size()), bytes);
    EXPECT_EQ(read_file(folder.write("empty", ""), 0), "");
    EXPECT_EQ(error_of([&] { read_file(path, bytes.size() - 1); }),
              path + ": is larger than 199999 bytes");
}

TEST(FilesTest, what_cannot_be_read_is_named) {
    TemporaryFolder folder;
    EXPECT_EQ(error_of([&] { read_file(folder.path("missing"), 10); }),
              folder.path("missing") + ": cannot open: No such file or directory");
    EXPECT_EQ(error_of([&] { read_file(folder.path(), 10); }),
              folder.path() + ": is a directory, expected a file");
    EXPECT_EQ(error_of([&] { read_file("/dev/zero", 1000); }),
              "/dev/zero: is larger than 1000 bytes");
    EXPECT_EQ(error_of([&] { read_file(folder.path("\x1b[31m"), 10); }),
              folder.path("\\x1b[31m") + ": cannot open: No such file or directory");
}

TEST(FilesTest, a_pipe_is_read_to_its_end) {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    std::string bytes(300'000, 'p');  // more than a pipe holds
    std::thread writer([&] {
        for (size_t at = 0; at < bytes.size();) {
            ssize_t n =
                write(ends[1], bytes.data() + at, std::min<size_t>(bytes.size() - at, 50'000));
            ASSERT_GT(n, 0);
            at += static_cast<size_t>(n);
        }
        close(ends[1]);
    });
    EXPECT_EQ(read_file("/dev/fd/" + std::to_string(ends[0]), 1'000'000), bytes);
    writer.join();
    close(ends[0]);
}

TEST(FilesTest, a_file_written_in_pieces_appears_when_it_is_whole_or_not_at_all) {
    TemporaryFolder folder;
    {
        FileWriter file(folder.path("dropped"), false);
        file.append("never seen");
    }
    EXPECT_EQ(list_folder(folder.path()), std::vector<std::string>{});
    FileWriter file(folder.path("new"), false);
    file.append("first, ");
    EXPECT_EQ(file_kind(folder.path("new")), FileKind::kMissing);
    file.append("second");
    file.commit();
    EXPECT_EQ(folder.read("new"), "first, second");
    EXPECT_EQ(list_folder(folder.path()), std::vector<std::string>{"new"});
    EXPECT_EQ(error_of([&] { FileWriter again(folder.path("new"), false); }),
              folder.path("new") + ": exists already; it was left as it was");
    EXPECT_EQ(error_of([&] { FileWriter onto(folder.path(), true); }),
              folder.path() + ": is a directory, expected the name of a file");
}

TEST(FilesTest, a_file_written_in_pieces_has_the_mode_that_the_umask_leaves) {
    TemporaryFolder folder;
    const mode_t before = umask(0);
    for (auto [mask, want] : {std::pair(0022u, 0644u), std::pair(0027u, 0640u),
                              std::pair(0077u, 0600u), std::pair(0000u, 0666u)}) {
        umask(static_cast<mode_t>(mask));
        FileWriter file(folder.path("new"), true);
        file.commit();
        EXPECT_EQ(mode_of(folder.path("new")), want);
    }
    umask(before);
}

TEST(FilesTest, two_names_of_one_file_are_the_same_file) {
    TemporaryFolder folder;
    std::string file = folder.write("file", "x"), other = folder.write("other", "x");
    ASSERT_EQ(symlink("file", folder.path("link").c_str()), 0);
    ASSERT_EQ(link(file.c_str(), folder.path("second").c_str()), 0);
    for (const char* name : {"file", "link", "second", "./file"})
        EXPECT_TRUE(same_file(file, folder.path(name))) << name;
    EXPECT_FALSE(same_file(file, other));
    EXPECT_FALSE(same_file(file, folder.path("missing")));
    EXPECT_FALSE(same_file(folder.path("missing"), folder.path("missing")));
}

TEST(FilesTest, a_written_file_is_private_and_leaves_nothing_beside_it) {
    TemporaryFolder folder;
    write_file(folder.path("new"), "bytes", false);
    EXPECT_EQ(folder.read("new"), "bytes");
    EXPECT_EQ(mode_of(folder.path("new")), 0600u);
    write_file(folder.path("new"), "other", true);
    EXPECT_EQ(folder.read("new"), "other");
    EXPECT_EQ(list_folder(folder.path()), std::vector<std::string>{"new"});
}

TEST(FilesTest, what_is_no_file_is_never_replaced_by_one) {
    TemporaryFolder folder;
    std::string fifo = folder.path("fifo");
    ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
    for (bool replace : {false, true}) {
        EXPECT_EQ(error_of([&] { write_file(fifo, "bytes", replace); }),
                  fifo + ": is a device, a FIFO or a socket, expected the name of a file");
        EXPECT_EQ(file_kind(fifo), FileKind::kOther);
    }
}

TEST(FilesTest, nothing_is_overwritten_unless_asked) {
    TemporaryFolder folder;
    std::string path = folder.write("file", "precious");
    EXPECT_EQ(error_of([&] { write_file(path, "new", false); }),
              path + ": exists already; it was left as it was");
    EXPECT_EQ(folder.read("file"), "precious");
    // A link to nowhere is a name that exists: what it points to must not appear.
    ASSERT_EQ(symlink("target", folder.path("dangling").c_str()), 0);
    EXPECT_NE(error_of([&] { write_file(folder.path("dangling"), "new", false); }), "no error");
    EXPECT_EQ(file_kind(folder.path("target")), FileKind::kMissing);
    EXPECT_EQ(list_folder(folder.path()), (std::vector<std::string>{"dangling", "file"}));
}

TEST(FilesTest, writing_where_it_cannot_be_names_the_path_and_leaves_nothing) {
    TemporaryFolder folder;
    EXPECT_EQ(error_of([&] { write_file(folder.path("no/file"), "x", false); }),
              folder.path("no/file") + ": cannot write: No such file or directory");
    make_folders(folder.path("sub/full"));
    EXPECT_NE(error_of([&] { write_file(folder.path("sub"), "x", true); }), "no error");
    EXPECT_EQ(list_folder(folder.path()), std::vector<std::string>{"sub"});
}

TEST(FilesTest, a_folder_is_listed_in_order) {
    TemporaryFolder folder;
    for (const char* name : {"b", "a", ".hidden", "C"}) folder.write(name, "");
    EXPECT_EQ(list_folder(folder.path()), (std::vector<std::string>{".hidden", "C", "a", "b"}));
    EXPECT_EQ(error_of([&] { list_folder(folder.path("a")); }),
              folder.path("a") + ": cannot list: Not a directory");
}

TEST(FilesTest, folders_are_made_with_all_above_them) {
    TemporaryFolder folder;
    EXPECT_EQ(make_folders(folder.path("a/b//c/")).size(), 3u);
    EXPECT_EQ(file_kind(folder.path("a/b/c")), FileKind::kDirectory);
    EXPECT_EQ(mode_of(folder.path("a")), 0700u);
    EXPECT_TRUE(make_folders(folder.path("a/b/c")).empty());
    EXPECT_EQ(make_folders(folder.path("a/d")), std::vector<std::string>{folder.path("a/d")});
    folder.write("file", "");
    EXPECT_EQ(error_of([&] { make_folders(folder.path("file")); }),
              folder.path("file") + ": cannot make the folder: a file has that name");
    EXPECT_EQ(error_of([&] { make_folders(folder.path("file/below")); }),
              folder.path("file/below") + ": cannot make the folder: Not a directory");
}

TEST(FilesTest, what_is_cleaned_up_is_a_file_or_an_empty_folder) {
    TemporaryFolder folder;
    make_folders(folder.path("full"));
    make_folders(folder.path("empty"));
    folder.write("full/file", "");
    for (const char* name : {"full", "empty", "full/file", "none"}) try_remove(folder.path(name));
    EXPECT_EQ(list_folder(folder.path()), std::vector<std::string>{"full"});
    EXPECT_TRUE(list_folder(folder.path("full")).empty());
}

TEST(FilesTest, state_and_cache_lie_where_the_standard_says) {
    ScopedVariable home("HOME", "/home/someone");
    ScopedVariable state("XDG_STATE_HOME", nullptr), cache("XDG_CACHE_HOME", "/elsewhere");
    EXPECT_EQ(state_folder(), "/home/someone/.local/state/ridge");
    EXPECT_EQ(cache_folder(), "/elsewhere/ridge");
    ScopedVariable relative("XDG_CACHE_HOME", "relative");
    EXPECT_EQ(cache_folder(), "/home/someone/.cache/ridge");
    ScopedVariable homeless("HOME", nullptr);
    EXPECT_EQ(state_folder(), "");
}

}  // namespace
}  // namespace ridge
