"""Unknowns of a mechanism: numbers in a range, directions, rotations, inertias of bodies.

Each record maps shares of a box, from 0 to 1, to physical values. Every share gives a value that a
real mechanism can have: a positive stiffness, an axis of length 1, an inertia that masses can form.
So a search needs no other rule than to stay in the box. Before a recording is known, each share is
uniform.
"""

from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..algebra.pytree import expand_trailing, replace, static, struct
from ..algebra.rotation import (
    basis,
    quat_from_rotation_vector,
    quat_multiply,
    quat_normalize,
    quat_rotate,
    unit,
)
from ..build.numbers import BodyInertia


@struct
class Unknown:
    """Numbers to identify, each uniform from `lower` to `upper` before the recording.

    lower, upper: bounds, lower < upper; numbers, or arrays of one shape such as the knots of a
        function
    log: True: the logarithm is uniform, for a number of unknown order of magnitude; needs
        lower > 0

    >>> Unknown(lower=1.0, upper=100.0, log=True).value(0.5)
    10.0
    """

    lower: Array | float
    upper: Array | float
    log: bool = static(default=False)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the shares, that of the value."""
        return np.shape(self.lower)

    def about(self, value: Any) -> "Unknown":
        """The record itself: its range does not depend on the value that a system has now."""
        return self

    def value(self, share: Array | float) -> Array | float:
        """The value at a share of the range: `lower` at 0, `upper` at 1; shape (*shape, *batch)."""
        lower, upper = (_beside(share, x, np.ndim(x)) for x in (self.lower, self.upper))
        if self.log:
            return lower * (upper / lower) ** share
        return lower + (upper - lower) * share

    def check(self, name: str) -> None:
        """Raise ValueError for a range that is empty, or not finite."""
        lower, upper = np.asarray(self.lower, float), np.asarray(self.upper, float)
        if lower.shape != upper.shape:
            raise ValueError(
                f"unknown {name!r}: lower has shape {lower.shape} and upper {upper.shape}; give "
                "both one shape"
            )
        if not (np.isfinite([lower, upper]).all() and (lower < upper).all()):
            raise ValueError(
                f"unknown {name!r}: lower {self.lower} must be below upper {self.upper}, finite"
            )
        if self.log and not (lower > 0).all():
            raise ValueError(f"unknown {name!r}: lower {self.lower} must be > 0, or leave log out")


@struct
class Positive:
    """Positive numbers known to a factor, such as masses, stiffnesses and lengths.

    factor: > 1; the value lies between nominal / factor and nominal · factor, its logarithm uniform
    nominal: the number in the middle, > 0; by default the number of the system

    >>> Positive(2.0, nominal=3.0).value(1.0)
    6.0
    """

    factor: Array | float
    nominal: Array | float | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the shares, that of the value."""
        return np.shape(self.nominal)

    def about(self, value: Any) -> "Positive":
        """The record with a nominal value, if it has none of its own."""
        return self if self.nominal is not None else replace(self, nominal=value)

    def value(self, share: Array | float) -> Array | float:
        """The value at a share of the range, 0.5 for the nominal one; shape (*shape, *batch)."""
        nominal = _beside(share, self.nominal, np.ndim(self.nominal))
        return nominal * self.factor ** (2 * share - 1)

    def check(self, name: str) -> None:
        """Raise ValueError for a nominal value that is not positive, and a factor below 1."""
        if not (np.isfinite(self.factor) and float(self.factor) > 1):
            raise ValueError(f"unknown {name!r}: factor {self.factor} must be above 1, finite")
        nominal = np.asarray(self.nominal, float)
        if not (np.isfinite(nominal).all() and (nominal > 0).all()):
            raise ValueError(
                f"unknown {name!r}: its nominal value {self.nominal} must be positive; give "
                "another by nominal=…, or an Unknown with a range"
            )


@struct
class Direction:
    """A unit vector, such as the axis of a joint, known to an angle.

    within: largest turn about each of the two axes perpendicular to the nominal one [rad]
    nominal: direction in the middle, shape (3,); by default the direction of the system

    >>> axis = Direction(within=np.pi / 3, nominal=(0.0, 0.0, 1.0))
    >>> print(axis.value(jnp.array([1.0, 0.5]))[2].round(4))  # cos 60°: at the end of one range
    0.5
    """

    within: Array | float
    nominal: Any = None
    shape: ClassVar[tuple[int, ...]] = (2,)

    def about(self, value: Any) -> "Direction":
        """The record with a nominal direction, if it has none of its own."""
        return self if self.nominal is not None else replace(self, nominal=value)

    def value(self, share: Array) -> Array:
        """The direction at shares of shape (2, *batch), shape (3, *batch)."""
        axis = unit(_beside(share, self.nominal, 1))
        turn = self.within * (2 * share - 1)
        first, second = basis(axis)
        vector = first * turn[:1] + second * turn[1:]
        axis, vector = jnp.broadcast_arrays(axis, vector)
        return quat_rotate(quat_from_rotation_vector(vector), axis)

    def check(self, name: str) -> None:
        """Raise ValueError for an angle outside (0, π/2] and a nominal vector without direction."""
        _check_angle(name, self.within, np.pi / 2)
        _check_array(name, self.nominal, (3,), "a direction")


