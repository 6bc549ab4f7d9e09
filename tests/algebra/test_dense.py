"""Laws of the small dense algebra, against numpy in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from jaxjoints.algebra import dense

TRAILING = [(), (4,), (2, 3)]
SIZES = [1, 2, 3, 4, 5, 6]
DTYPES = [jnp.float32, jnp.float64]

inverse = jax.jit(dense.inverse)
cholesky_inverse = jax.jit(dense.cholesky_inverse)
SQUARE = [*((r, (4,)) for r in SIZES), *((3, trailing) for trailing in ((), (2, 3)))]
square = pytest.mark.parametrize("r, trailing", SQUARE)
# By default the smallest matrix in single precision and the largest in double.
some_square = pytest.mark.parametrize(
    "r, trailing, dtype",
    [
        pytest.param(
            *(r, trailing, dtype),
            id=f"{r}-trailing{i}-{dtype.__name__}",
            marks=() if (r, dtype) in ((1, jnp.float32), (6, jnp.float64)) else pytest.mark.slow,
        )
        for i, (r, trailing) in enumerate(SQUARE)
        for dtype in DTYPES
    ],
)
dtypes = pytest.mark.parametrize("dtype", DTYPES)


def rounding(dtype, operations=64):
    """Relative error of about `operations` roundings."""
    return operations * float(jnp.finfo(dtype).eps)


def draw(*shape, dtype=jnp.float64, seed=0):
    """Normal numbers, as JAX and as numpy have them in float64."""
    x = jnp.asarray(np.random.default_rng([seed, *shape]).normal(size=shape), dtype)
    return x, np.asarray(x, np.float64)


def conditioned(r, trailing, dtype, seed=0):
    """Positive definite matrices with condition numbers of at most a hundred or so."""
    _, X = draw(r, r, *trailing, seed=seed)
    unit = np.eye(r).reshape(r, r, *(1,) * len(trailing))
    A = jnp.asarray(np.einsum("ij...,kj...->ik...", X, X) + 0.5 * unit, dtype)
    return A, np.asarray(A, np.float64)


def leading(x):
    """Matrix axes last, as numpy wants them."""
    return np.moveaxis(np.asarray(x, np.float64), (0, 1), (-2, -1))


def assert_close(actual, expected, tolerance):
    scale = max(1.0, float(np.max(np.abs(expected))))
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance * scale)


PRODUCTS = {
    "product": (dense.product, "ik...,kj...->ij...", (2, 3), (3, 5)),
    "product_transposed": (dense.product_transposed, "ik...,jk...->ij...", (2, 3), (5, 3)),
    "transposed_product": (dense.transposed_product, "ki...,kj...->ij...", (3, 2), (3, 5)),
    "multiply": (dense.multiply, "ik...,k...->i...", (2, 3), (3,)),
    "multiply_transposed": (dense.multiply_transposed, "ki...,k...->i...", (3, 2), (3,)),
}


@pytest.mark.parametrize("dtype", [pytest.param(jnp.float32, marks=pytest.mark.slow), jnp.float64])
@pytest.mark.parametrize(
    "trailing", [*(pytest.param(axes, marks=pytest.mark.slow) for axes in TRAILING[:-1]), (2, 3)]
)
@pytest.mark.parametrize("name", PRODUCTS)
def test_products_match_numpy(name, trailing, dtype):
    function, subscripts, left, right = PRODUCTS[name]
    (A, A64), (B, B64) = draw(*left, *trailing, dtype=dtype), draw(*right, *trailing, dtype=dtype)
    result = function(A, B)
    assert result.dtype == dtype
    assert_close(result, np.einsum(subscripts, A64, B64), rounding(dtype))


@pytest.mark.parametrize("name", PRODUCTS)
def test_one_operand_broadcasts_against_many(name):
    function, subscripts, left, right = PRODUCTS[name]
    for one, many in (((4, 1), (4, 3)), ((1, 3), (4, 3))):
        (A, A64), (B, B64) = draw(*left, *one), draw(*right, *many)
        assert_close(function(A, B), np.einsum(subscripts, A64, B64), rounding(jnp.float64))


@some_square
def test_cholesky_inverse_whitens(r, trailing, dtype):
    A, A64 = conditioned(r, trailing, dtype)
    X = cholesky_inverse(A)
    assert X.dtype == dtype
    assert_close(leading(X), np.linalg.inv(np.linalg.cholesky(leading(A64))), 100 * rounding(dtype))
    assert not np.any(np.triu(leading(X), 1))


def test_cholesky_inverse_reads_the_lower_triangle_only():
    A, _ = conditioned(4, (3,), jnp.float64)
    lower = jnp.asarray(np.tril(np.ones((4, 4))))[:, :, None] * A
    np.testing.assert_array_equal(cholesky_inverse(lower), cholesky_inverse(A))


@dtypes
def test_cholesky_inverse_of_singular_matrices_is_finite(dtype):
    _, x = draw(6, 2)
    singular = [x @ x.T, 1e-12 * (x @ x.T), 1e8 * (x @ x.T), np.zeros((6, 6)), -np.eye(6)]
    singular += [x @ x.T - (x * [1, -1]) @ x[::-1].T, np.ones((6, 6)) - np.eye(6)]
    regular, expected = conditioned(6, (), dtype)
    X = cholesky_inverse(jnp.stack([jnp.asarray(A, dtype) for A in singular] + [regular], 2))
    assert np.all(np.isfinite(X))
    # Squared, as a factorization does with it, it is finite still.
    assert np.all(np.isfinite(dense.transposed_product(X, X)))
    alone = np.linalg.inv(np.linalg.cholesky(expected))
    assert_close(X[:, :, -1], alone, 100 * rounding(dtype))


def test_cholesky_inverse_leaves_redundant_rows_out():
    A, A64 = conditioned(4, (), jnp.float64)
    twice = np.array([0, 1, 1, 2, 3])
    X = np.asarray(cholesky_inverse(A[np.ix_(twice, twice)]))
    assert not X[2].any() and not X[:, 2].any()
    kept = np.array([0, 1, 3, 4])
    expected = np.linalg.inv(np.linalg.cholesky(A64))
    assert_close(X[np.ix_(kept, kept)], expected, rounding(jnp.float64))


def test_cholesky_inverse_of_nan_is_nan():
    assert np.isnan(cholesky_inverse(jnp.full((1, 1), jnp.nan)))


@some_square
def test_inverse_undoes_the_matrix(r, trailing, dtype):
    A, A64 = draw(r, r, *trailing, dtype=dtype, seed=1)
    X = inverse(A)
    assert X.dtype == dtype
    condition = np.max(np.linalg.cond(leading(A64)))
    assert_close(leading(X), np.linalg.inv(leading(A64)), condition * rounding(dtype))


def test_inverse_pivots():
    permutation = np.eye(6)[[3, 0, 5, 1, 4, 2]]
    ties = np.array([[0.0, 1.0, 1.0], [1.0, 0.0, 1.0], [1.0, 1.0, 0.0]])
    for A in (permutation, -permutation, 1e-9 * permutation, ties):
        X = inverse(jnp.asarray(A))
        np.testing.assert_allclose(np.asarray(X) @ A, np.eye(len(A)), atol=rounding(jnp.float64))


@dtypes
def test_inverse_of_singular_matrices_is_finite(dtype):
    _, x = draw(4, 2)
    for A in (x @ x.T, np.zeros((4, 4))):
        assert np.all(np.isfinite(inverse(jnp.asarray(A, dtype))))


def test_inverse_derivatives_match_finite_differences():
    A, _ = draw(3, 3, 2, seed=2)
    A = A + 3 * jnp.eye(3)[:, :, None]

    @jax.jit
    def slope(A):
        return jax.jvp(dense.inverse, (A,), (jnp.cos(A),))[1]

    for function in (inverse, slope):
        check_grads(function, (A,), order=1, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("function", [dense.inverse, dense.cholesky_inverse])
def test_vmap_equals_trailing_axes(function):
    A, _ = conditioned(3, (4,), jnp.float64)
    mapped = jax.jit(jax.vmap(function, in_axes=-1, out_axes=-1))(A)
    np.testing.assert_allclose(mapped, jax.jit(function)(A), rtol=100 * rounding(jnp.float64))


@pytest.mark.parametrize("size", [1.0, 1e-7, 1e-11])
def test_inverse_of_three_has_a_derivative_at_any_size(size):
    """d(A⁻¹) = -A⁻¹ dA A⁻¹, in float32 too."""
    A = np.array([[2.0, 0.3, -0.1], [0.3, 1.5, 0.2], [-0.1, 0.2, 1.8]])
    dA = np.array([[0.1, -0.4, 0.3], [0.2, 0.5, -0.2], [0.7, 0.1, 0.3]])
    given = [jnp.asarray(size * x, jnp.float32) for x in (A, dA)]
    X, dX = jax.jit(lambda A, dA: jax.jvp(dense.inverse_of_three, (A,), (dA,)))(*given)
    exact = np.linalg.inv(A)
    np.testing.assert_allclose(X * size, exact, rtol=0, atol=1e-6)
    np.testing.assert_allclose(dX * size, -exact @ dA @ exact, rtol=0, atol=1e-6)
