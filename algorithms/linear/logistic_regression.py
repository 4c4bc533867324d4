"""Logistic regression with a squared penalty, or l1 and both, for two classes and for more."""

import copy
import dataclasses
import functools
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.utils._param_validation import Interval, Options, StrOptions

from ..._typing import Callback, Matrix, RandomState, Vector
from ...errors import DataError
from ..inputs.dask_arrays import is_dask
from ..inputs.remote_targets import FarLabels, label_sums
from ..inputs.targets import check_class_weights, check_labels, check_weights, total_weight
from .classifier import LinearClassifier
from .glm.choose import NEWTON_MOST, hessian_pays, minimise, minimise_multinomial, minimise_sparse
from .glm.objective import LinearObjective, MultinomialObjective
from .glm.remote import objective_over
from .glm.replicas import RowLoss, portions_beside, portions_of, run_replicas_of
from .glm.row_places import check_beside, columns_in_use, opened_beside, opened_rows
from .glm.rows import LOGISTIC
from .glm.smooth import SOLVERS, run
from .sparse.penalties import ENDLESS

_LEAST_SHARE = float(np.finfo(np.float64).eps)  # of a class at the start: one may have no weight


class LogisticRegression(LinearClassifier):
    r"""Logistic regression by second-order methods over portions of the rows.

    Minimises, over coefficients w and an intercept c, for classes y of 1 and -1

    .. math:: C \sum_i s_i \log(1 + e^{-y_i (x_i w + c)})
              + \frac{1 - \rho}{2} |w|^2 + \rho |w|_1

    with rho = `l1_ratio` and the weights s (`sample_weight` times `class_weight`): scikit-learn's objective,
    so that coefficients agree. The intercept is not penalised. For K > 2 classes the loss is the multinomial
    ``-log softmax(x_i W + c)[y_i]``, and each class has coefficients.

    A fit ends when the estimated excess of the objective over its minimum (the Newton decrement) is at most
    `tol` times the objective, which does not depend on the scales of the columns; these are met by Hessians,
    or parts of them, so that badly scaled columns cost little.

    Seeds and threads: the result is *bitwise* the same for any `n_jobs`, and on a cluster for any workers,
    also if some are lost in the midst of the fit. On a cluster sums are grouped otherwise than here:
    objectives agree to rounding.

    Parameters
    ----------
    C : float, default=1.0
        Weight of the losses against the penalty; ``np.inf`` penalises nothing.
    l1_ratio : float, default=0.0
        rho: 0 is the squared penalty, 1 the l1 penalty.
    tol : float, default=1e-6
        See above. Where `solver_` is "working-set" it bounds the duality gap relative to the objective of the
        intercept alone (see `SparseLogisticRegression`).
        For float32 data at least 1.2e-6 is taken. With an l1 penalty integer weights and repeated rows give
        predictions that agree to about 2e-7 with the default, and to 1e-9 with 1e-8.
    fit_intercept : bool, default=True
        False takes c = 0.
    class_weight : None, "balanced" or dict of label to float, default=None
        "balanced" is n_samples / (n_classes * n_rows_of_the_class).
    solver : {"auto", "newton", "sandblaster", "downpour"}, default="auto"
        "newton": Hessian and Cholesky factor for up to 2,000 parameters, else conjugate gradients.
        "sandblaster": L-BFGS, preconditioned by the diagonal of the Hessian. "auto" takes, by the shape of
        the data, the one or the other, or L-BFGS preconditioned by the Hessian of a sample of the rows.
        `solver_` tells which. More than two classes are fitted by L-BFGS. An l1 penalty, whatever this says,
        is met by proximal Newton steps (two classes and p columns, up to 100, or up to 2,000 on a cluster or
        of p^2 / 4 rows), or as `SparseLogisticRegression` does it. "downpour": replicas of the model,
        each on rows of its own, take minibatches of 100 over one table of parameters; a step is a pass of the
        first replica, and the fit ends when ten in a row have not lowered the mean loss over its minibatches
        by `tol`. It comes near the minimum, to a percent or so of the objective, in few passes; it takes no
        l1 penalty, and on a cluster no callback.
    max_iter : int, default=1000
        Most steps.
    warm_start : bool, default=False
        Begin from the coefficients of the last fit.
    engine : str, default="local"
        Where the rows are read. ``"local"``: threads of this process; ``"dask"``: the current Dask client;
        or the address of a Dask scheduler. On a cluster an array is cut into portions that are sent once, and
        the blocks of a Dask array or DataFrame stay where they lie; a Dask `X` goes to the current client, if
        there is one. This process holds the parameters, and vectors that are not Dask's.
    n_jobs : int or None, default=None
        Threads, on a cluster of each worker. None is 1, on a cluster as many as a worker has; -1 all cores.
    n_replicas : int, default=2
        Replicas of Downpour's. Their number is part of the method: it changes the result.
    staleness : int or float("inf"), default=0
        How many minibatches the replicas may be apart. Above 0 a result depends on who was faster.
    random_state : int, RandomState or None, default=None
        Draws Downpour's minibatches; nothing else is random.
    verbose : int, default=0
        1 shows a progress bar: the steps done, of `max_iter` at most (most fits end long before), and the
        objective.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        w, in the type of `X`; for two classes it speaks for ``classes_[1]``.
    intercept_ : ndarray of shape (1,) or (n_classes,)
        c; for more than two classes it sums to zero.
    n_iter_ : int
        Steps.
    solver_ : str
        "newton", "newton-cg", "sketch", "lbfgs", "proximal-newton", "working-set" or "downpour".
    history_ : dict of arrays
        One entry a step: round, seconds, objective, updates, bytes_sent, waiting, staleness.
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        Only when `X` had feature names that are all strings.

    Raises
    ------
    DataError
        For NaN, infinities, a single class, other lengths, negative weights and the like.

    Warns
    -----
    ConvergenceWarning
        If `max_iter` steps, or the precision of the arithmetic, did not suffice for `tol`; and without a
        penalty where columns separate two classes, or each of several from all the others, so that there are
        no best coefficients.

    See Also
    --------
    SparseLogisticRegression : For l1 penalties and many columns, in units of the mean loss.
    sklearn.linear_model.LogisticRegression : The same model.

    References
    ----------
    Dean et al., "Large scale distributed deep networks", NIPS 2012 (Sandblaster). Lee, Sun, Saunders,
    "Proximal Newton-type methods for minimizing composite functions", SIAM J. Optim. 2014.

    Examples
    --------
    >>> import stradask as sd
    >>> from sklearn.datasets import load_breast_cancer
    >>> from stradask.algorithms.linear.logistic_regression import LogisticRegression
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = LogisticRegression().fit(X, y)  # columns of scales from 0.01 to 1,000
    >>> model.score(X, y) > 0.95, model.solver_, model.n_iter_ < 15
    (True, 'newton', True)
    >>> model.predict_proba(X[:2]).shape
    (2, 2)
    """

    _parameter_constraints: ClassVar[dict] = {
        "C": [Interval(Real, 0, None, closed="right")],
        "l1_ratio": [Interval(Real, 0, 1, closed="both")],
        "tol": [Interval(Real, 0, None, closed="left")],
        "fit_intercept": ["boolean"],
        "class_weight": [None, dict, StrOptions({"balanced"})],
        "solver": [StrOptions(SOLVERS | {"downpour"})],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "warm_start": ["boolean"],
        "engine": [str],
        "n_jobs": [None, Integral],
        "n_replicas": [Interval(Integral, 1, None, closed="left")],
        "staleness": [Interval(Integral, 0, None, closed="left"), Options(Real, {np.inf})],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        C: float = 1.0,
        *,
        l1_ratio: float = 0.0,
        tol: float = 1e-6,
        fit_intercept: bool = True,
        class_weight: Any = None,
        solver: str = "auto",
        max_iter: int = 1000,
        warm_start: bool = False,
        engine: str = "local",
        n_jobs: int | None = None,
        n_replicas: int = 2,
        staleness: float = 0,
        random_state: RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        self.C = C
        self.l1_ratio = l1_ratio
        self.tol = tol
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.solver = solver
        self.max_iter = max_iter
        self.warm_start = warm_start
        self.engine = engine
        self.n_jobs = n_jobs
        self.n_replicas = n_replicas
        self.staleness = staleness
        self.random_state = random_state
        self.verbose = verbose

    # Fitting ------------------------------------------------------------------------------------

    def fit(
        self, X: Matrix, y: Vector, sample_weight: Vector | None = None, *, callback: Callback | None = None
    ) -> Self:
        """Fit coefficients and intercept.

        Ctrl-C stops after the running step and keeps the model so far, with a warning.

        Parameters
        ----------
        X : ndarray, sparse matrix or DataFrame of shape (n_samples, n_features)
            float32 and float64 are kept. Best in C order or CSR: then nothing is copied. Or a Dask array or
            DataFrame; then the vectors below may be Dask's, too, and stay beside the rows, unless an l1
            penalty meets 2,000 columns or more, or more than two classes.
        y : array-like of shape (n_samples,)
            Labels: numbers or strings, of two classes or more.
        sample_weight : float or array-like of shape (n_samples,), optional
            Not negative. A class whose rows all weigh zero stays in `classes_`; with an intercept its
            probability is zero to rounding, as in scikit-learn.
        callback : callable, optional
            ``callback(info)`` after every step; `info` has round, total, objective, seconds, history, and
            ``info.snapshot()``, the model so far as a fitted estimator. Returning True ends the fit.

        Returns
        -------
        self
        """
        self._validate_params()
        with self._unchanged_on_error():
            before = self._before()
            if self.solver == "downpour":
                self._check_for_downpour()
            given = X, y, sample_weight
            if self._l1 > 0 and _is_matrix(X) and self._by_columns(X, *X.shape):
                return self._fit_working_set(X, y, sample_weight, before, callback)
            most = NEWTON_MOST - 1 if self._l1 > 0 else np.inf
            rows, y, sample_weight, engine = check_beside(self, X, y, sample_weight, stays_up_to=most)
            n_samples, n_features = rows.shape
            if is_dask(y):
                return self._fit_far(given, rows, y, sample_weight, engine, before, callback)
            classes, numbers = check_labels(y, n_samples, type(self).__name__)
            self._check_goes_on(before, classes, n_features)
            weights = check_weights(sample_weight, n_samples)
            total = self._total(sample_weight, classes, numbers)
            weights = check_class_weights(self.class_weight, classes, numbers, weights)
            n_outputs = 1 if len(classes) == 2 else len(classes)
            if self._l1 > 0 and (n_outputs > 1 or self._by_columns(X, n_samples, n_features)):
                return self._fit_working_set(X, y, sample_weight, before, callback)
            rows, layout = columns_in_use(rows, n_outputs, self.fit_intercept)
            target = numbers if n_outputs > 1 else np.where(numbers > 0, 1.0, -1.0)
            start = self._start(before, np.bincount(numbers, weights), layout)
            known = classes, layout, rows.dtype, total, start, callback
            if self.solver == "downpour":
                return self._solve_by_replicas(portions_of(self, rows, target, weights), engine, *known)
            with opened_rows(self, rows, [target], weights, engine) as [data]:
                return self._solve(data, *known)

    @property
    def _l1(self):
        """`l1_ratio`, or 0 where nothing is penalised."""
        return 0.0 if np.isinf(self.C) else self.l1_ratio

    def _by_columns(self, X, n_samples, n_features):
        """Whether an l1 penalty is left to the working set; Hessians are summed where the rows lie."""
        here = self.engine == "local" and not is_dask(X)
        return n_features >= NEWTON_MOST or (here and not hessian_pays(n_samples, n_features))

    def _fit_far(self, given, rows, y, sample_weight, engine, before, callback):
        """Fit where labels lie beside the rows on a cluster, and stay there."""
        name, by_replicas = type(self).__name__, self.solver == "downpour"
        opened = portions_beside if by_replicas else opened_beside
        with opened(self, rows, FarLabels(name), y, sample_weight, engine) as (answers, made):
            labels = label_sums(answers, rows.shape[0], self.class_weight, name)
            self._check_goes_on(before, labels.classes, rows.shape[1])
            n_outputs = 1 if len(labels.classes) == 2 else len(labels.classes)
            if self._l1 == 0 or n_outputs == 1:
                _, layout = columns_in_use(rows, n_outputs, self.fit_intercept)
                start, data = self._start(before, labels.mass, layout), made(labels.coding)
                known = labels.classes, layout, rows.dtype, labels.total, start, callback
                if by_replicas:
                    return self._solve_by_replicas(data, engine, *known)
                return self._solve(data, *known)
        X, y, sample_weight = given
        return self._fit_working_set(X, y, sample_weight, before, callback)

    def _solve(self, data, classes, layout, dtype, total, start, callback):
        """Minimise over rows, wherever they are, and take the model."""
        objective, minimiser = self._problem(data, layout.n_outputs, total)
        told = self._told(classes, layout, dtype, total, callback)
        result, self.solver_, watch = run(self, minimiser, objective, start, **told)
        return self._read(classes, layout, dtype, result.x, watch.history)

    def _solve_by_replicas(self, data, engine, classes, layout, dtype, total, start, callback):
        """Minimise by Downpour over portions, and take the model."""
        loss = RowLoss(layout.n_outputs, self.fit_intercept, 1 / (self.C * total))
        told = self._told(classes, layout, dtype, total, callback)
        portions, least = data
        x, history = run_replicas_of(self, portions, least, engine, loss, start, **told)
        self.solver_ = "downpour"
        return self._read(classes, layout, dtype, x, history)

    def _told(self, classes, layout, dtype, total, callback):
        """What a `Watch` needs to know."""
        unit = 1.0 if np.isinf(self.C) else self.C * total
        snapshot = functools.partial(self._snapshot, classes, layout, dtype)
        return {"unit": unit, "callback": callback, "snapshot": snapshot}

    def _check_for_downpour(self):
        if self._l1 > 0:
            raise DataError(
                f"solver='downpour' takes the squared penalty alone, but l1_ratio is {self.l1_ratio:g}: "
                "choose another solver"
            )

    def _before(self):
        """Coefficients and classes of the last fit, where this one goes on from them."""
        if not (self.warm_start and "coef_" in vars(self)):
            return {}
        return {name: vars(self)[name] for name in ("coef_", "intercept_", "classes_")}

    def _check_goes_on(self, before, classes, n_features):
        if not before:
            return
        if before["coef_"].shape[1] != n_features:
            raise DataError(
                f"warm_start=True goes on from a model of {before['coef_'].shape[1]} columns, but X has "
                f"{n_features}: fit a new estimator, or set warm_start=False"
            )
        if not np.array_equal(before["classes_"], classes):
            raise DataError(
                f"warm_start=True goes on from a model of the classes {before['classes_'].tolist()}, but y "
                f"has {classes.tolist()}: fit a new estimator, or set warm_start=False"
            )

    def _total(self, sample_weight, classes, numbers):
        """The sum of the rows' weights, times those of their classes: the objective is a sum, not a mean."""
        total = total_weight(sample_weight, len(numbers))
        if not isinstance(self.class_weight, dict):
            return total
        of_class = np.array([float(self.class_weight.get(label, 1.0)) for label in classes.tolist()])
        weights = check_weights(sample_weight, len(numbers))
        return total * float(np.average(of_class[numbers], weights=weights))

    def _problem(self, data, n_outputs, total):
        """The objective as a weighted mean of losses, its penalty likewise, and what minimises it."""
        strength = 1 / (self.C * total)
        common = {
            "scale": 1 / data.shape[0],
            "l2": strength * (1 - self._l1),
            "fit_intercept": self.fit_intercept,
            "n_jobs": self.n_jobs,
        }
        if n_outputs > 1:
            return objective_over(data, MultinomialObjective, n_outputs, **common), minimise_multinomial
        objective = objective_over(data, LinearObjective, LOGISTIC, **common)
        if self._l1 > 0:
            return objective, functools.partial(minimise_sparse, l1=strength * self._l1)
        return objective, functools.partial(minimise, solver=self.solver)

    def _start(self, before, mass, layout):
        """The coefficients of the last fit; else the best model of the intercept alone."""
        self._check_penalised(mass)
        if before:
            coef = before["coef_"] if isinstance(before["coef_"], np.ndarray) else before["coef_"].toarray()
            return layout.vector(coef.T, before["intercept_"])
        logs = np.log(np.maximum(mass / mass.sum(), _LEAST_SHARE))
        intercept = logs[1:] - logs[:1] if layout.n_outputs == 1 else logs - logs.mean()
        return layout.vector(np.zeros((layout.n_features, layout.n_outputs)), intercept)

    def _check_penalised(self, mass):
        if np.isinf(self.C) and mass.min() == 0:
            raise DataError(
                "C=inf penalises nothing, and all rows of a class have the weight zero: there are no best "
                "coefficients; leave these rows out, or give a penalty"
            )

    def _snapshot(self, classes, layout, dtype, x, history):
        return copy.copy(self)._read(classes, layout, dtype, x, history)

    def _read(self, classes, layout, dtype, x, history):
        """Take the model from the parameters."""
        coef, intercept = layout.read(x)
        if len(intercept) > 1:
            intercept = intercept - intercept.mean()
        self.classes_ = classes
        self.coef_ = np.ascontiguousarray(coef.T).astype(dtype)
        self.intercept_ = intercept.astype(dtype)
        self.n_iter_ = len(history)
        self.history_ = history.as_dict()
        return self

    def _fit_working_set(self, X, y, sample_weight, before, callback):
        """Leave an l1 penalty over many columns or classes to the working set."""
        from .sparse_logistic import SparseLogisticRegression

        sparse = SparseLogisticRegression(
            l1_ratio=self.l1_ratio,
            fit_intercept=self.fit_intercept,
            class_weight=self.class_weight,
            max_iter=self.max_iter,
            tol=self.tol,
            engine=self.engine,
            n_jobs=self.n_jobs,
            verbose=self.verbose,
        )
        design, subproblem, classes, numbers, weights = sparse._problem(X, y, sample_weight, None, of=self)
        unit = max(self.C * self._total(weights, classes, numbers), 1 / ENDLESS)
        sparse.alpha = 1 / unit
        told = callback and functools.partial(self._tell, callback, unit)
        return self._take(sparse._solve(design, subproblem, classes, before, told), unit)

    def _tell(self, callback, unit, info):
        """Tell of a round of the working set in the words of this estimator."""

        def snapshot():
            return copy.copy(self)._take(info.snapshot(), unit)

        gap, history = unit * info.gap, info.history.scaled(unit)
        told = {"objective": unit * info.objective, "gap": gap, "history": history, "snapshot": snapshot}
        return callback(dataclasses.replace(info, **told))

    def _take(self, sparse, unit):
        """Take the model from a `SparseLogisticRegression`, whose objective is a mean."""
        for name in ("classes_", "coef_", "intercept_", "n_iter_", "history_"):
            setattr(self, name, vars(sparse)[name])
        self.history_ = {**self.history_, "objective": unit * self.history_["objective"]}
        self.solver_ = "working-set"
        return self


def _is_matrix(X):
    """Whether X has a shape; one of Dask's may not know it."""
    return not is_dask(X) and len(getattr(X, "shape", ())) == 2
