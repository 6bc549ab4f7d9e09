"""Limits: stops, smooth limit forces and locks."""

from dataclasses import field
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jax import Array

from ..algebra.pytree import replace, static, struct
from ..solve.forces import Bound, Hard, Latch, Linear, Rebound, zero_like
from .engagement import Engagement
from .law import CoordinateState, Law, check_numbers
from .reference_acceleration import ReferenceAcceleration
from .softness import spring_softness

# Rebound below which a coordinate stays on its stop, as a share of the speed that forces give in a
# step.
RESTING = 1e-3
# Distance from a bound at which q touches it, in roundings of q: so small that no slow motion
# away from the bound is held.
TOUCH = 2


@struct
class Limits(Law):
    """A coordinate kept within lower ≤ q ≤ upper by a one-sided force at each bound.

    A bound with `stiffness` and `damping` is soft: past the bound this spring and damper act, by an
    implicit Euler step, and the force never pulls. Other bounds are hard, or soft by ODE's `erp`
    and `cfm`.

    With a `restitution` e, a coordinate that meets a hard bound with speed v leaves it with at
    least e v, in the step that would pass the bound, or without `anticipate` in the step after it.
    Bounce and correction of a violation do not add: the larger speed counts. A bounce that would
    pass the other bound in the same step ends on the other bound. Bounces with e = 1 keep their
    height. With e < 1 the error of the height is at most the path of one step. Without
    `anticipate`, as in ODE, the correction of the violation gives a speed of up to erp v.

    lower, upper: bounds; None (or ∓inf at build) for an absent side; equal bounds make a `Lock`,
        unless there is a `reference`
    stiffness: [N/m or N m/rad]; damping: [N s/m or N m s/rad]
    erp: share of the violation that one step removes; cfm: velocity per unit force
    max_correction: largest speed at which a hard stop removes a violation [m/s or rad/s], or None
    restitution: e in [0, 1]. None: the step that would pass a bound ends on it
    engagement: an `Engagement` decides when the stop acts; `erp` and projections correct the
        violation beyond its tolerance, and `anticipate` has no effect. Or None
    reference: a `ReferenceAcceleration`, the softness of MuJoCo's stops, in place of the others; it
        acts once the bound is passed, whatever `anticipate`. Or None
    anticipate: True: the stop acts in the step that would pass it. False: the stop acts once it is
        passed at the start of a step, as in ODE

    A coordinate 0.5 m above its bound may approach it at 4 m/s in a step of 0.125 s. A soft bound
    stores ½ k x²:

    >>> at = CoordinateState(q=jnp.array(0.5), dt=jnp.array(0.125))
    >>> print(Limits(lower=0.0, erp=0.2, cfm=0.0).force(at).bias)
    4.0
    >>> print(Limits(upper=1.0, stiffness=40.0).energy(jnp.array([0.5, 1.5])))
    [0. 5.]
    """

    lower: Array | float | None = None
    upper: Array | float | None = None
    stiffness: Array | float | None = None
    damping: Array | float | None = None
    erp: Array | float | None = None
    cfm: Array | float | None = None
    max_correction: Array | float | None = 10.0
    restitution: Array | float | None = None
    engagement: Engagement | None = None
    reference: ReferenceAcceleration | None = field(default=None, kw_only=True)
    coordinate: int = static(default=0, kw_only=True)
    anticipate: bool = static(default=True, kw_only=True)
    kind: ClassVar[type] = Bound
    batched: ClassVar[bool] = True

    @property
    def needs_speed(self) -> bool:
        return self.restitution is not None or self.reference is not None

    @property
    def holds(self) -> bool:
        """See `Law.holds`: a soft stop is a spring."""
        return self.stiffness is None and self.reference is None

    @property
    def row_laws(self) -> int:
        """See `Law`: one for each bound, since a step may reach either bound."""
        return 1 if self.lower is None or self.upper is None else 2

    def force(self, at: CoordinateState) -> Bound | tuple[Bound, ...]:
        gaps = []
        if self.lower is not None:
            gaps.append((at.q - self.lower, 1.0))
        if self.upper is not None:
            gaps.append((self.upper - at.q, -1.0))
        stops = tuple(self._stop(at, gap, sign) for gap, sign in gaps)
        if self.restitution is not None and at.free_speed is not None and self.anticipate:
            stops = tuple(
                located(at, gap, stop, self.restitution)
                for (gap, _), stop in zip(gaps, stops, strict=True)
            )
        elif self.restitution is not None:
            stops = tuple(
                self._bouncing(at, gap, stop, other if len(stops) == 2 else None)
                for (gap, _), stop, other in zip(gaps, stops, reversed(stops), strict=True)
            )
        return stops if len(stops) == 2 else stops[0]

    def _stop(self, at: CoordinateState, gap: Array, sign: float) -> Bound:
        """The stop at one bound; gap: distance to the bound, < 0 past it; sign: of its push."""
        q, dt = at.q, at.dt
        if self.reference is not None:
            goal, compliance = self.reference.over(gap, sign * at.qd, dt)
            present, apart = (gap < 0).astype(q.dtype), jnp.full_like(q, jnp.inf)
            return Bound(sign * jnp.ones_like(q), -goal, compliance, present, violation=apart)
        soft = self.stiffness is not None
        if soft:
            erp, cfm = spring_softness(self.stiffness, self.damping, dt)
        else:
            erp, cfm = self.erp, self.cfm
        tolerance = 0.0 if self.engagement is None else self.engagement.tolerance
        inside, outside = jnp.maximum(gap, 0.0), jnp.minimum(gap + tolerance, 0.0)
        correction = erp * outside / dt
        if not soft and self.max_correction is not None:
            correction = jnp.maximum(correction, -self.max_correction)
        if self.engagement is not None:
            present, bias = jnp.maximum(sign * at.engaged, 0.0), correction
        elif self.anticipate:
            present, bias = jnp.ones_like(q), correction + inside / dt
        else:
            present, bias = (gap <= 0).astype(q.dtype), correction
        # Rounding must not decide whether a projection holds a stop that q rests on.
        touched = gap + tolerance <= TOUCH * jnp.finfo(q.dtype).eps * jnp.abs(q)
        violation = jnp.where(touched & (not soft), gap + tolerance, jnp.inf)
        compliance = cfm / dt + zero_like(q)
        return Bound(sign * jnp.ones_like(q), bias, compliance, present, violation=violation)

    def _bouncing(self, at: CoordinateState, gap: Array, stop: Bound, other: Bound | None) -> Bound:
        """The stop with its bounce, at most as fast as the other bound allows."""
        approach = jnp.minimum(stop.sign * at.qd, 0.0)
        hits = gap + at.dt * approach <= 0 if self.anticipate else gap <= 0
        leaving = self.restitution * approach
        if other is not None and self.anticipate:
            leaving = jnp.maximum(leaving, -other.bias)
        bias = jnp.where(hits & (approach < 0), jnp.minimum(stop.bias, leaving), stop.bias)
        return replace(stop, bias=bias)

    def energy(self, q: Array) -> Array:
        """See `Law.energy`: ½ k x², x the distance past a soft bound."""
        if self.stiffness is None:
            return jnp.zeros_like(q)
        below = 0.0 if self.lower is None else jnp.maximum(self.lower - q, 0.0)
        above = 0.0 if self.upper is None else jnp.maximum(q - self.upper, 0.0)
        return 0.5 * self.stiffness * (below + above) ** 2

    def check(self) -> str | None:
        problem = check_numbers(self, "max_correction")
        if problem:
            return problem
        if self.lower is None and self.upper is None:
            return "has neither lower nor upper; give at least one bound"
        soft = self.stiffness is not None or self.damping is not None
        if soft and (self.erp is not None or self.cfm is not None):
            return "has both stiffness/damping and erp/cfm; give one pair"
        if self.reference is not None:
            if not isinstance(self.reference, ReferenceAcceleration):
                return f"reference {self.reference} must be a ReferenceAcceleration, or None"
            others = "stiffness", "damping", "erp", "cfm", "restitution", "engagement"
            given = [name for name in others if getattr(self, name) is not None]
            if given:
                return f"has reference and {given[0]}; a stop has one softness, give one"
            problem = self.reference.check()
            if problem:
                return problem
        if self.engagement is not None:
            if not isinstance(self.engagement, Engagement):
                return f"engagement {self.engagement} must be an Engagement, or None"
            if self.restitution is not None:
                return "has engagement and restitution; an engaged stop does not bounce, give one"
            problem = self.engagement.check()
            if problem:
                return problem
        if soft and self.restitution is not None:
            return "has stiffness/damping and restitution; a soft stop bounces by its damping"
        if soft and not (_value(self.stiffness) + _value(self.damping)) > 0:
            return "stiffness and damping are both 0; a soft stop needs one of them"
        if self.lower is not None and self.upper is not None and self.lower > self.upper:
            return f"lower {self.lower} must not be above upper {self.upper}"
        return None


