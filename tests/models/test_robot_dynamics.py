"""Mass matrices, forces, accelerations and Jacobians of robots beside Pinocchio's and MuJoCo's."""

from pathlib import Path

import jax
import numpy as np
import pytest

from jaxjoints.dynamics.acceleration import accelerations
from jaxjoints.dynamics.inverse import inverse_dynamics
from jaxjoints.dynamics.joint_coordinates import bias_forces, mass_matrix, speeds_of, tree_forces
from jaxjoints.dynamics.site import site

pin = pytest.importorskip("pinocchio")
mujoco = pytest.importorskip("mujoco")

from support.cases import mostly_slow  # noqa: E402
from support.robots import in_mujoco, robot  # noqa: E402
from support.urdf import plain  # noqa: E402

EXACT = 1e-11  # matrices and forces, relative to the largest
SOLVED = 1e-8  # accelerations, and the efforts for them, relative to the largest
FOLDER = Path(pin.__file__).parents[4] / "share" / "example-robot-data" / "robots"
# An arm, a quadruped, a humanoid, a hand, two arms on a lift and a humanoid with hands: the file,
# whether the base floats, and a link that moves.
ROBOTS = {
    "panda": ("panda_description/urdf/panda.urdf", False, "panda_hand"),
    "go2": ("go2_description/urdf/go2.urdf", True, "FL_calf"),
    "talos": ("talos_data/robots/talos_reduced.urdf", True, "leg_left_6_link"),
    "allegro": ("allegro_hand_description/urdf/allegro_right_hand.urdf", False, "link_3.0"),
    "tiago": ("tiago_pro_description/robots/tiago_pro.urdf", False, "arm_left_7_link"),
    "g1": ("g1_description/urdf/g1_29dof_with_hand_rev_1_0.urdf", True, "right_hand_index_1_link"),
}
# MuJoCo refuses the inertia of its finger tips, which is that of no body.
NOT_IN_MUJOCO = ("allegro",)
MIMICS = ("panda", "tiago")

pytestmark = pytest.mark.skipif(
    not FOLDER.exists(), reason="needs the robots of the package example-robot-data"
)


def close(actual, expected, tolerance):
    expected = np.asarray(expected)
    scale = max(1.0, np.abs(expected).max())
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance * scale)


@jax.jit
def read(system, state, control, at):
    """Everything at an instant: one program."""
    return {
        "v": speeds_of(system, state),
        "M": mass_matrix(system, state),
        "h": bias_forces(system, state),
        "J": at.jacobian(system, state),
        "qdd": accelerations(system, state, control).qdd,
    }


def text_of(name):
    return plain((FOLDER / ROBOTS[name][0]).read_text(encoding="utf-8"))


@pytest.fixture(scope="module", params=mostly_slow(ROBOTS, default=("go2",)))
def found(request):
    """A robot, a link of it, and what we say of it, in Pinocchio's order."""
    name, (_, floating, link) = request.param, ROBOTS[request.param]
    text = text_of(name)
    r = robot(text, floating)
    numbers = read(
        r.system,
        r.state,
        r.system.control(effort=r.effort),
        site(r.system, *r.model.frames[link]),
    )
    back = np.argsort(r.order)
    ours = {
        "v": numbers["v"][back],
        "M": numbers["M"][np.ix_(back, back)],
        "h": numbers["h"][back],
        "J": numbers["J"][:, back],
    }
    return name, r, text, link, ours, numbers["qdd"]


