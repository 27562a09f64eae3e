#!/usr/bin/env python3
"""Times Ridge and llama.cpp in turns on the same files, threads, prompts and lengths.

    bench/peers/llama_cpp.py build --folder /opt/peer
    bench/compare_llama_cpp.py --peer /opt/peer -o bench/results/MACHINE/llama_cpp.json
    bench/compare_llama_cpp.py --peer /opt/peer -m synth:llama-3.2-1b:Q4_K -p 512 -d 0 -r 5      # some minutes
    bench/compare_llama_cpp.py --peer-bench native=amx/llama-bench --peer-bench no-amx=plain/llama-bench \\
        --ridge ./ridge --models models --cpus 4,5 --time-limit 500 -o llama_cpp.json

Each round runs one after the other for each model and depth, in a fresh process with one warm-up and one sample:
Ridge, llama.cpp, Ridge, llama.cpp, ... llama.cpp runs as it is fastest: a pilot that is not counted tries each build
(with and without AMX, where the processor has it) with flash attention on and off, and each test keeps the best.
Ridge measures the read wall of the machine in each of its runs. Compared are medians; every sample is in the JSON.

The default files are SmolLM2-135M in Q4_1 and random weights of the shapes of Llama 3.2 1B and Qwen3 4B, which
`ridge synth` writes into --models once (14 GB). Prompts are timed at depth 0 alone.

The third line is for a machine that has neither network nor compiler: llama-bench was built elsewhere. What a time
limit leaves is shared among the models and depths that are still to come: each gets fewer rounds, and at the end what
there is is written.
"""
import argparse
import datetime
import os
import pathlib
import platform
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "peers"))
import llama_cpp  # noqa: E402
import records  # noqa: E402
import programs  # noqa: E402
from programs import fail  # noqa: E402

SMOLLM2 = "~/.cache/ridge/models/SmolLM2-135M-Instruct.Q4_1.gguf"
DEFAULT_MODELS = [SMOLLM2] + [f"synth:llama-3.2-1b:{f}" for f in ["BF16", "Q8_0", "Q4_0", "Q4_K", "Q6_K", "Q4_K_M"]] + [
    f"synth:qwen3-4b:{f}" for f in ["Q4_0", "Q4_K_M"]]


def say(text):
    print(text, file=sys.stderr, flush=True)


def find_model(name, options):
    """The file of a model; one of random weights is written where it is not there yet."""
    if not name.startswith("synth:"):
        path = pathlib.Path(name).expanduser()
        for found in (path, pathlib.Path(options.models) / path):
            if found.exists():
                return found
        fail(f"-m {path}: no such file, nor in --models {options.models}")
    try:
        _, shape, weights = name.split(":")
    except ValueError:
        fail(f"-m {name}: expected synth:NAME:FORMAT")
    path = pathlib.Path(options.models) / f"{shape}.{weights}.gguf"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        say(f"writing {path}")
        programs.output_of([options.ridge, "synth", shape, "--format", weights, "-o", path, "-q"])
    return path


def joined(values):
    return ",".join(str(value) for value in values) or "0"


def test_key(result):
    return result["n_prompt"], result["n_gen"], result["n_depth"]


class Clock:
    """Seconds that are left of a time limit; without one they never end."""

    def __init__(self, seconds):
        self.end = None if seconds is None else time.monotonic() + seconds

    def left(self):
        if self.end is None:
            return None
        left = self.end - time.monotonic()
        if left <= 0:
            raise programs.OutOfTime
        return left

    def share(self, n_parts):
        """A clock of the first of n equal parts of what is left."""
        return Clock(None if self.end is None else self.left() / n_parts)


class Peer:
    """llama.cpp in each way of running it."""

    def __init__(self, options):
        self.options = options
        self.builds = dict(options.peer_bench) if options.peer_bench else llama_cpp.builds(options.peer)
        self.ways = [(build, fa) for build in self.builds for fa in options.flash_attn]

    def run(self, way, model, prompts, gens, depth, repeats):
        build, fa = way
        options = self.options
        results = llama_cpp.bench(self.builds[build], model, options.threads, prompts or [0], gens or [0], [depth],
                                  repeats, fa, options.type_k, options.type_v, options.prefix, options.clock.left())
        return {test_key(r): r for r in results}

    def pilot(self, model, prompts, gens, depth):
        """The fastest way of each test, and what each way reached."""
        reached = {}
        for way in self.ways:
            for key, result in self.run(way, model, prompts, gens, depth, self.options.pilot).items():
                reached.setdefault(key, {})[way] = max(result["samples_ts"])
        return {key: max(rates, key=rates.get) for key, rates in reached.items()}, reached


