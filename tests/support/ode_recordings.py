"""Recordings of the Open Dynamics Engine as systems: each recorded state is stepped once, and the
first to the end.

Body 1 of an ODE joint is the child. Recordings of the same time step, options and length stand
side by side in one system, all recorded states being its batch.
"""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

import jaxjoints as jj
from jaxjoints.algebra.spatial import cross, error_twist, quat_rotate, quat_rotate_inverse, retract
from jaxjoints.model.groups import JointGroup
from support import oracle
from support.motion import speeds_along
from support.ode_couplings import KINDS, Given, OdeBevelGear, Placed

FAR = 10.0
SCALES = 2.0 ** -jnp.linspace(0.0, 6.0, 25)


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

    @cached_property
    def system(self) -> jj.System:
        system = self.built[0]
        return jj.replace(system, groups=tuple(self._at_each_state(g) for g in system.groups))

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

    def _at_each_state(self, group: JointGroup) -> JointGroup:
        """A group of motors with axes fixed in the world given in D, and with speeds and efforts
        along ODE's axes of Euler angles given along the angles, anew for each recorded state.
        """
        if isinstance(group.coupling, OdeBevelGear):
            # ODE's transmission between intersecting axes feeds its error back with the wrong sign.
            return jj.replace(
                group, laws=tuple(jj.replace(law, erp=-law.erp) for law in group.laws)
            )
        if not isinstance(group.coupling, (jj.AngularMotor, jj.LinearMotor, jj.FreeEuler)):
            return group
        names = [self.built[0].topology.joints[i] for i in group.joints]
        known = {
            f"{run}/{i}": run.case for run in self.runs for i in range(len(run.case["joints"]))
        }
        # Recordings of motors have one joint each.
        cases = [known[name] for name in names]
        if isinstance(group.coupling, jj.FreeEuler):
            sines = jnp.stack([sine_of_axes(case) for case in cases])
            laws = tuple(along_euler_angle(law, sines) for law in group.laws)
            return jj.replace(group, laws=laws)
        axes = np.repeat(
            np.asarray(group.coupling.axes)[..., None], self.runs[0].length - 1, axis=-1
        )
        for j, case in enumerate(cases):
            joint = case["joints"][0]
            for k, body in enumerate(joint["axes_rel"]):
                if body == 0 and joint["body2"] >= 0:
                    axes[k, :, j] = in_body_axes(case, joint["body2"], joint["axes"][k])
        return jj.replace(group, coupling=jj.replace(group.coupling, axes=jnp.asarray(axes)))

    def step(self, state: jj.State) -> tuple[jj.State, jj.Info]:
        return advance(self.system, state, self.wrench, self.dt, self.scheme)

    @cached_property
    def after(self) -> tuple[jj.State, jj.Info]:
        """One step from each recorded state."""
        return self.step(self.before)

    @cached_property
    def running(self) -> jj.State:
        """The states on the way from the first recorded one, side by side as those of `after`.

        Axes and efforts that are given anew for each recorded state are those of the step.
        """
        leaves, structure = jax.tree.flatten(self.system)
        wide = [
            leaf.ndim > rank for leaf, rank in zip(leaves, self.system.topology.ranks, strict=True)
        ]
        state, way = self.before, []
        for n in range(self.runs[0].length - 1):
            # The first of the batch has the numbers of state n, in the same compiled step.
            now = [jnp.roll(x, -n, -1) if w else x for x, w in zip(leaves, wide, strict=True)]
            system = jax.tree.unflatten(structure, now)
            state, _ = advance(system, state, self.wrench, self.dt, self.scheme)
            way.append(jax.tree.map(lambda x: np.asarray(x)[..., 0], state))
        return jax.tree.map(lambda *x: np.stack(x, axis=-1), *way)

    @cached_property
    def speeds(self) -> Array:
        """The speeds after that step along the coordinates where it started, as ODE's rows have
        them: the recorded joints are off their surfaces, onto which `Info.qd` is projected.
        """
        return speeds_along(self.system, self.before, self.after[0])


@jax.jit
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
        scheme = jj.SemiImplicitEuler(joints="rows", gyroscopic=gyroscopic, rotation=rotation)
        found |= dict.fromkeys(same, Bench(tuple(same), scheme))
    return found


def recorded(case: dict[str, Any], field: str) -> np.ndarray:
    """A field of the trajectory as (component, body, state)."""
    return np.asarray(case["trajectory"][field], float).transpose(2, 1, 0)


