"""stradask: its default sampler, WarpLDA's order first and Gibbs sampling when K_d has fallen."""

import numpy as np


class Solver:
    """`stradask.LatentDirichletAllocation` as a user calls it, watched by a callback.

    Checking and laying out the data are a part of `fit`, so for this system they count as training.
    """

    name = "stradask"
    method = "WarpLDA order, then collapsed Gibbs (numba)"
    requires = ()
    libraries = ("numba", "scipy")

    def __init__(self, settings):
        self.settings = settings

    def set_data(self, data):
        """Build the CSR matrix."""
        from scipy.sparse import csr_matrix

        shape = (len(data.indptr) - 1, int(data.n_words))
        self.counts = csr_matrix((data.counts.astype(np.int32), data.indices, data.indptr), shape=shape)

    def run(self, watch):
        """One `fit` that the watch ends, a sweep a step.

        To warm up, both samplers that "auto" may choose: on little data it would compile one alone.
        """
        warming_up = watch.max_ticks is not None
        for sampler in ("warp", "gibbs") if warming_up else ("auto",):
            self._fit(watch, sampler, once=warming_up)

    def _fit(self, watch, sampler, once):
        import stradask

        model = stradask.LatentDirichletAllocation(
            self.settings.n_components,
            sampler=sampler,
            doc_topic_prior=self.settings.doc_topic_prior,
            topic_word_prior=self.settings.topic_word_prior,
            optimize_priors=self.settings.optimize_priors,
            max_iter=10**9,
            n_jobs=self.settings.n_jobs,
            random_state=self.settings.seed,
        )
        self.model = model.fit(
            self.counts,
            callback=lambda info: not watch.tick(info.updates, lambda: _snapshot(info.snapshot())) or once,
        )


def _snapshot(model):
    """Topics and counts."""
    return {
        "topic_word": model.topic_word_.astype(np.float32),
        "doc_topic_prior": np.broadcast_to(model.doc_topic_prior_, len(model.topic_word_)),
        "doc_topic": _triples(model.doc_topic_counts_),
        "word_topic": _triples(model.word_topic_counts_),
    }


def _triples(counts):
    counts = counts.tocoo()
    return np.column_stack([counts.row, counts.col, counts.data])
