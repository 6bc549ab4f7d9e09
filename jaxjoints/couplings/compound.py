"""Joints made of several axes in a row: wheels, slides that turn, and chains of any couplings."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..algebra.dense import product
from ..algebra.pytree import Numbers, expand_trailing, replace, struct
from ..algebra.spatial import Pose, adjoint_inverse
from .coupling import Chart, Coupling, motion_of
from .linear import Slider, Translation
from .nonholonomic import extra_rows
from .rigid import Fixed
from .rotary import Hinge, Universal
from .wrench import check_axis, check_length, check_not_parallel, direction

X = (1.0, 0.0, 0.0)
Y = (0.0, 1.0, 0.0)
Z = (0.0, 0.0, 1.0)
# Coordinates are dependent where a singular value of S is below this.
RANK = 1e-4


@struct
class Hinge2(Chart):
    """Suspended and steered wheel: C slides along and turns about `axis_D`, then about `axis_C`.

    C is fixed on the child body, the wheel; D is fixed on the parent body, the chassis.

    q[0]: travel of the suspension along axis_D, which is fixed in D [m]
    q[1]: steering angle about axis_D [rad]
    q[2]: angle of the wheel about axis_C, which is fixed in C [rad]
        All are zero where C and D coincide. A positive travel is in the direction of axis_D;
        positive angles are by the right-hand rule about their axes. The angles count turns.

    The suspension is a law on coordinate 0: a `SpringDamper`, or `Lock(0.0, erp, cfm)` with ODE's
    numbers. Without a law the wheel slides freely. Stops and motors act on coordinates 1 and 2.

    axis_D: direction in D, of any length but 0, shape (3,)
    axis_C: direction in C, of any length but 0, not parallel to axis_D, shape (3,)

    Source: ODE hinge-2 (axis 1 in body 1, the chassis; axis 2 in body 2, the wheel). In ODE the
    suspension is a soft bilateral row and its travel is no coordinate; the error of the angle
    between the axes is measured by its sine; stops of the wheel's angle have no effect. Here that
    error is the angle itself, and laws act on all coordinates. Both agree on the surface, except
    for motors where the cosine c of the axes is not 0: ODE drives the components of the angular
    velocity along the axes, q̇[2] + c q̇[1] of the wheel and q̇[1] + c q̇[2] of the steering, and not
    q̇[2] and q̇[1]; with c = 0.196 and steering at 0.93 rad/s the wheel's differ by 0.18 rad/s.

    >>> wheel = Hinge2(axis_D=(0.0, 0.0, 1.0), axis_C=(0.0, 1.0, 0.0))
    >>> T = wheel.pose(jnp.array([0.25, jnp.pi / 2, 1.0]))  # travel, steered left, rolled
    >>> print(T.p, T.rotate(jnp.array([0.0, 1.0, 0.0])).round(3) + 0.0)  # centre and axle
    [0.   0.   0.25] [-1.  0.  0.]
    """

    axis_D: Numbers = Z
    axis_C: Numbers = Y
    dof: ClassVar[int] = 3
    batched: ClassVar[bool] = True
    regular: ClassVar[bool] = True

    def pose(self, q: Array) -> Pose:
        """Travel q[0], steering angle q[1], wheel angle q[2]."""
        strut = Pose.along(self.axis_D, q[0]) @ Pose.about(self.axis_D, q[1])
        return strut @ Pose.about(self.axis_C, q[2])

    def check(self) -> str | None:
        return check_not_parallel(self, "axis_D", "axis_C", "use Cylindrical")

    def normalized(self) -> "Hinge2":
        return replace(self, axis_D=direction(self.axis_D), axis_C=direction(self.axis_C))


@struct
class PrismaticRotoide(Chart):
    """Prismatic–rotoide joint: C's origin slides along `axis_D`, and C turns about `axis_C`.

    C is fixed on the child body, D on the parent body. With axes at right angles this is a slotted
    hinge.

    q[0]: distance of C's origin from D's along axis_D [m]
    q[1]: angle of C in D about axis_C [rad], which counts turns
        Both are zero where C and D coincide. A positive distance is in the direction of axis_D, a
        positive angle is by the right-hand rule about axis_C.

    axis_D: direction of the slide in D, of any length but 0, shape (3,)
    axis_C: direction of the rotation axis in C, of any length but 0, not parallel to axis_D,
        shape (3,)

    Source: ODE prismatic-rotoide (body 1, which carries the slide, is D; body 2 is C). ODE's rows
    assume axes at right angles and block the slide of others; the rows here hold for any angle.
    Where ODE's body 1 is the world, its error has the wrong sign; between two bodies its moment on
    body 2 is not opposite to that on body 1. Neither fault is reproduced here.

    >>> crane = PrismaticRotoide(axis_D=(1.0, 0.0, 0.0), axis_C=(0.0, 0.0, 1.0))
    >>> print(crane.pose(jnp.array([2.0, jnp.pi / 2])).apply(jnp.array([1.0, 0.0, 0.0])).round(3))
    [2. 1. 0.]
    """

    axis_D: Numbers = X
    axis_C: Numbers = Z
    dof: ClassVar[int] = 2
    batched: ClassVar[bool] = True
    regular: ClassVar[bool] = True

    def pose(self, q: Array) -> Pose:
        """Displacement by q[0] along axis_D, then rotation by q[1] about axis_C."""
        return Pose.along(self.axis_D, q[0]) @ Pose.about(self.axis_C, q[1])

    def check(self) -> str | None:
        return check_not_parallel(self, "axis_D", "axis_C", "use Cylindrical")

    def normalized(self) -> "PrismaticRotoide":
        return replace(self, axis_D=direction(self.axis_D), axis_C=direction(self.axis_C))


@struct
class PrismaticUniversal(Chart):
    """Prismatic–universal joint: C's origin slides along `slide`, C turns on a universal joint.

    C is fixed on the child body, D on the parent body. The pose is a displacement along `slide`,
    followed by a rotation about `axis_D` and by one about `axis_C`, as in `Universal`.

    q[0]: distance of C's origin from D's along slide [m]
    q[1]: angle about axis_D [rad]
    q[2]: angle about axis_C [rad]
        All are zero where C and D coincide. A positive distance is in the direction of slide;
        positive angles are by the right-hand rule about their axes. The angles count turns.

    slide: direction in D, of any length but 0, shape (3,)
    axis_D: direction in D, of any length but 0, shape (3,)
    axis_C: direction in C, of any length but 0, not parallel to axis_D, shape (3,)

    Source: ODE prismatic-universal (body 1, which carries the slide and axis 1, is D; body 2 is
    C). ODE's rows neglect that the slide turns with its body, so they do work while it turns; and
    where body 1 is the world, ODE measures the slide in the wrong frame. The rows here are exact.
    While the slide turns across itself at ω, ODE's C leaves it sideways at q[0] ω, until feedback
    holds it q[0] ω dt / erp beside it: 1.8 mm at 0.04 m, 0.9 rad/s, 10 ms and an ERP of 0.2.

    >>> mast = PrismaticUniversal(
    ...     slide=(0.0, 0.0, 1.0), axis_D=(1.0, 0.0, 0.0), axis_C=(0.0, 1.0, 0.0)
    ... )
    >>> T = mast.pose(jnp.array([3.0, jnp.pi / 2, 0.0]))  # 3 m up, then y turned to z
    >>> print(T.apply(jnp.array([0.0, 1.0, 0.0])).round() + 0.0)
    [0. 0. 4.]
    """

    slide: Numbers = Z
    axis_D: Numbers = X
    axis_C: Numbers = Y
    dof: ClassVar[int] = 3
    batched: ClassVar[bool] = True
    regular: ClassVar[bool] = True

    def pose(self, q: Array) -> Pose:
        """Displacement q[0] along the slide, angle q[1] about axis_D, q[2] about axis_C."""
        turned = Pose.about(self.axis_D, q[1]) @ Pose.about(self.axis_C, q[2])
        return Pose.along(self.slide, q[0]) @ turned

    def check(self) -> str | None:
        return check_axis("slide", self.slide) or check_not_parallel(
            self, "axis_D", "axis_C", "use PrismaticRotoide or Cylindrical"
        )

    def normalized(self) -> "PrismaticUniversal":
        return replace(
            self,
            slide=direction(self.slide),
            axis_D=direction(self.axis_D),
            axis_C=direction(self.axis_C),
        )


@struct
class DoubleHinge(Chart):
    """Two hinges with parallel axes on a massless rod.

    C is fixed on the child body, D on the parent body. Their z axes stay parallel, and their
    origins stay in one plane normal to z at the distance `length`.

    q[0]: angle of the rod in D about z, from the x axis of D [rad]
    q[1]: angle of C relative to the rod about z [rad]
        Both are zero where C's origin is at (length, 0, 0) in D and the axes are parallel. Both are
        positive by the right-hand rule about z, and count turns.

    length: of the rod, > 0 [m]

    Source: ODE double hinge. ODE measures the distance of the anchors in space, which includes the
    offset along the axes that another row brings to 0. Both agree on the surface; at an offset z
    ODE's distance is longer by √(length² + z²) - length ≈ z² / (2 length), 3 mm for 60 mm at 0.6 m.

    >>> rod = DoubleHinge(length=2.0)
    >>> T = rod.pose(jnp.array([jnp.pi / 2, -jnp.pi / 2]))  # the rod along y, C as D
    >>> print(T.apply(jnp.array([1.0, 0.0, 0.0])).round(3) + 0.0)
    [1. 2. 0.]
    """

    length: Numbers
    dof: ClassVar[int] = 2
    batched: ClassVar[bool] = True
    regular: ClassVar[bool] = True

    def pose(self, q: Array) -> Pose:
        """The rod turned by q[0] about z of D, C by q[1] about its other end."""
        return Pose.about_z(q[0]) @ Pose.along_x(self.length) @ Pose.about_z(q[1])

    def check(self) -> str | None:
        return check_length("length", self.length, "use Hinge for axes that coincide")


@struct
class Reversed(Chart):
    """The coupling `of` with its frames exchanged: the parent carries its C, the child its D.

    The pose is the inverse of that of `of`. It serves joints whose ends differ, such as a
    `PrismaticRotoide` whose slide moves with the child and whose axis stands in the world.

    q: the coordinates of `of`, with the same zero and units. Positive directions are those of `of`,
        for the parent relative to the child: a child that turns by the right-hand rule lowers the
        angle of a `Reversed(Hinge())`.

    of: a coupling without rows at velocity or acceleration level

    >>> print(Reversed(Slider()).pose(jnp.array([2.0])).p + 0.0)
    [ 0.  0. -2.]
    >>> q = jnp.array([2.0, jnp.pi / 2])  # the slide turns with the child
    >>> print(Reversed(PrismaticRotoide(axis_D=X, axis_C=Z)).pose(q).p.round(3) + 0.0)
    [0. 2. 0.]
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
        """Inverse of the pose of `of`."""
        return self.of.pose(q).inverse()

    def units(self) -> tuple[str, ...]:
        return self.of.units()

    def check(self) -> str | None:
        return check_holonomic("of", self.of)

    def normalized(self) -> "Reversed":
        return Reversed(self.of.normalized())


