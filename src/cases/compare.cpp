#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstring>

#include "cases/case_run.h"

namespace ridge {
namespace {

// Near the end of float32's range, results may be flushed to 0 (of SwiGLU, where exp overflows).
constexpr double kNothing = 1e-30;

bool same_float(float a, float b) {
    return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

bool same_sampled(const Sampled& a, const Sampled& b) {
    if (a.token != b.token || !same_float(a.logprob, b.logprob) || a.top.size() != b.top.size()) {
        return false;
    }
    for (size_t i = 0; i < a.top.size(); i++) {
        if (a.top[i].token != b.top[i].token) return false;
        if (!same_float(a.top[i].logprob, b.top[i].logprob)) return false;
    }
    return true;
}

// Of the row's finite elements.
double row_rms(const Outputs& outputs, size_t row) {
    const auto n = static_cast<size_t>(outputs.n_cols);
    double sum = 0, n_finite = 0;
    for (size_t j = 0; j < n; j++) {
        const double value = outputs.values[row * n + j];
        if (!std::isfinite(value)) continue;
        sum += value * value, n_finite += 1;
    }
    return n_finite > 0 ? std::sqrt(sum / n_finite) : 0;
}

// Of one element; 0 where both are the same, infinite where one is no number. `exact`: infinite
// where any bit differs.
double element_error(float want, float got, double scale, bool exact) {
    if (same_float(want, got)) return 0;
    if (exact) return HUGE_VAL;
    if (std::isnan(want) && std::isnan(got)) return 0;
    if (!std::isfinite(want) || !std::isfinite(got)) return HUGE_VAL;
    const double error = std::abs(double{got} - double{want});
    return error < kNothing ? 0 : error / scale;
}

// What tells apart two that may read the same.
std::string in_bits(float want, float got) {
    return fmt::format("bits {:08x}, expected {:08x}", std::bit_cast<uint32_t>(got),
                       std::bit_cast<uint32_t>(want));
}

void compare_sampled(const Case& c, const Outputs& want, const Outputs& got, Difference& result) {
    if (want.sampled.size() != got.sampled.size()) {
        result.fault =
            fmt::format("{} rows drawn, expected {}", got.sampled.size(), want.sampled.size());
    }
    for (size_t i = 0; i < want.sampled.size() && result.fault.empty(); i++) {
        const Sampled &a = want.sampled[i], &b = got.sampled[i];
        if (a.token != b.token) {
            result.fault = fmt::format("row {}: token {}, expected {}", i, b.token, a.token);
        } else if (a.top.size() != b.top.size()) {
            result.fault = fmt::format("row {}: {} log probabilities, expected {}", i, b.top.size(),
                                       a.top.size());
        }
        if (!result.fault.empty()) return;
        const auto note = [&](float x, float y) {
            result.worst = std::max(result.worst, element_error(x, y, 1, c.tolerance == 0));
        };
        note(a.logprob, b.logprob);
        for (size_t t = 0; t < a.top.size(); t++) {
            if (a.top[t].token != b.top[t].token) {
                result.fault = fmt::format("row {}: top token {} is {}, expected {}", i, t,
                                           b.top[t].token, a.top[t].token);
                return;
            }
            note(a.top[t].logprob, b.top[t].logprob);
        }
        if (result.worst > double{c.tolerance}) {
            result.fault = fmt::format("row {}: a log probability is off by {}", i, result.worst);
        }
    }
}

}  // namespace

Difference compare(const Case& c, const Outputs& want, const Outputs& got) {
    Difference result;
    compare_sampled(c, want, got, result);
    if (want.n_cols != got.n_cols || want.values.size() != got.values.size()) {
        result.fault = fmt::format("{} values in rows of {}, expected {} in rows of {}",
                                   got.values.size(), got.n_cols, want.values.size(), want.n_cols);
        return result;
    }
    if (!got.fault.empty()) result.fault = got.fault;
    if (want.values.empty()) return result;

    double error_sum = 0, want_sum = 0;
    const auto n_cols = static_cast<size_t>(want.n_cols);
    for (size_t i = 0; i < want.values.size() / n_cols; i++) {
        const double rms = c.cancels ? row_rms(want, i) : 0;
        for (size_t j = 0; j < n_cols; j++) {
            const float a = want.values[i * n_cols + j], b = got.values[i * n_cols + j];
            const double error = element_error(a, b, std::abs(double{a}) + rms, c.tolerance == 0);
            result.worst = std::max(result.worst, error);
            if (error > double{c.tolerance} && result.fault.empty()) {
                result.fault = fmt::format(
                    "row {}, column {}: {}, expected {} ({})", i, j, b, a,
                    c.tolerance == 0
                        ? in_bits(a, b)
                        : fmt::format("error {:.3g}, tolerance {:.3g}", error, c.tolerance));
            }
            if (!std::isfinite(a) || !std::isfinite(b)) continue;
            error_sum += (double{b} - double{a}) * (double{b} - double{a});
            want_sum += double{a} * double{a};
        }
    }
    if (want_sum > 0) result.relative_l2 = std::sqrt(error_sum / want_sum);
    return result;
}

bool same_bits(const Outputs& a, const Outputs& b) {
    if (a.n_cols != b.n_cols || a.values.size() != b.values.size()) return false;
    if (a.sampled.size() != b.sampled.size()) return false;
    if (!a.values.empty() &&
        memcmp(a.values.data(), b.values.data(), a.values.size() * sizeof(float)) != 0) {
        return false;
    }
    for (size_t i = 0; i < a.sampled.size(); i++) {
        if (!same_sampled(a.sampled[i], b.sampled[i])) return false;
    }
    return true;
}

}  // namespace ridge
