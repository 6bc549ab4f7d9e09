"""A chain of ten links in jaxjoints, MuJoCo and MJX: speed, compile time, cost of gradients.

    python tests/benchmarks/run.py            everything, about a quarter of an hour on two cores
    python tests/benchmarks/run.py --quick    batches 1 and 64, two rounds
    python tests/benchmarks/run.py --batches 1024 --rounds 9 --cases limits

Needs the extra `bench` (mujoco and mujoco-mjx); an engine that is not installed is left out, with a
line that says so. Every engine lives in a process of its own. For each case all of them build the
same chain (`chain.py`) one after another and are then timed in turn, round after round, so that
whatever else the machine does meets all of them alike: quote ratios within one table. Rates are
medians over the rounds, spread is (largest - smallest) / median, "CPU us" the processor time of one
environment-step over all threads, which other work on the machine disturbs least. JAX runs in
float32 and MuJoCo in float64; MJX gets the XLA option without which it takes seconds a step on a
CPU; jaxjoints runs on JAX's defaults, with `use_all_cores`. All engines integrate with the same
time step and must stand at the same angles after the run: within `AGREE` without limits, asserted;
with limits their stops differ in softness and the angles are printed only.
"""

import argparse
import json
import os
import select
import statistics
import subprocess
import sys
from pathlib import Path

import chain
from engines import ENGINES

HERE = Path(__file__).parent
AGREE = 1e-3
MJX_FLAGS = "--xla_cpu_use_fusion_emitters=false"
GRADIENT_BATCH = 64
# Seconds after which an engine that does not answer is given up: MJX hangs at times on few cores.
PATIENCE = 180
CHECKPOINT = 10