def coordinates_near(run: Run) -> np.ndarray:
    """The coordinates read by ODE for hinges and sliders, which choose the turn; else zero: the
    other joints stay within one.
    """
    near = [np.zeros((0, run.length - 1))]
    readings = run.case["trajectory"]["joint"]
    for joint, reading in zip(run.case["joints"], readings, strict=True):
        if joint["type"] in ("hinge", "slider"):
            value = reading["angle" if joint["type"] == "hinge" else "position"]
            near.append((-1.0 if run.mirrored else 1.0) * np.asarray(value)[None, :-1])
        elif joint["type"] != "null":
            near.append(np.zeros((placed(run, joint)[0].coupling.dof, run.length - 1)))
    return np.concatenate(near)


def add(builder: jj.SystemBuilder, run: Run) -> None:
    """Bodies and joints of a recording."""
    case = run.case
    for i, body in enumerate(case["bodies"]):
        builder.body(f"{run}/{i}", mass=body["mass"], inertia=body["inertia_body"])
        if "linear_damping" in body:
            damping = jj.fields.BodyDamping(body["linear_damping"], body["angular_damping"])
            builder.field(f"{run}/{i} damping", damping, bodies=f"{run}/{i}")
    for i, joint in enumerate(case["joints"]):
        if joint["type"] == "null":
            continue
        place, child, parent = placed(run, joint)
        laws = laws_of(run, joint, place.coordinates)
        own = joint.get("params", {}).get("1", {})
        # A motor's CFM is that of its own row alone.
        own = {} if "fmax" in own else own
        locked = [
            law.lower for law in laws if isinstance(law, jj.Limits) and law.lower == law.upper
        ]
        builder.joint(
            f"{run}/{i}",
            place.coupling,
            child=f"{run}/{child}",
            parent=jj.WORLD if parent < 0 else f"{run}/{parent}",
            frame_C=in_body(place.at_C, case["bodies"][child]),
            frame_D=in_body(place.at_D, case["bodies"][parent] if parent >= 0 else None),
            attachment=place.attachment,
            softness=jj.Softness(
                own.get("erp", case["world"]["erp"]), own.get("cfm", case["world"]["cfm"])
            ),
            laws=laws,
            q=locked[0] if locked else None,
        )


def placed(run: Run, joint: dict[str, Any]) -> tuple[Placed, int, int]:
    """A joint of a recording as a coupling, and its child and parent."""
    child, parent, sign = joint["body1"], joint["body2"], -1.0 if run.mirrored else 1.0
    swapped = child < 0
    if swapped:
        # Attached as (world, body), ODE takes the body for its first, with the axis reversed.
        child, parent, sign = parent, child, -sign
    bodies = run.case["bodies"]
    second = bodies[parent] if parent >= 0 else None
    given = Given(joint, bodies[child], second, swapped, sign, run.as_ode)
    return KINDS[joint["type"]](given), child, parent


def in_body(at: Any, body: dict[str, Any] | None) -> jj.Pose:
    """A pose in the world, or the world's axes at a point, seen from a body at its setup pose."""
    frame = at if isinstance(at, jj.Pose) else jj.Pose.translation(jnp.asarray(at, float))
    if body is None:
        return frame
    place = jj.Pose(jnp.asarray(body["setup_pos"]), jnp.asarray(body["setup_quat"]))
    return place.normalized().inverse() @ frame


def laws_of(run: Run, joint: dict[str, Any], coordinates: dict[str, int]) -> list[jj.Law]:
    """ODE's stops, motors, suspension and teeth."""
    world, laws = run.case["world"], []
    for group, given in joint.get("params", {}).items():
        if "lo_stop" in given or "hi_stop" in given:
            laws.append(stop(run, given, coordinates[group]))
        if given.get("fmax"):
            cfm = given.get("cfm", world["cfm"])
            laws.append(jj.Motor(given["vel"], given["fmax"], cfm, coordinate=coordinates[group]))
    if "suspension" in coordinates:
        given = joint.get("params", {}).get("1", {})
        erp, cfm = (given.get(f"suspension_{name}", world[name]) for name in ("erp", "cfm"))
        laws.append(jj.Lock(0.0, erp, cfm, coordinate=coordinates["suspension"]))
    if "slip" in coordinates:
        play = joint.get("backlash", 0.0)
        softness = {"erp": world["erp"], "cfm": world["cfm"]}
        laws.append(
            jj.Limits(-play, play, anticipate=False, max_correction=None, **softness)
            if play
            else jj.Lock(0.0, **softness)
        )
    return laws


def stop(run: Run, given: dict[str, Any], coordinate: int) -> jj.Limits:
    """ODE's stop: no anticipation, any speed of correction; the world's softness by default."""
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
        if given.get("bounce"):
            softness["restitution"] = given["bounce"]
    return jj.Limits(lower, upper, anticipate=False, coordinate=coordinate, **softness)


