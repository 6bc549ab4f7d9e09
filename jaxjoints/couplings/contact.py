"""Contacts: where two bodies may touch in a point, and the directions along which laws act."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jax import Array

from ..algebra.pytree import Numbers, struct
from ..algebra.spatial import Pose, basis, cross, dot, unit
from .shapes import Shape, Touch, candidates, no_gap_function, touch, wide
from .wrench import check_axis

# What laws of a contact act along, by `Law.coordinate`: the normal n, where the gap is; slip along
# the tangents t₁ and t₂; rolling about these; spin about the normal.
NORMAL, SLIP, ROLL, SPIN = 0, (1, 2), (3, 4), 5
DIRECTIONS = 6
# The edges n + μ t₁, n - μ t₁, n + μ t₂ and n - μ t₂ of a pyramid of friction, for rows of the
# solver alone: by edge the tangent and its sign.
EDGES = {6: (SLIP[0], 1), 7: (SLIP[0], -1), 8: (SLIP[1], 1), 9: (SLIP[1], -1)}
# z of the normal across which tangents jump: off the normals of a box, and of a wall.
TANGENTS_JUMP = -0.7


@struct
class ContactFrame:
    """A contact in the axes of some frame, arrays (…, *batch).

    gap: between the surfaces [m], negative where they overlap
    point: where the forces act [m]; normal, tangent: n out of the parent into the child, and t₁,
        unit vectors; t₂ = n × t₁
    """

    gap: Array
    point: Array
    normal: Array
    tangent: Array

    def seen_from(self, T: Pose) -> "ContactFrame":
        """The contact in the frame in which its own has the pose T."""
        return ContactFrame(
            self.gap, T.apply(self.point), T.rotate(self.normal), T.rotate(self.tangent)
        )

    def wrenches(self, directions: Sequence[int], friction: Array | None = None) -> Array:
        """Wrenches of unit forces on the child along some directions, moments about the origin,
        shape (6, directions, *batch).

        friction: μ of the `EDGES`, (*batch); None where they are not among the directions
        """
        n, t1 = jnp.broadcast_arrays(self.normal, self.tangent)
        t2, none = cross(n, t1), jnp.zeros_like(n)
        axes = {NORMAL: n, SPIN: n} | dict(zip((*SLIP, *ROLL), (t1, t2, t1, t2), strict=True))

        def wrench(k):
            if k in EDGES:
                tangent, sign = EDGES[k]
                return wrench(NORMAL) + sign * friction[None] * wrench(tangent)
            if k in (*ROLL, SPIN):
                return jnp.concatenate([none, axes[k]])
            return jnp.concatenate([axes[k], cross(self.point, axes[k])])

        return jnp.stack([wrench(k) for k in directions], axis=1)


class ContactGeometry(ABC):
    """Where two bodies may touch: base of `Contact` and `ContactPoint`, frozen records.

    A contact has no coordinates: the path of the contact point over a body is not a function of the
    pose. It has a gap, and six directions along which laws act, by their `coordinate`:

    0: the normal n out of D, at the contact point; its speed is the rate of the gap [m/s]
    1, 2: slip of C's point relative to D's along t₁ and t₂ = n × t₁ [m/s]
    3, 4, 5: angular velocity about t₁, t₂ (rolling) and n (spin) [rad/s]
    """

    @abstractmethod
    def touch(self, T: Pose) -> tuple[Touch, Array]:
        """Gap, point and normal at the pose T = T_CD, and the tangent t₁, in D; elementwise."""

    @abstractmethod
    def check(self) -> str | None:
        """What is wrong with the parameters (concrete numbers), as a sentence, or None."""

    def at(self, T: Pose) -> ContactFrame:
        """The contact at the pose T = T_CD, in C."""
        contact, tangent = self.touch(T)
        return ContactFrame(
            jnp.broadcast_to(contact.gap, T.p.shape[1:]),
            T.rotate_inverse(contact.point - T.p),
            *(T.rotate_inverse(x) for x in (contact.normal, tangent)),
        )


@struct
class Contact(ContactGeometry):
    """Contact of two shapes that may touch in one point, such as a sphere and a half-space.

    C is fixed on the child body and places shape_C, D is fixed on the parent body and places
    shape_D. `SystemBuilder.contact` makes all such contacts of any two shapes, with laws that keep
    the bodies apart and resist slip.

    The normal n points out of shape_D into shape_C. The tangents are t₁ and t₂ = n × t₁. The gap
    between the surfaces [m] is zero where they touch, positive where they are apart, negative where
    they overlap. Slip is positive where C's point moves in the direction of the tangent relative to
    D's, rolling and spin by the right-hand rule.

    If shape_D is a half-space, t₁ and t₂ are x and y of D. On other shapes they jump where z of the
    normal is -0.7. Where the axes of two round shapes intersect, the normal is the common normal of
    the axes, or x of D. Between parallel axes the force acts half-way between their middles, or as
    near to that as the segments face each other.

    The gap has kinks, and the point and the normal jump, where what is nearest changes: the faces,
    edges and corners of a box that a ball or a capsule meets; of two boxes the normal along which
    they overlap least, the two faces that face each other, and the sides of a face that an edge
    crosses; the triangles of a height field; the vertices of a mesh, and the lower disc of a
    cylinder. There values and derivatives are those of one side.

    shape_C, shape_D: two shapes with one pair of `shapes.candidates`

    >>> from jaxjoints.couplings.shapes import HalfSpace, Sphere
    >>> ball = Contact(Sphere(radius=0.5), HalfSpace())
    >>> print(ball.at(Pose.along_z(0.75)).gap)
    0.25
    """

    shape_C: Shape
    shape_D: Shape

    def touch(self, T: Pose) -> tuple[Touch, Array]:
        contact = touch(self.shape_C, self.shape_D, T)
        return contact, basis(contact.normal, TANGENTS_JUMP)[0]

    def check(self) -> str | None:
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
                f"touches in {len(pairs)} points; give both shapes to `SystemBuilder.contact`, "
                "which makes a contact for each"
            )
        return None


@struct
class ContactPoint(ContactGeometry):
    """Contact whose points and normal are parameters, set in each step by a collision detection.

    C is fixed on the child body, D on the parent body. point_C and point_D are the points of the
    two bodies where they touch or are nearest to each other. The gap is the distance of these
    points along the normal; it changes with the motion of the bodies until `System.with_contact`
    sets other points. Contact forces act at `point_C`.

    Let a point keep its contact while it touches: the solve starts from the forces of the last
    step, and they bound friction at first. Where the corners of a box that slides and turns change
    places at each step, its path of 0.12 m errs by 3 mm (steps of 5 ms).

    The gap [m] is zero where point_C lies in the plane through point_D normal to `normal`, and
    positive on the side to which the normal points.

    point_C: in C [m], shape (3,)
    point_D: in D [m], shape (3,)
    normal: direction out of D into C, in D, of any length but 0, shape (3,)
    tangent: direction of t₁ in D, of any length, not along the normal, shape (3,); its part along
        the normal is removed. None for an arbitrary direction normal to `normal`.

    >>> foot = ContactPoint(point_C=(0.0, 0.0, -0.5))
    >>> print(foot.at(Pose.along_z(0.75)).gap)
    0.25

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
        normal = unit(wide(self.normal, T))
        point = T.apply(wide(self.point_C, T))
        gap = dot(normal, point - wide(self.point_D, T))
        if self.tangent is None:
            return Touch(gap, point, normal), basis(normal, TANGENTS_JUMP)[0]
        tangent = wide(self.tangent, T)
        return Touch(gap, point, normal), unit(tangent - dot(normal, tangent)[None] * normal)

    def check(self) -> str | None:
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
