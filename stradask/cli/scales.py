"""Columns of a table on one scale: ``--standardize``, and the note where it would help."""

from ..errors import DataError, shortened
from .inputs import Labelled
from .outputs import say

_SCALES = 100  # between the standard deviations of two columns, from which a note tells
_BY_COLUMNS = ("Ridge", "LogisticRegression", "PoissonRegressor")  # have no parameter `standardize`


def taken(args, model):
    """Take ``standardize`` from the parameters of a model that has none, and say whether it is asked for."""
    if model.estimator not in _BY_COLUMNS:
        return False
    given = [value for name, value in args.param if name == "standardize"]
    args.param = [pair for pair in args.param if pair[0] != "standardize"]
    if len(given) > 1 or not all(isinstance(value, bool) for value in given):
        raise DataError(f"--standardize: give it once, as True or False, not {shortened(given)}")
    return given == [True]


def fit_standardized(estimator, read, run_fit):
    """Fit to columns divided by their standard deviations; the coefficients are then of the columns as given.

    So the penalty is one of standardised coefficients, as with ``standardize=True`` of `Lasso`. Without an
    intercept it is the root of the mean square of a column that divides it. Returns what `run_fit` returns.
    """
    import numpy as np
    from scipy import sparse

    from ..algorithms.linear.sparse.fitting import column_scales

    if not isinstance(read, Labelled):
        raise DataError(
            f"--standardize: {read.source} is read where the model is fitted, and {type(estimator).__name__} "
            "takes columns as they are there: give one CSV file, or take lasso or sparse-logistic"
        )
    X, y = read.arguments
    columns = X.tocsc() if sparse.issparse(X) else np.asfortranarray(X)
    widths = column_scales(columns, None, centre=estimator.fit_intercept)
    scaled = X @ sparse.diags_array(1 / widths) if sparse.issparse(X) else X / widths
    interrupted = run_fit(estimator, (scaled, y))
    estimator.coef_ = estimator.coef_ / widths
    return interrupted


def say_scales(args, estimator, read):
    """Say so where the columns of a table differ in scale, and the penalty takes them as they are."""
    standardized = getattr(estimator, "standardize", type(estimator).__name__ not in _BY_COLUMNS)
    if not isinstance(read, Labelled) or standardized:
        return
    from sklearn.utils.sparsefuncs import mean_variance_axis

    X = read.X
    deviations = (mean_variance_axis(X.tocsc(), 0)[1] if hasattr(X, "tocsc") else X.var(axis=0)) ** 0.5
    used = deviations[deviations > 0]
    if read.vocabulary is not None and len(used) and used.max() > _SCALES * used.min():
        widest = shortened(str(read.vocabulary[int(deviations.argmax())]), 40)
        factor = f"{used.max() / used.min():,.0f}"
        say(
            args,
            f"note: the scales of the columns differ by a factor of {factor}, and the penalty spares wide "
            f"ones such as {widest}; --standardize puts all on one scale",
        )
