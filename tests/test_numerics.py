"""Sums of exponentials with excluded terms, and bisection."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import scipy.special

from partita.numerics import bisect, logaddexp, logsumexp

INF = jnp.inf


@pytest.mark.parametrize("terms", [[0.0, 1.0, -2.0], [-INF, 3.0, -INF], [1e4, 1e4, -1e4]], ids=str)
def test_log_sums_and_their_gradients_are_those_of_scipy(terms):
    value, slope = jax.value_and_grad(logsumexp)(jnp.array(terms))
    assert float(value) == pytest.approx(scipy.special.logsumexp(terms), rel=1e-6)
    np.testing.assert_allclose(slope, scipy.special.softmax(terms), atol=1e-6)


def test_a_sum_of_excluded_terms_has_gradient_zero():
    value, slope = jax.value_and_grad(logsumexp)(jnp.full(3, -INF))
    assert value == -INF
    assert slope.tolist() == [0, 0, 0]
    value, slopes = jax.value_and_grad(logaddexp, argnums=(0, 1))(-INF, -INF)
    assert value == -INF
    assert slopes == (0, 0)


def test_bisection_finds_the_root_of_scipy_alone_and_under_vmap():
    """Rows end after different numbers of halvings; float32 has a relative precision of 6e-8."""
    target = jnp.array([1e-4, 0.5, 3.0, 200.0])

    def root(target):
        return bisect(lambda x: x + jnp.exp(x) < target, jnp.array(-20.0), jnp.array(300.0))

    expected = [scipy.optimize.brentq(lambda x, t=t: x + np.exp(x) - t, -20, 300) for t in np.asarray(target, float)]
    np.testing.assert_allclose(jax.vmap(root)(target), expected, rtol=1e-6)
    np.testing.assert_array_equal(jax.vmap(root)(target), jnp.stack([root(t) for t in target]))
    np.testing.assert_array_equal(jax.vmap(jax.grad(root))(target), 0)


def test_bisection_ends_after_max_steps():
    result = bisect(lambda x: x < 0.3, jnp.array(0.0), jnp.array(1.0), max_steps=2)
    assert float(result) == 0.375
