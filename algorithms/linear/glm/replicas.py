"""Linear classifiers by Downpour SGD: replicas with minibatches of their own over one table of parameters."""

import contextlib
import functools
import warnings
from typing import NamedTuple

import numpy as np
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from ...._typing import Engine
from ....errors import DataError
from ....scheduler.history import History
from ....scheduler.parameters import seed_from
from ....scheduler.threads import computed_here, own_threads, single_threaded_blas
from ....scheduler.workers import open_workers
from ...inputs.dask_arrays import is_dask
from ...optimize.downpour import watched
from ...optimize.watch import Watch
from .row_places import reader, shards_with_targets, sources_of
from .rows import LANES, LOGISTIC, make_rows

_BATCH = 100  # rows
_SEEDS = 2**31  # random_state is a 32-bit number


class RowLoss:
    """The loss summed over rows, with their share of the penalty, and its gradient; it travels to workers.

    `n_outputs`: 1 for two classes, else their number. `l2`: weight of half the squared coefficients in the
    mean over all rows.

    Examples
    --------
    >>> import numpy as np
    >>> from stradask.algorithms.linear.glm.replicas import RowLoss
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


class ReplicaShards(NamedTuple):
    """Rows, targets and perhaps weights of each replica; the size of the smallest; and the engine."""

    parts: list
    least: int
    engine: Engine


def run_replicas_of(estimator, portions, loss, x0, *, unit, callback, snapshot):
    """Minimise the mean of a `RowLoss`, and warn of a fit that fell short.

    `estimator`: with the parameters `n_replicas`, `staleness`, `max_iter`, `tol` and `random_state`. `unit`,
    `callback`, `snapshot`: see `Watch`; a callback is called on threads only. `history`: History; one row a
    pass of the first replica. Raises DataError: Where a value or gradient is not finite.
    """
    watch = Watch(
        estimator.max_iter,
        label=type(estimator).__name__,
        verbose=estimator.verbose,
        callback=callback,
        snapshot=snapshot,
        unit=unit,
    )
    parts, least, engine = portions
    if own_threads() is not None:  # inside a task, where replicas are threads of this process
        parts = computed_here(*parts)
    with single_threaded_blas():
        result = watched(
            watch,
            engine,
            loss,
            x0,
            parts,
            staleness=estimator.staleness,
            batch_size=min(_BATCH, least),
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


def portions_of(estimator, rows, target, weights, engine):
    """Cut rows and vectors of this process: one portion for each replica.

    `estimator`: with the parameter `n_replicas`. `rows`: ndarray in C order, csr_array or Dask array; every
    n-th row is a replica's, or every n-th chunk of a Dask array. `target`, `weights`: array (n_samples,);
    `weights` may be None.
    """
    vectors = (target,) if weights is None else (target, weights)
    if not is_dask(rows):
        n = min(estimator.n_replicas, rows.shape[0])
        parts = [(rows[r::n], *(vector[r::n] for vector in vectors)) for r in range(n)]
        return ReplicaShards(parts, rows.shape[0] // n, engine)
    spans = [(slice(a, b), source) for a, b, source in sources_of(rows)]
    shares = _shares(estimator, spans)
    X = _read(estimator, rows, [[source for _, source in share] for share in shares])
    joined = [[np.concatenate([v[span] for span, _ in share]) for v in vectors] for share in shares]
    parts = [(read, *own) for read, own in zip(X, joined, strict=True)]
    return ReplicaShards(parts, min(len(own[0]) for own in joined), engine)


@contextlib.contextmanager
def remote_portions_of(estimator, rows, targets, y, sample_weight, engine):
    """Cut rows whose targets, and perhaps weights, are on the cluster and stay there.

    `estimator`, `rows`: see `portions_of`. `y`, `sample_weight`, `engine`: see
    `row_places.opened_with_targets`. Yields `answers`: list of tuples; columns of what ``targets.survey``
    tells of the blocks. `made`: ``made(coding)`` returns `ReplicaShards`, to be used while this lasts.
    """
    import dask

    shards = shards_with_targets(rows, y, sample_weight, sources_of(rows))
    shares = _shares(estimator, range(len(shards)))
    checked = [dask.delayed(targets.load)((*source[:3], None), *vectors) for source, *vectors in shards]
    with _held(checked, engine) as (checked, compute):

        def made(coding):
            coded = dask.delayed(functools.partial(targets.rows, dtype=rows.dtype, coding=coding))
            parts = [[coded(checked[k]) for k in share] for share in shares]
            places = (0,) if coding[-1] is None else (0, 1)
            vectors = [[dask.delayed(_joined)(own, place) for place in places] for own in parts]
            X = _read(estimator, rows, [[shards[k][0] for k in share] for share in shares])
            least = min(sum(shards[k][0][2] for k in share) for share in shares)
            return ReplicaShards([(read, *own) for read, own in zip(X, vectors, strict=True)], least, engine)

        answers = compute([dask.delayed(targets.survey)(block) for block in checked])
        yield list(zip(*answers, strict=True)), made


@contextlib.contextmanager
def _held(values, engine):
    """Compute delayed values, once, and hold them where they are; yield them, and what computes others."""
    workers = open_workers(engine)
    if not workers.remote:  # inside a task
        import dask.threaded

        yield dask.persist(*values, scheduler=dask.threaded.get), lambda others: computed_here(*others)
        return
    with workers.client() as client:
        yield client.persist(values), lambda others: client.gather(client.compute(others))


def _shares(estimator, chunks):
    """Every n-th chunk for a replica."""
    n = min(estimator.n_replicas, len(chunks))
    return [chunks[r::n] for r in range(n)]


def _read(estimator, rows, shares):
    """One delayed matrix for each share of the sources."""
    import dask

    read, stacked = dask.delayed(reader(estimator, rows)), dask.delayed(_stacked)
    return [stacked([read(source) for source in share]) for share in shares]


def _stacked(blocks):
    """Put blocks of rows under one another."""
    return np.concatenate(blocks) if isinstance(blocks[0], np.ndarray) else sparse.vstack(blocks, "csr")


def _joined(parts, place):
    """Put targets (0) or weights (1) of blocks under one another."""
    return np.concatenate([weights if place else targets[0] for targets, weights in parts])
