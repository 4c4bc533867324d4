"""The pictures of the demo of sparse linear models."""

import numpy as np

from .drawing import OURS, THEIRS, draw_curve, draw_level, make_axes, write_beside


def add_linear(page, X, model, support, choices, seconds, ours, sklearn):
    """Add the part of the sparse linear models to the page."""
    n_alphas, n_folds = model.scores_.shape
    page.heading(f"Sparse linear models: which of {X.shape[1]:,} columns matter?")
    page.text(
        f"A target is made of {len(support)} of {X.shape[1]:,} columns, and of noise, which is a third of "
        f"its variance. The Lasso has {X.shape[0]:,} rows to find out which; its penalty decides how many "
        f"columns it takes. Here are {n_alphas} penalties, each fitted on {n_folds} folds and on all rows: "
        f"{n_alphas * (n_folds + 1)} models in {seconds:.1f} seconds on all cores."
    )
    page.code(CODE.format(alphas=n_alphas, folds=n_folds))
    page.figure(*path(model, support))
    page.text(
        "Cross-validation chooses the penalty. The penalty with the best mean error predicts best, but its "
        "model has columns that have nothing to do with the target. The rule of one standard error takes the "
        "largest penalty whose error is within one standard error of the best: nearly the same prediction "
        "from far fewer columns."
    )
    rows = [
        (
            name,
            f"{choice['alpha']:.4f}",
            f"{choice['columns']:,}",
            choice["true_columns"],
            f"{choice['squared_error']:.4f}",
        )
        for name, choice in zip(("best mean", "one standard error"), choices, strict=True)
    ]
    header = ["penalty", "alpha", "columns", f"of the {len(support)} true ones", "held-out squared error"]
    page.table(rows, header, "What the two rules find")
    page.subheading("One fit, compared with scikit-learn")
    page.figure(*gaps(ours, sklearn))


CODE = """
model = sd.LassoCV(alphas={alphas}, cv={folds}, n_jobs=-1).fit(X, y)  # X: scipy.sparse
model.alpha_, model.alpha_1se_
model.plot()
"""


def path(model, support):
    """Return the coefficient paths with the cross-validation curve: figure, caption, description."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    figure = Figure(figsize=(6.0, 6.6), layout="constrained")
    upper, _ = model.plot(figure.subplots(2, sharex=True), n_named=0)
    for lines in (*upper.lines, *upper.collections):  # thousands of them
        lines.set_rasterized(True)
    x = -np.log10(model.alphas_)
    upper.plot(x, model.coef_path_[support].toarray().T, color=OURS, linewidth=1.4)
    upper.legend(
        handles=[Line2D([], [], color=OURS), Line2D([], [], color="#999999")],
        labels=[f"the {len(support)} true columns", "all others"],
        loc="upper left",
        frameon=False,
        fontsize=9,
    )
    caption = (
        "Above, every coefficient as the penalty falls to the right; below, the mean squared error on "
        "held-out folds, with its standard error. The solid line is the best mean, the dashed one the "
        "largest penalty within one standard error of it (the band)."
    )
    said = (
        f"Coefficient paths that grow from zero, those of the {len(support)} true columns first and "
        f"furthest; "
        f"and a curve of held-out errors that is lowest at alpha {model.alpha_min_:.4f}, with the choice by "
        f"one standard error at {model.alpha_1se_:.4f}."
    )
    return figure, caption, said


def gaps(ours, sklearn):
    """Return both gaps against seconds."""
    axes = make_axes("CPU seconds from nothing", "relative duality gap")
    for curve, colour in ((ours, OURS), (sklearn, THEIRS)):
        draw_curve(axes, curve.seconds, curve.values, colour)
        begin = curve.seconds[0], curve.values[0]
        write_beside(axes, curve.name, begin, colour, fontsize=11, weight="bold")
    axes.set_yscale("log")
    axes.margins(y=0.12)
    axes.set_xlim(0, 1.15 * max(*ours.seconds, *sklearn.seconds))
    draw_level(axes, 1e-4, "default tol")
    caption = (
        "The Lasso at the penalty of the best mean. One fit a point, each from nothing to a smaller "
        "tolerance, on one thread. The gap bounds how far the objective is from its minimum, as a part of "
        "the objective of the zero model; one function computes it for both."
    )
    said = ", ".join(
        f"{curve.name} reaches {curve.values[-1]:.0e} in {curve.seconds[-1]:.2f} seconds"
        for curve in (ours, sklearn)
    )
    return axes.figure, caption, f"Falling curves: {said}."
