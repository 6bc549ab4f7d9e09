"""Recordings of the Open Dynamics Engine: each recorded state is stepped once and meets the next.

Body 1 of an ODE joint is the child. ODE's forces act as here, but it reads the errors of its hinge,
slider and fixed joint off their surfaces in its own way; couplings that read them so (`Ode…`) stand
in for the library's where all numbers are compared, and the library's are compared with those.

Recordings of the same time step, options and length stand side by side in one system, all recorded
states being its batch.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

import jaxjoints as jj
import oracle
from jaxjoints.couplings.wrench import unit_axis
from jaxjoints.spatial import basis, cross, dot, error_twist, norm, retract

EQUAL = 1e-9
RUN_EQUAL = 1e-6
SPRING_EQUAL = 1e-12
FAR = 10.0

LOWER_PAIRS = [
    *("ball/two/A", "ball/two/B", "ball/two/C"),
    *("ball/world/A", "ball/world/C", "ball/reverse/C"),
    *("hinge/two/A", "hinge/two/B", "hinge/two/C"),
    *("hinge/world/A", "hinge/world/C", "hinge/reverse/C"),
    *("slider/two/A", "slider/two/B", "slider/two/C"),
    *("slider/world/A", "slider/world/C", "slider/reverse/C"),
    *("fixed/two/A", "fixed/two/B", "fixed/two/C"),
    *("fixed/world/A", "fixed/world/C", "fixed/reverse/C"),
]
STOPS = [
    *("hinge_stops/world/hard/+", "hinge_stops/world/hard/-"),
    *("hinge_stops/world/erp.8/+", "hinge_stops/world/erp.5cfm1e-4/+"),
    *("hinge_stops/world/erp.1cfm1e-2/+", "hinge_stops/world/erp.1cfm1e-2/-"),
    *("hinge_stops/two/hard/+", "hinge_stops/two/hard/-"),
    *("hinge_stops/two/erp.8/+", "hinge_stops/two/erp.5cfm1e-4/+"),
    *("hinge_stops/two/erp.1cfm1e-2/+", "hinge_stops/two/erp.1cfm1e-2/-"),
    "hinge_locked_lo_eq_hi/two",
    *("slider_stops/world/hard/+", "slider_stops/world/hard/-"),
    *("slider_stops/world/erp.8/+", "slider_stops/world/erp.5cfm1e-4/+"),
    *("slider_stops/world/erp.1cfm1e-2/+", "slider_stops/world/erp.1cfm1e-2/-"),
    *("slider_stops/two/hard/+", "slider_stops/two/hard/-"),
    *("slider_stops/two/erp.8/+", "slider_stops/two/erp.5cfm1e-4/+"),
    *("slider_stops/two/erp.1cfm1e-2/+", "slider_stops/two/erp.1cfm1e-2/-"),
    "slider_locked_lo_eq_hi/two",
]
MECHANISMS = [
    *("ball_chain5/A", "ball_chain5/C", "hinge_chain5/A", "hinge_chain5/C"),
    *("fourbar_hinges_redundant/cfm1e-4", "fourbar_hinges_redundant/cfm1e-8"),
]
FREE = [
    "free_body/gyro=True/finite=False/damp=None",
    "free_body/gyro=False/finite=False/damp=None",
    "free_body/gyro=True/finite=True/damp=None",
    "free_body/gyro=True/finite=False/damp=0.02",
]


@jj.struct
class OdeHinge(jj.Hinge):
    """Hinge that reads its error as ODE: the offset in C, (x₂ × x₁) of the two axes, which is the
    sine of the tilt, and an angle 2 atan2(|v|, w) that takes the tilt for a part of the turn.
    """

    def rows(self, T, q, t):
        found = super().rows(T, q, t)
        a = unit_axis(self.axis, T)
        u, v = basis(a)
        sine = cross(
            T.rotate_inverse(jnp.broadcast_to(a, T.p.shape)), jnp.broadcast_to(a, T.p.shape)
        )
        error = [T.rotate_inverse(T.p), dot(u, sine)[None], dot(v, sine)[None]]
        ahead = jnp.where(dot(a, T.q[1:]) < 0, -1.0, 1.0)
        angle = 2 * jnp.arctan2(ahead * norm(T.q[1:]), T.q[0])[None]
        angle = angle + 2 * jnp.pi * jnp.round((q - angle) / (2 * jnp.pi))
        return jj.replace(found, error=jnp.concatenate(error), q=angle)


@jj.struct
class OdeSlider(jj.Slider):
    """Slider between two centres of mass that reads its error as ODE: the offset along axes carried
    by C, and 2 vec(quaternion) for the turn.

    offset: of C in D at the coordinate zero
    """

    offset: Array = (0.0, 0.0, 0.0)

    def pose(self, q):
        return jj.Pose.translation(self.offset) @ super().pose(q)

    def rows(self, T, q, t):
        found = super().rows(T, q, t)
        a = unit_axis(self.axis, T)
        u, v = basis(a)
        offset = jnp.asarray(self.offset)
        offset = offset.reshape(offset.shape + (1,) * (T.p.ndim - offset.ndim))
        p = T.rotate_inverse(T.p - offset)
        error = [dot(u, p)[None], dot(v, p)[None], twice_vector(T)]
        return jj.replace(found, error=jnp.concatenate(error), q=dot(a, p)[None])


@jj.struct
class OdeFixed(jj.Fixed):
    """Weld that reads its error as ODE: the offset in C, and 2 vec(quaternion) for the turn."""

    def rows(self, T, q, t):
        error = jnp.concatenate([T.rotate_inverse(T.p), twice_vector(T)])
        return jj.replace(super().rows(T, q, t), error=error)


def twice_vector(T: jj.Pose) -> Array:
    """2 sin(θ/2) along the axis of a rotation by θ in [0, π]."""
    return jnp.where(T.q[0] < 0, -2.0, 2.0)[None] * T.q[1:]


@dataclass(frozen=True)
class Run:
    """A recording to repeat: with its own stops or another law, ODE's errors or the library's.

    mirrored: with the axes reversed, so that coordinates change their sign
    """

    name: str
    recordings: str = "ode_joints"
    as_ode: bool = True
    law: str | None = None
    mirrored: bool = False

    def __str__(self) -> str:
        return " ".join(str(value) for value in vars(self).values())

    @property
    def case(self) -> dict[str, Any]:
        return oracle.load(self.recordings)[self.name]

    @property
    def length(self) -> int:
        return len(self.case["trajectory"]["pos"])


@dataclass(frozen=True)
class Bench:
    """Recordings of equal time step, options and length side by side in one system."""

    runs: tuple[Run, ...]
    scheme: jj.SemiImplicitEuler

    @property
    def dt(self) -> float:
        return self.runs[0].case["world"]["dt"]

    @cached_property
    def built(self) -> tuple[jj.System, jj.State]:
        builder = jj.SystemBuilder(gravity=(0.0, 0.0, 0.0))
        for run in self.runs:
            add(builder, run)
        return builder.build()

    @property
    def system(self) -> jj.System:
        return self.built[0]

    def bodies(self, run: Run) -> slice:
        first = self.system.body(f"{run}/0")
        return slice(first, first + len(run.case["bodies"]))

    @cached_property
    def before(self) -> jj.State:
        """All recorded states but the last as one batch."""
        fields = ("pos", "quat", "linvel", "angvel")
        pos, quat, linvel, angvel = (
            jnp.concatenate([recorded(run.case, field)[..., :-1] for run in self.runs], axis=1)
            for field in fields
        )
        near = jnp.concatenate([coordinates_near(run) for run in self.runs])
        batch = jj.replicate(self.built[1], pos.shape[-1])
        return jj.replace(
            batch, position=pos, quaternion=quat, velocity=linvel, omega=angvel, q=near
        )

    @cached_property
    def wrench(self) -> Array:
        """Gravity, of each recording its own, and the forces recorded besides."""
        wrench = np.zeros((6, len(self.system.topology.bodies)))
        for run in self.runs:
            own = wrench[:, self.bodies(run)]
            for i, body in enumerate(run.case["bodies"]):
                own[:3, i] += body["mass"] * np.asarray(run.case["world"]["gravity"])
            for force in run.case.get("external_forces", ()):
                own[:, force["body"]] += force["force"] + force["torque"]
        return jnp.asarray(wrench)

    def step(self, state: jj.State) -> tuple[jj.State, jj.Info]:
        return advance(self.system, state, self.wrench, self.dt, self.scheme)

    @cached_property
    def after(self) -> tuple[jj.State, jj.Info]:
        """One step from each recorded state."""
        return self.step(self.before)

    @cached_property
    def reached(self) -> Array:
        """The coordinates after that step: those at the start of the next."""
        return self.step(self.after[0])[1].q


def quick_to_compile() -> dict[str, Any]:
    """Compiler options for programs that run once: compiling is most of the time here."""
    options = {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False}
    try:
        jax.jit(jnp.negative, compiler_options=options)(1.0)
    except jax.errors.JaxRuntimeError:
        # A release of XLA without the second option.
        del options["xla_cpu_use_fusion_emitters"]
    return options


@partial(jax.jit, compiler_options=quick_to_compile())
def advance(
    system: jj.System, state: jj.State, wrench: Array, dt: Array, scheme: jj.SemiImplicitEuler
) -> tuple[jj.State, jj.Info]:
    return jj.step(system, state, jj.Control(wrench=wrench), dt=dt, scheme=scheme)


def ode_options(case: dict[str, Any]) -> tuple[str, str]:
    """ODE's gyroscopic term and rotation, which all bodies of a recording share."""
    body = case["bodies"][0]
    return (
        "implicit" if body["gyroscopic"] else "none",
        "exponential" if body["finite_rotation"] else "linearized",
    )


