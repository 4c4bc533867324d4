"""Growing a fitted topic model: forgetting old counts, new words, and new topics."""

from numbers import Integral, Real

import numpy as np
from scipy import sparse

from ...errors import DataError, shortened
from ..inputs.matrices import check_counts, check_vocabulary
from .blocks.draws import ThinnedDraws, sweeps_of_draws
from .corpus.shard_input import is_sharded
from .samplers.annealing import Priors

# Of "auto": what old tokens count in what is left out; the prior of young models, and how fast it falls.
_OLD, _FIRST_BETA, _SLOWLY = 2.5, 0.1, 0.03
_AVERAGED = 8  # sweeps of a part, over which its counts are averaged
_LEAST = 0.25  # of a mean count: what is less is rounded to it or to nothing


def check_forget(forget, n_new, n_old):
    """The part of `n_old` counts that `n_new` tokens replace, and whether topics are drawn smoother."""
    if isinstance(forget, str) and forget == "auto":
        return n_new / (n_new + _OLD * n_old), True
    if not isinstance(forget, Real) or isinstance(forget, bool) or not 0 <= float(forget) < 1:
        raise DataError(f"forget must be 'auto' or a number from 0 to below 1, got {shortened(forget)}")
    return float(forget), False


def forgotten(counts, part, seed):
    """Leave each token out with the probability `part`, of mean counts that part; the seed decides which.

    Also returns whole counts near to these, which a sampler takes.
    """
    whole = counts.data.dtype.kind in "iu"
    if part == 0 and whole:
        return counts, counts
    random = np.random.default_rng([seed, counts.nnz])
    if whole:
        left = _with_data(counts, random.binomial(counts.data, 1 - part).astype(counts.data.dtype))
        return left, left
    left = counts.data * (1 - part)
    small = (left < _LEAST) & (part > 0)
    left[small] = np.where(random.random(small.sum()) * _LEAST < left[small], _LEAST, 0)
    left = _with_data(counts, left)
    below = np.floor(left.data)
    drawn = below + (random.random(len(below)) < left.data - below)
    return left, _with_data(left, drawn.astype(np.int32))


def _with_data(counts, data):
    """Counts in the same places, without zeros."""
    array = sparse.csr_array((data, counts.indices.copy(), counts.indptr.copy()), shape=counts.shape)
    array.eliminate_zeros()
    return array


class AveragedDraws(ThinnedDraws):
    """Draws that are kept, and the mean counts of words over sweeps of the last half."""

    def __init__(self, sweeps, max_iter):
        super().__init__(sweeps)
        n_averaged = min(_AVERAGED, max(max_iter // 2, 1))
        self._averaged, self._sum, self._n = frozenset(sweeps_of_draws(n_averaged, max_iter, "gibbs")), 0, 0

    def take(self, sweep, collect):
        """Add what a program has after a sweep, if it is time."""
        super().take(sweep, collect)
        if sweep in self._averaged:
            words = collect(documents=False).words
            counts = sparse.csr_array(words, dtype=np.float64)
            self._sum, self._n = counts if self._n == 0 else self._sum + counts, self._n + 1

    def mean(self):
        """The mean counts, CSR; None where the fit ended before."""
        return sparse.csr_array(self._sum / self._n) if self._n else None


class YoungPriors(Priors):
    """Priors of a model that has seen little: topics are drawn smoother than they are kept."""

    smoother: tuple

    @classmethod
    def of_model(cls, alpha, beta, n_new, n_old):
        """The larger prior falls with the old tokens: 0.1 at first, half at 33 times the new ones."""
        priors = cls(alpha, beta, 0, 0.0)
        smoother = np.maximum(beta, _FIRST_BETA / (1 + _SLOWLY * n_old / n_new))
        priors.smoother = smoother, float(smoother.sum())
        return priors

    def beta_of(self, sweep):
        """The topic-word prior of every sweep, and its sum."""
        return self.smoother


def check_grow(grow):
    """Refuse what is no number of new topics."""
    if not isinstance(grow, Integral) or isinstance(grow, bool) or grow < 0:
        raise DataError(f"grow must be a number of new topics from 0 on, got {shortened(grow)}")


def add_topics(model, grow):
    """Give a fitted model so many topics more, after its own, without tokens."""
    if not grow:
        return
    if not (model.doc_topic_prior is None or isinstance(model.doc_topic_prior, Real)):
        raise DataError("grow=... with a vector doc_topic_prior: give a number, which new topics have too")
    shape = (model.n_features_in_, model._number_of_topics(True) + int(grow))
    if isinstance(model.n_components, str):
        model.n_topics_ = shape[1]
        if "n_topics_interval_" in vars(model):  # older files have none
            model.n_topics_interval_ = model.n_topics_interval_ + int(grow)
    else:
        model.n_components = shape[1]
    model.word_topic_counts_ = _resized(model.word_topic_counts_, shape)
    model.seed_prior_ = _resized(model.seed_prior_, shape)
    alpha = model.doc_topic_prior_
    model.doc_topic_prior_ = np.concatenate([alpha, np.full(int(grow), alpha.mean())])


def add_words(model, X, vocabulary):
    """Give a fitted model the words of X that it lacks, after its own; return X with the model's columns."""
    known = model._words(None)
    known = getattr(model, "vocabulary_", known)
    if known is None:
        raise DataError(
            "vocabulary=... adds words to those of the model, which it does not know: pass vocabulary=... in "
            "the first call, too"
        )
    if is_sharded(X):
        raise DataError(
            "vocabulary=... adds words from a matrix only: read files by stradask.datasets, or compute X"
        )
    counts = check_counts(type(model).__name__, X)
    words = [str(word) for word in check_vocabulary(vocabulary, counts.shape[1])]
    if len(set(words)) < len(words):
        twice = next(word for word in words if words.count(word) > 1)
        raise DataError(f"vocabulary has the word {shortened(twice)} twice: add up its columns of X")
    known = [str(word) for word in known]
    column = {word: w for w, word in enumerate(known)}
    new = [word for word in words if word not in column]
    column |= {word: w for w, word in enumerate(new, len(known))}
    if new:
        _add_columns(model, known + new)
    places = np.array([column[word] for word in words])
    moved = sparse.csr_array(
        (counts.data, places[counts.indices], counts.indptr), shape=(len(counts.indptr) - 1, len(column))
    )
    moved.sort_indices()
    return moved


def _add_columns(model, words):
    beta = model.topic_word_prior_
    if np.ptp(beta) > 0 or not (model.topic_word_prior is None or isinstance(model.topic_word_prior, Real)):
        raise DataError("new words with a vector topic_word_prior: give a number, which they have too")
    shape = (len(words), model.word_topic_counts_.shape[1])
    model.word_topic_counts_ = _resized(model.word_topic_counts_, shape)
    model.seed_prior_ = _resized(model.seed_prior_, shape)
    model.topic_word_prior_ = np.full(len(words), beta[0])
    model.n_features_in_ = len(words)
    model.vocabulary_ = words
    model.__dict__.pop("feature_names_in_", None)


def _resized(counts, shape):
    """A CSR array of more rows and columns, those being empty."""
    if counts is None:
        return None
    counts = counts.copy()
    counts.resize(shape)
    return counts
