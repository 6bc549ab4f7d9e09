"""Mechanisms whose instants or assemblies RBDL recorded, with its constraints as joints."""

import warnings
from functools import cache
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

import jaxjoints as jj
from jaxjoints.algebra.spatial import tangent_of
from jaxjoints.model.kinematics import prepare, system_kinematics
from jaxjoints.schemes.instant import free_rate
from support import oracle
from support.mechanisms import Y, Z

RECORDED = oracle.load("rbdl_instants")
ASSEMBLIES = oracle.load("rbdl_assembly")
AXES = {"revolute z": Z, "revolute y": Y}


@jj.struct
class Pin(jj.Residual):
    """C's origin on D's, and n of C across two axes of D."""

    across: jax.Array  # (2, 3)
    n: jax.Array
    dof: ClassVar[int] = 1
    places_bodies: ClassVar[bool] = False

    def residual(self, T, t):
        return jnp.concatenate([T.p, jnp.sum(self.across * T.rotate(self.n)[None], axis=1)])


@jj.struct
class Rows(jj.Residual):
    """Chosen components of the position and of sin θ times the axis of the rotation."""

    axes: jax.Array  # (rows, 6), angular first
    dof: int = jj.static()
    places_bodies: ClassVar[bool] = False

    def residual(self, T, t):
        R = T.R
        turn = jnp.stack([R[2, 1] - R[1, 2], R[0, 2] - R[2, 0], R[1, 0] - R[0, 1]]) / 2
        return jnp.sum(self.axes * jnp.concatenate([turn, T.p])[None], axis=1)


@jj.struct
class Path(jj.Residual):
    """C's origin is at offset + amplitude (sin φ, cos φ, sin φ cos φ), φ = frequency t.

    Its x with five freedoms, all of it with three.
    """

    amplitude: jax.Array
    frequency: jax.Array
    offset: jax.Array
    dof: int = jj.static()
    places_bodies: ClassVar[bool] = False

    def residual(self, T, t):
        sine, cosine = (f(self.frequency * t) for f in (jnp.sin, jnp.cos))
        path = self.offset + self.amplitude * jnp.stack([sine, cosine, sine * cosine])
        return (T.p - path)[: 6 - self.dof]


@jj.struct
class RollingByAcceleration(jj.Free):
    """A rolling body held by accelerations alone, the height's too, as RBDL does it."""

    of: jj.Residual
    acceleration_rows: ClassVar[int] = 3
    places_bodies: ClassVar[bool] = False

    def acceleration_residual(self, T, v, a, t):
        def velocities(T, v):
            height = jax.jvp(lambda T: self.of.residual(T, t), (T,), (tangent_of(T, v),))[1]
            return jnp.concatenate([self.of.velocity_residual(T, v, t), height])

        return jax.jvp(velocities, (T, v), (tangent_of(T, v), a))[1]


@cache
def mechanism(name):
    """The system of a case and the names of the joints that stand for its constraints.

    Bodies of six freedoms have a `FreeEuler` joint, so that all coordinates are RBDL's.
    """
    with warnings.catch_warnings():
        # No joint has a start here.
        warnings.simplefilter("ignore")
        return _built(name)


def _built(name):
    case = (ASSEMBLIES | RECORDED)[name]
    world = jj.SystemBuilder(gravity=case["gravity"])
    names = {0: jj.WORLD} | {body["id"]: body["name"] for body in case["bodies"]}
    for body in case["bodies"]:
        inertia = np.array(body["inertia_about_com"])
        world.body(body["name"], mass=body["mass"], com=body["com"], inertia=inertia)
        free = body["joint"].startswith("6DoF")
        joint = jj.FreeEuler() if free else jj.Hinge(AXES[body["joint"]])
        assert np.allclose(body["X_joint_E"], np.eye(3))
        place = {"parent": names[body["parent"]], "frame_D": body["X_joint_r"]}
        world.joint(f"of {body['name']}", joint, child=body["name"], **place)
    joints = []
    for i, constraint in enumerate(case["constraints"]):
        joints.append(constraint.get("name", f"contact {i}"))
        _add(world, joints[-1], constraint, names)
    return world.build()[0], joints


def _add(world, name, constraint, names):
    kind = constraint["kind"]
    if kind == "custom: pin":
        across = jnp.array([constraint["a_1"], constraint["a_2"]])
        coupling = Pin(across, jnp.array(constraint["n"], float))
        frames = constraint["r_s"], constraint["r_p"]
    elif kind == "LoopConstraint":
        axes = jnp.array(constraint["axes_in_predecessor_frame_ang_lin"], float)
        coupling = Rows(axes, dof=6 - len(axes))
        frames = [
            (constraint[f"{X}_r"], np.array(constraint[f"{X}_E"], float)) for X in ("Xs", "Xp")
        ]
    elif kind.startswith("custom: rolling"):
        rolling = jj.RollingSphere if "u = ez;" in constraint["rows_def"] else jj.RollingDisc
        coupling, frames = RollingByAcceleration(rolling(constraint["radius"])), (None, None)
    elif kind.startswith("custom: rheonomic"):
        path = (jnp.array(constraint[x], float) for x in ("A", "w", "c"))
        coupling = Path(*path, dof=6 - constraint["rows"])
        frames = constraint["point"], None
    else:
        normals = np.array(constraint["world_normals"], float)
        axes = jnp.array(np.hstack([0 * normals, normals]))
        coupling, frames = Rows(axes, dof=6 - len(axes)), (constraint["point"], None)
    child = names[constraint.get("successor_body", constraint.get("body", 6))]
    parent = names[constraint.get("predecessor_body", 0)]
    world.joint(name, coupling, child=child, parent=parent, frame_C=frames[0], frame_D=frames[1])


def by_body(case, values):
    """A flat vector of RBDL by the names of joints."""
    sizes = [6 if body["joint"].startswith("6DoF") else 1 for body in case["bodies"]]
    parts = np.split(np.array(values), np.cumsum(sizes)[:-1])
    return {f"of {body['name']}": x for body, x in zip(case["bodies"], parts, strict=True)}


def in_order(system, case, flat):
    """The same vector of a flat one of the library."""
    return np.concatenate([flat[system.coordinate(f"of {b['name']}")] for b in case["bodies"]])


def start(system, case, recorded):
    with warnings.catch_warnings():
        # RBDL records states off the surfaces of its constraints too.
        warnings.simplefilter("ignore")
        q, qd = (by_body(case, recorded[x]) for x in ("q", "qd"))
        state = system.state(q=q, qd=qd)
    return jj.replace(state, time=jnp.array(float(recorded["t"])))


def multipliers(system, state, info, name):
    """The forces along the rows of a joint, from its wrench on its child."""
    mech = prepare(system, 0)
    free = free_rate(mech, state, jj.Control())
    joints = system_kinematics(mech, state, free=free).joints
    index = system.topology.joints.index(name)
    for group, joint in zip(mech.system.groups, joints, strict=True):
        if index not in group.joints:
            continue
        W = np.array(joint.rows.W[:, :, group.joints.index(index)])
        rows = [i for i in range(len(W)) if i < 6 - group.coupling.dof or i >= 6]
        return np.linalg.lstsq(W[rows].T, np.array(info.wrench[:, index]), rcond=None)[0]
