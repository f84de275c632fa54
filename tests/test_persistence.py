"""What is saved comes back bit for bit, in another process too; what `save` did not write is refused, unexecuted."""

import functools
import importlib
import os
import subprocess
import sys
from collections import OrderedDict
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import safetensors.numpy
from cases import COUPLINGS, DIVERGENCES, FEATURES, POLYTOPES, PROPOSALS, REFERENCES, SPACES, model, references
from sklearn.base import BaseEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from test_layers import ORDER

import partita
from partita import inference, kernels, objectives, persistence, samplers, search, training
from partita.couplings import Bilinear
from partita.model import EBM, Bound, Energy, Network, Residual, Shifted, Table
from partita.networks import ICNN, MLP, Linear, ResNet
from partita.persistence import ConsentError, FileError, objects, store
from partita.structures import Cube
from partita.training import ONLY_TAU, Alternating, History, Progress, Solution, Solver, fit
from partita.types import RESULTS

KEY = jax.random.key(3)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.partita"


def same_bits(a, b):
    """Two values of the same type with the same bits, down to containers, weak types and the signs of nan."""
    if type(a) is not type(b):
        return False
    if isinstance(a, jax.Array) and jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
        return a.dtype == b.dtype and same_bits(jax.random.key_data(a), jax.random.key_data(b))
    if isinstance(a, objects.ARRAYS):
        kinds = [(v.dtype, v.shape, getattr(v, "weak_type", None)) for v in (a, b)]
        values = [np.asarray(v).tolist() if v.dtype == object else np.asarray(v).tobytes() for v in (a, b)]
        return kinds[0] == kinds[1] and same_bits(*values)
    if isinstance(a, float):
        return np.float64(a).tobytes() == np.float64(b).tobytes()
    if isinstance(a, eqx.Module | BaseEstimator):
        return vars(a).keys() == vars(b).keys() and all(same_bits(vars(a)[name], vars(b)[name]) for name in vars(a))
    if isinstance(a, dict):
        return list(a) == list(b) and all(same_bits(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same_bits, a, b))
    return a == b


def round_trip(value, path, **options):
    partita.save(value, path)
    return partita.load(path, **options)


NETWORKS = (
    Linear(3, 4, zero=False, key=KEY),
    MLP(3, (2, 2), width=5, depth=2, key=KEY),
    ResNet(3, (), width=4, key=KEY),
    ICNN(3, width=4, key=KEY),
)
TAUS = (
    Table(7),
    Network(NETWORKS[0], of_logits=True),
    Residual(NETWORKS[2]),
    Shifted(Table(2), jnp.asarray(0.5)),
    Bound(),
)
OTHERS = (
    objectives.MinMin(8, proposal=None),
    objectives.MinMin(),
    objectives.ExactMLE(),
    objectives.MCMC(),
    objectives.NCE(),
    objectives.Perceptron(),
    objectives.PseudoLikelihood(),
    ONLY_TAU,
    Alternating(g=5, tau=1),
    kernels.Gibbs(),
    kernels.Metropolis("uniform"),
    samplers.AnnealedImportanceSampling(chains=4),
    samplers.SequentialMonteCarlo(particles=4, kernel=kernels.Gibbs()),
    search.LocalSearch(),
    History({"loss": np.array([np.nan, -0.0])}, [(10, 0.5), (20, float("nan"))]),
    Progress(3, 10, 0.25, None, model(COUPLINGS["unary"])),
    RESULTS.stopped_early,
)
MODELS = {
    f"{name}-{type(q).__name__}": (coupling, q)
    for name, coupling in COUPLINGS.items()
    for q in references(coupling.space)
}
OBJECTS = [
    *SPACES.values(),
    *POLYTOPES.values(),
    *DIVERGENCES.values(),
    *COUPLINGS.values(),
    *REFERENCES.values(),
    *PROPOSALS.values(),
    *NETWORKS,
    *TAUS,
    *OTHERS,
]
VALUES = [
    *(None, True, 0, -(2**70), 2**8000, 0.1, -0.0, 5e-324, 1e308, float("nan"), -float("nan"), float("-inf")),
    *("", 'naïve \ud800 \0 "sha256":"', [], (), {}, [1, (2.0, [None])], {"a": 1, 7: (True,), None: "x", "": {}}),
    *(np.float32(0.1), np.int8(-3), np.bool(True), np.str_("label"), np.complex64(1j), np.longdouble(1) / 3),
    *(np.array(3.0), np.zeros((0, 3)), np.arange(12).reshape(3, 4)[::2].T, np.array([[True], [False]])),
    *(np.arange(3, dtype=">u4"), np.array([1 + 2j]), np.array([np.nan, -np.nan, np.inf, -0.0], np.float16)),
    *(
        np.array(["a", "bcd"]),
        np.array([["é"]], ">U3"),
        np.array([["a"], ["long"]], object),
        np.array([None, 1, (2.5, "b")], object),
        np.zeros((2, 0), "<U4"),
    ),
    *(jnp.arange(3), jnp.asarray(1.5), jnp.full((2, 2), 3), jnp.full(3, -0.0), jnp.ones((0, 2)), jnp.array([True])),
    *(jnp.array([np.nan, -np.nan, np.inf]), jnp.arange(4, dtype=jnp.bfloat16), jnp.ones(2, jnp.float8_e4m3fn)),
    *(jax.random.key(0), jax.random.split(jax.random.key(1, impl="rbg"), 3), jax.random.PRNGKey(2)),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: f"{type(value).__name__}")
