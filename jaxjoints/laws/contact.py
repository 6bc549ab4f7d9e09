"""Laws of a contact: a stop along the normal, friction along and about the other directions.

Directions of a contact (`ContactGeometry`): 0 the normal, whose coordinate is the gap; 1 and 2 slip
along the two tangents; 3 and 4 rolling about the tangents; 5 spin about the normal.
"""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..algebra.calls import public
from ..algebra.pytree import replace, static, struct
from ..algebra.renamed import renamed_fields
from ..couplings.contact import EDGES, NORMAL, ROLL, SLIP, SPIN
from ..solve.forces import Bound, zero_like
from .law import CoordinateState, Law, check_numbers
from .limits import Limits, located
from .reference_acceleration import ReferenceAcceleration


@struct
class ContactLimits(Limits):
    """`Limits(lower=0.0)` on the gap of a contact, with bounces and a surface that moves outwards.

    Bodies that approach faster than `bounce_speed` leave with at least `restitution` times the
    speed of approach, in the step in which they would touch, or without `anticipate` in the step
    after it.

    bounce_speed: least speed of approach that bounces [m/s]
    speed: outward speed of the surface, which pushes touching bodies away [m/s], or None. At 0 a
        resting body has one-sided derivatives that differ: the derivative is that of a body that
        moves with the surface
    Other fields: as in `Limits`, lower 0 and no upper

    Source: ODE's manual, dSurfaceParameters (bounce, bounce_vel, motionN).

    >>> ground = ContactLimits(restitution=0.5, erp=0.2, cfm=0.0)
    >>> at = CoordinateState(q=jnp.array(0.0), dt=jnp.array(0.125), qd=jnp.array(-4.0))
    >>> print(-ground.force(at).bias)  # least speed after it came down at 4 m/s
    2.0
    """

    lower: Array | float | None = 0.0
    bounce_speed: Array | float = 0.0
    speed: Array | float | None = None

    @property
    def needs_speed(self) -> bool:
        return super().needs_speed or (self.speed is not None and self.anticipate)

    def force(self, at: CoordinateState) -> Bound:
        softness = self.stiffness, self.damping, self.erp, self.cfm, self.max_correction
        when = {"engagement": self.engagement, "anticipate": self.anticipate}
        when |= {"reference": self.reference}
        stop = Limits(self.lower, None, *softness, **when).force(at)
        if self.restitution is None and self.speed is None:
            return stop
        nearest = gap = at.q - self.lower
        if self.anticipate:
            nearest = nearest + jnp.minimum(at.dt * at.qd, 0.0)
        touching = nearest <= 0
        speed = 0.0 if self.speed is None else self.speed
        bias = jnp.where(touching, stop.bias - speed, stop.bias)
        if self.restitution is not None and at.free_speed is not None and self.anticipate:
            stop = replace(stop, bias=bias)
            return located(at, gap, stop, self.restitution, self.bounce_speed, speed)
        if self.restitution is not None:
            approach = speed - at.qd
            bounce = jnp.minimum(bias, -self.restitution * approach - speed)
            bias = jnp.where(touching & (approach > self.bounce_speed), bounce, bias)
        return replace(stop, bias=bias)

    def check(self) -> str | None:
        if self.lower is None or self.upper is not None:
            return "keeps a gap above lower; leave upper out"
        if self.reference is not None and self.speed is not None:
            return "has reference and speed; its surface does not move outwards, give one"
        if self.engagement is not None and self.speed is not None:
            return "has engagement and speed; an engaged stop follows no surface, give one"
        if not (np.asarray(self.bounce_speed) >= 0).all():
            return f"bounce_speed {self.bounce_speed} must be >= 0"
        return super().check()


@renamed_fields(mu="friction", force_limit="friction_force")
@struct
class ContactFriction(Law):
    """Friction of a contact in one direction: up to μ |F| + f against slip, or sticking.

    friction: coefficient μ [1; for rolling and spin m], F the normal force (`Newton.friction`)
    friction_force: f [N or N m], independent of the normal force, while the gap is ≤ 0 (a friction
        box)
    slip: speed of slip per unit force while the surfaces stick, ≥ 0 [m/(s N), rad/(s N m)]. Its
        derivative at 0 is the one for slip > 0
    speed: speed of a moving surface, such as a belt, that friction drives towards [m/s or rad/s].
        At the speed where sticking changes to sliding, one-sided derivatives differ; the derivative
        is that of the present state
    normal: the coordinate of the gap
    across: the coordinate of the other tangent, which shares a round cone with this one,
        √(F₁² + F₂²) ≤ μ |F| + f. Give both the same numbers; otherwise their mean counts. None: a
        pyramid, which bounds each tangent by itself

    Source: ODE's manual, dSurfaceParameters (mu, slip, motion, rho; pyramid and box friction).

    >>> tangent = ContactFriction(friction=0.5, friction_force=2.0, coordinate=1)
    >>> at = CoordinateState(q=jnp.array(0.0), dt=jnp.array(0.125), gap=jnp.array(0.0))
    >>> bound = tangent.force(at)
    >>> print(bound.mu * 10.0 + bound.upper / at.dt)  # pressed on by 10 N: 0.5 · 10 + 2
    7.0
    """

    friction: Array | float = 0.0
    friction_force: Array | float = 0.0
    slip: Array | float = 0.0
    speed: Array | float = 0.0
    coordinate: int = static(kw_only=True)
    normal: int = static(default=NORMAL, kw_only=True)
    across: int | None = static(default=None, kw_only=True)
    kind: ClassVar[type] = Bound
    two_sided: ClassVar[bool] = True
    batched: ClassVar[bool] = True

    def force(self, at: CoordinateState) -> Bound:
        zero = zero_like(at.q)
        one = jnp.ones_like(zero)
        most = jnp.where(at.gap <= 0, at.dt * self.friction_force, 0.0)
        softness, μ = self.slip / at.dt + zero, self.friction + zero
        bias = zero - self.speed
        return Bound(one, bias, softness, one, lower=-most, upper=most, mu=μ)

    def check(self) -> str | None:
        for field in ("friction_force", "slip"):
            if (np.asarray(getattr(self, field)) < 0).any():
                return f"{field} {getattr(self, field)} must be >= 0"
        return check_numbers(self, "speed")


