"""Random mechanisms, and what must hold for each of them.

`mechanism(random)` draws from a `random.Random`, so that a seed can be replayed and hypothesis can
draw as well (`strategies.randoms`): bodies, joints and laws, which are compiled once, and numbers
of its own for each environment, so that an environment is a mechanism. `examine` rolls these out in
both precisions, with a bad environment in the batch and without it, and returns the laws that they
break.
"""

import warnings
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxjoints as jj
from jaxjoints.couplings.functions import Linear, Polynomial, Spline
from support import couplings_catalog as catalog
from support.mechanisms import single

X, Y, Z = np.eye(3)
ENVIRONMENTS, STEPS = 4, 8
NAN = np.nan
SPOILED = ("control", "mass", "far", "state")
WIRE = np.asarray(catalog.WIRE)
# Heights of a hill and ways of a knee, of a size of 1 m.
HILL = np.array([[0.2, 0.1, 0.3], [-0.2, 0.2, 0.0]])


def hill(L):
    """A `Polynomial` height over (x, y), all lengths scaled by L."""
    powers = np.add.outer(np.arange(2), np.arange(3))
    return Polynomial(HILL * float(L) ** (1 - powers), coordinates=(0, 1))


def knee(L):
    """A `FunctionDriven` knee: flexion and a slide."""
    return jj.FunctionDriven(
        dof=2,
        rotations=(Linear(jnp.array([1.0])), catalog.BEND, jj.functions.Constant(0.1)),
        translations=(
            Linear(jnp.array([0.2 * L, 1.0]), 0.1 * L, coordinates=(0, 1)),
            Polynomial(L * jnp.array([0.1, 0.2, 0.1])),
            Spline(jnp.array([-1.5, 0.0, 1.5]), L * jnp.array([0.0, 0.1, 0.3])),
        ),
        rotation_axes=jnp.array([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0], [0.0, 0.6, 0.8]]),
        translation_axes=jnp.eye(3),
    )


