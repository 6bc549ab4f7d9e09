"""Laws of couplings: rows, coordinates, projection and their derivatives, for the catalog."""

from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxjoints.algebra import dense
from jaxjoints.algebra.pytree import map_trailing, struct
from jaxjoints.algebra.spatial import Pose, basis, error_twist, retract, tangent_of, unit
from jaxjoints.couplings.angles import unwrap_rotation_vector
from jaxjoints.couplings.complement import metric, orthonormal_complement
from jaxjoints.couplings.coupling import Chart, Coupling, Derived, Residual
from jaxjoints.couplings.linear import Cylindrical, Helical, Slider
from jaxjoints.couplings.rotary import Hinge, Universal
from support.cases import mostly_slow
from support.couplings_catalog import CATALOG, EZ, SKEWED, SPEEDS, TILTED, Screw

# Configurations of one compiled call.
COUNT = 21
EXACT = 1e-11  # float64, some hundred roundings of numbers up to 20
DIFFERENCED = 1e-7  # central differences of step 1e-5
TIME = 0.3

BATCHED = [name for name, entry in CATALOG.items() if entry.coupling.batched]
# One coupling by hand, one by its poses, one by its errors; and kinds that a run by default meets.
KINDS = ("hinge", "screw", "point on sphere")
SOME = (*KINDS, "ball", "slotted hinge by hand", "rolling disc")
# Couplings of further kinds, which are slow. All others are asked before a release.
MORE = (
    *("tilted hinge", "slider", "planar", "universal", "gimbal by hand", "segmented plane point"),
    *("fixed axis", "rope", "rolling sphere", "linear motor", "spur gear", "bevel gear"),
    *("double ball", "constant velocity", "ball by rotation", "free with angles", "bead on an egg"),
)


def of(names, default):
    """The parameter of laws that are asked of couplings by their names."""
    others = [name for name in names if name not in (*default, *SOME, *MORE)]
    return pytest.mark.parametrize("name", mostly_slow(names, default=default, sweep=others))


couplings = of(CATALOG, SOME)
with_speeds = of([*CATALOG, *SPEEDS], SOME)
# The library's couplings whose rows do not come from `pose` alone.
WRITTEN = [
    name
    for name, entry in CATALOG.items()
    if type(entry.coupling).__module__.startswith("jaxjoints.")
    and not isinstance(entry.coupling, Chart)
]


def each(function):
    """`function` of a coupling and items with one trailing axis each, compiled."""

    def mapped(coupling, *items):
        axes = (None,) + (-1,) * len(items)
        return jax.vmap(function, in_axes=axes, out_axes=-1)(coupling, *items)

    return jax.jit(mapped)


@each
def study(coupling, T, q, t, direction):
    """Rows at a pose and their derivative along a direction of coupling, pose and time."""

    def rows(coupling, T, t):
        return coupling.rows(T, q, t)

    return jax.jvp(rows, (coupling, T, t), direction)


@each
def pull_back(coupling, T, q, t, weights):
    """Gradient of weighted errors and coordinates with respect to coupling and pose."""

    def weighted(coupling, T):
        rows = coupling.rows(T, q, t)
        return jnp.sum(weights * jnp.concatenate([rows.error, rows.q]))

    return jax.grad(weighted, argnums=(0, 1))(coupling, T)


@each
def rates_of_wrenches(coupling, T, v, q, t):
    return coupling.wrench_rates(T, v, q, t)


@each
def place(coupling, q, t):
    return coupling.pose(q, t) if isinstance(coupling, Residual) else coupling.pose(q)


@each
def project(coupling, T, q, t):
    return coupling.project(T, q, t)


@each
def rows_only(coupling, T, q, t):
    return coupling.rows(T, q, t)


@each
def rows_at(chart, q):
    return chart.rows_at(q)


move = jax.jit(retract)
inverse = jax.jit(dense.inverse)
framed = jax.jit(Pose.from_matrix)
tangent = jax.jit(tangent_of)
error_between = jax.jit(lambda T, other: error_twist(T.inverse() @ other))


