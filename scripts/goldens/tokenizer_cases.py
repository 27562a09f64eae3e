#!/usr/bin/env python3
"""Writes tests/golden_data/tokenizers/: small vocabularies of every kind that Ridge reads, and the ids that the official
libraries (tokenizers, sentencepiece) give for many odd texts.

    tokenizer_cases.py tests/golden_data/tokenizers [tests/fuzz/corpus]

texts.json              the texts, and texts with control tokens in them
<name>/tokenizer.json   a byte-level vocabulary for each pre-tokenizer, and the two forms of a Llama 2 vocabulary
<name>/ids.json         {"plain": ids of each text, control tokens as plain text, "special": the same, as tokens}
sentencepiece*.json     SentencePiece models as a GGUF file states them, with the ids of each text

With a second folder it writes there what the fuzzers of the tokenizer begin from.
"""

import io
import json
import pathlib
import random
import sys

import gguf
import sentencepiece
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

CORPUS = """\
The lighthouse keeper wrote down the weather four times a day, and nobody ever read what he had written. It's a habit,
he'd say; they've never asked me to stop, so I won't. In 1987 the lamp was changed for an automatic one.
I'LL BE THERE, SHE'D SAID. WE'VE GOT 12,345 REASONS; YOU'RE ONE OF THEM. The doctor's bag, the sailors' songs.
He counted the steps: 1, 2, 3, 10, 100, 1000, 2024. The price is $19.99 (or 15% less, if you're quick).
    for (int i = 0; i < n; ++i) {
        total += weights[i] * values[i];  // the sum so far
    }
def keep(items):
    return [item for item in items if item is not None]

The wind has turned to the north again, and the boats are coming home. There is nothing to do but to wait and to watch.
Der Weg über die Brücke führt größere Umwege. Où est passé le garçon naïf qui aperçoit la forêt? El niño comió piñas.
Чайка летит над водой, и рыбак считает их: одна, две, три. Ещё одна мягкая булка. Η θάλασσα είναι ήσυχη σήμερα.
今天的天气很好,我们去公园散步吧。日本語のテストです。カタカナとひらがな。한국어 문장도 있습니다. 각 나라의 말.
ভাষা সুন্দর। नमस्ते दुनिया, क्या हाल है? தமிழ் வணக்கம். ภาษาไทยไม่มีช่องว่าง สวัสดีครับ. Tiếng Việt có dấu phức tạp.
السلام عليكم ورحمة الله وبركاته. עולם שלום לכולם. 🙂 👍 🎉 👨‍👩‍👧 🇩🇪 ❤️
{"name": "value", "list": [1, 2, 3], "nested": {"deep": true}}
<html><body class="x">text</body></html> && || == != -> => :: ... --- ___ *** ### ???
\t\tindented\n\n\nwith  many   spaces    and tabs\t\t.\r\nWindows line\r\n\r\n
"""

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace("{1,3}", "")

