"""New ratings for a model whose old ones are not at hand."""

import dataclasses

import numpy as np
from scipy import sparse

from ...errors import DataError
from .als import padded, solve_table
from .entries import Entries, find_ids
from .sides import Sides

_ROUNDS = 3  # of all users and all items


def widened(entries, given, sides, known, seen):
    """Bring new ratings and an old model to a common numbering of users and items.

    Parameters
    ----------
    entries : Entries
    given : pair of ndarrays
        Ids of the users and items of `entries`.
    sides : Sides
    known : pair of ndarrays
        Ids of the model's users and items.
    seen : csr_array
        Cells of the old ratings.

    Returns
    -------
    entries : Entries
    sides : Sides
        With zeros for what is new.
    seen : csr_array of int8
    ids : pair of ndarrays
        Sorted.

    Raises
    ------
    DataError
        If ids are numbers on the one side and text on the other.
    """
    ids = []
    for what, new, old in zip(("users", "items"), given, known, strict=True):
        if new.dtype.kind != old.dtype.kind:
            raise DataError(f"the ids of the model's {what} are {_kind(old)}, but {_kind(new)} are given")
        ids.append(np.union1d(old, new))
    shape = (len(ids[0]), len(ids[1]))
    rows, columns = (find_ids(new, every) for new, every in zip(given, ids, strict=True))
    places = [find_ids(old, every) for old, every in zip(known, ids, strict=True)]
    order = Entries.make(
        rows[entries.rows], columns[entries.indices], entries.values, entries.weights, shape, str
    )
    cells = seen.tocoo()
    seen = sparse.csr_array((cells.data, (places[0][cells.row], places[1][cells.col])), shape=shape)
    factors, bias = [], []
    for place, every, table, shift in zip(
        places,
        ids,
        (sides.user_factors, sides.item_factors),
        (sides.user_bias, sides.item_bias),
        strict=True,
    ):
        factors.append(np.zeros((len(every), table.shape[1]), table.dtype))
        bias.append(np.zeros(len(every), table.dtype))
        factors[-1][place], bias[-1][place] = table, shift
    return order, Sides.of(factors, bias, sides.mean), seen, tuple(ids)


def _kind(ids):
    return "text" if ids.dtype.kind == "U" else "whole numbers"


def updated(entries, sides, seen, settings):
    """Move the rows that are rated anew; see `MatrixFactorization.partial_fit`.

    Parameters
    ----------
    entries : Entries
        The new ratings.
    sides : Sides
    seen : csr_array
        Cells of the old ratings.
    settings : Settings

    Returns
    -------
    Sides
    """
    tables = entries, entries.transposed()
    old = [padded(sides.user_factors), padded(sides.item_factors)]
    old_bias = [sides.user_bias, sides.item_bias]
    counts = [np.diff(seen.indptr), np.bincount(seen.indices, minlength=seen.shape[1])]
    now, now_bias = [part.copy() for part in old], [part.copy() for part in old_bias]
    for _ in range(_ROUNDS):
        for side in (0, 1):
            own = old[side], old_bias[side], counts[side]
            other = now[1 - side], now_bias[1 - side], counts[1 - side]
            move, shift = _moves(tables[side], own, other, sides.mean, settings)
            now[side], now_bias[side] = old[side] + move, old_bias[side] + shift
    K = settings.n_components
    factors = [np.ascontiguousarray(part[:, :K]) for part in now]
    return Sides.of(factors, now_bias, sides.mean)


def _moves(table, own, other, mean, settings):
    """Solve for how far the rows of a side move, given the other side as it is now."""
    (factors, bias, counts), (others, other_bias, other_counts) = own, other
    dtype = factors.dtype
    misses = table.values - _predicted(table, factors, bias, others, other_bias, mean)
    residuals = dataclasses.replace(table, values=misses)
    # n old ratings cost n (C + reg I), and n for the bias, which the penalty brings: so C - I is the rest.
    spread = (others.T * (other_counts / max(other_counts.sum(), 1)).astype(dtype)) @ others
    told = {
        "factors": others,
        "offsets": np.zeros(len(others), dtype),
        "gram": spread - np.eye(len(spread), dtype=dtype),
    }
    ridge = settings.ridge(counts + table.counts, dtype) + counts.astype(dtype)
    move, shift = np.zeros_like(factors), np.zeros_like(bias)
    solve_table(
        residuals,
        told,
        settings,
        move,
        shift,
        shares=counts.astype(dtype),
        ridge=ridge,
        n_jobs=settings.n_jobs,
    )
    return move, shift


def _predicted(table, factors, bias, others, other_bias, mean):
    values = np.empty_like(table.values)
    for start in range(0, len(factors), 4096):
        part = table.part(start, min(start + 4096, len(factors)))
        rows = part.rows + start
        products = np.einsum("ij,ij->i", factors[rows], others[part.indices])
        held = slice(table.indptr[start], table.indptr[start] + len(part))
        values[held] = products + bias[rows] + other_bias[part.indices] + values.dtype.type(mean)
    return values
