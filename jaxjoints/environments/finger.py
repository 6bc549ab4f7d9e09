"""A finger of three phalanges with elastic limits, pulled by two tendons to a point."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..algebra.calls import public
from ..algebra.pytree import struct
from ..build.builder import SystemBuilder
from ..couplings.rotary import Hinge
from ..laws.drives import Armature
from ..laws.limits import Limits
from ..laws.springs import SpringDamper
from ..model.state import Control, State
from .environment import Environment

LENGTHS = np.array([0.045, 0.03, 0.02])  # of the phalanges [m]
KNUCKLES = ("knuckle", "middle", "tip")
# Moment arms at each knuckle of the tendons that bend and stretch [m].
ARMS = np.array([[0.010, 0.008, 0.005], [-0.010, -0.005, -0.003]])
LOWER, UPPER = np.array([-0.2, 0.0, 0.0]), np.array([1.4, 1.6, 1.1])  # where limits begin [rad]


@struct
class Finger(Environment):
    """A finger whose tip goes to a point; two tendons pull at three joints.

    The joints are held by springs and by elastic limits, as by ligaments: with fewer tendons than
    joints, the limits share in where the tip can go.

    Action: tensions of the tendon that bends and the one that stretches, -1 for none.
    Observation (8): the three angles, a twentieth of their speeds [rad/s], and the way from the tip
    to the point, in lengths of the finger.
    Reward: "near", minus that distance; "effort", -0.02 times the mean square tension.
    Ends: never.
    Start: angles within 0.1 rad of straight; the point is where angles drawn between the limits put
    the tip.

    >>> task = finger()
    >>> moments = task.control(jnp.array([1.0, -1.0])).effort  # 20 N at 10, 8 and 5 mm
    >>> print((1000 * moments).round())  # [N mm]
    [200. 160. 100.]
    """

    def draw(self, key: Array) -> State:
        x = jax.random.uniform(key, (3, 1), self.start.q.dtype, maxval=0.1)
        return self.system.state(q=dict(zip(KNUCKLES, x, strict=True)))

    def goal(self, key: Array) -> Array:
        """The point [m], shape (2,)."""
        share = jax.random.uniform(key, (3,), self.start.q.dtype)
        return tip(LOWER + share * (UPPER - LOWER))

    def observe(self, state: State, qd: Array, goal: Array) -> Array:
        return jnp.concatenate([state.q, qd / 20, (goal - tip(state.q)) / LENGTHS.sum()])

    def judge(
        self, state: State, qd: Array, goal: Array, action: Array
    ) -> tuple[dict[str, Array], Array]:
        way = (goal - tip(state.q)) / LENGTHS.sum()
        # Protects the slope of the root where the tip is at the point.
        distance = jnp.sqrt(jnp.sum(way**2) + 1e-6)
        tension = (1 + action) / 2
        return {"near": -distance, "effort": -0.02 * jnp.mean(tension**2)}, jnp.zeros((), bool)

    def control(self, action: Array) -> Control:
        """Moments of both tendons at the knuckles."""
        tension = self.effort * (1 + jnp.clip(action, -1.0, 1.0)) / 2
        return Control(effort=jnp.sum(ARMS * tension[:, None], axis=0).astype(action.dtype))


def tip(q: Array) -> Array:
    """Where angles (3,) put the tip: along the straight finger, and to the side it bends to [m]."""
    angle = jnp.cumsum(q)
    along, aside = jnp.sum(LENGTHS * jnp.cos(angle)), jnp.sum(LENGTHS * jnp.sin(angle))
    return jnp.stack([along, aside]).astype(q.dtype)


@public
def finger(*, stiffness: float = 1.0, damping: float = 0.005) -> Finger:
    """Phalanges of 30, 20 and 10 g; an action of 1 is a tension of 20 N.

    stiffness, damping: of the elastic limits [N m/rad, N m s/rad]
    """
    world = SystemBuilder(gravity=(0.0, 0.0, 0.0))
    before = {}
    for i, (name, length) in enumerate(zip(KNUCKLES, LENGTHS, strict=True)):
        mass = (0.03, 0.02, 0.01)[i]
        across = mass * (length**2 / 12 + 0.008**2 / 4)
        inertia = (mass * 0.008**2 / 2, across, across)
        world.body(name, mass=mass, inertia=inertia, com=(length / 2, 0.0, 0.0))
        limits = Limits(LOWER[i], UPPER[i], stiffness=stiffness, damping=damping)
        spring = SpringDamper(stiffness=0.03, damping=0.003)
        laws = [limits, spring, Armature(2e-5)]
        world.joint(name, Hinge((0.0, 0.0, 1.0)), child=name, laws=laws, **before)
        before = {"parent": name, "frame_D": (length, 0.0, 0.0)}
    system, start = world.build()
    effort = jnp.full(2, 20.0)
    return Finger(system, start, effort, 0.004, actuated=("bend", "stretch"), substeps=5, limit=100)