def test_values_come_back_bit_for_bit(value, path):
    again = round_trip({"value": [value]}, path)
    assert same_bits(again, {"value": [value]})
    assert same_bits(round_trip(value, path), value)


def test_arrays_that_were_read_can_be_written_to(path):
    again = round_trip(np.zeros(3), path)
    again[0] = 1
    assert again.flags.owndata or again.base.nbytes == again.nbytes


@pytest.mark.parametrize("value", OBJECTS, ids=lambda value: f"{type(value).__name__}")
def test_every_part_of_a_model_comes_back(value, path):
    again = round_trip(value, path)
    assert same_bits(again, value)
    assert jax.tree.structure(again) == jax.tree.structure(value)


@pytest.mark.parametrize("name", MODELS)
def test_models_come_back_as_equal_trees(name, path):
    coupling, q = MODELS[name]
    ebm = model(coupling, q=q)
    again = round_trip(ebm, path)
    assert eqx.tree_equal(again, ebm) is True or bool(eqx.tree_equal(again, ebm))
    assert same_bits(again, ebm)
    assert jax.tree.structure(again) == jax.tree.structure(ebm)


@pytest.mark.parametrize("f", DIVERGENCES.values(), ids=DIVERGENCES)
def test_models_of_every_divergence_come_back(f, path):
    ebm = EBM(Energy(NETWORKS[0], Bilinear(Cube(4))), Table(5), f=f)
    assert same_bits(round_trip(ebm, path), ebm)


@functools.cache
def rows(name):
    ebm = model(COUPLINGS[name])
    x = np.random.default_rng(0).normal(size=(5, FEATURES))
    return ebm, x, np.asarray(ebm.space.elements()[:5])


COMPILED = []
jax.monitoring.register_event_duration_secs_listener(
    lambda event, *_, **__: COMPILED.append(event) if event.endswith("backend_compile_duration") else None
)


@pytest.mark.parametrize("name", ["unary", "birkhoff", "ising", "neural-rankings"])
def test_answers_are_the_same_bits_without_compiling_anew(name, path):
    ebm, x, y = rows(name)
    ask = lambda ebm: (inference.log_prob(ebm, x, y), inference.marginals(ebm, x))  # noqa: E731
    # Another test may have asked a model of the same structure.
    jax.clear_caches()
    first = ask(ebm)
    again = round_trip(ebm, path)
    assert COMPILED
    COMPILED.clear()
    assert same_bits(ask(again), first)
    assert not COMPILED


