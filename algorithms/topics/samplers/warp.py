"""WarpLDA's order of Metropolis-Hastings with documents in shards and words in blocks.

A sweep begins with the pass over the documents of each shard, which needs nothing of others. In the pass over
words a shard accepts its documents' proposals for its tokens of a word by the counts of all tokens of the
word, and draws new proposals from them. All counts, topic totals too, are those at the beginning of a pass.

In one process a pass over the words of a block sees the tokens of all shards. On a cluster blocks collect
topics and proposals from the shards, the pass is made where a block has them all, and it gives them back
(`collected`). Where only some shards are in memory at a time, blocks stay there with the topics of all tokens
of their words: shards write into them what the pass over documents changed, work by them, and write again, so
that blocks have the topics of then. The model is the same on threads and for any number of workers.

Its time a token does not grow with K or with the topics of a document. Counts lag by up to a pass, so that
the chain's stationary distribution is near the posterior but not the posterior.

Memory: 8 bytes a token (topic and proposal 4, place in the document's order 4). On a cluster blocks have 2
more, and 4 while a pass over their words is made; with shards on disk 2, and at most 4 for the counts of
frequent words.
"""

from typing import Any

import numpy as np

from ....errors import DataError
from ....kernels.lda import alias
from ....kernels.lda import blocks as lda_blocks
from ....kernels.lda import counts as topic_counts
from ....kernels.lda import warp as lda_warp
from ....kernels.lda.gibbs import AHEAD
from ..blocks.averages import check_sums, weight_of
from ..blocks.collected import Collected, Packing, Segment
from ..blocks.document_rows import UnlabelledDocuments
from ..blocks.program import csr_of_segments
from ..blocks.restoring import damaged, unfit
from ..blocks.storage import release
from ..blocks.word_blocks import Block, CollectThenReturn, FirstCountThenRotate, changes_of
from .gibbs import RotatingGibbs

_STREAMS = 8  # purposes of random streams: this one and the next


class TokensAtHand:
    """Topics and proposals of all shards of this process, and where each one's tokens of a word begin.

    Those of a shard are behind those of the one before.
    """

    def __init__(self, sizes, n_words, kind, storage):
        self.first = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
        self.pairs = storage.zeros((self.first[-1], 2), kind)
        narrow = np.int32 if max(sizes) <= np.iinfo(np.int32).max else np.int64
        self.starts = storage.zeros((n_words + 1, len(sizes)), narrow)

    def __deepcopy__(self, memo):
        raise TypeError("a shard has no copy of its own: its tokens are with those of others")

    def of(self, number):
        """Topics and proposals of a shard."""
        return self.pairs[self.first[number] : self.first[number + 1]]

    def places(self, words):
        """Where each shard's tokens of some words begin, a row a word and one for the end, and each shard."""
        return self.starts[words.start : words.stop + 1], self.first


def name_documents(doc_start, position, token_doc):
    """Fill the document of each token, word by word."""
    lengths = np.diff(doc_start)
    token_doc[position] = np.repeat(np.arange(len(lengths), dtype=np.uint32), lengths)


