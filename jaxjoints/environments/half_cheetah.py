"""Half of a cheetah, a trunk on two legs in a plane, as in gymnasium and Brax."""

from typing import NamedTuple

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
from ..laws.springs import SpringDamper
from ..model.state import State
from .environment import Environment

RADIUS, MASS, HEIGHT = 0.046, 14.0, 0.7  # of all capsules [m], of the robot [kg], of the torso [m]


class Link(NamedTuple):
    """A capsule that hangs from a hinge about y.

    pivot: in the frame of the parent; middle: of the capsule, both along x and z [m]
    tilt: of the capsule's axis from z towards x [rad]; half: of its length [m]
    stop: bounds of the angle [rad]; stiffness, damping: of the hinge [N m/rad, N m s/rad]
    effort: of an action of 1 [N m]
    """

    parent: str
    pivot: tuple[float, float]
    middle: tuple[float, float]
    tilt: float
    half: float
    stop: tuple[float, float]
    stiffness: float
    damping: float
    effort: float


LINKS = {
    "back thigh": Link(
        *("torso", (-0.5, 0.0), (0.1, -0.13), -3.8, 0.145), (-0.52, 1.05), 240.0, 6.0, 120.0
    ),
    "back shin": Link(
        *("back thigh", (0.16, -0.25), (-0.14, -0.07), -2.03, 0.15),
        *((-0.785, 0.785), 180.0, 4.5, 90.0),
    ),
    "back foot": Link(
        *("back shin", (-0.28, -0.14), (0.03, -0.097), -0.27, 0.094),
        *((-0.4, 0.785), 120.0, 3.0, 60.0),
    ),
    "front thigh": Link(
        *("torso", (0.5, 0.0), (-0.07, -0.12), 0.52, 0.133), (-1.0, 0.7), 180.0, 4.5, 120.0
    ),
    "front shin": Link(
        *("front thigh", (-0.14, -0.24), (0.065, -0.09), -0.6, 0.106),
        *((-1.2, 0.87), 120.0, 3.0, 60.0),
    ),
    "front foot": Link(
        *("front shin", (0.13, -0.18), (0.045, -0.07), -0.6, 0.07),
        *((-0.5, 0.5), 60.0, 1.5, 30.0),
    ),
}
HINGES = tuple(LINKS)
# Middle, tilt and half length of the capsules of the torso: trunk and head.
TRUNK = (((0.0, 0.0), np.pi / 2, 0.5), ((0.6, 0.1), 0.87, 0.15))
# Axes of the plane of motion: x of the world, z of the world, and against y of the world.
PLANE = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, -1.0], [0.0, 1.0, 0.0]])


@struct
class HalfCheetah(Environment):
    """A trunk on two legs of three springy hinges each, which runs forwards in a plane.

    Action: moments of the six hinges, those of the back leg first.
    Observation (17): height of the torso above where it starts [m], its pitch, nose down positive,
    and the six angles [rad]; the torso's speeds along x and z, those of pitch and angles.
    Reward: "forwards", the speed along x [m/s]; "effort", -0.1 times the sum of the squares of the
    action.
    Ends: by the limit alone.
    Start: all coordinates within ±0.1 and the torso lifted by 0.1 m; all speeds normal with
    deviation 0.1.

    >>> task = half_cheetah()
    >>> print(task.control(jnp.ones(6)).effort[task.places(*task.actuated)])  # [N m]
    [120.  90.  60. 120.  60.  30.]
    """

    def draw(self, key: Array) -> State:
        at, moving = jax.random.split(key)
        q = jax.random.uniform(at, (9,), self.start.q.dtype, minval=-0.1, maxval=0.1)
        qd = 0.1 * jax.random.normal(moving, (9,), self.start.q.dtype)

        def by_name(x):
            return {"root": x[:3]} | dict(zip(HINGES, x[3:, None], strict=True))

        return self.system.state(q=by_name(q.at[1].add(0.1)), qd=by_name(qd))

    def observe(self, state: State, qd: Array, goal: Array) -> Array:
        at = self.places("root", *HINGES)
        # The third coordinate of the plane counts against y.
        sign = jnp.ones(9, qd.dtype).at[2].set(-1.0)
        return jnp.concatenate([(sign * state.q[at])[1:], sign * qd[at]])

    def judge(
        self, state: State, qd: Array, goal: Array, action: Array
    ) -> tuple[dict[str, Array], Array]:
        forwards = qd[self.places("root")[0]]
        effort = -0.1 * jnp.sum(action**2)
        return {"forwards": forwards, "effort": effort}, jnp.zeros((), bool)


