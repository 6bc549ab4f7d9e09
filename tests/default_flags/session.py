"""A session as users have it: default flags of JAX and XLA, float32. Prints what it finds as JSON.

Its arguments are names of the functions that find something.
"""

import json
import os
import sys

import jax
import jax.numpy as jnp
import numpy as np

import jaxjoints as jj

DT, STEPS = 1e-2, 100
START, SPEED, FLOOR, MASS, G = 0.3, 0.2, -0.1, 2.0, 9.81
STIFFNESS, NOISE = 50.0, (1e-3, 1e-3)
# A rod whose ends slide on two rails at right angles turns at a constant speed. Two of them: the
# first turns freely for all the time, the second reaches the upper stop of its angle.
LENGTH, MOMENT, TURNS = 1.0, 0.1, 1.0
ANGLES, UPPER = (0.4, 0.7), 0.75
FINE, TURNING = 1e-3, 200


def flags():
    """Flags of JAX and XLA that the tests besides these change."""
    return {
        "xla": os.environ.get("XLA_FLAGS", ""),
        "x64": jax.config.jax_enable_x64,
        "promotion": str(jax.config.jax_numpy_dtype_promotion),
        "ranks": str(jax.config.jax_numpy_rank_promotion),
    }


def falling_block():
    """A block on a vertical rail above a hard stop."""
    world = jj.SystemBuilder(gravity=(0.0, 0.0, -G))
    world.body("block", mass=MASS, inertia=(0.1, 0.1, 0.1))
    stop = jj.Limits(lower=FLOOR)
    rail = jj.Slider((0.0, 0.0, 1.0))
    world.joint("rail", rail, child="block", q=START, qd=SPEED, laws=[stop])
    return world.build()


def rods():
    """Rods in a plane, one end on the rail along x, one on the rail along y: loops with stops."""
    world = jj.SystemBuilder(gravity=(0.0, 0.0, 0.0))
    world.body("rod", mass=MASS, inertia=(0.1, 0.1, MOMENT))
    back, front = (-LENGTH / 2, 0.0, 0.0), (LENGTH / 2, 0.0, 0.0)
    x_to_y = jj.Pose.about_z(jnp.asarray(np.pi / 2))
    angle, slot, stop = ANGLES[0], jj.SlottedHinge(), jj.Limits(upper=UPPER, coordinate=1)
    slid = (-LENGTH * np.cos(angle), angle), (LENGTH * TURNS * np.sin(angle), TURNS)
    world.joint("x", slot, child="rod", frame_C=back, q=slid[0], qd=slid[1], laws=[stop])
    world.joint("y", slot, child="rod", frame_C=front, frame_D=x_to_y)
    system, _ = world.build()
    # Gravity and stops of their own have gradients of their own.
    laws = jj.replace(stop, upper=jnp.full(2, UPPER))
    system = jj.replace(system, gravity=jnp.zeros((3, 2))).with_joint("x", laws=(laws,))
    angles = jnp.asarray(ANGLES)
    q = jnp.stack([-LENGTH * jnp.cos(angles), angles])
    qd = jnp.stack([LENGTH * TURNS * jnp.sin(angles), jnp.full(2, TURNS)])
    return system, system.state(q={"x": q}, qd={"x": qd})


def pushed_block():
    """A block on a spring, whose stiffness is to be identified."""
    world = jj.SystemBuilder(gravity=(0.0, 0.0, 0.0))
    world.body("block", mass=MASS, inertia=(0.1, 0.1, 0.1))
    spring = jj.SpringDamper(STIFFNESS, 0.5)
    world.joint("rail", jj.Slider((1.0, 0.0, 0.0)), child="block", q=0.1, laws=[spring])
    return world.build()


def dtypes(*trees):
    """Names of the types of all floating-point leaves."""
    leaves = [np.asarray(x) for x in jax.tree.leaves(trees)]
    return sorted({x.dtype.name for x in leaves if np.issubdtype(x.dtype, np.floating)})


def build_step_and_rollout(found):
    system, state = falling_block()
    found["built"] = dtypes(system, state)
    once, info = jax.jit(jj.step)(system, state, dt=DT)
    found["step"] = [float(once.position[2, 0]), float(info.qd[0]), bool(info.ok)]
    record = jj.readout(system, coordinates=True, limits=True, energy=True)
    final, readings = jj.rollout(system, state, dt=DT, steps=STEPS, record=record)
    found["rolled"] = dtypes(once, info, final, readings)
    found["heights"] = np.asarray(readings.coordinates["rail"])[:, 0].tolist()
    found["stop"] = np.asarray(readings.limits["rail"])[:, 0].tolist()
    found["energies"] = np.asarray(readings.energy.total).tolist()


def loop_with_a_stop(found):
    system, states = rods()

    def heights(system, dt, steps):
        final, _ = jj.rollout(system, states, dt=dt, steps=steps, record_every=steps)
        return jnp.sum(final.position[1]), final

    slope, final = jax.grad(heights, has_aux=True)(system, FINE, TURNING)
    finer, _ = jax.grad(heights, has_aux=True)(system, FINE / 2, 2 * TURNING)
    found["differentiated"] = dtypes(slope, final)
    found["centres"] = np.asarray(final.position[:, 0]).tolist()
    found["turned"] = np.asarray(final.quaternion[:, 0]).tolist()
    found["by gravity"] = [np.asarray(x.gravity).tolist() for x in (slope, finer)]
    found["by mass"] = float(slope.mass[0])
    found["by stop"] = np.asarray(slope.joint("x").laws[0].upper).tolist()


def identify(found):
    system, state = pushed_block()
    _, states = jj.rollout(system, state, dt=DT, steps=20)
    motion = jj.identification.Motion.from_poses(states.position, states.quaternion, dt=DT)
    start = motion.start(jax.tree.map(lambda x: x[1], states))
    (spring,) = system.joint("rail").laws

    def residual(values, follow):
        stiff = values["stiffness"]
        laws = (jj.replace(spring, stiffness=stiff),)
        changed, begun = system.with_joint("rail", laws=laws), jj.replicate(start, *stiff.shape)
        return jj.identification.pose_residuals(
            changed, begun, motion, follow=follow, noise=NOISE, dt=DT
        )

    unknowns = {"stiffness": jj.identification.Unknown(5.0, 500.0, log=True)}
    answer = jj.identification.identify(
        residual, unknowns, key=jax.random.key(0), starts=8, iterations=20, polish=4
    )
    found["stiffness"] = float(answer.values["stiffness"])
    found["converged"] = int(answer.converged)


if __name__ == "__main__":
    found = {"flags": flags()}
    for name in sys.argv[1:]:
        globals()[name](found)
        print(name, file=sys.stderr)
    print(json.dumps(found))
