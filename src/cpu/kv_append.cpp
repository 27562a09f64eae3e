#include "cpu/attention.h"
#include "cpu/matmul_input.h"
#include "ref/host_kv.h"

namespace ridge::cpu {
namespace {

constexpr int64_t kRowsOfPiece = 64;     // that a thread appends at a time, of one head
constexpr int64_t kFewElements = 16384;  // of K: a decode step's are not worth waking a thread

uint8_t* bytes_of(std::byte* tile) {
    return reinterpret_cast<uint8_t*>(tile);
}

}  // namespace

void append_head(const Kernels& kernels, const KvLayer& kv, int64_t slot, int64_t head,
                 const float* k, const float* v) {
    CHECK(slot >= 0 && slot < kv.n_slots);
    const int64_t page = slot / kKvPagePositions;
    const auto position = static_cast<int>(slot % kKvPagePositions);
    kernels.attention.store_k[static_cast<size_t>(kv.k_dtype)](
        k, kv.d_head, position, bytes_of(host_k_tile(kv, page, head)));
    kernels.attention.store_v[static_cast<size_t>(kv.v_dtype)](
        v, kv.d_head, position, bytes_of(host_v_tile(kv, page, head)));
}

void append_row(const Kernels& kernels, const KvLayer& kv, int64_t slot, const float* k,
                const float* v) {
    for (int64_t h = 0; h < kv.n_kv_heads; h++) {
        append_head(kernels, kv, slot, h, k + h * kv.d_head, v + h * kv.d_head);
    }
}

std::string_view unfit_for_append(const Step&, const Heads&, const Heads&, const KvLayer& kv) {
    static_assert(kHeadMultiple == 16);
    return kv.d_head % kHeadMultiple == 0 ? "" : "d_head is not a multiple of 16";
}

// kv_append: cache[slot[i]] = k[i], v[i]; slot -1 is skipped
//   k, v [n_rows, n_kv_heads, d_head] f32; cache as ref/host_kv.h lays it out: one rounding, the
//   same bits as there. Threads share pieces of 64 rows of one head: a piece writes the lines of
//   its positions one behind the other, while they are in the first cache, and meets another
//   thread's at its ends alone. Bytes: 8 d_head read and as many as the type has written, for each
//   row and head; the lines of K are read too, a line for each element of the first row.
void kv_append(Step& s, Heads k, Heads v, KvLayer kv) {
    if (s.planning) return;
    const std::span<const int64_t> slots = s.batch.slots;
    const int64_t n_rows = k.rows.n_rows, n_heads = kv.n_kv_heads;
    CHECK(static_cast<int64_t>(slots.size()) == n_rows && v.rows.n_rows == n_rows);
    const Kernels& kernels = kernels_of(s);
    auto append = [&](int64_t first, int64_t end, int64_t h) {
        for (int64_t i = first; i < end; i++) {
            const int64_t slot = slots[static_cast<size_t>(i)];
            if (slot < 0) continue;
            append_head(kernels, kv, slot, h, k.head<float>(i, h), v.head<float>(i, h));
        }
    };
    if (n_rows * n_heads * kv.d_head <= kFewElements) {
        for (int64_t h = 0; h < n_heads; h++) append(0, n_rows, h);
        return;
    }
    const int64_t n_pieces = (n_rows + kRowsOfPiece - 1) / kRowsOfPiece;
    s.pool.parallel_for(n_pieces * n_heads, 1, [&](int64_t begin, int64_t end, int) {
        for (int64_t i = begin; i < end; i++) {
            const int64_t first = i / n_heads * kRowsOfPiece;
            append(first, std::min(first + kRowsOfPiece, n_rows), i % n_heads);
        }
    });
}

}  // namespace ridge::cpu
