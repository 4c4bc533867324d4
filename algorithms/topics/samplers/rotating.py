"""Gibbs sampling with documents in shards and words in blocks that travel: the sampler of a cluster.

A sweep of B shards and B blocks runs B steps (sub-epochs); in step p shard i works on block (i + p) mod B.
Layout, order and random streams are those of `GibbsState` with B groups, whose model this one has *bitwise*,
wherever shards lie. Only what a shard must know of the others' tokens travels, with the block: of its
frequent words (those that `GibbsState` keeps a row for) the topic counts, packed; of each other word the
topics of all its tokens. The changes of the topic totals are added up after every step.

In the first round a turn of the rotation comes before, in which blocks are filled with the first topics.

Memory: a shard holds 8 bytes a token (topic 2, document 4, counts of rows in its blocks on average 2 to 4)
and the documents' counts (`document_rows`); a block 4 K bytes a frequent word and 2 a token of the others
(4 above 65,535 topics). With a background every word that occurs is a frequent one.
"""

import numpy as np

from ....errors import ModelFileError
from ....kernels.lda import blocks as lda_blocks
from ....kernels.lda import gibbs as kernels
from .. import priors
from ..evaluation import padded_vector
from ..shard_input import read_again
from .annealing import first_beta
from .document_rows import document_rows
from .rotating_model import RotatingModel
from .state import FIRST_TOPICS, LONG_DOCUMENT, PURPOSES, check_frequency, number_of_rows
from .storage import Pool, Storage, fetch, release
from .word_blocks import Block, FirstCountThenRotate, Priors, SeedsOfBlocks, Words, add_changes, changes_of

_SWEEP, _SEEDED = 1, 10  # purposes of random streams


