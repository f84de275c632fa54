"""The contract of a structure, second part: polytopes, couplings, exact methods and surrogates."""

import abc
import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .. import budget
from ..divergences import AbstractDivergence
from ..types import Array, Bool, Float, Int, Key, Scalar
from .base import AbstractMeasure, AbstractSpace, Uniform

__all__ = [
    "AbstractAssignments",
    "AbstractCoupling",
    "AbstractMethod",
    "AbstractPolytope",
    "AbstractSurrogate",
    "Best",
    "SurrogateRow",
]

FRANK_WOLFE_STEPS = 500


class Best(NamedTuple):
    """Different outputs in falling order of p, and a score that falls with it; where that is -inf, there are no more
    outputs with p > 0, and y is any."""

    y: Int[Array, " num *y"]
    score: Float[Array, " num"]


class AbstractMethod(eqx.Module):
    """Exact answers for one row: logits theta and a reference q.

    Everything follows from one quantity, the f-softmax of the scores tilted by a linear term,

        softmax(tilt) = max_p <g + tilt, p> - D_f(p, q),        tilt(y) = <tilt, indicators(y)>.

    For KL its value at 0 is the log-partition log E_q[exp g]; for every f its gradient at 0 is the marginals. Outputs
    that q excludes, with log q = -inf, take no part in any sum. A tilt of -inf excludes outputs as well.
    """

    @property
    @abc.abstractmethod
    def space(self) -> AbstractSpace:
        """Y."""

    @property
    @abc.abstractmethod
    def work(self) -> "budget.Work":
        """What is summed for a row, and how many terms: `budget` decides by it what is affordable."""

    @abc.abstractmethod
    def softmax(self, theta: Float[Array, " *theta"], q: AbstractMeasure, tilt: Float[Array, " *stat"]) -> Scalar:
        """max_p <g + tilt, p> - D_f(p, q)."""

    @abc.abstractmethod
    def sample(
        self, theta: Float[Array, " *theta"], q: AbstractMeasure, num: int, *, key: Key
    ) -> Int[Array, " num *shape"]:
        """Independent draws from p."""

    @abc.abstractmethod
    def mode(self, theta: Float[Array, " *theta"], q: AbstractMeasure) -> Int[Array, " *shape"]:
        """A most probable y."""

    def top_k(self, theta: Float[Array, " *theta"], q: AbstractMeasure, num: int) -> Best | None:
        """The `num` most probable outputs."""
        return None

    def before(self, theta: Float[Array, " *theta"], q: AbstractMeasure) -> Float[Array, "k k"] | None:
        """Of rankings: entry (a, b) is P(label a is ranked before label b)."""
        return None

    def capped(self, theta: Float[Array, " *theta"], q: AbstractMeasure, tau: Scalar) -> Bool[Array, ""]:
        """Whether some density is at the bound of the divergence, and p not that of f itself; for KL none ever is."""
        return jnp.asarray(False)

    def log_partition(self, theta: Float[Array, " *theta"], q: AbstractMeasure) -> Scalar:
        """The tau with which p sums to one."""
        return self.solve(theta, q)[1]

    def solve(self, theta: Float[Array, " *theta"], q: AbstractMeasure) -> tuple[Scalar, Scalar]:
        """The f-softmax, and the tau with which p sums to one: for KL the same number."""
        value = self.softmax(theta, q, self.no_tilt(theta))
        return value, value

    def mass(self, theta: Float[Array, " *theta"], q: AbstractMeasure, tau: Scalar) -> Scalar:
        """sum_y q (f+*)'(g - tau): for KL exp(LSE - tau)."""
        return jnp.exp(self.log_partition(theta, q) - tau)

    def marginals(self, theta: Float[Array, " *theta"], q: AbstractMeasure) -> Float[Array, " *stat"]:
        """E_p[indicators(y)]: the gradient of the softmax in the tilt."""
        return jax.grad(self.softmax, argnums=2)(theta, q, self.no_tilt(theta))

    def no_tilt(self, theta: Float[Array, " *theta"]) -> Float[Array, " *stat"]:
        y = jax.ShapeDtypeStruct(self.space.shape, jnp.arange(1).dtype)
        stat = jax.eval_shape(self.space.indicators, y)
        return jnp.zeros(stat.shape, theta.dtype)

    @property
    def has_partial(self) -> bool:
        """Whether `partial` is there; else q given what is observed takes the place of q."""
        return False

    def partial(
        self, theta: Float[Array, " *theta"], q: AbstractMeasure, y: Int[Array, " *y"], mask: Int[Array, " *y"]
    ) -> tuple[Scalar, Scalar]:
        """(log of the mean of exp g over the outputs that agree with (y, mask), under q given that; log q of that)."""
        raise NotImplementedError


