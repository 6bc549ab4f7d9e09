"""One-sided constraints and springs across a joint: errors as coordinates, for laws to act on."""

from typing import ClassVar

import jax
import jax.numpy as jnp
from jax import Array

from ..algebra.dense import inverse, multiply
from ..algebra.pytree import struct
from ..algebra.spatial import Pose, retract
from .compound import check_given_by_poses
from .coupling import Chart, Coupling, CouplingRows, Residual


@struct
class Released(Coupling):
    """C moves freely; coordinates: the errors of another coupling, then its coordinates.

    What the other coupling forbids is thus left to laws: `Released(PlanePoint())` with
    `Limits(lower=0.0)` keeps a point above a plane, `Released(Hinge())` with springs on all
    coordinates but the last is a bushing. Rows are the exact derivatives of the coordinates,
    however large the errors.

    of: the coupling, with rows of its own. The rows of a `Chart` without a `complement` may swap
        and change sign from pose to pose, and cannot serve as coordinates. Time is held at 0.

    Source: ArtiSynth's unilateral PlanarConnector and SegmentedPlanarConnector.
    """

    of: Coupling
    dof: ClassVar[int] = 6

    def pose(self, q: Array) -> Pose:
        """The pose with errors q[: 6 - k] and coordinates q[6 - k :] of the other coupling."""
        count = 6 - self.of.dof
        error, free = q[:count], q[count:]
        T = self.of.pose(free)
        if not isinstance(self.of, Residual):
            return retract(T, multiply(inverse(self.of.wrenches(T, free))[:, :count], error))

        def improve(_, T):
            rows = self.of.rows(T, free, jnp.zeros((), q.dtype))
            step = jnp.concatenate([error - rows.error, free - rows.q])
            return retract(T, multiply(inverse(rows.W), step)).normalized()

        return jax.lax.fori_loop(0, self.of.iterations, improve, T)

    def coordinates(self, T: Pose, q: Array | None = None, t=0.0) -> Array:
        """Errors and coordinates of the other coupling, the latter continued from q."""
        q = self.zero(T) if q is None else q
        rows = self.of.rows(T, q[6 - self.of.dof :], jnp.zeros((), T.p.dtype))
        return jnp.concatenate([rows.error, rows.q])

    def rows(self, T: Pose, q: Array, t: Array) -> CouplingRows:
        """See `Coupling.rows`."""

        def moved(twist):
            return self.coordinates(retract(T, twist), q)

        W = jax.jacfwd(moved)(jnp.zeros(6, T.p.dtype))
        none = jnp.zeros(0, T.p.dtype)
        return CouplingRows(W, none, self.coordinates(T, q), none)

    def check(self) -> str | None:
        """See `Coupling.check`."""
        problem = check_given_by_poses("of", self.of)
        if problem:
            return problem
        kind = type(self.of)
        if isinstance(self.of, Chart) and kind.complement is Chart.complement:
            return f"of {kind.__name__} has no rows of its own; give it a `complement`"
        return None

    def normalized(self) -> "Released":
        """See `Coupling.normalized`."""
        return Released(self.of.normalized())