class RotatingGibbs(RotatingModel):
    """Collapsed Gibbs sampling over shards of documents.

    Parameters
    ----------
    corpus : Corpus
        Shards, and what is known of all of them (`shard_input`). Those with ``topics`` begin from these; with
        ``labels`` (`LabelledRows`) a document has no other topics.
    n_topics, alpha, beta, seed, fits_priors, annealed, folder
        See `CorpusState`.
    exact : bool
        One shard, topic totals live.
    at_once : int, optional
        See `FirstCountThenRotate`.
    seeds : CSR array of float64, shape (n_words, n_topics), optional
        See `GibbsState`.
    background : CSR matrix of shape (n_words, n_topics), optional
        See `GibbsState`; with it priors are not fitted.
    repeats : int, default=1
        Turns of the rotation a sweep.

    Attributes
    ----------
    totals : int64 array of shape (n_topics,)
    """

    name, travels, barrier, unit = "gibbs", True, "step", "token"
    measure_every = 10
    keeps_rows = True

    def __init__(
        self, corpus, n_topics, alpha, beta, seed, *, exact=False, fits_priors=False, annealed=0, folder=None,
        at_once=None, seeds=None, background=None, repeats=1,
    ):  # fmt: skip
        self.corpus, self.shards = corpus.summary, corpus.shards
        self.shard_weights = corpus.weights
        self.schedule = FirstCountThenRotate(len(self.shards), at_once, repeats)
        self.n_blocks, self.on_disk = self.schedule.n_blocks, folder is not None and at_once is not None
        self.pool = Pool(folder) if self.on_disk else None
        self.loads_at_once = None if at_once is None else 1  # what is read takes more memory than what stays
        self.fetches_documents = corpus.rows is not None  # of a matrix, which lies with the caller anyway
        self.n_topics, self.seed, self.fits_priors = n_topics, np.uint64(seed), fits_priors
        self.exact, self.folder = int(exact), folder
        self.n_tokens = int(corpus.frequency.sum())
        first = first_beta(self.n_tokens, n_topics, len(beta))
        self.priors = Priors(alpha, beta, annealed if first > beta.min() else 0, first)
        n_kept = self._number_of_rows(corpus.frequency, background)
        self.words = Words(corpus.frequency, self.n_blocks, n_kept)
        self.background, self.background_totals = background, np.zeros(n_topics, np.int64)
        if background is not None:
            self.background_totals += np.asarray(background.sum(axis=0, dtype=np.int64)).ravel()
        self.seeds = seeds
        self.seeded = None if seeds is None else SeedsOfBlocks(seeds, self.words)
        self.kind = np.uint16 if n_topics <= np.iinfo(np.uint16).max else np.uint32
        self.totals = self.background_totals.copy()
        labels = corpus.shards[0].get("labels")
        none = self.document_kind(np.zeros(0, np.int64), Storage(), None if labels is None else labels[:0])
        self.saved = ("topics", *none.arrays())
        self._word_part = np.nan
        self._figures: list[dict] = [{} for _ in self.shards]  # of the last sweep, by shard
        self._block_figures: list[dict] = [{} for _ in range(self.n_blocks)]  # what the last shard found

    def _number_of_rows(self, frequency, background):
        """Words that keep a row of counts, the most frequent ones."""
        if background is not None:
            check_frequency(frequency, int(background.data.max(initial=0)))
            return np.count_nonzero(frequency)
        check_frequency(frequency)
        return number_of_rows(frequency, self.n_topics) if self.keeps_rows else 0

    def document_kind(self, lengths, storage, labels=None):
        """Make room for the counts of documents."""
        return document_rows(lengths, self.n_topics, labels, storage)

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
        """How many sweeps are annealed."""
        return self.priors.annealed

    @property
    def ran(self):
        """What `LatentDirichletAllocation.sampler_` says."""
        return [{"name": self.name, "sweep": 1, "topics_per_document": None}]

    # Where a shard lies -----------------------------------------------------------------------------

    def load(self, data):
        """Read a shard, lay its tokens out and give them their first topics."""
        summary, storage = self.corpus, self.pool or Storage(self.folder)
        X = read_again(data, summary.n_words)
        lengths = np.asarray(X.sum(axis=1, dtype=np.int64)).ravel()
        order = np.argsort(lengths, kind="stable")
        lengths = lengths[order]
        rank = np.full(summary.n_words, -1, np.int32)
        rank[self.words.ids] = np.arange(len(self.words.ids))
        bounds = np.empty((2, len(self.words.ids)), np.int64)
        docs = storage.zeros(int(lengths.sum()) + kernels.AHEAD, np.uint32)
        whole = np.array([0, len(order)])
        kernels.lay_out(X.indptr, rank[X.indices], X.data, order, whole, bounds, docs)
        starts = np.append(bounds[0], lengths.sum())
        offset = np.zeros(summary.n_words, np.int64)
        offset[data["words"]] = data["offsets"]
        release(data["words"])
        release(data["offsets"])
        begun = {"first_document": data["first_document"]}
        if "labels" in data:
            begun["labels"] = data["labels"][order]
        state = {"order": order, "lengths": lengths, "docs": docs, "starts": starts}
        state |= {"offset": offset[self.words.ids], "begun": begun if "topics" not in data else None}
        if self.on_disk:
            state |= {name: storage.put(state[name]) for name in ("order", "lengths", "starts", "offset")}
        own = {name: data[name] for name in ("topics",) if name in data}
        return self.begin(state, begun | own)

    def begin(self, tokens, data):
        """Give tokens that are laid out their first topics."""
        storage = self.pool or Storage(self.folder)
        documents = self.document_kind(tokens["lengths"], storage, data.get("labels"))
        state = tokens | {"documents": documents, "totals": None, "priors": self.priors, "ready": False}
        state["topics"] = self.lay_out(state, data, storage)
        state |= documents.arrays()
        self.put_away(state)
        return state

    def renew(self, state):
        """Give the tokens their first topics again, unless these were read with them."""
        return None if state["begun"] is None else self.begin(self.tokens(state), state["begun"])

    def tokens(self, state):
        """What a shard has of its tokens, apart from topics."""
        return {name: state[name] for name in ("order", "lengths", "docs", "starts", "offset", "begun")}

    def lay_out(self, state, data, storage):
        """Make the first topics of the tokens, as `GibbsState.first_topics`, which see."""
        topics = storage.zeros(len(state["docs"]) - kernels.AHEAD, self.kind)
        if "topics" in data:
            topics[:] = data["topics"]
            return topics
        choices = np.empty((len(state["lengths"]), 4), np.float32)
        few, every = PURPOSES
        lda_blocks.first_choices(data["first_document"], self.corpus.n_documents, self.seed, few, choices)
        spread = (state["lengths"] >= LONG_DOCUMENT) & (self.priors.annealed > 0)
        firsts = self.words.first_token + state["offset"]
        place = (state["starts"], firsts, state["docs"], topics)
        chosen = choices[:, :FIRST_TOPICS]
        lda_blocks.assign_first(*place, self.n_topics, chosen, spread, self.seed, every)
        if "labels" in data:
            state["documents"].admit(state["docs"], topics)
        elif self.seeded is not None:
            seeds = self.seeded.of_all()
            lda_blocks.assign_seeded(state["starts"], firsts, topics, seeds, self.seed, _SEEDED)
        return topics

    def block(self, block):
        """A block without tokens: the first turn fills it."""
        if self.background is not None:
            return Block(self.background_of(block), np.zeros(0, self.kind))
        rows = np.zeros((self.words.n_rows[block], self.n_topics), np.int32)
        return Block(rows, np.zeros(self.words.n_tokens[block], self.kind))

    def pack(self, block, value):
        """Counts packed, tokens as they lie."""
        room = np.empty(lda_blocks.packed_room(*value.rows.shape) + value.tokens.nbytes, np.uint8)
        size = lda_blocks.pack_rows(value.rows, room)  # of the rest no page is touched
        end = size + value.tokens.nbytes
        room[size:end] = value.tokens.view(np.uint8)
        return room[:end]

    def unpack(self, block, packed):
        """Undo `pack`; every topic and count is checked, for kernels trust them."""
        here, n_rows = self.words.of(block), self.words.n_rows[block]
        value = Block(
            np.zeros((n_rows, self.n_topics), np.int32), np.zeros(self.words.n_tokens[block], self.kind)
        )
        most = self.words.frequency[here][:n_rows]
        if self.background is not None:
            most = most + self.background[self.words.ids[here]].sum(axis=1, dtype=np.int64)
        size = len(packed) - value.tokens.nbytes if packed.dtype == np.uint8 and packed.ndim == 1 else -1
        fits = size >= 0 and lda_blocks.unpack_rows(packed[:size], value.rows, most)
        if fits:
            value.tokens.view(np.uint8)[:] = packed[size:]
        if not fits or value.tokens.max(initial=0) >= self.n_topics:
            raise ModelFileError(
                f"block {block} of the words is damaged; if it comes from a checkpoint, remove the folder to "
                "start anew"
            )
        return value

    def sync(self, state, message):
        """Take over totals, or their changes, and priors."""
        if "totals" in message:
            state["totals"] = message["totals"]
        else:
            state["totals"] = add_changes(state["totals"].copy(), message["changes"])
        if "alpha" in message:
            state["priors"] = self.with_priors(message["alpha"], message["beta"])
        if not state["ready"]:
            self.make_ready(state)
            state["ready"] = True
            self.put_away(state)

    def make_ready(self, state):
        """Count the topics of the documents, those of a snapshot if it is laid over."""
        topics, documents = state["topics"], state["documents"]
        if topics.max(initial=0) >= self.n_topics:
            raise ModelFileError(
                "the checkpoint's topics do not fit its data; remove the folder to start anew"
            )
        known = documents.arrays()
        laid_over = any(state[name] is not array for name, array in known.items())
        ranks = np.argsort(
            self.words.ids
        )  # by the number of the word: lists begin as those of a `GibbsState`
        docs, topics = (_in_order(state["starts"], ranks, tokens) for tokens in (state["docs"], topics))
        if laid_over:
            documents.restore({name: state[name] for name in known}, docs, topics)
            state |= documents.arrays()
        elif documents.fill(docs, topics):
            raise ModelFileError(
                "the checkpoint's topics do not fit doc_labels; remove the folder to start anew"
            )

    def update(self, state, task):
        """Fill a block with own tokens, or draw own tokens of its words; return the change of the totals."""
        place = self.schedule.place(task.round, task.step)
        if place < 0:
            result = {"changes": self._fill(state, task.blocks, task.value)}
            if self.schedule.is_last_of_shard(place):
                self.put_away(state)
            return result
        totals = state["totals"].copy()
        found = self.draw(state, task, totals)  # what a sampler wants its coordinator to know besides
        result = {"changes": changes_of(state["totals"], totals)} | found
        fits = self.fits_priors_after(task.round + 1)
        if self.schedule.is_last_of_shard(place):
            self.end_sweep(state)
            if fits:
                result["document_counts"] = priors.tally(self.document_csr(state))
                result["lengths"] = priors.tally_values(state["lengths"])
            self.put_away(state)
        if self.schedule.may_be_last_of_block(place):
            if (task.round + 1) % self.measure_every == 0:
                result["word_part"] = self.word_part(task.blocks, task.value, state["priors"].beta)
            if fits:
                result["word_counts"] = priors.tally_values(self._counts_of(task.blocks, task.value))
        return result

    def _fill(self, state, block, value):
        here, n_rows = self.words.of(block), self.words.n_rows[block]
        starts = state["starts"][here.start : here.stop + 1]
        first, middle, last = starts[0], starts[n_rows], starts[-1]
        topics = self.own_topics(state, first, last)
        lda_blocks.add_rows(starts[: n_rows + 1] - first, topics, value.rows)
        begin = self.first_places(block) + state["offset"][here]
        end = begin + np.diff(starts)
        lda_blocks.put_own(begin[n_rows:], end[n_rows:], topics[middle - first :], value.tokens)
        counted = np.bincount(topics, minlength=self.n_topics)
        return changes_of(np.zeros(self.n_topics, np.int64), counted)

    def own_topics(self, state, first, last):
        """Topics of a range of the shard's tokens."""
        return state["topics"][first:last]

    def read_ahead(self, state):
        """Have the shard read from its files while others are swept."""
        if self.folder is not None:
            for array in {**state, **vars(state["documents"])}.values():
                fetch(array)

    def put_away(self, state):
        """Let go of the memory of a shard that lies in files and has its turn behind it."""
        if self.on_disk:
            for array in {**state, **vars(state["documents"])}.values():
                release(array)

    def end_sweep(self, state):
        """Tidy the documents' counts."""
        state["documents"].tidy(0, len(state["lengths"]))

    def first_places(self, block):
        """Where the tokens of a block's words begin in `Block.tokens`; of words with a row, at 0."""
        sizes = self.words.frequency[self.words.of(block)].copy()
        sizes[: self.words.n_rows[block]] = 0
        return np.cumsum(sizes) - sizes

    def draw(self, state, task, totals):
        """Draw own tokens of a block's words, where they lie; what the block has of them is renewed."""
        block, value = task.blocks, task.value
        here, n_rows = self.words.of(block), self.words.n_rows[block]
        starts = state["starts"][here.start : here.stop + 1]
        first, middle, last = starts[0], starts[n_rows], starts[-1]
        own, docs = state["topics"][first:last], state["docs"][first : last + kernels.AHEAD]
        begin, end = starts[:-1] - first, starts[1:] - first
        row = np.full(len(begin), -1, np.int32)
        row[:n_rows] = np.arange(n_rows)
        places = self.first_places(block)
        bounds = np.append(places, len(value.tokens))
        words = np.arange(len(begin), dtype=np.int32)
        self._sweep(
            state, task, (words, begin, end, bounds, docs, own, value.tokens), (row, value.rows, totals)
        )
        there = (places + state["offset"][here])[n_rows:]
        lda_blocks.put_own(there, there + (end - begin)[n_rows:], own[middle - first :], value.tokens)
        return {}

    def _sweep(self, state, task, place, words):
        documents, known = state["documents"], state["priors"]
        beta, beta_sum = known.beta_of(task.round)
        beta = beta[self.words.ids[self.words.of(task.blocks)]].astype(np.float32)
        priors_ = (padded_vector(known.alpha, documents.width), beta, np.float32(beta_sum))
        stream = (self.seed, _SWEEP, task.round, task.shard * self.n_blocks + task.blocks)
        seeds = None if self.seeded is None else self.seeded.of(task.blocks)
        documents.sweep(place, (*words, *priors_), (self.exact, *stream, seeds))


def _in_order(starts, ranks, tokens):
    """What is known of a shard's tokens, words in the order of their ranks."""
    there = np.empty(starts[-1], tokens.dtype)
    lda_blocks.in_order(starts, ranks, tokens, there)
    return there
