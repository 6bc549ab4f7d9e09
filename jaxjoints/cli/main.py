"""The command line: `jaxjoints view`, `simulate`, `diagnose` and `bench`."""

import argparse
import sys
import warnings
import webbrowser
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ..model.state import State
from ..model.system import System
from ..simulate.tiles import use_all_cores
from ..tools.diagnosis import diagnose
from ..viewing.page import view
from .programs import keep_programs
from .robots import chain, load
from .runs import Run, kicked, simulated, timed

# What the command returns to the shell.
FINE, BAD_OUTCOME, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130
FRAMES_PER_SECOND = 60


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code.

    0: done; 1: an outcome to look at, such as environments that turned bad; 2: an input that cannot
    be used, said in one line on the error stream; 130: interrupted
    """
    options = _parser().parse_args(arguments)
    keep_programs()
    try:
        with jax.enable_x64(options.float64), warnings.catch_warnings():
            warnings.simplefilter("always", UserWarning)
            warnings.showwarning = partial(_warn, options.name)
            return options.command(options)
    except (ValueError, OSError, ImportError) as error:
        message = _one_line(error) or type(error).__name__
        print(f"jaxjoints {options.name}: {message}", file=sys.stderr)
        return BAD_INPUT
    except KeyboardInterrupt:
        print(f"jaxjoints {options.name}: interrupted", file=sys.stderr)
        return INTERRUPTED


def _one_line(text: object) -> str:
    return " ".join(str(text).split())


def _warn(name: str, message: Warning | str, *_: Any) -> None:
    """A warning in one line, without the place in the code."""
    print(f"jaxjoints {name}: {_one_line(message)}", file=sys.stderr)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="jaxjoints", description="Simulate and look at mechanisms of rigid bodies."
    )
    commands = parser.add_subparsers(dest="name", required=True, metavar="command")

    def command(name, function, text, *, file=True):
        one = commands.add_parser(name, help=text, description=text)
        one.set_defaults(command=function)
        if file:
            one.add_argument("file", type=Path, help="a model: .urdf or .xml (MJCF)")
        else:
            one.add_argument("file", type=Path, nargs="?", help="a model; a chain of 10 without it")
        one.add_argument(
            "--root",
            type=Path,
            action="append",
            default=[],
            metavar="FOLDER",
            help="folder in which package:// and relative paths are looked for; may be repeated",
        )
        one.add_argument(
            "--floating", action="store_true", help="URDF: the first body is free, not on the world"
        )
        one.add_argument("--contacts", action="store_true", help="MJCF: bodies touch planes")
        one.add_argument("--float64", action="store_true", help="compute in double precision")
        return one

    def motion(one, seconds, envs):
        one.add_argument("--seconds", type=_positive, default=seconds, help="simulated time")
        one.add_argument("--dt", type=_positive, default=0.002, help="time step [s]")
        one.add_argument("--envs", type=_count, default=envs, help="environments in one batch")
        one.add_argument(
            "--kick",
            type=float,
            help="spread of random speeds of all bodies at the start [m/s and rad/s]; 0.1 for "
            "several environments, else 0",
        )
        one.add_argument("--seed", type=int, default=0, help="of the random speeds")

    one = command("view", _view, "Simulate a model and write a page that shows its motion.")
    motion(one, 4.0, 1)
    one.add_argument(
        *("-o", "--output"), type=Path, help="page to write; the model's name with .html"
    )
    one.add_argument("--open", action="store_true", help="open the page in a browser")

    one = command("simulate", _simulate, "Simulate a batch of a model and say how it went.")
    motion(one, 5.0, 1024)

    one = command("diagnose", _diagnose, "Bodies, joints, freedom, and what may be wrong.")
    one.add_argument("--dt", type=_positive, default=0.002, help="time step to judge [s]")
    # Ranks are told from rounding.
    one.set_defaults(float64=True)

    one = command("bench", _bench, "Environment-steps per second by size of batch.", file=False)
    one.add_argument("--dt", type=_positive, default=0.002, help="time step [s]")
    one.add_argument(
        "--batches",
        type=_counts,
        default=(1, 64, 1024),
        metavar="N,N,…",
        help="sizes of batches; 1,64,1024 by default",
    )
    one.add_argument("--rounds", type=_count, default=3, help="repetitions; the median counts")
    return parser


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} must be > 0")
    return value


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} must be >= 1")
    return value


def _counts(text: str) -> tuple[int, ...]:
    return tuple(map(_count, text.split(",")))


def _load(options: Any) -> tuple[System, State, tuple[Any, ...]]:
    return load(options.file, options.root, floating=options.floating, contacts=options.contacts)


def _start(options: Any, system: System, state: State) -> State:
    """The start of a batch, kicked where environments should differ."""
    kick = options.kick if options.kick is not None else 0.1 * (options.envs > 1)
    return kicked(state, options.envs, kick, options.seed)


def _view(options: Any) -> int:
    system, state, visuals = _load(options)
    every = max(1, round(1 / (FRAMES_PER_SECOND * options.dt)))
    run = simulated(system, _start(options, system, state), options.seconds, options.dt, every)
    page = view(system, run.records, visuals=visuals, title=options.file.stem)
    path = page.save(options.output or Path(f"{options.file.stem}.html"))
    for note in page.notes:
        print(note)
    print(path)
    if options.open:
        webbrowser.open(path.resolve().as_uri())
    return _outcome(run)


def _simulate(options: Any) -> int:
    use_all_cores()
    system, state, _ = _load(options)
    run = simulated(system, _start(options, system, state), options.seconds, options.dt)
    steps = run.steps * options.envs
    print(f"{options.envs} environments, {run.steps} steps of {options.dt:g} s each")
    print(
        f"{steps / run.seconds:,.0f} environment-steps per second, started in {run.compile:.1f} s"
    )
    worst = np.max(run.errors, initial=0.0)
    print(f"largest error of joints and transmissions {worst:.1e} m or rad")
    return _outcome(run)


def _outcome(run: Run) -> int:
    """Says how many environments went bad, and returns the exit code."""
    for cause, count in run.causes.items():
        print(f"{count} of {run.environments} environments went bad: {cause}", file=sys.stderr)
    return BAD_OUTCOME if run.causes else FINE


def _diagnose(options: Any) -> int:
    system, state, _ = _load(options)
    report = diagnose(system, state, dt=options.dt)
    print(report)
    return BAD_OUTCOME if report.findings else FINE


def _bench(options: Any) -> int:
    use_all_cores()
    if options.file is None:
        system, state = chain(10)
    else:
        system, state, _ = _load(options)
    print(f"{'batch':>8} {'environment-steps/s':>20} {'µs each':>10} {'started in':>12}")
    for batch in options.batches:
        rate, start = timed(system, kicked(state, batch, 0.1, 0), options.dt, options.rounds)
        print(f"{batch:8d} {rate:20,.0f} {1e6 / rate:10.3f} {start:10.1f} s")
    return FINE
