"""ODE's contact joint: frictionless, friction box and pyramid, slip, soft, bounce, motion, rolling.

Recordings of like bodies and contacts are the batch of one small system. The collision detection
of the recordings is repeated here, and its results are given to `ContactPoint` at each step.
"""

from dataclasses import dataclass
from functools import cached_property, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxjoints as jj
from support import oracle

CASES = oracle.load("ode_contact")
# Rounding of a step whose bodies are hit at a few m/s, and what 60 steps without chaos make of it.
EQUAL = 1e-9
RUN_EQUAL = 1e-6
SCHEME = jj.SemiImplicitEuler(
    solver=jj.Newton(iterations=20, passes=20, friction="two passes"),
    joints="rows",
    gyroscopic="implicit",
    rotation="linearized",
)
# Greater than any speed of approach here: no bounce.
NEVER = 1e9
FIELDS = {"pos": "position", "quat": "quaternion", "linvel": "velocity", "angvel": "omega"}


@dataclass(frozen=True)
class Bench:
    """Recordings of one kind: `contacts` joints between the first body and the second or the world.

    shapes: the joints find their contacts themselves (corners on a half-space)
    """

    kind: str
    contacts: int = 1
    shapes: bool = False

    @cached_property
    def cases(self):
        return [case for case in CASES.values() if case["contact_kind"] == self.kind]

    @cached_property
    def recorded(self):
        """Positions, quaternions and velocities, arrays (component, body, case, state)."""
        return {
            field: np.stack(
                [np.asarray(c["trajectory"][name], float).transpose(2, 1, 0) for c in self.cases],
                axis=2,
            )
            for name, field in FIELDS.items()
        }

    @cached_property
    def built(self):
        """A system of any numbers, and its state."""
        first = self.cases[0]
        two = len(first["bodies"]) == 2
        builder = jj.SystemBuilder()
        for i in range(len(first["bodies"])):
            builder.body(f"{i}", mass=1.0, inertia=(1.0, 1.0, 1.0), pose=(0.0, 0.0, 1.0))
        for i in range(self.contacts):
            builder.contact(
                f"{i}",
                *(jj.shapes.Point(), jj.shapes.HalfSpace())
                if self.shapes
                else (jj.ContactPoint(tangent=(1.0, 0.0, 0.0)),),
                child="0",
                parent="1" if two else jj.WORLD,
                frame_C=corners(first)[:, i] if self.shapes else None,
                laws=[
                    jj.ContactLimits(restitution=0.5, speed=0.1, anticipate=False),
                    *(jj.ContactFriction(1.0, coordinate=at) for at in range(1, self.laws)),
                ],
            )
        return builder.build()

    def __str__(self):
        return self.kind

    def worst(self, *differences):
        """The names of the cases that differ, and by how much."""
        largest = np.max(differences, axis=0)
        return {c["name"]: x for c, x in zip(self.cases, largest, strict=True) if x >= EQUAL}

    @property
    def laws(self):
        """Number of laws: rolling friction only where a recording has it."""
        return 6 if any("rho" in case["surface"] for case in self.cases) else 3

    @property
    def steps(self):
        return self.recorded["position"].shape[-1] - 1

    @cached_property
    def system(self):
        """The built system with the numbers of each recording."""
        system = self.built[0]

        def wide(numbers):
            return jnp.asarray(np.moveaxis(np.asarray(numbers, float), 0, -1))

        bodies = [case["bodies"] for case in self.cases]
        laws = [laws_of(case)[: self.laws] for case in self.cases]
        names = [set(vars(law)) - {"coordinate", "normal", "anticipate"} for law in laws[0]]
        common = tuple(
            jj.replace(
                law,
                **{
                    name: wide([getattr(own[i], name) for own in laws])
                    for name in names[i]
                    if getattr(law, name) is not None
                },
            )
            for i, law in enumerate(laws[0])
        )
        system = jj.replace(
            system,
            mass=wide([[b["mass"] for b in own] for own in bodies]),
            inertia=wide([np.stack([b["inertia_body"] for b in own], -1) for own in bodies]),
            gravity=wide([case["world"]["gravity"] for case in self.cases]),
        )
        for i in range(self.contacts):
            system = system.with_contact(f"{i}", laws=common)
        return system

    def state(self, at):
        """The recorded state `at` of each recording."""
        fields = {name: jnp.asarray(x[..., at]) for name, x in self.recorded.items()}
        return jj.replace(jj.replicate(self.built[1], len(self.cases)), **fields)


def laws_of(case):
    """Laws with ODE's numbers, in the order of the joints' laws."""
    surface, world = case["surface"], case["world"]
    flags, μ = surface["flags"], surface["mu"]
    normal = jj.ContactLimits(
        erp=surface.get("soft_erp", world["erp"]),
        cfm=surface.get("soft_cfm", world["cfm"]),
        max_correction=NEVER,
        restitution=surface.get("bounce", 0.0),
        bounce_speed=surface.get("bounce_vel", NEVER),
        speed=surface.get("motionN", 0.0),
        anticipate=False,
    )
    laws = [normal]
    for i, most in ((1, μ), (2, surface.get("mu2", μ))):
        pyramid = f"approx1_{i}" in flags
        laws.append(
            jj.ContactFriction(
                friction=most if pyramid else 0.0,
                friction_force=0.0 if pyramid else most,
                slip=surface.get(f"slip{i}", world["cfm"]),
                speed=surface.get(f"motion{i}", 0.0),
                coordinate=i,
            )
        )
    ρ = surface.get("rho", 0.0)
    laws += [jj.ContactFriction(ρ, slip=world["cfm"], coordinate=i) for i in (3, 4, 5)]
    return laws


