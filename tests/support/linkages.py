"""Mechanisms with closed loops as rough sketches, and where they are by geometry."""

import jax
import jax.numpy as jnp
import numpy as np

import jaxjoints as jj
from support.mechanisms import rod_inertia

# Normal of the plane of x and z, so that angles count from x towards z.
NORMAL = (0.0, -1.0, 0.0)
# Theo Jansen's leg: his numbers in units of 0.1 m, by the letters of his drawing.
JANSEN = {
    **{"a": 3.8, "b": 4.15, "c": 3.93, "d": 4.01, "e": 5.58, "f": 3.94, "g": 3.67, "h": 6.57},
    **{"i": 4.9, "j": 5.0, "k": 6.19, "l": 0.78, "m": 1.5},
}


def linkage(bodies, ground, sketch, **options):
    """A linkage of hinges in the plane of x and z, each body where a sketch of its points has it.

    bodies: of each body by name its points by name, (x, z) in its frame [m]. Bodies that have a
        point of the same name are joined there by a hinge, named "point body" for its child
    ground: points of the ground in the world; sketch: rough places of all others
    """
    world, known = jj.SystemBuilder(**options), dict.fromkeys(ground, jj.WORLD)
    rough = {point: complex(*at) for point, at in (ground | sketch).items()}
    for body, points in bodies.items():
        (first, a), (second, b) = ((name, complex(*at)) for name, at in list(points.items())[:2])
        turn = (rough[second] - rough[first]) / (b - a)
        turn /= abs(turn)
        origin, half = rough[first] - turn * a, -np.angle(turn) / 2
        pose = (origin.real, 0.0, origin.imag), (np.cos(half), 0.0, np.sin(half), 0.0)
        world.body(body, mass=1.0, inertia=rod_inertia(1.0, 0.5), pose=pose)
    for body, points in bodies.items():
        for point, at in points.items():
            if point not in known:
                known[point] = body
                continue
            parent = known[point]
            there = ground[point] if parent == jj.WORLD else bodies[parent][point]
            frames = {"frame_C": (at[0], 0.0, at[1]), "frame_D": (there[0], 0.0, there[1])}
            hinge = jj.Hinge(NORMAL)
            world.joint(f"{point} {body}", hinge, child=body, parent=parent, **frames)
    return world.build(rough=True)


def with_point(system, bodies, ground, body, point, at):
    """The system of a `linkage` in which a point of a body is at another (x, z) of its frame."""
    frame = jnp.stack([at[0], jnp.zeros_like(at[0]), at[1]])
    owners = [name for name, points in bodies.items() if point in points]
    parent = jj.WORLD if point in ground else owners.pop(0)
    for child in owners:
        if child == body:
            system = system.with_joint(f"{point} {child}", frame_C=frame)
        elif parent == body:
            system = system.with_joint(f"{point} {child}", frame_D=frame)
    return system


def points_at(system, state, bodies):
    """Where the points of the bodies of a `linkage` are, (x, z) by name."""
    poses, found = jj.body_poses(system, state), {}
    for body, points in bodies.items():
        b = system.body(body)
        pose = poses[b]
        for name, (x, z) in points.items():
            found[name] = pose.apply(jnp.array([x, 0.0, z]))[::2]
    return found


def places(system, state, bodies):
    """`points_at` as complex numbers."""
    return {name: complex(*at) for name, at in points_at(system, state, bodies).items()}


def circles(a, r, b, s):
    """Where circles about a and b of radii r and s meet, to the left of the way from a to b."""
    far = abs(b - a)
    along = (r * r - s * s + far * far) / (2 * far)
    return a + (along + 1j * np.sqrt(r * r - along * along)) * (b - a) / far


def corner(a, b, c):
    """A corner over the base from (0, 0) to (c, 0), b from the first end, a from the second."""
    at = circles(0j, b, c + 0j, a)
    return at.real, at.imag


def bar(first, second, length):
    """The points of a bar."""
    return {first: (0.0, 0.0), second: (length, 0.0)}


