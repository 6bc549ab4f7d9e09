"""Couplings: which relative poses a joint permits, and the rows that follow from them.

A joint connects a frame C, fixed on the child body, with a frame D, fixed on the parent body. T_CD
is the pose of C in D. v_CD is the twist (linear, angular) of C relative to D, in the axes of C. The
poses that the joint permits form a surface of k dimensions in the space of all poses; k is the
number of degrees of freedom, and k coordinates q name the points of this surface. Errors may take
T_CD off the surface. G is then the frame C moved back onto the surface, T_GD its pose in D, and
6 - k errors φ say how far T_CD is off. One matrix of wrench rows holds both kinds of rows:

    W = [ G ; N ],    φ̇ = G v_CD,    q̇ = N v_CD,    W⁻¹ = [ E | S ],    G S = 0,    N S = 1.

The identities are exact on the surface and hold to first order in φ off it.

    G    bilateral wrenches, shape (6 - k, 6): the constraint forces act along them
    N    wrenches of the coordinates, shape (k, 6): limits, motors and springs act along them
    S    motion subspace, shape (6, k): the twists for unit speeds of the coordinates
    E    complement of S, shape (6, 6 - k): the twists that the joint resists

A coupling is written by its poses (`Chart`: the map q → T_CD) or by its errors (`Residual`:
φ(T_CD, t)); this file derives the rest. A coupling may also be written by its rows (`Coupling`),
which is the fastest. A coupling of any kind may add constraints on velocities or accelerations
(rolling): see `nonholonomic`.
"""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..algebra.compiler import quickly
from ..algebra.dense import inverse, multiply, multiply_transposed, product
from ..algebra.pytree import overrides, struct
from ..algebra.spatial import (
    Pose,
    dot,
    error_twist,
    quat_to_rotation_vector,
    retract,
    tangent_of,
    transpose,
    twist_of,
)
from .angles import twist_angle, twist_part, unwrap_rotation_vector
from .complement import metric, orthonormal_complement, regular_inverse, single_axis

# Part of a motion subspace that counts as none.
NO_MOTION = 1e-9
# Roundings of the numbers that cancel in a step towards the surface, below which it is the last;
# number of steps with the exact slope.
ROUNDINGS = 8
EXACT_STEPS = 2


@struct
class CouplingRows:
    """Wrench rows, errors and coordinates of a coupling at one relative pose.

    W: wrench rows [G; N] in C, (linear, angular), shape (6, 6, *b). A batch axis may have size 1
        where all items share their rows.
    error: φ, the error of each bilateral row [m or rad], shape (6 - k, *b)
    q: coordinates [m or rad], shape (k, *b)
    drift: ∂φ/∂t, the rate of the errors of a coupling that depends on time, shape (6 - k, *b)
    acceleration: part of the rows at acceleration level, as long as `error`; None where there are
        no such rows. `Coupling.rows` leaves it out: `nonholonomic.with_velocity_rows` appends rows
        at velocity and acceleration level to W, `error` and `drift`, and then fills it in.

    >>> from jaxjoints import Slider
    >>> rows = Slider().rows(Pose.translation([0.1, 0.0, 2.0]), jnp.zeros(1), 0.0)
    >>> print(rows.error.round(3), rows.q)  # 0.1 m beside the axis, 2 m along it
    [0.1 0.  0.  0.  0. ] [2.]
    >>> print(rows.W[5])  # a force along z
    [0. 0. 1. 0. 0. 0.]
    """

    W: Array
    error: Array
    q: Array
    drift: Array
    acceleration: Array | None = None


