#include "text/jinja/attributes.h"
#include "text/jinja/filters.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"
#include "text/jinja/strings.h"

namespace ridge::jinja {
namespace {

Value fold_case(Runtime& rt, const Value& value, bool case_sensitive) {
    return case_sensitive || !value.is_string() ? value : Value::of(lower(rt, value.text));
}

Value make_iterator(Runtime& rt, const std::vector<Value>& values) {
    return rt.make_iterator(rt.make_list(values).items);
}

void push(Runtime& rt, std::vector<Value>& values, const Value& value) {
    rt.step();
    rt.charge(sizeof(Value));
    values.push_back(value);
}

Value filter_length(Runtime& rt, const Value& subject, const Args& args) {
    expect_no_args(rt, "length", args);
    return Value::of_int(length(rt, subject));
}

Value filter_list(Runtime& rt, const Value& subject, const Args& args) {
    expect_no_args(rt, "list", args);
    Items items = items_of(rt, subject);
    return Value::list(items.data, items.size);
}

Value filter_first(Runtime& rt, const Value& subject, const Args& args) {
    expect_no_args(rt, "first", args);
    if (subject.is(Kind::kIterator)) {
        Iterator& it = *subject.iterator;
        if (it.position < it.items.size) return it.items.data[it.position++];
    } else if (subject.is_string() && !subject.text.empty()) {
        return find_item(rt, subject, Value::of_int(0));
    } else {
        Items items = items_of(rt, subject);
        if (items.size > 0) return items.data[0];
    }
    return Value::of_hint("no first item, the sequence was empty");
}

Value filter_last(Runtime& rt, const Value& subject, const Args& args) {
    expect_no_args(rt, "last", args);
    if (subject.is(Kind::kIterator)) rt.fail("last: an iterator cannot be read from its end");
    if (subject.is_string() && !subject.text.empty()) {
        return find_item(rt, subject, Value::of_int(-1));
    }
    Items items = items_of(rt, subject);
    if (items.size > 0) return items.data[items.size - 1];
    return Value::of_hint("no last item, the sequence was empty");
}

Value filter_reverse(Runtime& rt, const Value& subject, const Args& args) {
    expect_no_args(rt, "reverse", args);
    if (subject.is_string()) return Value::of(reverse_text(rt, subject.text));
    Items items = items_of(rt, subject);
    rt.step(items.size);
    Value* data = rt.create<Value>(items.size);
    std::reverse_copy(items.begin(), items.end(), data);
    Items reversed{data, items.size};
    bool was_iterator = subject.is(Kind::kIterator);
    return was_iterator ? Value::list(data, items.size) : rt.make_iterator(reversed);
}

Value filter_items(Runtime& rt, const Value& subject, const Args& args) {
    expect_no_args(rt, "items", args);
    if (subject.is_undefined()) return rt.make_iterator({nullptr, 0});
    if (!subject.is_dict()) rt.fail("items: a {} is not a mapping", type_name(subject));
    Value view = Value::of_kind(Kind::kView);
    view.pairs = subject.pairs;
    view.detail = static_cast<uint8_t>(ViewOf::kItems);
    return rt.make_iterator(items_of(rt, view));
}

Value filter_join(Runtime& rt, const Value& subject, const Args& args) {
    auto [separator, attribute] = bind(rt, "join", args, Names<2>{"d", "attribute"});
    Items items = items_of(rt, subject);
    std::vector<Value> picked;
    if (!attribute.is_missing() && !attribute.is_none()) {
        for (const Value& item : items) {
            push(rt, picked, get_path(rt, item, attribute, Value::missing()));
        }
        items = {picked.data(), picked.size()};
    }
    Str by = separator.is_missing() ? Str{} : to_text(rt, separator);
    return Value::of(join(rt, by, items));
}

// Order.

struct Keyed {
    Value key, value;
};

void sort_keyed(Runtime& rt, std::vector<Keyed>& items, bool reverse) {
    stable_sort_by(rt, items, [&](const Keyed& a, const Keyed& b) {
        return reverse ? is_less(rt, b.key, a.key) : is_less(rt, a.key, b.key);
    });
}

Value values_of(Runtime& rt, const std::vector<Keyed>& items) {
    Value* data = rt.create<Value>(items.size());
    for (size_t i = 0; i < items.size(); i++) data[i] = items[i].value;
    return Value::list(data, items.size());
}

// The key of `sort`: the values of one or more paths, "a.b,c".
Value multi_path(Runtime& rt, const Value& item, const Value& paths, bool case_sensitive) {
    std::vector<Value> keys;
    auto take = [&](const Value& path) {
        push(rt, keys, fold_case(rt, get_path(rt, item, path, Value::missing()), case_sensitive));
    };
    if (paths.is_string()) {
        for (const Str& path : split(rt, paths.text, Str::of(",", true), -1)) take(Value::of(path));
    } else {
        take(paths);
    }
    return rt.make_list(keys);
}

Value filter_sort(Runtime& rt, const Value& subject, const Args& args) {
    auto [reverse, case_sensitive, attribute] =
        bind(rt, "sort", args, Names<3>{"reverse", "case_sensitive", "attribute"});
    std::vector<Keyed> items;
    for (const Value& item : items_of(rt, subject)) {
        rt.charge(sizeof(Keyed));
        items.push_back({multi_path(rt, item, attribute, flag(case_sensitive)), item});
    }
    sort_keyed(rt, items, flag(reverse));
    return values_of(rt, items);
}

Value filter_dict_sort(Runtime& rt, const Value& subject, const Args& args) {
    auto [case_sensitive, by, reverse] =
        bind(rt, "dictsort", args, Names<3>{"case_sensitive", "by", "reverse"});
    std::string_view what = by.is_missing() ? "key" : expect_string(rt, by, "dictsort: by").view();
    if (what != "key" && what != "value") rt.fail("dictsort: `by` is not key or value");
    if (!subject.is_dict()) rt.fail("dictsort: a {} is not a dict", type_name(subject));
    std::vector<Keyed> items;
    for (const Pair& pair : subject.pairs) {
        rt.charge(sizeof(Keyed));
        const Value& key = what == "key" ? pair.key : pair.value;
        items.push_back(
            {fold_case(rt, key, flag(case_sensitive)), rt.make_tuple({pair.key, pair.value})});
    }
    sort_keyed(rt, items, flag(reverse));
    return values_of(rt, items);
}

Value min_or_max(Runtime& rt, std::string_view name, const Value& subject, const Args& args) {
    auto [case_sensitive, attribute] =
        bind(rt, name, args, Names<2>{"case_sensitive", "attribute"});
    Items items = items_of(rt, subject);
    if (items.size == 0) return Value::of_hint("no aggregated item, the sequence was empty");
    size_t best = 0;
    Value best_key;
    for (size_t i = 0; i < items.size; i++) {
        Value key = fold_case(rt, get_path(rt, items.data[i], attribute, Value::missing()),
                              flag(case_sensitive));
        bool better =
            i == 0 || (name == "min" ? is_less(rt, key, best_key) : is_less(rt, best_key, key));
        if (better) best = i, best_key = key;
    }
    return items.data[best];
}

Value filter_min(Runtime& rt, const Value& subject, const Args& args) {
    return min_or_max(rt, "min", subject, args);
}

Value filter_max(Runtime& rt, const Value& subject, const Args& args) {
    return min_or_max(rt, "max", subject, args);
}

Value filter_sum(Runtime& rt, const Value& subject, const Args& args) {
    auto [attribute, start] = bind(rt, "sum", args, Names<2>{"attribute", "start"});
    Value total = start.is_missing() ? Value::of_int(0) : start;
    if (total.is_string()) rt.fail("sum: strings are joined, not summed");
    for (const Value& item : items_of(rt, subject)) {
        total = add(rt, total, get_path(rt, item, attribute, Value::missing()));
    }
    return total;
}

Value filter_unique(Runtime& rt, const Value& subject, const Args& args) {
    auto [case_sensitive, attribute] =
        bind(rt, "unique", args, Names<2>{"case_sensitive", "attribute"});
    std::vector<Value> seen, kept;
    for (const Value& item : items_of(rt, subject)) {
        Value key =
            fold_case(rt, get_path(rt, item, attribute, Value::missing()), flag(case_sensitive));
        check_hashable(rt, key);
        bool known = std::any_of(seen.begin(), seen.end(),
                                 [&](const Value& other) { return are_equal(rt, key, other); });
        if (known) continue;
        push(rt, seen, key);
        push(rt, kept, item);
    }
    return make_iterator(rt, kept);
}

Value make_group(Runtime& rt, const Value& key, const std::vector<Value>& members) {
    Value group = rt.make_tuple({key, rt.make_list(members)});
    group.detail = static_cast<uint8_t>(TupleOf::kGroup);
    return group;
}

Value filter_group_by(Runtime& rt, const Value& subject, const Args& args) {
    auto [attribute, fallback, case_sensitive] =
        bind(rt, "groupby", args, Names<3>{"attribute", "default", "case_sensitive"}, 1);
    std::vector<Keyed> items;
    for (const Value& item : items_of(rt, subject)) {
        rt.charge(sizeof(Keyed));
        Value key = get_path(rt, item, attribute, fallback);
        items.push_back({fold_case(rt, key, flag(case_sensitive)), item});
    }
    sort_keyed(rt, items, false);
    std::vector<Value> groups, members;
    for (size_t i = 0; i < items.size(); i++) {
        push(rt, members, items[i].value);
        if (i + 1 < items.size() && are_equal(rt, items[i].key, items[i + 1].key)) continue;
        // The group's key is the first member's, in its own case.
        Value key =
            flag(case_sensitive) ? items[i].key : get_path(rt, members[0], attribute, fallback);
        push(rt, groups, make_group(rt, key, members));
        members.clear();
    }
    return rt.make_list(groups);
}

Value filter_batch(Runtime& rt, const Value& subject, const Args& args) {
    auto [count, fill] = bind(rt, "batch", args, Names<2>{"linecount", "fill_with"}, 1);
    int64_t size = expect_int(rt, count, "batch: linecount");
    std::vector<Value> batches, current;
    for (const Value& item : items_of(rt, subject)) {
        if (static_cast<int64_t>(current.size()) == size) {
            push(rt, batches, rt.make_list(current));
            current.clear();
        }
        push(rt, current, item);
    }
    if (!current.empty()) {
        bool filled = !fill.is_missing() && !fill.is_none();
        while (filled && static_cast<int64_t>(current.size()) < size) push(rt, current, fill);
        push(rt, batches, rt.make_list(current));
    }
    return make_iterator(rt, batches);
}

Value filter_slice(Runtime& rt, const Value& subject, const Args& args) {
    auto [count, fill] = bind(rt, "slice", args, Names<2>{"slices", "fill_with"}, 1);
    int64_t n_slices = expect_int(rt, count, "slice: slices");
    Items items = items_of(rt, subject);
    if (n_slices == 0) rt.fail("slice: division by zero");
    std::vector<Value> slices;
    if (n_slices < 0) return make_iterator(rt, slices);
    size_t each = items.size / static_cast<size_t>(n_slices);
    size_t longer = items.size % static_cast<size_t>(n_slices), at = 0;
    for (size_t i = 0; i < static_cast<size_t>(n_slices); i++) {
        size_t n = each + (i < longer ? 1 : 0);
        std::vector<Value> part(items.data + at, items.data + at + n);
        rt.charge(n * sizeof(Value));
        at += n;
        bool filled = !fill.is_missing() && !fill.is_none() && i >= longer;
        if (filled) push(rt, part, fill);
        push(rt, slices, rt.make_list(part));
    }
    return make_iterator(rt, slices);
}

// map, select and their like: a filter, a test or an attribute for every item.

Args rest_of(const Args& args, size_t skip) {
    Args rest = args;
    rest.positional.erase(rest.positional.begin(),
                          rest.positional.begin() + static_cast<ptrdiff_t>(skip));
    return rest;
}

Value filter_map(Runtime& rt, const Value& subject, const Args& args) {
    std::vector<Value> mapped;
    if (!is_true(subject)) return make_iterator(rt, mapped);
    bool by_attribute = args.positional.empty() &&
                        std::any_of(args.named.begin(), args.named.end(), [](const auto& named) {
                            return named.first.view() == "attribute";
                        });
    if (by_attribute) {
        auto [attribute, fallback] = bind(rt, "map", args, Names<2>{"attribute", "default"});
        for (const Value& item : items_of(rt, subject)) {
            push(rt, mapped, get_path(rt, item, attribute, fallback));
        }
        return make_iterator(rt, mapped);
    }
    if (args.positional.empty()) rt.fail("map needs a filter or an attribute");
    Str name = expect_string(rt, args.positional[0], "map: the filter");
    Args rest = rest_of(args, 1);
    Nested nested(rt);
    for (const Value& item : items_of(rt, subject)) {
        push(rt, mapped, apply_filter(rt, name, item, rest));
    }
    return make_iterator(rt, mapped);
}

Value select_or_reject(Runtime& rt, const Value& subject, const Args& args, bool wanted,
                       bool by_attribute) {
    std::vector<Value> kept;
    if (!is_true(subject)) return make_iterator(rt, kept);
    size_t n_used = by_attribute ? 1 : 0;
    if (args.positional.size() < n_used) rt.fail("selectattr needs the name of an attribute");
    Value path = by_attribute ? args.positional[0] : Value::missing();
    bool has_test = args.positional.size() > n_used;
    Str test = has_test ? expect_string(rt, args.positional[n_used], "select: the test") : Str{};
    Args rest = rest_of(args, has_test ? n_used + 1 : n_used);
    for (const Value& item : items_of(rt, subject)) {
        Value value = get_path(rt, item, path, Value::missing());
        bool holds = has_test ? apply_test(rt, test, value, rest) : is_true(value);
        if (holds == wanted) push(rt, kept, item);
    }
    return make_iterator(rt, kept);
}

template <bool Wanted, bool ByAttribute>
Value filter_select(Runtime& rt, const Value& subject, const Args& args) {
    return select_or_reject(rt, subject, args, Wanted, ByAttribute);
}

constexpr FilterRow kFilters[] = {
    {"batch", filter_batch},
    {"count", filter_length},
    {"dictsort", filter_dict_sort},
    {"first", filter_first},
    {"groupby", filter_group_by},
    {"items", filter_items},
    {"join", filter_join},
    {"last", filter_last},
    {"length", filter_length},
    {"list", filter_list},
    {"map", filter_map},
    {"max", filter_max},
    {"min", filter_min},
    {"reject", filter_select<false, false>},
    {"rejectattr", filter_select<false, true>},
    {"reverse", filter_reverse},
    {"select", filter_select<true, false>},
    {"selectattr", filter_select<true, true>},
    {"slice", filter_slice},
    {"sort", filter_sort},
    {"sum", filter_sum},
    {"unique", filter_unique},
};

}  // namespace

std::span<const FilterRow> sequence_filters() {
    return kFilters;
}

}  // namespace ridge::jinja
