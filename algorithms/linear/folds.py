"""Cross-validation of a path: folds as weights, one task for each fold, no copy of the data.

A fold is learnt from with weights that are zero on its test rows: the matrix stays where it lies, and all
folds share it. Centring, scaling of columns and the meaning of alpha follow the weights, so that the model
is the one of the training rows alone.
"""

import threading
from dataclasses import dataclass

import numpy as np
from sklearn.model_selection import check_cv
from threadpoolctl import threadpool_limits

from ...errors import DataError
from ...scheduler.progress import Progress
from ...scheduler.threads import run_tasks
from .evaluation import score_path


@dataclass(frozen=True)
class Fold:
    """One division of the rows.

    Attributes
    ----------
    weights : ndarray of float64, shape (n_samples,)
        How often each row is learnt from, times its sample weight.
    test : ndarray of int64
        The rows to judge by.
    """

    weights: np.ndarray
    test: np.ndarray


def folds_of(cv, X, y, groups=None, weights=None, classifier=False):
    """Divide the rows.

    Parameters
    ----------
    cv : int, splitter, iterable of (train, test) or None
        As in scikit-learn.
    X : matrix of shape (n_samples, n_features)
    y : ndarray of shape (n_samples,)
        Numbers, or labels.
    groups : array-like of shape (n_samples,), optional
        Given to the splitter.
    weights : ndarray of shape (n_samples,), optional
    classifier : bool
        Stratify by `y` where `cv` leaves it open.

    Returns
    -------
    list of Fold

    Raises
    ------
    DataError
        If the splitter refuses, a row does not exist, or a part of a fold is empty or has no weight.

    Examples
    --------
    >>> import numpy as np
    >>> from stradask.algorithms.linear.folds import folds_of
    >>> [fold.weights.tolist() for fold in folds_of(2, np.ones((4, 1)), np.arange(4.0))]
    [[0.0, 0.0, 1.0, 1.0], [1.0, 1.0, 0.0, 0.0]]
    """
    n_samples = X.shape[0]
    try:
        parts = list(check_cv(cv, y, classifier=classifier).split(np.zeros((n_samples, 1)), y, groups))
    except (ValueError, TypeError) as error:
        raise DataError(f"cv={cv!r} cannot divide {n_samples} rows: {error}") from error
    if not parts:
        raise DataError(f"cv={cv!r} gives no fold; give at least one pair of training and test rows")
    weights = np.ones(n_samples) if weights is None else weights
    folds = []
    for number, (train, test) in enumerate(parts):
        train, test = (
            _rows(part, n_samples, number, name) for part, name in ((train, "train"), (test, "test"))
        )
        fold = Fold(np.bincount(train, minlength=n_samples) * weights, test)
        for part, mass in (("training", fold.weights), ("test", weights[test])):
            if not mass.sum() > 0:
                raise DataError(
                    f"fold {number} of cv={cv!r} has no weight in its {part} rows; shuffle the rows or use "
                    "fewer folds"
                )
        folds.append(fold)
    return folds


def _rows(part, n_samples, number, name):
    part = np.asarray(part)
    if part.dtype == bool and part.shape == (n_samples,):
        return np.flatnonzero(part)
    if part.ndim != 1 or part.dtype.kind not in "iu" or not len(part):
        raise DataError(
            f"the {name} rows of fold {number} of cv must be a vector of row numbers, got {part!r}"
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

    Attributes
    ----------
    coefs : CSC array of shape (n_features, n_alphas * n_outputs)
    intercepts : ndarray of shape (n_alphas * n_outputs,)
    gaps : ndarray of shape (n_alphas,)
        Duality gap in the scale of the objective.
    rounds : ndarray of int64, shape (n_alphas,)
    unsolved : list of float
        The relative gaps of those that did not reach the tolerance.
    """

    coefs: object
    intercepts: np.ndarray
    gaps: np.ndarray
    rounds: np.ndarray
    unsolved: list


def score_folds(solve, grids, folds, scorers, X, y, *, weights, offset, n_outputs, n_jobs, label, verbose):
    """Fit every path on every fold and score it, one task for each pair.

    Parameters
    ----------
    solve : callable
        ``solve(l1_ratio, alphas, weights)`` gives a `Path`.
    grids : list of (float, ndarray)
        Shares of the l1 penalty with their alphas.
    folds : list of Fold
    scorers : dict of str to callable
        See `evaluation.path_scorer`.
    X, y, weights, offset, n_outputs
        See `evaluation.score_path`.
    n_jobs : int or None
        Threads; the result does not depend on it.
    label, verbose
        Of the progress bar, of one round a task.

    Returns
    -------
    scores : dict of str to ndarray of shape (n_grids, n_alphas, n_folds)
    unsolved : list of float
        Relative gaps of the fits that did not reach the tolerance.
    """
    told = threading.Lock()
    pairs = [(grid, fold) for grid in grids for fold in folds]

    def task(grid, fold):
        l1_ratio, alphas = grid
        path = solve(l1_ratio, alphas, fold.weights)
        scores = [
            score_path(
                scorer,
                X,
                y,
                fold.test,
                path.coefs,
                path.intercepts,
                weights=weights,
                offset=offset,
                n_outputs=n_outputs,
            )
            for scorer in scorers.values()
        ]
        with told:
            progress.advance()
        return scores, path.unsolved

    # Limited once around all threads: each path limits BLAS too, and puts back what it found.
    bar = Progress(len(pairs), label=label, unit="fold", verbose=verbose)
    with threadpool_limits(1, user_api="blas"), bar as progress:
        results = run_tasks([(task, pair) for pair in pairs], n_jobs)
    table = np.array([scores for scores, _ in results])  # pairs, scorers, alphas
    table = table.reshape(len(grids), len(folds), len(scorers), -1).transpose(2, 0, 3, 1)
    scores = dict(zip(scorers, table, strict=True))
    return scores, [gap for _, unsolved in results for gap in unsolved]
