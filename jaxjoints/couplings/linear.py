"""Joints that slide: slider, cylindrical, helical and translational joint."""

from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jax import Array

from ..algebra.pytree import Numbers, replace, struct
from ..algebra.spatial import (
    Pose,
    basis,
    dot,
    quat_conjugate,
    quat_multiply,
    quat_rotate_inverse,
    quat_to_rotation_vector,
)
from .angles import twist_angle, twist_part
from .coupling import Chart, Coupling, CouplingRows
from .rotary import Z
from .wrench import about, along, axes, check_axis, direction, stack_rows, unit_axis


@struct
class Slider(Coupling):
    """Prismatic joint: C slides along an axis without turning.

    C is fixed on the child body, D on the parent body. Their axes are parallel, and `axis` has the
    same components in both.

    q[0]: distance of C's origin from D's along `axis` [m]. It is zero where C and D coincide, and
        positive where C has moved in the direction of `axis`.

    Rows: forces along two axes u, v normal to `axis` (x, y for the default axis z), moments about
    x, y, z, then the force along `axis`.

    axis: direction of any length but 0, shape (3,)

    Source: ArtiSynth SliderCoupling (the same rows for axis z); ODE slider; RBDL and
    RigidBodyDynamics.jl prismatic.

    >>> rail = Slider(axis=(0.0, 3.0, 4.0))
    >>> print(rail.pose(jnp.array([0.5])).p.round(3))
    [0.  0.3 0.4]
    """

    axis: Numbers = Z
    dof: ClassVar[int] = 1
    batched: ClassVar[bool] = True
    lower_pair: ClassVar[bool] = True

    def pose(self, q: Array) -> Pose:
        """Displacement by q[0] along the axis."""
        return Pose.along(self.axis, q[0])

    def coordinates(self, T: Pose, q: Array | None = None, t=0.0) -> Array:
        """Distance along the axis."""
        return dot(unit_axis(self.axis, T), T.p)[None]

    def rows(self, T: Pose, q: Array, t: Array) -> CouplingRows:
        a = unit_axis(self.axis, T)
        u, v = basis(a)
        x, y, z = axes(T)
        W = stack_rows(along(u), along(v), about(x), about(y), about(z), along(a))
        offset = jnp.stack([dot(u, T.p), dot(v, T.p)])
        error = jnp.concatenate([offset, quat_to_rotation_vector(T.q)], axis=0)
        return CouplingRows(W, error, self.coordinates(T), jnp.zeros_like(error))

    def check(self) -> str | None:
        return check_axis("axis", self.axis)

    def normalized(self) -> "Slider":
        return replace(self, axis=direction(self.axis))


@struct
class Cylindrical(Coupling):
    """Cylindrical joint: C slides along an axis and turns about the same axis.

    C is fixed on the child body, D on the parent body. `axis` has the same components in C and D.

    q[0]: distance of C's origin from D's along `axis` [m]
    q[1]: angle of C in D about `axis` [rad], which counts turns
        Both are zero where C and D coincide. A positive distance is in the direction of `axis`, a
        positive angle turns C about `axis` by the right-hand rule, as in `Hinge`.

    Rows: forces along and moments about two axes u, v normal to `axis` (x, y for the default axis
    z), then the force along and the moment about `axis`.

    axis: direction of any length but 0, shape (3,)

    Source: ArtiSynth CylindricalCoupling (the same rows for axis z, counter-clockwise angle); ODE
    piston, whose forces act at its anchor on body 2: attachment (1, 1).

    >>> piston = Cylindrical(axis=(0.0, 0.0, 1.0))
    >>> print(piston.pose(jnp.array([0.5, jnp.pi / 2])).apply(jnp.array([1.0, 0.0, 0.0])).round(3))
    [0.  1.  0.5]
    """

    axis: Numbers = Z
    dof: ClassVar[int] = 2
    batched: ClassVar[bool] = True
    lower_pair: ClassVar[bool] = True

    def pose(self, q: Array) -> Pose:
        """Displacement by q[0] along and rotation by q[1] about the axis."""
        return Pose.along(self.axis, q[0]) @ Pose.about(self.axis, q[1])

    def coordinates(self, T: Pose, q: Array | None = None, t=0.0) -> Array:
        """Distance along and angle about the axis, the angle continued from q."""
        a = unit_axis(self.axis, T)
        angle = twist_angle(twist_part(T.q, a), a, None if q is None else q[1:])
        return jnp.concatenate([dot(a, T.p)[None], angle], axis=0)

    def rows(self, T: Pose, q: Array, t: Array) -> CouplingRows:
        a = unit_axis(self.axis, T)
        u, v = basis(a)
        W = stack_rows(along(u), along(v), about(u), about(v), along(a), about(a))
        turn = twist_part(T.q, a)
        p = quat_rotate_inverse(turn, T.p)
        tilt = quat_to_rotation_vector(quat_multiply(quat_conjugate(turn), T.q))
        error = jnp.stack([dot(u, p), dot(v, p), dot(u, tilt), dot(v, tilt)])
        return CouplingRows(W, error, self.coordinates(T, q), jnp.zeros_like(error))

    def check(self) -> str | None:
        return check_axis("axis", self.axis)

    def normalized(self) -> "Cylindrical":
        return replace(self, axis=direction(self.axis))


