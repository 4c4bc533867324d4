"""Topic models beyond LDA of this library and its peers, behind one face, for `topics_models`.

A side has ``prepare(data)``, which is not timed, ``fit(data)``, ``topics(data)`` of other documents (topics,
and the prior of each), and ``predict(X)`` or ``labels`` where the task has them. Words are columns of X.
"""

from typing import Any

import numpy as np

from ...algorithms.topics.biterm import BitermTopicModel
from ...algorithms.topics.dmr import DMRTopicModel
from ...algorithms.topics.dynamic import DynamicTopicModel
from ...algorithms.topics.gsdmm import GSDMM
from ...algorithms.topics.hdp import HDPTopicModel
from ...algorithms.topics.supervised import SupervisedLDA

ALPHA, BETA = 0.1, 0.01
MIXTURE_BETA = 0.1  # of short texts
PSEUDO_DOCUMENTS = 200  # of tomotopy's model of short texts
DRIFT = 0.1  # standard deviation of a word's logarithm from slice to slice
EM_ROUNDS = 20  # of variational peers; gensim's own default
COVARIATES, NUMBER, RESPONSE, SHORT, MIXED, TIME = TASKS = (
    "covariates",
    "number of topics",
    "response",
    "short texts",
    "mixed short texts",
    "time slices",
)


def words_of(X):
    """Documents as lists of words, which are numbers as text."""
    names = np.array([str(word) for word in range(X.shape[1])])
    counts = X.data.astype(np.int64)
    ends = X.indptr[1:]
    return [
        names[np.repeat(X.indices[a:b], counts[a:b])].tolist()
        for a, b in zip(X.indptr[:-1], ends, strict=True)
    ]


def spread(topic_word, words, n_words):
    """Topics over all words, from those over the words (as text) that a library keeps."""
    phi = np.zeros((len(topic_word), n_words))
    phi[:, [int(word) for word in words]] = topic_word
    return phi


class Side:
    """One library's model of a task."""

    tasks: tuple[str, ...] = TASKS
    model: Any  # of a library, by the task

    def __init__(self, task, n_topics, sweeps, seed, of_classes):
        self.task, self.n_topics, self.sweeps, self.seed = task, n_topics, sweeps, seed
        self.of_classes = of_classes

    def prepare(self, data):
        """Bring data into the library's form."""
        self.documents, self.n_words = words_of(data.X), data.X.shape[1]
        self.centre, self.scale = 0.0, 1.0
        if self.task == RESPONSE and not self.of_classes:
            self.centre, self.scale = float(data.y.mean()), float(data.y.std())

    def _even(self, phi, n_documents, alpha=ALPHA):
        return phi, np.broadcast_to(np.asarray(alpha, float), (n_documents, len(phi)))

    def _by_tokens(self, phi, tokens, alpha, n_documents):
        """Of HDP: a prior in proportion to the tokens of topics."""
        return self._even(phi, n_documents, alpha * np.maximum(tokens, 1e-3) / tokens.sum())

    def _answers(self, found):
        return (found > 0.5).astype(float) if self.of_classes else found * self.scale + self.centre


class Own(Side):
    """The models of this library."""

    name = "stradask"

    def prepare(self, data):
        """Make the model."""
        given: dict[str, Any] = {"topic_word_prior": BETA, "max_iter": self.sweeps, "random_state": self.seed}
        if self.task == COVARIATES:
            self.model = DMRTopicModel(self.n_topics, doc_topic_prior=ALPHA, n_jobs=1, **given)
        elif self.task == NUMBER:
            self.model = HDPTopicModel(self.n_topics, n_jobs=1, **given)
        elif self.task == RESPONSE:
            kind = "class" if self.of_classes else "number"
            self.model = SupervisedLDA(self.n_topics, doc_topic_prior=ALPHA, response=kind, n_jobs=1, **given)
        elif self.task == SHORT:
            given |= {"topic_word_prior": MIXTURE_BETA}
            self.model = GSDMM(self.n_topics, doc_topic_prior=ALPHA, **given)
        elif self.task == MIXED:
            given |= {"topic_word_prior": BETA}
            self.model = BitermTopicModel(self.n_topics, doc_topic_prior=ALPHA, n_jobs=1, **given)
        else:
            self.model = DynamicTopicModel(
                self.n_topics, drift=DRIFT, doc_topic_prior=ALPHA, n_jobs=1, **given
            )

    def fit(self, data):
        """Fit the model."""
        if self.task == COVARIATES:
            self.model.fit(data.X, covariates={"group": data.groups})
        elif self.task == RESPONSE:
            self.model.fit(data.X, data.y)
        elif self.task == TIME:
            self.model.fit(data.X, slices=data.groups)
        else:
            self.model.fit(data.X)

    def topics(self, data):
        """Topics, and the priors of documents."""
        n = data.X.shape[0]
        if self.task == COVARIATES:
            rows = self.model._reader.design({"group": data.groups}, n)
            return self.model.topic_word_, self.model._prior_rows(rows)
        if self.task == TIME:
            return self._even(self.model.at(self.model.slices_[-1]).topic_word_, n)
        return self._even(self.model.topic_word_, n, self.model.doc_topic_prior_)

    def predict(self, X):
        """Predict responses."""
        return self.model.predict(X)

    @property
    def labels(self):
        """The topic of each text."""
        return self.model.labels_ if self.task == SHORT else self.model.doc_topic_.argmax(axis=1)


