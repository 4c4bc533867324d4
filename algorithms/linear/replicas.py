"""Linear classifiers by Downpour SGD: replicas with minibatches of their own over one table of parameters."""

import warnings

import numpy as np
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from ...errors import DataError
from ...scheduler.history import History
from ...scheduler.parameters import seed_from
from ...scheduler.threads import single_threaded_blas
from ..optimize.downpour import watched
from ..optimize.rows import LANES, LOGISTIC, make_rows
from ..optimize.watch import Watch
from .dask_input import is_dask
from .row_places import reader, sources_of

_BATCH = 100  # rows
_SEEDS = 2**31


class RowLoss:
    """The loss summed over rows, with their share of the penalty, and its gradient; it travels to workers.

    Parameters
    ----------
    n_outputs : int
        1 for two classes, else their number.
    fit_intercept : bool
    l2 : float
        Weight of half the squared coefficients in the mean over all rows.

    Examples
    --------
    >>> import numpy as np
    >>> from stradask.algorithms.linear.replicas import RowLoss
    >>> value, gradient = RowLoss(1, True, 0.0)((np.array([[2.0]]), np.array([1.0])), np.zeros(2))
    >>> round(value, 6), gradient
    (0.693147, array([-1. , -0.5]))
    """

    def __init__(self, n_outputs, fit_intercept, l2):
        self.n_outputs, self.fit_intercept, self.l2 = n_outputs, fit_intercept, l2

    def __call__(self, rows, w):
        """Compute both for rows (X, y) or (X, y, weights)."""
        X, y, *weights = rows
        data = make_rows(X, y, *weights)
        n_penalised = X.shape[1] * self.n_outputs
        if self.n_outputs == 1:
            intercept = float(w[-1]) if self.fit_intercept else 0.0
            value, gradient = data.gradient(LOGISTIC, w[:n_penalised], intercept)
        else:
            W = np.zeros((X.shape[1] + 1, -(-self.n_outputs // LANES) * LANES), data.dtype)
            given = w.reshape(-1, self.n_outputs)
            W[: len(given), : self.n_outputs] = given
            value, gradient = data.multinomial(W, self.n_outputs)
            gradient = gradient[:, : self.n_outputs].ravel()
        gradient = gradient[: len(w)]
        share = self.l2 * X.shape[0]
        gradient[:n_penalised] += share * w[:n_penalised]
        return value + share / 2 * float(w[:n_penalised] @ w[:n_penalised]), gradient


def run_replicas_of(estimator, rows, target, weights, engine, loss, x0, *, unit, callback, snapshot):
    """Minimise the mean of a `RowLoss`, and warn of a fit that fell short.

    Parameters
    ----------
    estimator : estimator
        With the parameters `n_replicas`, `staleness`, `max_iter`, `tol` and `random_state`.
    rows : ndarray in C order, csr_array or Dask array
    target, weights : ndarray of shape (n_samples,); `weights` may be None
    engine : str
    loss : RowLoss
    x0 : float64 ndarray
    unit, callback, snapshot
        See `Watch`; a callback is called on threads only.

    Returns
    -------
    x : float64 ndarray
    history : History
        One row a pass of the first replica.

    Raises
    ------
    DataError
        Where a value or gradient is not finite.
    """
    beside = (target,) if weights is None else (target, weights)
    portions = _portions(estimator, rows, beside)
    watch = Watch(
        estimator.max_iter,
        label=type(estimator).__name__,
        verbose=estimator.verbose,
        callback=callback,
        snapshot=snapshot,
        unit=unit,
    )
    with single_threaded_blas():
        result = watched(
            watch,
            engine,
            loss,
            x0,
            portions,
            staleness=estimator.staleness,
            batch_size=min(_BATCH, *(len(portion[1]) for portion in portions)),
            max_epochs=estimator.max_iter,
            tol=estimator.tol,
            random_state=seed_from(estimator.random_state) % _SEEDS,
        )
    if result.status == 4:
        raise DataError(f"{result.message}: scale the columns of X")
    if not result.success:
        warnings.warn(
            f"{type(estimator).__name__} has not come to rest in {estimator.max_iter} passes of Downpour: "
            "raise max_iter, or be content with a larger tol",
            ConvergenceWarning,
            stacklevel=3,
        )
    history, before = History(), 0.0
    looks = zip(result.history["seconds"], result.history["objective"], strict=True)
    for number, (seconds, objective) in enumerate(looks, 1):
        history.record(round=number, seconds=seconds - before, objective=unit * objective)
        before = seconds
    return result.x, history


def _portions(estimator, rows, beside):
    """One portion for each replica: every n-th row, or every n-th chunk of a Dask array."""
    if not is_dask(rows):
        n = min(estimator.n_replicas, rows.shape[0])
        return [(rows[r::n], *(vector[r::n] for vector in beside)) for r in range(n)]
    import dask

    sources, read = sources_of(rows), dask.delayed(reader(estimator, rows))
    n = min(estimator.n_replicas, len(sources))
    portions = []
    for mine in (sources[r::n] for r in range(n)):
        X = dask.delayed(_stacked)([read(source) for _, _, source in mine])
        vectors = (np.concatenate([vector[a:b] for a, b, _ in mine]) for vector in beside)
        portions.append((X, *vectors))
    return portions


def _stacked(blocks):
    """Put blocks of rows under one another."""
    return np.concatenate(blocks) if isinstance(blocks[0], np.ndarray) else sparse.vstack(blocks, "csr")
