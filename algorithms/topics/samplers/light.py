"""LightLDA's cycle of proposals as a model-parallel program over one corpus.

Groups, steps and layout are those of Gibbs sampling (`GibbsState`); a token is moved by
Metropolis-Hastings (`stradask.kernels.lda.light`) instead of drawn from its conditional, at a time that does
not grow with K, and with the topics of a document hardly.

All counts are live. In one group (``exact=True``) a sweep leaves the posterior as it is; with more, a group
sees the others' changes of the topic totals a step late. On corpora of ten tokens in two groups, that moves
the stationary distribution by a total variation of 0.03 to 0.08; in a real corpus the totals are thousands of
times larger than their lag.

Memory, in bytes a token: topic 2 (4 above 65,535 topics), document 4, rows of frequent words at
most 4; and the documents' lists, 64 for every 16 of ``min(length, K)`` topics. Besides, 8 K bytes for the
totals of each group, and 4 K for each running block.
"""

import numpy as np

from ....kernels.lda import alias
from ....kernels.lda import light as lda_light
from .document_rows import PackedLists
from .gibbs import GibbsState

_SWEEP = 7  # purpose of a random stream


class LightState(GibbsState):
    """Assignments and counts of LightLDA's chain; documents are lists for few topics too.

    Parameters
    ----------
    X, n_topics, alpha, beta, seed, exact, n_groups, fits_priors, annealed, folder
        See `GibbsState`.
    n_steps : int, default=2
        Pairs of proposals that a token is given in a sweep. Held-out perplexity falls about as fast, by time,
        with 1 to 4.
    """

    name = "light"

    def __init__(self, X, n_topics, alpha, beta, seed, *, n_steps=2, **options):
        self.n_steps = n_steps
        super().__init__(X, n_topics, alpha, beta, seed, **options)
        if not isinstance(self.documents, PackedLists):
            self.documents = PackedLists(self.lengths, n_topics, self.storage)
            self.documents.fill(self.token_doc, self.topics)

    def set_priors(self, alpha, beta):
        """See `CorpusState`."""
        super().set_priors(alpha, beta)
        self._alpha_sum = float(alpha.sum())
        size = 0 if np.ptp(alpha) == 0 else len(alpha)
        self._aliases, self._limits = np.empty(size, np.int64), np.empty(size, np.uint32)
        if size:
            alias.alias_tables(alpha, self._aliases, self._limits)

    def _block(self, g, h, totals, round_):
        """Move the tokens of document group g and word group h."""
        lists = self.documents
        place = (self.group_words[h], self.bounds[g], self.bounds[g + 1], self.word_start, self.token_doc)
        documents = (lists.entries, lists.line_start, lists.n_lines, lists.shift, self.lengths)
        words = (self.row_of_word, self.rows, totals, np.empty(0, np.int64))
        alpha = (self.alpha, self._alpha_sum, self._aliases, self._limits)
        beta, _, beta_sum = self.beta_of(round_)
        stream = (self.seed, _SWEEP, round_, g)
        lda_light.sweep(
            *place, self.topics, *documents, *words, *alpha, beta, beta_sum, self.n_steps, *stream
        )
