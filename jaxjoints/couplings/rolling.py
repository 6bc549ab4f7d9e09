"""Bodies that roll on the plane z = 0 of D without slipping: a sphere and a disc."""

from typing import Any, ClassVar

import jax.numpy as jnp
from jax import Array

from ..algebra.pytree import struct
from ..algebra.spatial import Pose, cross, norm, quat_to_rotation_vector, unit
from .coupling import Residual
from .gimbal import euler_angles, euler_rotation
from .winding import unwind
from .wrench import check_length


class _Rolling(Residual):
    """One row holds the body on the plane; two rows hold the material point at the contact."""

    dof: ClassVar[int] = 5
    velocity_rows: ClassVar[int] = 2

    def project(self, T: Pose, q: Array | None = None, t: Any = 0.0) -> tuple[Pose, Array]:
        """The pose on the plane with the same coordinates, and these."""
        q = self.coordinates(T, q, t)
        return self.pose(q), q

    def arm(self, T: Pose) -> Array:
        """From the contact to the origin of C, along the axes of D [m], shape (3,)."""
        raise NotImplementedError

    def velocity_residual(self, T: Pose, v: Array, t: Array) -> Array:
        """Velocity of the body's point at the contact along x and y of D [m/s]."""
        return (T.rotate(v[:3]) - cross(T.rotate(v[3:]), self.arm(T)))[:2]

    def check(self) -> str | None:
        """See `Coupling.check`."""
        return check_length("radius", self.radius, "use PlanePoint for a point that slides")


@struct
class RollingSphere(_Rolling):
    """A sphere about the origin of C rolls on the plane z = 0 of D without slipping.

    Rows: the force along z, whose error is the height of the centre above `radius`; the friction
    along x and y of D, at velocity level: v + ω × (-radius z) = 0. Five coordinates: the contact
    point (x, y) [m] and the rotation vector of C in D [rad], continued from its last value as in
    `Ball`; three velocities. The plane may move: on a turntable the ball circles. Spin about z is
    free; add a law, or moments, for what resists it.

    A start whose speeds slip gets a warning, and is set rolling by an impulse in the first step.
    The plane can pull: watch the sign of `Info.wrench` along z where the sphere could leave it.

    radius: > 0 [m]

    >>> ball = RollingSphere(radius=0.5)
    >>> rolling = jnp.array([0.5, 0.0, 0.0, 0.0, 1.0, 0.0])
    >>> print(ball.velocity_residual(Pose.along_z(0.5), rolling, 0.0))
    [0. 0.]
    """

    radius: Array

    def reference(self) -> Pose:
        """Upright above the origin."""
        return Pose.along_z(self.radius)

    def pose(self, q: Array, t: Any = 0.0) -> Pose:
        """Centre above (q[0], q[1]), rotation vector q[2:]."""
        return Pose.from_rotation_vector(q[2:], jnp.append(q[:2], self.radius))

    def arm(self, T: Pose) -> Array:
        """See `_Rolling.arm`."""
        return self.radius * jnp.eye(3, dtype=T.p.dtype)[2]

    def residual(self, T: Pose, t: Array) -> Array:
        """Height of the centre less radius [m]."""
        return (T.p[2] - self.radius)[None]

    def coordinates(self, T: Pose, q: Array | None = None, t: Any = 0.0) -> Array:
        """Contact point and rotation vector, the latter continued from q."""
        r = quat_to_rotation_vector(T.q)
        return jnp.concatenate([T.p[:2], r if q is None else unwind(r, q[2:])])


@struct
class RollingDisc(_Rolling):
    """A thin disc about y of C, its centre the origin of C, rolls on the plane z = 0 of D.

    Rows: the force along z through the contact, whose error is the height of the disc's lowest
    point; the friction along x and y of D, at velocity level. Five coordinates: the contact point
    (x, y) [m], the heading about z, the lean about the line of heading and the spin about the axis
    [rad]: R = Rz(heading) Rx(lean) Ry(spin). At 0 the disc stands above the origin, heading along
    x, where positive spin takes it. Three velocities. Heading and spin are counted over turns.

    The lean stays within ±90°, where the disc lies flat and has no lowest point: heading and spin
    are then one, rows stay bounded. `Limits(-1.5, 1.5, coordinate=3)` keep it from there.

    radius: > 0 [m]

    Source: the rolling disc of textbooks; steady turns as in Greenwood, Advanced Dynamics, sec. 5.
    """

    radius: Array

    def reference(self) -> Pose:
        """Upright above the origin."""
        return Pose.along_z(self.radius)

    def pose(self, q: Array, t: Any = 0.0) -> Pose:
        """Contact at (q[0], q[1]); heading, lean and spin q[2:]."""
        turn = euler_rotation("ZXY", q[2:])
        return Pose(jnp.append(q[:2], jnp.zeros_like(q[0])) + self._arm(q[2:]), turn.q)

    def arm(self, T: Pose) -> Array:
        """See `_Rolling.arm`."""
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
