"""A hopper of four links in a plane, as in gymnasium and Brax."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..algebra.calls import public
from ..algebra.pytree import struct
from ..build.builder import SystemBuilder
from ..couplings.planar import Planar
from ..couplings.rotary import Hinge
from ..couplings.shapes import HalfSpace, Sphere
from ..laws.drives import Armature
from ..laws.limits import Limits
from ..laws.springs import Damping
from ..model.state import State
from .environment import Environment

# Name, mass [kg], ends [m], radius [m] of each link, and where its hinge is; the robot stands.
LINKS = (
    ("torso", 3.53, (0.0, 0.0, 1.45), (0.0, 0.0, 1.05), 0.05, None),
    ("thigh", 3.93, (0.0, 0.0, 1.05), (0.0, 0.0, 0.6), 0.05, (0.0, 0.0, 1.05)),
    ("leg", 2.71, (0.0, 0.0, 0.6), (0.0, 0.0, 0.1), 0.04, (0.0, 0.0, 0.6)),
    ("foot", 5.09, (-0.13, 0.0, 0.1), (0.26, 0.0, 0.1), 0.06, (0.0, 0.0, 0.1)),
)
STOPS = {"thigh": (-2.6, 0.1), "leg": (-2.6, 0.1), "foot": (-0.8, 0.8)}  # [rad]
HINGES = tuple(STOPS)
# Axes of the plane of motion: x of the world, z of the world, and against y of the world.
PLANE = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, -1.0], [0.0, 1.0, 0.0]])


@struct
class Hopper(Environment):
    """A torso, thigh, leg and foot that hop forwards in a plane.

    Action: moments of the three hinges.
    Observation (11): height of the torso above where it stood [m], its tilt and the three angles
    [rad]; a fifth of the torso's speeds along x and z and of its tilt, of the hinges' [rad/s].
    Reward: "forwards", the speed along x [m/s]; "alive" 1; "effort", -0.001 times the sum of the
    squares of the action.
    Ends: where the torso sinks by 0.55 m or tilts by more than 0.2 rad.
    Start: standing, all coordinates and speeds within ±0.005.

    >>> task = hopper()
    >>> state = task.system.state(q={"root": (0.0, 0.5, 0.3)})  # 0.5 m up, tilted by 0.3 rad
    >>> parts, ended = task.judge(state, jnp.zeros(6), jnp.zeros(0), jnp.ones(3))
    >>> print(parts["effort"].round(4), ended)
    -0.003 True
    """

    def draw(self, key: Array) -> State:
        q, qd = jax.random.uniform(key, (2, 6, 1), self.start.q.dtype, minval=-5e-3, maxval=5e-3)

        def by_name(x):
            return {"root": x[:3]} | dict(zip(HINGES, x[3:], strict=True))

        lifted = q.at[1].add(6e-3)
        q = {"root": lifted[:3, 0]} | dict(zip(HINGES, q[3:], strict=True))
        qd = {"root": qd[:3, 0]} | dict(zip(HINGES, qd[3:], strict=True))
        return self.system.state(q=q, qd=qd)

    def observe(self, state: State, qd: Array, goal: Array) -> Array:
        at = self.places("root", *HINGES)
        return jnp.concatenate([state.q[at[1:]], qd[at] / 5])

    def judge(
        self, state: State, qd: Array, goal: Array, action: Array
    ) -> tuple[dict[str, Array], Array]:
        _, height, tilt = state.q[self.places("root")]
        forwards = qd[self.places("root")[0]]
        effort = -1e-3 * jnp.sum(action**2)
        parts = {"forwards": forwards, "alive": jnp.ones_like(height), "effort": effort}
        return parts, (height < -0.55) | (jnp.abs(tilt) > 0.2)


@public
def hopper(*, stiffness: float | None = None, damping: float = 500.0) -> Hopper:
    """Masses and lengths of gymnasium's hopper; 1 is 200 N m.

    stiffness, damping: of the ground [N/m, N s/m]; a stiffness of None makes it hard
    """
    world = SystemBuilder()
    before = "world"
    soft = {} if stiffness is None else {"stiffness": stiffness, "damping": damping}
    for name, mass, start, end, radius, pivot in LINKS:
        start, end = np.array(start), np.array(end)
        length, middle = np.linalg.norm(end - start), (start + end) / 2
        along, across = mass * radius**2 / 2, mass * (length**2 / 12 + radius**2 / 4)
        u = (end - start) / length
        inertia = across * np.eye(3) + (along - across) * np.outer(u, u)
        world.body(name, mass=mass, inertia=inertia, pose=middle)
        if pivot is None:
            world.joint("root", Planar(), child=name, frame_W=(middle, PLANE))
        else:
            laws = [Limits(*STOPS[name]), Damping(1.0), Armature(1.0)]
            joint = Hinge((0.0, -1.0, 0.0))
            options = {"child": name, "parent": before, "frame_W": pivot, "max_effort": 200.0}
            world.joint(name, joint, laws=laws, **options)
        before = name
    for name, x in (("heel", -0.13), ("toe", 0.26)):
        at = (x - 0.065, 0.0, 0.0)
        # In its plane a round cone is the same, and a longer program.
        ground = {"friction": 1.0, "cone": "pyramid"} | soft
        world.contact(name, Sphere(0.06), HalfSpace(), child="foot", frame_C=at, **ground)
    system, start = world.build()
    effort = jnp.full(3, 200.0)
    return Hopper(system, start, effort, 0.002, actuated=HINGES, substeps=4, limit=1000)
