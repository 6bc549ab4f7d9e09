"""Batches spread over devices: eight of one process, and those of two processes."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]

# What both programs below simulate: chains that run into a stop, each at its own time.
CHAINS = """
import conftest, sys
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec
import jaxjoints as jj
from support import mechanisms

BATCH, STEPS = 32, 20
system, state = mechanisms.chain(1, laws=[jj.Limits(-0.5, 0.5)], qd=10.0)
gains = jnp.linspace(0.2, 2.0, BATCH)
speeds = gains[None, None]
states = jj.replicate(state, BATCH)
states = jj.replace(states, omega=states.omega * speeds, velocity=states.velocity * speeds)

def spread(tree, mesh):
    def put(x):
        axes = PartitionSpec(*(None,) * (x.ndim - 1), "batch")
        here = NamedSharding(mesh, axes)
        return jax.make_array_from_callback(x.shape, here, lambda part: np.asarray(x)[part])
    return jax.tree.map(put, tree)

def noisy(state, inputs):
    effort = inputs.batched * jax.random.normal(inputs.key, (1,))
    return jj.Control(effort=effort), inputs.memory + 1

def moved(mass, states, gains):
    changed = jj.replace(system, mass=mass)
    each = {"batched": gains, "memory": jnp.zeros_like(gains)}
    control = jj.Controller(noisy, **each, key=jax.random.key(0))
    return jj.rollout(changed, states, control, dt=5e-3, steps=STEPS, tile=4)

def loss(mass, states, gains):
    final, path, _ = moved(mass, states, gains)
    return jnp.sum(path.position**2) + jnp.sum(final.omega**2)

def same(found, expected, rounding=0.0):
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        for part in x.addressable_shards:
            wanted = np.asarray(y)[part.index]
            np.testing.assert_allclose(part.data, wanted, rtol=rounding, atol=rounding)
"""

EIGHT_DEVICES = (
    f"import jaxjoints\njaxjoints.use_all_cores(8)\nimport pytest\n{CHAINS}"
    + """
mass = system.mass
alone = moved(mass, states, gains)
slope = jax.grad(loss)(mass, states, gains)
step = jax.jit(lambda s: jj.step(system, s, dt=5e-3))
read = (jj.coordinates, jj.project)
for kind in (AxisType.Auto, AxisType.Explicit):
    mesh = jax.make_mesh((8,), ("batch",), axis_types=(kind,))
    with jax.set_mesh(mesh):
        there, weights = spread((states, gains), mesh)
        final, path, controls = moved(mass, there, weights)
        for x in (final.position, path.position, path.q, controls.memory):
            assert len(x.sharding.device_set) == 8 and not x.sharding.is_fully_replicated
        # The same tile: the same bits.
        same((final, path, controls.memory), (*alone[:2], alone[2].memory))
        same(jax.grad(loss)(mass, there, weights), slope, 1e-12)
        # A batch of four in place of one of 32: to rounding.
        for function in read:
            same(function(system, there), function(system, states), 1e-12)
        # In a program of the user, where XLA divides what JAX does not know.
        same(step(there), step(states), 1e-12)
        program = step.lower(there).compile().as_text()
    # Each device tells whether one of its environments is good: one item of eight.
    sent = [line for line in program.splitlines() if "-gather(" in line]
    assert all("[8]{" in line for line in sent), sent

with pytest.raises(ValueError, match="wider than the 4 environments that each of 8 devices"):
    jj.rollout(system, there, dt=5e-3, steps=2, tile=8)
print("equal")
"""
)

TWO_PROCESSES = (
    """
import sys
import jax
jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 2)
jax.distributed.initialize(f"localhost:{sys.argv[1]}", num_processes=2, process_id=int(sys.argv[2]))
"""
    + CHAINS
    + """
mass = system.mass
alone = moved(mass, states, gains)
slope = jax.grad(loss)(mass, states, gains)
mesh = jax.make_mesh((4,), ("batch",))
with jax.set_mesh(mesh):
    there, weights = spread((states, gains), mesh)
    final, path, controls = moved(mass, there, weights)
    assert len(final.position.sharding.device_set) == 4
    same((final, path, controls.memory), (*alone[:2], alone[2].memory))
    same(jax.grad(loss)(mass, there, weights), slope, 1e-12)
print("equal")
"""
)


def environment():
    return os.environ | {"PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS.parent)])}


@pytest.mark.slow
def test_environments_on_eight_devices_are_those_of_one():
    code = [sys.executable, "-c", EIGHT_DEVICES]
    found = subprocess.run(code, env=environment(), capture_output=True, text=True)
    assert found.stdout == "equal\n", found.stderr


@pytest.mark.slow
def test_environments_of_two_processes_are_those_of_one():
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    code = [sys.executable, "-c", TWO_PROCESSES, str(port)]
    both = [
        subprocess.Popen(
            [*code, str(i)],
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for i in range(2)
    ]
    results = [process.communicate(timeout=600) for process in both]
    # The library that connects them says so first.
    last = [out.splitlines()[-1:] for out, _ in results]
    assert last == [["equal"], ["equal"]], [error[-2000:] for _, error in results]
