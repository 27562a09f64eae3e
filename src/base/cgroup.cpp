#include "base/cgroup.h"

#include <charconv>

namespace ridge {
namespace {

constexpr size_t kMaxPath = 4096;  // PATH_MAX of Linux

// Takes what stands before the first `end` off the text, or all of it.
std::string_view take(std::string_view& text, char end) {
    size_t at = text.find(end);
    std::string_view head = text.substr(0, at);
    text.remove_prefix(at == std::string_view::npos ? text.size() : at + 1);
    return head;
}

bool has_item(std::string_view list, std::string_view item) {
    while (!list.empty()) {
        if (take(list, ',') == item) return true;
    }
    return false;
}

// The whole text as a number, but for one newline at its end.
std::optional<int64_t> parse_whole(std::string_view text) {
    if (!text.empty() && text.back() == '\n') text.remove_suffix(1);
    int64_t value = 0;
    auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
    return value;
}

// The path of this process's group in a hierarchy; lines are "4:cpu,cpuacct:/a/b", and "0::/a/b"
// for version 2.
std::optional<std::string_view> group_path(std::string_view self, std::string_view controller) {
    while (!self.empty()) {
        std::string_view line = take(self, '\n');
        take(line, ':');
        std::string_view controllers = take(line, ':');
        bool found = controller.empty() ? controllers.empty() : has_item(controllers, controller);
        if (found && !line.empty() && line[0] == '/') return line;
    }
    return std::nullopt;
}

// mountinfo writes a space, tab, newline or backslash of a path as \ooo.
std::string unescape(std::string_view text) {
    std::string plain;
    auto octal = [&](size_t at) { return text[at] >= '0' && text[at] <= '7'; };
    for (size_t i = 0; i < text.size(); i++) {
        if (text[i] == '\\' && i + 3 < text.size() && octal(i + 1) && octal(i + 2) &&
            octal(i + 3)) {
            int code = (text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 + (text[i + 3] - '0');
            plain += static_cast<char>(code);
            i += 3;
        } else {
            plain += text[i];
        }
    }
    return plain;
}

struct Mount {
    std::string root, folder;  // the group that is seen at `folder`
};

// "34 31 0:31 / /sys/fs/cgroup/cpu rw,relatime shared:9 - cgroup cgroup rw,cpu"
std::optional<Mount> find_mount(std::string_view mounts, std::string_view controller) {
    while (!mounts.empty()) {
        std::string_view line = take(mounts, '\n');
        size_t dash = line.find(" - ");
        if (dash == std::string_view::npos) continue;
        std::string_view rest = line.substr(dash + 3);
        std::string_view type = take(rest, ' ');
        take(rest, ' ');  // the source, which can be any word
        bool found =
            controller.empty() ? type == "cgroup2" : type == "cgroup" && has_item(rest, controller);
        if (!found) continue;
        line = line.substr(0, dash);
        for (int i = 0; i < 3; i++) take(line, ' ');
        std::string root = unescape(take(line, ' ')), folder = unescape(take(line, ' '));
        if (root.empty() || root[0] != '/' || folder.empty() || folder[0] != '/') continue;
        return Mount{root == "/" ? "" : root, folder};
    }
    return std::nullopt;
}

}  // namespace

std::vector<std::string> cgroup_folders(std::string_view self, std::string_view mounts,
                                        std::string_view controller) {
    std::optional<std::string_view> group = group_path(self, controller);
    std::optional<Mount> mount = find_mount(mounts, controller);
    if (!group || !mount) return {};
    std::string path(*group);
    // A group that lies beside or above what is mounted ("/../other", or another container's path)
    // has no folder here, but the mounted one's limits are still the nearest that can be seen.
    bool below_root = path.compare(0, mount->root.size(), mount->root) == 0 &&
                      (path.size() == mount->root.size() || path[mount->root.size()] == '/');
    bool visible = below_root && path.find("/..") == std::string::npos && path.size() <= kMaxPath;
    path.erase(0, visible ? mount->root.size() : path.size());
    std::vector<std::string> folders;
    for (; path.size() > 1; path.resize(path.rfind('/'))) folders.push_back(mount->folder + path);
    folders.push_back(mount->folder);
    return folders;
}

std::optional<double> parse_cpu_max(std::string_view text) {
    std::string_view quota = take(text, ' ');
    return parse_cfs_quota(quota, text);
}

std::optional<double> parse_cfs_quota(std::string_view quota, std::string_view period) {
    std::optional<int64_t> quota_us = parse_whole(quota), period_us = parse_whole(period);
    if (!quota_us || !period_us || *quota_us <= 0 || *period_us <= 0) return std::nullopt;
    return static_cast<double>(*quota_us) / static_cast<double>(*period_us);
}

std::optional<int> first_cpu(std::string_view list) {
    int cpu = 0;
    auto [end, error] = std::from_chars(list.data(), list.data() + list.size(), cpu);
    if (error != std::errc() || cpu < 0) return std::nullopt;
    return cpu;
}

}  // namespace ridge
