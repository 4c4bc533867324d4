"""The demo of sparse linear models: which of 200,000 columns matter, and how fast is that known?

The truth is known, since the data are drawn. A path of penalties is cross-validated; then the problem at the
chosen penalty is solved from nothing at rising precision by stradask and by scikit-learn, on one thread
each, and one function (plain numpy and scipy) judges both by the duality gap. Seconds of that comparison are
the processor's.
"""

import time

import numpy as np

from .curves import Curve, say_compiled
from .page import Part

ROWS, COLUMNS, QUICK_COLUMNS, INFORMATIVE = 2000, 200_000, 20_000, 20
ALPHAS, EPS, FOLDS = 60, 0.05, 5
TOLERANCES = (1e-2, 1e-4, 1e-6, 1e-8)


def run(settings, say):
    """Cross-validate, compare and describe; see `stradask.demo.page`."""
    import stradask as sd

    say("\nSparse linear models: which columns matter?\n")
    X, y, truth = draw(settings)
    support = np.flatnonzero(truth)
    say(
        f"data      {X.shape[0]:,} rows, {X.shape[1]:,} columns, {X.nnz:,} entries other than zero\n"
        f"target    made of {len(support)} of the columns; a third of its variance is noise"
    )
    few = X[:, : X.shape[1] // 100]
    say_compiled(say, lambda: sd.LassoCV(alphas=10, eps=EPS, cv=FOLDS).fit(few, y))

    started = time.perf_counter()
    model = sd.LassoCV(alphas=ALPHAS, eps=EPS, cv=FOLDS, n_jobs=-1).fit(X, y)
    seconds = time.perf_counter() - started
    say(
        f"fitting   {ALPHAS} penalties on {FOLDS} folds and on all rows, {ALPHAS * (FOLDS + 1)} models, "
        f"in {seconds:.1f} s on all cores\n"
    )
    choices = [found(model, alpha, support) for alpha in (model.alpha_min_, model.alpha_1se_)]
    say(choice_table(choices, len(support)))
    ours, sklearn = curves(X, y, model.alpha_min_)
    say(comparison(ours, sklearn))
    document = {
        "data": {
            "rows": X.shape[0],
            "columns": X.shape[1],
            "nonzeros": int(X.nnz),
            "informative": len(support),
        },
        "alphas": ALPHAS,
        "folds": FOLDS,
        "seconds": seconds,
        "best_mean": choices[0],
        "one_standard_error": choices[1],
        "stradask": ours.as_document(),
        "sklearn": sklearn.as_document(),
    }

    def add_to(page):
        from .linear_pictures import add_linear

        add_linear(page, X, model, support, choices, seconds, ours, sklearn)

    return Part(document, add_to, summary(document, ours, sklearn))


def summary(document, ours, sklearn):
    """The row of the report's summary."""
    data, target = document["data"], TOLERANCES[2]
    times = [curve.to(target) for curve in (ours, sklearn)]
    one, other = ("not reached" if time is None else f"{time[0]:.3f} s" for time in times)
    return (
        "Lasso, cross-validated",
        f"{data['rows']:,} rows, {data['columns']:,} columns",
        f"{document['alphas'] * (document['folds'] + 1)} models: {document['seconds']:.1f} s, all cores",
        f"one fit to a relative gap of {target:.0e}: {one} of CPU time; scikit-learn's Lasso: {other}",
    )


def draw(settings):
    """Draw a regression of which few columns matter, neighbours being alike; CSC, target, coefficients."""
    from ..datasets import make_sparse_regression

    return make_sparse_regression(
        ROWS,
        QUICK_COLUMNS if settings.quick else COLUMNS,
        n_informative=INFORMATIVE,
        density=0.01,
        popularity_exponent=0.3,
        block_size=5,
        correlation=0.5,
        snr=2.0,
        random_state=settings.seed,
    )


def found(model, alpha, support):
    """Compare the columns of the model at a penalty with the true ones."""
    at = int(np.flatnonzero(model.alphas_ == alpha)[0])
    columns = model.coef_path_[:, [at]].indices
    return {
        "alpha": float(alpha),
        "squared_error": float(-model.scores_mean_[at]),
        "columns": len(columns),
        "true_columns": len(np.intersect1d(columns, support)),
    }


def choice_table(choices, n_true):
    """Return the table of the two choices."""
    lines = [
        f"How many columns does the model take, and how many of the {n_true} true ones are among them?\n",
        "penalty                 alpha  columns  true ones  held-out squared error",
    ]
    lines += [
        f"{name:<20} {choice['alpha']:8.4f}  {choice['columns']:7,}  {choice['true_columns']:9}  "
        f"{choice['squared_error']:22.4f}"
        for name, choice in zip(("best mean", "one standard error"), choices, strict=True)
    ]
    return "\n".join(lines)


def curves(X, y, alpha):
    """Solve one problem at rising precision with both systems; return the curve of each."""
    from sklearn.linear_model import Lasso
    from threadpoolctl import threadpool_limits

    import stradask as sd

    with threadpool_limits(1):
        ours = curve("stradask", lambda tol: sd.Lasso(alpha, tol=tol), X, y)
        return ours, curve("scikit-learn", lambda tol: Lasso(alpha, tol=tol, max_iter=10_000), X, y)


def curve(name, make, X, y):
    """Fit from nothing for each tolerance; return seconds and the gap that the outside judge finds."""
    from ..benchmarks.gaps import lasso_gap

    seconds, gaps = [], []
    for tol in TOLERANCES:
        model = make(tol)
        started = time.process_time()
        model.fit(X, y)
        seconds.append(time.process_time() - started)
        gaps.append(float(lasso_gap(X, y, model.coef_, model.alpha, model.intercept_)[0]))
    return Curve(name, "relative_gap", seconds, gaps)


def comparison(ours, sklearn):
    """Return the table of both curves."""
    lines = [
        "\nHow fast is the best of them solved from nothing? CPU seconds to a relative duality gap.\n",
        "    gap  stradask  scikit-learn",
    ]
    for gap in TOLERANCES:
        cells = [curve.to(gap) for curve in (ours, sklearn)]
        one, other = ("-" if reached is None else f"{reached[0]:.3f}" for reached in cells)
        lines.append(f"{gap:7.0e}  {one:>8}  {other:>12}")
    return "\n".join(lines)
