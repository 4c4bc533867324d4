"""Averages of the documents' topic counts over the sweeps of a fit, from which their topic shares follow.

The counts after sweep t are added with the weight t^3. So the average follows the chain as it goes on, with
the weight of less than half of its sweeps, whenever it ends. All tokens of a document have one topic each in
every sweep: its sums add up to its length times the sum of the weights, which therefore need not be kept.

Sums have a number for each topic of a document. Where these are many more than its tokens, adding after every
sweep would take longer than the sweep: it is done after every second one or fewer (`sweeps_between`).
"""

import numpy as np

from .restoring import unfit

_POWER = 3  # of a sweep's number: nine tenths of the weight are on the last 44 %
_ROWS = 512  # at a time, so that what is between stays in the cache


def weight_of(sweep):
    """The weight of a sweep, counted from 0."""
    return np.float32(sweep + 1) ** _POWER


def is_added(sweep, between):
    """Whether counts are added after this sweep, counted from 0: every so many, and in the beginning."""
    return sweep + 1 < between or (sweep + 1) % between == 0


def no_sums(n_documents, n_topics, storage):
    """Zeroed arrays for the sums of documents, rows padded to whole cache lines: 4 bytes a topic."""
    return storage.zeros((n_documents, (n_topics + 31) // 32 * 32), np.float32)


def add_rows(counts, weight, sums):
    """Add weighted dense counts of the same shape."""
    for first in range(0, len(sums), _ROWS):
        sums[first : first + _ROWS] += weight * counts[first : first + _ROWS]


def add_csr(indptr, indices, data, weight, sums):
    """Add weighted counts in CSR form, without duplicates."""
    rows = np.repeat(np.arange(len(sums)), np.diff(indptr))
    sums[rows, indices] += weight * data


def check_sums(sums):
    """Refuse sums of a checkpoint, if there are some, that cannot be."""
    if sums is not None and not ((sums >= 0).all() and np.isfinite(sums).all()):
        raise unfit("sums")


def shares_of(sums, lengths, alpha):
    """Topic shares: ``(mean of C_dk + alpha_k) / (L_d + sum(alpha))``; None if nothing was added yet.

    Rows of `sums` may be padded; `alpha` is of all documents, or has a row for each.
    """
    if lengths.any() and not sums.any():
        return None
    shares = sums[:, : alpha.shape[-1]].astype(np.float64)
    shares *= (lengths / np.maximum(shares.sum(axis=1), np.finfo(np.float32).tiny))[:, None]
    shares += alpha
    shares /= shares.sum(axis=1, keepdims=True)
    return shares
