#include "base/caches.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <string>

#include "base/system.h"

namespace ridge {
namespace {

constexpr int kMaxCpus = 1 << 16;  // of a list: what is larger is a mistake

// Takes a number from the front of the text; false where there is none.
template <class T>
bool take_number(std::string_view& text, T& number) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc()) return false;
    text.remove_prefix(static_cast<size_t>(end - text.data()));
    return true;
}

bool take(std::string_view& text, char c) {
    if (text.empty() || text.front() != c) return false;
    text.remove_prefix(1);
    return true;
}

std::string text_of(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

std::vector<int> parse_cpu_list(std::string_view text) {
    std::vector<int> cpus;
    do {
        int first = 0;
        if (!take_number(text, first) || first < 0) return {};
        int last = first;
        if (take(text, '-') && !take_number(text, last)) return {};
        if (last < first || last >= kMaxCpus) return {};
        for (int cpu = first; cpu <= last; cpu++) cpus.push_back(cpu);
    } while (take(text, ','));
    return text.empty() || text == "\n" ? cpus : std::vector<int>();
}

int64_t parse_cache_size(std::string_view text) {
    int64_t n = 0;
    if (!take_number(text, n) || n <= 0 || n > int64_t{1} << 32) return 0;
    const int shift = take(text, 'K') ? 10 : take(text, 'M') ? 20 : take(text, 'G') ? 30 : 0;
    return text.empty() || text == "\n" ? n << shift : 0;
}

std::vector<DataCache> data_caches() {
    const std::vector<int> cores = physical_cores();
    std::vector<DataCache> caches;
    for (int index = 0; index < 16; index++) {
        const std::string folder =
            fmt::format("/sys/devices/system/cpu/cpu{}/cache/index{}/", cores.front(), index);
        const std::string type = text_of(folder + "type");
        if (type.empty()) break;
        if (type != "Data\n" && type != "Unified\n") continue;
        DataCache cache;
        std::ifstream(folder + "level") >> cache.level;
        cache.n_bytes = parse_cache_size(text_of(folder + "size"));
        if (cache.n_bytes == 0) continue;
        const std::vector<int> sharers = parse_cpu_list(text_of(folder + "shared_cpu_list"));
        const auto n = std::count_if(cores.begin(), cores.end(), [&](int core) {
            return std::find(sharers.begin(), sharers.end(), core) != sharers.end();
        });
        cache.n_sharers = std::max(1, static_cast<int>(n));
        caches.push_back(cache);
    }
    std::sort(caches.begin(), caches.end(),
              [](const DataCache& a, const DataCache& b) { return a.level < b.level; });
    return caches;
}

}  // namespace ridge
