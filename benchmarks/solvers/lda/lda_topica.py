"""topica: SparseLDA in Rust, the fastest of its exact samplers."""

import numpy as np


class Solver:
    """`topica.LDA` with fixed symmetric priors, or fitting those of the documents.

    A fit cannot be stopped or gone on with, so each state is that of a fit from the start, with half as many
    sweeps again as the one before; the clock is that of this fit alone.
    """

    name = "topica"
    method = "SparseLDA (Rust)"
    requires = ("topica==0.62.0", "numpy")

    def __init__(self, settings):
        self.settings = settings

    def set_data(self, data):
        """Build a corpus from documents as lists of word numbers (topica reads strings only)."""
        names = np.array([str(word) for word in range(data.n_words)])
        self.rows = np.flatnonzero(np.diff(data.indptr))
        self.documents = []
        for row in self.rows:
            entries = slice(data.indptr[row], data.indptr[row + 1])
            self.documents.append(names[np.repeat(data.indices[entries], data.counts[entries])].tolist())
        self.n_words, self.n_tokens = int(data.n_words), int(data.counts.sum())

    def run(self, watch):
        """Fits of more and more sweeps, the last as long as asked for."""
        import topica

        # by default it fits nothing before its 200th sweep, and most of these fits are shorter
        fitting = {"optimize_interval": 10, "burn_in": 20} if self.settings.optimize_priors else {}
        fixed = {"optimize_interval": 0, "use_symmetric_alpha": True}
        sweeps = 1
        while True:
            watch.restart()
            self.model = topica.LDA(
                self.settings.n_components,
                alpha_sum=self.settings.doc_topic_prior * self.settings.n_components,
                beta=self.settings.topic_word_prior,
                **(fitting or fixed),
                seed=self.settings.seed,
                num_threads=self.settings.n_jobs,
                sampler="sparse",
            )
            self.model.fit(
                self.documents, iters=sweeps, num_samples=1, sample_interval=1, keep_theta_draws=False
            )
            if not watch.tick(self.n_tokens * sweeps, self.snapshot):
                return
            sweeps += max(sweeps // 2, 1)

    def snapshot(self):
        """Topics; topica tells the topics of tokens only by way of a file."""
        topic_word = np.zeros((self.settings.n_components, self.n_words), np.float32)
        topic_word[:, [int(word) for word in self.model.vocabulary]] = self.model.topic_word
        return {"topic_word": topic_word, "doc_topic_prior": np.asarray(self.model.alpha)}
