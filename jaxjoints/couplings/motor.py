"""Motors between bodies that other joints hold together: axes for laws, no constraint."""

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from ..algebra.dense import inverse
from ..algebra.pytree import static, struct
from ..algebra.spatial import Pose, dot, matvec, quat_to_rotation_vector, so3_right_jacobian_inverse
from .coupling import Coupling, CouplingRows
from .winding import unwind
from .wrench import about, along

IDENTITY = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))


class _Motor(Coupling):
    """Three axes, each carried by C or by D, for laws; no bilateral rows."""

    dof: ClassVar[int] = 6

    def check(self) -> str | None:
        """See `Coupling.check`."""
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
        """The axes in C, each (3,)."""
        axes = _rows(self.axes, T)
        pairs = zip(axes, self.carried, strict=True)
        return [axis if body == "C" else T.rotate_inverse(axis) for axis, body in pairs]


@struct
class AngularMotor(_Motor):
    """Three axes about which C is turned against D by laws: motors, drag; no constraint.

    The row of axis i is the moment about it, its speed the relative angular velocity along it,
    aᵢ · ω_CD, whatever the bodies do. Such speeds are not the rates of any three coordinates. What
    is read as coordinates 0 to 2 is aᵢ · r for the rotation vector r of T_CD [rad]: the angle
    about an axis as long as C turns about that axis alone (a hinge beside the motor), good for
    stops and springs then; for general turning use the angles of `FreeEuler`. Coordinates 3 to 5:
    position of C in D [m].

    axes: directions of any length but 0, independent, shape (3, 3), one each row
    carried: for each axis the frame that carries it, "C" or "D" (static)

    Source: ODE's angular motor in user mode, where the user sets the angles. An axis fixed in the
    world: join the body to the world, or give the axis in D anew at each step.
    """

    axes: Array = IDENTITY
    carried: str = static(default="DDD", kw_only=True)

    def pose(self, q: Array) -> Pose:
        """Position q[3:], rotation by the vector whose components along the axes are q[:3]."""
        return Pose.from_rotation_vector(_from_components(self.axes, q[:3]), q[3:])

    def coordinates(self, T: Pose, q: Array | None = None, t=0.0) -> Array:
        """Components of the rotation vector, continued from q; position."""
        r = quat_to_rotation_vector(T.q)
        if q is not None:
            r = unwind(r, _from_components(self.axes, q[:3]))
        read = [dot(axis, r) for axis in _rows(self.axes, T)]
        return jnp.concatenate([jnp.stack(read), T.p])

    def rows(self, T: Pose, q: Array, t: Array) -> CouplingRows:
        """See `Coupling.rows`."""
        R = T.R
        W = jnp.stack([*map(about, self._in_C(T)), *(along(R[i]) for i in range(3))])
        error = jnp.zeros(0, T.p.dtype)
        return CouplingRows(W, error, self.coordinates(T, q), error)

    def normalized(self) -> "AngularMotor":
        """See `Coupling.normalized`."""
        return AngularMotor(_unit_rows(self.axes), carried=self.carried)


@struct
class LinearMotor(_Motor):
    """Three axes along which C is pushed against D by laws: motors, drag; no constraint.

    The row of axis i is the force along it (at C, or where the joint's `attachment` says), its
    speed the relative velocity of that point. Coordinates 0 to 2: aᵢ · p for the position p of C
    in D, in the axes that carry aᵢ [m]. For an axis carried by D and forces at C that is exactly
    the coordinate of the row; for one carried by C only while C does not turn. Coordinates 3 to 5:
    rotation vector of C in D [rad].

    axes: directions of any length but 0, independent, shape (3, 3), one each row
    carried: for each axis the frame that carries it, "C" or "D" (static)

    Source: ODE's linear motor, with C and D at the centres of mass and attachment "midpoint".
    ODE does not look at the stops of a linear motor; here every law acts. An axis fixed in the
    world: join the body to the world, or give the axis in D anew at each step.
    """

    axes: Array = IDENTITY
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
        read = jnp.stack([dot(axis, p) for axis in self._in_C(T)])
        r = quat_to_rotation_vector(T.q)
        return jnp.concatenate([read, r if q is None else unwind(r, q[3:])])

    def rows(self, T: Pose, q: Array, t: Array) -> CouplingRows:
        """See `Coupling.rows`."""
        q = self.coordinates(T, q)
        rates = so3_right_jacobian_inverse(q[3:])
        W = jnp.stack([*map(along, self._in_C(T)), *(about(rates[i]) for i in range(3))])
        error = jnp.zeros(0, T.p.dtype)
        return CouplingRows(W, error, q, error)

    def normalized(self) -> "LinearMotor":
        """See `Coupling.normalized`."""
        return LinearMotor(_unit_rows(self.axes), carried=self.carried)


def _rows(axes: ArrayLike, T: Pose) -> list[Array]:
    """The axes as vectors in T's precision."""
    axes = jnp.asarray(axes, T.p.dtype)
    return [axes[0], axes[1], axes[2]]


def _from_components(axes: ArrayLike, components: Array) -> Array:
    """The vector with given components aᵢ · r."""
    return matvec(inverse(jnp.asarray(axes, components.dtype)), components)


def _unit_rows(axes: ArrayLike) -> Array:
    axes = axes if isinstance(axes, jax.Array) else jnp.asarray(axes, float)
    return axes / jnp.linalg.norm(axes, axis=1, keepdims=True)
