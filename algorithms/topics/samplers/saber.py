"""SaberLDA's sparsity-aware draws as a model-parallel program over one corpus.

A sweep lists the topics of each document, of groups of documents side by side, and then draws every token
from the counts as they were before the sweep, of ranges of words side by side (`stradask.kernels.lda.saber`).
A token's time grows with K_d / 32, hardly with K. With a device, a GPU does both, and all tokens lie there
(`TokensOnDevice`); the topics are the same, bit for bit.

All counts are delayed by a sweep, so that the chain's stationary distribution is near the posterior but not
the posterior; the token's own count is left out, without which it would be a good deal farther away.

numba is imported where the CPU draws; what a GPU leaves to the host is done by `stradask.kernels.lda.host`.

Memory, in bytes a token: topic 2, document 4, and the documents' lists at most 4, besides 128 a document for
lists that end inside a line of 32. Each thread takes the topics of a group of documents once more, or 20
bytes a topic.
"""

import numpy as np
from scipy import sparse

from ....errors import DataError
from ....kernels.lda import host as lda_host
from ....kernels.lda.host import LINE
from ....scheduler.program import Outcome
from ....scheduler.schedules.switching import PassesSchedule
from ..._streams import Purpose
from ..blocks.groups import check_frequency
from ..blocks.state import CorpusState
from .saber_cuda import TokensOnDevice

MOST_TOPICS = 32**3  # three levels of a tree of 32 branches, one a lane
_LONGEST = 2**16 - 1  # tokens of a document: counts of its topics have 16 bits
_LEAST = 1e-12  # of priors: weights are divided by beta, and no product is so small that a GPU takes it for 0
_DOCUMENTS, _WORDS = 0, 1  # passes


