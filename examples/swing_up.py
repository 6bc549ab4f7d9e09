"""An acrobot swings up: two rods hang from a pivot, and a motor between them brings them upright.

The motor is at the elbow alone; nothing drives the pivot. Iterative LQR within the motor's limit
plans the motion from several first guesses at once. The best plan is simulated again.
"""

import jax
import jax.numpy as jnp
import numpy as np

import jaxjoints as jj
from jaxjoints import optimization

LENGTH, MASS, GRAVITY = 1.0, 1.0, 9.81  # of each rod [m], [kg], and [m/s²]
TORQUE = 8.0  # the motor's largest [N m]
DT, SUBSTEPS, HORIZON = 0.01, 4, 100  # 4 s in all
GUESSES = 6
UPRIGHT = np.array([np.pi, 0.0])


def acrobot():
    """Two uniform rods on hinges about -y, so that positive angles swing tips towards x."""
    world = jj.SystemBuilder(gravity=(0.0, 0.0, -GRAVITY))
    across = MASS * LENGTH**2 / 12
    for name in ("upper", "lower"):
        inertia, com = (across, across, 1e-3), (0.0, 0.0, -LENGTH / 2)
        world.body(name, mass=MASS, inertia=inertia, com=com)
    hinge, end = jj.Hinge((0.0, -1.0, 0.0)), (0.0, 0.0, -LENGTH)
    world.joint("shoulder", hinge, child="upper")
    world.joint("elbow", hinge, child="lower", parent="upper", frame_D=end)
    return world.build()


def effort(knot, u):
    """A small price of torque, per interval."""
    return 1e-3 * jnp.sum(u**2)


def upright(knot):
    """How far the end is from standing still, upright."""
    return 100 * jnp.sum((knot.q - UPRIGHT) ** 2) + 10 * jnp.sum(knot.qd**2)


def main():
    """Prints and asserts how high the tip is at the end, and how still the rods are."""
    jax.config.update("jax_enable_x64", True)
    system, hanging = acrobot()
    problem = optimization.Problem(
        system,
        jj.replicate(hanging, GUESSES),
        effort,
        upright,
        horizon=HORIZON,
        dt=DT,
        substeps=SUBSTEPS,
        actuated="elbow",
        lower=-TORQUE,
        upper=TORQUE,
    )
    time = DT * SUBSTEPS * np.arange(HORIZON)[:, None, None]
    guess = 2.0 * np.cos(2 * np.pi * time / np.linspace(1.0, 3.0, GUESSES))
    plan = optimization.ilqr(problem, guess, iterations=100)
    print(plan)
    best = int(np.argmin(plan.cost))
    assert np.abs(plan.u).max() <= TORQUE

    run = {"dt": DT, "substeps": SUBSTEPS, "scheme": problem.scheme}
    control = jj.Control(effort=plan.control.effort[..., best])
    end, _ = jj.rollout(system, hanging, control, record_every=SUBSTEPS, **run)
    lower = jax.tree.map(lambda x: x[:, 1], jj.body_poses(system, end))
    height = float(lower.apply(np.array([0.0, 0.0, -LENGTH]))[2])
    kinetic = jj.energies(system, end).kinetic
    print(f"the tip ends {height:.3f} m above the pivot, of {2 * LENGTH:.0f} m")
    print(f"with {float(kinetic):.3f} J of motion, and {4 * MASS * GRAVITY * LENGTH:.1f} J higher")
    print(f"largest torque {np.abs(plan.u[..., best]).max():.1f} N m")
    assert height > 2 * LENGTH - 0.01
    assert kinetic < 0.1


if __name__ == "__main__":
    main()
