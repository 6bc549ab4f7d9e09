"""Joints that slide on an ellipsoid, as the scapula does on the thorax."""

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..algebra.pytree import Numbers, static, struct
from ..algebra.spatial import (
    Pose,
    arctan2,
    cross,
    dot,
    quat_conjugate,
    quat_multiply,
    quat_rotate,
    quat_to_rotation_vector,
    twist_of,
    unit,
)
from .angles import twist_angle, twist_part, unwrap_angle
from .coupling import Coupling, CouplingRows
from .wrench import about, along

LEAST_COSINE = 1e-4
ITERATIONS = 10


@struct
class Ellipsoid(Coupling):
    """C's origin slides on an ellipsoid; C turns about the normal and about a tangent, the wing.

    C is fixed on the child body, D on the parent body. D's origin is the centre of the ellipsoid,
    whose semi-axes r lie along the axes of D. The wing is the axis (cos α, sin α, 0) of C.

    q[0]: longitude a [rad]
    q[1]: latitude b [rad], in [-90°, 90°]
    q[2]: angle θ about the normal of the ellipsoid that points outward [rad]
    q[3]: angle φ about the wing [rad]
        All are zero where C's origin is at (0, 0, r_z) in D and the axes of C and D are parallel.
        By the right-hand rule about x and y, a positive a takes C's origin towards -y of D, and a
        positive b towards +x. θ and φ are positive by the right-hand rule about the normal and the
        wing. a, θ and φ count turns.

    C's origin is p = (r_x sin b, -r_y sin a cos b, r_z cos a cos b). The rotation R₂(a, b) has its
    z axis along the normal and its x axis along ∂p/∂b, the meridian. The orientation of C in D is
    R_CD = R₂ R_z(θ + α) R_x(φ) R_z(-α).

    Rows: the force along the normal, the moment that keeps the wing tangent to the ellipsoid, then
    the four coordinates. A pose off the surface is projected on the nearest point of the ellipsoid,
    and its wing by the shortest rotation into the tangent plane. At the poles (b = ±90°) a keeps
    its last value, and its rate is kept finite.

    radii: semi-axes r [m], > 0, shape (3,)
    wing: α, the direction of the wing [rad], positive from x towards y of C
    exact: False takes R₂ = R_x(a) R_y(b), as OpenSim does; its z axis is the normal of a sphere
        only. C's origin is projected along the true normal in any case (static)

    Source: ArtiSynth EllipsoidCoupling (same poses, projection and coordinates). Its rows mix
    metres and radians: the bilateral rows are an arbitrary orthonormal basis, and the rows of the
    coordinates are the pseudo-inverse of S. The bilateral rows here have the same span. The rows of
    the coordinates here differ by bilateral rows alone, so that they are the derivatives of the
    coordinates in directions off the surface too.

    >>> thorax = Ellipsoid(radii=(1.0, 2.0, 3.0))
    >>> quarter = jnp.pi / 2
    >>> print(thorax.pose(jnp.zeros(4)).p, thorax.pose(quarter * jnp.eye(4)[1]).p.round(3) + 0.0)
    [0. 0. 3.] [1. 0. 0.]
    >>> print(thorax.pose(quarter * jnp.eye(4)[0]).p.round(3) + 0.0)  # towards -y
    [ 0. -2.  0.]
    """

    radii: Numbers
    wing: Array | float = 0.0
    exact: bool = static(default=True, kw_only=True)
    dof: ClassVar[int] = 4

    def pose(self, q: Array) -> Pose:
        """Origin at longitude q[0] and latitude q[1]; angles q[2], q[3] about normal and wing."""
        wing = jnp.asarray(self.wing, q.dtype)
        turned = Pose.about_z(q[2] + wing) @ Pose.about_x(q[3]) @ Pose.about_z(-wing)
        return _surface_pose(_radii(self, q.dtype), q[:2], self.exact) @ turned

    def coordinates(self, T: Pose, q: Array | None = None, t=0.0) -> Array:
        """Longitude, latitude and the two angles, continued from q."""
        near = self.zero(T) if q is None else q
        radii, wing = _radii(self, T.p.dtype), jnp.asarray(self.wing, T.p.dtype)
        position = unwrap_angle(_nearest(radii, T.p, near[0]), near[:2])
        surface = _surface_pose(radii, position, self.exact)
        local = quat_multiply(quat_conjugate(surface.q), T.q)
        local = quat_multiply(local, Pose.about_z(wing).q)
        x = quat_rotate(local, jnp.eye(3, dtype=local.dtype)[0])
        # Protects atan2(0, 0) from a wing along the normal.
        undefined = x[0] * x[0] + x[1] * x[1] <= jnp.finfo(x.dtype).tiny
        heading = arctan2(x[1], jnp.where(undefined, 1.0, x[0]))
        rest = quat_multiply(quat_conjugate(Pose.about_z(heading).q), local)
        axis = jnp.eye(3, dtype=rest.dtype)[0]
        turn = twist_angle(twist_part(rest, axis), axis, near[3:])
        return jnp.concatenate([position, unwrap_angle((heading - wing)[None], near[2:3]), turn])

    def rows(self, T: Pose, q: Array, t: Array) -> CouplingRows:
        q = self.coordinates(T, q)
        _, y, z = jnp.eye(3, dtype=q.dtype)
        to_C = Pose.about_x(q[3]) @ Pose.about_z(-jnp.asarray(self.wing, q.dtype))
        x = jnp.eye(3, dtype=q.dtype)[0]
        upright, normal, wing = (to_C.rotate_inverse(axis) for axis in (y, z, x))
        return _rows(self, T, q, (upright,), (normal, wing))

    def check(self) -> str | None:
        return _check_radii(self.radii)


