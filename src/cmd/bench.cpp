#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "base/checked_math.h"
#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/printable.h"
#include "base/system.h"
#include "base/thread_pool.h"
#include "base/timer.h"
#include "cmd/answer.h"
#include "cmd/bench_compare.h"
#include "cmd/bench_plot.h"
#include "cmd/bench_report.h"
#include "cmd/command_line.h"
#include "cmd/commands.h"
#include "cmd/machine_json.h"
#include "cmd/options.h"
#include "cmd/output.h"
#include "cmd/peers.h"
#include "cmd/values.h"
#include "engine/bench_session.h"
#include "engine/model_source.h"
#include "model/config.h"
#include "model/kv_cache.h"
#include "model/weights.h"

namespace ridge {
namespace {

constexpr int64_t kMaxTokens = int64_t{1} << 24;  // of a prompt, a generation, or a depth
constexpr int64_t kMaxParallel = 256;
constexpr uint64_t kMaxTests = 100'000;  // of one call: lists multiply
constexpr std::string_view kSynthPrefix = "synth:";

// Lists hold what was asked; an empty one stands for its default.
struct BenchOptions {
    OpenOptions open;
    std::vector<std::string> models, checkpoints, types_k, types_v;
    std::vector<int64_t> n_prompt, n_gen, n_depth, n_parallel, n_ubatch, n_threads;
    std::vector<std::pair<int64_t, int64_t>> n_prompt_gen;
    int64_t n_repetitions = 5;
    bool no_warmup = false, quiet = false;
    BenchFormat format = BenchFormat::kMarkdown;
    std::string compare_path, plot;
    std::optional<OlderResults> older;
    PeerOptions peers;
    FromVariables from_variables;
};

template <class T>
void append(std::vector<T>& list, const std::vector<T>& more) {
    list.insert(list.end(), more.begin(), more.end());
}

template <class T>
void set_default(std::vector<T>& list, T value) {
    if (list.empty()) list.push_back(std::move(value));
}

void add_list(CommandLine& line, std::string_view names, std::string help,
              std::vector<int64_t>& list, int64_t min, int64_t max) {
    line.value(names, "LIST", std::move(help),
               [&list, min, max](Where where, const std::string& text) {
                   append(list, parse_integers(where, text, min, max));
               });
}

std::vector<std::string> parse_cache_types(Where where, const std::string& text) {
    std::vector<std::string> types = parse_words(where, text, "some of f32, f16, bf16, q8_0");
    for (const std::string& type : types) read_cache_type(where, type);
    return types;
}

BenchFormat parse_format(Where where, const std::string& text) {
    std::string name = parse_choice(where, text, {"md", "csv", "json", "jsonl"});
    if (name == "md") return BenchFormat::kMarkdown;
    if (name == "csv") return BenchFormat::kCsv;
    return name == "json" ? BenchFormat::kJson : BenchFormat::kJsonLines;
}

void declare_tests(CommandLine& line, BenchOptions& options) {
    line.section("Tests (LIST: numbers and ranges, as in 128,512 or 128-512+128 or 128-1024*2)");
    add_list(line, "-p,--n-prompt", "tokens of a prompt; 0: none (default: 512)", options.n_prompt,
             0, kMaxTokens);
    add_list(line, "-n,--n-gen", "tokens to generate; 0: none (default: 128)", options.n_gen, 0,
             kMaxTokens);
    line.value("-pg,--n-prompt-gen", "P,N", "a prompt and a generation as one test; repeatable",
               [&](Where where, const std::string& text) {
                   const size_t comma = text.find(',');
                   if (comma == std::string::npos || text.find(',', comma + 1) != text.npos) {
                       throw Error(ErrorKind::kUsage, "{} \"{}\": expected two numbers, as 512,128",
                                   where, printable(text, 80));
                   }
                   options.n_prompt_gen.emplace_back(
                       parse_integer(where, text.substr(0, comma), 1, kMaxTokens),
                       parse_integer(where, text.substr(comma + 1), 1, kMaxTokens));
               });
    add_list(line, "-d,--n-depth", "positions that the cache holds before (default: 0)",
             options.n_depth, 0, kMaxTokens);
    add_list(line, "-B,--n-parallel", "sequences that generate in one step (default: 1)",
             options.n_parallel, 1, kMaxParallel);
    line.value("-r,--repetitions", "N", "samples of each test (default: 5)",
               [&](Where where, const std::string& text) {
                   options.n_repetitions = parse_integer(where, text, 1, 1000);
               });
    line.flag("--no-warmup", "do not run each test once before it is timed", options.no_warmup);
}

bool parse(const std::vector<std::string>& arguments, BenchOptions& options) {
    CommandLine line(
        "bench",
        "Times prompts and generation, and tells how near memory's limit is.\n"
        "ridge bench progression --help: what each entry of the list of kernels gains.\n"
        "ridge bench ops --help: operators at the model's shapes, kernel by kernel.",
        "ridge bench -m model.gguf -p 512 -n 128 -d 0,2048 -B 1,8 -o json");
    line.section("Models");
    line.value("-m,--model", "MODEL",
               "a GGUF file, a folder with safetensors, or synth:NAME:FORMAT; repeatable",
               [&](Where, const std::string& text) {
                   need_model("bench", text);
                   options.models.push_back(text);
               });
    add_list(line, "-t,--threads",
             "threads (default: the physical cores that this process may use)", options.n_threads,
             1, 1024);
    for (auto [names, list, what] :
         {std::tuple("-ctk,--cache-type-k", &options.types_k, "keys"),
          std::tuple("-ctv,--cache-type-v", &options.types_v, "values")}) {
        line.value(names, "TYPES", fmt::format("types of cached {} (default: f16)", what),
                   [list = list](Where where, const std::string& text) {
                       append(*list, parse_cache_types(where, text));
                   });
    }
    line.value("--checkpoint", "NAMES",
               "entries of the device's list of kernels to stop at; all: each (default: the last)",
               [&](Where where, const std::string& text) {
                   append(options.checkpoints,
                          parse_words(where, text, "all, or some of " + known_checkpoints()));
               });
    add_list(line, "-ub,--ubatch-size",
             "tokens of a prompt's step (default: as run takes, 512 on the processor)",
             options.n_ubatch, 1, 65536);
    add_device_options(line, options.open);
    declare_tests(line, options);
    add_peer_options(line, options.peers, PeerWork::kModels);
    line.section("Output");
    line.value(
        "-o,--output-format,--output", "FORMAT", "md (default), csv, json or jsonl",
        [&](Where where, const std::string& text) { options.format = parse_format(where, text); });
    line.name("--compare", "FILE",
              "put the rates of an earlier run beside the new ones: what -o json or jsonl wrote",
              options.compare_path);
    add_plot_option(line,
                    "draw the rates over depths, numbers of sequences or models: a .svg or a .png",
                    options.plot);
    line.flag("-q,--quiet", "nothing on standard error but errors", options.quiet);
    if (!line.parse(arguments)) return false;
    options.from_variables = line.from_variables();
    need_model("bench", options.models.empty() ? "" : options.models.front());
    return true;
}

std::vector<BenchTest> tests_of(const BenchOptions& options) {
    std::vector<BenchTest> tests;
    for (int64_t n_depth : options.n_depth) {
        for (int64_t n : options.n_prompt) {
            if (n > 0) tests.push_back({n, 0, n_depth, 1});
        }
        for (int64_t n_parallel : options.n_parallel) {
            for (int64_t n : options.n_gen) {
                if (n > 0) tests.push_back({0, n, n_depth, static_cast<int>(n_parallel)});
            }
        }
        for (auto [n_prompt, n_gen] : options.n_prompt_gen)
            tests.push_back({n_prompt, n_gen, n_depth, 1});
    }
    if (tests.empty()) {
        throw Error(ErrorKind::kUsage,
                    "bench: nothing to time: give -p or -n of more than 0, or -pg");
    }
    return tests;
}

// One way to open one model.
struct Opening {
    OpenOptions open;
    int n_ubatch;  // 0: the device's
};

std::vector<Opening> openings_of(const BenchOptions& options) {
    std::vector<Opening> openings;
    Opening one{options.open, 0};
    for (const std::string& model : options.models) {
        one.open.model = model;
        for (const std::string& checkpoint : options.checkpoints) {
            one.open.checkpoint = checkpoint;
            for (const std::string& type_k : options.types_k) {
                one.open.cache_type_k = type_k;
                for (const std::string& type_v : options.types_v) {
                    one.open.cache_type_v = type_v;
                    for (int64_t n_ubatch : options.n_ubatch) {
                        one.n_ubatch = static_cast<int>(n_ubatch);
                        for (int64_t n_threads : options.n_threads) {
                            one.open.n_threads = static_cast<int>(n_threads);
                            openings.push_back(one);
                        }
                    }
                }
            }
        }
    }
    return openings;
}

// What can be refused is refused before minutes go into the first test.
void check_early(BenchOptions& options) {
    constexpr uint64_t kMaxResultBytes = uint64_t{64} << 20;
    if (!options.compare_path.empty()) {
        options.older = OlderResults::parse(read_file(options.compare_path, kMaxResultBytes),
                                            options.compare_path);
    }
    options.checkpoints = expanded_checkpoints(options.checkpoints, options.open.device);
    check_peers(options.peers, PeerWork::kModels);
    for (const std::string& model : options.models) {
        if (!options.peers.names.empty() && model.starts_with(kSynthPrefix)) {
            throw Error(ErrorKind::kUsage,
                        "--peer {}: it reads files, expected one in place of {}; ridge synth "
                        "writes it to one",
                        options.peers.names.front(), printable(model, 80));
        }
        ModelFile file = open_model_header(model);
        const Config config = read_config(file);
        read_weights(file, config);
        for (const std::string& type_k : options.types_k) {
            for (const std::string& type_v : options.types_v) {
                check_kv_types(config, read_cache_type("-ctk", type_k),
                               read_cache_type("-ctv", type_v));
            }
        }
    }
    // A smaller number of threads can be had and pinned where the largest can.
    const auto n_threads =
        static_cast<int>(*std::max_element(options.n_threads.begin(), options.n_threads.end()));
    ThreadPool({n_threads > 0 ? n_threads : default_n_threads(), options.open.pin});
}

// How many tests all lists together ask for, before any list of them is made.
void check_number(const BenchOptions& o) {
    auto n_asked = [](const std::vector<int64_t>& list) {
        return list.size() - static_cast<size_t>(std::count(list.begin(), list.end(), 0));
    };
    std::optional<uint64_t> n =
        n_asked(o.n_prompt) + o.n_parallel.size() * n_asked(o.n_gen) + o.n_prompt_gen.size();
    for (size_t more : {o.n_depth.size(), o.models.size(), o.checkpoints.size(), o.types_k.size(),
                        o.types_v.size(), o.n_ubatch.size(), o.n_threads.size()}) {
        if (n) n = checked_mul(*n, uint64_t{more});
    }
    if (n && *n <= kMaxTests) return;
    throw Error(ErrorKind::kUsage, "bench: {} tests in all, expected at most {}",
                n ? std::to_string(*n) : "more than 2^64", kMaxTests);
}

class Bench {
  public:
    explicit Bench(const BenchOptions& options)
        : options_(options),
          status_(!options.quiet),
          tests_(tests_of(options)),
          report_(output_, options.format, columns()),
          openings_(openings_of(options)) {}

