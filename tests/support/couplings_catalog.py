"""The couplings under test: one line in `CATALOG` and a coupling joins every property test."""

from dataclasses import dataclass
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxjoints.algebra.pytree import struct
from jaxjoints.algebra.spatial import Pose, norm
from jaxjoints.couplings import gimbal, planar
from jaxjoints.couplings.compound import Chain, DoubleHinge, PrismaticUniversal
from jaxjoints.couplings.coupling import Chart, Coupling, Derived, Residual
from jaxjoints.couplings.curve import PointOnCurve, PointOnLevelSet, PointOnSurface
from jaxjoints.couplings.distance import DoubleBall, Rope
from jaxjoints.couplings.ellipsoid import Ellipsoid, Ellipsoid3
from jaxjoints.couplings.function_driven import FunctionDriven
from jaxjoints.couplings.functions import Constant, Function, Linear, Polynomial, Spline, Sum
from jaxjoints.couplings.gear import BevelGear, SpurGear
from jaxjoints.couplings.linear import Cylindrical, Slider, Translation
from jaxjoints.couplings.motor import AngularMotor, LinearMotor
from jaxjoints.couplings.released import Released
from jaxjoints.couplings.rigid import Fixed, Free, FreeRodrigues
from jaxjoints.couplings.rolling import RollingDisc, RollingSphere
from jaxjoints.couplings.rotary import Ball, ConstantVelocity, Hinge, Universal
from jaxjoints.couplings.spherical import BallRotation
from jaxjoints.couplings.surface import FixedAxis, PlanePoint, SegmentedPlanePoint

EZ = jnp.array([0.0, 0.0, 1.0])


@dataclass(frozen=True)
class Entry:
    """A coupling and the part of it that is tested.

    reach: half-widths of the range from which coordinates are drawn
    middle: middle of that range, 0 if not given
    turning: the coordinate that counts turns, if there is one
    singular: coordinates where the poses or their rates degenerate
    """

    coupling: Coupling
    reach: tuple[float, ...]
    turning: int | None = None
    singular: tuple[tuple[float, ...], ...] = ()
    middle: tuple[float, ...] = ()


@struct
class Screw(Chart):
    """The example of `Chart`: C turns about and advances along z of D by `pitch` [m/rad]."""

    pitch: Array
    dof: ClassVar[int] = 1

    def pose(self, q):
        return Pose.about_z(q[0]) @ Pose.along_z(self.pitch * q[0])


@struct
class SlottedHinge(Chart):
    """C turns about z while its origin slides along x of D: the slot turns in C."""

    dof: ClassVar[int] = 2

    def pose(self, q):
        return Pose.along_x(q[0]) @ Pose.about_z(q[1])


@struct
class DeclaredSlottedHinge(Chart):
    """The slotted hinge with its complement declared: y of D, then z, moments about x and y."""

    dof: ClassVar[int] = 2

    def pose(self, q):
        return Pose.along_x(q[0]) @ Pose.about_z(q[1])

    def complement(self, q):
        across = Pose.about_z(q[1]).rotate_inverse(jnp.array([0.0, 1.0, 0.0], q.dtype))
        constant = jnp.eye(6, dtype=q.dtype)[:, 2:5]
        first = jnp.concatenate([across, jnp.zeros(3, q.dtype)])
        return jnp.concatenate([first[:, None], constant], axis=1)


@struct
class Gimbal(Chart):
    """Three angles about z, y, x; they lock where the second is ±90°."""

    dof: ClassVar[int] = 3

    def pose(self, q):
        return Pose.about_z(q[0]) @ Pose.about_y(q[1]) @ Pose.about_x(q[2])


@struct
class HingeErrors(Residual):
    """A hinge about z by its five errors."""

    dof: ClassVar[int] = 1

    def residual(self, T, t):
        return jnp.concatenate([T.p, T.rotate(EZ.astype(T.p.dtype))[:2]])


@struct
class SlottedHingeErrors(Residual):
    """The slotted hinge by its four errors."""

    dof: ClassVar[int] = 2

    def residual(self, T, t):
        return jnp.concatenate([T.p[1:], T.rotate(EZ.astype(T.p.dtype))[:2]])


@struct
class PointOnSphere(Residual):
    """The example of `Residual`: C's origin keeps its distance from D's."""

    radius: Array
    dof: ClassVar[int] = 5

    def residual(self, T, t):
        return (norm(T.p) - self.radius)[None]

    def reference(self):
        return Pose.along_z(self.radius)


@struct
class PointOnEllipsoid(Residual):
    """C's origin stays on an ellipsoid of three radii about D's."""

    radii: Array
    dof: ClassVar[int] = 5

    def residual(self, T, t):
        return self.radii[2:] * (norm(T.p / self.radii) - 1)[None]

    def reference(self):
        return Pose.along_z(self.radii[2])


