"""The knockoff filter: selection of columns with a bounded expected share of false ones."""

import warnings
from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import clone, is_classifier
from sklearn.utils import check_random_state, get_tags
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions

from ...._typing import Matrix, RandomState, Vector
from ....errors import DataError, shortened
from ..._base import keep_parameters
from ...inputs.dask_arrays import is_dask
from ...inputs.matrices import check_columns, check_plain
from ...inputs.targets import check_length, check_names, check_targets
from ..cv.estimators import LassoCV
from ..path import lasso_path
from .knockoffs import fixed_knockoffs, gaussian_knockoffs, knockoff_threshold
from .selector import Selector, coefficients

_ALPHAS, _EPS = 500, 1e-3  # of the path on which columns enter


class KnockoffSelection(Selector):
    r"""Choose columns with a bound on the expected share of false ones, by knockoffs.

    Each column gets a copy that has nothing to do with y, and correlates with the other columns as the
    original does. Columns are chosen whose statistic W, how much more the column matters than its copy, is at
    least t, the least number with

    .. math:: \frac{1 + \#\{j: W_j \le -t\}}{\#\{j: W_j \ge t\}} \le q

    (knockoff+). The expected share of chosen columns that are independent of y, given the others, is at most
    q = `fdr`.

    Parameters
    ----------
    estimator : estimator with `coef_`, default=None
        For ``kind="gaussian"``: fitted to columns and copies together, in units of the columns' deviations, W
        is ``|b_j|`` less that of the copy (of several outputs, norms). None is ``LassoCV()``. Give
        ``SparseLogisticRegressionCV()`` for classes, ``SparseGLMCV(CoxRegression())`` for survival times.
    kind : {"gaussian", "fixed"}, default="gaussian"
        "gaussian" (model-X): rows of X are draws of a normal distribution with `mean` and `covariance`, y is
        anything. "fixed": X is any matrix with n > 2 p, y is linear in it with normal noise; W is where a
        column enters the lasso path, or its copy, whichever is first, with that sign.
    fdr : float, default=0.1
        q. Below one over the number of columns no column can be chosen with ``offset=1``, of which a warning
        tells.
    method : {"sdp", "equi"}, default="sdp"
        How far copies are from their columns: "sdp" as far as possible in sum, "equi" equally far.
    mean, covariance : array-like of shape (n_features,) and (n_features, n_features), default=None
        Of the rows. None estimates them from X (Ledoit and Wolf's covariance): the bound then holds as far as
        they are right.
    offset : {0, 1}, default=1
        0 is the plain filter, which bounds a slightly different share, and chooses more.
    random_state : int, RandomState or None, default=None
        Of the copies.

    Attributes
    ----------
    statistics_ : ndarray of shape (n_features,)
        W.
    threshold_ : float
        t; infinite where nothing can be chosen.
    support_ : ndarray of bool, of shape (n_features,)
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        Only when `X` had feature names that are all strings.

    See Also
    --------
    StabilitySelection : Bounds the number of false choices.

    References
    ----------
    Barber, Candès, "Controlling the false discovery rate via knockoffs", Annals of Statistics 2015. Candès,
    Fan, Janson, Lv, "Panning for gold: model-X knockoffs for high dimensional controlled variable selection",
    JRSS B 2018.

    Examples
    --------
    >>> import numpy as np
    >>> import stradask as sd
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((300, 60))
    >>> y = X[:, :15].sum(axis=1) + rng.standard_normal(300)
    >>> model = sd.KnockoffSelection(fdr=0.2, random_state=0).fit(X, y)
    >>> bool(model.support_[:15].all()), int(model.support_.sum()) < 25
    (True, True)
    """

    _parameter_constraints: ClassVar[dict] = {
        "estimator": [HasMethods(["fit"]), None],
        "kind": [StrOptions({"gaussian", "fixed"})],
        "fdr": [Interval(Real, 0, 1, closed="neither")],
        "method": [StrOptions({"sdp", "equi"})],
        "mean": ["array-like", None],
        "covariance": ["array-like", None],
        "offset": [Interval(Real, 0, 1, closed="both")],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        estimator: Any = None,
        *,
        kind: str = "gaussian",
        fdr: float = 0.1,
        method: str = "sdp",
        mean: Vector | None = None,
        covariance: Any = None,
        offset: int = 1,
        random_state: RandomState | None = None,
    ) -> None:
        keep_parameters(self, locals())

    def _base(self):
        return LassoCV() if self.estimator is None else self.estimator

    def __sklearn_tags__(self):
        """Tell scikit-learn what the estimator takes: no sparse X, whose copies would be dense."""
        tags, base = super().__sklearn_tags__(), get_tags(self._base())
        tags.target_tags, tags.input_tags.sparse = base.target_tags, False
        tags.target_tags.required = True
        return tags

    def fit(self, X: Matrix, y: Vector, **given: Any) -> Self:
        """Make copies, and choose columns.

        Parameters
        ----------
        X : ndarray or DataFrame of shape (n_samples, n_features)
        y : array-like of shape (n_samples,) or as the estimator takes it
        **given
            Further arguments of the estimator's `fit`.

        Returns
        -------
        self
        """
        self._validate_params()
        unused = self.estimator is None and self.mean is None and self.covariance is None and not given
        if self.kind == "fixed" and not unused:
            raise DataError("kind='fixed' takes no estimator, mean, covariance or further arguments")
        with self._draft() as draft:
            X, rng = draft._read(X, y), check_random_state(draft.random_state)
            if self.offset / X.shape[1] > self.fdr:  # t would have to bound a share of less than one column
                least, needed = np.ceil(self.offset / self.fdr), np.ceil(100 * self.offset / X.shape[1]) / 100
                warnings.warn(
                    f"{type(self).__name__}: fdr={self.fdr:g} can choose no column of {X.shape[1]}, since "
                    f"knockoff+ chooses {least:g} or more at once: take fdr={needed:g} or above, or offset=0",
                    stacklevel=2,
                )
            draft._warn_of_copies(X)
            if draft.kind == "fixed":
                n, p = X.shape
                W = draft._entry(X, check_targets(y, n, type(draft).__name__), n, p, rng)
            else:
                W = draft._difference(X, y, given, rng)
            draft.statistics_ = W
            draft.threshold_ = knockoff_threshold(W, draft.fdr, draft.offset)
            draft.support_ = draft.threshold_ <= W
        return self

    def _read(self, X, y):
        """Check the data; return X as float64."""
        if is_dask(X):
            raise DataError("KnockoffSelection takes X in this process: pass X.compute()")
        names, X = X, check_columns(self, X)
        if not isinstance(X, np.ndarray):
            raise DataError("sparse X: its knockoffs are dense; pass X.toarray() if that fits in memory")
        check_names(self, names, y)
        check_plain("y", y)
        check_length("y", np.asarray(y), len(X))
        if len(X) < 2:
            raise DataError(f"X has {len(X)} row (n_samples={len(X)}): no column varies; give more")
        constant = np.flatnonzero(np.ptp(X, axis=0) == 0)
        if len(constant):
            raise DataError(f"column {constant[0]} is constant and has no knockoff: leave it out")
        return X.astype(np.float64)

    def _warn_of_copies(self, X):
        """Warn of columns that are another one, up to units: y says of neither more than of the other."""
        close = np.abs(np.triu(np.atleast_2d(np.corrcoef(X, rowvar=False)), 1)) > 1 - 1e-12
        if pairs := np.argwhere(close).tolist():
            columns = vars(self).get("feature_names_in_", range(X.shape[1]))
            named = shortened([(columns[first], columns[second]) for first, second in pairs[:3]])
            warnings.warn(
                f"{type(self).__name__}: columns are the same up to their units, in {len(pairs)} pair(s) "
                f"such as {named}: which of a pair is chosen, if any, says nothing; leave one of each out",
                stacklevel=3,
            )

    def _difference(self, X, y, given, rng):
        """How much larger the coefficients of columns are than those of their copies."""
        mean, covariance = self._moments(X)
        copies = gaussian_knockoffs(X, mean, covariance, rng, self.method)
        both, swapped = _beside(X, copies, np.sqrt(np.diag(covariance)), rng)
        base = clone(self._base())
        if not is_classifier(base):
            y = np.asarray(y)
        coef = np.atleast_2d(coefficients(base.fit(both, y, **given)))
        first, second = np.split(np.sqrt((coef**2).sum(axis=0)), 2)
        return np.where(swapped, second - first, first - second)

    def _moments(self, X):
        p = X.shape[1]
        mean, covariance = self.mean, self.covariance
        if covariance is None:
            from sklearn.covariance import ledoit_wolf

            # Of columns of one scale: it shrinks towards one variance for all.
            scale = X.std(axis=0)
            covariance = ledoit_wolf(X / scale)[0] * np.outer(scale, scale)
        mean = X.mean(axis=0) if mean is None else mean
        mean, covariance = np.asarray(mean, np.float64), np.asarray(covariance, np.float64)
        if mean.shape != (p,) or covariance.shape != (p, p):
            raise DataError(
                f"mean has the shape {mean.shape} and covariance {covariance.shape}; X has {p} columns"
            )
        good = np.isfinite(mean).all() and np.isfinite(covariance).all() and (np.diag(covariance) > 0).all()
        if not good or not np.allclose(covariance, covariance.T):
            raise DataError("covariance must be finite, symmetric, and positive definite, mean finite")
        return mean, covariance

    def _entry(self, X, y, n, p, rng):
        """The largest penalties at which columns have coefficients, with the sign of who came first."""
        if n < 2 * p + 1:
            raise DataError(
                f"kind='fixed' needs more than twice as many rows as columns, and X has {n} x {p}: take "
                "kind='gaussian', or fewer columns"
            )
        X = X - X.mean(axis=0)
        copies = fixed_knockoffs(X, rng, self.method)
        both, swapped = _beside(X, copies, np.linalg.norm(X, axis=0), rng)
        alphas, coefs, _ = lasso_path(both, y - y.mean(), n_alphas=_ALPHAS, eps=_EPS, tol=1e-8)
        there = coefs != 0
        entry = np.where(there.any(axis=1), alphas[np.argmax(there, axis=1)], 0.0)
        first, second = np.split(entry, 2)
        W = np.maximum(first, second) * np.sign(first - second)
        return np.where(swapped, -W, W)


def _beside(X, copies, scale, rng):
    """Return scaled columns and their knockoffs, swapped at random, and which columns are swapped."""
    swapped = rng.random_sample(X.shape[1]) < 0.5
    both = np.hstack([np.where(swapped, copies, X), np.where(swapped, X, copies)])
    return both / np.tile(scale, 2), swapped