def jansen_leg():
    """Jansen's leg: its bodies, ground and sketch."""
    n = JANSEN
    bodies = {
        "crank": bar("O", "M", n["m"]),
        "j": bar("M", "U", n["j"]),
        "k": bar("M", "K", n["k"]),
        # Triangle of b from the fixed pivot P to U, d to V, and e between these.
        "upper": {"P": (0.0, 0.0), "V": (n["d"], 0.0), "U": _below(corner(n["e"], n["b"], n["d"]))},
        "c": bar("P", "K", n["c"]),
        "f": bar("V", "F", n["f"]),
        # Triangle of g from K to F, i to the foot T, and h between these.
        "lower": {"K": (0.0, 0.0), "F": (n["g"], 0.0), "T": corner(n["h"], n["i"], n["g"])},
    }
    ground = {"O": (0.0, 0.0), "P": (-n["a"], -n["l"])}
    sketch = {"M": (1.0, 1.0), "U": (-3.0, 4.0), "K": (-3.0, -4.0), "V": (-8.0, 0.0)}
    return bodies, ground, sketch | {"F": (-7.0, -3.0), "T": (-4.0, -9.0)}


def jansen_points(angle, k=JANSEN["k"]):
    """Where the points of Jansen's leg are at an angle of its crank."""
    n = JANSEN | {"k": k}
    P, M = complex(-n["a"], -n["l"]), n["m"] * np.exp(1j * angle)
    U, K = circles(P, n["b"], M, n["j"]), circles(M, n["k"], P, n["c"])
    V = circles(P, n["d"], U, n["e"])
    F = circles(K, n["g"], V, n["f"])
    return {"M": M, "U": U, "K": K, "V": V, "F": F, "T": circles(K, n["i"], F, n["h"])}


def _below(point):
    return point[0], -point[1]


def five_bar_leg():
    """A leg of two cranks and two rods that meet at the foot T."""
    bodies = {
        **{"left": bar("A", "B", 0.3), "right": bar("E", "D", 0.3)},
        **{"rod": bar("B", "T", 0.5), "other": bar("D", "T", 0.5)},
    }
    ground = {"A": (0.0, 0.0), "E": (0.2, 0.0)}
    return bodies, ground, {"B": (-0.3, -0.3), "D": (0.5, -0.2), "T": (0.2, -0.9)}


def five_bar_foot(left, right, rod=0.5):
    """Where the foot is at angles of the cranks."""
    B, D = 0.3 * np.exp(1j * left), 0.2 + 0.3 * np.exp(1j * right)
    return circles(D, 0.5, B, rod)


def four_bar():
    """A four-bar whose crank turns fully."""
    bodies = {"crank": bar("O", "A", 0.3), "coupler": bar("A", "B", 0.8)}
    bodies["rocker"] = bar("P", "B", 0.6)
    return bodies, {"O": (0.0, 0.0), "P": (0.9, 0.0)}, {"A": (0.2, 0.4), "B": (0.7, 0.8)}


def four_bar_points(angle, coupler=0.8):
    """Where the points of `four_bar` are."""
    A = 0.3 * np.exp(1j * angle)
    return {"A": A, "B": circles(A, coupler, 0.9 + 0j, 0.6)}


def watt_linkage():
    """Watt's six-bar: a four-bar whose rocker, a triangle, moves a second one."""
    bodies = {
        **{"crank": bar("O", "A", 0.3), "coupler": bar("A", "B", 0.8)},
        "rocker": {"P": (0.0, 0.0), "B": (0.6, 0.0), "C": (0.3, -0.5)},
        **{"rod": bar("C", "D", 0.7), "follower": bar("Q", "D", 0.6)},
    }
    ground = {"O": (0.0, 0.0), "P": (0.9, 0.0), "Q": (1.7, -0.1)}
    sketch = {"A": (0.2, 0.4), "B": (0.7, 0.8), "C": (1.6, 0.5), "D": (2.0, 0.7)}
    return bodies, ground, sketch


