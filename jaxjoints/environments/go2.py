"""A robot with four legs that walks, such as Unitree's Go2, from the user's file."""

import os
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..algebra.calls import public
from ..algebra.pytree import static, struct
from ..couplings.shapes import HalfSpace
from ..couplings.shapes import Sphere as Ball
from ..laws.drives import Servo
from ..model.measures import body_poses, gaps
from ..model.state import Control, State
from ..models.geometry import Sphere, Visual
from ..models.mjcf import load_mjcf
from ..models.model import Model
from .environment import Environment

GAINS = 35.0, 0.5  # of servos where the file has none [N m/rad, N m s/rad]
REACH, SPEED, TILTED, SUNK = 0.5, 1.0, 0.7, 0.6  # [rad], [m/s], [rad], share of the height


@struct
class Go2(Environment):
    """A trunk on four legs of three hinges each, which walks forwards, along x.

    Action: angles that the servos aim at, ±1 for ±0.5 rad about the pose in which the robot stands.
    Observation (34): height of the trunk above where it stands [m], direction of gravity, velocity
    [m/s] and angular velocity [rad/s] in axes of the trunk, the twelve angles from the standing
    pose [rad] and a tenth of their speeds [rad/s], leg by leg as in the file.
    Reward: "forwards", the speed along x up to 1 m/s; "alive" 1; "aims", -0.1 times the mean square
    of the action.
    Ends: where the trunk is below 0.6 of its height or tilts by more than 0.7 rad.
    Start: standing up to 0.01 m above the ground, angles within ±0.05 rad.

    pose: the twelve angles in which the robot stands [rad]; height: of the trunk then [m]
    trunk: name of its body

    >>> task = go2("examples/data/quadruped.xml", pose=(0.0, 0.7, -1.4))
    >>> height, mass = task.height, task.system.mass.sum()
    >>> print(round(float(height), 2), round(float(mass), 1))  # [m], [kg]
    0.33 18.0
    """

    pose: Array | None = None
    height: Array | float = 0.0
    trunk: str = static(default="", kw_only=True)

    def draw(self, key: Array) -> State:
        x = jax.random.uniform(key, (13,), self.start.q.dtype, -1.0, 1.0)
        q = dict(zip(self.actuated, self.pose + 0.05 * x[1:], strict=True))
        # Lifted by what bent legs may reach further down.
        height = self.height + 0.015 + 0.005 * x[0]
        at = jnp.stack([jnp.zeros_like(height), jnp.zeros_like(height), height])
        return self.system.state(q=q, pose={self.trunk: at})

    def observe(self, state: State, qd: Array, goal: Array) -> Array:
        i, at = self.system.body(self.trunk), self.places(*self.actuated)
        pose = body_poses(self.system, state)[i]
        axes = pose.R.T
        seen = [axes @ state.velocity[:, i], axes @ state.omega[:, i], state.q[at] - self.pose]
        return jnp.concatenate([pose.p[2:] - self.height, -axes[:, 2], *seen, qd[at] / 10])

    def judge(
        self, state: State, qd: Array, goal: Array, action: Array
    ) -> tuple[dict[str, Array], Array]:
        i = self.system.body(self.trunk)
        pose = body_poses(self.system, state)[i]
        parts = {
            "forwards": jnp.minimum(state.velocity[0, i], SPEED),
            "alive": jnp.ones_like(self.height),
            "aims": -0.1 * jnp.mean(action**2),
        }
        return parts, (pose.p[2] < SUNK * self.height) | (pose.R[2, 2] < np.cos(TILTED))

    def control(self, action: Array) -> Control:
        """Angles that the servos aim at."""
        target = jnp.zeros(self.system.coordinates, action.dtype)
        aims = self.pose + self.effort * action
        return Control(target=target.at[self.places(*self.actuated)].set(aims))


@public
def go2(
    path: str | os.PathLike,
    *,
    roots: Iterable[str | os.PathLike] | None = None,
    pose: Sequence[float] = (0.0, 0.9, -1.8),
    friction: float = 0.8,
) -> Go2:
    """A quadruped from MJCF, such as `unitree_go2/go2.xml` of MuJoCo Menagerie.

    The file has a free trunk and four legs of three hinges each. The foot of a leg is the sphere
    that collides and is furthest from its last hinge. Only the four feet touch the ground, which is
    flat and hard. Hinges keep the position servos of the file. Those of a file with motors get
    servos of 35 N m/rad and 0.5 N m s/rad within the ranges of the motors.

    path: of the file; roots: folders that have its meshes, by default that of the file
    pose: angles of the hinges of each leg in which the robot stands, in the order of the file [rad]
    friction: of the feet with the ground

    Raises: ValueError for a file without four legs and feet of this kind; ImportError without
        mujoco: `pip install -e '.[mjcf]'` in the checkout.
    """
    with warnings.catch_warnings():
        # What only MuJoCo's own simulation and drawing need is left out.
        warnings.simplefilter("ignore")
        model = load_mjcf(path, roots=[Path(path).parent] if roots is None else roots)
    hinges = tuple(joint for joint, _ in model.coordinates.values())
    trunk, *_ = bodies = model.builder.bodies
    feet = [_foot(model, calf) for calf in bodies[3::3]]
    if len(set(hinges)) != 12 or len(bodies) != 13 or None in feet:
        standing = sum(foot is not None for foot in feet)
        raise ValueError(
            f"go2: {os.fspath(path)} has {len(set(hinges))} hinges, {len(bodies)} bodies and "
            f"feet on {standing} legs; a quadruped has 12, 13, and a sphere on each of 4"
        )
    _add_servos(model)
    for foot in feet:
        rotation, position = foot.frame
        at = {"child": foot.body, "frame_C": (position, rotation)}
        surface = {"friction": friction, "cone": "pyramid"}
        shapes = Ball(foot.shape.radius), HalfSpace()
        model.builder.contact(f"{foot.body} foot", *shapes, **at, **surface)
    with warnings.catch_warnings():
        # The pose of the file may be one that its stops forbid.
        warnings.simplefilter("ignore")
        system, start = model.build()
    angles = jnp.tile(jnp.asarray(pose, start.q.dtype), 4)
    by_name = dict(zip(hinges, angles, strict=True))
    hung = system.state(q=by_name, pose={trunk: (0.0, 0.0, 1.0)})
    height = 1.0 - jnp.min(gaps(system, hung))
    start = system.state(q=by_name, pose={trunk: jnp.asarray([0.0, 0.0, height])})
    options = {"actuated": hinges, "substeps": 5, "limit": 1000, "trunk": trunk}
    reach = jnp.full(12, REACH)
    return Go2(system, start, reach, 0.004, pose=angles, height=height, **options)


def _foot(model: Model, calf: str) -> Visual | None:
    """Of the spheres of a body that collide, the one furthest from its hinge."""
    spheres = [x for x in model.collisions if x.body == calf and isinstance(x.shape, Sphere)]
    return max(spheres, key=lambda x: float(np.linalg.norm(x.frame[1])), default=None)


def _add_servos(model: Model) -> None:
    """Servos in place of the motors of a file; its position servos stay."""
    most = {}
    for actuator in model.actuators:
        if actuator.servo is None and actuator.arms and actuator.control_range:
            (joint, _), gear = actuator.arms[0]
            most[joint] = abs(gear * actuator.gain[0]) * actuator.control_range[1]
    driven = {actuator.servo for actuator in model.actuators}
    for joint, _ in model.coordinates.values():
        if joint not in driven:
            model.builder.add_law(joint, Servo(*GAINS, effort=most.get(joint)))