def run_ridge(model, prompts, gens, depth, options):
    results = programs.json_of(
        [*options.prefix, options.ridge, "bench", "-m", model, "-t", options.threads, "-p", joined(prompts), "-n",
         joined(gens), "-d", depth, "-r", 1, "-ctk", options.type_k, "-ctv", options.type_v, "-o", "json", "-q",
         *options.ridge_option], options.clock.left())
    return {test_key(r): r for r in results}


class Test:
    """All samples of one test on one model."""

    def __init__(self, model, key, way, reached):
        self.model, self.key, self.way = model, key, way
        self.reached = {f"{build}, fa {fa}": rate for (build, fa), rate in reached.items()}
        self.ridge, self.peer, self.loads = [], [], []

    def add(self, ridge, peer):
        self.ridge.append(ridge)
        self.peer.append(peer)
        self.loads.append(os.getloadavg()[0])

    def result(self):
        first = self.ridge[0]
        ridge = [r["samples_ts"][0] for r in self.ridge]
        peer = [r["samples_ts"][0] for r in self.peer]
        walls = [r["read_wall_gbps"] for r in self.ridge]
        n_bytes = first["bytes_per_token"]
        n_read = first.get("read_bytes_per_token", n_bytes)  # as Ridge has packed them
        wall = statistics.median(walls)

        # Each sample against the wall that was measured around Ridge's of the same round.
        def share(rates, n_bytes):
            return statistics.median(r * n_bytes * 1e-9 / w for r, w in zip(rates, walls)) if n_bytes else None
        return {
            "model": self.model.name, "model_size": first["model_size"], "n_prompt": self.key[0],
            "n_gen": self.key[1], "n_depth": self.key[2], "ratio": statistics.median(ridge) / statistics.median(peer),
            "bytes_per_token": n_bytes, "read_bytes_per_token": n_read, "read_wall_gbps": wall,
            "read_wall_samples_gbps": walls,
            "load_average": self.loads,
            "ridge": {"median_ts": statistics.median(ridge), "samples_ts": ridge, "share_of_wall": share(ridge, n_read),
                      "build_commit": first["build_commit"], "isa": first["isa"], "checkpoint": first["checkpoint"]},
            "peer": {"median_ts": statistics.median(peer), "samples_ts": peer, "share_of_wall": share(peer, n_bytes),
                     "build": self.way[0], "flash_attn": self.way[1], "pilot_ts": self.reached},
        }


def compare(model, prompts, gens, depth, peer, options, clock):
    """The results of one model at one depth. Past the clock there is no further round; past options.clock a round is
    not ended either."""
    say(f"{model.name} at {depth}: pilot of llama.cpp")
    way_of, reached = peer.pilot(model, prompts, gens, depth)
    tests = {key: Test(model, key, way, reached[key]) for key, way in way_of.items()}
    try:
        for number in range(options.rounds):
            ridge = run_ridge(model, prompts, gens, depth, options)
            others = {}
            for way in dict.fromkeys(way_of.values()):
                mine = [key for key in way_of if way_of[key] == way]
                others |= peer.run(way, model, [k[0] for k in mine if k[0]], [k[1] for k in mine if k[1]], depth, 1)
            for key, test in tests.items():
                test.add(ridge[key], others[key])
            say(f"{model.name} at {depth}: round {number + 1} of {options.rounds}")
            clock.left()
    except programs.OutOfTime:
        say(f"{model.name} at {depth}: out of time")
    return [test.result() for test in tests.values() if test.ridge]


TABLE_HEAD = ("| file | test | Ridge tok/s | llama.cpp tok/s | ratio | Ridge of the wall | llama.cpp of the wall |\n"
              "|---|---|---:|---:|---:|---:|---:|")


def table_row(result):
    def rates(side):
        samples = side["samples_ts"]
        return f"{side['median_ts']:.1f} ({min(samples):.1f} to {max(samples):.1f})"

    def percent(share):
        return "" if share is None else f"{100 * share:.0f} %"
    name = f"prompt of {result['n_prompt']}" if result["n_prompt"] else f"{result['n_gen']} tokens"
    at = f" at {result['n_depth']}" if result["n_depth"] else ""
    return (f"| {result['model']} | {name}{at} | {rates(result['ridge'])} | {rates(result['peer'])} | "
            f"{result['ratio']:.2f} | {percent(result['ridge']['share_of_wall'])} | "
            f"{percent(result['peer']['share_of_wall'])} |")


def write(results, version, options):
    if not options.output:
        return
    document = {"date": datetime.date.today().isoformat(), "machine": {"cpu": version["cpu"], "n_cpus": os.cpu_count(),
                                                                       "os": platform.platform()},
                "n_threads": options.threads, "cpus": options.cpus, "rounds": options.rounds, "type_k": options.type_k,
                "type_v": options.type_v, "realtime": options.realtime,
                "ridge": {key: version[key] for key in ("version", "commit", "compiler", "build_type")},
                "peer": {"name": "llama.cpp", "package": llama_cpp.PACKAGE}, "results": results}
    programs.write_json(options.output, document)


