"""The robot of a task as a model of MuJoCo, with the same masses, joints, laws and feet.

Trees of hinges on a planar or free base; balls that touch level ground.
"""

import mujoco
import numpy as np

from jaxjoints import Armature, Damping, Hinge, Limits, Planar, SpringDamper
from jaxjoints.models.mechanism import inverse, product


def _text(values):
    return " ".join(repr(float(x)) for x in np.ravel(values))


def _frame(pose):
    return np.asarray(pose.R, float), np.asarray(pose.p, float)


def _joints(name, joint):
    """Lines of one joint, in the frame of its child."""
    R, p = _frame(joint.frame_C)
    if isinstance(joint.coupling, Planar):
        kinds = ("slide", 0), ("slide", 1), ("hinge", 2)
        lines = [(f"{name}.{i}", kind, R[:, i]) for kind, i in kinds]
    elif isinstance(joint.coupling, Hinge):
        lines = [(name, "hinge", R @ np.asarray(joint.coupling.axis, float))]
    else:
        raise ValueError(f"joint {name!r}: {type(joint.coupling).__name__} is not taken over")
    numbers = ""
    for law in joint.laws:
        if isinstance(law, Limits):
            numbers += f' limited="true" range="{_text((law.lower, law.upper))}"'
        elif isinstance(law, SpringDamper):
            numbers += f' stiffness="{_text(law.stiffness)}" damping="{_text(law.damping)}"'
        elif isinstance(law, Damping):
            numbers += f' damping="{_text(law.damping)}"'
        elif isinstance(law, Armature):
            numbers += f' armature="{_text(law.inertia)}"'
        else:
            raise ValueError(f"joint {name!r}: {type(law).__name__} is not taken over")
    at = f'pos="{_text(p)}"'
    return [f'<joint name="{n}" type="{k}" axis="{_text(a)}" {at}{numbers}/>' for n, k, a in lines]


def mujoco_model(task, timestep):
    """MuJoCo's model of the robot of a task, whose coordinates stand in the order of its bodies.

    Contacts and limits are hard, as those of the tasks: MuJoCo's time constant is two steps, the
    least that it permits, not its default of 0.02 s. The integrator is implicit in dampers. Balls
    touch the ground alone, not each other.
    """
    system, bodies = task.system, task.system.topology.bodies
    leading = {system.joint(name).child[0]: name for name in system.topology.joints}
    inside = {i: [] for i in range(-1, len(bodies))}
    for name in system.topology.contacts:
        contact = system.contact(name)
        friction, radius = (float(np.ravel(x)[0]) for x in _of_ball(contact))
        inside[contact.child[0]].append(
            f'<geom type="sphere" contype="0" size="{radius!r}" '
            f'pos="{_text(contact.frame_C.p)}" friction="{friction!r} 0.005 0.0001"/>'
        )
    # Children come after their parents.
    for i in reversed(range(len(bodies))):
        place, parent = (np.eye(3), np.asarray(task.start.position[:, i], float)), -1
        lines = ["<freejoint/>"]
        if i in leading:
            joint = system.joint(leading[i])
            parent = joint.parent[0]
            place = product(_frame(joint.frame_D), inverse(_frame(joint.frame_C)))
            lines = _joints(leading[i], joint)
        R, p = place
        quaternion = np.zeros(4)
        mujoco.mju_mat2Quat(quaternion, R.ravel())
        I = np.asarray(system.inertia[:, :, i], float)  # noqa: E741 - its usual name
        full = I[0, 0], I[1, 1], I[2, 2], I[0, 1], I[0, 2], I[1, 2]
        inertial = f'<inertial pos="{_text(system.com[:, i])}" mass="{_text(system.mass[i])}" '
        lines.append(f'{inertial}fullinertia="{_text(full)}"/>')
        body = f'<body name="{bodies[i]}" pos="{_text(p)}" quat="{_text(quaternion)}">'
        inside[parent].insert(0, "\n".join([body, *lines, *inside[i], "</body>"]))
    gravity, hard = _text(system.gravity), f'="{2 * timestep!r} 1"'
    firm = '="0.99 0.99 0.001"'
    return mujoco.MjModel.from_xml_string(
        f'<mujoco><compiler angle="radian"/><option timestep="{timestep!r}" gravity="{gravity}" '
        f'integrator="implicitfast"/><default><geom solref{hard} solimp{firm}/>'
        f"<joint solreflimit{hard} solimplimit{firm}/></default><worldbody>"
        '<geom type="plane" size="1 1 1" '
        f'friction="0 0 0"/>{"".join(inside[-1])}</worldbody></mujoco>'
    )


def _of_ball(contact):
    """Friction of a contact, and radius of its ball."""
    friction = next(law.friction for law in contact.laws if hasattr(law, "friction"))
    return friction, contact.geometry.shape_C.radius
