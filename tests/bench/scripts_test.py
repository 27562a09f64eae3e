#!/usr/bin/env python3
"""The scripts of bench/: one line where something cannot be run, and JSON as `ridge bench` writes it.

    RIDGE_BINARY=build/cpu/ridge tests/bench/scripts_test.py

llama-bench is a stand-in here.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"
RIDGE = os.environ.get("RIDGE_BINARY", "build/cpu/ridge")
LLAMA_BENCH = """#!/usr/bin/env python3
import json, sys, time
options = dict(zip(sys.argv[1::2], sys.argv[2::2]))
time.sleep({seconds})
prompts, gens = ([int(n) for n in options[o].split(",") if n != "0"] for o in ("-p", "-n"))
rate = {rate} + (1 if options["-fa"] == "on" else 0)
print(json.dumps([dict(n_prompt=p, n_gen=0, n_depth=int(options["-d"]), samples_ts=[rate] * int(options["-r"]))
                  for p in prompts] +
                 [dict(n_prompt=0, n_gen=n, n_depth=int(options["-d"]), samples_ts=[rate] * int(options["-r"]))
                  for n in gens]))
"""
BATCHED_BENCH = """#!/usr/bin/env python3
import json, sys
options = dict(zip(sys.argv[1::2], sys.argv[2::2]))
print("main: n_kv_max = " + options["-c"])
print(json.dumps(dict(pp=int(options["-npp"]), tg=int(options["-ntg"]), pl=int(options["-npl"]), t_tg=0.25)))
"""

OPS_PEER = """
import numpy, peer_protocol
from peer_ops import OpsPeer, Way
class Peer(OpsPeer):
    def on_hello(self, request):
        return {"name": "NumPy"}
    def ways(self, op, shape, device):
        def multiply(x, w):
            return x @ w.T
        def other(x, w):
            return x @ w.T + 1
        return [Way("wrong", lambda *a: a, other, lambda out: out),
                Way("f32", lambda *a: a, multiply, lambda out: out)]
