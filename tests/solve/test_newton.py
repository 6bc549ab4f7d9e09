"""The bounded solve: boxes, smoothing, several laws on one coordinate."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxjoints as jj
from jaxjoints.assembly.impulses import start_impulses
from jaxjoints.assembly.layout import layout
from jaxjoints.laws.transmissions import Weighted
from jaxjoints.model.kinematics import with_world
from jaxjoints.solve.bounds import potential, slope, stacked
from jaxjoints.solve.forces import Bound
from jaxjoints.solve.iteration import FLOOR, SOLVED
from jaxjoints.solve.newton import Newton
from jaxjoints.solve.problem import at_rest, body_velocities, excess, row_speeds, scale
from support import mechanisms
from support.contacts import contacts
from support.mechanisms import single
from support.reference import environment, on_bodies
from support.stops import DT, ENVIRONMENTS, ROUNDING, chain, problem_of, violent

COLD = 15
NOTHING = 1e-6  # N m s, impulse of a stop that does not push


def solve(problem, start=None, **settings):
    """The solution by Newton's method, compiled once for each number of iterations."""
    return _solve(Newton(**settings), problem, start)


_solve = jax.jit(Newton.solve)


@jax.jit
def speeds_of(problem, solution):
    """Speeds of the coordinate rows after the impulses, shape (coordinate rows, environments)."""
    structure = problem.structure
    change = with_world(body_velocities(problem, solution.impulse))
    speed = problem.rate + row_speeds(problem, change)
    return speed, speed[np.array(structure.row), np.array(structure.node)]


def stops(problem, solution):
    """The stop at the lower bounds and at the upper, each with its impulses."""
    both = list(zip(problem.bounds[:2], solution.bounded, strict=False))
    assert len(both) == 2
    return both


@pytest.fixture(scope="module")
def limited():
    """A chain of three with tight hard limits, violent states, and its rows."""
    system, state = chain(3, [jj.Limits(-0.301, 0.301, erp=0.2, cfm=0.0)])
    state = violent(system, state)
    return system, state


def test_stops_are_complementary_from_a_cold_start(limited):
    problem = problem_of(*limited)
    solution = solve(problem, None, iterations=COLD)
    speed, u = speeds_of(problem, solution)
    assert np.max(solution.residual) < ROUNDING
    for bound, impulse in stops(problem, solution):
        w = bound.sign * u + bound.bias
        assert np.min(impulse) > -ROUNDING and np.min(w) > -ROUNDING
        assert np.max(np.minimum(impulse, w)) < ROUNDING
        assert np.mean(impulse > NOTHING) > 0.1, "the states should drive many joints into it"
    # Hard rows of a chain are as good as rigid.
    assert np.max(np.abs(np.asarray(speed)[problem.structure.hard])) < ROUNDING


def test_warm_start_needs_few_steps(limited):
    problem = problem_of(*limited)
    first = solve(problem, None, iterations=COLD)
    again = solve(problem, (first.impulse, first.bounded), iterations=1, passes=1)
    assert np.max(again.residual) < ROUNDING


def test_residual_says_when_too_few_steps_were_taken(limited):
    problem = problem_of(*limited)
    assert np.max(solve(problem, None, iterations=1, passes=1).residual) > 1e-3


def test_smoothing_makes_the_product_a_barrier(limited):
    """λ w = c ν² for every stop: an acceleration ν²/φ whatever the mass and the step."""
    speed = 1e-2
    problem = problem_of(*limited)
    solution = solve(problem, None, iterations=COLD, smoothing=speed)
    _, u = speeds_of(problem, solution)
    row, node = np.array(problem.structure.row), np.array(problem.structure.node)
    pairs = [on_bodies(environment(problem, e)) for e in range(ENVIRONMENTS)]
    inverse_mass = np.stack([np.sum(H * Y, axis=(0, 1))[row, node] for H, Y in pairs], axis=-1)
    for bound, impulse in stops(problem, solution):
        w = bound.sign * u + bound.bias
        # Beside the speed of the stop stands that of its floor.
        w = w + FLOOR[8] * impulse * inverse_mass
        np.testing.assert_allclose(impulse * w * inverse_mass, speed**2, rtol=1e-4)


def test_dry_friction_stays_in_its_box():
    system, state = chain(3, [jj.DryFriction(40.0)])
    state = violent(system, state, seed=1)
    problem = problem_of(system, state)
    solution = solve(problem, None, iterations=COLD)
    (impulse,) = solution.bounded
    _, u = speeds_of(problem, solution)
    most = DT * 40.0
    assert np.max(solution.residual) < ROUNDING
    assert np.max(np.abs(impulse)) < most + ROUNDING
    slips = np.abs(u) > 1e-6
    assert slips.any() and (~slips).any()
    np.testing.assert_allclose(
        np.asarray(impulse)[slips], -most * np.sign(np.asarray(u)[slips]), atol=ROUNDING
    )


