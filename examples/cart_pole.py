"""A cart swings its pole up by a plan, and a regulator balances the pole there.

Iterative LQR plans forces on the cart that bring the hanging pole upright. Poles that start beside
the plan miss its end. A linear-quadratic regulator takes over, brings them upright and holds them.
"""

import jax
import jax.numpy as jnp
import numpy as np

import jaxjoints as jj

DT, HORIZON, STEPS = 0.02, 120, 480  # step [s]; steps of the plan and of the whole motion


def cart_and_pole():
    """A cart of 1 kg on a rail along x, a pole of 0.2 kg whose centre is 0.5 m above its pivot."""
    world = jj.SystemBuilder(gravity=(0.0, 0.0, -9.81))
    world.body("cart", mass=1.0, inertia=(0.01, 0.01, 0.01))
    world.body("pole", mass=0.2, inertia=(0.017, 0.017, 0.001), com=(0.0, 0.0, 0.5))
    world.joint("rail", jj.Slider(axis=(1.0, 0.0, 0.0)), child="cart")
    world.joint("pivot", jj.Hinge(axis=(0.0, 1.0, 0.0)), child="pole", parent="cart")
    return world.build()


def gains(A, B, Q, R):
    """K of the control u = -K x that is least in Σ xᵀQ x + uᵀR u, by Riccati's recursion."""

    def earlier(P, _):
        K = jnp.linalg.solve(R + B.T @ P @ B, B.T @ P @ A)
        return Q + A.T @ P @ (A - B @ K), K

    return jax.lax.scan(earlier, Q, None, length=2000)[1][-1]


def drive(state, inputs):
    """The force on the cart: that of the plan, after it that of the regulator."""
    system, K, plan = inputs.shared
    x = jnp.concatenate([state.q, jj.coordinate_speeds(system, state)])
    i = jnp.round(state.time / DT).astype(int)
    force = jnp.where(i < HORIZON, plan[jnp.minimum(i, HORIZON - 1)], -K @ x)
    return jj.Control(effort=jnp.concatenate([force, jnp.zeros(1)]))


def main():
    """Prints and asserts how far carts and poles are from where they should be."""
    jax.config.update("jax_enable_x64", True)
    system, upright = cart_and_pole()
    problem = jj.optimization.Problem(
        system,
        system.state(q={"pivot": np.pi}),
        lambda knot, u: 1e-3 * jnp.sum(u**2),
        lambda knot: 100 * jnp.sum(knot.q**2) + 10 * jnp.sum(knot.qd**2),
        **{"horizon": HORIZON, "dt": DT, "actuated": "rail", "lower": -15.0, "upper": 15.0},
    )
    push = 2.0 * np.cos(2 * np.pi * np.arange(HORIZON) * DT / 1.5)[:, None]
    plan = jj.optimization.ilqr(problem, push, iterations=50)
    model = jj.dynamics.linear_model(system, upright, actuated="rail", dt=DT)
    K = gains(model.A, model.B, jnp.diag(jnp.array([10.0, 10.0, 1.0, 1.0])), jnp.eye(1))
    start = system.state(q={"pivot": np.pi + np.array([-0.02, 0.0, 0.02])})
    controller = jj.Controller(drive, shared=(system, K, plan.u))
    _, motion, _ = jj.rollout(system, start, controller, dt=DT, steps=STEPS, record_every=HORIZON)
    planned, *_, held = np.abs(motion.q).max(axis=2)
    print(f"at the end of the plan poles are within {planned[1]:.2f} rad")
    print(f"in the end carts within {held[0]:.1e} m, poles within {held[1]:.1e} rad")
    assert 1.0 > planned[1] > 1e-2 > held.max()


if __name__ == "__main__":
    main()