@struct
class Orientation:
    """A rotation, such as the quaternion of a joint's frame, known to an angle.

    within: largest turn about each axis of the nominal frame [rad]
    nominal: quaternion in the middle, w first, shape (4,); by default that of the system

    >>> frame = Orientation(within=np.pi, nominal=(1.0, 0.0, 0.0, 0.0))
    >>> print(frame.value(jnp.array([1.0, 0.5, 0.5])).round(4) + 0.0)  # half a turn about x
    [0. 1. 0. 0.]
    """

    within: Array | float
    nominal: Any = None
    shape: ClassVar[tuple[int, ...]] = (3,)

    def about(self, value: Any) -> "Orientation":
        """The record with a nominal rotation, if it has none of its own."""
        return self if self.nominal is not None else replace(self, nominal=value)

    def value(self, share: Array) -> Array:
        """The quaternion at shares of shape (3, *batch), shape (4, *batch)."""
        q = quat_normalize(_beside(share, self.nominal, 1))
        turn = quat_from_rotation_vector(self.within * (2 * share - 1))
        return quat_multiply(jnp.broadcast_to(q, turn.shape), turn)

    def check(self, name: str) -> None:
        """Raise ValueError for an angle outside (0, π] and a nominal value that is no rotation."""
        _check_angle(name, self.within, np.pi)
        _check_array(name, self.nominal, (4,), "a quaternion")


@struct
class Inertial:
    """Mass, centre of mass and inertia of a body, known to a factor; each value is a real body.

    The ten numbers are those of a triangular matrix U in J = L U Uᵀ Lᵀ, where J is the
    pseudo-inertia ∫ [r; 1] [r; 1]ᵀ dm and L Lᵀ its nominal value: logarithms of the diagonal of U,
    and the entries above it in units of the nominal body's extent. J is positive definite: the mass
    is positive, and principal moments of inertia keep the triangle inequality strictly.

    factor: > 1; each logarithm lies between ± log(factor)/2 and each number above the diagonal
        between ± log(factor)/2. So the mass lies between nominal / factor and nominal · factor, or
        a little beyond where the nominal centre of mass is not the origin of the body frame. Centre
        of mass and inertia vary with it, in ranges of the same factor
    nominal: the body in the middle, by default the body of the system

    Source: C. Rucker and P. M. Wensing, Smooth parameterization of rigid-body inertia, IEEE
    Robotics and Automation Letters 7 (2022), equations 8 to 12.

    >>> rod = BodyInertia(3.0, jnp.zeros(3), jnp.eye(3))
    >>> share = jnp.full(10, 0.5).at[0].set(1.0)  # the end of the mass's range
    >>> body = Inertial(2.0, nominal=rod).value(share)
    >>> print(body.mass.round(4), body.inertia[0, 0].round(4))  # both twice as large
    6.0 2.0
    """

    factor: Array | float
    nominal: BodyInertia | None = None
    shape: ClassVar[tuple[int, ...]] = (10,)

    def about(self, value: Any) -> "Inertial":
        """The record with a nominal body, if it has none of its own."""
        return self if self.nominal is not None else replace(self, nominal=value)

    def value(self, share: Array) -> BodyInertia:
        """The body at shares of shape (10, *batch)."""
        L, U = jnp.linalg.cholesky(_pseudo_inertia(self.nominal)), self._factor(share)
        root = jnp.einsum("ij,jk...->ik...", L.astype(U.dtype), U)
        J = jnp.einsum("ik...,jk...->ij...", root, root)
        mass = J[3, 3]
        com = J[:3, 3] / mass[None]
        second = J[:3, :3] - J[:3, None, 3] * com[None]
        trace = (second[0, 0] + second[1, 1] + second[2, 2])[None, None]
        return BodyInertia(mass, com, _beside(share, np.eye(3), 2, axes=1) * trace - second)

    def moved(self, share: Array, step: Array) -> Array:
        """Shares at the end of a step of a search, both of shape (10, starts).

        The step gives a rate of change of the pseudo-inertia J. J follows it along a straight line,
        but keeps at least a fifth of itself in every direction. Efforts are linear in J, so the
        search takes few steps; straight lines of shares would leave the directions that it already
        knows.
        """
        U, rate = jax.jvp(self._factor, (share,), (step,))
        U, rate = (jnp.moveaxis(x, -1, 0) for x in (U, rate))
        # K + t K̇ of K = U Uᵀ is U (1 + t E) Uᵀ.
        E = jnp.linalg.solve(U, rate)
        E = E + jnp.swapaxes(E, 1, 2)
        least = jnp.linalg.eigvalsh(E)[:, 0]
        # Protects the quotient from a body that does not shrink.
        t = jnp.where(least < -0.8, -0.8 / jnp.minimum(least, -0.8), 1.0)
        new = jnp.eye(4, dtype=U.dtype)[None] + t[:, None, None] * E
        # The triangular factor whose columns are filled from above.
        new = U @ jnp.linalg.cholesky(new[:, ::-1, ::-1])[:, ::-1, ::-1]
        scale = new[:, 3, 3]
        W = new / scale[:, None, None]
        logarithms = jnp.log(jnp.stack([scale, W[:, 0, 0], W[:, 1, 1], W[:, 2, 2]]))
        above = jnp.stack([W[:, i, j] for i, j in ((0, 1), (1, 2), (0, 2), (0, 3), (1, 3), (2, 3))])
        u = jnp.concatenate([logarithms, above])
        return 0.5 + u / jnp.log(self.factor)

    def _factor(self, share: Array) -> Array:
        """The triangular U of J = L U Uᵀ Lᵀ at shares (10, *batch), shape (4, 4, *batch)."""
        u = 0.5 * jnp.log(self.factor) * (2 * share - 1)
        a, d1, d2, d3, s12, s23, s13, t1, t2, t3 = jnp.unstack(u)
        none, one = jnp.zeros_like(a), jnp.ones_like(a)
        rows = [
            [jnp.exp(d1), s12, s13, t1],
            [none, jnp.exp(d2), s23, t2],
            [none, none, jnp.exp(d3), t3],
            [none, none, none, one],
        ]
        return jnp.exp(a)[None, None] * jnp.stack([jnp.stack(row) for row in rows])

    def check(self, name: str) -> None:
        """Raise ValueError for a factor below 1, and for a nominal body that masses cannot form."""
        if not (np.isfinite(self.factor) and float(self.factor) > 1):
            raise ValueError(f"unknown {name!r}: factor {self.factor} must be above 1, finite")
        J = _pseudo_inertia(self.nominal)
        if not (np.isfinite(J).all() and np.linalg.eigvalsh(J)[0] > 0):
            raise ValueError(
                f"unknown {name!r}: the nominal body is not one that masses can form in space; its "
                "principal moments of inertia must be positive, each less than the sum of the "
                "others, and its mass positive. Give another by nominal=BodyInertia(…)"
            )


