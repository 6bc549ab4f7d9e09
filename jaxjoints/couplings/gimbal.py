"""Three successive rotations: the gimbal, and the free joint with Euler angles."""

from itertools import permutations, product
from typing import ClassVar

import jax.numpy as jnp
from jax import Array

from ..algebra.pytree import static, struct
from ..algebra.rotation import stack
from ..algebra.spatial import Pose, arctan2, cross, dot, quat_rotate_inverse
from .angles import unwrap_angle
from .coupling import Coupling, CouplingRows
from .wrench import about, along, axes, stack_rows

ABOUT = {"X": Pose.about_x, "Y": Pose.about_y, "Z": Pose.about_z}
# Neighbours differ: XYZ and its permutations (Tait–Bryan), XYX and its like (proper Euler).
ORDERS = [
    "".join(o)
    for o in [*permutations("XYZ"), *(x + y + x for x, y in product("XYZ", "XYZ"))]
    if o[0] != o[1]
]
LEAST_SINE = 1e-4


@struct
class Gimbal(Coupling):
    """Spherical joint with intrinsic Euler angles as coordinates.

    C is fixed on the child body, D on the parent body; their origins coincide. C turns about a
    first axis, which is fixed in D, then about a second and a third axis that each earlier rotation
    has carried along; the third is fixed in C. `order` names them: T_CD for "ZYX" is
    Rz(q[0]) Ry(q[1]) Rx(q[2]).

    q: the angles of the three rotations in this order [rad]. They are zero where the axes of C and
        D coincide, positive by the right-hand rule about their axes, and count turns.

    A pose has two sets of angles, (a, b, c) and (a + π, b', c - π) with b' = π - b, or b' = -b
    where the first and the third axis have the same letter. The set nearest to the last known
    angles is taken, so that angles follow a motion over many turns and through the locked pose.

    Gimbal lock: at b = ±90° (0° and 180° for "ZYZ" and the like) the first and the third axis are
    in line. Only a + c or a - c is determined there, the other combination keeps its last value.
    The rates grow as 1/cos b near the lock (1/sin b for "ZYZ" and the like). They are bounded by
    1e4, and N S = 1 does not hold where the bound acts.

    Rows: forces along x, y, z of C, then the three angles.

    order: three letters X, Y, Z with different neighbours, such as "ZYX" (yaw, pitch, roll) or
        "ZYZ". The second angle of "ZYZ" is the tilt of C's z axis from D's: `Limits(-most, most,
        coordinate=1)` make the tilt limit of a spherical joint, whose row is regular also where the
        tilt is 0. (static)
    continuous: False takes the second angle in [-90°, 90°] ([0°, 180°] for "ZYZ" and the like)
        whatever its last value is; each angle still counts turns (static)

    Source: ArtiSynth GimbalCoupling for "ZYX" and "XYZ" (the same rows; its Euler filter, whose
    ranges clip the last known angles, is left out; it takes the pose as locked where
    |cos b| < 0.01, and its angles do not reproduce the pose there), SphericalCoupling's tilt limit.
    ArtiSynth's legacy form with the rotation transposed (SphericalRpyJoint) has the order reversed
    and the angles reversed and negated. Angles: Bernardes & Viollet, "Quaternion to Euler angles
    conversion", PLoS ONE 17 (2022).

    >>> yaw_pitch_roll = Gimbal("ZYX")
    >>> T = Pose.about_z(0.3) @ Pose.about_y(0.2) @ Pose.about_x(0.1)
    >>> print(yaw_pitch_roll.coordinates(T).round(3))
    [0.3 0.2 0.1]
    """

    order: str = static(default="ZYX")
    continuous: bool = static(default=True, kw_only=True)
    dof: ClassVar[int] = 3
    batched: ClassVar[bool] = True
    lower_pair: ClassVar[bool] = True

    def pose(self, q: Array) -> Pose:
        """Three rotations, each in the frame that the one before has turned."""
        return euler_rotation(self.order, q)

    def coordinates(self, T: Pose, q: Array | None = None, t=0.0) -> Array:
        """The three angles, continued from q."""
        near = self.zero(T) if q is None else q
        return euler_angles(self.order, T.q, near, self.continuous)

    def rows(self, T: Pose, q: Array, t: Array) -> CouplingRows:
        q = self.coordinates(T, q)
        rates = euler_rates(self.order, q)
        W = stack_rows(*(along(x) for x in axes(T)), *(about(rate) for rate in rates))
        error = T.rotate_inverse(T.p)
        return CouplingRows(W, error, q, jnp.zeros_like(error))

    def check(self) -> str | None:
        return check_order(self.order)


