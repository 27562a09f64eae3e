#include "cmd/line_reader.h"

#include <histedit.h>

#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <cwchar>
#include <deque>

#include "base/error.h"
#include "base/files.h"
#include "base/system.h"
#include "cmd/input.h"
#include "cmd/output.h"

namespace ridge {
namespace {

constexpr int kStdinFd = 0, kStderrFd = 2;
constexpr size_t kMaxEntries = 1000;
constexpr uint64_t kMaxHistoryBytes = uint64_t{4} << 20;
constexpr size_t kIncomplete = static_cast<size_t>(-2);  // mbrtowc(): more bytes are needed
constexpr size_t kMaxEntryBytes = 4096;                  // a longer line is not kept

// libedit reads characters by the locale: one with UTF-8, or bytes above 127 are lost.
void use_utf8_locale() {
    const char* chosen = std::setlocale(LC_CTYPE, "");
    if (chosen == nullptr || !locale_is_utf8()) std::setlocale(LC_CTYPE, "C.UTF-8");
}

// state_folder(), or nothing where it would be made below a home folder that does not exist.
std::string history_folder() {
    const char* state = std::getenv("XDG_STATE_HOME");
    bool below_home = state == nullptr || state[0] != '/';
    const char* home = std::getenv("HOME");
    if (below_home && (home == nullptr || file_kind(home) != FileKind::kDirectory)) return {};
    return state_folder();
}

}  // namespace

struct LineReader::Impl {
    bool interactive = false, quiet = false;
    bool history_failed = false;
    int64_t n_lines = 0;  // read from what is no terminal
    EditLine* edit = nullptr;
    History* history = nullptr;
    std::string prompt;
    bool ctrl_c = false;
    std::deque<std::string> entries;  // as they are written to the history file

    static Impl& of(EditLine* edit) {
        void* self = nullptr;
        el_get(edit, EL_CLIENTDATA, &self);
        return *static_cast<Impl*>(self);
    }
    static char* show_prompt(EditLine* edit) { return of(edit).prompt.data(); }
    // Reads a character for libedit, whose own function tries again when a signal interrupts it and
    // so would swallow Ctrl-C.
    static int read_character(EditLine* edit, wchar_t* out) {
        std::mbstate_t state = {};
        for (;;) {
            if (!wait_for_input(kStdinFd)) {
                of(edit).ctrl_c = true;
                return 0;  // ends el_gets()
            }
            errno = 0;
            int byte = std::getc(stdin);
            if (byte == EOF) {
                int error = errno;
                std::clearerr(stdin);
                if (error == EINTR) continue;
                return 0;
            }
            char c = static_cast<char>(byte);
            size_t n = std::mbrtowc(out, &c, 1, &state);
            if (n == 0 || n == 1) return 1;
            if (n != kIncomplete) state = {};  // bytes that are no character are dropped
        }
    }

    void start_editing() {
        use_utf8_locale();
        std::setvbuf(stdin, nullptr, _IONBF, 0);  // what is typed waits where it can be waited for
        edit = el_init("ridge", stdin, stderr, stderr);
        history = history_init();
        if (edit == nullptr || history == nullptr) return;
        HistEvent event;
        ::history(history, &event, H_SETSIZE, static_cast<int>(kMaxEntries));
        ::history(history, &event, H_SETUNIQUE, 1);
        el_set(edit, EL_CLIENTDATA, this);
        el_set(edit, EL_PROMPT, &show_prompt);
        el_set(edit, EL_EDITOR, "emacs");
        el_set(edit, EL_HIST, ::history, history);
        el_set(edit, EL_SIGNAL, 1);  // the terminal is put back before a signal acts
        el_set(edit, EL_GETCFN, &read_character);
        el_set(edit, EL_BIND, "^R", "em-inc-search-prev", nullptr);
        load_history();
    }

    std::string history_path() const {
        std::string folder = history_folder();
        return folder.empty() ? folder : folder + "/history";
    }

    void load_history() {
        std::string path = history_path();
        if (path.empty() || file_kind(path) != FileKind::kRegular) return;
        std::string bytes;
        try {
            bytes = read_file(path, kMaxHistoryBytes);
        } catch (const Error&) {
            return;
        }
        for (size_t begin = 0; begin < bytes.size();) {
            size_t end = std::min(bytes.find('\n', begin), bytes.size());
            std::string line = bytes.substr(begin, end - begin);
            if (line.find('\0') == std::string::npos) keep(line);
            begin = end + 1;
        }
    }

    bool keep(const std::string& line) {
        if (line.empty() || line.size() > kMaxEntryBytes) return false;
        if (!entries.empty() && entries.back() == line) return false;
        entries.push_back(line);
        if (entries.size() > kMaxEntries) entries.pop_front();
        HistEvent event;
        ::history(history, &event, H_ENTER, line.c_str());
        return true;
    }

    void save_history() {
        std::string path = history_path();
        if (path.empty() || history_failed) return;
        std::string bytes;
        for (const std::string& entry : entries) bytes += entry + "\n";
        try {
            make_folders(history_folder());
            write_file(path, bytes, true);
        } catch (const Error& e) {
            // That is no reason to end a conversation.
            history_failed = true;
            if (!quiet) say(fmt::format("the history is not kept: {}", e.what()));
        }
    }

    Result read_edited(std::string& line) {
        ctrl_c = false;
        // The prompt must not be there before the keys work: Ctrl-D in between would be lost.
        el_set(edit, EL_PREP_TERM, 1);
        int n = 0;
        const char* typed = el_gets(edit, &n);
        if (ctrl_c) {
            // The line that was begun stays on the screen; the next prompt starts below it.
            std::fputs(interrupt_status() == 130 ? "^C\n" : "\n", stderr);
            el_reset(edit);
            return Result::kInterrupted;
        }
        if (typed == nullptr || n <= 0) {
            std::fputs("\n", stderr);
            return Result::kEnd;
        }
        if (static_cast<size_t>(n) > kMaxLineBytes) {
            throw Error("the line is longer than {} bytes", kMaxLineBytes);
        }
        line.assign(typed, static_cast<size_t>(n));
        while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) line.pop_back();
        return Result::kLine;
    }

    Result read_plain(std::string& line) {
        bool found = read_line(line, ++n_lines);
        if (interrupted()) {
            std::clearerr(stdin);
            return Result::kInterrupted;
        }
        return found ? Result::kLine : Result::kEnd;
    }
};

LineReader::LineReader(bool quiet) : impl_(std::make_unique<Impl>()) {
    impl_->quiet = quiet;
    impl_->interactive = is_terminal(kStdinFd) && is_terminal(kStderrFd);
    if (impl_->interactive) impl_->start_editing();
}

LineReader::~LineReader() {
    if (impl_->edit != nullptr) el_end(impl_->edit);
    if (impl_->history != nullptr) history_end(impl_->history);
}

bool LineReader::interactive() const {
    return impl_->interactive;
}

LineReader::Result LineReader::read(const std::string& prompt, std::string& line) {
    if (impl_->edit == nullptr || impl_->history == nullptr) {
        if (impl_->interactive) std::fputs(prompt.c_str(), stderr);
        return impl_->read_plain(line);
    }
    impl_->prompt = prompt;
    return impl_->read_edited(line);
}

void LineReader::remember(const std::string& line) {
    if (impl_->history == nullptr || impl_->edit == nullptr) return;
    if (impl_->keep(line)) impl_->save_history();
}

}  // namespace ridge
