"""Each coupling swings: bodies under gravity for 5 s, whose joints hold and whose energy stays.

Each body hangs from the world on a joint of its own, its centre of mass beside it; springs keep
what would slide away, and count as energy. The catalog's other forms of a hinge, slotted hinge,
gimbal, screw and point on a surface, there to be compared with the library's, are left out.
"""

from dataclasses import dataclass, field
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxjoints import (
    AngularMotor,
    BevelGear,
    Coupling,
    DoubleHinge,
    Helical,
    Hinge,
    Hinge2,
    Law,
    Limits,
    Lock,
    Pose,
    PrismaticRotoide,
    Reversed,
    RollingDisc,
    RollingSphere,
    Rope,
    SemiImplicitEuler,
    SpringDamper,
    SpurGear,
    SystemBuilder,
    Universal,
    project,
    replace,
    step,
)
from jaxjoints.algebra.spatial import quat_rotate, quat_rotate_inverse
from support.cases import mostly_slow
from support.couplings_catalog import CATALOG
from support.mechanisms import G
from support.motion import speeds_along

DURATION = 5.0
DT = 2.5e-3
# A step leaves (h ω)²/2 of a metre and projection along its rows about h ω of that each time, where
# projection along new rows leaves the square; h ω is 0.013 at most here.
BARE = SemiImplicitEuler(joints="rows")
PROJECTED = replace(BARE, projections=2)
HELD, ERP = 1e-9, 0.2
FIRST_ORDER = (0.8, 1.2)  # range of measured orders of convergence
MASS = 1.0
INERTIA = np.array([0.05, 0.06, 0.035])
# How D stands, and where the centre of mass is in C so that it hangs below where C stands as D.
ABOUT_X = {"z up": 0.0, "z down": np.pi, "y up": np.pi / 2}
COM = {"z up": (0.05, 0.03, -0.3), "z down": (0.05, 0.03, 0.3), "y up": (0.05, -0.3, 0.1)}


@dataclass(frozen=True)
class Swing:
    """A body on a joint to the world, and with what coordinates and speeds it starts.

    springs: along coordinates, each its stiffness [N/m or N m/rad] and rest
    bearing: what holds the body where the coupling has laws alone; q and qd are then its own
    turn: of C against the bearing's C, about x [rad]
    """

    coupling: Coupling
    q: tuple[float, ...] = ()
    qd: tuple[float, ...] | None = None
    stands: str = "z up"
    com: tuple[float, ...] | None = None
    springs: dict[int, tuple[float, float]] = field(default_factory=dict)
    laws: tuple[Law, ...] = ()
    bearing: Coupling | None = None
    turn: float = 0.0


def of_catalog(name, *q, **options):
    return Swing(CATALOG[name].coupling, q, **options)


def along(*springs):
    """Springs along the first coordinates, each its stiffness and rest."""
    return {i: (float(k), float(rest)) for i, (k, rest) in enumerate(springs)}


