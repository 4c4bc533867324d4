"""Cross-validation of least squares from second moments: X is read once for folds, penalties and scores.

The moments of each fold's test rows are computed where X is. Those of all rows are their sum where the folds
divide the rows, those of training rows what is left; paths and squared errors need no more (see
`sparse.moments`).
"""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from scipy import sparse

from ....scheduler.threads import single_threaded_blas
from ....scheduler.workers import open_workers
from ...inputs.dask_arrays import engine_for, is_dask
from ..sparse.moments import MomentProblem, QuadraticTerms
from ..sparse.row_moments import about, affords_blocks, opened_blocks
from ..vocabulary import path_alphas
from .folds import Path, PathProblem

_SQUARED = {"mse", "deviance", "neg_mean_squared_error"}  # scores that are minus the squared error


class _InTasks:
    """Moments of an X that tasks have whole; see `row_moments.BlockMoments`."""

    def __init__(self, tasks, problem):
        self.tasks, self.problem = tasks, problem

    def shift(self, n_alphas):
        """The `Shift`; None where moments are not the cheaper way."""
        return self.tasks.map(self.problem.shift, [(0, n_alphas)])[0]

    def moments(self, shift, pairs):
        """Moments for each of pairs of weights and rows (None: all)."""
        return self.tasks.map(self.problem.moments, [(0, shift, *pair) for pair in pairs])

    def constant(self, weights, columns):
        """Which of some columns are constant in the rows that have weight."""
        if not len(columns):
            return np.ones(0, bool)
        return self.tasks.map(self.problem.constant, [(0, weights, columns)])[0]


class MomentSearch:
    """Paths of all folds; what it cannot answer to the precision asked for is None.

    `tests`, `trains`: moments of the folds' test rows, and the problems of their training rows. `whole`: the
    problem of all rows.
    """

    def __init__(self, tasks, source, problem, folds, shift):
        self.tasks, self.source, self.problem, self.folds, self.shift = tasks, source, problem, folds, shift
        weights = problem.weights
        counts = np.bincount(np.concatenate([fold.test for fold in folds]), minlength=len(problem.y))
        divided = (counts == 1).all()
        apart = [number for number, fold in enumerate(folds) if not self._is_rest(fold)]
        work = [(weights, fold.test) for fold in folds] + [(weights, None)] * (not divided)
        with single_threaded_blas():
            found = source.moments(shift, work + [(folds[number].weights, None) for number in apart])
        self.tests = found[: len(folds)]
        total = np.sum(self.tests, axis=0) if divided else found[len(folds)]
        moments = dict.fromkeys(range(len(folds)))
        moments.update(zip(apart, found[len(work) :], strict=True))
        self.whole = self._problem(total, weights)
        raw = np.diagonal(total)
        self.trains = [
            self._problem(total - test, fold.weights, raw)
            if moments[number] is None
            else self._problem(moments[number], fold.weights)
            for number, (fold, test) in enumerate(zip(folds, self.tests, strict=True))
        ]

    @classmethod
    def begin(cls, tasks, problem, folds, n_alphas):
        """Read the moments; None where they are not the cheaper way, or say too little of all rows."""
        if not isinstance(problem, PathProblem) or problem.classes is not None:
            return None
        source = _InTasks(tasks, problem)
        shift = source.shift(n_alphas)
        if shift is None:
            return None
        search = cls(tasks, source, problem, folds, shift)
        return search if search.whole.sound else None

    @classmethod
    def of_blocks(cls, tasks, estimator, X, problem, folds):
        """Read the moments of a Dask array by one pass over its blocks of rows; None as of `begin`."""
        if not (is_dask(X) and isinstance(problem, PathProblem) and problem.classes is None):
            return None
        if X.numblocks[1] > 1 or not affords_blocks(X, problem.factors, len(folds)):
            return None
        engine = engine_for(X, estimator.engine)
        with opened_blocks(estimator, X, engine, problem.target, problem.fit_intercept) as source:
            search = about(partial(cls, tasks, source, problem, folds), source.shift())
        return search if search.whole.sound else None

    def _is_rest(self, fold):
        """Whether the training rows are those that are not tested, with their own weights."""
        rest = np.ones(len(fold.weights)) if self.problem.weights is None else self.problem.weights.copy()
        rest[fold.test] = 0.0
        return len(np.unique(fold.test)) == len(fold.test) and np.array_equal(rest, fold.weights)

    def _problem(self, moments, weights, raw=None):
        problem = self.problem

        constant = partial(self.source.constant, weights)
        terms = QuadraticTerms(
            problem.factors, problem.factors, problem.fit_intercept, problem.positive, problem.standardize
        )
        return MomentProblem(terms, self.shift, moments, 0, constant, raw)

    def grid(self, l1_ratio, eps, n_alphas):
        """Return the falling alphas for all rows."""
        return path_alphas(n_alphas, eps, lambda: self.whole.alpha_max(l1_ratio))

    def path(self, l1_ratio, alphas):
        """Solve for all rows: `Path` or None."""
        return self._path(self.whole, l1_ratio, alphas)

    def _path(self, problem, l1_ratio, alphas):
        found = problem.solve(alphas, l1_ratio, self.problem.tol)
        if found is None:
            return None
        coefs, figures = found
        rounds = np.ones(len(alphas), np.int64)
        return Path(sparse.csc_array(coefs.T), problem.intercepts(coefs), figures[:, 1].copy(), rounds, [])

    def scores(self, pairs, scorings, **bar):
        """Solve and score; return for each ``(fold, l1_ratio, alphas)`` as `PathProblem.scores`, or None."""
        work = [(0, self.trains[number], *grid) for number, *grid in pairs]
        with open_workers("local", self.tasks.n_jobs).tasks([self]) as here:
            paths = here.map(MomentSearch._path, work, unit="fold", **bar)
        quick = [isinstance(scoring, str) and scoring in _SQUARED for scoring in scorings]
        results: list[Any] = []
        missing, judge = [], []
        for (number, *_), path in zip(pairs, paths, strict=True):
            errors = path and self._errors(number, path)
            results.append(
                path and ([None if errors is None else -errors if one else None for one in quick], [])
            )
            for k, found in enumerate(results[-1][0] if path else ()):
                if found is None:
                    missing.append((results[-1][0], k))
                    judge.append((0, self.folds[number], path, [scorings[k]]))
        judged = self.tasks.map(self.problem.judge, judge) if judge else ()
        for (row, k), (found,) in zip(missing, judged, strict=True):
            row[k] = found
        return results

    def model(self, tasks, X, path, at, l1_ratio, alpha):
        """See `PathProblem.model`; the gap of the rounded model is found from moments."""
        fit, whole = self.problem.solution(path, at), self.whole
        if X.dtype == np.float64:
            return fit
        coefs = fit.dense(whole.n_columns, np.float64)[None]
        alphas = np.array([alpha])
        coefs, figures = whole.round_to(coefs, np.zeros((1, 4)), alphas, l1_ratio, X.dtype)
        features = np.flatnonzero(coefs[0])
        model = {"features": features, "coef": coefs[0, features]}
        model |= {"intercept": float(whole.intercepts(coefs)[0])}
        return replace(fit, **model, gap_absolute=float(figures[0, 1]))

    def _errors(self, number, path):
        """Mean squared errors on the test rows of a fold; None where moments do not resolve them."""
        test, coefs = self.tests[number], path.coefs.T.toarray()
        errors = self.trains[number].squared_errors(coefs, path.intercepts, self.shift, test, 0)
        return errors if np.isfinite(errors).all() else None
