"""Joints made of several axes on one body: wheels, slides that turn, chains of any two."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..algebra.pytree import replace, struct
from ..algebra.spatial import Pose
from .coupling import Chart, Coupling
from .nonholonomic import extra_rows
from .wrench import check_axis, check_length, check_not_parallel, direction

X = (1.0, 0.0, 0.0)
Y = (0.0, 1.0, 0.0)
Z = (0.0, 0.0, 1.0)
# Singular values of S below which coordinates count as dependent.
RANK = 1e-4


@struct
class Hinge2(Chart):
    """A wheel on a steered, sprung strut: C slides along and turns about `axis_D`, then about
    `axis_C`.

    Three coordinates: the travel of the suspension [m] along and the steering angle [rad] about
    axis_D, fixed in D (the chassis), and the wheel's angle [rad] about axis_C, fixed in C (the
    wheel). The suspension is a law on coordinate 0: a `SpringDamper`, or `Lock(0.0, erp, cfm)`
    with ODE's numbers; without one the wheel slides freely. Stops and motors go on 1 and 2.

    axis_D, axis_C: directions of any length but 0, not parallel, shape (3,)

    Source: ODE hinge-2 (axis 1 in body 1, the chassis; axis 2 in body 2, the wheel). There the
    suspension is one soft row among the bilateral ones, its travel is not a coordinate, the angle
    between the axes enters by its sine, and stops of the wheel's angle are ignored; here the
    angle enters as itself and every coordinate takes every law. Both agree on the surface.
    """

    axis_D: Array = Z
    axis_C: Array = Y
    dof: ClassVar[int] = 3

    def pose(self, q: Array) -> Pose:
        """Travel q[0], steering angle q[1], wheel angle q[2]."""
        strut = Pose.along(self.axis_D, q[0]) @ Pose.about(self.axis_D, q[1])
        return strut @ Pose.about(self.axis_C, q[2])

    def check(self) -> str | None:
        """See `Coupling.check`."""
        return check_not_parallel(self, "axis_D", "axis_C", "use Cylindrical")

    def normalized(self) -> "Hinge2":
        """See `Coupling.normalized`."""
        return replace(self, axis_D=direction(self.axis_D), axis_C=direction(self.axis_C))


@struct
class PrismaticRotoide(Chart):
    """C slides along `axis_D`, then turns about `axis_C`; a distance [m] and an angle [rad].

    With axes at right angles this is a slotted hinge.

    axis_D: of the slide, fixed in D; axis_C: of the turn, fixed in C; directions of any length but
        0, not parallel, shape (3,)

    Source: ODE prismatic-rotoide (body 1, which carries the slide, is D; body 2 is C). ODE's rows
    take the axes to be at right angles and block the slide where they are not; here any angle
    does. ODE's joint of the world with a body (in this order) is wrong in the sign of its error,
    and between two bodies its moment on body 2 is not the reaction to that on body 1; neither is
    followed.
    """

    axis_D: Array = X
    axis_C: Array = Z
    dof: ClassVar[int] = 2

    def pose(self, q: Array) -> Pose:
        """Displacement by q[0] along axis_D, then rotation by q[1] about axis_C."""
        return Pose.along(self.axis_D, q[0]) @ Pose.about(self.axis_C, q[1])

    def check(self) -> str | None:
        """See `Coupling.check`."""
        return check_not_parallel(self, "axis_D", "axis_C", "use Cylindrical")

    def normalized(self) -> "PrismaticRotoide":
        """See `Coupling.normalized`."""
        return replace(self, axis_D=direction(self.axis_D), axis_C=direction(self.axis_C))


@struct
class PrismaticUniversal(Chart):
    """C slides along `slide`, then turns about `axis_D`, then about `axis_C`.

    Three coordinates: a distance [m] and two angles [rad].

    slide, axis_D: fixed in D (axis_D is carried along); axis_C: fixed in C; directions of any
        length but 0, shape (3,); axis_D and axis_C not parallel

    Source: ODE prismatic-universal (body 1, which carries the slide and axis 1, is D; body 2 is
    C). ODE's rows neglect that the slide's direction turns with its body, so they do work while
    it turns, and its joint of the world with a body (in this order) reads the slide in the wrong
    frame; here rows are exact and the order does not matter.
    """

    slide: Array = Z
    axis_D: Array = X
    axis_C: Array = Y
    dof: ClassVar[int] = 3

    def pose(self, q: Array) -> Pose:
        """Displacement q[0] along the slide, angle q[1] about axis_D, q[2] about axis_C."""
        turned = Pose.about(self.axis_D, q[1]) @ Pose.about(self.axis_C, q[2])
        return Pose.along(self.slide, q[0]) @ turned

    def check(self) -> str | None:
        """See `Coupling.check`."""
        return check_axis("slide", self.slide) or check_not_parallel(
            self, "axis_D", "axis_C", "use PrismaticRotoide or Cylindrical"
        )

    def normalized(self) -> "PrismaticUniversal":
        """See `Coupling.normalized`."""
        return replace(
            self,
            slide=direction(self.slide),
            axis_D=direction(self.axis_D),
            axis_C=direction(self.axis_C),
        )


@struct
class DoubleHinge(Chart):
    """Two hinges with parallel axes on a massless rod: z of C stays parallel to z of D, their
    origins in one plane normal to z at a distance `length`.

    Two angles [rad]: of the rod in D, from x, and of C against the rod; zero where C stands at
    (length, 0, 0) in D with equal axes.

    length: of the rod, > 0 [m]

    Source: ODE double hinge. ODE measures the distance between the anchors in space, also
    along the axes, where a second row brings it to 0; both agree on the surface.
    """

    length: Array
    dof: ClassVar[int] = 2

    def pose(self, q: Array) -> Pose:
        """The rod turned by q[0] about z of D, C by q[1] about its other end."""
        return Pose.about_z(q[0]) @ Pose.along_x(self.length) @ Pose.about_z(q[1])

    def check(self) -> str | None:
        """See `Coupling.check`."""
        return check_length("length", self.length, "use Hinge for axes that coincide")


@struct
class Reversed(Chart):
    """The joint `of` with child and parent exchanged: C takes the part of its D, D that of its C.

    The same coordinates, the inverse pose. For joints whose ends differ (a PrismaticRotoide whose
    slide moves with the child and whose axis stands in the world) and whose other end cannot be
    the child.

    of: a coupling given by its poses
    """

    of: Coupling

    @property
    def dof(self) -> int:
        """Number of coordinates."""
        return self.of.dof

    def pose(self, q: Array) -> Pose:
        """The inverse of the other joint's pose."""
        return self.of.pose(q).inverse()

    def check(self) -> str | None:
        """See `Coupling.check`."""
        return check_given_by_poses("of", self.of)

    def normalized(self) -> "Reversed":
        """See `Coupling.normalized`."""
        return Reversed(self.of.normalized())