# Soft, for implicit Euler takes h k q̇²/2 from them; LIFT is stretched to carry most of the weight.
SOFT, LIFT = (10.0, 0.0), (15.0, 0.5)
SIDE, DOWN = {"stands": "y up"}, {"stands": "z down"}
RIGID = {
    "hinge": of_catalog("hinge", 0.6, **SIDE),
    "tilted hinge": of_catalog("tilted hinge", 0.6),
    "ball": of_catalog("ball", 0.5, -0.3, 0.2, qd=(0.5, 0.8, -0.6)),
    "fixed": of_catalog("fixed"),
    "free": of_catalog("free", *(0.0,) * 6, qd=(0.5, 0.0, 3.0, 1.0, 0.5, -0.8)),
    "free by Rodrigues parameters": of_catalog(
        "free by Rodrigues parameters", *(0.0,) * 6, qd=(0.5, 0.0, 3.0, 0.2, 0.1, -0.2)
    ),
    "double ball": of_catalog("double ball", 0.3, 0.2, 0.2, 0.3, 0.1, **DOWN),
    "universal": of_catalog("universal", 0.4, 0.3, qd=(0.5, 0.2)),
    "gimbal": of_catalog("gimbal by hand", 0.4, 0.3, 0.2, qd=(0.5, 0.2, 0.6)),
    "ball by rotation": of_catalog("ball by rotation", -0.4, 0.3, 0.2),
    "ellipsoid": of_catalog("ellipsoid", 0.3, 0.2, 0.4, -0.3, **DOWN),
    "ellipsoid with a normal": of_catalog("ellipsoid with a normal", 0.3, 0.2, 0.4, **DOWN),
    "rolling sphere": Swing(RollingSphere(0.4), (0.0, 0.0, 0.5, 0.3, 0.1), com=(0.05, 0.03, -0.15)),
    # It hangs through the plane, so that it does not fall.
    "rolling disc": Swing(RollingDisc(0.4), (0.0, 0.0, 0.3, 0.1, 0.3), com=(0.05, 0.02, -0.6)),
    "constant velocity": of_catalog("constant velocity", 0.5, -0.3, qd=(0.3, 0.5)),
    "bead on an egg": of_catalog("bead on an egg", 0.2, 0.1, 0.3, 0.2, 0.1, **DOWN),
}
SPRUNG = {
    "slider": of_catalog("slider", 0.1, springs=along(LIFT)),
    "cylindrical": of_catalog("cylindrical", 0.1, 0.5, springs=along(LIFT)),
    "translation": of_catalog("translation", 0.1, 0.2, 0.1, springs=along(SOFT, SOFT, LIFT)),
    "slotted hinge": of_catalog("slotted hinge by hand", 0.1, 0.4, **SIDE, springs=along(SOFT)),
    "planar": of_catalog("planar", 0.1, -0.1, 0.4, **SIDE, springs=along(SOFT, LIFT)),
    "planar translation": of_catalog(
        "planar translation", 0.1, -0.1, **SIDE, springs=along(SOFT, LIFT)
    ),
    "free with angles": of_catalog(
        "free with angles", 0.1, 0.1, -0.1, 0.4, 0.3, 0.2, springs=along(SOFT, SOFT, LIFT)
    ),
    "linear motor": of_catalog(
        "linear motor", 0.1, 0.1, 0.0, 0.3, 0.2, 0.1, springs=along(SOFT, SOFT, LIFT)
    ),
    "fixed axis": of_catalog(
        "fixed axis", 0.1, 0.1, -0.1, 0.4, 0.3, springs=along(SOFT, SOFT, LIFT)
    ),
    "plane point": of_catalog("plane point", 0.1, 0.1, 0.2, 0.4, 0.3, springs=along(SOFT, SOFT)),
    # On the first strip.
    "segmented plane point": of_catalog(
        "segmented plane point", 0.5, 0.1, 0.2, 0.4, 0.3, springs=along((10.0, 0.6), SOFT)
    ),
    "released universal": of_catalog(
        "released universal",
        *(0.02, 0.01, -0.03, 0.05, 0.3, 0.2),
        springs=along((40, 0), (40, 0), (40, 0.25), (4, 0), (2, 0), (2, 0)),
    ),
}
CHARTS = {
    "helical": Swing(Helical(0.3), (0.5,), springs=along((2.0, 1.5))),
    "prismatic universal": of_catalog("prismatic universal", 0.1, 0.4, 0.3, springs=along(LIFT)),
    "reversed prismatic rotoide": Swing(
        Reversed(PrismaticRotoide()), (0.1, 0.4), **SIDE, springs=along(SOFT)
    ),
    "hinge 2": Swing(Hinge2(), (-0.1, 0.4, 0.3), springs=along(LIFT)),
    "double hinge": of_catalog("double hinge", -1.2, 1.5, **SIDE),
    "function driven": of_catalog("function driven", 0.2, 0.1, springs=along((3, 0), (3, 0))),
    "bead on a wire": of_catalog("bead on a wire", 1.3, 0.3, 0.2, 0.1, springs=along((5.0, 1.1))),
    "bead on a hill": of_catalog(
        "bead on a hill", 0.1, 0.1, 0.3, 0.2, 0.1, springs=along(SOFT, SOFT)
    ),
    "arm of three": of_catalog("arm of three", 0.5, 0.1, 0.2, springs={1: (25.0, 0.2)}),
}
# Taut from the start, so that it is never jerked.
ROPE = Swing(Rope(), (1.0, 0.4, 0.2, 0.3, 0.2, 0.1), **DOWN, laws=(Limits(upper=1.0),))
BY_LAWS = {
    # A planet, and a cone: the gear lets one of the two angles of the bearing follow the other.
    "spur gear": Swing(
        SpurGear(0.2, 0.3),
        (-1.2, -1.8),
        **SIDE,
        com=(0.05, 0.3, 0.1),
        laws=(Lock(0.0),),
        bearing=DoubleHinge(0.5),
    ),
    "bevel gear": Swing(
        BevelGear(0.2, 0.3),
        (0.2, -0.3),
        **SIDE,
        laws=(Lock(0.0),),
        bearing=Universal((0.0, 0.0, 1.0), (0.0, 1.0, 0.0)),
        turn=np.pi / 2,
    ),
    "angular motor": Swing(
        AngularMotor(), (0.6,), **SIDE, springs={2: (2.0, 0.0)}, bearing=Hinge()
    ),
}
# What is compiled together. Charts make long programs, and compiling takes more than in proportion:
# 9 in one were not done after four minutes, one by one they take 20 s each.
FAMILIES = {"rigid": RIGID, "sprung": SPRUNG, "by laws": BY_LAWS, "rope": {"rope": ROPE}}
FAMILIES |= {name: {name: swing} for name, swing in CHARTS.items()}
# Families that are asked before a release.
SWEEPS = {"sprung", *CHARTS}
every_swing = pytest.mark.parametrize(
    ("family", "name"),
    [
        pytest.param(
            family, name, marks=pytest.mark.sweep if family in SWEEPS else pytest.mark.slow
        )
        for family, swings in FAMILIES.items()
        for name in swings
    ],
)


