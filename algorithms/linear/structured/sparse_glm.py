"""Generalised linear models with any loss and any sparse penalty."""

from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions

from ...._typing import Engine, Vector
from ..._base import documented, keep_parameters
from ..vocabulary import ALPHA, CONSTRAINTS, FACTOR, FIT_DOCS, RATIO
from .losses import Loss
from .named import LOSSES, PENALTIES, make, named_terms
from .penalties import Penalty
from .regressor_base import StructuredRegressor

SHARED = {  # `standardize` comes last, as it is a part of another
    "fit_parameters": """
    fit_intercept : bool, default=True
        False takes an intercept of 0.
    %(standardize)s
    max_iter : int, default=1000
        Most passes over `X`, at least 2; ten are usual. A pass is followed by work on the columns that
        matter. Those from the starts of a penalty that is not convex come besides.
    tol : float, default=1e-4
        The fit ends when the duality gap is at most `tol` times the loss of the model without columns, above
        that of a model that knows y. Where no gap is known it ends when the optimality conditions are broken
        by at most `tol` times the largest slope of that model; `stopped_by_` says which.
    warm_start : bool, default=False
        Begin from the coefficients of the last fit.
    verbose : int, default=0
        1 shows a progress bar.
    engine : str or distributed.Client, default="local"
        ``"local"``: this process; ``"dask"``: the current Dask client; a client; or a scheduler's address.
        Workers then own groups of columns and their coefficients, and exchange the predictor. So it is, on
        threads or the workers of the current client, with a Dask array `X` of blocks of columns, which may
        be larger than the memory. Takes penalties that are convex and have a kink on every column, and
        losses whose duality gap is known. For others, and for files and blocks of rows beyond the workers'
        memory, workers read rows in each pass, and this process holds the columns that are chosen.
    n_jobs : int or None, default=None
        Threads of a fit of a Dask array in this process. None is 1, -1 all cores.""",
    "ignored": """
    copy_X : bool, default=True
    random_state : int, RandomState or None, default=None
    selection : {"cyclic", "random"}, default="cyclic"
        Accepted for scikit-learn's sake and without effect: `X` is never changed, and nothing is drawn.""",
    "groups": """
    groups : int, array-like, dict, "category" or None, default=None
        The size of consecutive groups, a label for each column, or a list of lists of columns. By names: a
        dict of the name of each group to its columns, or a list of names and of lists of them; the name of a
        column of categories, before `table_pipeline`, a Parquet file or the command line made columns of
        its values, stands for all of these. Columns that are not named are a group for each category, and
        for each other column; so are all with "category".""",
    "attributes": """
    coef_ : ndarray of shape (n_features,) or (n_targets, n_features)
        Coefficients, in the type of `X`; figures are those before they were rounded to float32.
    sparse_coef_ : CSR array
        The same; made at each access.
    intercept_ : float or ndarray of shape (n_targets,)
    objective_ : float
        The minimum that was found.
    stopped_by_ : str
        "duality gap": the objective is at most `dual_gap_` above the least one. "kkt violation": no gap is
        known, and `kkt_violation_` is small. "max_rounds" or "stalled": neither, with a warning.
    dual_gap_ : float
        Duality gap in the units of the objective; NaN where none is known: penalties that are not convex,
        losses without a conjugate.
    schedule_ : str
        "working-set"; "columns" where workers own them; "rows" where each pass reads blocks of rows there.
    kkt_violation_ : float
        The largest distance of a block of slopes from the subdifferential of its penalty.
    n_iter_ : int
        Passes over `X`; 0 where a warm start was the solution.
    history_ : dict of arrays
        One entry a pass: round, seconds, objective and others.
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        Only when `X` had feature names that are all strings.""",
    "standardize": FIT_DOCS["standardize"],
}
GROUPS: dict = {
    "groups": ["array-like", Integral, dict, StrOptions({"category"}), None],
    "overlap": ["boolean"],
}