# What the texts are made of: each part is there for a rule, or for a mistake that is easily made.
PARTS = [
    "'s", "'S", "'\u017f", "'t", "'re", "'RE", "'rE", "'ve", "'m", "'ll", "'lL", "'l", "'d", "'D", "'", "''", "\u2019s",
    "the", " the", "The", "lighthouse", " weather", "don't", "WE'VE", "Brücke", "größere", "niño", "Чайка", "θάλασσα",
    "今天", "天气", "テスト", "한국어", "नमस्ते", "ภาษา", "Tiếng", "السلام", "שלום",
    " ", "  ", "   ", "\t", "\t\t", "\n", "\n\n", "\r", "\r\n", " \n", " \r\n ", "\u00a0", "\u3000", "\u0085", "\u2028",
    "\u2003", "\u200b", "\u200d", "\ufeff", "\x0b", "\x0c", "\x1c", "\u1680", "\u180e",
    "0", "1", "12", "123", "1234", "12345", "\u0663", "\u00b2", "\u2167", "\u2460", "\u00bd", "\uff11", "\U0001d7d9",
    "\u17f0", "\U000116d0", "\u1c89",
    "e\u0301", "\u00e9", "\u0301", "\u0323", "a\u0323\u0301", "a\u0301\u0323", "\u1ea5", "\u212b", "\u2126", "\ufb01",
    "\u0958", "\u0915\u093c", "\u09c7\u09be", "\u1112\u1161\u11ab", "\uac00\u11a8", "\u1100", "\u1161", "\u11a8",
    "\uf900", "\U0002f800", "\u0344", "\u0f73", "\u1ac0\u0303\u0316", "\U00011935\U00011930", "\u0345\u0301\u0316",
    "\U0001f642", "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U0001f1e9\U0001f1ea", "\u2764\ufe0f",
    "a", "B", "Z", "\u00df", "\u0130", "\u017f", "K", "\u02b0", "\u01c5", "_", "__", "-", "--", "...", "!", "!!", "?",
    "#", "//", "()", "[]", "{}", ";", ",", ".", ": ", "\"", "$", "\u20ac", "+", "\u2200\u03b5", "\u2581", "\u2581\u2581",
    "\x00", "\x01", "\x04", "\x1b", "\x7f", "\u00ad", "\ue000", "\u0378", "\U00010000", "\U00020000", "\U0010ffff",
    "\ufffd", "<", ">", "<|", "|>", "<0x41>", "\u0120", "\u010a", "for (int i = 0;", "x->y", "        return",
]
MARKUP = ["<|im_start|>", "<|im_end|>", "<|im_", "<think>", "</think>", "<think", "<mask>", " <mask>", "\n <mask> ",
          "<right>  ", "<right>\n\tx", "word", " word ", "sword", "words", "word.", "<s>", "</s>", "<unk>", "<s> x"]


def texts():
    random.seed(7)
    plain = ["", " ", "\n", "hello world", *PARTS, *CORPUS.split("\n")[:12]]
    for length in [2, 3, 4, 6, 9, 14] * 40:
        plain.append("".join(random.choice(PARTS) for _ in range(length)))
    plain += [random.choice(PARTS) * random.randrange(2, 12) + random.choice(PARTS) for _ in range(60)]
    marked = ["".join(random.choice(random.choice([PARTS, MARKUP, MARKUP])) for _ in range(random.randrange(1, 9)))
              for _ in range(120)]
    return plain + MARKUP, marked


def train(pre_tokenizer, n_vocab, alphabet):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.train_from_iterator([CORPUS], trainers.BpeTrainer(
        vocab_size=n_vocab, initial_alphabet=alphabet, show_progress=False))
    model = json.loads(tokenizer.to_str())["model"]
    return model["vocab"], [tuple(m) for m in model["merges"]]


def byte_level(pre, n_vocab, normalizer=None, ignore_merges=False, missing=""):
    byte_level_alone = len(pre) == 1
    pre_tokenizer = pre[0] if byte_level_alone else pre_tokenizers.Sequence(pre)
    alphabet = sorted(set(pre_tokenizers.ByteLevel.alphabet()) - set(missing))
    vocab, merges = train(pre_tokenizer, n_vocab, alphabet)
    if ignore_merges:  # some tokens that no merge makes
        used = {part for merge in merges for part in merge}
        leaves = [merge for merge in merges if "".join(merge) not in used]
        merges = [merge for merge in merges if merge not in leaves[::4]]
    tokenizer = Tokenizer(models.BPE(vocab, merges, ignore_merges=ignore_merges))
    tokenizer.pre_tokenizer = pre_tokenizer
    if normalizer:
        tokenizer.normalizer = normalizer
    return tokenizer


def special(text, **flags):
    return AddedToken(text, normalized=False, **flags)


