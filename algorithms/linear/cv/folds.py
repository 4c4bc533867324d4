"""Cross-validation of a path: folds as weights, one task for each fold, no copy of the data.

A fold is learnt from with weights that are zero on its test rows: the matrix is not copied, and all
folds share it. Centring, scaling of columns and the meaning of alpha follow the weights, so that the model
is the one of the training rows alone.
"""

import contextlib
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from sklearn.model_selection import check_cv

from ....errors import DataError, shortened
from ....scheduler.tasks import Load
from ....scheduler.threads import own_threads, single_threaded_blas
from ....scheduler.workers import open_workers
from ...inputs.targets import check_class_weights, check_weights
from ..losses import loss_of, squared
from ..path import stacked
from ..sparse import classes
from ..sparse.classes import ClassColumns
from ..sparse.fitting import SHORT, Design
from ..sparse.least_squares import LeastSquares
from ..sparse.moments import affords, constant_in, moments_of, shift_of
from ..sparse.solution import Solution
from ..vocabulary import path_alphas
from .evaluation import path_scorer, score_path


@dataclass(frozen=True)
class Fold:
    """One division of the rows.

    Attributes: `weights`: float64 (n_samples,); how often each row is learnt from, times its sample weight.
    `test`: ndarray of int64; the rows to judge by.
    """

    weights: np.ndarray
    test: np.ndarray


def folds_of(cv, n_samples, y, groups=None, weights=None, classes=None, *, all_classes=True):
    """Divide the rows: a list of `Fold`.

    `cv` is as in scikit-learn; with `classes` (labels) rows are stratified by `y` where `cv` leaves it open.
    A DataError names a part of a fold that is empty or has no weight, or, with `all_classes`, a class that
    training rows lack.
    """
    name = f"cv={shortened(cv)}"
    try:
        splitter = check_cv(cv, y, classifier=classes is not None)
        name = _name(cv, splitter)
        parts = list(splitter.split(np.zeros((n_samples, 1)), y, groups))
    except (ValueError, TypeError) as error:
        raise DataError(f"{name} cannot divide {n_samples} rows: {error}") from error
    if not parts:
        raise DataError(f"{name} gives no fold; give at least one pair of training and test rows")
    weights = np.ones(n_samples) if weights is None else weights
    folds = []
    for number, (train, test) in enumerate(parts):
        train, test = (
            _rows(part, n_samples, number, which) for part, which in ((train, "train"), (test, "test"))
        )
        fold = Fold(np.bincount(train, minlength=n_samples) * weights, test)
        for part, mass in (("training", fold.weights), ("test", weights[test])):
            if not mass.sum() > 0:
                raise DataError(
                    f"fold {number} of {name} has no weight in its {part} rows; shuffle the rows or use "
                    "fewer folds"
                )
        if classes is not None and all_classes:
            _check_classes(fold, f"fold {number} of {name}", y, weights, classes)
        folds.append(fold)
    return folds


def _name(cv, splitter):
    """Name a division in a message; a list of rows is not shown."""
    simple = cv is None or isinstance(cv, Integral) or hasattr(cv, "split")
    return f"cv={shortened(splitter)}" if simple else "the given cv"


def _check_classes(fold, name, y, weights, classes):
    """Refuse a fold whose training rows lack a class."""
    there = np.bincount(y, weights, len(classes)) > 0  # a class without any weight is lacked by no fold
    lacking = np.flatnonzero(there & (np.bincount(y, fold.weights, len(classes)) == 0))
    if not len(lacking):
        return
    count = np.count_nonzero((y == lacking[0]) & (weights > 0))
    rows = "1 row" if count == 1 else f"{count} rows"
    remedy = "use fewer folds" if count < 2 else "shuffle the rows, or use a cv that stratifies"
    raise DataError(
        f"class {shortened(classes[lacking].tolist()[0])} has {rows} (with weight), none of them among the "
        f"training rows of {name}: a fold without it cannot be learnt from; merge or drop it, or {remedy}"
    )


def _rows(part, n_samples, number, name):
    part = np.asarray(part)
    if part.dtype == bool and part.shape == (n_samples,):
        return np.flatnonzero(part)
    if part.ndim != 1 or part.dtype.kind not in "iu" or not len(part):
        raise DataError(
            f"the {name} rows of fold {number} of cv must be a vector of row numbers, got {shortened(part)}"
        )
    if part.min() < 0 or part.max() >= n_samples:
        raise DataError(
            f"fold {number} of cv names the {name} row "
            f"{part.min() if part.min() < 0 else part.max()}; there are rows 0 to {n_samples - 1}"
        )
    return part.astype(np.int64, copy=False)


