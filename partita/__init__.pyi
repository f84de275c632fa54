# The one list of modules and of names at the top. They load on first use (by lazy_loader, which reads this file), type
# checkers see them here, saved files may name classes of these modules, and the test of layers takes its order from
# here: each module imports only from those above it.
# ruff: noqa: I001
from . import types as types
from . import shapes as shapes
from . import budget as budget
from . import numerics as numerics
from . import divergences as divergences
from . import networks as networks
from . import structures as structures
from . import couplings as couplings
from . import model as model
from . import exact as exact
from . import partial as partial
from . import argmax as argmax
from . import search as search
from . import kernels as kernels
from . import samplers as samplers
from . import objectives as objectives
from . import training as training
from . import inference as inference
from . import decisions as decisions
from . import metrics as metrics
from . import progress as progress
from . import atomic as atomic
from . import compilation as compilation
from . import persistence as persistence
from . import estimators as estimators
from . import datasets as datasets
from . import plots as plots
from . import cli as cli

from .model import EBM as EBM
from .model import Energy as Energy
from .estimators import LabelRanker as LabelRanker
from .estimators import MultilabelClassifier as MultilabelClassifier
from .training import Solver as Solver
from .training import fit as fit
from .persistence import load as load
from .persistence import save as save

__version__: str
