"""A torso on four legs of two hinges each, as in gymnasium and Brax."""

from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..algebra.calls import public
from ..algebra.pytree import struct
from ..build.builder import SystemBuilder
from ..couplings.rotary import Hinge
from ..couplings.shapes import HalfSpace, Sphere
from ..laws.drives import Armature
from ..laws.limits import Limits
from ..laws.springs import Damping
from ..model.state import State
from .environment import Environment

HEIGHT = 0.6  # of the torso where the ankles are bent by BENT [m, rad]
BENT = 1.0
SIDES = ((1.0, 1.0), (-1.0, 1.0), (-1.0, -1.0), (1.0, -1.0))
HINGES = tuple(f"{joint} {i}" for i in range(4) for joint in ("hip", "ankle"))


@struct
class Ant(Environment):
    """Four legs that carry a torso forwards, along x.

    Action: moments of hips and ankles, in turn, leg by leg.
    Observation (27): height of the torso [m], its quaternion, the eight angles [rad]; its velocity
    [m/s] and angular velocity [rad/s] in world axes, a fifth of the angles' speeds.
    Reward: "forwards", the speed along x [m/s]; "alive" 1; "effort", -0.5 times the mean square of
    the action.
    Ends: where the torso is below 0.25 m or above 1.2 m.
    Start: standing, angles within ±0.1 rad.

    >>> task = ant()
    >>> parts, ended = task.judge(task.start, jnp.zeros(14), jnp.zeros(0), jnp.ones(8))
    >>> print(parts["alive"], parts["effort"], ended)  # standing, all moments at 150 N m
    1.0 -0.5 False
    """

    def draw(self, key: Array) -> State:
        x = jax.random.uniform(key, (8, 1), self.start.q.dtype, minval=-0.1, maxval=0.1)
        # Ankles are bent outwards alone: the feet stay above the ground.
        x = x + jnp.asarray([0.0, BENT - 0.1] * 4, x.dtype)[:, None]
        return self.system.state(q=dict(zip(HINGES, x, strict=True)), pose=self._pose())

    def _pose(self):
        return {"torso": jnp.asarray((0.0, 0.0, HEIGHT), self.start.q.dtype)}

    def observe(self, state: State, qd: Array, goal: Array) -> Array:
        at, i = self.places(*HINGES), self.system.body("torso")
        where = [state.position[2:, i], state.quaternion[:, i], state.q[at]]
        return jnp.concatenate([*where, state.velocity[:, i], state.omega[:, i], qd[at] / 5])

    def judge(
        self, state: State, qd: Array, goal: Array, action: Array
    ) -> tuple[dict[str, Array], Array]:
        i = self.system.body("torso")
        height, effort = state.position[2, i], -0.5 * jnp.mean(action**2)
        parts = {"forwards": state.velocity[0, i], "alive": jnp.ones_like(height)}
        return parts | {"effort": effort}, (height < 0.25) | (height > 1.2)


@public
def ant(
    *,
    stiffness: float | None = None,
    damping: float = 20.0,
    cone: Literal["pyramid", "convex"] = "pyramid",
) -> Ant:
    """A torso of 0.33 kg and legs of 0.1 kg, of gymnasium's sizes; 1 is 150 N m.

    stiffness, damping: of the ground [N/m, N s/m]; a stiffness of None makes it hard
    cone: of friction, as in `contact`; "convex": as in MuJoCo, where feet push once they touch
    """
    world = SystemBuilder()
    world.body("torso", mass=0.33, inertia=(0.01, 0.01, 0.015), pose=(0.0, 0.0, HEIGHT))
    soft = {} if stiffness is None else {"stiffness": stiffness, "damping": damping}
    for i, (x, y) in enumerate(SIDES):
        for kind, mass, reach in (("hip", 0.037, 0.2), ("ankle", 0.065, 0.4)):
            name, end = f"{kind} {i}", np.array([reach * x, reach * y, 0.0])
            length, radius = np.linalg.norm(end), 0.08
            along, across = mass * radius**2 / 2, mass * (length**2 / 12 + radius**2 / 4)
            u = end / length
            inertia = across * np.eye(3) + (along - across) * np.outer(u, u)
            world.body(name, mass=mass, inertia=inertia, com=end / 2)
            hip = kind == "hip"
            axis = (0.0, 0.0, 1.0) if hip else (-y, x, 0.0)
            stop = Limits(-0.52, 0.52) if hip else Limits(0.52, 1.75)
            world.joint(
                name,
                Hinge(axis),
                child=name,
                parent="torso" if hip else f"hip {i}",
                frame_D=(0.2 * x, 0.2 * y, 0.0),
                laws=[stop, Damping(1.0), Armature(1.0)],
                max_effort=150.0,
                q=0.0 if hip else BENT,
            )
        ground = {"friction": 1.0, "cone": cone, "anticipate": cone != "convex"} | soft
        foot = (0.4 * x, 0.4 * y, 0.0)
        world.contact(f"foot {i}", Sphere(0.08), HalfSpace(), child=name, frame_C=foot, **ground)
    system, start = world.build()
    effort = jnp.full(8, 150.0)
    return Ant(system, start, effort, 0.01, actuated=HINGES, substeps=5, limit=1000)
