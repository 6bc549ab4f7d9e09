"""Closed mechanisms driven from a bad guess through a cycle: places and slopes by geometry."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

import jaxjoints as jj
from support import linkages
from support.differences import central

CLOSED = 1e-12  # what an assembled joint may be open by [m or rad]
KNOWN = 1e-11  # of places [m or rad]
SLOPE = 1e-8  # of slopes beside differences of the geometry
# Angles of a whole turn, the last of which is the first one turn later.
TURN = np.linspace(0.3, 0.3 + 2 * np.pi, 13)


@dataclass(frozen=True)
class Cycle:
    """A mechanism of one number, such as the length of a bar, and what an angle drives.

    build: system and guess for the number; drive: what `assemble` is asked for at an angle; read:
        numbers of an assembled state; exact: the same by geometry, of angle and number
    open_by: what joints of the guess are open by, at least
    """

    build: Callable[[Any], tuple[jj.System, jj.State]]
    drive: Callable[[Any], Mapping[str, Any]]
    read: Callable[[jj.System, jj.State], Any]
    exact: Callable[[Any, Any], Any]
    number: float


def planar(make, points, number, body, point, drive=lambda angle: {"O crank": angle}):
    """The cycle of a `linkage` whose number is the length of a bar to its `point`."""
    bodies, ground, sketch = make()

    def build(length):
        system, guess = linkages.linkage(bodies, ground, sketch)
        at = length, jnp.zeros_like(length)
        return linkages.with_point(system, bodies, ground, body, point, at), guess

    def read(system, state):
        found = linkages.points_at(system, state, bodies)
        return jnp.concatenate([found[name] for name in sorted(sketch)])

    def exact(angle, length):
        found = points(angle, length)
        return np.ravel([(found[name].real, found[name].imag) for name in sorted(sketch)])

    return Cycle(build, lambda angle: {"q": drive(angle)}, read, exact, number)


def coordinates(system, state, *names):
    return jnp.concatenate([state.q[system.coordinate(name)] for name in names])


def circle(angles, xp=np):
    """Angles whatever their turns."""
    return xp.concatenate([xp.cos(angles), xp.sin(angles)])


def of_both_cranks(angle):
    return {"A left": -2.2 + 0.5 * jnp.cos(angle), "E right": -0.7 + 0.5 * jnp.sin(angle)}


def five_bar_points(angle, rod):
    left, right = (np.asarray(x) for x in of_both_cranks(angle).values())
    B, D = 0.3 * np.exp(1j * left), 0.2 + 0.3 * np.exp(1j * right)
    return {"B": B, "D": D, "T": linkages.five_bar_foot(left, right, rod)}


def slider(angle, rod, crank=0.3):
    return np.array([crank * np.cos(angle) + np.sqrt(rod**2 - (crank * np.sin(angle)) ** 2)])


def bennett_of(twist):
    system, _ = linkages.bennett_linkage(twist=twist)[0]
    return system, system.state(q={"0": 1.0, "1": 1.0, "2": -1.5}, rough=True)


def bennett(angle, twist):
    """Of hinges "1" and "2": tan θ₀/2 tan θ₁/2 is constant, opposite hinges turn alike."""
    β = np.arcsin(1.5 * np.sin(twist))
    ratio = np.sin((β + twist) / 2) / np.sin((β - twist) / 2)
    first = 2 * np.arctan2(-ratio * np.cos(angle / 2), np.sin(angle / 2))
    return circle(np.array([first, -angle]))


def cardan_of(bend):
    system, _ = linkages.cardan_shaft(bend)
    return system, system.state(q={"in": 0.4, "out": 1.1}, rough=True)


def cardan(angle, bend):
    """tan(out) = tan(in) / cos(bend), as the angle by which the second shaft is ahead."""
    s, c, shorter = np.sin(angle), np.cos(angle), np.cos(bend)
    return np.array([angle + np.arctan2(s * c * (1 - shorter), shorter * c**2 + s**2)])


def lean(angle, xp=np):
    """Rotation vector and place of a platform that circles and leans."""
    c, s = xp.cos(angle), xp.sin(angle)
    return xp.stack([0.2 * c, 0.2 * s, 0.1 * s]), xp.stack([0.1 * c, 0.1 * s, 1.1 + 0.05 * c])


def pose(angle):
    at = jj.Pose.from_rotation_vector(*lean(angle, jnp))
    return {"goals": {"pose": jj.goals.Frame("platform", at)}}


def legs(angle, radius):
    *_, base, top = linkages.stewart_platform(radius)
    turn, place = lean(angle)
    return np.linalg.norm(place + Rotation.from_rotvec(turn).apply(top) - base, axis=1)


CYCLES = {
    "four-bar": planar(linkages.four_bar, linkages.four_bar_points, 0.8, "coupler", "B"),
    "Jansen": planar(linkages.jansen_leg, linkages.jansen_points, linkages.JANSEN["k"], "k", "K"),
    "Watt": planar(linkages.watt_linkage, linkages.watt_points, 0.8, "coupler", "B"),
    "Stephenson": planar(linkages.stephenson_linkage, linkages.stephenson_points, 1.3, "rod", "D"),
    "five-bar": planar(
        linkages.five_bar_leg, five_bar_points, 0.5, "rod", "T", drive=of_both_cranks
    ),
    "slider-crank": Cycle(
        lambda rod: linkages.slider_crank(rod=rod),
        lambda angle: {"q": {"O": angle}},
        lambda system, state: coordinates(system, state, "guide"),
        slider,
        0.8,
    ),
    "Bennett": Cycle(
        bennett_of,
        lambda angle: {"q": {"0": angle}},
        lambda system, state: circle(coordinates(system, state, "1", "2"), jnp),
        bennett,
        0.6,
    ),
    "Cardan": Cycle(
        cardan_of,
        lambda angle: {"q": {"in": angle}},
        lambda system, state: coordinates(system, state, "out"),
        cardan,
        0.5,
    ),
    "Stewart": Cycle(
        lambda radius: linkages.stewart_platform(radius)[:2],
        pose,
        lambda system, state: coordinates(system, state, *(f"leg {i}" for i in range(6))),
        legs,
        0.5,
    ),
}


def driven(cycle, numbers):
    """Places along the cycle (angles, n), and what joints are open by.

    numbers: what all angles are further by, and the mechanism's number
    """
    further, number = numbers
    system, guess = cycle.build(number)

    def onward(state, angle):
        state, closure = jj.assemble(system, state, **cycle.drive(angle + further))
        errors = closure.joint_error, closure.coordinate_error, closure.goal_error
        worst = jnp.max(jnp.concatenate(errors))
        return state, (cycle.read(system, state), worst)

    _, (places, worst) = jax.lax.scan(onward, guess, jnp.asarray(TURN))
    return places, worst


@pytest.mark.slow
@pytest.mark.parametrize("name", CYCLES)
def test_a_mechanism_goes_through_a_cycle(name):
    cycle = CYCLES[name]
    numbers = jnp.array([0.0, cycle.number])
    system, guess = cycle.build(numbers[1])
    assert jnp.max(jj.joint_errors(system, guess)) > 0.2

    along = lambda d: jax.jvp(partial(driven, cycle), (numbers,), (d,), has_aux=True)  # noqa: E731
    places, slopes, worst = jax.jit(jax.vmap(along, out_axes=(None, 0, None)))(jnp.eye(2))
    assert jnp.max(worst) < CLOSED

    def exact(numbers):
        further, number = np.asarray(numbers)
        return np.stack([cycle.exact(angle + further, number) for angle in TURN])

    np.testing.assert_allclose(places, exact(numbers), rtol=0, atol=KNOWN)
    flat = lambda points: np.stack([exact(x).ravel() for x in points])  # noqa: E731
    expected = central(flat, np.asarray(numbers), np.full(2, 2e-4))
    np.testing.assert_allclose(slopes.reshape(2, -1), expected, rtol=SLOPE, atol=SLOPE)