class Engine:
    """One engine in its process."""

    def __init__(self, name: str):
        self.name = name
        self.process = self._started()

    def ask(self, do: str, **request) -> dict:
        """The engine's answer to one request."""
        if self.process.poll() is not None:
            # It hung or died in an earlier case.
            self.process = self._started()
        self.process.stdin.write(json.dumps(request | {"do": do}) + "\n")
        self.process.stdin.flush()
        if not select.select([self.process.stdout], [], [], PATIENCE)[0]:
            self.process.kill()
            self.process.wait()
            return {"failed": f"no answer within {PATIENCE} s"}
        line = self.process.stdout.readline()
        if not line:
            self.process.wait()
            return {"failed": "the process died"}
        return json.loads(line)

    def _started(self) -> subprocess.Popen:
        environment = os.environ | {"PYTHONWARNINGS": "ignore", "TF_CPP_MIN_LOG_LEVEL": "3"}
        environment.setdefault("JAX_PLATFORMS", "cpu")
        path = environment.get("PYTHONPATH", "")
        environment["PYTHONPATH"] = os.pathsep.join([str(HERE.parents[1]), path])
        if self.name == "mjx":
            environment["XLA_FLAGS"] = f"{environment.get('XLA_FLAGS', '')} {MJX_FLAGS}".strip()
        return subprocess.Popen(
            [sys.executable, str(HERE / "engines.py"), self.name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )

    def close(self) -> None:
        """End the process."""
        self.process.stdin.close()
        self.process.wait()


def started(engines: list[Engine], do: str, **request) -> dict[Engine, dict]:
    """Facts about each engine that can do what is asked, which makes it ready to be timed."""
    facts = {}
    for engine in engines:
        reply = engine.ask(do, **request)
        if "absent" in reply:
            print(
                f"  {engine.name:18s} left out: {reply['absent']}; pip install 'jaxjoints[bench]'"
            )
        elif "failed" in reply:
            print(f"  {engine.name:18s} failed: {reply['failed']}")
        else:
            facts[engine] = reply
    return facts


def rounds(engines, do: str, count: int) -> dict[Engine, list[list]]:
    """(Seconds, CPU seconds) of everything that an engine times, for each round; in turn."""
    times = {engine: [] for engine in engines}
    for _ in range(count):
        for engine in list(times):
            reply = engine.ask(do)
            if "seconds" in reply:
                times[engine].append(reply["seconds"])
            else:
                print(f"  {engine.name:18s} failed: {reply['failed']}")
                del times[engine], engines[engine]
    return times


def spread(values: list[float]) -> float:
    """(Largest - smallest) / median."""
    return (max(values) - min(values)) / statistics.median(values)


def clock(seconds: list[float]) -> str:
    """Seconds, and CPU seconds in brackets."""
    return f"{seconds[0]:.1f} s ({seconds[1]:.1f})" if seconds[0] else "-"


def forward_table(engines: list[Engine], limits: bool, batch: int, count: int) -> None:
    """Rates of all engines on one case."""
    case = "limits" if limits else "no limits"
    print(f"\nchain of {chain.LINKS}, {case}, batch {batch}, {chain.STEPS} steps of {chain.DT} s")
    facts = started(engines, "build", limits=limits, batch=batch)
    times = rounds(facts, "time", count)
    work = batch * chain.STEPS
    rates = {engine: [work / seconds for ((seconds, _),) in times[engine]] for engine in facts}
    reference = next((engine for engine in facts if engine.name == "mjx"), None)
    print(
        f"  {'':18s} {'env-steps/s':>11s} {'best':>8s} {'spread':>6s} {'/ mjx':>6s} {'CPU us':>7s} "
        f"{'compile (CPU)':>15s}  first angles after the run"
    )
    for engine, fact in facts.items():
        ratio = "-"
        if reference is not None:
            pairs = zip(rates[engine], rates[reference], strict=True)
            ratio = f"{statistics.median(a / b for a, b in pairs):.2f}"
        cost = 1e6 * statistics.median(cpu for ((_, cpu),) in times[engine]) / work
        angles = " ".join(f"{q:7.4f}" for q in fact["q"])
        print(
            f"  {engine.name:18s} {statistics.median(rates[engine]):11.0f} "
            f"{max(rates[engine]):8.0f} {spread(rates[engine]):6.0%} {ratio:>6s} {cost:7.2f} "
            f"{clock(fact['compile']):>15s}  {angles}  {fact['note']}"
        )
    sys.stdout.flush()
    if not limits:
        for engine, fact in facts.items():
            for other, expected in facts.items():
                apart = max(abs(a - b) for a, b in zip(fact["q"], expected["q"], strict=True))
                assert apart < AGREE, f"{engine.name} and {other.name} differ by {apart:g} rad"


def gradient_table(engines: list[Engine], limits: bool, count: int) -> None:
    """Cost of value_and_grad with respect to the initial state, over the forward time."""
    case = "limits" if limits else "no limits"
    print(f"\ngradient of {chain.STEPS} steps, {case}, batch {GRADIENT_BATCH}")
    print(
        f"  {'':28s} {'ratio':>6s} {'CPU':>6s} {'spread':>6s} {'forward':>10s} "
        f"{'compile (CPU)':>15s} {'memory':>9s}"
    )
    for checkpoint in (None, CHECKPOINT):
        able = [e for e in engines if e.name == "jaxjoints" or (e.name == "mjx" and not checkpoint)]
        request = {"limits": limits, "batch": GRADIENT_BATCH, "checkpoint": checkpoint}
        facts = started(able, "gradient", **request)
        times = rounds(facts, "time gradient", count)
        for engine, fact in facts.items():
            wall, cpu = (
                [backward[i] / forward[i] for forward, backward in times[engine]] for i in (0, 1)
            )
            forward = statistics.median(forward[0] for forward, _ in times[engine])
            name = engine.name if checkpoint is None else f"{engine.name}, checkpoint={checkpoint}"
            print(
                f"  {name:28s} {statistics.median(wall):6.2f} {statistics.median(cpu):6.2f} "
                f"{spread(wall):6.0%} {1e3 * forward:7.1f} ms "
                f"{clock(fact['gradient_compile']):>15s} {fact['megabytes']:6.1f} MB"
                f"{'' if fact['finite'] else '  NOT finite'}"
            )
            sys.stdout.flush()


def main() -> None:
    """Print the tables."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--batches", default="1,64,1024,4096")
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--cases", default="free,limits,gradient")
    options.add_argument("--engines", default=",".join(ENGINES))
    options.add_argument("--quick", action="store_true", help="batches 1 and 64, two rounds")
    options.add_argument("--mjx-gradient", action="store_true", help="compiles for minutes")
    given = options.parse_args()
    batches = [1, 64] if given.quick else [int(batch) for batch in given.batches.split(",")]
    count = 2 if given.quick else given.rounds
    cases = given.cases.split(",")
    engines = [Engine(name) for name in given.engines.split(",")]
    try:
        for case in ("free", "limits"):
            for batch in batches if case in cases else ():
                forward_table(engines, case == "limits", batch, count)
        if "gradient" in cases:
            able = [e for e in engines if e.name == "jaxjoints" or given.mjx_gradient]
            for limits in (False, True):
                gradient_table(able, limits, count)
    finally:
        for engine in engines:
            engine.close()


if __name__ == "__main__":
    main()