    void run() {
        try {
            for (const Opening& opening : openings_) run_tests(opening);
        } catch (const ClosedPipe&) {
            throw;
        } catch (...) {  // what has been measured stays, and can be read
            status_.clear();
            report_.finish();
            throw;
        }
        status_.clear();
        report_.finish();
        if (options_.plot.empty()) return;
        draw_plot(plot_of(bench_plot(results_)), options_.plot);
        if (!options_.quiet) say("wrote " + printable(options_.plot));
    }

  private:
    BenchColumns columns() const {
        BenchColumns columns = columns_of(options_.models, tests_, options_.n_ubatch);
        columns.compared = options_.older.has_value();
        columns.peers = !options_.peers.names.empty();
        return columns;
    }

    // Of each sequence, as many as the tests take that have it.
    std::vector<int64_t> n_positions() const {
        std::vector<int64_t> n_positions;
        for (const BenchTest& test : tests_) {
            auto n_sequences = static_cast<size_t>(test.n_parallel);
            if (n_positions.size() < n_sequences) n_positions.resize(n_sequences);
            for (size_t s = 0; s < n_sequences; s++) {
                n_positions[s] =
                    std::max(n_positions[s], test.n_depth + test.n_prompt + test.n_gen);
            }
        }
        return n_positions;
    }

