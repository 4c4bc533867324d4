"""scikit-learn: online variational Bayes."""

import numpy as np


class Solver:
    """`sklearn.decomposition.LatentDirichletAllocation` in mini-batches."""

    name = "sklearn"
    method = "online variational Bayes"
    requires = ("scikit-learn==1.9.1", "numpy")
    batch_size = 256

    def __init__(self, settings):
        self.settings = settings

    def set_data(self, data):
        """Build the CSR matrix."""
        from scipy.sparse import csr_array
        from sklearn.decomposition import LatentDirichletAllocation

        shape = (len(data.indptr) - 1, int(data.n_words))
        self.counts = csr_array((data.counts.astype(np.float64), data.indices, data.indptr), shape=shape)
        self.model = LatentDirichletAllocation(
            self.settings.n_components,
            doc_topic_prior=self.settings.doc_topic_prior,
            topic_word_prior=self.settings.topic_word_prior,
            learning_method="online",
            batch_size=self.batch_size,
            total_samples=shape[0],
            n_jobs=self.settings.n_jobs,
            random_state=self.settings.seed,
        )

    def run(self, watch):
        """One mini-batch a step, the documents in a new order on each pass."""
        random = np.random.default_rng(self.settings.seed)
        n_documents = self.counts.shape[0]
        while True:
            order = random.permutation(n_documents)
            for start in range(0, n_documents, self.batch_size):
                batch = self.counts[order[start : start + self.batch_size]]
                self.model.partial_fit(batch)
                if not watch.tick(batch.sum(), self.snapshot):
                    return

    def snapshot(self):
        """Topics alone: a variational method assigns no topic to a token."""
        topics = self.model.components_
        return {"topic_word": (topics / topics.sum(axis=1, keepdims=True)).astype(np.float32)}
