"""A platform on six legs that follows a pose while it is pushed: five closed loops, six servos."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..algebra.calls import public
from ..algebra.pytree import struct
from ..algebra.spatial import Pose, quat_conjugate, quat_multiply, quat_to_rotation_vector
from ..build.builder import SystemBuilder
from ..couplings.linear import Slider
from ..couplings.rotary import Ball, Universal
from ..laws.drives import Servo
from ..model.external import wrench_at
from ..model.state import Control, State
from ..schemes.semi_implicit_euler import SemiImplicitEuler
from .environment import Environment

HEIGHT, LEG, REACH = 1.2, 0.8, 0.2  # of the platform, of a rod, of a leg's stroke to a side [m]
LEGS = tuple(f"leg {i}" for i in range(6))
PERIOD = 2.0  # of the circle that the wanted pose goes on [s]
# Pushes of an episode, each in a second of its own, and how long one lasts [s].
PUSHES, LASTS = 2, 0.1


def _pairs(radius: float, spread: float) -> np.ndarray:
    """Six points in three pairs on a circle, shape (6, 3)."""
    sides = [np.arange(3) * 2 * np.pi / 3 + side for side in (-spread, spread)]
    angles = np.sort(np.concatenate(sides))
    return radius * np.stack([np.cos(angles), np.sin(angles), 0 * angles], axis=1)


FEET, PINS = _pairs(1.0, 0.17), _pairs(0.55, 0.87)


@struct
class StewartPlatform(Environment):
    """A platform whose centre follows a circle while it leans to its middle and is pushed.

    push: force [N] on the platform, horizontal and at its centre of mass, for 0.1 s once in each of
        the first two seconds; None for none. Agents do not see when and where it pushes.

    Action: lengths that the servos of the legs aim at, ±1 for ±0.2 m about those of the start.
    Observation (21): how far the platform is from where it is wanted, in tenths of a metre and of a
    radian (6), its velocity (6), the lengths of the legs in tenths of a metre (6), radius and
    direction of the wanted place on its circle (3).
    Reward: "place" and "lean", minus these distances [dm, 0.1 rad].
    Ends: never.
    Start: level and at rest; radius (0.05 to 0.15 m), direction and sense of the circle are drawn,
    and times and directions of the pushes.

    >>> task = stewart_platform(push=0.0)
    >>> goal = jnp.array([0.1, 0.0, 1.0])  # a circle of 0.1 m, from x on
    >>> parts, _ = task.judge(task.start, jnp.zeros(0), goal, jnp.zeros(6))
    >>> print(parts["place"].round(2))  # from the middle, in tenths of a metre
    -1.0
    """

    push: Array | float | None = None

    def goal(self, key: Array) -> Array:
        """Radius [m], first direction [rad] and sense of the circle; with pushes also their starts
        [s] and directions [rad].
        """
        radius, phase, sense = jax.random.uniform(key, (3,), self.start.time.dtype)
        turns = jnp.where(sense < 0.5, -1.0, 1.0).astype(radius.dtype)
        circle = jnp.stack([0.05 + 0.1 * radius, 2 * jnp.pi * phase, turns])
        if self.push is None:
            return circle
        # Of another key: the circle is that of the task without pushes.
        x = jax.random.uniform(jax.random.fold_in(key, 1), (2, PUSHES), circle.dtype)
        begins = jnp.arange(PUSHES, dtype=x.dtype) + (1 - LASTS) * x[0]
        return jnp.concatenate([circle, begins, 2 * jnp.pi * x[1]])

    def disturbance(self, state: State, goal: Array) -> Array | None:
        """The push, if there is one at this time."""
        if self.push is None:
            return None
        begins, direction = goal[3 : 3 + PUSHES], goal[3 + PUSHES :]
        acts = (state.time >= begins) & (state.time < begins + LASTS)
        size = self.push * acts.astype(goal.dtype)
        along = [jnp.cos(direction), jnp.sin(direction), jnp.zeros_like(direction)]
        force = jnp.stack(along) @ size
        return wrench_at(self.system, state, "platform", force=force)

    def observe(self, state: State, qd: Array, goal: Array) -> Array:
        i = self.system.body("platform")
        place, lean = self._errors(state, goal)
        lengths = state.q[self.places(*LEGS)]
        out = _out(state.time, goal)
        radius = goal[:1] / 0.15
        velocity = [state.velocity[:, i], state.omega[:, i]]
        return jnp.concatenate([10 * place, 10 * lean, *velocity, 10 * lengths, radius, out[:2]])

    def judge(
        self, state: State, qd: Array, goal: Array, action: Array
    ) -> tuple[dict[str, Array], Array]:
        # Protects the slope of the root where the platform is where it is wanted.
        place, lean = (10 * jnp.sqrt(jnp.sum(x**2) + 1e-8) for x in self._errors(state, goal))
        return {"place": -place, "lean": -lean}, jnp.zeros((), bool)

    def control(self, action: Array) -> Control:
        """Lengths that the servos aim at."""
        target = jnp.zeros(self.system.coordinates, action.dtype)
        return Control(target=target.at[self.places(*LEGS)].set(self.effort * action))

    def _errors(self, state: State, goal: Array) -> tuple[Array, Array]:
        """Way of the platform to where it is wanted [m], and turn to it [rad], (3,) each."""
        i, T = self.system.body("platform"), wanted(state.time, goal)
        turn = quat_multiply(T.q, quat_conjugate(state.quaternion[:, i]))
        return T.p - state.position[:, i], quat_to_rotation_vector(turn)


def _out(time: Array, goal: Array) -> Array:
    """Direction from the middle of the circle to the wanted place."""
    angle = goal[1] + goal[2] * 2 * jnp.pi * time / PERIOD
    return jnp.stack([jnp.cos(angle), jnp.sin(angle), jnp.zeros_like(angle)])


def wanted(time: Array, goal: Array) -> Pose:
    """Pose of the platform that is wanted at a time, on the circle of a goal."""
    out = _out(time, goal)
    axis = jnp.stack([out[1], -out[0], jnp.zeros_like(out[0])])
    centre = jnp.asarray((0.0, 0.0, HEIGHT), out.dtype)
    return Pose.from_rotation_vector(goal[0] * axis, centre + goal[0] * out)


@public
def stewart_platform(
    *, stiffness: float = 4e4, damping: float = 2e3, push: float = 1000.0
) -> StewartPlatform:
    """A platform of 20 kg on legs of two bodies of 1 kg each.

    stiffness, damping: of the servos [N/m, N s/m]
    push: force of the pushes [N]; 0 for none
    """
    world = SystemBuilder()
    middle = np.array([0.0, 0.0, HEIGHT])
    world.body("platform", mass=20.0, inertia=(1.5, 1.5, 3.0), pose=middle)
    for i, (foot, pin) in enumerate(zip(FEET, PINS, strict=True)):
        along = middle + pin - foot
        length = np.linalg.norm(along)
        z = along / length
        x = np.cross((0.0, 1.0, 0.0), z)
        x /= np.linalg.norm(x)
        turned = np.stack([x, np.cross(z, x), z], axis=1)
        half, thin = (0.0, 0.0, LEG / 2), (0.06, 0.06, 0.001)
        cylinder, rod = f"cylinder {i}", f"rod {i}"
        for name, at in ((cylinder, foot), (rod, middle + pin - LEG * z)):
            world.body(name, mass=1.0, inertia=thin, com=half, pose=(at, turned))
        axes = Universal((1.0, 0.0, 0.0), (0.0, 1.0, 0.0))
        world.joint(f"foot {i}", axes, child=cylinder, frame_W=(foot, turned))
        drawn = (0.0, 0.0, length - LEG)
        slide = Slider((0.0, 0.0, 1.0))
        servo = Servo(stiffness, damping)
        world.joint(LEGS[i], slide, child=rod, parent=cylinder, frame_D=drawn, laws=servo)
        place = middle + pin, turned
        world.joint(f"pin {i}", Ball(), child="platform", parent=rod, frame_W=place)
    system, start = world.build()
    scheme = SemiImplicitEuler(projections=1)
    options = {"actuated": LEGS, "substeps": 2, "limit": 100, "scheme": scheme}
    options["push"] = push if push else None
    return StewartPlatform(system, start, jnp.full(6, REACH), 0.01, **options)
