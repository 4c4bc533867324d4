r"""Which topics of a hierarchical prior are one: pairs that make the whole more likely when they are joined.

After sweep 89, 99, ..., 149 (annealing ends with the 80th) the two nearest topics of each are named, by the
overlap of their words (Hellinger). After the next sweep each pair i, j is judged by the change of the
logarithm of the joint probability when j's tokens go to i, and alpha_j to alpha_i. The part of i in their sum
is integrated out, given the expected numbers m of tables: two topics have one more share to fit than one.

.. math:: \Delta = \sum_w \ln\frac{B_w(C_{wi} + C_{wj})\, B_w(0)}{B_w(C_{wi})\, B_w(C_{wj})}
          - \ln\frac{B(C_i + C_j)\, B(0)}{B(C_i)\, B(C_j)}
          + \sum_d \ln\frac{A_{i+j}(n_{di} + n_{dj})}{A_i(n_{di})\, A_j(n_{dj})}
          + \ln\frac{G(m_i + m_j)\, G(0)}{G(m_i)\, G(m_j)}
          + m_i \ln\frac{\alpha_i}{\alpha_{i+j}} + m_j \ln\frac{\alpha_j}{\alpha_{i+j}}

with :math:`B_w(c) = \Gamma(c + \beta_w)`, B that of the sums, :math:`A_k(n) = \Gamma(n + \alpha_k) /
\Gamma(\alpha_k)`, :math:`\alpha_{i+j} = \alpha_i + \alpha_j` and :math:`G(m) = \Gamma(m + \gamma / T)`. Pairs
of which it is above zero become one, the largest first and each topic once, at the beginning of the sweep
that follows. Shards and blocks do that when they are next worked on: until then all counts are those of
before, so that a model may be read, and a checkpoint written, at any time.
"""

import numpy as np
from scipy import sparse
from scipy.special import digamma, gammaln

from ..blocks.restoring import taken, unfit
from ..rules import ANNEALED_SWEEPS

LAST = 150  # sweep after which topics become one for the last time
_EVERY = 10  # sweeps between two comparisons
_NEAREST = 2  # topics to each that are candidates
_MOST_TOPICS = 1024  # blocks send T^2 numbers
_AT_ONCE = 2**20  # pairs of counts that are tallied in a table


class Merging:
    """What is compared, and what becomes one; the steps of a shard, of a block, and of the coordinator.

    Attributes
    ----------
    wanted : bool
        Whether there are merges at all.
    overlap : bool
        Whether blocks say after the sweep that runs how much topics overlap.
    pairs : int64 array of shape (n, 2)
        Topics that are compared after the sweep that runs.
    names : int64 array of shape (n_topics,), or None
        The topic that each one is from the sweep on that runs.
    """

    def __init__(self, n_topics, merges):
        self.n_topics, self.wanted = n_topics, merges and 1 < n_topics <= _MOST_TOPICS
        self.overlap, self.pairs, self.names = False, np.zeros((0, 2), np.int64), None

    @staticmethod
    def added(values, names, left=0):
        """Counts, or alpha, when topics become one; a topic that is no more keeps what is `left`."""
        values = values.copy()
        gone = np.flatnonzero(names != np.arange(len(names)))
        for topic in gone:
            values[..., names[topic]] += values[..., topic]
        values[..., gone] = left
        return values

    # At a shard and a block -----------------------------------------------------------------------

    def of_documents(self, state):
        """The change of the documents' part for each pair that is compared."""
        if not len(state["pairs"]):
            return {}
        counts = sparse.csc_array(state["documents"].csr())
        return {"gains": gains_of_documents(counts, state["priors"].alpha, state["pairs"])}

    def of_words(self, state, counts, beta):
        """The change of the words' part for each pair, or how much topics overlap, if that is asked for."""
        if len(state["pairs"]):
            return {"word_gains": gains_of_words(counts, beta, state["pairs"])}
        return {"word_overlap": sum(map(_overlap, counts))} if state["overlap"] else {}

    # At the coordinator ---------------------------------------------------------------------------

    def decide(self, swept, of_documents, of_blocks, totals, alpha, counts, gamma, beta_sum):
        """Choose pairs to compare, or those that become one, from the figures of shards and blocks.

        `counts` are how often counts of topics occur among the documents.
        """
        pairs, self.pairs, self.names = self.pairs, self.pairs[:0], None
        if self.overlap:
            self.pairs = nearest(sum(figures.pop("word_overlap") for figures in of_blocks), totals)
        if len(pairs):
            gains = sum(figures.pop("gains") for figures in of_documents)
            gains = gains + sum(figures.pop("word_gains") for figures in of_blocks)
            i, j = pairs.T
            gains -= _joined(totals.astype(float), beta_sum, i, j)
            gains += gains_of_shares(_expected_tables(counts, alpha), alpha, gamma / self.n_topics, i, j)
            self.names = _names(pairs, gains, totals)
        self.overlap = self.wanted and is_compared(swept + 2)

    def message(self):
        """What is sent to shards."""
        found = {"overlap": self.overlap, "pairs": self.pairs}
        return found if self.names is None else found | {"names": self.names}

    def arrays(self):
        """Arrays of a checkpoint."""
        names = np.arange(self.n_topics) if self.names is None else self.names
        return {"overlap": np.bool_(self.overlap), "pairs": self.pairs, "names": names}

    def restore(self, arrays):
        """Take those of a checkpoint."""
        overlap, pairs, names = taken(arrays, "overlap", "pairs", "names")
        fits = overlap.shape == () and overlap.dtype == np.bool_ and names.shape == (self.n_topics,)
        fits = fits and pairs.ndim == 2 and pairs.shape[1] == 2
        for array in (pairs, names):
            fits = fits and array.dtype == np.int64 and bool(((array >= 0) & (array < self.n_topics)).all())
        if not fits or (names[names] != names).any():
            raise unfit("pairs", "names")
        self.overlap, self.pairs = bool(overlap), pairs
        self.names = None if (names == np.arange(self.n_topics)).all() else names


