"""The equation of motion in joint coordinates beside Pinocchio's numbers, and its properties."""

import json
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxjoints as jj
from jaxjoints.algebra.spatial import quat_multiply
from jaxjoints.dynamics import (
    Site,
    accelerations,
    bias_forces,
    constraint_jacobian,
    coriolis_matrix,
    gravity_forces,
    mass_matrix,
    momentum_matrix,
    site,
    spanning_tree,
    speeds_of,
    tree_forces,
)
from jaxjoints.laws.transmissions import PolynomialRelation
from jaxjoints.models import load_urdf
from support import mechanisms, rbdl_instants
from support.refusals import refused

EXACT = 1e-12  # float64, relative to the largest
SOLVED = 1e-10
PATH = Path(__file__).parents[1] / "data" / "urdf_floater.json"


@jax.jit
def read(system, state, at):
    """Everything at once: one program."""
    return {
        "M": mass_matrix(system, state),
        "nle": bias_forces(system, state),
        "g": gravity_forces(system, state),
        "C": coriolis_matrix(system, state),
        "centroidal": momentum_matrix(system, state),
        "v": speeds_of(system, state),
        "J": at.jacobian(system, state),
        "foot_position": at.pose(system, state).p,
        "foot_velocity": at.velocity(system, state),
    }


def close(actual, expected, tolerance=EXACT):
    expected = np.array(expected)
    np.testing.assert_allclose(actual, expected, atol=tolerance * max(1, np.abs(expected).max()))


@pytest.fixture(scope="module")
def floater():
    """A robot adrift, and for each case its state, efforts, numbers, and our order of ν in
    Pinocchio's.
    """
    recorded = json.loads(PATH.read_text(encoding="utf-8"))
    model = load_urdf(recorded["urdf"], floating=True)
    system, _ = model.build()
    foot = site(system, *model.frames["shank"])
    foot = Site(foot.body, foot.frame @ jj.Pose.translation(jnp.array(recorded["foot"])))
    cases = []
    for case in recorded["cases"]:
        owners = {name: model.coordinates[name][0] for name in case["q"]}
        speed = {owners[n]: case["v"][i] for n, i in case["order"].items()}
        state = system.state(
            q={owners[n]: x for n, x in case["q"].items()},
            qd=speed,
            pose={"trunk": (case["base_position"], np.array(case["base_quaternion"]))},
            velocity={"trunk": case["base_velocity"]},
        )
        control = system.control(effort={owners[n]: x for n, x in case["effort"].items()})
        order = np.arange(9)
        order[3:] = np.arange(6)
        for name, i in case["order"].items():
            order[system.coordinate(owners[name]).start] = i
        cases.append((state, control, case, order))
    return system, foot, cases


@pytest.mark.slow
def test_matrices_and_forces_are_those_of_pinocchio(floater):
    system, foot, cases = floater
    for state, control, case, order in cases:
        found = read(system, state, foot)
        close(found["v"], np.array(case["v"])[order])
        close(found["M"], np.array(case["M"])[np.ix_(order, order)])
        for name in ("nle", "g"):
            close(found[name], np.array(case[name])[order])
        close(found["C"] @ found["v"], np.array(case["coriolis"])[order])
        close(found["centroidal"], np.array(case["centroidal"])[:, order])
        close(found["J"], np.array(case["J"])[:, order])
        for name in ("foot_position", "foot_velocity"):
            close(found[name], case[name])
        now = jax.jit(accelerations)(system, state, control)
        close(now.qdd, np.array(case["a"])[order][:3], SOLVED)
        close(foot.acceleration(system, state, now), case["foot_acceleration"], SOLVED)


@pytest.mark.slow
def test_a_step_changes_speeds_of_joints_by_the_accelerations_of_pinocchio(floater):
    system, _, cases = floater
    h = 1e-3
    for state, control, case, order in cases:
        new, _ = jax.jit(jj.step)(system, state, control, dt=h)
        change = (jj.coordinate_speeds(system, new) - jj.coordinate_speeds(system, state)) / h
        close(change, np.array(case["a"])[order][:3], SOLVED)


def moved(state, time):
    """A state a little later, with the velocities it has."""
    spin = jnp.concatenate([jnp.ones_like(state.omega[:1]), time / 2 * state.omega])
    turned = quat_multiply(spin, state.quaternion)
    return jj.replace(state, position=state.position + time * state.velocity, quaternion=turned)


@pytest.mark.slow
def test_the_rate_of_the_mass_matrix_less_twice_coriolis_is_skew():
    system, state = mechanisms.floating_chain(gravity=(0.3, 0.0, -9.81))

    @jax.jit
    def skew(system, state):
        at = lambda t: mass_matrix(system, moved(state, t))  # noqa: E731
        rate = jax.jvp(at, (0.0,), (1.0,))[1]
        return rate - 2 * coriolis_matrix(system, state), rate

    X, rate = skew(system, state)
    np.testing.assert_allclose(X, -X.T, atol=EXACT * 10)
    assert np.abs(rate).max() > 0.1


