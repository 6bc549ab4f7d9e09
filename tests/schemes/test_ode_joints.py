"""Recordings of the Open Dynamics Engine's other joints, one step from each recorded state, and
free from the first.

ODE's universal joint, hinge-2, prismatic-rotoide, prismatic-universal, piston, plane-2D and double
hinge read their errors in their own way; couplings that read them so (`Ode…`) stand in for the
library's where all numbers are compared, and the library's are compared with those. The double
ball, the gears and the motors are the library's own.
"""

from functools import cache

import jax.numpy as jnp
import numpy as np
import pytest

from jaxjoints.algebra.spatial import quat_rotate, quat_to_matrix
from jaxjoints.model.kinematics import joint_kinematics, prepare, speeds, wrenches_on_bodies
from support import oracle
from support.mechanisms import compiled
from support.ode_recordings import (
    Run,
    benches,
    differences,
    recorded,
    scaled_error,
    slope,
    wrench_differences,
    wrenches_and_reports,
)

EQUAL = 1e-9
RUN_EQUAL = 1e-6
RECORDINGS = "ode_compound"
# Setting B of joints whose errors are compared: recorded for that alone.
ERRORS = tuple(f"{kind}/two/B" for kind in ("universal", "pr", "piston", "dhinge", "hinge2", "pu"))
NAMES = [name for name in sorted(oracle.load(RECORDINGS)) if name not in ERRORS]
RUNS = tuple(Run(name, RECORDINGS) for name in NAMES)
# Between two bodies ODE lets the force along the axis of its prismatic-rotoide turn body 2 about
# the axis that body 2 carries, though it acts along the axis that body 1 carries. While they
# differ, action and reaction do: no coupling does that.
UNBALANCED = ("pr/two/C", "pr_stops/two")
# A motor that drives into a stop pushes the bodies from outside in ODE; its report leaves that out.
INTO_STOPS = ("hinge_motor_into_stop/two", "slider_motor_into_stop/two")
# A slider bounces in ODE by the speed of its bodies' centres along the axis, not of the coordinate:
# they differ where bodies turn, and a bounce is lost or made up.
BY_CENTRES = "slider_stops_bounce0.9/two"


def bench_of(name):
    run = Run(name, RECORDINGS)
    return benches(RUNS)[run], run


@pytest.mark.parametrize("name", [n for n in NAMES if n not in (*UNBALANCED, BY_CENTRES)])
def test_one_step_from_each_recorded_state_meets_the_next(name):
    bench, run = bench_of(name)
    new, info = bench.after
    found = differences(bench, run, new)
    assert max(found.values()) < EQUAL, found
    assert info.ok.all()


@pytest.mark.parametrize("name", [n for n in NAMES if n not in (*UNBALANCED, BY_CENTRES)])
def test_running_free_stays_on_the_recording(name):
    bench, run = bench_of(name)
    found = differences(bench, run, bench.running)
    assert max(found.values()) < RUN_EQUAL, found


@pytest.mark.parametrize(
    "name",
    [n for n in NAMES if n not in (*UNBALANCED, *INTO_STOPS, BY_CENTRES, "null/two/A")],
)
def test_joint_wrenches_are_those_ode_reports(name):
    assert wrench_differences(*bench_of(name)) < EQUAL


@pytest.mark.parametrize("name", INTO_STOPS)
def test_ode_leaves_a_motor_at_its_stop_out_of_its_report(name):
    bench, run = bench_of(name)
    ((force, moment, *reported),) = wrenches_and_reports(bench, run)
    own = (force, moment)[name.startswith("hinge")]
    missing = np.linalg.norm(own - reported[name.startswith("hinge")], axis=0)
    (joint,), (reading,) = run.case["joints"], run.case["trajectory"]["joint"]
    most, stop = (joint["params"]["1"][field] for field in ("fmax", "hi_stop"))
    place = np.asarray(reading["angle" if "angle" in reading else "position"])[:-1]
    assert (place >= stop).any() and (place < stop).any()
    np.testing.assert_allclose(missing, np.where(place >= stop, most, 0.0), rtol=0, atol=EQUAL)