class Tomotopy(Side):
    """The models of tomotopy."""

    name = "tomotopy"
    tasks = tuple(task for task in TASKS if task != SHORT)

    def prepare(self, data):
        """Add the documents."""
        import tomotopy

        super().prepare(data)
        own: dict[str, Any] = {"seed": self.seed}
        k = self.n_topics
        if self.task == COVARIATES:
            self.model = tomotopy.DMRModel(k=k, alpha=ALPHA, eta=BETA, **own)
        elif self.task == NUMBER:
            self.model = tomotopy.HDPModel(initial_k=2, alpha=1.0, gamma=1.0, eta=BETA, **own)
        elif self.task == RESPONSE:
            kind = "b" if self.of_classes else "l"
            self.model = tomotopy.SLDAModel(k=k, vars=kind, alpha=ALPHA, eta=BETA, **own)
        elif self.task == MIXED:
            self.model = tomotopy.PTModel(k=k, p=PSEUDO_DOCUMENTS, alpha=ALPHA, eta=BETA, **own)
        else:
            self.slices, places = np.unique(data.groups, return_inverse=True)
            self.model = tomotopy.DTModel(k=k, t=len(self.slices), phi_var=DRIFT, **own)
        for row, words in enumerate(self.documents):
            known = {}
            if self.task == COVARIATES:
                known = {"metadata": data.groups[row]}
            elif self.task == RESPONSE:
                known = {"y": [float((data.y[row] - self.centre) / self.scale)]}
            elif self.task == TIME:
                known = {"timepoint": int(places[row])}
            self.model.add_doc(words, **known)

    def fit(self, data):
        """Fit the model."""
        self.model.train(self.sweeps, workers=1)

    def topics(self, data):
        """Topics, and the priors of documents."""
        model, n = self.model, data.X.shape[0]
        places = list(range(model.k))
        if self.task == NUMBER:
            places = [k for k in places if model.is_live_topic(k)]
        of_slice = {"timepoint": len(self.slices) - 1} if self.task == TIME else {}
        rows = np.array([model.get_topic_word_dist(k, **of_slice) for k in places])
        phi = spread(rows, model.used_vocabs, self.n_words)
        if self.task == COVARIATES:
            table = {group: model.get_topic_prior(group) for group in dict.fromkeys(data.groups)}
            return phi, np.array([table[group] for group in data.groups], float)
        if self.task == NUMBER:
            tokens = np.asarray(model.get_count_by_topics(), float)[places]
            return self._by_tokens(phi, tokens, float(model.alpha), n)
        return self._even(phi, n, ALPHA if self.task == TIME else model.alpha)

    def predict(self, X):
        """Predict responses."""
        documents = [self.model.make_doc(words) for words in words_of(X)]
        self.model.infer(documents, iterations=100, workers=1)
        return self._answers(np.array([self.model.estimate(document)[0] for document in documents]))

    @property
    def labels(self):
        """The topic of which each text holds most."""
        return np.array([np.argmax(document.get_topic_dist()) for document in self.model.docs])


