"""Bases of programs of topics: of all, and of those that hold a whole corpus in one process.

The latter are SaberLDA, and LightLDA on a GPU. numba is not imported.
"""

from typing import Any

import numpy as np
from scipy.special import gammaln

from ....scheduler.program import Program
from ....scheduler.schedules.rotation import balance
from ....scheduler.threads import run_tasks
from ...inputs.indices import narrow_csr
from .. import priors
from ..samplers.annealing import MEASURE_EVERY, Priors, first_topics, is_time_for_priors
from .averages import add_csr, check_sums, no_sums, shares_of, weight_of
from .draws import Gathered
from .groups import number_of_groups
from .restoring import taken, unfit
from .storage import Storage


class TopicState(Program):
    """A seed, priors, and the type of a topic: what `TopicProgram` and `CorpusState` have in common."""

    priors: Priors
    unit, measure_every, on_gpu = "token", MEASURE_EVERY, False

    def __init__(self, n_topics, seed, averages):
        self.n_topics, self.seed, self.averages = n_topics, np.uint64(seed), averages
        self.kind = np.uint16 if n_topics <= np.iinfo(np.uint16).max else np.uint32

    @property
    def alpha(self):
        """The document-topic prior."""
        return self.priors.alpha

    @property
    def beta(self):
        """The topic-word prior."""
        return self.priors.beta

    @property
    def annealed(self):
        """Number of annealed sweeps."""
        return self.priors.annealed

    @property
    def name(self):
        """The name of the sampler."""
        return ""

    @property
    def ran(self):
        """For `LatentDirichletAllocation.sampler_`."""
        return [{"name": self.name, "sweep": 1, "topics_per_document": None}]

    @staticmethod
    def fits_seed(seed):
        """Whether a seed of a checkpoint is one."""
        return seed.shape == () and seed.dtype == np.uint64


