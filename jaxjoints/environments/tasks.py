"""The tasks of the library by name."""

from collections.abc import Callable
from typing import Any

from ..algebra.calls import public
from ..algebra.options import near_matches
from .ant import ant
from .biped import biped
from .cart_pole import cart_pole
from .environment import Environment
from .finger import finger
from .four_bar_leg import four_bar_leg
from .go2 import go2
from .gripper import gripper
from .half_cheetah import half_cheetah
from .hopper import hopper
from .humanoid import humanoid
from .stewart import stewart_platform
from .swing_up import swing_up

TASKS: dict[str, Callable[..., Environment]] = {
    "ant": ant,
    "biped": biped,
    "cart_pole": cart_pole,
    "finger": finger,
    "four_bar_leg": four_bar_leg,
    "go2": go2,
    "gripper": gripper,
    "half_cheetah": half_cheetah,
    "hopper": hopper,
    "humanoid": humanoid,
    "stewart_platform": stewart_platform,
    "swing_up": swing_up,
}


@public
def make(name: str, **options: Any) -> Environment:
    """A task by its name: `make("swing_up", stiffness=30.0)`.

    options: those of the function of that name in `jaxjoints.environments`

    Raises: ValueError for an unknown name, with near matches.

    >>> make("cart_pole").observation_size
    4
    """
    if name not in TASKS:
        raise ValueError(f"make: there is no task {name!r}; {near_matches(name, TASKS)}")
    return TASKS[name](**options)