@cache
def benches(runs: tuple[Run, ...], options: tuple[str, str] | None = None) -> dict[Run, Bench]:
    """The bench of each run; by ODE's options unless others are given."""
    alike: dict[Hashable, list[Run]] = {}
    for run in runs:
        key = (run.case["world"]["dt"], run.length, *(options or ode_options(run.case)))
        alike.setdefault(key, []).append(run)
    found = {}
    for (_, _, gyroscopic, rotation), same in alike.items():
        scheme = jj.SemiImplicitEuler(gyroscopic=gyroscopic, rotation=rotation)
        found |= dict.fromkeys(same, Bench(tuple(same), scheme))
    return found


def recorded(case: dict[str, Any], field: str) -> np.ndarray:
    """A field of the trajectory as (component, body, state)."""
    return np.asarray(case["trajectory"][field], float).transpose(2, 1, 0)


def coordinates_near(run: Run) -> np.ndarray:
    """The coordinates read by ODE, which choose the turn; zero for balls, which stay within one."""
    near = [np.zeros((0, run.length - 1))]
    readings = run.case["trajectory"]["joint"]
    for joint, reading in zip(run.case["joints"], readings, strict=True):
        value = reading.get("angle", reading.get("position"))
        if value is not None:
            near.append((-1.0 if run.mirrored else 1.0) * np.asarray(value)[None, :-1])
        elif joint["type"] == "ball":
            near.append(np.zeros((3, run.length - 1)))
    return np.concatenate(near)


