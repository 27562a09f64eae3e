#!/usr/bin/env python3
"""Builds and times llama.cpp, from the source inside the source package of llama-cpp-python.

    bench/peers/llama_cpp.py build --folder /opt/peer
    bench/peers/llama_cpp.py bench --folder /opt/peer -m model.gguf -p 512 -n 32 -d 0,2048 -r 5 -o peer.json

`build` makes llama-bench and llama-perplexity, statically linked, for the processor that it runs on: in
FOLDER/native/bin, and on a processor with AMX once more without it in FOLDER/no-amx/bin, since either of the two may
be the faster one. What is there already is not made again. `bench` runs llama-bench of the chosen build and writes its
JSON. The folder must lie outside the checkout.
"""
import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import programs  # noqa: E402
import records  # noqa: E402

VERSION = "0.3.36"
PACKAGE = f"llama-cpp-python=={VERSION}"
TOOLS = ["llama-bench", "llama-perplexity"]
AMX_OFF = "-mno-amx-tile -mno-amx-int8 -mno-amx-bf16"

# GCC 12's _tile_loadconfig says that it reads 8 bytes of the 64-byte configuration, so the stores to the others may be
# dropped, and the first tile load then raises SIGILL. The barrier keeps them.
TILE_LOAD = "    _tile_loadconfig(&tc);\n"
BARRIER = '    __asm__ volatile("" ::: "memory");\n'


def run(command, **options):
    print("+ " + " ".join(str(word) for word in command), file=sys.stderr, flush=True)
    try:
        status = subprocess.run([str(word) for word in command], check=False, **options).returncode
    except OSError as error:
        programs.fail(f"cannot run {command[0]}: {error.strerror}")
    if status != 0:
        programs.fail(f"{command[0]}: status {status}")


def has_amx():
    try:
        return " amx_tile" in pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return False


def make_python(folder):
    """A virtual environment with what the package needs to be read, and with CMake and Ninja."""
    python = folder / "venv" / "bin" / "python"
    if not (folder / "venv" / "bin" / "ninja").exists():
        import venv  # not on every machine that only times
        venv.create(folder / "venv", with_pip=True)
        run([python, "-m", "pip", "install", "-q", "scikit-build-core", "cmake", "ninja"])
    return python


def fetch_source(folder, python):
    """vendor/llama.cpp of the source package, as FOLDER/llama.cpp."""
    source = folder / "llama.cpp"
    if source.exists():
        return source
    package = folder / "source" / f"llama_cpp_python-{VERSION}.tar.gz"
    if not package.exists():
        run([python, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:", "--no-build-isolation",
             PACKAGE, "-d", package.parent])
    prefix = f"llama_cpp_python-{VERSION}/vendor/llama.cpp/"
    unpacking = folder / "unpacking"
    shutil.rmtree(unpacking, ignore_errors=True)
    with tarfile.open(package) as tar:
        members = [m for m in tar.getmembers() if m.name.startswith(prefix)]
        tar.extractall(unpacking, members=members, filter="data")
    (unpacking / prefix).rename(source)
    shutil.rmtree(unpacking)
    return source


def add_barrier(source):
    path = source / "ggml" / "src" / "ggml-cpu" / "amx" / "mmq.cpp"
    text = path.read_text(encoding="utf-8")
    if BARRIER + TILE_LOAD in text:
        return
    if text.count(TILE_LOAD) != 1:
        programs.fail(f"{path}: expected one line {TILE_LOAD.strip()}, found {text.count(TILE_LOAD)}")
    path.write_text(text.replace(TILE_LOAD, BARRIER + TILE_LOAD), encoding="utf-8")