@pytest.mark.slow
def test_energy_power_and_momentum_are_those_of_the_bodies():
    system, state = mechanisms.floating_chain(gravity=(0.3, 0.0, -9.81))
    found = read(system, state, Site("2", jj.Pose.identity()))
    v = np.asarray(found["v"])
    np.testing.assert_allclose(
        v @ found["M"] @ v / 2, jj.energies(system, state).kinetic, rtol=EXACT
    )
    momentum = jj.momentum(system, state)
    np.testing.assert_allclose(found["centroidal"][:3] @ v, momentum[:3], atol=EXACT)
    close(found["nle"], found["C"] @ v + found["g"])
    # The power of the weights is what gravity loses in energy.
    potential = lambda t: jj.energies(system, moved(state, t)).gravity  # noqa: E731
    power = jax.jvp(potential, (jnp.zeros(()),), (jnp.ones(()),))[1]
    np.testing.assert_allclose(found["g"] @ v, power, rtol=1e-10)


@pytest.mark.slow
def test_the_matrix_of_a_loop_is_that_of_its_tree_as_rbdl_has_it():
    case = rbdl_instants.RECORDED["fourbar_loop"]
    system, _ = rbdl_instants.mechanism("fourbar_loop")
    tree = spanning_tree(system)
    assert tree.loops == ("loop",) and not tree.roots
    for recorded in case["states"]:
        names = [f"of {body['name']}" for body in case["bodies"]]
        q, qd = (dict(zip(names, recorded[x], strict=True)) for x in ("q", "qd"))
        state = system.state(q=q, qd=qd)
        M, h = jax.jit(mass_matrix)(system, state), jax.jit(bias_forces)(system, state)
        close(M, recorded["H"])
        close(h, recorded["C"])
        K = jax.jit(constraint_jacobian)(system, state)
        np.testing.assert_allclose(K @ np.array(recorded["qd"]), 0.0, atol=EXACT)
        # M q̈ + h - τ is a force of the loop: nothing of it is left across K.
        left = M @ np.array(recorded["qdd"]) + h - np.array(recorded["tau"])
        force = np.linalg.lstsq(K.T, left, rcond=None)[0]
        np.testing.assert_allclose(K.T @ force, left, atol=SOLVED * 10)


@pytest.mark.slow
def test_a_batch_in_single_precision_is_near_its_environments():
    system, _ = mechanisms.chain(2)
    q = np.array([[0.1, 0.5, -0.3]])
    many = system.state(q={"0": q, "1": -q}, qd={"0": 3 * q})
    M = jax.jit(mass_matrix)(*mechanisms.single((system, many)))
    assert M.dtype == jnp.float32
    for i in range(3):
        one = jax.tree.map(lambda x: x[..., i], many)  # noqa: B023
        np.testing.assert_allclose(M[..., i], jax.jit(mass_matrix)(system, one), atol=1e-6)


@pytest.mark.slow
def test_forces_of_a_tree_are_those_of_its_mass_matrix():
    rates = np.random.default_rng(0).normal(size=11)
    fixed = mechanisms.chain(2, q=0.5, qd=1.5, laws=(jj.Armature(0.3), jj.SpringDamper(5.0)))
    for system, state in (fixed, mechanisms.floating_chain(gravity=(0.3, 0.0, -9.81))):
        v = rates[: spanning_tree(system).speeds]
        M, h = mass_matrix(system, state), bias_forces(system, state)
        close(tree_forces(system, state, v), M @ v + h)
    with refused("tree_forces: rates has shape (2,), the tree has 10 speeds"):
        tree_forces(system, state, rates[:2])


def test_armatures_are_masses():
    system, state = mechanisms.chain(2, laws=(jj.Armature(0.7),))
    bare, _ = mechanisms.chain(2)
    M, without = (jax.jit(partial(mass_matrix, x))(state) for x in (system, bare))
    np.testing.assert_allclose(M - without, 0.7 * np.eye(2), atol=EXACT)


def geared(*laws):
    """Two links with laws on the length of a tendon whose arms vary, and on how far the second link
    is along x, which a joint measures that places nothing.
    """
    world = jj.SystemBuilder()
    for i, axis in enumerate((mechanisms.Y, mechanisms.X)):
        joint = {"parent": "0", "frame_D": (0.0, 0.0, -0.5)} if i else {}
        world.body(str(i), mass=1.0 + i, inertia=(0.1, 0.2, 0.15), com=(0.1, 0.05, -0.2))
        world.joint(str(i), jj.Hinge(axis), child=str(i), q=0.3 + 0.2 * i, qd=1.5 - i, **joint)
    tendon = PolynomialRelation((1.0, 0.5), (0.4, 1.0), (0.1, 0.5, 0.8))
    world.transmission("tendon", tendon, joints=("0", "1"), laws=laws)
    world.joint("away", jj.Free(), child="1", laws=laws)
    return world.build()


@pytest.mark.slow
def test_armatures_of_transmissions_and_beside_the_tree_are_masses_too():
    inertia, rates = 0.7, np.array([0.4, -1.3])
    (system, state), (bare, _) = geared(jj.Armature(inertia)), geared(jj.Damping(0.0))
    M, h, v = (f(system, state) for f in (mass_matrix, bias_forces, speeds_of))
    q = np.asarray(state.q)[:2]
    bent = 0.5 + 1.6 * (0.4 * q[0] + q[1])
    # Of the tendon, and of the second link's origin along x.
    arms, along = np.array([1.0, 0.5]) - bent * np.array([0.4, 1.0]), site(system, "1")
    along = along.jacobian(system, state)[0]
    close(M - mass_matrix(bare, state), inertia * (np.outer(arms, arms) + np.outer(along, along)))
    close(coriolis_matrix(system, state) @ v + gravity_forces(system, state), h)
    close(tree_forces(system, state, rates), M @ rates + h)
    close(M @ jax.jit(accelerations)(system, state).qdd[:2] + h, np.zeros(2), SOLVED)
