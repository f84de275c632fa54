"""The contract of structures: a structure in a file of one's own is a full citizen, and one that breaks the contract is
named; nothing outside `structures` names a concrete one."""

import ast
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from strings import StringHull, Strings, UpTo

import partita
from partita import exact, inference, objectives, structures
from partita.couplings import Bilinear, LinearQuadratic, Symmetric
from partita.kernels import Gibbs, Informed, Metropolis, run, target
from partita.model import EBM, Energy, Network
from partita.networks import MLP, Linear
from partita.structures import Amortized, Birkhoff, Cube, Hypercube, Permutations, check_structure
from partita.training import Rows, Solver, batch, fit

K, FEATURES = 6, 3
LENGTHS = np.array([6, 3, 5, 1, 4, 2])
ALL = Strings(K).elements()


def model(surrogate=False, seed=0):
    h_key, tau_key, r_key = jax.random.split(jax.random.key(seed), 3)
    coupling = Bilinear(StringHull(K))
    near = Amortized(coupling, width=8, key=r_key) if surrogate else False
    g = Energy(Linear(FEATURES, (K,), zero=False, key=h_key), coupling)
    return EBM(g, Network(MLP(K, (), width=8, key=tau_key), of_logits=True), q=UpTo(jnp.asarray(K), K), surrogate=near)


def enumerated(asked, x, length):
    """p(.|x) of one row over all strings."""
    theta = np.asarray(asked.g.h(x), float)
    inside = (np.asarray(ALL)[:, length:] == 0).all(axis=1)
    weight = np.where(inside, np.exp(np.asarray(ALL) @ theta), 0)
    return weight / weight.sum(), np.log(weight.sum() / inside.sum())


@pytest.fixture(scope="module")
def asked():
    x = np.random.default_rng(0).normal(size=(len(LENGTHS), FEATURES)).astype(np.float32)
    return model(), x, UpTo(jnp.asarray(LENGTHS), K)


def test_the_toy_structure_keeps_the_contract():
    check_structure(
        Strings(K),
        polytope=StringHull(K),
        measures=[UpTo(jnp.asarray(length), K) for length in (0, 1, 4, K)],
        coupling=Bilinear(StringHull(K)),
    )


def test_exact_answers_of_rows_of_different_length_are_those_of_enumeration(asked):
    """float32 sums over at most 21 strings."""
    ebm, x, reference = asked
    assert type(ebm.exact_method()).__name__ == "Chain"
    truth = [enumerated(ebm, row, length) for row, length in zip(x, LENGTHS, strict=True)]
    p = np.stack([row for row, _ in truth])
    tau = inference.log_partition(ebm, x, reference=reference)
    np.testing.assert_allclose(tau, [value for _, value in truth], atol=1e-5)
    np.testing.assert_allclose(inference.marginals(ebm, x, reference=reference), p @ np.asarray(ALL), atol=1e-5)
    np.testing.assert_array_equal(inference.mode(ebm, x, reference=reference), np.asarray(ALL)[p.argmax(axis=1)])
    best = inference.top_k(ebm, x[:3], 2, reference=UpTo(jnp.asarray(LENGTHS[:3]), K))
    np.testing.assert_allclose(np.exp(best.log_prob), -np.sort(-p[:3], axis=1)[:, :2], atol=1e-5)


def test_draws_follow_p(asked, key):
    """Chi-square over the 21 strings, 4,000 draws of a row; p-value above 1e-3."""
    ebm, x, _ = asked
    for length in (6, 4):
        p, _ = enumerated(ebm, x[0], length)
        y = inference.sample(ebm, x[:1], 4000, key=key, reference=UpTo(jnp.array([length]), K))[0]
        code = 2 ** np.arange(K)
        found = np.array([(np.asarray(y) @ code == row @ code).sum() for row in np.asarray(ALL)])
        assert found[p == 0].sum() == 0
        assert scipy.stats.chisquare(found[p > 0], 4000 * p[p > 0]).pvalue > 1e-3