@struct
class LimitForce(Law):
    """ArtiSynth's smooth limit: past a bound by x, a force f(x) + s(x) d q̇ towards it.

        f = k x² / (2 τ), s = √(x/τ)   for x < τ;      f = k (x - τ/2), s = 1   beyond

    The step uses f + h f′(x) q̇⁺ + s d q̇⁺, linearized about its start. The law acts once the bound
    is passed, and its damper pulls a coordinate that moves back, as ArtiSynth's does. `Limits` with
    stiffness and damping anticipates the bound and never pulls.

    lower, upper: bounds, None for an absent side; give two laws if the sides differ
    stiffness: k [N/m or N m/rad]; damping: d [N s/m or N m s/rad]
    transition: τ, the distance over which force and damping rise [m or rad]

    On a length the force is Blankevoort's of a ligament, as in OpenSim: upper is `slack_length`,
    stiffness `linear_stiffness` / `slack_length`, transition `transition_strain` · `slack_length`.

    Source: ArtiSynth JointLimitForce.

    >>> ligament = LimitForce(upper=1.0, stiffness=40.0, transition=0.5)
    >>> at = CoordinateState(q=jnp.array([1.25, 1.5]), dt=jnp.array(0.125))
    >>> print(ligament.force(at).impulse / at.dt)  # -40 · 0.25² / (2 · 0.5), -40 (0.5 - 0.5/2)
    [ -2.5 -10. ]
    """

    lower: Array | float | None = None
    upper: Array | float | None = None
    stiffness: Array | float = 0.0
    damping: Array | float = 0.0
    transition: Array | float = 0.0
    coordinate: int = static(default=0, kw_only=True)
    kind: ClassVar[type] = Linear
    batched: ClassVar[bool] = True

    def force(self, at: CoordinateState) -> Linear:
        q, dt = at.q, at.dt
        above = jnp.zeros_like(q) if self.upper is None else jnp.maximum(q - self.upper, 0.0)
        below = jnp.zeros_like(q) if self.lower is None else jnp.maximum(self.lower - q, 0.0)
        x, τ = above + below, self.transition
        past, inside = x > 0, (x > 0) & (x < τ)
        # Protects the divisions from τ = 0 and the root from x = 0.
        share = jnp.where(inside, x, 1.0) / jnp.where(inside, τ, 1.0)
        force = self.stiffness * jnp.where(inside, share * x / 2, x - jnp.where(past, τ / 2, 0.0))
        slope = self.stiffness * jnp.where(past, share, 0.0)
        damping = self.damping * jnp.where(past, jnp.sqrt(share), 0.0)
        away = jnp.where(above > 0, 1.0, -1.0)
        return Linear(dt * (dt * slope + damping), -dt * away * force)

    def check(self) -> str | None:
        bounds = [x for x in (self.lower, self.upper) if x is not None]
        if not bounds or not np.isfinite(np.concatenate([np.ravel(x) for x in bounds])).all():
            return f"lower {self.lower} and upper {self.upper} must be numbers; one may be None"
        if len(bounds) == 2 and np.any(np.asarray(self.lower) > np.asarray(self.upper)):
            return f"lower {self.lower} must not be above upper {self.upper}"
        if np.any(np.asarray(self.transition) < 0):
            return f"transition {self.transition} must be >= 0"
        return check_numbers(self)


