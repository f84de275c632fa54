"""The names of methods as objects: one table for each argument of the estimators."""

import math
from collections.abc import Callable, Mapping
from typing import Any, Literal

import equinox as eqx
import jax

from .. import budget
from ..couplings import AbstractCoupling, Bilinear, Factored, Full, LinearQuadratic, NegativeSemidefinite, Symmetric
from ..divergences import KL, AbstractDivergence, ChiSquare, JensenShannon, ReverseKL, SquaredHellinger, Tsallis
from ..model import EBM, AbstractTau, Energy, Network, Residual, Table
from ..networks import ICNN, MLP, Linear, ResNet
from ..objectives import (
    MCMC,
    NCE,
    AbstractEnergyObjective,
    AbstractObjective,
    ConcreteScoreMatching,
    ExactMLE,
    GeneralizedFenchelYoung,
    Generator,
    MinMax,
    MinMin,
    Perceptron,
    PseudoLikelihood,
    RatioMatching,
    SurrogateProposal,
)
from ..structures import (
    AbstractMeasure,
    AbstractRankings,
    AbstractSpace,
    AbstractSurrogate,
    Amortized,
    Birkhoff,
    Cube,
    Hypercube,
    Mallows,
    Permutahedron,
    Permutations,
    PlackettLuce,
    ProbabilitySimplex,
    ProductBernoulli,
    Simplex,
    generator_shape,
)
from ..training import BOTH, ONLY_G, ONLY_TAU, AbstractTraining, Alternating
from ..types import Key, PyTree

# With more labels U has more entries than data have rows, and mean field takes too long: then U has low rank.
FULL_LABELS = 256
# U(x) = -A(x) A(x)' has k times this many entries of A(x): h of 174 labels would have 30,276 outputs at full rank.
MAX_RANK = 32

# The spaces of outputs, by the kind of y; and the families of measures that predictions of an estimator give.
SPACES: dict[str, Callable[[int], AbstractSpace]] = {"sets": Hypercube, "classes": Simplex, "rankings": Permutations}
LABEL_FAMILY = ProductBernoulli
RANKING_FAMILIES: dict[str, Any] = {"plackett-luce": PlackettLuce, "mallows": Mallows}

LOSSES: dict[str, AbstractDivergence] = {
    "logistic": KL(),
    "sparsemax": ChiSquare(),
    "tsallis": Tsallis(1.5),
    "jensen-shannon": JensenShannon(),
    "hellinger": SquaredHellinger(),
    "reverse-kl": ReverseKL(),
}
SET_COUPLINGS: dict[str, Callable[[int, Key], AbstractCoupling]] = {
    "unary": lambda k, _: Bilinear(Cube(k)),
    "pairwise": lambda k, key: (
        LinearQuadratic(Symmetric(k), shared=True)
        if k <= FULL_LABELS
        else LinearQuadratic(Factored(k, 16, key=key), shared=True)
    ),
    "pairwise-of-x": lambda k, _: LinearQuadratic(Symmetric(k), shared=False),
    "pairwise-full": lambda k, _: LinearQuadratic(Full(k, 1 / k), shared=False),
    "pairwise-concave": lambda k, key: LinearQuadratic(
        NegativeSemidefinite(k, min(k, MAX_RANK), key=key), shared=False
    ),
    "low-rank": lambda k, key: LinearQuadratic(Factored(k, min(k, 16), key=key), shared=True),
}
RANKING_COUPLINGS: dict[str, Callable[[int, Key], AbstractCoupling]] = {
    "permutahedron": lambda k, _: Bilinear(Permutahedron(k)),
    "birkhoff": lambda k, _: Bilinear(Birkhoff(k)),
}
NETWORKS: dict[str, Callable[..., PyTree]] = {
    "linear": lambda d, shape, width, depth, key: Linear(d, shape, key=key),
    "mlp": lambda d, shape, width, depth, key: MLP(d, shape, width=width, depth=depth, key=key),
    "resnet": lambda d, shape, width, depth, key: ResNet(d, shape, width=width, depth=depth, key=key),
}
LOG_PARTITIONS = ("residual", "logits", "mlp", "resnet", "icnn", "linear", "constant")
PROPOSALS: dict[str, SurrogateProposal | None] = {"surrogate": SurrogateProposal(), "reference": None}
OBJECTIVES: dict[str, type[AbstractObjective]] = {
    "auto": AbstractObjective,
    "min-min": MinMin,
    "exact": ExactMLE,
    "min-max": MinMax,
    "mcmc": MCMC,
    "nce": NCE,
    "pseudo-likelihood": PseudoLikelihood,
    "ratio-matching": RatioMatching,
    "concrete-score-matching": ConcreteScoreMatching,
    "fenchel-young": GeneralizedFenchelYoung,
    "perceptron": Perceptron,
}
TRAININGS: dict[str, AbstractTraining] = {
    "both": BOTH,
    "g": ONLY_G,
    "tau": ONLY_TAU,
    "alternate": Alternating(g=5, tau=5),
}


def named(what: str, value: Any, table: Mapping[str, Any] | tuple[str, ...], *kinds: type) -> Any:
    """The object of a name in the table; objects of one of the kinds are returned as they are."""
    if isinstance(value, str) and value in table:
        return table[value] if isinstance(table, Mapping) else value
    if not isinstance(value, str) and isinstance(value, kinds):
        return value
    known, others = ", ".join(map(repr, table)), " or ".join(kind.__name__ for kind in kinds)
    raise ValueError(f"{what} must be one of {known}, or a {others} of partita; got {value!r}.")