class RotatingWarp(RotatingGibbs):
    """Topics and proposals of the tokens of a shard; the `repeats` are the pairs of passes a sweep.

    Attributes
    ----------
    topics_per_document : float
        Mean number of distinct topics of the documents that have words (K_d), of the last sweep.
    at_hand : TokensAtHand or None
        In one process; blocks have no tokens then.
    """

    name, all_tokens = "warp", True
    topics_per_document = np.nan
    at_hand: Any

    def __init__(self, corpus, *model, **options):
        super().__init__(corpus, *model, **options)
        self.at_hand, self.barrier = None, self.n_blocks
        if self.in_process and not self.on_disk:
            own = (corpus.weights, len(self.words.ids), self.kind)
            self.at_hand, self.barrier = TokensAtHand(*own, self._storage()), "step"

    @property
    def collects(self):
        """Whether blocks collect from all shards: on a cluster."""
        return isinstance(self.schedule, CollectThenReturn)

    def _schedule(self, at_once, repeats):
        kinds, at_hand = ("documents", "words"), self.in_process and not self.on_disk
        own = (len(self.shards), at_once, repeats)
        if not at_hand and at_once is None:
            return CollectThenReturn(len(self.shards), repeats)
        return FirstCountThenRotate(*own, kinds=kinds, last="write", at_hand=at_hand)

    def _number_of_rows(self, frequency, background):
        """See `RotatingGibbs`; where shards meet, words are counted once a pass."""
        n_rows = super()._number_of_rows(frequency, background)
        return 0 if self.in_process or self.collects else n_rows

    def document_kind(self, lengths, storage, labels=None):
        """Documents have no rows of counts."""
        return _NoRows(self.n_topics)

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
        state["number"] = data["number"]
        if self.at_hand is None:
            pairs = storage.zeros((len(topics), 2), self.kind)
        else:
            state["at_hand"] = self.at_hand
            starts, pairs = self.at_hand.starts[:, data["number"]], self.at_hand.of(data["number"])
            starts[:] = state["starts"]
            state["starts"] = starts
        pairs[:] = topics[:, None]  # the first proposals are the topics themselves
        for array in (docs, topics):  # of the layout alone: their pages would stay in memory with the file
            release(array)
        return pairs

    def tokens(self, state):
        """See `RotatingGibbs`."""
        docs = self._storage().zeros(len(state["position"]) + AHEAD, np.uint32)
        name_documents(state["doc_start"], state["position"], docs)
        return super().tokens(state | {"docs": docs})

    def own_topics(self, state, first, last):
        """See `RotatingGibbs`."""
        return np.ascontiguousarray(state["topics"][first:last, 0])

    def make_ready(self, state):
        """See `RotatingGibbs`; topics of a snapshot go where all are."""
        if state["topics"].max(initial=0) >= self.n_topics:
            raise unfit("topics")
        if self.at_hand is not None:
            own = self.at_hand.of(state["number"])
            own[:] = state["topics"]
            state["topics"] = own
        check_sums(state)

    # Blocks -------------------------------------------------------------------------------------------

    def block(self, block):
        """See `RotatingGibbs`."""
        stays = self.at_hand is None and not self.collects
        tokens = self._storage().zeros(self.words.n_tokens[block], self.kind) if stays else None
        return Block(np.zeros((0, self.n_topics), np.int32), tokens)

    def whole(self, block, value):
        """A block between two rounds, with all its tokens and no rows."""
        tokens = value.tokens
        if tokens is None:
            tokens = np.empty(self.words.n_tokens[block], self.kind)
            lda_warp.gather(*self.at_hand.places(self.words.of(block)), self.at_hand.pairs, tokens)
        return Block(value.rows[:0], tokens)

    def count_rows(self, block, value):
        """Count the frequent words of a block if that was not done since its tokens changed."""
        n_rows = self.words.n_rows[block]
        if len(value.rows) < n_rows:
            value.rows = np.zeros((n_rows, self.n_topics), np.int32)
            lda_blocks.add_rows(self.words.bounds(block), self.whole(block, value).tokens, value.rows)

    def pack(self, block, value):
        """See `RotatingGibbs`; between two rounds a block has the topics of all tokens."""
        moves = value.segments or (self.collects and value.tokens is None)
        return self._packing(block).pack(value) if moves else super().pack(block, self.whole(block, value))

    def unpack(self, block, packed):
        """See `RotatingGibbs`."""
        packing = self._packing(block)
        moves = self.collects and packing.has_segments(packed)
        return packing.unpack(block, packed) if moves else super().unpack(block, packed)

    def _packing(self, block):
        here = self.words.of(block)
        sizes = (here.stop - here.start, int(self.words.n_tokens[block]))
        return Packing(*sizes, self.n_topics, self.schedule.n_shards, self.kind)

    def word_part(self, block, value, beta):
        """See `RotatingModel`."""
        return super().word_part(block, self.whole(block, value), beta)

    def counts_of_block(self, block, value):
        """See `RotatingModel`."""
        return super().counts_of_block(block, self.whole(block, value))

    @property
    def bytes_of_blocks(self):
        """See `RotatingModel`."""
        return super().bytes_of_blocks if self.at_hand is None else 0

    def _fill(self, state, block, value):
        if self.at_hand is None and not self.collects:
            return super()._fill(state, block, value)
        starts = self._starts(state, block)
        counted = np.bincount(self.own_topics(state, starts[0], starts[-1]), minlength=self.n_topics)
        return changes_of(np.zeros(self.n_topics, np.int64), counted)

    # Sampling -----------------------------------------------------------------------------------------

    def draw(self, state, task, totals):
        """Make the pass over documents and write topics into blocks, or make a part of that over words."""
        turn, kind, step = self.schedule.rotation(self.schedule.place(task.round, task.step))
        pass_, change = task.round * self.schedule.repeats + turn, np.zeros(self.n_topics, np.int64)
        figures = {}
        if kind == "documents" and step == 0:
            distinct = self._document_pass(state, task, change, pass_)
            if self.averages and turn == self.schedule.repeats - 1:
                tokens = (state["doc_start"], state["position"], state["topics"])
                topic_counts.add_segments(*tokens, weight_of(task.round), state["sums"])
            figures = {"distinct": distinct, "documents": np.count_nonzero(state["lengths"])}
        if self.collects:
            if kind == "documents":
                self._give(state, task.blocks, task.value)
            elif step == 0:
                self._collected_pass(state, task, change, pass_, turn)
            if kind == "words":
                self._take(state, task.blocks, task.value)
        elif kind == "words":
            self._word_pass(state, task, change, pass_)
        elif self.at_hand is None:
            self._write_topics(state, task.blocks, task.value)
        totals += change
        return figures

    def _document_pass(self, state, task, change, pass_):
        alpha, pairs = state["priors"].alpha, state["topics"]
        if self.at_hand is None:
            change -= np.bincount(pairs[:, 0], minlength=self.n_topics)
        elif task.shard == 0:  # all shards count their tokens anew
            change -= state["totals"]
        _, beta_sum = state["priors"].beta_of(task.round)
        tokens = (state["doc_start"], state["position"], state["names"], pairs, pairs.reshape(-1))
        prior = (alpha.astype(np.float32), float(alpha.sum()), *alias.tables_of(alpha), beta_sum)
        lengths, stream = state["lengths"], (self.seed, _STREAMS + 1, pass_)
        work = lda_warp.work_for(self.n_topics, lengths.max(initial=0), self.kind)
        return lda_warp.document_pass(
            0, len(lengths), *tokens, state["totals"], *prior, change, work, *stream
        )

    def _write_topics(self, state, block, value):
        """Put the topics of a shard's tokens into a block; rows are counted when they are needed."""
        value.rows = value.rows[:0]
        starts, (begin, end, _) = self._starts(state, block), self._own_places(state, block)
        lda_blocks.put_own(begin, end, self.own_topics(state, starts[0], starts[-1]), value.tokens)

    def _give(self, state, block, value):
        """Put a shard's topics and proposals into a block."""
        starts = self._starts(state, block)
        value.tokens = None  # those of the last sweep
        value.segments[state["number"]] = Segment(state["topics"][starts[0] : starts[-1]], np.diff(starts))

    def _collected_pass(self, state, task, change, pass_, turn):
        """Make the pass over the words of a block that has all tokens of them."""
        here = self.words.of(task.blocks)
        there = Collected.of(task.blocks, task.value, self.words.frequency[here], self.schedule.n_shards)
        change -= np.bincount(there.pairs[:, 0], minlength=self.n_topics)
        names, rest = self._of_words(state, task, change, pass_)
        lda_warp.word_pass(names, *there, *rest)
        ends = turn == self.schedule.repeats - 1
        task.value.segments = there.segments(proposals_alone=ends)
        if ends:
            task.value.tokens = np.empty(len(there.pairs), self.kind)
            lda_warp.gather(*there, task.value.tokens)

    def _take(self, state, block, value):
        """Take a shard's topics and proposals out of a block."""
        starts, segment = self._starts(state, block), value.segments.pop(state["number"], None)
        own = state["topics"][starts[0] : starts[-1]]
        if segment is None or len(segment.tokens) != len(own):
            raise damaged(block)
        if value.tokens is None:
            own[:] = segment.tokens
            return
        begin, end, _ = self._own_places(state, block)
        topics = np.empty(len(own), self.kind)
        lda_blocks.take_own(begin, end, value.tokens, topics)
        own[:, 0], own[:, 1] = topics, segment.tokens

    def _of_words(self, state, task, change, pass_):
        """Arguments of a pass over the words of a block: their names, and those behind the tokens."""
        here = self.words.of(task.blocks)
        beta, beta_sum = state["priors"].beta_of(task.round)
        names, longest = self.words.ids[here], self.words.frequency[here][:1].sum()  # the most frequent one
        work = lda_warp.work_for(self.n_topics, longest, self.kind)
        prior = (beta[names].astype(np.float32), beta_sum, *alias.NO_TABLES)
        return names, (state["totals"], *prior, change, work, self.seed, _STREAMS, pass_)

    def _word_pass(self, state, task, change, pass_):
        block, value = task.blocks, task.value
        names, rest = self._of_words(state, task, change, pass_)
        if self.at_hand is not None:
            value.tokens = None  # those of a snapshot
            if block == 0:  # all tokens are counted anew, each in one block
                change -= state["totals"]
            places = self.at_hand.places(self.words.of(block))
            lda_warp.word_pass(names, *places, self.at_hand.pairs, *rest)
            return
        self.count_rows(block, value)
        begin, end, _ = self._own_places(state, block)
        place = (names, begin, end, self.words.bounds(block), value.tokens, value.rows)
        lda_warp.word_part(*place, self._starts(state, block), state["topics"], *rest)

    def aggregate(self, tasks, partials):
        """See `RotatingModel`; counts the topics of documents, too."""
        outcome = super().aggregate(tasks, partials)
        if outcome.updates:
            distinct, documents = (
                sum(own[name] for own in self._figures) for name in ("distinct", "documents")
            )
            self.topics_per_document = distinct / max(documents, 1)
        return outcome

    def end_sweep(self, state, task):
        """See `RotatingGibbs`; documents were added after the last pass over them."""

    # Reading ------------------------------------------------------------------------------------------

    def document_part(self, state, alpha):
        """See `RotatingGibbs`."""
        place = (state["doc_start"], state["position"], state["topics"])
        return topic_counts.segments(0, len(state["lengths"]), *place, alpha)

    def document_csr(self, state):
        """See `RotatingGibbs`."""
        tokens = state["topics"][state["position"], 0]
        return csr_of_segments(state["doc_start"], tokens, self.n_topics)


class _NoRows(UnlabelledDocuments):
    """Stands where other samplers have counts of documents."""

    def __init__(self, n_topics):
        self.n_topics = n_topics

    def arrays(self):
        """Nothing to keep."""
        return {}
