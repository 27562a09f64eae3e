#include <algorithm>
#include <cstring>

#include "base/checked_math.h"
#include "cuda/check.h"
#include "cuda/memory.h"
#include "cuda/packet.h"

namespace ridge::cuda {
namespace {

constexpr int kThreads = 256;

// deliver: to[i] = words[first + i] for each piece
//   A row of blocks for each piece. Launched plainly: the steps before have ended.
//   Bytes: the packet's, over the link where it lies in pinned memory.
__global__ void __launch_bounds__(kThreads) deliver(const __grid_constant__ Delivery d) {
    const Piece& piece = d.pieces[blockIdx.y];
    auto* to = static_cast<uint32_t*>(piece.to);
    const auto stride = static_cast<int>(gridDim.x) * kThreads;
    for (int i = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
         i < piece.n_words; i += stride) {
        const int at = piece.first + i;
        const uint32_t word = d.pinned != nullptr ? __ldcv(d.pinned + at) : d.within[at];
        to[i] = word_for_device(piece, word, d.drawn);
    }
}

}  // namespace

void Packet::clear() {
    content_.clear();
    delivery_.n_pieces = 0;
}

std::byte* Packet::add_bytes(void* to, int64_t n_bytes, bool holds_tokens) {
    CHECK(delivery_.n_pieces < kMostPieces && n_bytes % 4 == 0);
    const size_t at = content_.size();
    delivery_.pieces[delivery_.n_pieces++] = {to, static_cast<int32_t>(at / 4),
                                              static_cast<int32_t>(n_bytes / 4), holds_tokens};
    content_.resize(at + static_cast<size_t>(round_up(n_bytes, 8)));
    return content_.data() + at;
}

const Delivery& Packet::close(int slot, const Token* drawn) {
    constexpr size_t kLeastPinned = 64 << 10;
    CHECK(delivery_.n_pieces > 0);
    const size_t n_bytes = content_.size();
    delivery_.pinned = nullptr, delivery_.drawn = drawn;
    if (n_bytes <= sizeof delivery_.within) {
        std::memcpy(delivery_.within, content_.data(), n_bytes);
    } else {
        Buffer& pinned = pinned_[static_cast<size_t>(slot)];
        if (pinned.n_bytes() < n_bytes) {
            pinned = {};
            pinned =
                pinned_buffer(std::max(2 * n_bytes, kLeastPinned), "pinned memory for batches");
        }
        std::memcpy(pinned.data(), content_.data(), n_bytes);
        delivery_.pinned = reinterpret_cast<const uint32_t*>(pinned.data());
    }
    return delivery_;
}

void Packet::send(cudaStream_t stream, int slot, const Token* drawn) {
    const Delivery& delivery = close(slot, drawn);
    int n_words = 1;
    for (int i = 0; i < delivery.n_pieces; i++) {
        n_words = std::max(n_words, delivery.pieces[i].n_words);
    }
    const dim3 grid(static_cast<unsigned>((n_words + kThreads - 1) / kThreads),
                    static_cast<unsigned>(delivery.n_pieces));
    if (!is_ready_) divide_memory_alike(deliver, "sending a batch");
    is_ready_ = true;
    deliver<<<grid, kThreads, 0, stream>>>(delivery);
    check_launch("sending a batch");
}

}  // namespace ridge::cuda
