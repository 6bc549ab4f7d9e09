"""A point of C on a curve or a surface in D given by functions; C turns freely."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..algebra.pytree import struct
from ..algebra.spatial import Pose, basis, cross, dot, norm, quat_to_rotation_vector, unit
from .coupling import Chart, Residual, on_surface
from .functions import Function, Linear, Spline, check_functions
from .winding import unwind
from .wrench import along


@struct
class PointOnCurve(Chart):
    """The origin of C stays on a curve in D; C turns freely: a bead on a wire.

    Four coordinates: the curve's parameter s, in whatever unit its functions take it, and the
    rotation vector of T_CD [rad], continued from its last value as in `Ball`. Forces, motors and
    limits along s are per unit of s: where |dp/ds| = 1 (`through` comes near), along the path [m].
    Off the curve a pose is projected on its nearest point, found from the last s: a curve may
    cross itself, and on a closed one s counts the rounds. dp/ds must not vanish.

    curve: x(s), y(s), z(s) [m], functions of coordinate 0 (`Spline`, `Polynomial`, one's own)

    >>> wire = PointOnCurve.through([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [1.0, 2.0, 0.0]])
    >>> print(wire.pose(jnp.array([3.0, 0.0, 0.0, 0.0])).p)
    [1. 2. 0.]
    """

    curve: tuple[Function, Function, Function]
    dof: ClassVar[int] = 4

    @classmethod
    def through(cls, points: Any) -> "PointOnCurve":
        """Smooth curve (natural cubic splines) through points (n, 3) of D [m], straight beyond.

        s is the way along the straight lines between them [m], about the length of the curve.
        """
        points = jnp.asarray(points, float)
        ways = jnp.sqrt(jnp.sum(jnp.diff(points, axis=0) ** 2, axis=1))
        knots = jnp.concatenate([jnp.zeros(1, points.dtype), jnp.cumsum(ways)])
        return cls(tuple(Spline(knots, points[:, i]) for i in range(3)))

    def pose(self, q: Array) -> Pose:
        """Origin at the parameter q[0], rotation vector q[1:]."""
        return Pose.from_rotation_vector(q[1:], _place(self.curve, q[:1]))

    def check(self) -> str | None:
        """See `Coupling.check`."""
        return check_functions("curve", self.curve, 1)


@struct
class PointOnSurface(Chart):
    """The origin of C stays on a surface in D given by two parameters; C turns freely.

    Row: the force along the normal ∂p/∂u × ∂p/∂v; its error is the distance from the nearest point,
    positive on the normal's side. Five coordinates: the parameters u and v in whatever unit the
    functions take them, and the rotation vector of T_CD [rad], continued from its last value.
    One-sided, as on a hilly floor: `Released(PointOnSurface.over(height))` with
    `Limits(lower=0.0)`. The derivatives by u and v must stay independent: a sphere by its angles
    has none at its poles.

    surface: x, y, z [m], functions of coordinates 0 (u) and 1 (v)

    >>> from jaxjoints.couplings.functions import Polynomial
    >>> bowl = PointOnSurface.over(
    ...     Polynomial([[0.0, 0.0, 0.5], [0.0] * 3, [0.5, 0.0, 0.0]], coordinates=(0, 1))
    ... )
    >>> print(bowl.pose(jnp.array([1.0, 2.0, 0.0, 0.0, 0.0])).p)
    [1.  2.  2.5]
    """

    surface: tuple[Function, Function, Function]
    dof: ClassVar[int] = 5

    @classmethod
    def over(cls, height: Function) -> "PointOnSurface":
        """The surface z = height(x, y) [m], a function of coordinates 0 and 1: u = x, v = y."""
        one, zero = jnp.ones(1), jnp.zeros(())
        return cls((Linear(one, zero), Linear(one, zero, coordinates=(1,)), height))

    def pose(self, q: Array) -> Pose:
        """Origin at the parameters q[:2], rotation vector q[2:]."""
        return Pose.from_rotation_vector(q[2:], _place(self.surface, q[:2]))

    def complement(self, q: Array) -> Array:
        """The unit normal, as a displacement in C, shape (6, 1)."""
        u, v = jax.jacfwd(lambda x: _place(self.surface, x))(q[:2]).T
        return along(Pose.from_rotation_vector(q[2:]).rotate_inverse(unit(cross(u, v))))[:, None]

    def check(self) -> str | None:
        """See `Coupling.check`."""
        return check_functions("surface", self.surface, 2)


@struct
class PointOnLevelSet(Residual):
    """The origin of C stays where a function of its position in D is zero; C turns freely.

    Row: φ = f/|∇f|, the distance to first order, positive where f is; on the surface a unit force
    along ∇f. Five coordinates: distances from `start` along two axes p, q of the tangent plane
    there [m] (`basis` of the normal: x and y where it is z), and the rotation vector of T_CD [rad],
    continued from its last value. They serve where the normal has turned by less than 90°.

    function: f(x, y, z), of coordinates 0, 1, 2; ∇f not 0 on the surface
    start: where the coordinates are zero, on the surface or near it [m], shape (3,)
    """

    function: Function
    start: Array = (0.0, 0.0, 0.0)
    dof: ClassVar[int] = 5

    def reference(self) -> Pose:
        """At the start, not turned."""
        return Pose.translation(jnp.asarray(self.start, float))

    def residual(self, T: Pose, t: Array) -> Array:
        """f/|∇f| [m]."""
        value, slope = jax.value_and_grad(self.function.value)(T.p)
        # Protects the division from points where f has no slope; φ is f there.
        steep = norm(slope)
        return (value / jnp.where(steep > 0, steep, 1.0))[None]

    def pose(self, q: Array, t: Any = 0.0) -> Pose:
        """Origin on the surface over q[:2] of the tangent plane, rotation vector q[2:]."""
        start, u, v = self._plane(q.dtype)
        near = Pose.from_rotation_vector(q[2:], start + q[0] * u + q[1] * v)
        return on_surface(self, near, q, t)

    def coordinates(self, T: Pose, q: Array | None = None, t: Any = 0.0) -> Array:
        """Distances along the tangent plane and rotation vector, the latter continued from q."""
        start, u, v = self._plane(T.p.dtype)
        r = quat_to_rotation_vector(T.q)
        r = r if q is None else unwind(r, q[2:])
        offset = T.p - start
        return jnp.concatenate([jnp.stack([dot(u, offset), dot(v, offset)]), r])

    def check(self) -> str | None:
        """See `Coupling.check`."""
        problem = check_functions("function", (self.function,), 3)
        if problem:
            return problem.replace("function[0]", "function")
        start = np.asarray(self.start)
        if start.shape != (3,):
            return f"start has shape {start.shape}; a point has 3 components"
        if not np.isfinite(start).all():
            return f"start {start.tolist()} must be finite"
        return None

    def _plane(self, dtype: Any) -> tuple[Array, Array, Array]:
        """The start and two unit vectors along the tangent plane there."""
        start = jnp.asarray(self.start, dtype)
        return start, *basis(unit(jax.grad(self.function.value)(start)))


def _place(functions: tuple[Function, ...], parameters: Array) -> Array:
    return jnp.stack([function.value(parameters) for function in functions])
