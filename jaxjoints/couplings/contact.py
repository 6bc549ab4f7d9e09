"""Contacts: two bodies that may touch in a point, with coordinates on which laws act."""

from abc import abstractmethod
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jax import Array

from ..algebra.pytree import Numbers, struct
from ..algebra.spatial import Pose, basis, cross, dot, unit
from .coupling import Coupling, CouplingRows
from .shapes import Shape, Touch, candidates, no_gap_function, touch, wide
from .wrench import about, check_axis, stack_rows


class _Contact(Coupling):
    """A contact: no bilateral rows, and six coordinates of which only the gap has a value.

    The other five are 0 and have speeds alone, because the path of the contact point over a body is
    not a function of the pose.

    q[0]: gap [m]; its row is a unit force at the contact point along the normal n out of D
    q[1], q[2]: speeds are the slip of C's point relative to D's along t₁ and t₂ = n × t₁ [m/s]
    q[3], q[4], q[5]: speeds are the angular velocity about t₁, t₂ (rolling) and n (spin) [rad/s]
    """

    dof: ClassVar[int] = 6
    batched: ClassVar[bool] = True
    places_bodies: ClassVar[bool] = False

    @abstractmethod
    def touch(self, T: Pose) -> tuple[Touch, Array]:
        """Gap, point and normal at the pose T = T_CD, and the tangent t₁ in D."""

    def pose(self, q: Array) -> Pose:
        """Raises: the coordinates of a contact do not determine a pose (`places_bodies`)."""
        raise NotImplementedError(
            f"the coordinates of a {type(self).__name__} do not determine a pose: five of them are "
            "speeds alone"
        )

    def rows(self, T: Pose, q: Array, t: Array) -> CouplingRows:
        """See `Coupling.rows`. All rows are wrenches at the contact point."""
        contact, tangent = self.touch(T)
        arm = T.rotate_inverse(contact.point - T.p)
        n, t1 = T.rotate_inverse(contact.normal), T.rotate_inverse(tangent)
        t2 = cross(n, t1)

        def at_point(force):
            return jnp.concatenate(jnp.broadcast_arrays(force, cross(arm, force)), axis=0)

        W = stack_rows(at_point(n), at_point(t1), at_point(t2), about(t1), about(t2), about(n))
        gap = jnp.broadcast_to(contact.gap, T.p.shape[1:])[None]
        none = jnp.zeros_like(T.p[:0])
        return CouplingRows(W, none, jnp.concatenate([gap, *[0 * gap] * 5]), none)


@struct
class Contact(_Contact):
    """Contact of two shapes that may touch in one point, such as a sphere and a half-space.

    C is fixed on the child body and places shape_C, D is fixed on the parent body and places
    shape_D. There are no bilateral rows. `Limits(lower=0.0)` on coordinate 0 keeps the bodies apart
    and `CoulombFriction` on the others resists; `contact_laws` makes these laws, and
    `SystemBuilder.contact` makes the joints of any two shapes with them.

    The normal n points out of shape_D into shape_C. The tangents are t₁ and t₂ = n × t₁.

    q[0]: gap between the surfaces [m], zero where they touch, positive where they are apart,
        negative where they overlap
    q[1], q[2]: always 0; their speeds are the slip along t₁ and t₂ [m/s], positive where C's point
        moves in the direction of the tangent relative to D's
    q[3], q[4], q[5]: always 0; their speeds are the angular velocity of C relative to D about t₁
        and t₂ (rolling) and about n (spin) [rad/s], positive by the right-hand rule

    If shape_D is a half-space, t₁ and t₂ are x and y of D. On other shapes they jump where the
    normal crosses the x–y plane of D. Where the axes of two round shapes intersect, the normal is
    the common normal of the axes, or x of D. Between parallel axes the force acts half-way between
    their middles, or as near to that as the segments face each other.

    shape_C, shape_D: two shapes with one pair of `shapes.candidates`

    >>> from jaxjoints.couplings.shapes import HalfSpace, Sphere
    >>> ball = Contact(Sphere(radius=0.5), HalfSpace())
    >>> print(ball.coordinates(Pose.along_z(0.75)))
    [0.25 0.   0.   0.   0.   0.  ]
    """

    shape_C: Shape
    shape_D: Shape

    def touch(self, T: Pose) -> tuple[Touch, Array]:
        """See `_Contact.touch`."""
        contact = touch(self.shape_C, self.shape_D, T)
        return contact, basis(contact.normal)[0]

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
    """Contact whose points and normal are parameters, set in each step by a collision detection.

    C is fixed on the child body, D on the parent body. point_C and point_D are the points of the
    two bodies where they touch or are nearest to each other. The gap is the distance of these
    points along the normal; it changes with the motion of the bodies until `System.with_joint` sets
    other points. Contact forces act at `point_C`.

    q: as in `Contact`. The gap [m] is zero where point_C lies in the plane through point_D normal
        to `normal`, and positive on the side to which the normal points.

    point_C: in C [m], shape (3,)
    point_D: in D [m], shape (3,)
    normal: direction out of D into C, in D, of any length but 0, shape (3,)
    tangent: direction of t₁ in D, of any length, not along the normal, shape (3,); its part along
        the normal is removed. None for an arbitrary direction normal to `normal`.

    >>> foot = ContactPoint(point_C=(0.0, 0.0, -0.5))
    >>> print(foot.coordinates(Pose.along_z(0.75)))
    [0.25 0.   0.   0.   0.   0.  ]

    Source: the contact joint of ODE's manual.
    """

    point_C: Numbers = (0.0, 0.0, 0.0)
    point_D: Numbers = (0.0, 0.0, 0.0)
    normal: Numbers = (0.0, 0.0, 1.0)
    tangent: Array | None = None

    @classmethod
    def from_detection(
        cls, T: Pose, point: Array, normal: Array, depth: Array, tangent: Array | None = None
    ) -> "ContactPoint":
        """Contact that a collision detection reports at the pose T = T_CD.

        point: point of the child body at the contact, in D [m], shape (3, *b)
        normal: unit vector out of D into C, in D, shape (3, *b)
        depth: overlap of the bodies [m], positive where they overlap, shape (*b)
        tangent: direction of t₁ in D, shape (3, *b)
        """
        offset = point - T.p
        point_D = point + depth[None] * normal
        return cls(T.rotate_inverse(offset), point_D, normal, tangent)

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
