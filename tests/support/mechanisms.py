"""Small mechanisms that tests share, built as a user builds them; each returns (system, state)."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxjoints import (
    Ball,
    Damping,
    DryFriction,
    Helical,
    Hinge,
    Limits,
    Slider,
    SpringDamper,
    SystemBuilder,
    Universal,
)
from jaxjoints.assembly.group_rows import Interval
from jaxjoints.assembly.problem import row_problem
from jaxjoints.assembly.targets import Step
from jaxjoints.model.kinematics import body_twists, prepare, system_kinematics, with_world
from support.couplings_catalog import PointOnSphere

G = 9.81
X, Y, Z = (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)
# Lengths of the planar four-bar [m]; its crank turns fully (Grashof: 0.3 + 0.9 < 0.8 + 0.6).
CRANK, COUPLER, ROCKER, GROUND = 0.3, 0.8, 0.6, 0.9
# Where the tool of `mixed` is held by its wire, in the tool's frame [m].
TIP = (0.0, 0.0, -0.1)
# Its length, from the nut's centre to TIP where the other joints start [m].
WIRE = 0.8128562983424904


def rows_of_step(system, state, dt):
    """The rows of a step of dt from a state, without forces."""
    mechanism = prepare(system, state.time.ndim)
    twist, kinematics = with_world(body_twists(state)), system_kinematics(mechanism, state)
    return row_problem(mechanism, kinematics, Interval(jnp.asarray(dt), twist=twist), Step(), twist)


def single(tree):
    """A tree with all its floats in float32."""
    return jax.tree.map(lambda x: x.astype(jnp.float32), tree)


def rod_inertia(mass, length, radius=0.02):
    """Principal moments of a rod along x about its centre [kg m²]."""
    across = mass * (length**2 / 12 + radius**2 / 4)
    return (mass * radius**2 / 2, across, across)


def pendulum(
    *, q=0.3, qd=0.0, length=1.0, mass=1.0, inertia=(0.02, 0.03, 0.01), laws=(), **options
):
    """A bob on the hinge "pivot" about y, its centre `length` below the pivot where q = 0."""
    world = SystemBuilder(**options)
    world.body("bob", mass=mass, inertia=inertia)
    world.joint("pivot", Hinge(Y), child="bob", frame_C=(0.0, 0.0, length), laws=laws, q=q, qd=qd)
    return world.build()


def chain(n, *, q=0.4, qd=0.0, laws=(), length=0.5, coupling=None, **options):
    """Rods "0", "1", … that hang from the world on hinges "0", "1", … about y and x in turn.

    q, qd: of every hinge; laws: of every hinge; coupling: in place of all hinges
    """
    world = SystemBuilder(**options)
    for i in range(n):
        mass = 1.0 + 0.2 * i
        world.body(str(i), mass=mass, inertia=rod_inertia(mass, length)[::-1])
        joint = Hinge((Y, X)[i % 2]) if coupling is None else coupling
        world.joint(
            str(i),
            joint,
            child=str(i),
            **({"parent": str(i - 1)} if i else {}),
            frame_C=(0.0, 0.0, length / 2),
            frame_D=(0.0, 0.0, -length / 2 if i else 0.0),
            laws=laws,
            q=np.full(joint.dof, q),
            qd=np.full(joint.dof, qd),
        )
    return world.build()


def four_bar(**options):
    """The four-bar of `four_bar_world`, built."""
    return four_bar_world(**options).build()


def four_bar_world(*, crank=1.0, crank_speed=0.0, laws=(), **options):
    """A planar four-bar of four hinges in space: "A" crank, "B" coupler, "D" rocker, "C" closes it.

    Bars along x of their bodies, in the plane y = 0; angles count from x towards z.
    crank, crank_speed: angle of the crank and its speed; laws: of hinge "A"
    """
    angles = four_bar_angles(crank)
    rates = four_bar_rates(angles, crank_speed)
    world = SystemBuilder(**options)
    for name, length in (("crank", CRANK), ("coupler", COUPLER), ("rocker", ROCKER)):
        world.body(name, mass=2 * length, inertia=rod_inertia(2 * length, length))
    hinge = Hinge((0.0, -1.0, 0.0))
    start = (-CRANK / 2, 0.0, 0.0), (-COUPLER / 2, 0.0, 0.0), (-ROCKER / 2, 0.0, 0.0)
    end = (CRANK / 2, 0.0, 0.0), (COUPLER / 2, 0.0, 0.0), (ROCKER / 2, 0.0, 0.0)
    world.joint("A", hinge, child="crank", frame_C=start[0], laws=laws, q=angles[0], qd=crank_speed)
    world.joint(
        "B",
        hinge,
        child="coupler",
        parent="crank",
        frame_C=start[1],
        frame_D=end[0],
        q=angles[1] - angles[0],
        qd=rates[1] - rates[0],
    )
    world.joint(
        "D",
        hinge,
        child="rocker",
        frame_C=start[2],
        frame_D=(GROUND, 0.0, 0.0),
        q=angles[2],
        qd=rates[2],
    )
    world.joint("C", hinge, child="coupler", parent="rocker", frame_C=end[1], frame_D=end[2])
    return world


def four_bar_angles(crank):
    """Angles of crank, coupler and rocker against the ground, the open branch."""
    to_pivot = np.array([GROUND - CRANK * np.cos(crank), -CRANK * np.sin(crank)])
    distance = np.hypot(*to_pivot)
    cosine = (COUPLER**2 + distance**2 - ROCKER**2) / (2 * COUPLER * distance)
    coupler = np.arctan2(to_pivot[1], to_pivot[0]) + np.arccos(cosine)
    tip = COUPLER * np.array([np.cos(coupler), np.sin(coupler)]) - to_pivot
    return crank, coupler, np.arctan2(tip[1], tip[0])


def four_bar_rates(angles, crank_speed):
    """Rates of the three angles for a speed of the crank."""
    normal = [np.array([-np.sin(a), np.cos(a)]) for a in angles]
    matrix = np.stack([COUPLER * normal[1], -ROCKER * normal[2]], axis=1)
    coupler, rocker = np.linalg.solve(matrix, -CRANK * crank_speed * normal[0])
    return crank_speed, coupler, rocker


def floating_chain(*, gravity=(0.0, 0.0, 0.0), **options):
    """Three bodies adrift, "0" to "1" by a ball "ball", "1" to "2" by a hinge "hinge"; all spin."""
    world = SystemBuilder(gravity=gravity, **options)
    world.body(
        "0",
        mass=1.0,
        inertia=(0.03, 0.05, 0.06),
        com=(0.02, -0.01, 0.03),
        pose=(0.1, 0.2, 0.3),
        velocity=(0.2, -0.1, 0.3, 1.5, -1.0, 2.0),
    )
    world.body("1", mass=0.7, inertia=(0.02, 0.03, 0.025))
    world.body("2", mass=1.3, inertia=(0.05, 0.03, 0.04), com=(0.0, 0.05, 0.0))
    world.joint(
        "ball",
        Ball(),
        child="1",
        parent="0",
        frame_C=(0.0, 0.0, 0.25),
        frame_D=(0.0, 0.1, -0.25),
        q=(0.3, -0.2, 0.5),
        qd=(1.0, 2.0, -1.5),
    )
    world.joint(
        "hinge",
        Hinge((1.0, 1.0, 0.0)),
        child="2",
        parent="1",
        frame_C=(0.2, 0.0, 0.1),
        frame_D=(-0.1, 0.0, -0.2),
        q=0.4,
        qd=2.0,
    )
    return world.build()


def slider(*, q=0.0, qd=0.0, laws=(), mass=2.0, axis=X, gravity=(0.0, 0.0, 0.0), **options):
    """A body "block" on the slider "rail" along `axis`, without gravity unless it is given."""
    world = SystemBuilder(gravity=gravity, **options)
    world.body("block", mass=mass, inertia=(0.1, 0.1, 0.1))
    world.joint("rail", Slider(axis), child="block", laws=laws, q=q, qd=qd)
    return world.build()


def sphere(*, angle=0.4, speed=(0.0, 0.0, 0.0), radius=1.0, **options):
    """A body "bead" whose centre stays on a sphere about the world's origin (a `Residual`)."""
    world = SystemBuilder(**options)
    world.body(
        "bead",
        mass=1.0,
        inertia=(0.01, 0.01, 0.01),
        pose=(radius * np.sin(angle), 0.0, -radius * np.cos(angle)),
        velocity=(*speed, 0.0, 0.0, 0.0),
    )
    world.joint("surface", PointOnSphere(radius), child="bead")
    return world.build()


