"""Surfaces in D that carry a point of C (planes), or an axis of it (the fixed axis)."""

from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jax import Array

from ..algebra.pytree import replace, struct
from ..algebra.spatial import Pose, basis, dot, quat_to_rotation_vector, so3_right_jacobian_inverse
from .coupling import Coupling, CouplingRows
from .rotary import Universal, Z
from .winding import unwind
from .wrench import about, along, axes, check_axis, direction, stack_rows, unit_axis


@struct
class PlanePoint(Coupling):
    """The origin of C stays on the plane through D's origin normal to `normal`; C turns freely.

    Row: the force along the normal; its error is the height of C's origin above the plane.
    Coordinates: distances along two axes p, q of the plane (x, y for the default normal z) [m],
    rotation vector of T_CD [rad], as in `Ball`. One-sided, as a point above a floor:
    `Released(PlanePoint())` with `Limits(lower=0.0)`.

    normal: direction in D, of any length but 0, shape (3,)

    Source: ArtiSynth PlanarCoupling, PlanarConnector (the same row, without coordinates), whose
    own derivative of the row is 0.
    """

    normal: Array = Z
    dof: ClassVar[int] = 5
    elementwise: ClassVar[bool] = True

    def pose(self, q: Array) -> Pose:
        """Displacement by q[0] and q[1] within the plane, rotation vector q[2:]."""
        normal = jnp.asarray(self.normal, q.dtype)
        u, v = basis(direction(normal.reshape(normal.shape + (1,) * (q.ndim - normal.ndim))))
        return Pose.from_rotation_vector(q[2:], q[0][None] * u + q[1][None] * v)

    def coordinates(self, T: Pose, q: Array | None = None, t=0.0) -> Array:
        """Distances within the plane and rotation vector, the latter continued from q."""
        u, v = basis(unit_axis(self.normal, T))
        r = quat_to_rotation_vector(T.q)
        r = r if q is None else unwind(r, q[2:])
        return jnp.concatenate([jnp.stack([dot(u, T.p), dot(v, T.p)]), r], axis=0)

    def rows(self, T: Pose, q: Array, t: Array) -> CouplingRows:
        """See `Coupling.rows`."""
        q = self.coordinates(T, q)
        normal = unit_axis(self.normal, T)
        forces = (along(T.rotate_inverse(x)) for x in (normal, *basis(normal)))
        rates = so3_right_jacobian_inverse(q[2:])
        W = stack_rows(*forces, *(about(rates[i]) for i in range(3)))
        error = dot(normal, T.p)[None]
        return CouplingRows(W, error, q, jnp.zeros_like(error))

    def check(self) -> str | None:
        """See `Coupling.check`."""
        return check_axis("normal", self.normal)

    def normalized(self) -> "PlanePoint":
        """See `Coupling.normalized`."""
        return replace(self, normal=direction(self.normal))


