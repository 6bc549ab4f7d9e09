"""An arm of two links learns to bring its tip to points in a plane: a task of one's own."""

import jax
import jax.numpy as jnp

import jaxjoints as jj
from jaxjoints import environments, learning

LENGTH, JOINTS = 0.5, ("shoulder", "elbow")  # of each link [m]


@jj.struct
class Reacher(environments.Environment):
    """How episodes start, what they aim at, what the agent sees and what it earns."""

    def draw(self, key):
        """Both angles within 0.5 rad of a bent arm, at rest."""
        shoulder, elbow = jax.random.uniform(key, (2, 1), minval=-0.5, maxval=0.5)
        return self.system.state(q={"shoulder": shoulder, "elbow": 1.5 + elbow})

    def goal(self, key):
        """The point [m], one that angles within 1 rad of the bent arm reach, shape (2,)."""
        return tip(jax.random.uniform(key, (2,), minval=-1.0) + jnp.array([0.0, 1.5]))

    def observe(self, state, qd, goal):
        """Directions of the links, speeds of the joints, and the way from the tip to the goal."""
        return jnp.concatenate([jnp.cos(state.q), jnp.sin(state.q), qd / 3, goal - tip(state.q)])

    def judge(self, state, qd, goal, action):
        """Minus the distance from the goal [m]; no episode ends before its time limit."""
        # Protects the slope of the root where the tip is at the goal.
        distance = jnp.sqrt(jnp.sum((goal - tip(state.q)) ** 2) + 1e-6)
        return {"near": -distance}, False


def tip(q):
    """Where the tip is in the plane [m]."""
    angle = jnp.cumsum(q)
    return LENGTH * jnp.stack([jnp.sum(jnp.cos(angle)), jnp.sum(jnp.sin(angle))])


def reacher():
    """Links of 0.2 kg, without gravity; an action of 1 is 3 N m. Episodes last 50 x 0.04 s."""
    world, before = jj.SystemBuilder(gravity=(0.0, 0.0, 0.0)), {}
    for name in JOINTS:
        world.body(name, mass=0.2, inertia=(2e-4, 0.004, 0.004), com=(LENGTH / 2, 0.0, 0.0))
        world.joint(name, jj.Hinge((0.0, 0.0, 1.0)), child=name, laws=jj.Damping(1.0), **before)
        before = {"parent": name, "frame_D": (LENGTH, 0.0, 0.0)}
    return Reacher(*world.build(), [3.0, 3.0], 0.02, actuated=JOINTS, substeps=2, limit=50)


def distance(task, parameters):
    """Mean distance of the tip from 64 goals at the end of an episode [m]."""
    episode = task.reset(jax.random.split(jax.random.key(1), 64))
    _, seen = environments.unroll(task, episode, learning.mean, parameters, steps=task.limit)
    return -float(jnp.mean(seen.metrics["near"][-1]))


def main():
    """Prints and asserts the distance that is left without training and with it."""
    task = reacher()
    policy = learning.short_horizon(task, jax.random.key(0), iterations=100, window=50).parameters
    before, after = distance(task, jax.tree.map(jnp.zeros_like, policy)), distance(task, policy)
    print(f"the tip ends {1e3 * after:.0f} mm from its goal, {1e3 * before:.0f} mm without motors")
    assert after < 0.05 and after < before / 5


if __name__ == "__main__":
    main()
