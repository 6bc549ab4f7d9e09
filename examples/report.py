"""How the examples show what they do: a progress line, a table, a figure."""

import sys
import time

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np


class Progress:
    """One line on stderr, redrawn on a terminal; elsewhere a plain line at each quarter."""

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


def figure(path, fits: list[dict]) -> None:
    """Measured against fitted coordinates, and the losses of all starts, one column for each fit.

    A fit has title, ylabel, time, measured and fitted (joints, time), stop or None, and losses.
    """
    columns = len(fits)
    fig, axes = plt.subplots(2, columns, figsize=(3.6 * columns, 6.2), layout="constrained")
    for (above, below), fit in zip(axes.T, fits, strict=True):
        for i, (measured, fitted) in enumerate(zip(fit["measured"], fit["fitted"], strict=True)):
            color = f"C{i}"
            every = slice(None, None, max(1, len(fit["time"]) // 30))
            label = ("measured", "fitted") if i == 0 else (None, None)
            above.plot(
                fit["time"][every],
                measured[every],
                "o",
                ms=4,
                mfc="none",
                color=color,
                label=label[0],
            )
            above.plot(fit["time"], fitted, "-", lw=1.2, color=color, label=label[1])
        if fit["stop"] is not None:
            above.axhline(fit["stop"], color="0.4", lw=1, ls="--", label="stop found")
        above.set(title=fit["title"], xlabel="time [s]", ylabel=fit["ylabel"])
        above.legend(fontsize=8)
        losses = np.where(np.isfinite(fit["losses"]), fit["losses"], np.nan)
        low, middle, high = np.nanquantile(losses, [0.1, 0.5, 0.9], axis=1)
        at = np.arange(len(losses))
        below.fill_between(at, low, high, color="C0", alpha=0.2, lw=0, label="10–90 % of starts")
        below.plot(at, middle, color="C0", lw=1, label="median")
        below.plot(at, np.nanmin(losses, axis=1), color="C3", lw=1.4, label="best")
        below.axvline(fit["free"], color="0.4", lw=1, ls=":", label="runs free from here")
        below.set(xlabel="iteration", ylabel="mean square residual [noise²]", yscale="log")
    axes[1, 0].legend(fontsize=8)
    fig.savefig(path, dpi=110)
    plt.close(fig)
