"""Released constraints: the errors of a coupling as coordinates, for one-sided or elastic laws."""

from typing import ClassVar

import jax
import jax.numpy as jnp
from jax import Array

from ..algebra.dense import inverse, multiply
from ..algebra.pytree import overrides, struct
from ..algebra.spatial import Pose, retract
from .compound import check_holonomic
from .coupling import Chart, Coupling, CouplingRows, Residual


@struct
class Released(Coupling):
    """The coupling `of` with its constraints released: its errors become coordinates.

    C is fixed on the child body, D on the parent body. C moves freely, and laws act in the place
    of the constraints: `Released(PlanePoint())` with `Limits(lower=0.0)` keeps a point above a
    plane; `Released(Hinge())` with springs on all coordinates but the last is a bushing.

    q[: 6 - k]: the errors of `of` [m or rad], zero where `of` permits the pose, with the signs that
        `of` states for its errors
    q[6 - k :]: the k coordinates of `of`, with the same zero, positive directions and units

    There are no bilateral rows. The rows are the exact derivatives of the coordinates, also where
    the errors are large. A coupling that depends on time is taken at time 0.

    of: a coupling without rows at velocity or acceleration level, and no `Chart` without a
        `complement`: the rows of such a chart may swap and change sign from pose to pose, so its
        errors cannot serve as coordinates

    Source: ArtiSynth's unilateral PlanarConnector and SegmentedPlanarConnector.

    >>> from jaxjoints import PlanePoint
    >>> above_floor = Released(PlanePoint())
    >>> print(above_floor.coordinates(Pose.translation([1.0, 2.0, 0.5]))[:3])  # height, place
    [0.5 1.  2. ]
    """

    of: Coupling
    dof: ClassVar[int] = 6

    def pose(self, q: Array) -> Pose:
        """Pose where the errors of `of` are q[: 6 - k] and its coordinates q[6 - k :]."""
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
        """Errors and coordinates of `of`, the latter continued from q."""
        q = self.zero(T) if q is None else q
        rows = self.of.rows(T, q[6 - self.of.dof :], jnp.zeros((), T.p.dtype))
        return jnp.concatenate([rows.error, rows.q])

    def rows(self, T: Pose, q: Array, t: Array) -> CouplingRows:

        def moved(twist):
            return self.coordinates(retract(T, twist), q)

        W = jax.jacfwd(moved)(jnp.zeros(6, T.p.dtype))
        none = jnp.zeros(0, T.p.dtype)
        return CouplingRows(W, none, self.coordinates(T, q), none)

    def check(self) -> str | None:
        problem = check_holonomic("of", self.of)
        if problem:
            return problem
        if isinstance(self.of, Chart) and not overrides(self.of, Chart.complement):
            return (
                f"of {type(self.of).__name__} has no fixed bilateral rows; give it a `complement`"
            )
        return None

    def normalized(self) -> "Released":
        return Released(self.of.normalized())