def test_dry_friction_of_a_held_value_is_solved():
    """Rounding of the speed neither releases the friction nor lets it take all of the load.

    The tendon of a finger is held, while a spring pulls it by more than its dry friction.
    """
    world = jj.SystemBuilder(gravity=(0.0, 0.0, -9.81))
    parent = jj.WORLD
    for name, mass, height in (("proximal", 0.05, 0.0), ("distal", 0.02, -0.06)):
        body = world.body(name, mass=mass, inertia=(1e-5, 1e-5, 1e-5), com=(0.0, 0.01, -0.03))
        world.joint(
            name, jj.Hinge((1.0, 0.0, 0.0)), child=body, parent=parent, frame_D=(0.0, 0.0, height)
        )
        parent = body
    tendon, ends = Weighted(np.array([0.4, 0.4])), ["proximal", "distal"]
    world.transmission("held", tendon, joints=ends)
    forces = [jj.SpringDamper(3.0, rest=0.2), jj.DryFriction(0.4)]
    world.transmission("rough", tendon, joints=ends, laws=forces)
    system, state = world.build()
    gravity = np.outer([0.0, 0.0, -9.81], np.linspace(0.5, 1.5, ENVIRONMENTS))
    system = jj.replace(system, gravity=jnp.asarray(gravity))
    _, (ok, residual) = jj.rollout(
        system,
        jj.replicate(state, ENVIRONMENTS),
        dt=2e-3,
        steps=20,
        record=lambda _, info: (info.ok, info.residual),
    )
    assert ok.all()
    assert np.max(residual) < ROUNDING


def test_slopes_of_a_box_are_mirror_images_and_never_negative():
    """However far beyond the box: of negative slopes the shares of several laws would be noise."""
    far = np.geomspace(1e-3, 1e8, 45)
    speed = jnp.asarray(np.concatenate([-far, far]))
    one = jnp.ones_like(speed)
    box = Bound(one, 0 * one, 0 * one, one, -0.1 * one, 0.1 * one)
    law = potential(stacked([box], len(one)), one, 0 * one, 0 * one, jnp.asarray(0.1))
    slopes = np.asarray(slope(law, speed))
    left, right = np.split(slopes, 2)
    assert np.all(slopes >= 0)
    np.testing.assert_allclose(left, right, rtol=1e-12)


def test_all_laws_of_a_coordinate_hold_at_once():
    """Damping, friction and stops share one row; each keeps its own law."""
    laws = [
        jj.Limits(-0.301, 0.301, erp=0.2, cfm=0.0),
        jj.DryFriction(10.0),
        jj.Damping(0.5),
    ]
    system, state = chain(3, laws)
    state = violent(system, state, seed=2)
    problem = problem_of(system, state)
    solution = solve(problem, None, iterations=COLD)
    assert np.max(solution.residual) < ROUNDING
    _, u = speeds_of(problem, solution)
    row, node = np.array(problem.structure.row), np.array(problem.structure.node)
    total = solution.impulse[row, node]
    friction, friction_impulse = problem.bounds[2], solution.bounded[2]
    both = stops(problem, solution)
    damping, pushed = -DT * 0.5 * u, sum(stop.sign * impulse for stop, impulse in both)
    np.testing.assert_allclose(total, damping + pushed + friction_impulse, atol=ROUNDING)
    for stop, impulse in both:
        assert np.max(np.minimum(impulse, stop.sign * u + stop.bias)) < ROUNDING
    assert np.max(np.abs(friction_impulse)) < DT * 10.0 + ROUNDING
    assert friction.upper is not None


@pytest.mark.slow
def test_start_impulses_are_what_the_state_keeps(limited):
    system, state = limited
    new, info = jax.jit(lambda s: jj.step(system, s, dt=DT))(state)
    impulse, bounded = start_impulses(new, jnp.asarray(DT))
    assert impulse.shape == (6, 3, ENVIRONMENTS)
    assert np.shape(bounded) == (2, 3, ENVIRONMENTS)
    assert np.max(info.residual) < ROUNDING
    assert np.min(bounded) > -ROUNDING


# Single precision