@struct
class Ellipsoid3(Coupling):
    """C's origin slides on an ellipsoid, and C turns about the normal, which is its z axis.

    C is fixed on the child body, D on the parent body. D's origin is the centre of the ellipsoid,
    whose semi-axes r lie along the axes of D.

    q[0]: longitude a [rad]
    q[1]: latitude b [rad], in [-90°, 90°]
    q[2]: angle θ about the normal of the ellipsoid that points outward [rad]
        All are zero where C's origin is at (0, 0, r_z) in D and the axes of C and D are parallel.
        By the right-hand rule about x and y, a positive a takes C's origin towards -y of D, and a
        positive b towards +x. θ is positive by the right-hand rule about the normal. a and θ count
        turns.

    The orientation of C in D is R_CD = R₂(a, b) R_z(θ), with R₂ as in `Ellipsoid`.

    Rows: the force along the normal, moments about x and y of C, then the three coordinates. C's z
    axis is projected by the shortest rotation.

    radii: semi-axes r [m], > 0, shape (3,)
    exact: as in `Ellipsoid`

    Source: ArtiSynth EllipsoidCoupling3d (same poses, projection and coordinates; its rows differ
    from those here as they do for `Ellipsoid`).

    >>> T = Ellipsoid3(radii=(1.0, 2.0, 3.0)).pose(jnp.array([0.0, jnp.pi / 2, 0.0]))
    >>> print(T.p.round(3) + 0.0, T.rotate(jnp.array([0.0, 0.0, 1.0])).round(3) + 0.0)  # normal
    [1. 0. 0.] [1. 0. 0.]
    """

    radii: Numbers
    exact: bool = static(default=True, kw_only=True)
    dof: ClassVar[int] = 3

    def pose(self, q: Array) -> Pose:
        """Origin at longitude q[0] and latitude q[1]; angle q[2] about the normal."""
        surface = _surface_pose(_radii(self, q.dtype), q[:2], self.exact)
        return surface @ Pose.about_z(q[2])

    def coordinates(self, T: Pose, q: Array | None = None, t=0.0) -> Array:
        """Longitude, latitude and the angle about the normal, continued from q."""
        near = self.zero(T) if q is None else q
        radii = _radii(self, T.p.dtype)
        position = unwrap_angle(_nearest(radii, T.p, near[0]), near[:2])
        surface = _surface_pose(radii, position, self.exact)
        axis = jnp.eye(3, dtype=T.p.dtype)[2]
        local = quat_multiply(quat_conjugate(surface.q), T.q)
        return jnp.concatenate([position, twist_angle(twist_part(local, axis), axis, near[2:])])

    def rows(self, T: Pose, q: Array, t: Array) -> CouplingRows:
        x, y, z = jnp.eye(3, dtype=q.dtype)
        return _rows(self, T, self.coordinates(T, q), (x, y), (z,))

    def check(self) -> str | None:
        return _check_radii(self.radii)


