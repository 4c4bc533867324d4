"""Cross-validation of a whole path, whatever the loss: grid, folds, scores, choice and picture."""

import copy
import warnings
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from ...._typing import Matrix, Vector
from ....errors import DataError, in_brief, shortened
from ....scheduler.threads import single_threaded_blas
from ..._base import ENGINES, Estimator, weights_differ
from ...inputs.targets import check_alphas, check_columns_and_vectors, check_penalty_factor, check_weights
from .evaluation import choose, mean_and_error
from .folds import PathProblem, folds_of, score_folds, tasks_over
from .moment_search import MomentSearch


class PathCV(Estimator):
    """Base of the estimators that cross-validate a path: grid, folds, scores, choice, picture."""

    # For check_estimator(model, expected_failed_checks=model._expected_failed_checks).
    _expected_failed_checks: ClassVar[dict] = weights_differ("equal to 1e-7 with tol=1e-12, not with 1e-4")
    _ratios_name = "l1_ratios"  # the parameter that has the shares of the l1 penalty
    l1_ratios: Any = None
    n_alphas: Any = None
    _checked_target: Any  # ``(y, n_samples, offset=None)`` returns `y`, and perhaps more of a `PathProblem`

    def _shares(self):
        """The shares of the l1 penalty to search; None is the one that the estimator has."""
        name = self._ratios_name
        given = getattr(self, name)
        if given is None:
            return [None]
        try:
            ratios = np.atleast_1d(np.array(given, dtype=np.float64))
        except (TypeError, ValueError) as error:
            raise DataError(f"{name} must be a number or a vector of numbers: {in_brief(error)}") from error
        if ratios.ndim != 1 or not len(ratios):
            raise DataError(f"{name} must be a number or a vector, got the shape {ratios.shape}")
        wrong = ratios[~((ratios >= 0) & (ratios <= 1))]
        if len(wrong):
            raise DataError(f"{name} must lie between 0 and 1, got {wrong[0]:g}")
        return ratios.tolist()

    def _n_alphas(self):
        """How many alphas a grid has that is made; None where the alphas are given."""
        alphas = self.alphas if self.n_alphas is None else self.n_alphas
        return alphas if isinstance(alphas, Integral) else None

    def _read_problem(self, X, y, sample_weight, **more):
        """Check the input: X in columns, and all else of a path."""
        X, y, sample_weight = check_columns_and_vectors(self, X, y, sample_weight)
        n_samples, n_features = X.shape
        target = self._checked_target(y, n_samples, **more)
        return X, PathProblem(
            weights=check_weights(sample_weight, n_samples),
            factors=check_penalty_factor(self.penalty_factor, n_features),
            standardize=self.standardize,
            fit_intercept=self.fit_intercept,
            positive=self.positive,
            tol=self.tol,
            max_iter=self.max_iter,
            **target,
        )

    def _search(self, X, problem, groups, callback=None, losses=()):
        """Score all paths on all folds, choose a penalty, and fit the path to all rows.

        `X`: what the tasks of `problem` read. `callback`: is called after each fold. `losses`: tuple of
        str; scores to compute besides `scoring`. Returns `model`: what `problem` makes of the place on the
        path that `rule` chooses. `scores`: list of ndarray; of `losses`.
        """
        problem.scorer(self.scoring)  # refuses before the work
        ratios, n_alphas = self._shares(), self._n_alphas()
        given = np.empty(0) if n_alphas else check_alphas(self.alphas)
        labels = problem.numbers, groups, problem.weights, problem.classes
        folds = folds_of(self.cv, len(problem.y), *labels, all_classes=problem.needs_classes)
        with tasks_over(X, self.engine, self.n_jobs) as tasks:
            search = MomentSearch.of_blocks(tasks, self, X, problem, folds) or MomentSearch.begin(
                tasks, problem, folds, n_alphas or len(given)
            )
            if not n_alphas:
                grids = [(ratio, given) for ratio in ratios]
            elif search:
                grids = [(ratio, search.grid(ratio, self.eps, n_alphas)) for ratio in ratios]
            else:
                asked = [(0, ratio, self.eps, n_alphas) for ratio in ratios]
                with single_threaded_blas():
                    grids = list(zip(ratios, tasks.map(problem.grid, asked), strict=True))
            (scores, *others), unsolved = score_folds(
                tasks,
                problem,
                grids,
                folds,
                [self.scoring, *losses],
                search=search,
                label=type(self).__name__,
                verbose=self.verbose,
                callback=callback,
            )
            self._check_scores(scores, problem.classes)
            mean, error = mean_and_error(scores, problem.masses(folds))
            chosen = int(np.unravel_index(np.argmax(mean), mean.shape)[0])  # of equals the first
            l1_ratio, alphas = grids[chosen]
            best, spare = choose(mean[chosen], error[chosen])
            at = spare if self.rule == "1se" else best
            path = search and search.path(l1_ratio, alphas)
            solver = search if path else problem
            if not path:
                (path,) = tasks.map(problem.path, [(0, l1_ratio, alphas, problem.weights, tasks.n_jobs)])
            model = solver.model(tasks, X, path, at, l1_ratio, alphas[at])
        self._warn_unsolved(
            problem.tol, [*unsolved, *path.unsolved], (len(grids) * len(folds) + 1) * len(alphas)
        )
        several = n_alphas is not None and len(grids) > 1
        self.alphas_ = np.array([grid for _, grid in grids]) if several else alphas
        self.scores_, self.scores_mean_, self.scores_se_ = map(self._squeezed, (scores, mean, error))
        self.alpha_, self.alpha_min_, self.alpha_1se_ = (float(alphas[k]) for k in (at, best, spare))
        self.coef_path_, self.intercept_path_ = path.coefs, path.intercepts
        self.__dict__.pop("l1_ratio_", None)
        if l1_ratio is not None:
            self.l1_ratio_ = l1_ratio
        return model, others

    def alpha_max(self, X: Matrix, y: Vector, sample_weight: Vector | None = None, **more: Any) -> Any:
        """Find the smallest `alpha` at which all penalised coefficients are zero, for each share of l1.

        Parameters
        ----------
        X, y, sample_weight
            As in `fit`.
        **more
            Further arguments of `fit`, one entry a row, such as `offset`.

        Returns
        -------
        float, or ndarray of shape (n_l1_ratios,) where there is a list of them
            Infinite for 0.
        """
        self._validate_params()
        X, problem = copy.copy(self)._read_problem(X, y, sample_weight, **more)
        with tasks_over(X, self.engine, self.n_jobs) as tasks:
            found = tasks.map(problem.alpha_max, [(0, ratio) for ratio in self._shares()])
        return found[0] if np.ndim(getattr(self, self._ratios_name)) == 0 else np.array(found)

    def _squeezed(self, table):
        return table[0] if len(table) == 1 else table

    def _check_scores(self, scores, classes):
        overflows = (scores == -np.inf) & (self.scoring == "loss")  # of a strength that is not chosen then
        lost = np.argwhere(~(np.isfinite(scores) | overflows))
        if len(lost):
            remedy = "use fewer folds, or another scoring"
            if classes is not None:
                remedy = f"its test rows may lack a class: {remedy}, or a cv that stratifies"
            raise DataError(
                f"scoring={shortened(self.scoring)} is {scores[tuple(lost[0])]}, not a finite number, in "
                f"fold {lost[0][2]}; {remedy}"
            )

    def _warn_unsolved(self, tol, gaps, n_fits):
        if gaps:
            warnings.warn(
                f"{type(self).__name__}: {len(gaps)} of {n_fits} fits did not reach tol={tol:g}; the "
                f"largest relative duality gap is {max(gaps):.1e}: raise max_iter or eps, or accept a "
                "larger tol",
                ConvergenceWarning,
                stacklevel=5,
            )

    def _curve(self):
        """Return the alphas of the chosen share of the l1 penalty, their mean scores and standard errors."""
        if self.scores_mean_.ndim == 1:
            return self.alphas_, self.scores_mean_, self.scores_se_
        at = self._shares().index(self.l1_ratio_)
        alphas = self.alphas_ if self.alphas_.ndim == 1 else self.alphas_[at]
        return alphas, self.scores_mean_[at], self.scores_se_[at]

    def _lines(self):
        """Return the coefficients that are drawn along the path, and the names of the lines."""
        return self.coef_path_, getattr(self, "feature_names_in_", getattr(self, "vocabulary_", None))

    def plot(self, axes: Any = None, *, n_named: int = 6) -> Any:
        r"""Draw the coefficient paths and, below them, the cross-validation curve.

        Both are drawn over :math:`-\log_{10}` alpha, so that models grow to the right; the numbers above
        count the columns in the model. The solid line marks ``alpha_min_``, the dashed one
        ``alpha_1se_``. Of several values of `l1_ratio` the chosen one is drawn. Of a multinomial model a
        path is the Euclidean norm of a feature's coefficients over the classes; so is that of a group with a
        name over its columns.

        Parameters
        ----------
        axes : sequence of two matplotlib axes, optional
            For the coefficients and for the scores; by default a new figure of pyplot.
        n_named : int, default=6
            How many of the largest coefficients (at ``alpha_``) are coloured and named.

        Returns
        -------
        ndarray of two matplotlib axes

        Raises
        ------
        StradaskError
            If matplotlib is not installed.
        """
        from .plotting import plot_path

        check_is_fitted(self)
        alphas, mean, error = self._curve()
        paths, names = self._lines()
        return plot_path(
            alphas,
            paths,
            mean,
            error,
            alpha=self.alpha_,
            alpha_min=self.alpha_min_,
            alpha_1se=self.alpha_1se_,
            scoring=self.scoring,
            names=names,
            axes=axes,
            n_named=n_named,
        )


