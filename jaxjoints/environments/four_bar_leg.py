"""A trunk that hops forwards on a leg of four bars, by one motor and a spring."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..algebra.calls import public
from ..algebra.pytree import replace, struct
from ..build.builder import SystemBuilder
from ..couplings.planar import PlanarTranslation
from ..couplings.rotary import Hinge
from ..couplings.shapes import HalfSpace, Sphere
from ..laws.limits import Limits
from ..laws.springs import SpringDamper
from ..model.measures import gaps
from ..model.state import State
from ..schemes.semi_implicit_euler import SemiImplicitEuler
from .environment import Environment

# Pivots on the trunk and on the shank, and the foot, from the crank's pivot; z is upwards [m].
HIP, REAR = np.array([0.0, 0.0, 0.0]), np.array([-0.08, 0.0, 0.02])
KNEE, HEEL = np.array([0.14, 0.0, -0.14]), np.array([0.07, 0.0, -0.20])
FOOT, RADIUS = np.array([0.0, 0.0, -0.42]), 0.02
HEIGHT = RADIUS - FOOT[2]
EFFORT = 12.0  # of the crank, of an action of 1 [N m]
# Axes of the trunk's plane: x of the world, z of the world.
PLANE = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, -1.0], [0.0, 1.0, 0.0]])


@struct
class FourBarLeg(Environment):
    """A trunk on a leg of four bars that hops forwards; the trunk does not tilt.

    Crank and rocker hang from the trunk and carry the shank: a closed loop, which moves the foot on
    a curve. A motor turns the crank against a spring, between soft stops.

    Action: the moment of the crank.
    Observation (6): height of the trunk above where it started, angle of the crank, half of the
    trunk's speeds along x and z, a tenth of the crank's speed [rad/s], gap under the foot.
    Reward: "forwards", the speed along x [m/s]; "effort", -0.05 times the square of the action.
    Ends: where the trunk falls by 0.2 m.
    Start: standing, up to 0.1 m above the ground.

    >>> from jaxjoints.dynamics import spanning_tree
    >>> task = four_bar_leg()
    >>> spanning_tree(task.system).loops, task.action_size  # one motor moves four hinges
    (('heel',), 1)
    """

    def draw(self, key: Array) -> State:
        x = jax.random.uniform(key, (), self.start.q.dtype, maxval=0.1)
        # A rigid displacement: the loop stays closed.
        position = self.start.position.at[2].add(x)
        q = self.start.q.at[self.places("trunk")[1]].add(x)
        return replace(self.start, position=position, q=q)

    def observe(self, state: State, qd: Array, goal: Array) -> Array:
        trunk, crank = self.places("trunk"), self.places("crank")
        parts = [state.q[trunk[1:]], state.q[crank], qd[trunk] / 2, qd[crank] / 10]
        return jnp.concatenate([*parts, gaps(self.system, state)])

    def judge(
        self, state: State, qd: Array, goal: Array, action: Array
    ) -> tuple[dict[str, Array], Array]:
        trunk = self.places("trunk")
        parts = {"forwards": qd[trunk[0]], "effort": -0.05 * action[0] ** 2}
        return parts, state.q[trunk[1]] < -0.2


@public
def four_bar_leg(*, stiffness: float = 2e4, damping: float = 100.0) -> FourBarLeg:
    """A trunk of 3 kg, bars of 0.1 to 0.2 kg; 1 is 12 N m.

    stiffness, damping: of the ground under the foot [N/m, N s/m]
    """
    world = SystemBuilder()
    up = np.array([0.0, 0.0, HEIGHT])
    world.body("trunk", mass=3.0, inertia=(0.02, 0.02, 0.02), pose=up)
    world.joint("trunk", PlanarTranslation(), child="trunk", frame_W=(up, PLANE))
    add_leg(world, "trunk", up, stiffness=stiffness, damping=damping)
    system, start = world.build()
    scheme = SemiImplicitEuler(projections=1)
    effort = jnp.full(1, EFFORT)
    options = {"actuated": ("crank",), "substeps": 4, "limit": 300, "scheme": scheme}
    return FourBarLeg(system, start, effort, 0.005, **options)


def add_leg(
    world: SystemBuilder,
    above: str,
    at: np.ndarray,
    prefix: str = "",
    *,
    stiffness: float,
    damping: float,
) -> None:
    """Crank, rocker and shank that hang from a body, and the foot at the end of the shank.

    above: the body; at: the pivot of the crank in the world, shape (3,) [m]
    prefix: of all names, with a space at its end
    stiffness, damping: of the ground under the foot [N/m, N s/m]
    """
    crank, rocker, shank = (prefix + name for name in ("crank", "rocker", "shank"))
    for name, start, end in ((crank, HIP, KNEE), (rocker, REAR, HEEL), (shank, KNEE, FOOT)):
        length = np.linalg.norm(end - start)
        mass, u = 0.4 * length, (end - start) / length
        # Of a bar of 2 cm: about the axis of its hinges that of a thin rod.
        along, across = mass * 0.01**2 / 2, mass * length**2 / 12
        inertia = across * np.eye(3) + (along - across) * np.outer(u, u)
        world.body(name, mass=mass, inertia=inertia, pose=at + (start + end) / 2)
    hinge = Hinge((0.0, 1.0, 0.0))
    stops = Limits(-0.5, 0.5, stiffness=200.0, damping=0.5)
    laws = [SpringDamper(stiffness=20.0, damping=0.1), stops]
    driven = {"laws": laws, "max_effort": EFFORT}
    world.joint(crank, hinge, child=crank, parent=above, frame_W=at + HIP, **driven)
    world.joint(rocker, hinge, child=rocker, parent=above, frame_W=at + REAR)
    world.joint(f"{prefix}knee", hinge, child=shank, parent=crank, frame_W=at + KNEE)
    world.joint(f"{prefix}heel", hinge, child=shank, parent=rocker, frame_W=at + HEEL)
    world.contact(
        f"{prefix}foot",
        Sphere(RADIUS),
        HalfSpace(),
        child=shank,
        frame_C=FOOT - (KNEE + FOOT) / 2,
        friction=0.8,
        cone="pyramid",  # In its plane a round one is the same, and a longer program.
        stiffness=stiffness,
        damping=damping,
    )