# Couplings by the length L of the mechanism [m], and the kind of each coordinate: "l" a length, "a"
# an angle, "s" an angle that stays small, "p" positive length. All couplings of the package, and of
# users one by its poses, one by its errors and one that moves with time.
COUPLINGS = {
    "Hinge": (lambda L: jj.Hinge(Z), "a"),
    "Slider": (lambda L: jj.Slider(X), "l"),
    "Cylindrical": (lambda L: jj.Cylindrical(Z), "la"),
    "Helical": (lambda L: jj.Helical(0.1 * L), "a"),
    "Ball": (lambda L: jj.Ball(), "sss"),
    "Universal": (lambda L: jj.Universal(X, Y), "as"),
    "ConstantVelocity": (lambda L: jj.ConstantVelocity(), "ss"),
    "Translation": (lambda L: jj.Translation(), "lll"),
    "SlottedHinge": (lambda L: jj.SlottedHinge(), "la"),
    "Planar": (lambda L: jj.Planar(), "lla"),
    "PlanarTranslation": (lambda L: jj.PlanarTranslation(), "ll"),
    "Gimbal": (lambda L: jj.Gimbal("YXZ"), "asa"),
    "BallRotation": (lambda L: jj.BallRotation(), "sss"),
    "FixedAxis": (lambda L: jj.FixedAxis(), "lllas"),
    "PlanePoint": (lambda L: jj.PlanePoint((0.6, -1.0, 1.4)), "llsss"),
    "SegmentedPlanePoint": (lambda L: jj.SegmentedPlanePoint(L * catalog.STRIPS), "llsss"),
    "Ellipsoid": (lambda L: jj.Ellipsoid(L * catalog.RADII, 0.4), "asas"),
    "Ellipsoid3": (lambda L: jj.Ellipsoid3(L * catalog.RADII, exact=False), "asa"),
    "PointOnCurve": (lambda L: jj.PointOnCurve.through(L * WIRE), "psss"),
    "PointOnSurface": (lambda L: jj.PointOnSurface.over(hill(L)), "llsss"),
    "PointOnLevelSet": (
        lambda L: jj.PointOnLevelSet(catalog.Egg(L * catalog.RADII), (0.1 * L, 0.0, 0.8 * L)),
        "llsss",
    ),
    "Hinge2": (lambda L: jj.Hinge2(), "sas"),
    "PrismaticRotoide": (lambda L: jj.PrismaticRotoide(), "la"),
    "PrismaticUniversal": (lambda L: jj.PrismaticUniversal(), "las"),
    "DoubleHinge": (lambda L: jj.DoubleHinge(L), "as"),
    "DoubleBall": (lambda L: jj.DoubleBall(L), "sssss"),
    "FunctionDriven": (knee, "sl"),
    "Reversed": (lambda L: jj.Reversed(jj.Universal(X, Y)), "as"),
    "Chain": (lambda L: jj.Chain(jj.Hinge(Z), jj.Slider(X)), "al"),
    "RollingSphere": (lambda L: jj.RollingSphere(L), "llsss"),
    "RollingDisc": (lambda L: jj.RollingDisc(L), "llasa"),
    "Fixed": (lambda L: jj.Fixed(), ""),
    "Free": (lambda L: jj.Free(), "lllsss"),
    "FreeEuler": (lambda L: jj.FreeEuler("XZY"), "lllasa"),
    "FreeRodrigues": (lambda L: jj.FreeRodrigues(), "lllsss"),
    "Rope": (lambda L: jj.Rope(), "psssss"),
    "Derived": (lambda L: jj.Derived(jj.Hinge(Z)), "a"),
    "screw of a user": (lambda L: catalog.Screw(0.1 * L), "a"),
    "hinge by a user's errors": (lambda L: catalog.HingeErrors(), "a"),
    "sphere of a user": (lambda L: catalog.PointOnSphere(L), "sssss"),
    "moving plane": (lambda L: catalog.MovingPlane(L), "llsss"),
}
# Couplings without rows of their own, which stand beside other joints and carry laws.
BESIDE = {
    "Released": (lambda L: jj.Released(jj.Universal(X, Y)), "sssllll"),
    "SpurGear": (lambda L: jj.SpurGear(0.3 * L, 0.4 * L), "alssss"),
    "BevelGear": (lambda L: jj.BevelGear(0.3 * L, 0.4 * L), "alssss"),
    "AngularMotor": (lambda L: jj.AngularMotor(), "ssslll"),
    "LinearMotor": (lambda L: jj.LinearMotor(), "lllsss"),
    "Rope": (lambda L: jj.Rope(), "psssss"),
}
SPANS = {"l": (-0.4, 0.4), "a": (-2.0, 2.0), "s": (-0.8, 0.8), "p": (0.5, 1.5)}


@dataclass(frozen=True)
class Mechanism:
    """A drawn mechanism in float64, and what is done with it.

    control: efforts over time; low: float32 is the precision of the comparison of neighbours
    differentiated: a gradient is looked at too, which takes several times as long to compile
    spoiled: what is wrong with the bad environment; bad: its number; lines: how it was built
    """

    system: jj.System
    state: jj.State
    control: jj.Control
    dt: float
    scheme: jj.Scheme
    low: bool
    differentiated: bool
    spoiled: str
    bad: int
    length: float
    lines: tuple[str, ...]

    def __len__(self) -> int:
        """Number of environments."""
        return self.system.mass.shape[-1]


