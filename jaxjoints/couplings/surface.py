"""Joints that keep a point of C on planes of D, or an axis of C parallel to a plane of D."""

from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jax import Array

from ..algebra.pytree import Numbers, replace, struct
from ..algebra.spatial import Pose, basis, dot, quat_to_rotation_vector, so3_right_jacobian_inverse
from .angles import unwrap_rotation_vector
from .coupling import Coupling, CouplingRows
from .rotary import Universal, Z
from .wrench import about, along, axes, check_axis, direction, stack_rows, unit_axis


@struct
class PlanePoint(Coupling):
    """C's origin stays on a plane through D's origin, and C turns freely.

    C is fixed on the child body, D on the parent body.

    q[0], q[1]: position of C's origin along two axes u, v of the plane [m], zero at D's origin. u
        and v are x and y of D for the default normal z; u × v is in the direction of the normal.
    q[2:]: rotation vector of C in D [rad], zero where the axes of C and D are parallel, positive by
        the right-hand rule, as in `Ball`

    Row: the force along the normal. Its error is the height of C's origin above the plane [m],
    positive on the side to which the normal points. `Released(PlanePoint())` with
    `Limits(lower=0.0)` is one-sided, like a point above a floor.

    normal: normal of the plane in D, of any length but 0, shape (3,)

    Source: ArtiSynth PlanarCoupling, PlanarConnector (the same row, without coordinates and with a
    derivative of 0).

    >>> foot = PlanePoint(normal=(0.0, 0.0, 1.0))
    >>> T = Pose.translation([1.0, 2.0, 0.5])
    >>> print(foot.coordinates(T)[:2], foot.distances(T))  # place on the plane, height above it
    [1. 2.] [0.5]
    """

    normal: Numbers = Z
    dof: ClassVar[int] = 5
    batched: ClassVar[bool] = True

    def pose(self, q: Array) -> Pose:
        """Displacement by q[0] along u and q[1] along v, rotation vector q[2:]."""
        normal = jnp.asarray(self.normal, q.dtype)
        u, v = basis(direction(normal.reshape(normal.shape + (1,) * (q.ndim - normal.ndim))))
        return Pose.from_rotation_vector(q[2:], q[0][None] * u + q[1][None] * v)

    def coordinates(self, T: Pose, q: Array | None = None, t=0.0) -> Array:
        """Distances within the plane and rotation vector, the latter continued from q."""
        u, v = basis(unit_axis(self.normal, T))
        r = quat_to_rotation_vector(T.q)
        r = r if q is None else unwrap_rotation_vector(r, q[2:])
        return jnp.concatenate([jnp.stack([dot(u, T.p), dot(v, T.p)]), r], axis=0)

    def rows(self, T: Pose, q: Array, t: Array) -> CouplingRows:
        q = self.coordinates(T, q)
        normal = unit_axis(self.normal, T)
        forces = (along(T.rotate_inverse(x)) for x in (normal, *basis(normal)))
        rates = so3_right_jacobian_inverse(q[2:])
        W = stack_rows(*forces, *(about(rates[i]) for i in range(3)))
        error = dot(normal, T.p)[None]
        return CouplingRows(W, error, q, jnp.zeros_like(error))

    def check(self) -> str | None:
        return check_axis("normal", self.normal)

    def normalized(self) -> "PlanePoint":
        return replace(self, normal=direction(self.normal))