@struct
class Lock(Law):
    """A coordinate held at `value`.

    Other laws of the coordinate have no effect while the lock is engaged for good (None).

    value: [m or rad]; erp: share of the error that one step removes; cfm: velocity per unit force,
        0 for a hard lock
    engaged: 1 holds, 0 exerts no force; one number for each environment, which may change at any
        step. None: always engaged, which is faster

    >>> at = CoordinateState(q=jnp.array(1.5), dt=jnp.array(0.125))
    >>> held = Lock(1.0, erp=0.25).force(at)
    >>> print(held.error, held.bias)  # asks for a speed of -0.25 · 0.5 / 0.125
    0.5 1.0
    """

    value: Array | float
    erp: Array | float = 0.2
    cfm: Array | float = 0.0
    engaged: Array | float | None = None
    coordinate: int = static(default=0, kw_only=True)
    batched: ClassVar[bool] = True

    @property
    def kind(self) -> type:
        """`Latch` with `engaged`, else `Hard` (see `Law`)."""
        return Hard if self.engaged is None else Latch

    def force(self, at: CoordinateState) -> Hard | Latch:
        q, dt = at.q, at.dt
        error = q - self.value
        bias, compliance = self.erp * error / dt, self.cfm / dt + zero_like(q)
        if self.engaged is None:
            return Hard(bias, compliance, error)
        return Latch(bias, self.engaged + zero_like(q), compliance, error)

    def check(self) -> str | None:
        return check_numbers(self, "value")


