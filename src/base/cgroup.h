#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ridge {

// Control groups of Linux, from the text of the files that describe them (cgroups(7), proc(5) and
// the kernel's admin-guide/cgroup-v2). Text that makes no sense says nothing: no group, no limit.

// The folders of this process's own group and of those above it, whose limits hold as well, own
// first. `self` is /proc/self/cgroup, `mounts` is /proc/self/mountinfo. `controller` is that of a
// version 1 hierarchy ("cpu"); empty for the one hierarchy of version 2.
std::vector<std::string> cgroup_folders(std::string_view self, std::string_view mounts,
                                        std::string_view controller);

// How many CPUs' worth of time a group may use; nothing where there is no limit.
std::optional<double> parse_cpu_max(
    std::string_view text);  // cpu.max: "150000 100000", "max 100000"
// cpu.cfs_quota_us (-1: no limit) and cpu.cfs_period_us
std::optional<double> parse_cfs_quota(std::string_view quota, std::string_view period);

// The lowest CPU of a list such as "2,10" or "0-3": the name of a core by its hyperthreads.
std::optional<int> first_cpu(std::string_view list);

}  // namespace ridge
