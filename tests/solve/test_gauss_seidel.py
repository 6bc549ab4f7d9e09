"""Projected Gauss–Seidel against ODE's QuickStep, a plain loop, and Newton's method."""

from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

import jaxjoints as jj
from jaxjoints.solve.bodies import bodies_of_rows
from jaxjoints.solve.problem import (
    RowProblem,
    RowStructure,
    body_velocities,
    coordinate_rows,
    with_coordinate_rows,
)
from support import oracle
from support.cases import mostly_slow
from support.contacts import contacts
from support.graphs import free_bodies, with_wrenches
from support.reference import environment, laws_of
from support.stops import ENVIRONMENTS, ROUNDING, chain, problem_of, violent

EQUAL = 1e-12
RECORDINGS = "ode_quickstep"
NAMES = sorted(oracle.load(RECORDINGS))
# Rows of the joint with most of them: the others get rows of no effect, and all one program.
ROWS = 5

solve = jax.jit(jj.ProjectedGaussSeidel.solve)
newton = jax.jit(jj.Newton.solve)


# ODE's rows, states last


def matrices(q):
    """Rotation matrices of quaternions (4, n), shape (n, 3, 3)."""
    w, x, y, z = q / np.linalg.norm(q, axis=0)
    cells = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ]
    return np.moveaxis(np.array(cells), -1, 0)


def times(p, q):
    """Product of quaternions."""
    (pw, *pv), (qw, *qv) = p, q
    pv, qv = np.array(pv), np.array(qv)
    return np.concatenate(
        [(pw * qw - np.sum(pv * qv, 0))[None], pw * qv + qw * pv + np.cross(pv, qv, axis=0)]
    )


def conjugate(q):
    return q * np.array([1.0, -1.0, -1.0, -1.0])[:, None]


def plane_space(n):
    """Two axes normal to n, as ODE takes them."""
    nx, ny, nz = n
    steep = np.abs(nz) > np.sqrt(0.5)
    p = np.where(steep, np.stack([0 * nx, -nz, ny]), np.stack([-ny, nx, 0 * nx]))
    p = p / np.linalg.norm(p, axis=0)
    return p, np.cross(n, p, axis=0)


class Pair:
    """Two bodies at the recorded states but the last, and their joint."""

    def __init__(self, case):
        self.joint = case["joints"][0]
        fields = ("pos", "quat", "linvel", "angvel")
        arrays = (np.moveaxis(np.asarray(case["trajectory"][f]), 0, -1)[..., :-1] for f in fields)
        self.p, self.q, self.v, self.omega = arrays
        self.R = [matrices(q) for q in self.q]
        self.start = [(np.array(b["setup_pos"]), np.array(b["setup_quat"])) for b in case["bodies"]]

    def carried(self, body, vector):
        """A vector of the world at setup, as the body has turned it since."""
        start = matrices(self.start[body][1][:, None])[0]
        return np.einsum("nab,b->an", self.R[body], start.T @ vector)

    def axes(self):
        first, second = (np.asarray(self.joint[a]) for a in ("axis1", "axis2"))
        return self.carried(0, first), self.carried(1, second)

    def ball(self):
        """Rows on both bodies, (6, n) each, and errors; the world's axes."""
        anchor = np.asarray(self.joint["anchor"])
        r1, r2 = (self.carried(i, anchor - self.start[i][0]) for i in range(2))
        d = self.p[1] + r2 - self.p[0] - r1
        for e, error in zip(np.eye(3)[..., None] + 0 * d, d, strict=True):
            arms = np.cross(r1, e, axis=0), np.cross(r2, e, axis=0)
            yield np.concatenate([e, arms[0]]), -np.concatenate([e, arms[1]]), error

    def hinge(self):
        yield from self.ball()
        axis = np.asarray(self.joint["axis1"])
        x1, x2 = self.carried(0, axis), self.carried(1, axis)
        for n in plane_space(x1):
            yield *turning(n), np.sum(np.cross(x1, x2, axis=0) * n, axis=0)

    def universal(self):
        yield from self.ball()
        x1, x2 = self.axes()
        n = np.cross(x1, x2, axis=0)
        yield *turning(n / np.linalg.norm(n, axis=0)), -np.sum(x1 * x2, axis=0)

    def slider(self):
        (p1, q1), (p2, q2) = self.start
        relative = times(conjugate(q1[:, None]), q2[:, None])
        error = times(times(conjugate(self.q[0]), self.q[1]), conjugate(relative))
        error = np.einsum("nab,bn->an", self.R[0], np.where(error[0] < 0, -1.0, 1.0) * error[1:])
        for e, own in zip(np.eye(3)[..., None] + 0 * error, error, strict=True):
            yield *turning(e), 2 * own
        between = self.p[1] - self.p[0]
        d = between + self.carried(1, p1 - p2)
        for n in plane_space(self.carried(0, np.asarray(self.joint["axis1"]))):
            arm = np.cross(between, n, axis=0) / 2
            yield np.concatenate([n, arm]), np.concatenate([-n, arm]), np.sum(n * d, axis=0)


