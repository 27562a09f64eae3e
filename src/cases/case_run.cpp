#include "cases/case_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>

#include "cases/random.h"
#include "format/packing.h"
#include "ref/host_kv.h"

namespace ridge {
namespace {

constexpr uint32_t kPoison = 0x7fc17fc1;  // a NaN; each half of it is one in bf16 and in f16
constexpr int64_t kGuard = 16;            // f32 between rows, before the first and after the last
constexpr size_t kScratchGuardBytes = 256;
constexpr int64_t kAlivePositions = 256;  // filled in some milliseconds

// Streams of random numbers; those of rows, sequences and pages are told apart by adding to them.
enum Stream : uint64_t {
    kWeightStream = 1,
    kTokenStream = 20,
    kPageStream = 21,
    kHistoryStream = 22,
    kXStream = uint64_t{1} << 32,
    kYStream = uint64_t{2} << 32,
    kKStream = uint64_t{3} << 32,
    kVStream = uint64_t{4} << 32,
};

Buffer alloc(size_t n_bytes) {
    constexpr std::align_val_t kAlign{Scratch::kAlignBytes};
    return {::operator new(n_bytes, kAlign), n_bytes,
            [](void* data, size_t) { ::operator delete(data, kAlign); }};
}

void poison(const Buffer& buffer) {
    for (size_t at = 0; at + sizeof(kPoison) <= buffer.n_bytes(); at += sizeof(kPoison)) {
        memcpy(buffer.data() + at, &kPoison, sizeof(kPoison));
    }
}

std::vector<std::byte> copy_of(const Buffer& buffer) {
    return {buffer.data(), buffer.data() + buffer.n_bytes()};
}

void fill_row(Fill fill, float scale, Random random, int64_t n, float* out) {
    for (int64_t i = 0; i < n; i++) {
        out[i] = fill == Fill::kConstant ? scale : scale * random.normal();
        if (fill == Fill::kOutlier) out[i] /= scale;
    }
    if (fill == Fill::kOutlier) out[random.below(n)] = random.below(2) == 0 ? scale : -scale;
    if (fill == Fill::kSigns) {
        const float values[] = {scale, -scale, 0.0f, -0.0f};
        for (int64_t i = 0; i < std::min<int64_t>(n, 64); i++) out[i] = values[i % 4];
    }
}

// In turn positive, a NaN, and negative.
void fill_nonfinite(int64_t n, float* out) {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    for (int64_t i = 0; i < n; i++) out[i] = static_cast<float>(1 - i % 3) * kInfinity;
}

}  // namespace

CaseRun::Block& CaseRun::add_matrix(std::string_view name, int64_t n_rows, int64_t n_cols,
                                    Block::Role role) {
    const int64_t stride = n_cols + kGuard;
    Block& block = blocks_.emplace_back();
    block.name = name;
    block.role = role;
    block.buffer = alloc(static_cast<size_t>(n_rows * stride + 2 * kGuard) * sizeof(float));
    block.rows = {&block.buffer, kGuard * sizeof(float), DType::kF32, n_rows, n_cols, stride};
    poison(block.buffer);
    return block;
}

void CaseRun::fill_rows(Block& block, uint64_t stream) {
    for (int64_t i = 0; i < block.rows.n_rows; i++) {
        fill_row(c_.fill, c_.scale, Random(seed_, stream + static_cast<uint64_t>(i)),
                 block.rows.n_cols, block.rows.row<float>(i));
    }
}

static uint64_t position_stream(uint64_t stream, const CaseSequence& sequence, int64_t position) {
    return stream + (sequence.id << 24) + static_cast<uint64_t>(position);
}

void CaseRun::fill_sequence_rows(Block& block, uint64_t stream) {
    int64_t row = 0;
    for (const CaseSequence& s : c_.sequences) {
        for (int64_t p = s.n_ctx - s.n_rows; p < s.n_ctx; p++) {
            fill_row(c_.fill, c_.scale, Random(seed_, position_stream(stream, s, p)),
                     block.rows.n_cols, block.rows.row<float>(row++));
        }
    }
}

// A batch without a cache: rows of one prompt, or as many sequences of one decode row.
void CaseRun::make_rows() {
    const auto n_rows = static_cast<int32_t>(c_.n_rows);
    positions_ = c_.positions;
    if (positions_.empty()) {
        positions_.resize(c_.n_rows);
        std::iota(positions_.begin(), positions_.end(), 0);
    }
    slots_.assign(c_.n_rows, -1);
    if (c_.row_class == RowClass::kPrompt) {
        spans_.push_back({0, n_rows, RowClass::kPrompt, {}});
    } else {
        for (int32_t i = 0; i < n_rows; i++) spans_.push_back({i, 1, RowClass::kDecode, {}});
    }
}

// Sequences one behind the other in the cache, with a page before each that is nobody's; or their
// pages dealt out at random.
void CaseRun::make_sequences() {
    int64_t n_pages = 0;
    for (const CaseSequence& s : c_.sequences) n_pages += kv_pages_of(s.n_ctx);
    std::vector<int32_t> pages(static_cast<size_t>(n_pages) + 1);  // one is nobody's
    std::iota(pages.begin(), pages.end(), 0);
    Random random(seed_, kPageStream);
    for (size_t i = pages.size() - 1; i > 0; i--) {
        std::swap(pages[i], pages[static_cast<size_t>(random.below(static_cast<int64_t>(i) + 1))]);
    }
    int64_t next_slot = kKvPagePositions;
    auto next_page = pages.begin();
    int32_t row = 0;
    for (const CaseSequence& s : c_.sequences) {
        KvView view;
        if (c_.paged) {
            auto& table = page_tables_.emplace_back(next_page, next_page + kv_pages_of(s.n_ctx));
            next_page += kv_pages_of(s.n_ctx);
            view.page_table = table.data();
        } else {
            view.base_slot = next_slot;
            next_slot += (kv_pages_of(s.n_ctx) + 1) * kKvPagePositions;
        }
        spans_.push_back({row, s.n_rows, s.row_class, view});
        for (int64_t p = s.n_ctx - s.n_rows; p < s.n_ctx; p++, row++) {
            const bool masked = c_.masked && row % 3 == 1;
            positions_.push_back(masked ? -1 : static_cast<int32_t>(p));
            slots_.push_back(masked ? -1 : view.slot(p));
        }
    }
    kv_.n_slots = c_.paged ? static_cast<int64_t>(pages.size()) * kKvPagePositions : next_slot;
}

// K and V, poison but for what attention's sequences hold. kv_append finds all of it poisoned.
void CaseRun::make_cache(Block::Role role) {
    kv_.k_dtype = c_.k_dtype, kv_.v_dtype = c_.v_dtype;
    kv_.n_kv_heads = c_.n_kv_heads, kv_.d_head = c_.d_head, kv_.exact = c_.exact;
    auto add = [&](std::string_view name, DType dtype) {
        Block& block = blocks_.emplace_back();
        block.name = name;
        block.role = role;
        block.buffer = alloc(host_kv_bytes(kv_.n_slots, kv_.n_kv_heads, kv_.d_head, dtype));
        poison(block.buffer);
        return &block;
    };
    k_ = add("K", kv_.k_dtype);
    v_ = add("V", kv_.v_dtype);
    kv_.k = &k_->buffer, kv_.v = &v_->buffer;
    if (c_.op != Op::kAttention) return;
    std::vector<float> row(static_cast<size_t>(c_.n_kv_heads) * static_cast<size_t>(c_.d_head));
    using RowOf = HostKvRow (*)(const KvLayer&, int64_t slot, int64_t head);
    for (size_t i = 0; i < c_.sequences.size(); i++) {
        const CaseSequence& s = c_.sequences[i];
        for (int64_t p = 0; p < s.n_ctx; p++) {
            if (alive_ && p % kAlivePositions == 0) alive_();
            const int64_t slot = spans_[i].kv.slot(p);
            auto fill = [&](uint64_t stream, RowOf row_of) {
                fill_row(Fill::kNormal, stream == kKStream ? c_.scale : 1.0f,
                         Random(seed_, position_stream(stream, s, p)),
                         static_cast<int64_t>(row.size()), row.data());
                if (p == c_.nonfinite_position) {
                    const auto n = static_cast<int64_t>(row.size());
                    fill_nonfinite(stream == kKStream ? c_.d_head : n, row.data());
                }
                for (int64_t h = 0; h < c_.n_kv_heads; h++) {
                    store_row(row.data() + h * c_.d_head, row_of(kv_, slot, h));
                }
            };
            fill(kKStream, host_k);
            fill(kVStream, host_v);
        }
    }
}

void CaseRun::make_sample_rows() {
    constexpr int64_t kHistory = 100;
    CHECK(static_cast<int64_t>(c_.params.size()) == c_.n_rows);
    histories_.resize(c_.params.size());
    for (size_t i = 0; i < c_.params.size(); i++) {
        Random random(seed_, kHistoryStream + (uint64_t{i} << 8));
        for (int64_t t = 0; t < kHistory; t++) {
            histories_[i].push_back(static_cast<Token>(random.below(c_.d_in)));
        }
        sample_rows_.push_back({&c_.params[i], histories_[i], kHistory + static_cast<int64_t>(i)});
        logit_rows_.push_back(static_cast<int32_t>(i));
    }
    sampled_.resize(c_.params.size());
}

// x_, y_ and out_ as call() hands them over. What an operator changes in place is an output.
void CaseRun::make_operands() {
    const Block::Role input = Block::Role::kInput, output = Block::Role::kOutput;
    const int64_t n = c_.n_rows, d = c_.d_in;
    const int64_t d_q = int64_t{c_.n_heads} * c_.d_head, d_kv = int64_t{c_.n_kv_heads} * c_.d_head;
    switch (c_.op) {
        case Op::kEmbedRows:
        case Op::kMatmul: {
            int64_t d_out = 0;
            for (const CaseWeight& w : c_.weights) {
                linears_.push_back(
                    weights_.linear(w, d, c_.weight_scale, kWeightStream + linears_.size()));
                d_out += w.d_out;
            }
            if (c_.op == Op::kMatmul) fill_rows(*(x_ = &add_matrix("x", n, d, input)), kXStream);
            out_ = &add_matrix("out", n, c_.op == Op::kMatmul ? d_out : d, output);
            break;
        }
        case Op::kRmsNorm:
            vector_ = weights_.vector(d, 0, c_.weight_scale, kWeightStream);
            fill_rows(*(x_ = &add_matrix("x", n, d * c_.n_heads, input)), kXStream);
            out_ = &add_matrix("out", n, d * c_.n_heads, output);
            break;
        case Op::kRope:
            fill_rows(*(out_ = &add_matrix("x", n, d_q, output)), kXStream);
            break;
        case Op::kKvAppend:
            fill_sequence_rows(*(x_ = &add_matrix("k", n, d_kv, input)), kXStream);
            fill_sequence_rows(*(y_ = &add_matrix("v", n, d_kv, input)), kYStream);
            make_cache(output);
            break;
        case Op::kAttention:
            fill_sequence_rows(*(x_ = &add_matrix("q", n, d_q, input)), kXStream);
            make_cache(input);
            out_ = &add_matrix("out", n, d_q, output);
            break;
        case Op::kSwiglu:
            fill_rows(*(x_ = &add_matrix("gate_up", n, 2 * d, input)), kXStream);
            out_ = &add_matrix("out", n, d, output);
            break;
        case Op::kAdd:
            fill_rows(*(y_ = &add_matrix("y", n, d, input)), kYStream);
            fill_rows(*(out_ = &add_matrix("x", n, d, output)), kXStream);
            break;
        case Op::kSample:
            fill_rows(*(out_ = &add_matrix("logits", n, d, output)), kXStream);
            break;
    }
}

CaseRun::CaseRun(const Case& c, uint64_t seed, std::function<void()> alive)
    : c_(c), seed_(seed), alive_(std::move(alive)), weights_(seed) {
    config_.n_heads = c_.n_heads, config_.n_kv_heads = c_.n_kv_heads, config_.d_head = c_.d_head;
    config_.d_rope = c_.d_rope, config_.rope_style = c_.rope_style;
    config_.rope_theta = c_.rope_theta, config_.rope_factors = c_.rope_factors;
    config_.norm_eps = c_.eps;
    if (c_.op == Op::kRope) rope_table_ = make_rope_table(config_);
    if (c_.sequences.empty()) {
        make_rows();
    } else {
        make_sequences();
    }
    if (c_.op == Op::kSample) make_sample_rows();
    Random random(seed_, kTokenStream);
    const int64_t n_vocab = c_.op == Op::kEmbedRows ? c_.weights[0].d_out : 1;
    for (int64_t i = 0; i < c_.n_rows; i++) {
        tokens_.push_back(static_cast<Token>(i == 0 ? n_vocab - 1 : random.below(n_vocab)));
    }
    batch_ = {tokens_, positions_, slots_, spans_, logit_rows_, sample_rows_};
    make_operands();
    for (Block& block : blocks_) block.before = copy_of(block.buffer);
}

// As a backend prepares them: two of as many rows each as gate and up, others alone.
void CaseRun::pack_weights(const Layout& layout, const void* kernels) {
    bound_linears_ = linears_;
    packed_.clear();
    if (layout.rows_in_part == 0) return;
    const bool pair =
        linears_.size() == 2 && linears_[0].weight.n_rows() == linears_[1].weight.n_rows();
    const size_t n_together = pair ? 2 : 1;
    for (size_t first = 0; first < linears_.size(); first += n_together) {
        std::vector<Tensor> weights;
        for (size_t i = 0; i < n_together; i++) weights.push_back(linears_[first + i].weight);
        Packing packing(weights, layout, kernels);
        for (int64_t i = 0; i < packing.n_to_measure(); i++) packing.measure(i);
        packing.settle();
        const Buffer& buffer = packed_.emplace_back(alloc(static_cast<size_t>(packing.n_bytes())));
        poison(buffer);
        for (size_t t = 0; t < n_together; t++) {
            for (int64_t i = 0; i < packing.n_parts(); i++) packing.pack(i, buffer.data(), t);
            bound_linears_[first + t].weight = packing.view(buffer.data(), t);
        }
    }
}

// Operands in the device's memory, weights as it prepares them.
void CaseRun::bind_device() {
    for (Block& block : blocks_) block.on_device = device_->alloc(block.buffer.n_bytes());
    bound_linears_ = linears_;
    for (Linear& linear : bound_linears_) {
        linear.weight = device_->prepare(linear.weight, *tables_->matmul_layout);
        if (linear.bias) linear.bias = device_->prepare(linear.bias, row_major_layout());
    }
    if (vector_) bound_vector_ = device_->prepare(vector_, row_major_layout());
    int64_t n_pages = 0;
    for (const auto& table : page_tables_) n_pages += static_cast<int64_t>(table.size());
    device_->begin(batch_, rope_table_, n_pages);
}

void CaseRun::bind(const Tables& tables, ThreadPool& pool, CaseDevice* device,
                   std::span<const Tuning> tunings) {
    tables_ = &tables, pool_ = &pool, device_ = device;
    bound_vector_ = vector_;
    scratch_ = {};
    if (device_ == nullptr) {
        pack_weights(*tables.matmul_layout, tables.kernels);
        scratch_.set_guard_bytes(kScratchGuardBytes);
    } else {
        bind_device();
    }
    for (const Tuning& tuning : tunings) {
        Tables tuned = tables;
        tuned.tuning = &tuning;
        tables_ = &tuned;
        scratch_.begin_step();
        call(true);
        tables_ = &tables;
    }
    scratch_.begin_step();
    call(true);
    scratch_buffer_ = alloc(scratch_.planned_bytes() + Scratch::kAlignBytes);
    if (device_ != nullptr) scratch_on_device_ = device_->alloc(scratch_buffer_.n_bytes());
    scratch_.place(device_ == nullptr ? scratch_buffer_ : scratch_on_device_);
}

void CaseRun::reset() {
    for (Block& block : blocks_) {
        memcpy(block.buffer.data(), block.before.data(), block.before.size());
        if (device_ != nullptr) device_->upload(block.buffer, block.on_device);
    }
    poison(scratch_buffer_);
    if (device_ != nullptr) device_->upload(scratch_buffer_, scratch_on_device_);
    std::fill(sampled_.begin(), sampled_.end(), Sampled{});
}

void CaseRun::run_op() {
    scratch_.begin_step();
    call(false);
    if (device_ == nullptr) overrun_ = scratch_.is_overrun();
}

const Buffer& CaseRun::memory_of(const Block& block) const {
    return device_ == nullptr ? block.buffer : block.on_device;
}

Rows CaseRun::rows_of(const Block* block) const {
    if (block == nullptr) return {};
    Rows rows = block->rows;
    rows.buffer = &memory_of(*block);
    return rows;
}

static LinearGroup group_of(const std::vector<Linear>& linears) {
    switch (linears.size()) {
        case 1:
            return linears[0];
        case 2:
            return {linears[0], linears[1]};
        default:
            CHECK(linears.size() == 3);
            return {linears[0], linears[1], linears[2]};
    }
}

// use(node, operands...) of the case's operator.
template <class Use>
auto CaseRun::with_node(Step& step, Use use) {
    const Ops& ops = tables_->ops;
    const int64_t d_head = c_.d_head;
    const Rows x = rows_of(x_), y = rows_of(y_), out = rows_of(out_);
    KvLayer kv = kv_;
    if (k_ != nullptr) kv.k = &memory_of(*k_), kv.v = &memory_of(*v_);
    const auto heads = [](const Rows& rows, int n_heads, int64_t d) {
        return Heads(rows, n_heads, d);
    };
    switch (c_.op) {
        case Op::kEmbedRows:
            return use(ops.embed_rows, step, bound_linears_[0].weight, Tokens(tokens_), out);
        case Op::kRmsNorm:
            return use(ops.rms_norm, step, heads(x, c_.n_heads, c_.d_in), bound_vector_, c_.eps,
                       heads(out, c_.n_heads, c_.d_in));
        case Op::kMatmul:
            return use(ops.matmul, step, x, group_of(bound_linears_), out);
        case Op::kRope:
            return use(ops.rope, step, heads(out, c_.n_heads, d_head), Positions(positions_),
                       rope_table_);
        case Op::kKvAppend:
            return use(ops.kv_append, step, heads(x, c_.n_kv_heads, d_head),
                       heads(y, c_.n_kv_heads, d_head), kv);
        case Op::kAttention:
            return use(ops.attention, step, heads(x, c_.n_heads, d_head), kv,
                       heads(out, c_.n_heads, d_head));
        case Op::kSwiglu:
            return use(ops.swiglu, step, x, out);
        case Op::kAdd:
            return use(ops.add, step, y, out);
        case Op::kSample:
            break;
    }
    return use(ops.sample, step, out, std::span<Sampled>(sampled_));
}

void CaseRun::call(bool planning) {
    Step step{*tables_, tables_->ops, tables_->stages, config_, rope_table_,
              batch_,   scratch_,     *pool_,          planning};
    step.trace = planning ? nullptr : trace_;
    TracedStep traced(step.trace, *pool_);
    with_node(step,
              [](const auto& node, Step& s, const auto&... operands) { node(s, operands...); });
}

Fallback CaseRun::plan(const Tables& tables, ThreadPool& pool, bool (*is_packed)(FormatId)) {
    tables_ = &tables, pool_ = &pool, device_ = nullptr;
    bound_vector_ = vector_;
    const bool packed = is_packed == nullptr ||
                        std::all_of(c_.weights.begin(), c_.weights.end(),
                                    [&](const CaseWeight& w) { return is_packed(w.format); });
    pack_weights(packed ? *tables.matmul_layout : row_major_layout(), tables.kernels);
    Step step{tables, tables.ops, tables.stages, config_, rope_table_,
              batch_, scratch_,   pool,          true};
    return with_node(step, [](const auto& node, Step& s, const auto&... operands) {
        return node.plan(s, operands...);
    });
}

// An input that changed, or an output's surroundings that did.
std::string CaseRun::find_fault(const Block& block) const {
    const std::byte* now = block.buffer.data();
    if (block.role == Block::Role::kInput) {
        if (memcmp(now, block.before.data(), block.before.size()) == 0) return {};
        return fmt::format("{}, an input, was written to", block.name);
    }
    if (block.rows.buffer == nullptr) return {};  // a cache: all of it is an output
    const Rows& rows = block.rows;
    for (size_t at = 0; at < block.before.size(); at += sizeof(float)) {
        const auto element =
            (static_cast<int64_t>(at) - static_cast<int64_t>(rows.offset_bytes)) / 4;
        const bool inside = at >= rows.offset_bytes && element / rows.stride < rows.n_rows &&
                            element % rows.stride < rows.n_cols;
        if (inside || memcmp(now + at, block.before.data() + at, sizeof(float)) == 0) continue;
        return fmt::format("{} was written outside its rows, {} elements from its start",
                           block.name, element);
    }
    return {};
}

Outputs CaseRun::outputs() const {
    Outputs result;
    if (device_ != nullptr) {
        device_->wait();
        for (const Block& block : blocks_) device_->download(block.on_device, block.buffer);
    }
    for (const Block& block : blocks_) {
        if (result.fault.empty()) result.fault = find_fault(block);
    }
    if (result.fault.empty() && overrun_) result.fault = "scratch was written behind a room's end";
    result.sampled = sampled_;
    if (c_.op == Op::kSample) return result;  // what becomes of the logits is its own affair
    if (c_.op == Op::kKvAppend) {
        result.n_cols = c_.d_head;
        const int64_t n_values = kv_.n_slots * c_.n_kv_heads * c_.d_head;
        result.values.resize(static_cast<size_t>(2 * n_values));
        float *k = result.values.data(), *v = k + n_values;
        for (int64_t slot = 0; slot < kv_.n_slots; slot++) {
            for (int64_t h = 0; h < c_.n_kv_heads; h++, k += c_.d_head, v += c_.d_head) {
                load_row(host_k(kv_, slot, h), k);
                load_row(host_v(kv_, slot, h), v);
            }
        }
        return result;
    }
    result.n_cols = out_->rows.n_cols;
    for (int64_t i = 0; i < out_->rows.n_rows; i++) {
        const float* row = out_->rows.row<float>(i);
        result.values.insert(result.values.end(), row, row + result.n_cols);
    }
    return result;
}

Outputs CaseRun::run(const Tables& tables, ThreadPool& pool, CaseDevice* device) {
    bind(tables, pool, device);
    reset();
    run_op();
    return outputs();
}

Outputs run_case(const Case& c, uint64_t seed, const Tables& tables, ThreadPool& pool,
                 CaseDevice* device) {
    return CaseRun(c, seed).run(tables, pool, device);
}

}  // namespace ridge