@dataclass(frozen=True)
class Case:
    """A coupling of the catalog at `COUNT` random configurations."""

    name: str

    @property
    def entry(self):
        return (CATALOG | SPEEDS)[self.name]

    @property
    def coupling(self):
        return self.entry.coupling

    @property
    def errors(self):
        return 6 - self.coupling.dof

    @property
    def turning_rows(self):
        """Whether a derivative holds up to a rotation of the bilateral rows, see `Chart`."""
        kind = type(self.coupling)
        return issubclass(kind, Chart) and kind.complement is Chart.complement

    def random(self, *shape, seed=0):
        rng = np.random.default_rng([seed, *self.name.encode()])
        return rng.uniform(-1.0, 1.0, (*shape, COUNT))

    @property
    def q(self):
        middle = np.array(self.entry.middle or [0.0] * self.coupling.dof).reshape(-1, 1)
        return middle + np.array(self.entry.reach).reshape(-1, 1) * self.random(self.coupling.dof)

    @property
    def near(self):
        return self.q + 0.2 * self.random(self.coupling.dof, seed=1)

    @property
    def surface(self):
        return place(self.coupling, self.q, self.time)

    def placed(self, j, h):
        """Poses on the surface with coordinate j ahead by h."""
        step = h * np.eye(self.coupling.dof)[:, j : j + 1]
        return place(self.coupling, self.q + step, self.time)

    def off(self, size):
        """Poses at a distance of `size` or less in each component from `surface`."""
        return move(self.surface, size * self.random(6, seed=2))

    @property
    def twist(self):
        return self.random(6, seed=3)

    @property
    def time(self):
        return np.full(COUNT, TIME)

    @property
    def parameters(self):
        """Each number among the parameters: the place of its leaf and its index there."""
        leaves = jax.tree.leaves(self.coupling)
        return [(i, index) for i, leaf in enumerate(leaves) for index in np.ndindex(leaf.shape)]

    def changed(self, parameter, h, base=1.0):
        """`base` times the coupling plus h in one of its numbers."""
        leaves, tree = jax.tree.flatten(self.coupling)
        leaves = [np.array(base * leaf) for leaf in leaves]
        if parameter:
            leaves[parameter[0]][parameter[1]] += h
        return tree.unflatten(leaves)

    def study(self, T, *, coupling=None, q=None, t=None, v=None, passing=0.0, parameter=None):
        """Rows at T and their rates, while C moves at v, time passes and a parameter grows."""
        motion = self.changed(parameter, 1.0, base=0.0)
        motion = jax.tree.map(lambda x: np.repeat(x[..., None], COUNT, axis=-1), motion)
        v = np.zeros((6, COUNT)) if v is None else v
        return study(
            self.changed(None, 0.0) if coupling is None else coupling,
            T,
            self.near if q is None else q,
            self.time if t is None else t,
            (motion, tangent(T, v), np.full(COUNT, passing)),
        )


@cache
def on_surface(name):
    case = Case(name)
    return case.study(case.surface, v=case.twist)


@cache
def off_surface(name):
    case = Case(name)
    return case.study(case.off(1e-2), v=case.twist, passing=1.0)


def assert_close(actual, expected, tolerance):
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance)


def assert_same_pose(T, other, tolerance):
    assert_close(error_between(T, other), np.zeros((6, *T.p.shape[1:])), tolerance)


def matrices(x):
    """(r, c, n) as n matrices, for numpy."""
    return np.moveaxis(np.asarray(x), -1, 0)


def times(A, x):
    return np.einsum("ij...,j...->i...", A, x)


def products(A, B):
    return np.einsum("ij...,jk...->ik...", A, B)


def paired(cotangent, tangent):
    """Change of a number with a cotangent when its arguments move along a tangent, shape (n)."""
    terms = jax.tree.map(lambda a, b: np.sum(a * b, axis=0), cotangent, tangent)
    return sum(jax.tree.leaves(terms))


