"""Pictures show the numbers they are given: what is drawn is read back from the artists. Nothing is cut off."""

import subprocess
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
import pytest
import scipy.stats
from matplotlib import _pylab_helpers
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from partita import EBM, Energy, metrics, plots
from partita.couplings import Bilinear, LinearQuadratic, Symmetric
from partita.model import Table
from partita.networks import Linear
from partita.structures import Cube
from partita.training import History

RNG = np.random.default_rng(0)
LOSS = 3 + np.exp(-np.arange(120) / 30) + 0.1 * RNG.normal(size=120)
HISTORY = History({"loss": LOSS}, [(20, 3.9), (40, 3.4), (60, 3.2), (80, float("nan")), (120, 3.6)])
TRUTH = RNG.normal(2, 3, 50)
LEARNED = TRUTH + 0.3 * RNG.normal(size=50)
MARGINALS = RNG.beta(0.5, 1, size=(80, 5))
SETS = (RNG.uniform(size=MARGINALS.shape) < MARGINALS).astype(int)
U = np.triu(RNG.normal(size=(6, 6)), 1)
U = U + U.T
NAMES = ["amazed-surprised", "happy-pleased", "relaxing-calm", "quiet-still", "sad-lonely", "angry-aggressive"]
RANKS = np.array([[0.1, 0.2, 0.7], [0.85, 0.15, 0.0], [0.05, 0.65, 0.3]])


def many(k):
    matrix = RNG.normal(size=(k, k))
    return matrix + matrix.T


PICTURES = {
    "learning curves": lambda ax=None: plots.learning_curves(HISTORY, ax=ax),
    "learning curves of two scales": lambda ax=None: plots.learning_curves(
        History({"loss": LOSS}, [(50, 90.0)]), ax=ax
    ),
    "one step": lambda ax=None: plots.learning_curves(History({"loss": LOSS[:1]}, []), ax=ax),
    "log-partitions": lambda ax=None: plots.log_partitions(LEARNED, TRUTH, error=np.full(50, 0.2), ax=ax),
    "one log-partition": lambda ax=None: plots.log_partitions([1.0], [1.0], ax=ax),
    "reliability": lambda ax=None: plots.reliability(SETS, MARGINALS, ax=ax),
    "reliability of certainty": lambda ax=None: plots.reliability(SETS, SETS, ax=ax),
    "interactions": lambda ax=None: plots.interactions(U, labels=NAMES, ax=ax),
    "two interactions": lambda ax=None: plots.interactions(U[:2, :2], ax=ax),
    "no interactions": lambda ax=None: plots.interactions(np.zeros((3, 3)), ax=ax),
    "many interactions": lambda ax=None: plots.interactions(
        many(174), labels=[f"Emotion-{j}" for j in range(174)], ax=ax
    ),
    "rank probabilities": lambda ax=None: plots.rank_probabilities(RANKS, labels=["tuna", "eel", "squid"], ax=ax),
    "many rank probabilities": lambda ax=None: plots.rank_probabilities(np.full((60, 60), 1 / 60), ax=ax),
}


@pytest.mark.parametrize("draw", PICTURES.values(), ids=PICTURES)
def test_a_picture_fits_its_figure_and_leaves_no_trace(draw):
    before = dict(matplotlib.rcParams)
    ax = draw()
    figure = ax.figure
    figure.draw_without_rendering()
    assert isinstance(ax, Axes)
    for one in figure.axes:
        box, whole = one.get_tightbbox(), figure.bbox
        # A pixel for rounding.
        assert box.x0 > -1
        assert box.y0 > -1
        assert box.x1 < whole.x1 + 1
        assert box.y1 < whole.y1 + 1
    assert not _pylab_helpers.Gcf.figs
    assert dict(matplotlib.rcParams) == before


@pytest.mark.parametrize("draw", PICTURES.values(), ids=PICTURES)
def test_a_picture_may_be_part_of_a_figure(draw):
    left, right = Figure().subplots(1, 2)
    assert draw(ax=right) is right
    assert right.has_data()
    assert not left.has_data()


def lines(ax):
    return {line.get_label(): line.get_xydata() for line in ax.get_lines()}