@dataclass(frozen=True)
class Path:
    """The models for falling penalties.

    Attributes: `coefs`: CSC array (n_features, n_alphas * n_outputs). `intercepts`: array (n_alphas *
    n_outputs,). `gaps`: array (n_alphas,); duality gap in the scale of the objective. `rounds`: int64
    (n_alphas,). `unsolved`: list of float; the relative gaps of those that did not reach the tolerance.
    """

    coefs: object
    intercepts: np.ndarray
    gaps: np.ndarray
    rounds: np.ndarray
    unsolved: list


@dataclass(frozen=True)
class PathProblem:
    """All of a path but the matrix and the penalties.

    `y`: targets, or numbers of classes. `weights`: None or array (n_samples,), of mean 1. `factors`: of the
    penalty. `classes`: labels of a logistic model; None is least squares.
    """

    y: np.ndarray
    weights: Any
    factors: Any
    standardize: bool
    fit_intercept: bool
    positive: bool
    tol: float
    max_iter: Any
    needs_classes: ClassVar[bool] = True  # training rows must have them all
    classes: Any = None
    class_weight: Any = None
    offset: Any = None

    @property
    def kind(self):
        """The loss object."""
        return squared if self.classes is None else loss_of(self.classes)

    @property
    def numbers(self):
        """What folds are stratified by."""
        return self.y

    @property
    def target(self):
        """What is fitted: of least squares the targets less their offsets."""
        return self.y if self.classes is not None or self.offset is None else self.y - self.offset

    @property
    def n_outputs(self):
        """Linear predictors of a model: the number of classes if they are more than two."""
        return self.kind.n_outputs

    def scorer(self, scoring):
        """Return the function that scores a path; see `path_scorer`."""
        return path_scorer(scoring, self.classes)

    def masses(self, folds):
        """Weights of the folds in the mean score: as in scikit-learn all count the same."""

    def design(self, X, weights):
        """Bring the matrix and the weights of the rows together."""
        weights = check_weights(weights, len(self.y))
        if self.classes is not None:
            weights = check_class_weights(self.class_weight, self.classes, self.y, weights)
        return Design.make(
            X,
            weights,
            self.factors,
            standardize=self.standardize,
            fit_intercept=self.fit_intercept,
            positive=self.positive,
        )

    def class_columns(self, design):
        """The columns and the loss of classes, for the solvers."""
        return ClassColumns(design, self.y, len(self.classes), self.offset)

    def alpha_max(self, X, l1_ratio):
        """Find the least alpha for all rows at which every penalised coefficient is zero."""
        design = self.design(X, self.weights)
        if self.classes is None:
            return classes.largest_alpha(LeastSquares(design, self.target), l1_ratio)
        return classes.largest_alpha(self.class_columns(design), l1_ratio)

    def grid(self, X, l1_ratio, eps, n_alphas):
        """Return the falling alphas for all rows; see `path_alphas`."""
        return path_alphas(n_alphas, eps, lambda: self.alpha_max(X, l1_ratio))

    def path(self, X, l1_ratio, alphas, weights, n_jobs=None):
        """Solve for falling alphas; Ctrl-C raises KeyboardInterrupt, as a part of a path cannot be judged."""
        design = self.design(X, weights)
        penalties = [design.penalty(alpha, l1_ratio) for alpha in alphas]
        options = {"tol": self.tol, "max_iter": self.max_iter, "label": "path"}
        if self.classes is None:
            fits, done = LeastSquares(design, self.target, n_jobs).solve(penalties, **options)
        else:
            fits, done = classes.solve(self.class_columns(design), penalties, **options)
        if done.reason == "interrupted":
            raise KeyboardInterrupt
        return path_of(fits, X.shape[1], self.n_outputs)

    def model(self, tasks, X, path, at, l1_ratio, alpha):
        """Take the `Solution` at one place of a path, rounded to the type of X."""
        fit = self.solution(path, at)
        if X.dtype == np.float64:
            return fit
        return tasks.map(self.rounded, [(0, fit, l1_ratio, alpha, self.weights, tasks.n_jobs)])[0]

    def solution(self, path, at):
        """Take the `Solution` at one place of a path."""
        chosen = slice(at * self.n_outputs, (at + 1) * self.n_outputs)
        coefs, intercept = path.coefs[:, chosen], path.intercepts[chosen]
        features = np.unique(coefs.indices).astype(np.int64)
        coef = coefs[features].toarray()
        if self.n_outputs == 1:
            coef, intercept = coef[:, 0], float(intercept[0])
        figures = np.nan, np.nan, path.gaps[at], int(path.rounds[at]), 0, "gap"
        return Solution(np.nan, features, coef, intercept, *figures)

    def rounded(self, X, fit, l1_ratio, alpha, weights, n_jobs=None):
        """Round a model to the type of X; see `rounded`."""
        design = self.design(X, weights)
        penalty = design.penalty(alpha, l1_ratio)
        if self.classes is None:
            return LeastSquares(design, self.target).rounded(penalty, fit)
        return self.class_columns(design).rounded(penalty, fit)

    def scores(self, X, fold, l1_ratio, alphas, scorings):
        """Solve a path on a fold and score it on the test rows.

        `X`: ndarray or CSC array (n_samples, n_features). `alphas`: array (n_alphas,). Returns `scores`: list
        of array (n_alphas,). `unsolved`: list of float; see `Path`.
        """
        path = self.path(X, l1_ratio, alphas, fold.weights)
        return self.judge(X, fold, path, scorings), path.unsolved

    def judge(self, X, fold, path, scorings):
        """Score a path on the test rows of a fold: list of array (n_alphas,)."""
        return [
            score_path(
                self.scorer(scoring),
                X,
                self.y,
                fold.test,
                path.coefs,
                path.intercepts,
                weights=self.weights,
                offset=self.offset,
                n_outputs=self.n_outputs,
            )
            for scoring in scorings
        ]

    # Second moments, for `MomentSearch` ---------------------------------------------------------------

    def shift(self, X, n_alphas):
        """Return the `Shift` of moments; None where they are not the cheaper way."""
        if self.classes is not None or not affords(X, self.factors, n_alphas):
            return None
        return shift_of(X, self.target[:, None], self.fit_intercept)

    def moments(self, X, shift, weights, rows=None):
        """Return the moments of some rows."""
        return moments_of(X, self.target[:, None], weights, shift, rows)

    def constant(self, X, weights, columns):
        """Say which of some columns are constant in the rows that have weight."""
        return constant_in(X, weights, self.fit_intercept)(columns)


