"""MJX: a scan of the vmapped step.

Its solver loops until converged, at most 100 times, by default; then it cannot be differentiated in
reverse, and a batch goes on until its slowest environment is done. With one iteration it can be.
On few cores it hangs at times with constraints at large batches: the runner gives it up then.
"""

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from cases import CASES
from description import mjcf
from mujoco import mjx

from engines.engine import JaxEngine, Unfit, repeated
from engines.of_mujoco import gained, gap


class Mjx(JaxEngine):
    """MuJoCo's default options."""

    option = ""

    def rollout(self, mechanism, batch, steps, dt, checkpoint=None):
        """See `JaxEngine.rollout`."""
        self.model = mujoco.MjModel.from_xml_string(mjcf(mechanism, dt, self.option))
        self.columns = mechanism.hinges()
        device, empty = mjx.put_model(self.model), mjx.make_data(self.model)
        step = jax.vmap(lambda data: mjx.step(device, data))
        product = jax.vmap(lambda data: mjx.mul_m(device, data, data.qacc))

        def roll(q, v):
            data = jax.vmap(lambda q, v: empty.replace(qpos=q, qvel=v))(q, v)
            data = repeated(step, data, steps, checkpoint)
            unbalanced = product(data) - data.qfrc_smooth - data.qfrc_constraint
            scale = jnp.max(jnp.abs(data.qfrc_smooth))
            return data.qpos, data.qvel, jnp.max(jnp.abs(unbalanced)) / scale

        return roll, tuple(jnp.asarray(x) for x in mechanism.start(batch))

    def angles(self, final):
        """See `JaxEngine.angles`."""
        return final[0].T[self.columns]

    def note(self, mechanism, final):
        """See `JaxEngine.note`."""
        most = f"<= {self.model.opt.iterations} Newton of <= {self.model.opt.ls_iterations}"
        solver = "direct" if mechanism.tree else most
        apart = gap(self.model, np.asarray(final[0][:64], float))
        return f"Euler, {solver}, gap {apart:.0e}, residual {float(final[2]):.0e}"

    def gaps(self, case: str, batch: int, steps: int, dt: float) -> list:
        """Largest gap over a simulation, in both precisions."""
        mechanism, found = CASES[case](), []
        model = mujoco.MjModel.from_xml_string(mjcf(mechanism, dt, self.option))
        for wide in (False, True):
            with jax.enable_x64(wide):
                device, empty = mjx.put_model(model), mjx.make_data(model)

                def step(data, _, device=device):
                    data = mjx.step(device, data)
                    return data, data.qpos

                def roll(q, step=step, empty=empty):
                    return jax.lax.scan(step, empty.replace(qpos=q), None, length=steps)[1]

                q = jax.jit(jax.vmap(roll))(jnp.asarray(mechanism.start(batch)[0]))
            q = np.asarray(q, float).reshape(-1, model.nq)
            found.append((f"float{64 if wide else 32}", gap(model, q)))
        return found

    def drift(self, case: str, batch: int, seconds: float, dt: float) -> list:
        """Energy gained over a simulation as a share of that above rest, per environment."""
        mechanism = CASES[case]()
        roll, start = self.rollout(mechanism, batch, round(seconds / dt), dt)
        q, v, _ = (np.asarray(x, float) for x in jax.jit(roll)(*start))
        return [("Euler, float32", gained(self.model, *mechanism.start(batch), q, v))]


class MjxFast(Mjx):
    """One iteration of four steps of line search: the setting that is differentiable in reverse."""

    option = 'iterations="1" ls_iterations="4"'

    def rollout(self, mechanism, batch, steps, dt, checkpoint=None):
        """See `JaxEngine.rollout`."""
        if mechanism.tree:
            raise Unfit("as mjx where there is nothing to solve")
        return super().rollout(mechanism, batch, steps, dt, checkpoint)