def add(builder: jj.SystemBuilder, run: Run) -> None:
    """Bodies and joints of a recording."""
    case = run.case
    for i, body in enumerate(case["bodies"]):
        builder.body(f"{run}/{i}", mass=body["mass"], inertia=body["inertia_body"])
    for i, joint in enumerate(case["joints"]):
        child, parent, sign = joint["body1"], joint["body2"], -1.0 if run.mirrored else 1.0
        if child < 0:
            # Attached as (world, body), ODE takes the body for its first, with the axis reversed.
            child, parent, sign = parent, child, -sign
        first = case["bodies"][child]
        second = case["bodies"][parent] if parent >= 0 else None
        coupling, at_C, at_D, attachment = coupling_of(run, joint, sign, first, second)
        law = law_of(run, joint)
        builder.joint(
            f"{run}/{i}",
            coupling,
            child=f"{run}/{child}",
            parent=jj.WORLD if second is None else f"{run}/{parent}",
            frame_C=in_body(at_C, first),
            frame_D=in_body(at_D, second),
            attachment=attachment,
            softness=jj.Softness(case["world"]["erp"], case["world"]["cfm"]),
            laws=() if law is None else law,
            q=law.lower if law is not None and law.lower == law.upper else None,
        )


def coupling_of(
    run: Run, joint: dict[str, Any], sign: float, first: dict[str, Any], second: Any
) -> tuple[jj.Coupling, Any, Any, str]:
    """The coupling of a joint, where C and D are at the setup poses, and where its forces act."""
    kind, axis = joint["type"], sign * np.asarray(joint.get("axis1", (0.0, 0.0, 1.0)))
    if kind == "ball":
        return jj.Ball(), joint["anchor"], joint["anchor"], "own"
    if kind == "hinge":
        hinge = (OdeHinge if run.as_ode else jj.Hinge)(axis=axis)
        return hinge, joint["anchor"], joint["anchor"], "own"
    if kind == "fixed":
        at = (first if second is None else second)["setup_pos"]
        return (OdeFixed if run.as_ode else jj.Fixed)(), at, at, "own"
    assert kind == "slider"
    at = first["setup_pos"]
    if not run.as_ode:
        return jj.Slider(axis=axis), at, at, "C"
    if second is None:
        return OdeSlider(axis=axis), at, at, "C"
    # ODE's forces act midway between the centres of mass.
    at_D = second["setup_pos"]
    return OdeSlider(axis=axis, offset=np.subtract(at, at_D)), at, at_D, "midpoint"


