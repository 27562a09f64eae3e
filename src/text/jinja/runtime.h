#pragma once

#include <fmt/format.h>

#include <array>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/error.h"
#include "text/jinja/value.h"

namespace ridge::jinja {

// What one run of a template may use. A template comes with a model file and its messages from
// anyone: both are hostile.
struct Limits {
    uint64_t max_steps = 10'000'000;             // one per node evaluated or 64 bytes touched
    size_t max_memory_bytes = size_t{64} << 20;  // everything the run makes, freed at its end
    size_t max_output_bytes = size_t{16} << 20;
    int max_depth = 500;  // nested expressions, statements, macro calls and values together
};

// The memory, the budget and the place in the template of one run.
class Runtime {
  public:
    // `name` stands for the template in messages and outlives the run.
    Runtime(const Limits& limits, std::string_view name) : limits_(limits), name_(name) {}
    Runtime(const Runtime&) = delete;
    Runtime& operator=(const Runtime&) = delete;

    const Limits& limits() const { return limits_; }
    uint32_t line = 1;  // of the node being evaluated

    // "<name>: line <line>: <message>".
    template <class... A>
    [[noreturn]] void fail(fmt::format_string<A...> format, A&&... args) const {
        throw Error("{}: line {}: {}", name_, line, fmt::format(format, std::forward<A>(args)...));
    }

    void step(uint64_t n = 1) {
        if (n > limits_.max_steps - steps_) fail_steps();
        steps_ += n;
    }
    void touch(size_t n_bytes) { step(n_bytes / 64); }
    void charge(size_t n_bytes);  // counts memory held outside the arena

    // Values, pairs and small records; freed when the run ends, without destructors.
    template <class T>
    T* create(size_t n = 1) {
        static_assert(std::is_trivially_destructible_v<T> && alignof(T) <= 16);
        if (n > limits_.max_memory_bytes / sizeof(T)) fail_memory();
        T* first = static_cast<T*>(allocate(n * sizeof(T)));
        for (size_t i = 0; i < n; i++) new (first + i) T();
        return first;
    }
    Value make_list(std::span<const Value> values, Kind kind = Kind::kList);
    Value make_tuple(std::initializer_list<Value> values);
    Value make_dict(std::span<const Pair> pairs);
    Value make_iterator(Items items);

    Str copy(std::string_view text, bool trusted);
    // a + b. Extends `a` in place when nothing was written behind it, so that a chain of additions
    // is linear.
    Str concat(const Str& a, const Str& b);
    // Room for text of n bytes; `marks` as well where asked.
    struct Room {
        char* text;
        uint8_t* marks;
    };
    Room make_room(size_t n_bytes, bool with_marks);

    int depth = 0;

  private:
    struct TextChunk {
        std::unique_ptr<char[]> text;
        std::unique_ptr<uint8_t[]> marks;  // made when the first mixed text is stored
        size_t used = 0, capacity = 0;
    };

    void* allocate(size_t n_bytes);
    uint8_t* marks_of(TextChunk& chunk);
    [[noreturn]] void fail_steps() const;
    [[noreturn]] void fail_memory() const;

    Limits limits_;
    std::string_view name_;
    uint64_t steps_ = 0;
    size_t memory_bytes_ = 0;
    std::vector<std::unique_ptr<char[]>> blocks_;
    char* block_next_ = nullptr;
    size_t block_left_ = 0;
    std::vector<TextChunk> chunks_;
};

// Counts one level of nesting while it lives.
class Nested {
  public:
    explicit Nested(Runtime& rt) : rt_(rt) {
        rt_.depth++;
        if (rt_.depth > rt_.limits().max_depth) {
            rt_.depth--;
            rt_.fail("nested more than {} levels deep", rt_.limits().max_depth);
        }
    }
    ~Nested() { rt_.depth--; }
    Nested(const Nested&) = delete;
    Nested& operator=(const Nested&) = delete;

  private:
    Runtime& rt_;
};

// Text that is being put together, with the origin of each piece.
class TextBuilder {
  public:
    struct Run {
        size_t end;  // in bytes of the text
        bool trusted;
    };
    enum class Use { kValue, kOutput };  // kOutput: held against max_output_bytes

    explicit TextBuilder(Runtime& rt, Use use = Use::kValue) : rt_(rt), use_(use) {}

    void append(std::string_view text, bool trusted);
    void append(const Str& text);
    Str finish();  // copies into the run's memory

    size_t size() const { return text_.size(); }
    const std::string& text() const { return text_; }
    const std::vector<Run>& runs() const { return runs_; }

  private:
    Runtime& rt_;
    Use use_;
    std::string text_;
    std::vector<Run> runs_;
};

// Sorts arguments into parameters as Python does. A parameter that was not given is kMissing; the
// first `n_required` must be. `n_positional_only` parameters cannot be named.
void bind_args(Runtime& rt, std::string_view callee, const Args& args,
               std::span<const std::string_view> names, size_t n_required, std::span<Value> bound);

template <size_t N>
std::array<Value, N> bind(Runtime& rt, std::string_view callee, const Args& args,
                          const std::array<std::string_view, N>& names, size_t n_required = 0) {
    std::array<Value, N> bound;
    bind_args(rt, callee, args, names, n_required, bound);
    return bound;
}

void expect_no_args(Runtime& rt, std::string_view callee, const Args& args);

// The argument as an integer (booleans count), or an error that names it.
int64_t expect_int(Runtime& rt, const Value& value, std::string_view what);
Str expect_string(Runtime& rt, const Value& value, std::string_view what);

}  // namespace ridge::jinja