@pytest.mark.parametrize("kernel", [Gibbs(), Metropolis("local"), Informed()], ids=lambda k: type(k).__name__)
def test_kernels_serve_spaces_whose_moves_depend_on_y(kernel, key):
    """Means of 200 chains of 60 states against enumeration: 5 standard errors of 200 independent draws."""
    ebm = model()
    row = ebm.row(jnp.array([1.0, -1.0, 0.5]))
    starts = ebm.q.sample(200, key=key)
    drawn, _ = eqx.filter_jit(run)(kernel, target(ebm, row), starts, 20, burn_in=100, key=key)
    p, _ = enumerated(ebm, row.x, K)
    np.testing.assert_allclose(drawn.mean(axis=(0, 1)), p @ np.asarray(ALL), atol=5 * 0.5 / np.sqrt(200))


def test_conditional_answers(asked):
    """Place 0 is known to be on: by a list of all outputs."""
    ebm, x, reference = asked
    known = np.array([1, -1, -1, -1, -1, -1])
    held, conditional = inference.given(ebm, x, known, reference=reference)
    marginals = inference.marginals(held, x, reference=conditional)
    for i, length in enumerate(LENGTHS):
        p, _ = enumerated(ebm, x[i], length)
        inside = p * np.asarray(ALL)[:, 0]
        np.testing.assert_allclose(marginals[i], inside @ np.asarray(ALL) / inside.sum(), atol=1e-5)
        evidence = inference.evidence(ebm, x[i : i + 1], known, reference=UpTo(jnp.array([length]), K))
        assert float(evidence[0]) == pytest.approx(np.log(inside.sum()), abs=1e-5)


@pytest.mark.parametrize("objective", ["exact", "min-min", "min-min from q"])
def test_it_is_learned_exactly_and_by_min_min(objective, key):
    """400 rows of lengths 1 to 6: the likelihood of the model that drew them is reached within 0.05 nats."""
    truth, rng = model(seed=5), np.random.default_rng(1)
    x = rng.normal(size=(400, FEATURES)).astype(np.float32)
    reference = UpTo(jnp.asarray(rng.integers(1, K + 1, 400)), K)
    y = np.asarray(inference.sample(truth, x, 1, key=key, reference=reference))[:, 0]
    loss = {
        "exact": objectives.ExactMLE(),
        "min-min": objectives.MinMin(16),
        "min-min from q": objectives.MinMin(32, proposal=None),
    }[objective]
    start = model(surrogate=objective == "min-min", seed=7)
    solver = Solver(loss, learning_rate=3e-2)
    learned = fit(solver, start, Rows(x, y, reference=reference), steps=300, key=key).model
    rows = batch(truth, x, y, reference=reference)
    value = lambda ebm: float(objectives.ExactMLE().loss(ebm, None, rows, key=key)[0])  # noqa: E731
    assert value(learned) < value(truth) + 0.05
    if objective != "exact":
        tau = inference.log_partition(learned, x, method="learned", reference=reference)
        # tau reads the logits, which do not know the length: only rows of full length are compared.
        assert np.isfinite(tau).all()


class _Outside(Strings):
    def sample(self, num, *, key):
        return jnp.ones((num, self.k), int)


