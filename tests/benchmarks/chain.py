"""The chain that all engines simulate: numbers, starts, and its description for each of them.

Slender rods in a row, hinges about y, x, y, x, …, no contacts. Without limits it hangs from angles
of 0.3 ± 0.1 rad. With limits of ±0.5 rad it stands, every angle near 0.49 and leaning outwards, so
that gravity drives it onto its stops within a few steps.
"""

import numpy as np

LINKS = 10
DT = 0.002
STEPS = 100
GRAVITY = 9.81
LENGTH, MASS, RADIUS = 0.5, 1.0, 0.02
LIMIT = 0.5
ACROSS = MASS * (LENGTH**2 / 12 + RADIUS**2 / 4)
ALONG = MASS * RADIUS**2 / 2
AXES = ((0.0, 1.0, 0.0), (1.0, 0.0, 0.0))


def angles(limits: bool, batch: int) -> np.ndarray:
    """Angles at the start [rad], shape (links, batch); the first columns do not depend on batch."""
    noise = np.random.default_rng(0).standard_normal((batch, LINKS)).T
    return np.minimum(0.49 + 0.005 * noise, LIMIT) if limits else 0.3 + 0.1 * noise


def system(limits: bool):
    """The chain as a jaxjoints `System`."""
    import jaxjoints as jj

    up = 1.0 if limits else -1.0
    world = jj.SystemBuilder(gravity=(0.0, 0.0, -GRAVITY))
    parent, end = jj.WORLD, (0.0, 0.0, 0.0)
    for i in range(LINKS):
        link = world.body(
            f"link{i}", mass=MASS, inertia=(ACROSS, ACROSS, ALONG), com=(0.0, 0.0, up * LENGTH / 2)
        )
        world.joint(
            f"joint{i}",
            jj.Hinge(axis=AXES[i % 2]),
            child=link,
            parent=parent,
            frame_D=end,
            laws=[jj.Limits(-LIMIT, LIMIT)] if limits else (),
        )
        parent, end = link, (0.0, 0.0, up * LENGTH)
    return world.build()[0]


def mjcf(limits: bool, option: str = "") -> str:
    """The chain as MuJoCo reads it; `option`: more attributes of its `option` element."""
    up = 1.0 if limits else -1.0
    bounds = f'limited="true" range="{-LIMIT} {LIMIT}"' if limits else ""
    links = ""
    for i in range(LINKS):
        axis = " ".join(str(x) for x in AXES[i % 2])
        links += (
            f'<body pos="0 0 {up * LENGTH if i else 0}">'
            f'<joint type="hinge" axis="{axis}" {bounds}/>'
            f'<inertial pos="0 0 {up * LENGTH / 2}" mass="{MASS}" '
            f'diaginertia="{ACROSS} {ACROSS} {ALONG}"/>'
        )
    return (
        '<mujoco><compiler angle="radian"/>'
        f'<option timestep="{DT}" gravity="0 0 {-GRAVITY}" {option}/>'
        f"<worldbody>{links}{'</body>' * LINKS}</worldbody></mujoco>"
    )
