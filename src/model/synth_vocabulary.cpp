#include "model/synth_vocabulary.h"

#include <cstdint>
#include <map>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/utf8.h"

namespace ridge {
namespace {

// tokenizer.ggml.token_type of GGUF.
constexpr int32_t kNormal = 1, kControl = 3, kUserDefined = 4, kUnused = 5;

struct NamedToken {
    std::string_view text;
    int32_t type = kControl;
};

constexpr NamedToken kLlama3Tokens[] = {
    {"<|begin_of_text|>"},
    {"<|end_of_text|>"},
    {"<|reserved_special_token_0|>"},
    {"<|reserved_special_token_1|>"},
    {"<|finetune_right_pad_id|>"},
    {"<|reserved_special_token_2|>"},
    {"<|start_header_id|>"},
    {"<|end_header_id|>"},
    {"<|eom_id|>"},
    {"<|eot_id|>"},
    {"<|python_tag|>"},
};
constexpr int kNumLlama3Control = 256;  // filled up with <|reserved_special_token_3|> ...

constexpr NamedToken kQwenTokens[] = {
    {"<|endoftext|>"},
    {"<|im_start|>"},
    {"<|im_end|>"},
    {"<|object_ref_start|>"},
    {"<|object_ref_end|>"},
    {"<|box_start|>"},
    {"<|box_end|>"},
    {"<|quad_start|>"},
    {"<|quad_end|>"},
    {"<|vision_start|>"},
    {"<|vision_end|>"},
    {"<|vision_pad|>"},
    {"<|image_pad|>"},
    {"<|video_pad|>"},
    {"<tool_call>", kUserDefined},
    {"</tool_call>", kUserDefined},
    {"<|fim_prefix|>", kUserDefined},
    {"<|fim_middle|>", kUserDefined},
    {"<|fim_suffix|>", kUserDefined},
    {"<|fim_pad|>", kUserDefined},
    {"<|repo_name|>", kUserDefined},
    {"<|file_sep|>", kUserDefined},
    {"<tool_response>", kUserDefined},  // this and the rest: Qwen3
    {"</tool_response>", kUserDefined},
    {"<think>", kUserDefined},
    {"</think>", kUserDefined},
};
constexpr int kNumQwen2Tokens = 22;
constexpr int kNumQwenReserved = 293;  // rows of the published embedding from <|endoftext|> on

constexpr NamedToken kSmolLm2Tokens[] = {
    {"<|endoftext|>"},  {"<|im_start|>"},    {"<|im_end|>"},       {"<repo_name>"},
    {"<reponame>"},     {"<file_sep>"},      {"<filename>"},       {"<gh_stars>"},
    {"<issue_start>"},  {"<issue_comment>"}, {"<issue_closed>"},   {"<jupyter_start>"},
    {"<jupyter_text>"}, {"<jupyter_code>"},  {"<jupyter_output>"}, {"<jupyter_script>"},
    {"<empty_output>"},
};

constexpr std::string_view kLlama3Template =
    "{{- bos_token }}"
    "{%- for message in messages %}"
    "{{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' }}"
    "{{- message['content'] | trim }}{{- '<|eot_id|>' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}"
    "{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}"
    "{%- endif %}";
constexpr std::string_view kChatmlTemplate =
    "{%- for message in messages %}"
    "{{- '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}";
constexpr std::string_view kQwen3Template =
    "{%- for message in messages %}"
    "{{- '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}"
    "{%- if enable_thinking is defined and enable_thinking is false %}"
    "{{- '<think>\n\n</think>\n\n' }}"
    "{%- endif %}{%- endif %}";

constexpr std::string_view kWords =
    "the of and to in a is that it was for on are as with his they be at one have this from or had "
    "by hot but some what there we can out other were all your when up use word how said an each "
    "she which do their time if will way about many then them would write like so these her long "
    "make thing see him two has look more day could go come did my sound no most number who over "
    "know water than call first people may down side been now find any new work part take get "
    "place made live where after back little only round man year came show every good me give our "
    "under name very through just form much great think say help low line before turn cause same "
    "mean differ move right boy old too does tell sentence set three want air well also play small "
    "end put home read hand port large spell add even land here must big high such follow act why "
    "ask men change went light kind off need house picture try us again animal point mother world "
    "near build self earth father hello question answer model token memory number computer";

// The character that files write for a byte: printable ones stand for themselves, the others are
// moved to U+0100 and up, in order (Radford et al. 2019, encoder.py of GPT-2).
std::string character_of_byte(int byte) {
    auto is_printable = [](int b) {
        return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
    };
    uint32_t code = static_cast<uint32_t>(byte);
    if (!is_printable(byte)) {
        code = 256;
        for (int b = 0; b < byte; b++) code += is_printable(b) ? 0 : 1;
    }
    std::string text;
    append_utf8(text, code);
    return text;
}

// Tokens of plain text, each once, and the merges that make some of them.
class TextTokens {
  public:
    explicit TextTokens(size_t n_tokens) : n_tokens_(n_tokens) {
        CHECK(n_tokens >= 256);
        for (int byte = 0; byte < 256; byte++) add(character_of_byte(byte));
    }