def responses(problem, solution):
    """How much a unit error of speed in the rows that hold at a solution can change the speeds of
    rows, and the impulses times the diagonal of A; the largest for each environment, and that
    diagonal, shape (rows, nodes, environments).
    """
    structure = problem.structure
    pairs = [on_bodies(environment(problem, e)) for e in range(ENVIRONMENTS)]
    count = structure.rows * structure.nodes
    A = np.stack([H.reshape(-1, count).T @ Y.reshape(-1, count) for H, Y in pairs])
    held = np.ones((ENVIRONMENTS, structure.rows, structure.nodes), bool)
    held[:, structure.row, structure.node] = np.max(solution.bounded, axis=0).T > NOTHING
    held = held.reshape(ENVIRONMENTS, count)
    both = held[:, :, None] & held[:, None]
    inverse = np.where(both, np.linalg.inv(np.where(both, A, np.eye(count))), 0.0)
    diagonal = np.diagonal(A, axis1=1, axis2=2)
    gains = A @ inverse, diagonal[..., None] * inverse
    most = (np.abs(gain).sum(axis=2).max(axis=1) for gain in gains)
    return *most, diagonal.T.reshape(solution.impulse.shape)


def assert_as_close_as_its_rows_allow(problem, found):
    """A solution in single precision of a problem in double."""
    exact = solve(problem, None, iterations=COLD)
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(found))
    exact, found = jax.tree.map(lambda x: np.asarray(x, float), (exact, found))
    # What a row may be wrong by: where the iteration ends.
    wrong = SOLVED[4] * exact.size
    assert np.all(found.residual <= wrong)
    speed_gain, impulse_gain, diagonal = responses(problem, exact)
    speeds = (speeds_of(problem, jax.tree.map(jnp.asarray, x))[0] for x in (found, exact))
    change = np.subtract(*speeds)
    assert np.all(np.abs(change) <= speed_gain * wrong)
    change = diagonal * (found.impulse - exact.impulse)
    assert np.all(np.abs(change) <= impulse_gain * wrong)
    rows = problem.structure.row, problem.structure.node
    for one, other in zip(found.bounded, exact.bounded, strict=True):
        assert np.all(np.abs(diagonal[rows] * (one - other)) <= impulse_gain * wrong)


def test_single_precision_comes_as_close_as_its_rows_allow(limited):
    problem = problem_of(*limited)
    found = solve(single(problem), None, iterations=COLD)
    assert_as_close_as_its_rows_allow(problem, found)


@pytest.mark.slow
def test_what_an_environment_gets_does_not_depend_on_its_neighbours(limited):
    """Those solved early, in single precision, wait for the others as they are."""
    problem = single(problem_of(*limited))
    together = solve(problem, None, iterations=COLD)
    first = solve(problem, None, iterations=1, passes=1)
    early = np.mean(first.residual <= SOLVED[4] * first.size)
    assert 0 < early < 1, "some should be solved early and some not"

    def repeated(i):
        """Environment i in place of all: the same program, but no neighbour unlike it."""

        def repeat(x):
            one = x.ndim > 1 and x.shape[-1] == ENVIRONMENTS
            return jnp.broadcast_to(x[..., i : i + 1], x.shape) if one else x

        return jax.tree.map(repeat, problem)

    for i in range(ENVIRONMENTS):
        alone = solve(repeated(i), None, iterations=COLD)
        jax.tree.map(
            lambda x, y, i=i: np.testing.assert_array_equal(x[..., i], y[..., i]), together, alone
        )


def test_settings_out_of_range_are_named_with_a_remedy():
    with pytest.raises(ValueError, match="iterations 0 must be at least 1"):
        Newton(iterations=0)
    with pytest.raises(ValueError, match="passes 1 must be at least 2"):
        Newton(passes=1, friction="two passes")


def joined(*, laws=(), coupling=None, mimic=False, prescribed=False):
    """Two bodies in a row on hinges, or the first on another joint, and what couples them."""
    world = jj.SystemBuilder()
    if prescribed:
        world.body("a", prescribed=True)
    else:
        world.body("a", mass=1.0, inertia=(0.1, 0.1, 0.1))
        world.joint("a", coupling or jj.Hinge((0.0, 1.0, 0.0)), child="a")
    world.body("b", mass=1.0, inertia=(0.1, 0.1, 0.1))
    world.joint("b", jj.Hinge((0.0, 1.0, 0.0)), child="b", parent="a", laws=laws)
    if mimic:
        world.transmission("gear", jj.transmissions.Mimic(2.0), joints=("a", "b"))
    return world.build()[0]