def is_compared(swept):
    """Whether topics are compared when so many sweeps are done."""
    return swept % _EVERY == 0 and ANNEALED_SWEEPS < swept <= LAST


def nearest(overlap, totals):
    """The nearest topics of each topic that has tokens, as pairs."""
    near = overlap / np.sqrt(np.maximum(np.outer(totals, totals), 1))
    near[totals == 0], near[:, totals == 0] = -1.0, -1.0
    np.fill_diagonal(near, -1.0)
    found = np.argsort(-near, axis=1, kind="stable")[:, :_NEAREST]
    topics = np.repeat(np.arange(len(totals)), found.shape[1])
    pairs = np.sort(np.column_stack([topics, found.ravel()]), axis=1)
    return np.unique(pairs[near[topics, found.ravel()] > 0], axis=0).reshape(-1, 2)


def gains_of_documents(counts, alpha, pairs):
    """Change of the documents' part for each pair; `counts` are CSC, documents x topics."""
    gains, n_documents = np.zeros(len(pairs)), counts.shape[0]
    own = np.zeros((2, n_documents), np.int64)
    for number, pair in enumerate(pairs):
        spans = [slice(*counts.indptr[k : k + 2]) for k in pair]
        for values, span in zip(own, spans, strict=True):
            values[counts.indices[span]] = counts.data[span]
        there = np.flatnonzero(own[0] + own[1])
        width = int(own[1].max(initial=0)) + 1
        codes = own[0, there] * width + own[1, there]
        kinds, times = _tally(codes)
        a, b = alpha[pair]
        x, y = kinds // width, kinds % width
        gains[number] = (times * (_rising(x + y, a + b) - _rising(x, a) - _rising(y, b))).sum()
        for values, span in zip(own, spans, strict=True):
            values[counts.indices[span]] = 0
    return gains


def _tally(codes):
    if codes.max(initial=0) < _AT_ONCE:
        times = np.bincount(codes)
        kinds = np.flatnonzero(times)
        return kinds, times[kinds]
    return np.unique(codes, return_counts=True)


def _rising(n, a):
    return gammaln(n + a) - gammaln(a)


def gains_of_words(counts, beta, pairs):
    """Change of the words' part for each pair; `counts` are CSR matrices of the words one after another."""
    counts = sparse.csc_array(sparse.vstack(counts, format="csc"))
    gains, own = np.zeros(len(pairs)), np.zeros(counts.shape[0], np.int64)
    for number, (i, j) in enumerate(pairs):
        of_i, of_j = (slice(*counts.indptr[k : k + 2]) for k in (i, j))
        own[counts.indices[of_i]] = counts.data[of_i]
        words, b = counts.indices[of_j], counts.data[of_j]
        a = own[words]
        both = a > 0  # a word of one of the two changes nothing
        a, b, prior = a[both], b[both], beta[words[both]]
        gains[number] = (
            gammaln(a + b + prior) + gammaln(prior) - gammaln(a + prior) - gammaln(b + prior)
        ).sum()
        own[counts.indices[of_i]] = 0
    return gains


def _overlap(counts):
    """Sums over words of the root of the product of two topics' counts."""
    if counts.shape[0] * counts.shape[1] < 4 * counts.nnz:
        roots = np.sqrt(counts.toarray(), dtype=np.float32)
        return (roots.T @ roots).astype(np.float64)
    roots = counts.astype(np.float64)
    roots.data = np.sqrt(roots.data)
    return (roots.T @ roots).toarray()


def _joined(counts, prior, i, j):
    """Change of the sum of ln Gamma(count + prior) when j's counts go to i."""
    whole = gammaln(counts[i] + counts[j] + prior) + gammaln(prior)
    return whole - gammaln(counts[i] + prior) - gammaln(counts[j] + prior)


def gains_of_shares(tables, alpha, weight, i, j):
    """Change by the prior of shares: how i and j part their sum is integrated out, where it was as alpha."""
    both = alpha[i] + alpha[j]
    as_given = tables[i] * np.log(alpha[i] / both) + tables[j] * np.log(alpha[j] / both)
    return _joined(tables, weight, i, j) + as_given


def _expected_tables(counts, alpha):
    topics, values, times = counts
    weights = times * alpha[topics] * (digamma(alpha[topics] + values) - digamma(alpha[topics]))
    return np.bincount(topics, weights, len(alpha))


def _names(pairs, gains, totals):
    """The topic that each one becomes: of a pair the one of more tokens; None if there is no pair."""
    names = np.arange(len(totals))
    free = np.ones(len(totals), bool)
    for number in np.argsort(-gains, kind="stable"):
        if gains[number] <= 0:
            break
        i, j = pairs[number]
        if free[i] and free[j]:
            free[i] = free[j] = False
            names[[i, j]] = i if totals[i] >= totals[j] else j
    return None if free.all() else names
