"""Runs the programs that the scripts of this folder time. What cannot be run, or fails, ends the script in one line."""
import json
import pathlib
import subprocess
import sys


class OutOfTime(Exception):
    """A program was stopped since it ran longer than it was given."""


def fail(message):
    sys.exit(f"{pathlib.Path(sys.argv[0]).name}: {message}")


def check_ranges(*options):
    """Each of them: (name, value, least, most)."""
    for name, value, least, most in options:
        if not least <= value <= most:
            fail(f"{name} {value}: expected {least} to {most}")


def output_of(command, timeout=None):
    """What a command writes to standard output. Raises OutOfTime after `timeout` seconds (None: no limit)."""
    command = [str(word) for word in command]
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=timeout, check=False)
    except OSError as error:
        fail(f"cannot run {command[0]}: {error.strerror}")
    except subprocess.TimeoutExpired:
        raise OutOfTime from None
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["no message"]
        fail(f"{' '.join(command)}: status {done.returncode}: {lines[-1]}")
    return done.stdout


def json_of(command, timeout=None):
    """The JSON that a command writes to standard output."""
    output = output_of(command, timeout)
    try:
        return json.loads(output)
    except ValueError:
        fail(f"{' '.join(str(word) for word in command)}: its output is not JSON")


def prepare_output(path):
    """Makes the folder of a file that is to be written, and makes sure that it can be, before anything is timed."""
    try:
        pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
        with open(path, "a", encoding="utf-8"):
            pass
    except OSError as error:
        fail(f"-o {path}: {error.strerror}")


def write_json(path, document):
    try:
        pathlib.Path(path).write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    except OSError as error:
        fail(f"-o {path}: {error.strerror}")


def write_results(path, results):
    """To the file, or where there is none to standard output."""
    if path:
        write_json(path, results)
    else:
        print(json.dumps(results, indent=1))