    void run_tests(const Opening& opening) {
        // Before Ridge's own thread is pinned, which they would inherit.
        const int n_threads =
            opening.open.n_threads > 0 ? opening.open.n_threads : default_n_threads();
        peers_ = start_peers(options_.peers, PeerWork::kModels, {n_threads, opening.open.pin},
                             stop_if_interrupted);
        auto session = BenchSession::open(
            opening.open, n_positions(), opening.n_ubatch,
            [&](std::string_view what, double share) {
                stop_if_interrupted();
                status_.show(what, share);
            },
            [&](double done) {
                stop_if_interrupted();
                show_within_sample(done);
            });
        if (!options_.quiet) {
            status_.clear();
            for (const std::string& line : lines_of_device(session->info())) {
                if (said_.insert(line).second) say(line);
            }
        }
        const std::vector<std::string> abouts = open_in_peers(opening, session->info());
        for (const BenchTest& test : tests_) {
            BenchResult result = time_test(*session, test, abouts);
            result.type_k = opening.open.cache_type_k, result.type_v = opening.open.cache_type_v;
            result.n_ubatch = session->info().n_step_rows;
            if (options_.older) result.compared_ts = options_.older->rate_of(result);
            status_.clear();
            report_.add(result);
            if (!options_.plot.empty()) results_.push_back(std::move(result));
            n_done_++;
        }
    }