class Coupling(ABC):
    """Base of all couplings: a frozen record (`struct`) whose leaves are its parameters.

    A subclass states `dof` and writes `pose` and `rows`; `Chart` and `Residual` derive `rows`. All
    other methods have defaults. Methods are pure functions of one joint; the library maps them over
    joints and environments. Make every number a field. A closed-over JAX array gets no gradient
    and is the same in all environments; the builder warns.

    dof: number of coordinates k
    batched: True where `pose`, `coordinates` and `rows` are written in components (see `spatial`)
        and accept trailing batch axes; the library then does not map them
    velocity_rows: number of components of `velocity_residual`, which is never batched
    acceleration_rows: number of components of `acceleration_residual`, which is never batched
    lower_pair: True where the span of S is the same in C at all poses of the surface, and C stays
        on the surface while its origin goes straight on and C turns at a constant angular velocity
        of this span: a hinge, a slider, a screw, a ball, a plane, with axes through C's origin
    regular: True where `pose` is smooth and S has full rank at all coordinates, so that coordinates
        may hold the joint (see `SemiImplicitEuler`). In a lower pair and in a regular coupling the
        rows of G have unit length, and are at right angles to each other and to the rows of N. A
        `Chart` with its own `complement` or `length` is an exception
    places_bodies: True where the builder may place bodies at the start by the coordinates; False
        where these do not determine a pose

    >>> @struct
    ... class Lift(Coupling):
    ...     dof: ClassVar[int] = 1
    ...     def pose(self, q):
    ...         return Pose.along_z(q[0])
    ...     def rows(self, T, q, t):
    ...         order = jnp.array([0, 1, 3, 4, 5, 2])
    ...         W, twist = jnp.eye(6)[order], error_twist(T)[order]
    ...         return CouplingRows(W, twist[:5], twist[5:], jnp.zeros(5))
    >>> print(Lift().coordinates(Pose.translation([0.5, 0.0, 2.0])))
    [2.]
    """

    dof: ClassVar[int]
    batched: ClassVar[bool] = False
    velocity_rows: ClassVar[int] = 0
    acceleration_rows: ClassVar[int] = 0
    lower_pair: ClassVar[bool] = False
    regular: ClassVar[bool] = False
    places_bodies: ClassVar[bool] = True

    @abstractmethod
    def pose(self, q: Array) -> Pose:
        """Pose T_GD on the surface of the joint that has the coordinates q, shape (k,)."""

    @abstractmethod
    def rows(self, T: Pose, q: Array, t: Array) -> CouplingRows:
        """Wrench rows, errors and coordinates at the pose T = T_CD and the time t [s].

        q: coordinates at a nearby pose, shape (k,). An angle is continued from its value there, so
            that it counts turns.
        """

    def velocity_residual(self, T: Pose, v: Array, t: Array) -> Array:
        """ψ [m/s or rad/s], which a constraint on velocities holds at 0, shape (velocity_rows,).

        v: twist v_CD, shape (6,)
        """
        return jnp.zeros(0, v.dtype)

    def acceleration_residual(self, T: Pose, v: Array, a: Array, t: Array) -> Array:
        """α, which a constraint on accelerations holds at 0, shape (acceleration_rows,).

        v: twist v_CD, shape (6,)
        a: rate of the components of v, shape (6,); α must be linear in a
        """
        return jnp.zeros(0, v.dtype)

    def check(self) -> str | None:
        """What is wrong with the parameters, as a sentence, or None.

        The builder calls it with concrete numbers, so NumPy and `if` are allowed.
        """
        return None

    def units(self) -> tuple[str, ...]:
        """Unit of each coordinate, for tables and warnings: by default "rad" for one that turns C
        at coordinates 0, and "m" for one that only moves it.
        """
        turns = np.asarray(_turns(self)) > NO_MOTION
        return tuple("rad" if turn else "m" for turn in turns)

    def normalized(self) -> "Coupling":
        """The same coupling with its parameters in standard form, such as axes of length 1."""
        return self

    def project(self, T: Pose, q: Array | None = None, t: Any = 0.0) -> tuple[Pose, Array]:
        """Pose T_GD on the surface for one pose T = T_CD, and its coordinates."""
        q = self.coordinates(T, q, t)
        return self.pose(q), q

    def coordinates(self, T: Pose, q: Array | None = None, t: Any = 0.0) -> Array:
        """Coordinates of T = T_CD projected on the surface, shape (k,).

        q: coordinates at a nearby pose, from which angles are continued; zero by default
        """
        return _rows(self, T, self.zero(T) if q is None else q, _time(T, t)).q

    def wrenches(self, T: Pose, q: Array | None = None, t: Any = 0.0) -> Array:
        """Wrench rows W = [G; N] at T = T_CD, shape (6, 6)."""
        return _rows(self, T, self._known_coordinates(T, q, t), _time(T, t)).W

    def distances(self, T: Pose, q: Array | None = None, t: Any = 0.0) -> Array:
        """Errors φ of the bilateral rows at T = T_CD [m or rad], shape (6 - k,)."""
        return _rows(self, T, self._known_coordinates(T, q, t), _time(T, t)).error

    def motion_subspace(self, T: Pose, q: Array | None = None, t: Any = 0.0) -> Array:
        """S at T = T_CD, shape (6, k): column i is the twist for unit speed of coordinate i."""
        return _inverse(self.wrenches(T, q, t))[:, 6 - self.dof :]

    def wrench_rates(self, T: Pose, v: Array, q: Array | None = None, t: Any = 0.0) -> Array:
        """Ẇ while C moves from T = T_CD at the twist v, shape (6, 6).

        Ẇ v is the contribution of the motion to the second derivatives of φ and q.

        v: twist v_CD, shape (6,)
        """
        q, time = self._known_coordinates(T, q, t), _time(T, t)
        motion = (tangent_of(T, v), jnp.ones_like(time))
        return jax.jvp(lambda T, t: self.wrenches(T, q, t), (T, time), motion)[1]

    def zero(self, T: Pose) -> Array:
        """Coordinates 0 with the batch axes of T, shape (k, *b)."""
        return jnp.zeros((self.dof, *T.p.shape[1:]), T.p.dtype)

    def _known_coordinates(self, T: Pose, q: Array | None, t: Any) -> Array:
        """The coordinates q, or those of T where q is None."""
        return self.coordinates(T, None, t) if q is None else q


