"""Laws of the divergences; the truth is a numerical supremum in float64, and closed forms."""

import math
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import DIVERGENCES, named

from partita.divergences import KL, AbstractDivergence, ChiSquare, JensenShannon, ReverseKL, SquaredHellinger, Tsallis

BOUNDED = named(
    *(KL(bound=2.0), ChiSquare(bound=3.0), Tsallis(1.5, bound=2.0), Tsallis(0.5, bound=1.0)),
    *(JensenShannon(bound=0.5), SquaredHellinger(bound=0.5), ReverseKL(bound=0.5)),
    *(Tsallis(0.1), Tsallis(0.9), Tsallis(3.0)),
)
ALL = DIVERGENCES | BOUNDED

EPS = float(np.finfo(np.float32).eps)


def in_float64(function, v):
    """A scalar function of the library over an array of numbers, in float64."""
    # Neither jitted nor of many shapes: the single operations are compiled once for all divergences.
    padded = np.resize(np.asarray(v, np.float64), 64 if len(v) <= 64 else 2**15)
    with jax.enable_x64(True):
        return np.asarray(jax.vmap(function)(jnp.asarray(padded)))[: len(v)]


def ratios(f):
    """Density ratios u from 1e-3 up to that at the bound, or 1e3."""
    (last,) = in_float64(f.density, [f.bound])
    return np.geomspace(1e-3, min(last, 1e3), 40)


def arguments(f):
    """v within the domain up to the bound: f'(u) for all kinds of u, and far below."""
    v = np.concatenate([[-50.0, -20.0, -5.0], in_float64(jax.grad(f.f), ratios(f))])
    return np.minimum(v, f.bound)


def supremum(f, v, last):
    """sup of u v - f(u) over 0 <= u <= last for each v, by zooming in on the best of 400 intervals."""
    v = np.asarray(v)[:, None]
    low, high = np.zeros_like(v), np.full_like(v, last)
    for _ in range(9):  # The objective is concave; the last interval is 200^-9 of the first.
        u = low + (high - low) * np.linspace(0, 1, 401)
        value = u * v - in_float64(f.f, u.ravel()).reshape(u.shape)
        best = value.argmax(1, keepdims=True)
        low, high = (np.take_along_axis(u, np.clip(best + step, 0, 400), axis=1) for step in (-1, 1))
    return value.max(1)


