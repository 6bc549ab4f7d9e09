"""Friction along a coordinate."""

from typing import ClassVar

import jax.numpy as jnp
from jax import Array

from ..algebra.pytree import static, struct
from ..algebra.renamed import renamed_fields
from ..solve.forces import Bound, zero_like
from .law import CoordinateState, Law, check_numbers


@renamed_fields(friction="friction_force")
@struct
class DryFriction(Law):
    """Dry (Coulomb) friction: up to `friction_force` [N or N m] against the motion, or sticking.

    >>> from jaxjoints import CoordinateState
    >>> at = CoordinateState(q=jnp.array(0.0), dt=jnp.array(0.125))
    >>> brake = DryFriction(4.0).force(at)
    >>> print(brake.lower / at.dt, brake.upper / at.dt)  # [N]
    -4.0 4.0
    """

    friction_force: Array | float
    coordinate: int = static(default=0, kw_only=True)
    kind: ClassVar[type] = Bound
    two_sided: ClassVar[bool] = True
    batched: ClassVar[bool] = True

    def force(self, at: CoordinateState) -> Bound:
        zero = zero_like(at.q)
        most = at.dt * self.friction_force + zero
        one = jnp.ones_like(zero)
        return Bound(one, zero, zero, one, lower=-most, upper=most)

    def check(self) -> str | None:
        return check_numbers(self)


@renamed_fields(mu="friction")
@struct
class CoulombFriction(Law):
    """Coulomb friction: up to μ |F| against the motion, F the force of the laws along `normal`.

    Example, a foot on the ground: `normal` is the height, with `Limits(lower=0.0)`. Each tangent
    has its own friction (a pyramid). `Newton.friction` chooses the solve that gives F.

    friction: coefficient μ [1, or m where the friction is a moment and F a force]
    normal: another coordinate of the joint, without a law that always holds it

    >>> foot = CoulombFriction(0.5, normal=2)
    >>> bound = foot.force(CoordinateState(q=jnp.array(0.0), dt=jnp.array(0.125)))
    >>> print(bound.mu * 10.0)  # largest friction [N] where the ground pushes with 10 N
    5.0
    """

    friction: Array | float
    coordinate: int = static(default=0, kw_only=True)
    normal: int = static(kw_only=True)
    kind: ClassVar[type] = Bound
    two_sided: ClassVar[bool] = True
    batched: ClassVar[bool] = True

    def force(self, at: CoordinateState) -> Bound:
        zero = zero_like(at.q)
        one = jnp.ones_like(zero)
        μ = self.friction + zero
        return Bound(one, zero, zero, one, lower=zero, upper=zero, mu=μ)

    def check(self) -> str | None:
        return check_numbers(self)
