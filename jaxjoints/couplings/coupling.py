"""Couplings: which relative poses T_CD two frames may take, and everything that follows from it.

C is fixed on the child body, D on the parent body; G is C projected on the joint's surface. T_CD is
the pose of C in D and v_CD the twist of C relative to D, in C, (linear, angular). A coupling with k
degrees of freedom has k coordinates q and 6 - k errors φ, and one matrix of wrench rows

    W = [ G ; N ],    φ̇ = G v_CD,    q̇ = N v_CD,    W⁻¹ = [ E | S ],    G S = 0,    N S = 1,

exact on the surface and to first order in φ off it. G are the bilateral wrenches, N the wrenches of
the coordinates, S the motion subspace, E a complement of it. A coupling is given by its poses
(`Chart`: the map q → T_CD) or by its errors (`Residual`: φ(T_CD, t)); the rest is derived here.
Any coupling may also forbid velocities or accelerations (rolling): see `nonholonomic`.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import Array

from ..algebra.dense import inverse, multiply, multiply_transposed, product
from ..algebra.pytree import struct
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
from .complement import metric, orthonormal_complement, regular_inverse, single_axis
from .winding import twist_angle, twist_part, unwind


@struct
class CouplingRows:
    """What a coupling says of one relative pose.

    W: wrench rows [G; N] in C, (linear, angular), shape (6, 6, *b); an axis of a batch that
        shares its rows may have size 1
    error: φ, distance of each bilateral row [m or rad], shape (6 - k, *b)
    q: coordinates [m or rad], shape (k, *b)
    drift: ∂φ/∂t of a coupling that depends on time, shape (6 - k, *b)
    acceleration: what rows at acceleration level add to the drift in each second, None without
        them; as long as `error`. Rows at velocity and acceleration level follow those of W and of
        the errors here (see `nonholonomic.with_velocity_rows`), which `Coupling.rows` leaves out
    """

    W: Array
    error: Array
    q: Array
    drift: Array
    acceleration: Array | None = None


class Coupling:
    """Base of all couplings: a frozen record (`struct`) whose leaves are its parameters.

    A coupling is a pure function of one joint; the library maps it over joints and environments.
    Whatever numbers it uses are its fields: to an array taken from around it (a closure, a global)
    no gradient flows, it is the same for all environments, and the builder warns.

    dof: number of coordinates k
    elementwise: the methods are written in components (see `spatial`) and take trailing batch axes
        as they are, which spares the mapping; never so the residuals of velocity and acceleration
    velocity_rows, acceleration_rows: numbers of components of those residuals
    places_bodies: a start may place bodies by the coordinates; False without a `pose` (contacts)
    """

    dof: ClassVar[int]
    elementwise: ClassVar[bool] = False
    velocity_rows: ClassVar[int] = 0
    acceleration_rows: ClassVar[int] = 0
    places_bodies: ClassVar[bool] = True

    def pose(self, q: Array) -> Pose:
        """Pose T_GD on the joint's surface with coordinates q, shape (k,)."""
        raise NotImplementedError

    def rows(self, T: Pose, q: Array, t: Array) -> CouplingRows:
        """Wrench rows, errors and coordinates at T = T_CD and time t [s].

        q: coordinates at a pose nearby, shape (k,); they choose the branch of those that wind
        """
        raise NotImplementedError

    def velocity_residual(self, T: Pose, v: Array, t: Array) -> Array:
        """ψ [m/s or rad/s], 0 while C moves at v = v_CD (6,) as it may; shape (velocity_rows,)."""
        raise NotImplementedError

    def acceleration_residual(self, T: Pose, v: Array, a: Array, t: Array) -> Array:
        """α, 0 while v changes at the rate a (6,) as it may; linear in a, (acceleration_rows,)."""
        raise NotImplementedError

    def check(self) -> str | None:
        """What is wrong with the parameters (concrete numbers), as a sentence, or None."""
        return None

    def normalized(self) -> "Coupling":
        """The same coupling with its parameters in standard form (unit axes)."""
        return self

    def project(self, T: Pose, q: Array | None = None, t: Any = 0.0) -> tuple[Pose, Array]:
        """T_GD, the pose on the surface for T = T_CD, and its coordinates; one joint."""
        q = self.coordinates(T, q, t)
        return self.pose(q), q

    def coordinates(self, T: Pose, q: Array | None = None, t: Any = 0.0) -> Array:
        """Coordinates of T = T_CD projected on the surface, continued from q (zero by default)."""
        return _rows(self, T, self.zero(T) if q is None else q, _time(T, t)).q

    def wrenches(self, T: Pose, q: Array | None = None, t: Any = 0.0) -> Array:
        """Wrench rows W = [G; N] at T = T_CD, shape (6, 6)."""
        return _rows(self, T, self._near(T, q, t), _time(T, t)).W

    def distances(self, T: Pose, q: Array | None = None, t: Any = 0.0) -> Array:
        """Errors φ of the bilateral rows at T = T_CD, shape (6 - k,)."""
        return _rows(self, T, self._near(T, q, t), _time(T, t)).error

    def motion_subspace(self, T: Pose, q: Array | None = None, t: Any = 0.0) -> Array:
        """S at T = T_CD: twists per unit speed of each coordinate, shape (6, k)."""
        return _inverse(self.wrenches(T, q, t))[:, 6 - self.dof :]

    def wrench_rates(self, T: Pose, v: Array, q: Array | None = None, t: Any = 0.0) -> Array:
        """Ẇ while T = T_CD moves at the twist v (6,), shape (6, 6): Ġ v and N's share of q̈."""
        q, time = self._near(T, q, t), _time(T, t)
        motion = (tangent_of(T, v), jnp.ones_like(time))
        return jax.jvp(lambda T, t: self.wrenches(T, q, t), (T, time), motion)[1]

    def zero(self, T: Pose) -> Array:
        """Coordinates 0 with the batch axes of T."""
        return jnp.zeros((self.dof, *T.p.shape[1:]), T.p.dtype)

    def _near(self, T: Pose, q: Array | None, t: Any) -> Array:
        """The coordinates known, or those found without any."""
        return self.coordinates(T, None, t) if q is None else q


