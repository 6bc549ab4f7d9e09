"""Assembly beside RBDL's, from its guesses and with its weights.

RBDL takes Newton steps q += d, each with the least Σ weight d² that closes the constraints to first
order; written out, that repeats the configurations of its custom pins to 1e-15. The end depends on
the steps and is not the closed configuration nearest to the guess. `assemble` takes damped steps
and weighs motions of bodies; it ends elsewhere as far as the constraints leave the bodies free.

So three things are compared: RBDL's guesses close; all bodies are where RBDL has them once what the
constraints leave free is RBDL's; and the same of velocities. RBDL's velocities leave out that a
constraint moves with time: those of a path are compared with the path instead.
"""

import warnings
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxjoints as jj
from jaxjoints.dynamics import site
from support.rbdl_instants import ASSEMBLIES, by_body, in_order, mechanism

CLOSED = 1e-12  # what joints may be open by, and poses off RBDL's [m or rad]
FITTING = 1e-10  # of speeds [m/s, rad/s]
PINNED = 1e12  # weight of a coordinate that keeps its speed
# The mechanisms, and which coordinates their constraints leave free.
FREE = {
    "pin_double_pendulum": (3, 10),
    "time_varying_point_path": (3, 4, 5),
    "time_varying_arm_tip_x": (0,),
    "fourbar_loop": (0,),
    "loop_weld6": range(6),
    "loop_ball3": (*range(6), 9, 10, 11),
    "loop_angular3_frame_at_origin": range(3),
}


def kind(name):
    return next(kind for kind in FREE if name.startswith(kind))


def cases(*fast):
    """All recorded mechanisms, slow unless their names begin as one of `fast`."""
    return [
        pytest.param(name, marks=() if name.startswith(fast) else pytest.mark.slow)
        for name in ASSEMBLIES
    ]


# Mechanisms of one kind differ in their numbers alone, and share a program.
assembled = jax.jit(partial(jj.assemble, strict=False))


def state_of(system, case, recorded, q, qd):
    with warnings.catch_warnings():
        # RBDL's guesses are rough.
        warnings.simplefilter("ignore")
        state = system.state(q=by_body(case, q), qd=by_body(case, qd), rough=True)
    return jj.replace(state, time=jnp.array(float(recorded["t"])))


def test_all_recorded_mechanisms_are_here():
    assert {kind(name) for name in ASSEMBLIES} == set(FREE)


@pytest.mark.parametrize("name", cases())
def test_guesses_of_rbdl_close_with_its_weights(name):
    case, (system, _) = ASSEMBLIES[name], mechanism(name)
    for recorded in case["assembly"]:
        guess = state_of(system, case, recorded, recorded["q_init"], recorded["qd_init"])
        weights = np.array(recorded["weights"], float)
        _, closure = assembled(system, guess, weights=by_body(case, weights))
        assert closure.closed and jnp.max(closure.joint_error) < CLOSED


def asked(name, case, recorded, poses):
    """Coordinates of joints and goals that leave nothing free, by RBDL's assembled state."""
    q = by_body(case, recorded["q"])
    first, last = (case["bodies"][i]["name"] for i in (0, -1))
    at, turned = poses.p[:, -1], poses.q[:, -1]
    if name.startswith("pin"):
        com = jnp.array(case["bodies"][-1]["com"])
        return {}, {"tip": jj.goals.Point(last, poses.apply(com[:, None])[:, -1], com)}
    if name.startswith("time_varying_point"):
        return {}, {"turned": jj.goals.Orientation(last, turned)}
    if name.startswith("loop_angular"):
        return {}, {"at": jj.goals.Point(last, at)}
    turn = {"turned": jj.goals.Orientation(last, turned)} if name.startswith("loop_ball") else {}
    return {f"of {first}": q[f"of {first}"]}, turn


def check_poses(system, state, there):
    """Poses and no angles: one guess of RBDL ends where its angles are singular."""
    found, expected = (jj.body_poses(system, x) for x in (state, there))
    np.testing.assert_allclose(found.p, expected.p, rtol=0, atol=CLOSED)
    np.testing.assert_allclose(found.R, expected.R, rtol=0, atol=CLOSED)


@pytest.mark.slow
@pytest.mark.parametrize("name", cases("fourbar"))
def test_bodies_are_where_rbdl_has_them_if_what_is_free_is_rbdls(name):
    case, (system, _) = ASSEMBLIES[name], mechanism(name)
    for recorded in case["assembly"]:
        there = state_of(system, case, recorded, recorded["q"], recorded["qd"])
        guess = state_of(system, case, recorded, recorded["q_init"], recorded["qd_init"])
        q, goals = asked(name, case, recorded, jj.body_poses(system, there))
        state, closure = assembled(system, guess, q=q, goals=goals)
        assert closure.closed and closure.reached
        check_poses(system, state, there)


@pytest.mark.parametrize("name", cases())
def test_velocities_are_rbdls_if_what_is_free_is_or_those_of_the_path(name):
    case, (system, _) = ASSEMBLIES[name], mechanism(name)
    free = list(FREE[kind(name)])
    weights = np.zeros(len(case["assembly"][0]["q"]))
    weights[free] = PINNED
    for recorded in case["assembly"]:
        qd, rbdl = (np.array(recorded[x], float) for x in ("qd_init", "qd"))
        qd[free] = rbdl[free]
        guess, there = (state_of(system, case, recorded, recorded["q"], x) for x in (qd, rbdl))
        state, _ = assembled(system, guess, weights=by_body(case, weights))
        check_poses(system, state, there)
        if not name.startswith("time_varying"):
            np.testing.assert_allclose(state.velocity, there.velocity, rtol=0, atol=FITTING)
            np.testing.assert_allclose(state.omega, there.omega, rtol=0, atol=FITTING)
            continue
        speeds = in_order(system, case, jj.coordinate_speeds(system, state))
        np.testing.assert_allclose(speeds[free], qd[free], rtol=0, atol=FITTING)
        (path,) = case["constraints"]
        point = site(system, case["bodies"][-1]["name"], path["point"])
        velocity = point.velocity(system, state)[: path["rows"]]
        angle, rate = path["w"] * recorded["t"], path["A"] * path["w"]
        expected = rate * np.array([np.cos(angle), -np.sin(angle), np.cos(2 * angle)])
        np.testing.assert_allclose(velocity, expected[: path["rows"]], rtol=0, atol=FITTING)