def differenced(function, h=2e-3):
    """Derivative of a function of one number at 0, to fourth order."""
    near = function(h) - function(-h)
    return (8 * near - (function(2 * h) - function(-2 * h))) / (12 * h)


# Rows on the surface


@of(CATALOG, ("hinge",))
def test_motion_subspace_is_the_derivative_of_the_pose(name):
    case = Case(name)
    S = inverse(on_surface(name)[0].W)[:, case.errors :]
    for j in range(case.coupling.dof):

        def displaced(h, j=j):
            return error_between(case.surface, case.placed(j, h))

        assert_close(S[:, j], differenced(displaced), 1e-9)


@couplings
def test_wrenches_annihilate_free_motion_and_read_its_speed(name):
    case = Case(name)
    W, k = on_surface(name)[0].W, case.coupling.dof
    for j in range(k):

        def displaced(h, j=j):
            return error_between(case.surface, case.placed(j, h))

        expected = np.eye(6)[case.errors + j][:, None] * np.ones(COUNT)
        assert_close(times(W, differenced(displaced)), expected, 1e-9)


@with_speeds
def test_rows_are_well_conditioned(name):
    condition = np.linalg.cond(matrices(on_surface(name)[0].W))
    assert condition.max() < 40


@pytest.mark.parametrize("name", ["slotted hinge", "declared slotted hinge"])
def test_rows_stay_well_conditioned_as_the_slot_turns(name):
    angles = np.pi / 2 * np.arange(COUNT)
    W = rows_at(CATALOG[name].coupling, jnp.stack([jnp.full(COUNT, 0.3), angles]))
    assert_close(np.linalg.cond(matrices(W)), np.ones(COUNT), EXACT)


def test_an_angular_motor_reads_the_angular_velocity_along_its_axes():
    """And its coordinates' rates where C is not turned, to first order in the turn."""
    case, sizes, differences = Case("angular motor"), np.array([1e-1, 1e-2, 1e-3]), []
    omega = case.twist[3:]
    for size in sizes:
        T = place(case.coupling, size * case.q, case.time)
        rows, rates = case.study(T, q=size * case.q, v=case.twist)
        in_D = np.asarray(T.rotate(jnp.asarray(omega)))
        axes = np.asarray(SKEWED)
        expected = np.stack([axes[0] @ omega, axes[1] @ in_D, axes[2] @ omega])
        assert_close(times(rows.W, case.twist)[:3], expected, EXACT)
        assert_close(times(rows.W, case.twist)[3:], rates.q[3:], EXACT)
        differences.append(np.abs(rates.q[:3] - expected).max())
    assert np.polyfit(np.log(sizes), np.log(differences), 1)[0] >= 0.9


def both(rows):
    return np.concatenate([rows.error, rows.q])


@couplings
def test_rows_are_the_derivative_of_errors_and_coordinates(name):
    rows, rates = on_surface(name)
    assert_close(both(rates), times(rows.W, Case(name).twist), EXACT)


@couplings
def test_off_the_surface_rows_err_by_no_more_than_the_error(name):
    case = Case(name)
    sizes, differences = np.array([1e-2, 1e-3, 1e-4]), []
    for size in sizes:
        rows, rates = case.study(case.off(size), v=case.twist)
        differences.append(np.abs(both(rates) - times(rows.W, case.twist)).max())
    if isinstance(case.coupling, Residual) or max(differences) < EXACT:
        assert max(differences) < EXACT
    else:
        assert np.polyfit(np.log(sizes), np.log(differences), 1)[0] >= 0.9


@with_speeds
def test_drift_is_the_rate_of_the_errors_at_rest(name):
    case, T = Case(name), Case(name).off(1e-2)
    rows, rates = case.study(T, passing=1.0)
    assert_close(rows.drift, rates.error, EXACT)
    assert_close(rows.drift, differenced(lambda h: case.study(T, t=case.time + h)[0].error), 1e-9)