class Draft:
    """A mechanism while it is drawn: the builder, the poses of bodies, what was said of it."""

    def __init__(self, random: Random):
        """Draw units, sizes and gravity."""
        self.random = random
        mm, g = random.choice((1.0, 1e3)), random.choice((1.0, 1e3))
        self.length = mm * self.power(-2, 0)
        self.mass, self.spread = g * self.power(-3, 1), random.choice((0.0, 1.0, 3.0))
        self.gravity = 9.81 * mm
        # Angles and speeds of the start as a share of their range: 0 is the reference pose.
        self.calm = random.choice((0.0, 1.0, 1.0))
        self.planar = random.random() < 0.2
        direction = np.array([random.uniform(-1, 1) for _ in range(3)])
        gravity = self.gravity * random.choice((-Z, 0 * Z, direction))
        self.lines: list[str] = []
        self.say(f"length {self.length:.3g}, mass {self.mass:.3g}, gravity {gravity.round(3)}")
        softness = random.choice((None, None, None, jj.Softness(0.2, 1e-6), "soft"))
        if softness == "soft":
            weight = self.mass * self.gravity
            softness = jj.Compliance(0.01 * self.length / weight, damping=0.1 * weight)
        self.world = jj.SystemBuilder(gravity=gravity, softness=softness)
        self.say(f"softness {softness}")
        self.poses = {jj.WORLD: jj.Pose.identity()}
        self.masses = {jj.WORLD: self.mass}
        self.q: dict[str, np.ndarray] = {}
        self.qd: dict[str, np.ndarray] = {}
        self.kinds: dict[str, str] = {}

    def say(self, line: str) -> None:
        """Keep a line of the description."""
        self.lines.append(line)

    def power(self, low: float, high: float) -> float:
        """10 to a uniform exponent."""
        return 10 ** self.random.uniform(low, high)

    def frame(self) -> jj.Pose:
        """Where a joint may sit on a body."""
        uniform = self.random.uniform
        if self.random.random() < 0.15:
            return jj.Pose.identity()
        p = self.length * np.array([uniform(-0.5, 0.5) for _ in range(3)])
        if self.planar:
            return jj.Pose.translation(jnp.array([p[0], p[1], 0.0]))
        r = np.array([uniform(-2.0, 2.0) for _ in range(3)])
        return jj.Pose.from_rotation_vector(jnp.asarray(r), jnp.asarray(p))

    def coordinates(self, kinds: str, least: float = 0.0) -> np.ndarray:
        """Coordinates of these kinds, within their spans."""
        share = max(self.calm, least)
        spans = (np.array(SPANS[kind]) for kind in kinds)
        draws = [span.mean() + share * self.random.uniform(*(span - span.mean())) for span in spans]
        return np.array([self.scale(kind) * x for kind, x in zip(kinds, draws, strict=True)])

    def scale(self, kind: str) -> float:
        """The length for a length, 1 for an angle."""
        return self.length if kind in "lp" else 1.0

    def force(self, kind: str, mass: float) -> float:
        """A force or moment in which a body's weight counts."""
        weight = mass * self.gravity * self.power(-1, 1)
        return weight if kind in "lp" else weight * self.length

    def coupling(self) -> tuple[str, jj.Coupling, str]:
        """One of the couplings; in a plane one that stays in it."""
        flat = ("Hinge", "Hinge", "Hinge", "Slider", "SlottedHinge", "Planar", "DoubleHinge")
        name = self.random.choice(flat if self.planar else (*COUPLINGS, "Hinge", "Ball", "Hinge"))
        make, kinds = COUPLINGS[name]
        return name, make(self.length), kinds

    def body(self, name: str) -> None:
        """A body whose joints place it."""
        random = self.random
        mass = self.mass * self.power(-self.spread, self.spread)
        a, b, c = ((self.length * random.uniform(0.05, 1.0)) ** 2 / 12 for _ in range(3))
        com = self.length * random.choice((0.0, 0.2)) * np.array([1.0, -0.5, 0.3])
        inertia = mass * np.array([b + c, a + c, a + b])
        self.world.body(name, mass=mass, inertia=inertia, com=com)
        self.masses[name] = mass
        self.say(f"body {name}: mass {mass:.3g}, inertia {inertia}, com {com}")

    def tree_joint(self, child: str, parent: str) -> None:
        """A joint that places its child."""
        name, coupling, kinds = self.coupling()
        q = self.coordinates(kinds)
        qd = self.calm * self.coordinates(kinds, least=1.0) * self.power(-1, 1)
        C, D = self.frame(), self.frame()
        laws = self.laws(kinds, q, self.masses[child])
        most = self.masses[child] * self.gravity * self.length
        self.world.joint(
            f"to {child}",
            coupling,
            child=child,
            parent=parent,
            frame_C=C,
            frame_D=D,
            laws=laws,
            q=q,
            enabled=self.random.choice((None,) * 9 + (True,)),
            max_effort=None
            if not kinds or self.random.random() < 0.9
            else np.full(len(kinds), most),
        )
        self.poses[child] = self.poses[parent] @ D @ posed(coupling, q) @ C.inverse()
        joint = f"to {child}"
        self.q[joint], self.qd[joint], self.kinds[joint] = q, qd, kinds
        self.say(f"{name} to {child} from {parent}: q {q}, qd {qd}, laws {laws}")

    def loop_joint(self, name: str, child: str, parent: str) -> None:
        """A joint that closes a loop where its bodies stand."""
        kind, coupling, kinds = self.coupling()
        q, C = self.coordinates(kinds), self.frame()
        D = self.poses[parent].inverse() @ self.poses[child] @ C @ posed(coupling, q).inverse()
        laws = self.laws(kinds, q, self.masses[child])
        ends = {"child": child, "parent": parent, "frame_C": C, "frame_D": D.normalized()}
        for copy in range(self.random.choice((1, 1, 2))):
            self.world.joint(f"{name}.{copy}", coupling, **ends, laws=laws if copy == 0 else ())
            self.say(f"loop {name}.{copy}: {kind} of {child} and {parent}, q {q}, laws {laws}")

    def beside(self, name: str, child: str, parent: str) -> None:
        """Laws alone between two bodies."""
        kind = self.random.choice(tuple(BESIDE))
        make, kinds = BESIDE[kind]
        laws = self.laws(kinds[:3], self.coordinates(kinds[:3]), self.masses[child], least=1)
        ends = {"child": child, "parent": parent, "frame_C": self.frame(), "frame_D": self.frame()}
        self.world.joint(name, make(self.length), **ends, laws=laws)
        self.say(f"{kind} {name} of {child} and {parent}, laws {laws}")

    def laws(self, kinds: str, q: np.ndarray, mass: float, least: int = 0) -> list[jj.Law]:
        """One or two laws on some coordinates; on the first one at least if `least`."""
        random, laws = self.random, []
        for i, kind in enumerate(kinds):
            if random.random() < 0.4 or i < least:
                choices = self.laws_of_one(i, kind, q[i], mass)
                laws += random.sample(choices, random.choice((1, 1, 2)))
        return laws

    def laws_of_one(self, i: int, kind: str, q: float, mass: float) -> list[jj.Law]:
        """A law of each kind for a coordinate that starts at q."""
        uniform, on = self.random.uniform, {"coordinate": i}
        span, force = self.scale(kind), self.force(kind, mass)
        stiffness, damping = force / span, 0.1 * force / span
        low, high = sorted(q + span * uniform(-0.5, 0.5) for _ in range(2))
        return [
            jj.Limits(low, high, **on),
            jj.Limits(low, None, restitution=uniform(0, 1), **on),
            jj.Limits(None, high, stiffness=stiffness, damping=damping, **on),
            jj.Limits(low, high, engagement=jj.Engagement(0.01 * span), **on),
            jj.LimitForce(low, high, 10 * stiffness, damping, 0.01 * span, **on),
            jj.SpringDamper(stiffness * self.power(-2, 5), damping, q, **on),
            jj.Damping(damping * self.power(-2, 2), **on),
            jj.DryFriction(force, **on),
            jj.Motor(span * uniform(-3, 3), force, **on),
            jj.Servo(10 * stiffness, damping, force, target=q, **on),
            jj.Servo(100 * stiffness, damping, target=q, **on),
            jj.Lock(q, **on),
            jj.Armature(mass * (self.length / span) ** 2, **on),
            jj.Effort(force, **on),
        ]

    def contact(self, name: str, child: str) -> None:
        """Two shapes that nearly touch, on the ground or each other."""
        random, L = self.random, self.length
        shape = random.choice(
            (
                jj.shapes.Sphere(0.3 * L),
                jj.shapes.Capsule(0.2 * L, 0.6 * L),
                jj.shapes.Point(),
                jj.shapes.Box((0.4 * L, 0.6 * L, 0.3 * L)),
            )
        )
        height = float(self.poses[child].p[2]) - random.uniform(0.2, 0.5) * L
        surface = random.choice(
            (
                {},
                {"friction": random.uniform(0.1, 1.5)},
                {"friction": 0.5, "rolling": 0.02 * L, "spinning": 0.02 * L},
                {"restitution": 0.7},
                {"stiffness": self.masses[child] * self.gravity / (0.01 * L), "damping": 0.0},
                {"friction_force": self.masses[child] * self.gravity, "slip": 1e-3},
            )
        )
        self.world.contact(
            *(name, shape, jj.shapes.HalfSpace()),
            child=child,
            frame_D=(0.0, 0.0, height),
            **surface,
        )
        self.say(f"contact {name} of {child} with the ground at {height:.3g}: {shape}, {surface}")

    def transmission(self, name: str) -> None:
        """A transmission of joints of the tree that holds at the start, or has laws."""
        random = self.random
        single = [joint for joint, kinds in self.kinds.items() if len(kinds) == 1]
        some = [joint for joint, kinds in self.kinds.items() if kinds]
        options = {"Weighted": some[:2] or None, "Tendon": some or None}
        if len(single) >= 2:
            options |= dict.fromkeys(("Mimic", "RackAndPinion", "Follower"), single[:2])
        if len(single) >= 3:
            options["Differential"] = single[:3]
        swings = [joint for joint, kinds in self.kinds.items() if kinds[:2] in ("ss", "as")]
        if swings:
            options["SwingCone"] = swings[:1]
        kind = random.choice([option for option, joints in options.items() if joints] or [None])
        if kind is None:
            return
        joints = options[kind]
        q = np.concatenate([self.q[joint] for joint in joints])
        scales = np.array([self.scale(k) for joint in joints for k in self.kinds[joint]])
        ratio, laws = random.uniform(-2, 2), ()
        offset = q[-1] - ratio * scales[-1] / scales[0] * q[0]
        ratio = ratio * scales[-1] / scales[0]
        weights = np.array([random.uniform(-1, 1) for _ in q]) / scales
        f = float(weights @ q)
        if kind == "Weighted":
            record = jj.transmissions.Weighted(weights, f)
        elif kind == "Tendon":
            record, laws = jj.transmissions.Weighted(weights), [jj.Limits(upper=f + 0.01)]
        elif kind == "Mimic":
            record = jj.transmissions.Mimic(ratio, offset)
        elif kind == "RackAndPinion":
            record = jj.transmissions.RackAndPinion(ratio, offset)
        elif kind == "Follower":
            bend = scales[-1] / scales[0] ** 2
            start = q[-1] - bend * q[0] ** 2
            record = jj.transmissions.Follower(Polynomial(np.array([start, 0.0, bend])))
        elif kind == "Differential":
            record = jj.transmissions.Differential(1.5)
        else:
            record, laws = jj.transmissions.SwingCone(1.0, 0.8), [jj.Limits(lower=0.0)]
        self.world.transmission(name, record, joints=joints, laws=laws)
        self.say(f"transmission {name}: {record} of {joints}, laws {laws}")

    def field(self, name: str) -> None:
        """A force from outside on all bodies."""
        weight = self.mass * self.gravity
        speed = np.sqrt(self.gravity * self.length)
        record = self.random.choice(
            (
                jj.fields.Drag(linear=weight / speed, quadratic=weight / speed**2),
                jj.fields.PointForce(weight * np.array([0.3, 0.1, -0.2]), axes="body"),
                jj.fields.BodyDamping(0.1, 0.1),
            )
        )
        self.world.field(name, record)
        self.say(f"field {name}: {record}")


