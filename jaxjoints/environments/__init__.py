"""Tasks on mechanisms for agents that learn: reset, step, restart; batches, randomized numbers."""

from .ant import Ant, ant
from .biped import Biped, biped
from .cart_pole import CartPole, cart_pole
from .environment import Environment, Episode
from .finger import Finger, finger
from .four_bar_leg import FourBarLeg, four_bar_leg
from .go2 import Go2, go2
from .gripper import Gripper, gripper
from .half_cheetah import HalfCheetah, half_cheetah
from .hopper import Hopper, hopper
from .humanoid import Humanoid, humanoid
from .randomization import randomized, scaled, uniform
from .stewart import StewartPlatform, stewart_platform
from .swing_up import SwingUp, swing_up
from .tasks import TASKS, make
from .unroll import Transition, controller, unroll

__all__ = [
    "TASKS",
    "Ant",
    "Biped",
    "CartPole",
    "Environment",
    "Episode",
    "Finger",
    "FourBarLeg",
    "Go2",
    "Gripper",
    "HalfCheetah",
    "Hopper",
    "Humanoid",
    "StewartPlatform",
    "SwingUp",
    "Transition",
    "ant",
    "biped",
    "cart_pole",
    "controller",
    "finger",
    "four_bar_leg",
    "go2",
    "gripper",
    "half_cheetah",
    "hopper",
    "humanoid",
    "make",
    "randomized",
    "scaled",
    "stewart_platform",
    "swing_up",
    "uniform",
    "unroll",
]
