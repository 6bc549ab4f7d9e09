"""A Stewart platform follows a circle while it leans into it: five closed loops, six servos.

Each leg is a cylinder on a universal joint, a rod that slides in it, and a ball joint under the
platform. The servos of the rods are told the lengths that the wanted poses of the platform need.
The program prints how far the platform stays from these poses and writes a page that shows the
motion:

    python examples/stewart_platform.py --page stewart_platform.html

With `--picture FILE` a browser draws that page frame by frame into a moving picture; it needs
`pip install -e ".[browser]" pillow` and Chromium.
"""

import argparse
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from film import film
from six_legs import PERIOD, built, lengths, wanted

import jaxjoints as jj

DT = 2e-3  # [s]


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


def main(page: Path | None = None, picture: Path | None = None) -> float:
    """Largest distance of the platform from its circle in the last turn [m]."""
    system, state, visuals = built()
    states, info = simulated(system, state)
    print(info)
    error = errors(system, states)[states.time > 1.0].max()
    print(f"The platform stays within {1000 * error:.2f} mm of its circle.")
    assert error < 1e-3
    if page is not None or picture is not None:
        shown = jj.view(
            system, (states, info), visuals=visuals, traces=["platform"], title="Stewart platform"
        )
        written = shown.save(page or picture.with_suffix(".html"))
        if picture is not None:
            film(written, picture, start=1.0, period=PERIOD)
    return float(error)


if __name__ == "__main__":
    options = argparse.ArgumentParser(description="A Stewart platform that follows a circle.")
    options.add_argument("--page", type=Path, help="HTML file to write")
    options.add_argument("--picture", type=Path, help="moving picture to write (.webp or .gif)")
    given = options.parse_args()
    main(given.page, given.picture)