@partial(jax.jit)
def posed(coupling: jj.Coupling, q: Any) -> jj.Pose:
    """T_CD at coordinates q."""
    return coupling.pose(q)


def varied(generator: np.random.Generator, system: jj.System, environments: int) -> jj.System:
    """Masses, inertias, gravity and the numbers of all laws drawn anew for each environment.

    Where a body is and what a joint keeps stay, so that all environments start closed.
    """

    def times(x: jax.Array, low: float, high: float) -> jax.Array:
        """A number with an axis of environments, times a factor of each."""
        return scaled_by(x, np.exp(generator.uniform(np.log(low), np.log(high), environments)))

    def scaled_by(x: jax.Array, factors: np.ndarray) -> jax.Array:
        return x[..., None] * factors.reshape((1,) * x.ndim + (-1,))

    def smaller(law: jj.Law) -> jj.Law:
        """A law whose numbers shrink alike, so that a lower end stays below an upper one."""
        factors = generator.uniform(generator.uniform(0.2, 1.0), 1.0, environments)
        # What a lock keeps is where the joint starts.
        return (
            law if isinstance(law, jj.Lock) else jax.tree.map(lambda x: scaled_by(x, factors), law)
        )

    masses = np.stack([np.exp(generator.uniform(-2.0, 2.0, environments)) for _ in system.mass])
    tilt = generator.normal(size=(3, environments)) * np.linalg.norm(system.gravity)
    kinds = {
        kind: tuple(
            jj.replace(group, laws=tuple(map(smaller, group.laws)))
            for group in getattr(system, kind)
        )
        for kind in ("groups", "transmissions")
    }
    return jj.replace(
        system,
        mass=system.mass[:, None] * masses,
        inertia=times(system.inertia, 0.3, 3.0) * masses[None, None],
        gravity=times(system.gravity, 0.5, 2.0) + 0.1 * tilt,
        **kinds,
    )


