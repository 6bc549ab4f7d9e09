"""How the examples show what they do: a progress line, a table, a figure."""

import sys
import time

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from recordings import Recording

from jaxjoints import Hinge
from jaxjoints.tools.identification import Identified


class Progress:
    """A bar on stderr, redrawn on a terminal; elsewhere a plain line at each quarter."""

    def __init__(self, title: str):
        self.title, self.began, self.looks = title, time.perf_counter(), []

    def __call__(self, done: int, total: int, losses: np.ndarray) -> None:
        self.looks.append(time.perf_counter())
        seconds = self.looks[-1] - self.began
        text = f"{self.title}: {done}/{total}, best loss {np.nanmin(losses):.2e}, {seconds:.0f} s"
        if sys.stderr.isatty():
            bar = "#" * (20 * done // total)
            print(f"\r\033[K[{bar:<20}] {text}", end="" if done < total else "\n", file=sys.stderr)
        elif done == total or 4 * done // total > 4 * (done - 1) // total:
            print(text, file=sys.stderr, flush=True)

    @property
    def seconds(self) -> float:
        """Time between the looks, without that before the first, which compiles."""
        return self.looks[-1] - self.looks[0]


def table(rows: list[tuple]) -> str:
    """Rows of (name, true, found, error, deviation, told), errors and deviations in percent."""
    lines = [f"  {'':20}{'true':>12}{'found':>12}{'error %':>10}{'± %':>9}"]
    for name, true, found, error, deviation, told in rows:
        if told:
            lines.append(f"  {name:20}{true:12.5g}{found:12.5g}{error:10.4f}{deviation:9.3f}")
        else:
            lines.append(f"  {name:20}{true:12.5g}  the poses do not determine it")
    return "\n".join(lines)


def figure(path: str, fits: list[tuple[str, Recording, Identified]], *, free: int) -> None:
    """Measured against fitted coordinates, and the losses of all starts, a column for each fit.

    free: the iteration from which the simulations ran free
    """
    size = (3.7 * len(fits), 6.4)
    fig, axes = plt.subplots(2, len(fits), figsize=size, layout="constrained", squeeze=False)
    for (above, below), (title, recording, found) in zip(axes.T, fits, strict=True):
        _draw_motion(above, recording, found)
        _draw_losses(below, found.losses, free)
        above.set_title(title, fontsize=10)
    axes[0, 0].legend(fontsize=8)
    axes[1, 0].legend(fontsize=8)
    axes[1, 0].set_ylabel("mean square residual [noise²]")
    fig.savefig(path, dpi=110)
    plt.close(fig)


def _draw_motion(axes, recording: Recording, found: Identified) -> None:
    measured = recording.coordinates(recording.motion)
    fitted = recording.coordinates(recording.fitted(found.residuals))
    at = float(recording.dt) * np.arange(measured.shape[1])
    every = slice(None, None, max(1, len(at) // 30))
    for i, (dots, line) in enumerate(zip(measured, fitted, strict=True)):
        first = i == 0
        style = {"ms": 4, "mfc": "none", "color": f"C{i}"}
        axes.plot(at[every], dots[every], "o", **style, label="measured" if first else None)
        axes.plot(at, line, color=f"C{i}", lw=1.2, label="fitted" if first else None)
    if "stop" in found.values:
        axes.axhline(found.values["stop"], color="0.4", lw=1, ls="--", label="stop found")
    turning = isinstance(recording.system.groups[0].coupling, Hinge)
    axes.set(xlabel="time [s]", ylabel="angle [rad]" if turning else "position [m]")


def _draw_losses(axes, losses: np.ndarray, free: int) -> None:
    losses = np.where(np.isfinite(losses), losses, np.nan)
    low, middle, high = np.nanquantile(losses, [0.1, 0.5, 0.9], axis=1)
    at = np.arange(len(losses))
    axes.fill_between(at, low, high, color="C0", alpha=0.2, lw=0, label="10–90 % of starts")
    axes.plot(at, middle, color="C0", lw=1, label="median")
    axes.plot(at, np.nanmin(losses, axis=1), color="C3", lw=1.4, label="best")
    axes.axvline(free, color="0.4", lw=1, ls=":", label="runs free from here")
    axes.set(xlabel="iteration", yscale="log")