@pytest.mark.parametrize(
    ("system", "independent"),
    [
        (partial(joined, laws=jj.Limits(-1.0, 1.0)), True),
        pytest.param(partial(joined, prescribed=True), True, marks=pytest.mark.slow),
        pytest.param(
            partial(joined, laws=jj.Lock(0.0, engaged=True)), True, marks=pytest.mark.slow
        ),
        pytest.param(partial(joined, laws=jj.Lock(0.0)), False, marks=pytest.mark.slow),
        pytest.param(partial(joined, coupling=jj.RollingDisc(0.3)), False, marks=pytest.mark.slow),
        pytest.param(partial(joined, mimic=True), False, marks=pytest.mark.slow),
        (lambda: mechanisms.four_bar()[0], False),
    ],
    ids=["limits", "prescribed", "lock that opens", "lock", "rolling", "gear", "loop"],
)
def test_rows_are_independent_in_trees_of_joint_errors_alone(system, independent):
    assert layout(system()).structure.independent is independent


def rods(masses):
    """Rods of these masses that hang in a row on hinges about y and x in turn."""
    world = jj.SystemBuilder()
    for i, mass in enumerate(masses):
        world.body(str(i), mass=mass, inertia=mechanisms.rod_inertia(mass, 0.5)[::-1])
        hang(world, i, 0.25)
    return world.build()


def bobs(inertia):
    """Two bobs of 1 kg on strings of 1 m, as good as points."""
    world = jj.SystemBuilder()
    for i in range(2):
        world.body(str(i), mass=1.0, inertia=(inertia,) * 3)
        hang(world, i, 1.0)
    return world.build()


def hang(world, i, half):
    axis = ((0.0, 1.0, 0.0), (1.0, 0.0, 0.0))[i % 2]
    above = {"parent": str(i - 1), "frame_D": (0.0, 0.0, -half)} if i else {}
    world.joint(str(i), jj.Hinge(axis), child=str(i), frame_C=(0.0, 0.0, half), q=0.4, **above)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*differ by more than")
@pytest.mark.parametrize(
    ("built", "off"),
    [
        (partial(bobs, 1e-7), 1e-4),
        pytest.param(partial(rods, [1.0, 1e-6, 1e-6, 1.0]), 1e-3, marks=pytest.mark.slow),
        pytest.param(partial(rods, [1.0, 1e-7, 1e-7, 1.0]), 1e-2, marks=pytest.mark.slow),
        pytest.param(partial(rods, [1.0, 1.0, 1e8]), 1e-1, marks=pytest.mark.slow),
    ],
    ids=["point masses", "light links", "lighter links", "heavy end"],
)
def test_trees_at_the_end_of_float32_stay_near_those_of_float64(built, off):
    given = built()
    exact, rounded = (np.asarray(swing(*cast(given)).position) for cast in (lambda x: x, single))
    assert np.max(np.abs(rounded - exact)) < off


@jax.jit
def swing(system, state):
    return jj.rollout(system, state, dt=DT, steps=500, record_every=500)[0]


def test_friction_without_roughness_exceeds_its_bound_by_all_that_it_is():
    problem = contacts(1, 1, 3, friction=(0.0, 0.0))
    impulse, bounded = at_rest(problem)
    assert np.all(excess(problem, problem.packed((impulse, bounded))) == 0)
    follows = next(k for k, bound in enumerate(problem.bounds) if bound.mu is not None)
    bound = problem.bounds[follows]
    row = next(i for i, normal in enumerate(bound.normal) if normal != i)
    pushing = bounded.at[follows, row].set(0.1)
    expected = 0.1 / np.asarray(scale(problem))[row]
    found = excess(problem, problem.packed((impulse, pushing)))
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.slow
def test_a_step_says_how_many_iterations_it_took():
    """Beside a fixed number of sweeps, and of a fall that nothing bounds."""
    free, falling = mechanisms.slider()
    stopped, near = mechanisms.slider(laws=[jj.Limits(upper=0.0)], qd=1.0)
    sweeps = jj.SemiImplicitEuler(jj.ProjectedGaussSeidel(iterations=7), joints="rows")
    assert jj.step(free, falling, dt=DT)[1].iterations == 1
    assert 1 <= jj.step(stopped, near, dt=DT)[1].iterations <= 8 + 7 + 7
    assert jj.step(stopped, near, dt=DT, scheme=sweeps)[1].iterations == 7


