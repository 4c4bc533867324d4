"""WarpLDA's order with documents in shards and words in blocks that travel.

A sweep begins with the pass over a shard's documents, which needs nothing of others. Then blocks come by: of
each word the topics of all tokens, into which the shard writes those of its own, accepts its documents'
proposals by the counts, and draws new ones. The tokens of shards that the block has yet to meet are as they
were left a sweep ago, so that counts are a little older than in `WarpState`, whose model is near this one but
not the same. It is the same for any number of workers.

Memory: 10 bytes a token (topic and proposal 4, place in the document's order 4, topic in a block 2).
"""

import numpy as np

from ....errors import DataError, ModelFileError
from ....kernels.lda import alias
from ....kernels.lda import counts as topic_counts
from ....kernels.lda import warp as lda_warp
from ....kernels.lda.gibbs import AHEAD
from ...inputs.indices import narrow_csr
from .rotating import RotatingGibbs
from .storage import Storage

_STREAMS = 8  # purposes of random streams: this one and the next


class RotatingWarp(RotatingGibbs):
    """Topics and proposals of the tokens of a shard.

    Parameters
    ----------
    corpus, n_topics, alpha, beta, seed, fits_priors, annealed, folder
        See `RotatingGibbs`; its `repeats` are the pairs of passes a sweep.

    Attributes
    ----------
    topics_per_document : float
        See `WarpState`.
    """

    name, keeps_rows = "warp", False
    topics_per_document = np.nan

    def document_kind(self, lengths, storage, labels=None):
        """Documents have no rows of counts."""
        return _NoRows()

    def lay_out(self, state, data, storage):
        """See `RotatingGibbs`; adds where the documents' tokens lie."""
        lengths = state["lengths"]
        if lengths.max(initial=0) > np.iinfo(np.int32).max:
            raise DataError(
                "a document of X has more than 2,147,483,647 tokens, more than counts hold: split it"
            )
        topics = super().lay_out(state, data, storage)
        docs = state.pop("docs")[: len(topics)]
        # Tokens of a document lie in the order of words; sorted by document they keep it.
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
        docs = Storage(self.folder).zeros(len(state["position"]) + AHEAD, np.uint32)
        lda_warp.documents(state["doc_start"], state["position"], docs)
        return super().tokens(state | {"docs": docs})

    def own_topics(self, state, first, last):
        """See `RotatingGibbs`."""
        return np.ascontiguousarray(state["topics"][first:last, 0])

    def make_ready(self, state):
        """See `RotatingGibbs`."""
        if state["topics"].max(initial=0) >= self.n_topics:
            raise ModelFileError(
                "the checkpoint's topics do not fit its data; remove the folder to start anew"
            )

    # Sampling -----------------------------------------------------------------------------------------

    def draw(self, state, task, totals):
        """Before a turn's first block make the pass over documents; work on own tokens of a block's words."""
        known, found = state["priors"], {}
        beta, beta_sum = known.beta_of(task.round)
        repeat, place = divmod(self.schedule.place(task.round, task.step), self.schedule.n_steps)
        pass_ = task.round * self.schedule.repeats + repeat
        if place % self.n_blocks == 0:
            distinct = self._document_pass(state, pass_, beta_sum, totals)
            found = {"distinct": distinct, "documents": np.count_nonzero(state["lengths"])}
        here = self.words.of(task.blocks)
        starts = state["starts"][here.start : here.stop + 1]
        word_start = np.append(self.first_places(task.blocks), len(task.value.tokens))
        begin = word_start[:-1] + state["offset"][here]
        place = (self.words.ids[here], begin, begin + np.diff(starts), word_start, task.value.tokens)
        stream = (self.seed, _STREAMS, pass_)
        own = (starts, state["topics"], totals, beta[self.words.ids[here]], beta_sum)
        lda_warp.part_of_words(*place, *own, *stream)
        return found

    def _document_pass(self, state, pass_, beta_sum, totals):
        alpha, pairs = state["priors"].alpha, state["topics"]
        size = 0 if np.ptp(alpha) == 0 else len(alpha)
        aliases, limits = np.empty(size, np.int64), np.empty(size, np.uint32)
        if size:
            alias.alias_tables(alpha, aliases, limits)
        counted = -np.bincount(pairs[:, 0], minlength=self.n_topics)
        place = (0, len(state["lengths"]), state["doc_start"], state["position"], state["names"], pairs)
        prior = (alpha.astype(np.float32), float(alpha.sum()), aliases, limits, beta_sum)
        stream = (self.seed, _STREAMS + 1, pass_)
        distinct = lda_warp.document_pass(*place, totals, *prior, counted, *stream)
        totals += counted
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
        indptr, indices, data = topic_counts.word_topic_csr(state["doc_start"], tokens, self.n_topics)
        counts = narrow_csr(data, indices, indptr, self.n_topics)
        counts.sort_indices()
        return counts


class _NoRows:
    """Stands where other samplers have counts of documents."""

    def prior_sums(self, alpha):
        """See `DenseRows`."""
        return alpha.sum()

    def arrays(self):
        """Nothing to keep."""
        return {}
