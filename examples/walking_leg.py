"""Designs the leg of a walking machine by gradients through a closed loop of hinges.

A motor turns the crank of a four-bar linkage; the foot is a point of its coupler. Linkages start at
random and follow the gradient of one simulated turn of the crank with respect to their lengths.
Writes examples/walking_leg.png.
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
STRIDE, LIFT = 0.40, 0.12  # of the foot [m]
HEIGHT = 4.0  # how much more an error of height counts than one along the ground
NAMES = ("crank", "coupler", "rocker", "pivot x", "pivot z", "foot x", "foot z", "phase")
LOWER = np.array([0.06, 0.20, 0.20, 0.12, -0.10, 0.30, -0.15, 0.0])
UPPER = np.array([0.14, 0.32, 0.32, 0.28, 0.10, 0.60, 0.15, 2 * np.pi])


def leg() -> tuple[jj.System, jj.State]:
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
    """Path of each foot during a turn (steps, 2, linkages), and all states on the way."""
    system, state = assembled(system, state, lengths)
    scheme = jj.SemiImplicitEuler(projections=2)
    _, motion = jj.rollout(system, state, dt=TURN / STEPS, steps=STEPS, scheme=scheme)
    _, _, y, _ = jnp.moveaxis(motion.quaternion[:, :, 1], 1, 0)
    w = motion.quaternion[:, 0, 1]
    cosine, sine = w * w - y * y, -2 * w * y
    x, z = lengths[5], lengths[6]
    foot = motion.position[:, ::2, 1] + jnp.stack([cosine * x - sine * z, sine * x + cosine * z], 1)
    return foot, motion


def wanted() -> np.ndarray:
    """Path of a foot (steps, 2): half a turn along the ground, half a turn back through the air."""
    share = np.arange(STEPS) / (STEPS / 2)
    ground, air = share < 1, np.maximum(share - 1, 0.0)
    x = np.where(ground, STRIDE * (0.5 - share), -STRIDE / 2 * np.cos(np.pi * air))
    return np.stack([x, LIFT * np.sin(np.pi * air)], 1)


def descended(lengths: np.ndarray, iterations: int) -> tuple[np.ndarray, np.ndarray]:
    """Lengths after Adam's steps, and the loss of each linkage on the way [m]."""
    system, state = leg()
    scale = jnp.asarray(UPPER - LOWER)[:, None]
    target = jnp.asarray(wanted() - wanted().mean(0))[:, :, None]

    def loss(shares):
        foot = paths(system, state, shares * scale)[0]
        error = (foot - foot.mean(0) - target) * jnp.array([1.0, HEIGHT])[:, None]
        squares = jnp.mean(jnp.sum(error**2, 1), 0)
        return jnp.sum(squares), jnp.sqrt(squares)

    adam = optax.adam(optax.cosine_decay_schedule(0.01, iterations))

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
    """Paths of all feet before and after, and the best leg at six angles of its crank."""
    system, state = leg()
    figure, axes = plt.subplots(1, 3, figsize=(11, 3.6), layout="constrained")
    target = wanted()
    titles = "random linkages", "the same after descent"
    for panel, lengths, title in zip(axes[:2], (first, last), titles, strict=True):
        foot = np.asarray(paths(system, state, jnp.asarray(lengths))[0])
        foot = foot - foot.mean(0) + target.mean(0)[:, None]
        panel.plot(*foot.transpose(1, 0, 2), color="0.75", lw=0.8)
        panel.plot(*foot[..., best].T, color="C0", lw=2)
        panel.plot(*target.T, "k--", lw=1)
        panel.set(title=title, xlabel="x [m]", ylabel="z [m]")
    chosen = jnp.asarray(last[:, best : best + 1])
    foot, motion = paths(system, state, chosen)
    crank, _, _, x, z, *_ = last[:, best]
    for i, shade in zip(range(0, STEPS, STEPS // 6), np.linspace(0.25, 1.0, 6), strict=True):
        knee, tip = np.asarray(motion.position[i, ::2, 1, 0]), np.asarray(foot[i, :, 0])
        end = _end(motion, chosen, i)
        plate = np.array([knee, end, tip, knee]).T
        axes[2].fill(*plate, color="C0", alpha=0.12 * shade)
        axes[2].plot(*np.array([[0.0, 0.0], knee]).T, color="C3", alpha=shade, lw=2)
        axes[2].plot(*np.array([[x, z], end]).T, color="C2", alpha=shade, lw=2)
        axes[2].plot(*plate, color="C0", alpha=shade, lw=1)
    axes[2].plot(*np.asarray(foot[..., 0]).T, "k-", lw=1.5)
    axes[2].plot([0.0, x], [0.0, z], "k^")
    axes[2].set(title="the best leg: crank red, rocker green", xlabel="x [m]")
    for panel in axes:
        panel.set_aspect("equal")
    figure.savefig(output, dpi=110)


def _end(motion: jj.State, lengths: jax.Array, i: int) -> np.ndarray:
    """Where coupler and rocker meet at a step (x, z) [m]."""
    w, _, y, _ = np.asarray(motion.quaternion[i, :, 1, 0])
    reach = float(lengths[1, 0]) * np.array([w * w - y * y, -2 * w * y])
    return np.asarray(motion.position[i, ::2, 1, 0]) + reach


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--output", type=Path, default=Path(__file__).with_suffix(".png"))
    parser.add_argument("--linkages", type=int, default=32)
    parser.add_argument("--iterations", type=int, default=200)
    options = parser.parse_args()
    shares = np.random.default_rng(0).random((8, options.linkages))
    first = (LOWER[:, None] + (UPPER - LOWER)[:, None] * shares).astype(np.float32)
    last, history = descended(first, options.iterations)
    best = int(np.nanargmin(history[-1]))
    print(f"error of the best foot: {1e3 * history[0].min():.0f} mm at random, ", end="")
    print(f"{1e3 * history[-1].min():.1f} mm after {options.iterations} iterations")
    for name, value in zip(NAMES, last[:, best], strict=True):
        print(f"  {name:8} {value:8.4f} {'rad' if name == 'phase' else 'm'}")
    assert history[-1].min() < history[0].min()
    draw(options.output, first, last, best)


if __name__ == "__main__":
    main()
