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
from ..._streams import Purpose
from ..blocks.averages import check_sums, weight_of
from ..blocks.collected import Collected, Packing, Segment
from ..blocks.document_rows import UnlabelledDocuments
from ..blocks.program import csr_of_segments
from ..blocks.restoring import damaged, unfit
from ..blocks.storage import release
from ..blocks.word_blocks import Block, CollectThenReturn, FirstCountThenRotate, changes_of
from .gibbs import Gibbs


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


class TokensOfDocuments(UnlabelledDocuments):
    """The tokens of each document, in place of counts of topics.

    Attributes
    ----------
    doc_start, position : integer arrays
        Where in `position` the tokens of each document begin; the places of tokens in the shard.
    names : int64 array
        Numbers of the documents in the corpus, for streams of random numbers.
    pairs : array of shape (n_tokens, 2)
        Topics and proposals of the tokens of the shard.
    at_hand : TokensAtHand or None
    """

    met_by_steps = False  # but by passes
    doc_start: Any
    position: Any
    names: Any
    pairs: Any
    at_hand: Any = None

    def __init__(self, n_topics):
        self.n_topics = n_topics

    def name_tokens(self, docs):
        """Fill the document of each token, word by word; return them."""
        lengths = np.diff(self.doc_start)
        docs[self.position] = np.repeat(np.arange(len(lengths), dtype=np.uint32), lengths)
        return docs

    def log_likelihood(self, first, last, alpha):
        """Sum over documents ``first:last`` of lnG(C_dk + alpha_k) - lnG(alpha_k)."""
        return topic_counts.segments(first, last, self.doc_start, self.position, self.pairs, alpha)

    def csr(self):
        """Return the counts as a CSR array."""
        return csr_of_segments(self.doc_start, self.pairs[self.position, 0], self.n_topics)

    def add_to(self, sums, weight):
        """Add weighted counts to sums."""
        topic_counts.add_segments(self.doc_start, self.position, self.pairs, weight, sums)

    def arrays(self):
        """Arrays of a checkpoint besides the topics: none."""
        return {}


