#pragma once

#include <algorithm>
#include <string_view>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/runtime.h"

namespace ridge::jinja {

// Python's operators on values. What Python raises is an Error.

bool is_true(const Value& value);
bool are_equal(Runtime& rt, const Value& a, const Value& b);
bool is_less(Runtime& rt, const Value& a, const Value& b);         // a < b
bool compare(Runtime& rt, Op op, const Value& a, const Value& b);  // ==, <, in, ...
bool contains(Runtime& rt, const Value& container, const Value& item);

Value arithmetic(Runtime& rt, Op op, const Value& a, const Value& b);
Value add(Runtime& rt, const Value& a, const Value& b);
Value negate(Runtime& rt, const Value& a);
Value plus(Runtime& rt, const Value& a);
double to_real(const Value& number);

// Sequences: sequences.cpp.

int64_t length(Runtime& rt, const Value& value);  // len()
int64_t range_size(const Range& range);
// The values that iterating gives; an iterator is used up by it.
Items items_of(Runtime& rt, const Value& value);
bool is_iterable(const Value& value);

// value[key] without the fall-backs of a template; kMissing where Python raises LookupError or
// TypeError.
Value find_item(Runtime& rt, const Value& value, const Value& key);
const Value* find_key(Runtime& rt, Pairs pairs, const Value& key);  // null: not there
const Value* find_key(Pairs pairs, std::string_view key);
bool is_hashable(Runtime& rt, const Value& key);
void check_hashable(Runtime& rt, const Value& key);
// value[start:stop:step], where a kNone part was not given.
Value slice(Runtime& rt, const Value& value, const Value& start, const Value& stop,
            const Value& step);

// A dict under construction: a key given again keeps its place and takes the new value.
class DictBuilder {
  public:
    explicit DictBuilder(Runtime& rt) : rt_(rt) {}
    void set(const Value& key, const Value& value);
    Value finish() { return rt_.make_dict(pairs_); }

  private:
    Runtime& rt_;
    std::vector<Pair> pairs_;
};

// "'x' is undefined", for an undefined value that was used.
[[noreturn]] void fail_undefined(Runtime& rt, const Value& value);

// Merge sort, stable, safe with an order that is none (NaN) or throws.
template <class T, class Less>
void stable_sort_by(Runtime& rt, std::vector<T>& items, const Less& less) {
    rt.charge(items.size() * sizeof(T));
    std::vector<T> from(items.size());
    for (size_t width = 1; width < items.size(); width *= 2) {
        from.swap(items);
        for (size_t begin = 0; begin < from.size(); begin += 2 * width) {
            size_t middle = std::min(begin + width, from.size());
            size_t end = std::min(begin + 2 * width, from.size());
            size_t a = begin, b = middle;
            for (size_t out = begin; out < end; out++) {
                rt.step();
                bool take_b = a == middle || (b < end && less(from[b], from[a]));
                items[out] = take_b ? from[b++] : from[a++];
            }
        }
    }
}

}  // namespace ridge::jinja
