#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/thread_pool.h"
#include "cases/case.h"
#include "cases/random_weights.h"
#include "model/step.h"
#include "model/tables.h"
#include "model/tuning.h"

namespace ridge {

// What an operator wrote.
struct Outputs {
    int64_t n_cols = 0;
    std::vector<float> values;  // [n_rows, n_cols]; kv_append: all of K, then all of V, a slot and
                                // head a row
    std::vector<Sampled> sampled;  // sample alone
    std::string fault;             // empty, or what was written that should not have been
};

// A device whose memory is not the host's: what a case needs to run there.
class CaseDevice {
  public:
    virtual ~CaseDevice() = default;
    virtual Buffer alloc(size_t n_bytes) = 0;
    virtual void upload(const Buffer& host, const Buffer& device) = 0;  // of one size
    virtual void download(const Buffer& device, const Buffer& host) = 0;
    virtual Tensor prepare(const Tensor& weight, const Layout& layout) = 0;
    // Before operators run: the batch and the model's RoPE, as they are for a step. n_pages: of all
    // page tables together.
    virtual void begin(const Batch& batch, const RopeTable& rope, int64_t n_pages) = 0;
    virtual void wait() = 0;  // until what was started has ended; its Error, if there is one
};

// One case in host memory, or for a device: fresh inputs, poisoned outputs, and all that an
// operator wants around it. Every matrix has rows wider apart than they are long; what lies
// between, before and behind them, and every slot of the cache that no row may see, is NaN of one
// bit pattern: reading it shows in the result, and writing it is a fault. So is writing to what
// lies between an operator's rooms in scratch.
class CaseRun {
  public:
    // The inputs depend on the case and the seed alone. Where a cache is filled, which may take a
    // minute, `alive` is called every now and then, and may throw.
    CaseRun(const Case& c, uint64_t seed, std::function<void()> alive = {});
    CaseRun(const CaseRun&) = delete;

    // bind, reset, run_op, outputs.
    Outputs run(const Tables& tables, ThreadPool& pool, CaseDevice* device = nullptr);

    // All must live on, but for `tunings`. Plans scratch for them, which also has room where the
    // tables' tuning is changed to one of these. `device`: where the tables' operators run, if it
    // is not the host.
    void bind(const Tables& tables, ThreadPool& pool, CaseDevice* device = nullptr,
              std::span<const Tuning> tunings = {});
    void reset();   // inputs as they were made, outputs and scratch poisoned
    void run_op();  // the operator alone, for a clock to be held to
    // Its calls, from the next run_op() on, are noted there; null: nowhere.
    void set_trace(StepTrace* trace) { trace_ = trace; }
    Outputs outputs() const;

    // What would run at these tables, and nothing is run. Weights are packed in host memory, and no
    // device is needed. `is_packed`: whether the backend packs a format; null: it packs all.
    Fallback plan(const Tables& tables, ThreadPool& pool, bool (*is_packed)(FormatId) = nullptr);

  private:
    // A matrix or a cache in a buffer of its own, and what it held before the run.
    struct Block {
        enum class Role { kInput, kOutput };
        Buffer buffer;
        Buffer on_device;
        Rows rows;
        Role role = Role::kInput;
        std::vector<std::byte> before;
        std::string_view name;
    };

    Block& add_matrix(std::string_view name, int64_t n_rows, int64_t n_cols, Block::Role role);
    void fill_rows(Block& block, uint64_t stream);
    void fill_sequence_rows(Block& block, uint64_t stream);
    void make_rows();
    void make_sequences();
    void make_sample_rows();
    void make_cache(Block::Role role);
    void make_operands();
    void pack_weights(const Layout& layout, const void* kernels);
    void bind_device();
    const Buffer& memory_of(const Block& block) const;  // that operators see
    Rows rows_of(const Block* block) const;
    void call(bool planning);
    template <class Use>
    auto with_node(Step& step, Use use);
    std::string find_fault(const Block& block) const;

    const Case c_;
    const uint64_t seed_;
    const std::function<void()> alive_;
    const Tables* tables_ = nullptr;
    ThreadPool* pool_ = nullptr;
    CaseDevice* device_ = nullptr;  // null: the host

    std::deque<Block> blocks_;  // addresses stay
    RandomWeights weights_;
    std::vector<Linear> linears_;        // row_major
    std::vector<Linear> bound_linears_;  // in the layout that the tables want
    std::deque<Buffer> packed_;
    Tensor vector_, bound_vector_;
    Block *x_ = nullptr, *y_ = nullptr, *out_ = nullptr;  // the operands, as the op has them
    Block *k_ = nullptr, *v_ = nullptr;                   // the cache
    KvLayer kv_;

    Config config_;
    RopeTable rope_table_;
    std::vector<Token> tokens_;
    std::vector<int32_t> positions_, logit_rows_;
    std::vector<int64_t> slots_;
    std::vector<SequenceSpan> spans_;
    std::deque<std::vector<int32_t>> page_tables_;
    std::vector<SampleRow> sample_rows_;
    std::vector<std::vector<Token>> histories_;
    std::vector<Sampled> sampled_;
    Batch batch_;
    Buffer scratch_buffer_, scratch_on_device_;
    Scratch scratch_;
    bool overrun_ = false;
    StepTrace* trace_ = nullptr;
};

Outputs run_case(const Case& c, uint64_t seed, const Tables& tables, ThreadPool& pool,
                 CaseDevice* device = nullptr);

// How far `got` is from `want`.
struct Difference {
    double worst = 0;        // greatest error of an element, as Case::tolerance measures it
    double relative_l2 = 0;  // |got - want| / |want|
    std::string fault;  // empty where every element is within the tolerance, else the first that
                        // is not
};
Difference compare(const Case& c, const Outputs& want, const Outputs& got);

// Whether two results are the same, bit for bit.
bool same_bits(const Outputs& a, const Outputs& b);

}  // namespace ridge