@pytest.mark.slow
def test_a_moving_plane_drifts_at_its_speed():
    rows, _ = on_surface("moving plane")
    assert_close(rows.drift, np.full((1, COUNT), -0.7), EXACT)


# Coordinates and projection


@with_speeds
def test_coordinates_of_a_pose_are_those_it_was_made_from(name):
    assert_close(on_surface(name)[0].q, Case(name).q, EXACT)


@couplings
def test_errors_vanish_on_the_surface(name):
    assert_close(on_surface(name)[0].error, np.zeros((Case(name).errors, COUNT)), EXACT)


@of([name for name, entry in CATALOG.items() if entry.turning is not None], ("hinge", "screw"))
def test_angles_wind_over_many_turns(name):
    case = Case(name)
    turn = np.eye(case.coupling.dof)[case.entry.turning][:, None]
    start = case.q * (1 - turn)
    last = start
    for angle in np.concatenate([np.arange(0, 26, 0.4), np.arange(26, -14, -0.4)]):
        q = start + angle * turn
        last = case.study(place(case.coupling, q, case.time), q=last)[0].q
        assert_close(last, q, EXACT)


@with_speeds
def test_projection_lands_on_the_surface_and_stays_there(name):
    case, q = Case(name), off_surface(name)[0].q
    again, _ = case.study(place(case.coupling, q, case.time), q=q)
    assert_close(again.error, np.zeros((case.errors, COUNT)), EXACT)
    assert_close(again.q, q, EXACT)


@pytest.mark.slow
@of(
    [
        *(n for n in WRITTEN if n not in BATCHED),
        *("tilted hinge", "slotted hinge", "moving plane"),
    ],
    ("moving plane",),
)
def test_projection_is_the_pose_with_the_projected_coordinates(name):
    case = Case(name)
    T, q = project(case.coupling, case.off(1e-2), case.near, case.time)
    assert_close(q, off_surface(name)[0].q, EXACT)
    assert_same_pose(T, place(case.coupling, q, case.time), EXACT)


@couplings
def test_errors_measure_the_way_back_to_the_surface(name):
    case, (rows, _) = Case(name), off_surface(name)
    if isinstance(case.coupling, Residual):
        pytest.skip("the errors of a residual are what its author says")
    way = error_between(place(case.coupling, rows.q, case.time), case.off(1e-2))
    expected = np.concatenate([rows.error, np.zeros((case.coupling.dof, COUNT))])
    assert_close(times(rows.W, way), expected, EXACT)


# Derivatives


@with_speeds
def test_wrench_rates_match_finite_differences(name):
    case, (rows, rates) = Case(name), off_surface(name)
    T, h = case.off(1e-2), 1e-5

    def wrenches(h):
        return np.asarray(case.study(move(T, h * case.twist), t=case.time + h)[0].W)

    difference = (wrenches(h) - wrenches(-h)) / (2 * h) - rates.W
    if case.turning_rows:
        G, N = np.split(difference, [case.errors])
        turn = products(G, inverse(rows.W)[:, : case.errors])
        assert_close(turn, -np.swapaxes(turn, 0, 1), DIFFERENCED)
        assert_close(products(turn, rows.W[: case.errors]), G, DIFFERENCED)
        difference = N
    assert_close(difference, np.zeros(difference.shape), DIFFERENCED)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cylindrical", "screw", "moving plane"])
def test_wrench_rates_are_those_of_the_rows(name):
    case, (_, rates) = Case(name), off_surface(name)
    found = rates_of_wrenches(case.coupling, case.off(1e-2), case.twist, case.near, case.time)
    assert_close(found, rates.W, EXACT)


