"""Surrogates: tractable neighbors of p_g built from the logits theta.

A neighbor serves three times: its measure r says where to look for likely y (never with a gradient in theta), its tau_0
is a lower bound of the log-partition that a learned tau corrects (with gradient), and its summary is what such a
correction reads. Every fixed tau_0 here is a variational bound, for KL,

    LSE_g >= <g, b> + entropy(b) + <log q, b>

at a b that is found without gradient: so its gradient in theta is b's own, and a constant added to g moves it as much
as it moves LSE_g.
"""

import abc
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from ._types import Array, Bool, Float, Key, Scalar
from .couplings import AbstractCoupling, Bilinear, LinearQuadratic
from .divergences import KL, AbstractDivergence
from .measures import (
    AbstractMeasure,
    AbstractScoredMeasure,
    Components,
    ConditionalBernoulli,
    ProductBernoulli,
    Sequential,
    Uniform,
    by_label,
)
from .networks import MLP
from .polytopes import Birkhoff, Cube, Hypersimplex, Permutahedron
from .spaces import AbstractSpace, Hypercube, KSubsets, Permutations

__all__ = [
    "AbstractSurrogate",
    "Amortized",
    "Balanced",
    "Conditional",
    "Independent",
    "MeanField",
    "Neighbor",
    "find",
    "surrogate",
]

TINY = 1e-12
MILD, NEARLY = 8.0, 0.3


class Neighbor(eqx.Module):
    """What a surrogate says about one row."""

    r: AbstractMeasure
    tau: Scalar
    summary: Float[Array, " d"]


class AbstractSurrogate(eqx.Module):
    """Builds a neighbor of p_g from one row's logits."""

    @abc.abstractmethod
    def serves(self, coupling: AbstractCoupling, q: AbstractMeasure, f: AbstractDivergence) -> bool:
        """Whether it can serve this coupling under this kind of reference and this divergence."""

    @abc.abstractmethod
    def __call__(self, coupling: Any, theta: Float[Array, " *theta"], q: Any) -> Neighbor:
        """r, tau_0 and the summary at theta, for a coupling and a q that it serves."""

    def proposal(self, coupling: Any, theta: Float[Array, " *theta"], q: Any, *, key: Key) -> AbstractMeasure:
        """Where to look for every mode of p, not only that of r: r itself, unless a class knows more."""
        return self(coupling, theta, q).r

    def summary_size(self, coupling: AbstractCoupling, q: AbstractMeasure | None = None) -> int:
        """Length of the summary: the input size of a correction's network."""
        q = Uniform(coupling.space) if q is None else q
        theta = jax.ShapeDtypeStruct(coupling.theta_shape, jnp.zeros(0).dtype)
        return eqx.filter_eval_shape(lambda theta: self(coupling, theta, q).summary, theta).shape[0]


class Independent(AbstractSurrogate):
    """Label sets scored by <theta, y>: p itself, independent labels."""

    def serves(self, coupling, q, f):
        unary = isinstance(coupling, Bilinear) and isinstance(coupling.polytope, Cube) and _independent(q)
        return unary and isinstance(f, KL)

    def __call__(self, coupling, theta, q):
        off, on = by_label(q)
        logits = jax.lax.stop_gradient(theta + (on - off))
        return Neighbor(ProductBernoulli(logits), jnp.sum(jnp.logaddexp(off, theta + on)), jax.nn.sigmoid(logits))


