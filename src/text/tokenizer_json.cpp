#include <algorithm>

#include "base/error.h"
#include "base/printable.h"
#include "text/end_tokens.h"
#include "text/tokenizer_configs.h"
#include "text/tokenizer_json_reader.h"
#include "text/tokenizer_spec.h"

// tokenizer.json as the Hugging Face library `tokenizers` writes it
// (https://huggingface.co/docs/tokenizers/components). Of its many parts those are read that the
// published models use; any other is refused by name, for leaving it out would change the ids.

namespace ridge {
namespace {

// Null for an absent member, for null, and where `object` is no object.
const JsonMap* member(const JsonMap* object, const char* key) {
    if (object == nullptr || !object->is_object()) return nullptr;
    auto found = object->find(key);
    return found == object->end() || found->is_null() ? nullptr : &*found;
}

template <class AnyJson>
std::string shown(const AnyJson& value) {
    return printable(value.dump(-1, ' ', false, AnyJson::error_handler_t::replace), 120);
}

bool flag(const TokenizerSpec& spec, const JsonMap& object, const char* key, bool otherwise) {
    const JsonMap* value = member(&object, key);
    if (value == nullptr) return otherwise;
    if (!value->is_boolean()) {
        throw Error("{}: \"{}\" is {}, expected true or false", spec.file, key, shown(*value));
    }
    return value->get<bool>();
}

// Empty for an absent member; Error for one that is no string.
std::string text_member(const TokenizerSpec& spec, const JsonMap& object, const char* key) {
    const JsonMap* value = member(&object, key);
    if (value == nullptr) return {};
    if (!value->is_string()) {
        throw Error("{}: \"{}\" is {}, expected a text", spec.file, key, shown(*value));
    }
    return value->get<std::string>();
}

// A component and, where it is a Sequence of them, its parts in order.
std::vector<const JsonMap*> components(const TokenizerSpec& spec, const JsonMap& root,
                                       const char* key, const char* list_key) {
    std::vector<const JsonMap*> found, open;
    if (const JsonMap* component = member(&root, key)) open.push_back(component);
    while (!open.empty()) {
        const JsonMap* component = open.back();
        open.pop_back();
        if (!component->is_object()) {
            throw Error("{}: {} holds {}, expected an object with a type", spec.file, key,
                        shown(*component));
        }
        if (text_member(spec, *component, "type") != "Sequence") {
            found.push_back(component);
            continue;
        }
        const JsonMap* list = member(component, list_key);
        if (list == nullptr || !list->is_array()) {
            throw Error("{}: {} is a Sequence without \"{}\"", spec.file, key, list_key);
        }
        for (auto part = list->rbegin(); part != list->rend(); ++part) open.push_back(&*part);
    }
    return found;
}

struct SpaceMarks {
    bool prepended = false, replaced = false;
};

SpaceMarks read_normalizer(TokenizerSpec& spec, const JsonMap& root) {
    constexpr std::string_view kSpaceMark = "\xe2\x96\x81";
    SpaceMarks marks;
    for (const JsonMap* part : components(spec, root, "normalizer", "normalizers")) {
        std::string type = text_member(spec, *part, "type");
        if (type == "NFC") {
            spec.nfc = true;
        } else if (type == "Prepend" && text_member(spec, *part, "prepend") == kSpaceMark) {
            marks.prepended = true;
        } else if (const JsonMap* pattern = member(part, "pattern");
                   type == "Replace" && pattern != nullptr &&
                   text_member(spec, *pattern, "String") == " " &&
                   text_member(spec, *part, "content") == kSpaceMark) {
            marks.replaced = true;
        } else {
            throw Error(
                "{}: normalizer has {}, expected NFC, or a Prepend and Replace that write "
                "spaces as U+2581",
                spec.file, shown(*part));
        }
    }
    return marks;
}

void read_metaspace(TokenizerSpec& spec, const JsonMap& part) {
    std::string scheme = text_member(spec, part, "prepend_scheme");
    if (scheme.empty()) scheme = flag(spec, part, "add_prefix_space", true) ? "always" : "never";
    if (text_member(spec, part, "replacement") != "\xe2\x96\x81" ||
        flag(spec, part, "split", true)) {
        throw Error("{}: pre_tokenizer has {}, expected a Metaspace of U+2581 with split false",
                    spec.file, shown(part));
    }
    if (scheme == "always") {
        spec.space_prefix = SpacePrefix::kUnlessSpaced;
    } else if (scheme == "first") {
        spec.space_prefix = SpacePrefix::kText;
    } else if (scheme != "never") {
        throw Error(
            "{}: pre_tokenizer has the prepend_scheme \"{}\", expected always, first or "
            "never",
            spec.file, printable(scheme, 40));
    }
}

// What stands in a pre_tokenizer with a ByteLevel.
struct ByteLevelRule {
    bool byte_level = false;
    bool digits = false;      // Digits before all else
    bool own_regex = false;   // the ByteLevel cuts by its own expression, GPT-2's
    std::string split_regex;  // of a Split; empty: none

