#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/mapped_file.h"
#include "file/model_file.h"

namespace ridge {

// A folder that lasts as long as the object.
class TestFolder {
  public:
    TestFolder() {
        std::string name = (std::filesystem::temp_directory_path() / "ridge-test-XXXXXX").string();
        if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
        path_ = name;
    }
    ~TestFolder() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    TestFolder(const TestFolder&) = delete;
    TestFolder& operator=(const TestFolder&) = delete;

    std::string path(const std::string& name = {}) const {
        return name.empty() ? path_ : path_ + "/" + name;
    }
    // Writes a file, making the folders above it; returns its path.
    std::string write(const std::string& name, const std::string& bytes) const {
        std::filesystem::create_directories(std::filesystem::path(path(name)).parent_path());
        std::ofstream(path(name), std::ios::binary) << bytes;
        return path(name);
    }
    void link(const std::string& target, const std::string& name) const {
        std::filesystem::create_directories(std::filesystem::path(path(name)).parent_path());
        std::filesystem::create_symlink(target, path(name));
    }

  private:
    std::string path_;
};

inline MappedFile image_of(const std::string& bytes, const std::string& name) {
    MappedFile image = MappedFile::anonymous(bytes.size(), name);
    if (!bytes.empty()) memcpy(image.writable_bytes().data(), bytes.data(), bytes.size());
    return image;
}

// The message of the Error that `action` throws; a test failure where it throws none.
template <class Action>
std::string error_of(Action action) {
    try {
        action();
    } catch (const Error& e) {
        std::string message = e.what();
        EXPECT_EQ(message.find('\n'), std::string::npos) << "not one line: " << message;
        return message;
    }
    ADD_FAILURE() << "no Error was thrown";
    return {};
}

inline std::string open_error(const std::string& path) {
    return error_of([&] { ModelFile::open(path); });
}

inline void expect_parts(const std::string& message, const std::vector<std::string>& parts) {
    for (const std::string& part : parts) {
        EXPECT_NE(message.find(part), std::string::npos)
            << '"' << message << "\" does not say \"" << part << '"';
    }
}

}  // namespace ridge
