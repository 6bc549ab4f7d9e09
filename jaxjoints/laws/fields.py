"""Fields: forces on single bodies by where they are and how they move, from outside of all joints.

A field is a frozen record whose leaves are its parameters, and a pure function of the motion of one
body. What depends on several bodies is a joint with laws, or a function of the whole state that
gives `Control.wrench`.
"""

from typing import Literal

import jax.numpy as jnp
import numpy as np
from jax import Array

from ..algebra.dense import inverse, multiply
from ..algebra.pytree import static, struct
from ..algebra.rotation import cross, norm, quat_rotate_inverse
from ..algebra.spatial import Pose


@struct
class BodyMotion:
    """Where one body is and how it moves, all that a field may depend on.

    pose: of the centre of mass: its place in the world [m], and body axes to world axes
    velocity: of the centre of mass [m/s]; omega: angular [rad/s]; world axes, shape (3,)
    mass: [kg]; inertia: about the centre of mass in body axes [kg m²], shape (3, 3)
    com: centre of mass in the body frame [m], shape (3,)
    time: [s]; dt: how long the wrench will act [s], 0 where the force of an instant is asked for
    """

    pose: Pose
    velocity: Array
    omega: Array
    mass: Array
    inertia: Array
    com: Array
    time: Array
    dt: Array

    def arm(self, point: Array) -> Array:
        """From the centre of mass to a point of the body frame [m], world axes, shape (3,)."""
        return self.pose.rotate(point - self.com)

    def place(self, point: Array) -> Array:
        """A point of the body frame in the world [m], shape (3,)."""
        return self.pose.p + self.arm(point)

    def speed(self, point: Array) -> Array:
        """Velocity of a point of the body frame [m/s], world axes, shape (3,)."""
        return self.velocity + cross(self.omega, self.arm(point))


class Field:
    """Base of all fields: a force, or what becomes of the velocities, or both.

    >>> @struct
    ... class Attraction(Field):
    ...     strength: Array  # [N m²]
    ...     centre: Array  # [m]
    ...     def wrench(self, motion):
    ...         away = motion.pose.p - self.centre
    ...         force = -self.strength * away / jnp.maximum(norm(away), 0.1) ** 3
    ...         return jnp.append(force, jnp.zeros(3))
    >>> from jaxjoints import SystemBuilder
    >>> world = SystemBuilder(gravity=(0.0, 0.0, 0.0))
    >>> probe = world.body("probe", mass=1.0, inertia=(1.0, 1.0, 1.0), pose=(2.0, 0.0, 0.0))
    >>> world.field("sun", Attraction(strength=4.0, centre=(0.0, 0.0, 0.0)), bodies=probe)
    'sun'
    """

    def wrench(self, motion: BodyMotion) -> Array:
        """Force [N] and moment about the centre of mass [N m] on a body, world axes, shape (6,).

        It is taken at the start of a step of `motion.dt` and acts during it.
        """
        raise NotImplementedError

    def settled(self, motion: BodyMotion) -> tuple[Array, Array]:
        """Velocity and angular velocity in place of those at the end of a step, (3,) each."""
        raise NotImplementedError

    def check(self) -> str | None:
        """What is wrong with the parameters (concrete numbers), as a sentence, or None."""
        return None


@struct
class PointForce(Field):
    """A force, and perhaps a moment, at a point that moves with the body.

    force: [N]; point: in the body frame [m]; moment: [N m]; shape (3,)
    axes: of force and moment: "world", or "body", with which they turn (a thruster)
    """

    force: Array
    point: Array | tuple[float, float, float] = (0.0, 0.0, 0.0)
    moment: Array | None = None
    axes: Literal["world", "body"] = static(default="world", kw_only=True)

    def wrench(self, motion: BodyMotion) -> Array:
        """See `Field.wrench`."""
        force, moment = self.force, self.moment
        if self.axes == "body":
            force = motion.pose.rotate(force)
            moment = None if moment is None else motion.pose.rotate(moment)
        torque = cross(motion.arm(self.point), force)
        return jnp.concatenate([force, torque if moment is None else torque + moment])

    def check(self) -> str | None:
        """See `Field.check`."""
        if self.axes not in ("world", "body"):
            return f"axes {self.axes!r} must be 'world' or 'body'"
        for name in ("force", "point", "moment"):
            value = getattr(self, name)
            if value is not None and np.shape(value) != (3,):
                return f"{name} has shape {np.shape(value)}; it must be (3,)"
        return None


