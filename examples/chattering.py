"""Rules for when a limit acts, compared on a block pressed or thrown against stops.

* The default: a step that would pass a stop ends on it.
* `anticipate=False`: a stop acts once it has been passed, as in ODE.
* `Engagement`: a stop stays active until its force pulls, as in ArtiSynth.

In one study the block is pressed against a stop, in the other it is thrown between two stops that
are close together. The program counts how often the force of the stops begins, ends or changes its
sign (chattering), and writes examples/chattering.png. Between the stops only the default is calm.
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
GAP, SPEED = 0.002, 1.0  # half of the distance between the two stops [m]; speed at the start [m/s]
TOLERANCE = 1e-4  # [m]
ON_PATH, BY_ERP = jj.SemiImplicitEuler(projections=1), jj.SemiImplicitEuler()


class History(NamedTuple):
    """The motion of a block.

    position: after each step [mm]; force: of the stops, mean over each step [N]
    switches: how often this force begins, ends or changes its sign
    """

    position: np.ndarray
    force: np.ndarray
    switches: int


def recorded(state: jj.State, info: jj.Info) -> tuple[jax.Array, jax.Array]:
    return state.position[0, 0], info.law_force[0]


def history(stop: jj.Limits, scheme: jj.SemiImplicitEuler, q: float, qd: float) -> History:
    """The motion of a block on a rail, from position q and speed qd.

    Without an upper stop, a force presses the block against the lower one.
    """
    world = jj.SystemBuilder(gravity=(0.0, 0.0, 0.0))
    world.body("block", mass=MASS, inertia=(0.01, 0.01, 0.01))
    world.joint("rail", jj.Slider((1.0, 0.0, 0.0)), child="block", laws=stop, q=q, qd=qd)
    system, state = world.build()
    push = PUSH if stop.upper is None else 0.0
    controls = jj.Control(effort=jnp.full((STEPS, 1), push))
    _, (x, force) = jj.rollout(system, state, controls, dt=DT, scheme=scheme, record=recorded)
    sign = np.sign(np.where(np.abs(force) > 1e-6 * MASS, force, 0.0))
    switches = int((np.diff(sign, prepend=0.0) != 0).sum())
    return History(1e3 * np.asarray(x), np.asarray(force), switches)


def pressed() -> dict[str, History]:
    """A block released 20 mm from a stop and pressed against it; projection corrects positions."""
    stops = {
        "default": jj.Limits(lower=0.0),
        "engaged, no tolerance": jj.Limits(lower=0.0, engagement=jj.Engagement(tolerance=0.0)),
        "engaged": jj.Limits(lower=0.0, engagement=jj.Engagement(tolerance=TOLERANCE)),
    }
    return {name: history(stop, ON_PATH, 0.02, 0.0) for name, stop in stops.items()}


def between() -> dict[str, History]:
    """A block thrown between two stops, closer than it moves in a step; ERP corrects positions."""
    stops = {
        "default": jj.Limits(-GAP, GAP, erp=0.8),
        "once passed": jj.Limits(-GAP, GAP, erp=0.8, anticipate=False),
        "engaged": jj.Limits(-GAP, GAP, erp=0.8, engagement=jj.Engagement(tolerance=TOLERANCE)),
    }
    return {name: history(stop, BY_ERP, 0.0, SPEED) for name, stop in stops.items()}


def draw(path: Path, left: dict[str, History], right: dict[str, History]) -> None:
    figure, (force, position) = plt.subplots(1, 2, figsize=(10, 3.6), layout="tight")
    times = 1e3 * DT * np.arange(1, STEPS + 1)
    for axes, study in ((force, left), (position, right)):
        for (name, motion), style in zip(study.items(), ("-", ":", "--"), strict=True):
            values = motion.force if axes is force else motion.position
            label = f"{name}: {motion.switches}"
            axes.plot(times, values, style, lw=1.6, marker=".", ms=5, label=label)
        axes.legend(title="switches of the force", fontsize=8, title_fontsize=8)
        axes.set_xlabel("time [ms]")
    force.set(title="pressed against a stop by 20 N", ylabel="force of the stop [N]")
    force.set(xlim=(80, 400), ylim=(-3, 50))
    position.set(title="thrown between two stops", ylabel="position [mm]", xlim=(0, 400))
    for bound in (-1e3 * GAP, 1e3 * GAP):
        position.axhline(bound, color="grey", lw=0.8)
    figure.savefig(path, dpi=80)
    plt.close(figure)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path(__file__).with_suffix(".png"))
    path = parser.parse_args(arguments).output
    jax.config.update("jax_enable_x64", True)
    studies = {"pressed against a stop": pressed(), "between two stops": between()}
    for title, study in studies.items():
        print(f"{title}: " + ", ".join(f"{name} {x.switches}" for name, x in study.items()))
    assert all(motion.switches == 1 for motion in studies["pressed against a stop"].values())
    default, worst, engaged = (x.switches for x in studies["between two stops"].values())
    assert default <= 2 < engaged < worst
    draw(path, *studies.values())


if __name__ == "__main__":
    main()
