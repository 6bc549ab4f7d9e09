"""A session as users have it: JAX's default flags, float32. Prints what it finds as JSON."""

import json
import sys

import jax
import jax.numpy as jnp
import numpy as np

import jaxjoints as jj

DT, STEPS = 1e-2, 100
START, SPEED, FLOOR, MASS, G = 0.3, 0.2, -0.1, 2.0, 9.81
STIFFNESS, NOISE = 50.0, (1e-3, 1e-3)
# The planar four-bar with joints at 0, A, B and P: two cranks of length 1 and a bar between them.
CRANK_ANGLE, CRANK_SPEED = 0.5, 1.0


def flags():
    """JAX's flags that the tests besides these change."""
    return {
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


def parallelogram():
    """Two parallel cranks about y with a bar between them: a loop with redundant rows."""
    hinge = jj.Hinge((0.0, -1.0, 0.0))
    world = jj.SystemBuilder(gravity=(0.0, 0.0, -G))
    for name in ("left", "right", "bar"):
        world.body(name, mass=1.0, inertia=(0.01, 0.1, 0.1))
    turned = {"q": CRANK_ANGLE, "qd": CRANK_SPEED}
    start, end = (-0.5, 0.0, 0.0), (0.5, 0.0, 0.0)
    world.joint("A", hinge, child="left", frame_C=start, **turned)
    world.joint("D", hinge, child="right", frame_C=start, frame_D=(1.0, 0.0, 0.0), **turned)
    back = {"q": -CRANK_ANGLE, "qd": -CRANK_SPEED}
    world.joint("B", hinge, child="bar", parent="left", frame_C=start, frame_D=end, **back)
    world.joint("C", hinge, child="bar", parent="right", frame_C=end, frame_D=end)
    return world.build()


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


def gradient(found):
    system, state = falling_block()

    def height(system):
        """Some steps later, before the stop is reached."""
        return jj.rollout(system, state, dt=DT, steps=10, record_every=10)[0].position[2, 0]

    slope = jax.grad(height)(system)
    found["slopes"] = [float(slope.gravity[2]), float(slope.mass[0])]
    found["differentiated"] = dtypes(slope)


def loop(found):
    system, state = parallelogram()
    scheme = jj.SemiImplicitEuler(projections=1)
    final, _ = jj.rollout(system, state, dt=DT, steps=40, record_every=40, scheme=scheme)
    found["gap"] = float(jnp.max(jnp.abs(jnp.concatenate(jax.tree.leaves(gaps(system, final))))))
    A, D, B, C = (float(x) for x in jj.coordinates(system, final))
    found["angles"] = [A, D, B, C]


def gaps(system, state):
    return [jnp.ravel(x) for x in jax.tree.leaves(jj.joint_errors(system, state))]


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
    for part in (build_step_and_rollout, gradient, loop, identify):
        part(found)
        print(part.__name__, file=sys.stderr)
    print(json.dumps(found))
