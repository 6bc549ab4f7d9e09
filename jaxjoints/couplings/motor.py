"""Motors: axes along or about which laws act between two bodies, without a constraint."""

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from ..algebra.dense import inverse
from ..algebra.pytree import Numbers, static, struct
from ..algebra.spatial import Pose, dot, matvec, quat_to_rotation_vector, so3_right_jacobian_inverse
from .angles import unwrap_rotation_vector
from .coupling import Coupling, CouplingRows
from .wrench import about, along

IDENTITY = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))


class _Motor(Coupling):
    """Three axes for laws, each fixed in C or in D. There are no bilateral rows."""

    axes: Numbers
    carried: str
    dof: ClassVar[int] = 6

    def check(self) -> str | None:
        if len(self.carried) != 3 or not set(self.carried) <= set("CD"):
            return f"carried {self.carried!r} must be three letters C or D, one for each axis"
        axes = np.asarray(self.axes)
        if axes.shape != (3, 3):
            return f"axes has shape {axes.shape}; give three directions, shape (3, 3)"
        if not np.isfinite(axes).all():
            return f"axes {axes.tolist()} must be finite"
        lengths = np.linalg.norm(axes, axis=1)
        if (lengths < 1e-9).any():
            return f"axes[{int(np.argmin(lengths))}] has length 0; give a direction"
        volume = abs(np.linalg.det(axes / lengths[:, None]))
        if volume < 1e-6:
            return f"axes {axes.tolist()} must be independent (they span a volume of {volume:.3g})"
        return None

    def _in_C(self, T: Pose) -> list[Array]:
        """The three axes with components in C, (3,) each."""
        axes = _rows(self.axes, T)
        pairs = zip(axes, self.carried, strict=True)
        return [axis if body == "C" else T.rotate_inverse(axis) for axis, body in pairs]


@struct
class AngularMotor(_Motor):
    """Three axes about which laws turn C relative to D: motors, drag. There is no constraint.

    C is fixed on the child body, D on the parent body. There are no bilateral rows.

    q[:3]: components aᵢ · r of the rotation vector r of C in D along the axes [rad], zero where the
        axes of C and D are parallel. Their speeds are the components aᵢ · ω_CD of the relative
        angular velocity [rad/s], positive where C turns about aᵢ by the right-hand rule.
    q[3:]: position of C's origin in D [m], zero at D's origin, positive along x, y, z of D

    The row of axis i is the moment about it. Angular velocities along three axes are not the rates
    of any three coordinates, so q[:3] follow from the speeds only while C turns about one of the
    axes, as with a `Hinge` between the same bodies. Stops and springs on them are right then. For
    general rotations take the angles of `FreeEuler`.

    axes: directions of any length but 0, independent, one in each row, shape (3, 3)
    carried: three letters, for each axis the frame in which it is fixed, "C" or "D" (static)

    Source: ODE's angular motor in user mode, where the user sets the angles. For an axis fixed in
    the world, join the body to the world, or set the axis in D in each step.

    C, turned by 90° about z, spins about its own x axis, which is y of D, at 3 rad/s.

    C, turned by 90° about z, spins about its own x axis, which is y of D, at 2 rad/s.

    >>> motor = AngularMotor(axes=((0.0, 0.0, 1.0), (1.0, 0.0, 0.0), (0.0, 1.0, 0.0)))
    >>> print(motor.coordinates(Pose.about_z(0.5))[:3].round(3))  # about the first axis
    [0.5 0.  0. ]
    """

    axes: Numbers = IDENTITY
    carried: str = static(default="DDD", kw_only=True)

    def pose(self, q: Array) -> Pose:
        """Position q[3:], rotation vector whose components along the axes are q[:3]."""
        return Pose.from_rotation_vector(_from_components(self.axes, q[:3]), q[3:])

    def coordinates(self, T: Pose, q: Array | None = None, t=0.0) -> Array:
        """Components of the rotation vector, continued from q; position."""
        r = quat_to_rotation_vector(T.q)
        if q is not None:
            r = unwrap_rotation_vector(r, _from_components(self.axes, q[:3]))
        angles = [dot(axis, r) for axis in _rows(self.axes, T)]
        return jnp.concatenate([jnp.stack(angles), T.p])

    def rows(self, T: Pose, q: Array, t: Array) -> CouplingRows:
        R = T.R
        W = jnp.stack([*map(about, self._in_C(T)), *(along(R[i]) for i in range(3))])
        error = jnp.zeros(0, T.p.dtype)
        return CouplingRows(W, error, self.coordinates(T, q), error)

    def normalized(self) -> "AngularMotor":
        return AngularMotor(_unit_rows(self.axes), carried=self.carried)


