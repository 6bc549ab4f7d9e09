"""Runs: rollouts in pieces with a progress bar, and how fast they were."""

import time
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from tqdm import tqdm

from ..algebra.compiler import QUICK
from ..algebra.pytree import replace
from ..model.measures import constraint_errors, joint_errors, transmission_errors
from ..model.state import Info, State, replicate
from ..model.system import System
from ..schemes.semi_implicit_euler import SemiImplicitEuler
from ..simulate.isolation import Cause
from ..simulate.rollout import rollout

# Closed loops stay closed.
SCHEME = SemiImplicitEuler(projections=2)
PIECES = 20
# Length of a timed rollout [s], and of the shortest.
TIMED, LEAST_STEPS = 1.0, 50


@dataclass(frozen=True)
class Run:
    """The result of a simulation.

    steps: of each environment; seconds: time of all steps, extrapolated from all pieces but the
        first
    compile: seconds until the first piece was done
    records: (State, Info) over time, or None
    errors: largest error of each joint, transmission and constraint at the end, (all of them,
        environments)
    causes: why environments went bad (`Cause`), with their number
    """

    steps: int
    environments: int
    seconds: float
    compile: float
    records: Any
    errors: np.ndarray
    causes: dict[str, int]


def kicked(state: State, environments: int, speed: float, seed: int) -> State:
    """A batch of a start with random velocities of all bodies, normal with deviation `speed`.

    The first step reduces them to velocities that the joints permit.
    """
    state = replicate(state, environments)
    if speed == 0:
        return state
    draw = np.random.default_rng(seed).normal
    kick = jnp.asarray(draw(0.0, speed, (2, *state.velocity.shape)), state.velocity.dtype)
    return replace(state, velocity=state.velocity + kick[0], omega=state.omega + kick[1])


def _both(state: State, info: Info) -> tuple[State, Info]:
    return state, info


def simulated(
    system: System, state: State, seconds: float, dt: float, every: int | None = None
) -> Run:
    """Simulate a batch in pieces, with a progress bar on the error stream of a terminal.

    every: steps for each record; None records nothing
    """
    steps = max(1, round(seconds / dt))
    unit = every or 1
    piece = max(unit, round(steps / PIECES / unit) * unit)
    pieces = max(1, round(steps / piece))
    environments = state.time.shape[0]
    records, moments = [], [time.perf_counter()]
    bad = np.zeros(environments, int)
    with tqdm(total=pieces * piece, unit="step", disable=None, leave=False) as bar:
        for _ in range(pieces):
            # From the host each time: a state that lies on several devices would ask for a program
            # of its own.
            state, (states, info) = rollout(
                *(system, jax.device_get(state)),
                dt=dt,
                steps=piece,
                record_every=every or piece,
                record=_both,
                scheme=SCHEME,
            )
            cause = np.asarray(jax.block_until_ready(info.cause))[-1]
            bad = np.where(bad == 0, cause, bad)
            moments.append(time.perf_counter())
            if every:
                records.append(jax.tree.map(np.asarray, (states, info)))
            bar.update(piece)
    first, rest = moments[1] - moments[0], moments[-1] - moments[1]
    typical = rest / (pieces - 1) if pieces > 1 else first
    causes = {
        Cause(code).name: int((bad == code).sum()) for code in np.unique(bad) if code != Cause.NONE
    }
    return Run(
        steps=pieces * piece,
        environments=environments,
        seconds=typical * pieces,
        compile=max(0.0, first - typical),
        records=jax.tree.map(lambda *x: np.concatenate(x), *records) if every else None,
        errors=np.asarray(jax.jit(_errors, compiler_options=QUICK)(system, state)),
        causes=causes,
    )


def _errors(system: System, state: State) -> Array:
    """Errors of all joints, transmissions and constraints, (all of them, *batch)."""
    kinds = joint_errors, transmission_errors, constraint_errors
    return jnp.concatenate([errors(system, state) for errors in kinds])


def timed(system: System, state: State, dt: float, rounds: int) -> tuple[float, float]:
    """Environment-steps per second, the median of some rounds, and seconds to the first result."""
    environments = state.time.shape[0]

    def run(steps):
        began = time.perf_counter()
        end, _ = rollout(system, state, dt=dt, steps=steps, record_every=steps, scheme=SCHEME)
        jax.block_until_ready(end)
        return time.perf_counter() - began

    start = run(LEAST_STEPS)
    once = run(LEAST_STEPS)
    steps = LEAST_STEPS
    with tqdm(total=rounds, unit="round", disable=None, leave=False) as bar:
        if once < TIMED / 2:
            steps = int(LEAST_STEPS * TIMED / once)
            run(steps)
        rates = []
        for _ in range(rounds):
            rates.append(environments * steps / run(steps))
            bar.update()
    return float(np.median(rates)), start - once
