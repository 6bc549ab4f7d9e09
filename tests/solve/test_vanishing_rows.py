"""Rows that nothing moves: their wrench vanishes, as that of a rope whose ends meet.

A point at p with the speed v has two or three rows whose wrenches are p and its components in other
orders, so all vanish at p = 0 while their slopes do not. There an impulse Λ leaves the speed as it
is, and changes it by Λ dp / m for a displacement dp.
"""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxjoints import Slider, SystemBuilder, step
from jaxjoints.algebra.pytree import replace
from jaxjoints.couplings.shapes import HalfSpace
from jaxjoints.couplings.shapes import Sphere as Ball
from jaxjoints.solve.bodies import bodies_of_rows
from jaxjoints.solve.derivative import Unrolled
from jaxjoints.solve.forces import Bound
from jaxjoints.solve.gauss_seidel import ProjectedGaussSeidel
from jaxjoints.solve.newton import Newton
from jaxjoints.solve.problem import RowProblem, RowStructure, body_velocities
from support.graphs import free_bodies, of_sides
from support.mechanisms import single

HARD, LAWS, NORMAL = 0, 1, 2
MASS = 2.0
# Laws of a row: K and p of the linear law; bias, compliance and sign of a stop, present or not;
# bias, compliance, bound and μ of a box. And the impulse that they ask for at no speed.
NO_STOP, NO_BOX = (0.0, 0.0, 1.0, 0.0), (0.0, 0.0, 0.0, 0.0)
CASES = {
    "nothing": ((0.0, 0.0), NO_STOP, NO_BOX, 0.0),
    "effort": ((0.0, 3.0), NO_STOP, NO_BOX, 3.0),
    "spring": ((2.0, 3.0), NO_STOP, NO_BOX, 3.0),
    "hard stop": ((0.0, 0.0), (1.0, 0.0, 1.0, 1.0), NO_BOX, 0.0),
    "hard stop that is passed": ((0.0, 0.0), (-1.0, 0.0, 1.0, 1.0), NO_BOX, 0.0),
    "soft stop": ((0.0, 0.0), (1.0, 0.5, 1.0, 1.0), NO_BOX, 0.0),
    "soft stop that is passed": ((0.0, 0.0), (-1.0, 0.5, -1.0, 1.0), NO_BOX, -2.0),
    "spring and stop": ((2.0, 3.0), (-1.0, 0.5, 1.0, 1.0), NO_BOX, 5.0),
    "motor": ((0.0, 0.0), NO_STOP, (-1.0, 0.0, 0.25, 0.0), 0.25),
    "soft motor": ((0.0, 0.0), NO_STOP, (-1.0, 0.5, 3.0, 0.0), 2.0),
    "soft motor at its bound": ((0.0, 0.0), NO_STOP, (1.0, 0.5, 0.25, 0.0), -0.25),
    "dry friction": ((0.0, 0.0), NO_STOP, (0.0, 0.0, 0.25, 0.0), 0.0),
    "motor against a stop": ((0.0, 1.0), (-1.0, 0.5, -1.0, 1.0), (-1.0, 0.0, 0.25, 0.0), -0.75),
}
# Friction that follows a normal force of 2.
FOLLOWING = {
    "Coulomb friction": ((0.0, 0.0), NO_STOP, (-1.0, 0.0, 0.0, 0.2), 0.4),
    "Coulomb friction that sticks": ((0.0, 0.0), NO_STOP, (0.0, 0.0, 0.0, 0.2), 0.0),
}
SOLVERS = {
    "Newton": Newton(),
    "unrolled": Newton(derivative=Unrolled()),
    "smoothed": Newton(smoothing=0.1),
    "Gauss-Seidel": ProjectedGaussSeidel(iterations=60),
}
# At the place where all rows vanish, and beside it.
PLACES = np.array([[0.0, 0.0, 0.0], [0.3, -0.2, 0.5]])
SPEED = np.array([0.2, -0.1, 0.4])
# Of the components of the speed in a sum, and the slopes of that sum by p for an impulse per mass
# of 1 of the row of laws and of the normal row.
WEIGHTS = np.array([1.0, 2.0, 3.0])
ROW_OF_LAWS, NORMAL_ROW = np.roll(WEIGHTS, -LAWS), np.roll(WEIGHTS, -NORMAL)


@cache
def structure(following):
    rows = (LAWS, NORMAL) if following else (LAWS,)
    way = free_bodies(1, ((0, -1),), 1 + len(rows))
    return RowStructure(way, 1 + len(rows), rows, (0,) * len(rows), ())


def problem(following, laws, mass, p, v):
    """The rows of a point at p with the speed v, both (3,), under the laws of a case."""
    linear, stop, box = laws
    wrenches = [jnp.roll(p, k) for k in range(2 + following)]
    H = jnp.stack([jnp.concatenate([x, jnp.zeros_like(x)]) for x in wrenches], axis=1)[..., None]
    rate = (jnp.stack(wrenches) @ v).at[HARD].add(0.7)[:, None]

    def of_rows(x, normal=0.0):
        """Numbers of the row of laws, and of the normal row where there is one."""
        return jnp.stack([x, jnp.full_like(x, normal)])[: 1 + following]

    bias, compliance, sign, present = stop
    numbers = (sign, 1.0), (bias, -1.0), (compliance, 0.5), (present, 1.0)
    stops = Bound(*(of_rows(*pair) for pair in numbers))
    bias, compliance, most, mu = box
    one = jnp.ones_like(bias)
    boxes = Bound(*map(of_rows, (one, bias, compliance, one, -most, most)))
    if following:
        boxes = replace(boxes, mu=of_rows(mu), normal=(1, 1))
    none, inverse = jnp.zeros_like(H), jnp.stack([1 / mass, 0 * mass])
    rows = structure(following)
    bodies = bodies_of_rows(
        H=of_sides(rows.way, (H, none)),
        inverse_mass=inverse,
        inverse_inertia=jnp.eye(3, dtype=p.dtype)[..., None] * inverse[None, None],
        way=rows.way,
    )
    return RowProblem(
        bodies,
        rate=rate,
        compliance=jnp.zeros_like(rate),
        augmented_stiffness=of_rows(linear[0]),
        impulse=of_rows(linear[1]),
        bounds=(stops, boxes),
        structure=rows,
    )


