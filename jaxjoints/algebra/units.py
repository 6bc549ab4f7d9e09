"""Numbers that are usual in degrees and millimetres where radians and metres are meant."""

import numpy as np

from .calls import warn

# Largest whole numbers that are taken as they are: two turns and 100 m, and rates of these.
MOST = {"rad": 4 * np.pi, "m": 100.0, "rad/s": 300.0, "m/s": 300.0}
# Above it a number stands for no bound at all.
UNBOUNDED = 1e5
MEANT = {"rad": ("degrees", "numpy.radians"), "m": ("millimetres", "metres")}


class UnitWarning(UserWarning):
    """A number is usual in degrees or millimetres, and is taken in radians or metres.

    `warnings.filterwarnings("ignore", category=jaxjoints.UnitWarning)` silences it.

    >>> import warnings
    >>> from jaxjoints import Hinge, Limits, SystemBuilder
    >>> world = SystemBuilder()
    >>> door = world.body("door", mass=20.0, inertia=(1.0, 1.0, 2.0))
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     hinge = world.joint("hinge", Hinge(), child=door, laws=Limits(upper=90.0))
    >>> print(str(caught[0].message).partition(";")[0])
    joint 'hinge': Limits upper 90 is taken in rad
    """


def warn_of_unit(owner: str, field: str, numbers: np.ndarray, unit: str, rate: str = "") -> bool:
    """Warn of the first whole number that is large for its unit; whether there was one.

    owner, field: what the numbers are; unit: "rad" or "m"; rate: "/s" for speeds
    """
    size = np.abs(numbers)
    odd = numbers[(size > MOST[unit + rate]) & (size < UNBOUNDED) & (numbers == np.round(numbers))]
    if not odd.size:
        return False
    instead, remedy = MEANT[unit]
    warn(
        f"{owner}: {field} {odd[0]:g} is taken in {unit}{rate}; were {instead}{rate} meant? Give "
        f"{unit}{rate} ({remedy}), or silence this: "
        'warnings.filterwarnings("ignore", category=jaxjoints.UnitWarning)',
        UnitWarning,
    )
    return True
