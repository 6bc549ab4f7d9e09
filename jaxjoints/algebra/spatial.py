"""Spatial algebra: poses, twists and wrenches; it exports the functions of `rotation` too.

Components are the first axes and batch axes the last, as in `rotation`. A twist or a wrench is
(6, *b), the linear part before the angular part. A `Pose` holds (3, *b) and (4, *b).
"""

from collections.abc import Iterator, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from .arguments import check_quaternion, check_rotation_matrix, read_numbers
from .compiler import is_traced
from .dense import multiply as matvec
from .dense import product as matmul
from .options import brief, plain_numbers
from .pytree import expand_trailing, struct
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
from .units import warn_of_unit

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

    Constructors (`about`, `along`, `translation`, …) take numbers, sequences and arrays. They raise
    ValueError for other shapes, text, infinities and NaN, and ask about degrees (`UnitWarning`). Of
    traced numbers they check the shape. `Pose(p, q)` takes arrays as they are.

    >>> T = Pose.along_x(1.0) @ Pose.about_z(jnp.pi / 2)
    >>> print(T.apply(jnp.array([2.0, 0.0, 0.0])).round(3))
    [1. 2. 0.]

    Poses of a batch are taken by an index of its axes, as items of an array are: `poses[3]`,
    `poses[..., 0]`, `poses[:5]`. Their number is `len(poses)`; a loop runs along the first batch
    axis. With `body_poses` this is the axis of the bodies.

    >>> for T in Pose.along_x(jnp.array([1.0, 2.0])):
    ...     print(T.p)
    [1. 0. 0.]
    [2. 0. 0.]
    """

    p: Array
    q: Array

    def __getitem__(self, index: Any) -> "Pose":
        """Poses of a batch by an index of its axes, which stand behind the components.

        Raises: IndexError for an index that the batch does not have, a single pose any.
        """
        batch = self._batch()
        known = [np.asarray(x) if isinstance(x, list) else x for x in _as_tuple(index)]
        if not is_traced(known):
            # JAX takes the nearest item in place of one that there is not.
            try:
                np.broadcast_to(np.False_, batch)[tuple(known)]
            except IndexError as error:
                of = f"poses with the batch axes {batch}" if batch else "a single pose"
                raise IndexError(f"index {index!r} of {of}: {error}") from None
        place = (slice(None), *known)
        return Pose(*(self._wide(x, batch)[place] for x in (self.p, self.q)))

    def __len__(self) -> int:
        """Number of poses along the first batch axis; TypeError for a single pose."""
        batch = self._batch()
        if not batch:
            raise TypeError("a single Pose has no length; it has no batch axes")
        return batch[0]

    def __iter__(self) -> Iterator["Pose"]:
        """The poses along the first batch axis; TypeError for a single pose."""
        return (self[i] for i in range(len(self)))

    def __bool__(self) -> bool:
        """True, also of a single pose, which has no length."""
        return True

    def _batch(self) -> tuple[int, ...]:
        """Batch axes of both parts together; ValueError for what has other axes in front."""
        p, q = np.shape(self.p), np.shape(self.q)
        if p[:1] != (3,) or q[:1] != (4,):
            raise ValueError(
                f"Pose: its p and q have shapes {p} and {q}, not (3, …) and (4, …); poses with an "
                "axis of time in front are taken by jax.tree.map(lambda x: x[i], poses)"
            )
        if p[1:] and q[1:]:
            return np.broadcast_shapes(p[1:], q[1:])
        return p[1:] or q[1:]

    def _wide(self, x: Array, batch: tuple[int, ...]) -> Array:
        """A part with all batch axes."""
        return jnp.broadcast_to(expand_trailing(x, 1, len(batch)), (x.shape[0], *batch))

    @classmethod
    def identity(cls, shape: Sequence[int] = (), *, dtype=None) -> "Pose":
        """Pose of a frame that coincides with its reference, with the batch axes `shape`."""
        one, zero = jnp.ones(shape, dtype), jnp.zeros(shape, dtype)
        return cls(stack(zero, zero, zero), stack(one, zero, zero, zero))

    @classmethod
    def translation(cls, p: ArrayLike) -> "Pose":
        """Displacement by p [m], shape (3, *b), with parallel axes."""
        p = _numbers("translation", "p", p, (3,))
        zero = jnp.zeros_like(p[0])
        return cls(p, stack(jnp.ones_like(p[0]), zero, zero, zero))

    @classmethod
    def rotation(cls, q: ArrayLike) -> "Pose":
        """Rotation about the origin by the unit quaternion q, w first, shape (4, *b)."""
        array, known = _read("rotation", "q", q, (4,))
        if known is None or check_quaternion("Pose.rotation", "q", brief(q), known):
            return _turned(array)
        return _turned(quat_normalize(array))

    @classmethod
    def from_matrix(cls, R: ArrayLike, p: ArrayLike | None = None) -> "Pose":
        """Pose with axes in the columns of the rotation matrix R (3, 3, *b), origin p (3, *b)."""
        R, known = _read("from_matrix", "R", R, (3, 3))
        if known is not None:
            check_rotation_matrix("Pose.from_matrix", "R", known)
        return _at("from_matrix", quat_from_matrix(R), p)

    @classmethod
    def from_rotation_vector(cls, r: ArrayLike, p: ArrayLike | None = None) -> "Pose":
        """Pose turned by the rotation vector r [rad], shape (3, *b), with origin p (3, *b)."""
        r = _numbers("from_rotation_vector", "r", r, (3,), measured="rad")
        return _at("from_rotation_vector", quat_from_rotation_vector(r), p)

    @classmethod
    def about(cls, axis: ArrayLike, angle: ArrayLike) -> "Pose":
        """Rotation by `angle` [rad], (*b), about an axis (3, *b) of any length but 0.

        A positive angle turns by the right-hand rule, here and in `about_x`, `about_y`, `about_z`.
        """
        axis, angle = _along_axis("about", axis, "angle", angle, measured="rad")
        s = jnp.sin(angle / 2)
        return _turned(stack(jnp.cos(angle / 2), s * axis[0], s * axis[1], s * axis[2]))

    @classmethod
    def about_x(cls, angle: ArrayLike) -> "Pose":
        """Rotation by `angle` [rad], (*b), about x."""
        c, s, zero = _half_turn("about_x", angle)
        return _turned(stack(c, s, zero, zero))

    @classmethod
    def about_y(cls, angle: ArrayLike) -> "Pose":
        """Rotation by `angle` [rad], (*b), about y."""
        c, s, zero = _half_turn("about_y", angle)
        return _turned(stack(c, zero, s, zero))

    @classmethod
    def about_z(cls, angle: ArrayLike) -> "Pose":
        """Rotation by `angle` [rad], (*b), about z."""
        c, s, zero = _half_turn("about_z", angle)
        return _turned(stack(c, zero, zero, s))

    @classmethod
    def along(cls, axis: ArrayLike, distance: ArrayLike) -> "Pose":
        """Displacement by `distance` [m], (*b), along an axis (3, *b) of any length but 0."""
        axis, d = _along_axis("along", axis, "distance", distance)
        return _moved(d * axis[0], d * axis[1], d * axis[2])

    @classmethod
    def along_x(cls, distance: ArrayLike) -> "Pose":
        """Displacement by `distance` [m], (*b), along x."""
        d = _numbers("along_x", "distance", distance)
        return _moved(d, jnp.zeros_like(d), jnp.zeros_like(d))

    @classmethod
    def along_y(cls, distance: ArrayLike) -> "Pose":
        """Displacement by `distance` [m], (*b), along y."""
        d = _numbers("along_y", "distance", distance)
        return _moved(jnp.zeros_like(d), d, jnp.zeros_like(d))

    @classmethod
    def along_z(cls, distance: ArrayLike) -> "Pose":
        """Displacement by `distance` [m], (*b), along z."""
        d = _numbers("along_z", "distance", distance)
        return _moved(jnp.zeros_like(d), jnp.zeros_like(d), d)

    @classmethod
    def exp(cls, twist: ArrayLike) -> "Pose":
        """Exponential of SE(3): pose reached in unit time at a constant body twist (6, *b)."""
        twist = _numbers("exp", "twist", twist, (6,))
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


def _as_tuple(index: Any) -> tuple:
    return index if isinstance(index, tuple) else (index,)


def _moved(x: Array, y: Array, z: Array) -> Pose:
    """Displacement by three components of shape (*b)."""
    p = stack(x, y, z)
    one, zero = jnp.ones_like(p[0]), jnp.zeros_like(p[0])
    return Pose(p, stack(one, zero, zero, zero))


def _turned(q: Array) -> Pose:
    """Rotation about the origin."""
    return Pose(jnp.zeros_like(q[1:]), q)


def _at(call: str, q: Array, p: ArrayLike | None) -> Pose:
    """Pose of an orientation (4, *b) with its origin at p (3, *b), or at that of the reference."""
    if p is None:
        return _turned(q)
    p, q = _with_one_batch(call, (_numbers(call, "p", p, (3,)), 1), (q, 1))
    return Pose(p, q)


def _half_turn(call: str, angle: ArrayLike) -> tuple[Array, Array, Array]:
    half = _numbers(call, "angle", angle, measured="rad") / 2
    return jnp.cos(half), jnp.sin(half), jnp.zeros_like(half)


def _along_axis(
    call: str, axis: ArrayLike, field: str, amount: ArrayLike, measured: str = ""
) -> tuple[Array, Array]:
    """Unit axis, and an amount along or about it."""
    direction, known = _read(call, "axis", axis, (3,))
    if known is not None and not known.any(axis=0).all():
        raise ValueError(f"Pose.{call}: axis {brief(axis)} must not be zero; it is a direction")
    read = _numbers(call, field, amount, measured=measured)
    direction, read = _with_one_batch(call, (direction, 1), (read, 0))
    return unit(direction), read


def _with_one_batch(call: str, *parts: tuple[Array, int]) -> list[Array]:
    """Arrays with the batch axes of all, each of which has all of them or none.

    parts: each with its number of axes without batch axes
    """
    batches = [x.shape[rank:] for x, rank in parts]
    batch = max(batches, key=len)
    for shape in batches:
        if shape and (
            len(shape) != len(batch)
            or any(1 != a != b != 1 for a, b in zip(shape, batch, strict=True))
        ):
            raise ValueError(
                f"Pose.{call}: batch axes {shape} and {batch} differ; each argument has all of "
                "them at the end or none"
            )
    return [expand_trailing(x, rank, len(batch)) for x, rank in parts]


def _numbers(
    call: str, field: str, value: ArrayLike, shape: tuple[int, ...] = (), measured: str = ""
) -> Array:
    """An argument of a constructor of `Pose` as a float array, shape (*shape, *b).

    measured: "rad" for angles. Of numbers that a user writes, not of JAX's arrays, which are
        computed, degrees are asked about
    """
    array, known = _read(call, field, value, shape)
    if measured and known is not None and not isinstance(value, Array):
        warn_of_unit(f"Pose.{call}", field, np.ravel(known), measured)
    return array


def _read(
    call: str, field: str, value: ArrayLike, shape: tuple[int, ...]
) -> tuple[Array, np.ndarray | None]:
    """An argument as a float array (*shape, *b), and its numbers where they are known.

    Python numbers take the precision of what they meet.

    Raises: ValueError for another shape, and for numbers that are not finite.
    """
    plain = value
    if shape and isinstance(value, (tuple, list)):
        try:
            value = stack(*(_real(x) for x in value))
        except (TypeError, ValueError):
            # What is wrong with it is told below.
            pass
        # Components may be arrays of several shapes.
        plain = value if plain_numbers(plain) is None else plain
    numbers = read_numbers(f"Pose.{call}", field, plain, shape, batched=True)
    return _real(value), numbers if isinstance(numbers, np.ndarray) else None


def _real(x: ArrayLike) -> Array:
    if isinstance(x, int):
        return jnp.asarray(float(x))
    x = jnp.asarray(x)
    return x if jnp.issubdtype(x.dtype, jnp.floating) else x.astype(float)


def _concatenate(linear: Array, angular: Array) -> Array:
    return jnp.concatenate(jnp.broadcast_arrays(linear, angular), axis=0)
