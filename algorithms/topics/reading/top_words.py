"""Which words stand for a topic: the best of each column of a sparse matrix, by three rankings.

A word without a count in a topic still has the probability that its prior gives it. No such column is ever
made dense: of the words without a count only a few can be among the best, and those are known beforehand.
"""

from functools import partial
from numbers import Integral, Real

import numpy as np
from scipy import sparse
from scipy.stats import rankdata

from ...._html import table as html_table
from ....errors import DataError, shortened

RANKINGS = ("probability", "relevance", "frex")
_CELLS = 1 << 20  # of a block of columns that is dense for a moment


class Topics(list):
    """Topics as lists of words, best first; prints as a table.

    Attributes
    ----------
    shares : ndarray of shape (n_components,)
        Part of all tokens that each topic holds.
    probabilities : ndarray of shape (n_components, n_words)
        Probability of each listed word under its topic.
    weights : ndarray of shape (n_components, n_words)
        What the words are ranked by, falling along each row.
    indices : ndarray of int, shape (n_components, n_words)
        Columns of the words.
    rank_by : str
    """

    def __init__(self, words, shares, probabilities, weights, indices, rank_by):
        super().__init__(words)
        self.shares = shares
        self.probabilities = probabilities
        self.weights = weights
        self.indices = indices
        self.rank_by = rank_by

    def __str__(self):
        lines = (
            f"{k:>4}  {share:6.2%}  {' '.join(words) or '(no tokens)'}"
            for k, (share, words) in enumerate(zip(self.shares, self, strict=True))
        )
        return "\n".join(["topic  share  words", *lines])

    def _repr_html_(self):
        """What a notebook shows."""
        rows = (
            (k, f"{share:.2%}", " ".join(self[k]) or "(no tokens)") for k, share in enumerate(self.shares)
        )
        return html_table(["topic", "share", "words"], rows, text=[2])


def check_whole(name, value, least=1):
    """Check a number of things; return it as an int."""
    if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
        raise DataError(f"{name}={shortened(value)} must be a whole number of at least {least}")
    return int(value)


def check_choice(name, value, choices):
    """Check a name out of a few."""
    if not (isinstance(value, str) and value in choices):
        raise DataError(f"{name}={shortened(value)} is unknown: take {' or '.join(map(repr, choices))}")


def _check_part(name, value):
    if not isinstance(value, Real) or isinstance(value, bool) or not 0 <= float(value) <= 1:
        raise DataError(f"{name}={shortened(value)} must be a number from 0 to 1")


def topic_totals(word_topic):
    """Tokens of each topic."""
    return np.asarray(word_topic.sum(axis=0)).ravel()


def top_words(word_topic, beta, n_words, rank_by="probability", *, relevance_weight=0.6, frex_weight=0.5):
    """Find the best words of each topic, ties by index (`TopicModel.topics`).

    `word_topic` is CSR, n_features x n_components. Returns words, the weights by which they are ranked, and
    their probabilities, n_components x n_words each, fewer columns where there are not as many words.
    """
    n_words = min(check_whole("n_words", n_words), len(beta))
    check_choice("rank_by", rank_by, RANKINGS)
    _check_part("relevance_weight", relevance_weight)
    _check_part("frex_weight", frex_weight)
    totals = topic_totals(word_topic) + beta.sum()
    if rank_by == "probability":
        leaders, score = first(beta, n_words), partial(_smoothed, beta)
    elif rank_by == "relevance":
        common = (1 - relevance_weight) * np.log(_marginal(word_topic, beta, totals))
        leaders, score = first(np.log(beta) - common, n_words), partial(_relevance, beta, totals, common)
    else:
        usual = _mean_probability(word_topic, beta, totals)
        leaders = _leaders_of_two(beta, _exclusivity(beta, usual), n_words)
        score = partial(_frex, beta, usual, frex_weight)
    words, weights, counts = best_of_columns(word_topic, leaders, n_words, score)
    probabilities = (counts + beta[words]) / totals[:, None]
    return words, probabilities if rank_by == "probability" else weights, probabilities


# Rankings: topics of a block, their words and counts as padded rows -> weights ---------------------


def _smoothed(beta, topics, words, counts, known):
    return counts + beta[words]


def _relevance(beta, totals, common, topics, words, counts, known):
    return np.log(counts + beta[words]) - np.log(totals[topics, None]) - common[words]


def _frex(beta, usual, weight, topics, words, counts, known):
    frequency = _distribution(counts + beta[words], beta, words, known)
    exclusivity = _distribution(
        _exclusivity(counts + beta[words], usual[words]), _exclusivity(beta, usual), words, known
    )
    return 1 / (weight / exclusivity + (1 - weight) / frequency)


