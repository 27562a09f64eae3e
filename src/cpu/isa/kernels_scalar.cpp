#include "cpu/isa/all_kernels.h"
#include "cpu/isa/probes.h"
#include "cpu/isa/vector_scalar.h"

namespace ridge::cpu {
namespace {

// Four numbers that the compiler keeps in a register where every machine of the kind has one.
struct PlainVector {
    typedef uint32_t Int __attribute__((vector_size(16)));
    typedef float Float __attribute__((vector_size(16)));

    static void prefetch(const uint8_t* p) { __builtin_prefetch(p); }
    static Int zero() { return Int{}; }
    static Int load(const uint8_t* p) { return load_as<Int>(p); }
    static Float load_f32(const uint8_t* p) { return load_as<Float>(p); }
    static void store_bytes(uint8_t* p, Int v) { memcpy(p, &v, sizeof v); }
    static Int or_bits(Int a, Int b) { return a | b; }
    static Float fma(Float a, Float b, Float c) { return a * b + c; }

  private:
    template <class Vector>
    static Vector load_as(const uint8_t* p) {
        Vector v;
        memcpy(&v, p, sizeof v);
        return v;
    }
};

}  // namespace

void add_scalar_kernels(Kernels& kernels) {
    fill_all_kernels<Scalar>(kernels, false);
    fill_probe_kernels<PlainVector, 12>(kernels.probes, "multiply, add");
}

}  // namespace ridge::cpu
