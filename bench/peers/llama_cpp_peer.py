#!/usr/bin/env python3
"""llama.cpp as a peer of `ridge bench`: through llama-cpp-python where it is there, else by running llama-bench.

    ridge bench -m model.gguf --peer llama.cpp --peer-python python3
    ridge bench -m model.gguf --peer llama.cpp --peer-program build/bin/llama-bench

llama-cpp-python keeps the model loaded, computes the same tokens and draws the most probable ones as Ridge does.
llama-bench is a fresh process each time, with a warm-up of its own; it draws no token, and knows one sequence.
"""
import argparse
import ctypes
import json
import shutil
import subprocess

import peer_protocol
from peer_models import ModelsPeer, check_gguf
from peer_protocol import Refused

INSTALL = ("pip install llama-cpp-python for the Python that --peer-python names, or put llama-bench on PATH, or name it "
           "by --peer-program")
GGML_TYPES = {"f32": 0, "f16": 1, "q8_0": 8, "bf16": 30}
READER = "llama.cpp"


class Bindings(ModelsPeer):
    """The model in this process, by the functions of llama.h; it is its own decoder."""
    reader = READER

    def __init__(self, llama_cpp, numpy, n_threads):
        self.lib, self.numpy, self.n_threads = llama_cpp, numpy, n_threads
        self.last_words = []
        self.log = llama_cpp.llama_log_callback(self.note)  # kept, since C holds no reference
        llama_cpp.llama_log_set(self.log, ctypes.c_void_p(0))

    def note(self, level, text, _):
        if level >= 3 and text.strip():  # warnings and errors
            self.last_words = [*self.last_words[-3:], text.decode("utf-8", "replace").strip()]

    def refuse(self, what):
        raise Refused(f"{what}: {self.last_words[-1] if self.last_words else 'no reason given'}")

    def open_model(self, request):
        lib = self.lib
        lib.llama_backend_init()
        params = lib.llama_model_default_params()
        params.n_gpu_layers = 999 if request["device"] == "cuda" else 0
        self.model = lib.llama_model_load_from_file(request["path"].encode(), params)
        if not self.model:
            self.refuse(f"{request['path']} cannot be read")
        params = lib.llama_context_default_params()
        n_positions = request["n_positions"]
        params.n_seq_max = len(n_positions)
        params.kv_unified = True
        params.n_ctx = sum(n_positions) + 64
        params.n_batch = params.n_ubatch = request["n_ubatch"]
        params.n_threads = params.n_threads_batch = self.n_threads
        params.type_k, params.type_v = GGML_TYPES[request["type_k"]], GGML_TYPES[request["type_v"]]
        params.no_perf = True
        self.context = lib.llama_init_from_model(self.model, params)
        if not self.context:
            self.refuse("no context")
        self.memory = lib.llama_get_memory(self.context)
        self.batch = lib.llama_batch_init(request["n_ubatch"], 0, len(n_positions))
        self.n_vocab = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(self.model))
        return self, {"weights": "those of the file",
                      "note": "stays loaded; draws the most probable token, as Ridge does"}

    def on_fill(self, request):
        answer = super().on_fill(request)
        self.lib.llama_synchronize(self.context)
        return answer

    def forget(self, sequence, begin):
        super().forget(sequence, begin)
        self.lib.llama_memory_seq_rm(self.memory, sequence, begin, -1)

    def decode(self, rows):
        """Of each the token, position, sequence, and whether logits are wanted."""
        batch = self.batch
        batch.n_tokens = len(rows)
        for i, (token, position, sequence, wants_logits) in enumerate(rows):
            batch.token[i], batch.pos[i], batch.n_seq_id[i] = token, position, 1
            batch.seq_id[i][0], batch.logits[i] = sequence, wants_logits
        status = self.lib.llama_decode(self.context, batch)
        if status != 0:
            self.refuse(f"llama_decode: status {status}")

    def draw(self, i):
        """The most probable token of the batch's row i: over all logits, as a greedy sampler does."""
        logits = self.numpy.ctypeslib.as_array(self.lib.llama_get_logits_ith(self.context, i), (self.n_vocab,))
        return int(logits.argmax())

    def rows(self, sequence, position, tokens, wants_logits):
        self.decode([(token, position + i, sequence, wants_logits and i + 1 == len(tokens))
                     for i, token in enumerate(tokens)])
        return self.draw(-1) if wants_logits else None

    def step(self, tokens, position):
        self.decode([(token, position, sequence, True) for sequence, token in enumerate(tokens)])
        return [self.draw(i) for i in range(len(tokens))]


class Program:
    """llama-bench, once for each sample."""

    def __init__(self, program, n_threads, cpus):
        self.program, self.n_threads, self.cpus = program, n_threads, cpus

    def on_model(self, request):
        check_gguf(request["path"], READER)
        self.opened = request
        return {"weights": "those of the file", "note": "llama-bench: a process for each sample, which draws no token"}

    def on_fill(self, _):
        return {}

    def on_test(self, request):
        opened = self.opened
        if len(request["first"]) > 1 or (request["prompt"] and request["n_gen"]):
            raise Refused("llama-bench generates one sequence, and times prompts apart from it; llama-cpp-python "
                          "(pip install llama-cpp-python) does both")
        command = [self.program, "-m", opened["path"], "-t", str(self.n_threads), "-p", str(len(request["prompt"])),
                   "-n", str(request["n_gen"]), "-d", str(request["n_depth"]), "-r", "1", "-ub",
                   str(opened["n_ubatch"]), "-ctk", opened["type_k"], "-ctv", opened["type_v"], "-ngl",
                   "999" if opened["device"] == "cuda" else "0", "-o", "json"]
        if self.cpus:
            command += ["-C", hex(sum(1 << cpu for cpu in self.cpus)), "--cpu-strict", "1"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
            if done.returncode != 0:
                lines = done.stderr.strip().splitlines() or ["no message"]
                raise Refused(f"{self.program}: status {done.returncode}: {lines[-1]}")
            return {"ns": json.loads(done.stdout)[0]["samples_ns"][0]}
        except OSError as error:
            raise Refused(f"{self.program}: {error.strerror}; {INSTALL}") from None
        except (ValueError, LookupError):
            raise Refused(f"{self.program}: its output is not that of llama-bench") from None


class LlamaCpp:
    def __init__(self, program):
        self.program = program

    def on_hello(self, request):
        n_threads = peer_protocol.prepare(request)
        try:
            if self.program:
                raise ImportError
            peer_protocol.hide_own_folder()  # its llama_cpp.py is another
            import llama_cpp
            import numpy
        except ImportError:
            program = self.program or shutil.which("llama-bench")
            if not program:
                raise Refused(f"neither llama_cpp nor llama-bench is there: {INSTALL}") from None
            self.way = Program(program, n_threads, request["cpus"])
            return {"name": "llama.cpp", "version": f"({program})"}
        self.way = Bindings(llama_cpp, numpy, n_threads)
        return {"name": "llama.cpp", "version": f"(llama-cpp-python {llama_cpp.__version__})"}

    def on_model(self, request):
        return self.way.on_model(request)

    def on_fill(self, request):
        return self.way.on_fill(request)

    def on_test(self, request):
        return self.way.on_test(request)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", help="a llama-bench, in place of llama-cpp-python")
    peer_protocol.serve(LlamaCpp(parser.parse_args().program))


if __name__ == "__main__":
    main()
