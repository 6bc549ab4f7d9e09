"""Gears: wheels that mesh, whatever carries them."""

from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jax import Array

from ..algebra.pytree import struct
from ..algebra.spatial import (
    Pose,
    arctan2,
    norm,
    quat_from_rotation_vector,
    quat_rotate_inverse,
    quat_to_rotation_vector,
)
from .coupling import Residual
from .gimbal import euler_angles, euler_rotation


class _Gear(Residual):
    """Two wheels about z of C and z of D; no bilateral rows: the slip is a coordinate."""

    dof: ClassVar[int] = 6

    def residual(self, T: Pose, t: Array) -> Array:
        """None: shape (0,)."""
        return jnp.zeros(0, T.p.dtype)

    def project(self, T: Pose, q: Array | None = None, t: Any = 0.0) -> tuple[Pose, Array]:
        """The pose itself: nothing is held but by laws."""
        return T, self.coordinates(T, q, t)

    def check(self) -> str | None:
        """See `Coupling.check`."""
        for name in ("radius_C", "radius_D"):
            radius = float(np.asarray(getattr(self, name)))
            if not np.isfinite(radius) or radius == 0:
                return f"{name} {radius} must be finite and not 0"
        return None


@struct
class SpurGear(_Gear):
    """Wheels about z of C and z of D, axes parallel, that mesh between their centres.

    Coordinate 0 is the slip of the teeth along the pitch circles, radius_C φ_C + radius_D φ_D [m],
    each angle φ turned about its axis against the line of centres: a function of T_CD alone, so
    the wheels may sit on any carrier (a planetary gear too). The gear has no bilateral rows: a law
    on coordinate 0 makes the wheels mesh, `Lock(0.0)` without play, `Limits(-b, b)` with a
    backlash b [m], as many teeth to the side as the law says softness. The wheels' bearings are
    joints of their own. Slip is counted over turns.

    The other coordinates: φ_D [rad], the distance of the centres beyond |radius_C + radius_D| and
    the offset along z [m], and the tilt of C's axis, the components about x and y of D of a
    rotation vector [rad]. All are zero where C stands at (|radius_C + radius_D|, 0, 0) with
    equal axes.

    Special value: undefined where the centres meet.

    radius_C, radius_D: of the pitch circles [m], not 0; ODE's ratio is radius_C / radius_D. Of
        opposite signs they turn the same way: an internal gear, or a chain at a fixed distance.

    Source: ODE transmission, parallel axes. ODE takes the radii from the distance of the anchors
    at each step, and needs both wheels on one carrier that does not move; the same while that
    distance is |radius_C + radius_D|.
    """

    radius_C: Array
    radius_D: Array

    def pose(self, q: Array, t: Any = 0.0) -> Pose:
        """Wheel C at a polar angle -q[1] in D, turned so that the slip is q[0]."""
        phi_C = (q[0] - self.radius_D * q[1]) / self.radius_C
        distance = q[2] + jnp.abs(self.radius_C + self.radius_D)
        p = jnp.stack([distance * jnp.cos(q[1]), -distance * jnp.sin(q[1]), q[3]])
        tilt = quat_from_rotation_vector(jnp.stack([q[4], q[5], jnp.zeros_like(q[4])]))
        seen = quat_rotate_inverse(tilt, p)
        turn = Pose.about_z(arctan2(seen[1], seen[0]) + phi_C)
        return Pose(p, (Pose.rotation(tilt) @ turn).q)

    def coordinates(self, T: Pose, q: Array | None = None, t: Any = 0.0) -> Array:
        """Slip, φ_D, distance, offset, tilt; the angles continued from q."""
        near = self.zero(T) if q is None else q
        seen = T.rotate_inverse(T.p)
        phi_D = _near(-_polar_angle(T.p), near[1])
        phi_C = _near(-_polar_angle(seen), (near[0] - self.radius_D * near[1]) / self.radius_C)
        slip = self.radius_C * phi_C + self.radius_D * phi_D
        axis = T.rotate(jnp.eye(3, dtype=seen.dtype)[2])
        # The shortest rotation from z to C's axis; half a turn about x where they are opposite.
        half = jnp.stack([1 + axis[2], -axis[1], axis[0], jnp.zeros_like(slip)])
        half = jnp.where(norm(half) > 0, half, jnp.eye(4, dtype=half.dtype)[1])
        tilt = quat_to_rotation_vector(half)
        apart = norm(T.p[:2]) - jnp.abs(self.radius_C + self.radius_D)
        return jnp.stack([slip, phi_D, apart, T.p[2], tilt[0], tilt[1]])


@struct
class BevelGear(_Gear):
    """Wheels about z of C and z of D, axes that intersect, that mesh where their planes do.

    Coordinate 0 is the slip of the teeth, radius_C φ_C + radius_D φ_D [m] and the offset of the
    centres along the line in which the wheels' planes intersect; each angle φ is turned about its
    axis against that line. As with `SpurGear`, laws on coordinate 0 make the wheels mesh, their
    bearings are joints of their own, and slip is counted over turns.

    The other coordinates: the first two of the Euler angles (ψ₀, ψ₁, ψ₂) about z, x, z of T_CD
    [rad], ψ₀ = -φ_D and ψ₁ - π/2, for the angle ψ₁ between the axes (ψ₂ = φ_C); the position of C
    in D [m]. Slip and ψ₀ are zero where C stands on x = 0, turned about x alone.

    Special value: bounded, not exact, where the axes are parallel.

    radius_C, radius_D: from each centre to the contact [m], not 0; positive where the contact
        lies to the side to which the other axis points.

    Source: ODE transmission, intersecting axes, with anchors at the centres of the wheels. ODE
    needs both wheels on one carrier that does not move, and feeds the slip back with the wrong
    sign, so that it grows by 1 + erp each step; here it shrinks.
    """

    radius_C: Array
    radius_D: Array

    def pose(self, q: Array, t: Any = 0.0) -> Pose:
        """Position q[3:], axes at the angle π/2 + q[2], turned so that the slip is q[0]."""
        last = (q[0] + self.radius_D * q[1] + _along_node(q[1], q[3:])) / self.radius_C
        return Pose(q[3:], euler_rotation("ZXZ", jnp.stack([q[1], q[2] + jnp.pi / 2, last])).q)

    def coordinates(self, T: Pose, q: Array | None = None, t: Any = 0.0) -> Array:
        """Slip, ψ₀, ψ₁, position; the angles continued from q."""
        q = self.zero(T) if q is None else q
        last = (q[0] + self.radius_D * q[1] + _along_node(q[1], q[3:])) / self.radius_C
        psi = euler_angles("ZXZ", T.q, jnp.stack([q[1], q[2] + jnp.pi / 2, last]))
        slip = self.radius_C * psi[2] - self.radius_D * psi[0] - _along_node(psi[0], T.p)
        return jnp.concatenate([jnp.stack([slip, psi[0], psi[1] - jnp.pi / 2]), T.p])


def _along_node(angle: Array, p: Array) -> Array:
    """Component of p along the direction at an angle from x in the plane of x and y."""
    return p[0] * jnp.cos(angle) + p[1] * jnp.sin(angle)


def _polar_angle(p: Array) -> Array:
    # Protects atan2 from (0, 0), the centres on one axis; it reads 0 there.
    lost = (p[0] == 0) & (p[1] == 0)
    return arctan2(jnp.where(lost, 0.0, p[1]), jnp.where(lost, 1.0, p[0]))


def _near(angle: Array, near: Array) -> Array:
    return angle + 2 * jnp.pi * jnp.round((near - angle) / (2 * jnp.pi))
