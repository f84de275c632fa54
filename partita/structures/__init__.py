"""Structures: spaces Y, polytopes conv(phi(Y)), measures on Y, exact methods and surrogates.

Everything that depends on the kind of output is in this package, one file per kind. The contract is in `spaces`,
`measures`, `methods`, `couplings` and `polytopes`. A structure can also be defined outside the package: CONTRIBUTING.md
has an example.
"""

from .checks import check_structure
from .classes import ProbabilitySimplex, Simplex
from .couplings import AbstractCoupling, AbstractSurrogate, SurrogateRow
from .enumeration import Enumeration
from .generic import (
    Amortized,
    Categorical,
    Components,
    Filtered,
    Mixture,
    condition,
    exact_method,
    generator,
    generator_shape,
    surrogate,
    with_share_of_q,
)
from .label_sets import AbstractLabels, Cube, Hypercube, Independent, MeanField, ProductBernoulli, Unary
from .matrices import best_assignments
from .measures import AbstractMeasure, Conditioned
from .methods import AbstractAssignments, AbstractMethod, Best
from .polytopes import AbstractPolytope
from .ranking_polytopes import Assignments, Balanced, Birkhoff, Permutahedron, SubsetDP
from .rankings import AbstractRankings, Completions, Mallows, Permutations, PlackettLuce, Sequential
from .sequential import AbstractScoredMeasure, AbstractSequentialMeasure, Restricted
from .spaces import AbstractSpace, Uniform
from .subset_dp import subset_layers
from .subsets import Conditional, ConditionalBernoulli, ElementarySymmetric, Hypersimplex, KSubsets

__all__ = [
    "AbstractAssignments",
    "AbstractCoupling",
    "AbstractLabels",
    "AbstractMeasure",
    "AbstractMethod",
    "AbstractPolytope",
    "AbstractRankings",
    "AbstractScoredMeasure",
    "AbstractSequentialMeasure",
    "AbstractSpace",
    "AbstractSurrogate",
    "Amortized",
    "Assignments",
    "Balanced",
    "Best",
    "Birkhoff",
    "Categorical",
    "Completions",
    "Components",
    "Conditional",
    "ConditionalBernoulli",
    "Conditioned",
    "Cube",
    "ElementarySymmetric",
    "Enumeration",
    "Filtered",
    "Hypercube",
    "Hypersimplex",
    "Independent",
    "KSubsets",
    "Mallows",
    "MeanField",
    "Mixture",
    "Permutahedron",
    "Permutations",
    "PlackettLuce",
    "ProbabilitySimplex",
    "ProductBernoulli",
    "Restricted",
    "Sequential",
    "Simplex",
    "SubsetDP",
    "SurrogateRow",
    "Unary",
    "Uniform",
    "best_assignments",
    "check_structure",
    "condition",
    "exact_method",
    "generator",
    "generator_shape",
    "subset_layers",
    "surrogate",
    "with_share_of_q",
]