@couplings
def test_free_motion_stays_free(name):
    case, (rows, _) = Case(name), on_surface(name)
    h, speed = 1e-5, case.random(case.coupling.dof, seed=5)

    def motion(h):
        T = place(case.coupling, case.q + h * speed, case.time)
        return inverse(case.study(T)[0].W)[:, case.errors :]

    S, S_rate = motion(0.0), (motion(h) - motion(-h)) / (2 * h)
    rates = case.study(case.surface, v=times(S, speed))[1].W
    total = products(rates, S) + products(rows.W, S_rate)
    assert_close(total, np.zeros(total.shape), DIFFERENCED)


@with_speeds
def test_derivatives_match_finite_differences_off_the_surface(name):
    case, T, h = Case(name), Case(name).off(1e-2), 1e-5

    def read(rows, rates=None):
        if not case.turning_rows:
            return both(rows if rates is None else rates)
        # Only the size of the errors is free of how the rows turn.
        other = rows.error / 2 if rates is None else rates.error
        square = np.sum(rows.error * other, axis=0, keepdims=True)
        return np.concatenate([square, (rows if rates is None else rates).q])

    def moved(h):
        return read(case.study(move(T, h * case.twist))[0])

    expected = (moved(h) - moved(-h)) / (2 * h)
    assert_close(read(*case.study(T, v=case.twist)), expected, DIFFERENCED)
    for parameter in case.parameters:

        def changed(h, parameter=parameter):
            return read(case.study(T, coupling=case.changed(parameter, h))[0])

        expected = (changed(h) - changed(-h)) / (2 * h)
        assert_close(read(*case.study(T, parameter=parameter)), expected, DIFFERENCED)


def degenerate(case):
    """Poses and coordinates nearby where charts and logarithms have their special values."""
    q = np.zeros((case.coupling.dof, COUNT))
    for i, special in enumerate(case.entry.singular):
        q[:, i + 1] = special
    charted = place(case.coupling, q, case.time)
    turns = [(1, 0, 0, 0), (-1, 0, 0, 0), *np.eye(4)[1:], *-np.eye(4)[1:], (0, 0.6, 0, 0.8)]
    turns = np.array([*turns, (6e-17, 1, 0, 0), (-6e-17, 0, 1, 0)]).T
    turned = np.tile(turns, 2)[:, :COUNT]
    # The centre of a surface is as far from it as can be.
    p = np.array(charted.p) if "point on" in case.name else np.zeros((3, COUNT))
    return [(T, near) for T in (charted, Pose(p, turned)) for near in (q, case.near)]


@with_speeds
def test_values_and_derivatives_are_finite_where_charts_degenerate(name):
    case = Case(name)
    for T, near in degenerate(case):
        for parameter in [None, *case.parameters]:
            found = case.study(T, q=near, v=case.twist, passing=1.0, parameter=parameter)
            assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(found))


@of([*CATALOG, *SPEEDS], ("hinge", "point on sphere"))
def test_gradients_are_transposed_derivatives_and_finite(name):
    case, T = Case(name), Case(name).off(1e-2)
    weights = case.random(6, seed=4)
    by_coupling, by_pose = pull_back(case.coupling, T, case.near, case.time, weights)
    rate = np.sum(weights * both(case.study(T, v=case.twist)[1]), axis=0)
    assert_close(paired(by_pose, tangent(T, case.twist)), rate, EXACT)
    for i, index in case.parameters:
        rate = np.sum(weights * both(case.study(T, parameter=(i, index))[1]), axis=0)
        assert_close(jax.tree.leaves(by_coupling)[i][index], rate, EXACT)
    for T, near in degenerate(case):
        found = pull_back(case.coupling, T, near, case.time, weights)
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(found))


@pytest.mark.slow
def test_rows_stay_bounded_in_gimbal_lock():
    locked = np.array([[0.4], [np.pi / 2], [0.1]])
    shifts = np.concatenate([np.zeros(COUNT - 15), 10.0 ** -np.arange(2, 17)])
    q = locked + np.array([[0.0], [1.0], [0.0]]) * shifts
    case = Case("gimbal")
    rows, _ = case.study(place(case.coupling, q, case.time), q=q)
    assert np.abs(rows.W).max() < 1e8
    assert_close(rows.W[:3, :3], np.eye(3)[..., None] * np.ones(COUNT), EXACT)
    assert_close(rows.error, 0 * rows.error, EXACT)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["screw", "point on sphere"])