class Warp(Gibbs):
    """Topics and proposals of the tokens of a shard; the `repeats` are the pairs of passes a sweep.

    Attributes
    ----------
    topics_per_document : float
        Mean number of distinct topics of the documents that have words (K_d), of the last sweep.
    at_hand : TokensAtHand or None
        In one process; blocks have no tokens then.
    """

    name, counted_as, all_tokens, can_be_exact = "warp", "warp", True, False
    topics_per_document = np.nan
    at_hand: Any = None

    def __init__(self, repeats=1):
        self.repeats = repeats

    def bound(self, program, corpus):
        """See `Gibbs`."""
        bound = super().bound(program, corpus)
        bound.barrier = bound.schedule.n_blocks
        if program.in_process and not program.on_disk:
            sizes = (corpus.weights, len(bound.words.ids), program.kind)
            bound.at_hand, bound.barrier = TokensAtHand(*sizes, program.storage()), "step"
        return bound

    @property
    def collects(self):
        """Whether blocks collect from all shards: on a cluster."""
        return isinstance(self.schedule, CollectThenReturn)

    def rotation(self, n_shards, at_once):
        """See `Gibbs`; passes over documents and over words follow each other."""
        at_hand = self.program.in_process and not self.program.on_disk
        if not at_hand and at_once is None:
            return CollectThenReturn(n_shards, self.repeats)
        kinds = ("documents", "words")
        return FirstCountThenRotate(
            n_shards, at_once, self.repeats, kinds=kinds, last="write", at_hand=at_hand
        )

    def number_of_rows(self, frequency, background):
        """See `Gibbs`; where shards meet, words are counted once a pass."""
        n_rows = super().number_of_rows(frequency, background)
        return 0 if self.program.in_process or self.collects else n_rows

    def document_kind(self, lengths, storage, facts=None):
        """Documents have no rows of counts."""
        return TokensOfDocuments(self.program.n_topics)

    def lay_out(self, shard, storage):
        """See `Gibbs`; adds the places of the documents' tokens."""
        lengths, inputs = shard.lengths, shard.inputs
        if lengths.max(initial=0) > np.iinfo(np.int32).max:
            raise DataError(
                "a document of X has more than 2,147,483,647 tokens, more than counts hold: split it"
            )
        topics = super().lay_out(shard, storage)
        # Tokens of a document are in the order of words; sorted by document they keep it.
        wide = np.uint32 if len(topics) <= 2**32 else np.int64
        docs, documents = shard.docs[: len(topics)], shard.documents
        documents.position = storage.zeros(len(topics), wide)
        documents.position[:] = np.argsort(docs, kind="stable")
        documents.doc_start = np.concatenate([[0], np.cumsum(lengths)])
        documents.names = inputs["first_document"] + np.arange(len(lengths))
        if self.at_hand is None:
            pairs = storage.zeros((len(topics), 2), self.program.kind)
        else:
            documents.at_hand = self.at_hand
            starts, pairs = self.at_hand.starts[:, inputs["number"]], self.at_hand.of(inputs["number"])
            starts[:] = shard.starts
            shard.starts = starts
        pairs[:] = topics[:, None]  # the first proposals are the topics themselves
        for array in (docs, topics):  # of the layout alone: else their pages stay in memory
            release(array)
        shard.docs, documents.pairs = None, pairs  # `position` says what `docs` said
        return pairs

    def documents_of_tokens(self, shard):
        """See `Gibbs`."""
        docs = self.program.storage().zeros(len(shard.documents.position) + AHEAD, np.uint32)
        return shard.documents.name_tokens(docs)

    def own_topics(self, shard, first, last):
        """See `Gibbs`."""
        return np.ascontiguousarray(shard.topics[first:last, 0])

    def make_ready(self, shard):
        """See `Gibbs`; topics of a snapshot go where all are."""
        if shard.topics.max(initial=0) >= self.program.n_topics:
            raise unfit("topics")
        if self.at_hand is not None:
            pairs = self.at_hand.of(shard.inputs["number"])
            pairs[:] = shard.topics
            shard.topics = pairs
        shard.documents.pairs = shard.topics
        check_sums(shard.sums)

    # Blocks -------------------------------------------------------------------------------------------

    def block(self, block):
        """See `Gibbs`."""
        stays = self.at_hand is None and not self.collects
        tokens = (
            self.program.storage().zeros(self.words.n_tokens[block], self.program.kind) if stays else None
        )
        return Block(np.zeros((0, self.program.n_topics), np.int32), tokens)

    def whole(self, block, value):
        """A block between two rounds, with all its tokens and no rows."""
        tokens = value.tokens
        if tokens is None:
            tokens = np.empty(self.words.n_tokens[block], self.program.kind)
            lda_warp.gather(*self.at_hand.places(self.words.of(block)), self.at_hand.pairs, tokens)
        return Block(value.rows[:0], tokens)

    def count_rows(self, block, value):
        """Count the frequent words of a block if that was not done since its tokens changed."""
        n_rows = self.words.n_rows[block]
        if len(value.rows) < n_rows:
            value.rows = np.zeros((n_rows, self.program.n_topics), np.int32)
            lda_blocks.add_rows(self.words.bounds(block), self.whole(block, value).tokens, value.rows)

    def pack(self, block, value):
        """See `Gibbs`; between two rounds a block has the topics of all tokens."""
        moves = value.segments or (self.collects and value.tokens is None)
        return self._packing(block).pack(value) if moves else super().pack(block, self.whole(block, value))

    def unpack(self, block, packed):
        """See `Gibbs`."""
        packing = self._packing(block)
        moves = self.collects and packing.has_segments(packed)
        return packing.unpack(block, packed, self._new_tokens) if moves else super().unpack(block, packed)

    def _new_tokens(self, shape, kind):
        """Allocate tokens of a block; on workers with shards in files, in a file."""
        program = self.program
        return program.block_storage().zeros(shape, kind) if program.streams else np.empty(shape, kind)

    def _packing(self, block):
        here = self.words.of(block)
        sizes = (here.stop - here.start, int(self.words.n_tokens[block]))
        return Packing(*sizes, self.program.n_topics, self.schedule.n_shards, self.program.kind)

    def word_part(self, block, value, beta):
        """See `Gibbs`."""
        return super().word_part(block, self.whole(block, value), beta)

    def counts_of_block(self, block, value):
        """See `Gibbs`."""
        return super().counts_of_block(block, self.whole(block, value))

    @property
    def bytes_of_blocks(self):
        """See `Gibbs`."""
        return super().bytes_of_blocks if self.at_hand is None else 0

    def fill(self, shard, block, value):
        """See `Gibbs`; blocks that need no tokens stay empty."""
        if self.at_hand is None and not self.collects:
            return super().fill(shard, block, value)
        starts = self.starts_of(shard, block)
        counted = np.bincount(self.own_topics(shard, starts[0], starts[-1]), minlength=self.program.n_topics)
        return changes_of(np.zeros(self.program.n_topics, np.int64), counted)

    # Sampling -----------------------------------------------------------------------------------------

    def draw(self, shard, task, totals):
        """Make the pass over documents and write topics into blocks, or make a part of that over words."""
        turn, kind, step = self.schedule.rotation(self.schedule.place(task.round, task.step))
        pass_, change = task.round * self.schedule.repeats + turn, np.zeros(self.program.n_topics, np.int64)
        figures = {}
        if kind == "documents" and step == 0:
            distinct = self._document_pass(shard, task, change, pass_)
            if shard.sums is not None and turn == self.schedule.repeats - 1:
                shard.documents.add_to(shard.sums, weight_of(task.round))
            figures = {"distinct": distinct, "documents": np.count_nonzero(shard.lengths)}
        if self.collects:
            if kind == "documents":
                self._give(shard, task.blocks, task.value)
            elif step == 0:
                self._collected_pass(shard, task, change, pass_, turn)
            if kind == "words":
                self._take(shard, task.blocks, task.value)
        elif kind == "words":
            self._word_pass(shard, task, change, pass_)
        elif self.at_hand is None:
            self._write_topics(shard, task.blocks, task.value)
        totals += change
        return figures

    def _document_pass(self, shard, task, change, pass_):
        alpha, pairs, documents = shard.priors.alpha, shard.topics, shard.documents
        if self.at_hand is None:
            change -= np.bincount(pairs[:, 0], minlength=self.program.n_topics)
        elif task.shard == 0:  # all shards count their tokens anew
            change -= shard.totals
        _, beta_sum = shard.priors.beta_of(task.round)
        tokens = (documents.doc_start, documents.position, documents.names, pairs, pairs.reshape(-1))
        prior = (alpha.astype(np.float32), float(alpha.sum()), *alias.tables_of(alpha), beta_sum)
        lengths, stream = shard.lengths, (self.program.seed, Purpose.DOCUMENT_PASS.value, pass_)
        work = lda_warp.work_for(self.program.n_topics, lengths.max(initial=0), self.program.kind)
        return lda_warp.document_pass(0, len(lengths), *tokens, shard.totals, *prior, change, work, *stream)

    def _write_topics(self, shard, block, value):
        """Put the topics of a shard's tokens into a block; rows are counted when they are needed."""
        value.rows = value.rows[:0]
        starts, (begin, end, _) = self.starts_of(shard, block), self.places_of(shard, block)
        lda_blocks.put_own(begin, end, self.own_topics(shard, starts[0], starts[-1]), value.tokens)

    def _give(self, shard, block, value):
        """Put a shard's topics and proposals into a block."""
        starts = self.starts_of(shard, block)
        value.tokens = None  # those of the last sweep
        value.segments[shard.inputs["number"]] = Segment(
            shard.topics[starts[0] : starts[-1]], np.diff(starts)
        )

    def _collected_pass(self, shard, task, change, pass_, turn):
        """Make the pass over the words of a block that has all tokens of them."""
        frequency = self.words.frequency[self.words.of(task.blocks)]
        model = frequency, self.schedule.n_shards, self._new_tokens
        tokens = Collected.of(task.blocks, task.value, *model)
        change -= np.bincount(tokens.pairs[:, 0], minlength=self.program.n_topics)
        names, rest = self._of_words(shard, task, change, pass_)
        lda_warp.word_pass(names, *tokens, *rest)
        ends = turn == self.schedule.repeats - 1
        task.value.segments = tokens.segments(proposals_alone=ends)
        if ends:
            task.value.tokens = self._new_tokens(len(tokens.pairs), self.program.kind)
            lda_warp.gather(*tokens, task.value.tokens)

    def _take(self, shard, block, value):
        """Take a shard's topics and proposals out of a block."""
        starts, segment = self.starts_of(shard, block), value.segments.pop(shard.inputs["number"], None)
        pairs = shard.topics[starts[0] : starts[-1]]
        if segment is None or len(segment.tokens) != len(pairs):
            raise damaged(block)
        if value.tokens is None:
            pairs[:] = segment.tokens
            return
        begin, end, _ = self.places_of(shard, block)
        topics = np.empty(len(pairs), self.program.kind)
        lda_blocks.take_own(begin, end, value.tokens, topics)
        pairs[:, 0], pairs[:, 1] = topics, segment.tokens

    def _of_words(self, shard, task, change, pass_):
        """Arguments of a pass over the words of a block: their names, and those behind the tokens."""
        here = self.words.of(task.blocks)
        beta, beta_sum = shard.priors.beta_of(task.round)
        names, longest = self.words.ids[here], self.words.frequency[here][:1].sum()  # the most frequent one
        work = lda_warp.work_for(self.program.n_topics, longest, self.program.kind)
        prior = (beta[names].astype(np.float32), beta_sum, *alias.NO_TABLES)
        return names, (shard.totals, *prior, change, work, self.program.seed, Purpose.WORD_PASS.value, pass_)

    def _word_pass(self, shard, task, change, pass_):
        block, value = task.blocks, task.value
        names, rest = self._of_words(shard, task, change, pass_)
        if self.at_hand is not None:
            value.tokens = None  # those of a snapshot
            if block == 0:  # all tokens are counted anew, each in one block
                change -= shard.totals
            places = self.at_hand.places(self.words.of(block))
            lda_warp.word_pass(names, *places, self.at_hand.pairs, *rest)
            return
        self.count_rows(block, value)
        begin, end, _ = self.places_of(shard, block)
        place = (names, begin, end, self.words.bounds(block), value.tokens, value.rows)
        lda_warp.word_part(*place, self.starts_of(shard, block), shard.topics, *rest)

    def update(self, names, swept):
        """See `Gibbs`; counts the topics of documents, too."""
        figures = self.program.shard_figures
        distinct, documents = (sum(part[name] for part in figures) for name in ("distinct", "documents"))
        self.topics_per_document = distinct / max(documents, 1)
        return super().update(names, swept)

    def end_sweep(self, shard, task):
        """See `Gibbs`; documents were added after the last pass over them."""
