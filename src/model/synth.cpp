#include "model/synth.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/files.h"
#include "base/split_mix.h"
#include "base/system.h"
#include "base/thread_pool.h"
#include "model/synth_plan.h"

namespace ridge {
namespace {

constexpr int64_t kSliceBytes = int64_t{16} << 20;  // made between two reports of progress
// A matrix of at most this many pieces (see Bank) gets numbers of its own; so does one whose rows
// are single pieces, of which a bank has too few to tell its rows apart.
constexpr int64_t kFewPieces = 2048;

// Started at a mixture of keys, so that each number depends on what it is for and never on which
// thread drew it.
class Random {
  public:
    Random(uint64_t seed, uint64_t a, uint64_t b) : state_(seed) {
        state_ = next() + a;
        state_ = next() + b;
    }

    uint64_t next() { return split_mix(state_ += kSplitMixStep); }

    // Near enough to a normal number of deviation 1: the sum of eight uniform ones, within 4.9, by
    // exact integer arithmetic, alike on every machine. Never zero.
    float next_normal() {
        constexpr float kMean = 8 * 65535 / 2.0f + 0.5f;
        constexpr float kDeviation = 53509.92f;  // 65536 sqrt(8 / 12)
        uint32_t sum = 0;
        for (int word = 0; word < 2; word++) {
            const uint64_t bits = next();
            for (int i = 0; i < 4; i++) sum += static_cast<uint16_t>(bits >> (16 * i));
        }
        return (static_cast<float>(sum) - kMean) / kDeviation;
    }

  private:
    uint64_t state_;
};

// Encoded random pieces of rows of one format and deviation. Quantising each number of a large
// model would take minutes; rows are put together from these instead.
class Bank {
  public:
    static constexpr int kLogPieces = 14;
    static constexpr int64_t kPieces = int64_t{1} << kLogPieces;

    // Pieces of a block, of 32 elements where blocks are smaller.
    static int piece_elements(const Format& format) { return std::max(format.block_elements, 32); }

    Bank(const Format& format, float deviation, uint64_t seed, uint64_t key, ThreadPool& pool)
        : piece_bytes_(static_cast<size_t>(row_bytes(format, piece_elements(format)))),
          bytes_(piece_bytes_ * static_cast<size_t>(kPieces)) {
        pool.parallel_for(kPieces, 64, [&](int64_t begin, int64_t end, int) {
            for (int64_t i = begin; i < end; i++) {
                Random random(seed, key, static_cast<uint64_t>(i));
                encode_piece(format, deviation, random,
                             bytes_.data() + static_cast<size_t>(i) * piece_bytes_);
            }
        });
    }

    static void encode_piece(const Format& format, float deviation, Random& random,
                             std::byte* out) {
        float x[256];
        const int n = piece_elements(format);
        CHECK(n <= static_cast<int>(std::size(x)));
        for (int i = 0; i < n; i++) x[i] = deviation * random.next_normal();
        format.encode_row(x, n, out);
    }

    // A row of at least two pieces. The first two are those of a one-to-one scrambling of the row's
    // number, so that no two rows of a matrix are equal; the others are drawn.
    void write_row(int64_t row, int64_t n_pieces, uint64_t seed, uint64_t key,
                   std::byte* out) const {
        constexpr uint64_t kMask = (uint64_t{1} << (2 * kLogPieces)) - 1;
        CHECK(n_pieces >= 2 && static_cast<uint64_t>(row) <= kMask);
        uint64_t z = static_cast<uint64_t>(row);
        for (uint64_t odd : {0x9e3779b97f4a7c15u, 0xbf58476d1ce4e5b9u}) {
            z = (z * odd + key) & kMask;
            z ^= z >> kLogPieces;
        }
        copy_piece(z, out);
        copy_piece(z >> kLogPieces, out + piece_bytes_);
        Random random(seed, key, static_cast<uint64_t>(row));
        uint64_t bits = 0;
        for (int64_t i = 2; i < n_pieces; i++, bits >>= 16) {
            if (i % 4 == 2) bits = random.next();
            copy_piece(bits, out + static_cast<size_t>(i) * piece_bytes_);
        }
    }

  private:
    void copy_piece(uint64_t index, std::byte* out) const {
        const size_t piece = static_cast<size_t>(index & (kPieces - 1));
        memcpy(out, bytes_.data() + piece * piece_bytes_, piece_bytes_);
    }

    size_t piece_bytes_;
    std::vector<std::byte> bytes_;
};

// Makes the numbers of a plan's tensors, some rows at a time.
class Maker {
  public:
    Maker(const SynthPlan& plan, uint64_t seed)
        : plan_(plan), seed_(seed), pool_(default_n_threads()) {}

    // Calls put(tensor, first_row, n_rows) for slices of rows that cover all tensors, in file
    // order.
    template <class Put>
    void for_each_slice(const SynthProgress& progress, Put put) {
        const auto total = static_cast<double>(plan_.writer.file_bytes());
        for (size_t t = 0; t < plan_.tensors.size(); t++) {
            const SynthTensor& tensor = plan_.tensors[t];
            const int64_t stride = row_bytes(*tensor.format, tensor.n_cols());
            const int64_t step = std::max<int64_t>(1, kSliceBytes / stride);
            for (int64_t row = 0; row < tensor.n_rows(); row += step) {
                const int64_t n_rows = std::min(step, tensor.n_rows() - row);
                put(t, row, n_rows);
                if (!progress) continue;
                const uint64_t offset = plan_.writer.tensor_offset(static_cast<int>(t));
                progress(
                    (static_cast<double>(offset) + static_cast<double>((row + n_rows) * stride)) /
                    total);
            }
        }
        if (progress) progress(1);
    }