def located(
    at: CoordinateState,
    gap: Array,
    stop: Bound,
    restitution: Array,
    least: Array | float = 0.0,
    surface: Array | float = 0.0,
) -> Bound:
    """A stop with the time at which the coordinate reaches it in the step, and how it bounces then.

    Positions of steps lie on the parabola that begins at the mean of the speeds before and after
    the forces of the step. Where it crosses the stop is the time of impact, and its slope there the
    speed of impact. What would come back to the stop within the step does not bounce.

    gap: way that is left to the stop, < 0 past it
    least: speed of impact below which it does not bounce; surface: speed of the stop, outwards
    """
    start, end, dt = stop.sign * at.qd, stop.sign * at.free_speed, at.dt
    gained = end - start
    time = _crossing(jnp.where(gap >= 0, gap, 0.0), start, end, dt)
    before = start + gained * (time / dt + 0.5)
    after = surface - restitution * (before - surface)
    rises = after + gained * (1 - time / dt) / 2 > RESTING * jnp.abs(gained)
    hits = (gap + dt * end <= 0) & (surface - before > least) & rises
    hits = jnp.where(hits, stop.present, 0.0)
    e = restitution + zero_like(at.q)
    return replace(
        stop,
        present=stop.present * (1 - hits),
        bias=jnp.where(hits > 0, -(1 + e) * surface, stop.bias),
        rebound=Rebound(hits, time, e, at.qd),
    )


def _crossing(gap: Array, start: Array, end: Array, dt: Array) -> Array:
    """When gap + (start + end) t/2 + (end - start) t²/(2 dt) is 0, in [0, dt]."""
    mean, rate = (start + end) / 2, (end - start) / dt
    square = mean * mean - 2 * rate * gap
    some = square > 0
    root = jnp.where(some, jnp.sqrt(jnp.where(some, square, 1.0)), 0.0)
    falls = mean <= 0
    # Of the two forms of the root the one in which nothing cancels.
    up, down = jnp.where(falls, 2 * gap, mean + root), jnp.where(falls, root - mean, -rate)
    time = jnp.where(down > 0, up / jnp.where(down > 0, down, 1.0), 0.0)
    return jnp.where(time < dt, time, dt)


def _value(x) -> float:
    return 0.0 if x is None else float(np.max(np.asarray(x)))
