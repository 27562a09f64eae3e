#pragma once

#include <deque>
#include <utility>
#include <vector>

#include "base/thread_pool.h"
#include "model/step.h"

namespace ridge {

// What an operator wants around it, for tests that call one by hand. Fill in the batch, then call
// with step().
struct HostStep {
    Tables tables;
    Config config;
    RopeTable rope_table;
    Batch batch;
    Scratch memory;
    ThreadPool pool{1};

    Step step(bool planning = false) {
        return {tables, tables.ops, tables.stages, config,  rope_table,
                batch,  memory,     pool,          planning};
    }
};

// A buffer over memory that somebody else owns.
inline Buffer borrow(void* data, size_t n_bytes) {
    return {data, n_bytes, [](void*, size_t) {}};
}

// A matrix of f32 with storage of its own.
class Matrix {
  public:
    Matrix(int64_t n_rows, int64_t n_cols, float value = 0)
        : values(static_cast<size_t>(n_rows * n_cols), value), n_rows_(n_rows), n_cols_(n_cols) {
        buffer_ = borrow(values.data(), values.size() * sizeof(float));
    }
    Matrix(int64_t n_rows, int64_t n_cols, std::vector<float> all)
        : values(std::move(all)), n_rows_(n_rows), n_cols_(n_cols) {
        CHECK(values.size() == static_cast<size_t>(n_rows * n_cols));
        buffer_ = borrow(values.data(), values.size() * sizeof(float));
    }
    Matrix(const Matrix&) = delete;

    Rows rows() const { return {&buffer_, 0, DType::kF32, n_rows_, n_cols_, n_cols_}; }
    float& at(int64_t i, int64_t j) { return values[static_cast<size_t>(i * n_cols_ + j)]; }

    std::vector<float> values;  // [n_rows, n_cols]

  private:
    int64_t n_rows_, n_cols_;
    Buffer buffer_;
};

// A weight of f32 over values that must live as long. values [n_rows, n_cols]; 1 row: a vector.
inline Tensor f32_tensor(const std::vector<float>& values, int64_t n_rows, int64_t n_cols) {
    CHECK(values.size() == static_cast<size_t>(n_rows * n_cols));
    Tensor tensor;
    tensor.name = "weight";
    tensor.format = &format_of(FormatId::kF32);
    tensor.layout = &row_major_layout();
    tensor.n_dims = n_rows == 1 ? 1 : 2;
    tensor.shape[0] = n_rows == 1 ? n_cols : n_rows;
    if (n_rows > 1) tensor.shape[1] = n_cols;
    tensor.planes[0] = {reinterpret_cast<const std::byte*>(values.data()),
                        n_cols * static_cast<int64_t>(sizeof(float))};
    return tensor;
}

}  // namespace ridge
