"""The recordings in data/ as measurements: poses, and mechanisms of which the geometry is known."""

import gzip
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxjoints as jj

# How the recording engine steps. Some cases turn exactly; slow as they are, that is the same.
ODE = jj.SemiImplicitEuler(gyroscopic="implicit", rotation="linearized", iterations=3)
# Standard deviations of measured poses that the results are stated for [m, rad].
NOISE = (1e-4, 1e-4)


@jj.struct
class Recording:
    """A motion and what is known of the mechanism, one argument of compiled functions.

    system: with masses of 1, to be replaced; start: state at the motion's first pose
    speeds: of the joints there; directions: twists of all bodies at unit speed of each joint, world
        axes, shape (6, bodies, joints); wrench: known forces from outside, shape (6, bodies)
    """

    system: jj.System
    start: jj.State
    motion: jj.Motion
    speeds: jax.Array
    directions: jax.Array
    wrench: jax.Array
    dt: jax.Array

    def residuals(self, system: jj.System, speeds: jax.Array, follow: jax.Array) -> jax.Array:
        """Pose residuals of a batched system that starts at speeds (joints, batch)."""
        more = jnp.sum(self.directions[..., None] * (speeds - self.speeds[:, None]), axis=2)
        start = jj.replicate(self.start, speeds.shape[-1])
        start = jj.replace(start, velocity=start.velocity + more[:3], omega=start.omega + more[3:])
        control = jj.Control(wrench=self.wrench)
        options = {"follow": follow, "noise": NOISE, "dt": self.dt, "scheme": ODE}
        return jj.pose_residuals(system, start, self.motion, control, **options)

    def coordinates(self, motion: jj.Motion) -> np.ndarray:
        """Joint coordinates along a motion, shape (joints, time)."""
        poses = {name: jnp.moveaxis(x, 0, -1) for name, x in vars(motion).items()}
        states = jj.replace(jj.replicate(self.start, len(motion.position)), **poses)
        return np.asarray(jax.jit(jj.coordinates)(self.system, states))

    def fitted(self, residuals: np.ndarray) -> jj.Motion:
        """The simulated motion that left these residuals, from the second pose on."""
        later = jax.tree.map(lambda x: np.asarray(x[1:]), self.motion)
        left = residuals.reshape(len(later.position), 7, -1)
        return jj.replace(
            later,
            position=later.position + NOISE[0] * left[:, :3],
            quaternion=later.quaternion + NOISE[1] / 2 * left[:, 3:],
        )


def load() -> dict[str, dict[str, Any]]:
    """All cases by name."""
    path = Path(__file__).parent / "data" / "ode_recordings.json.gz"
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return {case["name"]: case for case in json.load(file)["cases"]}


def record(case: dict[str, Any], *, steps: int, laws=(), inertias=((1.0, 1.0, 1.0),), cfm=0.0):
    """The first steps of a case: its poses, anchors, axes, gravity and forces; see `Recording`.

    laws: of every joint; inertias: of each body by its mass [m²]; cfm: of the joints, with the
    recorded erp. The axis of a joint with a stop is turned to point at it: the motion begins so.
    """
    world, bodies = case["world"], case["bodies"]
    position, quaternion = (
        np.swapaxes(case["trajectory"][field][: steps + 2], 1, 2) for field in ("pos", "quat")
    )
    motion = jj.Motion.from_poses(position, quaternion, dt=world["dt"], rotation=ODE.rotation)
    builder = jj.SystemBuilder(gravity=world["gravity"], erp=world["erp"], cfm=cfm)
    for i, (body, inertia) in enumerate(zip(bodies, inertias, strict=True)):
        pose = (body["setup_pos"], body["setup_quat"])
        builder.body(f"link {i}", mass=1.0, inertia=inertia, pose=pose)
    for i, joint in enumerate(case["joints"]):
        child, parent, hinge = joint["body1"], joint["body2"], joint["type"] == "hinge"
        axis = np.array(joint["axis1"])
        if "params" in joint:
            axis = axis * np.sign(axis @ (motion.omega if hinge else motion.velocity)[0, :, child])
        builder.joint(
            f"joint {i}",
            jj.Hinge(axis=axis) if hinge else jj.Slider(axis=axis),
            child=f"link {child}",
            parent=jj.WORLD if parent < 0 else f"link {parent}",
            frame_W=joint.get("anchor", bodies[child]["setup_pos"]),
            attachment="own" if hinge else "C",
            laws=laws,
        )
    system, state = builder.build()
    start = motion.start(state)
    start = jj.replace(start, q=jax.jit(jj.coordinates)(system, start))
    names = system.topology.joints
    here = {name: start.q[system.coordinate(name)] for name in names}
    moving = [system.state(q=here, qd={name: 1.0}) for name in names]
    wrench = np.zeros((6, len(bodies)))
    for force in case.get("external_forces", ()):
        wrench[:, force["body"]] += force["force"] + force["torque"]
    return Recording(
        system=system,
        start=start,
        motion=motion,
        speeds=jax.jit(jj.speeds)(system, start),
        directions=jnp.stack([jnp.concatenate([s.velocity, s.omega]) for s in moving], axis=2),
        wrench=jnp.asarray(wrench, start.q.dtype),
        dt=jnp.asarray(world["dt"], start.q.dtype),
    )


def truth_of_stop(case: dict[str, Any], recording: Recording, per_mass: float) -> dict[str, float]:
    """What the engine was given, positive towards the stop; over mass**per_mass where it scales."""
    body, joint, world = case["bodies"][0], case["joints"][0], case["world"]
    axis, params = np.array(joint["axis1"]), joint["params"]["1"]
    sign = np.sign(axis @ np.asarray(recording.system.joint("joint 0").coupling.axis))
    stiffness, damping = jj.softness_spring(params["stop_erp"], params["stop_cfm"], world["dt"])
    in_body = np.asarray(jj.Pose(0 * axis, np.array(body["setup_quat"])).R).T @ axis
    scale = body["mass"] ** per_mass
    truth = {
        "mass": body["mass"],
        "inertia": in_body @ np.array(body["inertia_body"]) @ in_body / scale,
        "stiffness": stiffness / scale,
        "damping": damping / scale,
        "stop": sign * params["hi_stop" if sign > 0 else "lo_stop"],
    }
    rate = "position_rate" if joint["type"] == "slider" else "angle_rate"
    if joint["type"] == "slider":
        del truth["inertia"]
    return truth | {"start speed": sign * case["trajectory"]["joint"][0][rate][1]}