def mechanism(random: Random, most: int = 5, environments: int = ENVIRONMENTS) -> Mechanism:
    """Draw a mechanism with its starts, controls, step and bad environment.

    most: number of bodies at most; environments: how many, each with numbers of its own
    Raises: ValueError where a builder refuses what was drawn
    """
    draft = Draft(random)
    bodies = [str(i) for i in range(min(most, random.choice((1, 2, 2, 3, 3, 4, 5))))]
    for i, name in enumerate(bodies):
        draft.body(name)
        draft.tree_joint(name, random.choice([jj.WORLD, *bodies[:i], *bodies[max(0, i - 1) : i]]))
    for i in range(random.choice((0, 0, 1, 1, 2))):
        child = random.choice(bodies)
        parent = random.choice([jj.WORLD, *(body for body in bodies if body != child)])
        draft.loop_joint(f"loop {i}", child, parent)
    if random.random() < 0.25:
        child = random.choice(bodies)
        others = [jj.WORLD, *(body for body in bodies if body != child)]
        draft.beside("beside", child, random.choice(others))
    if random.random() < 0.35:
        draft.contact("contact", random.choice(bodies))
    if random.random() < 0.3:
        draft.transmission("transmission")
    if random.random() < 0.2:
        draft.field("field")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        system, _ = draft.world.build()
        # Rough: a joint that closes a loop may be one of those whose speeds were drawn.
        state = system.state(q=draft.q, qd=draft.qd, rough=True)
    generator = np.random.default_rng(random.randrange(2**32))
    system = varied(generator, system, environments)
    state = jj.replicate(state, environments)
    faster = generator.uniform(0.0, 2.0, (1, 1, environments))
    state = jj.replace(state, velocity=state.velocity * faster, omega=state.omega * faster)
    # Small beside the weight of the lightest body on any lever.
    small = 0.1 * float(np.min(system.mass)) * draft.gravity * min(1.0, draft.length)
    effort = small * generator.normal(size=(STEPS, state.q.shape[0], environments))
    schemes = (jj.SemiImplicitEuler(),) * 4
    schemes += (jj.SemiImplicitEuler(projections=1), jj.Rattle(), jj.RungeKutta())
    spoiled, bad = random.choice(SPOILED), random.randrange(environments)
    dt, scheme, low = draft.power(-3.5, -1.5), random.choice(schemes), random.random() < 0.5
    if not takes(scheme, system, state):
        scheme = jj.SemiImplicitEuler()
    draft.say(f"dt {dt:.3g}, {scheme}, environment {bad} with a bad {spoiled}")
    return Mechanism(
        *(system, state, jj.Control(effort=jnp.asarray(effort)), dt, scheme),
        *(low, random.random() < 0.25, spoiled, bad, draft.length, tuple(draft.lines)),
    )


