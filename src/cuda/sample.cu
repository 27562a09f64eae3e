#include <algorithm>

#include "cuda/check.h"
#include "cuda/context.h"
#include "cuda/device/async.cuh"
#include "cuda/device/candidates.cuh"
#include "cuda/sample.h"
#include "cuda/sample_runs.cuh"

namespace ridge::cuda {
namespace {

constexpr int kGroup = 128;                    // logits, of which a warp takes the maximum
constexpr int kChunk = kSampleWarps * kGroup;  // logits of a block
constexpr int kMaxGroups = static_cast<int>(kMaxVocab / kGroup);
constexpr int kUncutList = 512;  // candidates that are listed where neither top_k nor min_p cuts
constexpr int kRowsAtOnce = 8;   // that walk far, each with runs in scratch
static_assert(kMaxListed <= kListRoom);

// Shared memory, first of a block that scans its chunk, then of the row's last block.
union Shared {
    struct {
        float logits[kChunk];
        int32_t counts[kChunk];  // of each token in the history
    } chunk;
    struct {
        Candidate list[kListRoom];
        union {
            Candidate maxima[kMaxGroups];
            double prefix[kListRoom];  // of the list's weights
        };
        uint32_t histogram[1 << kMaxDigitBits];
    } row;
};

struct BlockRoom {
    Shared* shared;
    double* partial;  // [32]
    int* number;      // one, handed from one thread to all
};

// Steps 1 and 2 on the n logits of a chunk, which are those of tokens first and up: float32, each
// operation rounded as in the reference.
__device__ void change_logits(float* logits, int first, int n, const RowDraw& draw,
                              const int32_t* words, Shared& shared) {
    auto& [values, counts] = shared.chunk;
    const auto thread = static_cast<int>(threadIdx.x);
    for (int i = thread; i < n; i += kSampleThreads) values[i] = logits[i], counts[i] = 0;
    __syncthreads();  // the chunk is there
    const int32_t* biases = words + draw.biases;
    for (int i = thread; i < draw.n_biases; i += kSampleThreads) {
        const int32_t token = biases[2 * i];
        const bool is_first = i == 0 || biases[2 * i - 2] != token;
        if (token < first || token >= first + n || !is_first) continue;
        float logit = values[token - first];
        for (int j = i; j < draw.n_biases && biases[2 * j] == token; j++) {
            logit += __int_as_float(biases[2 * j + 1]);
        }
        values[token - first] = logit;
    }
    for (int i = thread; i < draw.n_history; i += kSampleThreads) {
        const int32_t token = words[draw.history + i];
        if (token >= first && token < first + n) atomicAdd(&counts[token - first], 1);
    }
    __syncthreads();  // biases are added, tokens counted
    for (int i = thread; i < n; i += kSampleThreads) {
        float logit = values[i];
        if (counts[i] > 0) {
            logit = logit > 0 ? logit / draw.repeat_penalty : logit * draw.repeat_penalty;
            logit -= draw.frequency_penalty * static_cast<float>(counts[i]) + draw.presence_penalty;
        }
        logits[i] = logit;
    }
    __syncthreads();  // other threads read what has changed
}

// Whether sums over all logits are needed, at temperature 1 and at the row's own.
__device__ bool wants_sum(const RowDraw& draw) {
    return draw.n_logprobs >= 0 || (draw.temperature > 0 && draw.top_p < 1 && draw.top_k == 0);
}
__device__ bool wants_sum_t(const RowDraw& draw) {
    return draw.temperature > 0 && draw.top_p >= 1 && draw.top_k == 0 && isinf(draw.log_min_p);
}

// The first candidate of this warp's group, and the sums of its weights relative to it.
__device__ void scan_group(const SampleTask& task, int64_t row, int group, const RowDraw& draw) {
    if (group >= task.n_groups) return;  // the whole warp
    const float* logits = task.logits + row * task.stride;
    float x[kGroup / 32];
    Candidate best = 0;
#pragma unroll
    for (int i = 0; i < kGroup / 32; i++) {
        const int token = group * kGroup + 32 * i + lane_of_thread();
        x[i] = token < task.n_vocab ? logits[token] : -INFINITY;
        if (token < task.n_vocab) best = max(best, candidate_of(x[i], token));
    }
    best = warp_max(best);
    const int64_t at = row * task.n_groups + group;
    if (lane_of_thread() == 0) task.maxima[at] = best;
    // Where there is no finite logit, or one is no number, nothing is drawn from the sums.
    const bool usable = best >= kLeastCandidate && logit_of(best) < INFINITY;
    const auto sum = [&](float temperature, double* to) {
        double mine = 0;
#pragma unroll
        for (int i = 0; i < kGroup / 32; i++) {
            mine += usable ? weight_of(x[i], logit_of(best), temperature) : 0;
        }
        mine = warp_sum(mine);
        if (lane_of_thread() == 0) to[at] = mine;
    };
    if (wants_sum(draw)) sum(1.0f, task.sums);
    if (wants_sum_t(draw)) sum(draw.temperature, task.sums_t);
}

// Whether this block is the last of its row to come here. What the others wrote is seen then.
__device__ bool is_last_of_row(int32_t* arrivals, int* number) {
    __syncthreads();  // the block has written all that it writes
    if (threadIdx.x == 0) {
        __threadfence();  // before it says so
        *number = atomicAdd(arrivals, 1);
        if (*number == static_cast<int>(gridDim.x) - 1) *arrivals = 0;  // for the next step
        __threadfence();  // and what the others wrote comes after
    }
    __syncthreads();  // the number is there
    return *number == static_cast<int>(gridDim.x) - 1;
}

// The draw of one row, on all threads of a block. What other blocks have written is read past the
// first level cache.
class RowSampler {
  public:
    __device__ RowSampler(const SampleTask& task, int64_t row, const RowDraw& draw,
                          DrawnRow* result, const BlockRoom& room)
        : task_(task),
          draw_(draw),
          result_(result),
          row_(row),
          logits_(task.logits + row * task.stride),
          room_(room),
          shared_(room.shared->row) {}

