"""How a chain begins: first topics of tokens, and smoother topics in the first sweeps.

Topics are smoother at first: the prior over words begins high and comes down to what was asked for. With a
small beta, topics specialise on what the first random assignments happened to bring together, and later
sweeps mend that slowly. A larger beta keeps them broad while the coarse structure is found. It is a better
start and no other model: once the sweeps of annealing are over, the chain is that of the prior asked for.
Measured on three corpora, a held-out perplexity is reached after half to a third of the sweeps.

How many sweeps are annealed is fixed (`rules`): a shorter fit is the beginning of a longer one.
"""

from copy import copy

import numpy as np

from ....kernels.lda import host
from ....scheduler.threads import run_tasks
from ..._streams import Purpose
from ..blocks.restoring import taken, unfit
from ..rules import ANNEALED_PASSES, ANNEALED_SWEEPS

_FIRST_BETA = 0.1  # of each word; a prior that is as large is not annealed
_PART = 0.3  # of the tokens that a topic has on average: so many its prior may add at first
MEASURE_EVERY = 10  # sweeps between two values of the log-likelihood: about 2 % of the time
_FIRST_PRIOR_FIT = 20  # sweeps before priors are fitted for the first time
_HELD = 0.6  # part of the sweeps at the first beta; then down in equal ratios


def annealed_sweeps(passes=None, sweeps=None):
    """Number of annealed sweeps, at most half of `sweeps`; a sweep of warp has so many pairs of `passes`."""
    enough = ANNEALED_SWEEPS if passes is None else -(-ANNEALED_PASSES // passes)
    return enough if sweeps is None else min(enough, sweeps // 2)


def first_beta(n_tokens, n_topics, n_words):
    """The prior of a word that annealing begins with.

    It is 0.1, or less: the prior adds at most 0.3 of the tokens that a topic has on average, for with many
    topics little structure would be left.
    """
    return min(_FIRST_BETA, _PART * n_tokens / (n_topics * n_words))


def annealed_prior(beta, sweep, n_sweeps, first):
    """The topic-word prior of one sweep, counted from 0, of which `n_sweeps` are annealed.

    It is ``max(beta, first)`` at first and falls to `beta`, which it is from ``sweep == n_sweeps`` on.
    """
    if sweep >= n_sweeps:
        return beta
    held = _HELD * n_sweeps
    share = max(sweep - held, 0.0) / (n_sweeps - held)
    return beta * np.maximum(first / beta, 1.0) ** (1 - share)


def is_time_for_priors(swept):
    """Whether priors are fitted after so many sweeps: alpha, and beta when annealing is over."""
    return swept % MEASURE_EVERY == 0 and swept >= _FIRST_PRIOR_FIT


class Priors:
    """alpha and beta, float64 vectors, and beta as sweeps are drawn with it (`annealed_prior`)."""

    def __init__(self, alpha, beta, annealed, first):
        self.alpha, self.beta, self.annealed, self.first = alpha, beta, annealed, first
        self._drawn_with = (-1, beta, 0.0)

    @classmethod
    def of(cls, alpha, beta, annealed, n_tokens):
        """Begin with the priors of the parameters; a beta that is large already is not annealed."""
        first = first_beta(n_tokens, len(alpha), len(beta))
        return cls(alpha, beta, annealed if first > beta.min() else 0, first)

    def fitted(self, alpha, fit_beta, swept):
        """The same sweeps with a fitted alpha, and when annealing is over with the beta of ``fit_beta()``."""
        return self.replaced(alpha, fit_beta() if swept >= self.annealed else float(self.beta[0]))

    def replaced(self, alpha, beta):
        """The same sweeps with a fitted alpha and one beta for all words; 0 leaves beta as it is."""
        beta = np.full(len(self.beta), beta) if beta else self.beta
        return self._like(alpha, beta, self.annealed)

    def _like(self, alpha, beta, annealed):
        """Priors of the same class, with what it has besides."""
        same = copy(self)
        same.alpha, same.beta, same.annealed, same._drawn_with = alpha, beta, annealed, (-1, beta, 0.0)
        return same

    def beta_of(self, sweep):
        """The topic-word prior of a sweep, and its sum."""
        cached = self._drawn_with
        if cached[0] != sweep:
            beta = annealed_prior(self.beta, sweep, self.annealed, self.first)
            # replaced as a whole: threads of one round may get here together, with the same result
            cached = self._drawn_with = (sweep, beta, float(beta.sum()))
        return cached[1:]

    def arrays(self):
        """Arrays of a checkpoint."""
        return {"alpha": self.alpha, "beta": self.beta, "annealed": np.int64(self.annealed)}

    def of_checkpoint(self, arrays):
        """The priors that a checkpoint holds, of these shapes."""
        alpha, beta, annealed = taken(arrays, "alpha", "beta", "annealed")
        fits = annealed.shape == () and annealed.dtype == np.int64 and bool(annealed >= 0)
        for array, own in ((alpha, self.alpha), (beta, self.beta)):
            fits = fits and array.shape == own.shape and array.dtype == own.dtype
            fits = fits and bool((np.isfinite(array) & (array > 0)).all())
        if not fits:
            raise unfit()
        return self._like(alpha, beta, int(annealed))


FIRST_TOPICS = 3  # a document starts from this many: held-out perplexity falls faster than from all K...
LONG_DOCUMENT = 200  # ...except for documents of so many tokens, if their sweeps are annealed


def starts_from_all(lengths, annealed):
    """Which documents begin with any of all topics."""
    return (lengths >= LONG_DOCUMENT) & (annealed > 0)


def first_topics(token_doc, topics, n_topics, lengths, annealed, seed, n_jobs=1):
    """Give each token of a whole corpus at random one of the topics that its document starts from.

    The number of threads changes no topic.
    """
    uniforms = host.uniforms(np.arange(len(lengths)), seed, Purpose.CHOICES.value, 0, 0)
    choices = uniforms.reshape(-1, 4)[:, :FIRST_TOPICS]
    spread = starts_from_all(lengths, annealed)
    model = (token_doc, topics, n_topics, choices, spread, seed, Purpose.ASSIGN.value)
    run_tasks([(host.assign_first, (*model, first)) for first in host.lots(len(topics))], n_jobs)
    return topics
