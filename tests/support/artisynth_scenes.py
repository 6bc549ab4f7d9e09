"""ArtiSynth's recorded scenes: its conventions, the start of each step, its end."""

from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxjoints import (
    Ball,
    Compliance,
    Cylindrical,
    Effort,
    Engagement,
    Gimbal,
    Hinge,
    Info,
    LimitForce,
    Limits,
    Planar,
    SemiImplicitEuler,
    Slider,
    SlottedHinge,
    State,
    System,
    SystemBuilder,
    body_poses,
    project,
    replace,
    replicate,
    step,
    struct,
)
from jaxjoints.algebra.spatial import quat_rotate
from jaxjoints.laws.transmissions import Mimic
from jaxjoints.model.kinematics import prepare, system_kinematics
from support import oracle

SCENES = oracle.load("artisynth_scenes")
RECORDS = 101  # at most; shorter scenes begin again, to fill the batch
# Speeds that are zero but for rounding: whether a limit lets go at them is rounding, too.
ROUNDING = 1e-12
LINEAR = 2  # bit of ArtiSynth's flags
GEAR, FORCED = "coordinate_coupling_gear", "joint_limit_force_and_actuator"
SCHEME = SemiImplicitEuler(joints="rows", gyroscopic="explicit", curvature=True)


def about_G(kind):
    """A coupling with ArtiSynth's rows: wrenches about G in its axes, which do not turn in G.

    Ours are about C, the same where the joint has no error. That rows which do turn in G are taken
    not to is ArtiSynth's unfinished derivative.
    """

    class AboutG(kind):
        batched: ClassVar[bool] = False

        def rows(self, T, q, t):
            found = super().rows(T, q, t)
            T_CG = self.project(T, q)[0].inverse() @ T
            back = jax.vmap(T_CG.rotate_inverse)
            force, moment = found.W[:, :3], found.W[:, 3:]
            W = jnp.concatenate([back(force), back(moment - jnp.cross(T_CG.p, force))], axis=1)
            return replace(found, W=jax.lax.stop_gradient(W))

        def normalized(self):
            return replace(self, **vars(super().normalized()))

    return struct(AboutG)


KINDS = {
    "HingeCoupling": about_G(Hinge),
    "SliderCoupling": about_G(Slider),
    "CylindricalCoupling": about_G(Cylindrical),
    "SlottedHingeCoupling": about_G(SlottedHinge),
    "FullPlanarCoupling": about_G(Planar),
    "SphericalCoupling": about_G(Ball),
}
TILT = about_G(Gimbal)


def coupling(joint):
    if joint.get("rangeType") == 1:
        return TILT("ZYZ", continuous=False)
    return KINDS[joint["coupling"]]()


def limited(joint):
    """(coordinate, lower, upper, row of ArtiSynth's) for each limit of a joint."""
    if joint.get("rangeType") == 1:
        return [(1, None, joint["maxTilt"], 3)]
    first = len(joint["flags"]) - len(joint["ranges_rad"])
    found = [(i, *map(float, x), first + i) for i, x in enumerate(joint["ranges_rad"])]
    return [limit for limit in found if np.isfinite(limit[1:3]).any()]


def over_half(damping, compliance, dt):
    """Damping that makes the implicit Euler step of a spring ArtiSynth's, which adds half of it."""
    return damping - dt / (2 * compliance)


def laws(scene, joint):
    for c, lower, upper, row in limited(joint):
        linear = joint["flags"][row] & LINEAR
        tolerance = scene["penetrationTol" if linear else "rotaryLimitTol"]
        compliance, soft = joint["compliance"][row], {}
        if compliance:
            damping = over_half(joint["damping"][row], compliance, scene["dt"])
            soft = {"stiffness": 1 / compliance, "damping": damping}
        engagement = Engagement(tolerance=tolerance)
        yield Limits(lower, upper, **soft, engagement=engagement, coordinate=c)
    if scene["name"] == FORCED:
        yield LimitForce(upper=0.3, stiffness=20.0, damping=0.5, transition=0.1)
        yield LimitForce(lower=-0.4, stiffness=30.0, damping=1.0)
        yield Effort(0.5 * 1.5)


def frame(numbers):
    T = np.reshape(numbers, (4, 4))
    return T[:3, 3], T[:3, :3]


