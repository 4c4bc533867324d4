"""Shared by the solvers of matrix factorization: settings, the model, shards of rows, and row tasks."""

import itertools
from dataclasses import dataclass

import numpy as np

from ....scheduler.schedules.schedule import Schedule
from ....scheduler.threads import effective_n_jobs, run_tasks
from ..entries import Entries

N_SHARDS = 16  # of "als" and "ccd", on any number of threads and workers: the result depends on it
INITIAL_SPREAD = 0.1  # standard deviation of their initial factors, and of losses of pairs
_PARTS = 4  # tasks a thread, for balance


@dataclass(frozen=True)
class Settings:
    """Parameters of a fit that solvers read, checked; see `MatrixFactorization`."""

    n_components: int
    reg: float
    feature_reg: float
    bias_reg: tuple | None  # of users and of items; None: that of factors
    offsets: tuple  # of the counts of users and of items, in the penalty
    exponent: float
    bias: bool
    non_negative: bool
    implicit: bool
    max_iter: int
    learning_rate: float
    n_blocks: int
    wire: str | None
    n_jobs: int | None
    n_draws: int = 0
    loss: str = "squared"

    def ridge(self, counts, dtype, side):
        """Penalty of the factors of each row of users (side 0) or items (side 1).

        A row without ratings stays at 0 and counts as one rating.
        """
        scale = (np.maximum(counts, 1) + self.offsets[side]) ** self.exponent
        return (self.reg * scale).astype(dtype)

    def bias_ridge(self, counts, dtype, side):
        """Penalty of the bias of each row of users (side 0) or items (side 1)."""
        if self.bias_reg is None:
            return self.ridge(counts, dtype, side)
        return np.full(len(counts), self.bias_reg[side], dtype)

    def ridges(self, counts, dtype, side):
        """Penalties of factors and of biases."""
        return self.ridge(counts, dtype, side), self.bias_ridge(counts, dtype, side)


@dataclass
class Sides:
    """A model: ``mean + user_bias[u] + item_bias[j] + user_factors[u] @ item_factors[j]``."""

    user_factors: np.ndarray
    item_factors: np.ndarray
    user_bias: np.ndarray
    item_bias: np.ndarray
    mean: float
    weights: tuple = (None, None)  # of the features of users and of items; see `features.LinearPrior`
    draws: tuple | None = None  # of factors of users, of items, and of the variance of a rating

    @classmethod
    def of(cls, factors, bias, mean, weights=(None, None)):
        """Make a model of pairs of users' and items' arrays."""
        return cls(factors[0], factors[1], bias[0], bias[1], mean, weights)

    def predict(self, users, items):
        """Predict pairs of rows; -1 stands for a row that is not known, of factors and bias 0."""
        out = np.empty(len(users))
        for start in range(0, len(users), 65536):
            u, j = users[start : start + 65536], items[start : start + 65536]
            known_u, known_j = u >= 0, j >= 0
            value = self.mean + self.user_bias[u].astype(np.float64) * known_u
            value += self.item_bias[j] * known_j
            if self.user_factors.shape[1]:
                products = np.einsum("ij,ij->i", self.user_factors[u], self.item_factors[j])
                value += products * (known_u & known_j)
            out[start : start + 65536] = value
        return out

    def penalty(self, user_ridges, item_ridges):
        """Penalties of factors and biases, given a pair of penalties a row of each side."""
        return penalty_of(self.user_factors, self.user_bias, *user_ridges) + penalty_of(
            self.item_factors, self.item_bias, *item_ridges
        )


def joined_parts(partials):
    """Join dicts, of partial results their entry "joined", which is taken out; None if all are empty.

    No two have the same key, so that any grouping and order give the same.
    """
    parts = [part.pop("joined", None) if "joined" in part else part for part in partials]
    found = {key: value for part in parts if part for key, value in part.items()}
    return found or None


def penalty_of(factors, bias, ridge, bias_ridge):
    """Penalty of one side."""
    squares = np.einsum("ij,ij->i", factors, factors, dtype=np.float64)
    total = np.dot(ridge.astype(np.float64), squares)
    return float(total + np.dot(bias_ridge.astype(np.float64), bias.astype(np.float64) ** 2))


def start_factors(rng, entries, settings, spread):
    """Draw initial factors: normal of standard deviation `spread`, absolute if `non_negative`."""
    sides = []
    for n in entries.shape:
        drawn = spread * rng.standard_normal((n, settings.n_components))
        sides.append((np.abs(drawn) if settings.non_negative else drawn).astype(entries.dtype))
    return sides


def mean_rating(entries: Entries, settings):
    """Weighted mean; 0 for a model without biases."""
    if not settings.bias:
        return 0.0
    return entries.average(lambda values: values)


def deviation(entries, mean):
    """Weighted standard deviation of the ratings; 1 if all are equal."""
    spread = float(np.sqrt(entries.average(lambda values: (values - mean) ** 2)))
    return spread if spread > 1e-6 * np.abs(entries.values).max() else 1.0


class InTurn(Schedule):
    """All shards work on one block, then on the next; `blocks` is their order in a round, with repeats."""

    def __init__(self, n_shards, blocks):
        self.n_shards, self.blocks = n_shards, blocks

    def plan(self, round, state):
        """Assign each block to every shard."""
        return [[(shard, block) for shard in range(self.n_shards)] for block in self.blocks]


def shards_of(tables, n_shards):
    """Cut ratings by user and by item into ranges of rows: lists of ``(Entries, (first, last))``."""
    cuts = [cut_rows(table.indptr, n_shards) for table in tables]
    return [
        [(table.part(*pair), pair) for table, pair in zip(tables, pairs, strict=True)]
        for pairs in zip(*(itertools.pairwise(cut) for cut in cuts), strict=True)
    ]


def cut_rows(indptr, n_parts):
    """Cut rows into non-empty ranges of about equal work; return where each begins, and the end."""
    work = indptr + 8 * np.arange(len(indptr))  # a row costs something by itself
    cuts = np.searchsorted(work, np.linspace(0, work[-1], n_parts + 1))
    least = np.arange(n_parts + 1)
    cuts = np.maximum.accumulate(np.maximum(cuts, least) - least) + least
    return np.minimum(cuts, len(indptr) - 1 - least[::-1]).tolist()


def run_rows(kernel, indptr, n_jobs, *arrays):
    """Call ``kernel(start, stop, indptr, *arrays)`` over ranges of rows of about as many ratings each."""
    n_rows, threads = len(indptr) - 1, effective_n_jobs(n_jobs)
    parts = 1 if threads == 1 else min(n_rows, _PARTS * threads)
    work = indptr + np.arange(n_rows + 1)  # a row costs something by itself
    cuts = np.searchsorted(work, np.linspace(0, work[-1], parts + 1))
    cuts[0], cuts[-1] = 0, n_rows
    pairs = [(int(a), int(b)) for a, b in itertools.pairwise(cuts) if a < b]
    run_tasks([(kernel, (a, b, indptr, *arrays)) for a, b in pairs], n_jobs)


def ranges_of(indptr, size=1 << 16):
    """Cut rows into ranges of about `size` ratings, at least one row each."""
    cuts = np.searchsorted(indptr, np.arange(0, indptr[-1], size), side="right") - 1
    return list(itertools.pairwise(np.unique(np.append(cuts, len(indptr) - 1)).tolist()))
