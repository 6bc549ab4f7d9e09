"""Runge & Kutta's method of fourth order on the accelerations that joints leave to bodies."""

import jax
import jax.numpy as jnp
from jax import Array

from ..algebra.calls import warn
from ..algebra.options import check_count, check_kind
from ..algebra.pytree import replace, static, struct
from ..assembly.group_rows import Interval
from ..assembly.impulses import with_reactions
from ..assembly.layout import layout
from ..assembly.problem import assembled, row_problem
from ..assembly.targets import SurfaceVelocity
from ..laws.drives import Armature
from ..laws.law import Law
from ..model.kinematics import (
    Mechanism,
    body_twists,
    joint_coordinates,
    prepare,
    system_kinematics,
    with_unit_quaternions,
    with_world,
)
from ..model.state import Control, Info, State
from ..model.system import System
from ..solve.forces import Bound, Latch, Linear
from ..solve.problem import (
    RowProblem,
    RowSolution,
    Solver,
    coordinate_rows,
    speeds,
)
from .free_motion import free_velocity
from .instant import rate_of_change, with_twists
from .projection import projected
from .scheme import NEWTON, Scheme, check_laws, elements, step_info, tree_of

# How far along the last rate each stage looks, and its weight, in shares of the step.
STAGES = ((0.0, 1 / 6), (0.5, 1 / 3), (0.5, 1 / 3), (1.0, 1 / 6))
# Largest h² k / m of a spring and h d / m of a damper at which it is stable: (2 √2)², 2.785.
STABLE = (8.0, 2.785)
# Steps of the power method that estimates them.
POWERS = 12
# Rows that keep velocities on the joints' surfaces are hard whatever their cfm.
ON_SURFACES = SurfaceVelocity(holds_soft=True)


@struct
class RungeKutta(Scheme):
    """RK4 on constrained accelerations, then positions and velocities back on the joints' surfaces.

    Of fourth order, for smooth motion: laws are linear or locks, which hold whatever their cfm, and
    nothing else has a cfm, a `Compliance` or a `Bushing`. An armature adds to the masses. Springs
    and dampers are explicit, stable for h² k < 8 m and h d < 2.8 m. The accelerations solve

        A λ = -(G a + Ġ v),    a = M⁻¹ f,    v̇ = a + M⁻¹ Gᵀ λ,

    and at the end each projection leaves the square of the error. Control is held over the step.

    solver: what finds the forces
    projections: of positions after a step, each with a factor of its own; velocities follow

    >>> from jaxjoints import SystemBuilder, step
    >>> world = SystemBuilder(gravity=(0.0, 0.0, -10.0))
    >>> thrown = (0.0, 0.0, 5.0, 0.0, 0.0, 0.0)
    >>> _ = world.body("ball", mass=1.0, inertia=(0.1, 0.1, 0.1), velocity=thrown)
    >>> state, _ = step(*world.build(), dt=0.5, scheme=RungeKutta())
    >>> print(state.position[2, 0].round(4))  # v²/2g, the top of a throw
    1.25
    """

    solver: Solver = NEWTON
    projections: int = static(default=1)

    def __post_init__(self):
        check_kind("RungeKutta", "solver", self.solver, Solver, "Newton()")
        check_count("RungeKutta", "projections", self.projections)

    def advance(
        self, mechanism: Mechanism, state: State, control: Control, dt: Array
    ) -> tuple[State, Info]:
        _check(mechanism.system)
        kinematics = system_kinematics(mechanism, state)
        q = joint_coordinates(mechanism, kinematics, state)
        start = replace(state, q=q)
        now = jnp.zeros_like(dt)
        prescribed = free_velocity(mechanism, kinematics, start, control, now)[:, :-1]
        start = with_twists(start, start, prescribed - body_twists(start))

        def stage(carry, share):
            last, total, force, (residual, size) = carry
            look, weight = share
            state = with_unit_quaternions(_plus(start, last, look * dt))
            rate, _, _, solution = rate_of_change(mechanism, state, control, self.solver)
            total = jax.tree.map(lambda x, y: x + weight * y, total, rate)
            force = force + weight * solution.impulse
            worst = jnp.maximum(residual, solution.residual), jnp.maximum(size, solution.size)
            return (rate, total, force, worst), None

        none, zero = jax.tree.map(jnp.zeros_like, start), jnp.zeros_like(state.time)
        structure = layout(mechanism.system).structure
        force = jnp.zeros((structure.rows, structure.nodes, *zero.shape), zero.dtype)
        shares = jnp.asarray(STAGES, dt.dtype)
        (_, total, force, worst), _ = jax.lax.scan(stage, (none, none, force, (zero, zero)), shares)
        new = with_unit_quaternions(_plus(start, total, dt))
        for _ in range(self.projections):
            new = projected(mechanism, new)
        new, problem = self._on_surface(mechanism, new)
        solution = RowSolution(dt * force, (), *worst)
        return new, step_info(mechanism, kinematics, problem, solution, new, dt)

    def examine(self, system: System, state: State, dt: Array) -> None:
        """Warns of springs and dampers too stiff for steps of dt [s] from a state, by the largest
        eigenvalues of h² k / m and h d / m, m the masses that the joints leave to the coordinates.
        """
        _check(system)
        if not any(law.kind is Linear for _, group in elements(system) for law in group.laws):
            return
        for eigenvalue, bound, what in zip(
            _stiffness(system, state, dt, self.solver), STABLE, ("springs", "dampers"), strict=True
        ):
            if (worst := float(jnp.max(eigenvalue))) > bound:
                least = float(dt) * (bound / worst) ** (0.5 if what == "springs" else 1.0)
                warn(
                    f"RungeKutta: {what} are too stiff for dt {float(dt):.3g}, which is explicit: "
                    f"take steps below {least:.2g} s, or Rattle or SemiImplicitEuler"
                )

    def _on_surface(self, mechanism: Mechanism, state: State) -> tuple[State, RowProblem]:
        """State with velocities that its rows allow, by the least M-weighted change; the rows."""
        kinematics, twist = system_kinematics(mechanism, state), with_world(body_twists(state))
        interval, target = _of_laws(jnp.zeros((), twist.dtype), twist), ON_SURFACES
        tree = tree_of(self.solver, mechanism.system)
        rows = assembled(mechanism, kinematics, state, interval, target, twist, tree=tree)
        solution = self.solver.solve(rows.problem)
        state = replace(state, q=joint_coordinates(mechanism, kinematics, state))
        change = rows.twists(solution.impulse) - twist[:, :-1]
        problem, _ = with_reactions(mechanism, kinematics, rows, solution)
        return with_twists(state, state, change), problem


