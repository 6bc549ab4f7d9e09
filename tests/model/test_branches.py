"""The spanning tree of joints: breadth first, what is stated first, what holds nothing last."""

import numpy as np

import jaxjoints as jj
from jaxjoints.dynamics import spanning_tree
from jaxjoints.model.branches import Branch, spanning_branches


def built(*joints):
    """Bodies 0, 1, … at the world's origin, with joints of (coupling, child, parent)."""
    world = jj.SystemBuilder()
    ends = {body for _, *pair in joints for body in pair} - {-1}
    for body in sorted(ends):
        world.body(str(body), mass=1.0, inertia=(1.0, 1.0, 1.0))
    for i, (coupling, child, parent) in enumerate(joints):
        names = {"child": str(child), "parent": jj.WORLD if parent < 0 else str(parent)}
        world.joint(f"joint {i}", coupling, **names)
    return world.build()[0]


def test_each_branch_stands_on_what_is_placed_before_it():
    system = built((jj.Hinge(), 1, 0), (jj.Ball(), 2, 1), (jj.Slider(), 0, -1), (jj.Hinge(), 2, -1))
    branches, roots = spanning_branches(system, ())
    assert branches == (Branch(2, 0, -1, 0), Branch(3, 2, -1, 0), Branch(0, 1, 0, 0))
    assert roots == ()


def test_a_parent_is_placed_by_its_child():
    assert spanning_branches(built((jj.Hinge(), 0, 1)), [0])[0] == (Branch(0, 1, 0, 1),)


def test_where_nothing_leads_to_the_world_the_first_body_is_a_root():
    system = built((jj.Hinge(), 1, 0), (jj.Free(), 2, -1), (jj.Ball(), 3, 2), (jj.Ball(), 4, 5))
    branches, roots = spanning_branches(system, ())
    assert roots == (0, 4)
    assert [branch.body for branch in branches] == [2, 3, 1, 5]
    assert spanning_tree(system).roots == roots


def test_a_bushing_beside_a_chain_places_no_body():
    system = built((jj.Hinge(), 0, -1), (jj.Released(jj.Fixed()), 1, -1), (jj.Hinge(), 1, 0))
    assert [branch.joint for branch in spanning_branches(system, ())[0]] == [0, 2]
    assert spanning_tree(system).loops == ("joint 1",)
    state = system.state(q={"joint 0": 0.4, "joint 2": 0.5}, qd={"joint 2": 2.0})
    np.testing.assert_allclose(state.omega[:, 1], [0.0, 0.0, 2.0], atol=1e-12)
    # The bushing measures a rotation of 0.9 rad.
    angles = state.q[system.coordinate("joint 1")]
    np.testing.assert_allclose(np.linalg.norm(angles), 0.9, atol=1e-12)


def test_joints_whose_coordinates_are_stated_place_bodies_before_others():
    # A base whose pose is given by a joint that holds nothing, with a leg pinned to the ground.
    system = built((jj.Free(), 0, -1), (jj.Hinge(), 1, 0), (jj.Ball(), 1, -1))
    assert [branch.joint for branch in spanning_branches(system, ())[0]] == [2, 1]
    q = {"joint 0": (0.0, 0.0, 0.0, 0.3, 0.0, 0.0), "joint 1": 0.4}
    state = system.state(q=q, qd={"joint 1": 2.0})
    for joint, values in q.items():
        np.testing.assert_array_equal(state.q[system.coordinate(joint)], np.atleast_1d(values))
    np.testing.assert_allclose(
        state.omega[:, 1], 2.0 * np.array([0, -np.sin(0.3), np.cos(0.3)]), atol=1e-12
    )


def test_a_stated_joint_that_holds_something_places_a_body_before_a_stated_bushing():
    system = built((jj.Hinge(), 0, -1), (jj.Released(jj.Fixed()), 1, -1), (jj.Hinge(), 1, 0))
    for stated, joints in (({0, 1, 2}, [0, 2]), ({1}, [1, 0]), ({1, 2}, [1, 2])):
        branches, _ = spanning_branches(system, (), stated)
        assert [branch.joint for branch in branches] == joints