class Chart(Coupling):
    """Base of couplings written by their poses: state `dof` and write `pose(q)`.

    The rest is derived. S = ∂pose/∂q comes from forward differentiation. Coordinates come from
    Gauss–Newton steps that begin at the last known ones, so that angles count turns. G comes from a
    complement E of S: it is the first rows of [E | S]⁻¹. A pose off the surface is projected along
    E. By default E is orthonormal to S at each pose; a softness that is equal for all rows then
    does not depend on which E is taken. A subclass may override `complement` to give its bilateral
    rows an order and a meaning of their own. (A complement that is constant in C would make W
    singular where S turns by 90° in C.)

    length: metres that weigh as much as one radian where two poses are compared [m]. It affects the
        default complement alone, and thereby the projection of poses off the surface.
    iterations: most Gauss–Newton steps from the last known coordinates

    >>> @struct
    ... class Screw(Chart):
    ...     pitch: Array
    ...     dof: ClassVar[int] = 1
    ...     def pose(self, q):
    ...         return Pose.about_z(q[0]) @ Pose.along_z(self.pitch * q[0])
    >>> screw = Screw(pitch=0.5)
    >>> print(screw.coordinates(screw.pose(jnp.array([2.0]))).round(4))
    [2.]
    """

    length: ClassVar[float] = 1.0
    iterations: ClassVar[int] = 3

    def complement(self, q: Array) -> Array:
        """E, shape (6, 6 - k): the twists that the joint resists, one for each bilateral row."""
        # Constant for differentiation: what E turns within its span turns the rows among
        # themselves, and G does not feel what E moves along S.
        return orthonormal_complement(jax.lax.stop_gradient(self.motion_at(q)), self.length)

    def motion_at(self, q: Array) -> Array:
        """Motion subspace S at the pose with coordinates q, shape (6, k)."""
        return motion_of(self.pose, q)

    def rows_at(self, q: Array) -> Array:
        """Wrench rows W = [E | S]⁻¹ at the pose with coordinates q, shape (6, 6)."""
        E, S = self.complement(q), self.motion_at(q)
        if overrides(self, Chart.complement):
            return inverse(jnp.concatenate([E, S], axis=1))
        # The same where Eᵀ H S = 0, Eᵀ H E = 1; and N with its derivative as E turns with S.
        EH, SH = transpose(metric(E, self.length)), transpose(metric(S, self.length))
        if self.dof == 0:
            return EH
        N = product(regular_inverse(product(SH, S)), SH)
        return jnp.concatenate([EH - product(product(EH, S), N), N], axis=0)

    def coordinates(self, T: Pose, q: Array | None = None, t: Any = 0.0) -> Array:
        """Coordinates of T projected along E, by Gauss–Newton steps from q (zero by default).

        The steps solve N e = 0 for e = error_twist(T_CG). With the default complement this is
        Sᵀ H e = 0 with H = diag(1, 1, 1, ℓ², ℓ², ℓ²): the nearest pose of the surface.
        """
        if self.dof == 0:
            return self.zero(T)
        if q is None:
            return _projected(25, self, T, self.zero(T))
        return _projected(self.iterations, self, T, q)

    def rows(self, T: Pose, q: Array, t: Array) -> CouplingRows:
        q = self.coordinates(T, q, t)
        W = self.rows_at(q)
        error = multiply(W, error_twist(self.pose(q).inverse() @ T))[: 6 - self.dof]
        return CouplingRows(W, error, q, jnp.zeros_like(error))

    def _projection_error(self, q: Array, T: Pose) -> Array:
        """N e up to a regular factor, shape (k,); zero at the projection of T."""
        rows, _ = self._projection_rows(q)
        return multiply(rows, error_twist(self.pose(q).inverse() @ T))

    def _projection_rows(self, q: Array) -> tuple[Array, Array]:
        """Rows (k, 6) with the span of N, Sᵀ H for the default complement; and S."""
        S = self.motion_at(q)
        if overrides(self, Chart.complement):
            return self.rows_at(q)[6 - self.dof :], S
        return transpose(metric(S, self.length)), S


