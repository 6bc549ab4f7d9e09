"""Validation of joints and transmissions that are as a whole more than their parts."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .couplings.coupling import Coupling
from .laws import Law
from .transmissions import Transmission
from .validation import float_leaves, precision


def read_transmission(owner: str, transmission: Any, dof: int) -> Transmission:
    """A transmission of `dof` coordinates with float arrays for leaves."""
    if not isinstance(transmission, Transmission):
        raise ValueError(
            f"{owner}: {transmission!r} is not a transmission; give a record such as Mimic(2.0)"
        )
    kind = type(transmission).__name__
    wanted = transmission.coordinates
    if wanted is not None and wanted != dof:
        raise ValueError(
            f"{owner}: {kind} couples {wanted} coordinates, its joints have {dof}; name "
            f"joints with {wanted} coordinates in all"
        )
    made = float_leaves(f"{owner}: {kind}", transmission)
    problem = made.check()
    if problem:
        raise ValueError(f"{owner}: {kind} {problem}")
    for path, leaf in jax.tree_util.tree_leaves_with_path(made):
        if not np.isfinite(leaf).all():
            field = jax.tree_util.keystr(path).lstrip(".")
            raise ValueError(f"{owner}: {kind} {field} {np.asarray(leaf)} must be finite")
    q = jnp.zeros(dof, precision())
    try:
        found = jax.eval_shape(made.value, q)
    except (TypeError, IndexError, ValueError) as error:
        raise ValueError(f"{owner}: {kind}.value fails on {dof} coordinates: {error}") from error
    if found.shape != (made.rows,):
        raise ValueError(
            f"{owner}: {kind}.value has shape {found.shape}, it must be ({made.rows},): one number "
            "for each of its rows"
        )
    slope = np.asarray(jax.jacfwd(made.value)(q))
    if not np.isfinite(slope).all():
        raise ValueError(f"{owner}: {kind}.value has a derivative that is not finite at q = 0")
    return made


def winding_notes(owner: str, coupling: Coupling, laws: tuple[Law, ...]) -> list[str]:
    """A note for each pair of limits further apart than a turn of an angle that winds.

    Raises: ValueError for such limits of an angle that ends before (a rotation vector's at 2π)
    """
    notes = []

    def directions(q):
        """How many ways the pose can move at the coordinates q."""
        slope = jax.jacfwd(lambda q: jnp.append(coupling.pose(q).R, coupling.pose(q).p))
        return np.linalg.matrix_rank(np.asarray(slope(q)), tol=1e-4)

    for law in laws:
        lower, upper = getattr(law, "lower", None), getattr(law, "upper", None)
        if lower is None or upper is None or not upper - lower > 2 * np.pi:
            continue
        q = jnp.zeros(coupling.dof, precision())
        here = coupling.pose(q)
        there = coupling.pose(q.at[law.coordinate].set(2 * jnp.pi))
        same = np.allclose(here.R, there.R, atol=1e-5) and np.allclose(here.p, there.p, atol=1e-5)
        if same:
            # The outermost whole turns within reach: an angle that ends does so at all of them.
            ends = {np.ceil(lower / (2 * np.pi)), np.floor(upper / (2 * np.pi))}
            turns = [float(k) for k in ends if k and np.isfinite(k)]
            if any(
                directions(q.at[law.coordinate].set(2 * np.pi * k)) < directions(q) for k in turns
            ):
                raise ValueError(
                    f"{owner}: limits {float(lower):.6g} to {float(upper):.6g} of coordinate "
                    f"{law.coordinate} reach a whole turn, where this coordinate of "
                    f"{type(coupling).__name__} ends; keep them within ±2π, or use a joint "
                    "whose angles are counted over turns (Hinge, Gimbal)"
                )
            notes.append(
                f"{owner}: limits of coordinate {law.coordinate} span {float(upper - lower):.6g} "
                "rad, more than a turn; the angle is counted over turns from where it starts"
            )
    return notes
