"""stradask: collapsed Gibbs sampling by rotation of word groups."""

import numpy as np


class Solver:
    """`stradask.LatentDirichletAllocation` as a user calls it, watched by a callback.

    Checking and laying out the data are a part of `fit`, so for this system they count as training.
    """

    name = "stradask"
    method = "collapsed Gibbs (numba)"
    requires = ()
    libraries = ("numba", "scipy")

    def __init__(self, settings):
        self.settings = settings

    def set_data(self, data):
        """Build the CSR matrix."""
        from scipy.sparse import csr_matrix

        shape = (len(data.indptr) - 1, int(data.n_words))
        self.counts = csr_matrix((data.counts.astype(np.int32), data.indices, data.indptr), shape=shape)
        self.n_tokens = int(data.counts.sum())

    def run(self, watch):
        """One `fit` that the watch ends, a sweep a step."""
        self.model = _kept_state()(
            self.settings.n_components,
            doc_topic_prior=self.settings.doc_topic_prior,
            topic_word_prior=self.settings.topic_word_prior,
            max_iter=10**9,
            n_jobs=self.settings.n_jobs,
            random_state=self.settings.seed,
        )
        self.model.fit(self.counts, callback=lambda info: not watch.tick(self.n_tokens, self.snapshot))

    def snapshot(self):
        """Topics and counts."""
        doc_topic = self.model.state.doc_topic_counts()
        word_topic = self.model.state.word_topic_counts()
        topic_word = word_topic.toarray().T + self.settings.topic_word_prior
        return {
            "topic_word": (topic_word / topic_word.sum(axis=1, keepdims=True)).astype(np.float32),
            "doc_topic": _triples(doc_topic),
            "word_topic": _triples(word_topic),
        }


def _kept_state():
    """The estimator, keeping the state that its fit works on: a callback is told figures only."""
    import stradask

    class KeptState(stradask.LatentDirichletAllocation):
        def _new_state(self, *args, **kwargs):
            self.state = super()._new_state(*args, **kwargs)
            return self.state

    return KeptState


def _triples(counts):
    counts = counts.tocoo()
    return np.column_stack([counts.row, counts.col, counts.data])
