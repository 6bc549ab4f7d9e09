"""When a limit acts: a block pressed against a stop, and one thrown between two stops close by.

Three rules beside each other: the default, which ends the step that would pass a stop on it; a stop
that acts once it has been passed, as ODE's; and `Engagement`, ArtiSynth's. Counted is how often the
force of the stops comes, goes or turns round. Writes examples/chattering.png.
"""

import argparse
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

import jaxjoints as jj

DT, STEPS, MASS, PUSH = 0.01, 150, 2.0, -20.0  # [s], [], [kg], [N]
WAY, SPEED = 0.002, 1.0  # half of the way between the two stops [m]; speed at the start [m/s]
TOLERANCE = 1e-4  # [m]
ON_PATH, BY_ERP = jj.SemiImplicitEuler(projections=1), jj.SemiImplicitEuler()


class History(NamedTuple):
    """Positions [mm] after each step, forces of the stops in it [N], and how often those came, went
    or turned round.
    """

    position: np.ndarray
    force: np.ndarray
    switches: int


def seen(state: jj.State, info: jj.Info) -> tuple[jax.Array, jax.Array]:
    return state.position[0, 0], info.law_force[0]


def history(stop: jj.Limits, scheme: jj.SemiImplicitEuler, q: float, qd: float) -> History:
    """What a block on a rail does, pressed against the lower stop where it has no upper."""
    world = jj.SystemBuilder(gravity=(0.0, 0.0, 0.0))
    world.body("block", mass=MASS, inertia=(0.01, 0.01, 0.01))
    world.joint("rail", jj.Slider((1.0, 0.0, 0.0)), child="block", laws=stop, q=q, qd=qd)
    system, state = world.build()
    push = PUSH if stop.upper is None else 0.0
    controls = jj.Control(effort=jnp.full((STEPS, 1), push))
    _, (x, force) = jj.rollout(system, state, controls, dt=DT, scheme=scheme, record=seen)
    acts = np.sign(np.where(np.abs(force) > 1e-6 * MASS, force, 0.0))
    switches = int((np.diff(acts, prepend=0.0) != 0).sum())
    return History(1e3 * np.asarray(x), np.asarray(force), switches)


def pressed() -> dict[str, History]:
    """A block let go 20 mm from a stop and pressed against it; positions are projected."""
    stops = {
        "default": jj.Limits(lower=0.0),
        "engaged, no tolerance": jj.Limits(lower=0.0, engagement=jj.Engagement(tolerance=0.0)),
        "engaged": jj.Limits(lower=0.0, engagement=jj.Engagement(tolerance=TOLERANCE)),
    }
    return {name: history(stop, ON_PATH, 0.02, 0.0) for name, stop in stops.items()}


def between() -> dict[str, History]:
    """A block thrown at one of two stops less than a step's way apart; ERP moves it back."""
    stops = {
        "default": jj.Limits(-WAY, WAY, erp=0.8),
        "once passed": jj.Limits(-WAY, WAY, erp=0.8, anticipate=False),
        "engaged": jj.Limits(-WAY, WAY, erp=0.8, engagement=jj.Engagement(tolerance=TOLERANCE)),
    }
    return {name: history(stop, BY_ERP, 0.0, SPEED) for name, stop in stops.items()}


def draw(path: Path, left: dict[str, History], right: dict[str, History]) -> None:
    figure, (force, position) = plt.subplots(1, 2, figsize=(10, 3.6))
    times = 1e3 * DT * np.arange(1, STEPS + 1)
    for axes, found in ((force, left), (position, right)):
        for (name, one), style in zip(found.items(), ("-", ":", "--"), strict=True):
            values = one.force if axes is force else one.position
            label = f"{name}: {one.switches}"
            axes.plot(times, values, style, lw=1.6, marker=".", ms=5, label=label)
        axes.legend(title="switches of the force", fontsize=8, title_fontsize=8)
        axes.set_xlabel("time [ms]")
    force.set(title="pressed against a stop by 20 N", ylabel="force of the stop [N]")
    force.set(xlim=(80, 400), ylim=(-3, 50))
    position.set(title="thrown between two stops", ylabel="position [mm]", xlim=(0, 400))
    for bound in (-1e3 * WAY, 1e3 * WAY):
        position.axhline(bound, color="grey", lw=0.8)
    figure.tight_layout()
    figure.savefig(path, dpi=80)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "chattering.png")
    path = parser.parse_args().output
    jax.config.update("jax_enable_x64", True)
    studies = {"pressed against a stop": pressed(), "between two stops": between()}
    for title, found in studies.items():
        print(f"{title}: " + ", ".join(f"{name} {x.switches}" for name, x in found.items()))
    draw(path, *studies.values())


if __name__ == "__main__":
    main()
