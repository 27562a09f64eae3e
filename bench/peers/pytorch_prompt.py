#!/usr/bin/env python3
"""Times how fast PyTorch reads a prompt: transformers' Llama of the shapes of Llama 3.2 1B, in bf16.

    bench/peers/pytorch_prompt.py -t 2 -r 5 -o bench/results/MACHINE/pytorch-prompt.json
    ridge bench -m synth:llama-3.2-1b:BF16 -t 2 -p 512 -n 0

Needs torch and transformers. Weights and tokens are random, which costs the same as any; the prompt is one batch of one
sequence in eager mode, its keys and values are kept, and the last row alone gets logits, as in `ridge bench`. --warmup
prompts are not counted. The JSON has the fields of `ridge bench` that apply, and the versions of what ran.
"""
import argparse
import pathlib
import platform
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import programs  # noqa: E402
import records  # noqa: E402


def make_model(torch, transformers):
    config = transformers.LlamaConfig(
        vocab_size=128256, hidden_size=2048, intermediate_size=8192, num_hidden_layers=16, num_attention_heads=32,
        num_key_value_heads=8, head_dim=64, tie_word_embeddings=True, max_position_embeddings=131072,
        rope_theta=500000.0, rms_norm_eps=1e-5)
    torch.manual_seed(1)
    torch.set_default_dtype(torch.bfloat16)
    return transformers.LlamaForCausalLM(config).eval()


def time_prompt(torch, model, n_prompt):
    """Nanoseconds of one prompt of random tokens, up to the most probable next one."""
    tokens = torch.randint(1, model.config.vocab_size, (1, n_prompt))
    begin = time.perf_counter_ns()
    with torch.inference_mode():
        logits = model(tokens, logits_to_keep=1, use_cache=True).logits
        int(logits[0, -1].argmax())
    return time.perf_counter_ns() - begin


def record(options, torch, transformers, model, begin, samples_ns):
    return {
        "machine": records.machine(),
        "peer": {"name": "PyTorch", "torch": torch.__version__, "transformers": transformers.__version__,
                 "python": platform.python_version(), "attention": model.config._attn_implementation,
                 "cpu_capability": torch.backends.cpu.get_cpu_capability()},
        "model_type": "llama 1.24B BF16", "model_n_params": sum(p.numel() for p in model.parameters()),
        "n_threads": torch.get_num_threads(), "n_prompt": options.n_prompt, "n_gen": 0, "n_depth": 0,
        **records.when(begin), **records.rates(samples_ns, options.n_prompt),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("-p", "--n-prompt", type=int, default=512)
    parser.add_argument("-r", "--repetitions", type=int, default=5)
    parser.add_argument("--warmup", type=int, default=2, help="prompts before the first sample")
    parser.add_argument("-o", "--output", help="file for the JSON")
    options = parser.parse_args()
    programs.check_ranges(("-t", options.threads, 1, 1024), ("-p", options.n_prompt, 1, 131072),
                          ("-r", options.repetitions, 1, 1000), ("--warmup", options.warmup, 0, 1000))
    if options.output:
        programs.prepare_output(options.output)
    try:
        import torch
        import transformers
    except ImportError as error:
        programs.fail(f"needs torch and transformers, as of: pip install torch transformers ({error})")

    torch.set_num_threads(options.threads)
    model = make_model(torch, transformers)
    for _ in range(options.warmup):
        time_prompt(torch, model, options.n_prompt)
    begin = records.now()
    samples_ns = []
    for i in range(options.repetitions):
        samples_ns.append(time_prompt(torch, model, options.n_prompt))
        print(f"sample {i + 1}: {options.n_prompt * 1e9 / samples_ns[-1]:.1f} tok/s", file=sys.stderr, flush=True)
    result = record(options, torch, transformers, model, begin, samples_ns)
    rates = result["samples_ts"]
    print(f"prompt of {options.n_prompt}: {result['median_ts']:.1f} tok/s ({min(rates):.1f} to {max(rates):.1f})")
    if options.output:
        programs.write_json(options.output, result)


if __name__ == "__main__":
    main()
