"""jaxjoints: rigid bodies in JAX with the joint as the subject; batched and differentiable.

Build a mechanism with `SystemBuilder`, simulate it with `step` and `rollout`, differentiate through
either. A joint is a `Coupling`, written by its poses (`Chart`) or its errors (`Residual`).
"""

from .builder import SystemBuilder
from .configurations import BodySpeeds, SineCosine, UnitQuaternion
from .contact_laws import ContactFriction, ContactLimits, contact_laws
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
from .couplings.functions import Constant, Function, Linear, Polynomial, Spline, Sum
from .couplings.gear import BevelGear, SpurGear
from .couplings.gimbal import FreeEuler, Gimbal
from .couplings.linear import Cylindrical, Helical, Slider, Translation
from .couplings.motor import AngularMotor, LinearMotor
from .couplings.planar import Planar, PlanarTranslation, SlottedHinge
from .couplings.released import Released
from .couplings.rigid import Fixed, Free, FreeRodrigues
from .couplings.rolling import RollingDisc, RollingSphere
from .couplings.rotary import Ball, ConstantVelocity, Hinge, Universal
from .couplings.shapes import Box, Capsule, HalfSpace, Point, Sphere, Touch, touches
from .couplings.spherical import BallRotation
from .couplings.surface import FixedAxis, PlanePoint, SegmentedPlanePoint
from .drives import Armature, Effort, Motor, Servo
from .engagement import Engagement
from .external import wrench_at
from .fields import BodyDamping, BodyMotion, Drag, Field, PointForce
from .guard import Cause
from .identify import Identified, Motion, Unknown, identify, pose_residuals
from .integrate import SemiImplicitEuler
from .joint_space import JointSpace
from .kinematics import body_poses, coordinates, energy, joint_errors, momentum, speeds
from .laws import (
    CoordinateState,
    CoulombFriction,
    Damping,
    DryFriction,
    Law,
    LimitForce,
    Limits,
    Lock,
    SpringDamper,
)
from .parallel import use_all_cores
from .pytree import map_trailing, replace, static, struct
from .rattle import Rattle
from .readout import Energies, Readings, Readout, energies, reaction, readout
from .rows import Bushing, Compliance, Softness, softness_spring, spring_softness
from .runge_kutta import RungeKutta
from .simulate import project, rollout, step
from .solve.gauss_seidel import ProjectedGaussSeidel
from .solve.newton import Newton
from .spatial import Pose
from .system import WORLD, Control, Info, State, System, replicate
from .transmissions import (
    Differential,
    Follower,
    Mimic,
    RackAndPinion,
    SwingCone,
    Transmission,
    Weighted,
)

__all__ = [
    # describing a mechanism
    "SystemBuilder",
    "WORLD",
    "Pose",
    "Softness",
    "Compliance",
    "Bushing",
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
    "contact_laws",
    "Sphere",
    "Capsule",
    "Box",
    "Point",
    "HalfSpace",
    "Touch",
    "touches",
    # coupling the coordinates of several joints
    "Transmission",
    "Weighted",
    "Mimic",
    "RackAndPinion",
    "Differential",
    "Follower",
    "SwingCone",
    # functions of coordinates
    "Function",
    "Constant",
    "Linear",
    "Polynomial",
    "Spline",
    "Sum",
    # writing a coupling
    "Coupling",
    "CouplingRows",
    "Chart",
    "Residual",
    "Derived",
    # laws
    "Law",
    "CoordinateState",
    "Limits",
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
    # forces from outside
    "Field",
    "BodyMotion",
    "PointForce",
    "Drag",
    "BodyDamping",
    "wrench_at",
    # simulating
    "System",
    "State",
    "Control",
    "Info",
    "Cause",
    "step",
    "rollout",
    "project",
    "replicate",
    "SemiImplicitEuler",
    "Rattle",
    "RungeKutta",
    "Newton",
    "ProjectedGaussSeidel",
    "use_all_cores",
    # reading
    "coordinates",
    "speeds",
    "body_poses",
    "joint_errors",
    "energy",
    "momentum",
    "energies",
    "Energies",
    "reaction",
    "readout",
    "Readout",
    "Readings",
    # one joint in joint space
    "JointSpace",
    "BodySpeeds",
    "SineCosine",
    "UnitQuaternion",
    # identifying
    "identify",
    "Identified",
    "Unknown",
    "Motion",
    "pose_residuals",
    # records
    "struct",
    "static",
    "replace",
    "map_trailing",
]
