#include "base/mapped_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utility>

#include "base/error.h"
#include "support/temporary_folder.h"

namespace ridge {
namespace {

std::string error_of(const std::string& path) {
    try {
        MappedFile::open(path);
    } catch (const Error& e) {
        return e.what();
    }
    return "no error";
}

std::string text_of(const MappedFile& file) {
    return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

TEST(MappedFileTest, the_bytes_are_those_of_the_file) {
    TemporaryFolder folder;
    std::string bytes(100'000, 'm');
    bytes[99'999] = '\0';
    std::string path = folder.write("file", bytes);
    MappedFile file = MappedFile::open(path);
    EXPECT_EQ(file.path(), path);
    EXPECT_EQ(text_of(file), bytes);
    file.prefetch();
    for (auto [offset, n] :
         {std::pair<size_t, size_t>{0, 100'000}, {1, 99'998}, {5000, 10}, {100'000, 0}}) {
        file.drop_pages(offset, n);
        EXPECT_EQ(text_of(file), bytes);
    }
}

TEST(MappedFileTest, an_empty_file_has_no_bytes) {
    TemporaryFolder folder;
    MappedFile file = MappedFile::open(folder.write("empty", ""));
    EXPECT_TRUE(file.bytes().empty());
    file.prefetch();
    file.drop_pages(0, 0);
}

TEST(MappedFileTest, only_regular_files_are_mapped_and_the_others_are_named) {
    TemporaryFolder folder;
    ASSERT_EQ(mkfifo(folder.path("fifo").c_str(), 0600), 0);
    EXPECT_EQ(error_of(folder.path()), folder.path() + ": is a directory, expected a regular file");
    EXPECT_EQ(error_of(folder.path("fifo")),
              folder.path("fifo") + ": is a FIFO, expected a regular file");
    EXPECT_EQ(error_of("/dev/null"), "/dev/null: is a device, expected a regular file");
    EXPECT_EQ(error_of(folder.path("missing")),
              folder.path("missing") + ": cannot open: No such file or directory");
}

TEST(MappedFileTest, moving_moves_the_mapping) {
    TemporaryFolder folder;
    MappedFile a = MappedFile::open(folder.write("a", "aaaa"));
    MappedFile b = MappedFile::open(folder.write("b", "bb"));
    MappedFile moved = std::move(a);
    EXPECT_EQ(text_of(moved), "aaaa");
    moved = std::move(b);
    EXPECT_EQ(text_of(moved), "bb");
    moved = MappedFile();
    EXPECT_TRUE(moved.bytes().empty());
}

TEST(MappedFileTest, many_files_one_after_the_other_can_be_mapped) {
    TemporaryFolder folder;
    std::string path = folder.write("file", "x");
    for (int i = 0; i < 3000; i++) ASSERT_EQ(text_of(MappedFile::open(path)), "x");
}

TEST(MappedFileTest, anonymous_memory_is_zero_and_writable) {
    MappedFile memory = MappedFile::anonymous(10'000, "synth");
    EXPECT_EQ(memory.path(), "synth");
    for (std::byte b : memory.bytes()) ASSERT_EQ(b, std::byte{0});
    memory.writable_bytes()[9'999] = std::byte{7};
    memory.drop_pages(0, 10'000);
    EXPECT_EQ(memory.bytes()[9'999], std::byte{7});
    EXPECT_TRUE(MappedFile::anonymous(0, "none").bytes().empty());
}

TEST(MappedFileTest, memory_that_cannot_be_had_is_an_error) {
    try {
        MappedFile::anonymous(SIZE_MAX / 2, "huge\x1b");
        FAIL() << "got half of the address space";
    } catch (const Error& e) {
        EXPECT_EQ(std::string(e.what()), "huge\\x1b: no memory for 9223372036854775807 bytes");
    }
}

TEST(MappedFileDeathTest, a_file_cut_short_while_mapped_ends_the_program_with_one_line) {
    ::testing::FLAGS_gtest_death_test_style = "threadsafe";
    TemporaryFolder folder;
    std::string path = folder.write("cut\x1b.gguf", std::string(1 << 20, 'x'));
    EXPECT_EXIT(
        {
            MappedFile file = MappedFile::open(path);
            if (truncate(path.c_str(), 0) != 0) abort();
            std::exit(static_cast<int>(file.bytes()[500'000]));
        },
        ::testing::ExitedWithCode(1),
        "^ridge: [^\n]*cut\\\\x1b.gguf: the file was cut short[^\n]*\n$");
}

}  // namespace
}  // namespace ridge
