"""What a peer of `ridge bench --peer` and `ridge bench ops --peer` does: requests and answers, a line of JSON each.

README.md beside this file says which there are. A peer is a class with a method for each request that it knows, which
gets the request and gives the answer, a dict. What it cannot do it says by Refused, in one line.
"""
import json
import os
import sys
import time


class Refused(Exception):
    """One line: what is missing, or cannot be done."""


def hide_own_folder():
    """Modules are no longer looked for beside the script."""
    own = os.path.dirname(os.path.abspath(__file__))
    sys.path = [path for path in sys.path if os.path.abspath(path) != own]


def need(module, install):
    """The module; Refused with what to install where it is missing."""
    try:
        return __import__(module)
    except ImportError as error:
        raise Refused(f"needs {module}, as of: {install} ({error})") from None


def prepare(request):
    """The CPUs and threads that a hello allows, before a library is loaded that looks at them. Threads that wait must
    not look for work for long: the next turn is another program's."""
    n_threads, cpus = request["n_threads"], request["cpus"]
    os.environ["OMP_NUM_THREADS"] = str(n_threads)
    os.environ.setdefault("KMP_BLOCKTIME", "10")
    if cpus:
        os.sched_setaffinity(0, cpus)
        os.environ["OMP_PROC_BIND"] = "true"
        os.environ["OMP_PLACES"] = ",".join(f"{{{cpu}}}" for cpu in cpus)
    return n_threads


def timed(function):
    """Nanoseconds, and what the function returned."""
    begin = time.perf_counter_ns()
    value = function()
    return time.perf_counter_ns() - begin, value


def serve(peer):
    """Answers until there are no more requests. What libraries print goes to standard error."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for line in sys.stdin:
        try:
            request = json.loads(line)
            method = getattr(peer, "on_" + request["request"], None)
            if method is None:
                raise Refused(f"does not know the request {request['request']}")
            answer = method(request)
        except Refused as error:
            answer = {"error": " ".join(str(error).split())}
        except Exception as error:  # whatever a library throws ends this request alone
            answer = {"error": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
