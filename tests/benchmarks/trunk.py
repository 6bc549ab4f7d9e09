"""A task of many actions: a trunk of twelve hinges with elastic stops brings its tip to a point."""

import jax
import jax.numpy as jnp
import numpy as np

import jaxjoints as jj
from jaxjoints import environments

HINGES, LENGTH = tuple(f"hinge {i}" for i in range(12)), 0.1  # of each link [m]
# About y and x in turn; 3 N m at the root, 0.3 N m at the tip.
AXES = np.tile([(0.0, 1.0, 0.0), (1.0, 0.0, 0.0)], (len(HINGES) // 2, 1))
EFFORT = np.linspace(3.0, 0.3, len(HINGES))


@jj.struct
class Trunk(environments.Environment):
    """A trunk that hangs from the world, with a motor at each hinge.

    Action: moments of the hinges, shares of `EFFORT`.
    Observation (30): the angles, a fifth of their speeds [rad/s], the point, and the way to it from
    the tip [m].
    Reward: "near", minus that distance in lengths of the trunk; "effort", -0.02 times the mean
    square of the action.
    Ends: never.
    Start: angles within 0.1 rad of straight down; the point is where angles within 0.6 rad put the
    tip; stops begin at 0.5 rad.
    """

    def draw(self, key):
        x = jax.random.uniform(key, (len(HINGES), 1), self.start.q.dtype, -0.1, 0.1)
        return self.system.state(q=dict(zip(HINGES, x, strict=True)))

    def goal(self, key):
        return tip(jax.random.uniform(key, (len(HINGES),), self.start.q.dtype, -0.6, 0.6))

    def observe(self, state, qd, goal):
        return jnp.concatenate([state.q, qd / 5, goal, goal - tip(state.q)])

    def judge(self, state, qd, goal, action):
        way = (goal - tip(state.q)) / (LENGTH * len(HINGES))
        # Protects the slope of the root where the tip is at the point.
        distance = jnp.sqrt(jnp.sum(way**2) + 1e-6)
        parts = {"near": -distance, "effort": -0.02 * jnp.mean(action**2)}
        return parts, jnp.zeros((), bool)


def tip(q):
    """Where angles (12,) put the tip [m]."""
    R, p = jnp.eye(3, dtype=q.dtype), jnp.zeros(3, q.dtype)
    for i, angle in enumerate(q):
        turn = jj.Pose.about_x(angle) if i % 2 else jj.Pose.about_y(angle)
        R = R @ turn.R
        p = p - LENGTH * R[:, 2]
    return p


def trunk():
    """Links of 50 g; episodes of 100 control steps of 20 ms."""
    world, before = jj.SystemBuilder(), {}
    stops = jj.Limits(-0.5, 0.5, stiffness=5.0, damping=0.05)
    for name, axis in zip(HINGES, AXES, strict=True):
        world.body(name, mass=0.05, inertia=(5e-5, 5e-5, 1e-5), com=(0.0, 0.0, -LENGTH / 2))
        laws = [stops, jj.Damping(0.05), jj.Armature(1e-3)]
        world.joint(name, jj.Hinge(axis), child=name, laws=laws, **before)
        before = {"parent": name, "frame_D": (0.0, 0.0, -LENGTH)}
    system, start = world.build()
    return Trunk(system, start, EFFORT, 0.004, actuated=HINGES, substeps=5, limit=100)