    // Rows [row, row + n_rows) of tensor t.
    void fill(size_t t, int64_t row, int64_t n_rows, std::byte* out) {
        const SynthTensor& tensor = plan_.tensors[t];
        if (tensor.shape.size() == 1) return fill_vector(t, out);
        const Format& format = *tensor.format;
        const int64_t stride = row_bytes(format, tensor.n_cols());
        const int64_t n_pieces = tensor.n_cols() / Bank::piece_elements(format);
        CHECK(n_pieces * Bank::piece_elements(format) == tensor.n_cols());
        const bool has_own_numbers = n_pieces == 1 || tensor.n_rows() * n_pieces <= kFewPieces;
        const Bank* bank = has_own_numbers ? nullptr : &bank_for(tensor);
        pool_.parallel_for(n_rows, 16, [&](int64_t begin, int64_t end, int) {
            for (int64_t i = begin; i < end; i++) {
                std::byte* row_out = out + i * stride;
                if (bank != nullptr) {
                    bank->write_row(row + i, n_pieces, seed_, t, row_out);
                    continue;
                }
                Random random(seed_, t, static_cast<uint64_t>(row + i));
                for (int64_t p = 0; p < n_pieces; p++) {
                    Bank::encode_piece(format, tensor.deviation, random,
                                       row_out + p * (stride / n_pieces));
                }
            }
        });
    }

  private:
    void fill_vector(size_t t, std::byte* out) const {
        const SynthTensor& tensor = plan_.tensors[t];
        std::vector<float> values = tensor.values;
        if (values.empty()) {
            values.resize(static_cast<size_t>(tensor.n_cols()));
            Random random(seed_, t, 0);
            for (float& value : values) {
                value = tensor.mean + tensor.deviation * random.next_normal();
            }
        }
        tensor.format->encode_row(values.data(), tensor.n_cols(), out);
    }

    const Bank& bank_for(const SynthTensor& tensor) {
        const std::pair key(tensor.format->id, tensor.n_cols());  // deviation: of n_cols
        auto found = banks_.find(key);
        if (found == banks_.end()) {
            const uint64_t number = (uint64_t{1} << 63) | (static_cast<uint64_t>(key.first) << 32) |
                                    static_cast<uint64_t>(key.second);
            found = banks_.try_emplace(key, *tensor.format, tensor.deviation, seed_, number, pool_)
                        .first;
        }
        return found->second;
    }

    const SynthPlan& plan_;
    uint64_t seed_;
    ThreadPool pool_;
    std::map<std::pair<FormatId, int64_t>, Bank> banks_;
};

}  // namespace

ModelFile make_synth(const std::string& name, const std::string& format, uint64_t seed,
                     const SynthProgress& progress) {
    const SynthPlan plan = plan_synth(name, format);
    const uint64_t wanted = plan.writer.file_bytes(), available = available_memory_bytes();
    if (available != 0 && wanted > available) {
        throw Error("{}: {:.1f} GB of memory needed, {:.1f} GB available", plan.title,
                    static_cast<double>(wanted) / 1e9, static_cast<double>(available) / 1e9);
    }
    MappedFile image = plan.writer.build(plan.title);
    std::byte* bytes = image.writable_bytes().data();
    Maker maker(plan, seed);
    maker.for_each_slice(progress, [&](size_t t, int64_t row, int64_t n_rows) {
        const SynthTensor& tensor = plan.tensors[t];
        const int64_t offset = row * row_bytes(*tensor.format, tensor.n_cols());
        maker.fill(t, row, n_rows, bytes + plan.writer.tensor_offset(static_cast<int>(t)) + offset);
    });
    return ModelFile::from_memory(std::move(image));
}

void write_synth(const std::string& name, const std::string& format, uint64_t seed,
                 const std::string& path, bool replace, const SynthProgress& progress) {
    const SynthPlan plan = plan_synth(name, format);
    FileWriter file(path, replace);
    uint64_t n_written = 0;
    auto append = [&](std::string_view bytes) {
        file.append(bytes);
        n_written += bytes.size();
    };
    auto pad_to = [&](uint64_t offset) { append(std::string(offset - n_written, '\0')); };
    append(plan.writer.header());
    Maker maker(plan, seed);
    std::vector<std::byte> buffer;
    maker.for_each_slice(progress, [&](size_t t, int64_t row, int64_t n_rows) {
        const SynthTensor& tensor = plan.tensors[t];
        if (row == 0) pad_to(plan.writer.tensor_offset(static_cast<int>(t)));
        buffer.resize(static_cast<size_t>(n_rows * row_bytes(*tensor.format, tensor.n_cols())));
        maker.fill(t, row, n_rows, buffer.data());
        append({reinterpret_cast<const char*>(buffer.data()), buffer.size()});
    });
    pad_to(plan.writer.file_bytes());
    file.commit();
}

}  // namespace ridge
