#include "text/tokenizer_json_reader.h"

#include "base/error.h"
#include "base/printable.h"

namespace ridge {
namespace {

// Receives the file's values one by one, and puts each where it belongs.
class Reader : public JsonMap::json_sax_t {
  public:
    Reader(const std::string& file, TokenizerJson& out) : file_(file), out_(out) {}

    bool null() override { return value(nullptr); }
    bool boolean(bool v) override { return value(v); }
    bool number_float(double v, const std::string&) override { return value(v); }
    bool binary(JsonMap::binary_t&) override { return false; }  // JSON has none

    bool number_integer(int64_t v) override {
        if (place_ == Place::kVocab) refuse_id(std::to_string(v));
        return value(v);
    }

    bool number_unsigned(uint64_t v) override {
        if (place_ != Place::kVocab) return value(v);
        if (v > INT32_MAX) refuse_id(std::to_string(v));
        out_.vocab.push_back({key_begin_, out_.text.size() - key_begin_, static_cast<int64_t>(v)});
        return true;
    }

    bool string(std::string& v) override {
        if (place_ == Place::kMerges) return merge_line(v);
        if (place_ == Place::kMergePair) return merge_part(v);
        return value(std::move(v));
    }

    bool key(std::string& v) override {
        if (place_ == Place::kVocab) {
            key_begin_ = out_.text.size();
            out_.text += v;
        } else {
            key_ = std::move(v);
        }
        return true;
    }

    bool start_object(size_t) override {
        if (is_member_of_model("vocab")) {
            out_.has_vocab = true;
            place_ = Place::kVocab;
            return true;
        }
        return open(JsonMap::object());
    }

    bool start_array(size_t) override {
        if (is_member_of_model("merges")) {
            out_.has_merges = true;
            place_ = Place::kMerges;
            return true;
        }
        if (place_ == Place::kMerges) {
            place_ = Place::kMergePair;
            n_parts_ = 0;
            out_.merges.push_back({out_.text.size(), 0, 0});
            return true;
        }
        return open(JsonMap::array());
    }

    bool end_object() override {
        if (place_ == Place::kVocab) {
            place_ = Place::kRest;
        } else {
            open_.pop_back();
        }
        return true;
    }

    bool end_array() override {
        if (place_ == Place::kMergePair) {
            if (n_parts_ != 2) refuse_merge(std::to_string(n_parts_) + " texts");
            place_ = Place::kMerges;
        } else if (place_ == Place::kMerges) {
            place_ = Place::kRest;
        } else {
            open_.pop_back();
        }
        return true;
    }

    bool parse_error(size_t, const std::string&, const nlohmann::detail::exception&) override {
        return false;
    }

  private:
    enum class Place { kRest, kVocab, kMerges, kMergePair };

    bool is_member_of_model(std::string_view name) const {
        return place_ == Place::kRest && open_.size() == 2 && model_ == open_.back() &&
               key_ == name;
    }

    // Adds a value to the object or array that is being read; gives its place there.
    JsonMap* add(JsonMap&& v) {
        if (place_ == Place::kVocab) refuse_id(v.dump(-1, ' ', true, kReplace));
        if (place_ != Place::kRest) refuse_merge(v.dump(-1, ' ', true, kReplace));
        if (open_.empty()) {
            out_.rest = std::move(v);
            return &out_.rest;
        }
        if (open_.back()->is_array()) {
            open_.back()->push_back(std::move(v));
            return &open_.back()->back();
        }
        JsonMap& member = (*open_.back())[key_];
        member = std::move(v);
        return &member;
    }

    bool value(JsonMap&& v) {
        add(std::move(v));
        return true;
    }

    bool open(JsonMap&& v) {
        bool is_model = open_.size() == 1 && key_ == "model" && v.is_object();
        open_.push_back(add(std::move(v)));
        if (is_model) model_ = open_.back();
        return true;
    }

    bool merge_line(const std::string& line) {
        size_t space = line.find(' ', 1);
        if (space == std::string::npos) refuse_merge('"' + printable(line, 80) + '"');
        out_.merges.push_back({out_.text.size(), space, line.size() - space - 1});
        out_.text.append(line, 0, space);
        out_.text.append(line, space + 1);
        return true;
    }

    bool merge_part(const std::string& part) {
        TokenizerJson::MergePair& pair = out_.merges.back();
        if (n_parts_ == 0) pair.n_left = part.size();
        if (n_parts_ == 1) pair.n_right = part.size();
        if (n_parts_ < 2) out_.text += part;
        n_parts_++;
        return true;
    }

    [[noreturn]] void refuse_id(const std::string& found) const {
        throw Error("{}: model.vocab[\"{}\"] is {}, expected an id from 0 to {}", file_,
                    printable(std::string_view(out_.text).substr(key_begin_), 40),
                    printable(found, 40), INT32_MAX);
    }

    [[noreturn]] void refuse_merge(const std::string& found) const {
        size_t index = out_.merges.size() - (place_ == Place::kMergePair ? 1 : 0);
        throw Error("{}: model.merges[{}] is {}, expected \"left right\" or [\"left\", \"right\"]",
                    file_, index, printable(found, 80));
    }

    static constexpr auto kReplace = JsonMap::error_handler_t::replace;

    const std::string& file_;
    TokenizerJson& out_;
    Place place_ = Place::kRest;
    std::vector<JsonMap*> open_;  // the objects and arrays around the next value
    const JsonMap* model_ = nullptr;
    std::string key_;
    size_t key_begin_ = 0;
    int n_parts_ = 0;
};

}  // namespace

TokenizerJson read_tokenizer_json(std::string_view json, const std::string& file) {
    check_json_depth(json, file);
    TokenizerJson out;
    Reader reader(file, out);
    if (!JsonMap::sax_parse(json.begin(), json.end(), &reader)) {
        parse_json_map(json, file);  // throws the error with its place
        throw Error("{}: not valid JSON", file);
    }
    if (!out.rest.is_object()) throw Error("{}: not a JSON object", file);
    return out;
}

}  // namespace ridge