class _Doubled(Strings):
    def element(self, i):
        return super().element(i // 2)


class _OneWay(Strings):
    def move(self, y, i):
        return jnp.where(jnp.sum(y) == 0, super().move(y, i), y)


class _Heavy(UpTo):
    def log_prob(self, y):
        return super().log_prob(y) + 1.0


class _Least(StringHull):
    def argmax(self, theta):
        return super().argmax(-theta)


BROKEN = {
    "sample": (lambda: check_structure(_Outside(4)), "_Outside.sample draws arrays that .* not in the space"),
    "element": (lambda: check_structure(_Doubled(4)), "_Doubled.element gives 4 different outputs of 8"),
    "move": (lambda: check_structure(_OneWay(4)), "_OneWay.move"),
    "log_prob": (
        lambda: check_structure(Strings(4), measures=[_Heavy(jnp.asarray(4), 4)]),
        "sum to 2.7.*, not to 1",
    ),
    "argmax": (lambda: check_structure(Strings(4), polytope=_Least(4)), "_Least.argmax finds a score of"),
    "space": (lambda: check_structure(Strings(4), polytope=StringHull(5)), "StringHull.space is"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_contract_is_named(name):
    call, message = BROKEN[name]
    with pytest.raises(ValueError, match=message):
        call()


def test_a_sequential_reference_given_ties_is_the_conditional_one():
    """Plackett-Luce and Mallows, by the subset program, against all 24 rankings."""
    every = Permutations(4).elements()
    y, mask = jnp.array([1, 3, 0, 2]), jnp.array([1, 0, 1, 0])
    inside = np.asarray(Permutations(4).agrees(y, mask, every))
    for q in (
        structures.PlackettLuce(jnp.array([0.3, -1.0, 0.5, 2.0])),
        structures.Mallows(jnp.array([2, 0, 3, 1]), 0.6),
    ):
        log_q = np.asarray(jax.vmap(q.log_prob)(every), float)
        measure, log_mass = q.condition(y, mask)
        assert float(log_mass) == pytest.approx(np.log(np.exp(log_q)[inside].sum()), abs=1e-5)
        p = np.exp(np.asarray(measure.log_probs(every), float))
        np.testing.assert_allclose(p, np.where(inside, np.exp(log_q - float(log_mass)), 0), atol=1e-6)
        assert np.isfinite(measure.log_probs(measure.sample(50, key=jax.random.key(0)))).all()
        coupling = Bilinear(Birkhoff(4))
        theta = jax.random.normal(jax.random.key(1), (4, 4))
        value = coupling.exact(measure, partita.divergences.KL()).log_partition(theta, measure)
        g = np.asarray(coupling.scores(theta, every), float)
        assert float(value) == pytest.approx(np.log(np.sum(p * np.exp(g))), abs=1e-5)


def test_projection_by_frank_wolfe_is_near_the_nearest_point():
    """The generic projection against the closed form of the cube; 500 steps of an O(1/t) method."""

    class Generic(structures.AbstractPolytope):
        @property
        def space(self):
            return Hypercube(5)

        def encode(self, y):
            return y.astype(float)

        def argmax(self, theta):
            return Cube(5).argmax(theta)

    theta = jnp.array([0.3, -0.5, 1.7, 0.9, 0.05])
    np.testing.assert_allclose(Generic().project(theta), Cube(5).project(theta), atol=0.02)


PACKAGE = Path(partita.__file__).parent
# The estimators' table of names; and the demo, which shows how models are put together.
LISTED = {"estimators/names.py", "cli/demo.py"}


def concrete_structures():
    """Classes of `structures` that know what y is; those of `generic` and `enumeration` serve every space."""
    generic = {"Uniform", "Mixture", "Components", "Categorical", "Filtered", "Amortized", "Enumeration"}
    plain = {"Best", "Conditioned", "SurrogateRow"}
    public = {name: getattr(structures, name) for name in structures.__all__}
    classes = {name for name, value in public.items() if isinstance(value, type) and not name.startswith("Abstract")}
    return classes - generic - plain


def test_no_module_outside_structures_names_a_concrete_structure():
    concrete, found = concrete_structures(), {}
    assert {"Hypercube", "Birkhoff", "PlackettLuce", "MeanField", "SubsetDP"} <= concrete
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        if name.startswith("structures/") or name in LISTED:
            continue
        tree = ast.parse(path.read_text())
        names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        names |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        if used := names & concrete:
            found[name] = used
    assert not found


def test_only_the_budget_catches_what_is_too_large():
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ExceptHandler) and node.type is not None:
                assert "TooLargeError" not in ast.unparse(node.type) or path.name == "budget.py", path


def test_exact_and_budget_agree_on_what_is_too_large():
    large = LinearQuadratic(Symmetric(40), shared=True)
    ebm = EBM(Energy(Linear(2, (40,), key=jax.random.key(0)), large), Network(MLP(2, (), key=jax.random.key(1))))
    assert not partita.budget.reaches(ebm)
    with pytest.raises(partita.budget.TooLargeError):
        exact.log_partition(ebm, ebm.row(jnp.zeros(2)))