def padded(numbers):
    """Recorded numbers with their time last, RECORDS of them."""
    numbers = np.asarray(numbers, float)
    return np.moveaxis(np.take(numbers, np.arange(RECORDS), axis=0, mode="wrap"), 0, -1)


@cache
def world(names):
    """Scenes in one system, and the state in which they start."""
    builder = SystemBuilder(gravity=(0.0, 0.0, -9.8), erp=0.0)
    for name in names:
        scene = SCENES[name]
        for i, body in enumerate(scene["bodies"]):
            inertia = np.reshape(body["inertia_about_com"], (3, 3))
            owner = f"{name}/{body['name']}"
            T = scene["pose"][0][i]
            builder.body(
                owner, mass=body["mass"], inertia=inertia, com=body["com"], pose=(T[:3], T[3:])
            )
        for joint in scene["joints"]:
            made, compliance = coupling(joint), np.array(joint["compliance"])
            rows = 6 - made.dof
            soft = {}
            if compliance[0]:
                damping = over_half(
                    np.array(joint["damping"][:rows]), compliance[:rows], scene["dt"]
                )
                soft = {"softness": Compliance(compliance[:rows], damping), "allow_active": True}
            owner = f"{name}/{joint['name']}"
            builder.joint(
                owner,
                made,
                child=f"{name}/{joint['bodyA']}",
                parent=f"{name}/{joint['bodyB']}" if joint["bodyB"] else "world",
                frame_C=frame(joint["T_CA"]),
                frame_D=frame(joint["T_DB"]),
                laws=list(laws(scene, joint)),
                **soft,
            )
        if name == GEAR:
            builder.transmission("gear", Mimic(-0.5), joints=(f"{name}/j0", f"{name}/j1"))
    return builder.build()


def limits(system, scene):
    """(place in `State.engagement`, joint, row) for each limit of a scene in a system."""
    for i, joint in enumerate(scene["joints"]):
        for c, _, _, row in limited(joint):
            yield system.coordinate(f"{scene['name']}/{joint['name']}").start + c, i, row


def counted(engaged, start):
    """E n of a recorded sequence of E, from E n at its start."""
    counts = [start]
    for E in engaged[1:]:
        counts.append(counts[-1] + E if E * counts[-1] > 0 else E)
    return np.array(counts, float)


@cache
def starts(names):
    """States at all records, (RECORDS,) of them."""
    system, start = world(names)
    state = jax.tree.map(np.array, replicate(start, RECORDS))
    for name in names:
        scene = SCENES[name]
        bodies = [system.body(f"{name}/{body['name']}") for body in scene["bodies"]]
        pose, twist = padded(scene["pose"]), padded(scene["vel"])
        com = np.asarray(system.com)[:, bodies, None] + 0 * pose[:, :3].swapaxes(0, 1)
        arm = np.asarray(quat_rotate(jnp.asarray(pose[:, 3:].swapaxes(0, 1)), jnp.asarray(com)))
        omega = twist[:, 3:].swapaxes(0, 1)
        state.position[:, bodies] = pose[:, :3].swapaxes(0, 1) + arm
        state.quaternion[:, bodies] = pose[:, 3:].swapaxes(0, 1)
        state.velocity[:, bodies] = twist[:, :3].swapaxes(0, 1) + np.cross(omega, arm, axis=0)
        state.omega[:, bodies] = omega
        for i, joint in enumerate(scene["joints"]):
            if joint["ranges_rad"]:
                at = system.coordinate(f"{name}/{joint['name']}")
                state.q[at] = padded([found[i] for found in scene["coords"]])
        for at, i, row in limits(system, scene):
            E = [found[i][row] for found in scene["engaged"]]
            state.engagement[at] = padded(counted(E, state.engagement[at, 0]))
    return jax.tree.map(jnp.asarray, state)


@jax.jit
def stepped(system, state, dt):
    """One step and one projection with new rows, and the rows of the step."""
    mechanism = prepare(system, 1)
    W = tuple(place.rows.W for place in system_kinematics(mechanism, state).joints)
    moved, info = step(system, state, dt=dt, scheme=SCHEME)
    return moved, project(system, moved, iterations=1), info, W


