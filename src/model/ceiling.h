#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace ridge {

enum class CeilingKind : uint8_t {
    kRead,        // bytes that come from a level of memory
    kCopy,        // bytes that come from it and go to it, both counted
    kArithmetic,  // multiplications and additions
};

// One limit of a device, measured: what no kernel passes.
struct Ceiling {
    CeilingKind kind = CeilingKind::kRead;
    std::string name;            // "L1", "memory"; "f32", "bf16", "int8", "bf16 matrix"
    std::string how;             // instructions of an arithmetic one: "vfmadd, 512 bits"
    int n_threads = 1;           // 0: the whole of a device that has no threads
    std::vector<double> rates;   // of each repetition: GB/s, or 1e9 operations a second
    double rate = 0;             // their median
    double theoretical = 0;      // the maker's figure, where it is known for sure; 0: unknown
    int64_t level_bytes = 0;     // of a cache, what each thread has of it; 0: none
    int64_t buffer_bytes = 0;    // that each thread read, or copied between its halves
    bool is_scratchpad = false;  // kernels fill it themselves: none finds there what another left
};

struct Ceilings {
    std::string isa;            // of the loops: "avx512"; empty where there is none to tell
    std::vector<Ceiling> list;  // empty: the backend measures none
    double dispatch_us = 0;     // that a kernel takes which does nothing; 0: not measured
    // Of the time, that threads had their CPUs: less than 1 where other programs ran.
    double share_run = 1;
};

// Each may be empty, and may throw to end it all.
struct CeilingEvents {
    std::function<void(double share)> progress;  // share that is done, 0..1
    // Between two repetitions of all measurements, while none goes on, and before the first: what
    // is to be held against the ceilings is timed there, since a shared machine's speed changes
    // from one second to the next. `share` as above.
    std::function<void(double share)> between;
};

}  // namespace ridge
