"""The mechanisms that all engines simulate, with their numbers and where they start."""

from functools import partial

import numpy as np
from description import Body, Joint, Loop, Mechanism, product, rotated, turn

DT = 0.002
X, Y, Z = (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)
ORIGIN = np.zeros(3)
# Slender rods of the chain, and how far its limited joints turn.
LENGTH, MASS, RADIUS, LIMIT = 0.5, 1.0, 0.02, 0.5


def rod(vector, mass: float, radius: float = RADIUS) -> dict:
    """Mass, centre and inertia of a rod from a body's origin along a vector."""
    vector = np.asarray(vector, float)
    length = np.linalg.norm(vector)
    along = np.outer(vector, vector) / length**2
    across = mass * (length**2 / 12 + radius**2 / 4) * (np.eye(3) - along)
    inertia = across + mass * radius**2 / 2 * along
    return {"mass": mass, "com": vector / 2, "inertia": inertia}


def noise(batch: int, count: int) -> np.ndarray:
    """Normal numbers (batch, count) whose first rows do not depend on batch."""
    return np.random.default_rng(0).standard_normal((batch, count))


def chain(links: int, limited: bool = False) -> Mechanism:
    """Rods in a row, on hinges about y and x in turn.

    Without limits it hangs from angles of 0.3 ± 0.1 rad. With limits of ±0.5 rad it stands, every
    angle near 0.49 and leaning outwards, so that gravity drives it onto its stops within a few
    steps.
    """
    end = np.array([0.0, 0.0, LENGTH if limited else -LENGTH])
    limits = (-LIMIT, LIMIT) if limited else None
    bodies = tuple(
        Body(
            name=f"link{i}",
            joints=(Joint((Y, X)[i % 2], limits=limits),),
            at=end if i else ORIGIN,
            parent=f"link{i - 1}" if i else None,
            **rod(end, MASS),
        )
        for i in range(links)
    )

    def start(batch: int):
        q = 0.3 + 0.1 * noise(batch, links)
        if limited:
            q = np.minimum(0.49 + 0.005 * noise(batch, links), LIMIT)
        return q, np.zeros_like(q)

    return Mechanism(bodies, size=LENGTH, start=start)


# Bars of the four-bar [m]; its crank turns fully (0.3 + 0.9 < 0.8 + 0.6).
CRANK, COUPLER, ROCKER, GROUND = 0.3, 0.8, 0.6, 0.9
CRANK_ANGLE = 1.0


def four_bar_angles(crank: np.ndarray) -> np.ndarray:
    """Angles of crank, coupler and rocker against the ground, shape (3, batch)."""
    x, z = GROUND - CRANK * np.cos(crank), -CRANK * np.sin(crank)
    distance = np.hypot(x, z)
    opening = np.arccos((COUPLER**2 + distance**2 - ROCKER**2) / (2 * COUPLER * distance))
    coupler = np.arctan2(z, x) + opening
    rocker = np.arctan2(COUPLER * np.sin(coupler) - z, COUPLER * np.cos(coupler) - x)
    return np.stack([crank, coupler, rocker])


def four_bar() -> Mechanism:
    """A planar crank-rocker in space, released with its crank near 1 rad from x towards z."""
    hinge = (Joint((0.0, -1.0, 0.0)),)
    zero = four_bar_angles(np.array([CRANK_ANGLE]))[:, 0]
    bars = np.stack([np.cos(zero), 0 * zero, np.sin(zero)], axis=1)
    crank, coupler, rocker = bars * np.array([[CRANK], [COUPLER], [ROCKER]])
    bodies = (
        Body("crank", hinge, at=ORIGIN, **rod(crank, 2 * CRANK)),
        Body("coupler", hinge, at=crank, parent="crank", **rod(coupler, 2 * COUPLER)),
        Body("rocker", hinge, at=np.array([GROUND, 0.0, 0.0]), **rod(rocker, 2 * ROCKER)),
    )

    def start(batch: int):
        angles = four_bar_angles(CRANK_ANGLE + 0.1 * noise(batch, 1)[:, 0]) - zero[:, None]
        q = np.stack([angles[0], angles[1] - angles[0], angles[2]], axis=1)
        return q, np.zeros_like(q)

    loop = Loop("rocker", "coupler", rocker, axis=hinge[0].axis)
    return Mechanism(bodies, size=GROUND, start=start, loops=(loop,))


# Stewart platform [m, kg, N/m, N s/m]: ground and platform radii, height, rods of the legs.
FEET, PINS, HEIGHT, LEG, LEG_MASS, PLATFORM = 0.6, 0.35, 0.7, 0.4, 0.5, 3.0
SPRING, DAMPER = 4000.0, 100.0
SIDES = np.deg2rad([0, 120, 240])