def turning(n):
    moment = np.concatenate([0 * n, n])
    return moment, -moment


@cache
def recorded(name):
    """The rows of each recorded state, the twists before the joint acts, and after."""
    case = oracle.load(RECORDINGS)[name]
    world, pair = case["world"], Pair(case)
    h = world["dt"]
    free, inverse = [], []
    for i, body in enumerate(case["bodies"]):
        inertia = pair.R[i] @ np.array(body["inertia_body"]) @ np.swapaxes(pair.R[i], 1, 2)
        L = np.einsum("nab,bn->na", inertia, pair.omega[i])
        hat = np.cross(np.eye(3), L[:, None])
        # Lacoursière's implicit gyroscopic torque: ω becomes (I - h [L])⁻¹ L.
        omega = np.linalg.solve(inertia - h * hat, L[..., None])[..., 0].T
        gravity = np.array(world["gravity"])[:, None]
        free.append(np.concatenate([pair.v[i] + h * gravity, omega]))
        inverse.append(np.moveaxis(np.linalg.inv(inertia), 0, -1))
    rows = list(getattr(pair, case["joints"][0]["type"])())
    count = pair.p.shape[-1]
    H = np.zeros((2, 6, ROWS, count))
    rate, compliance = np.zeros((ROWS, count)), np.ones((ROWS, count))
    for i, (*sides, error) in enumerate(rows):
        H[:, :, i] = sides
        rate[i] = np.einsum("san,san->n", H[:, :, i], np.array(free)) - world["erp"] / h * error
        compliance[i] = world["cfm"] / h
    world_stays = np.zeros_like(inverse[0])
    mass = np.array([1 / body["mass"] for body in case["bodies"]] + [0.0])
    way = free_bodies(2, ((0, 1),), ROWS)
    bodies = bodies_of_rows(
        H=tuple(jnp.asarray(x[:, :, None]) for x in H),
        inverse_mass=jnp.asarray(mass[:, None]),
        inverse_inertia=jnp.asarray(np.stack([*inverse, world_stays], axis=2)),
        way=way,
    )
    problem = RowProblem(
        bodies,
        jnp.asarray(rate[:, None]),
        jnp.asarray(compliance[:, None]),
        jnp.zeros((0, count)),
        jnp.zeros((0, count)),
        (),
        RowStructure(way, ROWS, (), (), ()),
    )
    after = [
        np.moveaxis(np.asarray(case["trajectory"][f]), 0, -1)[..., 1:] for f in ("linvel", "angvel")
    ]
    return problem, np.moveaxis(np.array(free), 0, 1), np.concatenate(after, axis=1)