    // Makes the word one token, if there is room: while it is more than one symbol under the merges
    // so far, its first two get a merge. Later merges rank behind, so no word falls apart again.
    void add_word(std::string_view word) {
        for (std::vector<std::string> symbols = split(word); symbols.size() > 1;
             symbols = split(word)) {
            const std::string merged = symbols[0] + symbols[1];
            if (used_.count(merged) == 0 && tokens_.size() == n_tokens_) return;
            ranks_.emplace(std::pair(symbols[0], symbols[1]), merges_.size());
            merges_.push_back(symbols[0] + " " + symbols[1]);
            add(merged);
        }
    }

    // Made-up words of three syllables, until there are n_tokens.
    void fill_up() {
        constexpr std::string_view kConsonants = "bcdfghjklmnprstvwxyz", kVowels = "aeiou";
        constexpr uint64_t kSyllables = kConsonants.size() * kVowels.size();
        constexpr uint64_t kNames = kSyllables * kSyllables * kSyllables;
        for (uint64_t i = 0; tokens_.size() < n_tokens_; i++) {
            CHECK(i < kNames);
            uint64_t rest = (i + 1) * 618033 % kNames;  // odd, no multiple of 5: each number once
            std::string word = character_of_byte(' ');
            for (int syllable = 0; syllable < 3; syllable++, rest /= kSyllables) {
                word += kConsonants[rest % kConsonants.size()];
                word += kVowels[rest % kSyllables / kConsonants.size()];
            }
            add(word);
        }
    }

    const std::vector<std::string>& tokens() const { return tokens_; }
    const std::vector<std::string>& merges() const { return merges_; }

  private:
    void add(const std::string& text) {
        if (used_.insert(text).second) tokens_.push_back(text);
    }

    // The word's symbols under the merges so far, as an encoder finds them.
    std::vector<std::string> split(std::string_view word) const {
        std::vector<std::string> symbols;
        for (char c : word) symbols.push_back(character_of_byte(static_cast<unsigned char>(c)));
        for (;;) {
            size_t best = 0, best_rank = SIZE_MAX;
            for (size_t i = 0; i + 1 < symbols.size(); i++) {
                auto found = ranks_.find(std::pair(symbols[i], symbols[i + 1]));
                if (found != ranks_.end() && found->second < best_rank) {
                    best = i, best_rank = found->second;
                }
            }
            if (best_rank == SIZE_MAX) return symbols;
            symbols[best] += symbols[best + 1];
            symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
        }
    }

    size_t n_tokens_;
    std::vector<std::string> tokens_, merges_;
    std::unordered_set<std::string> used_;
    std::map<std::pair<std::string, std::string>, size_t> ranks_;
};

TextTokens make_text_tokens(size_t n_tokens) {
    TextTokens text(n_tokens);
    std::vector<std::string> words(1);
    for (char c : kWords) {
        if (c == ' ') {
            words.emplace_back();
        } else {
            words.back() += c;
        }
    }
    for (const std::string& word : words) text.add_word(" " + word);
    for (std::string word : words) {
        text.add_word(word);
        word[0] = static_cast<char>(word[0] - 'a' + 'A');
        text.add_word(word);
    }
    text.fill_up();
    return text;
}

struct Tokens {
    std::vector<std::string> texts;
    std::vector<int32_t> types;