    bool cuts() const { return own_regex || !split_regex.empty(); }
};

void read_byte_level_part(TokenizerSpec& spec, const JsonMap& part, ByteLevelRule& rule) {
    std::string type = text_member(spec, part, "type");
    const JsonMap* pattern = member(&part, "pattern");
    if (type == "ByteLevel" && !rule.byte_level) {
        if (flag(spec, part, "add_prefix_space", true)) {
            throw Error(
                "{}: pre_tokenizer has a ByteLevel with add_prefix_space true, expected "
                "false",
                spec.file);
        }
        rule.byte_level = true;
        rule.own_regex = flag(spec, part, "use_regex", true);
    } else if (type == "Digits" && flag(spec, part, "individual_digits", false) && !rule.cuts()) {
        rule.digits = true;
    } else if (type == "Split" && pattern != nullptr && !rule.cuts() &&
               !text_member(spec, *pattern, "Regex").empty() &&
               text_member(spec, part, "behavior") == "Isolated" &&
               !flag(spec, part, "invert", false)) {
        rule.split_regex = text_member(spec, *pattern, "Regex");
    } else {
        throw Error(
            "{}: pre_tokenizer has {}, which is not known; --pre NAME uses one of {} in "
            "its place",
            spec.file, shown(part), pre_tokenizer_names());
    }
}

const PreTokenizer* find_rule(const TokenizerSpec& spec, const ByteLevelRule& rule) {
    const PreTokenizer* gpt2 = find_pre_tokenizer("gpt-2");
    const PreTokenizer* pre = find_pre_tokenizer_by_regex(rule.split_regex);
    // Two different expressions, one within the pieces of the other, are no known rule.
    if (rule.own_regex) pre = rule.split_regex.empty() || pre == gpt2 ? gpt2 : nullptr;
    if (rule.digits) pre = pre == gpt2 ? find_pre_tokenizer("smollm") : nullptr;
    if (pre == nullptr) {
        throw Error(
            "{}: pre_tokenizer has the unknown rule {}\"{}\"{}; --pre NAME uses one of {} in its "
            "place",
            spec.file, rule.digits ? "Digits, " : "", printable(rule.split_regex, 200),
            rule.own_regex ? ", ByteLevel with use_regex" : "", pre_tokenizer_names());
    }
    return pre;
}

void read_pre_tokenizer(TokenizerSpec& spec, const JsonMap& root, SpaceMarks marks,
                        const std::string& pre_override) {
    auto parts = components(spec, root, "pre_tokenizer", "pretokenizers");
    bool metaspace = parts.size() == 1 && text_member(spec, *parts[0], "type") == "Metaspace";
    if (metaspace || (parts.empty() && marks.replaced)) {
        spec.kind = TokenizerKind::kCharacters;
        if (!pre_override.empty()) {
            throw Error(ErrorKind::kUsage,
                        "--pre {}: {} has a SentencePiece vocabulary, which uses no pre-tokenizer",
                        printable(pre_override, 80), spec.file);
        }
        if (marks.prepended) spec.space_prefix = SpacePrefix::kAlways;
        if (metaspace) read_metaspace(spec, *parts[0]);
        return;
    }
    ByteLevelRule rule;
    for (const JsonMap* part : parts) {
        if (!pre_override.empty()) {
            rule.byte_level |= text_member(spec, *part, "type") == "ByteLevel";
        } else {
            read_byte_level_part(spec, *part, rule);
        }
    }
    if (!rule.byte_level || marks.prepended || marks.replaced) {
        throw Error(
            "{}: pre_tokenizer and normalizer are neither those of a byte-level nor those "
            "of a SentencePiece vocabulary",
            spec.file);
    }
    spec.kind = TokenizerKind::kBytes;
    spec.pre = pre_override.empty() ? find_rule(spec, rule) : pre_tokenizer_of_option(pre_override);
}

const JsonMap& read_model(TokenizerSpec& spec, const TokenizerJson& json) {
    const JsonMap* model = member(&json.rest, "model");
    if (model == nullptr || !model->is_object()) throw Error("{}: \"model\" is absent", spec.file);
    std::string type = text_member(spec, *model, "type");
    if (!(type == "BPE" || (type.empty() && json.has_merges))) {
        throw Error("{}: model.type is \"{}\", expected BPE", spec.file, printable(type, 40));
    }
    if (!json.has_vocab) throw Error("{}: model.vocab is not an object of ids", spec.file);
    if (!json.has_merges) throw Error("{}: model.merges is not a list", spec.file);
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
        if (std::string text = text_member(spec, *model, key); !text.empty()) {
            throw Error("{}: model.{} is \"{}\", expected none", spec.file, key,
                        printable(text, 40));
        }
    }
    if (const JsonMap* dropout = member(model, "dropout");
        dropout != nullptr && !(dropout->is_number() && *dropout == 0)) {
        throw Error("{}: model.dropout is {}, expected none", spec.file, shown(*dropout));
    }
    spec.ignore_merges = flag(spec, *model, "ignore_merges", false);
    spec.byte_fallback = flag(spec, *model, "byte_fallback", false);
    spec.fuse_unknown = flag(spec, *model, "fuse_unk", false);
    return *model;
}

// What the vocabulary will hold, by id.
struct Row {
    std::string_view text;
    TokenType type = TokenType::kUnused;
    bool taken = false;
};

void place_row(const TokenizerSpec& spec, std::vector<Row>& rows, int64_t id, const Row& row) {
    Row& place = rows[static_cast<size_t>(id)];
    if (place.taken && place.text != row.text) {
        throw Error("{}: id {} is given to \"{}\" and to \"{}\"", spec.file, id,
                    printable(place.text, 40), printable(row.text, 40));
    }
    place = row;
}

struct AddedEntry {
    std::string text;
    AddedToken token;
    TokenType type;
};

std::vector<AddedEntry> read_added_entries(const TokenizerSpec& spec, const JsonMap& root) {
    std::vector<AddedEntry> entries;
    const JsonMap* list = member(&root, "added_tokens");
    if (list == nullptr) return entries;
    if (!list->is_array()) throw Error("{}: added_tokens is not a list", spec.file);
    for (const JsonMap& item : *list) {
        const JsonMap* id = member(&item, "id");
        std::string text = item.is_object() ? text_member(spec, item, "content") : "";
        if (id == nullptr || !id->is_number_unsigned() || id->get<uint64_t>() > INT32_MAX ||
            text.empty()) {
            throw Error("{}: added_tokens has {}, expected an object with an id and a content",
                        spec.file, shown(item));
        }
        AddedToken token{.id = id->get<Token>(),
                         .left_strip = flag(spec, item, "lstrip", false),
                         .right_strip = flag(spec, item, "rstrip", false),
                         .single_word = flag(spec, item, "single_word", false)};
        bool special = flag(spec, item, "special", false);
        entries.push_back(
            {std::move(text), token, special ? TokenType::kControl : TokenType::kUserDefined});
    }
    return entries;
}

void read_vocabulary(TokenizerSpec& spec, const TokenizerJson& json) {
    std::vector<AddedEntry> added = read_added_entries(spec, json.rest);
    size_t n_entries = json.vocab.size() + added.size();
    int64_t last_id = -1;
    for (const TokenizerJson::Entry& entry : json.vocab) last_id = std::max(last_id, entry.id);
    for (const AddedEntry& entry : added) last_id = std::max<int64_t>(last_id, entry.token.id);
    // Ids may have gaps, but what they make us allocate stays in proportion to the file.
    int64_t limit = static_cast<int64_t>(4 * n_entries + 65'536);
    if (last_id < 0) throw Error("{}: model.vocab is empty", spec.file);
    if (last_id >= limit) {
        throw Error("{}: the highest id is {}, expected below {} for {} tokens", spec.file, last_id,
                    limit, n_entries);
    }
    std::vector<Row> rows(static_cast<size_t>(last_id) + 1);
    for (const TokenizerJson::Entry& entry : json.vocab) {
        std::string_view text = json.text_of(entry);
        bool byte = spec.byte_fallback && byte_of_byte_token(text);
        Row row{text, byte ? TokenType::kByte : TokenType::kNormal, true};
        place_row(spec, rows, entry.id, row);
    }
    for (const AddedEntry& entry : added) {
        place_row(spec, rows, entry.token.id, {entry.text, entry.type, true});
        spec.added.push_back(entry.token);
    }
    spec.vocabulary.reserve(rows.size(), json.text.size());
    for (const Row& row : rows) {
        if (row.type == TokenType::kByte) {
            char c = static_cast<char>(*byte_of_byte_token(row.text));
            spec.vocabulary.add({&c, 1}, row.type);
        } else if (row.type != TokenType::kNormal) {
            spec.vocabulary.add(row.text, row.type);
        } else if (spec.kind == TokenizerKind::kBytes) {
            spec.vocabulary.add(byte_level_bytes(row.text), row.type);
        } else {
            spec.vocabulary.add(spaced_bytes(row.text), row.type);
        }
    }
    spec.vocabulary.build_index();
}

void read_merges(TokenizerSpec& spec, const TokenizerJson& json) {
    spec.merges.reserve(json.merges.size());
    for (size_t i = 0; i < json.merges.size(); i++) {
        std::string_view left = json.left_of(json.merges[i]);
        std::string_view right = json.right_of(json.merges[i]);
        uint32_t rank = static_cast<uint32_t>(i);
        bool known = spec.kind == TokenizerKind::kBytes
                         ? add_merge(spec, byte_level_bytes(left), byte_level_bytes(right), rank)
                         : add_merge(spec, spaced_bytes(left), spaced_bytes(right), rank);
        if (!known) {
            throw Error(
                "{}: model.merges[{}] is \"{}\", \"{}\", expected two tokens of the "
                "vocabulary that make a third",
                spec.file, i, printable(left, 40), printable(right, 40));
        }
    }
}

// The token that post_processor puts before every text; empty: none.
std::optional<Token> read_template_bos(const TokenizerSpec& spec, const JsonMap& root) {
    std::optional<Token> bos;
    for (const JsonMap* part : components(spec, root, "post_processor", "processors")) {
        std::string type = text_member(spec, *part, "type");
        if (type == "ByteLevel") continue;
        if (type != "TemplateProcessing") {
            throw Error("{}: post_processor has {}, expected ByteLevel or TemplateProcessing",
                        spec.file, shown(*part));
        }
        const JsonMap* single = member(part, "single");
        if (single == nullptr || !single->is_array() || single->empty()) continue;
        const JsonMap* special = member(&(*single)[0], "SpecialToken");
        if (special == nullptr) continue;
        std::string text = text_member(spec, *special, "id");
        bos = spec.vocabulary.find_any(text);
        if (!bos) {
            throw Error("{}: post_processor puts \"{}\" first, which is no token", spec.file,
                        printable(text, 40));
        }
    }
    return bos;
}

// bos_token or eos_token of tokenizer_config.json: a text, or an object with it as its content.
std::optional<Token> read_config_token(const TokenizerSpec& spec, const Json* config,
                                       const char* key) {
    if (config == nullptr || !config->is_object()) return std::nullopt;
    auto found = config->find(key);
    if (found == config->end() || found->is_null()) return std::nullopt;
    const Json* value = &*found;
    if (value->is_object() && value->contains("content")) value = &(*value)["content"];
    std::optional<Token> token;
    if (value->is_string()) token = spec.vocabulary.find_any(value->get<std::string>());
    if (!token) {
        throw Error("{}: {} of tokenizer_config.json is {}, expected a token", spec.file, key,
                    shown(*found));
    }
    return token;
}

void read_ends(TokenizerSpec& spec, const TokenizerConfigs& configs, const JsonMap& root) {
    std::optional<Token> template_bos = read_template_bos(spec, root);
    spec.bos = read_config_token(spec, configs.tokenizer_config, "bos_token");
    spec.add_bos = template_bos.has_value();
    if (template_bos) spec.bos = template_bos;
    const Json* config = configs.tokenizer_config;
    if (config != nullptr && config->is_object()) {
        auto add_bos = config->find("add_bos_token");
        if (add_bos != config->end() && add_bos->is_boolean()) {
            spec.add_bos = add_bos->get<bool>() && spec.bos.has_value();
        }
    }
    spec.eos = read_config_token(spec, configs.tokenizer_config, "eos_token");
    std::vector<Token> ends;
    const auto n_vocab = static_cast<int64_t>(spec.vocabulary.size());
    add_eos_token_ids(configs.generation_config, spec.file + ": generation_config.json", n_vocab,
                      ends);
    add_eos_token_ids(configs.config, spec.file + ": config.json", n_vocab, ends);
    set_end_tokens(spec, ends);
}

}  // namespace

TokenizerSpec read_json_tokenizer(std::string_view text, const std::string& file,
                                  const TokenizerConfigs& configs,
                                  const std::string& pre_override) {
    TokenizerSpec spec;
    spec.file = printable(file, 0);
    TokenizerJson json = read_tokenizer_json(text, spec.file);
    const JsonMap& model = read_model(spec, json);
    SpaceMarks marks = read_normalizer(spec, json.rest);
    read_pre_tokenizer(spec, json.rest, marks, pre_override);
    read_vocabulary(spec, json);
    if (spec.kind == TokenizerKind::kCharacters) index_characters(spec);
    read_merges(spec, json);
    complete_added_tokens(spec);
    if (std::string unknown = text_member(spec, model, "unk_token"); !unknown.empty()) {
        spec.unknown = spec.vocabulary.find_any(unknown);
    }
    read_ends(spec, configs, json.rest);
    return spec;
}

}  // namespace ridge
