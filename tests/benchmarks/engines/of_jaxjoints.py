"""jaxjoints as a user calls it: `rollout` on JAX's defaults, after `use_all_cores`."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
from cases import CASES, DT
from description import state, system

import jaxjoints as jj
from engines.engine import JaxEngine

jj.use_all_cores()


class JaxJoints(JaxEngine):
    """Semi-implicit Euler, with a projection after each step where there are loops."""

    solver = jj.Newton()
    # Environments per tile; None: as the platform has it.
    tile = None

    def chosen(self, mechanism) -> jj.SemiImplicitEuler:
        """The scheme for a mechanism."""
        return jj.SemiImplicitEuler(solver=self.solver, projections=1 if mechanism.loops else 0)

    def rollout(self, mechanism, batch, steps, dt, checkpoint=None):
        """See `JaxEngine.rollout`."""
        self.system, self.coordinates = system(mechanism), len(mechanism.hinges())
        self.scheme = self.chosen(mechanism)

        def roll(start):
            return jj.rollout(
                self.system,
                start,
                dt=dt,
                steps=steps,
                record_every=checkpoint or steps,
                checkpoint=checkpoint,
                scheme=self.scheme,
                tile=self.tile,
            )[0]

        return roll, (jax.block_until_ready(state(mechanism, self.system, batch)),)

    def step(self, mechanism, batch):
        """See `JaxEngine.step`."""
        built, scheme = system(mechanism), self.chosen(mechanism)

        def step(start):
            return jj.step(built, start, dt=DT, scheme=scheme)[0]

        return step, (state(mechanism, built, batch),)

    def angles(self, final):
        """See `JaxEngine.angles`."""
        return jj.coordinates(self.system, final)[: self.coordinates]

    def note(self, mechanism, final):
        """See `JaxEngine.note`."""
        few = jax.tree.map(lambda x: x[..., :64], final)
        _, info = jax.jit(lambda s: jj.step(self.system, s, dt=DT, scheme=self.scheme))(few)
        words = ["semi-implicit Euler"]
        words.append(
            f"<= {self.scheme.solver.iterations} Newton" if mechanism.limited else "linear"
        )
        if self.scheme.projections:
            words.append("one projection")
        words.append(f"gap {float(jnp.max(jj.joint_errors(self.system, few))):.0e}")
        words.append(f"residual {float(jnp.max(info.residual)):.0e} m/s")
        return ", ".join(words) + ("" if np.all(info.ok) else ", NOT ok")

    def gaps(self, case: str, batch: int, steps: int, dt: float) -> list:
        """Largest gap over a simulation without a projection, with one and with two."""
        mechanism, found = CASES[case](), []
        for projections, wide in itertools.product((0, 1, 2), (False, True)):
            with jax.enable_x64(wide):
                built = system(mechanism)
                start = state(mechanism, built, batch)
                scheme = jj.SemiImplicitEuler(projections=projections)
                errors = jj.rollout(built, start, dt=dt, steps=steps, record=_error, scheme=scheme)[
                    1
                ]
            label = f"float{64 if wide else 32}, {projections} projections"
            found.append((label, float(np.max(errors))))
        return found

    def drift(self, case: str, batch: int, seconds: float, dt: float) -> list:
        """Energy gained over a simulation as a share of that above rest, per environment."""
        mechanism = CASES[case]()
        built = system(mechanism)
        start = state(mechanism, built, batch)
        final, _ = jj.rollout(
            built, start, dt=dt, steps=round(seconds / dt), record_every=round(seconds / dt)
        )
        begin, end, rest = (jj.energies(built, s).total for s in (start, final, built.state()))
        return [("semi-implicit Euler, float32", ((end - begin) / (begin - rest)).tolist())]


def _error(state: jj.State, info: jj.Info):
    return info.error
