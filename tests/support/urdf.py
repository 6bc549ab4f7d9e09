"""URDF as text: links and joints written in tests, and files without some of their elements."""

import re


def robot(*parts, name="robot"):
    """A robot of links and joints, one on each line after the first."""
    return "\n".join([f'<robot name="{name}">', *parts, "</robot>"])


def link(name, mass=1.0, inertia=(0.1, 0.2, 0.25), xyz="0 0 0", rpy="0 0 0", more=""):
    """A link; mass None for one without inertial."""
    if mass is None:
        return f'<link name="{name}">{more}</link>'
    xx, yy, zz = inertia
    moments = f'ixx="{xx}" iyy="{yy}" izz="{zz}" ixy="0" ixz="0" iyz="0"'
    inertial = f'<origin xyz="{xyz}" rpy="{rpy}"/><mass value="{mass}"/><inertia {moments}/>'
    return f'<link name="{name}"><inertial>{inertial}</inertial>{more}</link>'


def joint(name, kind, parent, child, xyz="0 0 0", rpy="0 0 0", axis="0 0 1", more=""):
    """A joint; axis None for the format's default."""
    along = "" if axis is None else f'<axis xyz="{axis}"/>'
    ends = f'<parent link="{parent}"/><child link="{child}"/>'
    origin = f'<origin xyz="{xyz}" rpy="{rpy}"/>'
    return f'<joint name="{name}" type="{kind}">{ends}{origin}{along}{more}</joint>'


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
