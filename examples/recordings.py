"""The recordings in data/ as measurements: poses over time, and systems of known geometry."""

import gzip
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxjoints as jj

# The scheme of the recording engine. Some cases integrate rotations exactly, but turn so slowly
# that it makes no difference.
ODE = jj.SemiImplicitEuler(
    joints="rows",
    gyroscopic="implicit",
    rotation="linearized",
    solver=jj.Newton(iterations=3),
)
# Standard deviations of measured poses [m, rad], for those of the parameters.
NOISE = (1e-4, 1e-4)


@jj.struct
class Recording:
    """A recorded motion and what is known of its mechanism, as one argument of compiled functions.

    system: with masses of 1, which each identification replaces
    start: state at the motion's first pose
    wrench: known forces from outside at the centres of mass, world axes, shape (6, bodies)
    dt: time step [s]
    """

    system: jj.System
    start: jj.State
    motion: jj.identification.Motion
    wrench: jax.Array
    dt: jax.Array

    def residuals(self, system: jj.System, follow: jax.Array) -> jax.Array:
        """Pose residuals of a system whose masses have shape (bodies, batch)."""
        start = jj.replicate(self.start, system.mass.shape[-1])
        control = jj.Control(wrench=self.wrench)
        options = {"follow": follow, "noise": NOISE, "dt": self.dt, "scheme": ODE}
        return jj.identification.pose_residuals(system, start, self.motion, control, **options)

    def coordinates(self, motion: jj.identification.Motion) -> np.ndarray:
        """Joint coordinates along a motion, shape (joints, time)."""
        poses = {name: jnp.moveaxis(x, 0, -1) for name, x in vars(motion).items()}
        states = jj.replace(jj.replicate(self.start, len(motion.position)), **poses)
        return np.asarray(jax.jit(jj.coordinates)(self.system, states))

    def fitted(self, residuals: np.ndarray) -> jj.identification.Motion:
        """The simulated motion, from its residuals against the recorded poses."""
        position, quaternion = np.array(self.motion.position), np.array(self.motion.quaternion)
        residuals = residuals.reshape(len(position) - 1, 7, -1)
        position[1:] += NOISE[0] * residuals[:, :3]
        quaternion[1:] += NOISE[1] / 2 * residuals[:, 3:]
        return jj.replace(self.motion, position=position, quaternion=quaternion)


def load() -> dict[str, dict[str, Any]]:
    """All recorded cases by name; data/README.md describes them."""
    path = Path(__file__).parent / "data" / "ode_recordings.json.gz"
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return {case["name"]: case for case in json.load(file)["cases"]}


def record(case: dict[str, Any], *, steps: int, laws=(), inertias=((1.0, 1.0, 1.0),)):
    """The `Recording` of the first steps of a case.

    laws: of every joint
    inertias: of each body over its mass [m²], principal moments or a matrix

    The axis of a joint with a stop points towards the stop, which is the direction in which the
    motion begins.
    """
    world, bodies = case["world"], case["bodies"]
    position, quaternion = (
        np.swapaxes(case["trajectory"][field][: steps + 2], 1, 2) for field in ("pos", "quat")
    )
    motion = jj.identification.Motion.from_poses(
        position, quaternion, dt=world["dt"], rotation=ODE.rotation
    )
    # A softness below rounding means rigid rows.
    cfm = world["cfm"] if world["cfm"] > 1e-9 else 0.0
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
    wrench = np.zeros((6, len(bodies)))
    for force in case.get("external_forces", ()):
        wrench[:, force["body"]] += force["force"] + force["torque"]
    start, dtype = motion.start(state), state.q.dtype
    known = {"wrench": jnp.asarray(wrench, dtype), "dt": jnp.asarray(world["dt"], dtype)}
    return Recording(system=system, start=start, motion=motion, **known)
