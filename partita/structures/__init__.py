"""All that knows what y is: one file for each kind of output, behind the contract of `base` and `methods`.

Spaces Y, polytopes conv(phi(Y)), measures on Y, exact methods and surrogates. What the package can add, a user's own
file can add: CONTRIBUTING.md has a worked example.
"""

from .assignment import best_assignments
from .base import AbstractLabels, AbstractMeasure, AbstractRankings, AbstractSpace, Conditioned, Uniform
from .checks import check_structure
from .classes import ProbabilitySimplex, Simplex
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
from .label_sets import Cube, Hypercube, Independent, MeanField, ProductBernoulli, Unary, cube
from .methods import (
    AbstractAssignments,
    AbstractCoupling,
    AbstractMethod,
    AbstractPolytope,
    AbstractSurrogate,
    Best,
    SurrogateRow,
)
from .ranking_polytopes import Assignments, Balanced, Birkhoff, Permutahedron, SubsetDP
from .rankings import (
    AbstractScoredMeasure,
    AbstractSequentialMeasure,
    Completions,
    Mallows,
    Permutations,
    PlackettLuce,
    Restricted,
    Sequential,
)
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
    "cube",
    "exact_method",
    "generator",
    "generator_shape",
    "subset_layers",
    "surrogate",
    "with_share_of_q",
]
