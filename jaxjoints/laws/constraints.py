"""Constraints between any number of bodies, written as functions of their motion.

A constraint states its number of rows at each level and writes the functions that are held at 0:

    φ(poses, t) = 0,    ψ(poses, twists, t) = 0,    α(poses, twists, rates, t) = 0.

Rows, their drift with time and Ġ v are derived. With the twists v of the bodies the rows of a step
h are, as for couplings (`nonholonomic`),

    G v⁺ + ∂φ/∂t + erp φ/h + (cfm/h) λ = 0,    G = ∂φ/∂(motion),
    V v⁺ = V v - ψ,                            V = ∂ψ/∂v,
    V v⁺ = V v - h α(â),                       V = ∂α/∂(rates),

where â are the rates without the forces of the step.
"""

from typing import ClassVar

import jax.numpy as jnp
from jax import Array

from ..algebra.spatial import Pose


class Constraint:
    """Base of constraints between bodies: a frozen record (`struct`) whose leaves are parameters.

    A subclass states one or more numbers of rows and writes the function of each. Rows come in the
    order positions, velocities, accelerations.

    position_rows, velocity_rows, acceleration_rows: numbers of components of the three functions

    >>> from jaxjoints import struct
    >>> @struct
    ... class SameHeight(Constraint):
    ...     position_rows: ClassVar[int] = 1
    ...     def position(self, poses, t):
    ...         return (poses[0].p - poses[1].p)[2:]
    >>> print(SameHeight().position(Pose.along_z(jnp.array([0.75, 0.5])), t=0.0))
    [0.25]
    """

    position_rows: ClassVar[int] = 0
    velocity_rows: ClassVar[int] = 0
    acceleration_rows: ClassVar[int] = 0

    @property
    def rows(self) -> int:
        """Number of all rows."""
        return self.position_rows + self.velocity_rows + self.acceleration_rows

    def position(self, poses: Pose, t: Array) -> Array:
        """φ [m or rad], shape (position_rows,).

        poses: of the body frames in the world, p of shape (3, n), q of shape (4, n): `poses[i]` is
            that of the body i of the constraint, which may be the world
        t: time [s]
        """
        return jnp.zeros(0, poses.p.dtype)

    def velocity(self, poses: Pose, twists: Array, t: Array) -> Array:
        """ψ [m/s or rad/s], shape (velocity_rows,); should be linear in the twists.

        twists: velocity of each body frame's origin, then angular velocity, world axes, (6, n)
        """
        return jnp.zeros(0, poses.p.dtype)

    def acceleration(self, poses: Pose, twists: Array, rates: Array, t: Array) -> Array:
        """α [m/s² or rad/s²], shape (acceleration_rows,), linear in the rates.

        rates: acceleration of each body frame's origin, then angular acceleration, world axes,
            shape (6, n)
        """
        return jnp.zeros(0, poses.p.dtype)

    def check(self) -> str | None:
        """A sentence about wrong parameters, which are concrete numbers, or None."""
        return None
