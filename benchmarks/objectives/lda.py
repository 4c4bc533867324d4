"""Topic models: held-out perplexity, and the joint log-likelihood.

The joint log-likelihood alone must not rank systems: a sampler that converges to a mode has a better
joint and a worse model. It is recomputed here from the assignments, by formulas that share no code
with the library.
"""

import hashlib
from numbers import Real
from pathlib import Path
from typing import ClassVar

import numpy as np
from scipy import sparse
from scipy.special import gammaln

from ...datasets import split_tokens
from ...errors import DataError
from ..data import load_counts
from . import Metric

SAMPLE_DOCUMENTS = 200
MAX_TEST_DOCUMENTS = 1000
EM_STEPS = 20
LARGE_STATE = 100_000_000  # topics x words from which a state takes half a gigabyte to keep


class Objective:
    """Held-out perplexity and joint log-likelihood on one corpus.

    A tenth of the documents (1,000 at most), drawn by `seed`, is held out. Half of the tokens of each
    held-out document, drawn by the same seed, are observed: 20 EM steps on them give the document's
    topics, and the other half is scored. Words that no training document has are left out for every
    system, because not all of them give such words a probability.

    Parameters are ``n_components``, two symmetric priors, and ``optimize_priors``, which lets the systems
    that can do it fit their priors, each in its own way. `quick` shortens the training time alone.
    """

    family = "lda"
    work = "tokens"
    metrics = (
        Metric("held_out_perplexity", "held-out perplexity", lower_is_better=True),
        Metric("joint_log_likelihood", "joint log-likelihood per token", lower_is_better=False),
    )
    procedure = "training"
    default_datasets = ("docstrings",)
    defaults: ClassVar[dict] = {
        "n_components": 50,
        "doc_topic_prior": 0.1,
        "topic_word_prior": 0.01,
        "optimize_priors": False,
    }
    quick_defaults: ClassVar[dict] = {}
    max_seconds, quick_max_seconds = 8.0, 2.0

    def __init__(self, dataset, *, seed, parameters, quick=False):
        for name, value in parameters.items():
            if name == "optimize_priors":
                if not isinstance(value, bool):
                    raise DataError(f"--param: optimize_priors is {value!r}; True or False is needed")
            elif not (isinstance(value, Real) and float(value) > 0):
                raise DataError(f"--param: {name} is {value!r}; a number above 0 is needed")
        self.dataset = dataset
        self.seed = seed
        self.parameters = parameters
        self.train, test = split_documents(load_counts(dataset, seed), seed)
        self.observed, self.held_out = split_tokens(test, random_state=seed)
        self.fingerprint = fingerprint(self.train, self.observed, self.held_out)

    @property
    def n_states(self):
        """How many states of a run are judged: fewer where each takes gigabytes and minutes."""
        return 12 if self.parameters["n_components"] * self.train.shape[1] < LARGE_STATE else 4

    def describe(self):
        """Return the facts of the data for the records."""
        return {
            "name": Path(self.dataset).name,
            "fingerprint": self.fingerprint,
            "split_seed": self.seed,
            "train_documents": self.train.shape[0],
            "words": self.train.shape[1],
            "train_tokens": int(self.train.sum()),
            "train_nonzeros": int(self.train.nnz),
            "test_documents": self.observed.shape[0],
            "test_tokens_observed": int(self.observed.sum()),
            "test_tokens_scored": int(self.held_out.sum()),
        }

    def settings(self):
        """Settings that every solver is given."""
        return dict(self.parameters)

    def arrays(self):
        """Training counts in CSR form: indptr, indices, counts, n_words."""
        return csr_arrays(self.train)

    def sample(self):
        """The first documents of the training part, to warm up on."""
        return csr_arrays(self.train[:SAMPLE_DOCUMENTS])

    def evaluate(self, snapshot):
        """Judge one state: perplexity, and log p(w, z) per token or None (with fitted priors).

        It has ``topic_word`` (K x V, rows sum to 1); of systems that fit it ``doc_topic_prior`` (K,); and of
        systems that assign topics to tokens ``doc_topic`` and ``word_topic``: rows of (document or word,
        topic, count), where equal pairs may occur again (then their counts add up). DataError for topics that
        are no distributions, or counts that are not those of the corpus.
        """
        from ...algorithms.topics.evaluation import document_completion

        if "topic_word" not in snapshot:
            raise DataError("the state has no topic_word")
        topic_word = self._checked_topics(snapshot["topic_word"])
        held_out = document_completion(
            topic_word, self.observed, self.held_out, self._doc_topic_prior(snapshot), n_steps=EM_STEPS
        )
        counts = self._checked_counts(snapshot)
        joint = None
        if counts is not None and not self.parameters["optimize_priors"]:
            doc_topic, word_topic = counts
            alpha, beta = (self.parameters[name] for name in ("doc_topic_prior", "topic_word_prior"))
            joint = joint_log_likelihood(doc_topic, word_topic, alpha, beta) / int(self.train.sum())
        return {"held_out_perplexity": float(np.exp(-held_out)), "joint_log_likelihood": joint}

    def _checked_topics(self, topic_word):
        topic_word = np.array(topic_word, dtype=np.float32)
        shape = (self.parameters["n_components"], self.train.shape[1])
        if topic_word.shape != shape:
            raise DataError(f"topic_word has the shape {topic_word.shape}; the benchmark asked for {shape}")
        totals = topic_word.sum(axis=1, keepdims=True, dtype=np.float64)
        if not (topic_word.min() >= 0 and np.allclose(totals, 1, atol=1e-3)):
            raise DataError(
                "a row of topic_word is not a distribution: entries >= 0 that sum to 1 are needed"
            )
        topic_word /= totals.astype(np.float32)
        return topic_word

    def _doc_topic_prior(self, snapshot):
        """Return the prior for scoring: the system's own where it has fitted one."""
        if not self.parameters["optimize_priors"] or "doc_topic_prior" not in snapshot:
            return self.parameters["doc_topic_prior"]
        prior = np.asarray(snapshot["doc_topic_prior"], dtype=np.float64)
        if prior.shape != (self.parameters["n_components"],) or not np.all(prior > 0):
            raise DataError(f"doc_topic_prior is not {self.parameters['n_components']} numbers above 0")
        return prior

    def _checked_counts(self, snapshot):
        if "doc_topic" not in snapshot:
            return None
        doc_topic, word_topic = (
            sum_of_triples(snapshot[name], (size, self.parameters["n_components"]))
            for name, size in zip(("doc_topic", "word_topic"), self.train.shape, strict=True)
        )
        for name, counts, axis in (("document", doc_topic, 1), ("word", word_topic, 0)):
            expected = self.train.sum(axis=axis)
            if not np.array_equal(counts.sum(axis=1), expected):
                raise DataError(f"the {name}-topic counts do not add up to the tokens of the corpus")
        return doc_topic, word_topic


