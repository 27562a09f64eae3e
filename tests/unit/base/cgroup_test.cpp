#include "base/cgroup.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ridge {
namespace {

using Folders = std::vector<std::string>;

constexpr const char* kMountV2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n";
constexpr const char* kMountsV1 =
    "23 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
    "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"
    "32 31 0:29 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
    "33 31 0:30 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 master:3 - cgroup cgroup rw,cpu,cpuacct\n"
    "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 none rw\n";

TEST(Cgroup, folders_of_version_2_go_up_to_the_mount) {
    EXPECT_EQ(cgroup_folders("0::/user.slice/a.scope\n", kMountV2, ""),
              (Folders{"/sys/fs/cgroup/user.slice/a.scope", "/sys/fs/cgroup/user.slice",
                       "/sys/fs/cgroup"}));
    EXPECT_EQ(cgroup_folders("0::/\n", kMountV2, ""), Folders{"/sys/fs/cgroup"});
}

TEST(Cgroup, folders_of_version_1_are_those_of_the_controller) {
    constexpr const char* kSelf = "5:cpuset:/x\n4:cpu,cpuacct:/a/b\n1:name=systemd:/y\n0::/u\n";
    EXPECT_EQ(cgroup_folders(kSelf, kMountsV1, "cpu"),
              (Folders{"/sys/fs/cgroup/cpu,cpuacct/a/b", "/sys/fs/cgroup/cpu,cpuacct/a",
                       "/sys/fs/cgroup/cpu,cpuacct"}));
    EXPECT_EQ(cgroup_folders(kSelf, kMountsV1, ""),
              (Folders{"/sys/fs/cgroup/unified/u", "/sys/fs/cgroup/unified"}));
    EXPECT_EQ(cgroup_folders(kSelf, kMountsV1, "memory"), Folders{});
    EXPECT_EQ(cgroup_folders(kSelf, kMountV2, "cpu"), Folders{});
}

TEST(Cgroup, a_container_sees_its_own_group_at_the_mount) {
    constexpr const char* kMount =
        "9 8 0:30 /docker/abc /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu\n";
    EXPECT_EQ(cgroup_folders("3:cpu:/docker/abc/job\n", kMount, "cpu"),
              (Folders{"/sys/fs/cgroup/cpu/job", "/sys/fs/cgroup/cpu"}));
    for (const char* self : {"3:cpu:/docker/abc\n", "3:cpu:/docker/abcd\n", "3:cpu:/\n"})
        EXPECT_EQ(cgroup_folders(self, kMount, "cpu"), Folders{"/sys/fs/cgroup/cpu"}) << self;
    for (const char* self : {"0::/../other\n", "0::/..\n", "0::/a/../../b\n"})
        EXPECT_EQ(cgroup_folders(self, kMountV2, ""), Folders{"/sys/fs/cgroup"}) << self;
}

TEST(Cgroup, escaped_paths_are_read) {
    EXPECT_EQ(
        cgroup_folders("0::/a b\n", R"(1 2 0:3 / /mnt/my\040groups\134x\04 rw - cgroup2 c rw)", ""),
        (Folders{R"(/mnt/my groups\x\04/a b)", R"(/mnt/my groups\x\04)"}));
}

TEST(Cgroup, text_without_sense_gives_no_folder) {
    for (const char* self : {"", "\n\n", "0", "0:", "0::", "0::relative", ":::", "0::\n/\n"})
        EXPECT_EQ(cgroup_folders(self, kMountV2, ""), Folders{}) << self;
    for (const char* mounts : {"", " - ", " - cgroup2", "1 2 3 - cgroup2 c rw",
                               "1 2 3 / - cgroup2 c rw", "30 23 0:26 / /sys cgroup2 cgroup2 rw"})
        EXPECT_EQ(cgroup_folders("0::/a\n", mounts, ""), Folders{}) << mounts;
}

TEST(Cgroup, a_path_too_long_for_the_system_has_no_folders) {
    std::string slashes(100'000, '/'), deep;
    for (int i = 0; i < 2000; i++) deep += "/a";
    EXPECT_EQ(cgroup_folders("0::" + slashes, kMountV2, ""), Folders{"/sys/fs/cgroup"});
    EXPECT_EQ(cgroup_folders("0::" + deep, kMountV2, "").size(), 2001u);
}

TEST(Cgroup, cpu_max_is_a_quota_over_a_period) {
    EXPECT_EQ(parse_cpu_max("150000 100000\n"), 1.5);
    EXPECT_EQ(parse_cpu_max("1000 1000000"), 0.001);
    EXPECT_EQ(parse_cpu_max("9223372036854775807 1"), 9223372036854775807.0);
    for (const char* text :
         {"max 100000\n", "max", "", "\n", " ", "100000", "100000 ", "100000 0", "0 100000",
          "-1 100000", "100000 -100000", "1e5 100000", "100000 100000 1", "0x10 10", "+5 5",
          "99999999999999999999 100000", "nan nan", "100000\t100000", "150000 100000\n\n"})
        EXPECT_EQ(parse_cpu_max(text), std::nullopt) << text;
}

TEST(Cgroup, cfs_quota_of_version_1_is_in_two_files) {
    EXPECT_EQ(parse_cfs_quota("250000\n", "100000\n"), 2.5);
    EXPECT_EQ(parse_cfs_quota("-1\n", "100000\n"), std::nullopt);
    EXPECT_EQ(parse_cfs_quota("", "100000\n"), std::nullopt);
    EXPECT_EQ(parse_cfs_quota("250000\n", ""), std::nullopt);
    EXPECT_EQ(parse_cfs_quota("250000\n", "0\n"), std::nullopt);
}

TEST(Cgroup, the_first_cpu_of_a_list_names_the_core) {
    EXPECT_EQ(first_cpu("3,67\n"), 3);
    EXPECT_EQ(first_cpu("0-1\n"), 0);
    EXPECT_EQ(first_cpu("12"), 12);
    for (const char* text : {"", "\n", "x", "-1", ",3", "99999999999"})
        EXPECT_EQ(first_cpu(text), std::nullopt) << text;
}

}  // namespace
}  // namespace ridge