def com_of(swing):
    return np.array(COM[swing.stands] if swing.com is None else swing.com)


def world_of(swings):
    world = SystemBuilder(gravity=(0.0, 0.0, -G), erp=ERP)
    for name, swing in swings.items():
        world.body(name, mass=MASS, inertia=INERTIA)
        D = Pose.about_x(jnp.array(ABOUT_X[swing.stands]))
        C = Pose.translation(jnp.array(-com_of(swing)))
        start = {"q": np.array(swing.q)}
        if swing.qd is not None:
            start["qd"] = np.array(swing.qd)
        if swing.bearing is not None:
            bearing = f"{name}, bearing"
            world.joint(bearing, swing.bearing, child=name, frame_C=C, frame_D=D, **start)
            start = {}
        springs = [
            SpringDamper(k, rest=rest, coordinate=i) for i, (k, rest) in swing.springs.items()
        ]
        world.joint(
            name,
            swing.coupling,
            child=name,
            frame_C=C @ Pose.about_x(jnp.array(swing.turn)),
            frame_D=D,
            laws=[*springs, *swing.laws],
            **start,
        )
    return world.build()


@partial(jax.jit, static_argnames=("steps", "anew"))
def swung(system, state, dt, steps, anew):
    """Final state, and the state after each step with its info.

    anew: positions are projected along rows of their own, else along those of the step
    """

    def advance(state, _):
        state, info = step(system, state, dt=dt, scheme=BARE if anew else PROJECTED)
        if anew:
            state = project(system, state, iterations=1)
        return state, (state, info)

    return jax.lax.scan(advance, state, length=steps)


@cache
def swings_of(family):
    """The system, and what it does with steps of DT and of half of that, time in front."""
    system, state = world_of(FAMILIES[family])
    run = partial(swung, system, steps=round(DURATION / DT), anew=family in CHARTS)
    _, coarse = run(state, DT)
    middle, first = run(state, DT / 2)
    _, second = run(middle, DT / 2)
    fine = jax.tree.map(lambda *x: np.concatenate(x), first, second)
    return system, {DT: jax.tree.map(np.asarray, coarse), DT / 2: fine}


def spinning(state, body):
    """Quaternion, angular velocity in body axes, angular momentum in world axes at each time."""
    turn = jnp.asarray(state.quaternion[:, :, body].T)
    omega = quat_rotate_inverse(turn, jnp.asarray(state.omega[:, :, body].T))
    momentum = quat_rotate(turn, INERTIA[:, None] * omega)
    return turn, np.asarray(omega), momentum


def energies(family, name, dt):
    """Energy of a swing at the ends of all steps but the last, and how far it may have moved by
    then from that at the end of the first, shape (n,) each.

    In a step of h the constraints do no work at its end's velocity, gravity and springs what they
    take from their energies, but for ½ k (h q̇)². The bodies gain what is done at the mean of both
    velocities, that is ½ |h a|² less (a: accelerations, |·| by masses and moments of inertia);
    what turns freely carries its angular momentum through ½ |h α|². Projection moves by ½ |h a| h
    at most against gravity and springs, whose forces are of the size of the weight.
    """
    system, found = swings_of(family)
    state, info = found[dt]
    body, swing = system.body(name), FAMILIES[family][name]
    turn, omega, world = spinning(state, body)
    velocity, spin = state.velocity[:, :, body].T, INERTIA[:, None] * omega
    kinetic = (MASS * np.sum(velocity**2, axis=0) + np.sum(omega * spin, axis=0)) / 2
    total = kinetic + MASS * G * state.position[:, 2, body]
    total, rates = total[:-1], np.zeros(total.size - 1)
    first = system.coordinate(name).start
    for i, (stiffness, rest) in swing.springs.items():
        total = total + stiffness / 2 * (info.q[:-1, first + i] - rest) ** 2
        rates = rates + stiffness * info.qd[1:, first + i] ** 2
    free = -np.cross(omega, spin, axis=0) / INERTIA[:, None]
    pushed, turned = np.diff(velocity) / dt, np.diff(world) / dt
    turned = np.asarray(quat_rotate_inverse(turn[:, :-1], jnp.asarray(turned)))
    rates = rates + MASS * np.sum(pushed**2, axis=0) + MASS * G**2
    rates = rates + np.sum(turned**2 / INERTIA[:, None], axis=0)
    rates = rates + 2 * np.sum(INERTIA[:, None] * free[:, :-1] ** 2, axis=0)
    return total, dt * np.cumsum(dt * rates)