@struct
class FreeEuler(Coupling):
    """Free joint whose orientation is given by intrinsic Euler angles.

    C is fixed on the child body, D on the parent body. There are no bilateral rows; the coordinates
    serve laws and read-outs.

    q[:3]: position of C's origin in D [m], zero at D's origin, positive along x, y, z of D
    q[3:]: the three angles of a `Gimbal` [rad], zero where the axes of C and D are parallel,
        positive by the right-hand rule about their axes

    order, continuous: as in `Gimbal`

    Source: ArtiSynth FreeCoupling ("ZYX" and "XYZ"; x, y, z, roll, pitch, yaw).

    >>> T = Pose.along_y(2.0) @ Pose.about_z(0.3) @ Pose.about_x(0.1)
    >>> print(FreeEuler("ZYX").coordinates(T).round(3) + 0.0)
    [0.  2.  0.  0.3 0.  0.1]
    """

    order: str = static(default="ZYX")
    continuous: bool = static(default=True, kw_only=True)
    dof: ClassVar[int] = 6
    batched: ClassVar[bool] = True

    def pose(self, q: Array) -> Pose:
        """Position q[:3], angles q[3:]."""
        return Pose(q[:3], euler_rotation(self.order, q[3:]).q)

    def coordinates(self, T: Pose, q: Array | None = None, t=0.0) -> Array:
        """Position and angles, the latter continued from q."""
        near = self.zero(T) if q is None else q
        angles = euler_angles(self.order, T.q, near[3:], self.continuous)
        return jnp.concatenate([T.p, angles], axis=0)

    def rows(self, T: Pose, q: Array, t: Array) -> CouplingRows:
        q = self.coordinates(T, q)
        forces = (along(T.rotate_inverse(x)) for x in axes(T))
        moments = (about(rate) for rate in euler_rates(self.order, q[3:]))
        error = jnp.zeros((0, *T.p.shape[1:]), T.p.dtype)
        return CouplingRows(stack_rows(*forces, *moments), error, q, error)

    def check(self) -> str | None:
        return check_order(self.order)


def euler_rotation(order: str, angles: Array) -> Pose:
    """Rotations by angles (3, *b) about the axes of `order`, each in the frame turned so far."""
    first, second, third = (ABOUT[axis](angles[i]) for i, axis in enumerate(order))
    return first @ second @ third


def euler_angles(order: str, q: Array, near: Array, continuous: bool = True) -> Array:
    """Angles (3, *b) of a rotation q (4, *b): of their two sets the one nearest to `near`."""
    i, j, k, sign = _axes(order)
    w, x, y, z = q[0], q[1 + i], q[1 + j], q[1 + k]
    same = order[0] == order[2]
    if same:
        cosines, sines = (w, x), (y, sign * z)
    else:
        # With third axis k = R_j(∓π/2) i these are the angles (a, b ∓ π/2, c) about i, j and i of
        # q ⊗ (1 ∓ j), which is √2 long.
        cosines, sines = (w + sign * y, x + z), (w - sign * y, x - z)
    total, cosine = _polar(cosines, near[0] + near[2])
    rest, sine = _polar(sines, near[0] - near[2])
    middle = 2 * arctan2(sine, cosine)
    if not same:
        middle = sign * (jnp.pi / 2 - middle)
    principal = unwrap_angle(stack(total + rest, middle, total - rest), near)
    if not continuous:
        return principal
    half = jnp.full_like(middle, jnp.pi)
    other = stack(principal[0] + half, -middle if same else half - middle, principal[2] - half)
    other = unwrap_angle(other, near)
    nearer = dot(other - near, other - near) < dot(principal - near, principal - near)
    return jnp.where(nearer[None], other, principal)


def euler_rates(order: str, angles: Array) -> tuple[Array, Array, Array]:
    """Three vectors in C, (3, *b) each, whose products with the angular velocity are q̇."""
    units = jnp.eye(3, dtype=angles.dtype).reshape((3, 3) + (1,) * (angles.ndim - 1))
    i, j, k = (units["XYZ".index(axis)] for axis in order)
    third = ABOUT[order[2]](angles[2]).q
    second = quat_rotate_inverse(third, j)
    first = quat_rotate_inverse(third, quat_rotate_inverse(ABOUT[order[1]](angles[1]).q, i))
    normal = cross(second, k)
    volume = dot(first, normal)
    # Protects the division from the locked pose, where the first axis is in line with the third.
    regular = jnp.abs(volume) > LEAST_SINE
    least = jnp.where(volume < 0, -LEAST_SINE, LEAST_SINE).astype(volume.dtype)
    volume = jnp.where(regular, volume, least)[None]
    return normal / volume, second, cross(first, second) / volume


def check_order(order: str) -> str | None:
    """What is wrong with an order of axes, or None."""
    if order not in ORDERS:
        return f"order {order!r} is unknown; it must be one of {', '.join(ORDERS)}"
    return None


def _axes(order: str) -> tuple[int, int, int, float]:
    """Indices of the first two axes and of the one normal to both, and its sign."""
    i, j = "XYZ".index(order[0]), "XYZ".index(order[1])
    return i, j, 3 - i - j, 1.0 if (j - i) % 3 == 1 else -1.0


def _polar(point: tuple[Array, Array], known: Array) -> tuple[Array, Array]:
    """Polar angle of a point (cosine, sine), `known`/2 where it is the origin; and its radius."""
    # Protects atan2 and √ from the origin to rounding: the locked pose.
    square = point[0] * point[0] + point[1] * point[1]
    locked = square <= (8 * jnp.finfo(square.dtype).eps) ** 2
    cosine, sine = jnp.where(locked, 1.0, point[0]), jnp.where(locked, 0.0, point[1])
    angle = jnp.where(locked, known / 2, arctan2(sine, cosine))
    radius = jnp.sqrt(jnp.where(locked, 1.0, square))
    return angle, jnp.where(locked, 0.0, radius)
