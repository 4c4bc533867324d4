"""Classification with sparse coefficients: the fit of both logistic estimators."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ....errors import DataError
from ...inputs.targets import (
    check_class_weights,
    check_columns_and_vectors,
    check_labels,
    check_offset,
    check_penalty_factor,
    check_same_classes,
    check_weights,
)
from ..losses import loss_of
from ..structured.losses import Logistic
from ..structured.mean_loss import mean_loss
from . import classes, fitting
from .classes import ClassColumns
from .fitting import SHORT, Design, moved_from, warn_short


@dataclass(frozen=True)
class ClassProblem:
    """Checked input: columns and weights, and the class of each row."""

    design: Design
    classes: np.ndarray
    numbers: np.ndarray
    offset: Any
    sample_weight: Any

    def columns(self, n_jobs=None):
        """The columns and the loss, for `classes.solve`."""
        return ClassColumns(self.design, self.numbers, len(self.classes), self.offset, n_jobs)


def pose(
    estimator,
    X,
    y,
    sample_weight,
    offset=None,
    *,
    factors=None,
    standardize=False,
    positive=False,
    own="never",
):
    """Check the input of an estimator with `class_weight`, `fit_intercept` and `engine`.

    `own`: see `Design.make`; of two classes.
    """
    columns, y, sample_weight = check_columns_and_vectors(estimator, X, y, sample_weight)
    n_samples, n_features = columns.shape
    classes, numbers = check_labels(y, n_samples, type(estimator).__name__)
    weights = check_weights(sample_weight, n_samples)
    if len(classes) > 2 and own == "always":
        raise DataError(
            f"schedule='dynamic' of {type(estimator).__name__} takes two classes, but y has "
            f"{len(classes)}: take schedule='auto'"
        )
    design = Design.make(
        columns,
        check_class_weights(estimator.class_weight, classes, numbers, weights),
        check_penalty_factor(factors, n_features),
        standardize=standardize,
        fit_intercept=estimator.fit_intercept,
        positive=positive,
        engine=estimator.engine,
        own=own if len(classes) == 2 else "never",
    )
    if own == "always" and not design.owned:
        raise DataError(
            "schedule='dynamic' is for columns that workers own: pass engine='dask' or a Dask array, or take "
            "schedule='auto'"
        )
    offset = check_offset(offset, n_samples, loss_of(classes).n_outputs)
    return ClassProblem(design, classes, numbers, offset, sample_weight)


def solve_classes(estimator, problem, penalty, before, callback, read, *, exact_gap=False, unit=1.0):
    """Minimise, from the coefficients of an earlier fit if there are any; warn of a fit that fell short.

    `exact_gap`: measure the gap of the coefficients as they are returned (see `rounded`). The history's
    objective is `unit` times the mean over the rows. Returns a `Solution` and the history.
    """
    design = problem.design
    check_goes_on(before, problem.classes, design.n_features)
    start = design.allowed(_start(before, design.positive))
    options = {"tol": estimator.tol, "max_iter": estimator.max_iter}
    options |= {"verbose": estimator.verbose, "label": type(estimator).__name__}
    options |= {"start": start, "callback": callback, "read": read}
    if design.owned:
        from ..structured.solving.owned_fit import solve_single_columns

        loss = mean_loss(design, Logistic(), problem.numbers, problem.offset)
        options["n_jobs"] = estimator.n_jobs
        fit, done = solve_single_columns(design, loss, estimator.alpha, estimator.l1_ratio, **options)
    else:
        columns = problem.columns(estimator.n_jobs)
        (fit, *_), done = classes.solve(columns, [penalty], unit=unit, **options)
        fit = columns.rounded(penalty, fit) if exact_gap else fit
    if fit.reason in SHORT:
        what, dtype = type(estimator).__name__, design.X.dtype
        warn_short(fit, tol=estimator.tol, max_iter=estimator.max_iter, what=what, dtype=dtype)
    return moved_from(start, fit), done.history


def take(estimator, problem, fit, history):
    """Set the attributes that both estimators share from a solution."""
    dtype = problem.design.X.dtype
    estimator.classes_ = problem.classes
    estimator.coef_ = np.atleast_2d(fit.dense(problem.design.n_features, dtype))
    estimator.intercept_ = np.atleast_1d(fit.intercept).astype(dtype)
    estimator.n_iter_ = fit.rounds
    estimator.history_ = history.as_dict()
    return estimator


def before(estimator):
    """Coefficients and classes of the last fit, where the next one goes on from them; else nothing."""
    if not (estimator.warm_start and "coef_" in vars(estimator)):
        return {}
    return {name: vars(estimator)[name] for name in ("coef_", "intercept_", "classes_")}


def check_goes_on(before, classes, n_features):
    """Refuse to go on from a model of other columns or classes."""
    if not before:
        return
    fitting.check_goes_on(before["coef_"], before["coef_"].shape[0], n_features)
    check_same_classes(before["classes_"], classes)


def dense_coef(before):
    """The coefficients of the last fit as an ndarray, sparse or not."""
    coef = before["coef_"]
    return coef if isinstance(coef, np.ndarray) else coef.toarray()


def _start(before, positive):
    """Features and coefficients to begin with; None if there are none."""
    if not before:
        return None
    coef = dense_coef(before)
    coef = np.maximum(coef, 0) if positive else coef
    features = np.flatnonzero(coef.any(axis=0))
    values = coef[:, features].T.astype(np.float64)
    return (features, values[:, 0] if len(coef) == 1 else values) if len(features) else None
