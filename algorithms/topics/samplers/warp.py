"""WarpLDA's order of Metropolis-Hastings as a model-parallel program over one corpus.

A sweep is a pass over the words and then one over the documents (`stradask.kernels.lda.warp`), on ranges of
words and groups of documents that share nothing but the topic totals, which are renewed after each pass.

Its time a token does not grow with K or with the topics of a document. Counts are those at the beginning of a
pass, so that the chain's stationary distribution is near the posterior but not the posterior.

Memory, in bytes a token: topic and proposal 4 (8 above 65,535 topics), place of the documents' tokens 4
(8 above 4 billion tokens); while it is laid out 6 more. Each thread takes 28 bytes a topic.
"""

import numpy as np

from ....errors import DataError, ModelFileError
from ....kernels.lda import alias
from ....kernels.lda import counts as topic_counts
from ....kernels.lda import warp as lda_warp
from ....scheduler.program import Outcome
from ....scheduler.schedules.switching import PassesSchedule
from ...inputs.indices import narrow_csr
from .state import CorpusState, taken

_WORDS, _DOCUMENTS = 0, 1  # passes
_STREAMS = 8  # purposes of random streams: this one and the next


class WarpState(CorpusState):
    """Topics and proposals of the tokens.

    A block is one of the two passes.

    Parameters
    ----------
    X, n_topics, alpha, beta, seed, n_groups, fits_priors, annealed, folder
        See `CorpusState`.
    passes : int, default=1
        Pairs of passes a sweep.

    Attributes
    ----------
    topics_per_document : float
        Mean number of distinct topics of the documents that have words (K_d), of the last sweep.
    """

    name = "warp"

    def __init__(self, X, n_topics, alpha, beta, seed, *, passes=1, **options):
        super().__init__(X, n_topics, alpha, beta, seed, **options)
        self.passes, self.n_blocks = passes, 2
        self.schedule = PassesSchedule(len(self.shards), self.n_blocks, repeats=passes)
        self.topics_per_document = np.nan
        self.doc_start = np.concatenate([[0], np.cumsum(self.lengths)])
        frequency = np.asarray(X.sum(axis=0, dtype=np.int64)).ravel()
        if max(self.lengths.max(initial=0), frequency.max(initial=0)) > np.iinfo(np.int32).max:
            raise DataError(
                "a word or a document of X has more than 2,147,483,647 tokens, more than counts of topics "
                "hold; leave the word out, or split the document"
            )
        self.word_start = np.concatenate([[0], np.cumsum(frequency)])
        self._cuts = self.word_cuts(len(self.shards))
        wide = np.uint32 if self.n_tokens <= 2**32 else np.int64
        self.position = self.storage.zeros(self.n_tokens, wide)
        starts = self.word_start[:-1].copy()
        lda_warp.positions(X.indptr, X.indices, X.data, self.order, self.doc_start, starts, self.position)
        self.pairs = self.storage.zeros((self.n_tokens, 2), self.kind)
        self.set_priors(alpha, beta)
        self._begin()

    @property
    def topics(self):
        """See `CorpusState`."""
        return np.ascontiguousarray(self.pairs[:, 0])

    def _begin(self):
        """First topics; the first proposals are the topics themselves."""
        token_doc = self.storage.zeros(self.n_tokens, np.uint32)
        lda_warp.documents(self.doc_start, self.position, token_doc)
        self.begin_from(self.first_topics(token_doc))

    def begin_from(self, topics):
        """Go on from topics of the tokens, as another state of the same corpus and groups laid them out."""
        self.totals = np.zeros(self.n_topics, np.int64)
        lda_warp.begin(topics, self.pairs, self.totals)

    def set_priors(self, alpha, beta):
        """See `CorpusState`."""
        super().set_priors(alpha, beta)
        self._alpha32 = alpha.astype(np.float32)
        size = 0 if np.ptp(alpha) == 0 else len(alpha)
        self._aliases, self._limits = np.empty(size, np.int64), np.empty(size, np.uint32)
        if size:
            alias.alias_tables(alpha, self._aliases, self._limits)

    # Sampling -----------------------------------------------------------------------------------

    def update(self, state, task):
        """Make one pass over a group; return the topic totals of its tokens, and its documents' topics."""
        counted, distinct = np.zeros(self.n_topics, np.int64), 0
        beta, _, beta_sum = self.beta_of(task.round)
        pass_ = task.round * self.passes + task.step // self.n_blocks
        stream = (counted, self.seed, _STREAMS + task.blocks, pass_)
        if task.blocks == _WORDS:
            part = self._cuts[task.shard : task.shard + 2]
            place = (*part, self.word_start, self.pairs, state["totals"])
            lda_warp.word_pass(*place, beta, beta_sum, *stream)
        else:
            part = self.group_docs[task.shard : task.shard + 2]
            place = (*part, self.doc_start, self.position, self.order, self.pairs, state["totals"])
            prior = (self._alpha32, self.alpha.sum(), self._aliases, self._limits, beta_sum)
            distinct = lda_warp.document_pass(*place, *prior, *stream)
        return counted, distinct

    def aggregate(self, tasks, partials):
        """Take over the topic totals."""
        counted, distinct = zip(*partials, strict=True)
        self.totals = counted[0]
        for others in counted[1:]:
            self.totals += others
        if tasks[0].step < self.n_blocks * self.passes - 1:
            return Outcome(self.totals)
        self.topics_per_document = sum(distinct) / max(np.count_nonzero(self.lengths), 1)
        self.after_sweep(tasks[0].round + 1)
        return Outcome(self.totals, updates=self.n_tokens * self.passes)

    # Reading and keeping --------------------------------------------------------------------------

    def _word_part(self, first, last):
        tokens = np.ascontiguousarray(self.pairs[self.word_start[first] : self.word_start[last], 0])
        start = self.word_start[first : last + 1] - self.word_start[first]
        none = (np.zeros((0, self.n_topics), np.int32), np.full(last - first, -1, np.int32))
        return topic_counts.words(0, last - first, start, tokens, *none, self.n_topics, self.beta[first:last])

    def _document_part(self, first, last):
        return topic_counts.segments(first, last, self.doc_start, self.position, self.pairs, self.alpha)

    def doc_topic_counts(self):
        """See `CorpusState`."""
        tokens = self.pairs[self.position, 0]
        indptr, indices, data = topic_counts.word_topic_csr(self.doc_start, tokens, self.n_topics)
        counts = narrow_csr(data, indices, indptr, self.n_topics)
        counts.sort_indices()
        return counts[np.argsort(self.order)]

    def arrays(self):
        """See `CorpusState`."""
        return super().arrays() | {"proposals": np.ascontiguousarray(self.pairs[:, 1])}

    def restore(self, arrays):
        """See `CorpusState`."""
        super().restore(arrays)
        (proposals,) = taken(arrays, "proposals")
        if not self.takes_topics(proposals):
            raise ModelFileError(
                "the checkpoint's proposals do not fit its data; remove the folder to start anew"
            )
        self.begin_from(arrays["topics"])
        self.pairs[:, 1] = proposals
