#!/usr/bin/env python3
"""Follows docs/your-kernel.md word for word, in a copy of the sources: its file, its two changes, its commands.

    tests/docs/your_kernel_test.py FOLDER

FOLDER is emptied, and the copy is built in it.
"""
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCES = ("CMakeLists.txt", "CMakePresets.json", "cmake", "src", "tests/CMakeLists.txt")


def blocks(page):
    """(language, text) of each fenced block, in order."""
    return re.findall(r"^```(\w+)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


def apply_diff(text, diff):
    """The text with a change whose lines all begin with a blank or a plus: what is around it must be there once."""
    before = "".join(line[1:] + "\n" for line in diff.splitlines() if line[0] == " ")
    after = "".join(line[1:] + "\n" for line in diff.splitlines())
    assert text.count(before) == 1, f"not there once:\n{before}"
    return text.replace(before, after)


def run(command, folder):
    done = subprocess.run(["bash", "-ec", command], cwd=folder, capture_output=True, text=True, check=False,
                          stdin=subprocess.DEVNULL)
    print(f"$ {command}\n{done.stdout[-3000:]}{done.stderr[-3000:]}", flush=True)
    assert done.returncode == 0, f"status {done.returncode}"
    return done.stdout + done.stderr


def main():
    folder = pathlib.Path(sys.argv[1]) / "checkout"
    shutil.rmtree(folder, ignore_errors=True)
    for name in SOURCES:
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, target)

    page = (ROOT / "docs/your-kernel.md").read_text(encoding="utf-8")
    found = blocks(page)
    sources = [text for language, text in found if language == "cpp"]
    changes = [text for language, text in found if language == "diff"]
    commands = [line for language, text in found if language == "sh" for line in text.splitlines()]
    assert (len(sources), len(changes)) == (1, 2), found
    assert len(commands) == 6, commands

    (folder / "src/cpu/mine.h").write_text(sources[0], encoding="utf-8")
    checkpoints = folder / "src/cpu/checkpoints.cpp"
    text = checkpoints.read_text(encoding="utf-8")
    for change in changes:
        text = apply_diff(text, change)
    checkpoints.write_text(text, encoding="utf-8")

    output = [run(command, folder) for command in commands]
    for said, part in ((output[2], "mine"), (output[3], "mine"), (output[4], "| mine "),
                       (output[5], "rms_norm by mine")):
        assert part in said, f"{part!r} is not in:\n{said}"


if __name__ == "__main__":
    main()
