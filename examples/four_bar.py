"""A four-bar linkage in the plane: its loop closed in closed form, and the path of its point."""

import jax
import jax.numpy as jnp

import jaxjoints as jj

STEPS, TURN = 60, 1.0  # steps of one turn of the crank, and how long it takes [s]


def linkage() -> tuple[jj.System, jj.State]:
    """A four-bar linkage in the plane of x and z; angles count from x to z."""
    world = jj.SystemBuilder()
    hinge = jj.Hinge(axis=(0.0, -1.0, 0.0))
    for name in ("crank", "coupler", "rocker"):
        world.body(name, mass=0.2, inertia=(1e-3, 1e-3, 1e-3), pose=(0.0, 0.0, 0.0))
    motor = jj.Motor(speed=2 * jnp.pi / TURN, effort=1e3)
    world.joint("motor", hinge, child="crank", parent=jj.WORLD, laws=[motor])
    world.joint("knee", hinge, child="coupler", parent="crank")
    world.joint("link", hinge, child="coupler", parent="rocker")
    world.joint("pivot", hinge, child="rocker", parent=jj.WORLD)
    return world.build()


def at(x: jax.Array, z: jax.Array) -> jj.Pose:
    """A frame at a point of the plane."""
    return jj.Pose.translation(jnp.stack([x, jnp.zeros_like(x), z]))


def assembled(system: jj.System, state: jj.State, lengths: jax.Array):
    """System and state of linkages with these lengths (8, linkages), their loops closed."""
    crank, coupler, rocker, x, z, _, _, phase = lengths
    zero = jnp.zeros_like(x)
    system = system.with_joint("knee", frame_D=at(crank, zero))
    system = system.with_joint("link", frame_C=at(coupler, zero), frame_D=at(rocker, zero))
    system = system.with_joint("pivot", frame_D=at(x, z))
    knee = crank * jnp.cos(phase), crank * jnp.sin(phase)
    across = x - knee[0], z - knee[1]
    far = jnp.hypot(*across)
    cosine = (coupler**2 + far**2 - rocker**2) / (2 * coupler * far)
    angle = jnp.arctan2(across[1], across[0]) + jnp.arccos(jnp.clip(cosine, -0.999, 0.999))
    end = knee[0] + coupler * jnp.cos(angle), knee[1] + coupler * jnp.sin(angle)
    angles = jnp.stack([phase, angle, jnp.arctan2(end[1] - z, end[0] - x)])
    none = jnp.zeros_like(angles)
    places = jnp.stack([jnp.stack([zero, knee[0], x]), none, jnp.stack([zero, knee[1], z])])
    turned = jnp.stack([jnp.cos(angles / 2), none, -jnp.sin(angles / 2), none])
    state = jj.replicate(state, lengths.shape[1])
    return system, jj.replace(state, position=places, quaternion=turned)


def paths(system: jj.System, state: jj.State, lengths: jax.Array) -> tuple[jax.Array, jj.State]:
    """Path of each point during a turn (steps, 2, linkages), and all states on the way."""
    system, state = assembled(system, state, lengths)
    scheme = jj.SemiImplicitEuler(projections=2)
    _, motion = jj.rollout(system, state, dt=TURN / STEPS, steps=STEPS, scheme=scheme)
    _, _, y, _ = jnp.moveaxis(motion.quaternion[:, :, 1], 1, 0)
    w = motion.quaternion[:, 0, 1]
    cosine, sine = w * w - y * y, -2 * w * y
    x, z = lengths[5], lengths[6]
    path = motion.position[:, ::2, 1] + jnp.stack([cosine * x - sine * z, sine * x + cosine * z], 1)
    return path, motion
