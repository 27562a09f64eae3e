#pragma once

#include <cstdint>
#include <cstring>

#include "cpu/probe_kernels.h"

namespace ridge::cpu {
namespace {

// The loops of ProbeKernels over an instruction set's vector type V, and over a product D:
//   D::Sum, D::Operand   registers
//   D::kSums             sums that grow side by side: as many as it takes to fill the pipes
//   D::kOps              operations of one product
//   D::load_sum, D::load, D::bytes_of, D::multiply(sum, a, b)

inline uint64_t fold(const void* register_bytes, int64_t n_bytes) {
    uint64_t sum = 0, word;
    for (int64_t i = 0; i < n_bytes; i += 8) {
        memcpy(&word, static_cast<const uint8_t*>(register_bytes) + i, sizeof word);
        sum += word;
    }
    return sum;
}

template <class V, int64_t kAheadBytes>
uint64_t read_all(const uint8_t* data, int64_t n_bytes) {
    using Int = typename V::Int;
    constexpr int kVectors = 8;
    Int seen[kVectors];
#pragma GCC unroll 8
    for (int i = 0; i < kVectors; i++) seen[i] = V::zero();
    for (int64_t at = 0; at + kProbeBytes <= n_bytes; at += kProbeBytes) {
        if constexpr (kAheadBytes > 0) {
#pragma GCC unroll 8
            for (int64_t line = 0; line < kProbeBytes; line += 64) {
                V::prefetch(data + at + kAheadBytes + line);
            }
        }
#pragma GCC unroll 32
        for (int64_t i = 0; i < kProbeBytes / int64_t{sizeof(Int)}; i++) {
            Int& lane = seen[i % kVectors];
            lane = V::or_bits(lane, V::load(data + at + i * int64_t{sizeof(Int)}));
        }
    }
    Int all = seen[0];
#pragma GCC unroll 8
    for (int i = 1; i < kVectors; i++) all = V::or_bits(all, seen[i]);
    uint8_t bytes[sizeof(Int)];
    V::store_bytes(bytes, all);
    return fold(bytes, sizeof bytes);
}

template <class V>
void copy_all(const uint8_t* from, uint8_t* to, int64_t n_bytes) {
    using Int = typename V::Int;
    for (int64_t at = 0; at + kProbeBytes <= n_bytes; at += kProbeBytes) {
#pragma GCC unroll 32
        for (int64_t i = at; i < at + kProbeBytes; i += int64_t{sizeof(Int)}) {
            V::store_bytes(to + i, V::load(from + i));
        }
        asm volatile("" ::: "memory");  // no call of memcpy() is made of it
    }
}

template <class D>
uint64_t multiply_all(const uint8_t* operands, int64_t n_rounds) {
    constexpr int64_t kSumBytes = sizeof(typename D::Sum);
    // Each from another place: equal ones would be computed once.
    typename D::Sum sum[D::kSums];
#pragma GCC unroll 32
    for (int i = 0; i < D::kSums; i++) sum[i] = D::load_sum(operands + i * kSumBytes);
    const auto a = D::load(operands + 2048), b = D::load(operands + 3072);
    for (int64_t round = 0; round < n_rounds; round++) {
#pragma GCC unroll 32
        for (int i = 0; i < D::kSums; i++) sum[i] = D::multiply(sum[i], a, b);
    }
    uint64_t all = 0;
#pragma GCC unroll 32
    for (int i = 0; i < D::kSums; i++) {
        const typename D::Sum one = sum[i];
        all += fold(&one, sizeof one);
    }
    return all;
}

template <class D>
constexpr ArithmeticProbe arithmetic_probe(const char* instruction) {
    static_assert(D::kSums * sizeof(typename D::Sum) <= 2048);
    return {instruction, D::kSums * D::kOps, multiply_all<D>};
}

// sum = sum * a + b: with numbers in [0.5, 1) it stays between b and b / (1 - a).
template <class V, int kNumSums>
struct F32Product {
    using Sum = typename V::Float;
    static constexpr int kSums = kNumSums;
    static constexpr int64_t kOps = 2 * sizeof(Sum) / 4;
    static Sum load_sum(const uint8_t* p) { return V::load_f32(p); }
    static Sum load(const uint8_t* p) { return V::load_f32(p); }
    static Sum multiply(Sum sum, Sum a, Sum b) { return V::fma(sum, a, b); }
};

// Sums of products of two along k.
template <class V, int kNumSums>
struct Bf16Product {
    using Sum = typename V::Float;
    static constexpr int kSums = kNumSums;
    static constexpr int64_t kOps = 2 * 2 * sizeof(Sum) / 4;
    static Sum load_sum(const uint8_t* p) { return V::load_f32(p); }
    static typename V::Int load(const uint8_t* p) { return V::load(p); }
    static Sum multiply(Sum sum, typename V::Int a, typename V::Int b) {
        return V::dot_bf16(sum, a, b);
    }
};

template <class V, int kNumSums>
void fill_probe_kernels(ProbeKernels& probes, const char* fma) {
    probes.read = read_all<V, 0>;
    probes.read_ahead = read_all<V, 4096>;
    probes.copy = copy_all<V>;
    probes.arithmetic[kF32Fma] = arithmetic_probe<F32Product<V, kNumSums>>(fma);
}

}  // namespace
}  // namespace ridge::cpu
