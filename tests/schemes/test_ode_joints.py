"""Recordings of the Open Dynamics Engine's other joints, one step from each recorded state, and
free from the first.

ODE's universal joint, hinge-2, prismatic-rotoide, prismatic-universal, piston, plane-2D and double
hinge read their errors in their own way; couplings that read them so (`Ode…`) stand in for the
library's where all numbers are compared, and the library's are compared with those. The double
ball, the gears and the motors are the library's own.
"""

from dataclasses import dataclass
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxjoints as jj
from jaxjoints.algebra.spatial import quat_rotate, quat_to_matrix
from jaxjoints.model.groups import JointGroup
from jaxjoints.model.kinematics import prepare, system_kinematics, wrenches_on_bodies
from support import oracle
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


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in NAMES if n not in (*UNBALANCED, BY_CENTRES)])
def test_one_step_from_each_recorded_state_meets_the_next(name):
    bench, run = bench_of(name)
    new, info = bench.after
    found = differences(bench, run, new)
    assert max(found.values()) < EQUAL, found
    assert info.ok.all()


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in NAMES if n not in (*UNBALANCED, BY_CENTRES)])
def test_running_free_stays_on_the_recording(name):
    bench, run = bench_of(name)
    found = differences(bench, run, bench.running)
    assert max(found.values()) < RUN_EQUAL, found


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [n for n in NAMES if n not in (*UNBALANCED, *INTO_STOPS, BY_CENTRES, "null/two/A")],
)
def test_joint_wrenches_are_those_ode_reports(name):
    assert wrench_differences(*bench_of(name)) < EQUAL


@pytest.mark.slow
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


@pytest.mark.slow
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
    ((child, parent, *_),) = rows_of(alone.system, alone.before)
    (group,) = alone.system.groups

    def along(state):
        """Speed of the coordinate's row of the start, the last of six."""
        twist = jnp.concatenate([state.velocity, state.omega])
        ends = (child, group.child[0]), (parent, group.parent[0])
        return sum(np.sum(H[:, 5, 0] * twist[:, body], axis=0) for H, body in ends if body >= 0)

    before, after = along(alone.before), along(alone.after[0])
    assert bounces.sum() == 1 and before[bounces] > 1.0
    running = bench.running.velocity[:, bench.bodies(run)] - recorded(run.case, "linvel")[..., 1:]
    until = np.argmax(bounces)
    assert np.abs(running[..., :until]).max() < RUN_EQUAL < np.abs(running[..., until]).max()
    # The stop is as soft as ODE's world.
    given = run.case["world"]["cfm"] * info.law_force[at, bounces]
    np.testing.assert_allclose(after[bounces], -0.9 * before[bounces] - given, rtol=1e-9)


@jax.jit
def rows_of(system, state):
    """All six rows of each joint, bilateral ones first: Jacobians of body twists in the world, the
    errors of the bilateral ones, the coordinates of the others.
    """
    mechanism = prepare(system, 1)
    turn = jnp.concatenate([state.quaternion, 0 * state.quaternion[:, :1]], axis=1)
    found = []
    joints = system_kinematics(mechanism, state).joints
    for group, place in zip(mechanism.system.groups, joints, strict=True):
        sides = wrenches_on_bodies(group, place, range(6))
        bodies = (np.array(group.child), np.array(group.parent))
        seen = []
        for H, body in zip(sides, bodies, strict=True):
            q = jnp.broadcast_to(turn[:, None, body], (4, 6, *H.shape[2:3], turn.shape[-1]))
            H = jnp.broadcast_to(H, (6, *q.shape[1:]))
            seen.append(jnp.concatenate([quat_rotate(q, H[:3]), quat_rotate(q, H[3:])]))
        found.append((*seen, place.rows.error, place.rows.q))
    return found


@cache
def recorded_rows(bench):
    return rows_of(bench.system, bench.before)


@dataclass(frozen=True)
class JointRows:
    """Rows of one joint at all states, as `rows_of` has them; index: its place in its group."""

    group: JointGroup
    index: int
    child: np.ndarray
    parent: np.ndarray
    error: np.ndarray
    q: np.ndarray

    def jacobian(self, n, first, width):
        """All six rows at state n in ODE's columns, of which those of body `first` come first."""
        H = np.zeros((6, width))
        ends = self.group.child[self.index], self.group.parent[self.index]
        for side, body in zip((self.child, self.parent), ends, strict=True):
            if body >= 0:
                start = 6 * (body - first)
                H[:, start : start + 6] = side[:, :, n].T
        return H

    def laws(self, n):
        """The laws of its coordinates, with their numbers at state n."""

        def number(x):
            x = np.asarray(x)[self.index]
            return float(x[n] if x.ndim else x)

        return [jax.tree.map(number, law) for law in self.group.laws]


def rows_by_joint(bench, run, rows):
    """`JointRows` of a recording by the number of the joint."""
    joints = {}
    for group, found in zip(bench.system.groups, rows, strict=True):
        for j, joint in enumerate(group.joints):
            label = bench.system.topology.joints[joint]
            if label.startswith(f"{run}/"):
                numbers = (np.asarray(x)[..., j, :] for x in found)
                joints[int(label.split("/")[-1])] = JointRows(group, j, *numbers)
    return joints


