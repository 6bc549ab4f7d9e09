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