def _of_laws(time: Array, twist: Array) -> Interval:
    """What laws act in a time [s] while bodies move at twists."""
    return Interval(jnp.ones_like(time), force_time=time, twist=twist)


@jax.jit
def _stiffness(system: System, state: State, dt: Array, solver: Solver) -> tuple[Array, Array]:
    """Largest eigenvalues of h² k / m and h d / m of the linear laws, shape (*batch)."""
    axes = state.time.ndim
    mechanism = prepare(system, axes)
    state = with_unit_quaternions(state)
    kinematics = system_kinematics(mechanism, state)
    still = jnp.zeros_like(with_world(body_twists(state)))

    def rows(time):
        return row_problem(mechanism, kinematics, _of_laws(time, still), ON_SURFACES, still)

    # Linear laws give k h² + d h in a step of h, and an armature its inertia in any.
    problem, inertia = rows(dt), rows(jnp.zeros_like(dt)).augmented_stiffness
    whole = problem.augmented_stiffness - inertia
    half = rows(dt / 2).augmented_stiffness - inertia
    free = replace(problem, rate=jnp.zeros_like(problem.rate), augmented_stiffness=inertia)

    def largest_eigenvalue(weight):
        root = jnp.sqrt(jnp.maximum(weight, 0.0))

        def better(y, _):
            pushed = replace(free, impulse=root * y)
            u = coordinate_rows(free, speeds(free, solver.solve(pushed).impulse))
            y = root * u
            size = jnp.sqrt(jnp.sum(y * y, axis=0))
            return y / jnp.maximum(size, jnp.finfo(size.dtype).tiny), size

        uneven = jnp.linspace(1.0, 1.5, len(root), dtype=root.dtype)
        begin = root * uneven.reshape(-1, *(1,) * axes)
        return jax.lax.scan(better, begin + 0 * free.impulse, None, length=POWERS)[1][-1]

    return largest_eigenvalue(2 * whole - 4 * half), largest_eigenvalue(4 * half - whole)


def _plus(state: State, rate: State, time: Array) -> State:
    return jax.tree.map(lambda x, y: x + time * y, state, rate)


def _check(system: System) -> None:
    """ValueError for what is not smooth."""

    def refused(law: Law) -> bool:
        return law.kind in (Bound, Latch) or law.needs_speed and not isinstance(law, Armature)

    check_laws("RungeKutta", system, refused, "use Rattle or SemiImplicitEuler")
    for name, group in elements(system):
        if not group.rigid:
            how = "cfm, a spring that depends on the time step"
            if group.softness is not None:
                how = f"a {type(group.softness).__name__}, for which this scheme has no rule"
            raise ValueError(
                f"RungeKutta: {name} is softened by {how}; give it a SpringDamper, or use Rattle "
                "or SemiImplicitEuler"
            )