@struct
class ContactPyramid(ContactLimits):
    """Stop and friction of a contact in one, as in MuJoCo: each edge of a pyramid is a stop.

    Forces f ≥ 0 act along the edges n ± μ t₁ and n ± μ t₂. They keep the speed along each edge,
    vₙ ± μ v₁ and vₙ ± μ v₂, at or above the speed that closes the gap. So |F₁| + |F₂| ≤ μ Fₙ.

    The forces minimize one convex function, without passes for the bounds of friction. Surfaces
    that slide separate at μ times their slip. A body that does not turn comes down at 1 m/s and
    moves sideways at 3 m/s, μ = 1. It leaves the ground at 1 m/s upwards and 1 m/s sideways; by
    Coulomb's law it stays on the ground and moves at 2 m/s. Surfaces that stick along a tangent
    obey Coulomb's law; half-way between the tangents they hold 1/√2 as much. Take this law to
    compare with MuJoCo, and to train policies that are to run there.

    With `anticipate`, surfaces are pushed apart within a gap of μ times the slip of a step.
    MuJoCo's push once they touch: `anticipate=False`. A position projection leaves overlap as it
    is.

    friction: μ, the same along both tangents
    stiffness, damping: of a soft contact [N/m, N s/m], of all edges together; cfm: along the normal
    restitution, engagement, bounce_speed: not with edges; leave them out
    Other fields: as in `ContactLimits`

    Source: MuJoCo's documentation, Computation, pyramidal friction cones.

    >>> ground = ContactPyramid(friction=1.0, erp=0.2, cfm=0.0)
    >>> bounds = ground.force(CoordinateState(q=jnp.array(0.5), dt=jnp.array(0.125)))
    >>> print(len(bounds), -bounds[0].bias)  # least speed along each edge: -0.5 m in 0.125 s
    4 -4.0
    """

    friction: Array | float = 0.0
    row_laws: ClassVar[int] = len(EDGES)

    @property
    def along(self) -> tuple[int, ...]:
        """See `Law`: the edges."""
        return tuple(EDGES)

    def force(self, at: CoordinateState) -> tuple[Bound, ...]:
        softness = self.stiffness, self.damping, self.erp, self.cfm, self.max_correction
        options = {"speed": self.speed, "anticipate": self.anticipate, "reference": self.reference}
        stop, n = ContactLimits(self.lower, None, *softness, **options), self.row_laws
        speeds = jnp.broadcast_to(at.qd, (n, *at.q.shape)) if self.needs_speed else [None] * n
        edges = [stop.force(replace(at, qd=speed, free_speed=None)) for speed in speeds]
        # Each edge bears a share of the normal force. A projection that held touched edges would
        # hold the slip too.
        return tuple(replace(x, compliance=n * x.compliance, violation=None) for x in edges)

    def check(self) -> str | None:
        given = [name for name in ("restitution", "engagement") if getattr(self, name) is not None]
        if given or (np.asarray(self.bounce_speed) != 0).any():
            return f"has {(*given, 'bounce_speed')[0]}, which edges do not offer; leave it out"
        if self.coordinate != NORMAL:
            return f"acts along edges about the normal; leave coordinate {self.coordinate} out"
        return super().check()