# Of the parameters that the estimators share.
CV_CONSTRAINTS: dict = {
    "eps": [Interval(Real, 0, 1, closed="neither")],
    "n_alphas": [Interval(Integral, 1, None, closed="left"), None],
    "alphas": [Interval(Integral, 1, None, closed="left"), "array-like"],
    "cv": ["cv_object"],
    "scoring": [str, callable],
    "rule": [StrOptions({"min", "1se"})],
    "verbose": ["verbose"],
    "engine": ENGINES,
    "n_jobs": [None, Integral],
}
SHARES: list = [Interval(Real, 0, 1, closed="both"), "array-like"]  # constraints of a list of `l1_ratio`
CV_DOCS = {
    "folds": """
    groups : array-like of shape (n_samples,), optional
        Given to the splitter of `cv`, for instance `GroupKFold`.
    callback : callable, optional
        ``callback(info)`` after each fold (and share of the l1 penalty); `info` has round, total, seconds
        and history. Returning True ends the search with an error; the estimator stays as it was.""",
    "search": """
    alphas : int or array-like, default=100
        How many alphas, in geometric steps from the smallest at which every coefficient is zero down to
        `eps` times that; or the alphas themselves.
    eps : float, default=1e-3
        The smallest alpha of a grid that is made, as a part of the largest.
    cv : int, splitter, iterable of (train, test) or None, default=None
        As in scikit-learn; None is 5 folds of neighbouring rows (`KFold`), of classes stratified.
    rule : {"min", "1se"}, default="min"
        Which penalty the model has: that of the best mean score, or the largest whose mean score is within
        one standard error of the best (fewer columns for nearly the same score).
    engine : str or distributed.Client, default="local"
        ``"local"``: threads of this process; ``"dask"``: the current Dask client; a client; or a scheduler's
        address. On Dask a fold (and a share of the l1 penalty) is a task, and each worker that has one must
        have room for `X`; the results are those of ``"local"``. For least squares of a Dask array cut by
        rows, with more rows than columns and at most some thousand of these, workers read each block once
        for all folds and alphas, and the results agree to within rounding.
    n_jobs : int or None, default=None
        Threads: one takes a fold (and a share of the l1 penalty) at a time. None is 1, -1 all cores.
    verbose : int, default=0
        1 shows a progress bar over the fits of the folds.""",
    "choice": """
    alpha_ : float
        The penalty of the model: by `rule` one of the next two.
    alpha_min_, alpha_1se_ : float
        The penalty of the best mean score; the largest one within one standard error of it.
    l1_ratio_ : float
        The share of the l1 penalty with the best mean score.
    alphas_ : ndarray of shape (n_alphas,) or (n_l1_ratios, n_alphas)
        Falling.
    scores_ : ndarray of shape (n_alphas, n_folds) or (n_l1_ratios, n_alphas, n_folds)
        By `scoring`, on the test rows of each fold.
    scores_mean_, scores_se_ : ndarray of shape (n_alphas,) or (n_l1_ratios, n_alphas)
        Mean over the folds, and its standard error.
    coef_path_ : CSC array of shape (n_features, n_alphas) or (n_features, n_alphas * n_outputs)
        Coefficients on all rows for each alpha, with ``l1_ratio_``; the outputs of an alpha stand together.
    intercept_path_ : ndarray of shape (n_alphas,) or (n_alphas * n_outputs,)""",
}
