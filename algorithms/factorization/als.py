"""Alternating least squares, for ratings and for implicit feedback."""

import numpy as np

from ...kernels.mf_als import conjugate_rows, implicit_losses, row_losses, solve_rows
from ...kernels.mf_lanes import LANES
from ...scheduler.threads import single_threaded_blas
from .sides import Sides, mean_rating, run_rows, start_factors

_SWEEPS = 5  # of coordinate descent over a row's factors, where they must not be negative
_FOLD_IN_SWEEPS = 200  # the same for a new row, which has no factors to begin from
_STEPS = 3  # of conjugate gradients a row and iteration
_SPREAD = 0.1  # of the factors to begin with


class AlternatingLeastSquares:
    """All users' factors at once, then all items'; the objective never rises.

    A bias is one more factor, whose counterpart on the other side is 1: so both are solved for together.

    Parameters
    ----------
    entries : Entries
        Ratings by user; for implicit feedback the values are confidences, negative ones of dislikes.
    settings : Settings
    rng : numpy Generator
    """

    def __init__(self, entries, settings, rng):
        self._settings = settings
        self._mean = mean_rating(entries, settings)
        self._tables = (entries, entries.transposed())
        self._terms = [_terms(table, settings) for table in self._tables]
        dtype = entries.values.dtype
        self._ridges = [settings.ridge(table.counts, dtype) for table in self._tables]
        drawn = start_factors(rng, entries, settings, _SPREAD)
        self._factors = [_with_column(part, 0.0) if settings.bias else part for part in drawn]
        if self._by_steps:
            self._factors = [_padded(part) for part in drawn]

    def step(self, _):
        """Solve for both sides once; return figures for the history."""
        half = self._by_conjugate_gradients if self._by_steps else self._exactly
        with single_threaded_blas():
            for side in (0, 1):
                half(side)
            objective = self._implicit_loss() if self._settings.implicit else self._explicit_loss()
        objective += self.sides.penalty(*self._ridges)
        return {"objective": objective, "updates": len(self._tables[0])}

    @property
    def _by_steps(self):
        return self._settings.implicit and not self._settings.non_negative

    @property
    def sides(self):
        """The model so far, in memory of its own."""
        K = self._settings.n_components
        factors = [f[:, :K].copy() for f in self._factors]
        bias = [f[:, K].copy() if self._settings.bias else np.zeros(len(f), f.dtype) for f in self._factors]
        return Sides.of(factors, bias, self._mean)

    def _exactly(self, side):
        others, offsets = self._other(side)
        solve_side(
            self._tables[side],
            self._terms[side],
            others,
            offsets,
            self._ridges[side],
            self._settings,
            _SWEEPS,
            self._factors[side],
        )

    def _by_conjugate_gradients(self, side):
        table, others = self._tables[side], self._factors[1 - side]
        run_rows(
            conjugate_rows,
            table.indptr,
            self._settings.n_jobs,
            table.indices,
            *self._terms[side],
            others,
            others.T @ others,
            self._ridges[side],
            _STEPS,
            self._factors[side],
            (0,) * (others.shape[1] // LANES),
        )

    def _other(self, side):
        """Return the other side's factors, with 1 for the bias, and what its rows add by themselves."""
        others = self._factors[1 - side]
        if not self._settings.bias:
            return others, np.zeros(len(others), others.dtype)
        offsets = others[:, -1] + others.dtype.type(self._mean)
        return _with_column(others[:, :-1], 1.0), offsets

    def _explicit_loss(self):
        table, users = self._tables[0], self._factors[0]
        others, offsets = self._other(0)
        losses = np.empty(len(users))
        arrays = (table.indices, table.weights, table.values, offsets, others, users, losses)
        run_rows(row_losses, table.indptr, self._settings.n_jobs, *arrays)
        return float(losses.sum())

    def _implicit_loss(self):
        table, (users, items) = self._tables[0], self._factors
        losses = np.empty(len(users))
        arrays = (table.indices, table.values, items, users, losses)
        run_rows(implicit_losses, table.indptr, self._settings.n_jobs, *arrays)
        grams = [part.T @ part for part in (users.astype(np.float64), items.astype(np.float64))]
        return float(losses.sum() + np.sum(grams[0] * grams[1]))


def fold_in(entries, sides, settings):
    """Solve for new rows, given the items of a model.

    Parameters
    ----------
    entries : Entries
        Ratings of the new rows, or confidences.
    sides : Sides
    settings : Settings

    Returns
    -------
    factors : ndarray of shape (n_rows, n_components)
    bias : ndarray of shape (n_rows,)
    """
    dtype = sides.item_factors.dtype
    others, offsets = sides.item_factors, np.zeros(len(sides.item_factors), dtype)
    if settings.bias:
        others, offsets = _with_column(others, 1.0), sides.item_bias + dtype.type(sides.mean)
    out = np.zeros((entries.shape[0], others.shape[1]), dtype)
    ridge = settings.ridge(entries.counts, dtype)
    terms = _terms(entries, settings)
    with single_threaded_blas():
        solve_side(entries, terms, others, offsets, ridge, settings, _FOLD_IN_SWEEPS, out)
    K = settings.n_components
    return np.ascontiguousarray(out[:, :K]), out[:, K].copy() if settings.bias else np.zeros(len(out), dtype)


def solve_side(table, terms, others, offsets, ridge, settings, sweeps, out):
    """Put the factors of a side that minimise the objective into `out`, given the other side."""
    d = others.shape[1]
    base = others.T @ others if settings.implicit else np.zeros((d, d), others.dtype)
    run_rows(
        solve_rows,
        table.indptr,
        settings.n_jobs,
        table.indices,
        *terms,
        offsets,
        others,
        base,
        ridge,
        settings.n_components if settings.non_negative else 0,
        sweeps,
        out,
    )


def _terms(table, settings):
    """Return weights and pulls of the ratings in the normal equations."""
    if settings.implicit:  # the cells off the data, of confidence 1, are in the Gram matrix already
        return np.abs(table.values) - 1, np.maximum(table.values, 0)
    return table.weights, table.weights * table.values


def _padded(factors):
    """Add columns of zeros, which stay so, up to whole vectors."""
    return np.pad(factors, [(0, 0), (0, -factors.shape[1] % LANES)])


def _with_column(factors, value):
    out = np.full((len(factors), factors.shape[1] + 1), value, factors.dtype)
    out[:, :-1] = factors
    return out
