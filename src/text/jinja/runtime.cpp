#include "text/jinja/runtime.h"

#include <cstring>
#include <limits>

#include "base/printable.h"

namespace ridge::jinja {
namespace {

constexpr size_t kBlockBytes = 64 << 10;
constexpr size_t kMaxTextBytes = std::numeric_limits<uint32_t>::max();

}  // namespace

std::string_view type_name(const Value& value) {
    switch (value.kind) {
        case Kind::kMissing:
        case Kind::kUndefined:
            return "Undefined";
        case Kind::kNone:
            return "NoneType";
        case Kind::kBool:
            return "bool";
        case Kind::kInt:
        case Kind::kBigInt:
            return "int";
        case Kind::kFloat:
            return "float";
        case Kind::kString:
            return "str";
        case Kind::kList:
            return "list";
        case Kind::kTuple:
            return "tuple";
        case Kind::kDict:
            return "dict";
        case Kind::kView:
            return "dict view";
        case Kind::kRange:
            return "range";
        case Kind::kIterator:
            return "iterator";
        case Kind::kNamespace:
            return "namespace";
        case Kind::kMacro:
            return "macro";
        case Kind::kLoop:
            return "loop";
        case Kind::kFunction:
            return "function";
        case Kind::kMethod:
            return "method";
        case Kind::kCycler:
            return "cycler";
        case Kind::kJoiner:
            return "joiner";
    }
    return "object";
}

void Runtime::fail_steps() const {
    fail("the template does more work than {} steps", limits_.max_steps);
}

void Runtime::fail_memory() const {
    fail("the template needs more memory than {} bytes", limits_.max_memory_bytes);
}

void Runtime::charge(size_t n_bytes) {
    if (n_bytes > limits_.max_memory_bytes - memory_bytes_) fail_memory();
    memory_bytes_ += n_bytes;
}

void* Runtime::allocate(size_t n_bytes) {
    n_bytes = (n_bytes + 15) / 16 * 16;
    if (n_bytes > block_left_) {
        size_t block = std::max(n_bytes, kBlockBytes);
        charge(block);
        blocks_.push_back(std::unique_ptr<char[]>(new char[block]));
        if (n_bytes > kBlockBytes / 2) return blocks_.back().get();  // the open block stays open
        block_next_ = blocks_.back().get();
        block_left_ = block;
    }
    char* start = block_next_;
    block_next_ += n_bytes;
    block_left_ -= n_bytes;
    return start;
}

Value Runtime::make_list(std::span<const Value> values, Kind kind) {
    Value* data = create<Value>(values.size());
    std::copy(values.begin(), values.end(), data);
    return Value::list(data, values.size(), kind);
}

Value Runtime::make_tuple(std::initializer_list<Value> values) {
    return make_list({values.begin(), values.size()}, Kind::kTuple);
}

Value Runtime::make_dict(std::span<const Pair> pairs) {
    Pair* data = create<Pair>(pairs.size());
    std::copy(pairs.begin(), pairs.end(), data);
    return Value::dict(data, pairs.size());
}

Value Runtime::make_iterator(Items items) {
    Value v = Value::of_kind(Kind::kIterator);
    v.iterator = create<Iterator>();
    v.iterator->items = items;
    return v;
}

uint8_t* Runtime::marks_of(TextChunk& chunk) {
    if (chunk.marks == nullptr) {
        charge(chunk.capacity);
        chunk.marks = std::unique_ptr<uint8_t[]>(new uint8_t[chunk.capacity]);
    }
    return chunk.marks.get();
}

Runtime::Room Runtime::make_room(size_t n_bytes, bool with_marks) {
    if (n_bytes > kMaxTextBytes || n_bytes > limits_.max_memory_bytes) fail_memory();
    if (chunks_.empty() || chunks_.back().capacity - chunks_.back().used < n_bytes) {
        // Long text gets as much room again, so that what is appended to it can follow in place.
        size_t spare = std::min(
            n_bytes, limits_.max_memory_bytes - memory_bytes_ >= 4 * n_bytes ? n_bytes : size_t{0});
        size_t capacity = std::max(n_bytes + spare, kBlockBytes);
        charge(capacity);
        TextChunk chunk;
        chunk.text = std::unique_ptr<char[]>(new char[capacity]);
        chunk.capacity = capacity;
        chunks_.push_back(std::move(chunk));
    }
    TextChunk& chunk = chunks_.back();
    size_t at = chunk.used;
    chunk.used += n_bytes;
    touch(n_bytes);
    return {chunk.text.get() + at, with_marks ? marks_of(chunk) + at : nullptr};
}

Str Runtime::copy(std::string_view text, bool trusted) {
    Room room = make_room(text.size(), false);
    std::copy(text.begin(), text.end(), room.text);
    return Str::of({room.text, text.size()}, trusted);
}

namespace {

void write_marks(uint8_t* out, const Str& text) {
    if (text.size == 0) return;
    if (text.marks != nullptr) {
        std::memmove(out, text.marks, text.size);
    } else {
        std::memset(out, text.trusted ? 1 : 0, text.size);
    }
}

}  // namespace

Str Runtime::concat(const Str& a, const Str& b) {
    if (b.empty()) return a;
    if (a.empty()) return b;
    bool mixed = a.marks != nullptr || b.marks != nullptr || a.trusted != b.trusted;
    size_t size = size_t{a.size} + b.size;
    if (size > kMaxTextBytes) fail_memory();
    Str sum = a;
    sum.size = static_cast<uint32_t>(size);

    TextChunk* last = chunks_.empty() ? nullptr : &chunks_.back();
    if (last != nullptr && a.data + a.size == last->text.get() + last->used &&
        a.data >= last->text.get() && last->capacity - last->used >= b.size) {
        std::memcpy(last->text.get() + last->used, b.data, b.size);
        if (mixed) {
            uint8_t* marks = marks_of(*last) + (a.data - last->text.get());
            if (a.marks != marks) write_marks(marks, a);
            write_marks(marks + a.size, b);
            sum.marks = marks;
        }
        last->used += b.size;
        touch(b.size);
        return sum;
    }
    Room room = make_room(size, mixed);
    std::memcpy(room.text, a.data, a.size);
    std::memcpy(room.text + a.size, b.data, b.size);
    if (mixed) {
        write_marks(room.marks, a);
        write_marks(room.marks + a.size, b);
    }
    sum.data = room.text;
    sum.marks = room.marks;
    return sum;
}

void TextBuilder::append(std::string_view text, bool trusted) {
    if (text.empty()) return;
    if (use_ == Use::kValue) {
        rt_.charge(text.size());
    } else if (text.size() > rt_.limits().max_output_bytes - text_.size()) {
        rt_.fail("the template writes more than {} bytes", rt_.limits().max_output_bytes);
    }
    rt_.touch(text.size());
    text_ += text;
    if (!runs_.empty() && runs_.back().trusted == trusted) {
        runs_.back().end = text_.size();
    } else {
        rt_.charge(sizeof(Run) + sizeof(std::string));
        runs_.push_back({text_.size(), trusted});
    }
}

void TextBuilder::append(const Str& text) {
    if (text.marks == nullptr) {
        append(text.view(), text.trusted);
        return;
    }
    for (size_t begin = 0; begin < text.size;) {
        const void* change =
            std::memchr(text.marks + begin, text.marks[begin] == 0 ? 1 : 0, text.size - begin);
        size_t end =
            change == nullptr ? text.size : static_cast<const uint8_t*>(change) - text.marks;
        append(text.view().substr(begin, end - begin), text.marks[begin] != 0);
        begin = end;
    }
}

Str TextBuilder::finish() {
    bool mixed = runs_.size() > 1;
    Runtime::Room room = rt_.make_room(text_.size(), mixed);
    std::copy(text_.begin(), text_.end(), room.text);
    Str whole = Str::of({room.text, text_.size()}, runs_.empty() || runs_[0].trusted);
    if (mixed) {
        size_t begin = 0;
        for (const Run& run : runs_) {
            std::memset(room.marks + begin, run.trusted ? 1 : 0, run.end - begin);
            begin = run.end;
        }
        whole.marks = room.marks;
    }
    return whole;
}

void bind_args(Runtime& rt, std::string_view callee, const Args& args,
               std::span<const std::string_view> names, size_t n_required, std::span<Value> bound) {
    for (Value& value : bound) value = Value::missing();
    if (args.positional.size() > names.size()) {
        rt.fail("{} takes at most {} argument{}, got {}", callee, names.size(),
                names.size() == 1 ? "" : "s", args.positional.size());
    }
    std::copy(args.positional.begin(), args.positional.end(), bound.begin());
    for (const auto& [name, value] : args.named) {
        size_t i = 0;
        while (i < names.size() && names[i] != name.view()) i++;
        if (i == names.size()) {
            rt.fail("{} has no argument '{}'", callee, printable(name.view(), 60));
        }
        if (!bound[i].is_missing()) rt.fail("{} got argument '{}' twice", callee, names[i]);
        bound[i] = value;
    }
    for (size_t i = 0; i < n_required; i++) {
        if (bound[i].is_missing()) rt.fail("{} needs argument '{}'", callee, names[i]);
    }
}

void expect_no_args(Runtime& rt, std::string_view callee, const Args& args) {
    if (!args.positional.empty() || !args.named.empty()) rt.fail("{} takes no arguments", callee);
}

int64_t expect_int(Runtime& rt, const Value& value, std::string_view what) {
    if (!value.is_integral()) rt.fail("{} is a {}, expected int", what, type_name(value));
    return value.integer;
}

Str expect_string(Runtime& rt, const Value& value, std::string_view what) {
    if (!value.is_string()) rt.fail("{} is a {}, expected str", what, type_name(value));
    return value.text;
}

}  // namespace ridge::jinja
