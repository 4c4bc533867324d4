"""Second moments of X in blocks of rows, on workers or in files: one pass for a path, and for all its folds.

A pass computes the moments of several parts of the rows (see `moments`), 8 p^2 bytes a part up from each
worker. So a path, or its cross-validation, reads X less often than one fit by the working set does.
"""

import contextlib
import itertools
from functools import partial

import numpy as np

from ...inputs.dask_arrays import is_dask
from .moments import MomentProblem, QuadraticTerms, Shift

_MOST_COLUMNS, _MOST_PRODUCTS = 4000, 1 << 25  # of columns in all parts of the rows: 256 MiB
_FAR = 10.0  # times its variance is the square of a mean, about which the moments are then computed anew


def affords_blocks(X, factors, n_parts=1):
    """Whether moments of blocks of rows are few enough, and every column is penalised or excluded."""
    n_rows, n_columns = X.shape
    few = n_columns <= _MOST_COLUMNS and n_parts * n_columns**2 <= _MOST_PRODUCTS
    return few and n_columns < n_rows and bool(factors is None or (factors > 0).all())


class BlockMoments:
    """Moments of rows that are elsewhere; `rows`: `RowsOnWorkers`, opened. `y`: float64 (n_rows,)."""

    def __init__(self, rows, y, centre):
        self.rows, self.y, self.centre = rows, y[:, None], centre

    def shift(self):
        """The means of the first block, which serve as those of all do, if they are near; see `about`."""
        target = self.y.mean(axis=0) if self.centre else np.zeros(1)
        if not self.centre or self.rows.is_sparse:
            return Shift(np.zeros(self.rows.n_features), target)
        return Shift(self.rows.first_means(), target)

    def moments(self, shift, pairs):
        """Moments for each of pairs of weights and rows (None: all): a pass for each run of equal weights."""
        found: list = []
        for _, run in itertools.groupby(pairs, key=lambda pair: id(pair[0])):
            group = list(run)
            parts = [part for _, part in group]
            found += list(self.rows.moments(self.y, group[0][0], shift, parts))
        return found

    def constant(self, weights, columns):
        """Which of some columns are constant, or without an intercept zero, in the rows that have weight."""
        if not len(columns):
            return np.ones(0, bool)
        least, most = self.rows.ranges(weights, columns)
        return (least == most) & (self.centre | (least == 0))


def about(make, shift):
    """Return ``make(shift)``, which has a problem `whole`; anew about its means, if `shift` is far away."""
    made = make(shift)
    whole = made.whole
    moved = (whole.x_mean - shift.columns)[whole.kept]
    if not whole.terms.fit_intercept or (whole.sound and (moved**2 <= _FAR * np.diagonal(whole.gram)).all()):
        return made
    return make(Shift(whole.x_mean, np.atleast_1d(whole.y_mean)))


class _Whole:
    """The problem of all rows of a design."""

    def __init__(self, design, source, shift):
        (total,) = source.moments(shift, [(design.weights, None)])
        terms = QuadraticTerms(design.l1_factors, design.l2_factors, design.fit_intercept, design.positive)
        constant = partial(source.constant, design.weights)
        self.whole = MomentProblem(terms, shift, total, 0, constant)


def problem_of_blocks(design, y):
    """The `MomentProblem` of a design whose rows are elsewhere, by a pass over them; None if not afforded."""
    if not (is_dask(design.X) and design.cut.by_rows and affords_blocks(design.X, design.l1_factors)):
        return None
    with opened_blocks("X", design.X.rechunk({1: -1}), design.engine, y, design.fit_intercept) as source:
        return about(partial(_Whole, design, source), source.shift()).whole


@contextlib.contextmanager
def opened_blocks(estimator, X, engine, y, centre):
    """Yield the `BlockMoments` of a Dask array; `estimator` is one or its name."""
    from ..structured.solving.rows_on_workers import RowsOnWorkers

    rows = RowsOnWorkers(estimator, X, engine, None, centre=False)
    with rows.opened():
        yield BlockMoments(rows, y, centre)
