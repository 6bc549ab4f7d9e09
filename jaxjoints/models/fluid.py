"""Drag of a medium on a body by the box of its inertia, as MuJoCo has it."""

import jax.numpy as jnp
import numpy as np
from jax import Array

from ..algebra.dense import multiply, multiply_transposed
from ..algebra.pytree import struct
from ..algebra.spatial import cross
from ..laws.fields import BodyMotion, Field


@struct
class InertiaBoxDrag(Field):
    """Resistance of a medium of density ρ and viscosity β to a box with the inertia of a body.

    With the velocity v and the angular velocity ω of the box in its axes, its lengths l and their
    mean D,

        force   -3 π D β v - ½ ρ l_j l_k |v_i| v_i,
        moment  -π D³ β ω - ρ l_i (l_j⁴ + l_k⁴) |ω_i| ω_i / 64.

    rotation, centre: pose of the box in the body frame, shapes (3, 3) and (3,)
    lengths: of the edges of the box [m], shape (3,)
    density: ρ [kg/m³]; viscosity: β [Pa s]; wind: velocity of the medium [m/s], world, shape (3,)

    Source: MuJoCo's documentation, "Fluid forces", inertia-based model.
    """

    rotation: Array
    centre: Array
    lengths: Array
    density: Array | float
    viscosity: Array | float
    wind: Array = (0.0, 0.0, 0.0)

    def wrench(self, motion: BodyMotion) -> Array:
        R, side = self.rotation, self.lengths

        def in_box(v):
            return multiply_transposed(R, motion.pose.rotate_inverse(v))

        def in_world(v):
            return motion.pose.rotate(multiply(R, v))

        v = in_box(motion.speed(self.centre) - self.wind)
        ω = in_box(motion.omega)
        D = jnp.mean(side)
        faces = jnp.stack([side[1] * side[2], side[0] * side[2], side[0] * side[1]])
        fourth = side**4
        across = side * (jnp.sum(fourth) - fourth)
        force = -3 * np.pi * D * self.viscosity * v - 0.5 * self.density * faces * jnp.abs(v) * v
        moment = -np.pi * D**3 * self.viscosity * ω
        moment = moment - self.density / 64 * across * jnp.abs(ω) * ω
        force, moment = in_world(force), in_world(moment)
        return jnp.concatenate([force, moment + cross(motion.arm(self.centre), force)])

    def check(self) -> str | None:
        for name in ("density", "viscosity", "lengths"):
            if (np.asarray(getattr(self, name)) < 0).any():
                return f"{name} {getattr(self, name)} must be >= 0"
        return None
