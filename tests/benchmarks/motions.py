"""The motions that trajectories.py plans: mechanisms, costs, and the same for MJX where it can."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxjoints as jj
from jaxjoints import environments, optimization

GUESSES = 16
GRAVITY = 9.81  # [m/s²]
ONE_ITERATION = 'iterations="1" ls_iterations="6"'  # its loop has no reverse derivative


class Peer(NamedTuple):
    """The mechanism as MJCF, where it starts, and the cost of the end from MJX's data."""

    text: str
    q: np.ndarray
    terminal: Callable


@dataclass(frozen=True)
class Motion:
    """A problem, what a plan for it comes to in a sentence, and what MJX is asked.

    guess: size of the first guesses, as a share of the largest effort
    ilqr: whether iLQR is asked too
    """

    problem: optimization.Problem
    told: Callable[[optimization.Plan, int], str]
    peer: Peer | None = None
    guess: float = 0.1
    ilqr: bool = False


def priced(price):
    """Cost of an interval: the squares of the efforts times a price."""

    def effort(knot, u):
        return price * jnp.sum(u**2)

    return effort


def ending(system, start, cost, **options):
    """A problem with many first guesses, whose end costs what `cost` says of q and q̇."""
    guesses = jj.replicate(start, GUESSES)
    end = lambda knot: cost(knot.q, knot.qd)  # noqa: E731
    return optimization.Problem(system, guesses, priced(1e-3), end, **options)


# A pole that swings up, by a cart on a rail with hard ends.

ENDS = 0.6  # of the rail, either way [m]
CART = f"""<mujoco><option timestep="0.01" {ONE_ITERATION}/><worldbody>
<body name="cart">
<joint name="rail" type="slide" axis="1 0 0" limited="true" range="-{ENDS} {ENDS}"/>
<inertial pos="0 0 0" mass="1" diaginertia="0.1 0.1 0.1"/>
<body name="pole"><joint name="pivot" type="hinge" axis="0 -1 0"/>
<inertial pos="0 0 -0.5" mass="0.2" diaginertia="0.017 0.017 0.001"/></body></body></worldbody>
<actuator><motor joint="rail"/></actuator></mujoco>"""


def standing(q, qd):
    """The pole stands and the cart rests, anywhere on its rail."""
    return 100 * (1 + jnp.cos(q[1])) + 10 * jnp.sum(qd**2)


def cart_pole():
    """Hard ends, which MJCF does not have: by the builder."""
    world = jj.SystemBuilder()
    world.body("cart", mass=1.0, inertia=(0.1, 0.1, 0.1))
    world.body("pole", mass=0.2, inertia=(0.017, 0.017, 0.001), com=(0.0, 0.0, -0.5))
    ends = jj.Limits(-ENDS, ENDS)
    world.joint("rail", jj.Slider((1.0, 0.0, 0.0)), child="cart", laws=[ends])
    world.joint("pivot", jj.Hinge((0.0, -1.0, 0.0)), child="pole", parent="cart")
    system, start = world.build()
    problem = ending(
        system,
        start,
        standing,
        horizon=100,
        dt=0.01,
        substeps=2,
        actuated="rail",
        lower=-20.0,
        upper=20.0,
    )

    def told(plan, best):
        lean = np.pi - abs(float(plan.q[-1, 1, best]))
        speeds, used = np.abs(plan.qd[-1, :, best]).max(), np.abs(plan.q[:, 0, best]).max()
        return f"ends {lean:.3f} rad from upright, at {speeds:.2f} m/s or rad/s; {used:.2f} m used"

    peer = Peer(CART, np.zeros(2), lambda data: standing(data.qpos, data.qvel))
    return Motion(problem, told, peer, ilqr=True)


# An acrobot that swings up, by a motor between its rods.

ROD = 1.0  # length of each [m]
ACROSS = ROD**2 / 12  # moment of inertia of each, of 1 kg [kg m²]
RODS = f"""<mujoco><compiler angle="radian"/><option timestep="0.01" {ONE_ITERATION}/><worldbody>
<body name="upper"><joint name="shoulder" type="hinge" axis="0 -1 0"/>
<inertial pos="0 0 {-ROD / 2}" mass="1" diaginertia="{ACROSS} {ACROSS} 0.001"/>
<body name="lower" pos="0 0 {-ROD}"><joint name="elbow" type="hinge" axis="0 -1 0"/>
<inertial pos="0 0 {-ROD / 2}" mass="1" diaginertia="{ACROSS} {ACROSS} 0.001"/></body></body>
</worldbody><actuator><motor joint="elbow"/></actuator></mujoco>"""


def upright(q, qd):
    """Both rods stand still, upright."""
    return 100 * ((q[0] - jnp.pi) ** 2 + q[1] ** 2) + 10 * jnp.sum(qd**2)


