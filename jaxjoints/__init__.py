"""jaxjoints: rigid bodies in JAX with the joint as the subject; batched and differentiable.

Build a mechanism with `SystemBuilder`, simulate it with `step` and `rollout`, differentiate through
either. A joint is a `Coupling`, written by its poses (`Chart`) or its errors (`Residual`).

Ten things that people do:

1. Build a mechanism: `SystemBuilder`, or from a file by `models.load_urdf`, `models.load_mjcf`.
2. Write a joint: `Chart` by its poses, `Residual` by its errors.
3. Stop, spring and drive joints: `Limits`, `SpringDamper`, `Servo`, `Motor`.
4. Let bodies touch: `SystemBuilder.contact`, with the shapes of `shapes`.
5. Start somewhere: `System.state` by names, `assemble` and `inverse_kinematics` for loops.
6. Simulate one environment or thousands: `step`, `rollout`, `replicate`, `use_all_cores`.
7. Read a motion: `coordinates`, `body_poses`, `reaction`, `energies`, `readout`, `view`.
8. Identify numbers from recordings: `identification.fit`.
9. Plan motions and train policies: `optimization.Problem`, `environments.make`, `learning`.
10. Look into a mechanism: `diagnose`, `dynamics.mass_matrix`, `dynamics.linear_model`.
"""

from typing import TYPE_CHECKING

from . import dynamics, environments, identification, learning, models, optimization
from .algebra.compiler import QUICK
from .algebra.pytree import map_trailing, static, struct
from .algebra.renamed import earlier_names
from .algebra.spatial import Pose
from .algebra.units import UnitWarning
from .algebra.version import VERSION as __version__  # noqa: F401
from .build.builder import SystemBuilder
from .couplings import functions, shapes
from .couplings.compound import (
    Chain,
    DoubleHinge,
    Hinge2,
    PrismaticRotoide,
    PrismaticUniversal,
    Reversed,
)
from .couplings.contact import Contact, ContactPoint
from .couplings.coupling import Chart, Coupling, CouplingRows, Derived, Residual
from .couplings.curve import PointOnCurve, PointOnLevelSet, PointOnSurface
from .couplings.distance import DoubleBall, Rope
from .couplings.ellipsoid import Ellipsoid, Ellipsoid3
from .couplings.function_driven import FunctionDriven
from .couplings.gear import BevelGear, SpurGear
from .couplings.gimbal import FreeEuler, Gimbal
from .couplings.linear import Cylindrical, Helical, Slider, Translation
from .couplings.motor import AngularMotor, LinearMotor
from .couplings.planar import Planar, PlanarTranslation, SlottedHinge
from .couplings.released import Released
from .couplings.rigid import Fixed, Free, FreeRodrigues
from .couplings.rolling import RollingDisc, RollingSphere
from .couplings.rotary import Ball, ConstantVelocity, Hinge, Universal
from .couplings.spherical import BallRotation
from .couplings.surface import FixedAxis, PlanePoint, SegmentedPlanePoint
from .laws import fields, transmissions
from .laws.constraints import Constraint
from .laws.contact import ContactFriction, ContactLimits, ContactPyramid, contact_laws
from .laws.drives import Armature, Effort, Motor, Servo
from .laws.engagement import Engagement
from .laws.friction import CoulombFriction, DryFriction
from .laws.law import CoordinateState, Law
from .laws.limits import LimitForce, Limits, Lock
from .laws.reference_acceleration import ReferenceAcceleration
from .laws.softness import (
    Baumgarte,
    Bushing,
    Compliance,
    Softness,
    softness_spring,
    spring_softness,
)
from .laws.springs import Damping, SpringDamper
from .model.batch import read_out
from .model.external import wrench_at
from .model.measures import (
    body_poses,
    constraint_errors,
    coordinates,
    gaps,
    joint_errors,
    kinetic_and_gravity,
    momentum,
    transmission_errors,
)
from .model.state import Cause, Control, Info, RowForces, State, replace, replicate
from .model.system import WORLD, System
from .schemes.rattle import Rattle
from .schemes.runge_kutta import RungeKutta
from .schemes.scheme import Scheme
from .schemes.semi_implicit_euler import SemiImplicitEuler
from .simulate.controller import Controller, Inputs
from .simulate.readout import Energies, Readings, Readout, energies, reaction, readout
from .simulate.rollout import rollout
from .simulate.step import step
from .simulate.surface import contact_speeds, coordinate_speeds, project
from .simulate.tiles import use_all_cores
from .solve import forces as row_laws
from .solve.derivative import Implicit, Unrolled
from .solve.gauss_seidel import ProjectedGaussSeidel
from .solve.newton import Newton
from .solve.problem import Solver
from .tools import goals, joint_space
from .tools.closure import AssemblyError, AssemblyReport, assemble, inverse_kinematics
from .tools.diagnosis import Diagnosis, diagnose
from .viewing import plots
from .viewing.live import Live, live
from .viewing.page import View, view

