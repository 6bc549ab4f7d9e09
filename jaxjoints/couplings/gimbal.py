"""Three successive rotations: the gimbal, and the free joint with its orientation as angles."""

from itertools import permutations, product
from typing import ClassVar

import jax.numpy as jnp
from jax import Array

from ..algebra.pytree import static, struct
from ..algebra.rotation import stack
from ..algebra.spatial import Pose, arctan2, cross, dot, quat_rotate_inverse
from .coupling import Coupling, CouplingRows
from .winding import nearest_turn
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
    """Ball joint with three angles [rad]: C turns about a first axis fixed in D, then about the
    second and third as they have been carried along (intrinsic Euler angles).

    Rows: forces along x, y, z of C, then the three angles. A pose has two sets of angles,
    (a, b, c) and (a + π, b', c - π) with b' = π - b, or -b where first and third axis are the same;
    the one nearest to the last known angles is taken, each angle with its nearest turn, so angles
    follow a motion over many turns and across the locked pose.

    Locked (first and third axis in line: b = ±90°, or 0° and 180° where they are the same), only
    a ± c is determined; the rest stays as it was. Rates 1/cos b are kept below 1e4, and by then
    N S = 1 fails.

    order: "ZYX" (yaw, pitch, roll) and the five like it, "ZYZ" and the five like it. The second
        angle of "ZYZ" is the tilt of C's z axis from D's: `Limits(-most, most, coordinate=1)` on it
        are the tilt limit of a spherical joint, with a row that is regular when upright too.
    continuous: False takes the middle angle in [-90°, 90°] ([0°, 180°] for "ZYZ") whatever came
        before, each angle with its nearest turn

    Source: ArtiSynth GimbalCoupling for "ZYX" and "XYZ" (the same rows; its Euler filter, whose
    ranges clip what is known, is left out, and it shares the locked angles already where
    |cos b| < 0.01, where its angles do not reproduce the pose), SphericalCoupling's tilt limit.
    ArtiSynth's legacy form with the rotation transposed (SphericalRpyJoint) has the order reversed
    and the angles reversed and negated. Angles: Bernardes & Viollet, "Quaternion to Euler angles
    conversion", PLoS ONE 17 (2022).
    """

    order: str = static(default="ZYX")
    continuous: bool = static(default=True, kw_only=True)
    dof: ClassVar[int] = 3
    elementwise: ClassVar[bool] = True

    def pose(self, q: Array) -> Pose:
        """The three rotations, one in the frame of the one before."""
        return euler_rotation(self.order, q)

    def coordinates(self, T: Pose, q: Array | None = None, t=0.0) -> Array:
        """The three angles, continued from q."""
        near = self.zero(T) if q is None else q
        return euler_angles(self.order, T.q, near, self.continuous)

    def rows(self, T: Pose, q: Array, t: Array) -> CouplingRows:
        """See `Coupling.rows`."""
        q = self.coordinates(T, q)
        rates = euler_rates(self.order, q)
        W = stack_rows(*(along(x) for x in axes(T)), *(about(rate) for rate in rates))
        error = T.rotate_inverse(T.p)
        return CouplingRows(W, error, q, jnp.zeros_like(error))

    def check(self) -> str | None:
        """See `Coupling.check`."""
        return check_order(self.order)