class SurrogateRow(eqx.Module):
    """What a surrogate says about one row: a measure r to draw from, a bound tau of the log-partition, and a summary
    that a learned correction of the bound reads."""

    r: AbstractMeasure
    tau: Scalar
    summary: Float[Array, " d"]


class AbstractSurrogate(eqx.Module):
    """A tractable approximation of p_g, built from one row's logits."""

    @abc.abstractmethod
    def __call__(self, coupling: Any, theta: Float[Array, " *theta"], q: Any) -> SurrogateRow:
        """r, tau_0 and the summary at theta, for a coupling and a q that it serves."""

    def serves(self, coupling: "AbstractCoupling", q: AbstractMeasure, f: AbstractDivergence) -> bool:
        """Whether it can serve this coupling under this kind of reference and this divergence."""
        return type(coupling.surrogate(q, f)) is type(self)

    def proposal(self, coupling: Any, theta: Float[Array, " *theta"], q: Any, *, key: Key) -> AbstractMeasure:
        """Where to look for every mode of p, not only that of r: r itself, unless a class knows more."""
        return self(coupling, theta, q).r

    @property
    def is_trained(self) -> bool:
        """Whether it has parameters that are trained beside the model, to follow p."""
        return False

    @property
    def has_label_probs(self) -> bool:
        """Whether `label_probs` is there."""
        return False

    def label_probs(self, row: SurrogateRow) -> Float[Array, " k"]:
        """P(y_j = 1) of every label under r, which approximates the marginals of p."""
        raise NotImplementedError

    def summary_size(self, coupling: "AbstractCoupling", q: AbstractMeasure | None = None) -> int:
        """Length of the summary: the input size of a correction's network."""
        q = Uniform(coupling.space) if q is None else q
        theta = jax.ShapeDtypeStruct(coupling.theta_shape, jnp.zeros(0).dtype)
        return eqx.filter_eval_shape(lambda theta: self(coupling, theta, q).summary, theta).shape[0]


class AbstractAssignments(eqx.Module):
    """The best outputs of linear scores on the host, at any size of Y: `scores` is traceable, the rest is numpy."""

    @abc.abstractmethod
    def scores(self, theta: Float[Array, " *theta"], q: AbstractMeasure) -> Float[Array, " *scores"]:
        """What the others read, for one row."""

    @abc.abstractmethod
    def argmax(self, scores: np.ndarray) -> np.ndarray:
        """The best y of each row."""

    @abc.abstractmethod
    def top_k(self, scores: np.ndarray, num: int) -> tuple[np.ndarray, np.ndarray]:
        """The `num` best y of each row, (n, num, *y), and their scores, (n, num)."""