class SaberState(CorpusState):
    """Topics of the tokens, and lists of the topics of documents; with `device`, a GPU draws the tokens."""

    name = "saber"

    def __init__(self, X, n_topics, alpha, beta, seed, *, device=None, **options):
        super().__init__(X, n_topics, alpha, beta, seed, **options)
        frequency = np.asarray(X.sum(axis=0, dtype=np.int64)).ravel()
        check_fits(self.lengths, frequency, n_topics, alpha, beta)
        self.n_blocks = 2
        self.schedule = PassesSchedule(len(self.shards), self.n_blocks)
        self.doc_start = np.concatenate([[0], np.cumsum(self.lengths)])
        self._there, self.on_gpu = None, device is not None
        (self._lay_out_for_device if self.on_gpu else self._lay_out)(X)
        self._cuts = self.word_cuts(len(self.shards))
        self.begin_from(self.first_topics(self.token_doc))
        if device is not None:
            self._there = TokensOnDevice(device, X, self)

    def _lay_out(self, X):
        """Lay the tokens out, and allocate the documents' lists."""
        from ....kernels.lda import saber as lda_saber

        self.token_doc = self.storage.zeros(self.n_tokens + lda_saber.AHEAD, np.uint32)
        self.word_start = lda_host.lay_out(X, self.order, self.token_doc)
        self.bounds = lda_host.begins(X, self.order, self.group_docs, self.word_start)
        lines = -(-np.minimum(self.lengths, self.n_topics) // LINE)
        self.line_start = np.concatenate([[0], np.cumsum(lines)])
        self.n_lines = np.zeros(len(self.lengths), np.int32)
        self.entries = self.storage.zeros(int(self.line_start[-1]) * LINE, np.uint32)

    def _lay_out_for_device(self, X):
        self.token_doc = self.storage.zeros(self.n_tokens, np.uint32)
        self.word_start = lda_host.lay_out(X, self.order, self.token_doc)

    @property
    def topics(self):
        """See `CorpusState`."""
        return self._here if self._there is None else self._there.topics()

    def begin_from(self, topics):
        """Go on from topics of the tokens, as another state of the same corpus and groups laid them out."""
        self._here, self.totals = topics, np.bincount(topics, minlength=self.n_topics)
        if self._there is not None:
            self._there.begin_from(topics)

    # Sampling -----------------------------------------------------------------------------------

    def update(self, state, task):
        """List a group's topics, or draw the tokens of a range of words; return the totals of these."""
        counted = np.zeros(self.n_topics, np.int64)
        if task.blocks == _DOCUMENTS:
            if self._there is None:
                self._list_documents(task.shard)
            return counted
        if self._there is not None and task.shard > 0:
            return counted  # the first draws all of them
        beta, beta_sum = self.priors.beta_of(task.round)
        weights = topic_weights(self.alpha, state["totals"], beta_sum)
        model = (weights, common_tree(*weights[:2]), (1 / beta).astype(np.float32))
        stream = (self.seed, Purpose.SABER_SWEEP.value, task.round)
        if self._there is not None:
            return self._there.sweep(*model, *stream)
        self._sample_words(task.shard, counted, *model, *stream)
        return counted

    def aggregate(self, tasks, partials):
        """Take over the topic totals."""
        if tasks[0].step == _DOCUMENTS:
            return Outcome(self.totals)
        self.totals = sum(partials)
        self.after_sweep(tasks[0].round + 1)
        return Outcome(self.totals, updates=self.n_tokens)

    def _sample_words(self, part, counted, weights, tree, per_beta, *stream):
        """Draw the tokens of a range of words."""
        from ....kernels.lda import saber as lda_saber

        tokens = (*self._cuts[part : part + 2], self.word_start, self.token_doc, self.topics)
        lists = (self.entries, self.line_start, self.n_lines)
        lda_saber.sample_words(*tokens, *lists, *weights, *tree, per_beta, counted, *stream)

    def _list_documents(self, group):
        """List the topics of a group's documents."""
        from ....kernels.lda import saber as lda_saber

        first, last = self.group_docs[group : group + 2]
        start, lines = self.doc_start[first : last + 1], self.line_start[first : last + 1]
        placed = np.empty(start[-1] - start[0], np.uint16)
        tokens = (self.bounds[group], self.bounds[group + 1], self.token_doc, self.topics)
        lda_saber.by_document(*tokens, first, start, placed)
        into = (lines, self.n_lines[first:last], self.entries)
        lda_saber.document_lists(start, placed, *into, self.n_topics)

    # Reading and keeping --------------------------------------------------------------------------

    def measure(self, state):
        """See `CorpusState`."""
        if self._there is None:
            self._list_documents(state["group"])
        return super().measure(state)

    def _document_part(self, first, last):
        if self._there is not None:
            return self._there.joint(self.alpha, self.beta)[0][first:last].sum()
        from ....kernels.lda import counts as topic_counts

        lists = (self.entries, 2 * self.line_start, 2 * self.n_lines, 16)
        return topic_counts.documents_sparse(first, last, *lists, self.alpha)

    def _word_part(self, first, last):
        if self._there is not None:
            return self._there.joint(self.alpha, self.beta)[1][first:last].sum()
        from ....kernels.lda import counts as topic_counts

        start = self.word_start[first : last + 1]
        return topic_counts.words(start, self.topics, self.beta[first:last], self.n_topics)

    def doc_topic_counts(self):
        """See `CorpusState`."""
        if self._there is None:
            for group in self.shards:
                self._list_documents(group)
            counts = lda_host.listed(self.entries, self.line_start, self.n_lines)
        else:
            counts = self._there.sampler.document_counts()
        return self._as_csr(*counts)[np.argsort(self.order)]

    def word_topic_counts(self):
        """See `CorpusState`."""
        if self._there is None:
            return super().word_topic_counts()
        return self._as_csr(*self._there.sampler.word_counts())

    def _as_csr(self, topics, counts, sizes):
        indptr = np.concatenate([[0], np.cumsum(sizes)])
        return sparse.csr_array((counts, topics, indptr), shape=(len(sizes), self.n_topics))

    def restore(self, arrays):
        """See `CorpusState`."""
        super().restore(arrays)
        self.begin_from(arrays["topics"].copy())


def check_fits(lengths, frequency, n_topics, alpha, beta):
    """Hold a corpus and a model against what the sampler's numbers hold."""
    if n_topics > MOST_TOPICS:
        raise DataError(
            f"sampler='saber' holds up to {MOST_TOPICS:,} topics, and n_components={n_topics:,}: take "
            "sampler='light' or 'warp'"
        )
    longest = int(lengths.max(initial=0))
    if longest > _LONGEST:
        raise DataError(
            f"sampler='saber' holds documents of up to {_LONGEST:,} tokens, and one of X has {longest:,}: "
            "split it, or take sampler='warp'"
        )
    check_frequency(frequency)
    for name, prior in (("doc_topic_prior", alpha), ("topic_word_prior", beta)):
        if prior.min() < _LEAST:
            raise DataError(
                f"sampler='saber' needs a {name} of at least {_LEAST:g}, got {prior.min():g}: "
                "raise it, or take sampler='gibbs'"
            )


def topic_weights(alpha, totals, beta_sum):
    """Weights of the topics for a sweep, float32: alpha, inverse, base and lift of `lda.saber`."""
    smooth = np.maximum(totals, 1) + beta_sum
    alpha, inverse = alpha.astype(np.float32), (1 / (totals + beta_sum)).astype(np.float32)
    return alpha, inverse, alpha * inverse, (smooth / (smooth - 1)).astype(np.float32)


def common_tree(alpha, inverse):
    """Tree of ``alpha * inverse``, which the words without one of their own share."""
    return lda_host.grow_tree(alpha * inverse)
