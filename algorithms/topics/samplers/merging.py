r"""Which topics of a hierarchical prior the data are more likely without: parts of others, and leftovers.

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
that follows.

From sweep 160 on, every ten, each topic is also judged by itself, by the change when the others, as counts of
them are, share its tokens:

.. math:: \Delta = \sum_i \Bigl(\ln \sum_{j \ne k} p_{ij} - H_i\Bigr)
          - \sum_w \ln\frac{B_w(C_{wk})}{B_w(0)} + \ln\frac{B(C_k)}{B(0)} - \sum_d \ln A_k(n_{dk}),
          \quad p_{ij} = \frac{(n_{d_i j} + \alpha_j)(C_{w_i j} + \beta_{w_i})}{C_j + B}

over the topic's tokens i; :math:`H_i` is the entropy of the token's topic given those of all other tokens. So
probabilities are summed over the topics of these tokens, not compared at single draws: a topic of many words,
whose tokens might as well be of others, has many ways to be there. Where :math:`\Delta` is above zero the
topic is one of leftovers, such as words that are together in a few documents by chance. It joins the topic to
which most tokens would go, whence they find their own in the sweeps that follow, and neither it nor a topic
without tokens is taken up again: from then on topics only become fewer. A topic that another one joins stays
until the next comparison.

Shards and blocks do that when they are next worked on: until then all counts are those of
before, so that a model may be read, and a checkpoint written, at any time.
"""

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.special import digamma, expit, gammaln

from ....kernels.lda.tallies import add_gains_without
from ..blocks.restoring import taken, unfit
from ..rules import ANNEALED_SWEEPS

LAST, FIRST_JUDGED = 150, 160  # sweeps after which the last pairs, and the first single topics, are judged
_EVERY = 10  # sweeps between two comparisons
_NEAREST = 2  # topics to each that are candidates
_MOST_TOPICS = 1024  # blocks send T^2 numbers
_AT_ONCE = 2**20  # pairs of counts that are tallied in a table


