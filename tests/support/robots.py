"""Robots from URDF files beside Pinocchio, which has to be installed to import this."""

import re
import warnings

import numpy as np
import pinocchio as pin

import jaxjoints as jj
from jaxjoints.models import LoadWarning, load_urdf
from support.accelerations import rates


def without(text, *tags):
    """URDF without elements of these tags."""
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    for tag in tags:
        text = re.sub(rf"<{tag}\b[^>]*?/>", "", text)
        text = re.sub(rf"<{tag}\b[^>]*?>.*?</{tag}>", "", text, flags=re.DOTALL)
    return text


def plain(text):
    """URDF without what is no mechanism."""
    return without(text, "visual", "collision", "gazebo", "transmission", "ros2_control", "sensor")


def loaded(source, **options):
    """A model without its warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LoadWarning)
        return load_urdf(source, **options)


def compare(text, floating):
    """Largest differences of link poses and, relative, of accelerations to Pinocchio's."""
    model = loaded(without(text, "limit", "dynamics", "mimic"), floating=floating)
    system, _ = model.build()
    free = without(text, "mimic")
    full = pin.buildModelFromXML(free, *([pin.JointModelFreeFlyer()] if floating else []))
    first = 2 if floating else 1
    fixed = [j for j in range(first, full.njoints) if full.names[j] not in model.coordinates]
    m = pin.buildReducedModel(full, fixed, pin.neutral(full)) if fixed else full
    d, random = m.createData(), np.random.default_rng(5)
    q, v, tau = np.zeros(m.nq), random.normal(size=m.nv), random.normal(size=m.nv)
    at, speed, effort = {}, {}, {}
    pose, velocity = {}, {}
    if floating:
        q[:7] = [0.1, 0.2, 0.3, *(np.array([0.1, -0.2, 0.3, 0.9]) / np.sqrt(0.95))]
        x, y, z, w = q[3:7]
        R = pin.Quaternion(w, x, y, z).matrix()
        base = system.topology.bodies[0]
        pose[base] = q[:3], np.array([w, x, y, z])
        velocity[base] = np.concatenate([R @ v[:3], R @ v[3:6]])
        tau[:6] = 0.0
    for j in range(first, m.njoints):
        name, joint = m.names[j], m.joints[j]
        angle = random.uniform(-0.8, 0.8)
        q[joint.idx_q : joint.idx_q + joint.nq] = (
            (angle,) if joint.nq == 1 else (np.cos(angle), np.sin(angle))
        )
        owner, i = model.coordinates[name]
        place = system.coordinate(owner)
        for values, value in ((at, angle), (speed, v[joint.idx_v]), (effort, tau[joint.idx_v])):
            values.setdefault(owner, np.zeros(place.stop - place.start))[i] = value
    wanted = pin.aba(m, d, q, v, tau)
    pin.framesForwardKinematics(m, d, q)
    state = system.state(q=at, qd=speed, pose=pose, velocity=velocity)
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
    qdd, _ = rates(system, state, system.control(effort=effort))
    off = 0.0
    for j in range(first, m.njoints):
        owner, i = model.coordinates[m.names[j]]
        found = float(qdd[system.coordinate(owner).start + i])
        off = max(off, abs(found - wanted[m.joints[j].idx_v]))
    return worst, off / np.abs(wanted).max()