def test_learning_curves_show_the_loss_its_mean_and_the_best_measure():
    ax = plots.learning_curves(HISTORY)
    raw, mean = ax.get_lines()[:2]
    np.testing.assert_array_equal(raw.get_ydata(), LOSS)
    np.testing.assert_array_equal(raw.get_xdata(), np.arange(1, 121))
    # A fiftieth of the steps, 2, on both sides of each: of 3 values.
    expected = [LOSS[max(i - 1, 0) : i + 2].mean() for i in range(120)]
    np.testing.assert_allclose(mean.get_ydata(), expected)
    assert lines(ax)["validation"].tolist() == [[20, 3.9], [40, 3.4], [60, 3.2], [120, 3.6]]
    assert lines(ax)["best: 3.2 at step 60"].tolist() == [[60, 3.2]]
    assert len(ax.figure.axes) == 1
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [
        "training loss",
        "validation",
        "best: 3.2 at step 60",
    ]


def test_measures_of_another_scale_have_their_own_axis():
    ax = plots.learning_curves(History({"loss": LOSS}, [(50, 0.25), (100, 0.2)]))
    beside = ax.figure.axes[1]
    assert lines(beside)["validation"].tolist() == [[50, 0.25], [100, 0.2]]
    assert beside.get_ylabel() == "validation score (lower is better)"
    assert len(beside.get_legend().get_texts()) == 3
    assert "validation" not in lines(ax)


def test_learning_curves_of_a_run_that_failed():
    ax = plots.learning_curves(History({"loss": np.append(LOSS[:10], np.inf)}, []))
    assert "not finite at step 11" in lines(ax)
    assert np.isfinite(ax.get_ylim()).all()
    with pytest.raises(ValueError, match="no finite loss in 2 steps"):
        plots.learning_curves(History({"loss": np.full(2, np.nan)}, []))


def test_a_high_start_does_not_flatten_the_rest():
    loss = np.concatenate([np.full(3, 1e6), np.linspace(2, 1, 997)])
    assert plots.learning_curves(History({"loss": loss}, [])).get_ylim()[1] < 1e6 / 3


def test_log_partitions_are_points_beside_the_diagonal():
    ax = plots.log_partitions(LEARNED, TRUTH, error=np.full(50, 0.25))
    bars, points = sorted(ax.collections, key=lambda found: len(found.get_offsets()))
    np.testing.assert_array_equal(points.get_offsets(), np.stack([TRUTH, LEARNED], 1))
    ends = np.array(bars.get_segments())
    np.testing.assert_allclose(ends[:, :, 0], np.stack([TRUTH - 0.25, TRUTH + 0.25], 1))
    assert ax.get_xlim() == ax.get_ylim() == tuple(ax.get_lines()[0].get_xdata())
    correlation = scipy.stats.pearsonr(LEARNED, TRUTH).statistic
    said = f"mean |difference| {np.abs(LEARNED - TRUTH).mean():.3g}\ncorrelation {correlation:.3f}"
    assert ax.texts[0].get_text() == said
    assert plots.log_partitions([1.0, 2.0], [3.0, 3.0]).texts[0].get_text() == "mean |difference| 1.5"
    with pytest.raises(ValueError, match=r"one number for each of 50 rows; got shape \(3,\)"):
        plots.log_partitions(LEARNED, TRUTH, error=np.ones(3))
    with pytest.raises(ValueError, match="one tau and one LSE per row"):
        plots.log_partitions(LEARNED, TRUTH[:3])


@pytest.mark.parametrize("marginals", [MARGINALS, SETS.astype(float)], ids=["beta", "certain"])
def test_reliability_is_of_the_bins_of_the_calibration_error(marginals):
    ax = plots.reliability(SETS, marginals, bins=6)
    found = metrics.calibration_bins(SETS, marginals, 6)
    (drawn,) = ax.containers
    curve, _, (bars,) = drawn.lines
    np.testing.assert_allclose(curve.get_xydata(), np.stack([found.marginal, found.share], 1))
    on = np.rint(found.share * found.num).astype(int)
    exact = [scipy.stats.binomtest(int(a), int(n)).proportion_ci(0.95) for a, n in zip(on, found.num, strict=True)]
    np.testing.assert_allclose(np.array(bars.get_segments())[:, :, 1], exact, atol=1e-9)
    below = next(one for one in ax.figure.axes if one is not ax)
    assert [bar.get_height() for bar in below.patches] == found.num.tolist()
    assert ax.texts[0].get_text() == f"calibration error {metrics.calibration_error(SETS, marginals, 6):.3g}"


