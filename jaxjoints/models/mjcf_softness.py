"""Softness of the limits and contacts of MJCF: a spring and damper in place of MuJoCo's."""

import numpy as np

# Impedances are kept off 0 and 1, as in MuJoCo.
LEAST_IMPEDANCE, MOST_IMPEDANCE = 1e-4, 0.9999
# Below this a number counts as 0 in MuJoCo.
LEAST = 1e-15
# In place of a `solref` whose numbers differ in sign.
DEFAULT_SOLREF = 0.02, 1.0


def spring_of(
    solref: np.ndarray, solimp: np.ndarray, inverse_inertia: float, share: float = 1.0
) -> tuple[float, float]:
    """Stiffness and damping of a constraint of MuJoCo, at its largest impedance.

    MuJoCo's least values stand in the denominators: a body that turns about its own centre has no
    inverse inertia for a force on it, and a time constant may be 0.

    solref: time constant [s] and damping ratio, or negative stiffness and damping per inertia
    solimp: impedances, of which the second is the largest
    inverse_inertia: of what the constraint moves [1/kg or 1/(kg m²)]
    share: of R that counts, where several rows of MuJoCo are one constraint

    Source: MuJoCo's `mj_makeImpedance`.
    """
    d = float(np.clip(solimp[1], LEAST_IMPEDANCE, MOST_IMPEDANCE))
    first, second = (float(x) for x in solref[:2])
    if (first > 0) != (second > 0):
        first, second = DEFAULT_SOLREF
    if first > 0:
        b, k = 2 / max(LEAST, d * first), d / max(LEAST, (d * first * second) ** 2)
    else:
        b, k = -second / d, -first / d
    R = max(LEAST, (1 - d) / d * inverse_inertia) * share
    return k / R, b / R
