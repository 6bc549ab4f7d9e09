"""A task of many actions: eight tendons bring the tips of four fingers to four points."""

import jax
import jax.numpy as jnp

import jaxjoints as jj
from jaxjoints import environments
from jaxjoints.environments.finger import ARMS, KNUCKLES, LENGTHS, LOWER, UPPER, tip

FINGERS = 4
NAMES = tuple(f"{knuckle} {i}" for i in range(FINGERS) for knuckle in KNUCKLES)


@jj.struct
class Hand(environments.Environment):
    """Four fingers as in `environments.finger`, side by side, each with a point of its own.

    Action: tensions of the tendons that bend and stretch each finger, in turn, -1 for none.
    Observation (32): as of a finger, finger by finger.
    Reward: the mean of those of the fingers.
    Ends: never.
    Start: as of a finger.
    """

    def draw(self, key):
        x = jax.random.uniform(key, (len(NAMES), 1), self.start.q.dtype, maxval=0.1)
        return self.system.state(q=dict(zip(NAMES, x, strict=True)))

    def goal(self, key):
        share = jax.random.uniform(key, (FINGERS, len(KNUCKLES)), self.start.q.dtype)
        return tips(LOWER + share * (UPPER - LOWER)).ravel()

    def observe(self, state, qd, goal):
        return jnp.concatenate([state.q, qd / 20, ways(state.q, goal).ravel()])

    def judge(self, state, qd, goal, action):
        way = ways(state.q, goal)
        # Protects the slope of the root where a tip is at its point.
        near = jnp.sqrt(jnp.sum(way**2, axis=1) + 1e-6)
        tension = (1 + action) / 2
        parts = {"near": -jnp.mean(near), "effort": -0.02 * jnp.mean(tension**2)}
        return parts, jnp.zeros((), bool)

    def control(self, action):
        """Moments of all tendons at the knuckles."""
        tension = self.effort * (1 + jnp.clip(action, -1.0, 1.0)) / 2
        arms = jnp.asarray(ARMS, action.dtype)
        return jj.Control(effort=(tension.reshape(FINGERS, 2) @ arms).ravel())


def tips(q):
    """Where angles (fingers, 3) put the tips, (fingers, 2) [m]."""
    return jnp.stack([tip(x) for x in q])


def ways(q, goal):
    """From the tips to the points, in lengths of a finger, (fingers, 2)."""
    at = tips(q.reshape(FINGERS, -1))
    return (goal.reshape(FINGERS, 2) - at) / LENGTHS.sum()


def hand():
    """Fingers 20 mm apart; episodes of 100 control steps of 20 ms."""
    one, world = environments.finger(), jj.SystemBuilder(gravity=(0.0, 0.0, 0.0))
    mass, inertia = one.system.mass, one.system.inertia
    for i in range(FINGERS):
        before = {"frame_D": (0.0, 0.0, 0.02 * i)}
        for k, (name, length) in enumerate(zip(KNUCKLES, LENGTHS, strict=True)):
            inert = {"mass": mass[k], "inertia": inertia[:, :, k], "com": (length / 2, 0.0, 0.0)}
            body, joint = world.body(f"{name} {i}", **inert), one.system.joint(name)
            hinge, laws = jj.Hinge((0.0, 0.0, 1.0)), list(joint.laws)
            world.joint(f"{name} {i}", hinge, child=body, laws=laws, **before)
            before = {"parent": body, "frame_D": (length, 0.0, 0.0)}
    return Hand(*world.build(), [20.0] * 8, 0.004, actuated=NAMES, substeps=5, limit=100)