def in_body(point: Any, body: dict[str, Any] | None) -> jj.Pose:
    """A frame along the world's axes at a point, in a body at its setup pose."""
    frame = jj.Pose.translation(jnp.asarray(point, float))
    if body is None:
        return frame
    place = jj.Pose(jnp.asarray(body["setup_pos"]), jnp.asarray(body["setup_quat"]))
    return place.normalized().inverse() @ frame


def law_of(run: Run, joint: dict[str, Any]) -> jj.Limits | None:
    """ODE's stop: no anticipation, any speed of correction; the world's softness by default."""
    given = joint.get("params", {}).get("1")
    if given is None:
        return None
    world = run.case["world"]
    lower, upper = given.get("lo_stop"), given.get("hi_stop")
    if run.mirrored:
        lower, upper = (None if bound is None else -bound for bound in (upper, lower))
    if run.law == "stiffness and damping":
        # Two bounds, one out of reach, for one as for two: the other law has the missing one.
        lower, upper = (-FAR if lower is None else lower), (FAR if upper is None else upper)
        softness = {"stiffness": run.case["kp"], "damping": run.case["kd"]}
    else:
        softness = {
            "erp": given.get("stop_erp", world["erp"]),
            "cfm": given.get("stop_cfm", world["cfm"]),
            "max_correction": None,
        }
    return jj.Limits(lower, upper, anticipate=False, **softness)


def differences(bench: Bench, run: Run, state: jj.State, steps: int = 1) -> dict[str, float]:
    """Largest difference of each field from the states recorded `steps` later than they began,
    quaternions up to sign.
    """
    largest = {}
    fields = (state.position, state.quaternion, state.velocity, state.omega)
    for name, x in zip(("pos", "quat", "linvel", "angvel"), fields, strict=True):
        expected = recorded(run.case, name)[..., steps:]
        found = np.asarray(x)[:, bench.bodies(run), : expected.shape[-1]]
        if name == "quat":
            found = found * np.sign(np.sum(found * expected, axis=0))
        largest[name] = float(np.max(np.abs(found - expected)))
    return largest


def damped(run: Run, state: jj.State) -> jj.State:
    """ODE takes a share of the velocities at the very end of a step where they exceed 0.01."""
    body = run.case["bodies"][0]
    if "linear_damping" not in body:
        return state
    return jj.replace(
        state,
        velocity=(1 - body["linear_damping"]) * state.velocity,
        omega=(1 - body["angular_damping"]) * state.omega,
    )


RUNS = tuple(Run(name) for name in LOWER_PAIRS + STOPS + MECHANISMS + FREE)


def bench_of(name: str) -> tuple[Bench, Run]:
    run = Run(name)
    return benches(RUNS)[run], run


def test_every_recording_is_used():
    assert sorted(run.name for run in RUNS) == sorted(oracle.load("ode_joints"))
    assert sorted(BILATERAL + ONE_SIDED) == sorted(SPRINGS)