def byte_level_tokenizers():
    by_regex = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bytes_only = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    split = lambda regex: pre_tokenizers.Split(Regex(regex), "isolated")
    found = {
        "gpt-2": byte_level([by_regex], 900),
        "llama-bpe": byte_level([split(LLAMA3), bytes_only], 1000, ignore_merges=True),
        "qwen2": byte_level([split(QWEN2), bytes_only], 1000, normalizer=normalizers.NFC()),
        "smollm": byte_level([pre_tokenizers.Digits(individual_digits=True), by_regex], 900,
                             missing="\u0104\u0106\u00c0\u00c1\u00f1\u00f5\u00ff"),  # bytes 4, 6, C0, C1, F1, F5, FF
    }
    for name, tokenizer in found.items():
        tokenizer.add_special_tokens([special("<|im_start|>"), special("<|im_end|>")])
        tokenizer.add_tokens([special("<think>"), special("</think>")])
    found["gpt-2"].add_special_tokens([special("<mask>", lstrip=True), special("<right>", rstrip=True)])
    found["gpt-2"].add_tokens([special("word", single_word=True)])
    found["llama-bpe"].post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single="<|im_start|> $A", pair="<|im_start|> $A <|im_start|>:1 $B:1", special_tokens=[
            ("<|im_start|>", found["llama-bpe"].token_to_id("<|im_start|>"))])])
    return found


class SentencePiece:
    """A model, what a GGUF file says of it, and the merges by rank that give the same."""

    def __init__(self, n_vocab, byte_fallback):
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(CORPUS.splitlines()), model_writer=model, model_type="bpe", vocab_size=n_vocab,
            byte_fallback=byte_fallback, character_coverage=0.98, normalization_rule_name="identity",
            split_digits=True, remove_extra_whitespaces=False, allow_whitespace_only_pieces=True, minloglevel=2)
        sp = self.sp = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
        ids = range(sp.get_piece_size())
        self.tokens = [sp.id_to_piece(i) for i in ids]
        self.scores = [sp.get_score(i) for i in ids]
        self.types = [2 if sp.is_unknown(i) else 3 if sp.is_control(i) else 6 if sp.is_byte(i) else 1 for i in ids]

    def merges(self):
        rank = {t: i for i, t in enumerate(self.tokens) if self.types[i] == 1}
        ways = [(-self.scores[rank[t]], t[:i], t[i:]) for t in rank for i in range(1, len(t))
                if t[:i] in rank and t[i:] in rank]
        return [(a, b) for _, a, b in sorted(ways)]

    def tokenizer(self, form):
        tokenizer = Tokenizer(models.BPE({t: i for i, t in enumerate(self.tokens)}, self.merges(), unk_token="<unk>",
                                         fuse_unk=True, byte_fallback=True))
        if form == "legacy":
            tokenizer.normalizer = normalizers.Sequence(
                [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
        else:
            tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=form, split=False)
        tokenizer.add_special_tokens([special(t) for t in self.tokens[:3]])
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", 1)])
        return tokenizer


def ids(tokenizer, texts, parse_special):
    tokenizer.encode_special_tokens = not parse_special
    return [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]


def write(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, separators=(",", ":")) + "\n")


def write_tokenizer(folder, tokenizer, plain, marked, merges_as_text):
    value = json.loads(tokenizer.to_str())
    if merges_as_text:  # the older of the two forms
        value["model"]["merges"] = [" ".join(merge) for merge in value["model"]["merges"]]
    write(folder / "tokenizer.json", value)
    write(folder / "ids.json", {"plain": ids(tokenizer, plain, False), "special": ids(tokenizer, marked, True)})


