#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/check.h"
#include "base/host_device.h"
#include "cuda/context.h"
#include "model/rows.h"
#include "text/token.h"

namespace ridge::cuda {

// Numbers for one place on the device.
struct Piece {
    void* to;
    int32_t first, n_words;  // of 4 bytes, where they lie in the packet
    bool holds_tokens;       // of which negative ones stand for what the step before has drawn
};

// A packet as its kernel gets it. What is short travels with the kernel's arguments: nothing is
// read over the link, and nothing has to be kept until it has been.
constexpr int kMostPieces = 12, kWordsWithin = 768;
struct Delivery {
    const uint32_t* pinned;  // where the words lie; null: within
    const Token* drawn;      // by the step before
    int32_t n_pieces;
    Piece pieces[kMostPieces];
    uint32_t within[kWordsWithin];
};
static_assert(sizeof(Delivery) <= 4096);  // of arguments, all that a kernel takes

RIDGE_HOST_DEVICE inline uint32_t word_for_device(const Piece& piece, uint32_t word,
                                                  const Token* drawn) {
    const auto token = static_cast<Token>(word);
    return piece.holds_tokens && token < 0 ? static_cast<uint32_t>(drawn[-1 - token]) : word;
}

// What a step brings to the device: a batch, and how its rows are drawn. One kernel lays it out
// there, behind the steps before, which have read what it overwrites, and have drawn the tokens
// that it takes from them.
class Packet {
  public:
    static constexpr int kSlots = 2;  // of pinned memory, which steps use in turns

    void clear();
    // Room for n elements that go to `to`, which are written there before the next call.
    template <class T>
    T* add(T* to, int64_t n) {
        return reinterpret_cast<T*>(add_bytes(to, n * static_cast<int64_t>(sizeof(T)), false));
    }
    // The same for tokens, where drawn_by() may stand for one.
    Token* add_tokens(Token* to, int64_t n) {
        return reinterpret_cast<Token*>(
            add_bytes(to, n * static_cast<int64_t>(sizeof(Token)), true));
    }
    // After the step that sent with this slot before has ended. `drawn`: on the device.
    void send(cudaStream_t stream, int slot, const Token* drawn);
    // What send() gives to its kernel.
    const Delivery& close(int slot, const Token* drawn);

  private:
    std::byte* add_bytes(void* to, int64_t n_bytes, bool holds_tokens);

    std::vector<std::byte> content_;  // pieces begin at multiples of 8
    Delivery delivery_{};
    bool is_ready_ = false;  // the kernel, to be launched
    std::array<Buffer, kSlots> pinned_;
};

}  // namespace ridge::cuda
