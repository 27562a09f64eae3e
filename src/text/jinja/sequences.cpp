#include <algorithm>

#include "text/jinja/operators.h"
#include "text/jinja/strings.h"
#include "text/jinja/unicode.h"

namespace ridge::jinja {

int64_t range_size(const Range& range) {
    auto distance = [](int64_t low, int64_t high) {
        return static_cast<uint64_t>(high) - static_cast<uint64_t>(low);
    };
    uint64_t gap, stride;
    if (range.step > 0) {
        if (range.start >= range.stop) return 0;
        gap = distance(range.start, range.stop);
        stride = static_cast<uint64_t>(range.step);
    } else {
        if (range.start <= range.stop) return 0;
        gap = distance(range.stop, range.start);
        stride = distance(range.step, 0);
    }
    uint64_t size = (gap - 1) / stride + 1;
    return static_cast<int64_t>(std::min<uint64_t>(size, INT64_MAX));
}

namespace {

// start + i * step: wraps where i lies outside the range, as the value is then not read.
int64_t range_at(const Range& range, int64_t i) {
    return static_cast<int64_t>(static_cast<uint64_t>(range.start) +
                                static_cast<uint64_t>(i) * static_cast<uint64_t>(range.step));
}

}  // namespace

int64_t length(Runtime& rt, const Value& value) {
    switch (value.kind) {
        case Kind::kUndefined:
            return 0;
        case Kind::kString:
            rt.touch(value.text.size);
            return count_chars(value.text.view());
        case Kind::kList:
        case Kind::kTuple:
            return static_cast<int64_t>(value.items.size);
        case Kind::kDict:
        case Kind::kView:
            return static_cast<int64_t>(value.pairs.size);
        case Kind::kRange:
            return range_size(value.range);
        default:
            rt.fail("a {} has no length", type_name(value));
    }
}

bool is_iterable(const Value& value) {
    switch (value.kind) {
        case Kind::kUndefined:
        case Kind::kString:
        case Kind::kList:
        case Kind::kTuple:
        case Kind::kDict:
        case Kind::kView:
        case Kind::kRange:
        case Kind::kIterator:
            return true;
        default:
            return false;
    }
}

namespace {

Items chars_of(Runtime& rt, const Str& text) {
    size_t n = static_cast<size_t>(count_chars(text.view()));
    rt.step(n);
    Value* data = rt.create<Value>(n);
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        size_t end = at + utf8_length(text.data[at]);
        data[i] = Value::of(text.slice(at, end));
        data[i].text.markup = false;
        at = end;
    }
    return {data, n};
}

Items view_items(Runtime& rt, const Value& view) {
    auto of = static_cast<ViewOf>(view.detail);
    rt.step(view.pairs.size);
    Value* data = rt.create<Value>(view.pairs.size);
    for (size_t i = 0; i < view.pairs.size; i++) {
        const Pair& pair = view.pairs.data[i];
        data[i] = of == ViewOf::kKeys     ? pair.key
                  : of == ViewOf::kValues ? pair.value
                                          : rt.make_tuple({pair.key, pair.value});
    }
    return {data, view.pairs.size};
}

}  // namespace

Items items_of(Runtime& rt, const Value& value) {
    switch (value.kind) {
        case Kind::kUndefined:
            return {nullptr, 0};
        case Kind::kString:
            return chars_of(rt, value.text);
        case Kind::kList:
        case Kind::kTuple:
            return value.items;
        case Kind::kDict: {
            Value keys = Value::of_kind(Kind::kView);
            keys.pairs = value.pairs;
            return view_items(rt, keys);
        }
        case Kind::kView:
            return view_items(rt, value);
        case Kind::kRange: {
            size_t n = static_cast<size_t>(range_size(value.range));
            rt.step(n);
            Value* data = rt.create<Value>(n);
            for (size_t i = 0; i < n; i++) {
                data[i] = Value::of_int(range_at(value.range, static_cast<int64_t>(i)));
            }
            return {data, n};
        }
        case Kind::kIterator: {
            Iterator& it = *value.iterator;
            Items rest{it.items.data + it.position, it.items.size - it.position};
            it.position = it.items.size;
            return rest;
        }
        default:
            rt.fail("a {} cannot be iterated over", type_name(value));
    }
}