def has_orthonormal_rows(coupling: Coupling) -> bool:
    """Whether G of a lower pair or of a regular coupling is as `Coupling.regular` says."""
    if not isinstance(coupling, Chart):
        return True
    # A field of this name, such as that of a rod, is a number that is not known here.
    own = "length" in {field.name for field in dataclasses.fields(coupling)}
    return not own and type(coupling).length == 1.0 and not overrides(coupling, Chart.complement)


@struct
class Derived(Chart):
    """The coupling `of` reduced to its poses, with rows and coordinates derived by `Chart`.

    Zero, positive directions and units are as in `of`. Tests compare it with rows that are written
    by hand: both must read the same coordinates and permit the same motion.

    >>> from jaxjoints import Hinge
    >>> hinge = Derived(Hinge(axis=(1.0, 0.0, 0.0)))
    >>> print(hinge.motion_at(jnp.array([0.5]))[:, 0].round(3) + 0.0)  # turns about x
    [0. 0. 0. 1. 0. 0.]
    """

    of: Coupling

    @property
    def dof(self) -> int:
        """Number of coordinates."""
        return self.of.dof

    @property
    def batched(self) -> bool:
        """See `Coupling`: as `of` is."""
        return self.of.batched

    def pose(self, q: Array) -> Pose:
        return self.of.pose(q)

    def units(self) -> tuple[str, ...]:
        return self.of.units()