def watt_points(angle, coupler=0.8):
    """Where the points of `watt_linkage` are."""
    A = 0.3 * np.exp(1j * angle)
    B = circles(A, coupler, 0.9 + 0j, 0.6)
    C = 0.9 + (B - 0.9) / 0.6 * (0.3 - 0.5j)
    return {"A": A, "B": B, "C": C, "D": circles(C, 0.7, 1.7 - 0.1j, 0.6)}


def stephenson_linkage():
    """Stephenson's six-bar (III): a point of a four-bar's coupler moves a rod and a rocker."""
    bodies = {
        "crank": bar("O", "A", 0.3),
        "coupler": {"A": (0.0, 0.0), "B": (0.8, 0.0), "C": (0.4, 0.4)},
        **{"rocker": bar("P", "B", 0.6), "rod": bar("C", "D", 1.3), "follower": bar("Q", "D", 0.6)},
    }
    ground = {"O": (0.0, 0.0), "P": (0.9, 0.0), "Q": (1.5, 0.7)}
    sketch = {"A": (0.4, 0.2), "B": (0.9, 0.7), "C": (0.2, 1.0), "D": (1.2, 1.4)}
    return bodies, ground, sketch


def stephenson_points(angle, rod=1.3):
    """Where the points of `stephenson_linkage` are."""
    A = 0.3 * np.exp(1j * angle)
    B = circles(A, 0.8, 0.9 + 0j, 0.6)
    C = A + (B - A) / 0.8 * (0.4 + 0.4j)
    return {"A": A, "B": B, "C": C, "D": circles(C, rod, 1.5 + 0.7j, 0.6)}


def slider_crank(crank=0.3, rod=0.8, *, laws=(), **options):
    """A slider that a crank moves along x through a rod; hinges "O", "A", "B", slider "guide".

    laws: of the slider
    """
    world, small = jj.SystemBuilder(**options), rod_inertia(1.0, 0.5)
    for name in ("crank", "rod", "piston"):
        world.body(name, mass=1.0, inertia=small)
    hinge = jj.Hinge(NORMAL)
    world.joint("O", hinge, child="crank", q=0.3)
    frames = {"frame_C": (0.0, 0.0, 0.0), "frame_D": (crank, 0.0, 0.0)}
    world.joint("A", hinge, child="rod", parent="crank", q=-0.1, **frames)
    world.joint("guide", jj.Slider((1.0, 0.0, 0.0)), child="piston", q=0.7, laws=laws)
    world.joint("B", hinge, child="rod", parent="piston", frame_C=(rod, 0.0, 0.0))
    return world.build(rough=True)


def bennett_linkage(lengths=(1.0, 1.5), twist=0.6):
    """Bennett's linkage, four hinges "0" to "3" askew in space that move although they should not.

    Lengths a, b and twists α, β of its links in turn obey a / sin α = b / sin β.
    Returns: system and state, and α, β
    """
    (a, b), α = lengths, twist
    β = jnp.arcsin(b / a * jnp.sin(α))
    world = jj.SystemBuilder()
    links = ["ground", "one", "two", "three"]
    for link in links[1:]:
        world.body(link, mass=1.0, inertia=(0.1, 0.1, 0.1))
    for i, (length, angle) in enumerate([(a, α), (b, β), (a, α), (b, β)]):
        end = jj.Pose.along_x(length) @ jj.Pose.about_x(angle)
        child, parent = links[(i + 1) % 4], jj.WORLD if i == 0 else links[i]
        if child == "ground":
            # The last hinge is turned over: the world is no child.
            world.joint(str(i), jj.Hinge(), child=parent, frame_C=end)
        else:
            world.joint(str(i), jj.Hinge(), child=child, parent=parent, frame_D=end)
    return world.build(rough=True), (α, β)


