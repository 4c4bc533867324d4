"""Cross-validation of a path: folds as weights, one task for each fold, no copy of the data.

A fold is learnt from with weights that are zero on its test rows: the matrix stays where it lies, and all
folds share it. Centring, scaling of columns and the meaning of alpha follow the weights, so that the model
is the one of the training rows alone.
"""

from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.model_selection import check_cv

from ....errors import DataError, shortened
from ....scheduler.place import open_place
from ....scheduler.tasks import Load
from ....scheduler.threads import own_threads, single_threaded_blas
from ...inputs.targets import check_class_weights, check_weights
from ..path import alpha_grid, stacked
from ..sparse.fitting import SHORT, Design, Fit, solve
from ..sparse.rounded import rounded
from .evaluation import path_scorer, score_path


@dataclass(frozen=True)
class Fold:
    """One division of the rows.

    Attributes: `weights`: float64 (n_samples,); how often each row is learnt from, times its sample weight.
    `test`: ndarray of int64; the rows to judge by.
    """

    weights: np.ndarray
    test: np.ndarray


def folds_of(cv, n_samples, y, groups=None, weights=None, classes=None):
    """Divide the rows.

    `cv`: int, splitter, iterable of (train, test) or None; as in scikit-learn. `y`: array (n_samples,);
    targets, or numbers of classes. `groups`: array-like of shape (n_samples,); given to the splitter.
    `weights`: array (n_samples,). `classes`: ndarray; labels of a classifier: stratify by `y` where `cv`
    leaves it open. Returns list of Fold. Raises DataError: If the splitter refuses, a row does not exist, a
    part of a fold is empty or has no weight, or a class is not among the training rows.

    Examples
    --------
    >>> import numpy as np
    >>> from stradask.algorithms.linear.cv.folds import folds_of
    >>> [fold.weights.tolist() for fold in folds_of(2, 4, np.arange(4.0))]
    [[0.0, 0.0, 1.0, 1.0], [1.0, 1.0, 0.0, 0.0]]
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
        if classes is not None:
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

    Attributes: `y`: array (n_samples,); targets, or numbers of classes. `weights`: array (n_samples,) or
    None; of the samples; of mean 1. `factors`: array (n_features,) or None; of the penalty. `classes`:
    ndarray or None; labels of a logistic model; None is least squares. `class_weight`: None, "balanced" or
    dict. `offset`: ndarray or None.
    """

    y: np.ndarray
    weights: Any
    factors: Any
    standardize: bool
    fit_intercept: bool
    positive: bool
    tol: float
    max_iter: Any
    classes: Any = None
    class_weight: Any = None
    offset: Any = None

    @property
    def n_outputs(self):
        """Linear predictors of a model: the number of classes if they are more than two."""
        return 1 if self.classes is None or len(self.classes) == 2 else len(self.classes)

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

    def loss(self, design):
        """Return the loss with an empty working set."""
        if self.classes is None:
            return design.squared(self.y)
        return design.logistic(self.y, len(self.classes), self.offset)

    def grid(self, X, l1_ratio, eps, n_alphas):
        """Return the falling alphas for all rows; see `alpha_grid`."""
        design = self.design(X, self.weights)
        return alpha_grid(design, self.loss(design), l1_ratio, eps, n_alphas)

    def path(self, X, l1_ratio, alphas, weights, n_jobs=None):
        """Solve for falling alphas; Ctrl-C raises KeyboardInterrupt, as a part of a path cannot be judged.

        Returns Path.
        """
        design = self.design(X, weights)
        fits, done = solve(
            design,
            self.loss(design),
            [design.penalty(alpha, l1_ratio) for alpha in alphas],
            tol=self.tol,
            max_iter=self.max_iter,
            n_jobs=n_jobs,
            label="path",
        )
        if done.reason == "interrupted":
            raise KeyboardInterrupt
        return path_of(fits, X.shape[1], self.n_outputs)

    def model(self, path, at):
        """Take the `Fit` at one place of a path."""
        chosen = slice(at * self.n_outputs, (at + 1) * self.n_outputs)
        coefs, intercept = path.coefs[:, chosen], path.intercepts[chosen]
        features = np.unique(coefs.indices).astype(np.int64)
        coef = coefs[features].toarray()
        if self.n_outputs == 1:
            coef, intercept = coef[:, 0], float(intercept[0])
        return Fit(features, coef, intercept, path.gaps[at], np.nan, int(path.rounds[at]), "gap")

    def rounded(self, X, fit, l1_ratio, alpha, weights, n_jobs=None):
        """Round a model to the type of X; see `rounded`."""
        design = self.design(X, weights)
        penalty = design.penalty(alpha, l1_ratio)
        return rounded(design, lambda: self.loss(design), penalty, fit, n_jobs=n_jobs)

    def scores(self, X, fold, l1_ratio, alphas, scorings):
        """Solve a path on a fold and score it on the test rows.

        `X`: ndarray or CSC array (n_samples, n_features). `alphas`: array (n_alphas,). `scorings`: list of
        str or callable. Returns `scores`: list of array (n_alphas,). `unsolved`: list of float; see `Path`.
        """
        path = self.path(X, l1_ratio, alphas, fold.weights)
        scores = [
            score_path(
                path_scorer(scoring, self.classes),
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
        return scores, path.unsolved


def path_of(fits, n_features, n_outputs=1):
    """Put the models of a path side by side.

    `fits`: list of Fit. Returns Path.
    """
    outputs = [
        replace(fit, coef=coef) for fit in fits for coef in fit.coef.reshape(len(fit.features), n_outputs).T
    ]
    coefs = stacked(outputs, n_features, np.float64)
    coefs.eliminate_zeros()  # of classes that do not use a column that others use
    return Path(
        coefs,
        np.concatenate([np.broadcast_to(fit.intercept, n_outputs) for fit in fits]).astype(np.float64),
        np.array([fit.gap for fit in fits]),
        np.array([fit.n_iter for fit in fits], dtype=np.int64),
        [float(fit.relative_gap) for fit in fits if fit.reason in SHORT],
    )


def tasks_over(X, engine, n_jobs):
    """Return the tasks of a search, whose one input is X; of a Dask array the whole, laid by columns."""
    from ...inputs.dask_arrays import engine_for, is_dask
    from ..sparse.distributed import by_columns

    if own_threads() is None:  # a Dask array goes to the current client if there is one
        engine = engine_for(X, engine)
    return open_place(engine, n_jobs).tasks([Load(by_columns, (X,)) if is_dask(X) else X], name="X")


def score_folds(tasks, problem, grids, folds, scorings, *, label, verbose):
    """Fit every path on every fold and score it, one task for each pair.

    Parameters
    ----------
    tasks : Tasks
        Of `tasks_over`.
    problem : PathProblem
    grids : list of (float, ndarray)
        Shares of the l1 penalty with their alphas.
    folds : list of Fold
    scorings : list of str or callable
    label, verbose
        Of the progress bar, of one round a task.

    Returns
    -------
    scores : ndarray of shape (n_scorings, n_grids, n_alphas, n_folds)
    unsolved : list of float
        Relative gaps of the fits that did not reach the tolerance.
    """
    work = [(0, fold, l1_ratio, alphas, scorings) for l1_ratio, alphas in grids for fold in folds]
    with single_threaded_blas():  # in this process; its threads would compete with those of the folds
        results = tasks.map(problem.scores, work, label=label, unit="fold", verbose=verbose)
    table = np.array([scores for scores, _ in results])  # tasks, scorings, alphas
    table = table.reshape(len(grids), len(folds), len(scorings), -1).transpose(2, 0, 3, 1)
    return table, [gap for _, unsolved in results for gap in unsolved]
