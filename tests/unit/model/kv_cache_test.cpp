#include "model/kv_cache.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/error.h"

namespace ridge {
namespace {

TEST(KvCache, places_every_page_of_every_layer_once_and_within_its_bytes) {
    for (int64_t n_slots : {1, 64, 65, 256, 257, 1000}) {
        KvCache cache;
        cache.k_dtype = DType::kF16, cache.v_dtype = DType::kQ8_0;
        cache.n_slots = n_slots, cache.n_layers = 3, cache.n_kv_heads = 2, cache.d_head = 32;
        std::vector<int> n_owners(cache.n_bytes());
        auto own = [&](int64_t first, int64_t n) {
            ASSERT_LE(static_cast<size_t>(first + n), n_owners.size());
            for (int64_t i = first; i < first + n; i++) n_owners[static_cast<size_t>(i)]++;
        };
        for (int l = 0; l < cache.n_layers; l++) {
            const KvLayer kv = cache.layer(l);
            for (int64_t page = 0; page < kv_pages_of(n_slots); page++) {
                own(kv.k_page(page), kv.page_bytes(kv.k_dtype));
                own(kv.v_page(page), kv.page_bytes(kv.v_dtype));
            }
        }
        int64_t n_owned = 0;
        for (int n : n_owners) {
            ASSERT_LE(n, 1) << n_slots << " slots";
            n_owned += n;
        }
        EXPECT_EQ(n_owned, kv_pages_of(n_slots) * 64 * 3 * 2 * (64 + 34)) << n_slots << " slots";
    }
}

TEST(KvView, finds_slots_through_pages_or_from_a_page_on) {
    const std::vector<int32_t> pages = {7, 2};
    EXPECT_EQ((KvView{pages.data(), 0}).slot(63), 7 * 64 + 63);
    EXPECT_EQ((KvView{pages.data(), 0}).slot(64), 2 * 64);
    EXPECT_EQ((KvView{nullptr, 128}).slot(65), 193);
    EXPECT_DEATH((KvView{nullptr, 100}).slot(0), "base_slot");
}

TEST(kv_bytes_per_position, counts_codes_and_scales) {
    Config config;
    config.n_layers = 2, config.n_kv_heads = 3, config.d_head = 64;
    EXPECT_EQ(kv_bytes_per_position(config, DType::kF16, DType::kF32), 2 * 3 * 64 * (2 + 4));
    EXPECT_EQ(kv_bytes_per_position(config, DType::kQ8_0, DType::kQ8_0), 2 * 3 * 2 * (64 + 4));
    config.d_head = 80;
    EXPECT_EQ(kv_bytes_per_position(config, DType::kBF16, DType::kBF16), 2 * 3 * 80 * 4);
    try {
        kv_bytes_per_position(config, DType::kF16, DType::kQ8_0);
        FAIL() << "heads of 80 have no whole blocks of 32";
    } catch (const Error& error) {
        EXPECT_STREQ(error.what(),
                     "KV cache of q8_0: d_head is 80, expected a multiple of 32; f16 and bf16 take "
                     "any");
    }
}

}  // namespace
}  // namespace ridge
