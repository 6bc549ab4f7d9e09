"""What the ground does to bodies that rest, slide, pile up and walk, beside closed forms.

    python tests/benchmarks/ground.py
    python tests/benchmarks/ground.py --scenes "slope 0.59" "slope 0.65"

Each line is a scene in one precision: the shares of its steps whose residual is above 1e-3 and
above 1e-5 m/s, the largest residual, the share whose friction exceeds its bound by 1 mm/s, and what
came out beside what should. The table is in README.md beside this file.
"""

import argparse
import time
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxjoints as jj

G = 9.81
SIZE, MASS = np.array((0.2, 0.15, 0.1)), 1.5
INERTIA = tuple(MASS / 12 * (SIZE @ SIZE - SIZE**2))
CORNERS = [(x, y) for x in (-1, 1) for y in (-1, 1)]
FLOOR = jj.shapes.HalfSpace()
# Residuals that count [m/s], and excess of friction [m/s].
RESIDUALS, EXCESS = (1e-3, 1e-5), 1e-3


class Scene(NamedTuple):
    """A system, where it starts, and what acts in each step, None or (steps, …) arrays.

    outcome: what came out, of the last state and the positions of all steps, (steps, 3, bodies)
    expected: what should come out
    """

    system: jj.System
    state: jj.State
    control: jj.Control | None
    dt: float
    steps: int
    outcome: Callable[[jj.State, np.ndarray], str]
    expected: str


def boxes(places, velocities=None, gravity=(0.0, 0.0, -G), beneath=None, **surface):
    """Boxes at places, of which each stands on the ground or with some corners on boxes below.

    beneath: for each box the boxes below, each with the corners that are on it, -1 for the ground
    """
    world = jj.SystemBuilder(gravity=gravity)
    corners = {i: range(4) for i in range(4)}
    for i, place in enumerate(places):
        motion = {} if velocities is None else {"velocity": velocities[i]}
        world.body(str(i), mass=MASS, inertia=INERTIA, pose=tuple(place), **motion)
    radius = 1e-3
    for i in range(len(places)):
        for below, at in [(-1, corners[0])] if beneath is None else beneath[i]:
            face = {} if below < 0 else {"parent": str(below), "frame_D": (0, 0, SIZE[2] / 2)}
            for k in at:
                x, y = np.array(CORNERS[k]) * SIZE[:2] / 2
                foot = (float(x), float(y), radius - SIZE[2] / 2)
                world.contact(
                    f"{i} on {below} at {k}",
                    jj.shapes.Sphere(radius),
                    FLOOR,
                    child=str(i),
                    frame_C=foot,
                    **face,
                    **surface,
                )
    return world.build()


def slid(state: jj.State, path: np.ndarray) -> str:
    """How far the first box slid."""
    return f"{np.linalg.norm(path[-1, :2, 0]):.4f} m"


def one_box(seconds: float, expected: str, outcome=slid, velocity=(0.0,) * 6, **options) -> Scene:
    """One box on its four lower corners."""
    built = boxes([(0.0, 0.0, SIZE[2] / 2)], [velocity], **options)
    return Scene(*built, None, 5e-3, round(seconds / 5e-3), outcome, expected)


def slope(tangent: float, μ: float = 0.6) -> Scene:
    """A box put on a slope of that tangent, for one second."""
    θ = np.arctan(tangent)
    a = max(0.0, G * (np.sin(θ) - μ * np.cos(θ)))
    gravity = (G * np.sin(θ), 0.0, -G * np.cos(θ))
    return one_box(1.0, f"{a / 2:.4f} m", gravity=gravity, friction=μ)


def slide(angle: float) -> Scene:
    """A box that slides with 2 m/s at an angle to the tangents until it rests."""
    velocity = (2 * np.cos(angle), 2 * np.sin(angle), 0.0, 0.0, 0.0, 0.0)
    return one_box(1.0, f"{4 / (2 * 0.5 * G):.4f} m", velocity=velocity, friction=0.5)


def spin() -> Scene:
    """A box that turns flat with 10 rad/s until it rests; what each corner resists is round."""
    μ, ω, r = 0.5, 10.0, np.hypot(*SIZE[:2]) / 2
    turned = lambda s, _: f"{2 * np.arctan2(*np.asarray(s.quaternion)[[3, 0], 0]):.3f} rad"  # noqa: E731
    expected = f"{ω**2 * r / (6 * μ * G):.3f} rad"
    return one_box(1.0, expected, turned, velocity=(0.0,) * 5 + (ω,), friction=μ)