@pytest.mark.parametrize("name", mostly_slow(NAMES, default=("quickstep/hinge/iter8",)))
def test_one_step_from_each_recorded_state_meets_the_next(name):
    problem, free, after = recorded(name)
    world = oracle.load(RECORDINGS)[name]["world"]
    iterations = world["quickstep_iterations"]
    solution = solve(
        jj.ProjectedGaussSeidel(relaxation=world["quickstep_w"], iterations=iterations), problem
    )
    found = free + np.asarray(body_velocities(problem, solution.impulse))
    after = np.swapaxes(after, 0, 1)
    np.testing.assert_allclose(found, after, rtol=0, atol=EQUAL)
    converged = np.max(solution.residual / solution.size)
    # Beyond eight iterations ODE shuffles its rows: equal only where all orders have converged.
    assert (converged < EQUAL) == (iterations > 8), converged


# Any rows

# The environment that is looked at alone.
ONE = 3


def violent_chain(laws, links=3):
    """A chain of hinges driven into its stops."""
    system, state = chain(links, laws)
    return system, violent(system, state)


@cache
def with_all_laws():
    """Rows of hinges with stops, friction and damping."""
    laws = [jj.Limits(-0.301, 0.301, erp=0.2, cfm=0.0), jj.DryFriction(10.0), jj.Damping(0.5)]
    return problem_of(*violent_chain(laws))


@cache
def on_the_ground():
    """Two bodies on a ball, with two contacts each."""
    return contacts(2, 2, ENVIRONMENTS)


def visited(problem, iterations, relaxation):
    """Impulses of one environment's rows by a plain loop over its laws, friction last."""
    laws = laws_of(environment(problem, ONE))
    joint, row = np.zeros((2, len(laws.A)), int)
    for (r, node), place in np.ndenumerate(laws.place):
        joint[place], row[place] = problem.structure.way.order[node], r
    order = sorted(
        range(len(laws.row)),
        key=lambda i: (laws.friction[i] > 0, joint[laws.row[i]], row[laws.row[i]]),
    )
    M, q, x = laws.M, laws.q, np.zeros(len(laws.row))
    for _ in range(iterations):
        for i in order:
            now = laws.boxed(laws.width(laws.impulse(x)))
            wanted = x[i] - relaxation * (M[i] @ x + q[i]) / M[i, i]
            x[i] = np.clip(wanted, now.lower[i], now.upper[i])
    return laws.impulse(x)[laws.place]


@pytest.mark.parametrize(
    "given", [with_all_laws, pytest.param(on_the_ground, marks=pytest.mark.slow)]
)
def test_visits_are_those_of_a_plain_loop(given):
    problem = given()
    found = solve(jj.ProjectedGaussSeidel(iterations=8), problem)
    expected = visited(problem, 8, 1.3)
    np.testing.assert_allclose(found.impulse[..., ONE], expected, rtol=EQUAL, atol=EQUAL)
    assert np.max(found.residual / found.size) > 1e-3, "eight visits should not be enough"


@pytest.mark.slow
def test_many_visits_meet_newtons_method():
    problem = with_all_laws()
    found = solve(jj.ProjectedGaussSeidel(iterations=2000), problem)
    exact = newton(jj.Newton(iterations=15), problem)
    assert np.max(found.residual) < ROUNDING
    change = body_velocities(problem, found.impulse - exact.impulse)
    # The residual, through effective masses of ratio 1e3 and as many rows.
    assert np.max(np.abs(change)) < 1e3 * ROUNDING
    for one, other in zip(found.bounded, exact.bounded, strict=True):
        np.testing.assert_allclose(one, other, atol=1e3 * ROUNDING)


def test_friction_stays_within_the_normal_force():
    problem = on_the_ground()
    found = solve(jj.ProjectedGaussSeidel(iterations=400), problem)
    normal, tangent = found.bounded
    friction = problem.bounds[1]
    most = friction.mu * normal[np.array(friction.normal)]
    done = np.asarray(found.residual < ROUNDING)
    assert np.mean(done) > 0.5, "most should be solved"
    assert np.max((np.abs(tangent) - most)[:, done]) < ROUNDING
    assert np.mean((np.abs(tangent) > most - ROUNDING) & (most > 0)) > 0.1, "some should slip"