def test_wrench_rates_are_differentiable(name):
    case = Case(name)

    @each
    def rates_and_change(coupling, T, q, t, v, direction):
        def rates(T):
            return coupling.wrench_rates(T, v, q, t)[case.errors :]

        return jax.jvp(rates, (T,), (direction,))

    def found(T):
        direction = tangent(T, case.twist)
        return rates_and_change(case.coupling, T, case.near, case.time, case.twist, direction)

    T, h = case.off(1e-2), 1e-5
    ahead, behind = found(move(T, h * case.twist))[0], found(move(T, -h * case.twist))[0]
    assert_close(found(T)[1], (ahead - behind) / (2 * h), 1e-6)


# By hand and derived


@of(WRITTEN, ("hinge",))
def test_hand_written_rows_span_the_derived_ones(name):
    case, W = Case(name), on_surface(name)[0].W
    derived = rows_at(Derived(case.coupling), case.q)
    S, S_derived = (inverse(rows)[:, case.errors :] for rows in (W, derived))
    assert_close(S, S_derived, EXACT)
    G, G_derived = matrices(W[: case.errors]), matrices(derived[: case.errors])
    projectors = [np.linalg.pinv(rows) @ rows for rows in (G, G_derived)]
    assert_close(*projectors, EXACT)
    # N is that of the coordinates up to bilateral rows, which vanish on S.
    N = matrices(W[case.errors :] - derived[case.errors :])
    assert_close(N @ projectors[0], N, EXACT)


def forces(*axes):
    """Unit translations along axes, as columns (6, n)."""
    axes = np.array(axes).T
    return np.concatenate([axes, np.zeros_like(axes)])


def moments(*axes):
    """Unit rotations about axes, as columns (6, n)."""
    return np.roll(forces(*axes), 3, axis=0)


NORMAL, TILTED_NORMAL = (np.array(basis(unit(axis))) for axis in (EZ, TILTED))
# The twists that each joint resists, in C, constant as it moves: one for each bilateral row.
RESISTED = {
    "hinge": [forces(*np.eye(3)), moments(*NORMAL)],
    "tilted hinge": [forces(*np.eye(3)), moments(*TILTED_NORMAL)],
    "slider": [forces(*TILTED_NORMAL), moments(*np.eye(3))],
    "cylindrical": [forces(*TILTED_NORMAL), moments(*TILTED_NORMAL)],
    "ball": [forces(*np.eye(3))],
    "translation": [moments(*np.eye(3))],
    "fixed": [np.eye(6)],
    "free": [np.zeros((6, 0))],
    "free by Rodrigues parameters": [np.zeros((6, 0))],
}


@of(RESISTED, ("hinge",))
def test_hand_written_rows_are_the_derived_ones_for_the_twists_they_resist(name):
    case = Case(name)

    @struct
    class Declared(Chart):
        of: Coupling
        dof: ClassVar[int] = case.coupling.dof

        def pose(self, q):
            return self.of.pose(q)

        def complement(self, q):
            return jnp.asarray(np.concatenate(RESISTED[name], axis=1))

    W = on_surface(name)[0].W
    assert_close(rows_at(Declared(case.coupling), case.q), W, EXACT)


# Precision, batches, parameters


@of([*CATALOG, *SPEEDS], ("hinge", "point on sphere"))
def test_single_precision_comes_close(name):
    case, (rows, _) = Case(name), off_surface(name)
    single = jax.tree.map(
        lambda x: x.astype(jnp.float32), (case.coupling, case.off(1e-2), case.near, case.time)
    )
    found = rows_only(*single)
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(found))

    def comparable(rows):
        if not case.turning_rows:
            return rows.q, rows.W, rows.error
        # Rounding may choose other signs and another order of the bilateral rows.
        return rows.q, rows.W[case.errors :], np.linalg.norm(rows.error, axis=0)

    # An angle of 20 rad is known to 2e-6.
    for actual, expected in zip(comparable(found), comparable(rows), strict=True):
        assert_close(actual, expected, 1e-4)