def test_ode_bounces_a_slider_by_the_speed_of_the_centres_and_not_of_the_coordinate():
    bench, run = bench_of(BY_CENTRES)
    new, info = bench.after
    change = new.velocity[:, bench.bodies(run)] - recorded(run.case, "linvel")[..., 1:]
    reading, stop = run.case["trajectory"]["joint"][0], run.case["joints"][0]["params"]["1"]
    place, by_centres = (np.asarray(reading[k])[:-1] for k in ("position", "position_rate"))
    bounces = (place >= stop["hi_stop"]) & (by_centres > 0)
    different = np.abs(change).max(axis=(0, 1)) > EQUAL
    np.testing.assert_array_equal(different, bounces)
    at = bench.system.coordinate(f"{run}/0").start
    alone = benches((run,))[run]
    (before,) = compiled(speeds)(alone.system, alone.before)
    assert bounces.sum() == 1 and before[bounces] > 1.0
    running = bench.running.velocity[:, bench.bodies(run)] - recorded(run.case, "linvel")[..., 1:]
    until = np.argmax(bounces)
    assert np.abs(running[..., :until]).max() < RUN_EQUAL < np.abs(running[..., until]).max()
    # The stop is as soft as ODE's world.
    given = run.case["world"]["cfm"] * info.law_force[at, bounces]
    np.testing.assert_allclose(info.qd[at, bounces], -0.9 * before[bounces] - given, rtol=1e-9)


@compiled
def rows_of(system, state):
    """Bilateral rows of all joints as Jacobians of body twists in the world, and their errors."""
    mechanism = prepare(system, 1)
    turn = jnp.concatenate([state.quaternion, 0 * state.quaternion[:, :1]], axis=1)
    found = []
    pairs = zip(mechanism.system.groups, joint_kinematics(mechanism, state), strict=True)
    for group, place in pairs:
        count = 6 - group.coupling.dof
        if not count:
            found.append(None)
            continue
        sides = wrenches_on_bodies(group, place, range(count))
        bodies = (np.array(group.child), np.array(group.parent))
        seen = []
        for H, body in zip(sides, bodies, strict=True):
            q = jnp.broadcast_to(turn[:, None, body], (4, count, *H.shape[2:3], turn.shape[-1]))
            H = jnp.broadcast_to(H, (6, *q.shape[1:]))
            seen.append(jnp.concatenate([quat_rotate(q, H[:3]), quat_rotate(q, H[3:])]))
        found.append((*seen, place.rows.error))
    return found


@cache
def recorded_rows(bench):
    return rows_of(bench.system, bench.before)


def bilateral(bench, run, rows):
    """Each joint of a recording: its number, group, place there, Jacobians, errors by state."""
    for group, found in zip(bench.system.groups, rows, strict=True):
        for j, joint in enumerate(group.joints):
            label = bench.system.topology.joints[joint]
            if label.startswith(f"{run}/") and found is not None:
                child, parent, error = (np.asarray(x)[..., j, :] for x in found)
                yield int(label.split("/")[-1]), group, j, child, parent, error


@pytest.mark.parametrize(
    "name", [name for name in NAMES if oracle.load("ode_rows").get(name, {}).get("steps")]
)
def test_rows_and_errors_are_those_of_ode(name):
    # Up to a change of basis X among the rows of a joint: H = X J and φ-rates = X c.
    bench, run = bench_of(name)
    world, first = run.case["world"], bench.bodies(run).start
    for i, group, j, child, parent, error in bilateral(bench, run, recorded_rows(bench)):
        for step in oracle.load("ode_rows")[name]["steps"]:
            n, (start, end) = step["step"], step["joint_row_spans"][i]
            J, c = np.array(step["J"])[start:end], np.array(step["c"])[start:end]
            H = np.zeros((error.shape[0], J.shape[1]))
            for side, body in ((child, group.child[j]), (parent, group.parent[j])):
                if body >= 0 and not (side is parent and name in UNBALANCED):
                    at = 6 * (body - first)
                    H[:, at : at + 6] = side[:, :, n].T
            if name in UNBALANCED:
                J = np.where(H.any(axis=0), J, 0.0)
            X = np.linalg.lstsq(J.T, H.T, rcond=None)[0].T
            assert np.abs(X @ J - H).max() < EQUAL
            rate = -np.asarray(group.erp)[:, j] / world["dt"] * error[:, n]
            assert np.abs(X @ c - rate).max() < EQUAL * (1 + np.abs(c).max())


