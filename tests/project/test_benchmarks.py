"""The benchmarks: mechanisms that are the same for all engines, and programs for a GPU."""

import sys
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxjoints import Limits, rollout
from jaxjoints.algebra.compiler import traced_for
from support.mechanisms import chain

FOLDER = Path(__file__).parents[1] / "benchmarks"
# Rounding of poses at the ends of long chains.
ROUNDING = 1e-12


@pytest.fixture(scope="module", autouse=True)
def folder():
    """The benchmarks' own modules, which run as scripts."""
    sys.path.insert(0, str(FOLDER))
    yield
    sys.path.remove(str(FOLDER))


def test_a_limited_chain_lowers_for_a_gpu():
    """In operations of XLA alone: no kernel, and no call of a library."""
    system, state = chain(2, laws=[Limits(-0.5, 0.5)])
    with traced_for("gpu"):
        program = jax.jit(partial(rollout, dt=1e-3, steps=4, record_every=4))
        lowered = program.trace(system, state).lower(lowering_platforms=("cuda",)).as_text()
    assert "stablehlo.while" in lowered
    assert "custom_call" not in lowered


@pytest.mark.parametrize(("throws", "most"), [(1, 100), (100, 100), (101, 100), (1300, 100)])
def test_tiles_of_throws_hold_all_of_them(throws, most):
    from throws import tiles

    count, size = tiles(throws, most)
    assert 1 <= size <= most and throws <= count * size < throws + count


def test_kernels_of_a_loop_count_each_turn():
    from engines.hlo import kernels

    def count(steps):
        def multiplied(x):
            return jax.lax.scan(lambda x, _: (jnp.sin(x @ x), None), x, None, length=steps)[0]

        x = jnp.ones((64, 64))
        return kernels(jax.jit(multiplied).lower(x).compile().as_text())

    few, more = count(10), count(30)
    per_turn = (more - few) / 20
    assert per_turn >= 2  # a product and a sine
    assert few >= 10 * per_turn


@pytest.mark.parametrize("name", ["fourbar", "stewart"])
def test_loops_are_closed_where_a_batch_starts(name):
    from cases import CASES
    from description import rotated

    mechanism = CASES[name]()
    poses = mechanism.poses(mechanism.start(5)[0])
    for loop in mechanism.loops:
        place = mechanism.place(loop.body) + loop.point
        ends = []
        for body in (loop.body, loop.other):
            p, q = poses[body]
            ends.append(p + rotated(q, place - mechanism.place(body)))
        np.testing.assert_allclose(*ends, atol=ROUNDING)


@pytest.mark.slow
def test_jaxjoints_starts_where_a_mechanism_is_described():
    from cases import CASES
    from description import rotated, state, system

    mechanism = CASES["stewart"]()
    start = state(mechanism, system(mechanism), 2)
    poses = mechanism.poses(mechanism.start(2)[0])
    for i, body in enumerate(mechanism.bodies):
        p, q = poses[body.name]
        centre = p + rotated(q, body.com)
        np.testing.assert_allclose(start.position[:, i], centre, atol=ROUNDING)


@pytest.mark.parametrize("name", ["chain5", "chain10limits", "fourbar", "stewart", "humanoid"])
def test_mujoco_reads_the_same_mechanism(name):
    mujoco = pytest.importorskip("mujoco")
    from cases import CASES
    from description import mjcf

    mechanism = CASES[name]()
    model = mujoco.MjModel.from_xml_string(mjcf(mechanism, 1e-3))
    data = mujoco.MjData(model)
    q, v = mechanism.start(2)
    assert v.shape == (2, model.nv)
    for one in range(2):
        data.qpos[:] = q[one]
        mujoco.mj_forward(model, data)
        expected = [p[:, one] for p, _ in mechanism.poses(q).values()]
        np.testing.assert_allclose(data.xpos[1:], expected, atol=ROUNDING)
    np.testing.assert_allclose(model.body_mass[1:], [body.mass for body in mechanism.bodies])


def test_a_lifted_robot_has_its_lowest_point_above_the_ground():
    mujoco = pytest.importorskip("mujoco")
    from support.mujoco_states import lifted

    text = """<mujoco><worldbody><geom type="plane" size="1 1 1"/><body>{}
        <geom type="box" size="0.1 0.2 0.3"/></body></worldbody></mujoco>"""
    for joint, place in (("<freejoint/>", 2), ('<joint type="slide" axis="0 0 -1"/>', 0)):
        m = mujoco.MjModel.from_xml_string(text.format(joint))
        sign = -1 if place == 0 else 1
        for start in (-0.25, 2.0):
            qpos = m.qpos0.copy()
            qpos[place] = sign * start
            assert lifted(m, qpos, 1e-3)[place] * sign == pytest.approx(0.301)


def test_a_robots_mjcf_has_what_it_includes_and_no_meshes(tmp_path):
    pytest.importorskip("mujoco")
    from package_robots import flattened, without_meshes

    (tmp_path / "outer.xml").write_text(
        '<mujoco><include file="inner.xml"/><worldbody><geom name="last"/></worldbody></mujoco>'
    )
    (tmp_path / "inner.xml").write_text(
        '<mujoco><asset><mesh name="m" file="m.stl"/></asset><include file="core.xml"/></mujoco>'
    )
    (tmp_path / "core.xml").write_text(
        '<mujoco><worldbody><geom mesh="m"/><geom name="first"/></worldbody></mujoco>'
    )
    root = without_meshes(flattened(tmp_path / "outer.xml"))
    assert [child.tag for child in root] == ["asset", "worldbody", "worldbody"]
    assert [geom.attrib for geom in root.iter("geom")] == [{"name": "first"}, {"name": "last"}]
    assert not list(root.iter("mesh"))


def test_a_cube_is_held_by_two_pads_with_a_clearance():
    mujoco = pytest.importorskip("mujoco")
    from package_robots import CLEARANCE, holding

    pads = "".join(
        f"""<body><joint name="{joint}" type="slide" axis="1 0 0"/>
        <geom name="{geom}" type="box" size="0.004 0.01 0.02" mass="1"/></body>"""
        for joint, geom in (("left", "a"), ("right", "b"))
    )
    text = f'<mujoco><worldbody><body quat="1 1 0 0.5">{pads}</body></worldbody></mujoco>'
    start = {"left": -0.0242 - CLEARANCE, "right": 0.0242 + CLEARANCE}
    for half, gap in ((0.02, 2e-4 + CLEARANCE), (None, CLEARANCE)):
        m = mujoco.MjModel.from_xml_string(holding(text, start, ("a", "b"), half))
        d = mujoco.MjData(m)
        for name, value in start.items():
            d.joint(name).qpos[0] = value
        mujoco.mj_forward(m, d)
        cube = m.geom("cube").id
        for pad in ("a", "b"):
            distance = mujoco.mj_geomDistance(m, d, m.geom(pad).id, cube, 1.0, np.zeros(6))
            assert distance == pytest.approx(gap, abs=1e-9)


@pytest.mark.parametrize(("product", "kept"), [("0.5", "0.5"), ("1.5", "0")])
def test_an_inertia_that_no_body_has_loses_its_products(product, kept):
    pytest.importorskip("mujoco")
    from xml.etree import ElementTree

    from package_robots import mend

    numbers = {"ixx": "1", "iyy": "1", "izz": "1", "ixy": product, "ixz": "0", "iyz": "0"}
    inertia = ElementTree.Element("inertia", numbers)
    mend(inertia)
    assert inertia.get("ixy") == kept
