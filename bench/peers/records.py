"""What the JSON of the peers has in common with that of `ridge bench`: the machine, the time, the samples."""
import argparse
import datetime
import os
import pathlib
import platform
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import programs  # noqa: E402


def cpu_name():
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def nvidia_driver():
    """ "580.159.04"; empty where there is no driver, or it does not say."""
    try:
        words = pathlib.Path("/proc/driver/nvidia/version").read_text(encoding="utf-8").split()
    except OSError:
        words = []
    return next((word for word in words if "." in word and word.replace(".", "").isdigit()), "")


def machine(gpu=None, runtime=None):
    """`gpu`: its name, where one runs the work; `runtime`: "CUDA 13.0"."""
    said = {"cpu": cpu_name(), "n_cpus": len(os.sched_getaffinity(0)),
            "os": f"{platform.system()} {platform.release()} {platform.machine()}"}
    if gpu:
        said |= {"gpu": gpu, "driver": nvidia_driver(), "runtime": runtime}
    return said


def torch_machine(torch, device):
    if device == "cpu":
        return machine()
    return machine(torch.cuda.get_device_name(), f"CUDA {torch.version.cuda}")


def torch_for(device):
    """The module; ends the script where it is missing, or finds no GPU that is wanted."""
    try:
        import torch
    except ImportError as error:
        programs.fail(f"needs torch, as of: pip install torch ({error})")
    if device == "cuda" and not torch.cuda.is_available():
        programs.fail("--device cuda: torch finds no GPU")
    return torch


def now():
    return datetime.datetime.now(datetime.timezone.utc)


def when(begin):
    return {"date": begin.date().isoformat(), "test_time": begin.strftime("%Y-%m-%dT%H:%M:%SZ")}


def rates(samples_ns, n_tokens):
    """Of a test of n_tokens tokens, those of all sequences counted."""
    samples_ts = [n_tokens * 1e9 / ns for ns in samples_ns]
    return {"median_ns": round(statistics.median(samples_ns)), "avg_ts": statistics.mean(samples_ts),
            "stddev_ts": statistics.stdev(samples_ts) if len(samples_ts) > 1 else 0.0,
            "median_ts": statistics.median(samples_ts), "samples_ns": samples_ns, "samples_ts": samples_ts}


def numbers(text):
    """For argparse: "1,8" as [1, 8]."""
    try:
        values = [int(word) for word in text.split(",")]
    except ValueError:
        values = [-1]
    if min(values) < 0:
        raise argparse.ArgumentTypeError(f"{text!r}: expected numbers with commas between, none below 0")
    return values