class AbstractPolytope(eqx.Module):
    """The convex hull C of an encoding phi of a space Y."""

    def __check_init__(self):
        # A polytope of no space, as of 0 labels, is refused by the space.
        _ = self.space

    @property
    @abc.abstractmethod
    def space(self) -> AbstractSpace:
        """Y."""

    @abc.abstractmethod
    def encode(self, y: Int[Array, " *y"]) -> Float[Array, " *shape"]:
        """phi(y), a vertex."""

    @abc.abstractmethod
    def argmax(self, theta: Float[Array, " *shape"]) -> Int[Array, " *y"]:
        """The y in Y with the largest <theta, phi(y)>."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of phi(y), and of theta."""
        return self.space.shape

    def score(self, theta: Float[Array, " *shape"], y: Int[Array, " *y"]) -> Scalar:
        """<theta, phi(y)>."""
        return jnp.vdot(theta, self.encode(y).astype(theta.dtype))

    def project(self, theta: Float[Array, " *shape"]) -> Float[Array, " *shape"]:
        """The point of C nearest to theta: by Frank-Wolfe steps over `argmax`, unless a class has a faster way."""

        def step(i, mu):
            vertex = self.encode(self.argmax(theta - mu)).astype(mu.dtype)
            direction = vertex - mu
            length = jnp.vdot(theta - mu, direction) / jnp.maximum(jnp.vdot(direction, direction), 1e-12)
            return mu + jnp.clip(length, 0, 1) * direction

        start = self.encode(self.argmax(theta)).astype(theta.dtype)
        return jax.lax.fori_loop(0, FRANK_WOLFE_STEPS, step, start)

    def negative_entropy(self, mu: Float[Array, " *shape"]) -> Scalar:
        """sum mu log mu; where an entry is the probability of a label, on or off, of both."""
        return jnp.sum(jax.scipy.special.xlogy(mu, mu))

    def entropy_argmax(self, eta: Float[Array, " *shape"]) -> Float[Array, " *shape"] | None:
        """argmax over C of <eta, mu> - negative_entropy(mu)."""
        return None

    def box(self) -> tuple[float, float] | None:
        """(low, high) where C is a product of intervals."""
        return None

    def mode(self, theta: Float[Array, " *shape"], q: AbstractMeasure) -> Int[Array, " *y"] | None:
        """A y with the largest p in proportion to q times an increasing function of <theta, phi(y)>, at any size."""
        return self.argmax(theta) if q.is_uniform else None

    def assignments(self, q: AbstractMeasure) -> AbstractAssignments | None:
        """The best outputs under q on the host, at any size of Y."""
        return None

    @property
    def argmax_is_on_host(self) -> bool:
        """Whether, on CPUs, `assignments` is faster than `argmax` for many rows."""
        return False

    def exact(self, q: AbstractMeasure, f: AbstractDivergence, interaction: Any = None) -> AbstractMethod | None:
        """An exact method for scores <theta, phi(y)>, plus 1/2 <y, U y> where there is an interaction."""
        return None

    def surrogate(self, q: AbstractMeasure, f: AbstractDivergence, interaction: Any = None) -> AbstractSurrogate | None:
        """A surrogate for scores <theta, phi(y)>, plus 1/2 <y, U y> where there is an interaction."""
        return None


class AbstractCoupling(eqx.Module):
    """Phi: logits and an output to a score. `polytope` is the hull of the outputs."""

    polytope: eqx.AbstractVar[AbstractPolytope]

    @property
    @abc.abstractmethod
    def space(self) -> AbstractSpace:
        """The outputs that it scores."""

    @property
    @abc.abstractmethod
    def theta_shape(self) -> tuple[int, ...]:
        """Shape of the logits that h must give."""

    @abc.abstractmethod
    def __call__(self, theta: Float[Array, " *theta"], y: Int[Array, " *y"]) -> Scalar:
        """Phi(theta, y)."""

    @abc.abstractmethod
    def relaxed(self, theta: Float[Array, " *theta"], mu: Float[Array, " *shape"]) -> Scalar:
        """Phi at any point mu of C; at phi(y) it is Phi(theta, y)."""

    def exact(self, q: AbstractMeasure, f: AbstractDivergence) -> AbstractMethod | None:
        """Its own exact method under a reference and a divergence."""
        return None

    def surrogate(self, q: AbstractMeasure, f: AbstractDivergence) -> AbstractSurrogate | None:
        """Its own surrogate under a reference and a divergence."""
        return None

    @property
    def is_linear(self) -> bool:
        """Whether Phi is <theta, phi(y)>: the polytope's argmax is then the mode."""
        return False

    @property
    def has_interaction(self) -> bool:
        """Whether Phi is <u, y> + 1/2 <y, U y>, with `parameters` and an `interaction`."""
        return False

    @property
    def is_concave(self) -> bool:
        """Whether Phi is known to be concave in mu."""
        return self.is_linear

    @property
    def can_average(self) -> bool:
        """Whether Phi is linear in theta and in its own parameters: the mean of several energies is then one again."""
        return self.is_linear

    def squared_shared(self) -> Scalar:
        """Squared norm of parameters that all x share and that are penalized although they are vectors."""
        return jnp.zeros(())

    def scores(self, theta: Float[Array, " *theta"], ys: Int[Array, "num *y"]) -> Float[Array, " num"]:
        """Phi of outputs that many theta have in common: what of it depends on them alone is computed once."""
        return jax.vmap(self, in_axes=(None, 0))(theta, ys)

    def around(self, theta: Float[Array, " *theta"], y: Int[Array, " *y"]) -> Float[Array, " moves"]:
        """Phi of every output one local move away from y."""
        return jax.vmap(lambda y: self(theta, y))(self.space.moves(y))

    @property
    def cost(self) -> int:
        """How many multiplications one score takes, about."""
        return math.prod(self.theta_shape)

    def change(self, theta: Float[Array, " *theta"], y: Int[Array, " *y"], i: Int[Array, ""]) -> Scalar | None:
        """Phi after the i-th local move from y, less Phi(theta, y); None where Phi itself costs no more."""
        return None
