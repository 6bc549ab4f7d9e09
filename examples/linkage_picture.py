"""The picture of linkage.py."""

from pathlib import Path

import jax.numpy as jnp
import matplotlib
import numpy as np
from four_bar import STEPS, linkage, paths

matplotlib.use("Agg")
import matplotlib.pyplot as plt


def draw(output: Path, wanted: np.ndarray, first: np.ndarray, last: np.ndarray, best: int) -> None:
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
        panel.plot(*wanted[np.r_[:STEPS, 0]].T, "k--", lw=1)
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