@documented(SHARED)
class SparseGLM(StructuredRegressor):
    r"""A linear predictor with any loss and a penalty that makes it sparse.

    Minimises, over coefficients b and an intercept c,

    .. math:: \frac{1}{\sum_i w_i} \sum_i w_i\, \mathrm{loss}(y_i, x_i b + c + o_i) + \alpha\, \mathrm{pen}(b)

    by a working set of columns or groups, and proximal Newton steps on it. Both terms may be objects of your
    own, see the page "Add a penalty or a loss".

    `X` is never changed and never made dense. The working set takes 8 bytes an entry of its columns, and 8
    bytes a pair of them.

    The penalty weighs coefficients, so predictions change with the units of the columns and of y: scale
    columns of different units, or pass ``standardize=True``.

    Parameters
    ----------
    loss : str or Loss, default="squared"
        "squared", "logistic" (y of 0 and 1), "multinomial" (y has a column of 0 and 1 for each class),
        "poisson", "gamma", "tweedie", "negative-binomial" (logarithmic links), "huber", "quantile", "hinge"
        (y of 0 and 1, a support vector machine), "square-root" (the root of the mean square of residuals: the
        square-root lasso), or an object.
    penalty : str or Penalty, default="l1"
        With f = `penalty_factor`, rho = `l1_ratio`, and groups g:

        * "l1": ``f_j |b_j|``; with `groups`, or several targets, the norm of each block instead of ``|b_j|``.
        * "elastic-net": ``f_j (rho |b_j| + (1 - rho) b_j^2 / 2)``.
        * "group": ``f_g |b_g|_2``, with f by default the square root of the size of the group.
        * "sparse-group": ``rho |b_g|_1 + (1 - rho) f_g |b_g|_2``.
        * "mcp", "scad": the minimax concave penalty and SCAD, which leave large blocks unshrunk; not convex.
        * "log": ``gamma log(1 + |b_j| / gamma)``, the limit of reweighted l1 penalties; not convex.
        * "lq": ``|b_j|^gamma``, not convex.
        * "slope": the sorted l1 norm.
    alpha : float, default=1.0
        Strength of the penalty. From `alpha_max` on all penalised coefficients are zero.
    l1_ratio : float, default=0.5
        rho, of "elastic-net" and "sparse-group".
    %(groups)s
        None takes every column alone.
    overlap : bool, default=False
        Allow lists of columns that overlap: each group has a copy of its columns, and the coefficients of a
        column are summed.
    penalty_factor : array-like, default=None
        f, one number for each group, without groups for each column, from 0 (no penalty) to infinity
        (excluded). For an adaptive lasso give the inverse sizes of first estimates.
    positive : bool, default=False
        Only coefficients of 0 and above.
    bounds : tuple of two floats or array-likes, default=None
        The least and the largest value of coefficients, with 0 between them. Other bounds than 0 and
        infinity are for single columns.
    gamma : float, default=None
        Shape of "mcp" (above 0, by default 3), "scad" (above 2, by default 3.7), "log" (above 0, by
        default 1) and "lq" (the exponent, between 0 and 1, by default .5).
    loss_options : dict, default=None
        Of a loss given by name: ``delta`` of "huber", ``quantile`` of "quantile", ``power`` of "tweedie".
    penalty_options : dict, default=None
        Of "slope": ``weights``, falling, or ``q``.
    %(fit_parameters)s

    Attributes
    ----------
    %(attributes)s
    groups_ : dict of str to list of int
        The columns of each group, where groups are given by names, or as categories.
    group_coef_ : ndarray
        With `overlap`: the coefficients of the copies, one group after the other.

    Raises
    ------
    DataError
        For NaN, infinities, targets that the loss does not take, groups that lack or repeat a column, and
        the like.

    Warns
    -----
    ConvergenceWarning
        If `max_iter` passes, or the precision of the arithmetic, did not suffice for `tol`.

    See Also
    --------
    Lasso, ElasticNet, SparseLogisticRegression : Faster for what they fit, and on clusters.
    GroupLasso, SparsePoissonRegressor, CoxRegression : Named models over the same solver.

    Notes
    -----
    A fit with a penalty that is not convex ends at a stationary point. It starts from zero, from the end of
    a path of falling strengths, and from the convex solution. From each, where blocks are single columns, it
    exchanges columns as long as that lowers the objective, and it keeps the lowest point.

    References
    ----------
    Massias, Gramfort, Salmon, "Celer: a fast solver for the Lasso with dual extrapolation", ICML 2018.
    Bertrand and others, "Beyond L1: faster and better sparse models with skglm", NeurIPS 2022. Zhang,
    "Nearly unbiased variable selection under minimax concave penalty", Annals of Statistics 2010.
    Bogdan and others, "SLOPE", Annals of Applied Statistics 2015. Belloni, Chernozhukov, Wang, "Square-root
    lasso", Biometrika 2011. Xu and others, "L1/2 regularization", IEEE Transactions on Neural Networks and
    Learning Systems 2012. Hazimeh, Mazumder, "Fast best subset selection", Operations Research 2020.

    Examples
    --------
    >>> import numpy as np
    >>> import stradask as sd
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((200, 50))
    >>> y = rng.poisson(np.exp(0.5 * X[:, 0] - 0.5 * X[:, 1]))
    >>> model = sd.SparseGLM("poisson", "mcp", alpha=0.3).fit(X, y)
    >>> np.flatnonzero(model.coef_), model.stopped_by_
    (array([0, 1]), 'kkt violation')
    """

    _parameter_constraints: ClassVar[dict] = {
        "loss": [StrOptions(set(LOSSES)), Loss],
        "penalty": [StrOptions(set(PENALTIES)), Penalty],
        **ALPHA,
        **RATIO,
        **GROUPS,
        **FACTOR,
        "positive": ["boolean"],
        "bounds": [tuple, list, None],
        "gamma": [Interval(Real, 0, np.inf, closed="neither"), None],
        "loss_options": [dict, None],
        "penalty_options": [dict, None],
        **CONSTRAINTS,
    }

    def __init__(
        self,
        loss: str | Loss = "squared",
        penalty: str | Penalty = "l1",
        *,
        alpha: float = 1.0,
        l1_ratio: float = 0.5,
        groups: Any = None,
        overlap: bool = False,
        penalty_factor: Vector | None = None,
        positive: bool = False,
        bounds: Any = None,
        gamma: float | None = None,
        loss_options: dict | None = None,
        penalty_options: dict | None = None,
        fit_intercept: bool = True,
        standardize: bool = False,
        max_iter: int = 1000,
        tol: float = 1e-4,
        warm_start: bool = False,
        verbose: int = 0,
        engine: Engine = "local",
        n_jobs: int | None = None,
    ) -> None:
        keep_parameters(self, locals())

    def _many_targets(self):
        several = self._only_many() or (isinstance(self.loss, str) and self.loss == "squared")
        return several and isinstance(self.penalty, str) and self.penalty != "slope"

    def _only_many(self):
        return getattr(LOSSES.get(self.loss) if isinstance(self.loss, str) else self.loss, "several", False)

    def _check_y(self, loss, y, name):
        return y if loss.several or (y.ndim == 2 and loss.quadratic) else super()._check_y(loss, y, name)

    def _make_loss(self):
        return make("loss", self.loss, LOSSES, self.loss_options)

    def _terms(self):
        return named_terms(
            self.penalty,
            self.penalty_options,
            gamma=self.gamma,
            l1_ratio=self.l1_ratio,
            groups=self._numbered_groups(),
            overlap=self.overlap,
            factors=self.penalty_factor,
            bounds=self.bounds,
            positive=self.positive,
        )
