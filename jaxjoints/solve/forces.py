"""Row laws: how the impulse of a row depends on its speed.

A row has the wrench N, the speed u = N v⁺ at the end of the step, and an impulse λ over the step.
A row law relates λ and u. `Law.force` returns the row law of one coordinate; the solver receives
the same records stacked, for all rows of a problem.
"""

import jax.numpy as jnp
from jax import Array

from ..algebra.pytree import static, struct


@struct
class Linear:
    """A force that is linear in the speed: λ = p - K u.

    augmented_stiffness: K, impulse per speed, ≥ 0: h d of a damper d over a step h, h (h k + d) of
        a spring k with a damper
    impulse: p, the impulse at u = 0

    >>> from jaxjoints import CoordinateState, SpringDamper
    >>> at = CoordinateState(q=jnp.array(0.5), dt=jnp.array(0.25))
    >>> pull = SpringDamper(stiffness=40.0, damping=2.0).force(at)
    >>> print(pull.impulse, pull.augmented_stiffness)  # -h k q, h (h k + d)
    -5.0 3.0
    """

    augmented_stiffness: Array
    impulse: Array


@struct
class Hard:
    """A row held on a value: u + bias + drift + compliance λ = 0, λ free.

    bias: erp φ/h, the speed that corrects the error [m/s or rad/s]
    compliance: cfm/h, speed per impulse
    error: φ, distance from the value [m or rad]
    drift: speed of the value itself [m/s or rad/s], None where it stands still

    >>> from jaxjoints import CoordinateState, Lock
    >>> at = CoordinateState(q=jnp.array(1.5), dt=jnp.array(0.125))
    >>> held = Lock(1.0, erp=1.0).force(at)
    >>> print(held.error, held.bias)  # the error is gone after a step of 0.125 s at u = -4
    0.5 4.0
    """

    bias: Array
    compliance: Array
    error: Array
    drift: Array | None = None


@struct
class Latch:
    """A row held as by `Hard` where `engaged` is 1, and left to its other laws where it is 0.

    Fields as in `Hard`, with two exceptions:

    compliance: None for the smallest that can be solved; error: None where no projection needs it

    >>> from jaxjoints import CoordinateState, Lock
    >>> at = CoordinateState(q=jnp.array(1.5), dt=jnp.array(0.125))
    >>> released = Lock(1.0, engaged=0.0).force(at)
    >>> print(released.error, released.engaged)  # off its value, and not held
    0.5 0.0
    """

    bias: Array
    engaged: Array
    compliance: Array | None = None
    error: Array | None = None


@struct
class Rebound:
    """How a stop bounces that is hit within a step.

    hits: 1 where the stop is hit, 0 elsewhere; time: from the start of the step until then [s]
    restitution: share e of the speed of impact that it gives back
    speed: of the row at the start of the step [m/s or rad/s]

    >>> from jaxjoints import CoordinateState, Limits
    >>> falling = jnp.array(-4.0)
    >>> at = CoordinateState(jnp.array(0.5), jnp.array(0.25), qd=falling, free_speed=falling)
    >>> rebound = Limits(lower=0.0, erp=0.2, cfm=0.0, restitution=0.5).force(at).rebound
    >>> print(rebound.hits, rebound.time)  # 0.5 m at 4 m/s
    1.0 0.125
    """

    hits: Array
    time: Array
    restitution: Array
    speed: Array


@struct
class Bound:
    """A bounded impulse λ along σ N, complementary to w = σ u + bias + compliance λ.

    Without `upper`: 0 ≤ λ ⊥ w ≥ 0. With it: lower ≤ λ ≤ upper, w ≥ 0 at lower, w ≤ 0 at upper.

    sign: σ, ±1
    bias: [m/s or rad/s]; compliance: speed per impulse
    present: 1 where the law acts, 0 where λ = 0
    lower, upper: bounds of the impulse, both None for 0 ≤ λ
    mu: μ of bounds that are wider by μ |Λₙ|, Λₙ the impulse of another row; None for fixed bounds
    violation: of a hard stop that is touched or passed, the distance to its bound, ≤ 0 to within
        rounding, which position projection takes back [m or rad]; infinite for other stops; None
        for laws that are no stops
    rebound: of a stop that bounces within a step; None for other laws. Such a stop is not present
        before its impact; its bias is the part of the speed of impact that does not count
    normal: in a problem, for each coordinate row the coordinate row of Λₙ, of the same node
    across: in a problem, for each coordinate row the other row of its round cone, √(λ² + λ'²) ≤
        upper; the row itself where it has no cone; () where no row has a cone
    absent: in a problem, the coordinate rows that never have such a law

    >>> from jaxjoints import CoordinateState, Limits
    >>> at = CoordinateState(q=jnp.array(0.75), dt=jnp.array(0.125))
    >>> stop = Limits(upper=1.0, erp=0.2, cfm=0.0).force(at)
    >>> print(stop.sign, stop.bias)  # pushes back where u > 2: -u + 2 ≥ 0
    -1.0 2.0
    """

    sign: Array
    bias: Array
    compliance: Array
    present: Array
    lower: Array | None = None
    upper: Array | None = None
    mu: Array | None = None
    violation: Array | None = None
    rebound: Rebound | None = None
    normal: tuple[int, ...] = static(default=())
    across: tuple[int, ...] = static(default=())
    absent: tuple[int, ...] = static(default=())


RowLaw = Linear | Hard | Latch | Bound


def zero_like(x: Array) -> Array:
    """A zero that broadcasts against x: all axes of size 1."""
    return jnp.zeros((1,) * x.ndim, x.dtype)
