"""Warns of whole numbers that are large for radians and metres, and usual for degrees and mm."""

from typing import Any

import numpy as np

from ...algebra.calls import warn
from ...algebra.compiler import is_traced
from ...couplings.coupling import Coupling
from ...model.table import units_of

# Largest whole numbers that are taken as they are: two turns and 100 m, and rates of these.
MOST = {"rad": 4 * np.pi, "m": 100.0, "rad/s": 300.0, "m/s": 300.0}
# Above it a number stands for no bound at all.
UNBOUNDED = 1e5
MEANT = {"rad": ("degrees", "numpy.radians"), "m": ("millimetres", "metres")}


class UnitWarning(UserWarning):
    """A number is usual in degrees or millimetres, and is taken in radians or metres.

    `warnings.filterwarnings("ignore", category=jaxjoints.UnitWarning)` silences it.
    """


def warn_of_units(
    owner: str, field: str, coupling: Coupling, value: Any, coordinate: int = 0, rate: str = ""
) -> None:
    """Warn of coordinates that may be meant in degrees or millimetres.

    value: of the coordinates from `coordinate` on, shape (k, *batch), or of this one; None for none
    rate: "/s" for speeds
    """
    if value is None or is_traced(value) or coupling.dof == 6:
        return
    numbers = np.atleast_1d(np.asarray(value, float))
    large = np.abs(numbers) > min(MOST["rad" + rate], MOST["m" + rate])
    if not (large & (numbers == np.round(numbers)) & (np.abs(numbers) < UNBOUNDED)).any():
        return
    for i, unit in enumerate(units_of(coupling)[coordinate : coordinate + len(numbers)]):
        if unit not in MEANT:
            continue
        odd = numbers[i][
            (np.abs(numbers[i]) > MOST[unit + rate]) & (np.abs(numbers[i]) < UNBOUNDED)
        ]
        odd = odd[odd == np.round(odd)]
        if odd.size:
            instead, remedy = MEANT[unit]
            warn(
                f"{owner}: {field} {odd[0]:g} is taken in {unit}{rate}; were {instead}{rate} "
                f"meant? Give {unit}{rate} ({remedy}), or silence this: "
                'warnings.filterwarnings("ignore", category=jaxjoints.UnitWarning)',
                UnitWarning,
            )
            return
