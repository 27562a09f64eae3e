#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cases/case.h"
#include "cases/case_run.h"
#include "model/tables.h"

namespace ridge {

// Of operands that are multiplied as they are.
constexpr std::string_view kNotRounded = "f32";

// How near the reference the results of one case must be.
struct Standard {
    float element = 0;  // of each element, as Case::tolerance
    // Of all elements together: where an operand's last bits tip how another one is rounded, which
    // is much of a single element. 0: not judged.
    float relative_l2 = 0;
    // To what a kernel rounds what it multiplies, weight by weight: "f32" where nothing is rounded,
    // "int8 bf16". What the reference gives of a case depends on this alone.
    std::string operands = std::string(kNotRounded);
};

// The kernels of an operator at one checkpoint, on one instruction set: what cases are run on.
struct Subject {
    std::string checkpoint;  // "gemm"
    std::string isa{};       // "avx2"; empty where the kernels are the same on all
    Tables tables;
    // What results are held against: ref/, which has every sum, exponential, sine and root in
    // float64 and rounds once, where it stores a result. What a kernel multiplies is rounded
    // before, if that kernel rounds it.
    Tables reference;
    Standard (*standard)(const Subject&, const Case&);
    // Whether the backend packs a format in the tables' layout; null: it packs all.
    bool (*is_packed)(FormatId) = nullptr;

    std::string name() const;  // "gemm on avx2"
};

// ref/ on the operands as they are, and the tolerance of the case.
Tables exact_reference();
Standard exact_standard(const Subject& subject, const Case& c);

// Instruction sets and devices that tables are resolved for.
struct NamedCaps {
    std::string isa;
    Caps caps;
};

// The checkpoints that change what runs for `op`, or how the weights lie that it reads, for each of
// `machines` where their kernels depend on it; held against exact_reference().
std::vector<Subject> subjects_of(std::span<const Checkpoint> list, Op op,
                                 std::span<const NamedCaps> machines);

// How many bodies the node of an operator has: a checkpoint that adds one changes what runs.
size_t n_entries(const Tables& tables, Op op);

}  // namespace ridge
