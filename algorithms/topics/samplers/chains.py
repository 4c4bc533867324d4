r"""Topics over slices of time: the mode of words' logarithms, given how often topics have them.

With C_tkw the tokens of word w that are of topic k in slice t, and phi_tk = softmax(eta_tk), the function::

    sum_tkw (C_tkw + beta / T) log phi_tkw  -  sum_tkw (eta_tkw - eta_(t-1)kw)^2 / (2 sigma^2)

is raised topic by topic. The logarithm of the softmax's sum Z_t is concave, so that it is at most its
tangent; with that the words part, and rates u_t = (C_tk + sum(beta) / T) / Z_t of them all take its place.
Words are raised given the rates by steps of Newton, then rates are made anew: the function never falls
(minorisation and maximisation). Words that a topic has nowhere share one chain.

sigma is fitted by the expected squares of the moves, under the normal distribution about the mode.
"""

from dataclasses import dataclass

import numpy as np

from ....kernels.lda.models import chains as kernels

_STEPS, _CLOSE = 30, 1e-3  # of Newton
_ENOUGH = 20  # tokens of a word from whose moves sigma is fitted
_LEAST, _MOST = 1e-6, 1.0  # of sigma's square


@dataclass(frozen=True)
class WordChains:
    """The words of one topic: those that it has somewhere, and all the others as one.

    Attributes
    ----------
    words : int32 array of shape (n_own,)
    eta : float32 array of shape (n_own, n_slices)
    others : float32 array of shape (n_slices,)
        Of each word that is not among `words`.
    levels : float64 array of shape (n_slices,)
        Logarithms of the sums of all words.
    """

    words: np.ndarray
    eta: np.ndarray
    others: np.ndarray
    levels: np.ndarray

    @classmethod
    def of(cls, words, eta, others, n_words):
        """Put a chain together."""
        eta, others = eta.astype(np.float32), others.astype(np.float32)
        total = np.exp(eta, dtype=np.float64).sum(axis=0)
        total += (n_words - len(words)) * np.exp(others, dtype=np.float64)
        return cls(words.astype(np.int32), eta, others, np.log(total))

    def of_words(self, words):
        """Logarithms of any words."""
        found = np.empty((len(words), len(self.others)))
        found[:] = self.others
        if len(self.words):
            place = np.minimum(np.searchsorted(self.words, words), len(self.words) - 1)
            own = self.words[place] == words
            found[own] = self.eta[place[own]]
        return found


def still_chains(counts, beta, n_slices):
    """Chains that do not move, from counts of topics, n_words x n_topics CSC."""
    n_words, chains = counts.shape[0], []
    for k in range(counts.shape[1]):
        here = slice(counts.indptr[k], counts.indptr[k + 1])
        own, total = counts.data[here].astype(np.float64), counts.data[here].sum() + n_words * beta
        eta, others = (
            np.tile(np.log((own + beta) / total)[:, None], n_slices),
            np.full(n_slices, np.log(beta / total)),
        )
        chains.append(WordChains.of(counts.indices[here], eta, others, n_words))
    return chains


def raised(chain, words, counts, beta, n_words, variance, n_rounds):
    """The chain of a topic nearer to its mode, given `counts` of some `words` (ascending), words x slices."""
    n_slices = counts.shape[1]
    pseudo, scratch = beta / n_slices, np.empty((3, n_slices))
    n_others, none = n_words - len(words), np.zeros((1, n_slices))
    totals = counts.sum(axis=0) + n_words * pseudo
    eta = chain.of_words(words)
    others = chain.others.astype(np.float64)[None].copy()
    for _ in range(n_rounds):
        rates = totals / (np.exp(eta).sum(axis=0) + n_others * np.exp(others[0]))
        kernels.climb_chains(counts, pseudo, rates, 1 / variance, _STEPS, _CLOSE, eta, scratch)
        if n_others:
            kernels.climb_chains(none, pseudo, rates, 1 / variance, _STEPS, _CLOSE, others, scratch)
    return WordChains.of(words, eta, others[0], n_words)


def rates_of(chain, totals, beta, n_words):
    """The rates of a topic's words at its chain, from its tokens by slice."""
    return (totals + n_words * beta / len(totals)) / np.exp(chain.levels)


def expected_moves(chain, counts, rates, variance):
    """Sum over words of many tokens of the expected squares of their moves, and how many moves those are."""
    n_slices = counts.shape[1]
    often = counts.sum(axis=1) >= _ENOUGH
    eta, moves = chain.eta[often].astype(np.float64), np.empty(int(often.sum()))
    scratch, none = np.empty((3, n_slices)), np.empty((len(moves), 0))
    kernels.spreads(eta, rates, 1 / variance, scratch, moves, none)
    return float(moves.sum()), len(moves) * (n_slices - 1)


def log_deviations(chain, rows, rates, variance, information=None):
    """Standard deviations of the logarithms of some words of a topic, given the topics of all tokens.

    With `information`, a part for each word, counts tell so much less.
    """
    n_slices = chain.eta.shape[1]
    eta, variances = chain.of_words(rows), np.empty((len(rows), n_slices))
    if information is not None:
        eta = eta + np.log(information)[:, None]
    kernels.spreads(eta, rates, 1 / variance, np.empty((3, n_slices)), np.empty(len(rows)), variances)
    return np.sqrt(variances)


def bounded(variance):
    """The square of sigma, kept where numbers are sound."""
    return float(np.clip(variance, _LEAST, _MOST))


def by_topic(tokens, n_words):
    """Words of each topic, ascending, with their counts, words x slices, from tokens of slices by topic."""

    def one(k):
        own = [words[starts[k] : starts[k + 1]] for words, starts in tokens]
        joined = np.concatenate(own).astype(np.int64)
        words = np.flatnonzero(np.bincount(joined, minlength=n_words))
        rank = np.zeros(n_words, np.int64)
        rank[words] = np.arange(len(words))
        n_slices = len(own)
        places = rank[joined] * n_slices + np.repeat(np.arange(n_slices), list(map(len, own)))
        counts = np.bincount(places, minlength=len(words) * n_slices)
        return words, counts.reshape(len(words), n_slices).astype(np.float64)

    return one


def is_chain(words, eta, others, n_words, n_slices):
    """Whether what a file says can be the chain of a topic."""
    fits = words.ndim == 1 and words.dtype == np.int32 and bool((np.diff(words) > 0).all())
    fits = fits and (not len(words) or 0 <= words[0] <= words[-1] < n_words)
    fits = fits and eta.shape == (len(words), n_slices) and others.shape == (n_slices,)
    fits = fits and eta.dtype == others.dtype == np.float32
    return bool(fits and np.abs(eta).max(initial=0) < 500 and np.abs(others).max() < 500)