@of([*CATALOG, *SPEEDS], ("hinge",))
def test_batches_equal_loops(name):
    case = Case(name)
    shape = (3, 7)

    def split(x):
        return x.reshape(*x.shape[:-1], *shape)

    # A leaf of the parameters for each of the first axis, shared along the second.
    coupling = jax.tree.map(
        lambda x: jnp.stack([x, 1.1 * x, 0.9 * x], axis=-1)[..., None], case.coupling
    )
    T, q, t = jax.tree.map(split, (case.off(1e-2), case.near, case.time))
    if case.coupling.batched:
        rows = jax.jit(lambda c, T, q, t: c.rows(T, q, t))(coupling, T, q, t)
    else:
        mapped = jax.jit(lambda *items: map_trailing(lambda c, *x: c.rows(*x), 2, *items))
        rows = mapped(coupling, T, q, t)
    rows = jax.tree.map(lambda x: jnp.broadcast_to(x, (*x.shape[:-2], *shape)), rows)
    for i in range(3):
        one = jax.tree.map(lambda x, i=i: np.asarray(x[..., i, 0]), coupling)
        # A program that other tests need too.
        loops, _ = case.study(case.off(1e-2), coupling=one)
        for actual, loop in zip(*map(jax.tree.leaves, (rows, loops)), strict=True):
            actual, loop = actual[..., i, :], split(loop)[..., i, :]
            assert_close(actual + 0 * loop, loop + 0 * actual, 1e-12)


@of(BATCHED, ("hinge",))
def test_methods_take_trailing_axes(name):
    case = Case(name)
    T, q = case.off(1e-2), case.near

    def methods(coupling, T, q, v):
        surface, coordinates = coupling.project(T, q)
        rates = coupling.wrench_rates(T, v, q)
        return surface, coordinates, rates, coupling.distances(T, q), coupling.motion_subspace(T, q)

    whole = jax.jit(methods)(case.coupling, T, q, case.twist)
    mapped = each(methods)(case.coupling, T, q, case.twist)
    for batch, loop in zip(*map(jax.tree.leaves, (whole, mapped)), strict=True):
        assert_close(batch + 0 * loop, loop + 0 * batch, 1e-12)


def test_parameters_may_be_plain_numbers():
    T = Pose.about_z(0.4)
    hinge = Hinge(axis=(0, 0, 2))
    assert_close(hinge.coordinates(T), [0.4], EXACT)
    W, expected = (jax.jit(coupling.wrenches)(T) for coupling in (hinge, Hinge(EZ)))
    assert_close(W, expected, EXACT)
    assert_close(hinge.normalized().axis, [0, 0, 1], EXACT)
    assert_close(Screw(pitch=1).pose(jnp.array([0.4])).p, [0, 0, 0.4], EXACT)
    assert_close(Universal().pose(jnp.array([0.4, 0.0])).q, Pose.about_x(0.4).q, EXACT)
    assert_close(Slider((0, 3, 4)).normalized().axis, [0, 0.6, 0.8], EXACT)
    assert_close(Cylindrical([0, 3, 4]).normalized().axis, [0, 0.6, 0.8], EXACT)


def test_a_helical_joint_is_a_screw():
    q = jnp.array([2.0])
    assert_same_pose(Helical(jnp.array(0.3)).pose(q), Screw(jnp.array(0.3)).pose(q), EXACT)


@pytest.mark.slow
def test_coordinates_are_found_without_any_known():
    q = jnp.array([2.0])
    screw = Screw(jnp.array(0.5))
    T = screw.pose(q)
    found = jax.jit(lambda c, T: (c.coordinates(T), c.wrenches(T), c.distances(T)))(screw, T)
    assert_close(found[0], q, EXACT)
    assert_close(found[1][5], [0, 0, 0.4, 0, 0, 0.8], EXACT)
    assert_close(found[2], np.zeros(5), EXACT)


