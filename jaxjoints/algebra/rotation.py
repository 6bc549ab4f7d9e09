"""Vectors, quaternions and rotations, elementwise in trailing batch axes.

Components are the first axes and batch axes the last: a vector is (3, *b), a quaternion (4, *b)
with w first, a matrix (3, 3, *b). Batch axes broadcast by size; the caller makes the ranks equal.

Values and derivatives are finite everywhere. Each guard replaces the input of the branch that is
not taken (a double `where`), because a NaN in that branch would reach the derivative. Derivatives
with respect to a quaternion are with respect to its four components as they are.

Each function takes components by one `unstack`. Reverse differentiation then stacks the cotangents
of all components at once. Had a component been indexed n times, it would make n arrays of zeros
with one component each, and add them. A quaternion that rotates several vectors may be passed as
its four components, so that `unstack` serves all of them.
"""

import math
from collections.abc import Sequence
from functools import reduce
from operator import add

import jax
import jax.numpy as jnp
from jax import Array
from jax.numpy import unstack
from jax.typing import ArrayLike

from . import compiler
from .compiler import once, polynomial, spread, stored

# An array (4, *b), or its four components (*b).
Quaternion = Array | Sequence[Array]


@once
def dot(a: Array, b: Array) -> Array:
    """Inner product Σ aᵢ bᵢ of (k, *b) with (k, *b), shape (*b)."""
    return reduce(add, (x * y for x, y in zip(unstack(a), unstack(b), strict=True)))


@once
def cross(a: Array, b: Array) -> Array:
    """Vector product a × b, shape (3, *b)."""
    return stack(*_cross(unstack(a), unstack(b)))


@once
def norm(v: Array) -> Array:
    """Length |v| of (k, *b), shape (*b); value and derivative are 0 at v = 0."""
    # Protects √ and its derivative from v = 0, and from |v|² below the smallest normal number.
    square = dot(v, v)
    usable = square > jnp.finfo(square.dtype).tiny
    return jnp.where(usable, jnp.sqrt(jnp.where(usable, square, 1.0)), 0.0)


@jax.custom_jvp
def arctan2(y: Array, x: Array) -> Array:
    """Angle in [-π, π] [rad] of (x, y); value and derivative are 0 at (0, 0)."""
    return compiler.arctan2(y, x)


