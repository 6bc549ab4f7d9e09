"""JaxSim: articulated bodies by scans over links; limits are stiff springs. Chains only here.

Its reader of URDF needs programs of another simulator, so it gets SDF.
"""

import jax
import jax.numpy as jnp
import jaxsim.api as js
from description import sdf

from engines.engine import JaxEngine, Unfit, repeated


class JaxSim(JaxEngine):
    """Its default integrator, semi-implicit Euler."""

    def rollout(self, mechanism, batch, steps, dt, checkpoint=None):
        """See `JaxEngine.rollout`."""
        if mechanism.loops or any(len(body.joints) != 1 for body in mechanism.bodies):
            raise Unfit("run on chains of hinges only")
        model = js.model.JaxSimModel.build_from_model_description(sdf(mechanism), time_step=dt)
        step = jax.vmap(lambda data: js.model.step(model, data))

        def begin(q, v):
            return js.data.JaxSimModelData.build(model, joint_positions=q, joint_velocities=v)

        def roll(q, v):
            data = repeated(step, jax.vmap(begin)(q, v), steps, checkpoint)
            return data.joint_positions

        return roll, tuple(jnp.asarray(x) for x in mechanism.start(batch))

    def angles(self, final):
        """See `JaxEngine.angles`."""
        return final.T

    def note(self, mechanism, final):
        """See `JaxEngine.note`."""
        solver = "springs at limits" if mechanism.limited else "direct"
        return f"semi-implicit Euler, {solver}, gap 0e+00, residual none"
