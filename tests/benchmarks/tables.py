"""The tables: each asks engines for one kind of figure and prints it, engines side by side."""

import statistics
from collections.abc import Iterator
from typing import Any

from cases import CASES, DT
from engines import ON_DEVICE, OTHERWISE
from processes import Process, answers, rounds

# How far end states of engines that integrate the same may differ [rad].
AGREE = 1e-3
# Bodies times environments times steps of one run, and bounds of its steps.
WORK, FEWEST, MOST = 1_000_000, 10, 100
GRADIENT_BATCH, GRADIENT_STEPS, CHECKPOINT = 64, 100, 10
LONG_BATCH, LONG_STEPS, LONG_CHECKPOINTS = 1024, 1000, (25, 40)
FEW, GAP_STEPS, DRIFT_SECONDS = 8, 1000, 10.0


class Table:
    """Rows printed as they come, as columns of text or as Markdown."""

    def __init__(self, title: str, columns: dict[str, int], *, markdown: bool):
        """columns: widths by heading; the last column has none."""
        self.columns, self.markdown = columns, markdown
        print(f"\n{title}" + ("\n" if markdown else ""))
        self.row(*columns)
        if markdown:
            print("|" + "---|" * len(columns), flush=True)

    def row(self, *cells: str) -> None:
        """Print one row."""
        if self.markdown:
            print("| " + " | ".join(cells) + " |", flush=True)
            return
        first, *middle, last = zip(cells, self.columns.values(), strict=True)
        words = [f"{first[0]:{first[1]}s}", *(f"{cell:>{width}s}" for cell, width in middle)]
        print(" ", *words, f" {last[0]}", flush=True)

    def without(self, problems: dict[Process, str]) -> None:
        """Print why there are no figures of some engines, a row for each."""
        for process, problem in problems.items():
            self.row(process.name, *["-"] * (len(self.columns) - 2), problem)