def _axis(tilt: float) -> np.ndarray:
    """Along z, turned by the tilt about y."""
    return np.array([np.sin(tilt), 0.0, np.cos(tilt)])


def _capsule(middle, tilt, half):
    """Volume, centre, and inertia about it at a density of 1, of a capsule."""
    rod, ball = np.pi * RADIUS**2 * 2 * half, 4 / 3 * np.pi * RADIUS**3
    along = rod * RADIUS**2 / 2 + ball * 2 / 5 * RADIUS**2
    # A half ball at each end: its centre is 3/8 of the radius beyond the end of the rod.
    across = rod * (RADIUS**2 / 4 + (2 * half) ** 2 / 12)
    across += ball * (2 / 5 * RADIUS**2 + half**2 + 3 / 4 * half * RADIUS)
    u = _axis(tilt)
    inertia = across * np.eye(3) + (along - across) * np.outer(u, u)
    return rod + ball, np.array([middle[0], 0.0, middle[1]]), inertia


def _solid(*capsules):
    """Volume, centre, and inertia about it at a density of 1, of several capsules in one."""
    volumes, centres, inertias = zip(*(_capsule(*one) for one in capsules), strict=True)
    centre = np.average(centres, axis=0, weights=volumes)
    total = sum(inertias)
    for volume, r in zip(volumes, np.array(centres) - centre, strict=True):
        total = total + volume * (r @ r * np.eye(3) - np.outer(r, r))
    return sum(volumes), centre, total


@public
def half_cheetah(*, stiffness: float | None = None, damping: float = 500.0) -> HalfCheetah:
    """Masses and lengths of gymnasium's half cheetah; 1 is 120, 90, 60 and 120, 60, 30 N m.

    Both ends of each foot, the knees, and the ends of the torso touch the ground.

    stiffness, damping: of the ground [N/m, N s/m]; a stiffness of None makes it hard
    """
    world = SystemBuilder()
    solids = {"torso": _solid(*TRUNK)}
    solids |= {name: _solid((x.middle, x.tilt, x.half)) for name, x in LINKS.items()}
    density = MASS / sum(volume for volume, *_ in solids.values())
    ground = {"friction": 0.4, "cone": "pyramid"}
    ground |= {} if stiffness is None else {"stiffness": stiffness, "damping": damping}

    def touching(name, body, point):
        world.contact(name, Sphere(RADIUS), HalfSpace(), child=body, frame_C=point, **ground)

    for name, (volume, centre, inertia) in solids.items():
        pose = (0.0, 0.0, HEIGHT) if name == "torso" else None
        numbers = {"mass": density * volume, "inertia": density * inertia, "com": centre}
        world.body(name, **numbers, **({} if pose is None else {"pose": pose}))
        if name == "torso":
            world.joint("root", Planar(), child=name, frame_W=((0.0, 0.0, HEIGHT), PLANE))
            continue
        link = LINKS[name]
        world.joint(
            name,
            Hinge((0.0, 1.0, 0.0)),
            child=name,
            parent=link.parent,
            frame_D=(link.pivot[0], 0.0, link.pivot[1]),
            laws=[Limits(*link.stop), SpringDamper(link.stiffness, link.damping), Armature(0.1)],
            max_effort=link.effort,
        )
    touching("tail", "torso", (-0.5, 0.0, 0.0))
    touching("head", "torso", np.array([0.6, 0.0, 0.1]) + 0.15 * _axis(0.87))
    for leg in ("back", "front"):
        x, z = LINKS[f"{leg} shin"].pivot
        touching(f"{leg} knee", f"{leg} thigh", (x, 0.0, z))
        foot = LINKS[f"{leg} foot"]
        middle = np.array([foot.middle[0], 0.0, foot.middle[1]])
        for end, sign in (("top", 1.0), ("bottom", -1.0)):
            touching(
                f"{leg} foot {end}", f"{leg} foot", middle + sign * foot.half * _axis(foot.tilt)
            )
    system, start = world.build()
    effort = jnp.asarray([link.effort for link in LINKS.values()])
    return HalfCheetah(system, start, effort, 0.01, actuated=HINGES, substeps=5, limit=1000)