def write_gguf(path, model, pre, tokens, types, merges=None, scores=None):
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model(model)
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    if merges:
        writer.add_token_merges(merges)
    if scores:
        writer.add_token_scores(scores)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(True)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def write_fuzz_seeds(folder):
    tokens = ["a", "b", "\u0120", "1", "ab", "\u0120ab", "<|im_end|>", "<think>"]
    vocab = {t: i for i, t in enumerate(tokens[:6])}
    added = [special(tokens[6], lstrip=True), special(tokens[7])]
    bytes_only = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    by_regex = pre_tokenizers.ByteLevel(add_prefix_space=False)
    pre = {"llama-bpe": [pre_tokenizers.Split(Regex(LLAMA3), "isolated"), bytes_only],
           "qwen2": [pre_tokenizers.Split(Regex(QWEN2), "isolated"), bytes_only], "gpt-2": [by_regex],
           "smollm": [pre_tokenizers.Digits(individual_digits=True), by_regex]}
    for name, parts in pre.items():
        tokenizer = Tokenizer(models.BPE(vocab, [("a", "b"), ("\u0120", "ab")], ignore_merges=name == "llama-bpe"))
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(parts)
        tokenizer.normalizer = normalizers.NFC() if name == "qwen2" else None
        tokenizer.add_special_tokens(added[:1])
        tokenizer.add_tokens(added[1:])
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<|im_end|> $A", pair="$A $B:1", special_tokens=[("<|im_end|>", 6)])
        write(folder / "tokenizer_json" / f"{name}.json", json.loads(tokenizer.to_str()))
        write_gguf(folder / "tokenizer_gguf" / name, "gpt2", name, tokens, [1] * 6 + [3, 4],
                   merges=["a b", "\u0120 ab"])
    pieces = ["<unk>", "<s>", "</s>", "<0x41>", "\u2581", "a", "b", "ab", "\u2581ab"]
    for form in ["legacy", "first"]:
        tokenizer = Tokenizer(models.BPE({t: i for i, t in enumerate(pieces)}, [("a", "b"), ("\u2581", "ab")],
                                         unk_token="<unk>", fuse_unk=True, byte_fallback=True))
        if form == "legacy":
            tokenizer.normalizer = normalizers.Sequence(
                [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
        else:
            tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=form, split=False)
        tokenizer.add_special_tokens([special(t) for t in pieces[:3]])
        write(folder / "tokenizer_json" / f"llama2-{form}.json", json.loads(tokenizer.to_str()))
    write_gguf(folder / "tokenizer_gguf" / "llama2", "llama", "default", pieces, [2, 3, 3, 6, 1, 1, 1, 1, 1],
               scores=[0.0, 0.0, 0.0, 0.0, -5.0, -4.0, -3.0, -2.0, -1.0])
    (folder / "tokenize").mkdir(parents=True, exist_ok=True)
    text = "it's 123\n\n  the \u6f22e\u0301 \x1e<think>\x1e<|im_end|>\x1e</s> aaaa"
    for kind, name in enumerate(["gpt-2", "llama-bpe", "qwen2", "deepseek-r1-qwen", "smollm", "sentencepiece"]):
        (folder / "tokenize" / name).write_bytes(bytes([kind]) + text.encode() + b"\xff\xf0\x9f")


def main():
    folder = pathlib.Path(sys.argv[1])
    plain, marked = texts()
    write(folder / "texts.json", {"plain": plain, "special": marked})
    for name, tokenizer in byte_level_tokenizers().items():
        write_tokenizer(folder / name, tokenizer, plain, marked, merges_as_text=name in ("gpt-2", "llama-bpe"))
    model = SentencePiece(800, byte_fallback=True)
    for form in ["legacy", "first", "always"]:
        write_tokenizer(folder / f"llama2-{form}", model.tokenizer(form), plain, marked, merges_as_text=form == "legacy")
    for name, model in [("sentencepiece", model), ("sentencepiece-unknown", SentencePiece(400, byte_fallback=False))]:
        write(folder / f"{name}.json", {"tokens": model.tokens, "scores": model.scores, "types": model.types,
                                        "plain": [model.sp.encode(text) for text in plain]})
    if len(sys.argv) > 2:
        write_fuzz_seeds(pathlib.Path(sys.argv[2]))


if __name__ == "__main__":
    main()