def inputs(following, dtype, places):
    """Laws of all cases at each place, (numbers, points), mass, and p and v of each point."""
    cases = FOLLOWING if following else CASES
    laws = [np.array([law[k] for law in cases.values()], dtype).T for k in range(3)]
    laws = [jnp.asarray(np.repeat(x, len(places), axis=1)) for x in laws]
    p = jnp.asarray(np.tile(places.T, (1, len(cases))), dtype)
    v = jnp.broadcast_to(jnp.asarray(SPEED, dtype)[:, None], p.shape)
    return laws, jnp.asarray(MASS, dtype), p, v


@partial(jax.jit, static_argnums=(0, 1, 2))
def answers(solver, following, again, laws, mass, p, v):
    """Speeds after the impulses and residuals; the slopes of a sum of all speeds by the mass that
    they share, by p and by v; and, to differentiate `again`, how these change with the impulse of
    the linear laws.
    """

    def one(laws, mass, p, v):
        rows = problem(following, laws, mass, p, v)
        solution = solver.solve(rows)
        return v + body_velocities(rows, solution.impulse)[:3, 0], solution.residual

    def total(impulse, numbers):
        linear, *others = laws
        changed = linear.at[1].add(impulse), *others
        speed, residual = jax.vmap(one, (-1, None, -1, -1), -1)(changed, *numbers)
        weights = jnp.asarray(WEIGHTS, speed.dtype)
        return jnp.sum(weights[:, None] * speed), (speed, residual)

    def slopes(impulse):
        return jax.grad(total, argnums=1, has_aux=True)(impulse, (mass, p, v))

    none = jnp.zeros_like(laws[0][1])
    if not again:
        found, outcome = slopes(none)
        return *outcome, *found
    (found, outcome), (second, _) = jax.jvp(slopes, (none,), (jnp.ones_like(none),))
    return *outcome, *found, *second


def check(name, following=False, dtype=np.float64, *, again=True):
    precise, of_all = dtype == np.float64, partial(answers, SOLVERS[name], following, again)
    laws, mass, p, v = inputs(following, dtype, PLACES)
    found = of_all(laws, mass, p, v)
    assert all(np.isfinite(x).all() and x.dtype == dtype for x in found)
    speed, residual, by_mass, by_p, by_v, *second = found

    # The first point of each two is where the rows vanish.
    np.testing.assert_array_equal(speed[:, ::2], v[:, ::2])
    assert np.abs(residual[::2]).max() <= (1e-10 if precise else 1e-5)
    np.testing.assert_allclose(by_v[:, ::2].T, np.broadcast_to(WEIGHTS, by_v[:, ::2].T.shape))
    if again:
        np.testing.assert_allclose(second[1][:, ::2].T[0], ROW_OF_LAWS / MASS, rtol=1e-6)
    if name != "smoothed":
        cases = FOLLOWING if following else CASES
        asked = np.array([impulse for *_, impulse in cases.values()])
        expected = (asked[:, None] * ROW_OF_LAWS + 2.0 * following * NORMAL_ROW) / MASS
        np.testing.assert_allclose(by_p[:, ::2].T, expected, atol=1e-7 if precise else 1e-4)

    # The others have the slopes that they have among themselves.
    others = of_all(*inputs(following, dtype, PLACES[[1, 1]]))
    for some, every in zip((speed, by_p, by_v), (others[0], *others[3:5]), strict=True):
        np.testing.assert_array_equal(some[:, 1::2], every[:, 1::2])
    np.testing.assert_allclose(by_mass, others[2] / 2, rtol=1e-10 if precise else 1e-4)


def test_laws_of_rows_that_vanish_exert_what_they_ask_for():
    """Or nothing where that is a speed; and what neighbours do is theirs alone."""
    check("Newton", again=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", list(SOLVERS))
def test_rows_that_vanish_have_second_derivatives(name):
    check(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Newton", "Gauss-Seidel"])
def test_rows_that_vanish_in_single_precision(name):
    check(name, dtype=np.float32)


@pytest.mark.slow
@pytest.mark.parametrize("name", list(SOLVERS))
def test_rows_that_vanish_under_friction_that_follows_others(name):
    check(name, following=True)


def test_a_puck_whose_rail_bears_a_soft_contact_is_solved_at_once():
    """In float32 what the contact gives way by cancels its bias to 1e-8 m/s, a large share of the
    speeds of a puck that nothing else moves.
    """
    world = SystemBuilder(gravity=(0.0, 0.0, 0.0))
    world.body("puck", mass=1e-5, inertia=(1e-8,) * 3)
    world.joint("rail", Slider((1.0, 0.0, 0.0)), child="puck")
    ground = {"frame_D": (0.0, 0.0, -0.046), "stiffness": 0.4, "damping": 0.016}
    world.contact("ground", Ball(0.05), HalfSpace(), child="puck", **ground)
    with pytest.warns(UserWarning, match="outside its lower 0 by 0.004"):
        system, state = map(single, world.build())
    _, info = step(system, state, dt=0.01)
    assert info.iterations <= 2
    np.testing.assert_allclose(info.contact_force[0, 0], 0.4 * 4e-3, rtol=1e-5)
