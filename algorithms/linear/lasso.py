"""Lasso and elastic net: least squares with sparse coefficients."""

import copy
import warnings
from numbers import Integral, Real
from typing import ClassVar

import numpy as np
from scipy import sparse
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from .._base import Estimator
from .._validation import check_columns, check_rows
from .fitting import Fit, SquaredData, warn_if_unpenalised
from .inputs import check_names, check_targets, check_weights
from .path import enet_path, lasso_path


class ElasticNet(MultiOutputMixin, RegressorMixin, Estimator):
    r"""Linear regression with l1 and squared l2 penalties, by a working set of columns.

    Minimises, over coefficients b and an intercept c,

    .. math:: \frac{1}{2 \sum_i w_i} \sum_i w_i (y_i - x_i b - c)^2
              + \alpha \sum_j f_j \left(\rho |b_j| + \frac{1 - \rho}{2} b_j^2\right)

    where rho is `l1_ratio`, w are `sample_weight` (1 by default) and f is `penalty_factor` (1 by default):
    scikit-learn's objective. Each round reads `X` once to find the columns that break the optimality
    conditions most, adds them to a working set, and solves the problem on that set by coordinate descent
    and a proximal Newton method; the penalty falls to `alpha` meanwhile. The fit ends when the duality gap of the
    whole problem is small enough, so that `dual_gap_` bounds how far the objective is from its minimum.

    `X` is never changed, never made dense and copied at most once, namely where it does not lie by
    columns (Fortran order or CSC) already; centring and `standardize` are implicit.

    Seeds and threads: the result is *bitwise* the same for any `n_jobs`.

    Parameters
    ----------
    alpha : float, default=1.0
        Weight of the penalty. 0 leaves least squares, with a warning. From the smallest value on at
        which all penalised coefficients are zero (``alpha_max_``) that model is returned.
    l1_ratio : float, default=0.5
        rho, the share of the l1 penalty: 1 is the Lasso, 0 is ridge regression (whose solution is not sparse, so
        that a working set gains nothing).
    fit_intercept : bool, default=True
        False takes c = 0.
    precompute : bool, "auto" or array-like, default=False
        Accepted for scikit-learn's sake and without effect: Gram entries are made for the columns that turn out
        to matter.
    max_iter : int or None, default=1000
        Most rounds. A round is a pass over `X` and much more work than one of scikit-learn's sweeps, and tens
        of rounds are usual. None is 1000.
    copy_X : bool, default=True
        Accepted and without effect: `X` is never changed.
    tol : float, default=1e-4
        The fit ends when the duality gap is at most `tol` times the objective of the model without
        columns (the intercept alone). scikit-learn's bound is ``2 * tol`` in these units, tested only after
        the coefficients have almost ceased to move.
    warm_start : bool, default=False
        Begin from the coefficients of the last fit.
    positive : bool, default=False
        Only coefficients of 0 and above.
    random_state : int, RandomState or None, default=None
        Seed of ``schedule="dynamic"``; the working set has no use for it.
    selection : {"cyclic", "random"}, default="cyclic"
        Accepted for scikit-learn's sake and without effect.
    penalty_factor : array-like of shape (n_features,), default=None
        f, 0 and above: with 0 a column is never penalised, with 2 twice as much. Unlike glmnet's they
        are not rescaled.
    standardize : bool, default=False
        Penalise ``s_j b_j`` instead of b_j, with s_j the (weighted) standard deviation of column j, or its root
        mean square if there is no intercept: the same as fitting to columns divided by s_j, but without a
        copy and with coefficients for the columns as they are.
    schedule : {"auto", "working-set", "dynamic"}, default="auto"
        "auto" is the working set. "dynamic" is the schedule of the STRADS paper, coordinates drawn by how much
        they changed and thinned by correlation: one to learn from, slower on one machine.
    engine : str, default="local"
        ``"local"``: threads of this process; ``"dask"``: the current Dask client; or a scheduler's address.
    n_jobs : int or None, default=None
        Threads of the passes over `X`. None is 1, -1 all cores.
    verbose : int, default=0
        1 shows a progress bar.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,) or (n_targets, n_features)
        b, in the type of `X`.
    sparse_coef_ : CSR array of shape (1, n_features) or (n_targets, n_features)
        The same; made at each access.
    intercept_ : float or ndarray of shape (n_targets,)
        c; 0.0 without intercept.
    dual_gap_ : float or ndarray of shape (n_targets,)
        Duality gap in the scale of the objective above, which is scikit-learn's.
    alpha_max_ : float or ndarray of shape (n_targets,)
        The smallest `alpha` at which every penalised coefficient is zero; infinite for ``l1_ratio=0``.
    n_iter_ : int or list of int
        Rounds, one number a target.
    history_ : dict of arrays
        One entry a round: round, seconds, objective, updates, bytes_sent, waiting, staleness;
        with several targets their rounds one after the other, and target.
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        Only when `X` had feature names that are all strings.

    Raises
    ------
    DataError
        For NaN, infinities, other lengths, negative weights and the like; says which and what to do.

    Warns
    -----
    ConvergenceWarning
        If `max_iter` rounds, or the precision of the arithmetic, did not suffice for `tol`; names the gap reached.

    See Also
    --------
    Lasso : The same with ``l1_ratio=1``.
    enet_path : Coefficients for many values of `alpha`.
    sklearn.linear_model.ElasticNet : The same problem by coordinate descent over all columns.

    References
    ----------
    Zou, Hastie, "Regularization and variable selection via the elastic net", JRSS B 2005. Working sets and
    duality gaps: Massias, Gramfort, Salmon, "Celer: a fast solver for the Lasso with dual extrapolation", ICML
    2018. Newton steps: Li, Sun, Toh, "A highly efficient semismooth Newton augmented Lagrangian method for
    solving Lasso problems", SIAM J. Optim. 2018.

    Examples
    --------
    >>> import stradask as sd
    >>> from sklearn.datasets import make_regression
    >>> X, y = make_regression(100, 2000, n_informative=5, random_state=0)
    >>> model = sd.ElasticNet(alpha=5.0, l1_ratio=0.9).fit(X, y)
    >>> int((model.coef_ != 0).sum()) < 100
    True
    >>> bool(model.dual_gap_ <= 1e-4 * y.var() / 2)
    True
    """

    _parameter_constraints: ClassVar[dict] = {
        "alpha": [Interval(Real, 0, None, closed="left")],
        "l1_ratio": [Interval(Real, 0, 1, closed="both")],
        "fit_intercept": ["boolean"],
        "precompute": ["boolean", StrOptions({"auto"}), "array-like"],
        "max_iter": [Interval(Integral, 1, None, closed="left"), None],
        "copy_X": ["boolean"],
        "tol": [Interval(Real, 0, None, closed="left")],
        "warm_start": ["boolean"],
        "positive": ["boolean"],
        "random_state": ["random_state"],
        "selection": [StrOptions({"cyclic", "random"})],
        "penalty_factor": ["array-like", None],
        "standardize": ["boolean"],
        "schedule": [StrOptions({"auto", "working-set", "dynamic"})],
        "engine": [str],
        "n_jobs": [None, Integral],
        "verbose": ["verbose"],
    }

    path = staticmethod(enet_path)

    def __init__(
        self,
        alpha=1.0,
        *,
        l1_ratio=0.5,
        fit_intercept=True,
        precompute=False,
        max_iter=1000,
        copy_X=True,
        tol=1e-4,
        warm_start=False,
        positive=False,
        random_state=None,
        selection="cyclic",
        penalty_factor=None,
        standardize=False,
        schedule="auto",
        engine="local",
        n_jobs=None,
        verbose=0,
    ):
        self.alpha = alpha
        self.l1_ratio = l1_ratio
        self.fit_intercept = fit_intercept
        self.precompute = precompute
        self.max_iter = max_iter
        self.copy_X = copy_X
        self.tol = tol
        self.warm_start = warm_start
        self.positive = positive
        self.random_state = random_state
        self.selection = selection
        self.penalty_factor = penalty_factor
        self.standardize = standardize
        self.schedule = schedule
        self.engine = engine
        self.n_jobs = n_jobs
        self.verbose = verbose

    # Fitting ------------------------------------------------------------------------------------

    def fit(self, X, y, sample_weight=None, *, callback=None):
        """Fit coefficients and intercept.

        Ctrl-C stops after the running round and keeps the model so far, with a warning.

        Parameters
        ----------
        X : ndarray, sparse matrix or DataFrame of shape (n_samples, n_features)
            float32 and float64 are kept. Best in Fortran order or CSC: then nothing is copied.
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
            Each target is a problem of its own.
        sample_weight : float or array-like of shape (n_samples,), optional
            Not negative. Only ratios count.
        callback : callable, optional
            ``callback(info)`` after every round; `info` has round, total, objective, seconds, updates,
            history, and ``info.snapshot()``, the model so far as a fitted estimator. Returning True ends the
            fit; targets that were not reached keep zero coefficients, and a gap of NaN.

        Returns
        -------
        self
        """
        self._validate_params()
        if self.alpha == 0:
            warnings.warn(
                "alpha=0 penalises nothing: for least squares take sklearn.linear_model.LinearRegression",
                stacklevel=2,
            )
        with self._unchanged_on_error():
            previous = self._previous()
            design, targets, shape = self._problem(X, y, sample_weight)
            fits = [None] * len(targets)
            histories = []
            for k, target in enumerate(targets):
                start = self._start(previous, k, design.X.shape[1])
                fits[k], done = self._solve(design, target, k, start, ...)
