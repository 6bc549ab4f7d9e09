"""Robots from URDF files beside Pinocchio, which has to be installed to import this."""

import warnings
from dataclasses import dataclass, field
from xml.etree import ElementTree

import numpy as np
import pinocchio as pin

import jaxjoints as jj
from jaxjoints.models import LoadWarning, Model, load_urdf
from support.accelerations import rates
from support.urdf import without


def loaded(source, **options):
    """A model without its warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LoadWarning)
        return load_urdf(source, **options)


@dataclass
class Robot:
    """A robot in both packages, in one random state and under random efforts.

    q, v, tau: in Pinocchio's order
    state, effort: the same in ours
    order: for each of our speeds ν the place of it among Pinocchio's
    independent: A of v = A u with independent speeds u; mimics follow these
    """

    model: Model
    system: jj.System
    state: jj.State
    effort: dict
    pin: pin.Model
    data: pin.Data
    q: np.ndarray
    v: np.ndarray
    tau: np.ndarray
    order: np.ndarray = field(repr=False)
    independent: np.ndarray = field(repr=False)


def robot(text, floating, mimics=False) -> Robot:
    """A robot of a URDF without limits, friction and damping; Pinocchio's has no mimics."""
    left_out = ("limit", "dynamics") if mimics else ("limit", "dynamics", "mimic")
    model = loaded(without(text, *left_out), floating=floating)
    system, _ = model.build()
    free = without(text, "mimic")
    full = pin.buildModelFromXML(free, *([pin.JointModelFreeFlyer()] if floating else []))
    first = 2 if floating else 1
    fixed = [j for j in range(first, full.njoints) if full.names[j] not in model.coordinates]
    m = pin.buildReducedModel(full, fixed, pin.neutral(full)) if fixed else full
    A, offset = independent(text if mimics else free, m)
    random = np.random.default_rng(5)
    q, v, tau = np.zeros(m.nq), random.normal(size=m.nv), random.normal(size=m.nv)
    v = A @ v[: A.shape[1]]
    angles = A @ random.uniform(-0.8, 0.8, size=A.shape[1]) + offset
    at, speed, effort = {}, {}, {}
    pose, velocity = {}, {}
    # Joints come first in our speeds, the base after them.
    order = np.full(m.nv, -1)
    if floating:
        q[:7] = [0.1, 0.2, 0.3, *(np.array([0.1, -0.2, 0.3, 0.9]) / np.sqrt(0.95))]
        x, y, z, w = q[3:7]
        R = pin.Quaternion(w, x, y, z).matrix()
        base = system.topology.bodies[0]
        pose[base] = q[:3], np.array([w, x, y, z])
        velocity[base] = np.concatenate([R @ v[:3], R @ v[3:6]])
        tau[:6] = 0.0
        order[-6:] = np.arange(6)
    for j in range(first, m.njoints):
        joint, k = m.joints[j], m.joints[j].idx_v
        q[joint.idx_q : joint.idx_q + joint.nq] = (
            (angles[k],) if joint.nq == 1 else (np.cos(angles[k]), np.sin(angles[k]))
        )
        owner, i = model.coordinates[m.names[j]]
        place = system.coordinate(owner)
        order[place.start + i] = k
        for values, value in ((at, angles), (speed, v), (effort, tau)):
            values.setdefault(owner, np.zeros(place.stop - place.start))[i] = value[k]
    state = system.state(q=at, qd=speed, pose=pose, velocity=velocity)
    return Robot(model, system, state, effort, m, m.createData(), q, v, tau, order, A)


def independent(text, m):
    """A and b of q = A u + b, with independent coordinates u and what mimics them."""
    A, b = np.eye(m.nv), np.zeros(m.nv)
    for joint in ElementTree.fromstring(text.encode()).iter("joint"):
        mimic = joint.find("mimic")
        if mimic is not None:
            follower, leader = (
                m.joints[m.getJointId(name)].idx_v
                for name in (joint.get("name"), mimic.get("joint"))
            )
            A[follower] = 0.0
            A[follower, leader] = float(mimic.get("multiplier", 1))
            b[follower] = float(mimic.get("offset", 0))
    return A[:, A.any(axis=0)], b


def in_mujoco(text, floating, r):
    """MuJoCo's model of the same, and the names of its joints."""
    import mujoco

    text = without(text, "limit", "dynamics", "mimic")
    options = '<mujoco><compiler fusestatic="false" strippath="true"/></mujoco></robot>'
    spec = mujoco.MjSpec.from_string(text.replace("</robot>", options))
    if floating:
        spec.body(r.system.topology.bodies[0]).add_freejoint()
    m = spec.compile()
    return m, [m.joint(j).name for j in range(m.njnt)]


def apart_from_euler(text, dt, steps):
    """Largest difference of coordinates [rad or m] from those of MuJoCo's Euler.

    The robot stands on the ground, and nothing but its weight acts on it.
    """
    import mujoco

    r = robot(text, floating=False)
    m, names = in_mujoco(text, False, r)
    m.opt.timestep = dt
    m.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_CONTACT)
    d = mujoco.MjData(m)
    at = {}
    for name in names:
        owner, i = r.model.coordinates[name]
        at[name] = r.system.coordinate(owner).start + i
        d.joint(name).qpos[0] = r.state.q[at[name]]
        d.joint(name).qvel[0] = r.v[r.pin.joints[r.pin.getJointId(name)].idx_v]
    end, _ = jj.rollout(r.system, r.state, dt=dt, steps=steps, record_every=steps)
    mujoco.mj_step(m, d, steps)
    return max(abs(float(end.q[i] - d.joint(name).qpos[0])) for name, i in at.items())


def compare(text, floating):
    """Largest differences of link poses and, relative, of accelerations to Pinocchio's."""
    r = robot(text, floating)
    model, system, state, m, d = r.model, r.system, r.state, r.pin, r.data
    wanted = pin.aba(m, d, r.q, r.v, r.tau)
    pin.framesForwardKinematics(m, d, r.q)
    poses, worst = jj.body_poses(system, state), 0.0
    p, R = np.asarray(poses.p), np.asarray(poses.R)
    for frame in m.frames:
        if frame.type != pin.FrameType.BODY or frame.name not in model.frames:
            continue
        body, (position, rotation) = model.frames[frame.name]
        T = d.oMf[m.getFrameId(frame.name, pin.FrameType.BODY)]
        if body != jj.WORLD:
            i = system.body(body)
            position, rotation = R[:, :, i] @ position + p[:, i], R[:, :, i] @ rotation
        worst = max(worst, np.abs(T.translation - position).max())
        worst = max(worst, np.abs(T.rotation - rotation).max())
    if any("->" in note for note in model.notes):
        return worst, None
    qdd, _ = rates(system, state, system.control(effort=r.effort))
    joints = r.order[: system.coordinates]
    off = np.abs(np.asarray(qdd) - wanted[joints]).max(initial=0.0)
    return worst, off / np.abs(wanted).max()