def cardan_shaft(bend=0.5):
    """Two shafts with a cross between them, the second bent down from x about y by `bend` [rad].

    Hinges "in" and "out" about the shafts, joint "cross": three rows are redundant.
    """
    world = jj.SystemBuilder()
    for name in ("first", "second"):
        world.body(name, mass=1.0, inertia=(0.1, 0.1, 0.1))
    hinge = jj.Hinge((1.0, 0.0, 0.0))
    world.joint("in", hinge, child="first", frame_C=(-1.0, 0.0, 0.0), frame_D=(-1.0, 0.0, 0.0))
    bent = jj.Pose.about_y(bend)
    out = bent @ jj.Pose.along_x(1.0)
    world.joint("out", hinge, child="second", frame_C=(1.0, 0.0, 0.0), frame_D=out)
    cross = jj.Universal(axis_D=(0.0, 0.0, 1.0), axis_C=(0.0, 1.0, 0.0))
    world.joint("cross", cross, child="second", parent="first")
    return world.build(rough=True)


def stewart_platform(radius=0.5):
    """A platform on six legs, each of a cross "base i", a slider "leg i" and a ball "top i".

    radius: of the circle of the balls in the platform [m]
    Returns: system, state, and the ends of the legs on the ground and in the platform, (6, 3)
    """
    world = jj.SystemBuilder()
    angles = np.pi / 3 * np.repeat([0, 2, 4], 2) + 0.2 * np.tile([-1, 1], 3)
    ring = np.stack([np.cos(angles), np.sin(angles), 0 * angles], axis=1)
    base, top = ring, radius * np.roll(ring, 1, axis=0)
    world.body("platform", mass=5.0, inertia=(0.5, 0.5, 1.0), pose=(0.1, -0.1, 1.2))
    for i in range(6):
        for part in ("cylinder", "rod"):
            world.body(f"{part} {i}", mass=0.5, inertia=(0.05, 0.05, 0.01))
        place = tuple(base[i])
        cylinder, rod = f"cylinder {i}", f"rod {i}"
        world.joint(f"base {i}", jj.Universal(), child=cylinder, frame_D=place)
        world.joint(f"leg {i}", jj.Slider(), child=rod, parent=cylinder, q=1.0)
        world.joint(f"top {i}", jj.Ball(), child=rod, parent="platform", frame_D=top[i])
    return *world.build(rough=True), base, top


# Places of a leg like Cassie's where all its angles are 0 [m], hip above, y to the left.
CASSIE = {
    **{"hip": (0.0, 0.0, 1.0), "knee": (0.12, 0.0, 0.55), "ankle": (-0.1, 0.0, 0.25)},
    **{"top": (-0.02, 0.04, 0.95), "heel": (-0.17, 0.03, 0.22)},
    **{"drive": (-0.02, 0.0, 0.2), "pin": (-0.02, 0.0, 0.26)},
    **{"toe": (0.15, 0.0, 0.1), "lever": (0.16, 0.0, 0.15)},
}


def cassie_leg(*, hip=(), knee=(), **options):
    """A leg like Cassie's: hinges "hip", "knee" and "ankle" of thigh, shin and tarsus.

    A rod from the thigh ("top") to the tarsus ("heel") has a ball at either end and turns about
    itself freely. A crank on the tarsus ("drive") moves the toe through the bar "plantar", which
    two balls 4 cm apart hold where one would do.
    hip, knee: laws of these hinges
    """
    at = {name: np.array(place) for name, place in CASSIE.items()}
    # Of each body its hinge or ball, its parent, its mass, and where its other end is.
    bodies = {
        "thigh": ("hip", jj.WORLD, 5.0, "knee"),
        "shin": ("knee", "thigh", 1.5, "ankle"),
        "tarsus": ("ankle", "shin", 1.0, "toe"),
        "rod": ("top", "thigh", 0.2, "heel"),
        "crank": ("drive", "tarsus", 0.1, "pin"),
        "plantar": ("pin", "crank", 0.1, "lever"),
        "foot": ("toe", "tarsus", 0.2, "lever"),
    }
    origin = {body: at[joint] for body, (joint, *_) in bodies.items()} | {jj.WORLD: np.zeros(3)}
    world, hinge = jj.SystemBuilder(**options), jj.Hinge((0.0, 1.0, 0.0))
    couplings = {"hip": jj.Hinge((0.1, 1.0, 0.2)), "top": jj.Ball()}
    for body, (_, _, mass, end) in bodies.items():
        com = (at[end] - origin[body]) / 2 + (0.01, 0.02, 0.0)
        inertia = mass * np.array([0.012, 0.01, 0.004])
        world.body(body, mass=mass, inertia=inertia, com=com)
    for body, (joint, parent, *_) in bodies.items():
        laws = {"hip": hip, "knee": knee}.get(joint, ())
        place = {"child": body, "parent": parent, "frame_D": at[joint] - origin[parent]}
        world.joint(joint, couplings.get(joint, hinge), laws=laws, **place)

    def ball(name, child, parent, place):
        frames = {"frame_C": place - origin[child], "frame_D": place - origin[parent]}
        world.joint(name, jj.Ball(), child=child, parent=parent, **frames)

    ball("heel", "rod", "tarsus", at["heel"])
    for side, y in (("left", 0.02), ("right", -0.02)):
        ball(f"lever {side}", "plantar", "foot", at["lever"] + (0.0, y, 0.0))
    return world.build()