def takes(scheme: jj.Scheme, system: jj.System, state: jj.State) -> bool:
    """Whether a scheme has a rule for each law of a system."""
    if isinstance(scheme, jj.SemiImplicitEuler):
        return True
    try:
        jax.eval_shape(partial(jj.step, dt=1e-3, scheme=scheme), system, state)
    except ValueError as error:
        if not str(error).startswith(type(scheme).__name__):
            raise
        return False
    return True


def spoil(drawn: Mechanism, inputs: tuple) -> tuple:
    """System, state and control with numbers in the bad environment that are none."""
    system, state, control = inputs
    i, kind = drawn.bad, drawn.spoiled
    if kind == "control" and control.effort.size:
        effort = control.effort.at[STEPS // 2, 0, i].set(NAN)
        return system, state, jj.replace(control, effort=effort)
    if kind == "mass":
        return jj.replace(system, mass=system.mass.at[0, i].set(NAN)), state, control
    value = 1e12 if kind == "far" else NAN
    return system, jj.replace(state, position=state.position.at[0, 0, i].set(value)), control


def both(state: jj.State, info: jj.Info) -> tuple[jj.State, jj.Info]:
    """What a rollout records."""
    return state, info


def rolled(drawn: Mechanism, inputs: tuple) -> tuple[jj.State, jj.Info]:
    """State and what was told of each step, over time."""
    return jj.rollout(*inputs, dt=drawn.dt, scheme=drawn.scheme, record=both)[1]


@jj.struct
class Rounded(jj.Newton):
    """Newton's method in float64, with at least the residual that float32 leaves of its solution.

    Where a jammed mechanism asks for a speed that its joints have no freedom for, impulses grow
    until the joints give way, and a rounding of the speeds that cancel, A |Λ|, exceeds the speed
    that is asked for: no impulses in float32 can be seen to solve that.
    """

    def solve(self, problem, start=None):
        """See `Solver.solve`."""
        exact = super().solve(problem, start)
        rounding = float(jnp.finfo(jnp.float32).eps) * exact.size
        return jj.replace(exact, residual=jnp.maximum(exact.residual, rounding))


def beyond_float32(drawn: Mechanism) -> np.ndarray:
    """Steps up to which the solution in float64 is out of float32's reach in one, for each
    environment.
    """
    drawn = replace(drawn, scheme=jj.replace(drawn.scheme, solver=Rounded()))
    _, info = jax.jit(partial(rolled, drawn))((drawn.system, drawn.state, drawn.control))
    return np.logical_or.accumulate(np.asarray(info.cause) == jj.Cause.SOLVER, axis=0)


def loss(drawn: Mechanism, own: tuple, shared: jax.Array, inputs: tuple) -> tuple:
    """A number that depends on where the sound environments end, and their records.

    own: masses and velocities of each environment; shared: a factor of gravity in all of them
    """
    system, state, control = inputs
    system = jj.replace(system, mass=own[0], gravity=shared * system.gravity)
    states, infos = rolled(drawn, (system, jj.replace(state, velocity=own[1]), control))
    sound = np.arange(len(drawn)) != drawn.bad
    end = jax.tree.map(lambda x: x[-1], states)
    weight = np.cos(np.arange(3.0)).astype(end.position.dtype)[:, None, None]
    motion = weight * (end.position / drawn.length + end.omega)
    return jnp.sum(jnp.where(sound, motion, 0.0)), (states, infos)


def examine(drawn: Mechanism, reference: bool = True) -> dict[str, str]:
    """The laws that a mechanism breaks, each with where it does.

    reference: roll out in the other precision too, without which "float32 alone" is not seen

    not finite: a number of an environment that is not flagged, or of any state
    not finite, gradient: in the derivatives of environments that are not flagged
    neighbours; neighbours, gradient: what an environment gets depends on a bad one beside it
    float32 alone: flagged SOLVER in float32 in a step up to which float64 has no complaint, and
        solutions within the reach of float32
    """
    found: dict[str, str] = {}
    double = drawn.system, drawn.state, drawn.control
    low = single(double)
    chosen, other = (low, double) if drawn.low else (double, low)
    sound = np.arange(len(drawn)) != drawn.bad
    run = jax.jit(partial(rolled, drawn))
    if drawn.differentiated:
        sloped = jax.jit(jax.value_and_grad(partial(loss, drawn), (0, 1), has_aux=True))

        def outcome(inputs):
            system, state, _ = inputs
            one = jnp.ones((), system.mass.dtype)
            (_, records), slopes = sloped((system.mass, state.velocity), one, inputs)
            return records, slopes
    else:

        def outcome(inputs):
            return run(inputs), ()

    records, slopes = outcome(chosen)
    spoiled, spoiled_slopes = outcome(spoil(drawn, chosen))
    rollouts = {"chosen": records} | ({"other": run(other)} if reference else {})

    for name, (states, infos) in rollouts.items():
        flagged = np.asarray((infos.cause != jj.Cause.NONE) | ~infos.ok)
        for part, tree in (("state", states), ("info", infos)):
            for path, leaf in jax.tree.leaves_with_path(tree):
                wrong = ~np.isfinite(np.asarray(leaf))
                wrong = wrong.any(axis=tuple(range(1, wrong.ndim - 1)))
                wrong = wrong & ~flagged if part == "info" else wrong
                if wrong.any():
                    found["not finite"] = f"{name} {part}{jax.tree_util.keystr(path)}"

    def unlike(a, b):
        """Names of leaves that differ in the sound environments, or in what all share."""
        names = []
        for (path, x), y in zip(jax.tree.leaves_with_path(a), jax.tree.leaves(b), strict=True):
            x, y = np.asarray(x), np.asarray(y)
            if x.shape[-1:] == (len(drawn),):
                x, y = x[..., sound], y[..., sound]
            if not np.array_equal(x, y, equal_nan=True):
                names.append(jax.tree_util.keystr(path))
        return ", ".join(names)

    for law, pair in (
        ("neighbours", (records, spoiled)),
        ("neighbours, gradient", (slopes, spoiled_slopes)),
    ):
        names = unlike(*pair)
        if names:
            found[law] = names
    told = np.asarray((records[1].cause != jj.Cause.NONE) | ~records[1].ok).any()
    if not told and not all(np.isfinite(slope).all() for slope in jax.tree.leaves(slopes)):
        found["not finite, gradient"] = "of masses, velocities or gravity"
    if reference:
        infos = [rollouts[name][1] for name in ("chosen", "other")]
        single_info, double_info = infos if drawn.low else infos[::-1]
        well = np.logical_and.accumulate(np.asarray(double_info.ok), axis=0)
        alone = (np.asarray(single_info.cause) == jj.Cause.SOLVER) & well
        if alone.any():
            alone &= ~beyond_float32(drawn)
        if alone.any():
            at = tuple(np.argwhere(alone)[0])
            left = [float(info.residual[at]) for info in (single_info, double_info)]
            found["float32 alone"] = (
                f"step {at[0]} of environment {at[1]}, residuals {left[0]:.3g} and {left[1]:.3g}"
            )
    return found
