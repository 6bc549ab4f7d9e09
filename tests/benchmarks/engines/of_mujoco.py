"""MuJoCo's own batched rollout, in float64."""

import os

import mujoco
import numpy as np
from cases import CASES, DT
from description import mjcf
from mujoco import rollout

from engines.engine import Engine

EQUALITY = int(mujoco.mjtConstraint.mjCNSTR_EQUALITY)


class MuJoCo(Engine):
    """On one core; options of MuJoCo as they are by default."""

    threads = 0

    def build(self, case, batch, steps):
        """See `Engine.build`."""
        mechanism = CASES[case]()
        self.model = mujoco.MjModel.from_xml_string(mjcf(mechanism, DT))
        self.steps = steps
        self.data = [mujoco.MjData(self.model) for _ in range(max(self.threads, 1))]
        self.roll = rollout.Rollout(nthread=self.threads)
        q, v = mechanism.start(batch)
        self.start = full_states(self.model, q, v)
        # Given, so that no run pays for fresh memory.
        self.states = np.zeros((batch, steps, self.start.shape[1]))
        self.sensors = np.zeros((batch, steps, self.model.nsensordata))
        self.once()
        angles = self.states[0, -1, 1 + mechanism.hinges()[:3]]
        note = f"float64, {diagnosis(self.model, q[0], v[0], steps)}"
        return {"compile": (0.0, 0.0), "q": angles.tolist(), "note": note}

    def once(self):
        """See `Engine.once`."""
        self.roll.rollout(
            self.model,
            self.data,
            self.start,
            nstep=self.steps,
            state=self.states,
            sensordata=self.sensors,
        )

    def gaps(self, case: str, batch: int, steps: int, dt: float) -> list:
        """Largest gap over a simulation."""
        mechanism = CASES[case]()
        model = mujoco.MjModel.from_xml_string(mjcf(mechanism, dt))
        q, v = mechanism.start(batch)
        states, _ = rollout.rollout(
            model, mujoco.MjData(model), full_states(model, q, v), nstep=steps
        )
        return [("float64", gap(model, states[..., 1 : 1 + model.nq].reshape(-1, model.nq)))]

    def drift(self, case: str, batch: int, seconds: float, dt: float) -> list:
        """Energy gained over a simulation as a share of that above rest, per environment."""
        mechanism, found = CASES[case](), []
        for integrator in ("Euler", "implicitfast", "RK4"):
            option = f'integrator="{integrator}"'
            model = mujoco.MjModel.from_xml_string(mjcf(mechanism, dt, option))
            q, v = mechanism.start(batch)
            data, finals = mujoco.MjData(model), []
            for one in range(batch):
                mujoco.mj_resetData(model, data)
                data.qpos[:], data.qvel[:] = q[one], v[one]
                mujoco.mj_step(model, data, round(seconds / dt))
                finals.append((data.qpos.copy(), data.qvel.copy()))
            ends = [np.array(x) for x in zip(*finals, strict=True)]
            found.append((f"{integrator}, float64", gained(model, q, v, *ends)))
        return found


class MuJoCoAll(MuJoCo):
    """The same with a thread per core."""

    threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def full_states(model, q: np.ndarray, v: np.ndarray) -> np.ndarray:
    """States of MuJoCo for coordinates and speeds of a batch."""
    size = mujoco.mj_stateSize(model, mujoco.mjtState.mjSTATE_FULLPHYSICS)
    states = np.zeros((len(q), size))
    states[:, 1 : 1 + model.nq] = q
    states[:, 1 + model.nq : 1 + model.nq + model.nv] = v
    return states


def gap(model, coordinates: np.ndarray) -> float:
    """Largest distance between the points that loops hold together, over many poses [m]."""
    data, worst = mujoco.MjData(model), 0.0
    for q in coordinates if model.neq else ():
        data.qpos[:] = q
        mujoco.mj_fwdPosition(model, data)
        parts = data.efc_pos[np.asarray(data.efc_type) == EQUALITY].reshape(-1, 3)
        worst = max(worst, np.linalg.norm(parts, axis=1).max())
    return float(worst)


def diagnosis(model, q: np.ndarray, v: np.ndarray, steps: int) -> str:
    """Integrator, iterations, gap and residual of one environment."""
    data, iterations = mujoco.MjData(model), []
    data.qpos[:], data.qvel[:] = q, v
    for _ in range(steps):
        mujoco.mj_step(model, data)
        iterations.append(max(data.solver_niter))
    force = np.zeros(model.nv)
    mujoco.mj_mulM(model, data, force, data.qacc)
    residual = imbalance(force, data.qfrc_smooth, data.qfrc_constraint)
    solver = f"{np.mean(iterations):.1f} Newton" if max(iterations) else "direct"
    return f"Euler, {solver}, gap {gap(model, data.qpos[None]):.0e}, residual {residual:.0e}"


def imbalance(inertial, smooth, constraint) -> float:
    """Largest unbalanced generalized force as a share of the largest force."""
    return float(np.max(np.abs(inertial - smooth - constraint)) / np.max(np.abs(smooth)))


def gained(model, q, v, q_end, v_end) -> list[float]:
    """Energy gained by each environment, as a share of what it had above rest."""
    data = mujoco.MjData(model)

    def energy(q, v):
        data.qpos[:], data.qvel[:] = q, v
        mujoco.mj_forward(model, data)
        mujoco.mj_energyPos(model, data)
        mujoco.mj_energyVel(model, data)
        return float(np.sum(data.energy))

    rest = energy(model.qpos0, np.zeros(model.nv))
    begin = [energy(*one) for one in zip(q, v, strict=True)]
    end = [energy(*one) for one in zip(q_end, v_end, strict=True)]
    return [(b - a) / (a - rest) for a, b in zip(begin, end, strict=True)]