def _distribution(values, base, words, known):
    """Empirical distribution function of a topic over all words, at the values of some.

    `base` holds what each word has without a count, which is what all words but those of the row have.
    """
    values, without = np.where(known, values, np.inf), np.where(known, base[words], np.inf)
    among = rankdata(values, method="max", axis=1)  # how many of the row are no larger
    both = rankdata(np.hstack([values, without]), method="max", axis=1)[:, : values.shape[1]]
    elsewhere = np.searchsorted(np.sort(base), values, side="right") - (both - among)
    return (among + elsewhere) / len(base)


def _exclusivity(weight, usual):
    """phi_kw / sum_j phi_jw, up to a factor of the topic; what differs by rounding only is made equal."""
    return (weight / usual).astype(np.float32)


def _mean_probability(word_topic, beta, totals):
    """sum_k phi_kw, up to a factor that makes it ``C_w1 + beta_w`` where there is one topic."""
    parts = 1 / totals
    parts /= parts.mean()
    return word_topic @ parts + beta * parts.sum()


def _marginal(word_topic, beta, totals):
    """p_w: the probability of a word under the mixture of topics by their shares of the tokens."""
    tokens = topic_totals(word_topic)
    parts = tokens / tokens.sum() / totals
    return word_topic @ parts + beta * parts.sum()


# The best of each column --------------------------------------------------------------------------


def first(values, n):
    """Places of the n largest values, ties by place."""
    return np.argsort(-values, kind="stable")[:n]


def _leaders_of_two(first_values, second_values, n):
    """Places that fewer than n others equal or exceed in both values: any ranking's n best are among them."""
    places = np.arange(len(first_values))
    leaders, bar = [], np.empty(0)  # the n largest second values so far, rising
    for place in np.lexsort((places, -second_values, -first_values)):
        value = second_values[place]
        if len(bar) == n and bar[0] >= value:
            continue
        leaders.append(place)
        at = np.searchsorted(bar, value)
        bar = np.insert(bar, at, value)[-n:]
    return np.array(leaders)


def best_of_columns(counts, leaders, n_best, score):
    """Find the rows of a sparse matrix that score best in each column, ties by row.

    `leaders` are at least `n_best` rows; of the rows without a count in a column, the best are among them.
    That holds for the `n_best` rows that score best without counts where these score in the same order in
    every column and a count never lowers a score: they stay ahead of the others. ``score(columns, rows,
    counts, known)`` scores some columns, rows and counts as matrices of one row a column, `known` False where
    such a row is padded. Returns rows, scores and counts, n_columns x n_best.
    """
    n_rows, n_columns = counts.shape
    by_column = counts.T.tocsr()
    sizes = np.diff(by_column.indptr) + len(leaders)
    leads = np.zeros(n_rows)
    leads[leaders] = 1
    best = np.empty((n_columns, n_best), np.int64)
    scores, their_counts = np.empty(best.shape), np.empty(best.shape)
    order = np.argsort(-sizes, kind="stable")
    start = 0
    while start < n_columns:
        columns = order[start : start + max(1, _CELLS // sizes[order[start]])]
        start += len(columns)
        rows, values, known = _padded(by_column[columns], leads)
        scored = np.where(known, score(columns, rows, values, known), -np.inf)
        places, scores[columns] = largest(scored, n_best)
        best[columns] = np.take_along_axis(rows, places, axis=1)
        their_counts[columns] = np.take_along_axis(values, places, axis=1)
    return best, scores, their_counts


def _padded(block, leads):
    """Columns and values of CSR rows as matrices, with an entry of zero for each leader without one."""
    leaders = np.flatnonzero(leads)
    ends = np.arange(block.shape[0] + 1) * len(leaders)
    entries = (np.ones(ends[-1]), np.tile(leaders, block.shape[0]), ends)
    # One more than the count at each leader, taken off again below: so that none is lost.
    block = sparse.csr_array(block + sparse.csr_array(entries, shape=block.shape))
    block.sort_indices()
    lengths = np.diff(block.indptr)
    known = np.arange(lengths.max()) < lengths[:, None]
    columns, values = np.zeros(known.shape, np.int64), np.zeros(known.shape)
    columns[known], values[known] = block.indices, block.data - leads[block.indices]
    return columns, values, known


def largest(values, n):
    """Find the places and values of the n largest of each row, largest first, ties by place."""
    least = np.partition(values, -n, axis=1)[:, -n, None]
    above, level = values > least, values == least
    room = n - above.sum(axis=1, keepdims=True)
    chosen = above | (level & (np.cumsum(level, axis=1) <= room))
    places = np.nonzero(chosen)[1].reshape(len(values), n)
    found = np.take_along_axis(values, places, axis=1)
    order = np.argsort(-found, axis=1, kind="stable")
    return np.take_along_axis(places, order, axis=1), np.take_along_axis(found, order, axis=1)
