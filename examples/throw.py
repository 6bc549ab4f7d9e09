"""A ball that is thrown by gradients through its bounces.

A ball bounces on the floor, off a wall, and on the floor again. Which velocity at the start brings
it to a place above the floor at a given time? Newton's method finds it from the Jacobian of the
place by the velocity. The Jacobian is right where each bounce is located within its time step
(`time_of_impact=True`), because it has in it how the bounce moves in time. The default scheme lets
a bounce take a whole step: its Jacobian leaves this out, and Newton's method gets lost.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

import jaxjoints as jj

DT, STEPS = 2e-3, 650
RADIUS, WALL = 0.05, 2.0  # of the ball, and where the wall stands along x [m]
TARGET = np.array((0.9, 0.4))  # x and z of the ball after DT STEPS [m]
GUESS = np.array((3.0, 1.0))  # velocity along x and z at the start [m/s]
ROUNDS = 6
SCHEMES = {
    "bounces located in the step": jj.SemiImplicitEuler(time_of_impact=True),
    "bounces of a whole step": jj.SemiImplicitEuler(),
}


def ball_before_a_wall():
    """A ball of 0.1 kg at a height of 0.5 m above the floor, 2 m before a wall."""
    world = jj.SystemBuilder(gravity=(0.0, 0.0, -9.81))
    inertia = (0.4 * 0.1 * RADIUS**2,) * 3
    world.body("ball", mass=0.1, inertia=inertia, pose=(0.0, 0.0, 0.5))
    ball, plane = jj.shapes.Sphere(RADIUS), jj.shapes.HalfSpace()
    wall = jj.Pose.along_x(WALL) @ jj.Pose.about_y(-np.pi / 2)
    bounce = {"child": "ball", "friction": 0.0, "restitution": 0.8}
    world.contact("floor", ball, plane, **bounce)
    world.contact("wall", ball, plane, frame_D=wall, **bounce)
    return world.build()


def thrown(system, state, velocity, scheme):
    """Where the ball is at the end, (x, z)."""
    start = state.velocity.at[(0, 2), 0].set(velocity)
    state = jj.replace(state, velocity=start)
    end, _ = jj.rollout(
        system, state, dt=DT, steps=STEPS, record_every=STEPS, record=None, scheme=scheme
    )
    return end.position[(0, 2), 0]


def misses(system, state, scheme):
    """The distance from the target [m] before each round of Newton's method, and the velocity.

    A step that does not come nearer is halved, eight times at most.
    """
    place = partial(thrown, system, state, scheme=scheme)
    at_and_slope = jax.jit(jax.jacfwd(lambda v: (place(v),) * 2, has_aux=True))
    velocity, found = jnp.asarray(GUESS), []
    J, at = at_and_slope(velocity)
    for _ in range(ROUNDS):
        found.append(float(jnp.linalg.norm(at - TARGET)))
        step = -jnp.linalg.solve(J, at - TARGET)
        for halvings in range(9):
            ahead = velocity + step / 2**halvings
            J, at = at_and_slope(ahead)
            if jnp.linalg.norm(at - TARGET) < found[-1]:
                break
        velocity = ahead
    return np.array(found), np.asarray(velocity)


def main():
    """Prints the misses of both schemes; asserts that the first hits its target, the other not."""
    jax.config.update("jax_enable_x64", True)
    system, state = ball_before_a_wall()
    for name, scheme in SCHEMES.items():
        miss, velocity = misses(system, state, scheme)
        print(f"{name}: misses by " + ", ".join(f"{x:.1e}" for x in miss) + " m")
        print(f"  thrown with {velocity[0]:.4f} m/s along x, {velocity[1]:.4f} m/s upwards")
        assert (miss[-1] < 1e-9) == scheme.time_of_impact


if __name__ == "__main__":
    main()
