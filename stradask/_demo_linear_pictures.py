"""The pictures of the demo of sparse linear models."""

from ._demo_pictures import OURS, THEIRS, _axes


def add_linear(page, X, model, support, choices, seconds, ours, sklearn):
    """Add the part of the sparse linear models to the page."""
    rows, columns = X.shape
    best, sparing = choices
    n_models = len(model.alphas_) * (model.scores_.shape[1] + 1)
    page.heading(f"Sparse linear models: which of {columns:,} columns matter?")
    page.text(
        f"A target is made of {len(support)} of {columns:,} columns, and noise. The Lasso has {rows:,} rows to find "
        f"out which. Its penalty decides how many columns it takes; {n_models} models for "
        f"{len(model.alphas_)} penalties, on {model.scores_.shape[1]} folds and on all rows, took {seconds:.1f} "
        "seconds on all cores. Cross-validation then chooses the penalty: the one of the best mean error, or, by the "
        "rule of one standard error, the largest whose error is no worse than that can tell apart."
    )
    page.figure(*path(model))
    page.table(
        [
            (
                name,
                f"{choice['alpha']:.4f}",
                choice["columns"],
                choice["true_columns"],
                f"{choice['mean_squared_error']:.4f}",
            )
            for name, choice in (("best mean", best), ("one standard error", sparing))
        ],
        ["penalty", "alpha", "columns", f"of the {len(support)} true ones", "held-out squared error"],
        "What the two rules find",
    )
    page.subheading("The precision, and scikit-learn beside it")
    page.figure(*gaps(ours, sklearn))


def path(model):
    """Return the coefficient paths with the cross-validation curve: figure, caption, description."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.0, 6.6), layout="constrained")
    model.plot(figure.subplots(2, sharex=True), n_named=6)
    caption = (
        "Above, every coefficient as the penalty falls to the right, the six largest with their column's number; "
        "below, the mean squared error on held-out folds with its standard error. The solid line is the best mean; "
        "the dashed one the largest penalty within one standard error of it (the band)."
    )
    said = (
        f"Coefficient paths that grow from zero, and a curve of held-out errors that is lowest at alpha "
        f"{model.alpha_min_:.4f}, with the one-standard-error choice at {model.alpha_1se_:.4f}."
    )
    return figure, caption, said


def gaps(ours, sklearn):
    """Return both gaps against seconds."""
    axes = _axes(width=4.8)
    for name, curve, colour in (("stradask", ours, OURS), ("scikit-learn", sklearn, THEIRS)):
        axes.plot(curve.seconds, curve.gap, color=colour, linewidth=2, marker="o", markersize=5)
        axes.annotate(
            name,
            (curve.seconds[0], curve.gap[0]),
            xytext=(8, 4),
            textcoords="offset points",
            color=colour,
            fontsize=11,
            weight="bold",
        )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("seconds from nothing (log scale)", fontsize=11)
    axes.set_ylabel("relative duality gap", fontsize=11)
    axes.grid(alpha=0.25)
    caption = (
        "One fit a point, each from nothing to a smaller tolerance, on one thread, at the penalty of the best mean. "
        "The gap bounds how far the objective is from its minimum, as a part of the objective of the zero model; one "
        "function computes it for both."
    )
    said = ", ".join(
        f"{name} reaches {curve.gap[-1]:.0e} in {curve.seconds[-1]:.2f} seconds"
        for name, curve in (("stradask", ours), ("scikit-learn", sklearn))
    )
    return axes.figure, caption, f"Falling curves: {said}."