class Residual(Coupling):
    """Base of couplings written by their errors: state `dof` and write `residual(T, t)`.

    The residual has 6 - dof components, which are 0 where the joint permits the pose. The rest is
    derived. G is the derivative of φ with respect to the twist of C, so φ̇ = G v_CD + ∂φ/∂t holds
    everywhere, off the surface too.

    By default the coordinates measure the displacement from the pose `reference` along its free
    directions S₀ (at t = 0): q = S₀ᵀ H (p, r), with p the displacement of C's origin and r the
    rotation vector, both in the axes of the reference. They are zero at the reference. Where S₀
    permits rotation about one axis only, r is the angle about this axis and counts turns. Otherwise
    r is the rotation vector, continued from its last value until 2π. The order and the signs of the
    columns of S₀ come from a factorization; `motion_subspace` shows them. These coordinates serve
    while N and G stay independent, which is while the free directions have turned by less than 90°
    from those of the reference. A subclass that needs other coordinates overrides `coordinates`,
    and `pose` too where that has a closed form.

    length: metres that weigh as much as one radian in S₀ᵀ H [m]
    iterations: number of Newton steps from a pose to the surface, in `pose` and `project`

    >>> from jaxjoints.algebra.spatial import norm
    >>> @struct
    ... class PointOnSphere(Residual):
    ...     radius: Array
    ...     dof: ClassVar[int] = 5
    ...     def residual(self, T, t):
    ...         return (norm(T.p) - self.radius)[None]
    ...     def reference(self):
    ...         return Pose.along_z(self.radius)
    >>> print(PointOnSphere(radius=2.0).distances(Pose.along_x(2.5)))
    [0.5]
    """

    length: ClassVar[float] = 1.0
    iterations: ClassVar[int] = 12

    @abstractmethod
    def residual(self, T: Pose, t: Array) -> Array:
        """Errors φ [m or rad] at the pose T = T_CD and the time t [s], shape (6 - dof,)."""

    def reference(self) -> Pose:
        """Pose T_CD where the coordinates are zero, on the surface or near it."""
        return Pose.identity()

    def coordinates(self, T: Pose, q: Array | None = None, t: Any = 0.0) -> Array:
        """Coordinates of the pose T = T_CD, continued from q (zero by default)."""
        reference, S = self._origin(T.p.dtype)
        if self.dof == 0:
            return self.zero(T)
        moved = reference.inverse() @ T
        near = multiply(S[3:], self.zero(T) if q is None else q)
        axis, single = single_axis(S[3:])
        angle = twist_angle(twist_part(moved.q, axis), axis, dot(axis, near)[None])
        vector = unwrap_rotation_vector(quat_to_rotation_vector(moved.q), near)
        turned = jnp.where(single, angle * axis, vector)
        return multiply_transposed(metric(S, self.length), jnp.concatenate([moved.p, turned]))

    def rows(self, T: Pose, q: Array, t: Array) -> CouplingRows:
        G = _gradient(lambda T: self.residual(T, t), T)
        N = _gradient(lambda T: self.coordinates(T, q, t), T)
        error, drift = jax.jvp(lambda t: self.residual(T, t), (t,), (jnp.ones_like(t),))
        W = jnp.concatenate([G, N], axis=0)
        return CouplingRows(W, error, self.coordinates(T, q, t), drift)

    def pose(self, q: Array, t: Any = 0.0) -> Pose:
        """Pose on the surface with coordinates q at time t, by Newton steps from the reference."""
        reference, S = self._origin(q.dtype)
        start = retract(reference, multiply(S, q)) if self.dof else reference
        return on_surface(self, start, q, t)

    def project(self, T: Pose, q: Array | None = None, t: Any = 0.0) -> tuple[Pose, Array]:
        """Pose T_GD on the surface that has the coordinates of T = T_CD, and these coordinates."""
        q = self.coordinates(T, q, t)
        return on_surface(self, T, q, t), q

    def _origin(self, dtype: Any) -> tuple[Pose, Array]:
        """The reference and its free directions S₀, shape (6, k), with S₀ᵀ H S₀ = 1."""
        reference = jax.tree.map(lambda x: jnp.asarray(x, dtype), self.reference())
        start = jnp.zeros((), dtype)
        G = _gradient(lambda T: self.residual(T, start), reference)
        return reference, orthonormal_complement(metric(transpose(G), 1 / self.length), self.length)


def on_surface(coupling: Residual, near: Pose, q: Array, t: Any = 0.0) -> Pose:
    """Pose where φ = 0 and the coordinates are q, by Newton steps from the pose `near`."""
    return _on_surface(coupling.iterations, coupling, near, q, _time(near, t))


def motion_of(pose: Callable[[Array], Pose], q: Array) -> Array:
    """Motion subspace S = ∂pose/∂q, shape (6, k, *b): body twists for unit speeds of q (k, *b)."""
    if q.shape[0] == 0:
        return jnp.zeros((6, *q.shape), q.dtype)
    return _columns(lambda direction: twist_of(*jax.jvp(pose, (q,), (direction,))), q)


def _slope(function: Callable[[Array], Array], q: Array) -> Array:
    """Derivative (m, k, *b) of a function (m, *b) of q (k, *b), item by item of the batch axes."""
    return _columns(lambda direction: jax.jvp(function, (q,), (direction,))[1], q)


def _columns(along: Callable[[Array], Array], q: Array) -> Array:
    """What a function gives along each coordinate, as columns."""
    return jnp.stack([along(jnp.zeros_like(q).at[i].set(1.0)) for i in range(len(q))], axis=1)


@quickly
def _turns(coupling: Coupling) -> Array:
    """Largest component of C's angular velocity for unit speed of each coordinate at 0."""
    T = coupling.pose(jnp.zeros(coupling.dof))
    return jnp.max(jnp.abs(coupling.motion_subspace(T)[3:]), axis=0)