@struct
class MovingPlane(Residual):
    """C's origin stays on a plane normal to z that moves along it at `speed` [m/s]."""

    speed: Array
    dof: ClassVar[int] = 5

    def residual(self, T, t):
        return T.p[2:] - self.speed * t


@struct
class Egg(Function):
    """|p / radii|² - 1: zero on an ellipsoid."""

    radii: Array
    coordinates: ClassVar[tuple[int, ...]] = (0, 1, 2)

    def value(self, q):
        return jnp.sum((q / self.radii) ** 2) - 1


TILTED = jnp.array([0.6, -1.0, 1.4])
POINT = (0.5, 0.5, 1.2, 1.2, 1.2)
RADII = jnp.array([1.0, 1.3, 0.8])
POLE = ((0.4, np.pi / 2, 0.2, 0.1),)
FREE_LOCKED = ((0.0, 0.0, 0.0, 0.4, np.pi / 2, 0.1),)
AXIS_ALONG_Z = ((-0.5, 0.3, np.pi / 2), (-1.3, 0.3, np.pi / 2))
STRIPS = jnp.array([[-1.0, 0.5], [0.6, 0.3], [1.5, 0.9]])
BEND = Spline(jnp.array([-1.5, -0.2, 1.5]), jnp.array([0.2, 0.0, 0.5]))
KNEE = FunctionDriven(
    dof=2,
    rotations=(Linear(jnp.array([1.0]), jnp.array(0.0)), BEND, Constant(jnp.array(0.1))),
    translations=(
        Linear(jnp.array([0.2, 1.0]), jnp.array(0.1), coordinates=(0, 1)),
        Polynomial(jnp.array([[0.1, 0.2], [0.3, -0.2]]), coordinates=(0, 1)),
        Sum((Constant(jnp.array(-0.4)), Polynomial(jnp.array([0.0, 0.0, 0.1])))),
    ),
    rotation_axes=jnp.array([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0], [0.0, 0.6, 0.8]]),
    translation_axes=jnp.eye(3),
)
BALL_TURNED = ((2 * np.pi, 0.0, 0.0), (0.0, 0.0, np.pi))
SKEWED = jnp.array([[1.0, 0.2, 0.0], [0.0, 2.0, 0.3], [0.1, 0.0, 0.5]])
HILL = Polynomial(jnp.array([[0.2, 0.1, 0.3], [-0.2, 0.2, 0.0]]), coordinates=(0, 1))
WIRE = jnp.array([[-1.0, 0.0, 0.3], [0.0, 0.4, 0.0], [1.0, 0.1, 0.4], [1.6, -0.5, 0.5]])
BESIDE = Pose(jnp.array([0.2, -0.1, 0.3]), jnp.array([0.8, 0.36, 0.48, 0.0]))
WHEELS = (jnp.array(0.8), jnp.array(1.5))