def test_a_robot_has_the_dynamics_that_pinocchio_computes(found):
    _, r, _, link, ours, qdd = found
    m, d = r.pin, r.data
    joints = r.order[: r.system.coordinates]
    wanted = pin.aba(m, d, r.q, r.v, r.tau)
    close(ours["v"], r.v, EXACT)
    close(qdd, wanted[joints], SOLVED)
    close(ours["h"], pin.nonLinearEffects(m, d, r.q, r.v), EXACT)
    pin.crba(m, d, r.q)
    M = np.triu(d.M) + np.triu(d.M, 1).T
    close(ours["M"], M, EXACT)
    frame = m.getFrameId(link, pin.FrameType.BODY)
    J = pin.computeFrameJacobian(m, d, r.q, frame, pin.ReferenceFrame.LOCAL_WORLD_ALIGNED)
    close(ours["J"], J, EXACT)
    efforts = jax.jit(tree_forces)(r.system, r.state, wanted[r.order])
    close(efforts[np.argsort(r.order)], pin.rnea(m, d, r.q, r.v, wanted), EXACT)
    # Efforts for these accelerations. Where the base floats, its own is what it becomes.
    owners = dict.fromkeys(owner for owner, _ in r.model.coordinates.values())
    values = {owner: np.asarray(qdd)[r.system.coordinate(owner)] for owner in owners}
    tau = inverse_dynamics(r.system, r.state, values).effort
    expected = pin.rnea(m, d, r.q, r.v, wanted)[joints]
    close(tau, expected, SOLVED)


def test_a_robot_has_the_dynamics_that_mujoco_computes(found):
    name, r, text, link, ours, now = found
    if name in NOT_IN_MUJOCO:
        pytest.skip("MuJoCo does not read it")
    floating = ROBOTS[name][1]
    m, names = in_mujoco(text, floating, r)
    d = mujoco.MjData(m)
    # MuJoCo's velocity of a floating base has its linear part in world axes.
    T, order = np.eye(m.nv), np.zeros(m.nv, int)
    for j in range(m.njnt):
        at, start = m.jnt_qposadr[j], m.jnt_dofadr[j]
        if m.jnt_type[j] == mujoco.mjtJoint.mjJNT_FREE:
            x, y, z, w = r.q[3:7]
            d.qpos[at : at + 7] = [*r.q[:3], w, x, y, z]
            T[start : start + 3, start : start + 3] = pin.Quaternion(w, x, y, z).matrix()
            order[start : start + 6] = np.arange(6)
            continue
        joint = r.pin.joints[r.pin.getJointId(names[j])]
        q = r.q[joint.idx_q : joint.idx_q + joint.nq]
        d.qpos[at] = q[0] if joint.nq == 1 else np.arctan2(q[1], q[0])
        order[start] = joint.idx_v
    d.qvel[:] = T @ r.v[order]
    d.qfrc_applied[:] = T @ r.tau[order]
    mujoco.mj_forward(m, d)
    M = np.zeros((m.nv, m.nv))
    mujoco.mj_fullM(m, d, M)
    close(ours["M"][np.ix_(order, order)], T.T @ M @ T, EXACT)
    J = np.zeros((6, m.nv))
    mujoco.mj_jacBody(m, d, J[:3], J[3:], body := m.body(link).id)
    assert body
    close(ours["J"][:, order], J @ T, EXACT)
    joints = np.arange(6 if floating else 0, m.nv)
    qdd = np.zeros(r.pin.nv)
    qdd[r.order[: r.system.coordinates]] = np.asarray(now)
    close(qdd[order][joints], d.qacc[joints], SOLVED)


@pytest.mark.parametrize("name", mostly_slow(MIMICS, default=("panda",)))
def test_joints_that_mimic_others_accelerate_as_the_independent_ones_do(name):
    """q = A u + b of the independent u: (Aᵀ M A) ü = Aᵀ (τ - h), Pinocchio's M and h of all."""
    r = robot(text_of(name), ROBOTS[name][1], mimics=True)
    m, d, A = r.pin, r.data, r.independent
    assert A.shape[1] < m.nv
    h = pin.nonLinearEffects(m, d, r.q, r.v)
    pin.crba(m, d, r.q)
    M = np.triu(d.M) + np.triu(d.M, 1).T
    wanted = A @ np.linalg.solve(A.T @ M @ A, A.T @ (r.tau - h))
    now = jax.jit(accelerations)(r.system, r.state, r.system.control(effort=r.effort))
    close(now.qdd, wanted[r.order[: r.system.coordinates]], SOLVED)