__all__ = [
    # families: functions of coordinates, shapes that touch, forces from outside, couplings of
    # coordinates, one joint in joint space, parameters from recordings, tasks for agents, policies
    # by gradients, row laws, goals of an assembly, plots
    "functions",
    "shapes",
    "fields",
    "transmissions",
    "joint_space",
    "identification",
    "environments",
    "learning",
    "row_laws",
    "goals",
    "plots",
    # accelerations at an instant, joint coordinates, linear models
    "dynamics",
    # controls of least cost
    "optimization",
    # mechanisms from files
    "models",
    # describing a mechanism
    "SystemBuilder",
    "WORLD",
    "Pose",
    "UnitWarning",
    "Softness",
    "Compliance",
    "Bushing",
    "Baumgarte",
    # couplings
    "Hinge",
    "Ball",
    "Universal",
    "ConstantVelocity",
    "Slider",
    "Cylindrical",
    "Helical",
    "Translation",
    "SlottedHinge",
    "Planar",
    "PlanarTranslation",
    "Gimbal",
    "BallRotation",
    "FixedAxis",
    "PlanePoint",
    "SegmentedPlanePoint",
    "Ellipsoid",
    "Ellipsoid3",
    "PointOnCurve",
    "PointOnSurface",
    "PointOnLevelSet",
    "Hinge2",
    "PrismaticRotoide",
    "PrismaticUniversal",
    "DoubleHinge",
    "DoubleBall",
    "Rope",
    "FunctionDriven",
    "Reversed",
    "Chain",
    "RollingSphere",
    "RollingDisc",
    "Fixed",
    "Free",
    "FreeEuler",
    "FreeRodrigues",
    # couplings for laws alone
    "Released",
    "SpurGear",
    "BevelGear",
    "AngularMotor",
    "LinearMotor",
    # contacts
    "Contact",
    "ContactPoint",
    "ContactLimits",
    "ContactFriction",
    "ContactPyramid",
    "contact_laws",
    # writing a coupling
    "Coupling",
    "CouplingRows",
    "Chart",
    "Residual",
    "Derived",
    # constraints between any number of bodies
    "Constraint",
    # laws
    "Law",
    "CoordinateState",
    "Limits",
    "ReferenceAcceleration",
    "Engagement",
    "LimitForce",
    "Lock",
    "SpringDamper",
    "Damping",
    "DryFriction",
    "CoulombFriction",
    "Motor",
    "Servo",
    "Armature",
    "Effort",
    "spring_softness",
    "softness_spring",
    # simulating
    "wrench_at",
    "System",
    "State",
    "RowForces",
    "Control",
    "Controller",
    "Info",
    "Inputs",
    "Cause",
    "step",
    "rollout",
    "project",
    "replicate",
    "Scheme",
    "SemiImplicitEuler",
    "Rattle",
    "RungeKutta",
    "Solver",
    "Newton",
    "Implicit",
    "Unrolled",
    "ProjectedGaussSeidel",
    "use_all_cores",
    "QUICK",
    # reading
    "coordinates",
    "coordinate_speeds",
    "gaps",
    "contact_speeds",
    "body_poses",
    "joint_errors",
    "transmission_errors",
    "constraint_errors",
    "momentum",
    "energies",
    "Energies",
    "reaction",
    "readout",
    "Readout",
    "Readings",
    # assembling, and what a mechanism is like
    "assemble",
    "inverse_kinematics",
    "AssemblyError",
    "AssemblyReport",
    "diagnose",
    "Diagnosis",
    # looking
    "view",
    "View",
    "live",
    "Live",
    # records
    "struct",
    "static",
    "replace",
    "map_trailing",
]


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])


# A type checker would take any name for one of these.
if not TYPE_CHECKING:
    __getattr__ = earlier_names(
        __name__,
        {
            "energy": ("energies, a record", read_out(kinetic_and_gravity)),
            "speeds": ("coordinate_speeds", coordinate_speeds),
            "forces": ("row_laws", row_laws),
            "Closure": ("AssemblyReport", AssemblyReport),
        },
    )