    void add(std::string_view text, int32_t type) {
        texts.emplace_back(text);
        types.push_back(type);
    }
    uint32_t size() const { return static_cast<uint32_t>(texts.size()); }
};

void add_llama3_control(Tokens& tokens) {
    for (const NamedToken& token : kLlama3Tokens) tokens.add(token.text, token.type);
    constexpr int kNamed = static_cast<int>(std::size(kLlama3Tokens));
    for (int i = 0; i < kNumLlama3Control - kNamed; i++) {
        tokens.add("<|reserved_special_token_" + std::to_string(i + 3) + "|>", kControl);
    }
}

void add_qwen_control(Tokens& tokens, int n_named, uint32_t n_vocab) {
    for (int i = 0; i < n_named; i++) tokens.add(kQwenTokens[i].text, kQwenTokens[i].type);
    while (tokens.size() < n_vocab) {
        tokens.add("[PAD" + std::to_string(tokens.size()) + "]", kUnused);
    }
}

}  // namespace

void add_synth_vocabulary(SynthVocabulary family, int n_vocab, GgufWriter& writer) {
    const bool llama = family == SynthVocabulary::kLlama3;
    const bool smollm = family == SynthVocabulary::kSmolLm2;
    const int n_special = llama    ? kNumLlama3Control
                          : smollm ? static_cast<int>(std::size(kSmolLm2Tokens))
                                   : kNumQwenReserved;
    CHECK(n_vocab >= n_special + 256);
    const TextTokens text = make_text_tokens(static_cast<size_t>(n_vocab - n_special));

    Tokens tokens;
    if (smollm) {
        for (const NamedToken& token : kSmolLm2Tokens) tokens.add(token.text, token.type);
    }
    for (const std::string& token : text.tokens()) tokens.add(token, kNormal);
    const uint32_t first_special = smollm ? 0 : tokens.size();
    if (llama) add_llama3_control(tokens);
    if (!llama && !smollm) {
        add_qwen_control(tokens,
                         family == SynthVocabulary::kQwen2
                             ? kNumQwen2Tokens
                             : static_cast<int>(std::size(kQwenTokens)),
                         static_cast<uint32_t>(n_vocab));
    }
    CHECK(tokens.size() == static_cast<uint32_t>(n_vocab));

    writer.add_string("tokenizer.ggml.model", "gpt2");
    writer.add_string("tokenizer.ggml.pre", llama ? "llama-bpe" : smollm ? "smollm" : "qwen2");
    writer.add_strings("tokenizer.ggml.tokens", tokens.texts);
    writer.add_i32s("tokenizer.ggml.token_type", tokens.types);
    writer.add_strings("tokenizer.ggml.merges", text.merges());
    // Llama 3: begin_of_text, eot_id. Qwen: endoftext, im_end. SmolLM2: im_start, im_end.
    writer.add_u32("tokenizer.ggml.bos_token_id", first_special + (smollm ? 1 : 0));
    writer.add_u32("tokenizer.ggml.eos_token_id", first_special + (llama ? 9 : 2));
    writer.add_u32("tokenizer.ggml.padding_token_id", first_special + (llama ? 4 : smollm ? 2 : 0));
    if (smollm) writer.add_u32("tokenizer.ggml.unknown_token_id", 0);
    writer.add_bool("tokenizer.ggml.add_bos_token", llama);
    writer.add_bool("tokenizer.ggml.add_space_prefix", false);
    writer.add_string("tokenizer.chat_template", llama ? kLlama3Template
                                                 : family == SynthVocabulary::kQwen3
                                                     ? kQwen3Template
                                                     : kChatmlTemplate);
}

}  // namespace ridge
