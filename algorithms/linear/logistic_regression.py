"""Logistic regression with a squared penalty, or l1 and both, for two classes and for more."""

import contextlib
import copy
import functools
import warnings
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.utils._param_validation import Interval, Options, StrOptions

from ..._typing import Callback, Engine, Matrix, RandomState, Vector
from ...errors import DataError
from .._base import documented, keep_parameters
from ..inputs.dask_arrays import is_dask
from ..inputs.remote_targets import FarLabels, label_sums
from ..inputs.tables import fitted_table
from .classifier import LinearClassifier
from .glm.choose import NEWTON_MOST, by_columns, minimise_sparse
from .glm.replicas import RowLoss, portions_of, remote_portions_of, run_replicas_of
from .glm.row_places import opened_with_targets
from .glm.smooth import SMOOTH_DOCS, SOLVERS, SmoothModel
from .losses import class_target, class_total, remote_class_target
from .sparse.labels import before, check_goes_on, dense_coef, pose, solve_classes, take
from .sparse.penalties import ENDLESS
from .vocabulary import CONSTRAINTS

_SOLVERS = SOLVERS | {"downpour", "proximal-newton", "working-set"}
_SOLVERS |= {"newton-cholesky", "liblinear", "sag", "saga"}  # scikit-learn's


@documented(SMOOTH_DOCS)
class LogisticRegression(LinearClassifier, SmoothModel):
    r"""Logistic regression by second-order methods over portions of the rows.

    Minimises, over coefficients w and an intercept c, for classes y of 1 and -1

    .. math:: C \sum_i s_i \log(1 + e^{-y_i (x_i w + c + o_i)})
              + \frac{1 - \rho}{2} |w|^2 + \rho |w|_1

    with rho = `l1_ratio`, the weights s (`sample_weight` times `class_weight`) and `offset` o: scikit-learn's
    objective, so that coefficients agree. The intercept is not penalised. For K > 2 classes the loss is the
    multinomial ``-log softmax(x_i W + c + o_i)[y_i]``, and each class has coefficients.

    A fit ends when the estimated excess of the objective over its minimum (the Newton decrement) is at most
    `tol` times the objective, which does not depend on the scales of the columns; these are met by Hessians,
    or parts of them, so that badly scaled columns cost little.

    %(seeds)s

    %(units)s

    Parameters
    ----------
    C : float, default=1.0
        Weight of the losses against the penalty; ``np.inf`` penalises nothing.
    penalty : {"auto", "l1", "l2", "elasticnet", None}, default="auto"
        scikit-learn's older way to say it: "l1" and "l2" are an `l1_ratio` of 1 and 0, None is ``C=np.inf``;
        "auto" and "elasticnet" leave both parameters as they are.
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
    solver : str, default="auto"
        "newton": Hessian and Cholesky factor for up to 2,000 parameters, else conjugate gradients.
        "sandblaster": L-BFGS, preconditioned by the diagonal of the Hessian. "auto" takes, by the shape of
        the data, the one or the other, or L-BFGS preconditioned by the Hessian of a sample of the rows.
        `solver_` tells which, and can be given. Of scikit-learn's names "newton-cholesky" is "newton",
        "lbfgs" is "sandblaster", "newton-cg" the method of that name; with "liblinear", "sag" and "saga"
        "auto" runs. Where another method runs than the one named, a warning says which. More than two
        classes are fitted by L-BFGS, or up to 100 parameters by "newton". An l1 penalty, whatever this says,
        is met by proximal Newton steps (two classes and p columns, up to 100, or up to 2,000 on a cluster or
        of p^2 / 4 rows), or as `SparseLogisticRegression` does it. "downpour": replicas of the model, each on
        rows of its own, take minibatches of 100 over one table of parameters; a step is a pass of the first
        replica, and the fit ends when ten in a row have not lowered the mean loss over its minibatches by
        `tol`. It comes near the minimum, to a percent or so of the objective, in few passes; it takes no l1
        penalty, no offset, no `standardize`, and on a cluster no callback.
    max_iter : int, default=1000
        Most steps.
    warm_start : bool, default=False
        Begin from the coefficients of the last fit.
    %(places)s
    n_replicas : int, default=2
        Replicas of Downpour's. Their number is part of the method: it changes the result.
    staleness : int or float("inf"), default=0
        How many minibatches the replicas may be apart. Above 0 a result depends on who was faster.
    random_state : int, RandomState or None, default=None
        Draws Downpour's minibatches; nothing else is random.
    dual, intercept_scaling : bool, default=False; float, default=1
        Accepted for scikit-learn's sake and without effect: they are of "liblinear".
    %(standardize)s
    %(verbose)s

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
    %(names)s

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
        "penalty": [StrOptions({"auto", "l1", "l2", "elasticnet"}), None],
        "l1_ratio": [Interval(Real, 0, 1, closed="both")],
        **CONSTRAINTS,
        "class_weight": [None, dict, StrOptions({"balanced"})],
        "solver": [StrOptions(_SOLVERS)],
        "n_replicas": [Interval(Integral, 1, None, closed="left")],
        "staleness": [Interval(Integral, 0, None, closed="left"), Options(Real, {np.inf})],
        "random_state": ["random_state"],
        "dual": ["boolean"],
        "intercept_scaling": [Interval(Real, 0, None, closed="neither")],
    }

    def __init__(
        self,
        C: float = 1.0,
        *,
        penalty: str | None = "auto",
        l1_ratio: float = 0.0,
        tol: float = 1e-6,
        fit_intercept: bool = True,
        class_weight: Any = None,
        solver: str = "auto",
        max_iter: int = 1000,
        warm_start: bool = False,
        engine: Engine = "local",
        n_jobs: int | None = None,
        n_replicas: int = 2,
        staleness: float = 0,
        random_state: RandomState | None = None,
        verbose: int = 0,
        standardize: bool = False,
        dual: bool = False,
        intercept_scaling: float = 1,
    ) -> None:
        keep_parameters(self, locals())

    # Fitting ------------------------------------------------------------------------------------

    def fit(
        self,
        X: Matrix,
        y: Vector,
        sample_weight: Vector | None = None,
        *,
        offset: Vector | None = None,
        callback: Callback | None = None,
    ) -> Self:
        """Fit coefficients and intercept.

        Ctrl-C stops after the running step and keeps the model so far, with a warning.

        Parameters
        ----------
        %(X)s Vectors of Dask come to this process where an l1 penalty meets 2,000 columns or more, or more
            than two classes.
        y : array-like of shape (n_samples,)
            Labels: numbers or strings, of two classes or more.
        sample_weight : float or array-like of shape (n_samples,), optional
            Not negative. A row of weight 2 counts as two rows. A class whose rows all weigh zero stays in
            `classes_`; with an intercept its probability is zero to rounding, as in scikit-learn.
        offset : array-like of shape (n_samples,) or (n_samples, n_classes), optional
            Added to the linear predictor of each row: a known part of the log-odds. The second shape is for
            more than two classes. A Dask y comes to this process then.
        %(callback)s

        Returns
        -------
        self
        """
        self._validate_params()
        with self._draft() as draft, fitted_table(draft, X, y, sample_weight) as (X, y, sample_weight):
            draft._check_penalty(offset)
            arguments = X, y, sample_weight, offset, callback
            most = NEWTON_MOST - 1 if draft._l1 > 0 else np.inf
            if draft._is_for_columns(X) or draft._fit_rows(*arguments, stays_up_to=most) is None:
                draft._fit_columns(*arguments)
            draft._warn_of_method()
        return self

    @property
    def _C(self):
        """`C`, as `penalty` has it."""
        return np.inf if self.penalty is None else self.C

    @property
    def _l1(self):
        """`l1_ratio`, as `penalty` has it; 0 where nothing is penalised."""
        ratio = {"l1": 1.0, "l2": 0.0}.get(str(self.penalty), self.l1_ratio)
        return 0.0 if np.isinf(self._C) else ratio

    def _check_penalty(self, offset):
        """Refuse what Downpour does not take; warn of a parameter that `penalty` overrules."""
        if self.penalty is None and self.C not in (1.0, np.inf):
            warnings.warn(f"penalty=None penalises nothing: C={self.C:g} is not used", stacklevel=3)
        elif self.penalty in ("l1", "l2") and self.l1_ratio not in (0.0, self._l1):
            warnings.warn(
                f"penalty={self.penalty!r}: l1_ratio={self.l1_ratio:g} is not used; 'elasticnet' takes it",
                stacklevel=3,
            )
        refused = {f"l1_ratio={self._l1:g}": self._l1 > 0, "standardize=True": self.standardize}
        refused["an offset"] = offset is not None
        if self.solver == "downpour" and any(refused.values()):
            names = " and ".join(name for name, has in refused.items() if has)
            raise DataError(
                f"solver='downpour' takes the squared penalty alone, and not {names}: choose another solver"
            )

    @property
    def _keeps_order(self):
        """Whether rows may stay in Fortran order: replicas take them in C order."""
        return self.solver != "downpour"

    # Over rows --------------------------------------------------------------------------------------

    def _target(self, name, y, sample_weight, n_samples):
        return class_target(name, y, sample_weight, n_samples, self.class_weight)

    def _remote_checks(self, name):
        return FarLabels(name)

    def _remote_target(self, answers, n_samples):
        return remote_class_target(label_sums(answers, n_samples, self.class_weight, type(self).__name__))

    def _takes(self, target, X, shape):
        """Whether there is no l1 penalty, or one of two classes that goes by rows."""
        here = self.engine == "local" and not is_dask(X)
        if self._l1 == 0:
            return True
        by_rows = self.solver == "proximal-newton" and shape[1] < NEWTON_MOST
        return target.loss.n_outputs == 1 and (by_rows or not by_columns(shape, here))

    def _scales(self, target, k):
        """The objective is a sum, in units of the penalty."""
        strength = 1 / (self._C * target.total)
        return 1.0 if np.isinf(self._C) else self._C * target.total, strength * (1 - self._l1)

    def _minimiser(self, target):
        if self._l1 > 0:
            return functools.partial(minimise_sparse, l1=1 / (self._C * target.total) * self._l1)
        return super()._minimiser(target)

    def _starts(self, target, layout):
        last = before(self)
        check_goes_on(last, target.classes, layout.n_features)
        if np.isinf(self._C) and target.mass.min() == 0:
            raise DataError(
                "C=inf penalises nothing, and all rows of a class have the weight zero: there are no best "
                "coefficients; leave these rows out, or give a penalty"
            )
        return [(dense_coef(last).T, last["intercept_"])] if last else super()._starts(target, layout)

    def _read(self, models, n_iter, dtype, target, history):
        """Take the model from its coefficients and intercepts."""
        ((coef, intercept),) = models
        if len(intercept) > 1:
            intercept = intercept - intercept.mean()
            coef = coef - coef.mean(axis=1, keepdims=True)  # the same probabilities, and no more penalty
        self.classes_ = target.classes
        self.coef_ = np.ascontiguousarray(coef.T).astype(dtype)
        self.intercept_ = intercept.astype(dtype)
        self.n_iter_ = n_iter[0]
        self.history_ = history.as_dict()
        return self

    # By replicas ------------------------------------------------------------------------------------

    def _opened_rows(self, rows, target, engine):
        if self.solver != "downpour":
            return super()._opened_rows(rows, target, engine)
        portions = portions_of(self, rows, target.vectors[0], target.weights, engine)
        return contextlib.nullcontext([portions])

    def _opened_with_targets(self, rows, checks, y, sample_weight, engine):
        opened = remote_portions_of if self.solver == "downpour" else opened_with_targets
        return opened(self, rows, checks, y, sample_weight, engine)

    def _solve(self, data, dtype, target, layout, callback):
        """Minimise over rows; or by Downpour over the portions of the replicas."""
        if self.solver != "downpour":
            return super()._solve(data, dtype, target, layout, callback)
        unit, l2 = self._scales(target, 0)
        loss = RowLoss(layout.n_outputs, self.fit_intercept, l2)
        start = layout.vector(*self._starts(target, layout)[0])

        def read(x, history):
            return copy.copy(self)._read([layout.read(x)], [len(history)], dtype, target, history)

        watching = {"unit": unit, "callback": callback, "snapshot": read}
        x, history = run_replicas_of(self, data[0], loss, start, **watching)
        self.solver_ = "downpour"
        return self._read([layout.read(x)], [len(history)], dtype, target, history)

    # By columns -------------------------------------------------------------------------------------

    def _is_for_columns(self, X):
        """Whether the shape of X leaves an l1 penalty to a working set; X of Dask may not know its shape."""
        shape: tuple[int, ...] = () if self._l1 == 0 or is_dask(X) else getattr(X, "shape", ())
        if len(shape) != 2 or (self.solver == "proximal-newton" and shape[1] < NEWTON_MOST):
            return False
        return self.solver == "working-set" or by_columns(shape, self.engine == "local")

    def _fit_columns(self, X, y, sample_weight, offset, callback):
        """Leave an l1 penalty over many columns or classes to the working set."""
        problem = pose(self, X, y, sample_weight, offset, standardize=self.standardize)
        total = class_total(problem.sample_weight, self.class_weight, problem.classes, problem.numbers)
        unit = max(self._C * total, 1 / ENDLESS)
        penalty = problem.design.penalty(1 / unit, self._l1)

        def read(fit, history):
            return take(copy.copy(self), problem, fit, history)

        fit, history = solve_classes(self, problem, penalty, before(self), callback, read, unit=unit)
        self.solver_ = "working-set"
        return take(self, problem, fit, history)