peer_protocol.serve(Peer())
"""
HELLO = {"request": "hello", "peer": "torch", "n_threads": 1, "cpus": None}
MATMUL = {"request": "op", "op": "matmul", "device": "cpu", "copies_bytes": 100000, "shape": {
    "n_rows": 3, "d_in": 64, "n_heads": 1, "d_head": 0, "weights": [{"d_out": 70, "format": "Q8_0"},
                                                                   {"d_out": 30, "format": "Q8_0"}]}}


def ask(script, *requests, arguments=(), path=None):
    """The answers of a peer, and what it wrote to standard error."""
    environment = os.environ | {"PYTHONPATH": str(path)} if path else None
    done = subprocess.run([sys.executable, str(script), *map(str, arguments)], capture_output=True, text=True,
                          input="".join(json.dumps(request) + "\n" for request in requests), timeout=120, check=False,
                          env=environment)
    return [json.loads(line) for line in done.stdout.splitlines()], done.stderr


def run(script, *arguments):
    return subprocess.run([sys.executable, str(BENCH / script), *map(str, arguments)], capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, timeout=120, check=False)


class Scripts(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.path = pathlib.Path(cls.folder.name)
        cls.model = cls.path / "tiny.gguf"
        subprocess.run([RIDGE, "synth", "tiny-llama3", "--format", "Q4_0", "-o", str(cls.model), "-q"], check=True)
        cls.slow = cls.make_peer("slow", 10, 0)
        cls.fast = cls.make_peer("fast", 20, 0)
        cls.late = cls.make_peer("late", 10, 0.7)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    @classmethod
    def make_peer(cls, name, rate, seconds):
        path = cls.path / name
        path.write_text(LLAMA_BENCH.format(rate=rate, seconds=seconds), encoding="utf-8")
        path.chmod(0o755)
        return path

    def fails(self, said, script, *arguments):
        """Ends with status 1 or 2, and its last line says so; nothing of Python's own."""
        with self.subTest(script=script, arguments=arguments):
            done = run(script, *arguments)
            self.assertIn(done.returncode, (1, 2), done.stderr)
            self.assertNotIn("Traceback", done.stderr)
            self.assertIn(said, done.stderr.splitlines()[-1])

    def compare(self, *arguments):
        return ["compare_llama_cpp.py", "-m", self.model, "--ridge", RIDGE, "-p", 8, "-n", 2, "-d", 0, "-r", 2,
                "--pilot", 1, *arguments]

    def test_what_cannot_be_run_is_said_in_one_line(self):
        not_executable = self.path / "text"
        not_executable.write_text("text", encoding="utf-8")
        for ridge, said in ((self.path / "absent", "No such file"), (not_executable, "Permission denied"),
                            ("/bin/true", "is not JSON"), ("/bin/false", "status 1")):
            for script in ("run_models.py", "checkpoints.py", "compare_llama_cpp.py"):
                model = [self.model] if script == "run_models.py" else ["-m", self.model]
                peer = ["--peer-bench", f"a={self.fast}"] if script == "compare_llama_cpp.py" else []
                self.fails(said, script, *model, *peer, "--ridge", ridge)
        for peer, said in ((self.path / "absent", "No such file"), (not_executable, "Permission denied"),
                           ("/bin/true", "is not JSON")):
            self.fails(said, *self.compare("--peer-bench", f"a={peer}"))
        self.fails("no llama-bench in native/bin", *self.compare("--peer", self.path))
        self.fails("no llama-bench", "peers/llama_cpp.py", "bench", "--folder", self.path, "-m", self.model)

    def test_a_missing_chrt_or_numpy_is_said_in_one_line(self):
        path = os.environ["PATH"]
        os.environ["PATH"] = str(self.path)
        try:
            self.fails("cannot run chrt: No such file", *self.compare("--peer-bench", f"a={self.fast}", "--realtime"))
        finally:
            os.environ["PATH"] = path
        (self.path / "numpy.py").write_text("raise ImportError('not here')", encoding="utf-8")
        os.environ["PYTHONPATH"] = str(self.path)
        try:
            self.fails("needs numpy", "peers/kl_llama_cpp.py", self.model)
        finally:
            del os.environ["PYTHONPATH"]

    def test_values_and_outputs_are_judged_before_anything_is_timed(self):
        peer = ("--peer-bench", f"a={self.late}")
        for option, value, said in (("-r", 0, "-r 0"), ("-t", 0, "-t 0"), ("--pilot", 0, "--pilot 0"),
                                    ("--cpus", "x", "--cpus x"), ("--cpus", "99999", "--cpus 99999"),
                                    ("--cpus", "", "--cpus"), ("--time-limit", "nan", "--time-limit nan"),
                                    ("--time-limit", -1, "--time-limit -1"), ("-p", "x", "-p"), ("-p", "-1", "-p"),
                                    ("-o", "/proc/x", "-o /proc/x"), ("-m", "/absent", "-m /absent"),
                                    ("-m", "synth:x", "expected synth:NAME:FORMAT"),
                                    ("--peer-bench", "x", "NAME=PATH")):
            self.fails(said, *self.compare(*peer, option, value))
        self.fails("-r 0", "checkpoints.py", "-m", self.model, "--ridge", RIDGE, "-r", 0)
        self.fails("-o /proc/x", "run_models.py", self.model, "--ridge", RIDGE, "-o", "/proc/x")
        self.fails("-n 0", "run_models.py", self.model, "--ridge", RIDGE, "-n", 0)
        self.fails("-t 0", "peers/pytorch_prompt.py", "-t", 0)
        self.fails("-o /proc/x", "peers/pytorch_prompt.py", "-o", "/proc/x")
        for script in ("peers/torch_decode.py", "peers/cublas_matvec.py"):
            self.fails("-r 0", script, "-r", 0)
            self.fails("-B", script, "-B", "1,x")
            self.fails("-o /proc/x", script, "-o", "/proc/x")
        cuda = ("peers/llama_cpp_cuda.py", "--bench", self.fast, "-m", self.model)
        self.fails("-r 0", *cuda, "-r", 0)
        self.fails("want --batched-bench", *cuda, "-B", "1,8")
        self.fails("-m /absent", *cuda, "-m", "/absent")

    def test_the_comparison_with_onednn_judges_its_values_first(self):
        program = pathlib.Path(RIDGE).parent / "onednn-gemm"
        if not program.exists():
            self.skipTest("not built: -DRIDGE_ONEDNN=ON")
        for option, value in (("--rounds", "0"), ("--rounds", "x"), ("--threads", "0"), ("--threads", "99999999999"),
                              ("--cold-mb", "0"), ("--format", "affine4"), ("-o", "/proc/x"), ("--bogus", "1")):
            with self.subTest(option=option, value=value):
                done = subprocess.run([program, option, value], capture_output=True, text=True, timeout=60, check=False)
                self.assertEqual(done.returncode, 1)
                self.assertEqual(done.stdout, "")
                self.assertRegex(done.stderr, r"\Aonednn-gemm: .*\n\Z")
                self.assertIn(value if option == "-o" else option, done.stderr)

    def test_peers_say_in_one_line_what_they_lack(self):
        lacking = self.path / "lacking"
        lacking.mkdir()
        for name in ("torch", "jax", "mlx", "llama_cpp"):
            (lacking / f"{name}.py").write_text("raise ImportError('not here')", encoding="utf-8")
        for script, name, install in (("torch_peer.py", "torch", "pip install torch"),
                                      ("jax_peer.py", "jax", 'pip install "jax[cpu]"'),
                                      ("mlx_peer.py", "mlx", 'pip install "mlx[cpu]"')):
            with self.subTest(script=script):
                try:
                    __import__("numpy")
                except ImportError:
                    self.skipTest("no numpy")
                answers, said = ask(BENCH / "peers" / script, HELLO, {"request": "other"}, path=lacking)
                self.assertEqual(len(answers), 2, said)
                self.assertIn(f"needs {name}, as of: {install}", answers[0]["error"])
                self.assertIn("does not know the request other", answers[1]["error"])

    def test_llama_bench_is_a_peer(self):
        gguf = {"request": "model", "path": str(self.model), "device": "cpu", "type_k": "f16", "type_v": "f16",
                "n_ubatch": 8, "n_positions": [9]}
        test = {"request": "test", "n_depth": 4, "prompt": [1, 2], "first": [3], "n_gen": 0}
        peer, program = BENCH / "peers" / "llama_cpp_peer.py", ("--program", self.path / "timed")
        (self.path / "timed").write_text(
            "#!/usr/bin/env python3\nimport json, sys\no = dict(zip(sys.argv[1::2], sys.argv[2::2]))\n"
            "print(json.dumps([dict(samples_ns=[1000 * int(o['-p']) + int(o['-d'])])]))", encoding="utf-8")
        (self.path / "timed").chmod(0o755)
        answers, said = ask(peer, HELLO, gguf, {"request": "fill", "tokens": [[5] * 4]}, test,
                            test | {"first": [3, 4], "prompt": [], "n_gen": 2}, arguments=program)
        self.assertEqual(said, "")
        self.assertEqual(answers[0]["name"], "llama.cpp")
        self.assertIn("draws no token", answers[1]["note"])
        self.assertEqual(answers[3], {"ns": 2004})
        self.assertIn("generates one sequence", answers[4]["error"])
        answers, _ = ask(peer, HELLO, gguf | {"path": __file__}, arguments=program)
        self.assertIn("not a GGUF file", answers[1]["error"])
        for broken, said in ((self.path / "absent", "No such file"), ("/bin/true", "is not that of llama-bench"),
                             ("/bin/false", "status 1")):
            answers, _ = ask(peer, HELLO, gguf, test, arguments=("--program", broken))
            self.assertIn(said, answers[2]["error"])

    def test_an_operator_runs_the_way_that_is_right(self):
        try:
            import numpy  # noqa: F401
        except ImportError:
            self.skipTest("no numpy")
        script = self.path / "ops" / "ops_peer.py"  # not beside what other tests have put there
        script.parent.mkdir()
        script.write_text(OPS_PEER, encoding="utf-8")
        sample = {"request": "sample", "sample_ms": 1, "run_ns": 1000}
        answers, said = ask(script, HELLO, MATMUL, sample, MATMUL | {"op": "kv_append"}, path=BENCH / "peers")
        self.assertEqual(said, "")
        self.assertEqual(answers[1]["variant"], "f32")
        self.assertLess(answers[1]["relative_l2"], 1e-5)
        self.assertEqual(answers[1]["bytes"], 4 * (3 * 64 + 100 * 64 + 3 * 100))
        self.assertGreater(answers[2]["ns"], 0)
        self.assertIn("kv_append", answers[3]["unfit"])

    def test_the_better_of_several_peers_counts(self):
        output = self.path / "folder" / "compared.json"
        done = run(*self.compare("--peer-bench", f"slow={self.slow}", "--peer-bench", f"fast={self.fast}", "--cpus",
                                 min(os.sched_getaffinity(0)), "-o", output))
        self.assertEqual(done.returncode, 0, done.stderr)
        document = json.loads(output.read_text(encoding="utf-8"))
        self.assertEqual([(r["n_prompt"], r["n_gen"]) for r in document["results"]], [(8, 0), (0, 2)])
        for result in document["results"]:
            self.assertEqual(len(result["ridge"]["samples_ts"]), 2)
            self.assertEqual(result["peer"]["samples_ts"], [21, 21])
            self.assertEqual((result["peer"]["build"], result["peer"]["flash_attn"]), ("fast", "on"))
            self.assertEqual(len(result["peer"]["pilot_ts"]), 4)

    def test_llama_cpp_on_a_gpu_is_written_as_bench_writes_its_tests(self):
        output, batched = self.path / "cuda.json", self.path / "batched"
        batched.write_text(BATCHED_BENCH, encoding="utf-8")
        batched.chmod(0o755)
        done = run("peers/llama_cpp_cuda.py", "--bench", self.fast, "--batched-bench", batched, "-m", self.model, "-p",
                   "16", "-n", 4, "-d", 32, "-B", "1,8", "-r", 3, "-o", output)
        self.assertEqual(done.returncode, 0, done.stderr)
        results = json.loads(output.read_text(encoding="utf-8"))
        self.assertEqual([(r["n_prompt"], r["n_gen"], r["n_depth"], r["n_parallel"]) for r in results],
                         [(16, 0, 0, 1), (0, 4, 32, 1), (0, 4, 32, 8)])
        for result in results:
            self.assertEqual(len(result["samples_ts"]), 3)
            self.assertEqual(result["peer"]["name"], "llama.cpp")
            self.assertIn("driver", result["machine"])
        self.assertEqual(results[2]["median_ts"], 8 * 4 / 0.25)
        self.fails("no line of JSON", "peers/llama_cpp_cuda.py", "--bench", self.fast, "--batched-bench", "/bin/true",
                   "-m", self.model, "-p", 0, "-B", 8)

    def test_at_a_time_limit_what_there_is_is_written(self):
        output = self.path / "cut.json"
        begin = time.monotonic()
        done = run(*self.compare("--peer-bench", f"a={self.late}", "-fa", "on", "-d", "0,16,32", "-r", 50,
                                 "--time-limit", 12, "-o", output))
        self.assertLess(time.monotonic() - begin, 25)
        self.assertEqual(done.returncode, 0, done.stderr)
        results = json.loads(output.read_text(encoding="utf-8"))["results"]
        self.assertEqual([(r["n_depth"], r["n_prompt"], r["n_gen"]) for r in results],
                         [(0, 8, 0), (0, 0, 2), (16, 0, 2), (32, 0, 2)], "each depth has its share")
        for result in results:
            self.assertEqual(len(result["ridge"]["samples_ts"]), len(result["peer"]["samples_ts"]))
            self.assertLess(len(result["peer"]["samples_ts"]), 50)
        self.fails("no round was ended", *self.compare("--peer-bench", f"a={self.late}", "--time-limit", 0.3))

    def test_the_json_of_runs_has_the_fields_of_bench(self):
        output = self.path / "runs.json"
        done = run("run_models.py", self.model, "--ridge", RIDGE, "-r", 2, "-n", 4, "-o", output)
        self.assertEqual(done.returncode, 0, done.stderr)
        bench = subprocess.run([RIDGE, "bench", "-m", str(self.model), "-p", "1", "-n", "0", "-r", "1", "-o", "json",
                                "-q"], capture_output=True, check=True)
        fields = json.loads(bench.stdout)[0]
        prompt, generated = json.loads(output.read_text(encoding="utf-8"))
        missing = {"n_ubatch", "read_wall_gbps", "read_walls_gbps", "bytes_per_token", "read_bytes_per_token",
                   "share_of_wall", "streamed_layers", "stream_bytes_per_step", "link_gbps", "links_gbps",
                   "share_of_link"}
        for result in prompt, generated:
            self.assertEqual(set(fields) - set(result), missing)
            for key in ("machine", "build_commit", "model_type", "model_size", "isa", "checkpoint", "fallbacks"):
                self.assertEqual(result[key], fields[key], key)
            self.assertEqual(len(result["samples_ts"]), 2)
            n_tokens = result["n_prompt"] + result["n_gen"]
            for ns, rate in zip(result["samples_ns"], result["samples_ts"]):
                self.assertAlmostEqual(rate * ns * 1e-9 / n_tokens, 1, places=3)
        self.assertEqual(generated["n_depth"], prompt["n_prompt"])
        self.assertEqual(generated["n_gen"], 3)


if __name__ == "__main__":
    unittest.main()