    __device__ void sample();

  private:
    __device__ bool find_best();
    __device__ double sum_of_all(const double* sums, float temperature);
    __device__ void make_list(int n_wanted);
    template <class Source>
    __device__ Candidate threshold_for(int n_wanted, int n_most, const Source& for_each);
    __device__ int find_bin(int n_bins, int n_wanted, int* n_above);
    __device__ int gather(Candidate threshold);
    template <class Predicate>
    __device__ int count_first(int n, const Predicate& holds);
    __device__ int draw_from_list(double total, double total_t);
    __device__ void write(DrawnRow::Status status, Candidate drawn, int n_top);

    const SampleTask& task_;
    const RowDraw& draw_;
    DrawnRow* const result_;
    const int64_t row_;
    const float* logits_;
    const BlockRoom room_;
    decltype(Shared::row)& shared_;
    Candidate best_ = 0;
    double log_total_ = 0;
    int n_list_ = 0;        // candidates listed, from the first on, in order
    bool has_all_ = false;  // the list holds every candidate of the row
};

// Calls what with each of the group's logits as a candidate, 0 where there is none: all lanes.
template <class What>
__device__ void for_group(const float* logits, int n_vocab, int group, const What& what) {
    float x[kGroup / 32];
    const int first = group * kGroup + lane_of_thread();
#pragma unroll
    for (int i = 0; i < kGroup / 32; i++) {
        x[i] = first + 32 * i < n_vocab ? __ldcg(logits + first + 32 * i) : -INFINITY;
    }
#pragma unroll
    for (int i = 0; i < kGroup / 32; i++) {
        const int token = first + 32 * i;
        what(token < n_vocab ? candidate_of(x[i], token) : Candidate{0});
    }
}

// Maxima into shared memory, the first of them into best_. False: there is nothing to draw from,
// which has been written.
__device__ bool RowSampler::find_best() {
    Candidate best = 0;
    for (int g = static_cast<int>(threadIdx.x); g < task_.n_groups; g += kSampleThreads) {
        shared_.maxima[g] = __ldcg(task_.maxima + row_ * task_.n_groups + g);
        best = max(best, shared_.maxima[g]);
    }
    // The barriers in block_max complete the maxima, too.
    best_ = block_max(best, reinterpret_cast<Candidate*>(room_.partial));
    const DrawnRow::Status status = best_ == kNanCandidate        ? DrawnRow::kNan
                                    : best_ < kLeastCandidate     ? DrawnRow::kNothing
                                    : logit_of(best_) == INFINITY ? DrawnRow::kInfinite
                                                                  : DrawnRow::kToken;
    if (status != DrawnRow::kToken) write(status, best_, 0);
    return status == DrawnRow::kToken;
}

// Of the weights of all candidates, from the groups'.
__device__ double RowSampler::sum_of_all(const double* sums, float temperature) {
    double sum = 0;
    for (int g = static_cast<int>(threadIdx.x); g < task_.n_groups; g += kSampleThreads) {
        const Candidate first = shared_.maxima[g];
        if (first < kLeastCandidate) continue;
        sum += __ldcg(sums + row_ * task_.n_groups + g) *
               weight_of(logit_of(first), logit_of(best_), temperature);
    }
    return block_sum(sum, room_.partial);
}

// The bin, from the last one down, with which n_wanted is reached, and how many lie in those above
// it; -1: all bins together hold fewer. Each thread adds up neighbours.
__device__ int RowSampler::find_bin(int n_bins, int n_wanted, int* n_above) {
    const int n_mine = (n_bins + kSampleThreads - 1) / kSampleThreads;
    const int top = n_bins - 1 - n_mine * static_cast<int>(threadIdx.x);  // and those below it
    int mine = 0;
    for (int i = 0; i < n_mine && top - i >= 0; i++) {
        mine += static_cast<int>(shared_.histogram[top - i]);
    }
    const int through = block_prefix_sum(mine, reinterpret_cast<int*>(room_.partial));
    if (threadIdx.x == 0) *room_.number = -1;
    __syncthreads();  // the number is set before one thread changes it
    int above = through - mine;
    if (above < n_wanted && n_wanted <= through) {  // one thread at most
        int bin = top;
        while (above + static_cast<int>(shared_.histogram[bin]) < n_wanted) {
            above += static_cast<int>(shared_.histogram[bin--]);
        }
        *room_.number = bin;
        reinterpret_cast<int*>(room_.partial)[0] = above;
    }
    __syncthreads();  // the bin is there
    const int bin = *room_.number;
    *n_above = reinterpret_cast<int*>(room_.partial)[0];
    __syncthreads();  // and has been read
    return bin;
}

// A candidate, or less, that at least n_wanted of those that for_each(what) goes through are not
// below; more than n_most are not only where they have to be. kLeastCandidate where there are
// fewer. Looks at digit after digit, the number of candidates in each of its bins.
template <class Source>
__device__ Candidate RowSampler::threshold_for(int n_wanted, int n_most, const Source& for_each) {
    Candidate digits = 0;  // so far
    int n_above = 0;       // greater than all that begin with them
    for (int i = 0; i < kDigits; i++) {
        const auto [shift, bits] = digit_of_candidate(i);
        const int n_bins = 1 << bits;
        for (int bin = static_cast<int>(threadIdx.x); bin < n_bins; bin += kSampleThreads) {
            shared_.histogram[bin] = 0;
        }
        __syncthreads();  // the histogram is empty
        for_each([&, shift = shift, bits = bits](Candidate c) {
            if (c < kLeastCandidate || c >> (shift + bits) != digits) return;
            atomicAdd(&shared_.histogram[(c >> shift) & (n_bins - 1)], 1u);
        });
        __syncthreads();  // and complete
        int n_above_bin = 0;
        const int bin = find_bin(n_bins, n_wanted - n_above, &n_above_bin);
        if (bin < 0) return kLeastCandidate;
        const int n_reached = n_above + n_above_bin + static_cast<int>(shared_.histogram[bin]);
        digits = digits << bits | static_cast<Candidate>(bin);
        n_above += n_above_bin;
        if (n_reached <= n_most || i == kDigits - 1) {
            return max(digits << shift, kLeastCandidate);
        }
        __syncthreads();  // the histogram has been read
    }
    return kLeastCandidate;
}

// Candidates that are at least `threshold` into the list, in no order; how many there are, which
// may be more than the list has room for.
__device__ int RowSampler::gather(Candidate threshold) {
    if (threadIdx.x == 0) *room_.number = 0;
    __syncthreads();  // the number is set before warps add to it
    for (int g = warp_of_thread(); g < task_.n_groups; g += kSampleWarps) {
        if (shared_.maxima[g] < threshold) continue;
        for_group(logits_, task_.n_vocab, g, [&](Candidate c) {
            const unsigned kept = __ballot_sync(kAllLanes, c >= threshold);
            if (kept == 0) return;
            int first = 0;
            if (lane_of_thread() == 0) first = atomicAdd(room_.number, __popc(kept));
            first = __shfl_sync(kAllLanes, first, 0);
            const int at = first + __popc(kept & ((1u << lane_of_thread()) - 1));
            if (c >= threshold && at < kListRoom) shared_.list[at] = c;
        });
    }
    __syncthreads();  // the list is complete
    const int n = *room_.number;
    __syncthreads();  // and the number has been read
    return n;
}

// The first candidates in order: all, or at least n_wanted. The n-th greatest of the groups' maxima
// is a threshold that n candidates reach, and of a large vocabulary hardly more. Where that does
// not do, the logits themselves are counted.
__device__ void RowSampler::make_list(int n_wanted) {
    Candidate threshold = kLeastCandidate;
    if (task_.n_vocab > kListRoom && n_wanted <= task_.n_groups / 2) {
        threshold = threshold_for(n_wanted, n_wanted + n_wanted / 8, [&](const auto& what) {
            for (int g = static_cast<int>(threadIdx.x); g < task_.n_groups; g += kSampleThreads) {
                what(shared_.maxima[g]);
            }
        });
    }
    int n = kListRoom + 1;
    if (task_.n_vocab <= kListRoom || n_wanted <= task_.n_groups / 2) n = gather(threshold);
    if (n > kListRoom) {
        threshold = threshold_for(n_wanted, kListRoom, [&](const auto& what) {
            for (int g = warp_of_thread(); g < task_.n_groups; g += kSampleWarps) {
                for_group(logits_, task_.n_vocab, g, what);
            }
        });
        n = gather(threshold);
    }
    n_list_ = n, has_all_ = threshold == kLeastCandidate;
    int n_sorted = 1;
    while (n_sorted < n) n_sorted *= 2;
    for (int i = n + static_cast<int>(threadIdx.x); i < n_sorted; i += kSampleThreads) {
        shared_.list[i] = 0;
    }
    __syncthreads();  // the list is filled up
    sort_descending(shared_.list, n_sorted);
}

// How many of the first n elements `holds` is true of.
template <class Predicate>
__device__ int RowSampler::count_first(int n, const Predicate& holds) {
    int count = 0;
    for (int first = 0; first < n; first += kSampleThreads) {
        const int i = first + static_cast<int>(threadIdx.x);
        count += __syncthreads_count(i < n && holds(i));
    }
    return count;
}

// Steps 4 to 7. The drawn token's place in the list; -1: it lies behind the list, or the list does
// not tell.
__device__ int RowSampler::draw_from_list(double total, double total_t) {
    const float highest = logit_of(best_);
    // Whether all that is kept is in the list's first n.
    bool closed = has_all_ || (draw_.top_k > 0 && n_list_ >= draw_.top_k);
    int n = draw_.top_k > 0 ? min(draw_.top_k, n_list_) : n_list_;
    if (draw_.top_p < 1) {
        if (!closed && draw_.top_k > 0) return -1;
        sum_weights(shared_.list, n, highest, 1.0f, shared_.prefix, room_.partial);
        if (closed) total = shared_.prefix[n - 1];
    }
    const double lowest =
        min(static_cast<double>(highest) + draw_.log_min_p - 1e-6, static_cast<double>(highest));
    const int n_likely = count_first(
        n, [&](int i) { return static_cast<double>(logit_of(shared_.list[i])) >= lowest; });
    closed = closed || n_likely < n;
    n = n_likely;
    if (draw_.top_p < 1) {
        const double wanted = (static_cast<double>(draw_.top_p) - 1e-6) * total;
        const int n_before = count_first(n, [&](int i) { return shared_.prefix[i] < wanted; });
        if (n_before == n && !closed) return -1;
        closed = true, n = min(n_before + 1, n);
    }
    if (!closed && !wants_sum_t(draw_)) return -1;
    sum_weights(shared_.list, n, highest, draw_.temperature, shared_.prefix, room_.partial);
    const double wanted = draw_.uniform * (closed ? shared_.prefix[n - 1] : total_t);
    const int n_before = count_first(n, [&](int i) { return shared_.prefix[i] <= wanted; });
    if (n_before < n) return n_before;
    if (!closed) return -1;
    // Rounding left `wanted` unreached: the last possible token.
    return count_first(n,
                       [&](int i) {
                           return weight_of(logit_of(shared_.list[i]), highest, draw_.temperature) >
                                  0;
                       }) -
           1;
}

// Of a row that has been drawn, or could not be; n_top of the list's first are written beside it.
__device__ void RowSampler::write(DrawnRow::Status status, Candidate drawn, int n_top) {
    DrawnRow& result = *result_;
    for (int i = static_cast<int>(threadIdx.x); i < n_top; i += kSampleThreads) {
        const Candidate c = shared_.list[i];
        const double logit = logit_of(c);
        result.top()[i] = {token_of(c), static_cast<float>(logit - log_total_)};
    }
    if (threadIdx.x != 0) return;
    // A row that nothing can be drawn from is an error, of which a step behind it does not know.
    task_.places.tokens[row_] = status == DrawnRow::kToken ? token_of(drawn) : 0;
    const bool has_logprob = status == DrawnRow::kToken && draw_.n_logprobs >= 0;
    const double logit = logit_of(drawn);
    result.status = status;
    result.token = token_of(drawn);
    result.logprob = has_logprob ? static_cast<float>(logit - log_total_) : 0;
    result.n_top = n_top;
}

__device__ void RowSampler::sample() {
    RowState state{};
    if (find_best()) {
        state.best = best_;
        const float highest = logit_of(best_);
        const double total = wants_sum(draw_) ? sum_of_all(task_.sums, 1.0f) : 0;
        const double total_t = wants_sum_t(draw_) ? sum_of_all(task_.sums_t, draw_.temperature) : 0;
        if (draw_.n_logprobs >= 0) log_total_ = static_cast<double>(highest) + log(total);
        state.log_total = log_total_;
        int n_wanted = max(draw_.n_logprobs, 0);
        if (draw_.temperature > 0) {
            const bool is_cut = draw_.top_k > 0 && draw_.top_k <= kMaxListed;
            n_wanted =
                max(n_wanted, is_cut ? draw_.top_k : max(min(kUncutList, task_.n_groups / 2), 1));
        }
        if (n_wanted > 0) make_list(n_wanted);
        const int place = draw_.temperature > 0 ? draw_from_list(total, total_t) : 0;
        state.walks_far = place < 0 ? 1 : 0;
        const Candidate drawn = place > 0 ? shared_.list[place] : best_;
        write(DrawnRow::kToken, drawn, min(max(draw_.n_logprobs, 0), n_list_));
    }
    if (threadIdx.x == 0) task_.states[row_] = state;
}

// sample_rows: steps 1 to 7 of model/sample_params.h
//   logits [n_rows, n_vocab] f32, changed by biases and penalties in place. A warp takes the first
//   candidate of each 128 logits; the block of a row that is the last to have done so draws its
//   token, from a list of the candidates that top_k or the draw asks for. The list goes further
//   than the draw but for a flat distribution that neither top_k nor min_p cuts, which walk_runs
//   draws from. Logits are f32, probabilities and their sums f64, added up in one order. Bytes 4 *
//   n_vocab a row, and those of the groups whose maximum is in the list once more.
__global__ void __launch_bounds__(kSampleThreads) sample_rows(SampleTask task) {
    __shared__ Shared shared;
    __shared__ double partial[32];
    __shared__ int number;
    __shared__ RowDraw draw;
    __shared__ DrawnRow* result;
    const int64_t row = blockIdx.y;
    // No kernel of the step has written these.
    if (threadIdx.x == 0) draw = task.places.draws[row], result = &task.places.drawn->row(row);
    __syncthreads();  // how the row is drawn is known
    wait_for_previous_kernel();
    let_next_kernel_start();
    const auto first = static_cast<int>(blockIdx.x) * kChunk;
    if (draw.n_biases > 0 || draw.n_history > 0) {
        change_logits(task.logits + row * task.stride + first, first,
                      min(task.n_vocab - first, kChunk), draw, task.places.words, shared);
    }
    scan_group(task, row, static_cast<int>(blockIdx.x) * kSampleWarps + warp_of_thread(), draw);
    if (!is_last_of_row(task.places.arrivals + row, &number)) return;
    RowSampler(task, row, draw, result, {&shared, partial, &number}).sample();
}

// Of elements of 8 bytes, at a row's beginning.
template <class T>
T* device_words(const Rows& rows) {
    return reinterpret_cast<T*>(device_rows<float>(rows));
}

std::string_view unfit_for_device(int64_t n_vocab, std::span<const SampleRow> rows) {
    if (n_vocab > kMaxVocab) return "a vocabulary of more than 262,144 tokens";
    for (const SampleRow& row : rows) {
        if (row.params->n_logprobs > kMaxListed) return "more than 1,024 log probabilities";
    }
    return {};
}

}  // namespace

std::string_view unfit_for_sample(const Step& s, const Rows& logits, const std::span<Sampled>&) {
    return unfit_for_device(logits.n_cols, s.batch.sample_rows);
}

bool draws_on_device(const Tables& tables, int64_t n_vocab, std::span<const SampleRow> rows) {
    const auto entries = tables.ops.sample.entries();
    return !rows.empty() && !entries.empty() && entries.back().fn == sample &&
           unfit_for_device(n_vocab, rows).empty();
}

void enqueue_sample(Step& s, Rows logits) {
    const int64_t n_rows = logits.n_rows, n_vocab = logits.n_cols;
    const int64_t n_groups = (n_vocab + kGroup - 1) / kGroup;
    const int64_t n_runs = (n_vocab + kRun - 1) / kRun;
    const int64_t n_at_once = std::min<int64_t>(n_rows, kRowsAtOnce);
    const Rows maxima = s.scratch(n_rows, 2 * n_groups), sums = s.scratch(n_rows, 2 * n_groups),
               sums_t = s.scratch(n_rows, 2 * n_groups),
               states = s.scratch(n_rows, sizeof(RowState) / sizeof(float)),
               sorted = s.scratch(n_at_once * n_runs, 2 * kRun),
               mass = s.scratch(n_at_once * n_runs, 2 * kRun),
               mass_t = s.scratch(n_at_once * n_runs, 2 * kRun);
    if (s.planning) return;
    const Context& c = context_of(s);
    const SampleTask task{device_rows<float>(logits),    logits.stride,
                          static_cast<int32_t>(n_vocab), static_cast<int32_t>(n_groups),
                          c.sampling->places(),          device_words<Candidate>(maxima),
                          device_words<double>(sums),    device_words<double>(sums_t),
                          device_words<RowState>(states)};
    const dim3 grid(static_cast<unsigned>((n_vocab + kChunk - 1) / kChunk),
                    static_cast<unsigned>(n_rows));
    divide_memory_alike(sample_rows, "sample");
    launch_dependent(c, sample_rows, grid, kSampleThreads, 0, "sample", task);
    if (n_vocab > kListRoom && c.sampling->draws_from_all()) {
        const SortedRuns runs{device_words<Candidate>(sorted), device_words<double>(mass),
                              device_words<double>(mass_t), static_cast<int32_t>(n_runs)};
        for (int64_t row = 0; row < n_rows; row += n_at_once) {
            launch_walk(c, task, runs, row, std::min(n_at_once, n_rows - row));
        }
    }
}

void sample(Step& s, Rows logits, std::span<Sampled> drawn) {
    if (s.planning) return enqueue_sample(s, logits);
    const std::span<const SampleRow> rows = s.batch.sample_rows;
    CHECK(rows.size() == drawn.size() && static_cast<int64_t>(rows.size()) == logits.n_rows);
    const Context& c = context_of(s);
    SampleMirror& sampling = *c.sampling;
    if (!sampling.is_added()) {  // an operator alone, which no graph holds
        c.packet->clear();
        const bool has_moved = sampling.add(rows, logits.n_cols, *c.packet, c.stream);
        CHECK(!has_moved || c.graphs == nullptr);
        c.packet->send(c.stream, sampling.slot(), sampling.places().tokens);
        // In a step other kernels lie between.
        check(cudaStreamSynchronize(c.stream), "sample");
    }
    if (!sampling.take_drawn_by_step()) enqueue_sample(s, logits);
    sampling.expect(rows, drawn);
}

}  // namespace ridge::cuda
