"""tomotopy: collapsed Gibbs sampling in C++ with SIMD."""

import numpy as np


class Solver:
    """`tomotopy.LDAModel` with fixed symmetric priors, or fitting them as it does by default."""

    name = "tomotopy"
    method = "collapsed Gibbs (C++)"
    requires = ("tomotopy==0.14.0", "numpy")

    def __init__(self, settings):
        self.settings = settings

    def set_data(self, data):
        """Add the documents as lists of word numbers (tomotopy reads strings only)."""
        import tomotopy

        self.model = tomotopy.LDAModel(
            k=self.settings.n_components,
            alpha=self.settings.doc_topic_prior,
            eta=self.settings.topic_word_prior,
            seed=self.settings.seed,
        )
        if not self.settings.optimize_priors:
            self.model.optim_interval = 0
        names = np.array([str(word) for word in range(data.n_words)])
        self.documents = np.flatnonzero(np.diff(data.indptr))
        for document in self.documents:
            entries = slice(data.indptr[document], data.indptr[document + 1])
            self.model.add_doc(names[np.repeat(data.indices[entries], data.counts[entries])].tolist())
        self.n_words = int(data.n_words)
        self.n_tokens = int(data.counts.sum())

    def run(self, watch):
        """One sweep a step."""
        while True:
            self.model.train(1, workers=self.settings.n_jobs)
            if not watch.tick(self.n_tokens, self.snapshot):
                return

    def snapshot(self):
        """Topics, and the topic of each token."""
        words = np.array([int(word) for word in self.model.used_vocabs])
        topic_word = np.zeros((self.settings.n_components, self.n_words), np.float32)
        for topic in range(self.settings.n_components):
            topic_word[topic, words] = self.model.get_topic_word_dist(topic)
        documents = list(self.model.docs)
        rows = np.repeat(self.documents, [len(document.words) for document in documents])
        token_words = words[np.concatenate([document.words for document in documents])]
        topics = np.concatenate([document.topics for document in documents])
        ones = np.ones_like(rows)
        return {
            "topic_word": topic_word,
            "doc_topic_prior": np.broadcast_to(self.model.alpha, self.settings.n_components),
            "doc_topic": np.column_stack([rows, topics, ones]),
            "word_topic": np.column_stack([token_words, topics, ones]),
        }