@pytest.mark.parametrize("f", ALL.values(), ids=ALL)
def test_conjugate_is_the_supremum(f):
    v = arguments(f)
    (last,) = in_float64(f.density, [v.max()])
    # The supremum is attained where u is the density, and this is largest at the largest v. At u = 1e8 the terms
    # u v and f(u) are 1e9 and nearly cancel: float64 leaves 1e-7.
    np.testing.assert_allclose(in_float64(f.conjugate, v), supremum(f, v, 2 * last + 2), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("f", ALL.values(), ids=ALL)
def test_continued_is_the_conjugate_of_f_up_to_the_last_ratio(f):
    """sup of u v - f(u) over u <= U, U the density at the bound, for v below and beyond the bound."""
    v = np.append(arguments(f), f.bound + np.array([0.0, 1e-3, 0.1, 1.0, 10.0, 1e3, 1e6]))
    (last,) = in_float64(f.density, [f.bound])
    # Relative to U (1 + |v|), the size of the terms whose difference is the supremum.
    error = np.abs(in_float64(f.continued, v) - supremum(f, v, last))
    assert (error <= 1e-11 * (1 + last) * (1 + np.abs(v))).all()


@pytest.mark.parametrize("f", ALL.values(), ids=ALL)
def test_fenchel_young_inequality(f):
    """f(u) + f*(v) >= u v, with equality at v = f'(u)."""
    u = ratios(f)
    values, v = in_float64(f.f, u), in_float64(jax.grad(f.f), u)
    conjugates = in_float64(f.conjugate, v)
    # f' and f* in float64, at ratios of up to 1e3.
    np.testing.assert_allclose(values + conjugates, u * v, rtol=1e-9, atol=1e-9)
    gaps = values[:, None] + conjugates[None] - u[:, None] * v[None]
    assert (gaps >= -1e-9 * (1 + np.abs(u[:, None] * v[None]))).all()


DENSITIES = {
    KL: lambda f, v: np.exp(v),
    ChiSquare: lambda f, v: np.maximum(v, 0),
    Tsallis: lambda f, v: np.maximum(1 + (f.alpha - 1) * v, 0) ** (1 / (f.alpha - 1)),
    JensenShannon: lambda f, v: np.exp(v) / (2 - np.exp(v)),
    SquaredHellinger: lambda f, v: 1 / (1 - v) ** 2,
    ReverseKL: lambda f, v: 1 / (1 - v),
}


@pytest.mark.parametrize("f", ALL.values(), ids=ALL)
def test_density_is_the_derivative_of_the_conjugate(f):
    """Against the closed forms, and log_density is its log."""
    v = arguments(f)
    expected = DENSITIES[type(f)](f, v)
    # Near the end of a bounded domain, 1e-4 away from it, the density's condition number is 1e4.
    np.testing.assert_allclose(in_float64(f.density, v), expected, rtol=1e-10, atol=1e-14)
    positive = expected > 0
    log_density = in_float64(f.log_density, v)
    np.testing.assert_allclose(log_density[positive], np.log(expected[positive]), rtol=1e-10, atol=1e-10)
    assert (log_density[~positive] == -np.inf).all()


@pytest.mark.parametrize("f", ALL.values(), ids=ALL)
def test_density_inverts_the_derivative_of_f(f):
    u = ratios(f)
    np.testing.assert_allclose(in_float64(f.density, in_float64(jax.grad(f.f), u)), u, rtol=1e-9)


@pytest.mark.parametrize("f", ALL.values(), ids=ALL)
def test_tau_starts_where_every_density_is_one(f):
    """f(1) = 0, start = -f'(1), and the density at v = f'(1), that is at g = 0 and tau = start, is 1."""
    slope = 1.0 if isinstance(f, ChiSquare) else 0.0
    assert f.start == -slope
    np.testing.assert_allclose(in_float64(f.f, [1.0]), 0, atol=1e-14)
    # By a central difference of step 1e-5: the error is 1e-10 f''', and 1e-16 / 1e-5 from rounding.
    above, below = in_float64(f.f, [1 + 1e-5, 1 - 1e-5])
    assert (above - below) / 2e-5 == pytest.approx(slope, abs=1e-8)
    # In float32, as in training.
    assert float(f.density(jnp.asarray(-f.start))) == pytest.approx(1, abs=4 * EPS)


@pytest.mark.parametrize("f", ALL.values(), ids=ALL)
def test_continued_is_convex_and_continuous(f):
    step = np.geomspace(1e-4, 1e3, 20) * max(1, f.bound)
    v = np.concatenate([f.bound - step[::-1], [f.bound], f.bound + step])
    value = in_float64(f.continued, v)
    slopes = np.diff(value) / np.diff(v)
    # The smallest steps are 1e-4 of v, so that a difference quotient is good to 1e-11 or so.
    assert (np.diff(slopes) >= -1e-9 * (1 + slopes.max())).all()
    below, at, above = in_float64(f.continued, [np.nextafter(f.bound, -1e300), f.bound, np.nextafter(f.bound, 1e300)])
    # One spacing of v times the slope at the bound, and as much again for rounding.
    jump = 4 * np.spacing(max(1, f.bound)) * (slopes.max() + abs(at) + 1)
    assert abs(at - below) <= jump
    assert abs(above - at) <= jump


@pytest.mark.parametrize("f", ALL.values(), ids=ALL)
def test_continued_has_a_second_derivative(f):
    """That of the conjugate below the bound, 0 beyond: its first derivative has a rule of its own."""
    v = in_float64(jax.grad(f.f), [0.3, 0.5, 0.7])
    slope, curvature = jax.grad(f.continued), jax.grad(jax.grad(f.continued))
    h = 1e-5
    numerical = (in_float64(slope, v + h) - in_float64(slope, v - h)) / (2 * h)
    # A central difference in float64: truncation and rounding are both near 1e-10 of values near 1.
    np.testing.assert_allclose(in_float64(curvature, v), numerical, rtol=1e-6)
    np.testing.assert_array_equal(in_float64(curvature, f.bound + max(1, f.bound) * np.array([0.1, 10.0])), 0)


def magnitudes(f):
    """float32 numbers of either sign, from 1e-40 to 1e6, 0, the bound and its neighbors."""
    v = np.concatenate([[0.0], np.geomspace(1e-40, 1e-3, 10), np.geomspace(1e-2, 1e6, 120)]).astype(np.float32)
    c = np.float32(f.bound)
    near = np.array([c, np.nextafter(c, np.float32(-np.inf)), np.nextafter(c, np.float32(np.inf))])
    return np.concatenate([v, -v, near, -near])


@pytest.mark.parametrize("f", ALL.values(), ids=ALL)
def test_value_and_gradient_are_finite(f):
    """For all |v| <= 1e6 in float32; the gradient is a density ratio, between 0 and the last."""
    value, gradient = jax.vmap(jax.value_and_grad(f.continued))(magnitudes(f))
    assert np.isfinite(value).all()
    (last,) = in_float64(f.density, [f.bound])
    # 1e-4 away from the end of its domain, a density in float32 is good to some 1e-3.
    assert (gradient >= 0).all()
    assert (gradient <= 1.01 * last).all()


@pytest.mark.parametrize("f", ALL.values(), ids=ALL)
def test_weighted_value_and_gradient_are_finite(f):
    """The same for w f*(v), with respect to v and log w."""
    log_w = np.array([-100, -1, 0, 1, 10], np.float32)
    v, log_w = np.broadcast_arrays(magnitudes(f)[:, None], log_w)
    value, gradients = jax.vmap(jax.value_and_grad(f.weighted_conjugate, (0, 1)))(v.ravel(), log_w.ravel())
    assert np.isfinite(value).all()
    assert np.isfinite(gradients).all()


@pytest.mark.parametrize("f", ALL.values(), ids=ALL)
def test_float32_is_accurate(f):
    """The value in float32 is that at a v which is off by a few roundings."""
    v = np.minimum(arguments(f).astype(np.float32), np.nextafter(np.float32(f.bound), np.float32(-1)))
    value, density = (in_float64(function, v) for function in (f.conjugate, f.density))
    error = np.abs(np.asarray(jax.vmap(f.continued)(v), np.float64) - value)
    assert (error <= 8 * EPS * (1 + np.abs(value) + density * np.maximum(1, np.abs(v)))).all()


@pytest.mark.parametrize("f", ALL.values(), ids=ALL)
def test_weighted_conjugate_is_the_product(f):
    """w f*(v) up to the bound, which for KL is on v + log w."""
    for log_w in (-100.0, -1.0, 1.0, 10.0):
        v = np.minimum(arguments(f), f.bound - max(log_w, 0) if isinstance(f, KL) else f.bound)
        weighted = in_float64(lambda v, log_w=log_w: f.weighted_conjugate(v, jnp.asarray(log_w, v.dtype)), v)
        # KL takes the difference of exp(v + log w) - 1 and w - 1.
        np.testing.assert_allclose(weighted, math.exp(log_w) * in_float64(f.conjugate, v), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("v", [300.0, 1e4])
def test_weighted_kl_is_stable_where_the_product_is_not(v):
    """A tiny w times a huge exp(v), both out of float32's range: exp(v + log w) - w and its gradient are 1."""
    v, log_w = jnp.asarray(v), jnp.asarray(-v)
    assert not np.isfinite(jnp.exp(log_w) * KL().conjugate(v))
    value, gradient = jax.value_and_grad(KL().weighted_conjugate)(v, log_w)
    assert float(value) == pytest.approx(1)
    assert float(gradient) == pytest.approx(1)


@pytest.mark.parametrize("step", [0.1, 1e-2, 1e-3, 1e-4, 1e-5, -0.1, -1e-2, -1e-3, -1e-4, -1e-5])
def test_tsallis_approaches_kl(step):
    """The conjugates differ by less than |alpha - 1| v^2 e^v, in float32 up to rounding."""
    v = np.linspace(-3, 3, 50, dtype=np.float32)
    tsallis, kl = (np.asarray(jax.vmap(f.continued)(v), np.float64) for f in (Tsallis(1 + step), KL()))
    # d/da of f*(v) at a = 1 is e^v (v - v^2 / 2 - 1) + 1, which is below (2 + v^2 / 2) (1 + e^v); doubled for the next
    # order. Rounding: a few units in the last place of 1 + e^v.
    allowed = 2 * abs(step) * (2 + v**2 / 2) + 32 * EPS
    assert (np.abs(tsallis - kl) <= allowed * (1 + np.exp(v))).all()


def test_tsallis_of_two_is_chi_square_with_v_moved_by_one():
    """(u - 1)^2 / 2 is (u^2 - 1) / 2 - (u - 1): the conjugate at v is that at v + 1, less 1."""
    v, u = np.linspace(-5, 5, 41), np.linspace(0, 4, 41)
    two, chi = Tsallis(2.0), ChiSquare()
    # Exact up to float64's rounding.
    np.testing.assert_allclose(in_float64(two.f, u), in_float64(chi.f, u) - (u - 1), atol=1e-13)
    np.testing.assert_allclose(in_float64(two.conjugate, v), in_float64(chi.conjugate, v + 1) - 1, atol=1e-13)
    np.testing.assert_allclose(in_float64(two.density, v), in_float64(chi.density, v + 1), atol=1e-13)


@pytest.mark.parametrize("alpha", [0.0, -1.0, 1.0, math.nan, math.inf])
def test_bad_alpha_is_refused(alpha):
    with pytest.raises(ValueError, match=rf"Tsallis needs a finite alpha > 0, alpha != 1; got {alpha}.*KL\(\)"):
        Tsallis(alpha)


SUPREMA = {JensenShannon: math.log(2), SquaredHellinger: 1.0, ReverseKL: 1.0}


@pytest.mark.parametrize("f", DIVERGENCES.values(), ids=DIVERGENCES)
def test_bad_bounds_are_refused(f):
    """At or below f'(1), at or past the end of the domain, not a number."""

    def rebound(bound):
        return Tsallis(f.alpha, bound) if isinstance(f, Tsallis) else type(f)(bound)

    last = 1 / (1 - f.alpha) if isinstance(f, Tsallis) and f.alpha < 1 else SUPREMA.get(type(f), math.inf)
    for bound in (-f.start, -f.start - 1, last, last + 1, math.nan, math.inf):
        with pytest.raises(ValueError, match=rf"{type(f).__name__} needs a bound c with f'\(1\).* < c < .*; got c = "):
            rebound(bound)


@pytest.mark.parametrize("f", ALL.values(), ids=ALL)
def test_the_largest_ratio_is_the_slope_at_the_bound(f):
    """The closed form against the gradient, in float64."""
    assert f.largest_ratio == pytest.approx(float(in_float64(jax.grad(f.conjugate), [f.bound])[0]), rel=1e-6)


def test_a_divergence_is_made_without_jax():
    """Nothing of the backend is started: a process can still fork."""
    code = """
import os
import partita
from partita import LabelRanker, MultilabelClassifier, divergences
from jax._src import xla_bridge
before = len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else 0
[getattr(divergences, name)() for name in divergences.__all__ if not name.startswith("Abstract")]
MultilabelClassifier(), LabelRanker()
after = len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else 0
print(xla_bridge.backends_are_initialized(), after - before)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "0"]


@pytest.mark.parametrize(
    ("make", "bound"),
    [(KL, 100.0), (SquaredHellinger, 1 - 1e-9), (ReverseKL, 1 - 1e-9), (lambda c: Tsallis(0.9, c), 9.9999)],
    ids=["KL", "SquaredHellinger", "ReverseKL", "Tsallis"],
)
def test_bounds_whose_tangent_is_not_finite_are_refused(make, bound):
    """In float32 these have an infinite density at the bound, so that every value would be nan."""
    with pytest.raises(ValueError, match="bound"):
        make(bound)


def test_the_table_has_every_divergence():
    """A divergence without a row in the table has no laws."""
    final = {cls for cls in AbstractDivergence.__subclasses__() if cls.__module__.startswith("partita")}
    assert {type(f) for f in DIVERGENCES.values()} == final
