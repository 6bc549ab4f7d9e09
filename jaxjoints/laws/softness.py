"""Softness of rows, by ODE's ERP and CFM or in physical units (compliance, stiffness, damping).

Every force of a joint is the impulse λ of a row  G v⁺ + erp φ/h + (cfm/h) λ = s  over a step h. A
spring of stiffness k and damping d that acts on the error φ is the row with

    erp = h k / (h k + d),    cfm / h = 1 / (h (h k + d)),

which is the implicit Euler step of this spring. Source: ODE's manual, "How to use ERP and CFM".
"""

from typing import ClassVar

import jax.numpy as jnp
from jax import Array

from ..algebra.calls import public
from ..algebra.pytree import struct

# Least h k + d of a row [N s/m or N m s/rad].
LEAST_RESISTANCE = 1e-12


@struct
class Softness:
    """ERP and CFM of the bilateral rows of a joint, as in ODE.

    ERP and CFM are another spring at another time step, see `spring_softness`. A `Compliance` or a
    `Bushing` is the same spring at any time step. Errors of a `Baumgarte` decay alike at any step.

    erp: error reduction parameter, the share of the error that one step removes, in [0, 1]; a
        number or one per row
    cfm: constraint force mixing, the velocity that a row permits per unit force
        [m/(s N) or rad/(s N m)], ≥ 0; a number or one per row. Position projection skips joints
        with a positive cfm, since their errors are deflections of a spring.

    >>> soft = Softness(erp=0.5, cfm=0.01)
    >>> softness_spring(soft.erp, soft.cfm, dt=0.01)  # k = erp/(h cfm), d = (1 - erp)/cfm
    (5000.0, 50.0)
    """

    erp: Array | float = 0.2
    cfm: Array | float = 0.0


@struct
class Compliance:
    """Compliance and damping of the bilateral rows of a joint, in physical units.

    A row of compliance c is a spring of stiffness 1/c in parallel with a damper d, integrated by an
    implicit Euler step. It is the same spring at any time step h, except that the step adds the
    damping h/c to d. A row of compliance 0 is rigid, with the ERP of the builder.

    compliance: c [m/N or rad/(N m)], ≥ 0; a number or one per row
    damping: d [N s/m or N m s/rad], ≥ 0; a number or one per row. None for critical damping
        2 √(m/c) as in ArtiSynth, where m is the inertia that the row moves: for a force the mean of
        both bodies' masses; for a moment the mean of their inertias about the joint's origin (a
        third of the trace, plus mass times the squared distance of the centre of mass). The world
        counts as 0 in a mean.

    >>> soft = Compliance(0.25, damping=0.5).over(0.125, rigid=Softness())
    >>> stiffness, damping = softness_spring(soft.erp, soft.cfm, dt=0.125)
    >>> print(stiffness, damping)  # 1 / (0.25 m/N), d
    4.0 0.5
    """

    compliance: Array | float
    damping: Array | float | None = None
    softens: ClassVar[bool] = True

    def over(self, dt: Array, rigid: Softness) -> Softness:
        """ERP and CFM over a step dt [s].

        rigid: ERP and CFM for rows of compliance 0
        """
        soft = self.compliance > 0
        total = dt + self.damping * self.compliance
        return Softness(
            jnp.where(soft, dt / total, rigid.erp),
            jnp.where(soft, self.compliance / total, rigid.cfm),
        )


@struct
class Bushing:
    """Springs and dampers in place of the bilateral rows of a joint.

    The force -k φ - d φ̇ acts along each row, with φ the error of the row, integrated by an implicit
    Euler step. It is the same spring at any time step h, except that the step adds the damping h k
    to d.

    On a `Fixed` joint it is a bushing between two frames: the errors are x, y, z of the position of
    C in D, then x, y, z of the rotation vector. Its moments have a potential if the three
    rotational stiffnesses are equal or the angles small. Otherwise put a `SpringDamper` on each
    coordinate of a `Free` joint.

    stiffness: k [N/m or N m/rad], ≥ 0; one per row, or a number for all rows, whatever their unit
    damping: d [N s/m or N m s/rad], ≥ 0; likewise. A row with neither exerts no force.

    >>> soft = Bushing(stiffness=48.0, damping=2.0).over(0.125, rigid=Softness())
    >>> print(soft.erp, soft.cfm)  # h k = 6 and d = 2: 6/8, 1/8
    0.75 0.125
    """

    stiffness: Array | float
    damping: Array | float
    softens: ClassVar[bool] = True

    def over(self, dt: Array, rigid: Softness) -> Softness:
        """ERP and CFM over a step dt [s]; `rigid` is not used, no row of a bushing is rigid."""
        return Softness(*spring_softness(self.stiffness, self.damping, dt))


@struct
class Baumgarte:
    """Rigid bilateral rows whose errors decay with a time constant.

    A row asks for the speed -φ / T of its error φ. The error decays as exp(-t/T) at any step h < T:
    ERP is h/T, CFM 0. RBDL stabilizes at acceleration level, φ̈ + (2/T) φ̇ + φ/T² = 0; an error that
    starts at the speed -φ/T decays in the same way there. It acts under `SemiImplicitEuler` without
    projections: `Rattle`, `RungeKutta` and position projection remove errors at once.

    time_constant: T [s], > 0; a number or one per row. Steps longer than T remove the whole error.

    Source: J. Baumgarte, Stabilization of constraints and integrals of motion (1972).

    >>> decay = Baumgarte(time_constant=0.5)
    >>> print(decay.over(0.125, rigid=Softness()).erp)  # a step of T/4 removes 1/4 of the error
    0.25
    """

    time_constant: Array | float
    softens: ClassVar[bool] = False

    def over(self, dt: Array, rigid: Softness) -> Softness:
        """ERP and CFM over a step dt [s]; rigid: CFM of rigid rows."""
        return Softness(jnp.minimum(dt / self.time_constant, 1.0), rigid.cfm)


PhysicalSoftness = Compliance | Bushing | Baumgarte
AnySoftness = Softness | PhysicalSoftness


@public
def spring_softness(stiffness: Array, damping: Array, dt: Array) -> tuple[Array, Array]:
    """ERP [1] and CFM [m/(s N) or rad/(s N m)] of a spring with a damper over a step dt [s].

    stiffness: k [N/m or N m/rad]
    damping: d [N s/m or N m s/rad]
    """
    # Protects the division from k = d = 0, and keeps the derivatives by both.
    total = jnp.maximum(dt * stiffness + damping, LEAST_RESISTANCE)
    return dt * stiffness / total, 1 / total


@public
def softness_spring(erp: Array, cfm: Array, dt: Array) -> tuple[Array, Array]:
    """Stiffness and damping of rows with this ERP and CFM > 0 over a step dt [s].

    Returns: (stiffness [N/m or N m/rad], damping [N s/m or N m s/rad])
    """
    return erp / (dt * cfm), (1 - erp) / cfm
