"""The exhibits of the gallery: each public coupling with parameters, coordinates and a motion."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from drawing import Body, ball, box, circle, grid, wheel

import jaxjoints as jj

Lines = list[np.ndarray]


@dataclass(frozen=True)
class Exhibit:
    """A coupling, and how it is drawn.

    names: of the coordinates, with units
    at: coordinates of the solid body, shape (k,)
    sweep: first and last offset of each coordinate's motion from there; None for no motion
    body: the body on frame C
    scenery: a function that makes lines in D, drawn thin
    rod: a line connects the origins of D and C
    roll: for a coupling that rolls, rates of its last three coordinates, in place of `sweep`
    view: azimuth and elevation [degrees]
    """

    coupling: jj.Coupling
    names: tuple[str, ...] = ()
    at: tuple[float, ...] = ()
    sweep: tuple[tuple[float, float] | None, ...] = ()
    body: Body = field(default_factory=lambda: box((0.9, 0.3, 0.14), (0.45, 0.0, 0.0)))
    scenery: Callable[[], Lines] = list
    rod: bool = False
    roll: tuple[float, float, float] | None = None
    view: tuple[float, float] = (-58.0, 24.0)


BLOCK = box((0.5, 0.34, 0.24), tip=(0.25, 0.0, 0.12))
FLAT = box((0.6, 0.4, 0.06), tip=(0.3, 0.2, 0.0))
SHAFT = box((0.14, 0.14, 0.9), (0.0, 0.0, 0.45), tip=(0.0, 0.0, 0.9))
BEAD = box((0.26, 0.18, 0.12), tip=(0.13, 0.0, 0.0))
POSITION = ("x [m]", "y [m]", "z [m]")
VECTOR = ("r₁ [rad]", "r₂ [rad]", "r₃ [rad]")
WAYS = ((-0.9, 0.9), (-0.9, 0.9), (-0.7, 0.7))
NOD = (-0.5, 0.5)


def rail(axis, start=-1.3, end=1.3) -> Lines:
    """A straight line through D's origin."""
    axis = np.asarray(axis) / np.linalg.norm(axis)
    return [axis[:, None] * np.array([start, end])]


def plane(size=1.2, height=0.0) -> Lines:
    lines = np.linspace(-size, size, 5)
    return grid(lambda x, y: np.stack([x, y, np.full(x.shape, height)]), lines, lines)


def ellipsoid(radii) -> Lines:
    def surface(a, b):
        return np.asarray(radii)[:, None] * np.stack(
            [np.sin(b), -np.sin(a) * np.cos(b), np.cos(a) * np.cos(b)]
        )

    return grid(surface, np.linspace(0, 2 * np.pi, 13), np.linspace(-1.2, 1.2, 5))


RADII = (1.2, 0.9, 0.8)
HILL = jj.functions.Polynomial(
    jnp.array([[0.3, 0.0, -0.25], [0.0, 0.2, 0.0], [-0.2, 0.0, 0.0]]), coordinates=(0, 1)
)
WIRE = ((-1.2, -0.5, 0.2), (-0.5, 0.5, 0.5), (0.4, -0.3, -0.1), (1.2, 0.4, 0.5))
STRIPS = ((-1.2, 0.5), (-0.3, 0.0), (0.5, 0.0), (1.2, 0.4))
KNEE = jj.FunctionDriven(
    dof=1,
    rotations=(
        jj.functions.Constant(0.0),
        jj.functions.Constant(0.0),
        jj.functions.Linear(jnp.array([1.0])),
    ),
    translations=(
        jj.functions.Polynomial(jnp.array([0.2, 0.35])),
        jj.functions.Polynomial(jnp.array([0.0, 0.0, 0.25])),
        jj.functions.Constant(0.0),
    ),
)


@jj.struct
class Egg(jj.functions.Function):
    """|p / radii|² - 1: zero on an ellipsoid."""

    radii: jax.Array
    coordinates: ClassVar[tuple[int, ...]] = (0, 1, 2)

    def value(self, q):
        return jnp.sum((q / self.radii) ** 2) - 1


