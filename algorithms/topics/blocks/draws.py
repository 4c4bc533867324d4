"""Draws of a topic model's counts, thinned and packed, that a fit keeps for intervals."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import sparse

from ....errors import DataError
from .packing import LARGE, PARTS, pack_counts, unpack_counts

_PART = {"both": 4, "other": 2}  # of the sweeps, the last one half; of "auto", which ends by Gibbs, a quarter


@dataclass(frozen=True)
class Gathered:
    """A fitted model, taken from shards and blocks before they are let go.

    `documents` and `words` are counts of topics, CSR, `shares` those of documents averaged over sweeps: None
    where documents stay in shards, or no sweep was averaged. `joint` is the log-likelihood per token, and
    `extra` is of the sampler.
    """

    ran: list
    alpha: Any
    beta: Any
    seeds: Any
    labels: Any
    documents: Any
    words: Any
    joint: float
    shares: Any
    extra: dict = field(default_factory=dict)


def sweeps_of_draws(n_draws, max_iter, sampler):
    """Sweeps, counted from 1, after which draws are taken: evenly spaced, up to the last one."""
    available = max(max_iter // _PART.get(sampler, _PART["other"]), 1)
    if n_draws > available:
        raise DataError(
            f"n_draws={n_draws} are taken from the last {available} of max_iter={max_iter} sweeps: set "
            f"max_iter={max_iter * n_draws // available + 1} or more, or fewer draws"
        )
    step = available // n_draws
    return [max_iter - step * (n_draws - 1 - i) for i in range(n_draws)]


class ThinnedDraws:
    """Draws by sweep, which `stradask.scheduler.engine.run` takes and writes into checkpoints."""

    def __init__(self, sweeps):
        self._sweeps, self._kept = frozenset(sweeps), {}

    def take(self, sweep, collect):
        """Keep what a program has after a sweep, if it is time."""
        if sweep in self._sweeps:
            self._kept[sweep] = _packed_draw(collect())

    def arrays(self):
        """Arrays of a checkpoint."""
        return {
            f"{sweep}/{name}": array for sweep, draw in self._kept.items() for name, array in draw.items()
        }

    def restore(self, arrays):
        """Take the draws of a checkpoint that this fit keeps, too."""
        for place, array in arrays.items():
            sweep, _, name = place.partition("/")
            if sweep.isdecimal() and int(sweep) in self._sweeps:
                self._kept.setdefault(int(sweep), {})[name] = array

    def in_order(self):
        """For `LatentDirichletAllocation.draws_`."""
        return [{"sweep": np.int64(sweep)} | self._kept[sweep] for sweep in sorted(self._kept)]


def _packed_draw(gathered):
    alpha, beta = np.asarray(gathered.alpha), np.asarray(gathered.beta)
    draw = {"alpha": alpha, "beta": beta[:1] if np.ptp(beta) == 0 else beta}
    counted = {"words": gathered.words, "documents": gathered.documents}
    counted["keywords"] = gathered.extra.get("keywords")
    for kind, counts in counted.items():
        if counts is not None:
            packed = pack_counts(sparse.csr_array(counts))
            draw |= {f"{kind}_{name}": array for name, array in zip(PARTS, packed, strict=True)}
    return {name: np.array(array) for name, array in draw.items()}


def unpack(draw, kind, shape):
    """The counts of ``"words"``, ``"documents"`` or ``"keywords"`` of a draw, CSR; None if it has none."""
    if f"{kind}_sizes" not in draw:
        return None
    return unpack_counts([draw[f"{kind}_{name}"] for name in PARTS], shape[1])


def check_draws(draws, shape, documents, keywords=False):
    """Hold the draws of a model file against its sizes: words x topics, and counts of documents or None."""
    rows = {"words": shape[0], "documents": None if documents is None else documents.shape[0]}
    rows["keywords"] = shape[0] if keywords else None
    if not all(_fits(draw, rows, *shape) for draw in draws):
        raise DataError("draws_ cannot be those of this model")


def _fits(draw, rows, n_words, n_topics):
    alpha, beta = draw["alpha"], draw["beta"]
    fits = alpha.shape == (n_topics,) and beta.shape in ((1,), (n_words,))
    fits = fits and all(np.isfinite(prior).all() and (prior > 0).all() for prior in (alpha, beta))
    return fits and all(_fits_rows(draw, kind, n_rows, n_topics) for kind, n_rows in rows.items())


def _fits_rows(draw, kind, n_rows, n_topics):
    if n_rows is None:
        return f"{kind}_sizes" not in draw
    sizes, topics, values, large = (draw[f"{kind}_{name}"] for name in PARTS)
    fits = all(part.ndim == 1 and part.dtype.kind in "iu" for part in (sizes, topics, values, large))
    fits = fits and values.dtype == np.uint8 and len(sizes) == n_rows and (sizes >= 0).all()
    fits = fits and int(sizes.sum(dtype=np.int64)) == len(topics) == len(values)
    fits = fits and topics.min(initial=0) >= 0 and topics.max(initial=0) < n_topics
    return fits and len(large) == np.count_nonzero(values == LARGE) and (large >= LARGE).all()