class Chart(Coupling):
    """A coupling given by its poses: write `dof` and `pose(q)`, all else is derived.

    S = ∂pose/∂q by forward differentiation; coordinates by Gauss–Newton from the last known ones,
    so that angles wind over many turns; G from a complement E of S: the first rows of [E | S]⁻¹.
    By default E is orthonormal to S at each pose, so equal softness of all rows does not depend
    on which complement it is; `complement` may declare one, and then the order and meaning of the
    rows are its own. (A constant default would make W singular where S turns by 90° in C.)
    Off the surface a pose is projected along E.

    length: metres that weigh as much as one radian where poses are compared [m]. Only the default
        complement, and with it the projection of poses off the surface, depends on it.
    iterations: Gauss–Newton steps taken from the last known coordinates

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
        """E, shape (6, 6 - k): twists that the joint resists, one for each bilateral row."""
        # Constant for differentiation: what E turns within its span turns the rows among
        # themselves, and G does not feel what E moves along S.
        return orthonormal_complement(jax.lax.stop_gradient(self.motion_at(q)), self.length)

    def motion_at(self, q: Array) -> Array:
        """S at the pose with coordinates q, shape (6, k)."""
        return motion_of(self.pose, q)

    def rows_at(self, q: Array) -> Array:
        """W = [E | S]⁻¹ at the pose with coordinates q, shape (6, 6)."""
        E, S = self.complement(q), self.motion_at(q)
        if self._declares_complement:
            return inverse(jnp.concatenate([E, S], axis=1))
        # The same where Eᵀ H S = 0, Eᵀ H E = 1; and N with its derivative as E turns with S.
        EH, SH = transpose(metric(E, self.length)), transpose(metric(S, self.length))
        if self.dof == 0:
            return EH
        N = product(regular_inverse(product(SH, S)), SH)
        return jnp.concatenate([EH - product(product(EH, S), N), N], axis=0)

    def coordinates(self, T: Pose, q: Array | None = None, t: Any = 0.0) -> Array:
        """Coordinates of T projected along E, found from q (zero by default).

        Solves N e = 0 for e = error_twist(T_CG). With the default complement this is Sᵀ H e = 0,
        H = diag(1, 1, 1, ℓ², ℓ², ℓ²): the nearest pose of the surface.
        """
        if self.dof == 0:
            return self.zero(T)
        if q is None:
            return _projected(25, self, T, self.zero(T))
        return _projected(self.iterations, self, T, q)

    def rows(self, T: Pose, q: Array, t: Array) -> CouplingRows:
        """See `Coupling.rows`."""
        q = self.coordinates(T, q, t)
        W = self.rows_at(q)
        error = multiply(W, error_twist(self.pose(q).inverse() @ T))[: 6 - self.dof]
        return CouplingRows(W, error, q, jnp.zeros_like(error))

    @property
    def _declares_complement(self) -> bool:
        return type(self).complement is not Chart.complement

    def _pull(self, q: Array, T: Pose) -> Array:
        """N e up to a regular factor; zero at the projection."""
        rows, _ = self._pulling_rows(q)
        return multiply(rows, error_twist(self.pose(q).inverse() @ T))

    def _pulling_rows(self, q: Array) -> tuple[Array, Array]:
        """Rows (k, 6) that span N, Sᵀ H unless a complement is declared; and S."""
        S = self.motion_at(q)
        if self._declares_complement:
            return self.rows_at(q)[6 - self.dof :], S
        return transpose(metric(S, self.length)), S


@struct
class Derived(Chart):
    """The derived form of another coupling: its poses alone, everything else from `Chart`.

    What a hand-written coupling is checked against.
    """

    of: Coupling

    @property
    def dof(self) -> int:
        """Number of coordinates."""
        return self.of.dof

    def pose(self, q: Array) -> Pose:
        """See `Coupling.pose`."""
        return self.of.pose(q)


class Residual(Coupling):
    """A coupling given by its errors: write `dof` and `residual(T, t)` of 6 - dof components.

    G = ∂φ/∂(twist of C), so φ̇ = G v_CD + ∂φ/∂t holds everywhere, off the surface too. Unless
    `coordinates` is overridden, the coordinates are those of displacements from `reference`
    along its free directions S₀ (at t = 0): q = S₀ᵀ H (p, r). Where S₀ turns about one axis only,
    r is the angle about it, counted over many turns; else the rotation vector, continued from its
    last value until 2π. They serve within the range where N and G stay independent (free
    directions turned by less than 90° from the reference).

    length: metres that weigh as much as one radian in S₀ᵀ H [m]
    iterations: Newton steps from a pose to the surface, in `pose` and `project`

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

    def residual(self, T: Pose, t: Array) -> Array:
        """Errors φ [m or rad] at T = T_CD and time t [s], shape (6 - dof,)."""
        raise NotImplementedError

    def reference(self) -> Pose:
        """The pose where the coordinates are zero, on the surface or near it."""
        return Pose.identity()

    def coordinates(self, T: Pose, q: Array | None = None, t: Any = 0.0) -> Array:
        """Coordinates of a pose, continued from q (zero by default)."""
        reference, S = self._origin(T.p.dtype)
        if self.dof == 0:
            return self.zero(T)
        moved = reference.inverse() @ T
        near = multiply(S[3:], self.zero(T) if q is None else q)
        axis, single = single_axis(S[3:])
        angle = twist_angle(twist_part(moved.q, axis), axis, dot(axis, near)[None])
        vector = unwind(quat_to_rotation_vector(moved.q), near)
        turned = jnp.where(single, angle * axis, vector)
        return multiply_transposed(metric(S, self.length), jnp.concatenate([moved.p, turned]))

    def rows(self, T: Pose, q: Array, t: Array) -> CouplingRows:
        """See `Coupling.rows`."""
        G = _gradient(lambda T: self.residual(T, t), T)
        N = _gradient(lambda T: self.coordinates(T, q, t), T)
        error, drift = jax.jvp(lambda t: self.residual(T, t), (t,), (jnp.ones_like(t),))
        W = jnp.concatenate([G, N], axis=0)
        return CouplingRows(W, error, self.coordinates(T, q, t), drift)

    def pose(self, q: Array, t: Any = 0.0) -> Pose:
        """Pose on the surface with coordinates q, by Newton's method from the reference."""
        reference, S = self._origin(q.dtype)
        start = retract(reference, multiply(S, q)) if self.dof else reference
        return on_surface(self, start, q, t)

    def project(self, T: Pose, q: Array | None = None, t: Any = 0.0) -> tuple[Pose, Array]:
        """T_GD on the surface with the coordinates of T = T_CD, and those coordinates."""
        q = self.coordinates(T, q, t)
        return on_surface(self, T, q, t), q

    def _origin(self, dtype: Any) -> tuple[Pose, Array]:
        """The reference and its free directions S₀, shape (6, k), with S₀ᵀ H S₀ = 1."""
        reference = jax.tree.map(lambda x: jnp.asarray(x, dtype), self.reference())
        start = jnp.zeros((), dtype)
        G = _gradient(lambda T: self.residual(T, start), reference)
        return reference, orthonormal_complement(metric(transpose(G), 1 / self.length), self.length)


