"""Designs a four-bar linkage by gradients through its closed loop: its point draws a wanted path.

A motor turns the crank. Linkages start at random, and each follows the gradient of one simulated
turn with respect to its lengths. Writes examples/linkage.png.
"""

import argparse
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
import optax

import jaxjoints as jj

matplotlib.use("Agg")
import matplotlib.pyplot as plt

STEPS, TURN = 60, 1.0  # steps of one turn of the crank, and how long it takes [s]
# Of the path: length and height [m], and the share of the turn along its straight part.
LENGTH, HEIGHT, STRAIGHT = 0.40, 0.10, 0.65
WEIGHT = 2.0  # of errors across the straight part, beside those along it
NAMES = ("crank", "coupler", "rocker", "pivot x", "pivot z", "point x", "point z", "phase")
LOWER = np.array([0.07, 0.22, 0.22, 0.17, -0.03, 0.40, -0.12, 0.0])
UPPER = np.array([0.11, 0.30, 0.30, 0.24, 0.03, 0.60, 0.12, 2 * np.pi])


def linkage() -> tuple[jj.System, jj.State]:
    """A four-bar linkage in the plane of x and z; angles count from x to z."""
    world = jj.SystemBuilder()
    hinge = jj.Hinge(axis=(0.0, -1.0, 0.0))
    for name in ("crank", "coupler", "rocker"):
        world.body(name, mass=0.2, inertia=(1e-3, 1e-3, 1e-3), pose=(0.0, 0.0, 0.0))
    motor = jj.Motor(speed=2 * np.pi / TURN, effort=1e3)
    world.joint("motor", hinge, child="crank", parent=jj.WORLD, laws=[motor])
    world.joint("knee", hinge, child="coupler", parent="crank")
    world.joint("link", hinge, child="coupler", parent="rocker")
    world.joint("pivot", hinge, child="rocker", parent=jj.WORLD)
    return world.build()


def at(x: jax.Array, z: jax.Array) -> jj.Pose:
    """A frame at a point of the plane."""
    return jj.Pose.translation(jnp.stack([x, jnp.zeros_like(x), z]))


def assembled(system: jj.System, state: jj.State, lengths: jax.Array):
    """System and state of linkages with these lengths (8, linkages), their loops closed."""
    crank, coupler, rocker, x, z, _, _, phase = lengths
    zero = jnp.zeros_like(x)
    system = system.with_joint("knee", frame_D=at(crank, zero))
    system = system.with_joint("link", frame_C=at(coupler, zero), frame_D=at(rocker, zero))
    system = system.with_joint("pivot", frame_D=at(x, z))
    knee = crank * jnp.cos(phase), crank * jnp.sin(phase)
    across = x - knee[0], z - knee[1]
    far = jnp.hypot(*across)
    cosine = (coupler**2 + far**2 - rocker**2) / (2 * coupler * far)
    angle = jnp.arctan2(across[1], across[0]) + jnp.arccos(jnp.clip(cosine, -0.999, 0.999))
    end = knee[0] + coupler * jnp.cos(angle), knee[1] + coupler * jnp.sin(angle)
    angles = jnp.stack([phase, angle, jnp.arctan2(end[1] - z, end[0] - x)])
    none = jnp.zeros_like(angles)
    places = jnp.stack([jnp.stack([zero, knee[0], x]), none, jnp.stack([zero, knee[1], z])])
    turned = jnp.stack([jnp.cos(angles / 2), none, -jnp.sin(angles / 2), none])
    state = jj.replicate(state, lengths.shape[1])
    return system, jj.replace(state, position=places, quaternion=turned)


def paths(system: jj.System, state: jj.State, lengths: jax.Array) -> tuple[jax.Array, jj.State]:
    """Path of each point during a turn (steps, 2, linkages), and all states on the way."""
    system, state = assembled(system, state, lengths)
    scheme = jj.SemiImplicitEuler(projections=2)
    _, motion = jj.rollout(system, state, dt=TURN / STEPS, steps=STEPS, scheme=scheme)
    _, _, y, _ = jnp.moveaxis(motion.quaternion[:, :, 1], 1, 0)
    w = motion.quaternion[:, 0, 1]
    cosine, sine = w * w - y * y, -2 * w * y
    x, z = lengths[5], lengths[6]
    path = motion.position[:, ::2, 1] + jnp.stack([cosine * x - sine * z, sine * x + cosine * z], 1)
    return path, motion


def wanted() -> np.ndarray:
    """The path (steps, 2): along a line at constant speed, and back in an arc; centred."""
    share = np.arange(STEPS) / STEPS
    line, arc = share / STRAIGHT, np.maximum(share - STRAIGHT, 0.0) / (1 - STRAIGHT)
    x = np.where(line < 1, LENGTH * (0.5 - line), -LENGTH / 2 * np.cos(np.pi * arc))
    path = np.stack([x, HEIGHT * np.sin(np.pi * arc)], 1)
    return path - path.mean(0)


