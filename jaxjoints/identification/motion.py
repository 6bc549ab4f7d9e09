"""Recorded poses of all bodies, and how far a simulation is from them."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..algebra.calls import public
from ..algebra.pytree import replace, struct
from ..model.state import Control, State
from ..model.system import System
from ..schemes.semi_implicit_euler import SemiImplicitEuler
from ..simulate.step import DEFAULT_SCHEME, step


@struct
class Motion:
    """A recorded motion: the poses of all bodies over time, and the velocities that led to them.

    position: of the centres of mass in the world [m], shape (time, 3, bodies)
    quaternion: body axes to world axes, w first, shape (time, 4, bodies)
    velocity: of the centres of mass, world axes [m/s], shape (time, 3, bodies)
    omega: angular velocity, world axes [rad/s], shape (time, 3, bodies)

    Velocities are constant over a time step, as `SemiImplicitEuler` has them: those at index i move
    the bodies from the pose before to the pose at i.

    >>> position = np.array([[0.0, 0.0, 0.0], [0.5, 0.0, 0.0]])[:, :, None]
    >>> turn = np.array([[1.0, 0.0, 0.0, 0.0], [np.sqrt(0.5), 0.0, 0.0, np.sqrt(0.5)]])[:, :, None]
    >>> motion = Motion.from_poses(position, turn, dt=0.25)
    >>> print(motion.velocity[0, :, 0], (motion.omega[0, 2, 0] / np.pi).round(4))  # [m/s, π rad/s]
    [2. 0. 0.] 2.0
    """

    position: Array
    quaternion: Array
    velocity: Array
    omega: Array

    @staticmethod
    def from_poses(
        position: Array, quaternion: Array, *, dt: float, rotation: str = "exponential"
    ) -> "Motion":
        """The motion through recorded poses, from the second pose on.

        Two successive poses determine the velocity of a semi-implicit step exactly, because the
        step moves bodies by its new velocity. Velocities are computed in float64, since they are
        small differences of poses over dt.

        position, quaternion: as in `Motion`, with one more pose in front
        dt: time between two poses [s]
        rotation: how the recording engine integrates rotations, as in `SemiImplicitEuler`

        Raises: ValueError for shapes that do not fit, numbers that are not finite, a time step
            that is not positive, and an unknown rotation.
        """
        p, q = np.asarray(position, float), np.array(quaternion, float)
        _check_poses(p, q, dt, rotation)
        # q and -q are one pose; each continues the one before.
        flips = np.sign(np.sum(q[1:] * q[:-1], axis=1, keepdims=True))
        q[1:] *= np.cumprod(flips, axis=0)
        w0, v0, w1, v1 = q[:-1, :1], q[:-1, 1:], q[1:, :1], q[1:, 1:]
        # Vector part of the quaternion between two poses: axis times sine of half the angle.
        sine = w0 * v1 - w1 * v0 + np.cross(v0, v1, axis=1)
        size = np.linalg.norm(sine, axis=1, keepdims=True)
        if rotation == "linearized":
            turn = 2 * sine / (w0 * w1 + np.sum(v0 * v1, axis=1, keepdims=True))
        else:
            # Protects the division for a body at rest.
            turn = 2 * np.arcsin(np.minimum(size, 1.0)) / np.where(size > 0, size, 1.0) * sine
        arrays = (p[1:], q[1:], (p[1:] - p[:-1]) / dt, turn / dt)
        return Motion(*(jnp.asarray(x, jnp.zeros(()).dtype) for x in arrays))

    def start(self, state: State) -> State:
        """The state with the poses and velocities of the motion's first entry."""
        return replace(state, **{name: x[0] for name, x in vars(self).items()})


@public
def pose_residuals(
    system: System,
    state: State,
    motion: Motion,
    control: Control | None = None,
    *,
    follow: Array | float = 0.0,
    noise: tuple[float, float],
    dt: Array | float,
    scheme: SemiImplicitEuler = DEFAULT_SCHEME,
) -> Array:
    """Simulated minus recorded poses, in units of their noise.

    state: the start, at the motion's first pose; with any batch axes, as in `step`
    motion: the recording
    control: the same at every step
    follow: share of the difference by which the simulation moves towards the recorded pose and
        velocity before each step (nudging). 0 runs free, 1 predicts one step at a time. In between,
        errors of the simulation die out after about 1/follow steps. Errors then do not add up late
        in a motion, and searches from wrong starts converge
    noise: standard deviations of the recorded positions [m] and rotations [rad], > 0
    dt: time step [s]
    scheme: integrator

    Returns: shape (time - 1, 7, bodies, *batch): three components of the position, and twice the
        difference of the four components of the quaternion
    Raises: ValueError for noise that is not positive, and for a motion of fewer than two poses.
    """
    if not min(noise) > 0:
        raise ValueError(
            f"pose_residuals: noise {noise} must be positive; it is the residuals' unit"
        )
    if len(motion.position) < 2:
        raise ValueError("pose_residuals: the motion must have at least two poses to compare")
    batch = (1,) * state.time.ndim
    motion = jax.tree.map(lambda x: x.reshape(x.shape + batch), motion)
    now, later = jax.tree.map(lambda x: x[:-1], motion), jax.tree.map(lambda x: x[1:], motion)

    def same_sign(q, recorded):
        # q and -q are one pose.
        return q * jnp.sign(jnp.sum(q * recorded, axis=-2 - len(batch), keepdims=True))

    def advance(state, now):
        state = replace(state, quaternion=same_sign(state.quaternion, now.quaternion))
        nudged = {
            name: (1 - follow) * getattr(state, name) + follow * x for name, x in vars(now).items()
        }
        state, _ = step(system, replace(state, **nudged), control, dt=dt, scheme=scheme)
        return state, (state.position, state.quaternion)

    _, (position, quaternion) = jax.lax.scan(advance, state, now)
    moved = position - later.position
    # A small turn by an angle changes the quaternion by half of it.
    turned = 2 * (same_sign(quaternion, later.quaternion) - later.quaternion)
    return jnp.concatenate([moved / noise[0], turned / noise[1]], axis=1)


def _check_poses(position: np.ndarray, quaternion: np.ndarray, dt: float, rotation: str) -> None:
    """Raise ValueError unless velocities follow from these poses: two or more, finite, dt > 0."""
    time, _, bodies = position.shape if position.ndim == 3 else (0, 0, 0)
    if position.shape != (time, 3, bodies) or quaternion.shape != (time, 4, bodies):
        raise ValueError(
            f"motion: position {position.shape} and quaternion {quaternion.shape} must have shapes "
            "(time, 3, bodies) and (time, 4, bodies)"
        )
    if time < 2:
        raise ValueError(f"motion: {time} poses do not tell a velocity; give two or more")
    if not (np.isfinite(position).all() and np.isfinite(quaternion).all()):
        raise ValueError("motion: some poses are not finite; cut the recording where they are")
    if not dt > 0:
        raise ValueError(f"motion: dt {dt} must be positive")
    if rotation not in ("exponential", "linearized"):
        raise ValueError(f"motion: rotation {rotation!r} must be 'exponential' or 'linearized'")
