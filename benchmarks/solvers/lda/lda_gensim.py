"""gensim: online variational Bayes."""

import itertools

import numpy as np


class Solver:
    """`gensim.models.LdaModel`, or `LdaMulticore` for more than one job."""

    name = "gensim"
    method = "online variational Bayes"
    requires = ("gensim==4.4.0", "numpy")
    chunk_size = 256

    def __init__(self, settings):
        self.settings = settings

    def set_data(self, data):
        """Make lists of (word, count) and an empty model."""
        from gensim.models import LdaModel, LdaMulticore

        pairs = list(zip(data.indices.tolist(), data.counts.tolist(), strict=True))
        bounds = data.indptr.tolist()
        self.documents = [pairs[start:stop] for start, stop in itertools.pairwise(bounds)]
        self.lengths = np.diff(np.append(0, np.cumsum(data.counts))[data.indptr])
        parameters = {
            "id2word": {word: str(word) for word in range(data.n_words)},
            "num_topics": self.settings.n_components,
            "alpha": self._alpha(),
            "eta": self.settings.topic_word_prior,
            "chunksize": self.chunk_size,
            "decay": 0.7,  # with offset 10, as in scikit-learn: gensim's own 0.5 and 1 do far worse here
            "offset": 10,
            "passes": 2**31,
            "eval_every": None,
            "random_state": self.settings.seed,
        }
        if self.settings.n_jobs > 1:
            self.model = LdaMulticore(workers=self.settings.n_jobs, **parameters)
        else:
            self.model = LdaModel(**parameters)

    def _alpha(self):
        """The prior of documents; `LdaMulticore` cannot fit it."""
        if self.settings.optimize_priors and self.settings.n_jobs == 1:
            return "auto"
        return np.full(self.settings.n_components, self.settings.doc_topic_prior)

    def run(self, watch):
        """One update over a stream of passes that ends when the watch says so."""
        try:
            self.model.update(_Passes(self, watch))
        except _TimeIsUp:
            return

    def snapshot(self):
        """Topics and the prior alone: a variational method assigns no topic to a token."""
        return {"topic_word": self.model.get_topics(), "doc_topic_prior": self.model.alpha}


class _TimeIsUp(Exception):
    pass


class _Passes:
    """The corpus, ticking where gensim asks for more documents.

    With one job a chunk is done when the next one is asked for. `LdaMulticore` asks ahead, so there
    only the start of a pass, when all of the last one is done, can tick.
    """

    def __init__(self, solver, watch):
        self.solver, self.watch = solver, watch
        self.untold = 0

    def __len__(self):
        return len(self.solver.documents)

    def __iter__(self):
        self._tick()
        for number, document in enumerate(self.solver.documents):
            if self.solver.settings.n_jobs == 1 and number % self.solver.chunk_size == 0:
                self._tick()
            self.untold += self.solver.lengths[number]
            yield document

    def _tick(self):
        if self.untold and not self.watch.tick(self.untold, self.solver.snapshot):
            raise _TimeIsUp
        self.untold = 0
