"""The engines' processes: asking them, giving up those that hang, and timing them in turn."""

import json
import os
import select
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from engines import FLAGGED, ON_DEVICE

HERE = Path(__file__).parent
# Without it MJX and its like take seconds a step on a CPU; jaxjoints runs on JAX's defaults.
CPU_FLAGS = "--xla_cpu_use_fusion_emitters=false"


class Process:
    """One engine in its process, started again when it died or was given up.

    platform: where engines on JAX compute
    patience: seconds after which one that does not answer is given up: MJX hangs at times on few
        cores
    """

    def __init__(self, name: str, platform: str, patience: float):
        self.name, self.platform, self.patience = name, platform, patience
        self.process = None

    def ask(self, do: str, **request) -> dict | list:
        """The engine's answer to one request."""
        if self.process is None or self.process.poll() is not None:
            self.process = self._started()
        self.process.stdin.write(json.dumps(request | {"do": do}) + "\n")
        self.process.stdin.flush()
        if not select.select([self.process.stdout], [], [], self.patience)[0]:
            self.process.kill()
            self.process.wait()
            return {"failed": f"no answer within {self.patience:g} s"}
        line = self.process.stdout.readline()
        if not line:
            self.process.wait()
            return {"failed": "the process died"}
        return json.loads(line)

    def _started(self) -> subprocess.Popen:
        environment = os.environ | {"PYTHONWARNINGS": "ignore", "TF_CPP_MIN_LOG_LEVEL": "3"}
        environment["JAX_PLATFORMS"] = self.platform if self.name in ON_DEVICE else "cpu"
        path = environment.get("PYTHONPATH", "")
        environment["PYTHONPATH"] = os.pathsep.join([str(HERE.parents[1]), path])
        if self.name in FLAGGED and self.platform == "cpu":
            environment["XLA_FLAGS"] = f"{environment.get('XLA_FLAGS', '')} {CPU_FLAGS}".strip()
            # With as many threads as two cores, MJX on 1024 environments waits for itself for good;
            # with eight it takes a quarter longer than with one.
            environment.setdefault("NPROC", "1")
        return subprocess.Popen(
            [sys.executable, str(HERE / "worker.py"), self.name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )

    def close(self) -> None:
        """End the process."""
        if self.process is not None:
            self.process.stdin.close()
            self.process.wait()


def answers(
    processes: Iterable[Process], do: str, **request
) -> tuple[dict[Process, dict | list], dict[Process, str]]:
    """What each engine says that can do what is asked, and why the others cannot."""
    found, problems = {}, {}
    for process in processes:
        reply = process.ask(do, **request)
        if problem := _problem(reply):
            problems[process] = problem
        else:
            found[process] = reply
    return found, problems


def rounds(
    processes: Iterable[Process], do: str, count: int
) -> tuple[dict[Process, list[list]], dict[Process, str]]:
    """(Seconds, CPU seconds) of everything that an engine times, for each round, in turn; and why
    there are none of some engines.
    """
    times, problems = {process: [] for process in processes}, {}
    for _ in range(count):
        for process in list(times):
            reply = process.ask(do)
            if problem := _problem(reply):
                problems[process] = problem
                del times[process]
            else:
                times[process].append(reply["seconds"])
    return times, problems


def _problem(reply: dict | list) -> str:
    """Why there is no answer, "" if there is one."""
    match reply:
        case {"absent": reason}:
            return f"left out: {reason}; pip install -e '.[peers]' in the checkout"
        case {"unfit": reason}:
            return f"left out: {reason}"
        case {"failed": reason}:
            return f"failed: {reason}"
    return ""
