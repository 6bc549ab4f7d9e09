"""Contacts: two bodies that touch in a point, for laws to act on; nothing is held otherwise."""

from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jax import Array

from ..algebra.pytree import struct
from ..algebra.spatial import Pose, basis, cross, dot, unit
from .coupling import Coupling, CouplingRows
from .shapes import Shape, Touch, candidates, no_gap_function, touch, wide
from .wrench import about, check_axis, stack_rows


class _Contact(Coupling):
    """Six coordinates, of which only the gap has a value: the others have speeds alone.

    0: the gap [m], along the normal n, which pushes C out of D
    1, 2: slip along the tangents t₁, t₂ = n × t₁ [m/s], of C's point at the contact against D's
    3, 4, 5: rolling about t₁ and t₂, spin about n [rad/s]
    """

    dof: ClassVar[int] = 6
    elementwise: ClassVar[bool] = True
    places_bodies: ClassVar[bool] = False

    def touch(self, T: Pose) -> tuple[Touch, Array]:
        """Where C and D touch at T = T_CD, and t₁ in D."""
        raise NotImplementedError

    def rows(self, T: Pose, q: Array, t: Array) -> CouplingRows:
        """See `Coupling.rows`; the rows of speeds are wrenches at the point of contact."""
        found, along = self.touch(T)
        arm = T.rotate_inverse(found.point - T.p)
        n, t1 = T.rotate_inverse(found.normal), T.rotate_inverse(along)
        t2 = cross(n, t1)

        def at_point(force):
            return jnp.concatenate(jnp.broadcast_arrays(force, cross(arm, force)), axis=0)

        W = stack_rows(at_point(n), at_point(t1), at_point(t2), about(t1), about(t2), about(n))
        gap = jnp.broadcast_to(found.gap, T.p.shape[1:])[None]
        none = jnp.zeros_like(T.p[:0])
        return CouplingRows(W, none, jnp.concatenate([gap, *[0 * gap] * 5]), none)


@struct
class Contact(_Contact):
    """Two shapes that may touch in one point, fixed to C and D: see `shapes.touch`.

    Coordinates: the gap of the surfaces [m], and speeds alone of slip along two tangents [m/s], of
    rolling about them and spin about the normal [rad/s], which read 0 as coordinates. On a
    half-space the tangents are x and y of D, otherwise they jump where the normal crosses the x–y
    plane of D. No bilateral rows: `Limits(lower=0.0)` on the gap keeps the bodies apart,
    `CoulombFriction` on the others resists; `contact_laws` makes them, `SystemBuilder.contact` all.

    Special values: where the axes of round shapes meet, the normal is their common normal, or x of
    D; between parallel axes the force acts half-way between their middles, or next to that where
    they face each other.

    shape_C, shape_D: a pair of `shapes.candidates`

    >>> from jaxjoints.couplings.shapes import HalfSpace, Sphere
    >>> ball = Contact(Sphere(radius=0.5), HalfSpace())
    >>> print(ball.coordinates(Pose.along_z(0.75)))
    [0.25 0.   0.   0.   0.   0.  ]
    """

    shape_C: Shape
    shape_D: Shape

    def touch(self, T: Pose) -> tuple[Touch, Array]:
        """See `_Contact.touch`."""
        found = touch(self.shape_C, self.shape_D, T)
        return found, basis(found.normal)[0]

    def check(self) -> str | None:
        """See `Coupling.check`."""
        for field in ("shape_C", "shape_D"):
            shape = getattr(self, field)
            if not isinstance(shape, Shape):
                return f"{field} {shape!r} is not a shape; give a record such as Sphere(0.1)"
            problem = shape.check()
            if problem:
                return f"{field}: {type(shape).__name__} {problem}"
        pairs = candidates(self.shape_C, self.shape_D)
        if pairs is None:
            return no_gap_function(self.shape_C, self.shape_D)
        if len(pairs) > 1:
            return (
                f"touches in {len(pairs)} points; use `SystemBuilder.contact`, which makes a joint "
                "for each"
            )
        return None


@struct
class ContactPoint(_Contact):
    """A contact whose geometry is given: by a collision detection, anew for each step.

    Points of both bodies that touch, or are nearest to each other; the gap is their distance along
    the normal, and moves with the bodies until other points are given by `System.with_joint`.
    Coordinates and laws as those of `Contact`; forces act at `point_C`.

    point_C, point_D: in C and D [m], shape (3,); C's lies in D where the gap is negative
    normal: out of D into C, in D, shape (3,), of any length but 0
    tangent: t₁ in D, of any length, not along the normal; by default some direction across it

    >>> foot = ContactPoint(point_C=(0.0, 0.0, -0.5))
    >>> print(foot.coordinates(Pose.along_z(0.75)))
    [0.25 0.   0.   0.   0.   0.  ]

    Source: the contact joint of ODE's manual.
    """

    point_C: Array = (0.0, 0.0, 0.0)
    point_D: Array = (0.0, 0.0, 0.0)
    normal: Array = (0.0, 0.0, 1.0)
    tangent: Array | None = None

    @classmethod
    def given(
        cls, T: Pose, point: Array, normal: Array, depth: Array, tangent: Array | None = None
    ) -> "ContactPoint":
        """The contact that a collision detection reports at the pose T = T_CD.

        point, normal, tangent: in D, shape (3, *b); normal of length 1
        depth: how far the bodies overlap [m], shape (*b)
        """
        away = point - T.p
        on_D = point + depth[None] * normal
        return cls(T.rotate_inverse(away), on_D, normal, tangent)

    def touch(self, T: Pose) -> tuple[Touch, Array]:
        """See `_Contact.touch`."""
        normal = unit(wide(self.normal, T))
        point = T.apply(wide(self.point_C, T))
        gap = dot(normal, point - wide(self.point_D, T))
        if self.tangent is None:
            return Touch(gap, point, normal), basis(normal)[0]
        tangent = wide(self.tangent, T)
        return Touch(gap, point, normal), unit(tangent - dot(normal, tangent)[None] * normal)

    def check(self) -> str | None:
        """See `Coupling.check`."""
        for field in ("point_C", "point_D"):
            if np.shape(getattr(self, field)) != (3,):
                return f"{field} has shape {np.shape(getattr(self, field))}; a point has 3"
        problem = check_axis("normal", self.normal)
        if problem or self.tangent is None:
            return problem
        problem = check_axis("tangent", self.tangent)
        if problem:
            return problem
        n, t = (np.asarray(x) / np.linalg.norm(x) for x in (self.normal, self.tangent))
        if np.linalg.norm(np.cross(n, t)) < 1e-6:
            return f"tangent {self.tangent} must not be along the normal; leave it out"
        return None
