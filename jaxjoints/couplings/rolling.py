"""Bodies that roll on the plane z = 0 of D without slipping: a sphere and a disc."""

from abc import abstractmethod
from typing import Any, ClassVar

import jax.numpy as jnp
from jax import Array

from ..algebra.pytree import Numbers, struct
from ..algebra.spatial import Pose, cross, norm, quat_to_rotation_vector, unit
from .angles import unwrap_rotation_vector
from .coupling import Residual
from .gimbal import euler_angles, euler_rotation
from .wrench import check_length


class _Rolling(Residual):
    """One row keeps the body on the plane; two rows at velocity level keep it from slipping."""

    radius: Numbers
    dof: ClassVar[int] = 5
    velocity_rows: ClassVar[int] = 2

    def project(self, T: Pose, q: Array | None = None, t: Any = 0.0) -> tuple[Pose, Array]:
        """Pose on the plane that has the coordinates of T = T_CD, and these coordinates."""
        q = self.coordinates(T, q, t)
        return self.pose(q), q

    @abstractmethod
    def arm(self, T: Pose) -> Array:
        """Vector from the contact to C's origin, in D [m], shape (3,)."""

    def velocity_residual(self, T: Pose, v: Array, t: Array) -> Array:
        """Slip: velocity of C's material point at the contact along x and y of D [m/s]."""
        return (T.rotate(v[:3]) - cross(T.rotate(v[3:]), self.arm(T)))[:2]

    def check(self) -> str | None:
        return check_length("radius", self.radius, "use PlanePoint for a point that slides")


@struct
class RollingSphere(_Rolling):
    """A sphere rolls on the plane z = 0 of D without slipping.

    C is fixed on the child body, its origin is the centre of the sphere. D is fixed on the parent
    body, which may move: on a turntable the sphere circles.

    q[0], q[1]: contact point along x and y of D [m], zero at D's origin, positive along the axes
    q[2:]: rotation vector of C in D [rad], zero where the axes of C and D are parallel, positive by
        the right-hand rule, continued from its last value as in `Ball`

    Rows: the force along z, whose error is the height of the centre less `radius`; at velocity
    level the friction along x and y of D, which holds v + ω × (-radius z) at 0. The velocity has
    three degrees of freedom. The spin about z is free; add a law or a moment to resist it.

    The builder warns of a start whose speeds slip; an impulse in the first step removes the slip.
    The row along z also pulls the sphere onto the plane: where it could leave the plane, watch the
    sign of `Info.wrench` along z.

    radius: > 0 [m]

    >>> ball = RollingSphere(radius=0.5)
    >>> rolling = jnp.array([0.5, 0.0, 0.0, 0.0, 1.0, 0.0])
    >>> print(ball.velocity_residual(Pose.along_z(0.5), rolling, 0.0))
    [0. 0.]
    """

    radius: Numbers

    def reference(self) -> Pose:
        """Contact at D's origin, axes parallel."""
        return Pose.along_z(self.radius)

    def pose(self, q: Array, t: Any = 0.0) -> Pose:
        """Centre above the contact point (q[0], q[1]), rotation vector q[2:]."""
        return Pose.from_rotation_vector(q[2:], jnp.append(q[:2], self.radius))

    def arm(self, T: Pose) -> Array:
        return self.radius * jnp.eye(3, dtype=T.p.dtype)[2]

    def residual(self, T: Pose, t: Array) -> Array:
        """Height of the centre less `radius` [m]."""
        return (T.p[2] - self.radius)[None]

    def coordinates(self, T: Pose, q: Array | None = None, t: Any = 0.0) -> Array:
        """Contact point and rotation vector, the latter continued from q."""
        r = quat_to_rotation_vector(T.q)
        return jnp.concatenate([T.p[:2], r if q is None else unwrap_rotation_vector(r, q[2:])])


@struct
class RollingDisc(_Rolling):
    """A thin disc rolls on the plane z = 0 of D without slipping.

    C is fixed on the child body: its origin is the centre of the disc, and its y axis the axis of
    the disc. D is fixed on the parent body. The orientation of C in D is
    R_CD = Rz(heading) Rx(lean) Ry(spin).

    q[0], q[1]: contact point along x and y of D [m], zero at D's origin, positive along the axes
    q[2]: heading, the angle about z of D from x to the direction in which the disc rolls [rad]
    q[3]: lean about the direction of the heading [rad], in [-90°, 90°]
    q[4]: spin about the axis of the disc [rad]
        All three are zero where the axes of C and D are parallel: the disc is upright and heads
        along x. By the right-hand rule a positive heading turns left seen from above, a positive
        lean inclines the disc to the right of its heading, and a positive spin rolls it forward.
        Heading and spin count turns.

    Rows: the force along z through the contact point, whose error is the height of the lowest point
    of the disc; at velocity level the friction along x and y of D. The velocity has three degrees
    of freedom. At a lean of ±90° the disc lies flat and has no lowest point; heading and spin are
    then the same rotation, and the rows are kept finite. `Limits(-1.5, 1.5, coordinate=3)` keep the
    disc away from there.

    radius: > 0 [m]

    Source: the rolling disc of textbooks; steady turns as in Greenwood, Advanced Dynamics, sec. 5.

    >>> wheel = RollingDisc(radius=0.5)
    >>> rolling = jnp.array([1.0, 0.0, 0.0, 0.0, 2.0, 0.0])  # 1 m/s = 0.5 m 2 rad/s
    >>> print(wheel.velocity_residual(Pose.along_z(0.5), rolling, 0.0))
    [0. 0.]
    >>> leaning = wheel.pose(jnp.array([0.0, 0.0, 0.0, jnp.pi / 3, 0.0]))
    >>> print(leaning.p[2].round(3))  # 0.5 m cos 60°
    0.25
    """

    radius: Numbers

    def reference(self) -> Pose:
        """Upright with the contact at D's origin, heading along x."""
        return Pose.along_z(self.radius)

    def pose(self, q: Array, t: Any = 0.0) -> Pose:
        """Contact at (q[0], q[1]); heading, lean and spin q[2:]."""
        turn = euler_rotation("ZXY", q[2:])
        return Pose(jnp.append(q[:2], jnp.zeros_like(q[0])) + self._arm(q[2:]), turn.q)

    def arm(self, T: Pose) -> Array:
        _, axis, up = jnp.eye(3, dtype=T.p.dtype)
        axis = T.rotate(axis)
        # 0 where the disc lies flat.
        return self.radius * unit(up - axis[2] * axis)

    def residual(self, T: Pose, t: Array) -> Array:
        """Height of the lowest point [m]."""
        axis = T.rotate(jnp.eye(3, dtype=T.p.dtype)[1])
        return (T.p[2] - self.radius * norm(axis[:2]))[None]

    def coordinates(self, T: Pose, q: Array | None = None, t: Any = 0.0) -> Array:
        """Contact point, heading, lean and spin; heading and spin continued from q."""
        near = self.zero(T) if q is None else q
        angles = euler_angles("ZXY", T.q, near[2:], continuous=False)
        return jnp.concatenate([(T.p - self._arm(angles))[:2], angles])

    def _arm(self, angles: Array) -> Array:
        heading, lean, _ = angles
        across = jnp.sin(lean)
        return self.radius * jnp.stack(
            [jnp.sin(heading) * across, -jnp.cos(heading) * across, jnp.cos(lean)]
        )