def belt() -> Scene:
    """A box put on a belt of 1 m/s, for one second."""
    μ, v = 0.4, 1.0
    expected = f"{v - v**2 / (2 * μ * G):.4f} m"
    return one_box(1.0, expected, friction=μ, surface_speed=(v, 0.0))


def driven() -> Scene:
    """A foot on a spring that a force drives, resisted by dry friction (Den Hartog 1931).

    Its amplitude has a closed form where the foot does not stop on its way.
    """
    k, m, μ, r, share = 400.0, 1.0, 0.3, 0.6, 0.3
    ω = r * np.sqrt(k / m)
    push = μ * m * G / share
    V, U = 1 / (1 - r * r), np.sin(np.pi / r) / (r * (1 + np.cos(np.pi / r)))
    exact = push / k * np.sqrt(V * V - (share * U) ** 2)
    system, state = sprung_foot(k, m, μ)
    dt, periods = 1e-3, 30
    steps = round(periods * 2 * np.pi / ω / dt)
    wrench = np.zeros((steps, 6, 1))
    wrench[:, 0, 0] = push * np.cos(ω * dt * (1 + np.arange(steps)))
    last = round(4 * np.pi / ω / dt)
    amplitude = lambda _, path: f"{np.ptp(path[-last:, 0, 0]) / 2:.4f} m"  # noqa: E731
    control = jj.Control(wrench=jnp.asarray(wrench))
    return Scene(system, state, control, dt, steps, amplitude, f"{exact:.4f} m")


def pulled() -> Scene:
    """A foot on a spring whose other end a motor pulls at a constant speed v: stick and slip.

    It sticks until the spring overcomes its friction. Then its speed is v (1 - cos ω t): it comes
    to rest once a period of the spring, to stick again, and moves with 2 v at most.
    """
    k, m, μ, v = 400.0, 1.0, 0.3, 0.1
    period, dt, steps = 2 * np.pi * np.sqrt(m / k), 1e-3, 4000
    system, state = sprung_foot(k, m, μ)
    wrench = np.zeros((steps, 6, 1))
    wrench[:, 0, 0] = k * v * dt * (1 + np.arange(steps))

    def outcome(_, path):
        speed = np.diff(path[:, 0, 0]) / dt
        starts = np.flatnonzero((speed[1:] > v) & (speed[:-1] <= v))
        return f"{np.diff(starts).mean() * dt:.4f} s, {speed.max():.4f} m/s"

    control = jj.Control(wrench=jnp.asarray(wrench))
    return Scene(system, state, control, dt, steps, outcome, f"{period:.4f} s, {2 * v:.4f} m/s")


def sprung_foot(k: float, m: float, μ: float) -> tuple[jj.System, jj.State]:
    """A foot on the ground, on a spring along x."""
    world = jj.SystemBuilder()
    world.body("foot", mass=m, inertia=(1e-2,) * 3, pose=(0.0, 0.0, 0.1))
    plane = np.array([[1.0, 0, 0], [0, 0, -1], [0, 1, 0]])
    frames = {
        f"frame_{x}": jj.Pose.from_matrix(plane, (0.0, 0.0, z)) for x, z in (("C", 0.0), ("D", 0.1))
    }
    laws = jj.SpringDamper(stiffness=k, damping=0.0)
    world.joint("rail", jj.PlanarTranslation(), child="foot", laws=laws, **frames)
    world.contact("sole", jj.shapes.Sphere(0.1), FLOOR, child="foot", friction=μ)
    return world.build()


def sunk(state: jj.State, path: np.ndarray) -> str:
    """How far the boxes moved in all, and in the second half."""
    moved = lambda a, b: np.linalg.norm(path[b] - path[a], axis=0).max()  # noqa: E731
    return f"{moved(0, -1):.0e} m, {moved(len(path) // 2, -1):.0e} m"


def pile(pushed: bool) -> Scene:
    """Three boxes on each other; pushed, a force at the lowest moves all of them."""
    places = [(0.0, 0.0, (i + 0.5) * SIZE[2]) for i in range(3)]
    beneath = [[(i - 1, range(4))] for i in range(3)]
    system, state = boxes(places, beneath=beneath, friction=0.6)
    if not pushed:
        return Scene(system, state, None, 5e-3, 400, sunk, "0 m")
    μ, a, seconds = 0.6, 2.0, 0.5
    wrench = np.zeros((100, 6, 3))
    wrench[:, 0, 0] = 3 * MASS * (a + μ * G)
    moved = lambda _, path: " ".join(f"{x:.3f}" for x in path[-1, 0]) + " m"  # noqa: E731
    control = jj.Control(wrench=jnp.asarray(wrench))
    return Scene(system, state, control, 5e-3, 100, moved, f"{a * seconds**2 / 2:.3f} m each")


