"""Softness of rows in ODE's terms and in physical units: springs and dampers as ERP and CFM.

Every force is a row  G v⁺ + β(φ) + (cfm/h) λ = s  with an impulse λ over a step h. A spring of
stiffness k and damping d is the row with

    erp = h k / (h k + d),    cfm / h = 1 / (h (h k + d)),

which is the implicit Euler step of that spring (ODE's manual, "How to use ERP and CFM").
"""

import jax.numpy as jnp
from jax import Array

from ..algebra.pytree import struct

# Force per speed of what gives way to anything [N s/m or N m s/rad].
LEAST_RESISTANCE = 1e-12


@struct
class Softness:
    """How much the bilateral rows of a joint give way, in ODE's terms.

    erp: share of the error that one step removes, in [0, 1]; a number or one per row
    cfm: velocity per unit force that the rows allow [m/(s N) or rad/(s N m)], ≥ 0; a number or one
        per row. A joint whose cfm is positive is soft and is left alone by position projection.

    Both are a different spring at another time step: see `spring_softness`. What stays the same
    spring is a `Compliance` or a `Bushing`.
    """

    erp: Array | float = 0.2
    cfm: Array | float = 0.0


@struct
class Compliance:
    """How much the bilateral rows of a joint give way, in physical units.

    A row of compliance c is a spring of stiffness 1/c beside a damper d, by an implicit Euler step:
    the same spring at any time step h, but for the damping h/c that such a step adds to d. A row of
    compliance 0 is rigid and takes the ERP of the builder.

    compliance: c [m/N or rad/(N m)], ≥ 0; a number or one per row
    damping: d [N s/m or N m s/rad]; a number or one per row. None: critical, 2 √(m/c) for a row
        that moves an inertia m: the mean of both bodies' masses along a force, of their inertias
        about the joint's origin for a moment (a third of the trace, and m r² of the centre of
        mass), the world's being 0, as in ArtiSynth
    """

    compliance: Array | float
    damping: Array | float | None = None

    def over(self, dt: Array, rigid: Softness) -> Softness:
        """ERP and CFM over a step dt [s]; rigid: those of rows of compliance 0."""
        soft = self.compliance > 0
        total = dt + self.damping * self.compliance
        return Softness(
            jnp.where(soft, dt / total, rigid.erp),
            jnp.where(soft, self.compliance / total, rigid.cfm),
        )


@struct
class Bushing:
    """Springs and dampers in place of bilateral rows: of a `Fixed` joint, a bushing between frames.

    Force -k φ - d φ̇ along each row, φ its error, by an implicit Euler step: the same spring at any
    time step h, but for the damping h k that such a step adds to d. For a `Fixed` joint φ is the
    position of C in D and the rotation vector, rows x, y, z of each; a moment about an axis is
    k times that component, which has a potential if the three rotational stiffnesses are equal or
    angles are small (otherwise put a `SpringDamper` on each coordinate of a `Free` joint).

    stiffness: k [N/m or N m/rad], ≥ 0; damping: d [N s/m or N m s/rad], ≥ 0; numbers or one per
        row. A row without both is as good as none
    """

    stiffness: Array | float
    damping: Array | float

    def over(self, dt: Array, rigid: Softness) -> Softness:
        """ERP and CFM over a step dt [s]."""
        return Softness(*spring_softness(self.stiffness, self.damping, dt))


def spring_softness(stiffness: Array, damping: Array, dt: Array) -> tuple[Array, Array]:
    """ERP and CFM of a spring–damper over a step dt [s]: erp [1], cfm [velocity per force].

    stiffness: k [N/m or N m/rad]; damping: d [N s/m or N m s/rad]
    """
    # Protects from no spring and no damper: a row that is as good as none, and slopes along both.
    total = jnp.maximum(dt * stiffness + damping, LEAST_RESISTANCE)
    return dt * stiffness / total, 1 / total


def softness_spring(erp: Array, cfm: Array, dt: Array) -> tuple[Array, Array]:
    """Stiffness and damping of rows with given ERP and CFM > 0 over a step dt [s]."""
    return erp / (dt * cfm), (1 - erp) / cfm
