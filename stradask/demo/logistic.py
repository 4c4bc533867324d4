"""The demo of smooth models: a logistic regression whose columns have scales from 0.01 to 100.

Data as they come are seldom standardised, and gradient methods pay for it. The same problem is solved from
nothing by stradask and by two solvers of scikit-learn, on one thread each; one function (plain numpy) judges
all by how far the objective is above its minimum, which is certified. Seconds are the processor's.
"""

import time
import warnings

import numpy as np

from .curves import Curve, say_compiled
from .page import Part

ROWS, QUICK_ROWS, COLUMNS, DECADES = 50_000, 10_000, 50, 2
TOLERANCES = (1e-2, 1e-4, 1e-6, 1e-8, 1e-10)
STEPS = (10, 30, 100, 300, 1000)  # of scikit-learn's L-BFGS
NEWTON_STEPS = (1, 2, 3, 4, 5, 6, 8)
TARGETS = (1e-2, 1e-4, 1e-6, 1e-8)


def run(settings, say):
    """Solve, compare and describe; see `stradask.demo.page`."""
    say("\nLogistic regression: columns of very different scales\n")
    X, y, scales = draw(settings)
    say(
        f"data      {X.shape[0]:,} rows, {X.shape[1]} columns, standard deviations from {scales.min():.2g} "
        f"to {scales.max():.2g}"
    )
    say_compiled(say, lambda: warm_up(X, y))
    systems = curves(X, y)
    say(comparison(systems))
    document = {
        "data": {"rows": X.shape[0], "columns": X.shape[1], "spread": float(scales.max() / scales.min())},
        **{curve.name: curve.as_document() for curve in systems},
    }

    def add_to(page):
        from .logistic_pictures import add_logistic

        add_logistic(page, X, scales, systems, STEPS[-1])

    return Part(document, add_to, summary(document, systems))


def summary(document, systems):
    """The row of the report's summary."""
    data, target = document["data"], TARGETS[2]
    times = [curve.to(target) for curve in systems]
    ours, lbfgs, newton = ("not reached" if time is None else f"{time[0]:.3f} s" for time in times)
    return (
        "Logistic regression",
        f"{data['rows']:,} rows, {data['columns']} columns on different scales",
        f"{ours} of CPU time to an excess of {target:.0e} over the minimum",
        f"scikit-learn to the same excess: Newton {newton}, L-BFGS {lbfgs}",
    )


def draw(settings):
    """Draw correlated columns, labels that follow a logistic model of them, and last the columns' scales."""
    rng = np.random.default_rng(settings.seed)
    X = rng.standard_normal((QUICK_ROWS if settings.quick else ROWS, COLUMNS))
    X[:, 1:] += X[:, :-1] / 2
    decision = X @ rng.standard_normal(COLUMNS) * (2 / np.sqrt(COLUMNS))
    X *= 10.0 ** rng.uniform(-DECADES, DECADES, COLUMNS)
    return X, np.where(decision + rng.logistic(size=len(X)) > 0, 1, -1), X.std(axis=0)


def fit_ours(X, y, tol):
    """Fit by stradask to a tolerance; return coefficients and steps."""
    import stradask as sd

    model = sd.LogisticRegression(fit_intercept=False, tol=tol).fit(X, y)
    return model.coef_.ravel(), int(np.max(model.n_iter_))


def warm_up(X, y):
    """Compile, or read from disk, all that the fits of `curves` run: the loosest and the tightest of them."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):
        for tol in (TOLERANCES[0], TOLERANCES[-1]):
            fit_ours(X, y, tol)


def curves(X, y):
    """Solve one problem at rising precision with all systems; return the curve of each, ours first."""
    from sklearn.linear_model import LogisticRegression
    from threadpoolctl import threadpool_limits

    from ..benchmarks.objectives.logistic import least_objective, mean_objective

    alpha = 1 / len(y)
    least = least_objective(X, y, alpha, with_intercept=False)

    def fit_theirs(solver):
        def fit(X, y, steps):
            model = LogisticRegression(solver=solver, fit_intercept=False, tol=1e-12, max_iter=steps).fit(
                X, y
            )
            return model.coef_.ravel(), int(np.max(model.n_iter_))

        return fit

    def curve(name, fit, settings):
        points = []
        for setting in settings:
            (coef, steps), seconds = timed(lambda setting=setting: fit(X, y, setting))
            points.append((seconds, float(max(0.0, mean_objective(X, y, coef, alpha) / least - 1)), steps))
        return Curve(name, "relative_excess", *map(list, zip(*points, strict=True)))

    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # steps are cut short on purpose, which scikit-learn warns of
        return [
            curve("stradask", fit_ours, TOLERANCES),
            curve("sklearn_lbfgs", fit_theirs("lbfgs"), STEPS),
            curve("sklearn_newton", fit_theirs("newton-cholesky"), NEWTON_STEPS),
        ]


def timed(call):
    """Return what a call returns and its CPU seconds, of short calls the fewest of three."""
    seconds: list[float] = []
    while len(seconds) < 3 and sum(seconds) < 0.3:
        started = time.process_time()
        result = call()
        seconds.append(time.process_time() - started)
    return result, min(seconds)


def comparison(systems):
    """Return the table of all curves."""
    lines = [
        "\nCPU seconds from nothing, and steps, until the objective is that near to its minimum.\n",
        " excess          stradask  scikit-learn, L-BFGS  scikit-learn, Newton",
    ]
    for target in TARGETS:
        cells = []
        for reached in (curve.to(target) for curve in systems):
            cells.append("-" if reached is None else f"{reached[0]:.3f} ({reached[1]} steps)")
        lines.append(f"{target:7.0e}  {cells[0]:>16}  {cells[1]:>20}  {cells[2]:>20}")
    return "\n".join(lines)
