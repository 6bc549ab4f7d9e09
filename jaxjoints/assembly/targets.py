"""Targets of rows: steps, flights, impacts, end positions, surfaces, projections, instants.

A target gives bias and compliance of the hard rows, and the form of each law of a coordinate row.
Targets differ in the part of an error that they remove: a share, all, or nothing. The time for
which laws act is no part of a target: see `Interval`.
"""

from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.lax import stop_gradient

from ..algebra.pytree import replace, static, struct
from ..laws.law import Law
from ..solve.forces import Bound, Latch, Linear, RowLaw
from ..solve.problem import REGULARIZATION
from .group_rows import GroupRows

# Augmented stiffness of a touched stop in a position projection, as a share of its effective mass.
HELD = 1e5


@struct
class Step:
    """Rows for one step of `Interval.dt`: every law acts unchanged. Base of all targets.

    locates: whether bouncing stops have a time of impact in the step, and push after this time
    """

    locates: ClassVar[bool] = False

    def hard(self, rows: GroupRows) -> tuple[Array, Array]:
        """Bias and compliance of the hard rows, (hard rows, n, *batch) each."""
        return rows.hard.drift + rows.hard.bias, rows.hard.compliance

    def off(self, rows: GroupRows) -> Array | np.ndarray | None:
        """True for hard rows that are switched off and exert no force, whatever `hard` returns;
        broadcasts to (hard rows, n, *batch). None where all are on.
        """
        return None

    def linear(self, law: Law, force: RowLaw) -> Linear | None:
        """The linear force that a law adds to its coordinate row, None for none."""
        return force if isinstance(force, Linear) else None

    def bound(self, law: Law, force: RowLaw) -> Bound | None:
        """The bounded impulse that a law adds, None for none."""
        if not isinstance(force, Bound):
            return None
        return replace(force, violation=None, rebound=force.rebound if self.locates else None)

    def latch(self, law: Law, force: RowLaw) -> Latch | None:
        """The latch that a law adds, None for none."""
        return replace(force, error=None) if isinstance(force, Latch) else None

    def stiffness(self, latch: Latch, A: Array) -> Array:
        """Augmented stiffness of a latch, limited to what a solve resolves; A: A_ii of its row."""
        least = REGULARIZATION[A.dtype.itemsize] * stop_gradient(A)
        return latch.engaged / jnp.maximum(latch.compliance, least)


@struct
class Flight(Step):
    """Rows for one step as far as it has no impacts: stops that bounce in it do not push."""

    locates: ClassVar[bool] = True


@struct
class EndPosition(Step):
    """Rows whose speeds are means over a step: changes of errors and coordinates over its length.

    Hard rows ask for no error at the end, soft rows for the error that ERP and CFM give. The rate
    of the problem has the target speeds only: the scheme adds the mean speeds (φ₁ - φ₀)/h, or the
    speeds H v of rows without an error.

    dt: length of the step [s], the `Interval.dt` of the rows
    """

    dt: Array

    def hard(self, rows: GroupRows) -> tuple[Array, Array]:
        hard = rows.hard
        bias = jnp.where(hard.compliance > 0, hard.bias, hard.error / self.dt)
        # (φ₁ - φ₀)/h contains the drift of an error; rows without an error keep their drift.
        has_error = rows.layout.has_error.reshape(-1, *(1,) * (hard.drift.ndim - 1))
        return jnp.where(has_error, 0.0, hard.drift) + bias, hard.compliance


@struct
class SurfaceVelocity(Step):
    """Rows that keep velocities on the joints' surfaces, whatever the errors.

    A stop is held at zero speed at any distance: the scheme decides which stops are present.

    holds_soft: whether rows that CFM softens hold like rigid rows; else they are switched off
    """

    holds_soft: bool = static(default=False)

    def hard(self, rows: GroupRows) -> tuple[Array, Array]:
        return rows.hard.drift, jnp.zeros_like(rows.hard.compliance)

    def off(self, rows: GroupRows) -> Array | np.ndarray | None:
        return None if self.holds_soft else rows.hard.compliance > 0

    def bound(self, law: Law, force: RowLaw) -> Bound | None:
        """See `Step.bound`: stops have no bias, so nothing moves into them."""
        bound = super().bound(law, force)
        if bound is None or not law.holds:
            return bound
        return replace(bound, bias=jnp.zeros_like(bound.bias))