def test_a_new_process_predicts_the_same_bits(path):
    ebm, x, y = rows("unary")
    partita.save(ebm, path)
    code = (
        "import sys, numpy as np, partita; from partita import inference; ebm = partita.load(sys.argv[1]); "
        "x = np.random.default_rng(0).normal(size=(5, 3)); y = np.array(eval(sys.argv[2])); "
        "print(np.asarray(inference.log_prob(ebm, x, y)).tobytes().hex())"
    )
    asked = [sys.executable, "-c", code, str(path), str(y.tolist())]
    done = subprocess.run(asked, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == np.asarray(inference.log_prob(ebm, x, y)).tobytes().hex()


def test_the_same_object_is_the_same_file(tmp_path):
    ebm, *_ = rows("birkhoff")
    partita.save(ebm, tmp_path / "one")
    partita.save(partita.load(tmp_path / "one"), tmp_path / "two")
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_other_tools_read_the_tensors(path):
    ebm, *_ = rows("birkhoff")
    partita.save(ebm, path)
    with safetensors.safe_open(path, "numpy") as file:
        assert file.metadata()["format"] == "partita"
        np.testing.assert_array_equal(file.get_tensor(".g.h.output.weight"), ebm.g.h.output.weight)


def test_a_batch_of_models_comes_back(path):
    """Arrays with a leading axis more than the fields declare."""
    batch = eqx.filter_vmap(lambda key: model(COUPLINGS["unary"], key=key))(jax.random.split(KEY, 3))
    assert same_bits(round_trip(batch, path), batch)


def test_wider_types_need_a_jax_that_has_them(path):
    with jax.enable_x64(True):
        wide = jnp.arange(3.0)
        assert same_bits(round_trip(wide, path), wide)
    with pytest.raises(FileError, match=r"float64.*jax_enable_x64"):
        partita.load(path)


# Your own classes.


class Mine(eqx.Module):
    """A user's h, with a field that is checked and one that is static."""

    layers: list[eqx.nn.Linear]
    scale: float
    name: str = eqx.field(static=True)

    def __check_init__(self):
        if self.scale <= 0:
            raise ValueError("scale must be positive")

    def __call__(self, x):
        return self.scale * self.layers[0](x)


class Pair(NamedTuple):
    first: Any
    second: Any


class Learner(BaseEstimator):
    """A user's estimator around a model and one of scikit-learn's."""

    def __init__(self, width=8, scaler=None):
        self.width, self.scaler = width, scaler

    def fit(self, x):
        self.scaler_ = StandardScaler().fit(x)
        self.model_ = mine()
        self.classes_ = np.array(["cat", "dog"], object)
        return self


def mine():
    h = Mine([eqx.nn.Linear(FEATURES, 4, key=KEY)], 0.5, "h")
    return EBM(Energy(h, Bilinear(Cube(4))), Network(MLP(FEATURES, (), width=4, key=KEY)))


def test_a_users_module_comes_back_with_its_class(path):
    again = round_trip(mine(), path, classes=(Mine, eqx.nn.Linear))
    assert same_bits(again, mine())
    assert jax.tree.structure(again) == jax.tree.structure(mine())
    with pytest.raises(FileError, match=r"holds a \S*Mine, which is not a class of this partita.*classes=\(Mine,\)"):
        partita.load(path, classes=(eqx.nn.Linear,))


def test_a_users_class_may_move_but_not_become_ambiguous(path, monkeypatch):
    """A script saves `__main__.Pair`, which its package loads as its own; any other `Pair` is another class."""
    home = Pair.__module__
    monkeypatch.setattr(Pair, "__module__", "__main__")
    partita.save(Pair(1, 2), path)
    monkeypatch.setattr(Pair, "__module__", home)
    assert partita.load(path, classes=(Pair,)) == Pair(1, 2)
    other = type("Pair", (eqx.Module,), {"__module__": "elsewhere"})
    with pytest.raises(FileError, match="not a class of this partita"):
        partita.load(path, classes=(Pair, other))
    partita.save(Pair(1, 2), path)
    with pytest.raises(FileError, match="not a class of this partita"):
        partita.load(path, classes=(other,))


def test_a_users_module_that_refuses_its_fields_is_refused(path):
    ebm = eqx.tree_at(lambda m: m.g.h.scale, mine(), -1.0)
    with pytest.raises(ValueError, match=r"load would refuse it.*scale must be positive"):
        partita.save(ebm, path)
    assert not path.exists()


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("wrong", [Mine, mine(), int], ids=["no tuple", "object", "int"])
def test_classes_must_be_classes_made_of_fields(wrong, path):
    partita.save(1, path)
    given = wrong if wrong is Mine else (wrong,)
    with pytest.raises(ValueError, match=r"classes must be a tuple of Equinox modules.*got"):
        partita.load(path, classes=given)


# What cannot be saved.


def endless():
    found = []
    found.append(found)
    return found


def made_of(cls, **parts):
    """An object that its own `__init__` would not have made."""
    made = object.__new__(cls)
    vars(made).update(parts)
    return made


REFUSED = {
    r"^\.optimizer is a function.*classes=.*pickle or joblib": Solver(objectives.ExactMLE(), optimizer=optax.sgd),
    r"^\.g\.h\.activation is a ": EBM(Energy(eqx.nn.MLP(3, 4, 8, 1, key=KEY), Bilinear(Cube(4))), Bound()),
    r"\['deep'\]\[1\] is a set": {"deep": [0, {1}]},
    "The object is a object": object(),
    r"^\[1\] is a set": np.array([None, {1}]),
    "The object is a ndarray of type datetime64": np.zeros(2, "M8[s]"),
    "The object is a OrderedDict": OrderedDict(a=1),
    "The object is a MaskedArray": np.ma.masked_array([1.0]),
    "has a key of type float": {1.5: 2},
    "The object is a int": 2**10000,
    "nested too deeply.*contains itself": endless(),
    "joblib cannot write.*FunctionTransformer": FunctionTransformer(lambda x: x),
    "load would refuse it.*Hypercube whose k is a float": made_of(type(SPACES["Hypercube(k=4)"]), k=4.5),
    "load would refuse it.*needs 0 < m < k": made_of(type(SPACES["KSubsets(k=5,m=2)"]), k=3, m=3),
}


@pytest.mark.parametrize(("message", "value"), REFUSED.items(), ids=[f"{i}" for i in range(len(REFUSED))])
def test_what_is_not_data_is_refused_by_its_place(message, value, path):
    path.write_bytes(b"earlier")
    with pytest.raises(ValueError, match=message):
        partita.save(value, path)
    assert path.read_bytes() == b"earlier"
    assert os.listdir(path.parent) == [path.name]


def test_a_description_too_long_for_safetensors_is_refused(path, monkeypatch):
    monkeypatch.setattr(store, "LONGEST_HEADER", 2000)
    with pytest.raises(ValueError, match="allows 2000: hold long lists of numbers as numpy arrays"):
        partita.save(list(range(1000)), path)
    assert same_bits(round_trip(np.arange(1000), path), np.arange(1000))


NO_PART_OF_A_MODEL = ("persistence", "datasets", "cli", "__main__")


@pytest.mark.parametrize("name", [name for name in ORDER if name not in NO_PART_OF_A_MODEL])
def test_the_table_of_classes_is_complete(name):
    """Modules that models are made of are in it, and no two classes of a folder share a name."""
    importlib.import_module(f"partita.{name}")
    modules = [m for at, m in sys.modules.items() if f"{at}.".startswith(f"partita.{name}.")]
    found = [
        cls
        for m in modules
        for cls in vars(m).values()
        if objects.has_named_fields(cls) and cls.__module__ == m.__name__
    ]
    assert not found or name in partita.__all__
    assert all(objects.find_class(objects.class_name(cls), ()) is cls for cls in found)


# Estimators.


def learner():
    return Learner(3).fit(np.arange(12.0).reshape(4, 3))


def test_an_estimator_comes_back_with_what_it_learned(path):
    mine = (Learner, Mine, eqx.nn.Linear)
    partita.save(learner(), path, classes=mine)
    again = partita.load(path, classes=mine, trusted=True)
    assert type(again) is Learner
    assert again.get_params() == {"width": 3, "scaler": None}
    assert same_bits(again.model_, learner().model_)
    assert same_bits(again.classes_, learner().classes_)
    x = np.ones((2, 3))
    np.testing.assert_array_equal(again.scaler_.transform(x), learner().scaler_.transform(x))


def test_an_estimator_without_its_parameters_is_refused(path):
    made = made_of(Learner, width=3)
    with pytest.raises(ValueError, match=r"load would refuse it.*Learner without \['scaler'\]"):
        partita.save(made, path, classes=(Learner,))


def test_a_parameter_that_a_file_does_not_know_has_its_default(path):
    """Files from before `train` was an argument, which trained both parts; and one that knows it."""
    made = partita.MultilabelClassifier(steps=3, train=Alternating(5, 1))
    assert round_trip(made, path).get_params() == made.get_params()
    del made.train
    again = round_trip(made, path)
    assert again.get_params() == partita.MultilabelClassifier(steps=3).get_params()


def test_estimators_of_scikit_learn_need_consent(path):
    x, y = np.arange(12.0).reshape(6, 2), [0, 1] * 3
    estimators = [LogisticRegression().fit(x, y), {"scaler": StandardScaler().fit(x)}]
    partita.save(estimators, path)
    assert sorted(os.listdir(path.parent)) == [path.name, f"{path.name}.sklearn"]
    with pytest.raises(
        ConsentError, match=r"pickle in .*model\.partita\.sklearn.*executes whatever code.*trusted=True"
    ):
        partita.load(path)
    again = partita.load(path, trusted=True)
    np.testing.assert_array_equal(again[0].predict_proba(x), estimators[0].predict_proba(x))
    np.testing.assert_array_equal(again[1]["scaler"].mean_, x.mean(axis=0))


# Checkpoints.


def test_a_run_taken_up_from_a_file_ends_where_an_uninterrupted_one_does(path):
    rng = np.random.default_rng(0)
    data = rng.normal(size=(16, FEATURES)), rng.integers(0, 2, size=(16, 4))
    start = EBM(Energy(Linear(FEATURES, 4, key=KEY), Bilinear(Cube(4))), Network(MLP(FEATURES, (), width=4, key=KEY)))
    solver = Solver(objectives.MinMin(8, proposal=None), learning_rate=1e-2)
    run = functools.partial(fit, solver, start, data, every=5, key=KEY)
    whole, half = run(steps=20), run(steps=10)
    tree = (half.state, half.data_key)
    persistence.save_leaves(path, tree, {"history": half.history, "result": half.result})
    like = training.init(solver, start, key=jax.random.key(99)), jax.random.key(99)
    (state, data_key), info = persistence.load_leaves(path, like)
    assert same_bits(state, half.state)
    rest = run(steps=20, resume=Solution(state.model, info["result"], info["history"], state, data_key))
    assert same_bits(rest.state, whole.state)
    assert same_bits(rest.model, whole.model)
    assert same_bits(rest.history, whole.history)


TREE = {"a": jnp.arange(3.0), "b": (np.arange(2), jax.random.key(1), None), "c": "kept", "d": np.float32(2)}


def test_leaves_come_back_in_the_structure_of_like(path):
    persistence.save_leaves(path, TREE, info=[1, "two"])
    like = {"a": jnp.zeros(3), "b": (np.zeros(2, int), jax.random.key(7), None), "c": "mine", "d": np.float32(0)}
    tree, info = persistence.load_leaves(path, like)
    assert same_bits(tree, {**TREE, "c": "mine"})
    assert info == [1, "two"]


UNLIKE = {
    "holds 4 arrays, but `like` has 3": {**TREE, "d": 2.0},
    r"float32\[3\] at \['a'\], but `like` has float32\[4\]": {**TREE, "a": jnp.zeros(4)},
    r"float32\[3\] at \['a'\], but `like` has int32\[3\]": {**TREE, "a": jnp.arange(3)},
    r"key<fry>\[\] at .* but `like` has key<rbg>": {**TREE, "b": (np.arange(2), jax.random.key(1, impl="rbg"), None)},
    r"at \['d'\], but `like` has float32\[\] at \['e'\]": {"e" if key == "d" else key: v for key, v in TREE.items()},
}


@pytest.mark.parametrize(("message", "like"), UNLIKE.items(), ids=["count", "shape", "type", "key", "place"])
def test_leaves_of_another_tree_are_refused(message, like, path):
    persistence.save_leaves(path, TREE, None)
    with pytest.raises(FileError, match=message):
        persistence.load_leaves(path, like)


def test_checkpoints_and_objects_are_told_apart(path):
    persistence.save_leaves(path, TREE, None)
    with pytest.raises(FileError, match=r"is a checkpoint: read it with persistence\.load_leaves"):
        partita.load(path)
    partita.save(TREE["a"], path)
    with pytest.raises(FileError, match=r"is not a checkpoint: read it with partita\.load"):
        persistence.load_leaves(path, TREE)
    with pytest.raises(ValueError, match="holds no estimators"):
        persistence.save_leaves(path, TREE, StandardScaler())


@pytest.mark.parametrize("place", [3, 100, 700, -1])
def test_a_corrupted_checkpoint_is_refused(place, path):
    persistence.save_leaves(path, TREE, None)
    raw = bytearray(path.read_bytes())
    raw[place] ^= 1
    path.write_bytes(raw)
    with pytest.raises(FileError):
        persistence.load_leaves(path, TREE)