def test_a_pass_ends_where_rounding_lets_the_residual_fall_no_further():
    """The Allegro hand's thumb, outside its stop at first; dampers are stiff for its inertia."""
    world = jj.SystemBuilder(gravity=(0.0, 0.0, -9.81))
    laws = jj.Damping(3.0), jj.DryFriction(10.0), jj.Limits(0.263, 1.4)
    world.body("base", mass=0.0176, inertia=(1.1e-5, 1.6e-5, 2.7e-5))
    world.joint("turn", jj.Hinge((1.0, 0.0, 0.0)), child="base", laws=laws)
    laws = jj.Damping(3.0), jj.DryFriction(5.0), jj.Limits(-0.196, 1.61)
    world.body("link", mass=0.065, inertia=(1.8e-5, 7.6e-5, 9.4e-5))
    world.joint("bend", jj.Hinge((0.0, 1.0, 0.0)), child="link", parent="base", laws=laws)
    with pytest.warns(UserWarning, match="outside its lower 0.263"):
        system, state = map(single, world.build())
    share = 1 + 0.01 * np.random.default_rng(0).normal(size=64)
    gravity = jnp.asarray(np.outer(system.gravity, share), jnp.float32)
    system = jj.replace(system, gravity=gravity)
    batch = jj.replicate(state, 64)
    record = lambda _, info: (info.iterations, info.residual)  # noqa: E731
    _, (steps, left) = jj.rollout(system, batch, dt=2e-3, steps=50, record=record)
    assert steps.mean() < 4.5
    assert left.max() < 1e-5


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_ropes_that_share_a_load_pull_and_never_push(dtype):
    """Five ropes hold a beam. Which of them carry it changes the impulses, but hardly any speed, so
    the speeds alone must not end the solve.
    """
    for centre in (0.3, 1.6, 1.9):
        world = jj.SystemBuilder()
        beam = {"mass": 2.0, "inertia": (0.01, 1.0, 1.0), "com": (centre, 0.0, 0.0)}
        world.body("beam", pose=(0.0, 0.0, 0.0), **beam)
        for i, x in enumerate((-2.0, -1.0, 0.0, 1.0, 2.0)):
            ends = {"frame_C": (x, 0.0, 0.0), "frame_D": (x, 0.0, 1.0)}
            world.joint(f"{i}", jj.Rope(), child="beam", laws=jj.Limits(upper=1.0), **ends)
        model = world.build()
        system, state = single(model) if dtype == jnp.float32 else model
        record = lambda _, info: (info.ok, info.limit_force)  # noqa: E731
        _, (ok, force) = jj.rollout(system, state, dt=1e-3, steps=3, record=record)
        assert ok.all()
        assert (force <= 0).all()
        np.testing.assert_allclose(-force.sum(1), 2.0 * 9.81, rtol=1e-4)


def test_a_loop_that_hardly_moves_takes_no_further_passes():
    """Dampers of 1e5 N m s hold an arm that a loop closes, on a base with eight feet. Rounding of
    the loop's rows is all that is left after two steps, and passes for friction do not lower it.
    """
    world = jj.SystemBuilder()
    world.body("base", mass=20.0, inertia=(1.0, 1.0, 1.0), pose=(0.0, 0.0, 0.1))
    lift = {"frame_D": (0.0, 0.0, 0.1), "laws": jj.Damping(1e11)}
    world.joint("lift", jj.Slider((0.0, 0.0, 1.0)), child="base", **lift)
    foot, ground = jj.shapes.Sphere(0.02), jj.shapes.HalfSpace()
    soft = {"friction": 1.0, "stiffness": 2e4, "damping": 200.0}
    for i in range(8):
        angle = np.pi * i / 4
        at = (0.3 * np.cos(angle), 0.3 * np.sin(angle), -0.08)
        world.contact(f"foot {i}", foot, ground, child="base", frame_C=at, **soft)
    link = "base"
    for i in range(6):
        world.body(f"link {i}", mass=1.0, inertia=(0.01, 0.01, 0.01), com=(0.1, 0.0, 0.0))
        at = {"parent": link, "frame_D": (0.2, 0.0, 0.0 if i else 0.1)}
        link, hinge = f"link {i}", jj.Hinge(np.roll((0.0, 0.0, 1.0), -i))
        world.joint(f"hinge {i}", hinge, child=link, laws=jj.Damping(1e5), **at)
    world.joint("loop", jj.Fixed(), child=link, tree=False, frame_D=(1.2, 0.0, 0.2))
    system, state = world.build()
    record = lambda state, info: (info.ok, info.iterations, state.velocity)  # noqa: E731
    _, (ok, steps, velocity) = jj.rollout(
        single(system), single(state), dt=2e-3, steps=50, record=record
    )
    assert ok.all()
    assert steps.max() <= 3  # 6 where each pass is made
    _, exact = jj.rollout(system, state, dt=2e-3, steps=50, record=record)
    np.testing.assert_allclose(velocity, exact[2], atol=1e-7)