@pytest.mark.parametrize("name", LOWER_PAIRS + STOPS + MECHANISMS + FREE)
def test_one_step_from_each_recorded_state_meets_the_next(name):
    bench, run = bench_of(name)
    new, info = bench.after
    found = differences(bench, run, damped(run, new))
    assert max(found.values()) < EQUAL, found
    assert info.ok.all()


@pytest.mark.parametrize("name", LOWER_PAIRS + STOPS + MECHANISMS)
def test_joint_wrenches_are_those_ode_reports(name):
    bench, run = bench_of(name)
    _, info = bench.after
    for i, reported in enumerate(run.case["trajectory"]["feedback"]):
        joint = bench.system.joint(f"{run}/{i}")
        A, frame_C = pose_of(bench.before, joint.child[0]), shared(joint.frame_C)
        wrench = info.wrench[:, joint.joints[0]]
        force, arm = A.rotate(frame_C.rotate(wrench[:3])), A.rotate(frame_C.p)
        moment = A.rotate(frame_C.rotate(wrench[3:])) + cross(arm, force)
        for found, key in ((force, "f1"), (moment, "t1")):
            expected = np.asarray(reported[key], float).T
            assert np.max(np.abs(found - expected)) < EQUAL * (1 + np.max(np.abs(expected)))


@pytest.mark.parametrize(
    "name",
    [
        *("hinge_stops/world/erp.1cfm1e-2/+", "slider_stops/two/hard/+"),
        *("hinge_chain5/A", "fourbar_hinges_redundant/cfm1e-4"),
    ],
)
def test_running_on_from_each_recorded_state_stays_on_the_recording(name):
    bench, run = bench_of(name)
    state = bench.before
    for steps in range(1, run.length):
        state = bench.step(state)[0]
        found = differences(bench, run, state, steps)
        assert max(found.values()) < RUN_EQUAL, (steps, found)


def pose_of(state: jj.State, body: int) -> jj.Pose:
    return jj.Pose(state.position[:, body], state.quaternion[:, body]).normalized()


def shared(pose: jj.Pose) -> jj.Pose:
    """A pose for one batch axis."""
    return jax.tree.map(lambda x: x[:, None], pose)


# To which order in the error of the joint a step by the library's coupling differs from ODE's.
# Both have the same rows and vanish on the same surface. The offset: the library measures it along
# axes of D (fixed, slider) or of D turned by the angle (hinge), ODE along axes of C, which a tilt θ
# turns: θ times the offset, second order, unless the offset contains the distance slid, and then
# first. The turn: θ against sin θ (hinge) or 2 sin(θ/2), third order.
SLOPES = [
    ("hinge/two/C", "all", None, 2),
    ("hinge/two/C", "turn", None, 3),
    ("fixed/two/C", "all", None, 2),
    ("fixed/two/C", "turn", None, 3),
    ("slider/world/C", "all", 1.0, 1),
    ("slider/world/C", "all", 0.0, 2),
    ("slider/world/C", "turn", 0.0, 3),
]
SCALES = 2.0 ** -jnp.linspace(0.0, 6.0, 25)


@pytest.mark.parametrize(("name", "error", "at", "order"), SLOPES)
def test_the_librarys_errors_differ_from_odes_to_the_stated_order(name, error, at, order):
    by_own, by_ode = (
        benches(tuple(Run(n, as_ode=as_ode) for n in dict.fromkeys(case for case, *_ in SLOPES)))
        for as_ode in (False, True)
    )
    own, ode = by_own[Run(name, as_ode=False)], by_ode[Run(name)]
    before = scaled_error(own, Run(name, as_ode=False), error, at)
    after, as_ode = (bench.step(before)[0] for bench in (own, ode))
    change = jnp.concatenate([after.velocity - as_ode.velocity, after.omega - as_ode.omega])
    assert slope(change[:, own.bodies(Run(name, as_ode=False))]) == pytest.approx(order, abs=0.05)


def slope(change: Array) -> float:
    """Exponent with which a change (…, scales) vanishes with the scale, at the small end."""
    size = np.linalg.norm(np.reshape(change, (-1, SCALES.size)), axis=0)[-9:]
    return np.polyfit(np.log(SCALES[-9:]), np.log(size), 1)[0]


