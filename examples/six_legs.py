"""The platform of stewart_platform.py: its bodies and joints, and the poses it should take."""

import jax
import jax.numpy as jnp
import numpy as np

import jaxjoints as jj
from jaxjoints.models.geometry import Box, Cylinder, Visual

PERIOD = 4.0  # of the circle [s]
FEET, PINS, HEIGHT, LEG = 1.0, 0.55, 1.2, 0.8  # radii of both ends, height, length of a rod [m]
RADIUS, LEAN = 0.25, 0.3  # of the circle [m], of the platform [rad]
STIFFNESS, DAMPING = 4e5, 4e3  # of the servos [N/m, N s/m]
STEEL, BRASS, SLATE = (0.75, 0.78, 0.8, 1.0), (0.85, 0.65, 0.3, 1.0), (0.2, 0.32, 0.45, 1.0)


def circle(radius: float, spread: float) -> np.ndarray:
    """Six points in three pairs on a circle, shape (6, 3)."""
    angles = np.sort(
        np.concatenate([np.arange(3) * 2 * np.pi / 3 + side for side in (-spread, spread)])
    )
    return radius * np.stack([np.cos(angles), np.sin(angles), 0 * angles], axis=1)


GROUND, PLATE = circle(FEET, 0.17), circle(PINS, 0.87)


def wanted(time: jax.Array) -> jj.Pose:
    """Pose of the platform: it swings out to a circle and leans towards its centre."""
    angle, grown = 2 * jnp.pi * time / PERIOD, jnp.sin(jnp.minimum(time, 1.0) * jnp.pi / 2) ** 2
    out = jnp.stack([jnp.cos(angle), jnp.sin(angle), 0.0 * angle])
    axis = jnp.stack([out[1], -out[0], 0.0 * angle])
    centre = jnp.array([0.0, 0.0, HEIGHT])
    return jj.Pose.from_rotation_vector(LEAN * grown * axis, centre + RADIUS * grown * out)


def lengths(time: jax.Array) -> jax.Array:
    """Lengths of the legs while the platform is where it is wanted [m], shape (6,)."""
    pins = jax.vmap(wanted(time).apply)(jnp.asarray(PLATE))
    return jnp.linalg.norm(pins - GROUND, axis=1)


def built() -> tuple[jj.System, jj.State, list[Visual]]:
    """System, start and what its bodies look like."""
    world = jj.SystemBuilder()
    middle = np.array([0.0, 0.0, HEIGHT])
    world.body("platform", mass=20.0, inertia=(1.5, 1.5, 3.0), pose=middle)
    plate = np.eye(3), np.zeros(3)
    visuals = [Visual("platform", plate, Cylinder(PINS, 0.05), SLATE)]
    visuals.append(
        Visual("platform", (np.eye(3), np.array([0.0, 0.0, 0.1])), Box((0.2, 0.2, 0.15)), BRASS)
    )
    for i, (foot, pin) in enumerate(zip(GROUND, PLATE, strict=True)):
        along = middle + pin - foot
        length = np.linalg.norm(along)
        z = along / length
        x = np.cross((0.0, 1.0, 0.0), z)
        x /= np.linalg.norm(x)
        turned = np.stack([x, np.cross(z, x), z], axis=1)
        half, thin = (0.0, 0.0, LEG / 2), (0.12, 0.12, 0.002)
        for name, at in ((f"cylinder {i}", foot), (f"rod {i}", middle + pin - LEG * z)):
            world.body(name, mass=2.0, inertia=thin, com=half, pose=(at, turned))
        # Frames stand where the bodies do: at the foot, in the cylinder, and at the end of the rod.
        foot_to_rod = (0.0, 0.0, length - LEG)
        world.joint(
            f"foot {i}",
            jj.Universal((1.0, 0.0, 0.0), (0.0, 1.0, 0.0)),
            child=f"cylinder {i}",
            frame_D=(foot, turned),
        )
        servo = jj.Servo(STIFFNESS, DAMPING)
        world.joint(
            f"leg {i}",
            jj.Slider((0.0, 0.0, 1.0)),
            child=f"rod {i}",
            parent=f"cylinder {i}",
            frame_D=foot_to_rod,
            laws=servo,
        )
        world.joint(
            f"pin {i}",
            jj.Ball(),
            child="platform",
            parent=f"rod {i}",
            frame_C=(pin, turned),
            frame_D=(0.0, 0.0, LEG),
        )
        placed = np.eye(3), np.array(half)
        visuals.append(Visual(f"cylinder {i}", placed, Cylinder(0.05, LEG), STEEL))
        visuals.append(Visual(f"rod {i}", placed, Cylinder(0.03, LEG), BRASS))
    system, state = world.build()
    return system, state, visuals