def mixed(**options):
    """Many kinds of joints and laws: slider, hinge, universal, ball, helical chart, residual.

    "rail" cart, "shoulder" arm, "wrist" hand, "grip" tool in a row; on the arm the "screw" (a
    `Chart`) with its nut; from there a "wire" to TIP of the tool (a `Residual`) closes a loop.
    """
    world = SystemBuilder(**options)
    world.body("cart", mass=2.0, inertia=(0.1, 0.12, 0.14))
    world.body("arm", mass=1.0, inertia=(0.03, 0.03, 0.005), com=(0.01, 0.0, 0.02))
    world.body("hand", mass=0.5, inertia=(0.01, 0.012, 0.006))
    world.body("tool", mass=0.4, inertia=(0.008, 0.006, 0.004), com=(0.0, 0.03, -0.05))
    world.body("nut", mass=0.3, inertia=(0.002, 0.002, 0.003))
    world.joint(
        "rail",
        Slider(X),
        child="cart",
        laws=[Limits(-0.05, 0.04), DryFriction(0.8), Damping(0.3)],
        qd=0.6,
    )
    world.joint(
        "shoulder",
        Hinge(Y),
        child="arm",
        parent="cart",
        frame_C=(0.0, 0.0, 0.3),
        laws=[
            Limits(-0.35, 0.45, stiffness=80.0, damping=0.5),
            Damping(0.05),
            DryFriction(0.1),
        ],
        q=0.4,
        qd=1.0,
    )
    world.joint(
        "wrist",
        Universal(X, Y),
        child="hand",
        parent="arm",
        frame_C=(0.0, 0.0, 0.15),
        frame_D=(0.0, 0.0, -0.3),
        laws=[Limits(lower=-0.1), SpringDamper(3.0, 0.02, rest=0.2, coordinate=1)],
        q=(-0.05, 0.3),
    )
    world.joint(
        "grip",
        Ball(),
        child="tool",
        parent="hand",
        frame_C=(0.0, 0.0, 0.1),
        frame_D=(0.02, 0.0, -0.15),
        q=(0.2, 0.1, -0.3),
    )
    world.joint(
        "screw",
        Helical(0.05),
        child="nut",
        parent="arm",
        frame_D=(0.1, 0.0, 0.0),
        laws=[Damping(0.001)],
    )
    world.joint("wire", PointOnSphere(WIRE), child="tool", parent="nut", frame_C=TIP)
    return world.build()


def moving_base(*, laws=(), **options):
    """A cart "cart" on the slider "rail" along x of the prescribed "base", a bob on its "pivot".

    The base is turned by 90° about z of the world: the rail runs along y.
    """
    world = SystemBuilder(**options)
    turned = ((0.5, 0.0, 0.2), (np.sqrt(0.5), 0.0, 0.0, np.sqrt(0.5)))
    world.body("base", prescribed=True, pose=turned)
    world.body("cart", mass=1.5, inertia=(0.1, 0.1, 0.1))
    world.body("bob", mass=0.5, inertia=(0.01, 0.01, 0.01))
    world.joint("rail", Slider(X), child="cart", parent="base", laws=laws)
    world.joint("pivot", Hinge(Y), child="bob", parent="cart", frame_C=(0.0, 0.0, 0.4), q=0.2)
    return world.build()
