"""Spatial algebra: poses, twists and wrenches; it exports the functions of `rotation` too.

Components are the first axes and batch axes the last, as in `rotation`. A twist or a wrench is
(6, *b), the linear part before the angular part. A `Pose` holds (3, *b) and (4, *b).
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from .dense import multiply as matvec
from .dense import product as matmul
from .pytree import struct
from .rotation import (
    arctan2,
    basis,
    cross,
    dot,
    jacobian_inverse_coefficient,
    norm,
    quat_conjugate,
    quat_from_matrix,
    quat_from_rotation_vector,
    quat_integrate,
    quat_integrate_linearized,
    quat_multiply,
    quat_normalize,
    quat_rotate,
    quat_rotate_inverse,
    quat_to_matrix,
    quat_to_rotation_vector,
    skew,
    so3_exp,
    so3_log,
    so3_right_jacobian,
    so3_right_jacobian_inverse,
    stack,
    stumpff,
    transpose,
    unit,
)

__all__ = [
    "arctan2",
    "Pose",
    "error_twist",
    "retract",
    "over_mass",
    "adjoint",
    "adjoint_inverse",
    "transform_twist",
    "transform_wrench",
    "twist_of",
    "tangent_of",
    "basis",
    "cross",
    "dot",
    "matmul",
    "matvec",
    "norm",
    "quat_conjugate",
    "quat_from_matrix",
    "quat_from_rotation_vector",
    "quat_integrate",
    "quat_integrate_linearized",
    "quat_multiply",
    "quat_normalize",
    "quat_rotate",
    "quat_rotate_inverse",
    "quat_to_matrix",
    "quat_to_rotation_vector",
    "skew",
    "so3_exp",
    "so3_log",
    "so3_right_jacobian",
    "so3_right_jacobian_inverse",
    "transpose",
    "unit",
]


@struct
class Pose:
    """Pose T_CD of a frame C in a frame D: x_D = p + R(q) x_C for the coordinates of a point.

    p: origin of C in D [m], shape (3, *b)
    q: unit quaternion (w, x, y, z) of the rotation from the axes of D to those of C, which maps
        components along C axes to components along D axes, shape (4, *b)

    >>> T = Pose.along_x(1.0) @ Pose.about_z(jnp.pi / 2)
    >>> print(T.apply(jnp.array([2.0, 0.0, 0.0])).round(3))
    [1. 2. 0.]
    """

    p: Array
    q: Array

    @classmethod
    def identity(cls, shape: Sequence[int] = (), *, dtype=None) -> "Pose":
        """Pose of a frame that coincides with its reference, with the batch axes `shape`."""
        one, zero = jnp.ones(shape, dtype), jnp.zeros(shape, dtype)
        return cls(stack(zero, zero, zero), stack(one, zero, zero, zero))

    @classmethod
    def translation(cls, p: Array) -> "Pose":
        """Displacement by p [m], shape (3, *b), with parallel axes."""
        zero = jnp.zeros_like(p[0])
        return cls(p, stack(jnp.ones_like(p[0]), zero, zero, zero))

    @classmethod
    def rotation(cls, q: Array) -> "Pose":
        """Rotation about the origin by the unit quaternion q, shape (4, *b)."""
        return cls(jnp.zeros_like(q[1:]), q)

    @classmethod
    def from_matrix(cls, R: Array, p: Array | None = None) -> "Pose":
        """Pose with axes in the columns of the rotation matrix R (3, 3, *b), origin p (3, *b)."""
        q = quat_from_matrix(R)
        return cls.rotation(q) if p is None else cls(p, q)

    @classmethod
    def from_rotation_vector(cls, r: Array, p: Array | None = None) -> "Pose":
        """Pose turned by the rotation vector r [rad], shape (3, *b), with origin p (3, *b)."""
        q = quat_from_rotation_vector(r)
        return cls.rotation(q) if p is None else cls(p, q)

    @classmethod
    def about(cls, axis: ArrayLike, angle: ArrayLike) -> "Pose":
        """Rotation by `angle` [rad], (*b), about an axis (3, *b) of any length but 0.

        A positive angle turns by the right-hand rule, here and in `about_x`, `about_y`, `about_z`.
        """
        axis, angle = _direction(axis, angle)
        s = jnp.sin(angle / 2)
        return cls.rotation(stack(jnp.cos(angle / 2), s * axis[0], s * axis[1], s * axis[2]))

    @classmethod
    def about_x(cls, angle: ArrayLike) -> "Pose":
        """Rotation by `angle` [rad], (*b), about x."""
        c, s, zero = _half_turn(angle)
        return cls.rotation(stack(c, s, zero, zero))

    @classmethod
    def about_y(cls, angle: ArrayLike) -> "Pose":
        """Rotation by `angle` [rad], (*b), about y."""
        c, s, zero = _half_turn(angle)
        return cls.rotation(stack(c, zero, s, zero))

    @classmethod
    def about_z(cls, angle: ArrayLike) -> "Pose":
        """Rotation by `angle` [rad], (*b), about z."""
        c, s, zero = _half_turn(angle)
        return cls.rotation(stack(c, zero, zero, s))

    @classmethod
    def along(cls, axis: ArrayLike, distance: ArrayLike) -> "Pose":
        """Displacement by `distance` [m], (*b), along an axis (3, *b) of any length but 0."""
        axis, d = _direction(axis, distance)
        return cls.translation(stack(d * axis[0], d * axis[1], d * axis[2]))

    @classmethod
    def along_x(cls, distance: ArrayLike) -> "Pose":
        """Displacement by `distance` [m], (*b), along x."""
        d = _real(distance)
        return cls.translation(stack(d, jnp.zeros_like(d), jnp.zeros_like(d)))

    @classmethod
    def along_y(cls, distance: ArrayLike) -> "Pose":
        """Displacement by `distance` [m], (*b), along y."""
        d = _real(distance)
        return cls.translation(stack(jnp.zeros_like(d), d, jnp.zeros_like(d)))

    @classmethod
    def along_z(cls, distance: ArrayLike) -> "Pose":
        """Displacement by `distance` [m], (*b), along z."""
        d = _real(distance)
        return cls.translation(stack(jnp.zeros_like(d), jnp.zeros_like(d), d))

    @classmethod
    def exp(cls, twist: Array) -> "Pose":
        """Exponential of SE(3): pose reached in unit time at a constant body twist (6, *b)."""
        v, w = twist[:3], twist[3:]
        _, _, c2, c3, _ = stumpff(dot(w, w))
        wv = cross(w, v)
        return cls(v + c2[None] * wv + c3[None] * cross(w, wv), quat_from_rotation_vector(w))

    def log(self) -> Array:
        """Logarithm of SE(3): body twist (6, *b) that reaches this pose in unit time.

        Its angular part is at most π long.
        """
        w = quat_to_rotation_vector(self.q)
        wp = cross(w, self.p)
        d = jacobian_inverse_coefficient(dot(w, w))
        return _concatenate(self.p - 0.5 * wp + d[None] * cross(w, wp), w)

    @property
    def R(self) -> Array:
        """Rotation matrix from C axes to D axes, shape (3, 3, *b)."""
        return quat_to_matrix(self.q)

    def __matmul__(self, other: "Pose") -> "Pose":
        """Composition of poses: T_CD @ T_EC is T_ED."""
        return Pose(self.apply(other.p), quat_multiply(self.q, other.q))

    def inverse(self) -> "Pose":
        """Pose T_DC of the reference frame D in the frame C."""
        return Pose(-quat_rotate_inverse(self.q, self.p), quat_conjugate(self.q))

    def apply(self, x: Array) -> Array:
        """Coordinates in D of a point with coordinates x in C, shape (3, *b)."""
        return self.p + quat_rotate(self.q, x)

    def rotate(self, v: Array) -> Array:
        """Components along D axes of a vector with components v along C axes, shape (3, *b)."""
        return quat_rotate(self.q, v)

    def rotate_inverse(self, v: Array) -> Array:
        """Components along C axes of a vector with components v along D axes, shape (3, *b)."""
        return quat_rotate_inverse(self.q, v)

    def normalized(self) -> "Pose":
        """The same pose with its quaternion scaled to unit length."""
        return Pose(self.p, quat_normalize(self.q))


def over_mass(inverse_mass: Array, inverse_inertia: Array, wrench: Array) -> Array:
    """M⁻¹ f: twists that impulses f give bodies at rest, of components about their centres of mass.

    inverse_mass: [1/kg], shape (bodies, *batch); inverse_inertia: [1/(kg m²)] in the axes of f,
        shape (3, 3, bodies, *batch); f: [N s, N m s], shape (6, bodies, *batch), or for several on
        each body (6, count, bodies, *batch), like the twists [m/s, rad/s]
    """
    several = wrench.ndim == inverse_inertia.ndim
    linear = inverse_mass[(None,) * (1 + several)] * wrench[:3]
    angular = (matmul if several else matvec)(inverse_inertia, wrench[3:])
    return jnp.concatenate(jnp.broadcast_arrays(linear, angular), axis=0)


def error_twist(T: Pose) -> Array:
    """Error (p, log R) of a pose T, shape (6, *b): position and rotation vector.

    The linear part is p as it is, as in ArtiSynth, and not that of the SE(3) logarithm.
    """
    return _concatenate(T.p, quat_to_rotation_vector(T.q))


def retract(T: Pose, twist: Array) -> Pose:
    """Pose T moved by a body twist (v, w) for unit time, (p + R v, q ⊗ exp w); v, w in T's axes.

    `error_twist(T.inverse() @ retract(T, twist))` is `twist` while |w| < π.
    """
    return T @ Pose(twist[:3], quat_from_rotation_vector(twist[3:]))


def adjoint(T: Pose) -> Array:
    """Matrix [[R, [p]ₓ R], [0, R]] for the pose T of C in B, shape (6, 6, *b).

    It maps a twist at C's origin in C axes to the twist of the same motion at B's origin in B axes.
    """
    R = T.R
    return _twist_matrix(R, matmul(skew(T.p), R))


def adjoint_inverse(T: Pose) -> Array:
    """Matrix [[Rᵀ, -Rᵀ [p]ₓ], [0, Rᵀ]] for the pose T of C in B, shape (6, 6, *b).

    It maps a twist at B's origin in B axes to the twist of the same motion at C's origin in C axes.
    Its transpose maps a wrench from C to B.
    """
    Rt = transpose(T.R)
    return _twist_matrix(Rt, -matmul(Rt, skew(T.p)))


def transform_twist(T: Pose, v: Array) -> Array:
    """Twist at C's origin in C axes of a twist v at B's origin in B axes, shape (6, *b).

    T: pose of C in B. The result is `adjoint_inverse(T)` v.
    """
    linear = T.rotate_inverse(v[:3] + cross(v[3:], T.p))
    return _concatenate(linear, T.rotate_inverse(v[3:]))


def transform_wrench(T: Pose, f: Array) -> Array:
    """Wrench about B's origin in B axes of a wrench f about C's origin in C axes, shape (6, *b).

    T: pose of C in B. The result is `adjoint_inverse(T)`ᵀ f.
    """
    force = T.rotate(f[:3])
    return _concatenate(force, T.rotate(f[3:]) + cross(T.p, force))


def twist_of(T: Pose, dT: Pose) -> Array:
    """Body twist (Rᵀ ṗ, 2 vec(q* ⊗ q̇)) of a pose T with the tangent dT = (ṗ, q̇), shape (6, *b).

    `jax.jvp` of a function that returns a pose returns dT as a `Pose` of ṗ and q̇.
    """
    linear = T.rotate_inverse(dT.p)
    return _concatenate(linear, 2 * quat_multiply(quat_conjugate(T.q), dT.q)[1:])


def tangent_of(T: Pose, twist: Array) -> Pose:
    """Tangent (ṗ, q̇) = (R v, ½ q ⊗ (0, w)) of a pose that moves at a body twist (v, w)."""
    half = 0.5 * twist[3:]
    spin = stack(jnp.zeros_like(half[0]), half[0], half[1], half[2])
    return Pose(T.rotate(twist[:3]), quat_multiply(T.q, spin))


def _twist_matrix(diagonal: Array, corner: Array) -> Array:
    """[[diagonal, corner], [0, diagonal]], shape (6, 6, *b)."""
    diagonal, corner = jnp.broadcast_arrays(diagonal, corner)
    upper = jnp.concatenate([diagonal, corner], axis=1)
    lower = jnp.concatenate([jnp.zeros_like(diagonal), diagonal], axis=1)
    return jnp.concatenate([upper, lower], axis=0)


def _half_turn(angle: ArrayLike) -> tuple[Array, Array, Array]:
    half = _real(angle) / 2
    return jnp.cos(half), jnp.sin(half), jnp.zeros_like(half)


def _direction(axis: ArrayLike, amount: ArrayLike) -> tuple[Array, Array]:
    """Unit axis and amount as arrays; Python numbers take the precision of what they meet."""
    if not isinstance(axis, jax.Array):
        axis = stack(*(_real(component) for component in axis))
    return unit(axis), _real(amount)


def _real(x: ArrayLike) -> Array:
    return jnp.asarray(float(x) if isinstance(x, int) else x)


def _concatenate(linear: Array, angular: Array) -> Array:
    return jnp.concatenate(jnp.broadcast_arrays(linear, angular), axis=0)
