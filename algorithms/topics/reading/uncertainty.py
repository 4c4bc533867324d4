"""Intervals of topics' words, of documents' topics, and of groups, from the draws that a fit kept."""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from scipy.optimize.elementwise import find_root
from scipy.special import betainc, betaincinv
from sklearn.utils.validation import check_is_fitted

from ...._typing import Names, Vector
from ....errors import DataError, in_brief, shortened
from ..._base import Estimator
from ..._intervals import check_draws, check_level, interval_of_draws, least_draws
from ..blocks.draws import unpack
from . import comparison
from .top_words import check_whole, topic_totals

_CLOSE = 1e-9  # of a quantile
_AT_ONCE = 2**22  # numbers of a table of documents, topics and draws


@dataclass(frozen=True, eq=False)
class WordIntervals:
    """Posterior intervals of word probabilities.

    Attributes
    ----------
    indices : ndarray of int, shape (n_components, n_words)
        Columns of the words of each topic.
    mean, low, high : ndarrays of shape (n_components, n_words)
    level : float
    words : list of list of str
    """

    indices: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    level: float
    words: list

    def __repr__(self):
        lines = [f"word probabilities and {100 * self.level:g} % intervals"]
        for k, words in enumerate(self.words):
            row = zip(words, self.mean[k], self.low[k], self.high[k], strict=False)
            intervals = (f"{word} {mean:.4f} ({low:.4f}, {high:.4f})" for word, mean, low, high in row)
            lines.append(f"{k:>4}  " + (", ".join(intervals) or "(no tokens)"))
        return "\n".join(lines)


@dataclass(frozen=True, eq=False)
class ShareIntervals:
    """Posterior intervals of documents' topic shares.

    Attributes
    ----------
    mean, low, high : ndarrays of shape (n_documents, n_components)
    level : float
    """

    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    level: float