def path_of(fits, n_features, n_outputs=1):
    """Put the models of a path side by side."""
    outputs = [
        replace(fit, coef=coef) for fit in fits for coef in fit.coef.reshape(len(fit.features), n_outputs).T
    ]
    coefs = stacked(outputs, n_features, np.float64)
    coefs.eliminate_zeros()  # of classes that do not use a column that others use
    return Path(
        coefs,
        np.concatenate([np.broadcast_to(fit.intercept, n_outputs) for fit in fits]).astype(np.float64),
        np.array([fit.gap_absolute for fit in fits]),
        np.array([fit.rounds for fit in fits], dtype=np.int64),
        [float(fit.gap) for fit in fits if fit.reason in SHORT],
    )


def fits_to_fold(X, fold, model, name, values, y, offset):
    """Fit a model to a fold for each value of a parameter; yield it, and its predictors of the test rows."""
    test_offset = None if offset is None else offset[fold.test]
    for value in values:
        model.set_params(**{name: float(value)}).fit(X, y, fold.weights, offset=offset)
        yield model, getattr(model, "decision_function", model.predict)(X[fold.test], offset=test_offset)


def tasks_over(X, engine, n_jobs):
    """Return the tasks of a search, whose one input is X; of a Dask array the whole, laid by columns.

    A Dask array is computed when there is a task.
    """
    from ...inputs.dask_arrays import engine_for, is_dask
    from ..sparse.distributed import by_columns

    if own_threads() is None:  # a Dask array goes to the current client if there is one
        engine = engine_for(X, engine)
    workers = open_workers(engine, n_jobs)
    if is_dask(X):
        return _TasksOnDemand(lambda: workers.tasks([Load(by_columns, (X,))], name="X"), n_jobs)
    return workers.tasks([X], name="X")


class _TasksOnDemand(contextlib.ExitStack):
    """Tasks whose input is made when the first of them is asked for."""

    def __init__(self, make, n_jobs):
        super().__init__()
        self._make, self._tasks, self.n_jobs = make, None, n_jobs

    def map(self, *args, **options):
        """See `Tasks.map`."""
        if self._tasks is None:
            self._tasks = self.enter_context(self._make())
        return self._tasks.map(*args, **options)


def score_folds(tasks, problem, grids, folds, scorings, *, search=None, **bar):
    """Fit every path on every fold and score it, one task for each pair; by a `MomentSearch` what it can.

    `grids`: shares of the l1 penalty with their alphas. `bar`: label, verbose and callback. Returns scores
    (n_scorings, n_grids, n_alphas, n_folds), and the relative gaps of fits that did not reach the tolerance.
    """
    pairs = [(number, *grid) for grid in grids for number in range(len(folds))]
    results: list[Any] = [None] * len(pairs)
    if search:
        results = search.scores(pairs, scorings, **bar)
    left = [k for k, result in enumerate(results) if result is None]
    if left:
        work = [(0, folds[number], *grid, scorings) for number, *grid in (pairs[k] for k in left)]
        with single_threaded_blas():  # in this process; its threads would compete with those of the folds
            done = tasks.map(problem.scores, work, unit="fold", **bar)
        for k, result in zip(left, done, strict=True):
            results[k] = result
    table = np.array([scores for scores, _ in results])  # tasks, scorings, alphas
    table = table.reshape(len(grids), len(folds), len(scorings), -1).transpose(2, 0, 3, 1)
    return table, [gap for _, unsolved in results for gap in unsolved]
