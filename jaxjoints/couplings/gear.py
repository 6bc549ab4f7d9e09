"""Gears: two wheels that mesh, on carriers of any kind."""

from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jax import Array

from ..algebra.pytree import Numbers, struct
from ..algebra.spatial import (
    Pose,
    arctan2,
    norm,
    quat_from_rotation_vector,
    quat_rotate_inverse,
    quat_to_rotation_vector,
)
from .angles import unwrap_angle
from .coupling import Residual
from .gimbal import euler_angles, euler_rotation


class _Gear(Residual):
    """Wheels about z of C and z of D. There are no bilateral rows; the slip is a coordinate."""

    radius_C: Numbers
    radius_D: Numbers
    dof: ClassVar[int] = 6

    def residual(self, T: Pose, t: Array) -> Array:
        """None: shape (0,)."""
        return jnp.zeros(0, T.p.dtype)

    def project(self, T: Pose, q: Array | None = None, t: Any = 0.0) -> tuple[Pose, Array]:
        """The pose T and its coordinates: there is no surface to project on."""
        return T, self.coordinates(T, q, t)

    def check(self) -> str | None:
        for name, number in (("radius_C", self.radius_C), ("radius_D", self.radius_D)):
            radius = float(np.asarray(number))
            if not np.isfinite(radius) or radius == 0:
                return f"{name} {radius} must be finite and not 0"
        return None


@struct
class SpurGear(_Gear):
    """Two wheels with parallel axes that mesh on the line of their centres.

    C is fixed on the child body, one wheel; D is fixed on the parent body, the other wheel. The
    wheels turn about z of C and z of D, and their centres are the origins of C and D. φ_C and φ_D
    are the angles of the wheels relative to the line from D's origin to C's. The slip depends on
    T_CD alone, so the wheels may sit on any carrier, as in a planetary gear.

    q[0]: slip of the teeth along the pitch circles, radius_C φ_C + radius_D φ_D [m], which counts
        turns. It is positive where C or D has turned by the right-hand rule about its z axis, for
        positive radii.
    q[1]: φ_D [rad], positive where D has turned by the right-hand rule about its z axis relative to
        the line of centres, so C's origin has moved the other way around z; it counts turns
    q[2]: distance of C's origin from the z axis of D less |radius_C + radius_D| [m]
    q[3]: offset of C's origin along z of D [m], positive in the direction of z
    q[4], q[5]: tilt of C's axis: components about x and y of D of the shortest rotation vector that
        takes z of D into z of C [rad], positive by the right-hand rule
        All are zero where C's origin is at (|radius_C + radius_D|, 0, 0) in D and the axes of C and
        D are parallel.

    There are no bilateral rows. A law on coordinate 0 makes the wheels mesh: `Lock(0.0)` without
    play, `Limits(-b, b)` with a backlash b [m] to each side. The softness of that law is the
    softness of the teeth. Each wheel needs a bearing, which is another joint. The coordinates are
    undefined where the origins coincide.

    radius_C, radius_D: radii of the pitch circles [m], not 0; ODE's ratio is radius_C / radius_D.
        With radii of opposite signs the wheels turn in the same sense: an internal gear, or a chain
        between wheels at a fixed distance.

    Source: ODE transmission, parallel axes. ODE computes the radii from the distance of the anchors
    in each step, and needs both wheels on one carrier that does not move. Both agree while that
    distance is |radius_C + radius_D|.

    D turns by 0.2 rad; C, whose radius is a third, must turn back by 0.6 rad.

    >>> gear, turned = SpurGear(radius_C=0.1, radius_D=0.3), Pose.about_z(-0.2) @ Pose.along_x(0.4)
    >>> print(gear.coordinates(turned @ Pose.about_z(-0.6))[:1].round(4) + 0.0)  # slip [m]
    [0.]
    >>> print(gear.coordinates(turned @ Pose.about_z(-0.5))[:1].round(4))  # 0.1 m 0.1 rad
    [0.01]
    """

    radius_C: Numbers
    radius_D: Numbers

    def pose(self, q: Array, t: Any = 0.0) -> Pose:
        """Origin of C at the polar angle -q[1] in D, C turned so that the slip is q[0]."""
        phi_C = (q[0] - self.radius_D * q[1]) / self.radius_C
        distance = q[2] + jnp.abs(self.radius_C + self.radius_D)
        p = jnp.stack([distance * jnp.cos(q[1]), -distance * jnp.sin(q[1]), q[3]])
        tilt = quat_from_rotation_vector(jnp.stack([q[4], q[5], jnp.zeros_like(q[4])]))
        p_tilted = quat_rotate_inverse(tilt, p)
        turn = Pose.about_z(arctan2(p_tilted[1], p_tilted[0]) + phi_C)
        return Pose(p, (Pose.rotation(tilt) @ turn).q)

    def units(self) -> tuple[str, ...]:
        """Slip, φ_D, distance, offset, tilt."""
        return "m", "rad", "m", "m", "rad", "rad"

    def coordinates(self, T: Pose, q: Array | None = None, t: Any = 0.0) -> Array:
        """Slip, φ_D, distance, offset, tilt; the angles continued from q."""
        near = self.zero(T) if q is None else q
        p_C = T.rotate_inverse(T.p)
        phi_D = unwrap_angle(-_polar_angle(T.p), near[1])
        phi_C = unwrap_angle(
            -_polar_angle(p_C), (near[0] - self.radius_D * near[1]) / self.radius_C
        )
        slip = self.radius_C * phi_C + self.radius_D * phi_D
        axis = T.rotate(jnp.eye(3, dtype=p_C.dtype)[2])
        # The shortest rotation from z to C's axis; half a turn about x where they are opposite.
        half = jnp.stack([1 + axis[2], -axis[1], axis[0], jnp.zeros_like(slip)])
        half = jnp.where(norm(half) > 0, half, jnp.eye(4, dtype=half.dtype)[1])
        tilt = quat_to_rotation_vector(half)
        excess = norm(T.p[:2]) - jnp.abs(self.radius_C + self.radius_D)
        return jnp.stack([slip, phi_D, excess, T.p[2], tilt[0], tilt[1]])


