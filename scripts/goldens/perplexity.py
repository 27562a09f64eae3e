"""perplexity.py: what `ridge eval` must say of two tiny models on a short text, by transformers and torch.

    .venv/bin/python scripts/goldens/perplexity.py

Needs the models that tiny_models.py writes; writes tests/golden_data/eval.json. The text is cut into windows; the
first token of each gives way to BOS; the second half of each window is scored, but for its last token. Logits are
transformers' in float32, all statistics torch's in float64. The two models share a tokenizer, so that one can be the
reference of the other: the divergence is huge, since their weights are random.
"""

import json
import sys

import torch

import oracle
import tiny_files
import tiny_models
import tiny_tokenizers

WINDOW = 64
TEXT = tiny_models.TEXT + """

By 1400 the town had a market, a guild of rope makers, and a crane worked by two men who walked inside a great wooden
wheel. The crane could lift a load of about two tons. It stood on the quay until 1789, when it was taken down because
nobody could be found who was willing to walk in it.

    for (int i = 0; i < 10; i++) sum += values[i] * 0.5f;

"And is it still there?" she asked. "Only the wheel," he said. Steam came in 1846; the railway four years later.
"""


def windows_of(vocabulary):
    ids = vocabulary.encode(TEXT)
    assert vocabulary.add_bos and ids[0] == vocabulary.bos
    windows = [ids[at:at + WINDOW] for at in range(0, len(ids) - WINDOW + 1, WINDOW)]
    return [[vocabulary.bos] + window[1:] for window in windows]


def scored(model, windows):
    """log probabilities [position, n_vocab] of the scored positions, and the token that comes after each."""
    first = WINDOW // 2
    logits = [torch.from_numpy(oracle.all_logits(model, window))[first:-1] for window in windows]
    following = [token for window in windows for token in window[first + 1:]]
    return torch.log_softmax(torch.cat(logits).double(), -1), torch.tensor(following)


def perplexity(nll):
    value = nll.mean().exp()
    return {"value": float(value), "standard_error": float(value * nll.std() / len(nll) ** 0.5)}


def main():
    torch.set_num_threads(1)
    vocabulary = tiny_tokenizers.llama3(tiny_models.N_VOCAB)
    windows = windows_of(vocabulary)
    golden = {"text": TEXT, "window": WINDOW, "n_windows": len(windows), "models": {}}
    rows = []
    for spec, file in ((tiny_models.llama3_scaled(vocabulary), "model-bf16.gguf"),
                       (tiny_models.llama_all_formats(vocabulary), "model-mixed.gguf")):
        weights = tiny_files.read_gguf(tiny_models.MODELS / spec.name / file, spec, tiny_models.random_weights(spec))
        log_p, following = scored(tiny_models.make_model(spec, weights), windows)
        nll = -log_p[torch.arange(len(following)), following]
        golden["models"][spec.name] = {"file": file, "n_positions": len(following), "perplexity": perplexity(nll)}
        rows.append((log_p, nll))
    (log_r, nll_r), (log_p, nll_p) = rows
    kl = torch.nn.functional.kl_div(log_p, log_r, log_target=True, reduction="none").sum(-1)
    golden["kl_of_second_from_first"] = {
        "kl": {"value": float(kl.mean()), "standard_error": float(kl.std() / len(kl) ** 0.5)},
        "kl_median": float(kl.quantile(0.5)), "kl_p99": float(kl.quantile(0.99)), "kl_max": float(kl.max()),
        "top1_agreement": float((log_p.argmax(-1) == log_r.argmax(-1)).double().mean()),
        "p_rms_difference": float(((-nll_p).exp() - (-nll_r).exp()).square().mean().sqrt())}
    path = tiny_models.ROOT / "tests/golden_data/eval.json"
    path.write_text(json.dumps(golden, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(path, file=sys.stderr)


if __name__ == "__main__":
    main()