@struct
class Chain(Chart):
    """Two couplings in a row without a body between them.

    D is fixed on the parent body and is the D of `first`; C is fixed on the child body and is the C
    of `second`: T_CD = first.pose(q[:k]) @ between @ second.pose(q[k:]), with k coordinates of
    `first`. For three in a row write `Chain(a, Chain(b, c))`. A coupling that depends on time is
    taken at time 0.

    q: the coordinates of `first`, then those of `second`, each with its zero, positive direction
        and unit. There are at most six, which must move C independently. Laws may act on any.

    first, second: couplings without rows at velocity or acceleration level
    between: pose of the D of `second` in the C of `first`; None where the two frames coincide

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

    @property
    def batched(self) -> bool:
        """See `Coupling`: where both are."""
        return self.first.batched and self.second.batched

    @property
    def regular(self) -> bool:
        """See `Coupling`: of sliders and hinges, all sliders first or one at most, and then two
        hinges at most. Others have coordinates in which C cannot move in all `dof` ways.
        """
        freedoms = _freedoms(self)
        sliders_first = "RT" not in freedoms or freedoms.count("T") == 1
        return "?" not in freedoms and freedoms.count("R") <= 2 and sliders_first

    def pose(self, q: Array) -> Pose:
        """Product of the pose of `first`, `between`, and the pose of `second`."""
        k = self.first.dof
        return self.first.pose(q[:k]) @ self._rest(q[k:])

    def motion_at(self, q: Array) -> Array:
        """The motion of `first`, carried along by `between` and `second`, and that of `second`."""
        k = self.first.dof
        carried = adjoint_inverse(self._rest(q[k:]))
        along = product(carried, motion_of(self.first.pose, q[:k]))
        return jnp.concatenate([along, motion_of(self.second.pose, q[k:])], axis=1)

    def _rest(self, q: Array) -> Pose:
        """Pose of C in the C of `first`; q: coordinates of `second`."""
        pose = self.second.pose(q)
        if self.between is None:
            return pose
        between = jax.tree.map(lambda x: expand_trailing(x, 1, q.ndim - 1), self.between)
        return between.normalized() @ pose

    def units(self) -> tuple[str, ...]:
        return self.first.units() + self.second.units()

    def check(self) -> str | None:
        problem = check_holonomic("first", self.first) or check_holonomic("second", self.second)
        if problem:
            return problem
        if self.dof > 6:
            return (
                f"has {self.first.dof} + {self.second.dof} coordinates; C has 6 ways to move, so "
                "put a body between them"
            )
        if self.between is not None and not np.linalg.norm(np.asarray(self.between.q)) > 0.5:
            return f"between has the quaternion {np.asarray(self.between.q).tolist()}; make it unit"
        rank = max(np.linalg.matrix_rank(S, tol=RANK) for S in np.asarray(_motion_subspaces(self)))
        if rank < self.dof:
            return (
                f"has {self.dof} coordinates that move C in {rank} ways only: some of "
                f"{type(self.first).__name__} do what others of {type(self.second).__name__} do"
            )
        return None

    def normalized(self) -> "Chain":
        return replace(self, first=self.first.normalized(), second=self.second.normalized())


def check_holonomic(name: str, coupling: Any) -> str | None:
    """What is wrong with a coupling with constraints on poses alone, or None."""
    if not isinstance(coupling, Coupling):
        return f"{name} {coupling!r} is not a coupling"
    kind = f"{name} {type(coupling).__name__}"
    if extra_rows(coupling):
        return f"{kind} forbids velocities, which would be lost; join the bodies by it directly"
    problem = coupling.check()
    return problem and f"{kind} {problem}"


@jax.jit
def _motion_subspaces(chain: Chain) -> Array:
    """S where the coordinates are zero and at two other configurations, shape (3, 6, k)."""
    leaves = jax.tree.leaves(chain)
    dtype = leaves[0].dtype if leaves else jnp.zeros(()).dtype
    directions = 0.3 * jnp.sin(jnp.arange(3.0 * chain.dof, dtype=dtype) ** 2).reshape(3, chain.dof)
    configurations = directions * jnp.arange(3.0, dtype=dtype)[:, None]
    return jnp.stack([chain.motion_at(q) for q in configurations])


def _freedoms(coupling: Coupling) -> str:
    """A T for each axis along which a coupling slides and an R for each about which it turns, in
    their order; ? for a coupling that is not made of these.
    """
    if isinstance(coupling, Chain):
        return _freedoms(coupling.first) + _freedoms(coupling.second)
    known = {Fixed: "", Slider: "T", Translation: "TTT", Hinge: "R", Universal: "RR"}
    return known.get(type(coupling), "?")