@dataclass(frozen=True)
class Differences:
    """Largest differences of a scene from its records; engaged: records with E ≠ 0, and those whose
    E n is another one although the speed is not zero to rounding.
    """

    pose: float
    twist: float
    multiplier: float
    engaged: tuple[int, int]


@dataclass(frozen=True)
class Ends:
    """What follows the starts of some scenes; moved: before the projection at the end."""

    system: System
    start: State
    moved: State
    new: State
    info: Info
    rows: dict[str, np.ndarray]

    def bodies(self, scene):
        """Recorded form of the bodies' ends: poses (7, n, records), twists (6, n, records)."""
        at = [self.system.body(f"{scene['name']}/{body['name']}") for body in scene["bodies"]]
        T, state = body_poses(self.system, self.new), self.new
        com = jnp.asarray(self.system.com)[..., None] + 0 * state.position
        arm = quat_rotate(state.quaternion, com)
        velocity = state.velocity - jnp.cross(state.omega, arm, axis=0)
        q = jnp.where(T.q[:1] < 0, -T.q, T.q)
        pose, twist = jnp.concatenate([T.p, q]), jnp.concatenate([velocity, state.omega])
        return np.asarray(pose)[:, at], np.asarray(twist)[:, at]

    def multipliers(self, scene, i):
        """λ of all rows of a joint, those of limits with the sign of E, (6, records)."""
        name = f"{scene['name']}/{scene['joints'][i]['name']}"
        wrench = np.asarray(self.info.wrench)[:, self.system.topology.joints.index(name)]
        inverse = np.linalg.pinv(np.moveaxis(self.rows[name], -1, 0))
        return np.einsum("nji,jn->in", inverse, wrench)

    def differences(self, scene):
        """`Differences` of one scene."""
        count = len(scene["pose"]) - 1
        pose, twist = (x[..., :count] for x in self.bodies(scene))
        multiplier, used, other = [0.0], 0, 0
        for i, joint in enumerate(scene["joints"]):
            found = self.multipliers(scene, i)[:, :count]
            wanted = padded([records[i] for records in scene["multipliers"]])[:, 1 : count + 1]
            bilateral = 6 - coupling(joint).dof
            multiplier.append(np.abs(found[:bilateral] - wanted[:bilateral]).max())
            for c, _, _, row in limited(joint):
                at = self.system.coordinate(f"{scene['name']}/{joint['name']}").start + c
                E = np.sign(np.asarray(self.start.engagement)[at, :count])
                force = np.asarray(self.info.law_force)[at, :count]
                # What has let go in a step forgets its multiplier.
                kept = np.asarray(self.start.engagement)[at, 1 : count + 1] * E > 0
                multiplier.append(np.abs(np.where(kept, E * force - wanted[row], 0.0)).max())
                found = np.asarray(self.new.engagement)[at, :count]
                recorded = np.asarray(self.start.engagement)[at, 1 : count + 1]
                moving = np.abs(np.asarray(self.info.qd)[at, :count]) > ROUNDING
                used += int((recorded != 0).sum())
                other += int(((found != recorded) & moving).sum())
        return Differences(
            np.abs(pose - padded(scene["pose"]).swapaxes(0, 1)[..., 1 : count + 1]).max(),
            np.abs(twist - padded(scene["vel"]).swapaxes(0, 1)[..., 1 : count + 1]).max(),
            max(multiplier),
            (used, other),
        )


@cache
def after(names, dt, gravity):
    """What follows the starts of scenes, of which those with this step and gravity count."""
    system, state = world(names)[0], starts(names)
    system = replace(system, gravity=jnp.asarray(gravity, float))
    # Before its first step, ArtiSynth moves positions; here by a step too short to do more.
    _, still, _, _ = stepped(system, state, 1e-300)
    first = {
        field: getattr(state, field).at[..., 0].set(getattr(still, field)[..., 0])
        for field in ("position", "quaternion")
    }
    moved, new, info, W = stepped(system, replace(state, **first), dt)
    rows = {}
    for group, w in zip(system.groups, W, strict=True):
        for place, joint in enumerate(group.joints):
            rows[system.topology.joints[joint]] = np.asarray(w[:, :, place])
    return Ends(system, state, moved, new, info, rows)
