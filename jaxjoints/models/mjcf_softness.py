"""Softness of the limits and contacts of MJCF: springs and dampers, or MuJoCo's own."""

from typing import Any

import numpy as np

from ..laws.reference_acceleration import ReferenceAcceleration

# Impedances are kept off 0 and 1, as in MuJoCo.
LEAST_IMPEDANCE, MOST_IMPEDANCE = 1e-4, 0.9999
# Below this a number counts as 0 in MuJoCo.
LEAST = 1e-15
# In place of a `solref` whose numbers differ in sign.
DEFAULT_SOLREF = 0.02, 1.0


def softness(
    solref: np.ndarray,
    solimp: np.ndarray,
    inverse_inertia: float,
    share: float = 1.0,
    *,
    like_mujoco: bool,
) -> dict[str, Any]:
    """Softness of a constraint of MuJoCo as arguments of `Limits` or of a contact: stiffness and
    damping at its largest impedance, or like MuJoCo its reference acceleration.

    MuJoCo's least values stand in the denominators: a body that turns about its own centre has no
    inverse inertia for a force on it, and a time constant may be 0.

    solref: time constant [s] and damping ratio, or negative stiffness and damping per inertia
    solimp: impedances, of which the second is the largest, and how they rise
    inverse_inertia: of what the constraint moves [1/kg or 1/(kg m²)]
    share: of R that counts, where several rows of MuJoCo are one constraint

    Source: MuJoCo's `mj_makeImpedance`.
    """
    least, d = (float(np.clip(x, LEAST_IMPEDANCE, MOST_IMPEDANCE)) for x in solimp[:2])
    first, second = (float(x) for x in solref[:2])
    if (first > 0) != (second > 0):
        first, second = DEFAULT_SOLREF
    if first > 0:
        b, k = 2 / max(LEAST, d * first), 1 / max(LEAST, (d * first * second) ** 2)
    else:
        b, k = -second / d, -first / d**2
    if like_mujoco:
        inverse = max(LEAST, inverse_inertia) * share
        width, power = float(solimp[2]), max(float(solimp[4]), 1.0)
        if width <= LEAST:
            # MuJoCo then takes the mean at any depth; d above stays that of `solref`.
            mean = (least + d) / 2
            return {"reference": ReferenceAcceleration(b, k, inverse, mean, mean)}
        middle = float(np.clip(solimp[3], LEAST_IMPEDANCE, MOST_IMPEDANCE))
        rise = {"first": least, "last": d, "width": width, "middle": middle, "power": power}
        return {"reference": ReferenceAcceleration(b, k, inverse, **rise)}
    R = max(LEAST, (1 - d) / d * inverse_inertia) * share
    return {"stiffness": d * k / R, "damping": b / R}