@jax.jit
def _rows(coupling: Coupling, T: Pose, q: Array, t: Array) -> CouplingRows:
    """`Coupling.rows`, compiled for the same reason as `_projected`."""
    return coupling.rows(T, q, t)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _projection(iterations: int, chart: Chart, T: Pose, q: Array) -> Array:
    """Root of `chart._projection_error` near q: Gauss–Newton steps until one is within rounding,
    and, where there are not enough of them, steps with the exact slope.
    """

    def gauss_newton(q):
        rows, S = chart._projection_rows(q)
        step = multiply(rows, error_twist(chart.pose(q).inverse() @ T))
        return multiply(regular_inverse(product(rows, S)), step)

    def newton(q):
        slope = _slope(lambda q: chart._projection_error(q, T), q)
        return multiply(regular_inverse(-slope), chart._projection_error(q, T))

    farthest = jnp.max(jnp.abs(T.p), axis=0)
    q, wanted = _improved(gauss_newton, q, jnp.ones(q.shape[1:], bool), iterations, farthest)
    return _improved(newton, q, wanted, EXACT_STEPS, farthest)[0]


def _improved(
    step: Callable[[Array], Array], q: Array, wanted: Array, most: int, size: Array
) -> tuple[Array, Array]:
    """q (k, *b) after at most so many steps, and where these have not ended. Items whose step was
    within rounding stay as they are.

    wanted: items that need steps, (*b); size: of further numbers that cancel in a step, (*b)
    """

    def improve(now):
        q, wanted, count = now
        change = step(q)
        rounding = ROUNDINGS * jnp.finfo(q.dtype).eps * (1 + size + jnp.max(jnp.abs(q), axis=0))
        ended = jnp.max(jnp.abs(change), axis=0) <= rounding
        return jnp.where(wanted[None], q + change, q), wanted & ~ended, count + 1

    def go_on(now):
        return jnp.any(now[1]) & (now[2] < most)

    q, wanted, _ = jax.lax.while_loop(go_on, improve, (q, wanted, jnp.zeros((), int)))
    return q, wanted


@_projection.defjvp
def _projection_jvp(iterations: int, primals: Any, tangents: Any) -> tuple[Array, Array]:
    """Derivative of the implicit function. It does not depend on q, where the iteration began."""
    chart, T, start = primals
    q = _projected(iterations, chart, T, start)
    change = jax.jvp(lambda chart, T: chart._projection_error(q, T), (chart, T), tangents[:2])[1]
    slope = _slope(lambda q: chart._projection_error(q, T), q)
    return q, multiply(regular_inverse(-slope), change)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _newton_to_surface(iterations: int, coupling: Residual, T: Pose, q: Array, t: Array) -> Pose:
    """Pose near T where φ = 0 and the coordinates are q, by Newton's method."""

    def improve(_, T):
        rows = coupling.rows(T, q, t)
        step = multiply(inverse(rows.W), jnp.concatenate([rows.error, rows.q - q]))
        return retract(T, -step).normalized()

    return jax.lax.fori_loop(0, iterations, improve, T)


@_newton_to_surface.defjvp
def _newton_to_surface_jvp(iterations: int, primals: Any, tangents: Any) -> tuple[Pose, Pose]:
    """Derivative of the implicit function. It does not depend on T, where the iteration began."""
    coupling, start, q, t = primals
    T = _on_surface(iterations, coupling, start, q, t)

    def errors(coupling, target, t):
        difference = coupling.coordinates(T, q, t) - target
        return jnp.concatenate([coupling.residual(T, t), difference])

    change = jax.jvp(errors, (coupling, q, t), (tangents[0], *tangents[2:]))[1]
    return T, tangent_of(T, -multiply(inverse(coupling.wrenches(T, q, t)), change))


# Compiled: outside of `jit` their small operations would take seconds, one by one.
_projected = jax.jit(_projection, static_argnums=0)
_on_surface = jax.jit(_newton_to_surface, static_argnums=0)
_inverse = jax.jit(inverse)


def _gradient(function: Callable[[Pose], Array], T: Pose) -> Array:
    """Derivative (m, 6) of a function (m,) of a pose with respect to its body twist at T."""
    return jax.jacfwd(lambda twist: function(retract(T, twist)))(jnp.zeros(6, T.p.dtype))


def _time(T: Pose, t: Any) -> Array:
    return jnp.asarray(t, T.p.dtype)
