"""Constrained motion by the classical Runge-Kutta method beside that of RBDL."""

from functools import cache

import jax
import numpy as np
import pytest

import jaxjoints as jj
from support.rbdl_instants import RECORDED, by_body, in_order, mechanism, start

# [m, rad, m/s, rad/s]: both methods are of fourth order, in coordinates of their own.
CLOSE = 1e-8
RUNS = [(name, i) for name, case in RECORDED.items() for i in range(len(case.get("runs", ())))]


@cache
def program(name):
    """A state some steps later with its coordinates and speeds."""
    system, _ = mechanism(name)

    def advanced(state, control, dt, steps):
        def one(_, state):
            return jj.step(system, state, control, dt=dt, scheme=jj.RungeKutta())[0]

        state = jax.lax.fori_loop(0, steps, one, state)
        return state, jj.coordinates(system, state), jj.coordinate_speeds(system, state)

    return jax.jit(advanced)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "i"), RUNS)
def test_runs_stay_on_those_of_rbdl(name, i):
    case, (system, _) = RECORDED[name], mechanism(name)
    run = case["runs"][i]
    state = start(system, case, {x: run[x][0] for x in ("t", "q", "qd")})
    control = system.control(effort=by_body(case, run["tau"]))
    for q, qd in zip(run["q"][1:], run["qd"][1:], strict=True):
        state, *found = program(name)(state, control, run["step"], run["record_every"])
        for x, wanted in zip(found, (q, qd), strict=True):
            assert np.abs(in_order(system, case, x) - wanted).max() < CLOSE
