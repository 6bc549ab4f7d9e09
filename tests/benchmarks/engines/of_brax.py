"""Brax, no longer maintained: its three pipelines with their default options. No loops."""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
from brax.io import mjcf as reader
from description import mjcf, rotated

from engines.engine import JaxEngine, Unfit, repeated


class Generalized(JaxEngine):
    """Generalized coordinates; limits by projected gradient steps."""

    pipeline, integrator = "generalized", "semi-implicit Euler"

    def rollout(self, mechanism, batch, steps, dt, checkpoint=None):
        """See `JaxEngine.rollout`."""
        if mechanism.loops:
            raise Unfit("Brax closes no loops")
        pipeline = importlib.import_module(f"brax.{self.pipeline}.pipeline")
        self.system = reader.loads(mjcf(mechanism, dt, shapes=True))
        self.columns = mechanism.hinges()
        nothing = jnp.zeros(self.system.act_size())
        step = jax.vmap(lambda state: pipeline.step(self.system, state, nothing))

        def roll(q, v):
            state = jax.vmap(lambda q, v: pipeline.init(self.system, q, v))(q, v)
            state = repeated(step, state, steps, checkpoint)
            return state.q, state.x.pos, state.x.rot

        return roll, tuple(jnp.asarray(x) for x in mechanism.start(batch))

    def angles(self, final):
        """See `JaxEngine.angles`."""
        return final[0].T[self.columns]

    def note(self, mechanism, final):
        """See `JaxEngine.note`."""
        _, positions, quaternions = (np.asarray(x[:64], float) for x in final)
        index = {body.name: i for i, body in enumerate(mechanism.bodies)}
        worst = 0.0
        for i, body in enumerate(mechanism.bodies):
            if body.joints:
                hook = body.at[:, None]
                if body.parent:
                    j = index[body.parent]
                    hook = positions[:, j].T + rotated(quaternions[:, j].T, body.at)
                worst = max(worst, np.linalg.norm(positions[:, i].T - hook, axis=0).max())
        return f"{self.integrator}, {self.solver(mechanism)}, gap {worst:.0e}, residual unknown"

    def solver(self, mechanism) -> str:
        """How joints and limits are solved."""
        return (
            f"{self.system.solver_iterations} projected gradient" if mechanism.limited else "direct"
        )


class Positional(Generalized):
    """Maximal coordinates, joints by moving positions."""

    pipeline, integrator = "positional", "position based"

    def solver(self, mechanism):
        """See `Generalized.solver`."""
        return "1 sweep"


class Spring(Generalized):
    """Maximal coordinates, joints as springs."""

    pipeline, integrator = "spring", "semi-implicit Euler"

    def solver(self, mechanism):
        """See `Generalized.solver`."""
        return "explicit springs"