    // The model in each of them; what they say of themselves and of it.
    std::vector<std::string> open_in_peers(const Opening& opening, const ModelInfo& model) {
        std::vector<std::string> abouts;
        for (Peer& peer : peers_) {
            status_.show(fmt::format("opening the model in {},", peer.name()), 0);
            Json request;
            request["request"] = "model";
            request["path"] = opening.open.model;
            request["device"] = model.device == "cpu" ? "cpu" : "cuda";
            request["type_k"] = opening.open.cache_type_k;
            request["type_v"] = opening.open.cache_type_v;
            request["n_ubatch"] = model.n_step_rows;
            request["n_positions"] = n_positions();
            Json about = peer.about();
            about.update(peer.ask(request));
            abouts.push_back(dump_json(about));
        }
        return abouts;
    }

    BenchResult time_test(BenchSession& session, const BenchTest& test,
                          const std::vector<std::string>& abouts) {
        BenchResult result;
        result.model = session.info();
        result.test = test;
        result.time_s = now_s();
        for (size_t p = 0; p < peers_.size(); p++) {
            result.peers.push_back({peers_[p].name(), abouts[p], {}, {}});
        }
        session.fill(test.n_parallel, test.n_depth,
                     [&](std::string_view what, double share) { status_.show(what, share); });
        fill_peers(session, test);
        const Json request = peer_request(session, test);
        if (!options_.no_warmup) {
            time_once(session, test, 0);
            for (size_t p = 0; p < peers_.size(); p++) time_peer(p, request, result);
            for (PeerResult& peer : result.peers) peer.samples_ns.clear();
        }
        measure_walls(session, result);
        for (int64_t i = 1; i <= options_.n_repetitions; i++) {
            // In order and backwards in turns, since neighbours in time have a machine alike.
            for (size_t at = 0; at <= peers_.size(); at++) {
                const size_t turn = i % 2 == 1 ? at : peers_.size() - at;  // 0: Ridge's own
                if (turn > 0) {
                    time_peer(turn - 1, request, result);
                    continue;
                }
                result.samples_ns.push_back(time_once(session, test, i));
                measure_walls(session, result);
            }
        }
        return result;
    }

    // The positions that the caches hold before, of the same tokens.
    void fill_peers(const BenchSession& session, const BenchTest& test) {
        if (peers_.empty()) return;
        Json request;
        request["request"] = "fill";
        request["tokens"] = Json::array();
        for (int s = 0; s < test.n_parallel; s++) {
            request["tokens"].push_back(tokens_of(session, s, 0, test.n_depth));
        }
        for (Peer& peer : peers_) {
            status_.show(fmt::format("filling the cache of {},", peer.name()), 0);
            peer.ask(request);
        }
    }

    static std::vector<Token> tokens_of(const BenchSession& session, int sequence, int64_t begin,
                                        int64_t n) {
        std::vector<Token> tokens;
        for (int64_t i = 0; i < n; i++) tokens.push_back(session.token_at(sequence, begin + i));
        return tokens;
    }

    Json peer_request(const BenchSession& session, const BenchTest& test) const {
        Json request;
        if (peers_.empty()) return request;
        request["request"] = "test";
        request["n_depth"] = test.n_depth;
        request["prompt"] = tokens_of(session, 0, test.n_depth, test.n_prompt);
        request["first"] = Json::array();  // of each sequence that generates
        for (int s = 0; s < test.n_parallel; s++) {
            request["first"].push_back(session.token_at(s, test.n_depth + test.n_prompt));
        }
        request["n_gen"] = test.n_gen;
        return request;
    }

    // One sample of a peer. Of a prompt alone it may say which token it drew.
    void time_peer(size_t p, const Json& request, BenchResult& result) {
        stop_if_interrupted();
        PeerResult& peer = result.peers[p];
        status_.show(
            fmt::format("timing {} in {},", test_name(result.test), peer.name),
            static_cast<double>(n_done_) / static_cast<double>(tests_.size() * openings_.size()));
        Json answer;
        peer.samples_ns.push_back(std::llround(peers_[p].ask_ns(request, &answer)));
        const auto token = answer.find("token");
        const bool is_told = token != answer.end() && token->is_number_integer();
        if (result.test.n_gen > 0 || !is_told || drawn_ < 0) return;
        peer.same_token = *token == drawn_;
    }