class TopicIntervals(Estimator):
    """What the draws of a fit tell of its uncertainty; a base of `TopicModel`."""

    def topic_word_interval(
        self,
        level: float = 0.9,
        *,
        words: Any = None,
        n_words: int = 10,
        vocabulary: Names | None = None,
    ) -> WordIntervals:
        r"""Compute posterior intervals of word probabilities, from the draws of a fit with `n_draws`.

        Given the topics of all tokens, the probability of word w in topic k has a beta distribution; its
        posterior is the mixture of these over the S draws, whose quantiles are computed to 1e-9:

        .. math:: p(\phi_{kw} \mid X) \approx \frac1S \sum_s \mathrm{Beta}\bigl(C_{wk}^{(s)} + \beta_w,\;
                  C_k^{(s)} - C_{wk}^{(s)} + \textstyle\sum_v \beta_v - \beta_w\bigr)

        Parameters
        ----------
        level : float, default=0.9
            Posterior probability of each interval; its two tails are equal.
        words : sequence of int or str, optional
            The same words for all topics, columns or words of the vocabulary. By default the `n_words` most
            probable ones of each topic.
        n_words : int, default=10
        vocabulary : sequence of str of length n_features, optional
            As in `topics`.

        Returns
        -------
        WordIntervals
            `indices`, `mean`, `low` and `high`, topics x words; prints as a table. Without `words`, topics
            that have no tokens have -1 and NaN.

        Raises
        ------
        DataError
            If the fit kept no draws, or an argument is out of its range.

        Notes
        -----
        The intervals hold for a chain that has mixed: draws of a short chain are much alike, and its
        intervals are too short. They also say nothing of other modes, to which other seeds lead; see
        `stability`.

        Examples
        --------
        >>> import numpy as np, stradask as sd
        >>> X = np.repeat([[5, 5, 0, 0], [0, 0, 5, 5]], 20, axis=0)
        >>> lda = sd.LatentDirichletAllocation(2, max_iter=100, n_draws=20, random_state=0).fit(X)
        >>> found = lda.topic_word_interval(n_words=2)
        >>> bool(((found.low < 0.5) & (found.high > 0.5)).all())
        True
        """
        check_is_fitted(self, "word_topic_counts_")
        draws, tails = self._draws(), _tails(level)
        vocabulary = self._vocabulary(vocabulary)
        n_features, n_topics = self.word_topic_counts_.shape
        if words is None:
            indices = self._top_words(check_whole("n_words", n_words))
        else:
            indices = np.tile(columns_of(words, vocabulary, n_features), (n_topics, 1))
        rows, topics = indices.ravel(), np.repeat(np.arange(n_topics), indices.shape[1])
        own, other = np.array([self._word_betas(draw, rows, topics) for draw in draws]).swapaxes(0, 1)
        mean = (own / (own + other)).mean(axis=0).reshape(indices.shape)
        flat = own, np.maximum(other, np.finfo(float).tiny)
        low, high = (mixture_quantiles(*flat, tail).reshape(indices.shape) for tail in tails)
        if words is None:
            used = self._with_tokens()
            indices, mean, low, high = (self._of_all_topics(v[used]) for v in (indices, mean, low, high))
        named = [[vocabulary[w] for w in row if w >= 0] for row in indices.tolist()]
        return WordIntervals(indices, mean, low, high, float(level), named)

    def _word_betas(self, draw, rows, topics):
        """Parameters of beta distributions of the probabilities of words `rows` in `topics`, by a draw."""
        seeds, shape = getattr(self, "seed_prior_", None), self.word_topic_counts_.shape
        counts = unpack(draw, "words", shape)
        counts = counts if seeds is None else sparse.csr_array(counts + seeds)
        beta = np.broadcast_to(draw["beta"], shape[0])
        own = entries(counts, rows, topics) + beta[rows]
        return own, topic_totals(counts)[topics] + beta.sum() - own

    def doc_topic_interval(self, level: float = 0.9, *, documents: Any = None) -> ShareIntervals:
        r"""Compute posterior intervals of the topic shares of fitted documents, from draws of the fit.

        Given the topics of its tokens, a document's share of topic k has a beta distribution. The posterior
        is the mixture of these over the S draws, whose quantiles are computed to 1e-9:

        .. math:: p(\theta_{dk} \mid X) \approx \frac1S \sum_s \mathrm{Beta}\bigl(C_{dk}^{(s)} + \alpha_k,\;
                  L_d - C_{dk}^{(s)} + \textstyle\sum_j \alpha_j - \alpha_k\bigr)

        Parameters
        ----------
        level : float, default=0.9
            Posterior probability of each interval; its two tails are equal.
        documents : sequence of int, optional
            Rows of the fitted `X`; by default all, at 24 bytes a document and topic.

        Returns
        -------
        ShareIntervals
            `mean`, `low` and `high`, documents x topics. Topics that a document may not have (`doc_labels`)
            have 0.

        Raises
        ------
        DataError
            If the fit kept no draws, or left the topics of its documents in files or with Dask.

        Examples
        --------
        >>> import numpy as np, stradask as sd
        >>> X = np.repeat([[5, 5, 0, 0], [0, 0, 5, 5]], 20, axis=0)
        >>> lda = sd.LatentDirichletAllocation(2, max_iter=100, n_draws=20, random_state=0).fit(X)
        >>> found = lda.doc_topic_interval(documents=[0])
        >>> bool(((found.low < found.mean) & (found.mean < found.high)).all())
        True
        """
        check_is_fitted(self, "word_topic_counts_")
        draws, tails = self._draws(), _tails(level)
        n_documents, n_topics = self._fitted_documents().shape
        rows = _rows(documents, n_documents)
        counted = [unpack(draw, "documents", (n_documents, n_topics)) for draw in draws]
        alphas = np.array([draw["alpha"] for draw in draws])
        out = np.empty((3, len(rows), n_topics))
        size = max(1, _AT_ONCE // (n_topics * len(draws)))
        for first in range(0, len(rows), size):
            part = rows[first : first + size]
            table = np.array([counts[part].toarray() for counts in counted])
            labels = getattr(self, "doc_labels_", None)
            weights = None if labels is None else labels[part].toarray()
            out[:, first : first + size] = _document_intervals(table, alphas, weights, tails)
        return ShareIntervals(out[0], out[1], out[2], float(level))

    def topics_by_group(
        self, groups: Vector | None, *, level: float | None = None
    ) -> comparison.TopicPrevalence:
        """Compute the share of each topic in groups of the fitted documents: by time, source or any label.

        Parameters
        ----------
        groups : array-like of shape (n_samples,)
            A label for each document of the last `fit` or `partial_fit`: str, numbers, times, or pandas
            categories, which keep their order.
        level : float, optional
            With it, shares are means over the draws of a fit with `n_draws`, and have intervals of this
            posterior probability: of which part of the group's tokens the topic holds, which the model does
            not know for sure. They say nothing of documents that were not collected. An interval of n draws
            lies between two of them so that a further draw is within with this probability; that takes
            ``2 / (1 - level) - 1`` draws, 19 for 0.9.

        Returns
        -------
        TopicPrevalence
            `groups`, `shares` (n_groups x n_components, each document weighted by its tokens), `tokens`,
            `low` and `high` (None without `level`), and a method `plot`.

        Raises
        ------
        DataError
            If a label is missing, their number is not that of the documents, or they cannot be ordered; with
            `level`, if there are too few draws.

        Examples
        --------
        >>> import numpy as np, stradask as sd
        >>> X = np.repeat([[5, 5, 0, 0], [0, 0, 5, 5]], 20, axis=0)
        >>> lda = sd.LatentDirichletAllocation(2, random_state=0, max_iter=30).fit(X)
        >>> found = lda.topics_by_group(np.repeat(["land", "sky"], 20))
        >>> found.groups.tolist(), found.tokens.tolist(), found.shares.max(axis=1).tolist()
        (['land', 'sky'], [200, 200], [1.0, 1.0])
        """
        check_is_fitted(self, "word_topic_counts_")
        counts = self._fitted_documents()
        if level is None:
            return comparison.prevalence(counts, groups)
        least, draws = least_draws(level), self._draws()
        check_draws(len(draws), level, remedy := f"fit with n_draws={least} or more")
        found = [comparison.prevalence(unpack(draw, "documents", counts.shape), groups) for draw in draws]
        shares = np.array([one.shares for one in found])
        low, high = interval_of_draws(shares, level, remedy)
        return comparison.TopicPrevalence(found[0].groups, shares.mean(axis=0), found[0].tokens, low, high)

    def _draws(self):
        """The draws of the last fit."""
        draws = getattr(self, "draws_", None)
        if "n_draws" not in self.get_params():
            raise DataError(
                f"{type(self).__name__} keeps no draws, on which intervals rest: LatentDirichletAllocation, "
                "KeyATM and SupervisedLDA do, with n_draws=20 or more"
            )
        if not draws and self.n_draws and self.n_batch_iter_ == 1:
            raise DataError(
                f"the fit ended after {self.n_iter_} sweeps, before it took the first of n_draws="
                f"{self.n_draws} draws, on which intervals rest: let it go on"
            )
        if not draws:
            raise DataError(
                "the model has no draws, on which intervals rest: fit with n_draws=20 or more (partial_fit "
                "keeps none)"
            )
        if len(draws) < self.n_draws:
            warnings.warn(
                f"the fit ended with {len(draws)} of n_draws={self.n_draws} draws: intervals are uncertain",
                stacklevel=3,
            )
        return draws


def _tails(level):
    level = check_level(level)
    return (1 - level) / 2, (1 + level) / 2


def columns_of(words, vocabulary, n_features):
    """Columns of words that are given as such or by name."""
    try:
        found = np.atleast_1d(np.asarray(words))
    except ValueError as error:
        raise DataError(f"words must be a sequence of columns or words: {in_brief(error)}") from error
    if found.ndim != 1 or not len(found) or found.dtype.kind not in "iuUO":
        raise DataError(f"words={shortened(words)} must be a sequence of columns or words")
    if found.dtype.kind in "UO":
        place = {word: column for column, word in enumerate(vocabulary)}
        unknown = [word for word in found.tolist() if word not in place]
        if unknown:
            raise DataError(f"words: the vocabulary has no {shortened(unknown[0])}")
        return np.array([place[word] for word in found.tolist()])
    if found.min() < 0 or found.max() >= n_features:
        raise DataError(f"words: columns go from 0 to {n_features - 1}, got {shortened(words)}")
    return found.astype(np.int64)


def _rows(documents, n_documents):
    if documents is None:
        return np.arange(n_documents)
    try:
        rows = np.atleast_1d(np.asarray(documents))
    except ValueError as error:
        raise DataError(f"documents must be a sequence of rows: {in_brief(error)}") from error
    if (
        rows.ndim != 1
        or rows.dtype.kind not in "iu"
        or (len(rows) and not 0 <= rows.min() <= rows.max() < n_documents)
    ):
        raise DataError(
            f"documents={shortened(documents)} must be rows of the fit's X, from 0 to {n_documents - 1}"
        )
    return rows


def entries(counts, rows, columns):
    """Entries of a CSR array at pairs of row and column."""
    return np.asarray(counts[rows, columns]).ravel().astype(np.float64)


def betas_of_switched(draw, beta, weights, switch, rows, topics):
    """As `TopicIntervals._word_betas`, where a switch says which tokens keywords of these weights gave.

    Given a draw, the probability is ``(1 - pi) phi + pi phi~`` of three beta variables; the beta distribution
    returned has its mean and variance.
    """
    off, on = (unpack(draw, kind, weights.shape) for kind in ("words", "keywords"))
    n_off, n_on, sums = (topic_totals(part)[topics] for part in (off, on, weights))
    plain, total = entries(off, rows, topics) + beta[rows], n_off + beta.sum()
    keyed, prior = entries(on, rows, topics), entries(weights, rows, topics)
    has = sums > 0
    mean, spread = _beta_moments(plain, total)
    key_mean, key_spread = _beta_moments(keyed + prior, np.where(has, n_on + sums, 1.0))
    share, doubt = _beta_moments(n_on + switch[0], n_on + n_off + sum(switch))
    average = (1 - share) * mean + share * key_mean
    variance = ((1 - share) ** 2 + doubt) * spread + (share**2 + doubt) * key_spread
    variance += doubt * (mean - key_mean) ** 2
    size = average * (1 - average) / variance - 1
    own, all_ = np.where(has, average * size, plain), np.where(has, size, total)
    return own, all_ - own


def _beta_moments(own, total):
    mean = own / total
    return mean, mean * (1 - mean) / (total + 1)


def _document_intervals(table, alphas, weights, tails):
    """Mean, low and high of shares from counts, draws x documents x topics.

    The mixture does not depend on the order of draws: equal sets of counts, of which most are zeros, are
    computed once.
    """
    n_draws, n_rows, n_topics = table.shape
    priors = alphas[:, None, :] * (np.ones((1, 1, 1)) if weights is None else weights[None])
    own = table + priors
    sums = own.sum(axis=2, keepdims=True)
    mean = (own / sums).mean(axis=0)
    shape, own = (n_draws, -1), np.ascontiguousarray(own)
    both = np.array([own.reshape(shape), np.broadcast_to(sums, own.shape).reshape(shape)])
    order = np.lexsort(both[::-1], axis=0)
    both = np.take_along_axis(both, order[None], axis=1)
    keys = np.ascontiguousarray(both.reshape(2 * n_draws, -1).T)
    kinds, place = np.unique(keys, axis=0, return_inverse=True)
    a, total = kinds[:, :n_draws].T, kinds[:, n_draws:].T
    ends = []
    for tail in tails:
        found = np.zeros(len(kinds))
        possible = (a > 0).all(axis=0)
        rest = np.maximum(total - a, 0)
        sure = possible & (rest <= 0).all(axis=0)  # a document's only topic
        found[sure] = 1
        open_ = possible & ~sure
        found[open_] = mixture_quantiles(a[:, open_], rest[:, open_], tail)
        ends.append(found[place.ravel()].reshape(n_rows, n_topics))
    return mean, *ends


def mixture_quantiles(a, b, probability):
    """Quantiles of equal mixtures of beta distributions, parameters draws x mixtures, to `_CLOSE`.

    A mixture's quantile lies between the least and the greatest of its parts'.
    """
    pairs, place = np.unique(np.stack([a, b], axis=-1).reshape(-1, 2), axis=0, return_inverse=True)
    each = betaincinv(*pairs.T, probability)[place.ravel()].reshape(a.shape)
    low, high = each.min(axis=0), each.max(axis=0)

    def away(x, mixture):
        return betainc(a[:, mixture], b[:, mixture], x).mean(axis=0) - probability

    close = {"xatol": _CLOSE, "xrtol": 0.0, "fatol": 0.0, "frtol": 0.0}
    found = find_root(away, (low, high), args=(np.arange(a.shape[1]),), tolerances=close)
    # Between equal ends, or ends that rounding puts on one side of it, there is no root to be found.
    return np.where(found.success, found.x, (low + high) / 2)