@struct
class SegmentedPlanePoint(Coupling):
    """C's origin stays on a surface of flat strips, and C turns freely.

    C is fixed on the child body, D on the parent body. The strips are a polyline in the x–z plane
    of D, extruded along y. The first and the last strip extend without end.

    q[0]: length along the polyline from its first corner [m], zero there, positive towards the
        other corners
    q[1]: position of C's origin along y of D [m], zero at D's origin
    q[2:]: rotation vector of C in D [rad], zero where the axes of C and D are parallel, positive by
        the right-hand rule, as in `Ball`

    Row: the force along the normal (-dz, 0, dx) of the strip nearest to C's origin, for a strip
    that runs along (dx, 0, dz). The normal is z of D where the strip runs along x. The error is the
    height of C's origin above the plane of that strip [m], positive on the side of the normal. The
    surface is one-sided as `Released(SegmentedPlanePoint(…))` with `Limits(lower=0.0)`.

    A step sees the one strip that is nearest at its start. A point that runs through a concave
    corner in one step is stopped by the next strip a step later; where that matters, take one
    `Released(PlanePoint(…))` for each strip.

    At a convex corner there are points above no strip. They are projected on the plane of one
    strip: q[0] runs past the end of that strip, and `pose` takes it to the next strip.

    points: corners (x, z) of the polyline in order [m], at least 2, shape (m, 2)

    Source: ArtiSynth SegmentedPlanarCoupling (the same row, without coordinates and with a
    derivative of 0).

    >>> step = SegmentedPlanePoint([[0.0, 0.0], [1.0, 0.0], [1.0, 2.0]])  # a floor and a wall
    >>> print(step.pose(jnp.array([1.5, 0.0, 0.0, 0.0, 0.0])).p)  # 0.5 m up the wall
    [1.  0.  0.5]
    """

    points: Numbers
    dof: ClassVar[int] = 5

    def pose(self, q: Array) -> Pose:
        """Origin at the length q[0] of the polyline and at y = q[1], rotation vector q[2:]."""
        points, along_strip, lengths = self._strips(q.dtype)
        ends = jnp.cumsum(lengths)
        strip = jnp.sum(q[0] >= ends[:-1])
        point = points[strip] + (q[0] - ends[strip] + lengths[strip]) * along_strip[strip]
        return Pose.from_rotation_vector(q[2:], jnp.stack([point[0], q[1], point[1]]))

    def project(self, T: Pose, q: Array | None = None, t=0.0) -> tuple[Pose, Array]:
        """T with its origin moved onto the plane of the nearest strip, and the coordinates."""
        normal, height, _ = self._nearest(T)
        return Pose(T.p - height * normal, T.q), self.coordinates(T, q)

    def coordinates(self, T: Pose, q: Array | None = None, t=0.0) -> Array:
        """Length along the polyline, y, and rotation vector, the latter continued from q."""
        r = quat_to_rotation_vector(T.q)
        r = r if q is None else unwrap_rotation_vector(r, q[2:])
        _, _, length = self._nearest(T)
        return jnp.concatenate([jnp.stack([length, T.p[1]]), r])

    def rows(self, T: Pose, q: Array, t: Array) -> CouplingRows:
        q = self.coordinates(T, q)
        normal, height, _ = self._nearest(T)
        _, y, _ = axes(T)
        across = jnp.stack([normal[2], normal[1], -normal[0]])
        forces = (along(T.rotate_inverse(x)) for x in (normal, across, y))
        rates = so3_right_jacobian_inverse(q[2:])
        W = stack_rows(*forces, *(about(rates[i]) for i in range(3)))
        return CouplingRows(W, height[None], q, jnp.zeros_like(height)[None])

    def check(self) -> str | None:
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
        edges = points[1:] - points[:-1]
        lengths = jnp.sqrt(jnp.sum(edges * edges, axis=1))
        return points[:-1], edges / lengths[:, None], lengths

    def _nearest(self, T: Pose) -> tuple[Array, Array, Array]:
        """Normal of the nearest strip, height above its plane, and length along the polyline."""
        points, along_strip, lengths = self._strips(T.p.dtype)
        offset = jnp.stack([T.p[0], T.p[2]])[None] - points
        forward = jnp.sum(offset * along_strip, axis=1)
        beside = offset - jnp.clip(forward, 0.0, lengths)[:, None] * along_strip
        strip = jnp.argmin(jnp.sum(beside * beside, axis=1))
        x, z = along_strip[strip]
        height = x * offset[strip, 1] - z * offset[strip, 0]
        length = jnp.cumsum(lengths)[strip] - lengths[strip] + forward[strip]
        return jnp.stack([-z, jnp.zeros_like(x), x]), height, length


@struct
class FixedAxis(Coupling):
    """The y axis of C stays parallel to the x–y plane of D; C moves freely otherwise.

    C is fixed on the child body, D on the parent body. The orientation is that of a universal joint
    (roll about z of D, then pitch about y of C), and C's origin moves freely.

    q[:3]: position of C's origin in D [m], zero at D's origin, positive along x, y, z of D
    q[3]: roll about z of D [rad]
    q[4]: pitch about y of C [rad]
        Both angles are zero where the axes of C and D are parallel, positive by the right-hand rule
        about their axes, and count turns.

    Row: the moment about the common normal of the two rotation axes. The rows of the coordinates
    are the forces along x, y, z of D and the moments about z of D and y of C.

    Source: ArtiSynth FixedAxisCoupling (the same row; it keeps the origin of T_GD at 0, so its
    position always reads 0, and its error is the whole position).

    >>> T = FixedAxis().pose(jnp.array([1.0, 2.0, 3.0, jnp.pi / 2, 0.4]))  # roll by 90°, any pitch
    >>> print(T.p, T.rotate(jnp.array([0.0, 1.0, 0.0])).round(3) + 0.0)
    [1. 2. 3.] [-1.  0.  0.]
    """

    dof: ClassVar[int] = 5
    batched: ClassVar[bool] = True

    def pose(self, q: Array) -> Pose:
        """Position q[:3], roll q[3] about z of D, then pitch q[4] about y of C."""
        return Pose(q[:3], _ROLL_PITCH.pose(q[3:]).q)

    def coordinates(self, T: Pose, q: Array | None = None, t=0.0) -> Array:
        """Position, roll and pitch, the angles continued from q."""
        angles = _ROLL_PITCH.coordinates(T, None if q is None else q[3:])
        return jnp.concatenate([T.p, angles], axis=0)

    def rows(self, T: Pose, q: Array, t: Array) -> CouplingRows:
        turned = _ROLL_PITCH.rows(T, q[3:], t)
        q = jnp.concatenate([T.p, turned.q], axis=0)
        G = _ROLL_PITCH.pose(turned.q)
        forces = (along(G.rotate_inverse(x)) for x in axes(T))
        W = stack_rows(turned.W[3], *forces, turned.W[4], turned.W[5])
        error = turned.error[3:]
        return CouplingRows(W, error, q, jnp.zeros_like(error))


_ROLL_PITCH = Universal(axis_D=Z, axis_C=(0.0, 1.0, 0.0))
