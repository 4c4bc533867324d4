"""The picture of a cross-validated path: coefficients above, scores below, over the same penalties."""

import numpy as np
from scipy import sparse

from ...errors import StradaskError

# Okabe and Ito's palette without its yellow, which is too light for lines on white.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_QUIET, _BEST, _SPARE = "#666666", "#333333", "#D55E00"
_SCORES = {
    "mse": "mean squared error",
    "deviance": "deviance",
    "r2": "R²",
    "roc_auc": "area under the ROC curve",
}


def plot_path(estimator, axes=None, *, n_named=6):
    """Draw coefficient paths and the cross-validation curve of a fitted estimator.

    Both pictures share the axis of :math:`-\\log_{10}` alpha, so that models grow to the right; the
    numbers above are the coefficients other than zero. The solid line marks the penalty of the best
    mean score, the dashed one the largest penalty within one standard error of it. Of a multinomial
    model a path is the Euclidean norm of a feature's coefficients over the classes.

    Parameters
    ----------
    estimator : LassoCV, ElasticNetCV or SparseLogisticRegressionCV
        Fitted.
    axes : sequence of two matplotlib axes, optional
        For the coefficients and for the scores; by default a new figure of pyplot.
    n_named : int, default=6
        How many of the largest coefficients (at ``alpha_``) are coloured and named.

    Returns
    -------
    ndarray of two matplotlib axes

    Raises
    ------
    StradaskError
        If matplotlib is not installed.
    """
    if axes is None:
        axes = _new_axes()
    upper, lower = np.asarray(axes, dtype=object).ravel()
    x = -np.log10(estimator._chosen_alphas())
    paths = _paths(estimator)
    _draw_paths(upper, x, paths, estimator, n_named)
    _draw_scores(lower, x, estimator)
    for ax in (upper, lower):
        ax.axvline(-np.log10(estimator.alpha_min_), color=_BEST, linewidth=1.2, zorder=1)
        ax.axvline(-np.log10(estimator.alpha_1se_), color=_SPARE, linewidth=1.2, linestyle="--", zorder=1)
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(alpha=0.25)
    _count(upper, x, np.diff(paths.indptr))
    return np.array([upper, lower], dtype=object)


def _new_axes():
    try:
        import matplotlib.pyplot as plt
    except ModuleNotFoundError as error:
        raise StradaskError(
            "plot() needs matplotlib, which is not installed: pip install 'stradask[plot]'"
        ) from error
    _, axes = plt.subplots(2, 1, sharex=True, figsize=(6.4, 6.4), layout="constrained")
    return axes


def _paths(estimator):
    """Return one column a penalty, CSC; of several classes the norm over them."""
    coefs = sparse.csc_array(estimator.coef_path_)
    n_outputs = coefs.shape[1] // len(estimator._chosen_alphas())
    if n_outputs == 1:
        return coefs
    n_alphas = coefs.shape[1] // n_outputs
    add = sparse.kron(sparse.eye_array(n_alphas), np.ones((n_outputs, 1)), format="csc")
    squares = sparse.csc_array(coefs.multiply(coefs) @ add)
    squares.eliminate_zeros()
    return squares.sqrt()


def _draw_paths(ax, x, paths, estimator, n_named):
    from matplotlib.collections import LineCollection

    rows = sparse.csr_array(paths)
    used = np.flatnonzero(np.diff(rows.indptr))
    values = rows[used].toarray()
    # The largest at the penalty that was chosen get a colour and a name.
    chosen = int(np.argmin(abs(x + np.log10(estimator.alpha_))))
    order = np.argsort(-abs(values[:, chosen]), kind="stable")
    named = [i for i in order[:n_named] if values[i, chosen]]
    quiet = np.setdiff1d(np.arange(len(used)), named)
    lines = [np.column_stack([x, values[i]]) for i in quiet]
    ax.add_collection(LineCollection(lines, colors="#999999", linewidths=0.6, alpha=0.5))
    for colour, i in zip(_cycle(len(named)), named, strict=True):
        ax.plot(x, values[i], color=colour, linewidth=1.8)
    ax.axhline(0, color=_QUIET, linewidth=0.8)
    ax.margins(x=0.02)
    ax.autoscale_view()
    _name(ax, x[-1], values[named, -1], _labels(estimator, used[named]))
    multinomial = estimator.coef_path_.shape[1] > len(x)
    ax.set_ylabel("norm of the coefficients" if multinomial else "coefficient")


def _name(ax, x, heights, labels):
    """Write names to the right of the lines' ends, moved apart where they would overlap."""
    low, high = ax.get_ylim()
    room = 0.05 * (high - low)
    order = np.argsort(heights)
    places = np.array(heights, dtype=float)[order]
    for i in range(1, len(places)):
        places[i] = max(places[i], places[i - 1] + room)
    # Where that has pushed the upper ones out, they come down again.
    for i in reversed(range(len(places))):
        places[i] = min(places[i], high - room * (len(places) - 1 - i))
    colours = _cycle(len(labels))
    for place, i in zip(places, order, strict=True):
        ax.annotate(
            labels[i],
            (1, place),
            xycoords=ax.get_yaxis_transform(),
            xytext=(4, 0),
            textcoords="offset points",
            color=colours[i],
            fontsize=9,
            va="center",
            annotation_clip=False,
        )


def _cycle(n):
    return [_COLOURS[i % len(_COLOURS)] for i in range(n)]


def _labels(estimator, features):
    for attribute in ("feature_names_in_", "vocabulary_"):
        names = getattr(estimator, attribute, None)
        if names is not None:
            return [str(names[feature]) for feature in features]
    return [f"x{feature}" for feature in features]


def _draw_scores(ax, x, estimator):
    mean, error = estimator._chosen_scores()
    label, sign = _label(estimator._scoring())
    ax.errorbar(
        x,
        sign * mean,
        yerr=error,
        color=_COLOURS[0],
        ecolor="#a6c8e0",
        marker="o",
        markersize=3,
        linewidth=1.2,
        elinewidth=1,
        zorder=2,
    )
    best = int(np.argmax(mean))
    # What the dashed line means: the best mean and one standard error around it.
    ax.axhspan(*(sign * (mean[best] + step * error[best]) for step in (-1, 1)), color=_SPARE, alpha=0.08)
    ax.set_ylabel(label)
    ax.set_xlabel("$-\\log_{10}$ alpha")
    for alpha, name, colour in (
        (estimator.alpha_min_, "best mean", _BEST),
        (estimator.alpha_1se_, "one standard error", _SPARE),
    ):
        ax.plot([], [], color=colour, linestyle="-" if colour == _BEST else "--", label=f"{name}: {alpha:.3g}")
    ax.legend(fontsize=8, frameon=False, title="alpha", title_fontsize=8)


def _label(scoring):
    """Return what the score is called, and -1 for a score that is minus a loss."""
    if callable(scoring):
        return getattr(scoring, "__name__", "score"), 1
    name = scoring.removeprefix("neg_")
    name = "mse" if name == "mean_squared_error" else name
    return _SCORES.get(name, name.replace("_", " ")), -1 if scoring != name or name in ("mse", "deviance") else 1


def _count(ax, x, counts):
    """Number the coefficients other than zero above the axes."""
    above = ax.secondary_xaxis("top")
    at = np.unique(np.linspace(0, len(x) - 1, min(len(x), 8)).astype(int))
    above.set_xticks(x[at], [f"{counts[i]:,}" for i in at], fontsize=8)
    above.tick_params(length=0, pad=0)
    above.spines["top"].set_visible(False)
    above.set_xlabel("coefficients other than zero", fontsize=9)