Value find_item(Runtime& rt, const Value& value, const Value& key) {
    if (value.is_dict()) {
        if (!is_hashable(rt, key)) return Value::missing();
        const Value* found = find_key(rt, value.pairs, key);
        return found != nullptr ? *found : Value::missing();
    }
    if (!key.is_integral()) return Value::missing();
    int64_t size;
    switch (value.kind) {
        case Kind::kString:
            size = length(rt, value);
            break;
        case Kind::kList:
        case Kind::kTuple:
            size = static_cast<int64_t>(value.items.size);
            break;
        case Kind::kRange:
            size = range_size(value.range);
            break;
        default:
            return Value::missing();
    }
    int64_t at = key.integer < 0 ? key.integer + size : key.integer;
    if (at < 0 || at >= size) return Value::missing();
    if (value.is(Kind::kRange)) return Value::of_int(range_at(value.range, at));
    if (!value.is_string()) return value.items.data[at];
    size_t begin = byte_of_char(value.text.view(), at);
    return Value::of(value.text.slice(begin, begin + utf8_length(value.text.data[begin])));
}

namespace {

struct SliceBounds {
    int64_t start, stop, step, size;
};

// slice.indices() and the number of items it takes.
SliceBounds slice_bounds(Runtime& rt, int64_t length, const Value& start, const Value& stop,
                         const Value& step_value) {
    for (const Value* part : {&start, &stop, &step_value}) {
        if (part->is_undefined()) fail_undefined(rt, *part);
        if (!part->is_none() && !part->is_integral()) {
            rt.fail("a slice index is a {}, expected int or None", type_name(*part));
        }
    }
    int64_t step = step_value.is_none() ? 1 : step_value.integer;
    if (step == 0) rt.fail("slice step is zero");
    if (step < -INT64_MAX) step = -INT64_MAX;
    int64_t low = step < 0 ? -1 : 0, high = step < 0 ? length - 1 : length;
    auto place = [&](const Value& part, int64_t fallback) {
        if (part.is_none()) return fallback;
        int64_t at = part.integer;
        if (at < 0) at += length;  // no overflow: the signs differ
        return std::clamp(at, low, high);
    };
    int64_t from = place(start, step < 0 ? high : low);
    int64_t to = place(stop, step < 0 ? low : high);
    int64_t size = 0;
    if (step > 0 && from < to) size = (to - from - 1) / step + 1;
    if (step < 0 && from > to) size = (from - to - 1) / -step + 1;
    return {from, to, step, size};
}

Str slice_string(Runtime& rt, const Str& text, const SliceBounds& bounds) {
    if (bounds.size == 0) return text.slice(0, 0);
    if (bounds.step == 1) {
        size_t begin = byte_of_char(text.view(), bounds.start);
        size_t n_bytes = byte_of_char(text.view().substr(begin), bounds.size);
        return text.slice(begin, begin + n_bytes);
    }
    std::vector<uint32_t> starts;  // of each character
    rt.charge(text.size * sizeof(uint32_t));
    for (uint32_t at = 0; at < text.size; at++) {
        if (is_utf8_start(text.data[at])) starts.push_back(at);
    }
    starts.push_back(text.size);
    TextBuilder out(rt);
    for (int64_t i = 0; i < bounds.size; i++) {
        rt.step();
        size_t at = static_cast<size_t>(bounds.start + i * bounds.step);
        out.append(text.slice(starts[at], starts[at + 1]));
    }
    Str result = out.finish();
    result.markup = text.markup;
    return result;
}

}  // namespace

Value slice(Runtime& rt, const Value& value, const Value& start, const Value& stop,
            const Value& step) {
    if (value.is_undefined()) fail_undefined(rt, value);
    if (!value.is_string() && !value.is_sequence() && !value.is(Kind::kRange)) {
        rt.fail("a {} cannot be sliced", type_name(value));
    }
    SliceBounds bounds = slice_bounds(rt, length(rt, value), start, stop, step);
    if (value.is_string()) return Value::of(slice_string(rt, value.text, bounds));
    if (value.is(Kind::kRange)) {
        Value part = Value::of_kind(Kind::kRange);
        int64_t stride;
        if (__builtin_mul_overflow(bounds.step, value.range.step, &stride)) {
            rt.fail("the step of a slice does not fit a 64-bit integer");
        }
        part.range = {range_at(value.range, bounds.start), range_at(value.range, bounds.stop),
                      stride};
        return part;
    }
    if (bounds.step == 1) {
        return Value::list(value.items.data + bounds.start, static_cast<size_t>(bounds.size),
                           value.kind);
    }
    rt.step(static_cast<uint64_t>(bounds.size));
    Value* data = rt.create<Value>(static_cast<size_t>(bounds.size));
    for (int64_t i = 0; i < bounds.size; i++) {
        data[i] = value.items.data[bounds.start + i * bounds.step];
    }
    return Value::list(data, static_cast<size_t>(bounds.size), value.kind);
}

}  // namespace ridge::jinja
