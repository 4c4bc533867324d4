"""Draws of a topic model's counts, thinned and packed, that a fit keeps for intervals."""

import numpy as np
from scipy import sparse

from ....errors import DataError
from ...inputs.indices import narrow_csr

_LARGE = 255  # counts from here on are in an array of their own
_COUNTS = ("sizes", "topics", "values", "large")  # arrays of a packed matrix
_PART = {"both": 4, "other": 2}  # of the sweeps, the last one half; of "auto", which ends by Gibbs, a quarter


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
    counted = {"words": gathered.word_topic_counts(), "documents": gathered.doc_topic_counts()}
    counted["keywords"] = gathered.extra.get("keywords")
    for kind, counts in counted.items():
        if counts is not None:
            draw |= {f"{kind}_{name}": array for name, array in pack(counts).items()}
    return {name: np.array(array) for name, array in draw.items()}


def pack(counts):
    """Arrays of a CSR matrix of counts: 2 bytes a non-zero up to 256 topics, 3 above, 1 or 2 a row."""
    counts = sparse.csr_array(counts)
    large = counts.data >= _LARGE
    return {
        "sizes": _narrow(np.diff(counts.indptr)),
        "topics": _narrow(counts.indices),
        "values": np.minimum(counts.data, _LARGE).astype(np.uint8),
        "large": counts.data[large].astype(np.int32),
    }


def _narrow(values):
    return values.astype(np.min_scalar_type(values.max(initial=0)))


def unpack(draw, kind, shape):
    """The counts of ``"words"``, ``"documents"`` or ``"keywords"`` of a draw, CSR; None if it has none."""
    if f"{kind}_sizes" not in draw:
        return None
    sizes, topics, values, large = (draw[f"{kind}_{name}"] for name in _COUNTS)
    data = values.astype(np.int32)
    data[values == _LARGE] = large
    indptr = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
    return narrow_csr(data, topics, indptr, shape[1])


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
    sizes, topics, values, large = (draw[f"{kind}_{name}"] for name in _COUNTS)
    fits = all(part.ndim == 1 and part.dtype.kind in "iu" for part in (sizes, topics, values, large))
    fits = fits and values.dtype == np.uint8 and len(sizes) == n_rows and (sizes >= 0).all()
    fits = fits and int(sizes.sum(dtype=np.int64)) == len(topics) == len(values)
    fits = fits and topics.min(initial=0) >= 0 and topics.max(initial=0) < n_topics
    return fits and len(large) == np.count_nonzero(values == _LARGE) and (large >= _LARGE).all()