@struct
class SegmentedPlanePoint(Coupling):
    """The origin of C stays on a surface of flat strips; C turns freely.

    The strips are a polyline in the x–z plane of D, extruded along y. The row is that of the strip
    nearest to C's origin: the force along its normal (-dz, 0, dx), which is up (z) where the
    polyline runs along x; the error is the height above the plane of that strip. The first and
    last strips have no outer end. Coordinates: way along the polyline and along y [m], rotation
    vector of T_CD [rad], as in `Ball`. One-sided: `Released` with `Limits(lower=0.0)`.

    Where a corner bulges, the points nearest to it lie above no strip and are projected on the
    plane of one: the way runs past that strip's end there, and `pose` puts it on the next one.

    points: corners (x, z) of the polyline in order [m], at least 2, shape (m, 2)

    Source: ArtiSynth SegmentedPlanarCoupling (the same row, without coordinates), whose own
    derivative of the row is 0.
    """

    points: Array
    dof: ClassVar[int] = 5

    def pose(self, q: Array) -> Pose:
        """Displacement to the way q[0] along the polyline and by q[1] along y, vector q[2:]."""
        points, along_strip, lengths = self._strips(q.dtype)
        ends = jnp.cumsum(lengths)
        strip = jnp.sum(q[0] >= ends[:-1])
        place = points[strip] + (q[0] - ends[strip] + lengths[strip]) * along_strip[strip]
        return Pose.from_rotation_vector(q[2:], jnp.stack([place[0], q[1], place[1]]))

    def project(self, T: Pose, q: Array | None = None, t=0.0) -> tuple[Pose, Array]:
        """T with its origin put on the plane of the nearest strip, and the coordinates."""
        normal, height, _ = self._nearest(T)
        return Pose(T.p - height * normal, T.q), self.coordinates(T, q)

    def coordinates(self, T: Pose, q: Array | None = None, t=0.0) -> Array:
        """Way along the polyline, y, and rotation vector, the latter continued from q."""
        r = quat_to_rotation_vector(T.q)
        r = r if q is None else unwind(r, q[2:])
        _, _, way = self._nearest(T)
        return jnp.concatenate([jnp.stack([way, T.p[1]]), r])

    def rows(self, T: Pose, q: Array, t: Array) -> CouplingRows:
        """See `Coupling.rows`."""
        q = self.coordinates(T, q)
        normal, height, _ = self._nearest(T)
        _, y, _ = axes(T)
        across = jnp.stack([normal[2], normal[1], -normal[0]])
        forces = (along(T.rotate_inverse(x)) for x in (normal, across, y))
        rates = so3_right_jacobian_inverse(q[2:])
        W = stack_rows(*forces, *(about(rates[i]) for i in range(3)))
        return CouplingRows(W, height[None], q, jnp.zeros_like(height)[None])

    def check(self) -> str | None:
        """See `Coupling.check`."""
        points = np.asarray(self.points)
        if points.ndim != 2 or points.shape[1] != 2 or len(points) < 2:
            return f"points has shape {points.shape}; give at least 2 corners (x, z)"
        if not np.isfinite(points).all():
            return f"points {points.tolist()} must be finite"
        for i, length in enumerate(np.linalg.norm(np.diff(points, axis=0), axis=1)):
            if length < 1e-9:
                return f"points {i} and {i + 1} are both {points[i].tolist()}; leave one out"
        return None

    def _strips(self, dtype) -> tuple[Array, Array, Array]:
        """Starts (m, 2), unit vectors (m, 2) and lengths (m) of the strips."""
        points = jnp.asarray(self.points, dtype)
        way = points[1:] - points[:-1]
        lengths = jnp.sqrt(jnp.sum(way * way, axis=1))
        return points[:-1], way / lengths[:, None], lengths

    def _nearest(self, T: Pose) -> tuple[Array, Array, Array]:
        """Normal of the nearest strip (3), height above its plane, and way along the polyline."""
        points, along_strip, lengths = self._strips(T.p.dtype)
        offset = jnp.stack([T.p[0], T.p[2]])[None] - points
        forward = jnp.sum(offset * along_strip, axis=1)
        beside = offset - jnp.clip(forward, 0.0, lengths)[:, None] * along_strip
        strip = jnp.argmin(jnp.sum(beside * beside, axis=1))
        x, z = along_strip[strip]
        height = x * offset[strip, 1] - z * offset[strip, 0]
        way = jnp.cumsum(lengths)[strip] - lengths[strip] + forward[strip]
        return jnp.stack([-z, jnp.zeros_like(x), x]), height, way


@struct
class FixedAxis(Coupling):
    """The y axis of C stays parallel to the x–y plane of D; C moves freely otherwise.

    A universal joint (roll about z of D, pitch about y of C) whose origin moves freely. Row: the
    moment about the common normal of the two axes. Coordinates: position of C in D [m], roll and
    pitch [rad], counted over many turns; they are read by the forces along x, y, z of D and the
    moments about z of D and y of C.

    Source: ArtiSynth FixedAxisCoupling (the same row; it leaves the origin of T_GD where it was,
    0 in use, so there the position always reads 0 and the position error is all of it).
    """

    dof: ClassVar[int] = 5
    elementwise: ClassVar[bool] = True

    def pose(self, q: Array) -> Pose:
        """Position q[:3], roll q[3] about z, then pitch q[4] about y."""
        return Pose(q[:3], _ROLL_PITCH.pose(q[3:]).q)

    def coordinates(self, T: Pose, q: Array | None = None, t=0.0) -> Array:
        """Position, roll and pitch, the angles continued from q."""
        angles = _ROLL_PITCH.coordinates(T, None if q is None else q[3:])
        return jnp.concatenate([T.p, angles], axis=0)

    def rows(self, T: Pose, q: Array, t: Array) -> CouplingRows:
        """See `Coupling.rows`."""
        turned = _ROLL_PITCH.rows(T, q[3:], t)
        q = jnp.concatenate([T.p, turned.q], axis=0)
        G = _ROLL_PITCH.pose(turned.q)
        forces = (along(G.rotate_inverse(x)) for x in axes(T))
        W = stack_rows(turned.W[3], *forces, turned.W[4], turned.W[5])
        error = turned.error[3:]
        return CouplingRows(W, error, q, jnp.zeros_like(error))


_ROLL_PITCH = Universal(axis_D=Z, axis_C=(0.0, 1.0, 0.0))
