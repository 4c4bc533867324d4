"""Collapsed Gibbs sampling with documents in shards and words in blocks that travel.

A sweep of B shards and B blocks runs B steps (sub-epochs); in step p shard i works on block (i + p) mod B.
No two shards that work at a time share a document or a word. Layout, order and random streams follow from
the shards alone, so that the model is *bitwise* the same on threads, from files and on any number of workers.
Only what a shard must know of the others' tokens travels, with the block: of its frequent words
(`number_of_rows`) the topic counts, packed; of each other word the topics of all its tokens. On threads of
one process nothing is packed or copied: blocks stay where they are, and shards take turns. The changes of the
topic totals are added up after every step: within one, a shard sees its own changes only.

In the first round a turn of the rotation comes before, in which blocks are filled with the first topics.

Memory: a shard holds 8 bytes a token (topic 2, document 4, counts of rows in its blocks on average 2 to 4)
and the documents' counts (`document_rows`); a block 4 K bytes a frequent word and 2 a token of the others
(4 above 65,535 topics). With a background every word that occurs is a frequent one.
"""

import numpy as np
from scipy import sparse

from ....kernels.lda import blocks as lda_blocks
from ....kernels.lda import gibbs as kernels
from ....kernels.lda import host
from ....scheduler.allocation import return_freed_memory
from ..blocks.averages import check_sums, is_added, weight_of
from ..blocks.document_rows import document_rows
from ..blocks.groups import check_frequency, number_of_rows
from ..blocks.program import RotatingModel
from ..blocks.restoring import damaged, unfit
from ..blocks.storage import Pool, Storage, fetch, release
from ..blocks.word_blocks import Block, FirstCountThenRotate, SeedsOfBlocks, Words, changes_of
from ..corpus.shard_input import let_go, opened_numbers, read_again, words_of
from .annealing import ASSIGN, CHOICES, FIRST_TOPICS, SEEDED, Priors, starts_from_all
from .gibbs_steps import SWEEP, all_steps, may_run_steps, tasks_of_a_step

_KNOWN = ("labels", "design", "response")  # what a shard may know of its documents, one of these


