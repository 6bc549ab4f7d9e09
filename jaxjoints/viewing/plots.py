"""Plots of a motion on Matplotlib axes: coordinates, energy, errors, phase portraits, losses.

Each function draws on the axes that it is given and returns them; without axes it takes the current
ones. The line of each environment has the colour of its coordinate. Matplotlib is the extra `plot`.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np

from ..algebra.calls import public
from ..build.checks.values import near_matches
from ..model.measures import coordinate_limits
from ..model.system import System
from .motion import Motion, read_motion

# A limit is said to act from this share of the largest limit force on, and within this share of the
# way between its bounds (or m, rad) from one of them.
ACTIVE, NEAR = 1e-3, 1e-2
# An error below it is rounding, which a logarithmic scale would spread.
LEAST_ERROR = 1e-17
# Opacity of what lies beyond a limit, and of several environments.
BEYOND, MANY = 0.12, 0.45


@public
def coordinates(
    system: System,
    trajectory: Any,
    joints: str | Iterable[str] | None = None,
    *,
    ax: Any = None,
    environments: Any = None,
) -> Any:
    """Coordinates over time, what lies beyond their limits shaded, and marks where limits act.

    A limit acts where the coordinate is at a bound and the limit pushes. The latter is known from
    the pair (State, Info) of record=lambda state, info: (state, info).

    joints: names; all by default
    ax: Matplotlib axes; the current ones by default
    environments: as in `view`

    Returns: the axes
    Raises: ValueError for unknown joints, and as `view` does for the trajectory.

    >>> import matplotlib
    >>> matplotlib.use("Agg")
    >>> from jaxjoints import Hinge, Limits, SystemBuilder, rollout
    >>> world = SystemBuilder()
    >>> arm = world.body("arm", mass=1.0, inertia=(0.1, 0.1, 0.02), com=(0.0, 0.0, -0.5))
    >>> stop = Limits(upper=0.4)
    >>> hinge = world.joint("elbow", Hinge(axis=(0.0, 1.0, 0.0)), child=arm, laws=stop, q=0.3)
    >>> system, state = world.build()
    >>> _, trajectory = rollout(system, state, dt=1e-3, steps=3)
    >>> print(coordinates(system, trajectory, "elbow").get_ylabel())
    coordinate [rad]
    """
    motion = read_motion(system, trajectory, environments=environments, frames=None)
    ax = _axes(ax)
    limits = coordinate_limits(motion.system)
    chosen = _coordinates(system, joints)
    active = _active(motion, limits)
    for color, (k, name) in zip(_colors(len(chosen)), chosen, strict=True):
        _lines(ax, motion.time, motion.coordinates[:, :, k], color, name)
        acts = active[:, :, k]
        if acts.any():
            time = np.broadcast_to(motion.time[:, None], acts.shape)[acts]
            marks = {"marker": "|", "linestyle": "", "markersize": 9, "label": f"{name}: limit"}
            ax.plot(time, motion.coordinates[:, :, k][acts], color=color, **marks)
    # Bounds that differ between environments are not shaded: a line is that of all of them.
    same = [k for k, _ in chosen if (limits[:, k] == limits[0, k]).all()]
    low, high = _range(ax, limits[0, same])
    for color, (k, _) in zip(_colors(len(chosen)), chosen, strict=True):
        for bound, edge in zip(limits[0, k], (low, high), strict=True):
            if k in same and np.isfinite(bound):
                ax.axhspan(min(bound, edge), max(bound, edge), color=color, alpha=BEYOND, lw=0)
                ax.axhline(bound, color=color, lw=0.8, ls="--")
    ax.set_ylim(low, high)
    return _labelled(ax, "time [s]", f"coordinate [{_units(motion, chosen)}]", len(chosen))


@public
def energy(system: System, trajectory: Any, *, ax: Any = None, environments: Any = None) -> Any:
    """Kinetic energy, energy of gravity and of springs, and their sum over time.

    Arguments, result and errors as in `coordinates`.
    """
    motion = read_motion(system, trajectory, environments=environments, frames=None)
    ax = _axes(ax)
    names = ["kinetic", "gravity", "springs", "total"]
    values = np.concatenate([motion.energies, motion.energies.sum(-1, keepdims=True)], axis=-1)
    for i, (color, name) in enumerate(zip(_colors(4), names, strict=True)):
        if values[..., i].any():
            _lines(ax, motion.time, values[..., i], "black" if name == "total" else color, name)
    return _labelled(ax, "time [s]", "energy [J]", 4)


@public
def errors(
    system: System,
    trajectory: Any,
    joints: str | Iterable[str] | None = None,
    *,
    ax: Any = None,
    environments: Any = None,
) -> Any:
    """Bilateral errors of joints over time on a logarithmic scale: how far loops are open.

    Arguments, result and errors as in `coordinates`.
    """
    motion = read_motion(system, trajectory, environments=environments, frames=None)
    ax = _axes(ax)
    names = _joints(system, joints)
    for color, name in zip(_colors(len(names)), names, strict=True):
        error = motion.errors[:, :, system.topology.joints.index(name)]
        _lines(ax, motion.time, np.where(error > LEAST_ERROR, error, np.nan), color, name)
    ax.set_yscale("log")
    return _labelled(ax, "time [s]", "error [m or rad]", len(names))


@public
def phase(
    system: System,
    trajectory: Any,
    joints: str | Iterable[str] | None = None,
    *,
    ax: Any = None,
    environments: Any = None,
) -> Any:
    """Phase portrait: speed over coordinate, a dot at the start, limits as dashed lines.

    Arguments, result and errors as in `coordinates`.
    """
    motion = read_motion(system, trajectory, environments=environments, frames=None)
    ax = _axes(ax)
    limits = coordinate_limits(motion.system)
    chosen = _coordinates(system, joints)
    for color, (k, name) in zip(_colors(len(chosen)), chosen, strict=True):
        q, qd = motion.coordinates[:, :, k], motion.speeds[:, :, k]
        _lines(ax, q, qd, color, name)
        ax.plot(q[0], qd[0], color=color, marker="o", markersize=4, linestyle="")
        for bound in np.unique(limits[:, k]):
            if np.isfinite(bound):
                ax.axvline(bound, color=color, lw=0.8, ls="--")
    unit = _units(motion, chosen)
    speed = ", ".join(f"{one}/s" for one in unit.split(", "))
    return _labelled(ax, f"coordinate [{unit}]", f"speed [{speed}]", len(chosen))


@public
def losses(losses: Any, *, ax: Any = None, label: str = "loss") -> Any:
    """Losses over iterations on a logarithmic scale: each start thin, the best so far thick.

    losses: one for each iteration, or of several starts, shape (iterations,) or (iterations,
        starts), as `identification.identify` returns them
    label: of the vertical axis

    Returns: the axes
    Raises: ValueError for losses of another shape.
    """
    values = np.asarray(losses, float)
    if values.ndim not in (1, 2) or not len(values):
        raise ValueError(
            f"losses have shape {values.shape}; it must be (iterations,) or (iterations, starts)"
        )
    ax = _axes(ax)
    values = values.reshape(len(values), -1)
    shown = np.where(np.isfinite(values) & (values > 0), values, np.nan)
    if values.shape[1] > 1:
        ax.plot(shown, color="C0", lw=0.7, alpha=MANY)
    best = np.minimum.accumulate(np.where(np.isfinite(values), values, np.inf).min(axis=1))
    ax.plot(np.where(np.isfinite(best) & (best > 0), best, np.nan), color="C1", label="best so far")
    ax.set_yscale("log")
    return _labelled(ax, "iteration", label, 1)


def _axes(ax: Any) -> Any:
    if ax is not None:
        return ax
    try:
        from matplotlib import pyplot
    except ImportError as error:
        advice = "plots need Matplotlib: pip install -e '.[plot]' in the checkout"
        raise ImportError(advice) from error
    return pyplot.gca()


def _range(ax: Any, bounds: np.ndarray) -> tuple[float, float]:
    """Lower and upper end of the vertical axis, with room for finite bounds and beyond them."""
    low, high = ax.get_ylim()
    finite = bounds[np.isfinite(bounds)]
    if not finite.size:
        return low, high
    low, high = min(low, finite.min()), max(high, finite.max())
    room = 0.05 * (high - low)
    return low - room, high + room


def _colors(count: int) -> list[str]:
    return [f"C{i % 10}" for i in range(count)]


def _joints(system: System, chosen: str | Iterable[str] | None) -> tuple[str, ...]:
    known = system.topology.joints
    names = known if chosen is None else (chosen,) if isinstance(chosen, str) else tuple(chosen)
    for name in names:
        if name not in known:
            raise ValueError(f"joints: {name!r} is no joint; {near_matches(name, known)}")
    return names


def _coordinates(system: System, chosen: str | Iterable[str] | None) -> list[tuple[int, str]]:
    """Index and name of each coordinate of some joints."""
    result = []
    for name in _joints(system, chosen):
        at = system.coordinate(name)
        several = at.stop - at.start > 1
        result += [
            (k, f"{name}.{k - at.start}" if several else name) for k in range(at.start, at.stop)
        ]
    return result


def _units(motion: Motion, chosen: list[tuple[int, str]]) -> str:
    return ", ".join(dict.fromkeys("rad" if motion.turning[k] else "m" for k, _ in chosen))


def _active(motion: Motion, limits: np.ndarray) -> np.ndarray:
    """Where limits act, (F, E, k): their force is no rounding, and the coordinate is at a bound."""
    q, lower, upper = motion.coordinates, limits[..., 0], limits[..., 1]
    way = np.where(np.isfinite(upper - lower), upper - lower, 1.0)
    at_bound = (q < lower + NEAR * way) | (q > upper - NEAR * way)
    if motion.limit_forces is None:
        return at_bound
    size = np.abs(motion.limit_forces)
    return at_bound & (size > ACTIVE * size.max(initial=0.0))


def _lines(ax: Any, x: np.ndarray, y: np.ndarray, color: str, label: str) -> None:
    """A line for each environment, the first one labelled; those of several are fainter."""
    alpha = 1.0 if y.shape[1] == 1 else MANY
    lines = ax.plot(x, y, color=color, alpha=alpha)
    lines[0].set_label(label)


def _labelled(ax: Any, x: str, y: str, count: int) -> Any:
    ax.set_xlabel(x)
    ax.set_ylabel(y)
    if 1 < count <= 12:
        ax.legend(fontsize="small")
    return ax
