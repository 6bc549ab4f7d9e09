"""A gripper of two closed loops that closes on a cube and lifts it."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..algebra.calls import public
from ..algebra.pytree import replace, static, struct
from ..build.builder import SystemBuilder
from ..couplings.linear import Slider
from ..couplings.planar import Planar
from ..couplings.rotary import Hinge
from ..couplings.shapes import Box, HalfSpace, Point, Sphere
from ..laws.drives import Armature
from ..laws.limits import Limits
from ..laws.springs import Damping
from ..laws.transmissions import Mimic
from ..model.state import State
from .environment import Environment

# All lengths in m, for the finger at -x; that at +x is its mirror image. The palm starts at HEIGHT
# above the ground, with the bars of length BAR at the angle OPEN from the vertical.
HEIGHT, BAR, OPEN = 0.125, 0.06, 0.6
OUTER, INNER = -0.06, -0.03  # where the bars hang from the palm
PADS, RADIUS = ((0.005, -0.02), (0.005, -0.05)), 0.004  # below the end of the inner bar
SIDE, LIFTED, ASIDE = 0.05, 0.1, 0.05  # of the cube; height that earns 1; way at which it is lost
# Axes of the cube's plane: x and z of the world.
PLANE = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, -1.0], [0.0, 1.0, 0.0]])


@struct
class Gripper(Environment):
    """Two fingers on parallelograms close on a cube and lift it, in a vertical plane.

    Each finger hangs from the palm by two bars of equal length, so it stays upright: a closed loop.
    One motor turns the outer bar of a finger, and gears turn that of the other finger against it.
    A second motor lifts the palm.

    Action: the moment that closes, the force that lifts.
    Observation (9): height of the palm above its start, angle by which the bars have closed, their
    speeds [m/s and a tenth of rad/s], place of the cube along x and z from its middle start, its
    tilt, and its speeds along x and z. Lengths in units of 5 cm.
    Reward: "lifted", the height of the cube over 0.1 m, at most 1; "effort", -0.01 times the mean
    square of the action.
    Ends: where the cube is more than 5 cm aside.
    Start: open fingers about the cube, which stands up to 1 cm off the middle.

    >>> from jaxjoints.dynamics import spanning_tree
    >>> task = gripper()
    >>> print(len(spanning_tree(task.system).loops), task.action_size)  # loops and motors
    2 2
    """

    cube: int = static(default=0, kw_only=True)

    def draw(self, key: Array) -> State:
        x = jax.random.uniform(key, (), self.start.q.dtype, -0.01, 0.01)
        position = self.start.position.at[0, self.cube].add(x)
        return replace(
            self.start, position=position, q=self.start.q.at[self.places("cube")[0]].add(x)
        )

    def observe(self, state: State, qd: Array, goal: Array) -> Array:
        lift, bar, cube = (self.places(name) for name in ("lift", "outer left", "cube"))
        parts = [state.q[lift] / SIDE, -state.q[bar], qd[lift], qd[bar] / 10]
        return jnp.concatenate([*parts, state.q[cube[:2]] / SIDE, state.q[cube[2:]], qd[cube[:2]]])

    def judge(
        self, state: State, qd: Array, goal: Array, action: Array
    ) -> tuple[dict[str, Array], Array]:
        x, height, _ = state.q[self.places("cube")]
        parts = {
            "lifted": jnp.minimum(height / LIFTED, 1.0),
            "effort": -0.01 * jnp.mean(action**2),
        }
        return parts, jnp.abs(x) > ASIDE


@public
def gripper(*, friction: float = 0.8) -> Gripper:
    """A palm of 0.3 kg and a cube of 0.1 kg; 1 is 0.5 N m and 12 N.

    friction: of the cube with pads and ground
    """
    world = SystemBuilder()
    world.body("palm", mass=0.3, inertia=(3e-4,) * 3, pose=(0.0, 0.0, HEIGHT))
    stops = Limits(0.0, 0.2)
    up = (0.0, 0.0, 1.0)
    at = {"child": "palm", "frame_W": (0.0, 0.0, HEIGHT)}
    world.joint("lift", Slider(up), **at, laws=[stops, Damping(5.0)], max_effort=12.0)
    for side, sign in (("left", 1.0), ("right", -1.0)):
        _add_finger(world, side, sign)
    world.transmission("gears", Mimic(-1.0), joints=["outer left", "outer right"])

    middle = np.array([0.0, 0.0, SIDE / 2])
    moment = 0.1 * SIDE**2 / 6
    world.body("cube", mass=0.1, inertia=(moment,) * 3, pose=middle)
    world.joint("cube", Planar(), child="cube", frame_W=(middle, PLANE))
    # In its plane a round cone is the same as a pyramid, and a longer program.
    surface = {"friction": friction, "cone": "pyramid"}
    for i, (x, z) in enumerate(((-1, -1), (1, -1), (-1, 1), (1, 1))):
        corner = (x * SIDE / 2, 0.0, z * SIDE / 2)
        name = f"ground/{i}"
        world.contact(name, Point(), HalfSpace(), child="cube", frame_C=corner, **surface)
    for side, sign in (("left", 1.0), ("right", -1.0)):
        for i, (x, z) in enumerate(PADS):
            shapes = Sphere(RADIUS), Box((SIDE,) * 3)
            at = {"child": f"finger {side}", "frame_C": (sign * x, 0.0, z), "parent": "cube"}
            world.contact(f"pad {side}/{i}", *shapes, **at, **surface)
    system, start = world.build()
    cube, actuated = system.topology.bodies.index("cube"), ("outer left", "lift")
    options = {"actuated": actuated, "substeps": 5, "limit": 100}
    # Turning the bar backwards closes.
    effort = jnp.array([-0.5, 12.0])
    return Gripper(system, start, effort, 0.004, cube=cube, **options)


def _add_finger(world: SystemBuilder, side: str, sign: float) -> None:
    """A finger, its two bars and four hinges; sign: 1 at -x, -1 at +x."""
    along = BAR * np.array([-sign * np.sin(OPEN), 0.0, -np.cos(OPEN)])
    pivots = {
        name: np.array([sign * x, 0.0, HEIGHT]) for name, x in (("outer", OUTER), ("inner", INNER))
    }
    hinge, moment = Hinge((0.0, 1.0, 0.0)), 0.02 * BAR**2 / 12
    for name, pivot in pivots.items():
        bar = f"{name} {side}"
        world.body(bar, mass=0.02, inertia=(moment,) * 3, pose=pivot + along / 2)
        laws = [Armature(1e-4), Damping(2e-3)]
        if bar == "outer left":
            laws.append(Limits(-OPEN - 0.2, 0.1))
        at = {"child": bar, "parent": "palm", "frame_W": pivot}
        world.joint(bar, hinge, **at, laws=laws, max_effort=0.5)
    finger = f"finger {side}"
    world.body(finger, mass=0.05, inertia=(4e-5,) * 3, pose=pivots["inner"] + along)
    for name, pivot in pivots.items():
        at = {"child": finger, "parent": f"{name} {side}", "frame_W": pivot + along}
        world.joint(f"{name} end {side}", hinge, **at)