class MeanField(AbstractSurrogate):
    """Label sets with interactions: the best independent labels, by damped parallel updates m = sigmoid(u + U m).

    The summary is m and, for each label, the second-order term 1/4 sum_j U_ij^2 v_i v_j, v = m (1 - m), by which
    LSE_g exceeds the bound at weak interactions.

    Strong interactions have many fixed points, one near each mode of p. r is the one that the updates reach from u;
    `proposal` mixes those that they reach from `starts` points, u and draws from q.
    """

    sweeps: int = eqx.field(static=True, default=30)
    damping: float = eqx.field(static=True, default=0.5)
    starts: int = eqx.field(static=True, default=16)

    def serves(self, coupling, q, f):
        on_sets = isinstance(coupling, LinearQuadratic) and isinstance(coupling.space, Hypercube) and _independent(q)
        return on_sets and isinstance(f, KL)

    def __call__(self, coupling, theta, q):
        return self._from(jnp.zeros(coupling.space.shape, theta.dtype), coupling, theta, q)

    def proposal(self, coupling, theta, q, *, key):
        first = jnp.zeros((1, *coupling.space.shape), theta.dtype)
        starts = jnp.concatenate([first, q.sample(self.starts - 1, key=key).astype(theta.dtype)])
        near = jax.vmap(lambda m: self._from(m, coupling, theta, q))(starts)
        # Half of the draws in proportion to the bounds, half spread evenly; and half of all from fields cut by two,
        # because independent labels are narrower than the modes of p.
        log_share = jnp.logaddexp(jax.nn.log_softmax(near.tau), -math.log(self.starts)) - math.log(4)
        r = jax.tree.map(lambda field: jnp.concatenate([field, field / 2]), near.r)
        return Components(r, jnp.concatenate([log_share, log_share]))

    def _from(self, m, coupling, theta, q):
        """The neighbor that the updates reach from labels of mean m."""
        u, s = coupling.parameters(theta)
        matrix, whole = coupling.interaction.matrix(s), coupling.interaction.operator(s)
        # For 0/1 labels the diagonal is part of the linear term.
        diagonal = jnp.diagonal(matrix)
        off, on = by_label(q)
        scores = u + diagonal / 2
        linear = scores + (on - off)

        def pairs(m):
            return whole(m) - diagonal * m

        def sweep(_, field):
            return self.damping * field + (1 - self.damping) * (linear + pairs(jax.nn.sigmoid(field)))

        field = jax.lax.stop_gradient(jax.lax.fori_loop(0, self.sweeps, sweep, linear + pairs(m)))
        m = jax.nn.sigmoid(field)
        entropy = jnp.sum(jax.scipy.special.entr(m) + jax.scipy.special.entr(jax.nn.sigmoid(-field)))
        # A label that is held has a probability of 0 for what is excluded, and 0 inf counts for nothing.
        of_q = jnp.sum(jnp.where(m > 0, m * on, 0) + jnp.where(m < 1, (1 - m) * off, 0))
        tau = scores @ m + 0.5 * m @ pairs(m) + entropy + of_q
        spread = m * (1 - m)
        second = jax.lax.stop_gradient(spread * (matrix**2 @ spread - diagonal**2 * spread) / 4)
        return Neighbor(ProductBernoulli(field), tau, jnp.concatenate([m, second]))


class Conditional(AbstractSurrogate):
    """Sets of m labels scored by <theta, y>: p itself, a conditional Bernoulli."""

    def serves(self, coupling, q, f):
        of_m = isinstance(coupling, Bilinear) and isinstance(coupling.polytope, Hypersimplex)
        return of_m and isinstance(q, Uniform) and isinstance(f, KL)

    def __call__(self, coupling, theta, q):
        measure = ConditionalBernoulli(theta, coupling.polytope.m)
        tau = measure.log_sums()[-1, -1] - q.space.log_size
        marginals = jax.grad(lambda m: m.log_sums()[-1, -1])(measure).logits
        return Neighbor(jax.lax.stop_gradient(measure), tau, jax.lax.stop_gradient(marginals))


