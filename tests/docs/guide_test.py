#!/usr/bin/env python3
"""Holds docs/guide.md against the program: its commands, their options and values, its files and links.

    RIDGE_BINARY=build/cpu/ridge tests/docs/guide_test.py FOLDER

Each command runs twice: as it stands, but on a model that is not there, which is said once all that was typed has been
checked; then on a tiny model of random weights and with few samples. `roofline`, whose measuring takes seconds however
small the model is, does not run. FOLDER is emptied, and is where the commands write.
"""
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/guide.md"
MODEL = "synth:tiny-llama3:Q4_1"
MISSING = "not-there.gguf"
# What follows the guide's own options: the last one given counts.
LESS = {
    "run": ["-n", "2"],
    "trace": ["-r", "1"],
    "bench": ["-r", "1"],
    "bench ops": ["-r", "1", "-B", "0", "-p", "1"],
    "bench progression": ["-r", "1", "--no-verify"],
    "tune": ["--budget", "1"],
}
# Other programs, which a test does not install.
OTHERS = ["--peer", "--peer-python"] + ([] if shutil.which("gnuplot") else ["--plot"])


def command_lines(page):
    """Each line of the fenced blocks of shell, those that end in a backslash joined with the next."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.replace("\\\n", " ").splitlines() if line.strip()]


def without_others(words):
    kept = []
    for word in words:
        if kept and kept[-1] in OTHERS:
            kept.pop()
        else:
            kept.append(word)
    return kept


def run(binary, words, folder):
    environment = {**{name: value for name, value in os.environ.items() if not name.startswith("RIDGE_")},
                   "XDG_CACHE_HOME": str(folder / "cache")}
    return subprocess.run([binary, *words], cwd=folder, env=environment, capture_output=True, text=True, check=False,
                          stdin=subprocess.DEVNULL, timeout=120)


def check_command(binary, words, folder):
    name = " ".join(words[:2]) if words[:2] in (["bench", "ops"], ["bench", "progression"]) else words[0]
    shown = run(binary, [*name.split(), "--help"], folder)
    assert shown.returncode == 0, f"ridge {name} --help: {shown.stderr}"
    known = re.findall(r"(?<![\w-])--?[a-z][\w-]*", shown.stdout)
    for word in words:
        if re.match(r"--?[a-z]", word):
            assert word in known, f"ridge {name} has no {word}"

    listed = run(binary, ["synth", "--list"], folder).stdout.split()
    for word in words:
        assert not word.startswith("synth:") or word.split(":")[1] in listed, f"{word} is not listed"
    words = without_others(words)
    if "-m" in words:
        place = words.index("-m") + 1
        words[place] = MISSING
        done = run(binary, words, folder)
        assert done.returncode == 1 and MISSING in done.stderr, f"{words}: {done.stderr}"
        words[place] = MODEL
    if name == "roofline":
        return
    less = [] if "--show" in words else LESS.get(name, [])  # which measures nothing
    done = run(binary, [*words, *less], folder)
    if name == "tune":  # what is found in a second may be nothing
        assert done.returncode == 0 or "nothing is kept" in done.stderr, f"{words}: {done.stderr}"
        return
    assert done.returncode == 0, f"{words}: status {done.returncode}: {done.stderr}"
    assert done.stdout, f"{words} printed nothing"


def check_links(page):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page):
        if not target.startswith("https://"):
            assert (PAGE.parent / target).exists(), f"{target} is not there"


def main():
    folder = pathlib.Path(sys.argv[1])
    binary = str(pathlib.Path(os.environ["RIDGE_BINARY"]).resolve())
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "build").mkdir(parents=True)

    page = PAGE.read_text(encoding="utf-8")
    check_links(page)
    n_commands = 0
    for line in command_lines(page):
        print(f"$ {line}", flush=True)
        words = shlex.split(line.replace("$M", MODEL))
        if words[0] == "build/cpu/ridge":
            check_command(binary, words[1:], folder)
            n_commands += 1
        elif re.match(r"(\w+/)+[\w-]+$", words[0]):
            assert (ROOT / words[0]).exists(), f"{words[0]} is not there"
        for word in words[1:]:
            if word.startswith("scripts/"):
                assert (ROOT / word).exists(), f"{word} is not there"
    assert n_commands >= 10, f"only {n_commands} commands were found"


if __name__ == "__main__":
    main()