@pytest.mark.parametrize("family", mostly_slow(FAMILIES, default=(), sweep=SWEEPS))
def test_joints_hold_while_they_swing(family):
    for _, info in swings_of(family)[1].values():
        assert np.max(info.error) <= HELD
        assert info.ok.all()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["spur gear", "bevel gear"])
def test_locked_gears_mesh_while_they_swing(name):
    system, found = swings_of("by laws")
    for _, info in found.values():
        assert np.max(np.abs(info.q[:, system.coordinate(name).start])) <= HELD


@pytest.mark.slow
def test_a_taut_rope_is_never_stretched_and_its_slack_is_of_third_order():
    """What projection leaves, h ω of (h ω)²/2, is to the inside, where no rope pushes."""
    system, found = swings_of("rope")
    lengths = [info.q[:, system.coordinate("rope").start] for _, info in found.values()]
    assert all(np.max(length) <= 1.0 + HELD for length in lengths)
    slack = [np.max(1.0 - length) for length in lengths]
    assert slack[0] < 1e-7
    assert np.log2(slack[0] / slack[1]) == pytest.approx(3, abs=0.2)


@every_swing
def test_constraint_forces_do_no_work(family, name):
    """What a joint's wrench does at the end's velocity is what its laws do, but for ERP."""
    system, found = swings_of(family)
    state, info = (jax.tree.map(lambda x: x[1:], part) for part in found[DT])
    body, swing = system.body(name), FAMILIES[family][name]
    before = jnp.asarray(found[DT][0].quaternion[:-1, :, body].T)
    # The angular momentum is carried on at the end of a step.
    _, _, carried = spinning(state, body)
    omega = quat_rotate_inverse(before, carried) / INERTIA[:, None]
    velocity = quat_rotate_inverse(before, jnp.asarray(state.velocity[:, :, body].T))
    velocity = velocity - jnp.cross(omega, com_of(swing)[:, None], axis=0)
    C = Pose.about_x(jnp.array(swing.turn))
    # Along the coordinates of each step's start, where its rows are.
    start, end = (
        jax.tree.map(lambda x, at=at: jnp.moveaxis(x[at], 0, -1), found[DT][0])
        for at in (np.s_[:-1], np.s_[1:])
    )
    turned = end.omega.at[:, body].set(quat_rotate(before, omega))
    qd = np.asarray(speeds_along(system, start, replace(end, omega=turned))).T
    power = strength = 0.0
    for joint in system.topology.joints:
        if joint not in (name, f"{name}, bearing"):
            continue
        turn = C.R if joint == name else np.eye(3)
        own = info.wrench[:, :, system.topology.joints.index(joint)].T
        force, moment = turn @ own[:3], turn @ own[3:]
        power = power + np.sum(force * velocity + moment * omega, axis=0)
        strength = strength + np.sqrt(np.sum(own**2, axis=0))
        at = system.coordinate(joint)
        power = power - np.sum(info.law_force[:, at] * qd[:, at], axis=1)
    # ERP moves an error of HELD back at ERP HELD / h; rows are of length one, in places of two.
    # Projection turns bodies by (h ω)² or less after their angular velocity was found.
    inexact = 2 * ERP * HELD / DT + 2 * DT**2 * np.linalg.norm(omega, axis=0) ** 3
    assert np.all(np.abs(power) <= strength * inexact)
    assert np.max(strength) > 1.0 or not np.any(strength)


@every_swing
def test_energy_stays_and_its_error_is_of_first_order(family, name):
    largest = []
    for dt in (DT, DT / 2):
        total, bound = energies(family, name, dt)
        error = np.abs(total - total[0])
        assert np.all(error <= bound)
        largest.append(np.max(error))
    if name == "fixed":
        assert max(largest) < 1e-12
    else:
        assert FIRST_ORDER[0] < np.log2(largest[0] / largest[1]) < FIRST_ORDER[1], largest