class Recipe(eqx.Module):
    """The parts of a model; called with a key it makes a model with new weights."""

    coupling: AbstractCoupling
    h: PyTree
    tau: Any
    q: AbstractMeasure
    f: AbstractDivergence
    features: tuple[int, ...] = eqx.field(static=True)
    rows: int = eqx.field(static=True)
    width: int = eqx.field(static=True)
    depth: int = eqx.field(static=True)
    has_surrogate: bool = eqx.field(static=True, default=True)

    def __call__(self, key: Key) -> EBM:
        h_key, tau_key, surrogate_key = jax.random.split(key, 3)
        size = math.prod(self.features)
        h = self.h
        if isinstance(h, str):
            h = NETWORKS[h](size, self.coupling.theta_shape, self.width, self.depth, h_key)
        surrogate = self._surrogate(surrogate_key)
        tau = self._tau(surrogate, size, tau_key)
        return EBM(Energy(h, self.coupling), tau, q=self.q, f=self.f, surrogate=surrogate)

    def _surrogate(self, key: Key) -> AbstractSurrogate | Literal[False] | None:
        """The surrogate of the coupling; where it has none, one that is learned beside the model."""
        if not self.has_surrogate:
            return False
        surrogate = self.coupling.surrogate(self.q, self.f)
        # Spaces without a family of proposals, such as k classes, are summed over exactly.
        is_missing = surrogate is None and self.coupling.space.proposal_shape()
        return Amortized(self.coupling, key=key) if is_missing else surrogate

    def _tau(self, surrogate: AbstractSurrogate | Literal[False] | None, size: int, key: Key) -> AbstractTau:
        if isinstance(self.tau, AbstractTau):
            return self.tau
        if self.tau == "residual" and surrogate and isinstance(self.f, KL):
            return Residual(MLP(surrogate.summary_size(self.coupling, self.q), (), width=32, key=key))
        if self.tau in ("residual", "logits"):
            body = MLP(math.prod(self.coupling.theta_shape), (), width=self.width, key=key)
            return Network(body, of_logits=True)
        if self.tau == "constant":
            return Table(self.rows)
        if self.tau == "icnn":
            return Network(ICNN(size, width=self.width, key=key))
        return Network(NETWORKS[self.tau](size, (), self.width, self.depth, key))


def coupling(value: Any, space: AbstractSpace, key: Key) -> AbstractCoupling:
    """The coupling by name, or as it is, for outputs in this space. For one class per row there is only one."""
    if is_one_class(space):
        named("coupling", value, SET_COUPLINGS, AbstractCoupling)
        return Bilinear(ProbabilitySimplex(space.shape[0]))
    table = RANKING_COUPLINGS if isinstance(space, AbstractRankings) else SET_COUPLINGS
    match = named("coupling", value, table, AbstractCoupling)
    result = match if isinstance(match, AbstractCoupling) else match(space.shape[0], key)
    if result.space != space:
        raise ValueError(f"The coupling is for {result.space}, but Y is in {space}.")
    return result


def is_one_class(space: AbstractSpace) -> bool:
    """Whether an output is one of k classes, where the mode is the best prediction for any loss."""
    return isinstance(space, Simplex)


def cheap(model: EBM) -> bool:
    """Whether exact likelihood is cheap enough for every row of every step."""
    return budget.serves_steps(model)


def training(value: Any, objective: Any) -> AbstractTraining:
    """The parts to train, by name or as they are; an error where tau alone is trained and the objective has no tau."""
    train = named("train", value, TRAININGS, AbstractTraining)
    known = named("objective", objective, OBJECTIVES, AbstractObjective)
    no_tau = issubclass(known, AbstractEnergyObjective) if isinstance(known, type) else not known.trains_tau
    if no_tau and not all(parts.g for parts in train.phases()):
        raise ValueError(
            f"train={value!r} has steps that train tau alone, and objective={objective!r} does not train tau. Use "
            "objective='min-min' or 'nce', or train='g'."
        )
    return train


def objective(
    value: Any,
    proposal: Any,
    model: EBM,
    num: int,
    features: int,
    *,
    train: AbstractTraining = BOTH,
    key: Key,
) -> AbstractObjective:
    """The objective by name, or as it is, for a model and the parts of it that are trained."""
    value = named("objective", value, tuple(OBJECTIVES), AbstractObjective)
    proposal = named("proposal", proposal, PROPOSALS, SurrogateProposal, AbstractMeasure)
    if isinstance(value, AbstractObjective):
        return value
    if value == "auto":
        value = "exact" if cheap(model) and all(parts.g for parts in train.phases()) else "min-min"
    if value == "min-max":
        body = MLP(features, generator_shape(model.space) or (), key=key)
        return MinMax(Generator(model.space, body))
    if model.surrogate is None and isinstance(proposal, SurrogateProposal):
        proposal = None
    constructors = {
        "min-min": lambda: MinMin(num, proposal=proposal),
        "exact": ExactMLE,
        "mcmc": MCMC,
        "nce": lambda: NCE(num, noise=proposal),
        "pseudo-likelihood": PseudoLikelihood,
        "ratio-matching": RatioMatching,
        "concrete-score-matching": ConcreteScoreMatching,
        "fenchel-young": GeneralizedFenchelYoung,
        "perceptron": Perceptron,
    }
    return constructors[value]()