@struct
class BevelGear(_Gear):
    """Two wheels with intersecting axes that mesh on the line in which their planes intersect.

    C is fixed on the child body, one wheel; D is fixed on the parent body, the other wheel. The
    wheels turn about z of C and z of D, and their centres are the origins of C and D. The Euler
    angles (ψ₀, ψ₁, ψ₂) of T_CD about z, x, z describe them: the x axis in between, the node line,
    is the line in which the planes of the wheels intersect. ψ₁ is the angle between the axes.
    φ_C = ψ₂ and φ_D = -ψ₀ are the angles of the wheels relative to the node line.

    q[0]: slip of the teeth, radius_C φ_C + radius_D φ_D less the offset of C's origin along the
        node line [m], which counts turns. It is positive where C or D has turned by the right-hand
        rule about its z axis, for positive radii.
    q[1]: ψ₀ = -φ_D [rad], positive where the node line has turned by the right-hand rule about z
        of D; it counts turns
    q[2]: ψ₁ - π/2 [rad], zero where the axes are at right angles, positive where C has turned
        further about the node line by the right-hand rule
    q[3:]: position of C's origin in D [m], zero at D's origin, positive along x, y, z of D
        Slip and ψ₀ are zero where C's origin has x = 0 in D and C is turned about x alone.

    There are no bilateral rows. As with `SpurGear`, a law on coordinate 0 makes the wheels mesh,
    and each wheel needs a bearing. Where the axes are parallel, the rates of the angles are kept
    finite and are not exact.

    radius_C, radius_D: distance of each centre from the contact [m], not 0; positive where the
        contact lies on the side to which the axis of the other wheel points.

    Source: ODE transmission, intersecting axes, with anchors at the centres of the wheels. ODE
    needs both wheels on one carrier that does not move. Its error feedback has the wrong sign, so
    that the slip grows by 1 + erp in each step; here a step reduces the slip. ODE reads the slip
    from the angles alone, so that it differs from q[0] by the offset of C's origin along the node
    line: to first order in the error of the bearings, and not at all while that offset is 0.

    D turns by 0.2 rad; C, whose radius is a third, must turn back by 0.6 rad.

    >>> gear, turned = BevelGear(radius_C=0.1, radius_D=0.3), Pose.about_z(-0.2)
    >>> turned = turned @ Pose.about_x(jnp.pi / 2)  # axes at right angles
    >>> print(gear.coordinates(turned @ Pose.about_z(-0.6))[:1].round(4) + 0.0)  # slip [m]
    [0.]
    >>> print(gear.coordinates(turned @ Pose.about_z(-0.5))[:1].round(4))  # 0.1 m 0.1 rad
    [0.01]
    """

    radius_C: Numbers
    radius_D: Numbers

    def pose(self, q: Array, t: Any = 0.0) -> Pose:
        """Position q[3:], axes at the angle π/2 + q[2], C turned so that the slip is q[0]."""
        last = (q[0] + self.radius_D * q[1] + _along_node(q[1], q[3:])) / self.radius_C
        return Pose(q[3:], euler_rotation("ZXZ", jnp.stack([q[1], q[2] + jnp.pi / 2, last])).q)

    def units(self) -> tuple[str, ...]:
        """Slip, two angles, position."""
        return "m", "rad", "rad", "m", "m", "m"

    def coordinates(self, T: Pose, q: Array | None = None, t: Any = 0.0) -> Array:
        """Slip, ψ₀, ψ₁, position; the angles continued from q."""
        q = self.zero(T) if q is None else q
        last = (q[0] + self.radius_D * q[1] + _along_node(q[1], q[3:])) / self.radius_C
        psi = euler_angles("ZXZ", T.q, jnp.stack([q[1], q[2] + jnp.pi / 2, last]))
        slip = self.radius_C * psi[2] - self.radius_D * psi[0] - _along_node(psi[0], T.p)
        return jnp.concatenate([jnp.stack([slip, psi[0], psi[1] - jnp.pi / 2]), T.p])


def _along_node(angle: Array, p: Array) -> Array:
    """Component of p along the direction in the x–y plane at an angle from x."""
    return p[0] * jnp.cos(angle) + p[1] * jnp.sin(angle)


def _polar_angle(p: Array) -> Array:
    # Protects atan2 from (0, 0), where both centres lie on one axis; the angle reads 0 there.
    undefined = (p[0] == 0) & (p[1] == 0)
    return arctan2(jnp.where(undefined, 0.0, p[1]), jnp.where(undefined, 1.0, p[0]))