class CorpusState(TopicState):
    """Topics of the tokens of one corpus.

    A shard is a group of documents, a round a sweep; after each step the topic totals are renewed. All of it
    is in this process: a shard's state is its number and the totals that were last published.

    `X` is a CSR matrix as `check_counts` gives it, `seed` a key of 64 bits. `n_groups` is G, if it is not to
    follow from the corpus, `annealed` the first sweeps that have a larger topic-word prior, and `folder` the
    place of files for arrays that grow with tokens and documents (`Storage`).

    Attributes
    ----------
    topics : unsigned array of shape (n_tokens,)
        Word by word, and inside a word by document: 2 bytes a token, 4 above 65,535 topics.
    word_start : int64 array of shape (n_words + 1,)
    order : int64 array
        Documents by group, and by length inside a group; ``lengths`` are theirs.
    group_docs : int64 array of shape (G + 1,)
    totals : int64 array of shape (n_topics,)
    """

    topics: Any
    word_start: Any
    totals: Any
    sums: Any
    seeds = labels = None
    barrier = "step"

    def __init__(
        self, X, n_topics, alpha, beta, seed, *, n_groups=None, fits_priors=False, annealed=0, folder=None,
        averages=False, n_jobs=1,
    ):  # fmt: skip
        super().__init__(n_topics, seed, averages)
        self.fits_priors, self._n_jobs = fits_priors, n_jobs
        self.storage = Storage(folder)
        lengths = np.asarray(X.sum(axis=1, dtype=np.int64)).ravel()
        self.n_tokens = int(lengths.sum())
        self.priors = Priors.of(alpha, beta, annealed, self.n_tokens)
        if n_groups is None:
            n_groups = number_of_groups(self.n_tokens, np.count_nonzero(np.bincount(X.indices)), n_topics)
            n_groups = min(n_groups, len(lengths))
        self.shards, self.n_blocks = range(n_groups), n_groups
        group = balance(lengths, n_groups)
        self.order = np.lexsort((lengths, group))
        self.lengths = lengths[self.order]
        self.group_docs = np.searchsorted(group[self.order], np.arange(n_groups + 1))
        self.sums = no_sums(len(lengths), n_topics, self.storage) if averages else None

    # At the coordinator and at a shard ------------------------------------------------------------

    def __getstate__(self):
        raise TypeError("the state of a topic sampler lies in one process: it runs with engine='local' alone")

    def load(self, group):
        """Make the state of a document group."""
        return {"group": group, "totals": None}

    def publish(self):
        """Send the topic totals."""
        return self.totals

    def sync(self, state, totals):
        """Take over the topic totals."""
        state["totals"] = totals

    def after_sweep(self, swept):
        """Add to the averages, and fit priors now and then; `swept` sweeps are done."""
        if self.averages:
            counts = self.doc_topic_counts()
            add_csr(counts.indptr, counts.indices, counts.data, weight_of(swept - 1), self.sums)
        if self.fits_priors and is_time_for_priors(swept):
            alpha = priors.fit_doc_topic_prior(self.doc_topic_counts(), self.alpha)
            self.set_priors(
                self.priors.fitted(
                    alpha, lambda: priors.fit_topic_word_prior(self.word_topic_counts(), self.beta[0]), swept
                )
            )

    def set_priors(self, new):
        """Take new `Priors`."""
        self.priors = new

    def first_topics(self, token_doc):
        """The topics that tokens begin with."""
        topics = self.storage.zeros(self.n_tokens, self.kind)
        model = (self.n_topics, self.lengths, self.annealed, self.seed)
        return first_topics(token_doc, topics, *model, self._n_jobs)

    def begin_from_tokens(self, words, documents, topics):
        """Go on from the topics of tokens, of which the word and the row in `X` are given, in any order."""
        places = np.lexsort((np.argsort(self.order)[documents], words))
        self.begin_from(topics[places])

    def begin_from(self, topics):
        """Go on from topics of the tokens, in the order of this state's."""
        raise NotImplementedError

    # Reading ------------------------------------------------------------------------------------

    def measure(self, state):
        """Compute the parts of a group's documents and of an equal share of the words for `objective`."""
        g, n_groups = state["group"], len(self.shards)
        cuts = self.word_cuts(n_groups)
        return self._document_part(*self.group_docs[g : g + 2]), self._word_part(cuts[g], cuts[g + 1])

    def word_cuts(self, n_parts):
        """Cut the words into ranges of nearly equal numbers of tokens."""
        inner = np.searchsorted(self.word_start, np.linspace(0, self.n_tokens, n_parts + 1)[1:-1])
        return [0, *inner.tolist(), len(self.word_start) - 1]

    def objective(self, parts):
        """Compute log p(w, z) of `X` and its assignments, per token."""
        alpha, beta = self.alpha.sum(), self.beta.sum()
        documents, words = zip(*parts, strict=True)
        total = sum(documents + words)
        total += (gammaln(alpha) - gammaln(self.lengths + alpha)).sum()
        total += (gammaln(beta) - gammaln(self.totals + beta)).sum()
        return float(total / self.n_tokens)

    def joint_log_likelihood(self, n_jobs=1):
        """Compute `objective` now."""
        groups = [(self.measure, ({"group": g},)) for g in self.shards]
        return self.objective(run_tasks(groups, n_jobs))

    def _document_part(self, first, last):
        """Sum over documents ``first:last`` of lnG(C_dk + alpha_k) - lnG(alpha_k)."""
        raise NotImplementedError

    def _word_part(self, first, last):
        """Sum over words ``first:last`` of lnG(C_wk + beta_w) - lnG(beta_w)."""
        raise NotImplementedError

    def doc_topic_counts(self):
        """Topic counts of each document, CSR, documents as in `X`."""
        raise NotImplementedError

    def doc_topic_shares(self):
        """Topic shares of documents, averaged over sweeps, as in `X`; None if no sweep was."""
        if not self.averages:
            return None
        return shares_of(self.sums, self.lengths[np.argsort(self.order)], self.alpha)

    def word_topic_counts(self):
        """Topic counts of each word in `X`, CSR."""
        from ....kernels.lda import counts as topic_counts

        indptr, indices, data = topic_counts.word_topic_csr(self.word_start, self.topics, self.n_topics)
        counts = narrow_csr(data, indices, indptr, self.n_topics)
        counts.sort_indices()
        return counts

    def collect(self, ask, documents=True):
        """Read the model off this state; without `documents` the counts of words alone."""
        model, words = (self.ran, self.alpha, self.beta, None, None), self.word_topic_counts()
        if not documents:
            return Gathered(*model, None, words, np.nan, None)
        joint, shares = self.joint_log_likelihood(), self.doc_topic_shares()
        return Gathered(*model, self.doc_topic_counts(), words, joint, shares)

    # Keeping ------------------------------------------------------------------------------------

    def arrays(self):
        """Arrays of a checkpoint: everything else follows from `X` and the parameters."""
        sums = {"sums": self.sums} if self.averages else {}
        return {"seed": self.seed, "topics": self.topics} | self.priors.arrays() | sums

    def restore(self, arrays):
        """Go on from the arrays of a checkpoint of the same corpus and parameters.

        They come from a file, and the kernels trust them: every index is checked first.
        """
        topics, seed = taken(arrays, "topics", "seed")
        fits = self.fits_seed(seed) and topics.shape == (self.n_tokens,) and topics.dtype == self.kind
        if not (fits and topics.max(initial=0) < self.n_topics):
            raise unfit()
        own = self.priors.of_checkpoint(arrays)
        if self.averages:
            (sums,) = taken(arrays, "sums")
            if sums.shape != self.sums.shape or sums.dtype != self.sums.dtype:
                raise unfit("sums")
            check_sums(sums)
            self.sums[:] = sums
        self.seed = np.uint64(seed)
        self.set_priors(own)
