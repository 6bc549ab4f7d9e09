"""A joint whose three rotations and three displacements are functions of its coordinates."""

import jax.numpy as jnp
import numpy as np
from jax import Array

from ..algebra.pytree import Numbers, replace, static, struct
from ..algebra.spatial import Pose, unit
from .coupling import Chart
from .functions import Constant, Function, check_functions

X_Y_Z = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))
NOT_MOVING = (Constant(0.0),) * 3


@struct
class FunctionDriven(Chart):
    """Joint whose rotations and displacements are functions of its coordinates, such as a knee.

    C is fixed on the child body, D on the parent body. C turns by f₀, f₁, f₂ about three axes in
    succession, and its origin moves by f₃, f₄, f₅ along three axes of D:
    R_CD = R(a₀, f₀(q)) R(a₁, f₁(q)) R(a₂, f₂(q)) and p = Σ f₃₊ᵢ(q) bᵢ.

    q: up to six coordinates, in the units that the functions take. Zero and the positive directions
        of q are those of the functions. A positive value of f₀, f₁ or f₂ turns C by the right-hand
        rule about its axis, a positive value of f₃, f₄ or f₅ moves C in the direction of its axis.

    The functions are `Constant`, `Linear`, `Polynomial`, `Spline`, `Sum` or a user's `Function`. A
    coordinate may stand still at some q, so the joint is not `regular`: rows hold it, also in an
    open chain.

    dof: number of coordinates (static)
    rotations: f₀, f₁, f₂ [rad]
    translations: f₃, f₄, f₅ [m]
    rotation_axes: a₀, a₁, a₂, each in the frame that the rotations before it have turned, of any
        length but 0, one axis in each row, shape (3, 3)
    translation_axes: b₀, b₁, b₂ in D, of any length but 0, one axis in each row, shape (3, 3)

    Source: ArtiSynth OpenSimCustomCoupling, OpenSim's CustomJoint. The rows of the coordinates are
    the same (the pseudo-inverse of S, in metres and radians), the bilateral rows have the same
    span. ArtiSynth projects by one Newton step from the last coordinates; here the iteration goes
    on until it has converged.

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
    rotation_axes: Numbers = X_Y_Z
    translation_axes: Numbers = X_Y_Z

    def pose(self, q: Array) -> Pose:
        """Three rotations and three displacements, each by its function of q."""
        turns = unit(jnp.asarray(self.rotation_axes, q.dtype).T)
        directions = unit(jnp.asarray(self.translation_axes, q.dtype).T)
        distances = [function.value(q) for function in self.translations]
        first, second, third = (
            Pose.about(turns[:, i], function.value(q)) for i, function in enumerate(self.rotations)
        )
        p = sum(distance * directions[:, i] for i, distance in enumerate(distances))
        return Pose(p, (first @ second @ third).q)

    def check(self) -> str | None:
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
        axes = (self.rotation_axes, self.translation_axes)
        rotation, translation = (unit(jnp.asarray(a, float).T).T for a in axes)
        return replace(self, rotation_axes=rotation, translation_axes=translation)
