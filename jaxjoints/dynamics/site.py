"""Sites: named frames on bodies, with pose, velocity, acceleration and Jacobian."""

from functools import partial
from typing import Any

import jax.numpy as jnp
from jax import Array

from ..algebra.calls import public
from ..algebra.compiler import quickly
from ..algebra.options import near_matches
from ..algebra.pytree import expand, expand_trailing, static, struct
from ..algebra.spatial import Pose, cross, quat_multiply, quat_normalize, quat_rotate
from ..build.checks.values import read_pose
from ..model.batch import is_single
from ..model.state import Control, State
from ..model.system import System
from ..simulate.door import entered
from .acceleration import Accelerations, ready
from .tree import columns, spanning_tree


@struct
class Site:
    """A frame on a body, such as a tool, a foot or a sensor.

    body: name of the body
    frame: pose of the site in the body frame, leaves (3,) and (4,) or with batch axes

    >>> from jaxjoints import Hinge, SystemBuilder
    >>> world = SystemBuilder()
    >>> arm = world.body("arm", mass=1.0, inertia=(0.1, 0.1, 0.02))
    >>> _ = world.joint("elbow", Hinge((0.0, 0.0, 1.0)), child=arm, qd=2.0)
    >>> system, state = world.build()
    >>> hand = Site("arm", Pose.along_x(0.5))
    >>> print(hand.velocity(system, state))
    [0. 1. 0. 0. 0. 2.]
    >>> print(hand.jacobian(system, state)[:, 0])
    [0.  0.5 0.  0.  0.  1. ]
    """

    body: str = static()
    frame: Pose

    def pose(self, system: System, state: State) -> Pose:
        """Pose of the site in the world, leaves (3, *batch) and (4, *batch)."""
        b, _, C, q = self._placed("Site.pose", system, state)
        frame = expand_trailing(self.frame.q, 1, state.time.ndim)
        q = quat_multiply(q, quat_normalize(jnp.broadcast_to(frame, q.shape)))
        return Pose(state.position[:, b] + C, q)

    def velocity(self, system: System, state: State) -> Array:
        """Velocity of the site's origin, then angular velocity, world axes, shape (6, *batch)."""
        b, state, arm, _ = self._placed("Site.velocity", system, state)
        omega = state.omega[:, b]
        return jnp.concatenate([state.velocity[:, b] + cross(omega, arm), omega])

    def acceleration(self, system: System, state: State, now: Accelerations) -> Array:
        """Acceleration of the site's origin, then angular acceleration, world axes, (6, *batch).

        now: what `accelerations` returned for the state
        """
        b, state, arm, _ = self._placed("Site.acceleration", system, state)
        omega, angular = state.omega[:, b], now.angular[:, b]
        centripetal = cross(omega, cross(omega, arm))
        linear = now.linear[:, b] + cross(angular, arm) + centripetal
        return jnp.concatenate([linear, angular])

    def jacobian(self, system: System, state: State) -> Array:
        """J of the velocity J ν, world axes, shape (6, speeds, *batch); ν: see `spanning_tree`."""
        b, state, arm, _ = self._placed("Site.jacobian", system, state)
        J = _columns(system, state)[:, b]
        linear = J[:3] + cross(J[3:], jnp.broadcast_to(arm[:, None], J[3:].shape))
        return jnp.concatenate([linear, J[3:]])

    def _placed(self, call: str, system: System, state: State) -> tuple[int, State, Array, Array]:
        """Index of the body, the state, the way from the centre of mass to the site's origin in
        world axes, and the body's quaternion.
        """
        system, state, _ = entered(call, system, state)
        b, batch = system.body(self.body), state.time.ndim
        com = expand(system.com, [2], batch)[:, b]
        p = expand_trailing(jnp.asarray(self.frame.p, com.dtype), 1, batch) - com
        q = quat_normalize(state.quaternion[:, b])
        return b, state, quat_rotate(q, jnp.broadcast_to(p, q[1:].shape)), q


@public
def site(system: System, body: str, frame: Any = None) -> Site:
    """A `Site` on a body, from a pose in any form that `SystemBuilder.body` takes.

    frame: pose in the body frame, the body frame itself by default; `Model.frames` of a model file
        has body and frame of each link: `site(system, *model.frames["hand"])`
    Raises: ValueError for an unknown body, and for what is no pose.
    """
    if body not in system.topology.bodies:
        hint = near_matches(str(body), system.topology.bodies)
        raise ValueError(f"site: there is no body {body!r}; {hint}")
    return Site(body, read_pose("site", "frame", frame))


@partial(quickly, where=is_single)
def _columns(system: System, state: State) -> Array:
    mechanism, state, _ = ready(system, state, Control())
    return columns(mechanism, spanning_tree(system), state)
