"""The backward pass of differential dynamic programming with control limits, for one environment.

Source: Tassa, Mansard and Todorov, Control-limited differential dynamic programming, ICRA 2014,
equations 5 to 8 and 11 and the projected Newton method of section III; gaps between shots as in
Giftthaler et al., A family of iterative Gauss-Newton shooting methods for nonlinear optimal
control, IROS 2018.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..algebra.pytree import struct
from .linearization import Expansion

# Lengths of a projected Newton step that are tried at once.
LENGTHS = 0.5 ** np.arange(6)
# Added to the curvature of the cost by controls where it has none, in units of the controls.
LEAST = 1e-9


@struct
class Policy:
    """How controls change: u + α `change` + `gain` x, x the deviation of a knot.

    change: shape (horizon, m); gain: shape (horizon, m, n)
    shift: how knots move by the whole change (α = 1), to first order, shape (horizon + 1, n)
    decrease: of the augmented cost that the expansion promises
    price: largest derivative of the cost to go by each number of a knot, shape (n,)
    """

    change: Array
    gain: Array
    shift: Array
    decrease: Array
    price: Array


def backward(
    expansion: Expansion, gap: Array, lower: Array, upper: Array, unit: Array, damping: Array
) -> Policy:
    """The policy of least expected cost within the bounds, by Riccati's recursion.

    gap: of the path behind each interval, what its end is ahead of the next knot, (horizon, n)
    lower, upper: of the change of the controls, shape (horizon, m)
    unit: of each control, shape (m,)
    damping: added to the curvature by the controls, as a share of its largest diagonal entry
    """
    n = expansion.A.shape[1]
    ridge = jnp.diag(1 / unit**2)

    def earlier(later, now):
        slope, curvature = later
        (A, B, c, C), d, lo, hi = now
        slope = slope + curvature @ d
        F = jnp.concatenate([A, B], axis=1)
        q, Q = c + F.T @ slope, C + F.T @ curvature @ F
        Qxx, Qux, Quu = Q[:n, :n], Q[n:, :n], Q[n:, n:]
        size = jnp.max(jnp.diagonal(Quu) * unit**2)
        H = Quu + (damping * size + LEAST) * ridge
        k, free = box_step(H, q[n:], lo, hi)
        K = -jnp.linalg.solve(_free(H, free), jnp.where(free[:, None], Qux, 0.0))
        slope = q[:n] + K.T @ (Quu @ k + q[n:]) + Qux.T @ k
        curvature = Qxx + K.T @ Quu @ K + K.T @ Qux + Qux.T @ K
        promised = -(k @ q[n:] + k @ Quu @ k / 2)
        return (slope, (curvature + curvature.T) / 2), (k, K, promised, jnp.abs(slope))

    e = expansion
    end = e.end_slope, e.end_curvature
    rows = (e.A, e.B, e.slope, e.curvature), gap, lower, upper
    _, (change, gain, promised, price) = jax.lax.scan(earlier, end, rows, reverse=True)

    def move(x, now):
        A, B, d, k, K = now
        x = A @ x + B @ (k + K @ x) + d
        return x, x

    none = jnp.zeros(n, gap.dtype)
    _, shift = jax.lax.scan(move, none, (e.A, e.B, gap, change, gain))
    shift = jnp.concatenate([none[None], shift])
    return Policy(change, gain, shift, jnp.sum(promised), jnp.max(price, axis=0))


def box_step(H: Array, g: Array, lower: Array, upper: Array) -> tuple[Array, Array]:
    """The step of least xᵀH x/2 + gᵀx within bounds, and which of its numbers are free.

    By projected Newton steps, of which the best of several lengths is taken.
    """
    m = len(g)

    def value(x):
        return x @ H @ x / 2 + g @ x

    def improved(_, x):
        free = _inside(x, g + H @ x, lower, upper)
        target = jnp.where(free, -(g + H @ jnp.where(free, 0.0, x)), x)
        target = jnp.linalg.solve(_free(H, free), jnp.where(free, target, 0.0))
        step = jnp.where(free, target - x, 0.0)
        tried = x[None] + jnp.asarray(LENGTHS[:, None], x.dtype) * step[None]
        tried = jnp.clip(tried, lower[None], upper[None])
        best = tried[jnp.argmin(jax.vmap(value)(tried))]
        return jnp.where(value(best) < value(x), best, x)

    # Each step frees or holds one number at least; a few more for those that change their mind.
    x = jax.lax.fori_loop(0, 2 * m + 2, improved, jnp.clip(jnp.zeros_like(g), lower, upper))
    return x, _inside(x, g + H @ x, lower, upper)


def _inside(x: Array, slope: Array, lower: Array, upper: Array) -> Array:
    """Which numbers no bound holds back from going downhill."""
    return ~(((x <= lower) & (slope > 0)) | ((x >= upper) & (slope < 0)))


def _free(H: Array, free: Array) -> Array:
    """The matrix of the free numbers, with 1 on the diagonal for the others."""
    both = free[:, None] & free[None]
    return jnp.where(both, H, jnp.diag(jnp.where(free, 0.0, 1.0).astype(H.dtype)))
