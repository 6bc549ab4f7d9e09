"""What identify_stop.py shows: a table of parameters, a figure."""

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from recordings import Recording

from jaxjoints import Hinge
from jaxjoints.identification import Identified


def table(rows: list[tuple]) -> str:
    """Rows of (name, true value, identified value, error [%], deviation [%], determined)."""
    lines = [f"  {'':20}{'true':>12}{'identified':>12}{'error %':>10}{'± %':>9}"]
    for name, true, value, error, deviation, determined in rows:
        if determined:
            lines.append(f"  {name:20}{true:12.5g}{value:12.5g}{error:10.4f}{deviation:9.3f}")
        else:
            lines.append(f"  {name:20}{true:12.5g}  the poses do not determine it")
    return "\n".join(lines)


def figure(path: str, fits: list[tuple[str, Recording, Identified]], *, free: int) -> None:
    """A figure with a column for each fit: its coordinates above, the losses of its starts below.

    fits: title, recording and result of each
    free: the iteration from which on the simulations run free
    """
    size = (3.7 * len(fits), 6.4)
    fig, axes = plt.subplots(2, len(fits), figsize=size, layout="constrained", squeeze=False)
    for (above, below), (title, recording, result) in zip(axes.T, fits, strict=True):
        _draw_motion(above, recording, result)
        _draw_losses(below, result.losses, free)
        above.set_title(title, fontsize=10)
    axes[0, 0].legend(fontsize=8)
    axes[1, 0].legend(fontsize=8)
    axes[1, 0].set_ylabel("mean square residual [noise²]")
    fig.savefig(path, dpi=110)
    plt.close(fig)


def _draw_motion(axes, recording: Recording, result: Identified) -> None:
    """Measured and fitted coordinates over time, and the identified stop."""
    measured = recording.coordinates(recording.motion)
    fitted = recording.coordinates(recording.fitted(result.residuals))
    times = float(recording.dt) * np.arange(measured.shape[1])
    every = slice(None, None, max(1, len(times) // 30))
    for i, (dots, line) in enumerate(zip(measured, fitted, strict=True)):
        first = i == 0
        style = {"ms": 4, "mfc": "none", "color": f"C{i}"}
        axes.plot(times[every], dots[every], "o", **style, label="measured" if first else None)
        axes.plot(times, line, color=f"C{i}", lw=1.2, label="fitted" if first else None)
    if "stop" in result.values:
        axes.axhline(result.values["stop"], color="0.4", lw=1, ls="--", label="stop identified")
    turning = isinstance(recording.system.groups[0].coupling, Hinge)
    axes.set(xlabel="time [s]", ylabel="angle [rad]" if turning else "position [m]")


def _draw_losses(axes, losses: np.ndarray, free: int) -> None:
    """The losses of all starts over the iterations: best, median, and 10 to 90 %."""
    losses = np.where(np.isfinite(losses), losses, np.nan)
    low, middle, high = np.nanquantile(losses, [0.1, 0.5, 0.9], axis=1)
    iterations = np.arange(len(losses))
    axes.fill_between(iterations, low, high, color="C0", alpha=0.2, lw=0, label="10–90 % of starts")
    axes.plot(iterations, middle, color="C0", lw=1, label="median")
    axes.plot(iterations, np.nanmin(losses, axis=1), color="C3", lw=1.4, label="best")
    axes.axvline(free, color="0.4", lw=1, ls=":", label="runs free from here")
    axes.set(xlabel="iteration", yscale="log")
