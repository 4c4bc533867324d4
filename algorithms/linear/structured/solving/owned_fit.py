"""Fits on columns that workers own: from estimators to `owned_blocks`, and back."""

import contextlib
import copy
import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....._typing import Engine
from .....errors import DataError
from .....scheduler.engine import run
from .....scheduler.threads import own_threads, single_threaded_blas
from .....scheduler.workers import check_engine, open_workers
from ...._base import Estimator
from ....inputs.dask_arrays import engine_for, is_dask
from ...sparse.distributed import CutMatrix, exceeds_memory, lay_out
from ...sparse.fitting import DEFAULT_ROUNDS, LEAST_TOL
from ...sparse.solution import Solution
from ..penalties import BlockPenalty
from .blocks import Blocks, single_columns
from .owned_blocks import OwnedBlocks
from .problem import StructuredProblem
from .shard import BlockTerms

_MOST_ROUNDS = 10**9  # the program itself knows when to stop


@dataclass(frozen=True)
class CutColumns:
    """Columns for workers, in the order of their groups; no group is in two pieces."""

    cut: Any  # a CutMatrix
    engine: Engine
    n_features: int
    schedule = "columns"

    def opened(self):
        """See `Columns`; the program of a fit opens them itself."""
        return contextlib.nullcontext()

    @property
    def n_samples(self):
        """Number of rows."""
        return self.cut.shape[0]

    @property
    def dtype(self):
        """The type of X."""
        return self.cut.dtype


def owns(X, engine):
    """Whether workers own the columns of a fit of X: of Dask arrays, and with an engine of workers."""
    check_engine(engine)
    return is_dask(X) or (engine != "local" and own_threads() is None)


def cut_columns(X, blocks, engine):
    """Cut X, as `check_matrix` gives it, for the workers."""
    engine, n_features = engine_for(X, engine), X.shape[1]
    if not blocks.plain:
        X = X[:, blocks.order]
    cut = lay_out(X, engine, allow_rows=False)
    edges = np.unique(blocks.starts[np.searchsorted(blocks.starts, cut.edges)])
    if edges.tolist() != list(cut.edges):  # groups would be cut
        if is_dask(X):
            X = X.rechunk({0: -1, 1: tuple(np.diff(edges).tolist())})
            cut = lay_out(X, engine, allow_rows=False)
        else:
            pieces = [X[:, a:b] for a, b in itertools.pairwise(edges)]
            cut = CutMatrix(False, pieces, edges.tolist(), cut.shape, cut.dtype, cut.is_sparse)
    return CutColumns(cut, engine, n_features)


class ColumnsOnWorkers(Estimator):
    """Methods of the structured models for Dask arrays and workers."""

    def _check_local(self, problem, *, reads_rows=False):
        """Refuse columns of workers for what is done in this process alone; where it reads X, rows, too."""
        if isinstance(problem.columns, CutColumns) or (reads_rows and not hasattr(problem.columns, "X")):
            raise DataError(
                f"{type(self).__name__} fits one alpha on columns of workers: for paths, alpha_max and "
                "searches pass X as an array of this process, with engine='local'"
            )

    def _columns_on_workers(self, X, loss, weights, blocks, factors, centre):
        """Columns that workers own; `RowsOnWorkers` of rows that are large, or of other penalties."""
        engine = engine_for(X, self.engine)
        own = CutColumns(None, engine, X.shape[1])
        penalty = self._penalty(StructuredProblem(own, loss, blocks, factors, 0.0), self.alpha)
        if not is_dask(X) and not_owned(penalty, loss) and own_threads() is None:
            X = _cut_rows(X, engine)
        if is_dask(X) and X.numblocks[1] == 1 and engine != "local" and own_threads() is None:
            from .rows_on_workers import RowsOnWorkers

            rows = RowsOnWorkers(self, X, engine, weights, centre=centre)
            if rows.streams or not_owned(penalty, loss):
                return rows
        return cut_columns(X, blocks, self.engine)

    def _solve_owned(self, problem, callback, start, label):
        """Solve on columns that workers own."""
        terms = terms_of(self._penalty(problem, self.alpha), problem.loss, label)
        if self.standardize and (problem.blocks.sizes > 1).any():
            raise DataError(f"standardize=True of {label} on columns of workers is not for groups: scale X")
        program, fit, done = solve_owned(
            problem.columns,
            problem.loss,
            problem.blocks,
            terms,
            tol=self.tol,
            max_iter=self.max_iter,
            fit_intercept=self.fit_intercept,
            standardize=self.standardize,
            label=label,
            start=None if start is None else start[0],
            n_jobs=self.n_jobs,
            verbose=self.verbose,
            callback=callback,
            read=lambda _, fit, history: copy.copy(self)._take(problem, fit, history),
        )
        self._warn(fit, program.excess, np.nan)
        return fit, done.history