def hill() -> Lines:
    def surface(x, y):
        return np.stack([x, y, 0.3 - 0.25 * y**2 + 0.2 * x * y - 0.2 * x**2])

    return grid(surface, np.linspace(-1, 1, 6), np.linspace(-1, 1, 6))


def wire() -> Lines:
    curve = jj.PointOnCurve.through(WIRE)
    values = [
        [float(f.value(jnp.array([s]))) for f in curve.curve] for s in np.linspace(0, 4.2, 50)
    ]
    return [np.array(values).T]


def strips() -> Lines:
    x, z = np.array(STRIPS).T
    return [np.stack([x, np.full(4, y), z]) for y in (-0.8, 0.0, 0.8)] + [
        np.array([[a, a], [-0.8, 0.8], [b, b]]) for a, b in STRIPS
    ]


TURNING = {
    jj.Hinge: Exhibit(jj.Hinge(), ("angle [rad]",), (0.5,), ((-0.4, 2.2),)),
    jj.Ball: Exhibit(jj.Ball(), VECTOR, (0.0, 0.0, 0.0), ((-0.9, 0.9), (-0.6, 0.6), (-0.7, 0.7))),
    jj.Universal: Exhibit(
        jj.Universal(),
        ("about axis_D [rad]", "about axis_C [rad]"),
        (0.2, -0.2),
        ((-0.8, 0.8), (-0.8, 0.8)),
        box((0.9, 0.3, 0.14), (0.45, 0.0, 0.0), (0.9, 0.15, 0.0)),
    ),
    jj.ConstantVelocity: Exhibit(
        jj.ConstantVelocity(),
        ("bend about x [rad]", "about y [rad]"),
        (0.3, 0.3),
        ((-0.9, 0.7), (-0.9, 0.7)),
        SHAFT,
        lambda: rail((0, 0, 1), -1.0, 0.0),
    ),
    jj.Gimbal: Exhibit(
        jj.Gimbal("ZYX"),
        ("yaw [rad]", "pitch [rad]", "roll [rad]"),
        (0.3, -0.3, 0.2),
        ((-0.9, 0.7), (-0.6, 0.7), (-0.8, 0.8)),
        box((0.9, 0.3, 0.14), (0.45, 0.0, 0.0), (0.9, 0.15, 0.0)),
    ),
    jj.BallRotation: Exhibit(
        jj.BallRotation((0.4, 0.4, 0.4)),
        ("excess [rad]", "azimuth [rad]", "elevation [rad]"),
        (0.3, 0.4, 0.5),
        ((-0.7, 0.7), (-1.0, 1.0), (-0.5, 0.8)),
    ),
}
SLIDING = {
    jj.Slider: Exhibit(
        jj.Slider((1.0, 0.0, 0.0)),
        ("distance [m]",),
        (0.3,),
        ((-1.2, 0.7),),
        BLOCK,
        lambda: rail((1, 0, 0)),
    ),
    jj.Cylindrical: Exhibit(
        jj.Cylindrical((1.0, 0.0, 0.0)),
        ("distance [m]", "angle [rad]"),
        (0.2, 0.3),
        ((-1.1, 0.9), (-0.9, 1.2)),
        box((0.4, 0.24, 0.5), (0.0, 0.0, 0.15), (0.2, 0.0, 0.4)),
        lambda: rail((1, 0, 0)),
    ),
    jj.Helical: Exhibit(
        jj.Helical(0.12),
        ("angle [rad]",),
        (0.6,),
        ((-5.0, 5.5),),
        box((0.7, 0.2, 0.1), (0.35, 0.0, 0.0)),
        lambda: rail((0, 0, 1), -0.9, 1.1),
    ),
    jj.Translation: Exhibit(jj.Translation(), POSITION, (0.2, 0.1, 0.1), WAYS, BLOCK),
    jj.PlanarTranslation: Exhibit(
        jj.PlanarTranslation(), POSITION[:2], (0.2, 0.1), WAYS[:2], FLAT, lambda: plane()
    ),
    jj.Planar: Exhibit(
        jj.Planar(),
        ("x [m]", "y [m]", "angle [rad]"),
        (0.2, 0.1, 0.4),
        (*WAYS[:2], (-0.9, 1.1)),
        FLAT,
        lambda: plane(),
    ),
    jj.SlottedHinge: Exhibit(
        jj.SlottedHinge(),
        ("x [m]", "angle [rad]"),
        (0.3, 0.7),
        ((-1.1, 0.6), (-0.7, 1.5)),
        scenery=lambda: [
            np.stack(
                [
                    np.array([-1, 1, 1, -1, -1]) * 1.1,
                    np.array([1, 1, -1, -1, 1]) * 0.07,
                    np.zeros(5),
                ]
            )
        ],
    ),
    jj.FixedAxis: Exhibit(
        jj.FixedAxis(),
        (*POSITION, "roll [rad]", "pitch [rad]"),
        (0.2, 0.1, 0.1, 0.4, -0.3),
        (*WAYS, (-0.7, 0.9), (-0.8, 0.8)),
        BLOCK,
        lambda: plane(1.2, -0.8),
    ),
}
COMPOUND = {
    jj.Hinge2: Exhibit(
        jj.Hinge2(),
        ("travel [m]", "steering [rad]", "wheel [rad]"),
        (0.1, 0.3, 0.4),
        ((-0.6, 0.6), (-0.7, 0.7), (0.0, 1.0)),
        wheel(0.5, 1),
        lambda: rail((0, 0, 1), -0.8, 1.0),
    ),
    jj.PrismaticRotoide: Exhibit(
        jj.PrismaticRotoide(),
        ("distance [m]", "angle [rad]"),
        (0.3, 0.7),
        ((-1.1, 0.6), (-0.7, 1.5)),
        scenery=lambda: rail((1, 0, 0)),
    ),
    jj.PrismaticUniversal: Exhibit(
        jj.PrismaticUniversal(),
        ("distance [m]", "about axis_D [rad]", "about axis_C [rad]"),
        (0.1, 0.3, -0.2),
        ((-0.7, 0.6), (-0.9, 0.7), (-0.8, 0.8)),
        box((0.9, 0.3, 0.14), (0.45, 0.0, 0.0), (0.9, 0.15, 0.0)),
        lambda: rail((0, 0, 1), -0.9, 1.1),
    ),
    jj.DoubleHinge: Exhibit(
        jj.DoubleHinge(0.8),
        ("rod [rad]", "C on the rod [rad]"),
        (0.3, 0.5),
        ((-0.9, 1.3), (-0.9, 1.0)),
        box((0.6, 0.22, 0.12), (0.3, 0.0, 0.0)),
        rod=True,
    ),
    jj.DoubleBall: Exhibit(
        jj.DoubleBall(0.9),
        ("rod about x", "about y", *VECTOR),
        (0.2, 0.4, 0.0, 0.0, 0.3),
        ((-0.9, 0.9), (-0.9, 0.9), NOD, NOD, NOD),
        BEAD,
        rod=True,
    ),
    jj.FunctionDriven: Exhibit(
        KNEE, ("bend [rad]",), (0.5,), ((-1.0, 1.1),), box((0.8, 0.24, 0.14), (0.4, 0.0, 0.0))
    ),
    jj.Chain: Exhibit(
        jj.Chain(jj.Hinge(), jj.Slider((1.0, 0.0, 0.0))),
        ("Hinge: angle [rad]", "Slider: distance [m]"),
        (0.4, 0.7),
        ((-0.7, 1.2), (-0.6, 0.6)),
        BLOCK,
        rod=True,
    ),
    jj.Reversed: Exhibit(
        jj.Reversed(jj.PrismaticRotoide()),
        ("distance [m]", "angle [rad]"),
        (0.5, 0.6),
        ((-0.9, 0.6), (-1.0, 1.4)),
        BLOCK,
    ),
    jj.Derived: Exhibit(
        jj.Derived(jj.Cylindrical((1.0, 0.0, 0.0))),
        ("distance [m]", "angle [rad]"),
        (0.2, 0.3),
        ((-1.1, 0.9), (-0.9, 1.2)),
        box((0.4, 0.24, 0.5), (0.0, 0.0, 0.15), (0.2, 0.0, 0.4)),
        lambda: rail((1, 0, 0)),
    ),
}
SURFACES = {
    jj.PointOnCurve: Exhibit(
        jj.PointOnCurve.through(WIRE),
        ("way [m]", *VECTOR),
        (1.6, 0.0, 0.0, 0.0),
        ((-1.5, 2.3), NOD, NOD, NOD),
        BEAD,
        wire,
    ),
    jj.PointOnSurface: Exhibit(
        jj.PointOnSurface.over(HILL),
        ("x [m]", "y [m]", *VECTOR),
        (0.1, -0.1, 0.0, 0.0, 0.0),
        ((-0.9, 0.8), (-0.8, 0.9), NOD, NOD, NOD),
        BEAD,
        hill,
    ),
    jj.PointOnLevelSet: Exhibit(
        jj.PointOnLevelSet(Egg(jnp.array(RADII)), jnp.array([0.0, 0.0, 0.8])),
        ("x [m]", "y [m]", *VECTOR),
        (0.3, -0.3, 0.0, 0.0, 0.0),
        ((-1.1, 0.6), (-0.3, 0.9), NOD, NOD, NOD),
        BEAD,
        lambda: ellipsoid(RADII),
    ),
    jj.PlanePoint: Exhibit(
        jj.PlanePoint(),
        ("x [m]", "y [m]", *VECTOR),
        (0.2, 0.1, 0.0, 0.0, 0.4),
        ((-0.9, 0.8), (-0.9, 0.9), NOD, NOD, NOD),
        BEAD,
        lambda: plane(),
    ),
    jj.SegmentedPlanePoint: Exhibit(
        jj.SegmentedPlanePoint(jnp.array(STRIPS)),
        ("way [m]", "y [m]", *VECTOR),
        (1.4, 0.0, 0.0, 0.0, 0.0),
        ((-1.2, 1.1), (-0.7, 0.7), NOD, NOD, NOD),
        BEAD,
        strips,
    ),
    jj.Ellipsoid: Exhibit(
        jj.Ellipsoid(jnp.array(RADII), 0.3),
        ("longitude [rad]", "latitude", "about normal", "wing"),
        (0.4, 0.3, 0.2, 0.1),
        ((-1.2, 0.9), (-1.1, 0.6), (-0.7, 0.7), NOD),
        FLAT,
        lambda: ellipsoid(RADII),
    ),
    jj.Ellipsoid3: Exhibit(
        jj.Ellipsoid3(jnp.array(RADII)),
        ("longitude [rad]", "latitude [rad]", "about normal [rad]"),
        (0.4, 0.3, 0.2),
        ((-1.2, 0.9), (-1.1, 0.6), (-0.8, 0.8)),
        FLAT,
        lambda: ellipsoid(RADII),
    ),
    jj.RollingSphere: Exhibit(
        jj.RollingSphere(0.4),
        ("x [m]", "y [m]", *VECTOR),
        (-0.8, -0.4, 0.0, 0.0, 0.0),
        body=ball(0.4),
        scenery=lambda: plane(),
        roll=(-0.6, 1.2, 0.4),
    ),
    jj.RollingDisc: Exhibit(
        jj.RollingDisc(0.5),
        ("x [m]", "y [m]", "heading [rad]", "lean", "spin"),
        (-0.8, -0.7, 0.0, 0.25, 0.0),
        body=wheel(0.5, 1),
        scenery=lambda: plane(),
        roll=(0.7, 0.0, 1.4),
    ),
}
FREE = {
    jj.Fixed: Exhibit(jj.Fixed(), ("none",), body=BLOCK),
    jj.Free: Exhibit(
        jj.Free(),
        (*POSITION, *VECTOR),
        (0.2, 0.1, 0.1, 0.0, 0.0, 0.0),
        (*WAYS, NOD, NOD, NOD),
        BLOCK,
    ),
    jj.FreeEuler: Exhibit(
        jj.FreeEuler(),
        (*POSITION, "yaw [rad]", "pitch", "roll"),
        (0.2, 0.1, 0.1, 0.3, -0.3, 0.2),
        (*WAYS, NOD, NOD, NOD),
        BLOCK,
    ),
    jj.FreeRodrigues: Exhibit(
        jj.FreeRodrigues(),
        (*POSITION, "σ₁", "σ₂", "σ₃"),
        (0.2, 0.1, 0.1, 0.0, 0.0, 0.1),
        (*WAYS, *((-0.14, 0.14),) * 3),
        BLOCK,
    ),
    jj.Released: Exhibit(
        jj.Released(jj.PlanePoint()),
        ("height [m]", "x [m]", "y [m]", *VECTOR),
        (0.5, 0.2, 0.1, 0.0, 0.0, 0.0),
        ((-0.5, 0.5), *WAYS[:2], NOD, NOD, NOD),
        BEAD,
        lambda: plane(),
    ),
    jj.Rope: Exhibit(
        jj.Rope(),
        ("distance [m]", "about x", "about y", *VECTOR),
        (0.9, 0.2, 0.4, 0.0, 0.0, 0.0),
        ((-0.6, 0.5), (-0.9, 0.9), (-0.9, 0.9), NOD, NOD, NOD),
        BEAD,
        rod=True,
    ),
}
LAWS_ALONE = {
    jj.SpurGear: Exhibit(
        jj.SpurGear(0.35, 0.6),
        ("slip [m]", "φ_D [rad]", "apart [m]", "offset [m]", "tilt", "tilt"),
        (0.0, 0.0, 0.0, 0.0, 0.0, 0.0),
        ((-0.15, 0.15), (-1.2, 1.2), None, None, None, None),
        wheel(0.35),
        lambda: [circle(0.6)],
        view=(-75.0, 50.0),
    ),
    jj.BevelGear: Exhibit(
        jj.BevelGear(0.4, 0.4),
        ("slip [m]", "ψ₀ [rad]", "ψ₁ [rad]", *POSITION),
        (0.0, 0.0, 0.0, 0.0, -0.4, 0.4),
        ((-0.15, 0.15), (-0.6, 0.6), None, None, None, None),
        wheel(0.4),
        lambda: [circle(0.4)],
        view=(-15.0, 40.0),
    ),
    jj.AngularMotor: Exhibit(
        jj.AngularMotor(),
        ("about x [rad]", "about y [rad]", "about z [rad]", *POSITION),
        (0.0,) * 3 + (0.2, 0.1, 0.1),
        ((-0.9, 0.9), (-0.6, 0.6), (-0.7, 0.7), None, None, None),
        box((0.7, 0.3, 0.14), (0.2, 0.0, 0.0)),
    ),
    jj.LinearMotor: Exhibit(
        jj.LinearMotor(),
        ("along x [m]", "along y [m]", "along z [m]", *VECTOR),
        (0.2, 0.1, 0.1, 0.0, 0.0, 0.0),
        (*WAYS, None, None, None),
        BLOCK,
    ),
}
FAMILIES = {
    "turning": ("Joints that turn about a point", TURNING),
    "sliding": ("Joints that slide", SLIDING),
    "compound": ("Several axes", COMPOUND),
    "surfaces": ("Curves and surfaces, rolling", SURFACES),
    "free": ("Fixed and free", FREE),
    "laws_alone": ("Couplings for laws alone", LAWS_ALONE),
}
