#include <algorithm>

#include "cases/case.h"

namespace ridge {
namespace {

constexpr float kTolerance = 2e-5f;
constexpr int64_t kLengths[] = {1,   31,  32,  33,  63,  64,   65,  127,
                                128, 129, 255, 256, 257, 1023, 4097};
constexpr int32_t kQueries[] = {1, 2, 7, 8, 9, 63, 64, 65};
constexpr int kRatios[] = {1, 2, 3, 4, 5, 7, 8};
constexpr int kHeadDims[] = {64, 80, 96, 100, 128, 256};  // of 100: plain kernels alone

struct CacheTypes {
    DType k, v;
};
constexpr CacheTypes kCacheTypes[] = {
    {DType::kF16, DType::kF16},   {DType::kF32, DType::kF32},  {DType::kBF16, DType::kBF16},
    {DType::kQ8_0, DType::kQ8_0}, {DType::kBF16, DType::kF16}, {DType::kF16, DType::kF32},
    {DType::kQ8_0, DType::kF16},
};

// The turn's types that heads of d_head can have: q8_0 wants blocks of 32.
CacheTypes cache_types(size_t turn, int d_head) {
    const CacheTypes types = kCacheTypes[turn % std::size(kCacheTypes)];
    const bool scaled = types.k == DType::kQ8_0 || types.v == DType::kQ8_0;
    return scaled && d_head % kKvScaleElements != 0 ? kCacheTypes[0] : types;
}

CaseSequence sequence(int64_t n_ctx, int64_t n_rows, uint64_t id = 0) {
    return {n_ctx, static_cast<int32_t>(n_rows), n_rows > 1 ? RowClass::kPrompt : RowClass::kDecode,
            id};
}

Case attention(std::vector<CaseSequence> sequences, int n_kv_heads, int ratio, int d_head,
               CacheTypes types, bool paged) {
    return {.op = Op::kAttention,
            .n_heads = n_kv_heads * ratio,
            .n_kv_heads = n_kv_heads,
            .d_head = d_head,
            .sequences = std::move(sequences),
            .paged = paged,
            .k_dtype = types.k,
            .v_dtype = types.v,
            .tolerance = kTolerance,
            .cancels = true};
}

// Every cache length with four of the query lengths, the long ones with two: the others take turns,
// at strides that share no factor with their number, so that all pairs come to meet.
void add_lengths(std::vector<Case>& cases) {
    size_t turn = 0;
    for (int64_t n_ctx : kLengths) {
        size_t n_taken = 0;
        for (size_t q = 0; q < std::size(kQueries); q++) {
            const int32_t n_rows = kQueries[(q * 3 + turn) % std::size(kQueries)];
            if (n_rows > n_ctx || (n_ctx > 1000 && n_rows > 9)) continue;
            if (n_taken++ == (n_ctx > 1000 ? 2u : 4u)) break;
            const int d_head = kHeadDims[turn / 2 % std::size(kHeadDims)];
            cases.push_back(
                finish_case(attention({sequence(n_ctx, n_rows)}, 1 + static_cast<int>(turn % 2),
                                      kRatios[turn % std::size(kRatios)], d_head,
                                      cache_types(turn / 3, d_head), turn % 3 == 1)));
            turn++;
        }
    }
}

// Every ratio with every head width; every cache type with both kinds of views.
void add_shapes(std::vector<Case>& cases) {
    size_t turn = 0;
    for (int ratio : kRatios) {
        for (int d_head : kHeadDims) {
            const CacheTypes types = cache_types(turn, d_head);
            cases.push_back(
                finish_case(attention({sequence(70, 1)}, 2, ratio, d_head, types, turn % 2 == 0)));
            cases.push_back(
                finish_case(attention({sequence(66, 9)}, 1, ratio, d_head, types, turn % 2 == 1)));
            turn++;
        }
    }
    for (const CacheTypes& types : kCacheTypes) {
        for (bool paged : {false, true}) {
            cases.push_back(finish_case(attention({sequence(300, 1)}, 3, 3, 64, types, paged)));
            cases.push_back(finish_case(attention({sequence(193, 65)}, 1, 2, 64, types, paged)));
        }
    }
    Case exact = attention({sequence(193, 65)}, 2, 3, 96, kCacheTypes[0], true);
    exact.exact = true;
    cases.push_back(finish_case(exact));
    // Whole prompts from position 0.
    for (int32_t n : {2, 8, 65}) {
        cases.push_back(
            finish_case(attention({sequence(n, n)}, 2, 3, 64, kCacheTypes[0], n == 8), "prompt"));
    }
    cases.push_back(finish_case(attention({sequence(4097, 65)}, 1, 1, 64, kCacheTypes[1], true)));
    // Many blocks of positions that threads share, and several decode rows of one sequence.
    for (const CacheTypes& types : {kCacheTypes[0], kCacheTypes[3]}) {
        cases.push_back(finish_case(attention({sequence(5000, 1)}, 1, 3, 64, types, true)));
        cases.push_back(finish_case(
            attention({{600, 4, RowClass::kDecode, 0}}, 2, 4, 128, types, false), "decode rows"));
    }
}

// Contexts that kernels for one row cut into many pieces, with every kind of group and of head.
void add_long_decodes(std::vector<Case>& cases) {
    struct Long {
        int64_t n_ctx;
        int n_kv_heads, ratio, d_head;
        DType k, v;
        bool paged;
    };
    constexpr DType kF32 = DType::kF32, kF16 = DType::kF16, kBF16 = DType::kBF16,
                    kQ8_0 = DType::kQ8_0;
    constexpr Long kLong[] = {
        {3000, 2, 4, 64, kF16, kF16, true},    {3001, 1, 8, 128, kBF16, kBF16, false},
        {3100, 1, 5, 80, kF16, kBF16, true},   {3333, 2, 1, 96, kQ8_0, kQ8_0, false},
        {2049, 1, 4, 128, kQ8_0, kQ8_0, true}, {3072, 2, 1, 128, kF16, kF16, true},
        {2500, 1, 2, 64, kBF16, kBF16, false}, {1500, 1, 3, 256, kF16, kQ8_0, true},
        {1201, 1, 7, 96, kQ8_0, kBF16, false}, {8193, 1, 8, 64, kQ8_0, kQ8_0, true},
        {700, 2, 12, 64, kF16, kF16, false},   {900, 1, 17, 128, kF32, kF32, true},
        {17000, 1, 1, 64, kF16, kF16, true},   {500, 3, 2, 16, kF16, kF16, false},
        {333, 1, 3, 48, kBF16, kF16, true},    {270, 1, 2, 160, kQ8_0, kF32, false},
    };
    for (const Long& c : kLong) {
        cases.push_back(finish_case(
            attention({sequence(c.n_ctx, 1)}, c.n_kv_heads, c.ratio, c.d_head, {c.k, c.v}, c.paged),
            "long"));
    }
    // More rows than any kernel takes at once, of lengths about its borders.
    std::vector<CaseSequence> many;
    for (uint64_t i = 0; i < 71; i++) {
        many.push_back(sequence(static_cast<int64_t>(1 + i * i % 331), 1, i + 1));
    }
    for (const CacheTypes& types : {kCacheTypes[0], kCacheTypes[3]}) {
        Case c = attention(many, 1, 4, 64, types, types.k == DType::kF16);
        cases.push_back(finish_case(c, "71 decode rows"));
        c.masked = true;
        cases.push_back(finish_case(c, "71 decode rows"));
    }
}

// Prompts' last rows in contexts whose positions kernels sum up in several pieces, and heads of
// every kind of width.
void add_prompts(std::vector<Case>& cases) {
    struct Prompt {
        int64_t n_ctx, n_rows;
        int ratio, d_head;
        size_t types;
        bool paged;
    };
    constexpr Prompt kPrompts[] = {
        {1030, 40, 4, 64, 0, true},   {1024, 33, 5, 64, 3, false},  {2080, 40, 3, 64, 2, true},
        {1090, 17, 8, 128, 0, false}, {1025, 9, 4, 128, 3, true},   {2049, 20, 1, 128, 2, false},
        {1050, 30, 2, 96, 5, true},   {1100, 12, 3, 256, 4, false}, {1025, 3, 17, 80, 0, true},
        {70, 30, 2, 16, 0, true},     {65, 65, 3, 32, 3, false},    {200, 50, 1, 48, 4, true},
        {129, 40, 6, 112, 2, false},  {130, 20, 1, 160, 3, true},   {90, 30, 2, 240, 1, false},
    };
    for (const Prompt& c : kPrompts) {
        Case one = attention({sequence(c.n_ctx, c.n_rows)}, 1, c.ratio, c.d_head,
                             kCacheTypes[c.types], c.paged);
        cases.push_back(finish_case(one, "prompt"));
        one.masked = true;
        cases.push_back(finish_case(one, "prompt"));
    }
}

std::vector<CaseSequence> eight_sequences() {
    return {sequence(1, 1, 1),   sequence(64, 1, 2),  sequence(129, 9, 3), sequence(33, 1, 4),
            sequence(65, 65, 5), sequence(257, 1, 6), sequence(2, 2, 7),   sequence(128, 1, 8)};
}

void add_batches(std::vector<Case>& cases) {
    for (bool paged : {false, true}) {
        for (const CacheTypes& types : {kCacheTypes[0], kCacheTypes[2], kCacheTypes[3]}) {
            Case c = attention(eight_sequences(), 2, 3, 64, types, paged);
            cases.push_back(finish_case(c, "prompts and decode rows"));
            c.masked = true;
            cases.push_back(finish_case(c));
        }
    }
    Case c = attention({sequence(32, 3)}, 2, 4, 128, kCacheTypes[0], false);
    c.masked = true;
    cases.push_back(finish_case(c));
}

// q and k of scale 100 give scores of +-1e4, of which exp knows nothing. Scores of that size have
// rounding errors of 1e-3 in float32, and so the weights.
void add_extremes(std::vector<Case>& cases) {
    for (int32_t n_rows : {1, 9}) {
        for (const CacheTypes& types : kCacheTypes) {
            Case c = attention({sequence(129, n_rows)}, 2, 3, 64, types, n_rows == 9);
            c.scale = 100, c.tolerance = 5e-2f;
            cases.push_back(finish_case(c, "scores of 1e4"));
        }
        Case c = attention({sequence(129, n_rows)}, 2, 3, 64, kCacheTypes[0], false);
        c.fill = Fill::kConstant, c.scale = 0;
        cases.push_back(finish_case(c, "equal scores"));
    }
    // Rows that see few positions, of which for some heads all have scores far below 0: weights are
    // relative to the highest of them, wherever in a block of rows it is.
    for (const CacheTypes& types : kCacheTypes) {
        Case c = attention({sequence(4, 4)}, 1, 16, 64, types, false);
        c.scale = 100, c.tolerance = 5e-2f;
        cases.push_back(finish_case(c, "all scores below -1e3"));
    }
}

void add_kv_append(std::vector<Case>& cases) {
    for (const CacheTypes& types : kCacheTypes) {
        for (bool paged : {false, true}) {
            Case c = attention(eight_sequences(), 3, 1, 64, types, paged);
            c.op = Op::kKvAppend, c.tolerance = 0, c.cancels = false;
            cases.push_back(finish_case(c));
            c.masked = true, c.d_head = types.k == DType::kQ8_0 ? 96 : 80;
            cases.push_back(finish_case(c));
            c.scale = 1e-6f;  // subnormal in f16
            cases.push_back(finish_case(c, "subnormal in f16"));
            c.scale = 1e5f;
            cases.push_back(finish_case(c, "beyond f16"));
        }
    }
}

}  // namespace

void add_attention_cases(std::vector<Case>& cases) {
    add_kv_append(cases);
    add_lengths(cases);
    add_shapes(cases);
    add_long_decodes(cases);
    add_prompts(cases);
    add_batches(cases);
    add_extremes(cases);
}

}  // namespace ridge
