"""A pole balanced on a cart by a linear-quadratic regulator.

The linear model of one time step about the upright pole gives the gains, by Riccati's recursion.
The regulator then brings poles that start tilted upright, and the carts back to where they began,
in the simulation with all its nonlinear terms.
"""

import jax
import jax.numpy as jnp
import numpy as np

import jaxjoints as jj

DT, STEPS = 0.01, 500
HORIZON = 2000  # steps of Riccati's recursion
TILTS = np.array([-0.3, -0.1, 0.1, 0.3])  # of the poles at the start [rad]


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

    return jax.lax.scan(earlier, Q, None, length=HORIZON)[1][-1]


def balance(state, inputs):
    """The force on the cart from the deviation of coordinates and speeds."""
    system, K = inputs.shared
    x = jnp.concatenate([state.q, jj.coordinate_speeds(system, state)])
    return jj.Control(effort=jnp.concatenate([-K @ x, jnp.zeros(1)]))


def main():
    """Prints and asserts how far the poles are from upright in the end."""
    jax.config.update("jax_enable_x64", True)
    system, upright = cart_and_pole()
    model = jj.dynamics.linear_model(system, upright, actuated="rail", dt=DT)
    free = np.abs(np.linalg.eigvals(model.A)).max()
    K = gains(model.A, model.B, jnp.diag(jnp.array([10.0, 10.0, 1.0, 1.0])), jnp.eye(1))
    closed = np.abs(np.linalg.eigvals(model.A - model.B @ K)).max()
    print(f"largest factor of a deviation in a step: {free:.4f}, with the regulator {closed:.4f}")
    assert free > 1 > closed

    start = system.state(q={"pivot": TILTS})
    regulator = jj.Controller(balance, shared=(system, K))
    end, _, _ = jj.rollout(system, start, regulator, dt=DT, steps=STEPS, record_every=STEPS)
    off = np.abs(jj.coordinates(system, end)).max(axis=1)
    print(f"after {DT * STEPS:.0f} s: carts within {off[0]:.1e} m, poles within {off[1]:.1e} rad")
    assert off.max() < 1e-2


if __name__ == "__main__":
    main()
