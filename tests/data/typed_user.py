"""What a user of the public API writes, for a strict type checker."""

from dataclasses import replace
from typing import ClassVar

import jax
import jax.numpy as jnp

import jaxjoints as jj


@jj.struct
class Cam(jj.Chart):
    """A joint of one's own."""

    lift: jax.Array | float
    dof: ClassVar[int] = 1

    def pose(self, q: jax.Array) -> jj.Pose:
        return jj.Pose.about_z(q[0]) @ jj.Pose.along_z(self.lift * (1 - jnp.cos(q[0])))


@jj.struct
class Detent(jj.Law):
    """A law of one's own."""

    torque: jax.Array | float
    kind: ClassVar[type] = jj.row_laws.Linear

    def force(self, at: jj.CoordinateState) -> jj.row_laws.Linear:
        return jj.row_laws.Linear(jnp.zeros_like(at.q), -at.dt * self.torque * jnp.sin(at.q))


def controller(state: jj.State) -> jj.Control:
    return jj.Control(effort=-state.q)


def noisy(state: jj.State, inputs: jj.Inputs) -> jj.Control:
    return jj.Control(effort=inputs.shared * state.q)


def effort(knot: jj.optimization.Knot, u: jax.Array) -> jax.Array:
    return jnp.sum(u**2) + jnp.sum(knot.q**2)


def planned(system: jj.System, state: jj.State) -> jax.Array:
    """For the checker alone: it takes long to compile."""
    problem = jj.optimization.Problem(system, state, effort, horizon=10, dt=1e-2, upper=1.0)
    plan = jj.optimization.ilqr(problem, iterations=3)
    drive = jj.optimization.receding_horizon(problem, plan.u, intervals=2)
    print(plan, plan.converged, jj.optimization.Outcome.START, drive.q)
    return plan.u


def main() -> float:
    world = jj.SystemBuilder(gravity=(0.0, 0.0, -9.81))
    arm = world.body("arm", mass=1.0, inertia=(0.1, 0.1, 0.02), com=(0.0, 0.0, -0.5))
    world.joint("shoulder", jj.Hinge(axis=(0.0, 1.0, 0.0)), child=arm, laws=jj.Limits(-1, 1), q=0.3)
    system, state = world.build()
    system = system.with_joint("shoulder", limits=jj.Limits(-2.0, 2.0), axis=(0.0, 1.0, 0.0))
    system = replace(system, mass=2 * system.mass)
    state = jj.replicate(system.state(q={"shoulder": 0.2}), 8)
    control = system.control(effort={"shoulder": 1.0})
    state, info = jj.step(system, state, control, dt=1e-3, scheme=jj.Rattle())
    final, records = jj.rollout(system, state, controller, dt=1e-3, steps=10)
    result = jj.rollout(system, state, jj.Controller(noisy, shared=1.0), dt=1e-3, steps=10)
    record = jj.readout(system, coordinates=True, energy=True)
    final, readings = jj.rollout(system, state, dt=1e-3, steps=10, record=record)
    cause = jj.Cause(int(info.cause.max()))
    name: str = cause.name
    height = jj.body_poses(system, final).p[2]
    q, qd = jj.coordinates(system, final), jj.coordinate_speeds(system, final)
    print(name, len(result), records, readings, system.joint("shoulder").coupling)
    return float(jnp.sum(height) + jnp.sum(q) + jnp.sum(qd))


if __name__ == "__main__":
    main()
