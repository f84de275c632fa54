"""Plots of training, calibration and what was learned. They need matplotlib: `pip install partita[plots]`.

Every function draws on `ax`, or on the axes of a new figure, and returns the axes: `plots.reliability(y, p).figure`.
No global state of pyplot is used or changed. The colors suit color-blind readers.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
import scipy.stats

try:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
except ModuleNotFoundError as error:
    message = 'partita.plots draws with matplotlib: install it by pip install "partita[plots]".'
    raise ModuleNotFoundError(message) from error

from .couplings import LinearQuadratic
from .metrics import calibration_bins, calibration_error, log_partition_error
from .model import EBM
from .training import History

__all__ = ["interactions", "learning_curves", "log_partitions", "rank_probabilities", "reliability"]

# Of Okabe and Ito's palette.
BLUE, VERMILION, GRAY = "#0072B2", "#D55E00", "#777777"
MOST_LABELS = 40
MOST_WRITTEN = 12


def learning_curves(history: History, *, ax: Axes | None = None) -> Axes:
    """Draw the loss of every step, its moving mean, and the validation scores with the best one marked.

    Validation scores of another scale than the loss get an axis of their own, on the right.

    Parameters
    ----------
    history : History
        Of a fit: `history_` of an estimator.
    ax : Axes, default=None
        Where to draw; by default the axes of a new figure.

    Returns
    -------
    Axes
        The axes that were drawn on.
    """
    loss = np.asarray(history.loss, float)
    if not np.isfinite(loss).any():
        raise ValueError(f"The history has no finite loss in {loss.size} steps: there is nothing to draw.")
    ax = _axes(ax, (6.4, 4.0))
    steps = 1 + np.arange(loss.size)
    mean = _moving_mean(loss, max(1, loss.size // 50))
    ax.plot(steps, loss, color=BLUE, alpha=0.25, linewidth=0.8)
    ax.plot(steps, mean, color=BLUE, label="training loss")
    ax.set(xlabel="step", ylabel="loss")
    # The first steps of a long run may be far above all others.
    bottom, top = np.nanmin(mean), np.nanquantile(mean, 0.99 if loss.size > 200 else 1)
    curves = [ax]
    measures = np.array([pair for pair in history.validation if np.isfinite(pair[1])], float)
    if measures.size:
        at, value = measures.T
        reach = top - bottom
        shared = bottom - reach <= value.min() <= top + reach
        beside = ax if shared else ax.twinx()
        _draw_scores(beside, at, value)
        if shared:
            bottom, top = min(bottom, value.min()), max(top, value[value.size // 10 :].max())
        else:
            curves.append(beside)
    if not np.isfinite(loss[-1]):
        ax.axvline(loss.size, color=GRAY, linestyle=":", label=f"not finite at step {loss.size}")
    margin = 0.05 * (top - bottom) or 0.05 * max(abs(top), 1)
    ax.set_ylim(bottom - margin, top + margin)
    handles = [pair for axes in curves for pair in zip(*axes.get_legend_handles_labels(), strict=True)]
    curves[-1].legend(*zip(*handles, strict=True), frameon=False)
    return ax


def log_partitions(learned: Any, truth: Any, *, error: Any = None, ax: Axes | None = None) -> Axes:
    """Draw the learned tau against exact or estimated log-partitions, one point per row.

    Parameters
    ----------
    learned : array-like of shape (n_rows,)
        The learned tau.
    truth : array-like of shape (n_rows,)
        The log-partitions.
    error : array-like of shape (n_rows,), default=None
        Errors of estimated log-partitions, drawn as bars.
    ax : Axes, default=None
        Where to draw; by default the axes of a new figure.

    Returns
    -------
    Axes
        The axes that were drawn on.
    """
    difference = log_partition_error(learned, truth)
    learned, truth = np.asarray(learned, float).ravel(), np.asarray(truth, float).ravel()
    if error is not None and np.shape(error) != truth.shape:
        raise ValueError(f"error must have one number for each of {truth.size} rows; got shape {np.shape(error)}.")
    ax = _axes(ax, (4.8, 4.8))
    low, high = min(learned.min(), truth.min()), max(learned.max(), truth.max())
    margin = 0.05 * (high - low) or 0.5
    limits = (low - margin, high + margin)
    ax.plot(limits, limits, color=GRAY, linestyle="--", linewidth=1, zorder=1)
    if error is not None:
        ax.errorbar(truth, learned, xerr=error, fmt="none", ecolor=BLUE, elinewidth=0.8, alpha=0.5, zorder=2)
    opacity = np.clip(30 / np.sqrt(truth.size), 0.15, 0.8)
    ax.scatter(truth, learned, s=14, color=BLUE, alpha=opacity, linewidths=0, zorder=3, rasterized=truth.size > 5000)
    ax.set(xlim=limits, ylim=limits, aspect="equal", xlabel="log-partition", ylabel="learned tau")
    message = f"mean |difference| {difference:.3g}"
    if learned.std() > 0 and truth.std() > 0:
        message += f"\ncorrelation {np.corrcoef(learned, truth)[0, 1]:.3f}"
    _corner(ax, message)
    return ax


def reliability(y: Any, marginals: Any, *, bins: int = 10, ax: Axes | None = None) -> Axes:
    """Draw how often labels of a marginal p are on: the nearer to the diagonal, the better calibrated.

    Bars are exact binomial 95 % intervals of independent labels; gray columns are the number of labels in each bin.

    Parameters
    ----------
    y : array-like of shape (n_rows, n_labels)
        Label sets as 0/1.
    marginals : array-like of shape (n_rows, n_labels)
        P(label j is on) of each row.
    bins : int, default=10
        How many bins, as in `metrics.calibration_error`.
    ax : Axes, default=None
        Where to draw; by default the axes of a new figure.

    Returns
    -------
    Axes
        The axes that were drawn on.
    """
    result = calibration_bins(y, marginals, bins)
    ax = _axes(ax, (5.8, 4.8))
    on = np.rint(result.share * result.num)
    # Clopper and Pearson; at the ends the quantiles of the degenerate beta are 0 and 1.
    low = np.where(on > 0, scipy.stats.beta.ppf(0.025, np.maximum(on, 1), result.num - on + 1), 0)
    high = np.where(on < result.num, scipy.stats.beta.ppf(0.975, on + 1, np.maximum(result.num - on, 1)), 1)
    # Rare labels have small marginals only; the empty part of the square is left out.
    top = min(1.02, 1.1 * max(result.marginal.max(), high.max()))
    ax.plot((0, 1), (0, 1), color=GRAY, linestyle="--", linewidth=1)
    spread = np.maximum([result.share - low, high - result.share], 0)
    ax.errorbar(
        result.marginal, result.share, yerr=spread, color=BLUE, marker="o", markersize=4, capsize=2, linewidth=1.2
    )
    ax.set(
        xlim=(-0.02 * top, top), ylim=(-0.02 * top, top), box_aspect=1, xlabel="marginal", ylabel="share of labels on"
    )
    below = ax.twinx()
    width = np.maximum(result.high - result.low, 0.006 * top)
    middle = (result.low + result.high) / 2
    below.bar(middle, result.num, width, color="#e8e8e8", edgecolor="#bbbbbb", linewidth=0.6)
    # The columns take the lower fifth; the curve lies over them.
    below.set(ylim=(-0.1 * result.num.max(), 5 * result.num.max()), yticks=(0, result.num.max()), box_aspect=1)
    below.set_ylabel("labels in a bin", loc="bottom", color=GRAY)
    below.tick_params(colors=GRAY)
    ax.set_zorder(below.get_zorder() + 1)
    ax.patch.set_visible(False)
    _corner(ax, f"calibration error {calibration_error(y, marginals, bins):.3g}")
    return ax


def interactions(model: Any, *, labels: Iterable[Any] | None = None, ax: Axes | None = None) -> Axes:
    """Draw the interactions U of a `LinearQuadratic` coupling that all x share.

    Labels of a red pair attract each other, those of a blue one repel. Of more than 40 labels those that interact most
    are shown.

    Parameters
    ----------
    model : EBM, LinearQuadratic or array-like of shape (n_labels, n_labels)
        A model, its coupling, or the matrix itself.
    labels : iterable, default=None
        The names of the labels; by default their numbers.
    ax : Axes, default=None
        Where to draw; by default the axes of a new figure.

    Returns
    -------
    Axes
        The axes that were drawn on.
    """
    matrix = _interaction_matrix(model)
    k = matrix.shape[0]
    names = _names(labels, k)
    matrix = np.where(np.eye(k, dtype=bool), np.nan, matrix)
    shown = np.sort(np.argsort(-np.nansum(np.abs(matrix), axis=1), kind="stable")[:MOST_LABELS])
    matrix, names = matrix[np.ix_(shown, shown)], [names[j] for j in shown]
    side = np.clip(1.5 + 0.3 * len(names), 2.5, 9) + 0.07 * max(map(len, names))
    ax = _axes(ax, (side + 1.2, side))
    largest = np.nanmax(np.abs(matrix)) or 1.0
    image = ax.imshow(matrix, cmap="RdBu_r", vmin=-largest, vmax=largest)
    ax.set_facecolor("#dddddd")
    size = 10 if len(names) <= 20 else 8 if len(names) <= 30 else 7
    upright = max(map(len, names)) > 2
    ax.set_xticks(range(len(names)), names, rotation=90 if upright else 0, fontsize=size)
    ax.set_yticks(range(len(names)), names, fontsize=size)
    ax.figure.colorbar(image, ax=ax, shrink=0.8, label="interaction U")
    if len(names) < k:
        ax.set_title(f"the {len(names)} of {k} labels that interact most", fontsize="medium")
    return ax


def rank_probabilities(matrix: Any, *, labels: Iterable[Any] | None = None, ax: Axes | None = None) -> Axes:
    """Draw P(label j has rank p) of one x, the labels ordered by their mean rank.

    The probabilities are written out for up to 12 labels.

    Parameters
    ----------
    matrix : array-like of shape (n_labels, n_labels)
        Row j holds the probabilities of the ranks of label j.
    labels : iterable, default=None
        The names of the labels; by default their numbers.
    ax : Axes, default=None
        Where to draw; by default the axes of a new figure.

    Returns
    -------
    Axes
        The axes that were drawn on.
    """
    matrix = np.asarray(matrix, float)
    k = len(np.atleast_1d(matrix))
    stochastic = matrix.shape == (k, k) and matrix.min() > -1e-3 and np.allclose(matrix.sum(axis=1), 1, atol=0.01)
    if not stochastic or k < 2:
        raise ValueError(
            "matrix must have shape (k, k), row j the probabilities of the ranks of label j; got shape "
            f"{matrix.shape}. For many x, inference.marginals gives one matrix each: pass one of them."
        )
    names = _names(labels, k)
    order = np.argsort(matrix @ np.arange(k), kind="stable")
    matrix = matrix[order]
    side = np.clip(1.5 + 0.42 * k, 3.5, 10)
    ax = _axes(ax, (side + 1.2, side))
    image = ax.imshow(matrix, cmap="cividis", vmin=0, vmax=matrix.max())
    ax.set_yticks(range(k), [names[j] for j in order], fontsize=10 if k <= 25 else 7)
    if k <= 25:
        ax.set_xticks(range(k))
    ax.set(xlabel="rank (0 is best)", ylabel="label, by mean rank")
    ax.figure.colorbar(image, ax=ax, shrink=0.8, label="probability")
    for (j, p), value in np.ndenumerate(matrix if k <= MOST_WRITTEN else np.zeros((0, 0))):
        color = "black" if value > 0.55 * matrix.max() else "white"
        ax.text(p, j, _short(value), ha="center", va="center", color=color, fontsize=8)
    return ax


def _axes(ax: Axes | None, size: tuple[float, float]) -> Axes:
    return Figure(figsize=size, layout="constrained").subplots() if ax is None else ax


def _draw_scores(ax: Axes, at: np.ndarray, value: np.ndarray) -> None:
    best = int(np.argmin(value))
    ax.plot(at, value, color=VERMILION, marker=".", markersize=4, label="validation")
    message = f"best: {value[best]:.4g} at step {at[best]:.0f}"
    ax.plot(at[best], value[best], color=VERMILION, marker="*", markersize=13, linestyle="none", label=message)
    if ax.get_ylabel() == "":
        ax.set_ylabel("validation score (lower is better)", color=VERMILION)
        ax.tick_params(axis="y", colors=VERMILION)


def _moving_mean(values: np.ndarray, window: int) -> np.ndarray:
    """Mean of the finite values around each step, NaN where there is none."""
    finite, kernel = np.isfinite(values), np.ones(2 * (window // 2) + 1)
    total, count = (
        np.convolve(part, kernel, mode="same")[: values.size] for part in (np.where(finite, values, 0), finite)
    )
    return np.divide(total, count, out=np.full(values.size, np.nan), where=finite & (count > 0))


def _corner(ax: Axes, message: str) -> None:
    box = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 2}
    ax.text(0.03, 0.97, message, transform=ax.transAxes, va="top", ha="left", bbox=box, zorder=5)


def _interaction_matrix(model: Any) -> np.ndarray:
    coupling: Any = model.g.coupling if isinstance(model, EBM) else model
    if isinstance(coupling, LinearQuadratic):
        if coupling.shared is None:
            raise ValueError(
                "The interactions U of this coupling depend on x, so there is no single matrix to draw. Pass that "
                "of one x, coupling.interaction.matrix(s), or learn LinearQuadratic(..., shared=True)."
            )
        return np.asarray(coupling.interaction.matrix(coupling.shared), float)
    matrix = np.asarray(coupling)
    if matrix.dtype.kind not in "fiu" or matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or len(matrix) < 2:
        got = f"shape {matrix.shape}" if matrix.ndim else type(coupling).__name__
        raise ValueError(f"Expected a model with a LinearQuadratic coupling, or its square matrix U; got {got}.")
    return matrix.astype(float)


def _names(labels: Iterable[Any] | None, k: int) -> list[str]:
    names = [str(name) for name in (range(k) if labels is None else labels)]
    if len(names) != k:
        raise ValueError(f"labels must be {k} names, one for each row of the matrix; got {len(names)}.")
    return names


def _short(value: float) -> str:
    """Two digits, without the leading zero of every cell: .42, 1, and 0 for what rounds to it."""
    return f"{value:.2f}".removeprefix("0") if 0.005 <= value < 0.995 else f"{value:.0f}"