def corners(case):
    """The lower corners of a box in its frame, (3, 4): no other touches the ground."""
    x, y, z = case["half_extents"]
    return np.array([[-x, -x, x, x], [-y, y, -y, y], [-z, -z, -z, -z]])


def first_tangent(normal):
    """ODE's dPlaneSpace: (3, …)."""
    x, y, z = normal
    steep = np.abs(z) > np.sqrt(0.5)
    tangent = np.where(steep, np.stack([0 * x, -z, y]), np.stack([-y, x, 0 * x]))
    return tangent / np.linalg.norm(tangent, axis=0)


def detect(bench, state):
    """Contact of each case: point, normal (3, cases), depth (cases,) and tangent, in the world."""
    p = np.asarray(state.position)

    def over_cases(values):
        return np.moveaxis(np.asarray(values, float), 0, -1)

    up = over_cases([[0.0, 0.0, 1.0]] * len(bench.cases))
    if bench.kind == "fixed_point":
        given = [case["contact"] for case in bench.cases]
        normal = over_cases([c["normal"] for c in given])
        point, depth = (over_cases([c[field] for c in given]) for field in ("pos", "depth"))
    elif bench.kind == "sphere_plane":
        radius = over_cases([case["radius"] for case in bench.cases])
        point, normal, depth = p[:, 0] - radius * up, up, radius - p[2, 0]
    else:
        r1, r2 = over_cases([case["radii"] for case in bench.cases])
        between = p[:, 0] - p[:, 1]
        distance = np.linalg.norm(between, axis=0)
        normal, depth = between / distance, r1 + r2 - distance
        point = p[:, 1] + normal * (r2 - depth / 2)
    chosen = over_cases([case.get("contact", {}).get("fdir1", [0, 0, 0]) for case in bench.cases])
    tangent = np.where(np.any(chosen != 0, axis=0), chosen, first_tangent(normal))
    return tuple(map(jnp.asarray, (point, normal, depth, tangent)))


def with_contacts(bench, system, state):
    """The system with the contacts of a state."""
    if bench.shapes:
        return system
    poses = [jj.Pose(state.position[:, i], state.quaternion[:, i]).normalized() for i in (0, -1)]
    D = poses[1] if len(bench.cases[0]["bodies"]) == 2 else jj.Pose.identity(state.time.shape)
    T = D.inverse() @ poses[0]
    point, normal, depth, tangent = detect(bench, state)
    point, normal, tangent = D.inverse().apply(point), *map(D.rotate_inverse, (normal, tangent))
    found = jj.ContactPoint.from_detection(T, point, normal, depth, tangent)
    return system.with_contact("0", geometry=found)


@jax.jit
def advance(system, state):
    return jj.step(system, state, dt=0.01, scheme=SCHEME)


def difference(bench, state, at):
    """Largest difference of each case from the recorded state `at`, quaternions up to sign."""
    largest = 0.0
    for field in FIELDS.values():
        expected, found = bench.recorded[field][..., at], np.asarray(getattr(state, field))
        if field == "quaternion":
            found = found * np.sign(np.sum(found * expected, axis=0))
        largest = np.maximum(largest, np.abs(found - expected).max(axis=(0, 1)))
    return largest


@partial(jax.jit, static_argnames="names")
def total_force(system, state, info, names):
    """Of contacts on the first body, in the world, (3, cases)."""
    return sum(jj.reaction(system, state, info, name, axes="world")[:3] for name in names)


def force_difference(bench, system, state, info, at):
    """Of each case's forces in the world on the first body from what ODE reports, relative."""
    force = np.asarray(total_force(system, state, info, system.topology.contacts))
    reported = [case["trajectory"]["contacts"][at] for case in bench.cases]
    expected = np.stack([sum((np.array(c["f1"]) for c in x), np.zeros(3)) for x in reported], 1)
    return np.abs(force - expected).max(axis=0) / (1 + np.abs(expected).max(axis=0))


BENCHES = [Bench("fixed_point"), Bench("sphere_plane"), Bench("two_spheres")]
BENCHES += [Bench("box_plane", contacts=4, shapes=True)]


@pytest.mark.slow
@pytest.mark.parametrize("bench", BENCHES, ids=str)
def test_one_step_from_each_recorded_state_is_odes(bench):
    for at in range(bench.steps):
        state = bench.state(at)
        system = with_contacts(bench, bench.system, state)
        after, info = advance(system, state)
        found = difference(bench, after, at + 1), force_difference(bench, system, state, info, at)
        assert np.all(info.ok) and np.max(found) < EQUAL, (at, bench.worst(*found))


@pytest.mark.slow
@pytest.mark.parametrize("bench", BENCHES, ids=str)
def test_running_free_stays_on_the_recording(bench):
    state = bench.state(0)
    for at in range(1, bench.steps + 1):
        state, _ = advance(with_contacts(bench, bench.system, state), state)
        found = difference(bench, state, at)
        assert np.max(found) < RUN_EQUAL, (at, bench.worst(found))