class Topica(Side):
    """The models of topica. Its supervised and dynamic models are variational."""

    name = "topica"

    def prepare(self, data):
        """Make the model, and the corpus."""
        import topica

        super().prepare(data)
        self.documents = topica.Corpus.from_documents(self.documents)
        own: dict[str, Any] = {"seed": self.seed}
        k = self.n_topics
        if self.task == COVARIATES:
            self.levels = sorted(set(data.groups))
            self.model = topica.DMR(k, alpha=ALPHA, beta=BETA, **own)
        elif self.task == NUMBER:
            self.model = topica.HDP(alpha=1.0, gamma=1.0, beta=BETA, **own)
        elif self.task == RESPONSE:
            self.model = topica.SupervisedLDA(k, alpha=ALPHA, **own)
        elif self.task == SHORT:
            self.model = topica.GSDMM(k, alpha=ALPHA, beta=MIXTURE_BETA, **own)
        elif self.task == MIXED:
            models: Any = topica  # its stubs lack this one
            self.model = models.BTM(k, alpha=ALPHA, beta=BETA, **own)
        else:
            self.model = topica.DTM(k, alpha=ALPHA, chain_variance=DRIFT**2, **own)

    def _design(self, groups):
        return np.array([[group == level for level in self.levels[1:]] for group in groups], float)

    def fit(self, data):
        """Fit the model."""
        quiet = {"keep_theta_draws": False}
        if self.task == COVARIATES:
            self.model.fit(self.documents, self._design(data.groups), iters=self.sweeps, **quiet)
        elif self.task == NUMBER:
            self.model.fit(self.documents, iters=self.sweeps, **quiet)
        elif self.task == RESPONSE:
            y = (data.y - self.centre) / self.scale
            self.model.fit(self.documents, y, iters=EM_ROUNDS, **quiet)
        elif self.task in (SHORT, MIXED):
            self.model.fit(self.documents, iters=self.sweeps)
        else:
            places = np.unique(data.groups, return_inverse=True)[1]
            self.n_slices = int(places.max()) + 1
            self.model.fit(self.documents, places.tolist(), iters=EM_ROUNDS)

    def topics(self, data):
        """Topics, and the priors of documents."""
        n = data.X.shape[0]
        rows = self.model.topic_word(self.n_slices - 1) if self.task == TIME else self.model.topic_word
        phi = spread(np.asarray(rows), self.model.vocabulary, self.n_words)
        if self.task == COVARIATES:
            design = np.hstack([np.ones((n, 1)), self._design(data.groups)])
            return phi, np.exp(design @ np.asarray(self.model.feature_effects).T)
        if self.task == NUMBER:
            tokens = np.asarray(self.model.doc_lengths) @ np.asarray(self.model.doc_topic)
            return self._by_tokens(phi, tokens, float(self.model.alpha), n)
        return self._even(phi, n)

    def predict(self, X):
        """Predict responses."""
        return self._answers(np.asarray(self.model.predict(words_of(X))))

    @property
    def labels(self):
        """The topic of each text."""
        if self.task == MIXED:
            return np.asarray(self.model.doc_topic).argmax(axis=1)
        return np.asarray(self.model.doc_cluster)


class Gensim(Side):
    """gensim's `LdaSeqModel`."""

    name, tasks = "gensim", (TIME,)

    def prepare(self, data):
        """Bring documents into lists of words and counts."""
        X = data.X
        self.corpus = [
            list(zip(X.indices[a:b].tolist(), X.data[a:b].tolist(), strict=True))
            for a, b in zip(X.indptr[:-1], X.indptr[1:], strict=True)
        ]
        self.slices, self.sizes = np.unique(data.groups, return_counts=True)

    def fit(self, data):
        """Fit the model."""
        from gensim.models import LdaSeqModel

        self.model = LdaSeqModel(
            self.corpus,
            self.sizes.tolist(),
            id2word={word: str(word) for word in range(data.X.shape[1])},
            num_topics=self.n_topics,
            alphas=ALPHA,
            chain_variance=DRIFT**2,
            random_state=self.seed,
        )

    def topics(self, data):
        """Topics, and the priors of documents."""
        last = len(self.slices) - 1
        phi = np.exp([chain.e_log_prob[:, last] for chain in self.model.topic_chains])
        return self._even(phi / phi.sum(axis=1, keepdims=True), data.X.shape[0])


SIDES = (Own, Tomotopy, Topica, Gensim)