# A knee in the plane of x (forward) and y (up) of the femur [m, rad]. Flexion turns the tibia
# backward about z while its end rolls and slides on the femur; the patella goes round the front of
# the femur by an angle of its own, and tilts.
FLEXION = np.radians([-10.0, 0.0, 30.0, 60.0, 90.0, 120.0, 130.0])
ROUND = np.radians([-30.0, 0.0, 20.0, 40.0, 60.0, 80.0, 110.0])
TUBEROSITY, PATELLA_POLE, LIGAMENT = (0.04, -0.05, 0.0), (-0.002, -0.02, 0.0), 0.07


def _spline(knots, values):
    return jj.functions.Spline(jnp.array(knots), jnp.array(values))


def _planar(turn, x, y):
    still = jj.functions.Constant(0.0)
    return jj.FunctionDriven(dof=1, rotations=(still, still, turn), translations=(x, y, still))


KNEE = _planar(
    jj.functions.Linear(jnp.array([-1.0])),
    _spline(FLEXION, [-0.004, -0.005, 0.0, 0.003, 0.0, -0.006, -0.008]),
    _spline(FLEXION, [-0.041, -0.04, -0.0405, -0.042, -0.043, -0.042, -0.041]),
)
GROOVE = _planar(
    _spline(ROUND, [0.45, 0.0, -0.3, -0.6, -0.95, -1.35, -1.9]),
    _spline(ROUND, 0.045 * np.cos(ROUND)),
    _spline(ROUND, -0.042 * np.sin(ROUND)),
)


def knee():
    """A knee whose patella hangs on a ligament: joints "knee", "groove" and, of constant length,
    "ligament".
    """
    world = jj.SystemBuilder()
    for name, mass in (("femur", 8.0), ("tibia", 4.0), ("patella", 0.1)):
        world.body(name, mass=mass, inertia=(0.1 * mass,) * 3)
    world.joint("hip", jj.Fixed(), child="femur", frame_D=(0.0, 0.0, 1.0))
    world.joint("knee", KNEE, child="tibia", parent="femur", q=0.6)
    world.joint("groove", GROOVE, child="patella", parent="femur", q=1.2)
    frames = {"frame_C": PATELLA_POLE, "frame_D": TUBEROSITY}
    rod = jj.DoubleBall(LIGAMENT)
    world.joint("ligament", rod, child="patella", parent="tibia", **frames)
    return world.build(rough=True)


@jax.jit
def _pole_to_tuberosity(flexion, around):
    tuberosity = KNEE.pose(flexion[None]).apply(jnp.array(TUBEROSITY))
    return jnp.linalg.norm(GROOVE.pose(around[None]).apply(jnp.array(PATELLA_POLE)) - tuberosity)


def way_of_patella(flexion):
    """Coordinate of the groove at which the ligament has its length, by bisection."""
    low, high = -0.5, 1.9
    for _ in range(60):
        middle = (low + high) / 2
        above = _pole_to_tuberosity(np.array(flexion), np.array(middle)) > LIGAMENT
        low, high = (middle, high) if above else (low, middle)
    return middle