def test_odes_gears_on_intersecting_axes_drive_their_error_apart():
    # So the sign of their feedback is wrong, and the library's is not ODE's.
    bench, run = bench_of("transmission_intersecting/A")
    at = bench.system.coordinate(f"{run}/2").start
    slip = np.asarray(bench.after[1].q[at])[14:]
    erp = run.case["world"]["erp"]
    np.testing.assert_allclose(slip[1:] / slip[:-1], 1 + erp, rtol=2e-2)


# To which order in the error of the joint a step by the library's coupling differs from ODE's.
# All measure the turn by the tilt, ODE by its sine: third order. Universal: the offset along axes
# of G against axes of C, tilt times offset, second order; so does the prismatic-rotoide (ODE's
# without its imbalance), and the piston in first order where the offset contains the slide. The
# double hinge's axial force acts at the rod's end here, in ODE between the centres of mass: first
# order. Hinge-2 and prismatic-universal: forces act at one point here, in ODE at each body's own
# anchor and without regard to how the slide turns: first order where nothing is slid. Where
# something is, ODE's rows are not those of the joint: order 0.
SLOPES = [
    ("universal/two/B", "all", None, 2),
    ("universal/two/B", "turn", None, 3),
    ("pr/two/B", "all", 1.0, 2),
    ("pr/two/B", "turn", 0.0, 3),
    ("piston/two/B", "all", 1.0, 1),
    ("piston/two/B", "turn", 0.0, 3),
    ("dhinge/two/B", "turn", 1.0, 1),
    ("hinge2/two/B", "all", 0.0, 1),
    ("hinge2/two/B", "turn", 0.0, 3),
    ("hinge2/two/B", "turn", 1.0, 0),
    ("pu/two/B", "all", 0.0, 1),
    ("pu/two/B", "turn", 0.0, 3),
    ("pu/two/B", "turn", 1.0, 0),
]
COMPARED = tuple(dict.fromkeys(name for name, *_ in SLOPES))


@pytest.mark.parametrize(("name", "error", "at", "order"), SLOPES)
def test_the_librarys_joints_differ_from_odes_to_the_stated_order(name, error, at, order):
    by_own, by_ode = (
        benches(tuple(Run(n, RECORDINGS, as_ode=as_ode) for n in COMPARED))
        for as_ode in (False, True)
    )
    runs = Run(name, RECORDINGS, as_ode=False), Run(name, RECORDINGS)
    own, ode = by_own[runs[0]], by_ode[runs[1]]
    before = scaled_error(own, runs[0], error, at)
    after = [step_by_rows(bench, run, before) for bench, run in zip((own, ode), runs, strict=True)]
    assert slope(after[0] - after[1]) == pytest.approx(order, abs=0.05)


def step_by_rows(bench, run, state):
    """Twists of both bodies after a step in which its rows alone act, hard, (12, states)."""
    found = bilateral(bench, run, rows_of(bench.system, state))
    ((_, group, j, child, parent, error),) = found
    twists, weights = [], []
    for body in (group.child[j], group.parent[j]):
        q = np.asarray(state.quaternion)[:, body]
        R = np.asarray(quat_to_matrix(jnp.asarray(q)))
        inertia = np.einsum("abn,bc,dcn->nad", R, np.asarray(bench.system.inertia)[..., body], R)
        inverse = np.zeros((q.shape[1], 6, 6))
        inverse[:, :3, :3] = np.eye(3) / float(bench.system.mass[body])
        inverse[:, 3:, 3:] = np.linalg.inv(inertia)
        weights.append(inverse)
        twists += [np.asarray(state.velocity)[:, body], np.asarray(state.omega)[:, body]]
    v, rate = np.concatenate(twists), run.case["world"]["erp"] / bench.dt * error
    new = []
    for n in range(v.shape[1]):
        J = np.concatenate([child[..., n], parent[..., n]]).T
        Y = np.concatenate([weights[0][n] @ J.T[:6], weights[1][n] @ J.T[6:]])
        new.append(v[:, n] - Y @ np.linalg.solve(J @ Y, J @ v[:, n] + rate[:, n]))
    return jnp.asarray(np.stack(new, axis=-1))
