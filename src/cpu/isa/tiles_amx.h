#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace ridge::cpu {
namespace {

// Eight tile registers of 16 rows of 64 bytes, as Intel's AMX has them. The process has asked for
// them (base/cpu_features.h); each thread configures them for the time that it multiplies.
struct AmxTiles {
    static void begin() {
        struct alignas(64) Config {
            uint8_t palette, start_row;
            uint8_t reserved[14];
            uint16_t row_bytes[16];
            uint8_t rows[16];
        } config;
        memset(&config, 0, sizeof config);
        config.palette = 1;
        for (int i = 0; i < 8; i++) config.row_bytes[i] = 64, config.rows[i] = 16;
        // GCC 12 believes that the instruction reads eight bytes, and would drop the other stores.
        asm volatile("" ::"r"(&config) : "memory");
        _tile_loadconfig(&config);
    }
    static void end() { _tile_release(); }

    // stride in bytes. The compiler does not see that memory is read or written.
    template <int t>
    static void load(const void* from, int64_t stride) {
        asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride), "i"(t) : "memory");
    }
    template <int t>
    static void store(void* to, int64_t stride) {
        asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(stride), "i"(t) : "memory");
    }
    template <int t>
    static void zero() {
        asm volatile("tilezero %%tmm%c0" ::"i"(t));
    }
    // c += a b, pairs of bf16 along k
    template <int c, int a, int b>
    static void dot_bf16() {
        asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(c), "i"(a), "i"(b));
    }
    // c += a b, fours of int8 along k
    template <int c, int a, int b>
    static void dot_int8() {
        asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(c), "i"(a), "i"(b));
    }
};

}  // namespace
}  // namespace ridge::cpu
