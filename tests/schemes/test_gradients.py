"""Gradients of steps and rollouts against finite differences, family by family of parameters."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from jaxjoints import (
    Ball,
    Control,
    DryFriction,
    Limits,
    Newton,
    Rattle,
    RungeKutta,
    SemiImplicitEuler,
    SpringDamper,
    SystemBuilder,
    replace,
    rollout,
    step,
)
from jaxjoints.assembly.impulses import start_impulses
from support import mechanisms

# The mechanisms start in their stops, so that the first step feels them.
pytestmark = pytest.mark.filterwarnings("ignore:.*starts at .* outside its:UserWarning")

ONE_STEP, MANY_STEPS = 1e-7, 1e-5  # relative, what finite differences leave in float64
REVERSED = 1e-10  # relative, roundings of 100 steps forwards against backwards
EXACT = 1e-12  # relative, roundings of the same steps in another order
DT, STEPS = 5e-3, 100
# A number of a family changes by this much times its size here (or 1) for finite differences.
CHANGE = 2e-4
FRICTION = 1.0  # N m
NOTHING = 1e-9  # N m s, more than the rounding of any impulse here
ROUNDING = 1e-9  # what rounding leaves of differences of numbers of order ten, over CHANGE

# How the paths of a family's leaves end, and how far they change: geometry little, so that no step
# touches a stop earlier or later; None for a share of the leaf itself.
FAMILIES = {
    "mass": ([".mass"], 1.0),
    "inertia": ([".inertia"], None),
    "centre of mass": ([".com"], 0.01),
    "gravity": ([".gravity"], 1.0),
    "frame position": ([".frame_C.p", ".frame_D.p"], 0.01),
    "frame orientation": ([".frame_C.q", ".frame_D.q"], 0.01),
    "axis": ([".axis"], 0.01),
    "limit": ([".lower", ".upper"], 0.01),
    "stiffness": ([".stiffness"], 1.0),
    "damping": ([".damping"], 0.1),
    "friction": ([".friction", ".friction_force"], None),
    "erp": ([".erp"], None),
    "cfm": ([".cfm"], None),
    "control": ([".effort"], 0.1),
    "initial position": ([".position", ".quaternion"], 0.01),
    "initial velocity": ([".velocity", ".omega"], 0.1),
}


def spring_chain():
    """Three links with stops by stiffness and damping, which start in them."""
    stop = Limits(-0.3, 0.45, stiffness=60.0, damping=0.3)
    return mechanisms.chain(3, q=0.5, qd=-1.5, laws=[stop, SpringDamper(2.0, 0.01)], cfm=1e-4)


def ode_chain():
    """Three links with stops and joints by ERP and CFM, which act once they are passed."""
    stop = Limits(-0.3, 0.45, erp=0.3, cfm=1e-2, anticipate=False)
    return mechanisms.chain(3, q=0.5, qd=-1.5, laws=[stop], cfm=1e-4)


def hard_chain():
    """Three links with hard stops, and dry friction that sticks and slips."""
    laws = [Limits(-0.3, 0.45), DryFriction(FRICTION)]
    return mechanisms.chain(3, q=0.5, qd=-1.5, laws=laws, cfm=1e-4)


def four_bar():
    """A closed loop of hinges, three of whose rows are redundant, with stops on its crank."""
    stop = Limits(1.05, 1.15, stiffness=40.0, damping=0.2)
    return mechanisms.four_bar(crank=1.16, crank_speed=0.5, laws=[stop], cfm=1e-4)


MECHANISMS = {f.__name__: f for f in (spring_chain, ode_chain, hard_chain, four_bar)}
all_mechanisms = pytest.mark.parametrize("name", MECHANISMS)


@cache
def built(name):
    system, state = MECHANISMS[name]()
    effort = np.random.default_rng(1).normal(size=system.coordinates)
    return system, state, Control(effort=jnp.asarray(effort))


def direction(family, tree):
    """A random direction in which the leaves of a family change, zero for all others."""
    ends, size = FAMILIES[family]
    rng = np.random.default_rng(sum(family.encode()))

    def change(path, leaf):
        path = jax.tree_util.keystr(path)
        if not path.endswith(tuple(ends)):
            return jnp.zeros_like(leaf)
        random = rng.normal(size=leaf.shape)
        if family == "inertia":
            random = random + np.swapaxes(random, 0, 1)
        return random * (jnp.abs(leaf) if size is None else size)

    return jax.tree_util.tree_map_with_path(change, tree)


@cache
def families(name):
    """Families that a mechanism has, and their directions stacked in front."""
    given = built(name)
    found = {family: direction(family, given) for family in FAMILIES}
    has = [f for f, d in found.items() if any(jnp.any(x != 0) for x in jax.tree.leaves(d))]
    return has, jax.tree.map(lambda *x: jnp.stack(x), *(found[f] for f in has))


def changed(name, amounts):
    """System, state and control with families changed by amounts."""
    _, directions = families(name)
    return jax.tree.map(lambda x, d: x + jnp.tensordot(amounts, d, 1), built(name), directions)


def number_of(state):
    """A number made of all that moves."""
    rng = np.random.default_rng(2)
    moving = (state.position, state.quaternion, state.velocity, state.omega)
    return sum(jnp.sum(rng.normal(size=x.shape) * x) for x in moving)


def outcome(name, amounts):
    """Numbers made of the states after one step and after all, when families change by amounts;
    and in which steps which stops pushed and what dry friction did.
    """
    system, state, control = changed(name, amounts)

    def one(state, _):
        new, info = step(system, state, control, dt=DT)
        return new, (number_of(new), at_bounds(system, new), info.ok)

    _, (numbers, history, ok) = jax.lax.scan(one, state, None, length=STEPS)
    return numbers[np.array([0, -1])], (history, ok)


def at_bounds(system, state):
    """Which stops push (1), lower bounds before upper ones, and which way dry friction slips (±1,
    or 0 where it sticks).
    """
    _, impulses = start_impulses(state, jnp.asarray(DT))
    # Stops come before friction, which itself is changed by less than one percent.
    least = [NOTHING, NOTHING, 0.99 * DT * FRICTION][: len(impulses)]
    at = [jnp.abs(x) > m for x, m in zip(impulses, least, strict=True)]
    return jnp.stack([jnp.where(y, jnp.sign(x), 0.0) for x, y in zip(impulses, at, strict=True)])


@cache
def differences(name):
    """Central differences to fourth order of the numbers along each family, (2, families), after
    the active histories were found equal; and these histories, (steps, laws, coordinates).
    """
    unit = CHANGE * np.eye(len(families(name)[0]))
    amounts = np.concatenate([unit, -unit, 2 * unit, -2 * unit, 0 * unit[:1]])
    run = jax.jit(jax.vmap(lambda amounts: outcome(name, amounts)))
    numbers, (history, ok) = run(jnp.asarray(amounts))
    assert ok.all()
    history = np.asarray(history)
    same = (history == history[-1]).all(axis=(1, 2, 3))
    assert same.all(), np.tile(families(name)[0], 4)[~same[:-1]]
    up, down, up2, down2 = np.split(np.asarray(numbers[:-1]), 4)
    return (8 * (up - down) - (up2 - down2)).T / (12 * CHANGE), history[-1]


@cache
def derivatives(name):
    """The same derivatives by forward and by reverse differentiation, (2, families) each."""
    still = jnp.zeros(len(families(name)[0]))
    first = partial(outcome, name)
    return [
        np.asarray(jax.jit(jac(lambda x: first(x)[0]))(still)) for jac in (jax.jacfwd, jax.jacrev)
    ]


@pytest.mark.slow
@all_mechanisms
def test_stops_are_left_and_hit_on_the_way(name):
    _, history = differences(name)
    change = np.diff(history[:, :2], axis=0)
    assert (change < 0).any(), "never left"
    assert (change > 0).any(), "never hit"
    if name == "hard_chain":
        assert set(np.unique(history[:, 2])) == {-1, 0, 1}


@pytest.mark.slow
@all_mechanisms
@pytest.mark.parametrize("steps, tolerance", [(0, ONE_STEP), (1, MANY_STEPS)], ids=["1", "100"])
def test_gradient_matches_finite_difference(name, steps, tolerance):
    has, _ = families(name)
    expected, _ = differences(name)
    actual = derivatives(name)[1]
    close = np.isclose(actual[steps], expected[steps], rtol=tolerance, atol=ROUNDING)
    assert close.all(), [
        f"{family}: {a:.10e}, not {e:.10e}"
        for family, a, e, ok in zip(has, actual[steps], expected[steps], close, strict=True)
        if not ok
    ]


@pytest.mark.slow
@all_mechanisms
def test_reverse_equals_forward(name):
    forward, backward = derivatives(name)
    # Some directions differ from their neighbours' by forces that cancel in the result.
    largest = np.abs(forward).max()
    np.testing.assert_allclose(backward, forward, rtol=REVERSED, atol=REVERSED * largest)


@pytest.mark.sweep
def test_gradient_of_a_rollout_is_that_of_its_steps():
    """Though the steps are computed again in reverse."""
    name = "spring_chain"
    still = jnp.zeros(len(families(name)[0]))

    def final(amounts):
        system, state, control = changed(name, amounts)
        controls = jax.tree.map(lambda x: jnp.broadcast_to(x, (STEPS, *x.shape)), control)
        return number_of(rollout(system, state, controls, dt=DT)[0])

    def by_steps(first, amounts):
        """With the families changed by other amounts in each step, and at the start."""

        def one(state, amounts):
            system, _, control = changed(name, amounts)
            return step(system, state, control, dt=DT)[0], None

        return number_of(jax.lax.scan(one, changed(name, first)[1], amounts)[0])

    actual = jax.jit(jax.grad(final))(still)
    each = jnp.broadcast_to(still, (STEPS, *still.shape))
    first, rest = jax.jit(jax.grad(by_steps, argnums=(0, 1)))(still, each)
    shares = np.concatenate([first[None], rest])
    # The shares cancel: those by ERP are eighteen times as large as their sum.
    assert np.all(np.abs(actual - shares.sum(0)) <= EXACT * np.abs(shares).sum(0))


@pytest.mark.slow
def test_a_gradient_iterates_no_more_than_its_rollout():
    """On the way back the impulses of a step are known."""
    system, state = mechanisms.slider(qd=1.0, laws=[Limits(upper=0.1)])

    def end(state):
        return rollout(system, state, dt=DT, steps=4, record_every=4)[0].position[0, 0]

    programs = [jax.make_jaxpr(f)(state) for f in (end, jax.grad(end, allow_int=True))]
    forward, gradient = (str(program).count(" while[") for program in programs)
    assert forward == gradient > 0


@pytest.mark.sweep
def test_gradients_agree_with_jax_check():
    """The check that JAX brings along, through the stops of the chain, at random directions."""

    @jax.jit
    def run(amounts):
        return outcome("spring_chain", amounts)[0]

    still = jnp.zeros(len(families("spring_chain")[0]))
    check_grads(run, (still,), order=1, modes=("fwd", "rev"), eps=1e-5, atol=1e-7, rtol=1e-7)


@pytest.mark.slow
def test_second_derivatives_match_differences_of_the_first():
    """Along a direction, though the first ones take the impulses of each step for given."""
    name = "spring_chain"
    direction = np.random.default_rng(5).normal(size=len(families(name)[0]))
    gradient = jax.grad(lambda amounts: outcome(name, amounts)[0][1])

    def along(amount):
        return gradient(amount * direction)

    value, unit = jax.jit(along), CHANGE / 4
    f = [value(x * unit) for x in (1.0, -1.0, 2.0, -2.0)]
    expected = (8 * (f[0] - f[1]) - (f[2] - f[3])) / (12 * unit)
    least = MANY_STEPS * np.abs(expected).max()
    np.testing.assert_allclose(jax.jit(jax.jacfwd(along))(0.0), expected, MANY_STEPS, least)


# Smoothing


def thrown(block, upper, smoothing):
    """Where a block (system, state) ends that slides towards a hard stop, not reaching it."""
    system, state = block
    stop = replace(system.joint("rail").laws[0], upper=upper)
    system = system.with_joint("rail", laws=(stop,))
    scheme = SemiImplicitEuler(solver=Newton(smoothing=smoothing))

    def one(state, _):
        return step(system, state, dt=DT, scheme=scheme)[0], None

    return jax.lax.scan(one, state, None, length=20)[0].position[0, 0]


@pytest.mark.slow
def test_smoothing_lets_a_gradient_feel_a_stop_before_it_is_touched():
    block = mechanisms.slider(qd=1.0, laws=[Limits(upper=10.0)])
    run = jax.jit(jax.value_and_grad(partial(thrown, block), argnums=(0, 1)))
    sharp, (unfelt, _) = run(0.2, 0.0)
    smooth, (felt, by_smoothing) = run(0.2, 0.2)
    assert sharp == pytest.approx(0.1, abs=1e-9) and abs(unfelt) < 1e-9
    assert smooth < sharp and felt > 1e-3 and by_smoothing < 0


@pytest.mark.slow
def test_gradient_of_smoothed_stop_matches_finite_difference():
    run = partial(thrown, mechanisms.slider(qd=1.0, laws=[Limits(upper=10.0)]))
    value = jax.jit(run)
    at, expected = np.array([0.2, 0.2]), []
    for unit in np.eye(2):
        f = [float(value(*(at + x * 1e-3 * unit))) for x in (1, -1, 2, -2)]
        expected.append((8 * (f[0] - f[1]) - (f[2] - f[3])) / 12e-3)
    actual = jax.jit(jax.grad(run, argnums=(0, 1)))(*at)
    np.testing.assert_allclose(actual, expected, rtol=MANY_STEPS)


@pytest.mark.parametrize(
    "scheme",
    [
        pytest.param(SemiImplicitEuler(), id="SemiImplicitEuler", marks=pytest.mark.sweep),
        pytest.param(Rattle(), id="Rattle", marks=pytest.mark.sweep),
        pytest.param(RungeKutta(), id="RungeKutta", marks=pytest.mark.slow),
    ],
)
def test_an_entry_of_inertia_that_moves_alone_moves_all_schemes_as_its_derivative_says(scheme):
    """By half of what it would with its mirror: whatever reads the tensor reads the same."""
    world = SystemBuilder()
    world.body("bob", mass=1.0, inertia=(0.02, 0.025, 0.01))
    world.joint("pivot", Ball(), child="bob", frame_C=(0.0, 0.0, 1.0), qd=(3.0, 1.0, 5.0))
    system, state = world.build()

    def velocity(entry, mirror):
        inertia = system.inertia.at[1, 2].add(entry).at[2, 1].add(mirror)

        def one(state, _):
            return step(replace(system, inertia=inertia), state, dt=DT, scheme=scheme)[0], None

        final = jax.lax.scan(one, state, None, length=3)[0]
        return jnp.concatenate([final.velocity, final.omega]).ravel()

    by_entry, by_mirror = jax.jit(jax.jacfwd(velocity, argnums=(0, 1)))(-8e-4, -8e-4)
    # Numbers move both: a step refuses an inertia that is not symmetric.
    both = -8e-4 + 1e-6 * jnp.array([1.0, -1.0])
    up, down = jax.jit(jax.vmap(velocity))(both, both)
    scale = np.abs(by_entry).max()
    assert scale > 1e-3
    np.testing.assert_allclose(by_entry, (up - down) / 4e-6, atol=1e-7 * scale)
    np.testing.assert_allclose(by_entry, by_mirror, atol=1e-12 * scale)