def acrobot():
    """The mechanism of examples/swing_up.py, the same MJCF for both; nothing but hinges."""
    system, start = jj.models.load_mjcf(RODS, visuals=False).build()
    problem = ending(
        system,
        start,
        upright,
        horizon=100,
        dt=0.01,
        substeps=4,
        actuated="elbow",
        lower=-8.0,
        upper=8.0,
    )

    def told(plan, best):
        first, second = plan.q[-1, :, best]
        height = -ROD * (np.cos(first) + np.cos(first + second))
        speed = np.abs(plan.qd[-1, :, best]).max()
        return (
            f"the tip ends {height:.3f} m above the pivot, of {2 * ROD:g} m, at {speed:.2f} rad/s"
        )

    peer = Peer(RODS, np.zeros(2), lambda data: upright(data.qpos, data.qvel))
    return Motion(problem, told, peer, guess=0.25, ilqr=True)


# A throw, wound up against a soft stop.

ARM, TARGET = 1.0, 3.0  # length, and where the ball is to hit the ground [m]
STOP, STIFFNESS, DAMPING, FRICTION = -0.8, 40.0, 0.2, 0.02  # [rad, N m/rad, N m s/rad]
CENTRAL, MOMENT = ARM**2 / 12, ARM**2 / 3  # of inertia, about the centre and the shoulder [kg m²]
# MuJoCo's stops act on accelerations, a = (1 - d) a₀ - k r - b v for a negative solref (k, b). With
# a small d they are springs, k and b being stiffness and damping over the moment of inertia.
D = 0.01
SOLREF = f"{-STIFFNESS / MOMENT} {-DAMPING / MOMENT}"
THROWER = f"""<mujoco><compiler angle="radian"/>
<option timestep="0.01" {ONE_ITERATION}/><worldbody><body name="arm" pos="0 0 1">
<joint name="shoulder" type="hinge" axis="0 -1 0" limited="true" range="{STOP} 10"
damping="{FRICTION}" solreflimit="{SOLREF}" solimplimit="{D} {D} 0.001 0.5 2"/>
<inertial pos="0 0 {-ARM / 2}" mass="1" diaginertia="{CENTRAL} {CENTRAL} 0.0001"/></body>
</worldbody><actuator><motor joint="shoulder"/></actuator></mujoco>"""


def landing(q, qd):
    """Where a ball hits the ground that the tip of the arm lets go; the shoulder is 1 m high."""
    x, z = ARM * jnp.sin(q[0]), 1.0 - ARM * jnp.cos(q[0])
    vx, vz = ARM * qd[0] * jnp.cos(q[0]), ARM * qd[0] * jnp.sin(q[0])
    return x + vx * (vz + jnp.sqrt(vz**2 + 2 * GRAVITY * z + 1e-6)) / GRAVITY


def throw():
    """The arm of notebooks/optimize_a_trajectory.ipynb."""
    world = jj.SystemBuilder()
    world.body("arm", mass=1.0, inertia=(CENTRAL, CENTRAL, 1e-4))
    laws = [jj.Limits(STOP, stiffness=STIFFNESS, damping=DAMPING), jj.Damping(FRICTION)]
    frames = {"frame_C": (0.0, 0.0, ARM / 2), "frame_D": (0.0, 0.0, 1.0)}
    world.joint("shoulder", jj.Hinge((0.0, -1.0, 0.0)), child="arm", laws=laws, **frames)
    system, start = world.build()

    def missed(q, qd):
        return 10 * (landing(q, qd) - TARGET) ** 2

    problem = ending(
        system,
        start,
        missed,
        horizon=32,
        dt=0.01,
        substeps=5,
        lower=-2.5,
        upper=2.5,
    )

    def told(plan, best):
        where = landing(plan.q[-1, :, best], plan.qd[-1, :, best])
        deep = STOP - plan.q[:, 0, best].min()
        return f"lands at {where:.3f} m, of {TARGET:g} m, after {deep:.2f} rad into the stop"

    peer = Peer(THROWER, np.zeros(1), lambda data: missed(data.qpos, data.qvel))
    return Motion(problem, told, peer, guess=0.5)


# An arm of seven hinges that reaches a point.

HAND = np.array([0.5, 0.4, 0.6])  # where it is wanted [m]
BENT = np.array([0.3 * (-1) ** i for i in range(7)])


