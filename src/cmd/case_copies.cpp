#include "cmd/case_copies.h"

#include <algorithm>
#include <vector>

#include "base/caches.h"

namespace ridge {
namespace {

constexpr int64_t kTimesTheCache = 4, kMaxCopyBytes = int64_t{1} << 30;
constexpr int64_t kUnknownCacheBytes = int64_t{64} << 20;

}  // namespace

int64_t last_cache_bytes(const CaseDevice* device) {
    if (device != nullptr) return kUnknownCacheBytes;
    const std::vector<DataCache> caches = data_caches();
    return caches.empty() ? kUnknownCacheBytes : caches.back().n_bytes;
}

std::deque<CaseRun> copies_of(const Case& c, int64_t cache_bytes, int64_t n_most,
                              const std::function<void()>& alive) {
    const int64_t bytes = std::max<int64_t>(c.bytes, 1);
    const int64_t most = std::clamp<int64_t>(kMaxCopyBytes / bytes, 1, n_most);
    const int64_t n = std::clamp<int64_t>(kTimesTheCache * cache_bytes / bytes + 1, 1, most);
    std::deque<CaseRun> copies;
    for (int64_t i = 0; i < n; i++) {
        alive();
        copies.emplace_back(c, static_cast<uint64_t>(i) + 1, alive);
    }
    return copies;
}

}  // namespace ridge