@pytest.mark.parametrize(
    ("coupling", "complaint"),
    [
        (Hinge(axis=(0.0, 0.0, 0.0)), "axis [0.0, 0.0, 0.0] has length 0; give a direction"),
        (Slider(axis=(np.nan, 0.0, 1.0)), "axis [nan, 0.0, 1.0] must be finite"),
        (Cylindrical(axis=(1.0, 0.0)), "axis has shape (2,); a direction has 3 components"),
        (Universal(axis_D=(0, 0, 0)), "axis_D [0, 0, 0] has length 0; give a direction"),
        (Helical(0.0), "pitch 0 must not be 0; use Hinge for a pure rotation"),
        (Helical(np.inf), "pitch inf must be finite; use Slider for a pure translation"),
        (Helical(np.nan), "pitch nan must be a number"),
    ],
)
def test_degenerate_parameters_are_named(coupling, complaint):
    assert coupling.check() == complaint


def test_parallel_axes_are_named_with_their_angle():
    complaint = Universal(axis_D=(1.0, 0.0, 0.0), axis_C=(-2.0, 1e-4, 0.0)).check()
    assert "0.002865 degrees apart" in complaint


@pytest.mark.parametrize("name", CATALOG)
def test_sound_parameters_pass_the_check(name):
    assert CATALOG[name].coupling.check() is None


# Pieces


completed = jax.jit(orthonormal_complement)


@pytest.mark.parametrize("columns", range(7))
@pytest.mark.parametrize("length", [1.0, 0.1])
def test_orthonormal_complement_completes_a_basis(columns, length):
    rng = np.random.default_rng(columns)
    random = rng.normal(size=(6, columns))
    aligned = np.eye(6)[:, rng.permutation(6)[:columns]]
    for S in (random, aligned, random * np.array([[1.0], [1], [1], [0], [0], [0]])):
        E = completed(S, length)
        assert E.shape == (6, 6 - columns)
        H_E = metric(E, length)
        assert_close(H_E.T @ E, np.eye(6 - columns), EXACT)
        if np.linalg.matrix_rank(S) == columns:
            assert_close(H_E.T @ S, np.zeros((6 - columns, columns)), EXACT)


def test_unwrapping_keeps_the_rotation_and_comes_near():
    turned = jax.jit(lambda r: error_twist(Pose.from_rotation_vector(r)))
    rng = np.random.default_rng(0)
    axis = rng.normal(size=(3, 200))
    axis = axis / np.linalg.norm(axis, axis=0)
    angle = rng.uniform(0, 20, 200)
    near = axis * angle
    principal = turned(near)[3:]
    assert_close(unwrap_rotation_vector(principal, near), near, EXACT)
    near = near + 0.3 * rng.normal(size=near.shape)
    found = np.asarray(unwrap_rotation_vector(principal, near))
    assert_close(turned(found), turned(principal), 1e-9)
    turns = 2 * np.pi * found / np.linalg.norm(found, axis=0)
    distance = np.linalg.norm(found - near, axis=0)
    for neighbour in (found + turns, found - turns):
        assert (distance <= np.linalg.norm(neighbour - near, axis=0) + EXACT).all()


@pytest.mark.slow
def test_unwrapping_of_no_rotation_takes_the_axis_of_its_neighbour():
    near = jnp.array([0.0, 6.2, 0.0])
    assert_close(unwrap_rotation_vector(jnp.zeros(3), near), [0, 2 * np.pi, 0], EXACT)
    assert_close(unwrap_rotation_vector(jnp.zeros(3), jnp.zeros(3)), np.zeros(3), EXACT)
    slope = jax.jacobian(unwrap_rotation_vector)(jnp.zeros(3), jnp.zeros(3))
    assert_close(slope, np.eye(3), EXACT)