def _rows(
    coupling: Ellipsoid | Ellipsoid3,
    T: Pose,
    q: Array,
    resisted: tuple[Array, ...],
    turning: tuple[Array, ...],
) -> CouplingRows:
    """Rows at T.

    resisted, turning: orthogonal axes in C about which C must not turn and about which it turns
    """
    radii = _radii(coupling, q.dtype)
    G = coupling.pose(q)
    normal = unit(G.p / (radii * radii))

    def moved(direction):
        tangent = jax.jvp(coupling.pose, (q,), (direction,))[1]
        return tangent.p, twist_of(G, tangent)[3:]

    directions = jnp.eye(coupling.dof, dtype=q.dtype)
    (east, spin_a), (north, spin_b) = moved(directions[0]), moved(directions[1])
    # v = ȧ ∂p/∂a + ḃ ∂p/∂b + a part along the normal.
    volume = dot(east, cross(north, normal))
    # Protects the division from the poles, where ∂p/∂a = 0.
    least = LEAST_COSINE * jnp.min(radii) ** 2
    regular = jnp.abs(volume) > least
    volume = jnp.where(regular, volume, jnp.where(volume < 0, -least, least))
    read_a = G.rotate_inverse(cross(north, normal) / volume)
    read_b = G.rotate_inverse(cross(normal, east) / volume)

    def reading(axis):
        """Row whose product with the twist is the angular velocity about an axis relative to R₂."""
        return about(axis) - along(dot(axis, spin_a) * read_a + dot(axis, spin_b) * read_b)

    G_rows = along(G.rotate_inverse(normal)), *map(reading, resisted)
    N_rows = along(read_a), along(read_b), *map(reading, turning)
    off = quat_to_rotation_vector(quat_multiply(quat_conjugate(G.q), T.q))
    error = jnp.stack([dot(normal, T.p - G.p), *(dot(axis, off) for axis in resisted)])
    # T.p - G.p is along the normal, where the force part of `reading` is 0: it adds no error.
    return CouplingRows(jnp.stack([*G_rows, *N_rows]), error, q, jnp.zeros_like(error))


def _surface_pose(radii: Array, position: Array, exact: bool) -> Pose:
    """Pose with C's origin at a (longitude, latitude), and the rotation R₂."""
    a, b = position
    s1, c1, s2, c2 = jnp.sin(a), jnp.cos(a), jnp.sin(b), jnp.cos(b)
    normal = jnp.stack([s2, -s1 * c2, c1 * c2])
    p = radii * normal
    if not exact:
        return Pose(p, (Pose.about_x(a) @ Pose.about_y(b)).q)
    z = unit(normal / radii)
    x = unit(radii * jnp.stack([c2, s1 * s2, -c1 * s2]))
    return Pose.from_matrix(jnp.stack([x, cross(z, x), z], axis=1), p)


def _nearest(radii: Array, p: Array, longitude: Array) -> Array:
    """Longitude and latitude of the point of the ellipsoid nearest to p, shape (2,).

    The point is x_i = r_i² p_i / (s + r_i²) with Σ (x_i / r_i)² = 1. The norm's reciprocal is
    concave in s, so Newton's method from the left of the root stays there and is fast.
    longitude: result at the poles, where it is undetermined [rad]
    """
    squares = radii * radii

    def scaled(s):
        # Protects the division inside the ellipsoid, where s comes near to -r_i².
        return radii * p / jnp.maximum(s + squares, 1e-9 * squares)

    def improve(s):
        n = scaled(s)
        square = dot(n, n)
        slope = dot(n, n / jnp.maximum(s + squares, 1e-9 * squares))
        # Protects √ and the division from the centre.
        usable = slope > jnp.finfo(s.dtype).tiny
        size = jnp.sqrt(jnp.where(usable, square, 1.0))
        return s + jnp.where(usable, square * (size - 1) / jnp.where(usable, slope, 1.0), 0.0)

    start = jnp.max(radii * jnp.abs(p) - squares)
    s = jax.lax.fori_loop(
        0,
        ITERATIONS,
        lambda _, s: jnp.maximum(improve(s), jax.lax.stop_gradient(start)),
        jax.lax.stop_gradient(start),
    )
    # Two steps from a constant carry the first two derivatives of the root.
    n = scaled(improve(improve(jax.lax.stop_gradient(s))))
    square = n[1] * n[1] + n[2] * n[2]
    # Protects atan2 and √ from the poles, and from the centre.
    pole = square <= (8 * jnp.finfo(n.dtype).eps) ** 2
    a = jnp.where(pole, longitude, arctan2(-n[1], jnp.where(pole, 1.0, n[2])))
    across = jnp.where(pole, 0.0, jnp.sqrt(jnp.where(pole, 1.0, square)))
    centre = pole & (n[0] == 0)
    b = arctan2(n[0], jnp.where(centre, 1.0, across))
    return jnp.stack([a, b])


def _radii(coupling: Ellipsoid | Ellipsoid3, dtype) -> Array:
    return jnp.asarray(coupling.radii, dtype)


def _check_radii(radii: Array) -> str | None:
    """What is wrong with the semi-axes, or None."""
    radii = np.asarray(radii)
    if radii.shape != (3,):
        return f"radii has shape {radii.shape}; an ellipsoid has 3 semi-axes"
    if not (np.isfinite(radii).all() and (radii > 0).all()):
        return f"radii {radii.tolist()} must be finite and > 0"
    return None
