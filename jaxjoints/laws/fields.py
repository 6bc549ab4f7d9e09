"""Fields: external forces on single bodies, such as drag, thrust or attraction.

A field is a pure function of the pose and the velocity of one body. A force that depends on several
bodies is a joint with laws, or a wrench of `Control` that is computed from the whole state.
"""

from abc import ABC
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
    """Pose, velocity and inertia of one body: the input of a field.

    pose: pose in the world of the frame at the centre of mass, with the axes of the body
    velocity: of the centre of mass [m/s], world axes, shape (3,)
    omega: angular velocity [rad/s], world axes, shape (3,)
    mass: [kg]
    inertia: about the centre of mass in body axes [kg m²], shape (3, 3)
    com: centre of mass in the body frame [m], shape (3,)
    time: time of the state [s]
    dt: duration for which the wrench will act [s]; 0 where the force at an instant is wanted

    >>> ahead, turning = jnp.array([1.0, 0.0, 0.0]), jnp.array([0.0, 2.0, 0.0])
    >>> centre = Pose.along_z(0.5)  # of a wheel that rolls
    >>> wheel = BodyMotion(centre, ahead, turning, 1.0, jnp.eye(3), jnp.zeros(3), 0.0, 0.0)
    >>> bottom = jnp.array([0.0, 0.0, -0.5])
    >>> print(wheel.place(bottom), wheel.speed(bottom), wheel.speed(-bottom))
    [0. 0. 0.] [0. 0. 0.] [2. 0. 0.]
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
        """Position in the world of a point of the body frame [m], shape (3,)."""
        return self.pose.p + self.arm(point)

    def speed(self, point: Array) -> Array:
        """Velocity of a point that is fixed in the body frame [m/s], world axes, shape (3,)."""
        return self.velocity + cross(self.omega, self.arm(point))


class Field(ABC):  # noqa: B024 - every method has a default
    """Base of all fields: a frozen record (`struct`) whose leaves are its parameters.

    A subclass writes `wrench`, a force, or `velocity_update`, a change of the velocities at the end
    of a step, or both. The library skips methods that the subclass does not override.

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

        It is computed from the motion at the start of a step, and is constant during the step; a
        scheme of several stages computes it for each stage.
        """
        return jnp.zeros(6, motion.velocity.dtype)

    def velocity_update(self, motion: BodyMotion) -> tuple[Array, Array]:
        """Velocity of the centre of mass and angular velocity that replace those of `motion`.

        It is called with the motion at the end of a step, after the scheme has moved the bodies.

        Returns: (velocity [m/s], omega [rad/s]), world axes, shape (3,) each
        """
        return motion.velocity, motion.omega

    def check(self) -> str | None:
        """A sentence about wrong parameters, which are concrete numbers, or None."""
        return None


@struct
class PointForce(Field):
    """A constant force at a point that moves with the body, and an optional moment.

    force: [N], shape (3,)
    point: point of attack in the body frame [m], shape (3,)
    moment: added to the moment of the force [N m], shape (3,); None for none
    axes: "world", or "body" for a force and a moment that turn with the body (a thruster) (static)

    >>> zero = jnp.zeros(3)
    >>> motion = BodyMotion(Pose.along_x(3.0), zero, zero, 1.0, jnp.eye(3), zero, 0.0, 0.0)
    >>> lift = PointForce(jnp.array([0.0, 0.0, 10.0]), point=jnp.array([0.0, 0.5, 0.0]))
    >>> print(lift.wrench(motion))
    [ 0.  0. 10.  5.  0.  0.]
    """

    force: Array
    point: Array | tuple[float, float, float] = (0.0, 0.0, 0.0)
    moment: Array | None = None
    axes: Literal["world", "body"] = static(default="world", kw_only=True)

    def wrench(self, motion: BodyMotion) -> Array:
        force, moment = self.force, self.moment
        if self.axes == "body":
            force = motion.pose.rotate(force)
            moment = None if moment is None else motion.pose.rotate(moment)
        torque = cross(motion.arm(self.point), force)
        return jnp.concatenate([force, torque if moment is None else torque + moment])

    def check(self) -> str | None:
        if self.axes not in ("world", "body"):
            return f"axes {self.axes!r} must be 'world' or 'body'"
        for name in ("force", "point", "moment"):
            value = getattr(self, name)
            if value is not None and np.shape(value) != (3,):
                return f"{name} has shape {np.shape(value)}; it must be (3,)"
        return None


@struct
class Drag(Field):
    """Resistance of a medium at rest: the force -(c₁ + c₂ |v|) v, and a moment of the same form.

    The force acts at the centre of mass. A step of length h takes the coefficient k = c₁ + c₂ |v|
    at its start, and the velocity that its end would have without other forces: the force is
    -k v / (1 + h k / m), the moment -k I (I + h k)⁻¹ ω. A step therefore never reverses the motion
    and never adds energy, for any h k / m. (An explicit force adds energy where h k / m > 2.)

    linear: c₁ [N s/m]
    quadratic: c₂ [N s²/m²]
    angular: coefficient of the moment [N m s/rad]
    angular_quadratic: coefficient of the moment [N m s²/rad²]
        each ≥ 0, None where that part is absent

    >>> speed, zero = jnp.array([4.0, 0.0, 0.0]), jnp.zeros(3)
    >>> motion = BodyMotion(Pose.along_x(0.0), speed, zero, 1.0, jnp.eye(3), zero, 0.0, 0.0)
    >>> print(Drag(linear=2.0, quadratic=3.0).wrench(motion)[0])  # -(2 + 3 · 4) 4
    -56.0
    """

    linear: Array | float | None = None
    quadratic: Array | float | None = None
    angular: Array | float | None = None
    angular_quadratic: Array | float | None = None

    def wrench(self, motion: BodyMotion) -> Array:
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
        if all(value is None for value in vars(self).values()):
            return "has no coefficient; give linear, quadratic, angular or angular_quadratic"
        return _negative(self)


@struct
class BodyDamping(Field):
    """Damping as in ODE: the velocities at the end of each step are multiplied by 1 - scale.

    It is not a force: the positions have already moved with the unscaled velocities, and the scale
    does not depend on the length of the step. Speeds up to the threshold are not scaled.

    linear, angular: scales of velocity and angular velocity, in [0, 1]
    linear_threshold: [m/s]
    angular_threshold: [rad/s]

    >>> speed, zero = jnp.array([4.0, 0.0, 0.0]), jnp.zeros(3)
    >>> motion = BodyMotion(Pose.along_x(0.0), speed, zero, 1.0, jnp.eye(3), zero, 0.0, 0.0)
    >>> print(BodyDamping(linear=0.25).velocity_update(motion)[0])
    [3. 0. 0.]
    """

    linear: Array | float = 0.0
    angular: Array | float = 0.0
    linear_threshold: Array | float = 0.01
    angular_threshold: Array | float = 0.01

    def velocity_update(self, motion: BodyMotion) -> tuple[Array, Array]:
        v, omega = motion.velocity, motion.omega
        return (
            jnp.where(norm(v) > self.linear_threshold, (1 - self.linear) * v, v),
            jnp.where(norm(omega) > self.angular_threshold, (1 - self.angular) * omega, omega),
        )

    def check(self) -> str | None:
        for name in ("linear", "angular"):
            scale = np.asarray(getattr(self, name))
            if (scale > 1).any():
                return f"{name} {scale} must lie in [0, 1]; it is a share of the speed"
        return _negative(self)


def _coefficient(linear: Array | None, quadratic: Array | None, v: Array) -> Array | None:
    """Coefficient c₁ + c₂ |v|; None where c₁ and c₂ are both None."""
    terms = [] if linear is None else [linear]
    terms += [] if quadratic is None else [quadratic * norm(v)]
    return sum(terms) if terms else None


def _negative(field: Field) -> str | None:
    for name, value in vars(field).items():
        if value is not None and (np.asarray(value) < 0).any():
            return f"{name} {np.asarray(value)} must be >= 0, or it feeds energy in"
    return None