class MergeOrders(NamedTuple):
    """What shards and blocks do for merging, see `Merging`."""

    overlap: bool = False
    pairs: Any = np.zeros((0, 2), np.int64)
    judges: bool = False
    names: Any = None


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
    judges : bool
        Whether topics are judged by themselves after the sweep that runs.
    gone : bool array of shape (n_topics,)
        Topics that are not taken up again.
    numbers : float64 array of shape (n_judgements, 2)
        Mean and variance of the number of topics by each judgement.
    """

    def __init__(self, n_topics, merges):
        self.n_topics, self.wanted = n_topics, merges and 1 < n_topics <= _MOST_TOPICS
        self.overlap, self.pairs, self.names = False, np.zeros((0, 2), np.int64), None
        self.judges, self.gone, self.numbers = False, np.zeros(n_topics, bool), np.zeros((0, 2))

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

    def of_documents(self, shard):
        """The change of the documents' part for each pair that is compared."""
        if not len(shard.merging.pairs):
            return {}
        counts = sparse.csc_array(shard.documents.csr())
        return {"gains": gains_of_documents(counts, shard.priors.alpha, shard.merging.pairs)}

    def of_words(self, orders, counts, beta):
        """The change of the words' part for each pair, or how much topics overlap, if that is asked for."""
        found = {}
        if orders.judges:
            rows, topics, values = sparse.find(sparse.vstack(counts))
            own = gammaln(values + beta[rows]) - gammaln(beta[rows])
            found["word_own"] = np.bincount(topics, own, self.n_topics)
        if len(orders.pairs):
            found["word_gains"] = gains_of_words(counts, beta, orders.pairs)
        return found | ({"word_overlap": sum(map(_overlap, counts))} if orders.overlap else {})

    def of_tokens(self, starts, docs, topics, documents, counts, totals, alpha, beta, beta_sum):
        """What tokens gain without their topic, by topic, and to which topics they would go."""
        gains, moves = np.zeros(self.n_topics), np.zeros((self.n_topics,) * 2, np.int64)
        parts = [(matrix.indptr, matrix.indices, matrix.data) for matrix in (documents, counts)]
        inverse, scratch = 1 / (totals + beta_sum), np.empty((3, self.n_topics))
        add_gains_without(starts, docs, topics, *parts, inverse, alpha, beta, scratch, gains, moves)
        return gains, np.nonzero(moves), moves[moves > 0]

    # At the coordinator ---------------------------------------------------------------------------

    def decide(self, swept, of_documents, of_blocks, of_tokens, totals, alpha, counts, gamma, beta_sum):
        """Choose pairs to compare, or those that become one, from the figures of shards and blocks.

        `counts` are how often counts of topics occur among the documents; `of_tokens` are from `of_tokens`.
        """
        pairs, self.pairs, self.names = self.pairs, self.pairs[:0], None
        if self.overlap:
            self.pairs = nearest(sum(figures.pop("word_overlap") for figures in of_blocks), totals)
        names = np.arange(self.n_topics)
        if len(pairs):
            gains = sum(figures.pop("gains") for figures in of_documents)
            gains = gains + sum(figures.pop("word_gains") for figures in of_blocks)
            i, j = pairs.T
            gains -= _joined(totals.astype(float), beta_sum, i, j)
            gains += gains_of_shares(_expected_tables(counts, alpha), alpha, gamma / self.n_topics, i, j)
            join_pairs(names, pairs, gains, totals)
        if self.judges:
            of_words = sum(figures.pop("word_own") for figures in of_blocks)
            gains, moves = gains_without(totals, alpha, counts, beta_sum, of_words, of_tokens)
            there = expit(-gains[totals > 0])  # the probability of each topic against the whole without
            self.numbers = np.vstack([self.numbers, [there.sum(), (there * (1 - there)).sum()]])
            join_leftovers(names, gains, moves, totals)
            self.gone |= (totals == 0) | (names != np.arange(self.n_topics))
        if (names != np.arange(self.n_topics)).any():
            self.names = names
        self.overlap = self.wanted and is_compared(swept + 2)
        self.judges = self.wanted and (swept + 1) % _EVERY == 0 and swept + 1 >= FIRST_JUDGED

    def orders(self):
        """What is sent to shards."""
        return MergeOrders(self.overlap, self.pairs, self.judges, self.names)

    def arrays(self):
        """Arrays of a checkpoint."""
        names = np.arange(self.n_topics) if self.names is None else self.names
        flags = np.array([self.overlap, self.judges])
        return {
            "flags": flags,
            "pairs": self.pairs,
            "names": names,
            "gone": self.gone,
            "numbers": self.numbers,
        }

    def restore(self, arrays):
        """Take those of a checkpoint."""
        flags, pairs, names, gone, numbers = taken(arrays, "flags", "pairs", "names", "gone", "numbers")
        fits = flags.shape == (2,) and flags.dtype == gone.dtype == np.bool_
        fits = fits and gone.shape == names.shape == (self.n_topics,)
        fits = fits and pairs.ndim == 2 and pairs.shape[1] == 2
        fits = fits and numbers.ndim == 2 and numbers.shape[1] == 2 and numbers.dtype == np.float64
        for array in (pairs, names):
            fits = fits and array.dtype == np.int64 and bool(((array >= 0) & (array < self.n_topics)).all())
        if not fits or (names[names] != names).any() or not np.isfinite(numbers).all():
            raise unfit("pairs", "names")
        (self.overlap, self.judges), self.pairs = flags.tolist(), pairs
        self.gone, self.numbers = gone.copy(), numbers
        self.names = None if (names == np.arange(self.n_topics)).all() else names


def is_compared(swept):
    """Whether pairs are compared when so many sweeps are done."""
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


def gains_without(totals, alpha, counts, beta_sum, of_words, of_tokens):
    """Change when others share the tokens of a topic, for each one; and how many tokens go to each other."""
    topics, values, times = counts
    gains = gammaln(totals + beta_sum) - gammaln(beta_sum) - of_words
    gains -= np.bincount(topics, times * _rising(values, alpha[topics]), len(totals))
    moves = np.zeros((len(totals),) * 2, np.int64)
    for gain, where, number in of_tokens:
        gains += gain
        moves[where] += number
    return gains, moves


def join_pairs(names, pairs, gains, totals):
    """Give topics of a pair the name of the one of more tokens, best pairs first and each topic once."""
    free = np.ones(len(totals), bool)
    for number in np.argsort(-gains, kind="stable"):
        if gains[number] <= 0:
            break
        i, j = pairs[number]
        if free[i] and free[j]:
            free[i] = free[j] = False
            names[[i, j]] = i if totals[i] >= totals[j] else j


def join_leftovers(names, gains, moves, totals):
    """Give topics that the whole is more likely without the name of another one.

    Those that have joined, or that another one has joined, stay as they are.
    """
    numbers = np.arange(len(names))
    stays = (names != numbers) | (np.bincount(names, minlength=len(names)) > 1)
    for topic in np.argsort(-gains, kind="stable"):
        if gains[topic] > 0 and totals[topic] and not stays[topic]:
            open_to = np.where(names == numbers, moves[topic], 0)
            lasting = np.where(gains <= 0, open_to, 0)
            to = int((lasting if lasting.any() else open_to).argmax())
            if open_to[to]:
                names[topic], stays[to] = to, True