@struct
class Surface(SurfaceVelocity):
    """Rows that keep velocities on the surfaces of joints and transmissions; no law acts.

    Joints softened by CFM count as rigid: their coordinates are those of the nearest surface point.
    """

    def off(self, rows: GroupRows) -> Array | np.ndarray | None:
        """See `Step.off`: locks are laws."""
        if rows.structural.all():
            return None
        return ~rows.structural.reshape(-1, *(1,) * (rows.hard.drift.ndim - 1))

    def linear(self, law: Law, force: RowLaw) -> Linear | None:
        """See `Step.linear`: no law acts."""
        return None

    def bound(self, law: Law, force: RowLaw) -> Bound | None:
        """See `Step.bound`: no law acts."""
        return None

    def latch(self, law: Law, force: RowLaw) -> Latch | None:
        """See `Step.latch`: no law acts."""
        return None


@struct
class Instant(Step):
    """Rows over a time so short that nothing moves, such as the rows of an impact.

    Joints and locks hold, whatever their ERP and CFM. Rows that springs replace keep bias and
    compliance. Stops hold where they are touched.

    reach: gap at which a stop is still touched [m or rad]
    dt: the time [s], the `Interval.dt` and `Interval.force_time` of the rows
    """

    reach: Array
    dt: Array

    def hard(self, rows: GroupRows) -> tuple[Array, Array]:
        hard = rows.hard
        springs = rows.structural & rows.soft
        springs = springs.reshape(-1, *(1,) * (hard.drift.ndim - 1)) & (hard.compliance > 0)
        bias = jnp.where(springs, hard.bias, 0.0)
        return hard.drift + bias, jnp.where(springs, hard.compliance, 0.0)

    def bound(self, law: Law, force: RowLaw) -> Bound | None:
        """See `Step.bound`: a stop that is not touched keeps the speed that would close its gap."""
        bound = super().bound(law, force)
        if bound is None or not law.holds:
            return bound
        touched = bound.bias * self.dt <= self.reach
        none = jnp.zeros_like(bound.bias)
        compliance = jnp.zeros_like(bound.compliance)
        return replace(bound, bias=jnp.where(touched, none, bound.bias), compliance=compliance)

    def latch(self, law: Law, force: RowLaw) -> Latch | None:
        """See `Step.latch`: an engaged latch holds rigidly."""
        latch = super().latch(law, force)
        if latch is None:
            return None
        return replace(
            latch, bias=jnp.zeros_like(latch.bias), compliance=jnp.zeros_like(latch.bias)
        )


@struct
class Impact(SurfaceVelocity):
    """Rows of the impacts within a step: nothing moves, what is soft gives way, stops are as they
    are for a step.
    """

    def bound(self, law: Law, force: RowLaw) -> Bound | None:
        return Step.bound(self, law, force)


@struct
class Projection(Step):
    """Rows for position projection, A λ = -φ: the speeds are displacements, over a time of 1.

    The projection removes errors of rigid joints, of transmissions and of hard locks. It holds a
    touched hard stop at its bound. A hard stop with an `Engagement` is one-sided while it is
    engaged.
    """

    def hard(self, rows: GroupRows) -> tuple[Array, Array]:
        return rows.hard.error, jnp.zeros_like(rows.hard.compliance)

    def off(self, rows: GroupRows) -> Array | np.ndarray | None:
        """See `Step.off`: soft joints and soft locks stay where they are."""
        if rows.rigid and rows.structural.all():
            return None
        structural = rows.structural.reshape(-1, *(1,) * (rows.hard.compliance.ndim - 1))
        return jnp.where(structural, not rows.rigid, rows.hard.compliance > 0)

    def linear(self, law: Law, force: RowLaw) -> Linear | None:
        """See `Step.linear`: no linear law acts."""
        return None

    def bound(self, law: Law, force: RowLaw) -> Bound | None:
        if not isinstance(force, Bound) or law.engagement is None:
            return None
        hard = jnp.where(force.compliance > 0, 0.0, force.present)
        return replace(force, present=hard, bias=jnp.minimum(force.violation, 0.0), violation=None)

    def latch(self, law: Law, force: RowLaw) -> Latch | None:
        """See `Step.latch`: a touched stop is held at its bound, like an engaged lock."""
        if isinstance(force, Latch):
            error = jnp.where(force.compliance > 0, 0.0, force.error)
            return Latch(error, jnp.where(error != 0, force.engaged, 0.0))
        if isinstance(force, Bound) and force.violation is not None and law.engagement is None:
            touched = force.violation < jnp.inf
            past = jnp.where(touched, force.violation, 0.0)
            return Latch(force.sign * past, touched.astype(past.dtype))
        return None

    def stiffness(self, latch: Latch, A: Array) -> Array:
        return latch.engaged * (HELD / A)
