"""What a fit is told besides the counts of words."""

import numpy as np

from .corpus.shard_input import check_order_of_files, with_labels
from .found import program_that_finds
from .guidance import check_doc_labels, check_given_topics, check_seed_words
from .rules import ANNEALED_OF_MORE
from .samplers.choose import program_of


class ModelInputs:
    """Seed words, labels of documents and topics; models add keywords, covariates and responses.

    A fit asks for the methods in their order. Parameters are those of `LatentDirichletAllocation.fit`.

    Attributes
    ----------
    seeds, labels : CSR arrays or None
        As they were read.
    """

    def __init__(
        self, y=None, *, seed_words=None, doc_labels=None, topics=None, vocabulary=None, n_features=None
    ):  # fmt: skip
        self.y, self.seed_words, self.doc_labels, self.topics = y, seed_words, doc_labels, topics
        self.vocabulary, self.n_features = vocabulary, n_features
        self.needs_gibbs = seed_words is not None or doc_labels is not None
        self.seeds = self.labels = None

    def check(self, model, X):
        """Check what can be checked before documents are read."""

    def read(self, model, X, corpus, alpha):
        """Check all; return the corpus, whose shards have what is known of their documents."""
        sizes = len(alpha), corpus.summary.n_words
        self.seeds = check_seed_words(self.seed_words, *sizes, model._columns(self.vocabulary))
        if self.doc_labels is not None:
            check_order_of_files(X, "doc_labels")
        self.labels = check_doc_labels(self.doc_labels, corpus.summary.n_documents, alpha)
        self.topics = check_given_topics(self.topics, *sizes)
        return corpus if self.labels is None else with_labels(corpus, self.labels)

    def program(self, model, corpus, sampler, alpha, beta, seed, options):
        """Make the program over shards."""
        if model._finds_number:
            concentrations = {"exact": model.exact, **model._concentrations()}
            return program_that_finds(corpus, len(alpha), beta, seed, options, **concentrations)
        if sampler == "both":
            options["sweeps"] = model.max_iter if model.n_draws else None
        return program_of(sampler, corpus, len(alpha), alpha, beta, seed, **options)

    def fingerprint(self, model, program):
        """Return what a checkpoint belongs to besides what one of plain LDA does."""
        return {}

    def store(self, model, gathered):
        """Set what the model has besides what one of plain LDA has."""


def options_of_more(model, options):
    """Options of a program with further parameters, which are drawn when annealing is over."""
    return options | {
        "fits_priors": False,
        "annealed": min(options["annealed"], ANNEALED_OF_MORE, model.max_iter // 2),
    }


def digest_of(array):
    """Return the hash of an array, for a fingerprint."""
    from hashlib import sha256

    return sha256(np.ascontiguousarray(array).tobytes()).hexdigest()