@struct
class Chain(Chart):
    """Two couplings in a row without a body between: T_CD = T_second, within T_first.

    T = first.pose(q[:k]) @ between @ second.pose(q[k:]): `first` is fixed to D (the parent),
    `second` to C (the child). The coordinates of `first`, then those of `second`, with their units;
    laws on any. Three in a row: `Chain(a, Chain(b, c))`. At most six coordinates together, which
    must move C independently. Couplings that depend on time are held at time 0.

    between: pose of the second coupling's D in the first one's C, any form of a `Pose`; None where
        they coincide

    >>> from jaxjoints import Hinge, Slider
    >>> arm = Chain(Hinge(), Slider((1.0, 0.0, 0.0)))
    >>> print(arm.pose(jnp.array([jnp.pi / 2, 2.0])).p.round(3) + 0.0)
    [0. 2. 0.]
    """

    first: Coupling
    second: Coupling
    between: Pose | None = None

    @property
    def dof(self) -> int:
        """Number of coordinates of both."""
        return self.first.dof + self.second.dof

    def pose(self, q: Array) -> Pose:
        """The first one's pose, the pose between, the second one's pose."""
        k = self.first.dof
        near = self.first.pose(q[:k])
        if self.between is not None:
            near = near @ self.between.normalized()
        return near @ self.second.pose(q[k:])

    def check(self) -> str | None:
        """See `Coupling.check`."""
        problem = check_given_by_poses("first", self.first) or check_given_by_poses(
            "second", self.second
        )
        if problem:
            return problem
        if self.dof > 6:
            return (
                f"has {self.first.dof} + {self.second.dof} coordinates; C has 6 ways to move, so "
                "put a body between them"
            )
        if self.between is not None and not np.linalg.norm(np.asarray(self.between.q)) > 0.5:
            return f"between has the quaternion {np.asarray(self.between.q).tolist()}; make it unit"
        rank = max(np.linalg.matrix_rank(S, tol=RANK) for S in np.asarray(_motions(self)))
        if rank < self.dof:
            return (
                f"has {self.dof} coordinates that move C in {rank} ways only: some of "
                f"{type(self.first).__name__} do what others of {type(self.second).__name__} do"
            )
        return None

    def normalized(self) -> "Chain":
        """See `Coupling.normalized`."""
        return replace(self, first=self.first.normalized(), second=self.second.normalized())


def check_given_by_poses(name: str, coupling: Any) -> str | None:
    """What is wrong with a field whose poses alone are used, or None."""
    if not isinstance(coupling, Coupling):
        return f"{name} {coupling!r} is not a coupling"
    kind = f"{name} {type(coupling).__name__}"
    if extra_rows(coupling):
        return f"{kind} forbids velocities, which would be lost; join the bodies by it directly"
    problem = coupling.check()
    return problem and f"{kind} {problem}"


@jax.jit
def _motions(chain: Chain) -> Array:
    """S at rest and at some other coordinates, shape (n, 6, k)."""
    leaves = jax.tree.leaves(chain)
    dtype = leaves[0].dtype if leaves else jnp.zeros(()).dtype
    places = 0.3 * jnp.sin(jnp.arange(3.0 * chain.dof, dtype=dtype) ** 2).reshape(3, chain.dof)
    return jnp.stack([chain.motion_at(q) for q in places * jnp.arange(3.0, dtype=dtype)[:, None]])