def row_of_law(law, q, dt):
    """Speed, CFM, least and largest force of a motor, lock or stop; None of a stop not reached."""
    if isinstance(law, jj.Motor):
        return law.speed, law.cfm, -law.effort, law.effort
    if isinstance(law, jj.Lock):
        return law.erp / dt * (law.value - q), law.cfm, -np.inf, np.inf
    if law.lower is not None and q <= law.lower:
        return law.erp / dt * (law.lower - q), law.cfm, 0.0, np.inf
    if law.upper is not None and q >= law.upper:
        return law.erp / dt * (law.upper - q), law.cfm, -np.inf, 0.0
    return None


def rows_of_laws(name, laws, q, dt):
    """(coordinate, speed, CFM, least, largest force) of the laws that act."""
    found = [(law, row_of_law(law, q[law.coordinate], dt)) for law in laws]
    if name in INTO_STOPS and any(isinstance(law, jj.Limits) and row for law, row in found):
        # ODE has no row of the motor then: it pushes from outside.
        found = [(law, row) for law, row in found if not isinstance(law, jj.Motor)]
    return [(law.coordinate, *row) for law, row in found if row is not None]


def numbers(record, start, end):
    """J, c, cfm, lo and hi of some rows of a recorded step."""
    return [np.array(record[key][start:end], float) for key in ("J", "c", "cfm", "lo", "hi")]


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in NAMES if name in oracle.load("ode_rows")])
def test_every_row_of_ode_is_one_of_the_librarys(name):
    """Bilateral rows up to a change of basis among those of a joint, rows of motors, suspensions,
    gears and reached stops up to a factor each: nothing of ODE is left, and nothing of the library.
    """
    bench, run = bench_of(name)
    dt, first = run.case["world"]["dt"], bench.bodies(run).start
    joints = rows_by_joint(bench, run, recorded_rows(bench))
    for record in oracle.load("ode_rows")[name]["steps"]:
        n, compared = record["step"], 0
        for i, joint in joints.items():
            J, c, cfm, lo, hi = numbers(record, *record["joint_row_spans"][i])
            J = J.reshape(len(J), 6 * len(run.case["bodies"]))
            H = joint.jacobian(n, first, J.shape[1])
            if name in UNBALANCED:
                # Of the axial force on body 2, see there.
                J, H = J[:, :6], H[:, :6]
            bilateral = len(joint.error)
            share = J @ np.linalg.pinv(H)
            assert np.abs(share @ H - J).max(initial=0.0) < EQUAL
            of_laws = (np.abs(share[:, bilateral:]) > EQUAL).any(axis=1)
            # H = X J and φ-rates = X c.
            G, J, held = H[:bilateral], J[~of_laws], c[~of_laws]
            X = np.linalg.lstsq(J.T, G.T, rcond=None)[0].T
            assert len(held) == bilateral and np.abs(X @ J - G).max(initial=0.0) < EQUAL
            rate = -np.asarray(joint.group.erp)[:, joint.index] / dt * joint.error[:, n]
            assert np.abs(X @ held - rate).max(initial=0.0) < EQUAL * (1 + np.abs(c).max(initial=0))
            ours = {k: row for k, *row in rows_of_laws(name, joint.laws(n), joint.q[:, n], dt)}
            for r in np.flatnonzero(of_laws):
                (k,) = np.flatnonzero(np.abs(share[r]) > EQUAL) - bilateral
                speed, softness, *bounds = ours.pop(k)
                factor = share[r, bilateral + k]
                least, largest = sorted(bound / factor for bound in bounds)
                theirs = c[r], cfm[r], lo[r], hi[r]
                expected = factor * speed, factor**2 * softness, least, largest
                np.testing.assert_allclose(expected, theirs, rtol=EQUAL, atol=EQUAL)
            assert not ours, "a law acts of which ODE has no row"
            compared += len(c)
        assert compared == len(record["c"])
    # Where ODE has no row at all, there is no joint or it has no bilateral rows.
    assert (name == "null/two/A") == (not joints)


@pytest.mark.slow
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


@pytest.mark.slow
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
    (joint,) = rows_by_joint(bench, run, rows_of(bench.system, state)).values()
    count = len(joint.error)
    twists, weights = [], []
    for body in (joint.group.child[joint.index], joint.group.parent[joint.index]):
        q = np.asarray(state.quaternion)[:, body]
        R = np.asarray(quat_to_matrix(jnp.asarray(q)))
        inertia = np.einsum("abn,bc,dcn->nad", R, np.asarray(bench.system.inertia)[..., body], R)
        inverse = np.zeros((q.shape[1], 6, 6))
        inverse[:, :3, :3] = np.eye(3) / float(bench.system.mass[body])
        inverse[:, 3:, 3:] = np.linalg.inv(inertia)
        weights.append(inverse)
        twists += [np.asarray(state.velocity)[:, body], np.asarray(state.omega)[:, body]]
    v, rate = np.concatenate(twists), run.case["world"]["erp"] / bench.dt * joint.error
    new = []
    for n in range(v.shape[1]):
        J = np.concatenate([joint.child[:, :count, n], joint.parent[:, :count, n]]).T
        Y = np.concatenate([weights[0][n] @ J.T[:6], weights[1][n] @ J.T[6:]])
        new.append(v[:, n] - Y @ np.linalg.solve(J @ Y, J @ v[:, n] + rate[:, n]))
    return jnp.asarray(np.stack(new, axis=-1))
