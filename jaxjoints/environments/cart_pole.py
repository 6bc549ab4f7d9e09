"""A pole kept upright on a cart between hard ends of its rail."""

import jax
import jax.numpy as jnp
from jax import Array

from ..algebra.calls import public
from ..algebra.pytree import struct
from ..build.builder import SystemBuilder
from ..couplings.linear import Slider
from ..couplings.rotary import Hinge
from ..laws.limits import Limits
from ..model.state import State
from .environment import Environment

RAIL, TILT = 2.0, 0.6  # half of the rail [m], tilt at which an episode ends [rad]


@struct
class CartPole(Environment):
    """A pole on a cart, kept upright; `InvertedPendulum` of Brax is alike.

    Action: the force on the cart.
    Observation (4): place of the cart [m], tilt of the pole [rad], their speeds.
    Reward: "upright", the cosine of the tilt; "centred", -0.1 times the square of the place.
    Ends: at a tilt of 0.6 rad. The ends of the rail are hard and end nothing.
    Start: all of them within ±0.05.

    >>> task = cart_pole()
    >>> state = task.system.state(q={"pivot": jnp.pi / 3})
    >>> parts, ended = task.judge(state, jnp.zeros(2), jnp.zeros(0), jnp.zeros(1))
    >>> print(parts["upright"].round(3), ended)  # cos 60°
    0.5 True
    """

    def draw(self, key: Array) -> State:
        x = jax.random.uniform(key, (4, 1), self.start.q.dtype, minval=-0.05, maxval=0.05)
        return self.system.state(q={"rail": x[0], "pivot": x[1]}, qd={"rail": x[2], "pivot": x[3]})

    def observe(self, state: State, qd: Array, goal: Array) -> Array:
        return jnp.concatenate([state.q, qd])

    def judge(
        self, state: State, qd: Array, goal: Array, action: Array
    ) -> tuple[dict[str, Array], Array]:
        place, tilt = state.q
        return {"upright": jnp.cos(tilt), "centred": -0.1 * place**2}, jnp.abs(tilt) > TILT


@public
def cart_pole() -> CartPole:
    """A cart of 1 kg, a pole of 0.2 kg whose centre is 0.5 m above its pivot; 1 is 10 N."""
    world = SystemBuilder()
    world.body("cart", mass=1.0, inertia=(0.01, 0.01, 0.01))
    world.body("pole", mass=0.2, inertia=(0.017, 0.017, 0.001), com=(0.0, 0.0, 0.5))
    ends = Limits(-RAIL, RAIL)
    world.joint("rail", Slider((1.0, 0.0, 0.0)), child="cart", laws=ends, max_effort=10.0)
    world.joint("pivot", Hinge((0.0, 1.0, 0.0)), child="pole", parent="cart")
    system, start = world.build()
    effort = jnp.full(1, 10.0)
    return CartPole(system, start, effort, 0.01, actuated=("rail",), substeps=2, limit=500)