class Balanced(AbstractSurrogate):
    """Rankings scored by sum_j theta[j, y_j]: exp(theta) balanced to a doubly stochastic matrix b.

    r fills rank p with a label by its odds b[j, p] / (b's mass of label j at later ranks). tau_0 is the Bethe bound,
    sum b theta - sum b log b + sum (1 - b) log(1 - b), which holds at every doubly stochastic b; so b is rounded to one
    when the balancing ends, at `tolerance` or at `max_steps`, and the bound holds for any theta, however peaked.

    Under a uniform q what the bound misses is a function of b alone, which neither the order of the labels nor that of
    the ranks changes: the summary is made of such functions. (A correction that reads b itself learns it by heart: on
    vowel it was off by 0.35 nats on unseen rows, one of these by 0.2.)

    A reference q that fills rank p by scores s divides by the mass Z_p of the labels still free. -log Z_p lies above
    its tangent at any z_p, and that is a sum over the labels: with it theta absorbs q, and the bound still holds. z_p
    is what b expects, in a few `rounds`.
    """

    tolerance: float = eqx.field(static=True, default=1e-4)
    max_steps: int = eqx.field(static=True, default=100)
    rounds: int = eqx.field(static=True, default=3)

    def serves(self, coupling, q, f):
        on_rankings = isinstance(coupling, Bilinear) and isinstance(coupling.polytope, Permutahedron | Birkhoff)
        return on_rankings and isinstance(q, AbstractScoredMeasure) and isinstance(f, KL)

    def __call__(self, coupling, theta, q):
        scores = coupling.polytope.matrix(theta)
        if isinstance(q, Uniform):
            constant = jnp.asarray(-q.space.log_size, scores.dtype)
            b = jax.lax.stop_gradient(self.balance(scores))
        else:
            b, slope, constant = jax.lax.stop_gradient(self._absorb(scores, q.by_rank()))
            scores = scores + slope
        later = _mass_from(b) - b
        odds = jnp.log(jnp.maximum(b, TINY)) - jnp.log(jnp.maximum(later, TINY))
        # Where q excludes a label from a rank, so do b and r.
        excluded = jnp.isneginf(scores)
        odds, scores = jnp.where(excluded, -jnp.inf, odds), jnp.where(excluded, 0, scores)
        free, chosen = jax.scipy.special.xlogy(1 - b, 1 - b), -jax.scipy.special.xlogy(b, b)
        tau = jnp.vdot(b, scores) + jnp.sum(chosen) + jnp.sum(free) + constant
        summary = _invariants(b, free, chosen)
        if not isinstance(q, Uniform):
            summary = jnp.concatenate([summary, b.ravel()])
        return Neighbor(Sequential(odds), tau, summary)

    def _absorb(self, scores, s):
        """(b, slope, constant): b balances scores and q together, and log q(y) >= sum_j slope[j, y_j] + constant."""
        top = s.max(axis=0)
        weight = jnp.exp(s - top)

        def others(b):
            expected = weight * _mass_from(b)
            return jnp.sum(expected, axis=0) - expected

        def absorb(_, b):
            # What label j changes in -log Z_p while it is free, given the others that b expects: closer than the
            # tangent where one label is most of Z_p.
            changes = jnp.log1p(weight / jnp.maximum(others(b), TINY))
            return self.balance(scores + s - jnp.cumsum(changes, axis=1))

        k = scores.shape[0]
        b = jax.lax.fori_loop(0, self.rounds, absorb, jnp.full((k, k), 1 / k, scores.dtype))
        z = jnp.sum(weight * _mass_from(b), axis=0)
        return b, s - jnp.cumsum(weight / z, axis=1), jnp.sum(1 - jnp.log(z) - top)

    def balance(self, scores: Float[Array, "k k"]) -> Float[Array, "k k"]:
        """exp(scores) scaled by rows and by columns to a doubly stochastic matrix: argmax <scores, b> - sum b log b.

        Sinkhorn's sweep after each Newton step on the potentials: 20 times as fast as sweeps alone at k = 11.
        Peaked scores begin as scores / 2^n: once that is nearly balanced, its logarithm is doubled.
        """

        def sweep(log_b):
            log_b = log_b - jax.nn.logsumexp(log_b, axis=1, keepdims=True)
            return log_b - jax.nn.logsumexp(log_b, axis=0, keepdims=True)

        def improve(carry):
            log_b, doublings, i, _ = carry
            log_b = sweep(log_b + _newton_step(jnp.exp(log_b)))
            off = jnp.abs(jnp.exp(log_b).sum(axis=1) - 1).max()
            double = (doublings > 0) & (off < NEARLY)
            log_b, left = jnp.where(double, 2 * log_b, log_b), doublings - double
            return log_b, left, i + 1, ((left > 0) | double | (off > self.tolerance)) & (i + 1 < self.max_steps)

        finite = jnp.isfinite(scores)
        width = jnp.max(scores, where=finite, initial=-jnp.inf) - jnp.min(scores, where=finite, initial=jnp.inf)
        doublings = jnp.ceil(jnp.log2(jnp.maximum(width / MILD, 1)))
        start = (sweep(scores / 2**doublings), doublings, 0, jnp.asarray(True))
        # The condition is carried, not computed anew: under vmap a loop evaluates it twice, and rounding may differ.
        log_b, left, *_ = jax.lax.while_loop(lambda carry: carry[-1], improve, start)
        return _round_to_birkhoff(jnp.exp(sweep(2**left * log_b)), finite)