@struct
class Translation(Coupling):
    """Translational joint: C moves along all three axes of D without turning.

    C is fixed on the child body, D on the parent body; their axes are parallel.

    q: position of C's origin in D [m]. It is zero where the origins coincide, and each component is
        positive in the direction of its axis x, y or z of D.

    Rows: moments about x, y, z, then forces along x, y, z of D.

    Source: RBDL TranslationXYZ.

    >>> gantry = Translation()
    >>> print(gantry.pose(jnp.array([1.0, 2.0, 3.0])).apply(jnp.array([0.5, 0.0, 0.0])))
    [1.5 2.  3. ]
    """

    dof: ClassVar[int] = 3
    batched: ClassVar[bool] = True
    lower_pair: ClassVar[bool] = True

    def pose(self, q: Array) -> Pose:
        """Displacement by q."""
        return Pose.translation(q)

    def coordinates(self, T: Pose, q: Array | None = None, t=0.0) -> Array:
        """Position of C in D."""
        return T.p

    def rows(self, T: Pose, q: Array, t: Array) -> CouplingRows:
        R = T.R
        W = stack_rows(*map(about, axes(T)), *(along(R[i]) for i in range(3)))
        error = quat_to_rotation_vector(T.q)
        return CouplingRows(W, error, T.p, jnp.zeros_like(error))


@struct
class Helical(Chart):
    """Helical (screw) joint: C turns about an axis and advances along it in proportion.

    C is fixed on the child body, D on the parent body. `axis` has the same components in C and D.

    q[0]: angle of C in D about `axis` [rad]. It is zero where C and D coincide, positive by the
        right-hand rule about `axis`, and counts turns. C's origin is pitch q[0] ahead of D's along
        `axis`.

    pitch: advance per radian [m/rad], positive for a right-handed thread, not 0 and finite; for 0
        take a `Hinge`, for infinity a `Slider`
    axis: direction of any length but 0, shape (3,)

    Source: RBDL helical joint (a screw).

    >>> spindle = Helical(pitch=0.002 / (2 * jnp.pi))  # 2 mm a turn
    >>> print(spindle.pose(jnp.array([5 * 2 * jnp.pi])).p.round(3))
    [0.   0.   0.01]
    """

    pitch: Numbers
    axis: Numbers = Z
    dof: ClassVar[int] = 1
    batched: ClassVar[bool] = True
    lower_pair: ClassVar[bool] = True

    def pose(self, q: Array) -> Pose:
        """Rotation by q[0] about the axis and displacement by pitch q[0] along it."""
        return Pose.about(self.axis, q[0]) @ Pose.along(self.axis, self.pitch * q[0])

    def normalized(self) -> "Helical":
        return replace(self, axis=direction(self.axis))

    def check(self) -> str | None:
        problem = check_axis("axis", self.axis)
        if problem:
            return problem
        pitch = float(np.asarray(self.pitch))
        if pitch == 0:
            return "pitch 0 must not be 0; use Hinge for a pure rotation"
        if np.isinf(pitch):
            return f"pitch {pitch} must be finite; use Slider for a pure translation"
        if np.isnan(pitch):
            return "pitch nan must be a number"
        return None
