#include "text/jinja/operators.h"

#include <cmath>
#include <cstring>

#include "base/printable.h"
#include "text/jinja/format.h"
#include "text/jinja/numbers.h"
#include "text/jinja/strings.h"
#include "text/jinja/unicode.h"

namespace ridge::jinja {
namespace {

std::string_view op_text(Op op) {
    constexpr std::string_view kTexts[] = {
        "+", "-", "*", "/", "//", "%", "**", "==", "!=", "<", "<=", ">", ">=", "in", "not in"};
    return kTexts[static_cast<size_t>(op)];
}

[[noreturn]] void fail_types(Runtime& rt, Op op, const Value& a, const Value& b) {
    if (a.is_undefined()) fail_undefined(rt, a);
    if (b.is_undefined()) fail_undefined(rt, b);
    rt.fail("{} {} {}: these types do not go together", type_name(a), op_text(op), type_name(b));
}

[[noreturn]] void fail_overflow(Runtime& rt, Op op) {
    rt.fail("the result of '{}' does not fit a 64-bit integer", op_text(op));
}

}  // namespace

void fail_undefined(Runtime& rt, const Value& value) {
    std::string name = printable(value.text.view(), 80);
    switch (static_cast<Absent>(value.detail)) {
        case Absent::kVariable:
            rt.fail("'{}' is undefined", name);
        case Absent::kAttribute:
            rt.fail("the value has no attribute or item '{}'", name);
        case Absent::kForbidden:
            rt.fail("access to attribute '{}' is not allowed", name);
        case Absent::kHint:
            rt.fail("{}", name);
    }
    rt.fail("undefined value");
}

bool is_true(const Value& value) {
    switch (value.kind) {
        case Kind::kMissing:
        case Kind::kUndefined:
        case Kind::kNone:
            return false;
        case Kind::kBool:
        case Kind::kInt:
            return value.integer != 0;
        case Kind::kFloat:
            return value.real != 0;
        case Kind::kString:
            return !value.text.empty();
        case Kind::kList:
        case Kind::kTuple:
            return value.items.size > 0;
        case Kind::kDict:
        case Kind::kView:
            return value.pairs.size > 0;
        case Kind::kRange:
            return range_size(value.range) > 0;
        default:
            return true;
    }
}

double to_real(const Value& number) {
    switch (number.kind) {
        case Kind::kFloat:
            return number.real;
        case Kind::kBigInt:
            return static_cast<double>(number.big);
        default:
            return static_cast<double>(number.integer);
    }
}

namespace {

// -1, 0, 1; 2 where a NaN makes them unordered.
int compare_numbers(const Value& a, const Value& b) {
    auto sign = [](auto x, auto y) { return x < y ? -1 : x > y ? 1 : 0; };
    if (a.is(Kind::kFloat) && b.is(Kind::kFloat)) {
        return std::isnan(a.real) || std::isnan(b.real) ? 2 : sign(a.real, b.real);
    }
    if (a.is(Kind::kBigInt) || b.is(Kind::kBigInt)) {
        if (a.is(Kind::kBigInt) && b.is(Kind::kBigInt)) return sign(a.big, b.big);
        double x = to_real(a), y = to_real(b);
        return std::isnan(x) || std::isnan(y) ? 2 : sign(x, y);
    }
    if (a.is(Kind::kFloat)) return std::isnan(a.real) ? 2 : -compare(b.integer, a.real);
    if (b.is(Kind::kFloat)) return std::isnan(b.real) ? 2 : compare(a.integer, b.real);
    return sign(a.integer, b.integer);
}

bool equal_items(Runtime& rt, Items a, Items b) {
    if (a.size != b.size) return false;
    for (size_t i = 0; i < a.size; i++) {
        if (!are_equal(rt, a.data[i], b.data[i])) return false;
    }
    return true;
}

bool equal_dicts(Runtime& rt, Pairs a, Pairs b) {
    if (a.size != b.size) return false;
    for (const Pair& pair : a) {
        const Value* other = find_key(rt, b, pair.key);
        if (other == nullptr || !are_equal(rt, pair.value, *other)) return false;
    }
    return true;
}

bool equal_views(Runtime& rt, const Value& a, const Value& b) {
    if (a.detail != b.detail || a.detail == static_cast<uint8_t>(ViewOf::kValues)) {
        return a.pairs.data == b.pairs.data && a.detail == b.detail;
    }
    if (a.pairs.size != b.pairs.size) return false;
    for (const Pair& pair : a.pairs) {
        const Value* other = find_key(rt, b.pairs, pair.key);
        if (other == nullptr) return false;
        bool items = a.detail == static_cast<uint8_t>(ViewOf::kItems);
        if (items && !are_equal(rt, pair.value, *other)) return false;
    }
    return true;
}

bool equal_ranges(const Range& a, const Range& b) {
    int64_t size = range_size(a);
    if (size != range_size(b)) return false;
    return size == 0 || (a.start == b.start && (size == 1 || a.step == b.step));
}

}  // namespace

bool are_equal(Runtime& rt, const Value& a, const Value& b) {
    Nested nested(rt);
    rt.step();
    if (a.is_number() && b.is_number()) return compare_numbers(a, b) == 0;
    if (a.kind != b.kind) return false;
    switch (a.kind) {
        case Kind::kMissing:
        case Kind::kUndefined:
        case Kind::kNone:
            return true;
        case Kind::kString:
            rt.touch(std::min(a.text.size, b.text.size));
            return a.text.view() == b.text.view();
        case Kind::kList:
        case Kind::kTuple:
            return equal_items(rt, a.items, b.items);
        case Kind::kDict:
            return equal_dicts(rt, a.pairs, b.pairs);
        case Kind::kView:
            return equal_views(rt, a, b);
        case Kind::kRange:
            return equal_ranges(a.range, b.range);
        case Kind::kFunction:
            return a.detail == b.detail;
        default:
            return a.iterator == b.iterator;  // the same object
    }
}

bool is_less(Runtime& rt, const Value& a, const Value& b) {
    Nested nested(rt);
    rt.step();
    if (a.is_number() && b.is_number()) return compare_numbers(a, b) == -1;
    if (a.is_string() && b.is_string()) {
        // Bytes of UTF-8 are in the order of their code points.
        rt.touch(std::min(a.text.size, b.text.size));
        return a.text.view() < b.text.view();
    }
    if (a.kind != b.kind || !a.is_sequence()) fail_types(rt, Op::kLt, a, b);
    for (size_t i = 0; i < std::min(a.items.size, b.items.size); i++) {
        if (!are_equal(rt, a.items.data[i], b.items.data[i])) {
            return is_less(rt, a.items.data[i], b.items.data[i]);
        }
    }
    return a.items.size < b.items.size;
}

bool compare(Runtime& rt, Op op, const Value& a, const Value& b) {
    switch (op) {
        case Op::kEq:
            return are_equal(rt, a, b);
        case Op::kNe:
            return !are_equal(rt, a, b);
        case Op::kIn:
            return contains(rt, b, a);
        case Op::kNotIn:
            return !contains(rt, b, a);
        case Op::kLt:
            return is_less(rt, a, b);
        case Op::kGt:
            return is_less(rt, b, a);
        default:
            break;
    }
    // <= and >= are not the inverse of > and < where a NaN takes part.
    if (a.is_number() && b.is_number()) {
        int order = compare_numbers(a, b);
        return order == 0 || order == (op == Op::kLe ? -1 : 1);
    }
    return op == Op::kLe ? !is_less(rt, b, a) : !is_less(rt, a, b);
}

bool is_hashable(Runtime& rt, const Value& key) {
    Nested nested(rt);
    bool view = key.is(Kind::kView) && key.detail != static_cast<uint8_t>(ViewOf::kValues);
    if (key.is(Kind::kList) || key.is_dict() || view) return false;
    if (!key.is(Kind::kTuple)) return true;
    rt.step(key.items.size);
    return std::all_of(key.items.begin(), key.items.end(),
                       [&](const Value& item) { return is_hashable(rt, item); });
}

void check_hashable(Runtime& rt, const Value& key) {
    if (!is_hashable(rt, key)) rt.fail("a {} cannot be a key", type_name(key));
}

const Value* find_key(Runtime& rt, Pairs pairs, const Value& key) {
    rt.step(1 + pairs.size / 8);
    if (key.is_string()) return find_key(pairs, key.text.view());
    for (const Pair& pair : pairs) {
        if (!pair.key.is_string() && are_equal(rt, pair.key, key)) return &pair.value;
    }
    return nullptr;
}

const Value* find_key(Pairs pairs, std::string_view key) {
    for (const Pair& pair : pairs) {
        if (pair.key.is_string() && pair.key.text.view() == key) return &pair.value;
    }
    return nullptr;
}

void DictBuilder::set(const Value& key, const Value& value) {
    check_hashable(rt_, key);
    for (Pair& pair : pairs_) {
        if (pair.key.kind != key.kind && !(pair.key.is_number() && key.is_number())) continue;
        if (!are_equal(rt_, pair.key, key)) continue;
        pair.value = value;
        return;
    }
    rt_.charge(sizeof(Pair));
    pairs_.push_back({key, value});
}

bool contains(Runtime& rt, const Value& container, const Value& item) {
    switch (container.kind) {
        case Kind::kString:
            if (!item.is_string()) fail_types(rt, Op::kIn, item, container);
            rt.touch(container.text.size);
            return find_text(container.text.view(), item.text.view()) != std::string_view::npos;
        case Kind::kDict:
            check_hashable(rt, item);
            return find_key(rt, container.pairs, item) != nullptr;
        case Kind::kUndefined:
            return false;
        case Kind::kView:
            if (container.detail == static_cast<uint8_t>(ViewOf::kKeys)) {
                check_hashable(rt, item);
                return find_key(rt, container.pairs, item) != nullptr;
            }
            break;
        case Kind::kIterator:  // reads up to the item it finds
            while (container.iterator->position < container.iterator->items.size) {
                const Value& next = container.iterator->items.data[container.iterator->position++];
                if (are_equal(rt, next, item)) return true;
            }
            return false;
        default:
            break;
    }
    if (!is_iterable(container)) fail_types(rt, Op::kIn, item, container);
    for (const Value& other : items_of(rt, container)) {
        if (are_equal(rt, other, item)) return true;
    }
    return false;
}

// Arithmetic.

namespace {

Value int_power(Runtime& rt, int64_t base, int64_t exponent) {
    int64_t result = 1;
    bool fits = true;
    while (exponent > 0 && fits) {
        if ((exponent & 1) != 0) fits = !__builtin_mul_overflow(result, base, &result);
        exponent >>= 1;
        if (exponent > 0) fits = fits && !__builtin_mul_overflow(base, base, &base);
    }
    if (!fits) fail_overflow(rt, Op::kPow);
    return Value::of_int(result);
}

Value int_arithmetic(Runtime& rt, Op op, int64_t a, int64_t b) {
    int64_t result = 0;
    bool overflow = false;
    switch (op) {
        case Op::kAdd:
            overflow = __builtin_add_overflow(a, b, &result);
            break;
        case Op::kSub:
            overflow = __builtin_sub_overflow(a, b, &result);
            break;
        case Op::kMul:
            overflow = __builtin_mul_overflow(a, b, &result);
            break;
        case Op::kFloorDiv:
        case Op::kMod: {
            if (b == 0) rt.fail("division by zero");
            if (b == -1) {  // the one quotient that can overflow
                overflow = op == Op::kFloorDiv && __builtin_sub_overflow(int64_t{0}, a, &result);
                break;
            }
            int64_t quotient = a / b, rest = a % b;
            if (rest != 0 && (rest < 0) != (b < 0)) quotient--, rest += b;
            result = op == Op::kMod ? rest : quotient;
            break;
        }
        case Op::kPow:
            return int_power(rt, a, b);
        default:
            break;
    }
    if (overflow) fail_overflow(rt, op);
    return Value::of_int(result);
}

// Python's float_divmod.
Value real_floor_division(Op op, double a, double b) {
    double rest = std::fmod(a, b);
    double quotient = (a - rest) / b;
    if (rest != 0) {
        if ((b < 0) != (rest < 0)) rest += b, quotient -= 1;
    } else {
        rest = std::copysign(0.0, b);
    }
    if (op == Op::kMod) return Value::of_real(rest);
    if (quotient == 0) return Value::of_real(std::copysign(0.0, a / b));
    double whole = std::floor(quotient);
    return Value::of_real(quotient - whole > 0.5 ? whole + 1 : whole);
}

Value real_power(Runtime& rt, double a, double b) {
    if (a == 0 && b < 0) rt.fail("zero to a negative power");
    if (a < 0 && std::isfinite(a) && std::isfinite(b) && b != std::floor(b)) {
        rt.fail("a negative number to a fractional power has no real value");
    }
    double result = std::pow(a, b);
    if (std::isinf(result) && std::isfinite(a) && std::isfinite(b)) {
        rt.fail("the result of '**' is too large");
    }
    return Value::of_real(result);
}

Value real_arithmetic(Runtime& rt, Op op, double a, double b) {
    switch (op) {
        case Op::kAdd:
            return Value::of_real(a + b);
        case Op::kSub:
            return Value::of_real(a - b);
        case Op::kMul:
            return Value::of_real(a * b);
        case Op::kPow:
            return real_power(rt, a, b);
        default:
            break;
    }
    if (b == 0) rt.fail("division by zero");
    return op == Op::kDiv ? Value::of_real(a / b) : real_floor_division(op, a, b);
}

Value number_arithmetic(Runtime& rt, Op op, const Value& a, const Value& b) {
    bool integers = !a.is(Kind::kFloat) && !b.is(Kind::kFloat);
    if (integers && (a.is(Kind::kBigInt) || b.is(Kind::kBigInt))) {
        rt.fail("arithmetic with an integer that does not fit 64 bits");
    }
    bool negative_power = integers && op == Op::kPow && b.integer < 0;
    Value result = integers && op != Op::kDiv && !negative_power
                       ? int_arithmetic(rt, op, a.integer, b.integer)
                       : real_arithmetic(rt, op, to_real(a), to_real(b));
    result.trusted = a.trusted && b.trusted;
    return result;
}

Value repeat_items(Runtime& rt, const Value& sequence, uint64_t count) {
    size_t size = sequence.items.size;
    if (size > 0 && count > rt.limits().max_memory_bytes / sizeof(Value) / size) {
        rt.fail("{} * int: {} times {} items is more than a template may hold", type_name(sequence),
                count, size);
    }
    rt.step(size * count);
    Value* data = rt.create<Value>(size * count);
    for (size_t i = 0; i < size * count; i++) data[i] = sequence.items.data[i % size];
    return Value::list(data, size * count, sequence.kind);
}

Value repeat(Runtime& rt, const Value& sequence, int64_t n) {
    uint64_t count = n > 0 ? static_cast<uint64_t>(n) : 0;
    if (!sequence.is_string()) return repeat_items(rt, sequence, count);
    const Str& text = sequence.text;
    if (text.size > 0 && count > rt.limits().max_memory_bytes / text.size) {
        rt.fail("str * int: {} times {} bytes is more than a template may hold", count, text.size);
    }
    Runtime::Room room = rt.make_room(text.size * count, text.marks != nullptr);
    for (uint64_t i = 0; text.size > 0 && i < count; i++) {
        std::memcpy(room.text + i * text.size, text.data, text.size);
        if (room.marks != nullptr) std::memcpy(room.marks + i * text.size, text.marks, text.size);
    }
    Str repeated = text;
    repeated.data = room.text;
    repeated.marks = room.marks;
    repeated.size = static_cast<uint32_t>(text.size * count);
    return Value::of(repeated);
}

bool can_repeat(const Value& a, const Value& b) {
    return (a.is_string() || a.is_sequence()) && b.is_integral();
}

}  // namespace

Value add(Runtime& rt, const Value& a, const Value& b) {
    if (a.is_string() && b.is_string()) {
        // Markup escapes the plain text that it meets.
        Str left = a.text, right = b.text;
        bool markup = left.markup || right.markup;
        if (markup && !left.markup) left = escape_html(rt, left);
        if (markup && !right.markup) right = escape_html(rt, right);
        Str sum = rt.concat(left, right);
        sum.markup = markup;
        return Value::of(sum);
    }
    if (a.is_sequence() && a.kind == b.kind) {
        size_t size = a.items.size + b.items.size;
        rt.step(size);
        Value* data = rt.create<Value>(size);
        std::copy(a.items.begin(), a.items.end(), data);
        std::copy(b.items.begin(), b.items.end(), data + a.items.size);
        return Value::list(data, size, a.kind);
    }
    if (a.is_number() && b.is_number()) return number_arithmetic(rt, Op::kAdd, a, b);
    fail_types(rt, Op::kAdd, a, b);
}

Value arithmetic(Runtime& rt, Op op, const Value& a, const Value& b) {
    if (op == Op::kAdd) return add(rt, a, b);
    if (a.is_number() && b.is_number()) return number_arithmetic(rt, op, a, b);
    if (op == Op::kMul && can_repeat(a, b)) return repeat(rt, a, b.integer);
    if (op == Op::kMul && can_repeat(b, a)) return repeat(rt, b, a.integer);
    if (op == Op::kMod && a.is_string()) return Value::of(format_percent(rt, a.text, b));
    fail_types(rt, op, a, b);
}

Value negate(Runtime& rt, const Value& a) {
    if (a.is_undefined()) fail_undefined(rt, a);
    if (a.is(Kind::kFloat)) return Value::of_real(-a.real, a.trusted);
    if (!a.is_integral()) rt.fail("-: a {} has no negative", type_name(a));
    int64_t result;
    if (__builtin_sub_overflow(int64_t{0}, a.integer, &result)) fail_overflow(rt, Op::kSub);
    return Value::of_int(result, a.trusted);
}

Value plus(Runtime& rt, const Value& a) {
    if (a.is_undefined()) fail_undefined(rt, a);
    if (!a.is_number()) rt.fail("+: a {} is not a number", type_name(a));
    return a.is(Kind::kBool) ? Value::of_int(a.integer, a.trusted) : a;
}

}  // namespace ridge::jinja