class Amortized(AbstractSurrogate):
    """Any coupling, any divergence: the parameters of r are a network of theta, trained beside the model.

    `objectives.MinMin` fits r to p by maximum likelihood on its own weighted draws. tau_0, for KL, is the log-sum over
    the mode of r and all outputs one local move away: a lower bound, and one that a constant added to g moves as it
    should. The summary is what r is made of, and theta.
    """

    outputs: AbstractSpace
    theta_shape: tuple[int, ...] = eqx.field(static=True)
    body: MLP

    def __init__(self, coupling: AbstractCoupling, *, width: int = 128, depth: int = 1, key: Key):
        if type(coupling.space) not in _FAMILIES:
            known = ", ".join(space.__name__ for space in _FAMILIES)
            raise ValueError(f"Amortized knows measures on {known}; got a coupling on {coupling.space}.")
        self.outputs, self.theta_shape = coupling.space, coupling.theta_shape
        shape = coupling.space.shape * (2 if isinstance(coupling.space, Permutations) else 1)
        self.body = MLP(math.prod(coupling.theta_shape), shape, width=width, depth=depth, key=key)

    def serves(self, coupling, q, f):
        return coupling.space == self.outputs and coupling.theta_shape == self.theta_shape

    def __call__(self, coupling, theta, q):
        fixed = jax.lax.stop_gradient(theta)
        parameters = self.body(fixed)
        space = self.outputs
        r, best = _FAMILIES[type(space)](space, parameters)
        best = jax.lax.stop_gradient(best)
        y = jnp.concatenate([best[None], space.moves(best)])
        log_terms = jax.vmap(lambda y: q.log_prob(y) + coupling(theta, y))(y)
        summary = jnp.concatenate([jax.lax.stop_gradient(parameters).ravel(), fixed.ravel()])
        return Neighbor(r, jax.nn.logsumexp(log_terms), summary)


# Space -> (space, parameters) -> the measure of an amortized r, and a likely y of it.
_FAMILIES = {
    Hypercube: lambda _, logits: (ProductBernoulli(logits), Cube(logits.shape[-1]).argmax(logits)),
    KSubsets: lambda space, logits: (
        ConditionalBernoulli(logits, space.m),
        Hypersimplex(space.k, space.m).argmax(logits),
    ),
    Permutations: lambda _, scores: (Sequential(scores), _greedy(scores)),
}

# What serves which coupling, reference and divergence; the first that does.
_TABLE = (Independent(), MeanField(), Conditional(), Balanced())


def find(coupling: AbstractCoupling, q: AbstractMeasure, f: AbstractDivergence) -> AbstractSurrogate | None:
    """The surrogate of the table for a coupling, a reference and a divergence, if there is one."""
    return next((candidate for candidate in _TABLE if candidate.serves(coupling, q, f)), None)


