"""A trunk that walks in a plane on two legs of four bars each."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..algebra.calls import public
from ..algebra.pytree import struct
from ..build.builder import SystemBuilder
from ..couplings.planar import Planar
from ..couplings.rotary import Hinge
from ..laws.drives import Armature
from ..laws.limits import Limits
from ..laws.springs import Damping
from ..model.state import State
from ..schemes.semi_implicit_euler import SemiImplicitEuler
from .environment import Environment
from .four_bar_leg import EFFORT, HEIGHT, PLANE, add_leg

SIDES = ("left", "right")
HIPS = tuple(f"{side} hip" for side in SIDES)
CRANKS = tuple(f"{side} crank" for side in SIDES)
SPEED = 1.0  # wanted [m/s]
FALLEN, TIPPED = -0.15, 0.6  # of the trunk, where the task ends [m, rad]


@struct
class Biped(Environment):
    """A trunk on two legs that walks forwards in a plane and must not tip over.

    Each leg is that of `FourBarLeg` below a hip: crank and rocker hang from the hip and carry the
    shank, a closed loop. One motor of a leg turns the hip, one its crank against a spring.

    Action: moments of both hips, then of both cranks, left before right.
    Observation (13): height of the trunk above where it stood [m], its tilt, backwards positive,
    angles of hips and cranks [rad]; half of the trunk's speeds along x and z, a fifth of its tilt's
    and of the hips', a tenth of the cranks' [rad/s].
    Reward: "forwards", the speed along x up to 1 m/s; "alive" 1; "effort", -0.1 times the mean
    square of the action.
    Ends: where the trunk falls by 0.15 m or tilts by more than 0.6 rad.
    Start: standing up to 0.01 m above the ground; tilt within ±0.05 rad, hips within ±0.1 rad,
    speeds of the trunk within ±0.1 m/s and ±0.1 rad/s.

    >>> from jaxjoints.dynamics import spanning_tree
    >>> task = biped()
    >>> print(len(spanning_tree(task.system).loops), task.action_size)  # loops and motors
    2 4
    """

    def draw(self, key: Array) -> State:
        x = jax.random.uniform(key, (8,), self.start.q.dtype, minval=-1.0, maxval=1.0)
        # Rigid displacements of trunk and legs: the loops stay closed.
        trunk = jnp.stack([jnp.zeros_like(x[0]), 5e-3 * (1 + x[0]), 0.05 * x[1]])
        q = {"trunk": trunk} | dict(zip(HIPS, 0.1 * x[2:4, None], strict=True))
        return self.system.state(q=q, qd={"trunk": 0.1 * x[4:7]})

    def observe(self, state: State, qd: Array, goal: Array) -> Array:
        trunk, hips, cranks = (self.places(*names) for names in (("trunk",), HIPS, CRANKS))
        where = [state.q[trunk[1:]], state.q[hips], state.q[cranks]]
        speeds = [qd[trunk[:2]] / 2, qd[trunk[2:]] / 5, qd[hips] / 5, qd[cranks] / 10]
        return jnp.concatenate([*where, *speeds])

    def judge(
        self, state: State, qd: Array, goal: Array, action: Array
    ) -> tuple[dict[str, Array], Array]:
        trunk = self.places("trunk")
        _, height, tilt = state.q[trunk]
        parts = {
            "forwards": jnp.minimum(qd[trunk[0]], SPEED),
            "alive": jnp.ones_like(height),
            "effort": -0.1 * jnp.mean(action**2),
        }
        return parts, (height < FALLEN) | (jnp.abs(tilt) > TIPPED)


@public
def biped(*, stiffness: float = 2e4, damping: float = 100.0) -> Biped:
    """A trunk of 3 kg, hips of 0.3 kg, bars of 0.1 kg; 1 is 12 N m.

    stiffness, damping: of the ground under the feet [N/m, N s/m]
    """
    world = SystemBuilder()
    up = np.array([0.0, 0.0, HEIGHT])
    world.body("trunk", mass=3.0, inertia=(0.03,) * 3, com=(0.0, 0.0, 0.1), pose=up)
    world.joint("trunk", Planar(), child="trunk", frame_W=(up, PLANE))
    for side, hip in zip(SIDES, HIPS, strict=True):
        world.body(hip, mass=0.3, inertia=(5e-4,) * 3, pose=up)
        laws = [Limits(-1.0, 1.0), Armature(0.01), Damping(0.1)]
        hinge = Hinge((0.0, 1.0, 0.0))
        at = {"child": hip, "parent": "trunk", "frame_W": up}
        world.joint(hip, hinge, **at, laws=laws, max_effort=EFFORT)
        add_leg(world, hip, up, f"{side} ", stiffness=stiffness, damping=damping)
    system, start = world.build()
    scheme = SemiImplicitEuler(projections=1)
    effort = jnp.full(4, EFFORT)
    options = {"actuated": HIPS + CRANKS, "substeps": 4, "limit": 300, "scheme": scheme}
    return Biped(system, start, effort, 0.005, **options)
