"""The picture of a cross-validated path: coefficients above, scores below, over the same penalties."""

import numpy as np
from scipy import sparse

from ...plotting import COLOURS, QUIET, pyplot, tidy

_BEST, _SPARE = "#333333", "#D55E00"
_SCORES = {
    "mse": "mean squared error",
    "deviance": "deviance",
    "loss": "mean loss",
    "r2": "R²",
    "roc_auc": "area under the ROC curve",
}


def plot_path(
    alphas, coef_path, mean, error, *, alpha, alpha_min, alpha_1se, scoring, names=None, axes=None, n_named=6
):
    """Draw coefficient paths and the cross-validation curve; see the method `plot` of the estimators.

    `alphas` fall. `coef_path`: CSC (n_features, n_alphas * n_outputs). `mean`, `error`: scores (n_alphas,)
    and their standard errors.
    """
    upper, lower = np.asarray(_new_axes() if axes is None else axes, dtype=object).ravel()
    x = _places(alphas)
    paths = _norms(coef_path, len(alphas))
    rows = sparse.csr_array(paths)
    used = np.flatnonzero(np.diff(rows.indptr))
    values = rows[used].toarray()
    # The largest at the penalty of the model get a colour and a name.
    size = abs(values[:, int(np.flatnonzero(alphas == alpha)[0])])
    order = np.argsort(-size, kind="stable")[:n_named]
    named = order[size[order] > 0]
    labels = [f"x{j}" if names is None else str(names[j]) for j in used[named]]
    _draw_paths(upper, x, values, named, labels)
    upper.set_ylabel("coefficient" if coef_path.shape[1] == len(alphas) else "norm of the coefficients")
    _draw_scores(lower, x, mean, error, scoring)
    marks = (("best mean", alpha_min, _BEST, "-"), ("one standard error", alpha_1se, _SPARE, "--"))
    for name, value, colour, style in marks:
        line = {"color": colour, "linestyle": style, "linewidth": 1.2, "zorder": 1}
        upper.axvline(_places(value), **line)
        lower.axvline(_places(value), label=f"{name}: {value:.3g}", **line)
    lower.legend(loc="upper right", fontsize=8, frameon=False, title="alpha", title_fontsize=8)
    lower.set_xlabel("$-\\log_{10}$ alpha")
    for ax in (upper, lower):
        tidy(ax)
    _count(upper, x, np.diff(paths.indptr))
    return np.array([upper, lower], dtype=object)


def _places(alphas):
    """Horizontal positions of penalties; a penalty of zero is drawn at 1e-16."""
    return -np.log10(np.maximum(alphas, 1e-16))


def _new_axes():
    _, axes = pyplot().subplots(2, 1, sharex=True, figsize=(6.4, 6.4), layout="constrained")
    return axes


def _norms(coefs, n_alphas):
    """Return one column a penalty, CSC: the coefficients, or of several outputs their norm."""
    coefs = sparse.csc_array(coefs)
    n_outputs = coefs.shape[1] // n_alphas
    if n_outputs == 1:
        return coefs
    add = sparse.kron(sparse.eye_array(n_alphas), np.ones((n_outputs, 1)), format="csc")
    return sparse.csc_array(coefs.multiply(coefs) @ add).sqrt()


def _draw_paths(ax, x, values, named, labels):
    from matplotlib.collections import LineCollection

    quiet = np.delete(values, named, axis=0)
    lines = [np.column_stack([x, line]) for line in quiet]
    ax.add_collection(LineCollection(lines, colors="#999999", linewidths=0.6, alpha=0.5))
    colours = [COLOURS[i % len(COLOURS)] for i in range(len(named))]
    for colour, i in zip(colours, named, strict=True):
        ax.plot(x, values[i], color=colour, linewidth=1.8)
    ax.axhline(0, color=QUIET, linewidth=0.8)
    ax.margins(x=0.02)
    ax.autoscale_view()
    _name(ax, values[named, -1], labels, colours)


def _name(ax, heights, labels, colours):
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


def _draw_scores(ax, x, mean, error, scoring):
    label, sign = _label(scoring)
    ax.errorbar(
        x,
        sign * mean,
        yerr=error,
        color=COLOURS[0],
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


def _label(scoring):
    """Label of a score, and -1 for a score that is minus a loss."""
    if callable(scoring):
        return getattr(scoring, "__name__", "score"), 1
    name = scoring.removeprefix("neg_")
    name = "mse" if name == "mean_squared_error" else name
    is_loss = scoring != name or name in ("mse", "deviance", "loss")
    return _SCORES.get(name, name.replace("_", " ")), -1 if is_loss else 1


def _count(ax, x, counts):
    """Number the columns in the models above the axes."""
    above = ax.secondary_xaxis("top")
    at = np.unique(np.linspace(0, len(x) - 1, min(len(x), 8)).astype(int))
    above.set_xticks(x[at], [f"{counts[i]:,}" for i in at], fontsize=8)
    above.tick_params(length=0, pad=0)
    above.spines["top"].set_visible(False)
    above.set_xlabel("columns in the model", fontsize=9)
