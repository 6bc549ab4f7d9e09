"""Joints that keep a point of C on a curve or a surface in D, which functions describe."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..algebra.pytree import Numbers, struct
from ..algebra.spatial import Pose, basis, cross, dot, norm, quat_to_rotation_vector, unit
from .angles import unwrap_rotation_vector
from .coupling import Chart, Residual, on_surface
from .functions import Function, Linear, Spline, check_functions
from .wrench import along


@struct
class PointOnCurve(Chart):
    """Bead on a wire: C's origin stays on a curve in D, and C turns freely.

    C is fixed on the child body, D on the parent body.

    q[0]: parameter s of the curve, in the unit that its functions take. Zero and the positive
        direction are those of s in these functions.
    q[1:]: rotation vector of C in D [rad], zero where the axes of C and D are parallel, positive by
        the right-hand rule, continued from its last value as in `Ball`

    Forces of laws on coordinate 0 are per unit of s. They are forces along the curve [N] where
    |dp/ds| = 1; a curve of `through` comes near to that. A pose off the curve is projected on the
    nearest point of the curve, which is searched from the last s. So a curve may cross itself, and
    on a closed curve s counts the rounds. dp/ds must not vanish.

    curve: x(s), y(s), z(s) in D [m], functions of coordinate 0 (`Spline`, `Polynomial` or a
        user's `Function`)

    >>> wire = PointOnCurve.through([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [1.0, 2.0, 0.0]])
    >>> print(wire.pose(jnp.array([3.0, 0.0, 0.0, 0.0])).p.round(3))
    [1. 2. 0.]
    """

    curve: tuple[Function, Function, Function]
    dof: ClassVar[int] = 4

    @classmethod
    def through(cls, points: Any) -> "PointOnCurve":
        """Natural cubic splines through points of D, continued by straight lines at both ends.

        s is zero at the first point and positive towards the others. It is the length of the
        straight lines between the points [m], which is nearly the length of the curve.

        points: in D [m], shape (n, 3)
        """
        points = jnp.asarray(points, float)
        lengths = jnp.sqrt(jnp.sum(jnp.diff(points, axis=0) ** 2, axis=1))
        knots = jnp.concatenate([jnp.zeros(1, points.dtype), jnp.cumsum(lengths)])
        return cls(tuple(Spline(knots, points[:, i]) for i in range(3)))

    def pose(self, q: Array) -> Pose:
        """Origin of C at the parameter q[0], rotation vector q[1:]."""
        return Pose.from_rotation_vector(q[1:], _point(self.curve, q[:1]))

    def check(self) -> str | None:
        return check_functions("curve", self.curve, 1)


@struct
class PointOnSurface(Chart):
    """C's origin stays on a surface in D with two parameters, and C turns freely.

    C is fixed on the child body, D on the parent body.

    q[0], q[1]: parameters u and v of the surface, in the units that its functions take. Zero and
        the positive directions are those of u and v in these functions.
    q[2:]: rotation vector of C in D [rad], zero where the axes of C and D are parallel, positive by
        the right-hand rule, continued from its last value as in `Ball`

    Row: the force along the normal ∂p/∂u × ∂p/∂v. Its error is the distance from the nearest point
    of the surface [m], positive on the side to which the normal points. The derivatives by u and v
    must be independent; those of a sphere described by two angles are not at its poles.
    `Released(PointOnSurface.over(height))` with `Limits(lower=0.0)` is one-sided, like a point
    above a hilly floor.

    surface: x, y, z in D [m], functions of coordinates 0 (u) and 1 (v)

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
        """The surface z = height(x, y) [m], with u = x (coordinate 0) and v = y (coordinate 1)."""
        one, zero = jnp.ones(1), jnp.zeros(())
        return cls((Linear(one, zero), Linear(one, zero, coordinates=(1,)), height))

    def pose(self, q: Array) -> Pose:
        """Origin of C at the parameters q[:2], rotation vector q[2:]."""
        return Pose.from_rotation_vector(q[2:], _point(self.surface, q[:2]))

    def complement(self, q: Array) -> Array:
        """Unit displacement along the normal, a twist in C, shape (6, 1)."""
        u, v = jax.jacfwd(lambda x: _point(self.surface, x))(q[:2]).T
        return along(Pose.from_rotation_vector(q[2:]).rotate_inverse(unit(cross(u, v))))[:, None]

    def check(self) -> str | None:
        return check_functions("surface", self.surface, 2)


@struct
class PointOnLevelSet(Residual):
    """C's origin stays where a function of its position in D is zero, and C turns freely.

    C is fixed on the child body, D on the parent body.

    q[0], q[1]: displacement of C's origin from `start` along two axes u, v of the tangent plane
        there [m], zero at `start`. u and v are `basis` of the normal ∇f: x and y of D where the
        normal is z. u × v is in the direction of the normal.
    q[2:]: rotation vector of C in D [rad], zero where the axes of C and D are parallel, positive by
        the right-hand rule, continued from its last value as in `Ball`

    Row: φ = f/|∇f|, to first order the distance from the surface [m], positive where f is positive.
    On the surface its wrench is a unit force along ∇f. The coordinates serve where the normal has
    turned by less than 90° from that at `start`.

    function: f(x, y, z) of coordinates 0, 1, 2, with ∇f not 0 on the surface
    start: point in D, on the surface or near it [m], shape (3,)

    >>> slope = PointOnLevelSet(Linear((3.0, 4.0), coordinates=(0, 2)))  # 3 x + 4 z = 0
    >>> print(slope.residual(Pose.along_x(5.0), 0.0), slope.residual(Pose.along_z(5.0), 0.0))
    [3.] [4.]
    >>> print(slope.residual(Pose.translation([4.0, 1.0, -3.0]), 0.0))
    [0.]
    """

    function: Function
    start: Numbers = (0.0, 0.0, 0.0)
    dof: ClassVar[int] = 5

    def reference(self) -> Pose:
        """Origin of C at `start`, axes parallel."""
        return Pose.translation(jnp.asarray(self.start, float))

    def residual(self, T: Pose, t: Array) -> Array:
        """f/|∇f| [m]."""
        value, slope = jax.value_and_grad(self.function.value)(T.p)
        # Protects the division from points where f has no slope; φ is f there.
        steep = norm(slope)
        return (value / jnp.where(steep > 0, steep, 1.0))[None]

    def pose(self, q: Array, t: Any = 0.0) -> Pose:
        """Origin of C on the surface at q[:2] of the tangent plane, rotation vector q[2:]."""
        start, u, v = self._plane(q.dtype)
        near = Pose.from_rotation_vector(q[2:], start + q[0] * u + q[1] * v)
        return on_surface(self, near, q, t)

    def coordinates(self, T: Pose, q: Array | None = None, t: Any = 0.0) -> Array:
        """Displacement along the tangent plane and rotation vector, the latter continued from q."""
        start, u, v = self._plane(T.p.dtype)
        r = quat_to_rotation_vector(T.q)
        r = r if q is None else unwrap_rotation_vector(r, q[2:])
        offset = T.p - start
        return jnp.concatenate([jnp.stack([dot(u, offset), dot(v, offset)]), r])

    def check(self) -> str | None:
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


def _point(functions: tuple[Function, ...], parameters: Array) -> Array:
    return jnp.stack([function.value(parameters) for function in functions])