@arctan2.defjvp
def _arctan2_jvp(primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple:
    """(x dy - y dx) / (x² + y²)."""
    (y, x), (dy, dx) = primals, tangents
    square = x * x + y * y
    # Protects the division from (0, 0).
    usable = square > jnp.finfo(square.dtype).tiny
    scale = jnp.where(usable, 1 / jnp.where(usable, square, 1.0), 0.0)
    return arctan2(y, x), scale * x * dy - scale * y * dx


@once
def unit(v: Array) -> Array:
    """Direction v / |v|, shape (k, *b); v itself, with derivative 1, where |v| is 0."""
    # Protects the division from v = 0.
    length = norm(v)
    return v / spread(jnp.where(length > 0, length, 1.0), 0, len(v))


@once
def skew(v: Array) -> Array:
    """Matrix [v]ₓ of the vector product, [v]ₓ u = v × u, shape (3, 3, *b)."""
    x, y, z = unstack(v)
    zero = jnp.zeros_like(x)
    return _matrix(zero, -z, y, z, zero, -x, -y, x, zero)


def transpose(A: Array) -> Array:
    """Transpose of a matrix (m, k, *b), shape (k, m, *b)."""
    return jnp.swapaxes(A, 0, 1)


@once
def quat_multiply(a: Quaternion, b: Quaternion) -> Array:
    """Hamilton product a ⊗ b: the rotation b followed by the rotation a, shape (4, *b)."""
    w, x, y, z = _components(a)
    W, X, Y, Z = _components(b)
    return stack(
        w * W - x * X - y * Y - z * Z,
        w * X + x * W + y * Z - z * Y,
        w * Y - x * Z + y * W + z * X,
        w * Z + x * Y - y * X + z * W,
    )


@once
def quat_conjugate(q: Array) -> Array:
    """Conjugate q* = (w, -x, -y, -z), the inverse rotation of a unit quaternion, shape (4, *b)."""
    w, x, y, z = unstack(q)
    return stack(w, -x, -y, -z)


@once
def quat_rotate(q: Quaternion, v: Array) -> Array:
    """Vector R(q) v for a unit quaternion: v + 2 w u × v + 2 u × (u × v), shape (3, *b)."""
    w, *u = _components(q)
    return stack(*_rotate(w, u, unstack(v)))


@once
def quat_rotate_inverse(q: Quaternion, v: Array) -> Array:
    """Vector R(q)ᵀ v for a unit quaternion, shape (3, *b)."""
    w, *u = _components(q)
    return stack(*_rotate(-w, u, unstack(v)))


@once
def quat_to_matrix(q: Array) -> Array:
    """Rotation matrix R(q) of a unit quaternion, shape (3, 3, *b)."""
    w, x, y, z = unstack(q)
    X, Y, Z = 2 * x, 2 * y, 2 * z
    return _matrix(
        *(1 - (y * Y + z * Z), x * Y - w * Z, x * Z + w * Y),
        *(x * Y + w * Z, 1 - (x * X + z * Z), y * Z - w * X),
        *(x * Z - w * Y, y * Z + w * X, 1 - (x * X + y * Y)),
    )


@once
def quat_from_matrix(R: Array) -> Array:
    """Unit quaternion with w ≥ 0 of a rotation matrix (3, 3, *b), shape (4, *b).

    Sums of matrix entries are the four vectors 4 qᵢ q. For a rotation the one with the largest
    entry 4 qᵢ² has a length of at least 1, so it can be scaled to length 1 accurately at every
    angle, π included.
    Source: Shepperd, "Quaternion from rotation matrix", J. Guidance and Control 1 (1978).
    """
    a, b, c = R[0, 0], R[1, 1], R[2, 2]
    wx, wy, wz = R[2, 1] - R[1, 2], R[0, 2] - R[2, 0], R[1, 0] - R[0, 1]
    xy, xz, yz = R[0, 1] + R[1, 0], R[0, 2] + R[2, 0], R[1, 2] + R[2, 1]
    ww, xx, yy, zz = 1 + a + b + c, 1 + a - b - c, 1 - a + b - c, 1 - a - b + c
    q = stack(ww, wx, wy, wz)
    largest = ww
    for square, candidate in (
        (xx, (wx, xx, xy, xz)),
        (yy, (wy, xy, yy, yz)),
        (zz, (wz, xz, yz, zz)),
    ):
        q = jnp.where((square > largest)[None], stack(*candidate), q)
        largest = jnp.maximum(largest, square)
    return unit(jnp.where((q[0] < 0)[None], -q, q))


def quat_normalize(q: Array) -> Array:
    """Unit quaternion q / |q|, shape (4, *b); a zero quaternion is returned as it is."""
    p = unit(q)
    # Rounding of the division has a mean: without this step of Newton's a wheel that turns for
    # thousands of steps gains speed by it.
    return p - p * spread((dot(p, p) - 1) / 2, 0, len(p))


@once
def quat_from_rotation_vector(r: Array) -> Array:
    """Exponential of a rotation vector r [rad]: (cos θ/2, r sin(θ/2)/θ), θ = |r|, shape (4, *b)."""
    c0, c1 = stored(_cosine_and_sine)(dot(r, r) / 4)
    s = c1 / 2
    return stack(c0, *(s * x for x in unstack(r)))


@once
def quat_to_rotation_vector(q: Array) -> Array:
    """Logarithm of a rotation: the rotation vector r [rad] with |r| in [0, π], shape (3, *b).

    r = 2 atan2(|u|, w) u / |u| for q = (w, u) of any length. q and -q give the same r. At the angle
    π both signs of r are the same rotation; the result has a positive first nonzero component.
    """
    w, x, y, z = unstack(q)
    flip = (z < 0) & (y == 0) | (y < 0)
    flip = flip & (x == 0) | (x < 0)
    flip = flip & (w == 0) | (w < 0)
    w = jnp.where(flip, -w, w)
    scale = stored(_angle_over_sine)(w, x * x + y * y + z * z)
    scale = jnp.where(flip, -scale, scale)
    return stack(scale * x, scale * y, scale * z)


def _angle_over_sine(w: Array, square: Array) -> Array:
    """Factor of u in the logarithm of (w, u), for |u|² = square and w ≥ 0.

    It uses tan θ/4 = |u| / (|q| + w), and the tangent of half of that angle, at most tan π/8.
    """
    # Protects √ and the divisions from q = 0.
    length = square + w * w
    c = w + jnp.sqrt(jnp.where(length > 0, length, 1.0))
    t = square / (c * c)
    d = 1 + jnp.sqrt(1 + t)
    return 8 * compiler.arctan_series(t / (d * d)) / (c * d)


@once
def quat_integrate(q: Array, omega_world: Array, dt: ArrayLike) -> Array:
    """Orientation after turning at a constant ω [rad/s] in world axes: exp(dt ω) ⊗ q.

    dt: time [s], one number or (*b)
    """
    r = stack(*(dt * x for x in unstack(omega_world)))
    return quat_normalize(quat_multiply(quat_from_rotation_vector(r), q))


@once
def quat_integrate_linearized(q: Array, omega_world: Array, dt: ArrayLike) -> Array:
    """First-order `quat_integrate`, ODE's update: q + dt/2 (0, ω) ⊗ q, normalized."""
    x, y, z = (0.5 * dt * x for x in unstack(omega_world))
    spin = stack(jnp.zeros_like(x), x, y, z)
    return quat_normalize(q + quat_multiply(spin, q))


@once
def so3_exp(r: Array) -> Array:
    """Rotation matrix exp [r]ₓ of a rotation vector r [rad], shape (3, 3, *b)."""
    c0, c1, c2, *_ = stumpff(dot(r, r))
    return _commuting_matrix(r, c0, c1, c2)


def so3_log(R: Array) -> Array:
    """Rotation vector [rad] of a rotation matrix (3, 3, *b), angle in [0, π], shape (3, *b)."""
    return quat_to_rotation_vector(quat_from_matrix(R))


@once
def so3_right_jacobian(r: Array) -> Array:
    """Matrix J with exp(r + dr) = exp(r) exp(J dr) to first order, shape (3, 3, *b).

    J ṙ is the angular velocity in body axes. The left Jacobian (world axes) is J(-r) = J(r)ᵀ.
    """
    _, c1, c2, c3, _ = stumpff(dot(r, r))
    return _commuting_matrix(r, c1, -c2, c3)


@once
def so3_right_jacobian_inverse(r: Array) -> Array:
    """Inverse of `so3_right_jacobian`, shape (3, 3, *b).

    Large but finite at |r| = 2π, 4π, …, where the Jacobian is singular.
    """
    square = dot(r, r)
    d = jacobian_inverse_coefficient(square)
    return _commuting_matrix(r, 1 - square * d, 0.5 * jnp.ones_like(d), d)


@once
def basis(a: Array, jump: ArrayLike = 0.0) -> tuple[Array, Array]:
    """Two unit vectors (p, q), each (3, *b), that make p, q, a a right-handed orthonormal triad.

    `a` is a unit vector; a = ez gives ex, ey. Smooth except across a_z = `jump`, where the pair
    jumps; `jump` lies above -1.

    Source: Duff et al., "Building an orthonormal basis, revisited", JCGT 6 (2017).
    """
    x, y, z = unstack(a)
    sign = jnp.where(z < jump, -jnp.ones_like(z), jnp.ones_like(z))
    s = -1 / (sign + z)
    t = x * y * s
    p = stack(1 + sign * x * x * s, sign * t, -sign * x)
    return p, stack(t, sign + y * y * s, -y)


@once
def stumpff(x: Array) -> tuple[Array, ...]:
    """Stumpff functions c₀ … c₄ of x = θ² ≥ 0: c_k = Σ (-x)ⁿ / (2n + k)!, c_k = 1/k! - x c_{k+2}.

    c₀ = cos θ and c₁ = sin θ / θ; every coefficient of exp on SO(3) and SE(3) is one of them.
    """
    # Protects √ and the divisions from θ = 0, and small θ from their cancellation. The first term
    # that the series leaves out, x⁹/21!, is below the rounding of float64.
    small = x < 1
    near, far = jnp.where(small, x, 0.0), jnp.where(small, 1.0, x)
    series = [
        polynomial(near, tuple((-1) ** n / math.factorial(2 * n + k) for n in range(9)))
        for k in (3, 4)
    ]
    theta = jnp.sqrt(far)
    c0, c1 = jnp.cos(theta), jnp.sin(theta) / theta
    c2, c3 = (1 - c0) / far, (1 - c1) / far
    c3, c4 = jnp.where(small, series[0], c3), jnp.where(small, series[1], (0.5 - c2) / far)
    c2 = jnp.where(small, 0.5 - near * c4, c2)
    c0, c1 = jnp.where(small, 1 - near * c2, c0), jnp.where(small, 1 - near * c3, c1)
    return c0, c1, c2, c3, c4


def _cosine_and_sine(x: Array) -> tuple[Array, Array]:
    """cos θ and sin θ / θ of x = θ²."""
    # As in `stumpff`, without its other functions, which would take half as long again.
    small = x < 1
    near, far = jnp.where(small, x, 0.0), jnp.where(small, 1.0, x)
    c0, c1 = (
        polynomial(near, tuple((-1) ** n / math.factorial(2 * n + k) for n in range(10)))
        for k in (0, 1)
    )
    theta = jnp.sqrt(far)
    return jnp.where(small, c0, jnp.cos(theta)), jnp.where(small, c1, jnp.sin(theta) / theta)


def jacobian_inverse_coefficient(x: Array) -> Array:
    """Factor (1 - θ/2 cot θ/2) / θ² of [r]ₓ² in the inverse right Jacobian, for x = θ²."""
    _, _, c2, c3, c4 = stumpff(x)
    # Protects the division from θ = 2π, 4π, …, where c₂ = 0 and the factor has a pole.
    return (0.5 * c3 - c4) / jnp.maximum(c2, jnp.finfo(c2.dtype).eps)


def _commuting_matrix(r: Array, a: Array, b: Array, c: Array) -> Array:
    """Matrix a 1 + b [r]ₓ + c r rᵀ, shape (3, 3, *b); any function of [r]ₓ has this form."""
    x, y, z = unstack(r)
    X, Y, Z = b * x, b * y, b * z
    xy, xz, yz = c * x * y, c * x * z, c * y * z
    return _matrix(
        *(a + c * x * x, xy - Z, xz + Y),
        *(xy + Z, a + c * y * y, yz - X),
        *(xz - Y, yz + X, a + c * z * z),
    )


def _components(q: Quaternion) -> Sequence[Array]:
    return q if isinstance(q, tuple | list) else unstack(q)


def _cross(a: Sequence[Array], b: Sequence[Array]) -> tuple[Array, Array, Array]:
    return a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]


def _rotate(w: Array, u: Array, v: Array) -> tuple[Array, ...]:
    t = _cross(u, v)
    s = _cross(u, t)
    return tuple(v[i] + 2 * (w * t[i] + s[i]) for i in range(3))


@once
def stack(*components: Array) -> Array:
    """Components (*b) as one array (components, *b), broadcast against each other."""
    return jnp.stack(jnp.broadcast_arrays(*components))


def _matrix(*entries: Array) -> Array:
    """Matrix (3, 3, *b) of nine entries, row by row."""
    # Stacked row by row: XLA on CPUs makes no single loop of a concatenation of more than 8 parts.
    entries = jnp.broadcast_arrays(*entries)
    return jnp.stack([jnp.stack(entries[i : i + 3]) for i in (0, 3, 6)])
