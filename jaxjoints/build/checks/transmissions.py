"""Reads a transmission: tries its values and their derivative once, at zero coordinates."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...algebra.compiler import is_traced
from ...laws.transmissions import Transmission
from .values import at_once, precision, read_record


@at_once
def read_transmission(owner: str, transmission: Any, dof: int) -> Transmission:
    """A transmission whose parameters are finite float arrays.

    dof: number of coordinates that its joints have in all

    Raises: ValueError for a value that is no transmission, for another number of coordinates than
        it couples, and for values of a wrong shape or without a finite derivative at q = 0.
    """
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
    transmission = read_record(owner, transmission)
    q = jnp.zeros(dof, precision())
    try:
        values = jax.eval_shape(transmission.value, q)
    except (TypeError, IndexError, ValueError) as error:
        raise ValueError(f"{owner}: {kind}.value fails on {dof} coordinates: {error}") from error
    rows = transmission.rows
    if values.shape != (rows,):
        raise ValueError(
            f"{owner}: {kind}.value has shape {values.shape}, it must be ({rows},): one number "
            "for each of its rows"
        )
    if is_traced(transmission):
        return transmission
    slope = np.asarray(jax.jacfwd(transmission.value)(q))
    if not np.isfinite(slope).all():
        raise ValueError(f"{owner}: {kind}.value has a derivative that is not finite at q = 0")
    return transmission