def wall() -> Scene:
    """Ten boxes in rows of four, three, two and one, each on two of the row below."""
    places, beneath, rows = [], [], [0, 4, 7, 9, 10]
    for row in range(4):
        for i in range(4 - row):
            places.append(((i + row / 2) * SIZE[0], 0.0, (row + 0.5) * SIZE[2]))
            below = rows[row - 1] + i
            halves = [(below, (0, 1)), (below + 1, (2, 3))]
            beneath.append([(-1, range(4))] if row == 0 else halves)
    system, state = boxes(places, beneath=beneath, friction=0.6)
    return Scene(system, state, None, 5e-3, 200, sunk, "0 m")


def task(name: str, amplitude: float, batch: int) -> Scene:
    """A task's mechanism under actions at random, or left alone."""
    env = jj.environments.make(name)
    state = jax.vmap(env.draw, out_axes=-1)(jax.random.split(jax.random.key(0), batch))
    steps, at = 500, np.array(env.places(*env.actuated))
    effort = np.zeros((steps, env.system.coordinates, batch))
    chosen = np.random.default_rng(0).uniform(-amplitude, amplitude, (steps, len(at), batch))
    effort[:, at] = chosen
    height = lambda s, _: f"at {np.asarray(s.position)[2, 0].mean():.2f} m"  # noqa: E731
    control = jj.Control(effort=jnp.asarray(effort))
    return Scene(env.system, state, control, 2e-3, steps, height, "")


SCENES = {
    "slope 0.59": lambda: slope(0.59),
    "slope 0.65": lambda: slope(0.65),
    "slide": lambda: slide(0.0),
    "diagonal slide": lambda: slide(np.pi / 4),
    "spin": spin,
    "belt": belt,
    "driven foot": driven,
    "pulled foot": pulled,
    "pile": lambda: pile(False),
    "pushed pile": lambda: pile(True),
    "wall": wall,
    "four-bar leg, ± 5 N m": lambda: task("four_bar_leg", 5.0, 32),
    "hopper, ± 50 N m": lambda: task("hopper", 50.0, 32),
    "ant, at rest": lambda: task("ant", 0.0, 32),
    "ant, ± 150 N m": lambda: task("ant", 150.0, 32),
}


def line(name: str, scheme: jj.SemiImplicitEuler) -> str:
    """The line of a scene."""
    scene = SCENES[name]()
    began = time.time()

    def record(state, info):
        return state.position, info.residual, info.friction_excess

    @jax.jit
    def run(system, state, control):
        settings = {"dt": scene.dt, "scheme": scheme, "record": record}
        if control is None:
            settings["steps"] = scene.steps
        return jj.rollout(system, state, control, **settings)

    final, (path, left, excess) = run(scene.system, scene.state, scene.control)
    left, excess = np.asarray(left), np.asarray(excess)
    cells = [name, "float64" if jax.config.jax_enable_x64 else "float32"]
    cells += [f"{np.mean(left > most):.2%}" for most in RESIDUALS]
    cells += [f"{left.max():.0e} m/s", f"{np.mean(excess > EXCESS):.1%}"]
    cells += [scene.outcome(final, np.asarray(path)), scene.expected, f"{time.time() - began:.0f}"]
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    """One line for each scene and precision."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--scenes", nargs="*", default=[*SCENES], choices=[*SCENES])
    options.add_argument("--passes", type=int, default=3, help="of `Newton`")
    options.add_argument("--precisions", default="float32,float64")
    given = options.parse_args()
    scheme = jj.SemiImplicitEuler(solver=jj.Newton(passes=given.passes))
    head = "scene", "precision", "residual > 1e-3", "> 1e-5", "largest", "excess", "came out"
    print("| " + " | ".join([*head, "exact", "time [s]"]) + " |\n" + "|---" * 9 + "|")
    for name in given.scenes:
        for precision in given.precisions.split(","):
            jax.config.update("jax_enable_x64", precision == "float64")
            print(line(name, scheme), flush=True)


if __name__ == "__main__":
    main()
