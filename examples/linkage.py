"""Designs a four-bar linkage by gradients through its closed loop: its point draws a wanted path.

A motor turns the crank. Linkages start at random, and each follows the gradient of one simulated
turn with respect to its lengths. Writes examples/linkage.png.
"""

import argparse
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
from four_bar import STEPS, linkage, paths
from linkage_picture import draw

# Of the path: length and height [m], and the share of the turn along its straight part.
LENGTH, HEIGHT, STRAIGHT = 0.40, 0.10, 0.65
WEIGHT = 2.0  # of errors across the straight part, beside those along it
NAMES = ("crank", "coupler", "rocker", "pivot x", "pivot z", "point x", "point z", "phase")
LOWER = np.array([0.07, 0.22, 0.22, 0.17, -0.03, 0.40, -0.12, 0.0])
UPPER = np.array([0.11, 0.30, 0.30, 0.24, 0.03, 0.60, 0.12, 2 * np.pi])


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


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--output", type=Path, default=Path(__file__).with_suffix(".png"))
    parser.add_argument("--linkages", type=int, default=24)
    parser.add_argument("--iterations", type=int, default=150)
    options = parser.parse_args(arguments)
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
    draw(options.output, wanted(), first, last, best)


if __name__ == "__main__":
    main()
