"""An arm too weak to lift itself, which bounces off a stop, soft or hard, to swing up."""

import jax
import jax.numpy as jnp
from jax import Array

from ..algebra.calls import public
from ..algebra.pytree import struct
from ..build.builder import SystemBuilder
from ..couplings.rotary import Hinge
from ..laws.limits import Limits
from ..laws.springs import Damping
from ..model.state import State
from .environment import Environment

LOWER, UPPER = -0.4, 3.6  # where the stop begins on either side [rad]


@struct
class SwingUp(Environment):
    """An arm that hangs beside a stop, swung up to stand on its head and kept there.

    The motor bears less than half of the arm's weight, and the stop is in the way of swinging to
    and fro: the arm presses into it and takes the energy that the stop gives back.

    Action: the moment of the motor.
    Observation (3): sine and cosine of the angle, a quarter of its speed [rad/s].
    Reward: "height", from -1 hanging to 1 upright; "speed", -0.01 times its square, where upright;
    "effort", -0.01 times the square of the action.
    Ends: never.
    Start: hanging (angle 0), within ±0.2 rad and ±0.2 rad/s.

    >>> task = swing_up()
    >>> state = task.system.state(q={"shoulder": jnp.pi / 2})
    >>> parts, _ = task.judge(state, jnp.zeros(1), jnp.zeros(0), jnp.ones(1))
    >>> print(parts["height"].round(3) + 0.0, parts["effort"])  # level with the shoulder
    0.0 -0.01
    """

    def draw(self, key: Array) -> State:
        x = jax.random.uniform(key, (2, 1), self.start.q.dtype, minval=-0.2, maxval=0.2)
        return self.system.state(q={"shoulder": x[0]}, qd={"shoulder": x[1]})

    def observe(self, state: State, qd: Array, goal: Array) -> Array:
        return jnp.concatenate([jnp.sin(state.q), jnp.cos(state.q), qd / 4])

    def judge(
        self, state: State, qd: Array, goal: Array, action: Array
    ) -> tuple[dict[str, Array], Array]:
        height = -jnp.cos(state.q[0])
        parts = {
            "height": height,
            "speed": -0.01 * qd[0] ** 2 * jnp.maximum(height, 0.0),
            "effort": -0.01 * action[0] ** 2,
        }
        return parts, jnp.zeros((), bool)


@public
def swing_up(
    *, stiffness: float | None = 60.0, damping: float = 0.1, restitution: float = 0.8
) -> SwingUp:
    """An arm of 1 kg whose centre is 0.5 m from the shoulder; 1 is 2 N m, of the 4.9 it weighs.

    stiffness, damping: of the stop [N m/rad, N m s/rad]; a stiffness of None makes it hard
    restitution: of a hard stop, the share of the speed with which the arm bounces back
    """
    world = SystemBuilder()
    world.body("arm", mass=1.0, inertia=(0.03, 0.03, 0.002), com=(0.0, 0.0, -0.5))
    hard = stiffness is None
    stop = {"restitution": restitution} if hard else {"stiffness": stiffness, "damping": damping}
    world.joint(
        "shoulder",
        Hinge((0.0, -1.0, 0.0)),
        child="arm",
        laws=[Limits(LOWER, UPPER, **stop), Damping(0.02)],
        max_effort=2.0,
    )
    system, start = world.build()
    effort = jnp.full(1, 2.0)
    return SwingUp(system, start, effort, 0.01, actuated=("shoulder",), substeps=4, limit=150)