def _cut_rows(X, engine):
    """Cut X of this process into a block of rows for each worker."""
    import dask.array as da

    n_blocks = max(1, min(open_workers(engine).size()[0], X.shape[0]))
    rows = X if isinstance(X, np.ndarray) else X.tocsr()
    return da.from_array(rows, chunks=(-(-X.shape[0] // n_blocks), X.shape[1]), asarray=False)


def not_owned(penalty, loss):
    """Say why columns that workers own cannot be fitted with a penalty and a loss; None if they can."""
    if not isinstance(penalty, BlockPenalty) or not penalty.convex:
        return "takes the penalties 'l1', 'elastic-net', 'group' and 'sparse-group'"
    if not (loss.has_conjugate and loss.by_rows) or loss.flat or loss.loss.several:
        return (
            "takes the losses 'squared', 'logistic', 'poisson', 'gamma' and 'negative-binomial', whose "
            "duality gap is known and which are curved everywhere"
        )
    if penalty.free.any():
        return (
            "needs a penalty with a kink on every column, but column or group "
            f"{int(np.argmax(penalty.free))} has none (alpha, l1_ratio or penalty_factor is 0)"
        )
    if not (np.isin(penalty.low, (0, -np.inf)) & np.isin(penalty.high, (0, np.inf))).all():
        return "takes bounds of 0 and infinity"
    return None


def terms_of(penalty, loss, name):
    """The terms of a penalty; DataError if columns that workers own cannot be fitted with them."""
    if why := not_owned(penalty, loss):
        raise DataError(
            f"{name} on columns of workers {why}: for others pass X as a Dask array of blocks of rows, or as "
            "an array of this process, with engine='local'"
        )
    starts = penalty.blocks.starts[:-1]
    ridge = np.zeros(len(starts)) if penalty.ridge is None else penalty.ridge[starts]
    return BlockTerms(penalty.lam, penalty.l1, ridge, penalty.low, penalty.high)


def solve_owned(
    columns,
    loss,
    blocks,
    terms,
    *,
    tol,
    max_iter,
    fit_intercept,
    label,
    start=None,
    n_jobs=None,
    verbose=0,
    callback=None,
    read=None,
    **options,
):
    """Solve for one penalty: the program, a `Fit`, and the `Run`.

    `start`: coefficients of all places. ``read(program, fit, history)`` makes the model of a snapshot.
    `options`: of `OwnedBlocks`.
    """
    cut = columns.cut
    if start is not None:
        there = np.logical_or.reduceat(start.any(axis=1), blocks.starts[:-1])
        places = blocks.places(np.flatnonzero(there))[0]
        start = (places, start[places]) if len(places) else None
    program = OwnedBlocks(
        cut.pieces,
        cut.edges,
        loss,
        Blocks(np.arange(len(blocks.order)), blocks.starts, plain=True),
        terms,
        n_shards=open_workers(columns.engine, n_jobs).n_threads(),
        fit_intercept=fit_intercept,
        tol=max(tol, LEAST_TOL),
        max_rounds=max_iter,
        start=start,
        read=exceeds_memory(cut, columns.engine),
        is_sparse=cut.is_sparse,
        **options,
    )
    with single_threaded_blas():
        done = run(
            program,
            program.schedule,
            engine=columns.engine,
            n_jobs=n_jobs,
            max_rounds=_MOST_ROUNDS,
            callback=callback,
            snapshot=read and (lambda history: read(program, program.solution("running"), history)),
            verbose=verbose,
            label=label,
        )
    return program, program.solution(None if program.reason else "stopped"), done


def solve_single_columns(design, loss, alpha, ratio, *, max_iter, start=None, read=None, **options):
    """Solve with an elastic net of the columns of a `Design` that workers own: a `Solution`, and the `Run`.

    `loss`: `mean_loss.MeanLoss`. `alpha`, `ratio`: strength of the penalty, and the share of its l1 part.
    `start`: features and their coefficients. ``read(solution, history)`` makes the model of a snapshot.
    `options`: of `solve_owned`.
    """
    n, p = design.X.shape
    factors = np.ones(p) if design.l1_factors is None else design.l1_factors
    free = np.flatnonzero(factors == 0)
    if alpha == 0 or ratio == 0 or len(free):
        which = f"penalty_factor[{free[0]}] is 0" if len(free) else "alpha or l1_ratio is 0"
        raise DataError(
            "schedule='dynamic' on columns of several workers needs an l1 penalty on every column, but "
            f"{which}: take schedule='auto'"
        )
    ridge = np.where(np.isfinite(factors), alpha * (1 - ratio) * factors, 0.0) if ratio < 1 else np.zeros(p)
    low = np.full(p, 0.0 if design.positive else -np.inf)
    terms = BlockTerms(alpha * ratio * factors, np.zeros(p), ridge, low, np.full(p, np.inf))

    def solution(program, fit):
        features = np.flatnonzero(fit.B[:, 0])
        return Solution(
            strength=alpha * ratio * n,
            features=features,
            coef=fit.B[features, 0],
            intercept=float(fit.intercept[0]),
            objective=fit.objective,
            gap=fit.gap / program.excess,
            gap_absolute=fit.gap,
            rounds=fit.rounds,
            updates=program.updates,
            reason=fit.reason,
        )

    if start is not None:
        features, values = start
        start = np.zeros((p, 1))
        start[features, 0] = values
    program, fit, done = solve_owned(
        CutColumns(design.cut, design.engine, p),
        loss,
        single_columns(p),
        terms,
        max_iter=max_iter or DEFAULT_ROUNDS,
        fit_intercept=design.fit_intercept,
        start=start,
        read=read and (lambda program, fit, history: read(solution(program, fit), history)),
        standardize=design.standardize,
        dtype=design.X.dtype,
        **options,
    )
    return solution(program, fit), done