def test_what_is_linear_is_a_soft_row():
    """A spring-damper's law and a hard row of its softness take the same visits."""
    problem = problem_of(*violent_chain([jj.SpringDamper(stiffness=3e3, damping=2.0)]))
    structure = problem.structure
    K = problem.augmented_stiffness
    as_hard = jj.replace(
        problem,
        rate=with_coordinate_rows(
            structure,
            problem.rate,
            coordinate_rows(problem, problem.rate) - problem.impulse / K,
        ),
        compliance=with_coordinate_rows(structure, problem.compliance + 0 * problem.rate, 1 / K),
        augmented_stiffness=K[:0],
        impulse=K[:0],
        structure=replace(structure, row=(), node=()),
    )
    found, expected = (solve(jj.ProjectedGaussSeidel(iterations=8), p) for p in (problem, as_hard))
    np.testing.assert_allclose(found.impulse, expected.impulse, rtol=0, atol=EQUAL)


def test_a_warm_start_goes_on_where_the_last_step_ended():
    problem = with_all_laws()
    solver = jj.ProjectedGaussSeidel(iterations=8, warm=True)
    half = solve(solver, problem)
    whole = solve(solver, problem, (half.impulse, half.bounded))
    expected = solve(jj.ProjectedGaussSeidel(iterations=16), problem)
    np.testing.assert_allclose(whole.impulse, expected.impulse, rtol=EQUAL, atol=EQUAL)
    cold = solve(jj.ProjectedGaussSeidel(iterations=8), problem, (half.impulse, half.bounded))
    np.testing.assert_array_equal(cold.impulse, half.impulse)


@pytest.mark.slow
@pytest.mark.parametrize("given", [with_all_laws, on_the_ground])
def test_derivatives_are_those_of_the_visits(given):
    problem = given()
    last = problem.bounds[-1]
    box = {"mu": last.mu} if problem.follows else {"upper": last.upper}

    def impulses(rate, H, box, relaxation):
        bounds = (*problem.bounds[:-1], jj.replace(last, **box))
        bodies = with_wrenches(problem, [H, *problem.bodies.H[1:]])
        moved = jj.replace(problem, rate=rate, bodies=bodies, bounds=bounds)
        found = jj.ProjectedGaussSeidel(relaxation, iterations=3).solve(moved)
        return found.impulse[..., ONE]

    given = problem.rate, problem.bodies.H[0], box, jnp.asarray(1.3)
    check_grads(jax.jit(impulses), given, order=1, eps=1e-6, rtol=1e-6, atol=1e-6)


@pytest.mark.slow
def test_the_program_does_not_grow_with_the_rows():
    # But for the largest residual, found by halves, as many for 18 rows as for 24.
    programs = (
        jax.make_jaxpr(jj.ProjectedGaussSeidel().solve)(contacts(1, touching, 2))
        for touching in (6, 8)
    )
    few, many = (len(program.eqns) for program in programs)
    assert few == many


@pytest.mark.slow
def test_a_step_says_that_few_visits_are_not_enough():
    system, state = violent_chain([jj.Limits(-0.301, 0.301, erp=0.2, cfm=0.0)])
    scheme = jj.SemiImplicitEuler(
        solver=jj.ProjectedGaussSeidel(iterations=4, warm=True), joints="rows"
    )
    _, info = jax.jit(lambda system, state: jj.step(system, state, dt=1e-3, scheme=scheme))(
        system, state
    )
    assert np.isfinite(info.residual).all() and not info.ok.any()


def test_settings_out_of_range_are_named_with_a_remedy():
    with pytest.raises(ValueError, match="iterations 0 must be at least 1"):
        jj.ProjectedGaussSeidel(iterations=0)
    for relaxation in (0.0, 2.0, np.nan):
        with pytest.raises(ValueError, match="relaxation .* between 0 and 2"):
            jj.ProjectedGaussSeidel(relaxation)
