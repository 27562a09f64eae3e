#include "cuda/device/async.cuh"
#include "cuda/device/candidates.cuh"
#include "cuda/sample_runs.cuh"

namespace ridge::cuda {
namespace {

constexpr int kMaxRuns = static_cast<int>(kMaxVocab / kRun);  // a thread for each of a row
static_assert(kRun == kListRoom && kMaxRuns == 128);

// sort_runs: the candidates of logits kRun * run and up in order, and the sums of their weights
//   A block for each run of each row that walks far; the others' return at once.
//   Bytes 28 * n_vocab a row.
__global__ void __launch_bounds__(kSampleThreads)
    sort_runs(SampleTask task, SortedRuns runs, int64_t first_row) {
    __shared__ Candidate list[kRun];
    __shared__ double prefix[kRun], partial[32];
    wait_for_previous_kernel();
    let_next_kernel_start();
    const int64_t row = first_row + blockIdx.y;
    const RowState& state = task.states[row];
    if (state.walks_far == 0) return;  // the whole block
    const float* logits = task.logits + row * task.stride;
    for (int i = static_cast<int>(threadIdx.x); i < kRun; i += kSampleThreads) {
        const int64_t token = int64_t{blockIdx.x} * kRun + i;
        const Candidate c = token < task.n_vocab ? candidate_of(logits[token], token) : 0;
        list[i] = c < kLeastCandidate ? 0 : c;
    }
    __syncthreads();  // the list is complete
    sort_descending(list, kRun);
    int n = 0;  // candidates
    for (int i = static_cast<int>(threadIdx.x); i < kRun; i += kSampleThreads) {
        n += __syncthreads_count(list[i] != 0);
    }
    const RowDraw& draw = task.places.draws[row];
    const int64_t at = (int64_t{blockIdx.y} * runs.n_runs + blockIdx.x) * kRun;
    const float highest = logit_of(state.best);
    const auto store = [&](double* to) {
        for (int i = static_cast<int>(threadIdx.x); i < n; i += kSampleThreads) {
            to[at + i] = prefix[i];
        }
        __syncthreads();  // prefix has been read
    };
    if (draw.top_p < 1) {
        sum_weights(list, n, highest, 1.0f, prefix, partial);
        store(runs.mass);
    }
    sum_weights(list, n, highest, draw.temperature, prefix, partial);
    store(runs.mass_t);
    for (int i = static_cast<int>(threadIdx.x); i < kRun; i += kSampleThreads) {
        runs.sorted[at + i] = list[i];
    }
}

// One thread's run of a row's, and questions about all of them together.
struct Walk {
    const Candidate* sorted;  // [n]
    int n;                    // 0 where the thread has no run
    int64_t offset;           // of its sums
    double* partial;          // [32] of shared memory

    // How many candidates of the run are at least c; between low and high.
    __device__ int position(Candidate c, int low, int high) const {
        while (low < high) {
            const int middle = (low + high) / 2;
            if (sorted[middle] >= c) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        return low;
    }
    // Of the run's first candidates; null: their number.
    __device__ double mass_of(const double* mass, int n_first) const {
        if (mass == nullptr) return n_first;
        return n_first == 0 ? 0 : mass[offset + n_first - 1];
    }
    // Of the candidates that are at least c, of all runs.
    __device__ double mass_from(const double* mass, Candidate c) const {
        return block_sum(mass_of(mass, position(c, 0, n)), partial);
    }
    // The first candidate in the order with which the mass from the front on exceeds `wanted`, or
    // with `reached` comes up to it; 0: the mass of all does not. Found bit by bit: the greatest c
    // of which that is true.
    __device__ Candidate find(const double* mass, double wanted, bool reached) const {
        Candidate found = 0;
        int n_above = 0, n_from = n;  // of the run: at least what is ruled out; at least `found`
        for (int bit = kCandidateBits - 1; bit >= 0; bit--) {
            const Candidate c = found | Candidate{1} << bit;
            const int n_first = position(c, n_above, n_from);
            const double sum = block_sum(mass_of(mass, n_first), partial);
            if (reached ? sum >= wanted : sum > wanted) {
                found = c, n_from = n_first;
            } else {
                n_above = n_first;
            }
        }
        return found;
    }
    // The last candidate in the order that is at least c, where there is one.
    __device__ Candidate at_least(Candidate c) const {
        const int n_first = position(c, 0, n);
        const Candidate last = n_first == 0 ? 0 : ~sorted[n_first - 1];
        // The least is the greatest of the complements.
        return ~block_max(last, reinterpret_cast<Candidate*>(partial));
    }
};

// walk_runs: the draw of model/sample_params.h, steps 4 to 7, from all candidates of a row
//   A block for each row that walks far, a thread for each run. Every cut is a candidate, found by
//   what stands before it: its number, its mass at temperature 1, its mass at the row's own.
__global__ void __launch_bounds__(kMaxRuns)
    walk_runs(SampleTask task, SortedRuns runs, int64_t first_row) {
    __shared__ double partial[32];
    wait_for_previous_kernel();
    let_next_kernel_start();
    const int64_t row = first_row + blockIdx.x;
    const RowState& state = task.states[row];
    if (state.walks_far == 0) return;  // the whole block
    const RowDraw& draw = task.places.draws[row];
    const auto run = static_cast<int>(threadIdx.x);
    const int64_t offset = (int64_t{blockIdx.x} * runs.n_runs + run) * kRun;
    Walk walk{runs.sorted + offset, run < runs.n_runs ? kRun : 0, offset, partial};
    walk.n = walk.position(kLeastCandidate, 0, walk.n);

    const float highest = logit_of(state.best);
    Candidate last = kLeastCandidate;  // what is kept is at least this
    if (draw.top_k > 0) last = max(last, walk.find(nullptr, draw.top_k, true));
    const double total = draw.top_p < 1 ? walk.mass_from(runs.mass, last) : 0;
    const double lowest = static_cast<double>(highest) + draw.log_min_p - 1e-6;
    last = max(last, last_candidate(min(__double2float_ru(lowest), highest)));
    if (draw.top_p < 1) {
        const double wanted = (static_cast<double>(draw.top_p) - 1e-6) * total;
        last = max(last, min(walk.find(runs.mass, wanted, true), state.best));
    }
    const double total_t = walk.mass_from(runs.mass_t, last);
    Candidate drawn = walk.find(runs.mass_t, draw.uniform * total_t, false);
    // Where rounding left that unreached: the last possible token.
    if (drawn < last) drawn = walk.find(runs.mass_t, total_t, true);
    drawn = walk.at_least(min(max(drawn, last), state.best));
    if (run != 0) return;
    DrawnRow& result = task.places.drawn->row(row);
    result.token = task.places.tokens[row] = token_of(drawn);
    if (draw.n_logprobs >= 0) {
        result.logprob = static_cast<float>(static_cast<double>(logit_of(drawn)) - state.log_total);
    }
}

}  // namespace

void launch_walk(const Context& c, const SampleTask& task, const SortedRuns& runs,
                 int64_t first_row, int64_t n_rows) {
    const dim3 grid(static_cast<unsigned>(runs.n_runs), static_cast<unsigned>(n_rows));
    launch_dependent(c, sort_runs, grid, kSampleThreads, 0, "sample: sorting runs", task, runs,
                     first_row);
    launch_dependent(c, walk_runs, dim3(static_cast<unsigned>(n_rows)), kMaxRuns, 0,
                     "sample: walking runs", task, runs, first_row);
}

}  // namespace ridge::cuda