def turns_since_setup(case: dict[str, Any], body: int) -> tuple[np.ndarray, np.ndarray]:
    """Quaternions of a body at each recorded state but the last, (4, n), and at setup, (4, 1)."""
    now = recorded(case, "quat")[:, body, :-1]
    return now, np.asarray(case["bodies"][body]["setup_quat"])[:, None]


def in_body_axes(case: dict[str, Any], body: int, axis: Any) -> Array:
    """An axis fixed in the world seen from a body, in the world's axes at setup, (3, n)."""
    now, start = turns_since_setup(case, body)
    axis = np.repeat(np.asarray(axis)[:, None], now.shape[1], axis=1)
    start = jnp.broadcast_to(start, now.shape)
    return quat_rotate(start, quat_rotate_inverse(jnp.asarray(now), axis))


def in_world(case: dict[str, Any], body: int, axis: Any) -> Array:
    """An axis that a body carries, given at setup, in the world at each state, (3, n)."""
    axis = np.repeat(np.asarray(axis)[:, None], len(case["trajectory"]["quat"]) - 1, axis=1)
    if body < 0:
        return jnp.asarray(axis)
    now, start = turns_since_setup(case, body)
    start = jnp.broadcast_to(start, now.shape)
    return quat_rotate(jnp.asarray(now), quat_rotate_inverse(start, axis))


def sine_of_axes(case: dict[str, Any]) -> Array:
    """Sine of the angle between the outer axes of an angular motor in Euler mode, (n,)."""
    joint = case["joints"][0]
    first = in_world(case, joint["body1"], joint["axis1"])
    third = in_world(case, joint["body2"], joint["axis3"])
    return jnp.linalg.norm(jnp.cross(first, third, axis=0), axis=0)


def along_euler_angle(law: jj.Law, sines: Array) -> jj.Law:
    """A law that ODE applies along the product of two axes, for the angle itself: the product reads
    the angle's rate times the sine of the outer axes' angle; the middle axis has length 1.
    """
    if law.coordinate == 4:
        sines = jnp.ones_like(sines)
    if isinstance(law, jj.Motor):
        speed, effort, cfm = (x[:, None] for x in (law.speed, law.effort, law.cfm))
        return jj.replace(law, speed=speed / sines, effort=effort * sines, cfm=cfm / sines**2)
    return jj.replace(law, erp=law.erp[:, None] / sines, cfm=law.cfm[:, None] / sines**2)


def differences(bench: Bench, run: Run, states: jj.State) -> dict[str, float]:
    """Largest difference of each field of states from the recorded ones after the first,
    quaternions up to sign.
    """
    largest = {}
    fields = (states.position, states.quaternion, states.velocity, states.omega)
    for name, x in zip(("pos", "quat", "linvel", "angvel"), fields, strict=True):
        expected = recorded(run.case, name)[..., 1:]
        found = np.asarray(x)[:, bench.bodies(run)]
        if name == "quat":
            found = found * np.sign(np.sum(found * expected, axis=0))
        largest[name] = float(np.max(np.abs(found - expected)))
    return largest


def wrenches_and_reports(
    bench: Bench, run: Run
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
    """Each joint's force and torque about the centre of mass of body 1 and those that ODE reports,
    world axes, (3, steps) each.
    """
    _, info = bench.after
    for i, reported in enumerate(run.case["trajectory"]["feedback"]):
        joint = bench.system.joint(f"{run}/{i}")
        A, frame_C = pose_of(bench.before, joint.child[0]), shared(joint.frame_C)
        wrench = info.wrench[:, joint.joints[0]]
        force, arm = A.rotate(frame_C.rotate(wrench[:3])), A.rotate(frame_C.p)
        moment = A.rotate(frame_C.rotate(wrench[3:])) + cross(arm, force)
        expected = (np.asarray(reported[key], float).T for key in ("f1", "t1"))
        yield np.asarray(force), np.asarray(moment), *expected


def wrench_differences(bench: Bench, run: Run) -> float:
    """Largest difference of the joints' forces and torques from those that ODE reports, relative to
    the largest of them where that exceeds 1.
    """
    largest = 0.0
    for force, moment, *reported in wrenches_and_reports(bench, run):
        for found, expected in zip((force, moment), reported, strict=True):
            difference = np.max(np.abs(found - expected)) / (1 + np.max(np.abs(expected)))
            largest = max(largest, float(difference))
    return largest


def pose_of(state: jj.State, body: int) -> jj.Pose:
    return jj.Pose(state.position[:, body], state.quaternion[:, body]).normalized()


def shared(pose: jj.Pose) -> jj.Pose:
    """A pose for one batch axis."""
    return jax.tree.map(lambda x: x[:, None], pose)


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
