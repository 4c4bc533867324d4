"""The tokens of SaberLDA's sampler on a GPU, laid out by `stradask.kernels.lda.saber_cuda`."""

import threading

import numpy as np

from ....kernels.lda import host as lda_host
from ....kernels.lda import saber_chunks as lda_saber_chunks
from ....kernels.lda import saber_cuda as lda_saber_cuda


class TokensOnDevice:
    """The topics of the tokens of a `SaberState` on the GPU that draws them."""

    def __init__(self, device, X, state):
        n_topics, order = state.n_topics, state.order
        frequency = np.diff(state.word_start)
        cuts, resident, _ = lda_saber_chunks.choose_chunks(device, state.lengths, frequency, n_topics)
        begin = lda_host.begins(X, order, cuts, state.word_start)
        layout = lda_saber_chunks.SaberLayout(state.lengths, state.word_start, n_topics, cuts, begin)
        self._read, self._joint = state.topics, None
        self._reading = threading.Lock()  # groups of documents are measured side by side
        self.sampler = lda_saber_cuda.SaberSampler(device, layout, resident, state.token_doc, state.topics)

    def topics(self):
        """Topics of the tokens, read from the device when they are first asked for."""
        with self._reading:
            if self._read is None:
                self._read = self.sampler.topics()
            return self._read

    def joint(self, alpha, beta):
        """Parts of documents and words of the log-likelihood, computed when first asked for."""
        with self._reading:
            if self._joint is None or self._joint[0] is not alpha or self._joint[1] is not beta:
                self._joint = (alpha, beta, self.sampler.joint(alpha, beta))
            return self._joint[2]

    def begin_from(self, topics):
        """Go on from topics of the tokens."""
        self._read, self._joint = topics, None
        self.sampler.begin_from(topics)

    def sweep(self, weights, tree, per_beta, *stream):
        """Draw all tokens; return the topic totals.

        `weights`, `tree` and `per_beta` are as in `lda.saber.sample_words`; `stream` is seed, purpose and
        round.
        """
        alpha, inverse, _, lift = weights
        of_topics = np.column_stack([alpha, inverse, lift, np.zeros_like(alpha)]).reshape(-1)
        self._read = self._joint = None
        return self.sampler.sweep(
            *stream, of_topics=of_topics, groups=tree[0], tops=tree[1], per_beta=per_beta
        )