def random_linkages(number: int) -> np.ndarray:
    """Lengths (8, number) whose crank can turn fully (Grashof's rule)."""
    shares = np.random.default_rng(0).random((8, 4 * number))
    lengths = LOWER[:, None] + (UPPER - LOWER)[:, None] * shares
    crank, others = lengths[0], np.stack([*lengths[1:3], np.hypot(*lengths[3:5])])
    turns = crank + 2 * others.max(0) + 0.01 < others.sum(0)
    return lengths[:, turns][:, :number].astype(np.float32)


def descended(lengths: np.ndarray, iterations: int) -> tuple[np.ndarray, np.ndarray]:
    """Lengths after Adam's steps, and the loss of each linkage on the way [m]."""
    system, state = linkage()
    scale = jnp.asarray(UPPER - LOWER)[:, None]
    target = jnp.asarray(wanted(), jnp.float32)[:, :, None]

    def loss(shares):
        path = paths(system, state, shares * scale)[0]
        error = (path - path.mean(0) - target) * jnp.array([1.0, WEIGHT])[:, None]
        squares = jnp.mean(jnp.sum(error**2, 1), 0)
        return jnp.sum(squares), jnp.sqrt(squares)

    adam = optax.adam(optax.cosine_decay_schedule(0.03, iterations))

    @jax.jit
    def improved(shares, memory):
        slope, losses = jax.grad(loss, has_aux=True)(shares)
        change, memory = adam.update(slope, memory)
        return shares + change, memory, losses

    shares, history = jnp.asarray(lengths) / scale, []
    memory = adam.init(shares)
    for _ in range(iterations):
        shares, memory, losses = improved(shares, memory)
        history.append(np.asarray(losses))
    return np.asarray(shares * scale), np.array(history)


def draw(output: Path, first: np.ndarray, last: np.ndarray, best: int) -> None:
    """All paths before and after, and the best linkage at six angles of its crank."""
    system, state = linkage()
    figure, axes = plt.subplots(
        1, 3, figsize=(11, 3.4), width_ratios=(3, 3, 2), layout="constrained"
    )
    titles = "random linkages", "the same after descent"
    box = {"xlim": (-0.35, 0.35), "ylim": (-0.22, 0.22)}
    for panel, lengths, title in zip(axes[:2], (first, last), titles, strict=True):
        path, motion = paths(system, state, jnp.asarray(lengths))
        path = np.asarray(path)[np.r_[:STEPS, 0]]
        centred = path - path[:-1].mean(0)
        panel.plot(*centred.transpose(1, 0, 2), color="0.75", lw=0.8)
        panel.plot(*centred[..., best].T, color="C0", lw=2)
        panel.plot(*wanted()[np.r_[:STEPS, 0]].T, "k--", lw=1)
        panel.set(title=title, xlabel="x [m]", ylabel="z [m]", **box)
    crank, coupler, rocker = np.asarray(motion.position)[:, ::2, :, best].transpose(2, 0, 1)
    w, _, y, _ = np.asarray(motion.quaternion)[:, :, 1, best].T
    along = np.stack([w * w - y * y, -2 * w * y], 1)
    end, point = coupler + last[1, best] * along, path[:-1, :, best]
    for i, shade in zip(range(0, STEPS, STEPS // 6), np.linspace(0.3, 1.0, 6), strict=True):
        plate = np.array([coupler[i], end[i], point[i], coupler[i]]).T
        axes[2].fill(*plate, color="C0", alpha=0.12 * shade)
        axes[2].plot(*plate, color="C0", alpha=shade, lw=1)
        axes[2].plot(*np.array([crank[i], coupler[i]]).T, color="C3", alpha=shade, lw=2)
        axes[2].plot(*np.array([rocker[i], end[i]]).T, color="C2", alpha=shade, lw=2)
    axes[2].plot(*path[..., best].T, "k-", lw=1.5)
    axes[2].plot(*np.array([crank[0], rocker[0]]).T, "k^")
    axes[2].set(title="the best linkage", xlabel="x [m]")
    for panel in axes:
        panel.set_aspect("equal")
    figure.savefig(output, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--output", type=Path, default=Path(__file__).with_suffix(".png"))
    parser.add_argument("--linkages", type=int, default=24)
    parser.add_argument("--iterations", type=int, default=150)
    options = parser.parse_args()
    first = random_linkages(options.linkages)
    last, history = descended(first, options.iterations)
    best = int(np.nanargmin(history[-1]))
    print(f"median error: {1e3 * np.median(history[0]):.0f} mm at random, ", end="")
    print(f"{1e3 * np.median(history[-1]):.1f} mm after {options.iterations} iterations; the best:")
    for name, value in zip(NAMES, last[:, best], strict=True):
        print(f"  {name:8} {value:8.4f} {'rad' if name == 'phase' else 'm'}")
    # Every linkage has come closer, and their median by half or more.
    assert (history[-1] < history[0]).all()
    assert np.median(history[-1]) < 0.5 * np.median(history[0])
    draw(options.output, first, last, best)


if __name__ == "__main__":
    main()
