"""WarpLDA's order of Metropolis-Hastings with documents in shards and words in blocks that travel.

A sweep begins with the pass over a shard's documents, which needs nothing of others. Then blocks come by: of
each word the topics of all tokens, into which the shard writes those of its own, accepts its documents'
proposals by the counts, and draws new ones. The tokens of shards that the block has yet to meet are as they
were left a sweep ago. The model is the same on threads, from files and for any number of workers.

Its time a token does not grow with K or with the topics of a document. Counts lag by up to a pass, so that
the chain's stationary distribution is near the posterior but not the posterior.

Memory: 10 bytes a token (topic and proposal 4, place in the document's order 4, topic in a block 2), and at
most 4 for the counts of frequent words, which blocks keep where they work and do not carry.
"""

import numpy as np

from ....errors import DataError
from ....kernels.lda import alias
from ....kernels.lda import counts as topic_counts
from ....kernels.lda import warp as lda_warp
from ....kernels.lda.gibbs import AHEAD
from .gibbs import RotatingGibbs
from .program import csr_of_segments
from .restoring import unfit

_STREAMS = 8  # purposes of random streams: this one and the next


class RotatingWarp(RotatingGibbs):
    """Topics and proposals of the tokens of a shard; the `repeats` are the pairs of passes a sweep.

    Attributes
    ----------
    topics_per_document : float
        Mean number of distinct topics of the documents that have words (K_d), of the last sweep.
    """

    name, all_tokens = "warp", True
    topics_per_document = np.nan

    def _number_of_rows(self, frequency, background):
        """See `RotatingGibbs`; with shards on disk, memory is for the tokens of blocks alone."""
        return 0 if self.on_disk else super()._number_of_rows(frequency, background)

    def document_kind(self, lengths, storage, labels=None):
        """Documents have no rows of counts."""
        return _NoRows()

    def lay_out(self, state, data, storage):
        """See `RotatingGibbs`; adds the places of the documents' tokens."""
        lengths = state["lengths"]
        if lengths.max(initial=0) > np.iinfo(np.int32).max:
            raise DataError(
                "a document of X has more than 2,147,483,647 tokens, more than counts hold: split it"
            )
        topics = super().lay_out(state, data, storage)
        docs = state.pop("docs")[: len(topics)]
        # Tokens of a document are in the order of words; sorted by document they keep it.
        wide = np.uint32 if len(topics) <= 2**32 else np.int64
        state["position"] = storage.zeros(len(topics), wide)
        state["position"][:] = np.argsort(docs, kind="stable")
        state["doc_start"] = np.concatenate([[0], np.cumsum(lengths)])
        state["names"] = data["first_document"] + np.arange(len(lengths))
        pairs = storage.zeros((len(topics), 2), self.kind)
        pairs[:] = topics[:, None]  # the first proposals are the topics themselves
        return pairs

    def tokens(self, state):
        """See `RotatingGibbs`."""
        docs = self._storage().zeros(len(state["position"]) + AHEAD, np.uint32)
        lda_warp.documents(state["doc_start"], state["position"], docs)
        return super().tokens(state | {"docs": docs})

    def own_topics(self, state, first, last):
        """See `RotatingGibbs`."""
        return np.ascontiguousarray(state["topics"][first:last, 0])

    def make_ready(self, state):
        """See `RotatingGibbs`."""
        if state["topics"].max(initial=0) >= self.n_topics:
            raise unfit("topics")

    # Sampling -----------------------------------------------------------------------------------------

    def draw(self, state, task, totals):
        """Before a turn's first block make the pass over documents; work on own tokens of a block's words."""
        figures = {}
        beta, beta_sum = state["priors"].beta_of(task.round)
        repeat, place = divmod(self.schedule.place(task.round, task.step), self.schedule.n_steps)
        pass_ = task.round * self.schedule.repeats + repeat
        if place % self.n_blocks == 0:
            distinct = self._document_pass(state, pass_, beta_sum, totals)
            figures = {"distinct": distinct, "documents": np.count_nonzero(state["lengths"])}
        block, value = task.blocks, task.value
        begin, end, _ = self._own_places(state, block)
        names = self.words.ids[self.words.of(block)]
        place = (names, begin, end, self.words.bounds(block), value.tokens, value.rows)
        own = (self._starts(state, block), state["topics"], totals, beta[names], beta_sum)
        lda_warp.word_pass(*place, *own, self.seed, _STREAMS, pass_)
        return figures

    def _document_pass(self, state, pass_, beta_sum, totals):
        alpha, pairs = state["priors"].alpha, state["topics"]
        change = np.zeros(self.n_topics, np.int64)
        place = (0, len(state["lengths"]), state["doc_start"], state["position"], state["names"], pairs)
        prior = (alpha.astype(np.float32), float(alpha.sum()), *alias.tables_of(alpha), beta_sum)
        stream = (self.seed, _STREAMS + 1, pass_)
        distinct = lda_warp.document_pass(*place, totals, *prior, change, *stream)
        totals += change
        return distinct

    def aggregate(self, tasks, partials):
        """See `RotatingModel`; counts the topics of documents, too."""
        outcome = super().aggregate(tasks, partials)
        if outcome.updates:
            distinct, documents = (
                sum(own[name] for own in self._figures) for name in ("distinct", "documents")
            )
            self.topics_per_document = distinct / max(documents, 1)
        return outcome

    def end_sweep(self, state):
        """See `RotatingGibbs`."""

    # Reading ------------------------------------------------------------------------------------------

    def document_part(self, state, alpha):
        """See `RotatingGibbs`."""
        place = (state["doc_start"], state["position"], state["topics"])
        return topic_counts.segments(0, len(state["lengths"]), *place, alpha)

    def document_csr(self, state):
        """See `RotatingGibbs`."""
        tokens = state["topics"][state["position"], 0]
        return csr_of_segments(state["doc_start"], tokens, self.n_topics)


class _NoRows:
    """Stands where other samplers have counts of documents."""

    def prior_sums(self, alpha):
        """See `DenseRows`."""
        return alpha.sum()

    def arrays(self):
        """Nothing to keep."""
        return {}
