"""Warns of coordinates that are usual in degrees and millimetres, and are in radians and metres."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...algebra.compiler import is_traced
from ...algebra.units import MEANT, MOST, UNBOUNDED, warn_of_unit
from ...couplings.coupling import Coupling
from ...model.table import units_of


def warn_of_units(
    owner: str, field: str, coupling: Coupling, value: Any, at: Sequence[int], rate: str = ""
) -> None:
    """Warn of coordinates that may be meant in degrees or millimetres.

    value: of some coordinates, shape (k, *batch), or of one; None for none
    at: numbers of these coordinates; rate: "/s" for speeds
    """
    if value is None or is_traced(value) or coupling.dof == 6:
        return
    numbers = np.atleast_1d(np.asarray(value, float))
    # Units take time to find: not where no number is large for any.
    large = np.abs(numbers) > min(MOST["rad" + rate], MOST["m" + rate])
    if not (large & (numbers == np.round(numbers)) & (np.abs(numbers) < UNBOUNDED)).any():
        return
    units = units_of(coupling)
    for i, k in enumerate(at):
        unit = units[k]
        if unit in MEANT and warn_of_unit(owner, field, np.ravel(numbers[i]), unit, rate):
            return
