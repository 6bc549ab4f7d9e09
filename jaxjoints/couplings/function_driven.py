"""A joint whose six components of rotation and translation are functions of its coordinates."""

import jax.numpy as jnp
import numpy as np
from jax import Array

from ..algebra.pytree import replace, static, struct
from ..algebra.spatial import Pose, unit
from .coupling import Chart
from .functions import Constant, Function, check_functions

X_Y_Z = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))
NOT_MOVING = (Constant(0.0),) * 3


@struct
class FunctionDriven(Chart):
    """C turns by f₀, f₁, f₂ about three axes in turn and moves by f₃, f₄, f₅ along three axes of D.

    R_CD = R(a₀, f₀(q)) R(a₁, f₁(q)) R(a₂, f₂(q)), p = Σ f₃₊ᵢ(q) bᵢ, with functions of up to six
    coordinates q (`Constant`, `Linear`, `Polynomial`, `Spline`, `Sum`, or one's own `Function`):
    a knee whose centre moves as it bends. The coordinates are what the functions take them for.

    dof: number of coordinates (static)
    rotations: f₀, f₁, f₂ [rad]; translations: f₃, f₄, f₅ [m]
    rotation_axes: a₀, a₁, a₂, each fixed in the frame turned so far, of any length but 0, shape
        (3, 3), one axis in each row; translation_axes: b₀, b₁, b₂, likewise, in D

    Source: ArtiSynth OpenSimCustomCoupling, OpenSim's CustomJoint. Rows of coordinates are the same
    (the pseudo-inverse of S, in metres and radians), bilateral rows span the same. ArtiSynth
    projects by one Newton step from the last coordinates, here the steps are taken to the end.

    >>> from jaxjoints.couplings.functions import Linear, Polynomial
    >>> knee = FunctionDriven(
    ...     dof=1,
    ...     rotations=(Constant(0.0), Constant(0.0), Linear([1.0])),
    ...     translations=(Polynomial([0.0, 0.0, 0.02]), Constant(-0.4), Constant(0.0)),
    ... )
    >>> print(knee.pose(jnp.array([0.5])).p.round(4))
    [ 0.005 -0.4    0.   ]
    """

    dof: int = static(kw_only=True)
    rotations: tuple[Function, Function, Function] = NOT_MOVING
    translations: tuple[Function, Function, Function] = NOT_MOVING
    rotation_axes: Array = X_Y_Z
    translation_axes: Array = X_Y_Z

    def pose(self, q: Array) -> Pose:
        """Three rotations and a displacement, each by its function of q."""
        turns = unit(jnp.asarray(self.rotation_axes, q.dtype).T)
        ways = unit(jnp.asarray(self.translation_axes, q.dtype).T)
        moved = [function.value(q) for function in self.translations]
        first, second, third = (
            Pose.about(turns[:, i], function.value(q)) for i, function in enumerate(self.rotations)
        )
        p = sum(distance * ways[:, i] for i, distance in enumerate(moved))
        return Pose(p, (first @ second @ third).q)

    def check(self) -> str | None:
        """See `Coupling.check`."""
        if not 1 <= self.dof <= 6:
            return f"dof {self.dof} must be 1 to 6"
        for name in ("rotations", "translations"):
            problem = check_functions(name, getattr(self, name), self.dof)
            if problem:
                return problem
        for name in ("rotation_axes", "translation_axes"):
            axes = np.asarray(getattr(self, name))
            if axes.shape != (3, 3):
                return f"{name} has shape {axes.shape}; give 3 axes, one in each row"
            for i, length in enumerate(np.linalg.norm(axes, axis=1)):
                if not np.isfinite(length):
                    return f"{name}[{i}] {axes[i].tolist()} must be finite"
                if length < 1e-9:
                    return f"{name}[{i}] {axes[i].tolist()} has length 0; give a direction"
        return None

    def normalized(self) -> "FunctionDriven":
        """See `Coupling.normalized`."""
        axes = (self.rotation_axes, self.translation_axes)
        turns, ways = (unit(jnp.asarray(a, float).T).T for a in axes)
        return replace(self, rotation_axes=turns, translation_axes=ways)
