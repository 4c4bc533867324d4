"""The pictures of the demo of smooth models."""

from .drawing import OURS, THEIRS, draw_curve, draw_level, make_axes

NAMES = {
    "stradask": ("stradask", OURS),
    "sklearn_lbfgs": ("scikit-learn, L-BFGS", THEIRS),
    "sklearn_newton": ("scikit-learn, Newton", "#009e73"),
}
FLOOR = 1e-12  # below it the excess is rounding


def add_logistic(page, X, scales, systems, most_steps):
    """Add the part of the smooth models to the page."""
    page.heading("Logistic regression: columns of very different scales")
    page.text(
        f"{X.shape[0]:,} rows of {X.shape[1]} columns, whose standard deviations go from {scales.min():.2g} "
        f"to {scales.max():.2g}, as in raw data without standardisation. Plain L-BFGS, scikit-learn's "
        "default, converges slowly on such columns. Newton's method does not depend on scales, but computes "
        "a whole Hessian at each step. stradask takes the Hessian of a sample of the rows, once, and then "
        "needs a few plain passes over the data."
    )
    page.code("model = sd.LogisticRegression().fit(X, y)\nmodel.solver_, model.n_iter_")
    page.pair(picture(systems, "seconds", most_steps), picture(systems, "steps", most_steps))


def picture(systems, against, most_steps):
    """Return the excess against seconds or steps: figure, caption, description."""
    x_label = "CPU seconds from nothing" if against == "seconds" else "steps"
    axes = make_axes(x_label, "relative excess over the minimum")
    for curve in systems:
        name, colour = NAMES[curve.name]
        x = getattr(curve, against)
        y = [max(excess, FLOOR) for excess in curve.values]
        draw_curve(axes, x, y, colour, label=name)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_ylim(bottom=FLOOR / 2)
    axes.margins(x=0.08, y=0.12)
    axes.legend(frameon=False, fontsize=9, loc="best")
    draw_level(axes, 1e-6)
    caption = (
        "One fit a point, each from nothing, on one thread: stradask to smaller and smaller tolerances, the "
        "others for more and more steps. Dotted: the default tolerance of stradask."
        if against == "seconds"
        else f"The same fits by their steps; L-BFGS was given up to {most_steps:,}."
    )
    said = ", ".join(
        f"{NAMES[curve.name][0]} ends at {curve.values[-1]:.0e} after "
        + (f"{curve.seconds[-1]:.2f} seconds" if against == "seconds" else f"{curve.steps[-1]} steps")
        for curve in systems
    )
    return axes.figure, caption, f"Falling curves: {said}."
