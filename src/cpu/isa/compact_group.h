#pragma once

#include <cstdint>
#include <cstring>

#include "cpu/interleaved_geometry.h"

namespace ridge::cpu {
namespace {

// Where the parts of a compact BF16 group lie (interleaved_geometry.h).
struct CompactGroup {
    const uint8_t* table;
    const uint8_t* supers;
    const uint8_t* ends;
    const uint8_t* exceptions;
    bool compact;

    CompactGroup(const uint8_t* group, int64_t n_supers) : table(group) {
        uint32_t offset, flag;
        memcpy(&offset, group + kCompactOffset, sizeof offset);
        memcpy(&flag, group + kCompactFlag, sizeof flag);
        supers = group + offset;
        compact = flag != 0;
        ends = group + kCompactEnds;
        exceptions = ends + compact_ends_bytes(n_supers);
    }
    // Exceptions before the end of super-block s, and before its start.
    int end(int64_t s) const {
        uint16_t n;
        memcpy(&n, ends + 2 * s, sizeof n);
        return n;
    }
    int begin(int64_t s) const { return s == 0 ? 0 : end(s - 1); }
    uint32_t exception(int i) const {
        uint32_t e;
        memcpy(&e, exceptions + 4 * i, sizeof e);
        return e;
    }
    static uint32_t vector_of(uint32_t exception) { return exception >> 14; }
    static uint32_t place_of(uint32_t exception) { return exception >> 8 & 63; }
    // Which element of its super-block's row an exception is, and of which row: in each 16 bytes of
    // low bytes there are of four rows two pairs.
    static int element_of(uint32_t exception) {
        const uint32_t at = place_of(exception);
        return static_cast<int>(vector_of(exception) % 8 * 4 + at / 8 % 2 * 2 + at % 2);
    }
    static int row_of(uint32_t exception) {
        const uint32_t at = place_of(exception);
        return static_cast<int>(at / 16 * 4 + at % 8 / 2);
    }
    // Puts the exceptions of super-block s in their places of a plain one.
    void mend_super(int64_t s, uint8_t* plain) const {
        for (int i = begin(s); i < end(s); i++) {
            const uint32_t e = exception(i);
            const int k = element_of(e);
            plain[k / 2 * 64 + row_of(e) * 4 + k % 2 * 2 + 1] = static_cast<uint8_t>(e);
        }
    }
};

}  // namespace
}  // namespace ridge::cpu
