"""States of MuJoCo as states of a model that was read from the same file."""

import mujoco
import numpy as np


def name_of(model, kind, i):
    """Name of an element, as the reader calls it."""
    name = mujoco.mj_id2name(model, getattr(mujoco.mjtObj, f"mjOBJ_{kind}"), i)
    return name or f"{kind.lower()} {i}"


def lifted(m, qpos, height):
    """Coordinates from `qpos` with the lowest point at a height above the ground [m].

    The coordinate that lifts is a vertical slide of the file, or that of a free body.
    """
    d = mujoco.MjData(m)
    d.qpos[:] = qpos
    free, slide = mujoco.mjtJoint.mjJNT_FREE, mujoco.mjtJoint.mjJNT_SLIDE
    place, up = next(
        (int(m.jnt_qposadr[j]) + 2, 1.0)
        if m.jnt_type[j] == free
        else (int(m.jnt_qposadr[j]), float(m.jnt_axis[j, 2]))
        for j in range(m.njnt)
        if m.jnt_type[j] == free or (m.jnt_type[j] == slide and abs(m.jnt_axis[j, 2]) == 1)
    )

    def gap():
        mujoco.mj_forward(m, d)
        of_world = (c for c in d.contact if not m.geom_bodyid[list(c.geom)].all())
        return min((c.dist - c.includemargin for c in of_world), default=None)

    while gap() is not None:
        d.qpos[place] += 0.1 * up
    while (found := gap()) is None:
        d.qpos[place] -= 0.01 * up
    d.qpos[place] += (height - found) * up
    return d.qpos.copy()


def state_of(read, system, m, d):
    """The state of `system`, built from the model `read`, where MuJoCo's data d are."""
    q, qd, pose, velocity = {}, {}, {}, {}
    for j in range(m.njnt):
        place, dof, kind = m.jnt_qposadr[j], m.jnt_dofadr[j], m.jnt_type[j]
        if kind == mujoco.mjtJoint.mjJNT_FREE:
            body = name_of(m, "BODY", m.jnt_bodyid[j])
            R = d.xmat[m.jnt_bodyid[j]].reshape(3, 3)
            pose[body] = d.qpos[place : place + 3].copy(), d.qpos[place + 3 : place + 7].copy()
            turn = R @ d.qvel[dof + 3 : dof + 6]
            velocity[body] = np.concatenate([d.qvel[dof : dof + 3], turn])
            continue
        joint, i = read.coordinates[name_of(m, "JOINT", j)]
        at = system.coordinate(joint)
        for values in (q, qd):
            values.setdefault(joint, np.zeros(at.stop - at.start))
        if kind == mujoco.mjtJoint.mjJNT_BALL:
            # At rest where its coordinates are 0.
            assert abs(d.qpos[place]) == 1 and not d.qvel[dof : dof + 3].any()
            continue
        q[joint][i], qd[joint][i] = d.qpos[place], d.qvel[dof]
    return system.state(q=q, qd=qd, pose=pose, velocity=velocity)


def accelerations_of(read, system, m, d):
    """MuJoCo's q̈ in the order of the system's coordinates, and ω̇ of free bodies by name."""
    qdd, turning = np.zeros(system.coordinates), {}
    for j in range(m.njnt):
        dof = m.jnt_dofadr[j]
        if m.jnt_type[j] == mujoco.mjtJoint.mjJNT_FREE:
            R = d.xmat[m.jnt_bodyid[j]].reshape(3, 3)
            turning[name_of(m, "BODY", m.jnt_bodyid[j])] = R @ d.qacc[dof + 3 : dof + 6]
            continue
        joint, i = read.coordinates[name_of(m, "JOINT", j)]
        first = system.coordinate(joint).start + i
        count = 3 if m.jnt_type[j] == mujoco.mjtJoint.mjJNT_BALL else 1
        qdd[first : first + count] = d.qacc[dof : dof + count]
    return qdd, turning