def test_rare_labels_fill_the_square():
    p = MARGINALS / 10
    ax = plots.reliability((RNG.uniform(size=p.shape) < p).astype(int), p)
    assert ax.get_xlim() == ax.get_ylim()
    assert ax.get_xlim()[1] < 0.5


def ising(shared):
    coupling = LinearQuadratic(Symmetric(6), shared=shared)
    model = EBM(Energy(Linear(2, coupling.theta_shape, key=jax.random.key(0)), coupling), Table(2))
    if not shared:
        return model
    return eqx.tree_at(lambda m: m.g.coupling.shared, model, jnp.asarray(U[np.triu_indices(6, 1)], float))


@pytest.mark.parametrize("given", [lambda: U, lambda: ising(True), lambda: ising(True).g.coupling])
def test_interactions_are_the_matrix_but_for_its_diagonal(given):
    ax = plots.interactions(given(), labels=NAMES)
    (image,) = ax.images
    drawn = np.ma.filled(image.get_array(), np.nan)
    np.testing.assert_allclose(drawn, np.where(np.eye(6) == 1, np.nan, U), rtol=1e-6)
    low, high = image.get_clim()
    assert -low == high == pytest.approx(np.abs(U).max())
    for ticks in (ax.get_xticklabels(), ax.get_yticklabels()):
        assert [tick.get_text() for tick in ticks] == NAMES
    assert ax.get_title() == ""


def test_of_many_labels_those_that_interact_most_are_shown():
    matrix = many(50)
    quiet = [3, 7, 11, 15, 19, 23, 27, 31, 35, 39]
    matrix[quiet], matrix[:, quiet] = 0, 0
    ax = plots.interactions(matrix)
    loud = [str(j) for j in range(50) if j not in quiet]
    assert [tick.get_text() for tick in ax.get_yticklabels()] == loud
    assert ax.get_title() == "the 40 of 50 labels that interact most"


def test_what_is_no_shared_interaction_is_refused():
    with pytest.raises(ValueError, match=r"depend on x, so there is no single matrix.*shared=True"):
        plots.interactions(ising(False))
    with pytest.raises(ValueError, match="LinearQuadratic coupling, or its square matrix U; got Bilinear"):
        plots.interactions(Bilinear(Cube(3)))
    with pytest.raises(ValueError, match=r"got shape \(2, 3\)"):
        plots.interactions(np.zeros((2, 3)))
    with pytest.raises(ValueError, match=r"labels must be 6 names.*got 2"):
        plots.interactions(U, labels=["a", "b"])


def test_rank_probabilities_are_ordered_by_mean_rank():
    ax = plots.rank_probabilities(RANKS, labels=["tuna", "eel", "squid"])
    np.testing.assert_array_equal(ax.images[0].get_array(), RANKS[[1, 2, 0]])
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["eel", "squid", "tuna"]
    said = {(text.get_position()[1], text.get_position()[0]): text.get_text() for text in ax.texts}
    assert [said[0, p] for p in range(3)] == [".85", ".15", "0"]
    assert plots.rank_probabilities(np.eye(12)).texts[0].get_text() == "1"
    assert not plots.rank_probabilities(np.eye(13)).texts


@pytest.mark.parametrize(
    "bad", [np.ones((2, 3)), np.ones((3, 3)), np.eye(1), np.eye(3)[None], 1.0, 2 * np.eye(2) - 0.5]
)
def test_what_are_no_rank_probabilities_is_refused(bad):
    with pytest.raises(ValueError, match=r"matrix must have shape \(k, k\)"):
        plots.rank_probabilities(bad)


def test_without_matplotlib_one_is_told_what_to_install():
    code = "import sys; sys.modules['matplotlib.axes'] = None; import partita; partita.plots"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert 'pip install "partita[plots]"' in done.stderr