def peer_bench(text):
    name, _, path = text.partition("=")
    if not name or not path:
        raise argparse.ArgumentTypeError(f"{text}: expected NAME=PATH, as in no-amx=/opt/plain/llama-bench")
    return name, path


def pin(cpus):
    """This process and those that it starts run on these CPUs alone."""
    try:
        os.sched_setaffinity(0, records.numbers(cpus))
    except (argparse.ArgumentTypeError, ValueError, OverflowError):
        fail(f"--cpus {cpus}: expected numbers of CPUs, as in 4,5")
    except OSError as error:
        fail(f"--cpus {cpus}: {error.strerror}")


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--peer", help="folder that bench/peers/llama_cpp.py built in")
    which.add_argument("--peer-bench", type=peer_bench, action="append", metavar="NAME=PATH",
                       help=f"a llama-bench of {llama_cpp.PACKAGE} that was built elsewhere; repeatable, the best one "
                            "of each test counts")
    parser.add_argument("--ridge", default="build/cpu/ridge")
    parser.add_argument("--ridge-option", action="append", default=[], metavar="OPTION",
                        help="passed on to ridge bench, as in --ridge-option=--checkpoint=plain; repeatable")
    parser.add_argument("-m", "--model", action="append", help="a GGUF file or synth:NAME:FORMAT; repeatable")
    parser.add_argument("--models", default="/var/tmp/ridge/models",
                        help="folder for models of random weights; other models are looked for in it too")
    parser.add_argument("--cpus", help="CPUs that both run on, as in 4,5; default: all that this process may use")
    parser.add_argument("--time-limit", type=float, metavar="SECONDS", help="stop then, and write what there is")
    parser.add_argument("--pilot", type=int, default=2, metavar="N", help="samples of each way in the pilot")
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("-p", "--n-prompt", type=records.numbers, default=[512, 2048], help="0: none")
    parser.add_argument("-n", "--n-gen", type=records.numbers, default=[32], help="0: none")
    parser.add_argument("-d", "--n-depth", type=records.numbers, default=[0, 2048, 16384])
    parser.add_argument("-r", "--rounds", type=int, default=5)
    parser.add_argument("-ctk", "--type-k", default="f16")
    parser.add_argument("-ctv", "--type-v", default="f16")
    parser.add_argument("-fa", "--flash-attn", action="append", choices=["on", "off"],
                        help="of llama.cpp; default: the better of both")
    parser.add_argument("--realtime", action="store_true",
                        help="run both with real-time priority (chrt, needs root), so that the machine's other programs "
                             "stand back")
    parser.add_argument("-o", "--output", help="file for the JSON, written anew after each model and depth")
    options = parser.parse_args()
    options.flash_attn = options.flash_attn or ["off", "on"]
    options.prefix = ["chrt", "--rr", "10"] if options.realtime else []
    for name, value in (("-r", options.rounds), ("--pilot", options.pilot), ("-t", options.threads)):
        if value < 1:
            fail(f"{name} {value}: expected 1 or more")
    if options.time_limit is not None and not 0 < options.time_limit < 1e9:
        fail(f"--time-limit {options.time_limit:g}: expected a number of seconds above 0")
    if options.cpus is not None:
        pin(options.cpus)
    if options.output:
        programs.prepare_output(options.output)
    options.clock = Clock(options.time_limit)
    return options


def main():
    options = parse()
    version = programs.json_of([options.ridge, "version", "--json"])
    peer = Peer(options)
    models = [find_model(name, options) for name in options.model or DEFAULT_MODELS]
    gens = [n for n in options.n_gen if n > 0]
    plans = [(model, [n for n in options.n_prompt if n > 0] if depth == 0 else [], depth)
             for model in models for depth in options.n_depth]
    plans = [plan for plan in plans if plan[1] or gens]
    results = []
    print(TABLE_HEAD, flush=True)
    for i, (model, prompts, depth) in enumerate(plans):
        try:
            found = compare(model, prompts, gens, depth, peer, options, options.clock.share(len(plans) - i))
        except programs.OutOfTime:
            say(f"{model.name} at {depth}: no time left")
            break
        results += found
        for result in found:
            print(table_row(result), flush=True)
        write(results, version, options)
    walls = [wall for result in results for wall in result["read_wall_samples_gbps"]]
    if walls:
        print(f"\nRead wall: {statistics.median(walls):.1f} GB/s ({min(walls):.1f} to {max(walls):.1f}) over all runs.")
    elif plans:
        fail("no round was ended within --time-limit")


if __name__ == "__main__":
    main()