def joint_log_likelihood(doc_topic_counts, word_topic_counts, doc_topic_prior, topic_word_prior):
    """Return log p(w, z) in nats, the words and their topics, with topics and proportions integrated out.

    Counts are D x K and V x K (dense or sparse), priors numbers or vectors. With ``C`` the counts, ``a`` and
    ``b`` the priors and sums written as bare ``a`` and ``b`` (Griffiths and Steyvers, PNAS 101, 2004)::

        sum_d [ lnG(a) - lnG(L_d + a) + sum_k lnG(C_dk + a_k) - lnG(a_k) ]
      + sum_k [ lnG(b) - lnG(C_k + b) + sum_w lnG(C_wk + b_w) - lnG(b_w) ]

    Zero counts add nothing, so only non-zeros are visited.

    Examples
    --------
    One token, two topics, three words: log (1/2 * 1/3).

    >>> from stradask.benchmarks.objectives.lda import joint_log_likelihood
    >>> round(joint_log_likelihood([[1, 0]], [[1, 0], [0, 0], [0, 0]], 0.1, 0.01), 6)
    -1.791759
    """
    doc_topic = sparse.coo_array(doc_topic_counts)
    word_topic = sparse.coo_array(word_topic_counts)
    alpha = np.broadcast_to(np.asarray(doc_topic_prior, dtype=np.float64), doc_topic.shape[1])
    beta = np.broadcast_to(np.asarray(topic_word_prior, dtype=np.float64), word_topic.shape[0])
    documents = _log_dirichlet_multinomial(doc_topic, alpha, prior_axis=1)
    topics = _log_dirichlet_multinomial(word_topic, beta, prior_axis=0)
    return documents + topics


def _log_dirichlet_multinomial(counts, prior, prior_axis):
    """Sum over groups (the other axis) of the log probability of a sequence with these counts."""
    own_prior = prior[(counts.row, counts.col)[prior_axis]]
    totals = counts.sum(axis=prior_axis)
    inside = np.sum(gammaln(counts.data + own_prior) - gammaln(own_prior))
    return float(inside + np.sum(gammaln(prior.sum()) - gammaln(totals + prior.sum())))


def split_documents(counts, seed):
    """Return training and held-out documents; words that are in no training document are dropped."""
    from sklearn.model_selection import train_test_split

    n_test = min(MAX_TEST_DOCUMENTS, counts.shape[0] // 10)
    if n_test == 0:
        raise DataError(f"the corpus has {counts.shape[0]} documents; 10 or more are needed to hold some out")
    train, test = train_test_split(counts, test_size=n_test, random_state=seed)
    known = np.flatnonzero(train.sum(axis=0))
    return train[:, known].tocsr(), test[:, known].tocsr()


def sum_of_triples(triples, shape):
    """Return the CSR matrix with the entries (row, column, value), equal places added up."""
    rows, columns, values = np.asarray(triples, dtype=np.int64).T
    return sparse.coo_array((values, (rows, columns)), shape=shape).tocsr()


def csr_arrays(counts):
    """Return a CSR matrix as the arrays that solvers are given."""
    return {
        "indptr": counts.indptr.astype(np.int64),
        "indices": counts.indices.astype(np.int32),
        "counts": counts.data.astype(np.int64),
        "n_words": np.int64(counts.shape[1]),
    }


def fingerprint(*matrices):
    """Return 16 hexadecimal digits that tell two splits of two corpora apart."""
    digest = hashlib.sha256()
    for matrix in matrices:
        for array in csr_arrays(matrix).values():
            digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:16]