@struct
class LinearMotor(_Motor):
    """Three axes along which laws push C relative to D: motors, drag. There is no constraint.

    C is fixed on the child body, D on the parent body. There are no bilateral rows.

    q[:3]: components aᵢ · p of the position p of C's origin in D along the axes [m], zero where the
        origins coincide. Their speeds are the components of the velocity of C's origin relative
        to D [m/s], positive where C moves in the direction of aᵢ.
    q[3:]: rotation vector of C in D [rad], zero where the axes of C and D are parallel, positive by
        the right-hand rule, as in `Ball`

    The row of axis i is the force along it, at C's origin or where the joint's `attachment` is; the
    speed is that of this point. For an axis fixed in D and a force at C the speed is the rate of
    the coordinate. For an axis fixed in C it is so only while C does not turn.

    axes: directions of any length but 0, independent, one in each row, shape (3, 3)
    carried: three letters, for each axis the frame in which it is fixed, "C" or "D" (static)

    Source: ODE's linear motor, with C and D at the centres of mass and attachment "midpoint". ODE
    does not apply the stops of a linear motor; here every law acts. For an axis fixed in the world,
    join the body to the world, or set the axis in D in each step.

    C, turned by 90° about z, moves along its own x axis, which is y of D, at 3 m/s.

    C, turned by 90° about z, moves along its own x axis, which is y of D, at 2 m/s.

    >>> T = Pose.along_y(2.0) @ Pose.about_z(jnp.pi / 2)  # y of D is x of C
    >>> print(LinearMotor(carried="DDD").coordinates(T)[:3].round() + 0.0)
    [0. 2. 0.]
    >>> print(LinearMotor(carried="CCC").coordinates(T)[:3].round() + 0.0)
    [2. 0. 0.]
    """

    axes: Numbers = IDENTITY
    carried: str = static(default="DDD", kw_only=True)

    def pose(self, q: Array) -> Pose:
        """The position with components q[:3] along the axes, rotation vector q[3:]."""
        turn = Pose.from_rotation_vector(q[3:])
        axes = _rows(self.axes, turn)
        pairs = zip(axes, self.carried, strict=True)
        in_D = jnp.stack([turn.rotate(axis) if body == "C" else axis for axis, body in pairs])
        return Pose(matvec(inverse(in_D), q[:3]), turn.q)

    def coordinates(self, T: Pose, q: Array | None = None, t=0.0) -> Array:
        """Distances along the axes; rotation vector, continued from q."""
        p = T.rotate_inverse(T.p)
        distances = jnp.stack([dot(axis, p) for axis in self._in_C(T)])
        r = quat_to_rotation_vector(T.q)
        return jnp.concatenate([distances, r if q is None else unwrap_rotation_vector(r, q[3:])])

    def rows(self, T: Pose, q: Array, t: Array) -> CouplingRows:
        q = self.coordinates(T, q)
        rates = so3_right_jacobian_inverse(q[3:])
        W = jnp.stack([*map(along, self._in_C(T)), *(about(rates[i]) for i in range(3))])
        error = jnp.zeros(0, T.p.dtype)
        return CouplingRows(W, error, q, error)

    def normalized(self) -> "LinearMotor":
        return LinearMotor(_unit_rows(self.axes), carried=self.carried)


def _rows(axes: ArrayLike, T: Pose) -> list[Array]:
    """The axes as three vectors in T's precision."""
    axes = jnp.asarray(axes, T.p.dtype)
    return [axes[0], axes[1], axes[2]]


def _from_components(axes: ArrayLike, components: Array) -> Array:
    """The vector r with the components aᵢ · r."""
    return matvec(inverse(jnp.asarray(axes, components.dtype)), components)


def _unit_rows(axes: ArrayLike) -> Array:
    axes = axes if isinstance(axes, jax.Array) else jnp.asarray(axes, float)
    return axes / jnp.linalg.norm(axes, axis=1, keepdims=True)