def arm_text():
    """Seven links of 0.2 m on hinges about y and z in turn, stops at 1.5 rad."""
    text, tail = "", ""
    for i in range(7):
        axis = "0 0 1" if i % 2 == 0 else "0 1 0"
        text += (
            f'<body name="link {i}" pos="0 0 {0.2 if i else 0}"><joint name="joint {i}" '
            f'type="hinge" axis="{axis}" limited="true" range="-1.5 1.5" damping="0.5"/>'
            '<inertial pos="0 0 0.1" mass="1" diaginertia="0.004 0.004 0.001"/>'
        )
        tail += "</body>"
    motors = "".join(f'<motor joint="joint {i}"/>' for i in range(7))
    return (
        f'<mujoco><compiler angle="radian"/><option timestep="0.01" {ONE_ITERATION}/>'
        f'<worldbody>{text}<site name="hand" pos="0 0 0.2"/>{tail}</worldbody>'
        f"<actuator>{motors}</actuator></mujoco>"
    )


def reached(hand, qd):
    """The hand is where it is wanted, at rest."""
    return 100 * jnp.sum((hand - HAND) ** 2) + jnp.sum(qd**2)


def arm():
    """The same MJCF for both."""
    system, _ = jj.models.load_mjcf(arm_text(), visuals=False).build()
    start = system.state(q={f"joint {i}": angle for i, angle in enumerate(BENT)})
    last = system.body("link 6")

    def hand(knot):
        T = jax.tree.map(lambda x: x[:, last], jj.body_poses(knot.system, knot.state))
        return T.apply(jnp.array([0.0, 0.0, 0.2]))

    problem = optimization.Problem(
        system,
        jj.replicate(start, GUESSES),
        priced(1e-3),
        lambda knot: reached(hand(knot), knot.qd),
        horizon=50,
        dt=0.01,
        substeps=2,
        lower=-30.0,
        upper=30.0,
    )

    def told(plan, best):
        end = jax.tree.map(lambda x: x[-1, ..., best], plan.states)
        T = jax.tree.map(lambda x: x[:, last], jj.body_poses(system, end))
        away = 1e3 * np.linalg.norm(T.apply(np.array([0.0, 0.0, 0.2])) - HAND)
        stops = np.abs(plan.q[..., best]).max()
        return f"the hand ends {away:.0f} mm from its point; largest angle {stops:.2f} rad of 1.5"

    peer = Peer(arm_text(), BENT, lambda data: reached(data.site_xpos[0], data.qvel))
    return Motion(problem, told, peer)


# A trunk on a leg of four bars that jumps.

CROUCH, STRETCHED = -0.45, 0.4  # angle of the crank at the start; where its spring is at rest [rad]
MOTOR = 30.0  # the crank's largest moment [N m]


def risen(system, state):
    """Height to which the centre of mass flies, were there no ground any more [m]."""
    share = system.mass / jnp.sum(system.mass)
    height, speed = (jnp.tensordot(share, x[2], 1) for x in (state.position, state.velocity))
    return height + jnp.maximum(speed, 0.0) ** 2 / (2 * GRAVITY)


def leg():
    """The hopper of the tasks, with a stronger motor and a spring that stretches the leg.

    It starts crouched on the ground. The cost is the height of the flight that follows the horizon.
    MJX is not asked: the leg is a closed loop on a ground with friction.
    """
    task = environments.four_bar_leg()
    spring = {"joint.crank.spring_damper.rest": STRETCHED}
    system = task.system.with_numbers(spring | {"joint.crank.max_effort": np.array([MOTOR])})
    bent, _ = jj.assemble(system, task.start, q={"crank": CROUCH, "trunk": np.zeros(2)})
    # The foot onto the ground, by a rigid displacement.
    trunk, foot = task.places("trunk")[1], task.places("foot")[0]
    gap = bent.q[foot]
    lowered = bent.q.at[foot].add(-gap).at[trunk].add(-gap)
    crouched = jj.replace(bent, position=bent.position.at[2].add(-gap), q=lowered)
    stood = float(risen(task.system, task.start))

    problem = optimization.Problem(
        system,
        jj.replicate(crouched, GUESSES),
        priced(1e-5),
        lambda knot: -100 * (risen(knot.system, knot.state) - stood),  # [cm]
        horizon=20,
        dt=2.5e-3,
        substeps=4,
        lower=-MOTOR,
        upper=MOTOR,
        actuated="crank",
        scheme=task.scheme,
    )

    def told(plan, best):
        """By the simulation of the flight, its motor at rest."""
        end = jax.tree.map(lambda x: x[-1, ..., best], plan.states)
        _, states = jj.rollout(system, end, dt=2.5e-3, steps=100, scheme=task.scheme)
        share = np.asarray(system.mass / system.mass.sum())
        heights = np.asarray(states.position)[:, 2] @ share - stood
        clear = np.asarray(states.q)[:, foot].max()
        said = float(risen(system, end)) - stood
        return (
            f"the centre of mass flies {heights.max():.3f} m higher than it stands, by the end of "
            f"the horizon {said:.3f} m; the foot is {clear:.3f} m clear of the ground"
        )

    return Motion(problem, told, guess=0.5)


MOTIONS = {f.__name__: f for f in (cart_pole, acrobot, throw, arm, leg)}
