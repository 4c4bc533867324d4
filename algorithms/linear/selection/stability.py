"""Stability selection: the columns that an estimator chooses on most halves of the rows."""

import warnings
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state, get_tags
from sklearn.utils._param_validation import HasMethods, Interval

from ...._typing import Callback, Engine, Matrix, RandomState, Vector
from ....errors import DataError
from ....scheduler.workers import open_workers
from ..._base import ENGINES, keep_parameters
from ...inputs.dask_arrays import is_dask
from ...inputs.matrices import check_columns, check_plain
from ...inputs.targets import check_length, check_names
from ..cv.path_cv import PathCV
from ..lasso import ElasticNet, Lasso
from ..structured.base import StructuredModel
from .bounds import error_bounds
from .selector import Selector, coefficients

_ALPHAS, _EPS = 100, 0.01  # of a path that is followed until enough columns are there


class StabilitySelection(Selector):
    r"""Choose columns that an estimator chooses on most halves of the rows, with a bound on false choices.

    The rows are cut at random into halves, `n_pairs` times; a sparse estimator is fitted to each half. A
    column is chosen if at least the share `threshold` of these fits chose it. The expected number of chosen
    columns that a fit chooses with at most average probability q / p is bounded, see `error_bounds_`.

    A penalised estimator chooses by the units of the columns and of y: scale columns of different units.

    Parameters
    ----------
    estimator : estimator with `coef_`, default=None
        None is ``Lasso()``. A column is chosen by a fit if it has a coefficient, of several outputs any.
    n_selected : int, default=None
        q: its path of falling `alpha` is followed on each half as long as at most so many columns are chosen.
        For `Lasso`, `ElasticNet`, `SparseGLM` and the models over it. None fits the estimator as it is, at
        its own `alpha`, and q is the mean number that fits chose.
    threshold : float, default=0.75
        pi, above .5, at most 1.
    n_pairs : int, default=50
        B.
    random_state : int, RandomState or None, default=None
        Of the halves.
    engine : str or distributed.Client, default="local"
        Where the fits run: ``"local"``, ``"dask"``, a client, or the address of a Dask scheduler.
    n_jobs : int or None, default=None
        Threads. The result is the same for any number.
    verbose : int, default=0
        1 shows a progress bar.

    Attributes
    ----------
    frequencies_ : ndarray of shape (n_features,)
        The share of the fits that chose each column.
    support_ : ndarray of bool, of shape (n_features,)
    q_ : float
        q.
    error_bounds_ : dict of str to float
        "meinshausen_buhlmann", ``q^2 / ((2 pi - 1) p)``, which assumes that the choice of noise columns is
        exchangeable, or else bounds only columns that are chosen with probability at most q / p;
        "unimodal" and "r_concave", of Shah and Samworth, which are smaller and assume a shape of the
        distribution of a column's frequency.
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        Only when `X` had feature names that are all strings.

    See Also
    --------
    KnockoffSelection : Controls the share of false choices.

    References
    ----------
    Meinshausen, Bühlmann, "Stability selection", JRSS B 2010. Shah, Samworth, "Variable selection with error
    control: another look at stability selection", JRSS B 2013.

    Examples
    --------
    >>> import numpy as np
    >>> import stradask as sd
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((100, 200))
    >>> y = X[:, :3] @ [1.0, -1.0, 1.0] + rng.standard_normal(100)
    >>> model = sd.StabilitySelection(n_selected=8, threshold=0.9, n_pairs=10, random_state=0).fit(X, y)
    >>> model.get_support(indices=True), round(model.error_bounds_["meinshausen_buhlmann"], 2)
    (array([0, 1, 2]), 0.4)
    """

    _parameter_constraints: ClassVar[dict] = {
        "estimator": [HasMethods(["fit"]), None],
        "n_selected": [Interval(Integral, 1, None, closed="left"), None],
        "threshold": [Interval(Real, 0.5, 1, closed="right")],
        "n_pairs": [Interval(Integral, 1, None, closed="left")],
        "random_state": ["random_state"],
        "engine": ENGINES,
        "n_jobs": [None, Integral],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        estimator: Any = None,
        *,
        n_selected: int | None = None,
        threshold: float = 0.75,
        n_pairs: int = 50,
        random_state: RandomState | None = None,
        engine: Engine = "local",
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        keep_parameters(self, locals())

    def _base(self):
        return Lasso() if self.estimator is None else self.estimator

    def __sklearn_tags__(self):
        """Tell scikit-learn what the estimator takes."""
        tags, base = super().__sklearn_tags__(), get_tags(self._base())
        tags.target_tags, tags.input_tags = base.target_tags, base.input_tags
        tags.target_tags.required = True
        return tags

    def fit(self, X: Matrix, y: Vector, *, callback: Callback | None = None, **given: Any) -> Self:
        """Fit halves of the rows.

        Parameters
        ----------
        X : ndarray, sparse matrix or DataFrame of shape (n_samples, n_features)
        y : array-like of shape (n_samples,) or as the estimator takes it
        callback : callable, optional
            ``callback(info)`` after each fit to half of the rows, as in `LassoCV.fit`.
        **given : array-likes of shape (n_samples,)
            Further arguments of the estimator's `fit`, one entry a row: sample_weight, offset, strata.

        Returns
        -------
        self
        """
        self._validate_params()
        base = clone(self._base())
        self._check_path(base)
        with self._draft() as draft:
            names = X
            rows, y, given = draft._read(X, y, given)
            if isinstance(base, StructuredModel):
                check_names(base, names, y)
                base.groups = base._name_groups(names)  # halves have no names
            halves = draft._halves(rows.shape[0])
            work = [(0, clone(base), draft.n_selected, half) for half in halves]
            bar = {"label": type(draft).__name__, "verbose": draft.verbose, "callback": callback}
            with open_workers(draft.engine, draft.n_jobs).tasks([(rows, y, given)]) as tasks:
                try:
                    counts = np.sum(tasks.map(_chosen, work, unit="fit", **bar), axis=0)
                except DataError as error:
                    draft._refuse(base, rows, y, given, error)
            draft._store(counts, len(halves))
            if draft.q_ == rows.shape[1] > 1 and draft.n_selected is None:
                warnings.warn(
                    f"every fit chose all {rows.shape[1]} columns, so that their choice says nothing: pass "
                    f"n_selected=, or an estimator with a stronger penalty than {type(base).__name__}'s",
                    UserWarning,
                    stacklevel=2,
                )
        return self

    def _refuse(self, base, X, y, given, error):
        """Raise the error of all rows, which names those of X, or that of a half of them."""
        rows, short = X.shape[0], clone(base)
        if "max_iter" in short.get_params(deep=False):
            short.set_params(max_iter=1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            short.fit(X, y, **given)
        raise DataError(
            f"{type(self).__name__} fits halves of the rows, drawn at random, and {type(base).__name__} "
            f"refuses one of {rows // 2} of {rows} rows: {error}. Pass more rows, or an estimator that "
            "fits so few"
        ) from error

    def _check_path(self, base):
        follows = isinstance(base, (Lasso, ElasticNet, StructuredModel)) and hasattr(base, "path")
        if self.n_selected is not None and (not follows or isinstance(base, PathCV)):
            raise DataError(
                f"n_selected={self.n_selected} follows a path, which {type(base).__name__} does not have: "
                "leave it out, or take Lasso, ElasticNet, SparseGLM or a model over it"
            )

    def _store(self, counts, n_fits):
        """Set frequencies, support and bounds from the number of fits that chose each column."""
        self.frequencies_ = counts / n_fits
        self.support_ = counts >= self.threshold * n_fits * (1 - 1e-12)
        q = counts.sum() / n_fits if self.n_selected is None else self.n_selected
        self.q_ = float(min(q, len(counts)))
        self.error_bounds_ = error_bounds(self.q_, len(counts), self.threshold, self.n_pairs)

    def _read(self, X, y, given):
        """Check the data, and lay X out by rows."""
        if is_dask(X):
            raise DataError("StabilitySelection takes X in this process: pass X.compute()")
        names, X = X, check_columns(self, X)
        check_names(self, names, y)
        check_plain("y", y)
        n_samples = X.shape[0]
        if n_samples < 4:
            raise DataError(f"X has {n_samples} rows (n_samples={n_samples}); halves need 4 or more")
        y = np.asarray(y)
        check_length("y", y, n_samples)
        given = {name: np.asarray(values) for name, values in given.items() if values is not None}
        for name, values in given.items():
            check_length(name, values, n_samples)
        return X if isinstance(X, np.ndarray) else sparse.csr_array(X), y, given

    def _halves(self, n_samples):
        """Draw rows of pairs of halves that have no row in common."""
        rng, halves = check_random_state(self.random_state), []
        for _ in range(self.n_pairs):
            order = rng.permutation(n_samples)
            half = n_samples // 2
            halves += [np.sort(order[:half]), np.sort(order[half : 2 * half])]
        return halves


def _chosen(data, base, n_selected, half):
    """Which columns a fit to half of the rows chooses."""
    X, y, given = data
    X, y, given = X[half], y[half], {name: values[half] for name, values in given.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the set of columns settles long before
        if n_selected is None:
            coef = coefficients(base.fit(X, y, **given))
            return np.atleast_2d(coef).any(axis=0)
        if isinstance(base, StructuredModel):
            coefs = base.path(X, y, alphas=_ALPHAS, eps=_EPS, **given)[1]
        else:
            params = base.get_params(deep=False)
            ratio = () if isinstance(base, Lasso) else ("l1_ratio",)
            own = (*ratio, "fit_intercept", "positive", "penalty_factor", "standardize", "tol", "max_iter")
            options = {name: params[name] for name in own}
            coefs = base.path(X, y, n_alphas=_ALPHAS, eps=_EPS, **options, **given)[1]
    there = np.any(coefs.reshape(-1, *coefs.shape[-2:]) != 0, axis=0)
    few = np.maximum.accumulate(there.sum(axis=0)) <= n_selected
    return there[:, np.flatnonzero(few)[-1]] if few.any() else np.zeros(len(there), bool)