def on_surface(coupling: Residual, near: Pose, q: Array, t: Any = 0.0) -> Pose:
    """The pose where φ = 0 and the coordinates are q, by Newton's method from one nearby."""
    return _on_surface(coupling.iterations, coupling, near, q, _time(near, t))


def motion_of(pose: Callable[[Array], Pose], q: Array) -> Array:
    """Body twists ∂pose/∂q per unit speed of each coordinate, shape (6, k)."""
    if q.shape[0] == 0:
        return jnp.zeros((6, 0), q.dtype)

    def twist(direction):
        return twist_of(*jax.jvp(pose, (q,), (direction,)))

    return jax.vmap(twist, out_axes=1)(jnp.eye(q.shape[0], dtype=q.dtype))


@jax.jit
def _rows(coupling: Coupling, T: Pose, q: Array, t: Array) -> CouplingRows:
    """The coupling's rows, compiled for the same reason as `_projected`."""
    return coupling.rows(T, q, t)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _projection(iterations: int, chart: Chart, T: Pose, q: Array) -> Array:
    """Zero of `chart._pull` near q: Gauss–Newton steps, then two with the slope they end at."""

    def improve(_, q):
        rows, S = chart._pulling_rows(q)
        step = multiply(rows, error_twist(chart.pose(q).inverse() @ T))
        return q + multiply(regular_inverse(product(rows, S)), step)

    q = jax.lax.fori_loop(0, iterations, improve, q)
    step = regular_inverse(-jax.jacfwd(chart._pull)(q, T))
    return jax.lax.fori_loop(0, 2, lambda _, q: q + multiply(step, chart._pull(q, T)), q)