Parameter = Unknown | Positive | Direction | Orientation | Inertial


def deviations(value: Callable[[Array], Any], share: Array, covariance: np.ndarray) -> Any:
    """Standard deviations of a function of shares, a tree like its value, to first order.

    share: shape (*shape); covariance: of its components, shape (size, size)
    """
    flat = jnp.reshape(share, (-1,))

    def along(direction):
        return jax.jvp(lambda z: value(z.reshape(share.shape)), (flat,), (direction,))[1]

    slopes = jax.vmap(along)(jnp.eye(len(flat), dtype=flat.dtype))

    def spread(J):
        J = np.asarray(J, float).reshape(len(flat), -1)
        variance = np.einsum("ik,ij,jk->k", J, covariance, J)
        # Protects the root from rounding.
        return np.sqrt(np.maximum(variance, 0.0))

    return jax.tree.map(lambda J: spread(J).reshape(J.shape[1:]), slopes)


def _pseudo_inertia(body: BodyInertia) -> Array:
    """∫ [r; 1] [r; 1]ᵀ dm of a body, r in the body frame, shape (4, 4)."""
    mass, com, inertia = (jnp.asarray(x, float) for x in (body.mass, body.com, body.inertia))
    second = 0.5 * jnp.trace(inertia) * jnp.eye(3) - inertia + mass * jnp.outer(com, com)
    first = mass * com
    return jnp.block([[second, first[:, None]], [first[None], mass[None, None]]])


def _beside(share: Any, x: Any, rank: int, *, axes: int | None = None) -> Any:
    """x as an array of the share's precision, with the share's batch axes at the end.

    rank: number of axes of x without batch axes
    axes: number of axes of the share that are no batch axes, by default as many
    """
    batch = np.ndim(share) - (rank if axes is None else axes)
    dtype = share.dtype if isinstance(share, jax.Array) else None
    return x if not batch and dtype is None else expand_trailing(jnp.asarray(x, dtype), rank, batch)


def _check_angle(name: str, angle: Any, most: float) -> None:
    """Raise ValueError for a largest turn that is not positive, or beyond what is told apart."""
    if not 0 < float(angle) <= most + 1e-6:
        raise ValueError(
            f"unknown {name!r}: within {angle} must be positive and at most {most:.4g} rad"
        )


def _check_array(name: str, value: Any, shape: tuple[int, ...], what: str) -> None:
    """Raise ValueError for what is no direction or quaternion of a length that is not 0."""
    array = np.asarray(value, float)
    if array.shape != shape or not np.isfinite(array).all() or not array.any():
        raise ValueError(
            f"unknown {name!r}: nominal {value} must be {what} of shape {shape}, finite, not zero"
        )