def scaled_error(bench: Bench, run: Run, error: str, at: float | None) -> jj.State:
    """The first recorded states, the error of one joint made smaller by each of `SCALES`.

    error: "all" of it, or only the "turn"; at: the coordinate instead of the recorded one
    """
    state = jax.tree.map(
        lambda x: jnp.broadcast_to(x[..., :1], (*x.shape[:-1], SCALES.size)), bench.before
    )
    joint = bench.system.joint(f"{run}/0")
    D, frame_C = shared(joint.frame_D), shared(joint.frame_C)
    if joint.parent[0] >= 0:
        D = pose_of(state, joint.parent[0]) @ D
    T = jax.tree.map(lambda x: x[:, 0], D.inverse() @ pose_of(state, joint.child[0]) @ frame_C)
    q = joint.coupling.coordinates(T)
    twist = error_twist(joint.coupling.pose(q).inverse() @ T)
    if error == "turn":
        twist = twist.at[:3].set(0.0)
    if at is not None:
        q = jnp.full_like(q, at)
    surface = jax.tree.map(
        lambda x: jnp.broadcast_to(x[:, None], (*x.shape, SCALES.size)), joint.coupling.pose(q)
    )
    A = D @ retract(surface, twist[:, None] * SCALES[None]) @ frame_C.inverse()
    own = slice(joint.start[0], joint.start[0] + q.size)
    return jj.replace(
        state,
        position=state.position.at[:, joint.child[0]].set(A.p),
        quaternion=state.quaternion.at[:, joint.child[0]].set(A.q),
        q=state.q.at[own].set(q[:, None]),
    )


@pytest.mark.parametrize(
    ("own", "ode"), [(jj.Hinge, OdeHinge), (jj.Slider, OdeSlider)], ids=["hinge", "slider"]
)
def test_the_librarys_coordinates_differ_from_odes_to_second_order(own, ode):
    # Hinge: ODE takes all of the turn for the angle, tilt θ included, which adds θ² cot(q/2) / 4.
    # Slider: the offset along the axis of D against that of C.
    at = jnp.array([0.4])
    error = jnp.array([0.3, -0.2, 0.0, 0.5, 0.4, 0.0])
    surface = jax.tree.map(
        lambda x: jnp.broadcast_to(x[:, None], (*x.shape, SCALES.size)), own().pose(at)
    )
    T = retract(surface, error[:, None] * SCALES[None])
    near, time = jnp.broadcast_to(at[:, None], (1, SCALES.size)), jnp.zeros(SCALES.size)
    change = own().rows(T, near, time).q - ode().rows(T, near, time).q
    assert slope(change) == pytest.approx(2, abs=0.05)


SPRINGS = oracle.load("ode_spring_equiv")
BILATERAL = [name for name, case in SPRINGS.items() if case["stop"] == "bilateral"]
ONE_SIDED = [name for name, case in SPRINGS.items() if case["stop"] != "bilateral"]
SOFTNESS = ["erp and cfm", "stiffness and damping"]
SPRING_RUNS = tuple(
    Run(name, "ode_spring_equiv", as_ode=False, law=law, mirrored=mirrored)
    for name in SPRINGS
    for law in SOFTNESS
    for mirrored in (False, True)
)


@pytest.mark.parametrize("mirrored", [False, True], ids=["as recorded", "mirrored"])
@pytest.mark.parametrize("softness", SOFTNESS)
@pytest.mark.parametrize("name", BILATERAL + ONE_SIDED)
def test_a_stop_is_the_implicit_euler_step_of_a_spring_and_damper(name, softness, mirrored):
    run = Run(name, "ode_spring_equiv", as_ode=False, law=softness, mirrored=mirrored)
    # Of the options of the hinges; the sliders do not turn.
    bench = benches(SPRING_RUNS, ("none", "exponential"))[run]
    q, qd = bench.reached, bench.after[1].qd
    at = bench.system.coordinate(f"{run}/0").start
    reference = run.case["implicit_euler_reference"]
    sign = -1.0 if mirrored else 1.0
    np.testing.assert_allclose(sign * q[at], reference["x"][1:], rtol=0, atol=SPRING_EQUAL)
    np.testing.assert_allclose(sign * qd[at], reference["v"][1:], rtol=0, atol=SPRING_EQUAL)