CATALOG = {
    "hinge": Entry(Hinge(EZ), (20.0,), turning=0),
    "tilted hinge": Entry(Hinge(TILTED), (20.0,), turning=0),
    "slider": Entry(Slider(TILTED), (3.0,)),
    "cylindrical": Entry(Cylindrical(TILTED), (3.0, 20.0), turning=1),
    "ball": Entry(Ball(), (2.5, 2.5, 2.5), singular=BALL_TURNED),
    "fixed": Entry(Fixed(), ()),
    "free": Entry(Free(), (3.0, 3.0, 3.0, 2.5, 2.5, 2.5)),
    "translation": Entry(Translation(), (3.0, 3.0, 3.0)),
    "free by Rodrigues parameters": Entry(FreeRodrigues(), (3.0, 3.0, 3.0, 0.5, 0.5, 0.5)),
    "linear motor": Entry(LinearMotor(SKEWED), (3.0, 3.0, 3.0, 2.5, 2.5, 2.5)),
    "spur gear": Entry(SpurGear(*WHEELS), (20.0, 3.0, 0.5, 0.5, 0.5, 0.5), turning=0),
    "bevel gear": Entry(BevelGear(*WHEELS), (20.0, 3.0, 1.2, 1.0, 1.0, 1.0), turning=0),
    "double ball": Entry(DoubleBall(jnp.array(1.5)), (1.2, 1.2, 2.5, 2.5, 2.5)),
    # Hinge2 and PrismaticRotoide are special cases of this, written the same way.
    "prismatic universal": Entry(
        PrismaticUniversal(jnp.array([0.3, 0.2, 1.0]), EZ, TILTED), (3.0, 20.0, 3.0), turning=1
    ),
    "double hinge": Entry(DoubleHinge(jnp.array(0.8)), (20.0, 3.0), turning=0),
    "universal": Entry(Universal(EZ, TILTED), (20.0, 3.0), turning=0),
    "slotted hinge by hand": Entry(planar.SlottedHinge(), (3.0, 20.0), turning=1),
    "planar": Entry(planar.Planar(), (3.0, 3.0, 20.0), turning=2),
    "planar translation": Entry(planar.PlanarTranslation(), (3.0, 3.0)),
    "gimbal by hand": Entry(
        gimbal.Gimbal("YXZ"), (20.0, 1.2, 3.0), turning=0, singular=((0.4, np.pi / 2, 0.1),)
    ),
    "free with angles": Entry(
        gimbal.FreeEuler("XZY"), (3.0, 3.0, 3.0, 20.0, 1.2, 3.0), turning=3, singular=FREE_LOCKED
    ),
    "ball by rotation": Entry(
        BallRotation(jnp.array([0.9, 1.1, 1.3])), (0.4, 3.0, 1.2), singular=AXIS_ALONG_Z
    ),
    "fixed axis": Entry(FixedAxis(), (3.0, 3.0, 3.0, 20.0, 3.0), turning=3),
    "plane point": Entry(PlanePoint(TILTED), (3.0, 3.0, 1.2, 1.2, 1.2)),
    "segmented plane point": Entry(SegmentedPlanePoint(STRIPS), (0.4, 3.0, 1.2, 1.2, 1.2)),
    "ellipsoid": Entry(
        Ellipsoid(RADII, jnp.array(0.4)), (3.0, 1.2, 20.0, 3.0), turning=2, singular=POLE
    ),
    "ellipsoid with a normal": Entry(
        Ellipsoid3(RADII, exact=False), (3.0, 1.2, 20.0), turning=2, singular=(POLE[0][:3],)
    ),
    "function driven": Entry(KNEE, (1.0, 1.0)),
    "released universal": Entry(Released(Universal(EZ, TILTED)), (0.3, 0.3, 0.3, 0.3, 3.0, 3.0)),
    "rolling sphere": Entry(RollingSphere(jnp.array(0.7)), (3.0, 3.0, 1.2, 1.2, 1.2)),
    "rolling disc": Entry(
        RollingDisc(jnp.array(0.7)),
        (3.0, 3.0, 20.0, 1.2, 3.0),
        turning=2,
        singular=((0.3, 0.2, 0.1, np.pi / 2, 0.4), (0.0, 0.0, 0.1, -np.pi / 2, 0.0)),
    ),
    "constant velocity": Entry(ConstantVelocity(), (1.2, 1.2)),
    "rope": Entry(Rope(), (0.4, 0.8, 0.8, 1.2, 1.2, 1.2), middle=(1.5,) + (0.0,) * 5),
    "bead on a wire": Entry(PointOnCurve.through(WIRE), (1.0, 1.2, 1.2, 1.2)),
    "bead on a hill": Entry(PointOnSurface.over(HILL), (0.5, 0.5, 1.2, 1.2, 1.2)),
    "bead on an egg": Entry(PointOnLevelSet(Egg(RADII), jnp.array([0.1, 0.0, 0.8])), POINT),
    "arm of three": Entry(
        Chain(Hinge(EZ), Chain(Slider(TILTED), Hinge(jnp.array([0.0, 1.0, 0.3]))), BESIDE),
        (20.0, 1.0, 1.0),
        turning=0,
    ),
    "screw": Entry(Screw(jnp.array(0.5)), (20.0,), turning=0),
    "slotted hinge": Entry(SlottedHinge(), (3.0, 20.0), turning=1),
    "declared slotted hinge": Entry(DeclaredSlottedHinge(), (3.0, 20.0), turning=1),
    "gimbal": Entry(Gimbal(), (20.0, 1.2, 3.0), turning=0, singular=((0.4, np.pi / 2, 0.1),)),
    "derived hinge": Entry(Derived(Hinge(TILTED)), (20.0,), turning=0),
    "hinge errors": Entry(HingeErrors(), (20.0,), turning=0),
    "slotted hinge errors": Entry(SlottedHingeErrors(), (3.0, 20.0), turning=1),
    "point on sphere": Entry(PointOnSphere(jnp.array(1.5)), POINT),
    "point on ellipsoid": Entry(PointOnEllipsoid(jnp.array([1.0, 1.5, 2.0])), POINT),
    "moving plane": Entry(MovingPlane(jnp.array(0.7)), POINT),
}
# Rows that read speeds which are the rates of no coordinates.
SPEEDS = {
    "angular motor": Entry(AngularMotor(SKEWED, carried="CDC"), (1.0, 1.0, 0.5, 3.0, 3.0, 3.0)),
}
