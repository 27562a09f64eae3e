#include "cmd/conversation.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include "base/error.h"
#include "base/files.h"

namespace ridge {
namespace {

std::string error_of(const std::string& text) {
    try {
        parse_conversation(text, "file");
    } catch (const Error& e) {
        std::string message = e.what();
        EXPECT_EQ(message.find('\n'), std::string::npos);
        EXPECT_EQ(message.find('\x1b'), std::string::npos);
        EXPECT_EQ(message.rfind("file", 0), 0u) << message;
        return message;
    }
    return "no error";
}

class ConversationFile : public testing::Test {
  protected:
    void SetUp() override {
        char name[] = "/tmp/ridge-conversation-XXXXXX";
        ASSERT_NE(mkdtemp(name), nullptr);
        folder = name;
    }
    void TearDown() override {
        for (const std::string& name : list_folder(folder)) unlink((folder + "/" + name).c_str());
        rmdir(folder.c_str());
    }
    std::string folder;
};

TEST(Conversation, the_system_message_stands_first_and_survives_a_reset) {
    Conversation c;
    c.add("user", "hi");
    c.set_system("be brief");
    EXPECT_EQ(c.messages()[0]["role"], "system");
    EXPECT_EQ(c.size(), 2u);
    c.set_system("be long");
    EXPECT_EQ(c.system(), "be long");
    EXPECT_EQ(c.size(), 2u);
    c.reset();
    EXPECT_EQ(c.size(), 1u);
    c.set_system("");
    EXPECT_EQ(c.size(), 0u);
    EXPECT_EQ(c.system(), "");
    EXPECT_FALSE(c.ends_with("user"));
}

TEST_F(ConversationFile, comes_back_as_it_was_saved_and_is_private) {
    Conversation c;
    c.set_system("sys");
    c.add("user", "\"quoted\"\n\x01 \xf0\x9f\x99\x82");
    c.add("assistant", "");
    std::string path = folder + "/chat.json";
    c.save(path);
    struct stat info = {};
    ASSERT_EQ(stat(path.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0600u);
    Conversation loaded;
    loaded.load(path);
    EXPECT_EQ(loaded.messages(), c.messages());
}

TEST_F(ConversationFile, no_file_is_written_over) {
    std::string path = folder + "/chat.json";
    write_file(path, "mine", false);
    Conversation c;
    c.add("user", "x");
    EXPECT_THROW(c.save(path), Error);
    EXPECT_EQ(read_file(path, 100), "mine");
}

TEST_F(ConversationFile, a_bad_file_leaves_the_conversation_as_it_was) {
    Conversation c;
    c.add("user", "x");
    Json before = c.messages();
    std::string path = folder + "/bad.json";
    write_file(path, R"([{"role":"user","content":"y"},{"role":"root","content":"z"}])", false);
    EXPECT_THROW(c.load(path), Error);
    EXPECT_THROW(c.load(folder), Error);
    EXPECT_THROW(c.load(folder + "/missing"), Error);
    EXPECT_THROW(c.load("/dev/zero"), Error);
    EXPECT_THROW(c.load("-"), Error) << "a file of that name, not standard input";
    EXPECT_EQ(c.messages(), before);
}

TEST(ParseConversation, takes_an_array_or_an_object_with_messages) {
    Json one = parse_conversation(R"([{"role":"user","content":"a","extra":[1]}])", "file");
    EXPECT_EQ(one, parse_conversation(R"({"messages":[{"role":"user","content":"a"}]})", "file"));
    EXPECT_TRUE(parse_conversation("[]", "file").empty());
}

TEST(ParseConversation, refuses_everything_else_by_name) {
    EXPECT_EQ(error_of("{}"), "file: has no \"messages\"");
    EXPECT_EQ(error_of("3"), "file: messages are number, expected an array");
    EXPECT_EQ(error_of(R"({"messages":"x"})"), "file: messages are string, expected an array");
    EXPECT_EQ(error_of("[1]"), "file: message 1 is number, expected an object");
    EXPECT_EQ(error_of(R"([{"role":"user"}])"), "file: message 1 has no \"content\"");
    EXPECT_EQ(error_of(R"([{"content":"x"}])"), "file: message 1 has no \"role\"");
    EXPECT_EQ(error_of(R"([{"role":"user","content":["x"]}])"),
              "file: message 1 has a \"content\" that is array, expected a string");
    EXPECT_EQ(error_of(R"([{"role":"\u001b[2J","content":"x"}])"),
              "file: message 1 has the role \"\\x1b[2J\", expected system, user or assistant");
    EXPECT_EQ(error_of(R"([{"role":"user","content":"x"},{"role":"system","content":"x"}])"),
              "file: message 2 has the role \"system\", which only the first may have");
    EXPECT_NE(error_of(std::string(200'000, '[')).find("nested deeper"), std::string::npos);
    EXPECT_NE(error_of("").find("JSON"), std::string::npos);
    EXPECT_NE(error_of("[{\"role\":\"user\",\"content\":\"\xff\"}]").find("JSON"),
              std::string::npos);
    EXPECT_NE(error_of("\x1b]0;x\x07").find("JSON"), std::string::npos);
}

}  // namespace
}  // namespace ridge
