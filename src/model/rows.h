#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/check.h"
#include "base/half.h"

namespace ridge {

// Move-only owner of a block of a backend's memory. On the CPU `data` is an ordinary pointer.
class Buffer {
  public:
    using Free = void (*)(void* data, size_t n_bytes);

    Buffer() = default;
    Buffer(void* data, size_t n_bytes, Free free)
        : data_(static_cast<std::byte*>(data)), n_bytes_(n_bytes), free_(free) {}
    Buffer(Buffer&& other) noexcept
        : data_(std::exchange(other.data_, nullptr)),
          n_bytes_(std::exchange(other.n_bytes_, 0)),
          free_(other.free_) {}
    Buffer& operator=(Buffer&& other) noexcept {
        std::swap(data_, other.data_);
        std::swap(n_bytes_, other.n_bytes_);
        std::swap(free_, other.free_);
        return *this;
    }
    ~Buffer() {
        if (data_ != nullptr) free_(data_, n_bytes_);
    }

    std::byte* data() const { return data_; }
    size_t n_bytes() const { return n_bytes_; }

  private:
    std::byte* data_ = nullptr;
    size_t n_bytes_ = 0;
    Free free_ = nullptr;
};

// Types of activations and of the KV cache. q8_0 is the cache's alone: int8 codes with scales
// beside them (model/kv_cache.h).
enum class DType : uint8_t { kF32, kF16, kBF16, kQ8_0 };
constexpr int dtype_bytes(DType dtype) {  // of one element
    CHECK(dtype != DType::kQ8_0);
    return dtype == DType::kF32 ? 4 : 2;
}

// A view of activations as [n_rows, n_cols]: buffer and offset rather than a pointer, since not
// every device has pointers. Rows are `stride` elements apart, columns are contiguous.
struct Rows {
    const Buffer* buffer = nullptr;
    size_t offset_bytes = 0;
    DType dtype = DType::kF32;
    int64_t n_rows = 0, n_cols = 0, stride = 0;

    // Row i in host memory.
    template <class T>
    T* row(int64_t i) const {
        CHECK(sizeof(T) == static_cast<size_t>(dtype_bytes(dtype)));
        return reinterpret_cast<T*>(buffer->data() + offset_bytes) + i * stride;
    }
    Rows slice(int64_t first, int64_t n) const {  // rows first .. first + n
        CHECK(first >= 0 && n >= 0 && first + n <= n_rows);
        Rows view = *this;
        view.offset_bytes += static_cast<size_t>(first * stride * dtype_bytes(dtype));
        view.n_rows = n;
        return view;
    }
    Rows cols(int64_t first, int64_t n) const {
        CHECK(first >= 0 && n >= 0 && first + n <= n_cols);
        Rows view = *this;
        view.offset_bytes += static_cast<size_t>(first * dtype_bytes(dtype));
        view.n_cols = n;
        return view;
    }
};

// The same as [n_rows, n_heads, d_head]: head h of a row starts h * d_head elements into it.
struct Heads {
    Rows rows;
    int64_t n_heads = 1, d_head = 0;

    Heads() = default;
    Heads(Rows all)
        : rows(all), d_head(all.n_cols) {}  // NOLINT: a row is one head of its own width
    Heads(Rows all, int64_t n_heads, int64_t d_head) : rows(all), n_heads(n_heads), d_head(d_head) {
        CHECK(all.n_cols == n_heads * d_head);
    }

    template <class T>
    T* head(int64_t row, int64_t h) const {
        return rows.row<T>(row) + h * d_head;
    }
};

}  // namespace ridge