@_projection.defjvp
def _projection_jvp(iterations: int, primals: Any, tangents: Any) -> tuple[Array, Array]:
    """Derivative of the implicit function; q, where the search began, has no part in it."""
    chart, T, start = primals
    q = _projected(iterations, chart, T, start)
    pulled = jax.jvp(lambda chart, T: chart._pull(q, T), (chart, T), tangents[:2])[1]
    slope = jax.jacfwd(chart._pull)(q, T)
    return q, multiply(regular_inverse(-slope), pulled)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _meeting(iterations: int, coupling: Residual, T: Pose, q: Array, t: Array) -> Pose:
    """The pose near T where φ = 0 and the coordinates are q, by Newton's method."""

    def improve(_, T):
        rows = coupling.rows(T, q, t)
        step = multiply(inverse(rows.W), jnp.concatenate([rows.error, rows.q - q]))
        return retract(T, -step).normalized()

    return jax.lax.fori_loop(0, iterations, improve, T)


@_meeting.defjvp
def _meeting_jvp(iterations: int, primals: Any, tangents: Any) -> tuple[Pose, Pose]:
    """Derivative of the implicit function; T, where the search began, has no part in it."""
    coupling, start, q, t = primals
    T = _on_surface(iterations, coupling, start, q, t)

    def errors(coupling, target, t):
        reached = coupling.coordinates(T, q, t) - target
        return jnp.concatenate([coupling.residual(T, t), reached])

    moved = jax.jvp(errors, (coupling, q, t), (tangents[0], *tangents[2:]))[1]
    return T, tangent_of(T, -multiply(inverse(coupling.wrenches(T, q, t)), moved))


# Compiled: outside of `jit` their small operations would take seconds, one by one.
_projected = jax.jit(_projection, static_argnums=0)
_on_surface = jax.jit(_meeting, static_argnums=0)
_inverse = jax.jit(inverse)


def _gradient(function: Callable[[Pose], Array], T: Pose) -> Array:
    """Derivative (m, 6) of a function (m,) of a pose with respect to its body twist at T."""
    return jax.jacfwd(lambda twist: function(retract(T, twist)))(jnp.zeros(6, T.p.dtype))


def _time(T: Pose, t: Any) -> Array:
    return jnp.asarray(t, T.p.dtype)
