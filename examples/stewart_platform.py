"""A Stewart platform follows a circle while it leans into it: six closed loops, six servos.

Each leg is a cylinder on a universal joint, a rod that slides in it, and a ball joint under the
platform. The servos of the rods are told the lengths that the wanted poses of the platform need.
The program prints how far the platform stays from these poses and writes a page that shows the
motion:

    python examples/stewart_platform.py --page stewart_platform.html

With `--picture FILE` a browser draws that page frame by frame into a moving picture; it needs
`pip install -e ".[browser]" pillow` and Chromium.
"""

import argparse
import io
import shutil
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import jaxjoints as jj
from jaxjoints.models.geometry import Box, Cylinder, Visual

DT, PERIOD = 2e-3, 4.0  # [s]
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


def simulated(system: jj.System, state: jj.State) -> tuple[jj.State, jj.Info]:
    """States and reports of a turn after the platform has swung out to its circle."""
    times = DT * jnp.arange(1, round((1.0 + PERIOD) / DT) + 1)
    reach = jax.vmap(lengths)(times) - lengths(jnp.zeros(()))
    speed = jnp.gradient(reach, DT, axis=0)
    control = jax.vmap(
        lambda q, qd: system.control(
            target={f"leg {i}": q[i] for i in range(6)},
            target_speed={f"leg {i}": qd[i] for i in range(6)},
        )
    )(reach, speed)
    _, recorded = jj.rollout(
        system, state, control, dt=DT, record=lambda state, info: (state, info), record_every=20
    )
    return recorded


def errors(system: jj.System, states: jj.State) -> np.ndarray:
    """Distances of the platform's centre from where it is wanted [m], shape (frames,)."""
    centre = jax.vmap(lambda time: wanted(time).p)(states.time)
    return np.linalg.norm(states.position[:, :, system.body("platform")] - centre, axis=1)


def film(page: Path, picture: Path, start: float, frames: int = 75) -> None:
    """Draw the page's motion from a time on [s] into a moving picture (WebP or GIF)."""
    from PIL import Image
    from playwright.sync_api import sync_playwright

    names = ("chromium", "chromium-browser", "google-chrome")
    executable = next(filter(None, map(shutil.which, names)), None)
    with sync_playwright() as driver:
        flags = ["--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]
        browser = driver.chromium.launch(executable_path=executable, args=flags)
        view = browser.new_page(viewport={"width": 640, "height": 400})
        view.goto(page.absolute().as_uri())
        view.wait_for_function("() => 'viewer' in window")
        view.keyboard.press("b")
        images = []
        for n in range(frames):
            view.evaluate("time => viewer.seek(time)", start + PERIOD * n / frames)
            images.append(Image.open(io.BytesIO(view.screenshot())).convert("RGB"))
        browser.close()
    first, *others = images
    length = round(1000 * PERIOD / frames)
    first.save(picture, save_all=True, append_images=others, duration=length, loop=0, quality=70)


def main(page: Path | None = None, picture: Path | None = None) -> float:
    """Largest distance of the platform from its circle in the last turn [m]."""
    system, state, visuals = built()
    states, info = simulated(system, state)
    print(info)
    error = errors(system, states)[states.time > 1.0].max()
    print(f"The platform stays within {1000 * error:.2f} mm of its circle.")
    if page is not None or picture is not None:
        shown = jj.view(
            system, (states, info), visuals=visuals, traces=["platform"], title="Stewart platform"
        )
        written = shown.save(page or picture.with_suffix(".html"))
        if picture is not None:
            film(written, picture, start=1.0)
    return float(error)


if __name__ == "__main__":
    options = argparse.ArgumentParser(description="A Stewart platform that follows a circle.")
    options.add_argument("--page", type=Path, help="HTML file to write")
    options.add_argument("--picture", type=Path, help="moving picture to write (.webp or .gif)")
    given = options.parse_args()
    main(given.page, given.picture)
