"""Pinocchio's articulated-body algorithm in semi-implicit Euler steps, called from Python.

One thread, float64. The calls cost 1 to 2 us a step, so its rates are a lower bound. It has neither
limits nor, in this algorithm, loops.
"""

import numpy as np
import pinocchio
from cases import CASES, DT
from description import GRAVITY

from engines.engine import Engine, Unfit

# Environment-steps of one run: the rate does not depend on the batch.
MOST = 20_000


class Pinocchio(Engine):
    """Trees without limits."""

    def build(self, case, batch, steps):
        """See `Engine.build`."""
        mechanism = CASES[case]()
        if not mechanism.tree:
            raise Unfit("Pinocchio's algorithm has no limits and loops")
        self.model, self.steps = _model(mechanism), steps
        self.data = self.model.createData()
        self.starts = mechanism.start(batch)
        self.fewer = min(batch, max(1, MOST // steps))
        self.share = batch / self.fewer
        angles = self._simulated(0)[:3]
        note = "float64, semi-implicit Euler, direct, gap 0e+00, residual none"
        return {"compile": (0.0, 0.0), "q": angles.tolist(), "note": note}

    def once(self):
        """See `Engine.once`; a part of the batch only."""
        for one in range(self.fewer):
            self._simulated(one)

    def time(self):
        """See `Engine.time`; what the whole batch takes."""
        (times,) = super().time()["seconds"]
        return {"seconds": [tuple(self.share * x for x in times)]}

    def _simulated(self, one: int) -> np.ndarray:
        q, v = (x[one].copy() for x in self.starts)
        zero = np.zeros(self.model.nv)
        for _ in range(self.steps):
            v += DT * pinocchio.aba(self.model, self.data, q, v, zero)
            q += DT * v
        return q


def _model(mechanism) -> pinocchio.Model:
    """A tree of hinges in Pinocchio."""
    model, indices = pinocchio.Model(), {None: 0}
    model.gravity.linear = np.array([0.0, 0.0, -GRAVITY])
    for body in mechanism.bodies:
        (joint,) = body.joints
        index = model.addJoint(
            indices[body.parent],
            pinocchio.JointModelRevoluteUnaligned(np.array(joint.axis)),
            pinocchio.SE3(np.eye(3), body.at),
            body.name,
        )
        inertia = pinocchio.Inertia(body.mass, body.com, body.inertia)
        model.appendBodyToJoint(index, inertia, pinocchio.SE3.Identity())
        indices[body.name] = index
    return model