@struct
class Drag(Field):
    """Resistance of a medium at rest: -(c₁ + c₂ |v|) v at the centre of mass, a moment likewise.

    A step of h takes the coefficients k of its start and the motion of its end, as if the body were
    free: force -k v / (1 + h k / m), moment -k I (I + h k)⁻¹ ω. So a step never turns the motion
    round, nor do joints make it gain energy, whatever h k / m (the explicit force would for > 2).

    linear: c₁ [N s/m]; quadratic: c₂ [N s²/m²]
    angular: [N m s/rad]; angular_quadratic: [N m s²/rad²]; None for what is absent
    """

    linear: Array | float | None = None
    quadratic: Array | float | None = None
    angular: Array | float | None = None
    angular_quadratic: Array | float | None = None

    def wrench(self, motion: BodyMotion) -> Array:
        """See `Field.wrench`."""
        force, moment = jnp.zeros_like(motion.velocity), jnp.zeros_like(motion.omega)
        k = _coefficient(self.linear, self.quadratic, motion.velocity)
        if k is not None:
            force = -k / (1 + motion.dt * k / motion.mass) * motion.velocity
        k = _coefficient(self.angular, self.angular_quadratic, motion.omega)
        if k is not None:
            spin = multiply(motion.inertia, quat_rotate_inverse(motion.pose.q, motion.omega))
            resisted = motion.inertia + motion.dt * k * jnp.eye(3, dtype=spin.dtype)
            moment = -k * motion.pose.rotate(multiply(inverse(resisted), spin))
        return jnp.concatenate([force, moment])

    def check(self) -> str | None:
        """See `Field.check`."""
        if all(value is None for value in vars(self).values()):
            return "has no coefficient; give linear, quadratic, angular or angular_quadratic"
        return _negative(self)


@struct
class BodyDamping(Field):
    """ODE's damping: at the end of a step the velocities are scaled by 1 - scale.

    Not a force: the positions of that step have moved with what was there before, and the step's
    length does not matter. Speeds up to the threshold are left alone.

    linear, angular: scales, in [0, 1]; thresholds: [m/s] and [rad/s]
    """

    linear: Array | float = 0.0
    angular: Array | float = 0.0
    linear_threshold: Array | float = 0.01
    angular_threshold: Array | float = 0.01

    def settled(self, motion: BodyMotion) -> tuple[Array, Array]:
        """See `Field.settled`."""
        v, omega = motion.velocity, motion.omega
        return (
            jnp.where(norm(v) > self.linear_threshold, (1 - self.linear) * v, v),
            jnp.where(norm(omega) > self.angular_threshold, (1 - self.angular) * omega, omega),
        )

    def check(self) -> str | None:
        """See `Field.check`."""
        for name in ("linear", "angular"):
            scale = np.asarray(getattr(self, name))
            if (scale > 1).any():
                return f"{name} {scale} must lie in [0, 1]; it is a share of the speed"
        return _negative(self)


def defines(field: Field, method: str) -> bool:
    """Whether the class of a field has a method of its own for what the base only names."""
    return getattr(type(field), method) is not getattr(Field, method)


def _coefficient(linear: Array | None, quadratic: Array | None, v: Array) -> Array | None:
    """c₁ + c₂ |v|; None where both are absent."""
    terms = [] if linear is None else [linear]
    terms += [] if quadratic is None else [quadratic * norm(v)]
    return sum(terms) if terms else None


def _negative(field: Field) -> str | None:
    for name, value in vars(field).items():
        if value is not None and (np.asarray(value) < 0).any():
            return f"{name} {np.asarray(value)} must be >= 0, or it feeds energy in"
    return None