@struct
class FreeEuler(Coupling):
    """C moves freely; coordinates: position of C in D [m], three angles of a `Gimbal` [rad].

    No bilateral rows: a place for laws and read-outs.

    order, continuous: as in `Gimbal`

    Source: ArtiSynth FreeCoupling ("ZYX" and "XYZ"; x, y, z, roll, pitch, yaw).
    """

    order: str = static(default="ZYX")
    continuous: bool = static(default=True, kw_only=True)
    dof: ClassVar[int] = 6
    elementwise: ClassVar[bool] = True

    def pose(self, q: Array) -> Pose:
        """Position q[:3], angles q[3:]."""
        return Pose(q[:3], euler_rotation(self.order, q[3:]).q)

    def coordinates(self, T: Pose, q: Array | None = None, t=0.0) -> Array:
        """Position and angles, the latter continued from q."""
        near = self.zero(T) if q is None else q
        angles = euler_angles(self.order, T.q, near[3:], self.continuous)
        return jnp.concatenate([T.p, angles], axis=0)

    def rows(self, T: Pose, q: Array, t: Array) -> CouplingRows:
        """See `Coupling.rows`."""
        q = self.coordinates(T, q)
        forces = (along(T.rotate_inverse(x)) for x in axes(T))
        moments = (about(rate) for rate in euler_rates(self.order, q[3:]))
        error = jnp.zeros((0, *T.p.shape[1:]), T.p.dtype)
        return CouplingRows(stack_rows(*forces, *moments), error, q, error)

    def check(self) -> str | None:
        """See `Coupling.check`."""
        return check_order(self.order)


def euler_rotation(order: str, angles: Array) -> Pose:
    """Rotations by the angles (3, *b) about the axes of `order`, each in the frame before it."""
    first, second, third = (ABOUT[axis](angles[i]) for i, axis in enumerate(order))
    return first @ second @ third


def euler_angles(order: str, q: Array, near: Array, continuous: bool = True) -> Array:
    """Angles (3, *b) of a rotation q (4, *b): of its two sets, the one nearest to `near`."""
    i, j, k, sign = _axes(order)
    w, x, y, z = q[0], q[1 + i], q[1 + j], q[1 + k]
    same = order[0] == order[2]
    if same:
        cosines, sines = (w, x), (y, sign * z)
    else:
        # With third axis k = R_j(∓π/2) i these are the angles (a, b ∓ π/2, c) about i, j and i of
        # q ⊗ (1 ∓ j), which is √2 long.
        cosines, sines = (w + sign * y, x + z), (w - sign * y, x - z)
    total, cosine = _direction(cosines, near[0] + near[2])
    rest, sine = _direction(sines, near[0] - near[2])
    middle = 2 * arctan2(sine, cosine)
    if not same:
        middle = sign * (jnp.pi / 2 - middle)
    found = nearest_turn(stack(total + rest, middle, total - rest), near)
    if not continuous:
        return found
    half = jnp.full_like(middle, jnp.pi)
    other = stack(found[0] + half, -middle if same else half - middle, found[2] - half)
    other = nearest_turn(other, near)
    nearer = dot(other - near, other - near) < dot(found - near, found - near)
    return jnp.where(nearer[None], other, found)


def euler_rates(order: str, angles: Array) -> tuple[Array, Array, Array]:
    """Vectors in C, each (3, *b), that read the rates of the angles from C's angular velocity."""
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
    """What is wrong with the name of an order of axes, or None."""
    if order not in ORDERS:
        return f"order {order!r} is unknown; it must be one of {', '.join(ORDERS)}"
    return None


def _axes(order: str) -> tuple[int, int, int, float]:
    """Indices of the first two axes and of the one normal to both, and its sign."""
    i, j = "XYZ".index(order[0]), "XYZ".index(order[1])
    return i, j, 3 - i - j, 1.0 if (j - i) % 3 == 1 else -1.0


def _direction(point: tuple[Array, Array], known: Array) -> tuple[Array, Array]:
    """Polar angle of a point (cosine, sine), `known`/2 where it is the origin; and its radius."""
    # Protects atan2 and √ from the origin to rounding: the locked pose.
    square = point[0] * point[0] + point[1] * point[1]
    lost = square <= (8 * jnp.finfo(square.dtype).eps) ** 2
    cosine, sine = jnp.where(lost, 1.0, point[0]), jnp.where(lost, 0.0, point[1])
    angle = jnp.where(lost, known / 2, arctan2(sine, cosine))
    radius = jnp.sqrt(jnp.where(lost, 1.0, square))
    return angle, jnp.where(lost, 0.0, radius)