    static void measure_walls(BenchSession& session, BenchResult& result) {
        result.read_walls_gbps.push_back(session.measure_read_gbps());
        if (result.model.stream.bytes_a_step == 0) return;
        result.links_gbps.push_back(session.measure_link_gbps());
    }

    // `sample` is its number, 0 the warm-up.
    int64_t time_once(BenchSession& session, const BenchTest& test, int64_t sample) {
        timed_ = Timed{test_name(test), sample, 0, 1, Timer()};
        show(*timed_, 0);
        const double prompt_part =
            static_cast<double>(test.n_prompt) / static_cast<double>(test.n_prompt + test.n_gen);
        Timer timer;
        timed_->part = prompt_part;
        if (test.n_prompt > 0) drawn_ = session.prompt(test.n_depth, test.n_prompt);
        timed_->before = prompt_part, timed_->part = 1 - prompt_part;
        if (test.n_gen > 0)
            session.decode(test.n_parallel, test.n_depth + test.n_prompt, test.n_gen);
        const int64_t elapsed_ns = timer.elapsed_ns();
        timed_.reset();
        return elapsed_ns;
    }

    // The sample that is being timed.
    struct Timed {
        std::string test;
        int64_t sample;
        double before, part;  // shares of it: what ran before the call going on, and that call
        Timer since_shown;
    };

    // Called within what is timed: now and then it writes a line, otherwise it looks at the clock.
    void show_within_sample(double done) {
        constexpr double kShowMs = 250;
        if (!timed_ || timed_->since_shown.elapsed_ms() < kShowMs) return;
        show(*timed_, timed_->before + timed_->part * done);
        timed_->since_shown.restart();
    }

    void show(const Timed& timed, double done_of_sample) {
        const int64_t n_warmups = options_.no_warmup ? 0 : 1;
        const double done_of_test =
            (static_cast<double>(timed.sample - 1 + n_warmups) + done_of_sample) /
            static_cast<double>(options_.n_repetitions + n_warmups);
        const auto n_tests = static_cast<double>(tests_.size() * openings_.size());
        const std::string what =
            timed.sample == 0 ? "warming up"
                              : fmt::format("{} of {}", timed.sample, options_.n_repetitions);
        status_.show(fmt::format("timing {}, {},", timed.test, what),
                     (static_cast<double>(n_done_) + done_of_test) / n_tests);
    }

    const BenchOptions& options_;
    Output output_;
    StatusLine status_;
    std::vector<BenchTest> tests_;
    BenchReport report_;
    std::vector<BenchResult> results_;  // that are to be drawn
    std::vector<Opening> openings_;
    std::set<std::string> said_;  // of devices: each line once
    size_t n_done_ = 0;           // tests of all openings
    std::optional<Timed> timed_;
    std::vector<Peer> peers_;  // of the opening that is timed
    Token drawn_ = -1;         // after the last prompt
};

void bench(BenchOptions& options) {
    set_default(options.checkpoints, std::string());
    set_default(options.types_k, std::string("f16"));
    set_default(options.types_v, std::string("f16"));
    set_default<int64_t>(options.n_prompt, 512);
    set_default<int64_t>(options.n_gen, 128);
    set_default<int64_t>(options.n_depth, 0);
    set_default<int64_t>(options.n_parallel, 1);
    set_default<int64_t>(options.n_ubatch, 0);
    set_default<int64_t>(options.n_threads, 0);
    catch_interrupts();
    check_early(options);
    check_number(options);
    tests_of(options);
    if (!options.plot.empty() &&
        std::max({options.n_depth.size(), options.n_parallel.size(), options.models.size()}) < 2) {
        throw Error(ErrorKind::kUsage,
                    "--plot {}: expected two or more depths (-d), numbers of sequences (-B) or "
                    "models (-m)",
                    printable(options.plot, 80));
    }
    Bench(options).run();
}

}  // namespace

int bench_command(const std::vector<std::string>& arguments) {
    for (auto [name, command] :
         {std::pair("progression", &progression_command), std::pair("ops", &bench_ops_command)}) {
        if (arguments.empty() || arguments.front() != name) continue;
        return command({arguments.begin() + 1, arguments.end()});
    }
    BenchOptions options;
    if (!parse(arguments, options)) return 0;
    return blame_variables(options.from_variables, [&] {
        bench(options);
        return 0;
    });
}

}  // namespace ridge