def speed(processes: list[Process], case: str, batch: int, count: int, markdown: bool) -> None:
    """Rates of all engines on one mechanism at one batch size."""
    mechanism = CASES[case]()
    steps = max(FEWEST, min(MOST, WORK // (batch * len(mechanism.bodies))))
    facts, absent = answers(processes, "build", case=case, batch=batch, steps=steps)
    times, stuck = rounds(facts, "time", count)
    facts = {process: facts[process] for process in times}
    work = batch * steps
    rates = {process: [work / seconds for ((seconds, _),) in times[process]] for process in facts}
    # Its setting that can be differentiated, where there is a difference.
    reference = next((p for n in ("mjx fast", "mjx") for p in facts if p.name == n), None)
    columns = {"engine": 18, "env-steps/s": 11, "best": 9, "spread": 6, "/ mjx": 6, "CPU us": 8}
    columns |= {"compile (CPU)": 15, "angles after the run": 23, "how": 0}
    table = Table(f"{case}, batch {batch}, {steps} steps of {DT} s", columns, markdown=markdown)
    for process, fact in facts.items():
        ratio = "-"
        if reference is not None:
            pairs = zip(rates[process], rates[reference], strict=True)
            ratio = f"{statistics.median(a / b for a, b in pairs):.2f}"
        cost = 1e6 * statistics.median(cpu for ((_, cpu),) in times[process]) / work
        table.row(
            process.name,
            f"{statistics.median(rates[process]):.0f}",
            f"{max(rates[process]):.0f}",
            f"{_spread(rates[process]):.0%}",
            ratio,
            f"{cost:.2f}",
            _clock(fact["compile"]),
            " ".join(f"{q:.4f}" for q in fact["q"]),
            fact["note"],
        )
    table.without(absent | stuck)
    if mechanism.tree:
        _assert_agreement({p.name: f["q"] for p, f in facts.items() if p.name not in OTHERWISE})


def gradient(processes: list[Process], case: str, count: int, markdown: bool) -> None:
    """Cost of value_and_grad with respect to the initial state, over the forward time."""
    able = [process for process in processes if process.name in ON_DEVICE]
    table = _gradients(case, GRADIENT_BATCH, GRADIENT_STEPS, markdown)
    for checkpoint in (None, CHECKPOINT):
        _timed(table, able, case, GRADIENT_BATCH, GRADIENT_STEPS, checkpoint, count)


def memory(processes: list[Process], case: str, count: int, markdown: bool) -> None:
    """Cost and memory of the gradient of many steps that keeps the states of few of them, and the
    memory of one that keeps all, which is not run.
    """
    able = [process for process in processes if process.name in ON_DEVICE]
    table = _gradients(case, LONG_BATCH, LONG_STEPS, markdown)
    request = {"batch": LONG_BATCH, "steps": LONG_STEPS, "checkpoint": None}
    facts, absent = answers(able, "memory", case=case, **request)
    table.without(absent)
    for process, fact in facts.items():
        table.row(process.name, *"----", *_needs(fact), "-")
    for checkpoint in LONG_CHECKPOINTS:
        _timed(table, able, case, LONG_BATCH, LONG_STEPS, checkpoint, count)


def _gradients(case: str, batch: int, steps: int, markdown: bool) -> Table:
    columns = {"engine": 30, "ratio": 6, "CPU": 6, "spread": 6, "forward": 10}
    columns |= {"compile (CPU)": 15, "memory": 9, "finite": 0}
    return Table(f"gradient of {steps} steps, {case}, batch {batch}", columns, markdown=markdown)


def _timed(
    table: Table,
    processes: list[Process],
    case: str,
    batch: int,
    steps: int,
    checkpoint: int | None,
    count: int,
) -> None:
    """Rows of gradients over the forward time, wall clock and processor."""
    request = {"batch": batch, "steps": steps, "checkpoint": checkpoint}
    facts, absent = answers(processes, "gradient", case=case, **request)
    times, stuck = rounds(facts, "time_gradient", count)
    table.without(absent | stuck)
    for process in times:
        fact = facts[process]
        wall, cpu = (
            [backward[i] / forward[i] for forward, backward in times[process]] for i in (0, 1)
        )
        forward = statistics.median(forward[0] for forward, _ in times[process])
        table.row(
            _named(process, checkpoint),
            f"{statistics.median(wall):.2f}",
            f"{statistics.median(cpu):.2f}",
            f"{_spread(wall):.0%}",
            f"{1e3 * forward:.1f} ms",
            *_needs(fact),
            "yes" if fact["finite"] else "NO",
        )


def _needs(fact: dict) -> tuple[str, str]:
    return _clock(fact["gradient_compile"]), f"{fact['megabytes']:.1f} MB"


def gaps(processes: list[Process], case: str, markdown: bool) -> None:
    """Largest gap of a mechanism's loops over a simulation, relative to its size."""
    table = Table(
        f"largest gap over {GAP_STEPS} steps, {case}, {FEW} environments",
        {"engine": 18, "step": 6, "gap": 10, "of its size": 12, "how": 0},
        markdown=markdown,
    )
    size = CASES[case]().size
    for name, step, label, gap in by_step(
        processes, table, "gaps", (0.002, 0.005), case=case, steps=GAP_STEPS
    ):
        table.row(name, step, f"{gap:.1e} m", f"{gap / size:.1e}", label)


def drift(processes: list[Process], case: str, markdown: bool) -> None:
    """Energy gained over a simulation, as a share of the energy above rest."""
    table = Table(
        f"energy gained in {DRIFT_SECONDS:g} s, {case}, {FEW} environments: mean and range",
        {"engine": 18, "step": 6, "gained": 10, "least": 10, "most": 10, "how": 0},
        markdown=markdown,
    )
    for name, step, label, gained in by_step(
        processes, table, "drift", (0.001, 0.005), case=case, seconds=DRIFT_SECONDS
    ):
        numbers = statistics.mean(gained), min(gained), max(gained)
        table.row(name, step, *(f"{x:+.3%}" for x in numbers), label)


def by_step(
    processes: list[Process], table: Table, do: str, time_steps: tuple[float, ...], **request
) -> Iterator[tuple[str, str, str, Any]]:
    """Engine, time step, setting and result of a few environments, for each time step [s]."""
    for dt in time_steps:
        facts, absent = answers(processes, do, batch=FEW, dt=dt, **request)
        table.without(absent)
        for process, found in facts.items():
            for label, result in found:
                yield process.name, f"{1e3 * dt:.0f} ms", label, result


def kernels(
    processes: list[Process],
    case: str,
    batch: int,
    count: int,
    roof: tuple[float | None, float | None],
    markdown: bool,
) -> None:
    """Kernels and traffic of one step, and the rate beside what bytes and operations allow.

    Bytes as XLA counts them, what every kernel reads and writes: caches may beat that bound.

    roof: bytes and operations per second of the device, or None
    """
    able = [process for process in processes if process.name in ON_DEVICE]
    built, absent = answers(able, "build", case=case, batch=batch, steps=MOST)
    times, stuck = rounds(built, "time", count)
    facts, unable = answers(times, "kernels", case=case, batch=batch)
    table = Table(
        f"one step of {case}, batch {batch}",
        {"engine": 18, "kernels": 8, "bytes/env": 10, "flop/env": 10, "env-steps/s": 12}
        | {"roofline": 12, "share": 7},
        markdown=markdown,
    )
    table.without(absent | stuck | unable)
    for process, fact in facts.items():
        rate = statistics.median(batch * MOST / seconds for ((seconds, _),) in times[process])
        needs = fact["bytes"], fact["flops"]
        limits = [have / need for have, need in zip(roof, needs, strict=True) if have]
        bound = min(limits, default=None)
        table.row(
            process.name,
            f"{fact['kernels']}",
            f"{fact['bytes']:.0f}",
            f"{fact['flops']:.0f}",
            f"{rate:.0f}",
            "-" if bound is None else f"{bound:.3g}",
            "-" if bound is None else f"{rate / bound:.1%}",
        )


def _assert_agreement(ends: dict[str, list[float]]) -> None:
    """End states of engines that integrate the same are the same."""
    for name, angles in ends.items():
        for other, expected in ends.items():
            apart = max(abs(a - b) for a, b in zip(angles, expected, strict=True))
            assert apart < AGREE, f"{name} and {other} differ by {apart:g} rad"


def _named(process: Process, checkpoint: int | None) -> str:
    return process.name if checkpoint is None else f"{process.name}, checkpoint={checkpoint}"


def _spread(values: list[float]) -> float:
    """(Largest - smallest) / median."""
    return (max(values) - min(values)) / statistics.median(values)


def _clock(seconds: list[float]) -> str:
    """Seconds, and CPU seconds in brackets."""
    return f"{seconds[0]:.1f} s ({seconds[1]:.1f})" if seconds[0] else "-"