def surrogate(
    coupling: AbstractCoupling, q: AbstractMeasure | None = None, f: AbstractDivergence | None = None
) -> AbstractSurrogate:
    """The surrogate of the table, or an error that names what has none; without q and f, for a uniform q and KL."""
    q, f = Uniform(coupling.space) if q is None else q, KL() if f is None else f
    found = find(coupling, q, f)
    if found is not None:
        return found
    names = f"a {type(coupling).__name__} coupling on {coupling.space} with a {type(q).__name__} reference"
    why = "" if isinstance(f, KL) else " (surrogates follow exp(g), which is the density under KL only)"
    raise ValueError(
        f"No surrogate serves {names} under {type(f).__name__}{why}. Use proposal=None, draws from q (the paper's "
        "Algorithm 1), or train one beside the model: EBM(..., surrogate=surrogates.Amortized(coupling, key=...))."
    )


def _independent(q: AbstractMeasure) -> bool:
    return isinstance(q, Uniform | ProductBernoulli)


def _mass_from(b: Float[Array, "k k"]) -> Float[Array, "k k"]:
    """Entry (j, p): b's mass of label j at rank p and later."""
    return jnp.cumsum(b[:, ::-1], axis=1)[:, ::-1]


def _greedy(scores: Float[Array, "k k"]) -> Array:
    """The ranking that gives each rank in turn to the best label left."""
    k = scores.shape[0]

    def place(taken, by_label):
        label = jnp.argmax(jnp.where(taken, -jnp.inf, by_label))
        return taken.at[label].set(True), label

    return jnp.argsort(jax.lax.scan(place, jnp.zeros(k, bool), scores.T)[1])


def _invariants(b: Float[Array, "k k"], free: Float[Array, "k k"], chosen: Float[Array, "k k"]) -> Float[Array, " d"]:
    """Functions of a doubly stochastic b, and of the terms of its bound, that no order of rows or columns changes."""
    k = b.shape[0]
    found = [free.sum(), chosen.sum(), *(jnp.sum(b**n) for n in (2, 3, 4)), jnp.sum((b * (1 - b)) ** 2)]
    for half in (b, b.T):
        # How far two labels want the same ranks, two ranks the same labels.
        overlap = half @ half.T * (1 - jnp.eye(k, dtype=b.dtype))
        crowded = free.sum(axis=1 if half is b else 0)
        found += [jnp.sum(overlap**2), jnp.sum(overlap**3), jnp.sum(overlap * (overlap @ overlap))]
        found += [jnp.sum(crowded**2), jnp.sum(crowded**3)]
    # Per label, so that their size does not grow with k.
    return jnp.stack(found) / k


def _newton_step(b: Float[Array, "k k"]) -> Float[Array, "k k"]:
    """What to add to log b so that its rows and columns sum to one, to first order; no entry moves by more than 4."""
    k = b.shape[0]
    rows, columns = b.sum(axis=1), b.sum(axis=0)
    # The columns eliminated. A constant moved from columns to rows changes nothing: hence the ones, and a ridge.
    schur = jnp.diag(rows) - (b / columns) @ b.T + 1 / k + 1e-6 * jnp.eye(k, dtype=b.dtype)
    a = jnp.linalg.solve(schur, 1 - rows - (b / columns) @ (1 - columns))
    c = (1 - columns - b.T @ a) / columns
    step = a[:, None] + c
    step = jnp.minimum(1, 4 / jnp.maximum(jnp.abs(step).max(), TINY)) * step
    return jnp.where(jnp.isfinite(step).all(), step, 0)


def _round_to_birkhoff(b: Float[Array, "k k"], allowed: Bool[Array, "k k"]) -> Float[Array, "k k"]:
    """The nearly doubly stochastic b made so: rows and columns scaled down to at most one, the rest added evenly.

    Labels that are not allowed at every rank are allowed in blocks: a group of labels at as many ranks.
    """
    b = b / jnp.maximum(1, b.sum(axis=1, keepdims=True))
    b = b / jnp.maximum(1, b.sum(axis=0, keepdims=True))
    rows, columns = 1 - b.sum(axis=1), 1 - b.sum(axis=0)
    rows, columns = jnp.maximum(rows, 0), jnp.maximum(columns, 0)
    rest = jnp.where(allowed, rows[:, None] * columns, 0)
    return jnp.clip(b + rest / jnp.maximum(jnp.where(allowed, columns, 0).sum(axis=1, keepdims=True), TINY), 0, 1)
