#include <algorithm>
#include <cctype>
#include <optional>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/printable.h"
#include "base/system.h"
#include "base/timer.h"
#include "cases/claims.h"
#include "cmd/build_info.h"
#include "cmd/command_line.h"
#include "cmd/commands.h"
#include "cmd/machine_json.h"
#include "cmd/options.h"
#include "cmd/output.h"
#include "cmd/values.h"
#include "cmd/verify_kernels.h"
#include "cmd/verify_matrix.h"
#include "cmd/verify_models.h"
#include "cmd/verify_report.h"
#include "engine/case_session.h"

namespace ridge {
namespace {

constexpr uint64_t kMaxDocumentBytes = uint64_t{1} << 24;
constexpr int kLeastThreads = 3;
constexpr double kModelShare = 30;  // of one model's checks, in those of a case on one kernel

struct VerifyOptions {
    OpenOptions open;
    VerifyFilter filter;
    std::vector<std::string> format_words;
    std::optional<uint64_t> seed;
    std::string goldens = "tests/golden_data/models", write_path;
    bool as_json = false, full = false, no_run = false, quiet = false;
};

std::vector<std::string> known_ops() {
    std::vector<std::string> names;
    for (int i = 0; i < kNumOps; i++) names.emplace_back(op_name(static_cast<Op>(i)));
    names.emplace_back(kStepNode);
    return names;
}

std::string lower(std::string text) {
    std::transform(text.begin(), text.end(), text.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return text;
}

// Of weights, caches, activations and models: each name once.
std::vector<std::string> known_formats() {
    std::vector<std::string> names;
    auto add = [&](const std::string& name) {
        if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    };
    for (const Case& c : all_cases()) {
        for (const std::string& name : formats_of(c)) {
            if (name.find(' ') == name.npos) add(name);
        }
    }
    for (const std::string& name : verify_model_formats()) add(name);
    for (const std::string& name : verify_model_names()) add(name);
    return names;
}

// The known names that a word means, in any case: F16 weights and an f16 cache.
std::vector<std::string> spellings_of(const std::string& word) {
    std::vector<std::string> meant;
    const std::vector<std::string> known = known_formats();
    for (const std::string& name : known) {
        if (lower(name) == lower(word)) meant.push_back(name);
    }
    if (meant.empty()) parse_choice("--format", word, known);
    return meant;
}

void declare_selection(CommandLine& line, VerifyOptions& options) {
    line.section("What is verified (LIST: words with commas between; repeatable; default: all)");
    auto add_list = [&](std::string_view name, std::string help, std::vector<std::string>& list,
                        std::string expected) {
        line.value(name, "LIST", std::move(help),
                   [&list, expected = std::move(expected)](Where where, const std::string& text) {
                       for (std::string& word : parse_words(where, text, expected)) {
                           list.push_back(std::move(word));
                       }
                   });
    };
    add_list("--op", "operators, as matmul,attention; step: whole models", options.filter.ops,
             "some of the operators");
    add_list("--checkpoint", "of these entries of the device's list of kernels",
             options.filter.checkpoints, "some of " + known_checkpoints());
    add_list("--format",
             "formats of weights or caches, as q4_k,f16; of whole models also their names",
             options.format_words, "some of the formats");
    line.text("--case", "TEXT", "cases whose names hold this", options.filter.case_part);
    line.value("--thin", "N", "every N-th case, from one on that the seed chooses (default: 1)",
               [&](Where where, const std::string& text) {
                   options.filter.thin = parse_integer(where, text, 1, 1'000'000);
               });
    line.value("-s,--seed", "N", "seed of all inputs; -1 (default): a new one, which is printed",
               [&](Where where, const std::string& text) {
                   options.seed = parse_seed_or_none(where, text);
               });
}

bool parse(const std::vector<std::string>& arguments, VerifyOptions& options) {
    CommandLine line("verify",
                     "Holds every kernel, and whole models, against the equations in float64, and "
                     "against themselves on other numbers of rows and threads.",
                     "ridge verify --op matmul --format q4_k --thin 3");
    declare_selection(line, options);
    line.section("Where");
    line.name("--device", "NAME", "device whose kernels run: auto (default), cpu, cuda:N",
              options.open.device, expected_devices);
    line.name("--cpu-isa", "NAME",
              "of the CPU's kernels those of this instruction set alone (default: of each that the "
              "machine has)",
              options.open.cpu_isa, [] { return "one of " + known_cpu_isas(); });
    line.value("-t,--threads", "N",
               "the most threads that kernels are tried on, 1 to 1024 (default: 3); whole models "
               "run on as many, or on the physical cores",
               [&](Where where, const std::string& text) {
                   options.open.n_threads = static_cast<int>(parse_integer(where, text, 1, 1024));
               });
    line.name("--goldens", "FOLDER",
              "logits of other implementations, as the source tree's tests/golden_data/models "
              "(default: that, where it is there)",
              options.goldens);
    line.section("Output");
    line.flag("--json", "one JSON object", options.as_json);
    line.flag("--full", "a row for each format, in place of one for all", options.full);
    line.name("--write", "FILE.md",
              "bring the sections of FILE.md that a command can make up to date, and FILE.json, "
              "which keeps what machines have measured; nothing is written where something fails",
              options.write_path);
    line.flag("--no-run",
              "with --write: run nothing, make the sections from FILE.json and the tables",
              options.no_run);
    line.needs("--no-run", "--write");
    line.flag("-q,--quiet", "nothing on standard error but failures and errors", options.quiet);
    if (!line.parse(arguments)) return false;
    if (line.given("--goldens") && file_kind(options.goldens) != FileKind::kDirectory) {
        throw Error(ErrorKind::kUsage, "--goldens {}: not a folder", printable(options.goldens));
    }
    return true;
}

// Names that are known only where the device is.
void check_names(VerifyOptions& options, const CaseSession& session) {
    for (const std::string& name : options.filter.ops) parse_choice("--op", name, known_ops());
    std::vector<std::string> checkpoints;
    for (const Checkpoint& checkpoint : session.checkpoints()) {
        checkpoints.emplace_back(checkpoint.name);
    }
    for (const std::string& name : options.filter.checkpoints) {
        parse_choice("--checkpoint", name, checkpoints);
    }
    for (const std::string& word : options.format_words) {
        for (std::string& name : spellings_of(word)) options.filter.formats.push_back(name);
    }
}

// The document and what it is made from, read before minutes go into runs.
class Document {
  public:
    explicit Document(const std::string& path) : path_(path) {
        constexpr std::string_view kSuffix = ".md";
        if (!path.ends_with(kSuffix)) {
            throw Error(ErrorKind::kUsage, "--write {}: expected a Markdown file, FILE.md",
                        printable(path));
        }
        data_path_ = path.substr(0, path.size() - kSuffix.size()) + ".json";
        text_ = read_file(path, kMaxDocumentBytes);
        if (file_kind(data_path_) != FileKind::kMissing) {
            verification_ = read_verification(read_file(data_path_, kMaxDocumentBytes), data_path_);
        }
        with_sections(text_, verification_, path_);
    }

    void add(MeasuredRun run) { merge_run(verification_, std::move(run)); }
    void write() const {
        for (const auto& [path, text] :
             {std::pair(data_path_, verification_text(verification_)),
              std::pair(path_, with_sections(text_, verification_, path_))}) {
            FileWriter file(path, true);
            file.append(text);
            file.commit();
        }
    }
    const std::string& data_path() const { return data_path_; }

  private:
    std::string path_, data_path_, text_;
    Verification verification_;
};

std::string machine_text(const CaseSession& session) {
    if (!session.gpu().empty()) {
        return fmt::format("{} (driver {})", session.gpu(), nvidia_driver_version());
    }
    return fmt::format("{}, {} cores", cpu_name(), default_n_threads());
}

class Verify {
  public:
    Verify(const VerifyOptions& options, const CaseSession& session, uint64_t seed)
        : options_(options), session_(session), seed_(seed), status_(!options.quiet) {
        const KernelSource source{session.backend(), [&](Op op) { return session.subjects(op); }};
        kernels_ = kernel_work(source, options.filter, seed);
        models_ = model_work(options.filter, options.goldens, seed);
        std::erase_if(models_, [&](const ModelWork&) { return !has_whole_checkpoints(); });
        for (const KernelWork& work : kernels_) total_ += share_of(work);
        total_ += kModelShare * static_cast<double>(models_.size());
        if (total_ > 0) return;
        throw Error(ErrorKind::kUsage,
                    "verify: nothing to verify: no case is of all that was asked for (a checkpoint "
                    "is verified on the operators that it changes, and on step)");
    }

    void run() {
        CheckPlace place(options_.open.n_threads > 0 ? options_.open.n_threads : kLeastThreads);
        place.device = session_.case_device();
        VerifyEvents events;
        events.alive = [&] { stop_if_interrupted(); };
        events.failed = [&](const VerifyFailure& failure) {
            status_.clear();
            say(failure_line(failure, seed_));
        };
        for (const KernelWork& work : kernels_) {
            const double share = share_of(work) / static_cast<double>(work.checks.size());
            events.done = [&](std::string_view name) { show(name, share); };
            verify_kernels(session_.backend(), work, options_.filter, place, events, report_);
        }
        events.done = [&](std::string_view name) { show(name, kModelShare); };
        for (const ModelWork& work : models_) {
            verify_model(options_.open, session_.backend(), work, options_.filter, events, report_);
        }
        status_.clear();
    }
    void clear_status() { status_.clear(); }

    const VerifyReport& report() const { return report_; }

  private:
    static double share_of(const KernelWork& work) {
        return static_cast<double>(work.subjects.size() * work.checks.size());
    }
    bool has_whole_checkpoints() const {
        for (const Checkpoint& checkpoint : session_.checkpoints()) {
            if (options_.filter.wants_checkpoint(checkpoint.name)) return true;
        }
        return false;
    }
    void show(std::string_view name, double share) {
        stop_if_interrupted();
        done_ += share;
        status_.show(name, done_ / total_);
    }

    const VerifyOptions& options_;
    const CaseSession& session_;
    const uint64_t seed_;
    StatusLine status_;
    std::vector<KernelWork> kernels_;
    std::vector<ModelWork> models_;
    double total_ = 0, done_ = 0;
    VerifyReport report_;
};

// The last line of the text: "1,234 rows hold ..."
std::string summary(const VerifyReport& report, uint64_t seed, double seconds) {
    int64_t n_cases = 0, n_failed = 0;
    for (const VerifyReport::Row& row : report.rows()) {
        n_cases += row.figures.n_cases;
        n_failed += row.figures.n_failed > 0 ? 1 : 0;
    }
    return fmt::format(
        "{} of {} rows of kernel, format and claim hold | {} results | seed {} | "
        "{:.0f} s\n",
        static_cast<int64_t>(report.rows().size()) - n_failed, report.rows().size(), n_cases, seed,
        seconds);
}

void print(const VerifyOptions& options, const CaseSession& session, const VerifyReport& report,
           uint64_t seed, double seconds) {
    Output output;
    if (options.as_json) {
        Json json{
            {"holds", report.holds()},      {"seed", seed},
            {"thin", options.filter.thin},  {"device", session.device()},
            {"machine", machine_json()},    {"build_commit", std::string(build_info().commit)},
            {"test_time", time_of(now_s())}};
        if (!session.gpu().empty()) json["machine"]["gpu"] = session.gpu();
        json.update(verify_json(report));
        output.write_json(json);
    } else {
        output.write(verify_table(report, options.full));
        output.write(summary(report, seed, seconds));
    }
    output.flush();
}

void write_document(const VerifyOptions& options, const Document& document) {
    document.write();
    if (options.quiet) return;
    say(fmt::format("wrote {} and {}", printable(options.write_path),
                    printable(document.data_path())));
}

// What was found goes to the document where all of it holds.
void keep(const VerifyOptions& options, const CaseSession& session, const VerifyReport& report,
          uint64_t seed, Document& document) {
    if (!report.holds()) {
        say(fmt::format("{} was not written, since not all of it holds",
                        printable(options.write_path)));
        return;
    }
    std::vector<VerifyReport::Row> rows = report.rows();
    // Goldens have a table of their own, which names their tests.
    std::erase_if(rows, [](const auto& row) { return row.key.claim == kGoldenClaim; });
    const std::string commit(build_info().commit);
    document.add({machine_text(session), date_of(now_s()),
                  commit.empty() ? "an unknown commit" : commit, seed, options.filter.thin,
                  std::move(rows)});
    write_document(options, document);
}

}  // namespace

int verify_command(const std::vector<std::string>& arguments) {
    VerifyOptions options;
    if (!parse(arguments, options)) return 0;
    std::optional<Document> document;
    if (!options.write_path.empty()) document.emplace(options.write_path);
    if (options.no_run) {
        write_document(options, *document);
        return 0;
    }
    const auto session = CaseSession::open(options.open);
    options.open.device = session->device();
    check_names(options, *session);

    const uint64_t seed = options.seed ? *options.seed : random_seed();
    Verify verify(options, *session, seed);
    catch_interrupts();
    if (!options.quiet) say(fmt::format("verify: all inputs are those of --seed {}", seed));
    Timer timer;
    const auto seconds = [&] { return 1e-9 * static_cast<double>(timer.elapsed_ns()); };
    try {
        verify.run();
    } catch (const Interrupted&) {  // what has been found can be read
        verify.clear_status();
        print(options, *session, verify.report(), seed, seconds());
        throw;
    }
    print(options, *session, verify.report(), seed, seconds());
    if (document) keep(options, *session, verify.report(), seed, *document);
    return verify.report().exit_status();
}

}  // namespace ridge