class RotatingGibbs(RotatingModel):
    """Collapsed Gibbs sampling over shards of documents.

    Parameters
    ----------
    corpus : ShardedCorpus
        Shards with ``topics`` begin from these; with ``labels`` (`LabelledRows`) a document has no other
        topics.
    n_topics, alpha, beta, seed, fits_priors, annealed, folder
        See `CorpusState`.
    exact : bool
        One shard, topic totals live.
    in_process : bool
        Whether shards and blocks stay in this process.
    at_once : int, optional
        See `FirstCountThenRotate`.
    seeds : CSR array of float64, shape (n_words, n_topics), optional
        Added to beta. Tokens of these words begin in their topics.
    background : CSR matrix of shape (n_words, n_topics), optional
        Counts of tokens that are not in the corpus and do not change; with it priors are not fitted.
    repeats : int, default=1
        Turns of the rotation a sweep.
    averages : bool, default=False
        Whether documents' counts are averaged over sweeps (`averages`).
    """

    name = "gibbs"
    prior_kind = Priors
    all_tokens = False  # whether blocks have the tokens of frequent words, too
    takes_together = True

    def __init__(
        self, corpus, n_topics, alpha, beta, seed, *, exact=False, fits_priors=False, annealed=0, folder=None,
        in_process=False, at_once=None, seeds=None, background=None, repeats=1, averages=False,
    ):  # fmt: skip
        self.corpus, self.shards = corpus.summary, corpus.shards
        self.shard_weights, self.rows, self.longest = corpus.weights, corpus.rows, corpus.longest
        self.labels, self.labelled = corpus.labels, corpus.labels is not None
        self.on_disk = folder is not None and at_once is not None
        self.in_process = in_process or self.on_disk
        self.schedule = self._schedule(at_once, repeats)
        self.n_blocks, self.barrier = self.schedule.n_blocks, self.schedule.between
        # Few files: those of one array each would be more than a process may have open.
        self.pool = Pool(folder) if self.in_process and folder is not None else None
        self.loads_at_once = None if at_once is None else 1  # what is read takes more memory than what stays
        self.n_topics, self.seed, self.fits_priors = n_topics, np.uint64(seed), fits_priors
        self.exact, self.folder = int(exact), folder
        self.n_tokens = int(corpus.frequency.sum())
        self.priors = self.prior_kind.of(alpha, beta, annealed, self.n_tokens)
        n_kept = self._number_of_rows(corpus.frequency, background)
        self.words = Words(corpus.frequency, self.n_blocks, n_kept, self.all_tokens)
        self.background, self.background_totals = background, np.zeros(n_topics, np.int64)
        if background is not None:
            self.background_totals += np.asarray(background.sum(axis=0, dtype=np.int64)).ravel()
        self.seeds = seeds
        self.seeded = None if seeds is None else SeedsOfBlocks(seeds, self.words)
        self.kind = np.uint16 if n_topics <= np.iinfo(np.uint16).max else np.uint32
        self.totals = self.background_totals.copy()
        none = self.document_kind(
            np.zeros(0, np.int64), Storage(), self.labels[:0] if self.labelled else None
        )
        self.documents, self.averages = type(none), averages
        self.saved = ("topics", *none.arrays(), *(("sums",) if averages else ()))
        self._word_part = np.nan
        self._figures: list[dict] = [{} for _ in self.shards]  # of the last sweep, by shard
        self._block_figures: list[dict] = [{} for _ in range(self.n_blocks)]  # of the last shard that had it

    def _schedule(self, at_once, repeats):
        return FirstCountThenRotate(len(self.shards), at_once, repeats)

    def _number_of_rows(self, frequency, background):
        """Words that keep a row of counts, the most frequent ones."""
        if background is not None:
            check_frequency(frequency, int(background.data.max(initial=0)))
            return np.count_nonzero(frequency)
        check_frequency(frequency)
        return number_of_rows(frequency, self.n_topics)

    def document_kind(self, lengths, storage, labels=None):
        """Allocate the counts of documents."""
        n_documents = self.corpus.n_documents
        return document_rows(lengths, self.longest, self.n_topics, labels, storage, n_documents)

    # At a shard -----------------------------------------------------------------------------------

    def load(self, data):
        """Read a shard, lay its tokens out and give them their first topics."""
        summary, storage = self.corpus, self._storage()
        X = read_again(data, summary.n_words)
        lengths = np.asarray(X.sum(axis=1, dtype=np.int64)).ravel()
        order = np.argsort(lengths, kind="stable")
        lengths = lengths[order]
        rank = np.full(summary.n_words, -1, np.int32)
        rank[self.words.ids] = np.arange(len(self.words.ids))
        X = sparse.csr_array((X.data, rank[X.indices], X.indptr), shape=(len(order), len(self.words.ids)))
        n_tokens = int(lengths.sum())
        docs = storage.zeros(n_tokens + kernels.AHEAD, np.uint32)
        narrow = np.int32 if n_tokens <= np.iinfo(np.int32).max else np.int64
        starts = host.lay_out(X, order, docs).astype(narrow)
        offset = np.zeros(summary.n_words, np.int32)  # no word has more tokens (`check_frequency`)
        offset[words_of(data["words"])] = opened_numbers(data["offsets"])
        let_go(data["words"])
        let_go(data["offsets"])
        begun = {name: data[name] for name in ("number", "first_document")}
        begun |= {name: data[name][order] for name in _KNOWN if name in data}
        state = {"order": order, "lengths": lengths, "docs": docs, "starts": starts}
        begun |= {name: data[name] for name in ("topics",) if name in data}
        state |= {"offset": offset[self.words.ids], "begun": begun}
        if self.on_disk:
            state |= {name: storage.put(state[name]) for name in ("order", "lengths", "starts", "offset")}
        return self.begin(state, begun)

    def begin(self, tokens, data):
        """Give tokens that are laid out their first topics."""
        storage = self._storage()
        own = [data[name] for name in _KNOWN if name in data]
        documents = self.document_kind(tokens["lengths"], storage, *own)
        state = tokens | {"documents": documents, "totals": None, "priors": self.priors, "ready": False}
        state["topics"] = self.lay_out(state, data, storage)
        state |= documents.arrays()
        if self.averages:
            state["sums"] = documents.sums(tokens["lengths"], storage)
        self.put_away(state)
        return state

    def renew(self, state):
        """Give the tokens their first topics again."""
        return self.begin(self.tokens(state), state["begun"])

    def tokens(self, state):
        """What a shard has of its tokens, apart from topics."""
        return {name: state[name] for name in ("order", "lengths", "docs", "starts", "offset", "begun")}

    def lay_out(self, state, data, storage):
        """Make the first topics of the tokens."""
        topics = storage.zeros(len(state["docs"]) - kernels.AHEAD, self.kind)
        if "topics" in data:
            topics[:] = data["topics"]
            return topics
        here = (data["first_document"], len(state["lengths"]), self.corpus.n_documents)
        choices = host.first_choices(*here, self.seed, CHOICES, 4)
        spread = starts_from_all(state["lengths"], self.annealed)
        firsts, starts = self.words.first_token + state["offset"], state["starts"].astype(np.int64)
        tokens = (starts, firsts, state["docs"], topics)
        chosen = choices[:, :FIRST_TOPICS]
        lda_blocks.assign_first(*tokens, self.n_topics, chosen, spread, self.seed, ASSIGN)
        if "labels" in data:
            state["documents"].admit(state["docs"], topics)
        elif self.seeded is not None:
            lda_blocks.assign_seeded(starts, firsts, topics, self.seeded.of_all(), self.seed, SEEDED)
        return topics

    def block(self, block):
        """A block without tokens: the first turn fills it."""
        if self.background is not None:
            return Block(self.background_of(block), np.zeros(0, self.kind))
        rows = np.zeros((self.words.n_rows[block], self.n_topics), np.int32)
        return Block(rows, self._storage().zeros(self.words.n_tokens[block], self.kind))

    def _storage(self):
        return self.pool or Storage(self.folder)

    def pack(self, block, value):
        """Counts packed, tokens as they are; counts that follow from the tokens are left out."""
        rows = value.rows[:0] if self.all_tokens else value.rows
        packed = np.empty(lda_blocks.packed_size(*rows.shape) + value.tokens.nbytes, np.uint8)
        size = lda_blocks.pack_rows(rows, packed)  # of the rest no page is touched
        end = size + value.tokens.nbytes
        packed[size:end] = value.tokens.view(np.uint8)
        return packed[:end]

    def unpack(self, block, packed):
        """Undo `pack`; every topic and count is checked, for kernels trust them."""
        here, n_rows = self.words.of(block), 0 if self.all_tokens else self.words.n_rows[block]
        rows = np.zeros((n_rows, self.n_topics), np.int32)
        value = Block(rows, np.zeros(self.words.n_tokens[block], self.kind))
        most = self.words.frequency[here][:n_rows]
        if self.background is not None:
            most = most + self.background[self.words.ids[here]].sum(axis=1, dtype=np.int64)
        size = len(packed) - value.tokens.nbytes if packed.dtype == np.uint8 and packed.ndim == 1 else -1
        fits = size >= 0 and lda_blocks.unpack_rows(packed[:size], rows, most)
        if fits:
            value.tokens.view(np.uint8)[:] = packed[size:]
        if not fits or value.tokens.max(initial=0) >= self.n_topics:
            raise damaged(block)
        return value

    def sync(self, state, message):
        """Take over totals, and priors."""
        if "totals" in message:
            state["totals"] = message["totals"]
        if "alpha" in message:
            state["priors"] = self.priors.replaced(message["alpha"], message["beta"])
        if not state["ready"]:
            self.make_ready(state)
            state["ready"] = True
            self.put_away(state)

    def make_ready(self, state):
        """Count the topics of the documents, those of a snapshot if it is laid over."""
        topics, documents = state["topics"], state["documents"]
        if topics.max(initial=0) >= self.n_topics:
            raise unfit("topics")
        arrays = documents.arrays()
        restored = any(state[name] is not array for name, array in arrays.items())
        docs, topics = self.tokens_in_order(state)
        if restored:
            documents.restore({name: state[name] for name in arrays}, docs, topics)
            state |= documents.arrays()
        elif documents.fill(docs, topics):
            raise unfit("topics", "doc_labels")
        check_sums(state)

    def tokens_in_order(self, state):
        """Documents and topics of the tokens by the number of the word: the order in which lists begin."""
        ranks, starts = np.argsort(self.words.ids), state["starts"]
        there = host.tokens_between(starts[ranks], starts[ranks + 1])
        return state["docs"][there], state["topics"][there]

    def before_sweep(self, state, value):
        """Called before the first step of a sweep with a shard and the block that it has in this step."""

    def update(self, state, task):
        """Fill a block with own tokens, or draw own tokens of its words; return the change of the totals."""
        place = self.schedule.place(task.round, task.step)
        if place < 0:
            result = {"changes": self._fill(state, task.blocks, task.value)}
            if self.schedule.is_last_of_shard(place):
                self.put_away(state)
            return result
        if place == 0:
            self.before_sweep(state, task.value)
        totals = state["totals"].copy()
        result = self.draw(state, task, totals)  # figures of the sampler for its coordinator
        changes = changes_of(state["totals"], totals)
        if len(changes[0]):
            result["changes"] = changes
        return result | self.figures_after(state, task, place)

    def run_steps(self, states, blocks, round, first, steps, n_jobs):
        """All steps of a sweep on threads that take tasks by themselves; see `Program`."""
        if self.schedule.place(round, first) != 0 or not self._may_run_steps(states):
            return None
        for state, value in zip(states, blocks, strict=True):
            self.before_sweep(state, value)
        return all_steps(self, states, blocks, round, first, steps, n_jobs)

    def update_together(self, states, tasks):
        """As `update`, tasks of a sweep without Python in between; the first has the changes of all."""
        place = self.schedule.place(tasks[0].round, tasks[0].step)
        if len(tasks) == 1 or place < 0 or not self._may_run_steps(states):
            return super().update_together(states, tasks)
        for state, task in zip(states, tasks, strict=True):
            if place == 0:
                self.before_sweep(state, task.value)
        changes = tasks_of_a_step(self, states, tasks)
        ends = [self.figures_after(*pair, place) for pair in zip(states, tasks, strict=True)]
        if len(changes[0]):
            ends[0]["changes"] = changes
        return ends

    def _may_run_steps(self, states):
        own = type(self).draw is RotatingGibbs.draw and type(self).update is RotatingGibbs.update
        return own and may_run_steps(self, states)

    def figures_after(self, state, task, place):
        """End the sweep of a shard if a step is its last; return what the coordinator wants to know."""
        result: dict = {}
        fits = self.fits_priors_after(task.round + 1)
        if self.schedule.is_last_of_shard(place):
            self.end_sweep(state, task)
            if fits:
                result |= self.figures_of_documents(state)
            self.put_away(state)
        if self.schedule.may_be_last_of_block(place):
            if (task.round + 1) % self.measure_every == 0:
                result["word_part"] = self.word_part(task.blocks, task.value, state["priors"].beta)
            if fits:
                result |= self.figures_of_words(state, task.blocks, task.value)
        return result

    def _fill(self, state, block, value):
        starts, n_rows = self._starts(state, block), self.words.n_rows[block]
        topics = self.own_topics(state, starts[0], starts[-1])
        lda_blocks.add_rows(starts[: n_rows + 1] - starts[0], topics, value.rows)
        begin, end, first = self._own_places(state, block)
        lda_blocks.put_own(begin[first:], end[first:], topics[starts[first] - starts[0] :], value.tokens)
        counted = np.bincount(topics, minlength=self.n_topics)
        return changes_of(np.zeros(self.n_topics, np.int64), counted)

    def _starts(self, state, block):
        """Where a shard's tokens of each of a block's words begin, and where those of the last one end."""
        here = self.words.of(block)
        return state["starts"][here.start : here.stop + 1].astype(np.int64)

    def _own_places(self, state, block):
        """Where a shard's tokens of a block's words begin and end in `Block.tokens`; the first word there."""
        begin = self.words.bounds(block)[:-1] + state["offset"][self.words.of(block)]
        end = begin + np.diff(self._starts(state, block))
        return begin, end, 0 if self.all_tokens else self.words.n_rows[block]

    def own_topics(self, state, first, last):
        """Topics of a range of the shard's tokens."""
        return state["topics"][first:last]

    def read_ahead(self, state):
        """Have the shard read from its files while others are swept."""
        if self.folder is not None:
            for array in {**state, **vars(state["documents"])}.values():
                fetch(array)

    def put_away(self, state):
        """Let go of the memory of a shard in files, after its turn."""
        if self.on_disk:
            for array in {**state, **vars(state["documents"])}.values():
                release(array)
            return_freed_memory()  # else each thread keeps its largest temporaries

    def end_sweep(self, state, task):
        """Tidy the documents' counts, and add them to their sums."""
        documents = state["documents"]
        documents.tidy(0, len(state["lengths"]))
        if self.averages and is_added(task.round, documents.sweeps_between(len(state["topics"]))):
            documents.add_to(state["sums"], weight_of(task.round))

    def draw(self, state, task, totals):
        """Draw the shard's tokens of a block's words in place, and renew the block."""
        block, value = task.blocks, task.value
        starts, n_rows = self._starts(state, block), self.words.n_rows[block]
        first, last = starts[0], starts[-1]
        own, docs = state["topics"][first:last], state["docs"][first : last + kernels.AHEAD]
        begin, end = starts[:-1] - first, starts[1:] - first
        row = np.full(len(begin), -1, np.int32)
        row[:n_rows] = np.arange(n_rows)
        words, bounds = np.arange(len(begin), dtype=np.int32), self.words.bounds(block)
        place = (words, begin, end, bounds, docs, own, value.tokens)
        self._sweep(state, task, place, (row, value.rows, totals))
        if n_rows < len(words):
            there = (bounds[:-1] + state["offset"][self.words.of(block)])[n_rows:]
            until = there + (end - begin)[n_rows:]
            lda_blocks.put_own(there, until, own[starts[n_rows] - first :], value.tokens)
        return {}

    def _sweep(self, state, task, place, words):
        documents, own = state["documents"], state["priors"]
        beta, beta_sum = own.beta_of(task.round)
        beta = beta[self.words.ids[self.words.of(task.blocks)]].astype(np.float32)
        priors_ = (documents.drawn_with(own.alpha), beta, np.float32(beta_sum))
        stream = (self.seed, SWEEP, task.round, task.shard * self.n_blocks + task.blocks)
        seeds = None if self.seeded is None else self.seeded.of(task.blocks)
        documents.sweep(place, (*words, *priors_), (self.exact, *stream, seeds))