@public
def contact_laws(
    *,
    friction: Any = 0.0,
    friction_force: Any = 0.0,
    rolling: Any = 0.0,
    spinning: Any = 0.0,
    restitution: Any = None,
    bounce_speed: Any = 0.0,
    stiffness: Any = None,
    damping: Any = None,
    erp: Any = None,
    cfm: Any = None,
    max_correction: Any = 10.0,
    slip: Any = 0.0,
    surface_speed: Any = 0.0,
    normal_speed: Any = None,
    margin: Any = 0.0,
    anticipate: bool | None = None,
    reference: ReferenceAcceleration | None = None,
    cone: str | None = None,
    owner: str = "contact",
) -> tuple[Law, ...]:
    """The laws of a contact between two surfaces. A pair of numbers has one for each tangent.

    friction: μ, √(F₁² + F₂²) ≤ μ Fₙ, or for each tangent alone, see `cone`
    friction_force: [N], |Fₜ| ≤ friction_force (+ μ Fₙ) while the bodies touch
    rolling: ρ [m], moments about the tangents ≤ ρ Fₙ; spinning: likewise about the normal [m]
    restitution, bounce_speed: see `ContactLimits`
    stiffness, damping: of a soft contact [N/m, N s/m]; or erp, cfm, of a hard or soft contact;
        max_correction: largest speed at which overlap is removed [m/s]
    slip: [m/(s N)], see `ContactFriction`
    surface_speed: target speed of friction, of C's surface against D's along the tangents [m/s]
    normal_speed: speed at which touching bodies are pushed apart [m/s]
    margin: gap at which the bodies touch [m]
    anticipate: True: push in the step in which bodies would touch, so that they do not overlap.
        False: once they touch, as in ODE. None: False with a `friction_force`, which acts at gaps
        ≤ 0, else True
    reference: softness as in MuJoCo, in place of the others
    cone: "round" bounds the friction of both tangents together. "pyramid" bounds each by itself, as
        ODE does: up to √2 times as much half-way between the tangents. "convex": as MuJoCo computes
        friction, see `ContactPyramid`, with one number for both tangents, without friction_force,
        rolling, spinning, slip, surface_speed, restitution and bounce_speed. None: a pyramid for
        two numbers and with a `friction_force`, else round
    owner: name in error messages

    >>> [type(law).__name__ for law in contact_laws(friction=0.5)]
    ['ContactLimits', 'ContactFriction', 'ContactFriction']
    """
    softness = {"stiffness": stiffness, "damping": damping, "erp": erp, "cfm": cfm}
    softness |= {"max_correction": max_correction, "speed": normal_speed, "reference": reference}
    bounces = {"restitution": restitution, "bounce_speed": bounce_speed}
    if cone == "convex":
        others = {"friction_force": friction_force, "rolling": rolling, "spinning": spinning}
        others |= {"slip": slip, "surface_speed": surface_speed}
        others |= {"bounce_speed": bounce_speed}
        given = [name for name, x in others.items() if np.ndim(x) or _any(x)]
        given += ["restitution"] * (restitution is not None)
        if given or np.ndim(friction):
            what = ", ".join(given) if given else f"the second friction of {friction}"
            raise ValueError(f"{owner}: leave out {what}; cone 'convex' has one friction alone")
        acts = {"anticipate": anticipate is None or anticipate}
        return (ContactPyramid(margin, friction=friction, **softness, **acts),)
    box = _pair(owner, "friction_force", friction_force)
    anticipate = not _any(*box) if anticipate is None else anticipate
    laws: list[Law] = [
        ContactLimits(margin, **softness, **bounces, anticipate=anticipate),
    ]
    slips, speeds = _pair(owner, "slip", slip), _pair(owner, "surface_speed", surface_speed)
    μ = _pair(owner, "friction", friction)
    if _any(*μ, *box):
        others = reversed(SLIP) if _is_round(owner, cone, friction, friction_force, slip) else ()
        laws += [
            ContactFriction(*one, coordinate=at, across=other)
            for *one, at, other in zip(
                μ, box, slips, speeds, SLIP, others or (None,) * 2, strict=True
            )
        ]
    moments = *_pair(owner, "rolling", rolling), spinning
    if _any(*moments):
        laws += [
            ContactFriction(most, coordinate=at)
            for most, at in zip(moments, (*ROLL, SPIN), strict=True)
        ]
    return tuple(laws)


def _is_round(owner: str, cone: str | None, friction: Any, force: Any, slip: Any) -> bool:
    """Whether both tangents share their bounds; ValueError for an unknown cone."""
    if cone not in (None, "round", "pyramid"):
        raise ValueError(f"{owner}: cone {cone!r} must be 'round', 'pyramid', 'convex' or None")
    alike = all(np.ndim(x) == 0 for x in (friction, force, slip))
    if cone == "round" and not alike:
        raise ValueError(
            f"{owner}: cone 'round' has one friction, friction_force and slip for both tangents; "
            "give one number each, or cone='pyramid'"
        )
    return alike and not _any(force) if cone is None else cone == "round"


def _pair(owner: str, field: str, value: Any) -> tuple[Any, Any]:
    """Numbers of both tangents, from one number or two."""
    if np.ndim(value) == 0:
        return value, value
    if np.ndim(value) != 1 or len(value) != 2:
        raise ValueError(f"{owner}: {field} {value} must be a number, or one for each tangent")
    return tuple(value)


def _any(*numbers: Any) -> bool:
    """Whether some number is not 0; a number that JAX traces counts as not 0."""
    return any(isinstance(x, jax.core.Tracer) or np.any(np.asarray(x)) for x in numbers)
