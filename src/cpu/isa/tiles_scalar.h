#pragma once

#include <cstdint>
#include <cstring>

namespace ridge::cpu {
namespace {

// AmxTiles in plain C++, for tests: registers of 16 rows of 64 bytes, one set a thread.
struct ScalarTiles {
    static void begin() { memset(registers(), 0, 8 * kBytes); }
    static void end() {}

    template <int t>
    static void load(const void* from, int64_t stride) {
        for (int64_t row = 0; row < 16; row++) {
            memcpy(tile(t) + 64 * row, static_cast<const uint8_t*>(from) + row * stride, 64);
        }
    }
    template <int t>
    static void store(void* to, int64_t stride) {
        for (int64_t row = 0; row < 16; row++) {
            memcpy(static_cast<uint8_t*>(to) + row * stride, tile(t) + 64 * row, 64);
        }
    }
    template <int t>
    static void zero() {
        memset(tile(t), 0, kBytes);
    }
    template <int c, int a, int b>
    static void dot_bf16() {
        for (int row = 0; row < 16; row++) {
            for (int pair = 0; pair < 16; pair++) {
                for (int column = 0; column < 16; column++) {
                    float sum;
                    uint8_t* at = tile(c) + 64 * row + 4 * column;
                    memcpy(&sum, at, sizeof sum);
                    for (int i = 0; i < 2; i++) {
                        sum += element(tile(a), row, 2 * pair + i) *
                               element(tile(b), pair, 2 * column + i);
                    }
                    memcpy(at, &sum, sizeof sum);
                }
            }
        }
    }

  private:
    static constexpr int kBytes = 1024;
    static uint8_t* registers() {
        alignas(64) static thread_local uint8_t bytes[8 * kBytes];
        return bytes;
    }
    static uint8_t* tile(int t) { return registers() + kBytes * t; }
    static float element(const uint8_t* tile, int row, int i) {
        uint16_t high;
        memcpy(&high, tile + 64 * row + 2 * i, sizeof high);
        const uint32_t bits = uint32_t{high} << 16;
        float value;
        memcpy(&value, &bits, sizeof value);
        return value;
    }
};

}  // namespace
}  // namespace ridge::cpu