def compile_tools(folder, source, name, flags, jobs):
    build = folder / name
    programs = [build / "bin" / tool for tool in TOOLS]
    if all(program.exists() for program in programs):
        return
    scripts = folder / "venv" / "bin"
    run([scripts / "cmake", "-S", source, "-B", build, "-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={scripts / 'ninja'}",
         "-DCMAKE_BUILD_TYPE=Release", "-DBUILD_SHARED_LIBS=OFF", "-DGGML_NATIVE=ON", "-DLLAMA_CURL=OFF",
         "-DLLAMA_OPENSSL=OFF", "-DLLAMA_BUILD_TESTS=OFF", "-DLLAMA_BUILD_EXAMPLES=OFF", "-DLLAMA_BUILD_SERVER=OFF",
         "-DLLAMA_BUILD_APP=OFF", f"-DCMAKE_C_FLAGS={flags}", f"-DCMAKE_CXX_FLAGS={flags}"],
        stdout=subprocess.DEVNULL)
    run(["nice", "-n", "10", scripts / "cmake", "--build", build, "-j", jobs, "--target", *TOOLS],
        stdout=sys.stderr)


def build(folder, jobs):
    folder = pathlib.Path(folder).resolve()
    checkout = pathlib.Path(__file__).resolve().parents[2]
    if folder == checkout or checkout in folder.parents:
        programs.fail(f"--folder {folder}: expected a folder outside the checkout {checkout}")
    folder.mkdir(parents=True, exist_ok=True)
    source = fetch_source(folder, make_python(folder))
    add_barrier(source)
    compile_tools(folder, source, "native", "", jobs)
    if has_amx():
        compile_tools(folder, source, "no-amx", AMX_OFF, jobs)


def builds(folder, tool="llama-bench"):
    """The builds that are there, by name: {"native": path} and, on a processor with AMX, {"no-amx": path} too."""
    found = {name: pathlib.Path(folder) / name / "bin" / tool for name in ("native", "no-amx")}
    found = {name: path for name, path in found.items() if path.exists()}
    if not found:
        programs.fail(f"{folder}: no {tool} in native/bin; make it with: bench/peers/llama_cpp.py build --folder "
                      f"{folder}")
    return found


def bench(program, model, n_threads, n_prompt, n_gen, n_depth, repeats=1, flash_attn="auto", type_k="f16",
          type_v="f16", prefix=(), timeout=None):
    """One run of llama-bench: the list of its results. n_prompt, n_gen and n_depth are lists; 0 leaves a test out.
    `prefix` is put before the command, as in ["chrt", "--rr", "10"]; after `timeout` seconds programs.OutOfTime."""
    def joined(values):
        return ",".join(str(v) for v in values)
    return programs.json_of(
        [*prefix, program, "-m", model, "-t", n_threads, "-p", joined(n_prompt), "-n", joined(n_gen), "-d",
         joined(n_depth), "-r", repeats, "-fa", flash_attn, "-ctk", type_k, "-ctv", type_v, "-o", "json"], timeout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("build", help="fetch, patch and compile")
    one.add_argument("--folder", required=True)
    one.add_argument("-j", "--jobs", type=int, default=os.cpu_count())
    one = commands.add_parser("bench", help="run llama-bench")
    one.add_argument("--folder", required=True)
    one.add_argument("--build", default="native", choices=["native", "no-amx"])
    one.add_argument("-m", "--model", action="append", required=True, help="repeatable")
    one.add_argument("-t", "--threads", type=int, default=2)
    one.add_argument("-p", "--n-prompt", type=records.numbers, default=[512])
    one.add_argument("-n", "--n-gen", type=records.numbers, default=[32])
    one.add_argument("-d", "--n-depth", type=records.numbers, default=[0])
    one.add_argument("-r", "--repeats", type=int, default=5)
    one.add_argument("-fa", "--flash-attn", default="auto", choices=["on", "off", "auto"])
    one.add_argument("-o", "--output", help="file for the JSON; default: standard output")
    options = parser.parse_args()

    if options.command == "build":
        build(options.folder, options.jobs)
        return
    if options.output:
        programs.prepare_output(options.output)
    found = builds(options.folder)
    if options.build not in found:
        programs.fail(f"--build {options.build}: not in {options.folder}; there is {', '.join(found)}")
    results = []
    for model in options.model:
        results += bench(found[options.build], model, options.threads, options.n_prompt, options.n_gen,
                         options.n_depth, options.repeats, options.flash_attn)
    programs.write_results(options.output, results)


if __name__ == "__main__":
    main()
