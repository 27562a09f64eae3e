"""Small tokenizers of the kinds that real models have, trained on a page of text; used by tiny_models.py."""

import io
import json

import sentencepiece
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

# token_type in GGUF.
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6

CORPUS = """\
The harbour of Aldermouth has been in use for more than eight hundred years. In the beginning it was only a bend of
the river where the water was deep enough for fishing boats, and where a bank of shingle kept the worst of the winter
storms away. It's said that the town's first crane couldn't lift more than 250 pounds; they've kept a drawing of it.
The engineer walked along the bank for 9 days, measured the current with a cork and a watch, and told the merchants
that they should build two long walls out into the sea, one on each side of the mouth of the river.
    for (int i = 0; i < n; i++) {
        sum += values[i] * weights[i];
    }
    def mean(values):
        return sum(values) / len(values)
Il était une fois un meunier qui avait trois fils. Der Fluß führt im Frühling viel Wasser. Жил был старик со старухой.
"""

# The pre-tokenizers' expressions, as the models' tokenizer.json files state them.
LLAMA3_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN_SPLIT = LLAMA3_SPLIT.replace(r"\p{N}{1,3}", r"\p{N}")


class Vocabulary:
    """What a GGUF file says of a tokenizer, and the tokenizer.json that says the same."""

    def __init__(self, gguf_model, pre, tokens, types, tokenizer, merges=(), scores=(), bos=None, eos=None, pad=None,
                 add_bos=False, chat_template=None):
        self.gguf_model, self.pre, self.tokens, self.types = gguf_model, pre, tokens, types
        self.tokenizer, self.merges, self.scores = tokenizer, merges, scores
        self.bos, self.eos, self.pad, self.add_bos = bos, eos, pad, add_bos
        self.chat_template = chat_template
        self.merges_as_text = pre == "llama-bpe"  # how Llama's tokenizer.json lists them; Qwen's has pairs

    def encode(self, text):
        return self.tokenizer.encode(text).ids  # with what the post-processor adds

    def tokenizer_json(self):
        value = json.loads(self.tokenizer.to_str())
        if self.merges_as_text:
            value["model"]["merges"] = [" ".join(m) for m in value["model"]["merges"]]
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def byte_alphabet():
    """The 256 characters that stand for bytes, in the order that GPT-2's vocabulary has them: printable bytes first."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in printable]
    return [chr(b) for b in printable] + [chr(256 + i) for i in range(len(rest))]


def train_merges(pre_tokenizer, n):
    trainer = trainers.BpeTrainer(vocab_size=256 + n, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                  show_progress=False)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.train_from_iterator([CORPUS], trainer)
    merges = [tuple(m) for m in json.loads(tokenizer.to_str())["model"]["merges"]]
    assert len(merges) == n
    return merges


def byte_level(split, n_vocab, control, user_defined=(), n_unused=0, normalizer=None, ignore_merges=False):
    """(tokens, types, merges, tokenizer): bytes, merges, then added tokens, then unused ids up to n_vocab."""
    pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(split), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    added = [*control, *user_defined]
    merges = train_merges(pre_tokenizer, n_vocab - n_unused - len(added) - 256)
    tokens = byte_alphabet() + [a + b for a, b in merges]
    assert len(set(tokens)) == len(tokens)
    tokenizer = Tokenizer(models.BPE({t: i for i, t in enumerate(tokens)}, merges, ignore_merges=ignore_merges))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizer, decoders.ByteLevel()
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in control])
    tokenizer.add_tokens([AddedToken(t, special=False, normalized=False) for t in user_defined])
    types = [NORMAL] * len(tokens) + [CONTROL] * len(control) + [USER_DEFINED] * len(user_defined)
    types += [UNUSED] * n_unused
    tokens += added
    tokens += [f"[PAD{i}]" for i in range(len(tokens), n_vocab)]  # the converter's names for ids without a token
    assert len(tokens) == len(types) == n_vocab
    return tokens, types, [" ".join(m) for m in merges], tokenizer


def llama3(n_vocab):
    control = ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eom_id|>",
               "<|eot_id|>"]
    tokens, types, merges, tokenizer = byte_level(LLAMA3_SPLIT, n_vocab, control, ignore_merges=True)
    bos = "<|begin_of_text|>"
    tokenizer.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single=f"{bos} $A", pair=f"{bos} $A {bos}:1 $B:1",
                                      special_tokens=[(bos, tokens.index(bos))])])
    template = ("{{- bos_token }}{%- for message in messages %}{{- '<|start_header_id|>' + message['role'] + "
                "'<|end_header_id|>\n\n' + message['content'] | trim + '<|eot_id|>' }}{%- endfor %}"
                "{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{%- endif %}")
    return Vocabulary("gpt2", "llama-bpe", tokens, types, tokenizer, merges, bos=tokens.index(bos),
                      eos=tokens.index("<|eot_id|>"), add_bos=True, chat_template=template)


def qwen(n_vocab, thinking):
    control = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    user_defined = ["<tool_call>", "</tool_call>"] + (["<think>", "</think>"] if thinking else [])
    tokens, types, merges, tokenizer = byte_level(QWEN_SPLIT, n_vocab, control, user_defined, n_unused=12,
                                                  normalizer=normalizers.NFC())
    tokenizer.post_processor = processors.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)
    template = ("{%- for message in messages %}{{- '<|im_start|>' + message.role + '\n' + message.content + "
                "'<|im_end|>\n' }}{%- endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}"
                "{%- endif %}")
    return Vocabulary("gpt2", "qwen2", tokens, types, tokenizer, merges, bos=tokens.index("<|endoftext|>"),
                      eos=tokens.index("<|im_end|>"), pad=tokens.index("<|endoftext|>"), chat_template=template)


def sentence_piece_merges(vocab, scores):
    """The merges that make BPE by rank do what SentencePiece does by score: every way to put a piece together from
    two pieces, the best-scored result first."""
    merges = []
    for piece, rank in vocab.items():
        parts = [(piece[:i], piece[i:]) for i in range(1, len(piece)) if piece[:i] in vocab and piece[i:] in vocab]
        merges += [(scores[rank], a, b) for a, b in sorted(parts, key=lambda ab: (vocab[ab[0]], vocab[ab[1]]))]
    return [(a, b) for _, a, b in sorted(merges, key=lambda m: -m[0])]


def llama2(n_vocab):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS.splitlines()), model_writer=model, model_type="bpe", vocab_size=n_vocab,
        byte_fallback=True, character_coverage=0.98, normalization_rule_name="identity", split_digits=True,
        remove_extra_whitespaces=False, allow_whitespace_only_pieces=True, minloglevel=2)
    sp = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    tokens = [sp.id_to_piece(i) for i in range(n_vocab)]
    scores = [sp.get_score(i) for i in range(n_vocab)]
    types = [UNKNOWN if sp.is_unknown(i) else CONTROL if sp.is_control(i) else BYTE if sp.is_byte(i) else NORMAL
             for i in range(n_vocab)]
    assert tokens[:3] == ["<unk>", "<s>", "</s>"] and types.count(BYTE) == 256
    vocab = {t: i for i, t in enumerate(tokens)}
    merges = sentence_piece_merges({t: i for t, i in vocab.items() if types[i] == NORMAL}, scores)
    tokenizer = Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                           decoders.Strip(" ", 1, 0)])
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in tokens[:3]])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", 1)])
    for text in CORPUS.splitlines() + ["  two spaces", "日本", "x\ny", "100%"]:
        assert tokenizer.encode(text, add_special_tokens=False).ids == sp.encode(text), text
    template = ("{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}"
                "{{ '[INST] ' + message['content'] + ' [/INST]' }}{% else %}{{ ' ' + message['content'] + ' ' + eos_token }}"
                "{% endif %}{% endfor %}")
    return Vocabulary("llama", "default", tokens, types, tokenizer, scores=scores, bos=1, eos=2, add_bos=True,
                      chat_template=template)