def stewart() -> Mechanism:
    """A platform on six legs, each with a universal joint, a sprung slide, and a ball on top."""
    foot_angles = np.sort(np.concatenate([SIDES - 0.17, SIDES + 0.17]))
    pin_angles = np.sort(np.concatenate([SIDES - 0.87, SIDES + 0.87]))
    feet = FEET * np.stack([np.cos(foot_angles), np.sin(foot_angles), 0 * foot_angles], axis=1)
    pins = PINS * np.stack([np.cos(pin_angles), np.sin(pin_angles), 0 * pin_angles], axis=1)
    centre = np.array([0.0, 0.0, HEIGHT])
    legs = centre + pins - feet
    lengths = np.linalg.norm(legs, axis=1)
    along = legs / lengths[:, None]
    first = np.cross(along, Y)
    first /= np.linalg.norm(first, axis=1)[:, None]
    second = np.cross(along, first)
    bodies, loops = [], []
    for i in range(6):
        universal = (Joint(tuple(first[i])), Joint(tuple(second[i])))
        slide = (Joint(tuple(along[i]), slides=True, stiffness=SPRING, damping=DAMPER),)
        part = rod(LEG * along[i], LEG_MASS)
        top = (lengths[i] - LEG) * along[i]
        bodies.append(Body(f"lower{i}", universal, at=feet[i], **part))
        bodies.append(Body(f"upper{i}", slide, at=top, parent=f"lower{i}", **part))
        loops.append(Loop(f"upper{i}", "platform", LEG * along[i]))
    disc = PLATFORM * PINS**2 / 4 * np.diag([1.0, 1.0, 2.0])
    bodies.append(Body("platform", (), at=centre, mass=PLATFORM, com=ORIGIN, inertia=disc))

    def start(batch: int):
        x = noise(batch, 6).T
        place = centre[:, None] + 0.02 * x[:3]
        pose = product(turn(Z, 0.05 * x[3]), product(turn(Y, 0.05 * x[4]), turn(X, 0.05 * x[5])))
        columns = []
        for i in range(6):
            leg = place + rotated(pose, pins[i]) - feet[i][:, None]
            length = np.linalg.norm(leg, axis=0)
            # Components of the leg's direction along the axes at zero: it is turned by a about
            # `first` and then by b about the carried `second`.
            u, e, n = (axis @ leg / length for axis in (along[i], first[i], -second[i]))
            columns += [np.arctan2(n, u), np.arcsin(e), length - lengths[i]]
        q = np.stack([*columns, *place, *pose], axis=1)
        return q, np.zeros((batch, 24))

    return Mechanism(tuple(bodies), size=FEET, start=start, loops=tuple(loops))


def hinges(*axes, limits, damping: float = 0.1) -> tuple[Joint, ...]:
    """Hinges of one body about several axes, alike."""
    return tuple(Joint(axis, limits=limits, damping=damping) for axis in axes)


def thrown(bodies: tuple[Body, ...], size: float) -> Mechanism:
    """A free body (the first) with limbs, in free fall and its joints in motion."""
    count = sum(len(body.joints) for body in bodies)

    def start(batch: int):
        q, v = np.zeros((batch, 7 + count)), np.zeros((batch, 6 + count))
        q[:, 2], q[:, 3] = 1.0, 1.0
        v[:, 6:] = 3.0 * noise(batch, count)
        return q, v

    return Mechanism(bodies, size=size, start=start)


def ball(mass: float, radius: float) -> dict:
    """Mass, centre and inertia of a ball about a body's origin."""
    return {"mass": mass, "com": ORIGIN, "inertia": 0.4 * mass * radius**2 * np.eye(3)}


def ant() -> Mechanism:
    """A ball with four legs of two hinges: 14 degrees of freedom."""
    bodies = [Body("torso", (), at=ORIGIN, **ball(1.0, 0.25))]
    for i, (x, y) in enumerate(((1, 1), (-1, 1), (-1, -1), (1, -1))):
        out = np.array([x, y, 0.0])
        bend = (-y / 2**0.5, x / 2**0.5, 0.0)
        hip = hinges(Z, limits=(-0.5, 0.5))
        knee = hinges(bend, limits=(-0.4, 0.8))
        leg, shin = rod(0.2 * out, 0.3, 0.08), rod(0.4 * out - [0.0, 0.0, 0.1], 0.5, 0.08)
        bodies.append(Body(f"leg{i}", hip, at=0.2 * out, parent="torso", **leg))
        bodies.append(Body(f"shin{i}", knee, at=0.2 * out, parent=f"leg{i}", **shin))
    return thrown(tuple(bodies), size=0.5)


def humanoid() -> Mechanism:
    """A body with head, waist, pelvis, legs and arms on 17 hinges: 23 degrees of freedom."""
    down = np.array([0.0, 0.0, -1.0])
    wide = (-0.8, 0.8)
    waist, pelvis = hinges(Z, Y, limits=wide), hinges(X, limits=(-0.6, 0.6))
    bodies = [
        Body("torso", (), at=ORIGIN, **ball(8.0, 0.17)),
        Body("waist", waist, at=0.2 * down, parent="torso", **ball(2.5, 0.1)),
        Body("pelvis", pelvis, at=0.17 * down, parent="waist", **ball(5.0, 0.12)),
    ]
    for side, y in (("left", 1.0), ("right", -1.0)):
        hip, knee = hinges(X, Z, Y, limits=wide), hinges(Y, limits=(-0.1, 2.0))
        thigh, shin = rod(0.35 * down, 4.0, 0.06), rod(0.4 * down, 3.0, 0.05)
        at = np.array([0.0, 0.1 * y, -0.05])
        bodies.append(Body(f"{side} thigh", hip, at=at, parent="pelvis", **thigh))
        bodies.append(Body(f"{side} shin", knee, at=0.35 * down, parent=f"{side} thigh", **shin))
    for side, y in (("left", 1.0), ("right", -1.0)):
        shoulder, elbow = hinges(X, Y, limits=wide), hinges(Y, limits=(-1.5, 0.5))
        upper, lower = rod(0.25 * down, 1.6, 0.04), rod(0.25 * down, 1.2, 0.03)
        at = np.array([0.0, 0.2 * y, 0.05])
        bodies.append(Body(f"{side} arm", shoulder, at=at, parent="torso", **upper))
        bodies.append(Body(f"{side} hand", elbow, at=0.25 * down, parent=f"{side} arm", **lower))
    return thrown(tuple(bodies), size=0.4)


CASES = {
    **{f"chain{n}": partial(chain, n) for n in (5, 10, 20, 50, 100)},
    "chain10limits": partial(chain, 10, limited=True),
    "fourbar": four_bar,
    "stewart": stewart,
    "ant": ant,
    "humanoid": humanoid,
}
