"""The program of all topic models: documents in shards, words in blocks that travel, and a sampler.

A sweep of B shards and B blocks runs B steps (sub-epochs); in step p shard i works on block (i + p) mod B.
No two shards that work at a time share a document or a word. Layout, order and random streams follow from
the shards alone, so that the model is *bitwise* the same on threads, from files and on any number of workers.
Only what a shard must know of the others' tokens travels, with the block. On threads of one process nothing
is packed or copied: blocks stay where they are, and shards take turns. The changes of the topic totals are
added up after every step: within one, a shard sees its own changes only.

In the first round a turn of the rotation comes before, in which blocks are filled with the first topics.

A sampler (`samplers.gibbs.Gibbs`) draws the topics. The program lays shards out, keeps the topic totals and
the priors at the coordinator, and reads the model. Of two samplers the second takes over when the first says
so (`samplers.auto`).
"""

from typing import Any

import numpy as np
from scipy import sparse

from ....kernels.lda import counts as topic_counts
from ....kernels.lda import gibbs as kernels
from ....kernels.lda import host
from ....scheduler.allocation import release_code, return_freed_memory
from ....scheduler.program import Outcome, is_built_in
from ....scheduler.schedules.switching import SwitchSchedule
from ...inputs.indices import narrow_csr
from ..corpus.shard_input import CorpusSize, let_go, read_again
from ..samplers.annealing import Priors
from ..samplers.gibbs_steps import all_steps, tasks_of_a_step
from ..samplers.of_users import check_topics, check_writes_nothing, drawn_within_range
from .draws import Gathered
from .packing import pack_counts, unpack_counts, unpack_numbers, unpack_words
from .restoring import damaged, taken, unfit
from .shard import TopicShard
from .state import TopicState
from .storage import Pool, Storage, arrays_of, fetch, release
from .word_blocks import SeedsOfBlocks, add_changes, changes_of

_KNOWN = ("labels", "design", "response")  # what a shard may know of its documents, one of these
_ON_WORKERS = "the folder of a worker (Dask's local_directory, or memmap_folder)"
_INPUTS = ("number", "first_document", "topics", *_KNOWN)  # of a shard's data, what `begin` takes


class TopicProgram(TopicState):
    """Topics of the tokens of a corpus, drawn by a sampler.

    Parameters
    ----------
    corpus : ShardedCorpus
        Shards with ``topics`` begin from these; with ``labels`` (`LabelledRows`) a document has no other
        topics.
    n_topics, alpha, beta, seed
        `seed` is a key of 64 bits.
    sampler : Gibbs or (Warp, Gibbs)
        It is copied. The second of a pair takes over from the first when the `handover` says so.
    handover : Handover, optional
    exact : bool
        One shard, topic totals live.
    fits_priors : bool
        Whether alpha and beta are fitted; of a pair of samplers while the second one draws.
    annealed : int
        First sweeps that have a larger topic-word prior.
    folder : path, optional
        The place of files for arrays that grow with tokens and documents (`Storage`).
    in_process : bool
        Whether shards and blocks stay in this process.
    at_once : int, optional
        See `FirstCountThenRotate`.
    seeds : CSR array of float64, shape (n_words, n_topics), optional
        Added to beta. Tokens of these words begin in their topics.
    background : CSR matrix of shape (n_words, n_topics), optional
        Counts of tokens that are not in the corpus and do not change; with it priors are not fitted.
    averages : bool, default=False
        Whether documents' counts are averaged over sweeps (`averages`).
    """

    corpus: CorpusSize
    travels, joins, keeps_copies, takes_together = True, True, True, True

    def __init__(
        self, corpus, n_topics, alpha, beta, seed, *, sampler, handover=None, exact=False, fits_priors=False,
        annealed=0, folder=None, in_process=False, at_once=None, seeds=None, background=None, averages=False,
    ):  # fmt: skip
        super().__init__(n_topics, seed, averages)
        self.corpus, self.shards = corpus.summary, corpus.shards
        self.shard_weights, self.rows, self.longest = corpus.weights, corpus.rows, corpus.longest
        self.labels, self.labelled = corpus.labels, corpus.labels is not None
        self.on_disk = folder is not None and at_once is not None  # workers may come to it: `stream`
        self.in_process = in_process or self.on_disk
        self.counts_in_memory = 0.0  # bytes for documents' counts on a worker with shards in files
        # Few files: those of one array each would be more than a process may have open.
        self.pool: Any = Pool(folder) if self.in_process and folder is not None else None
        self._lasting: Any = None
        self.loads_at_once = None if at_once is None else 1  # what is read takes more memory than what stays
        self.exact, self.folder, self.at_once = int(exact), folder, at_once
        self.n_tokens = int(corpus.frequency.sum())
        self.background, self.background_totals = background, np.zeros(n_topics, np.int64)
        if background is not None:
            self.background_totals += np.asarray(background.sum(axis=0, dtype=np.int64)).ravel()
        self.totals = self.background_totals.copy()
        self.seeds, self._fits_priors = seeds, fits_priors
        samplers = sampler if isinstance(sampler, tuple) else (sampler,)
        self.samplers = tuple(each.bound(self, corpus) for each in samplers)
        self.handover = handover
        self.checks_topics = not all(map(is_built_in, self.samplers))
        self._take_sampler(0)
        self.seeded = None if seeds is None else SeedsOfBlocks(seeds, self.words)
        schedules = [each.schedule for each in self.samplers]
        self.schedule: Any = SwitchSchedule(*schedules) if self.handover else schedules[0]
        self.n_blocks = self.samplers[-1].schedule.n_blocks
        self.priors: Priors = self.sampler.first_priors(alpha, beta, annealed)
        nothing = (np.zeros(0, np.int64), Storage(), self.labels[:0] if self.labelled else None)
        documents = self.samplers[-1].document_kind(*nothing)
        self.documents, self.list_names = type(documents), tuple(documents.arrays())
        self.saved = ("topics", *self.list_names, *(("sums",) if averages else ()))
        self.word_part = np.nan  # of the log-likelihood
        self.shard_figures: list[dict] = [{} for _ in self.shards]  # of the last sweep
        self.block_figures: list[dict] = [{} for _ in range(self.n_blocks)]  # of the last shard that had it

    def __getstate__(self):
        """Arrays of all documents stay with the coordinator."""
        return vars(self) | {"rows": None, "labels": None}

    def __setstate__(self, state):
        """Bind copies of the samplers: those of the original have its shards, which would travel, too."""
        vars(self).update(state)
        self.samplers = tuple(sampler.with_program(self) for sampler in self.samplers)
        self.sampler = self.samplers[self.stage]

    def _take_sampler(self, stage):
        """Let a sampler draw; early counts of warp would make a fitted alpha too large."""
        self.stage, self.sampler = stage, self.samplers[stage]
        self.fits_priors = self._fits_priors and stage == len(self.samplers) - 1

    @property
    def is_users(self):
        """See `Program`: its class or a sampler is a user's."""
        return super().is_users or self.checks_topics

    @property
    def words(self):
        """The words in blocks."""
        return self.sampler.words

    @property
    def barrier(self):  # type: ignore[override]
        """When changes of the totals are added up."""
        return self.sampler.barrier

    @property
    def name(self):
        """The name of the sampler, or "auto"."""
        return "auto" if self.handover else self.sampler.name

    @property
    def counted_as(self):
        """The sampler whose tokens take as much memory; see `bytes_of_state`."""
        return "auto" if self.handover else self.sampler.counted_as

    @property
    def format_name(self):  # type: ignore[override]
        """The name in checkpoints: those of version 0.2 have the classes of then."""
        return "RotatingAuto" if self.handover else self.sampler.format_name

    @property
    def ran(self):
        """For `LatentDirichletAllocation.sampler_`."""
        return self.handover.ran if self.handover else super().ran

    # Shards -------------------------------------------------------------------------------------------

    def load(self, data):
        """Read a shard, lay its tokens out and give them their first topics."""
        n_words, words, storage = self.corpus.n_words, self.words, self._lasting or self.storage()
        X = read_again(data, n_words)
        lengths = np.asarray(X.sum(axis=1, dtype=np.int64)).ravel()
        order = np.argsort(lengths, kind="stable")
        lengths = lengths[order]
        rank = np.full(n_words, -1, np.int32)
        rank[words.ids] = np.arange(len(words.ids))
        X = sparse.csr_array((X.data, rank[X.indices], X.indptr), shape=(len(order), len(words.ids)))
        n_tokens = int(lengths.sum())
        docs = storage.zeros(n_tokens + kernels.AHEAD, np.uint32)
        narrow = np.int32 if n_tokens <= np.iinfo(np.int32).max else np.int64
        starts = host.lay_out(X, order, docs).astype(narrow)
        offset = np.zeros(n_words, np.int32)  # no word has more tokens (`check_frequency`)
        offset[unpack_words(data["words"])] = unpack_numbers(data["offsets"])
        let_go(data["words"])
        let_go(data["offsets"])
        inputs = {name: data[name] for name in _INPUTS if name in data}
        inputs |= {name: data[name][order] for name in _KNOWN if name in data}
        shard = TopicShard(order, lengths, docs, starts, offset[words.ids], inputs)
        if self.on_disk:
            for name in ("order", "lengths", "starts", "offset"):
                setattr(shard, name, storage.put(getattr(shard, name)))
        return self._begin(shard)

    def _begin(self, shard):
        """Give tokens that are laid out their first topics."""
        sampler, storage = self.sampler, self.storage()
        facts = [shard.inputs[name] for name in _KNOWN if name in shard.inputs]
        shard.documents = sampler.document_kind(shard.lengths, storage, *facts)
        shard.priors, shard.stage = self.priors, self.stage
        shard.topics = sampler.lay_out(shard, storage)
        if self.checks_topics:
            check_topics(sampler, "lays out", shard.topics)
        # Lists that the sampler does without, and a later one has, are empty.
        shard.lists = dict.fromkeys(self.list_names, np.zeros(0, np.uint8)) | shard.documents.arrays()
        if self.averages:
            shard.sums = shard.documents.sums(shard.lengths, storage)
        self.keep_counts(shard)
        self.put_away(shard)
        return shard

    def stream(self, counts_in_memory):
        """Have workers keep shards and blocks in files, and in memory those parts that are worked on."""
        self.on_disk, self.loads_at_once, self.counts_in_memory = True, 1, counts_in_memory

    @property
    def streams(self):
        """Whether workers have shards in files, of which each step reads a part."""
        return self.on_disk and not self.in_process

    def arrive(self, folder):
        """Take a folder for files; those of `_lasting` outlast a loss, see `renew`."""
        self.folder = folder if self.folder is None else self.folder
        self.pool, self._lasting = self.files(), self.files()

    def files(self):
        """Make what puts arrays into files, on workers that have shards there."""
        return Pool(self.folder, _ON_WORKERS) if self.streams and self.folder is not None else None

    def adopt(self, shard):
        """Put the arrays of a shard that comes from another worker into files."""
        if self.streams:
            files = {id(array): self.pool.put(array) for array in arrays_of(*_holders(shard))}
            for holder in _holders(shard):
                values = holder if isinstance(holder, dict) else vars(holder)
                values.update({name: files.get(id(value), value) for name, value in values.items()})
        self.keep_counts(shard)
        return shard

    def keep_counts(self, shard):
        """Let the counts of a shard's documents, which each step needs, stay in memory if there is room."""
        if not self.streams:
            return
        size = sum(array.nbytes for array in arrays_of(shard.documents))
        with self.pool.lock:
            room = self.counts_in_memory - self.pool.n_bytes_kept
            shard.stays = shard.documents.met_by_steps and size <= room
            self.pool.n_bytes_kept += size * shard.stays

    def renew(self, shard):
        """Give the tokens their first topics again."""
        docs = self.samplers[shard.stage].documents_of_tokens(shard)
        tokens = (shard.order, shard.lengths, docs, shard.starts, shard.offset)
        shard.stays = False  # something may refer to the counts for a while
        self.put_away(shard)
        return self._begin(TopicShard(*tokens, shard.inputs))

    def sync(self, shard, message):
        """Take over totals and priors; the message may say that another sampler takes over."""
        sampler = self.samplers[shard.stage]
        if "totals" in message:
            shard.totals = message["totals"]
        if "alpha" in message:
            shard.priors = self.priors.replaced(message["alpha"], message["beta"])
        sampler.receive(shard, message)
        if not shard.is_ready:
            sampler.make_ready(shard)
            shard.is_ready = True
            self.put_away(shard)
        if "goes_over" in message and shard.stage == 0:
            self.handover.move_shard(self, shard)

    def update(self, shard, task):
        """Fill a block with own tokens, or draw own tokens of its words; return the change of the totals."""
        sampler = self.samplers[shard.stage]
        if shard.stage:
            self.handover.move_block(*self.samplers, task.blocks, task.value)
        place = sampler.schedule.place(task.round, task.step)
        if place < 0:
            result = {"changes": sampler.fill(shard, task.blocks, task.value)}
            if sampler.schedule.is_last_of_shard(place):
                self.put_away(shard)
            self._put_away_step(shard, task)
            return result
        if place == 0:
            sampler.before_sweep(shard, task.value)
            if task.round == task.shard == 0 and self.is_users:
                check_writes_nothing(sampler, shard, task)
        totals = shard.totals.copy()
        # Figures of the sampler for its coordinator.
        draw = drawn_within_range if self.checks_topics else type(sampler).draw
        result = draw(sampler, shard, task, totals)
        changes = changes_of(shard.totals, totals)
        if len(changes[0]):
            result["changes"] = changes
        result |= sampler.figures_after(shard, task, place)
        self._put_away_step(shard, task)
        return result

    def run_steps(self, states, blocks, round, first, steps, n_jobs):
        """All steps of a sweep on threads that take tasks by themselves; see `Program`."""
        if self.handover or self.schedule.place(round, first) != 0 or not self.sampler.may_run_steps(states):
            return None
        for shard, value in zip(states, blocks, strict=True):
            self.sampler.before_sweep(shard, value)
        return all_steps(self.sampler, states, blocks, round, first, steps, n_jobs)

    def update_together(self, states, tasks):
        """As `update`, tasks of a sweep without Python in between; the first has the changes of all."""
        if self.handover or len(tasks) == 1:
            return super().update_together(states, tasks)
        place = self.schedule.place(tasks[0].round, tasks[0].step)
        if place < 0 or not self.sampler.may_run_steps(states):
            return super().update_together(states, tasks)
        for shard, task in zip(states, tasks, strict=True):
            if place == 0:
                self.sampler.before_sweep(shard, task.value)
        changes = tasks_of_a_step(self.sampler, states, tasks)
        ends = [self.sampler.figures_after(*pair, place) for pair in zip(states, tasks, strict=True)]
        if len(changes[0]):
            ends[0]["changes"] = changes
        return ends

    def measure(self, state):
        """Compute the part of a shard's documents for the log-likelihood."""
        value = self.samplers[state.stage].measure(state)
        self.put_away(state)
        return value

    def document_counts(self, shard):
        """Topic counts of a shard's documents, CSR, in the order of its data."""
        counts = shard.documents.csr()[np.argsort(shard.order)]
        self.put_away(shard)
        return counts

    def document_shares(self, shard):
        """Topic shares of a shard's documents, in the order of its data; None if no sweep was averaged."""
        shares = shard.documents.shares(shard.sums, shard.lengths, shard.priors.alpha)
        self.put_away(shard)
        return None if shares is None else shares[np.argsort(shard.order)]

    def read_ahead(self, shard, block=None):
        """Have the shard read from its files while others are swept; for a step what it needs of a block."""
        if self.folder is None:
            return
        arrays = arrays_of(*_holders(shard))
        if block is not None:
            starts, documents = self.samplers[shard.stage].starts_of(shard, block), shard.documents
            tokens = [array for array in (shard.topics, shard.docs) if array is not None]
            arrays = [array[starts[0] : starts[-1]] for array in tokens]
            arrays += arrays_of(documents) if documents.met_by_steps and not shard.stays else []
        for array in arrays:
            fetch(array)

    def put_away(self, shard):
        """Let go of the memory of a shard in files, after its turn."""
        if self.on_disk:
            self._release(shard)
            return_freed_memory()  # else each thread keeps its largest temporaries
            if self.streams:
                release_code()

    @staticmethod
    def _release(shard):
        for array in arrays_of(*(_holders(shard)[:1] if shard.stays else _holders(shard))):
            release(array)

    def _put_away_step(self, shard, task):
        """Let go of what a step read, and the system around it, of files of a worker."""
        if self.streams:
            self._release(shard)
            self._put_away_block(task.value)

    def _put_away_block(self, value):
        if self.streams:
            segments = [segment.tokens for segment in value.segments.values()]
            for array in (value.rows, value.tokens, *segments):
                release(array)

    def storage(self):
        """Where arrays of a shard are kept, and in one process those of blocks."""
        return self.pool or Storage(self.folder)

    def block_storage(self):
        """Where arrays of blocks are kept: on workers in files that go with them."""
        return Storage(self.folder, _ON_WORKERS) if self.streams else self.storage()

    def rows_of_counts(self, n_rows):
        """Allocate counts of so many words of a block; in one process they are in memory."""
        storage = self.block_storage() if self.streams else Storage()
        return storage.zeros((n_rows, self.n_topics), np.int32)

    # Blocks -------------------------------------------------------------------------------------------

    def sampler_of(self, block, value):
        """Return the sampler in whose form a block is."""
        if self.handover is None or self.handover.is_of_gibbs(self.samplers[1], block, value):
            return self.samplers[-1]
        return self.samplers[0]

    def block(self, block):
        """A block without tokens: the first turn fills it."""
        return self.sampler.block(block)

    def pack(self, block, value):
        """Pack a block; of two samplers the first byte says whose it is."""
        sampler = self.sampler_of(block, value)
        packed = sampler.pack(block, value)
        self._put_away_block(value)
        if self.handover is None:
            return packed
        return np.concatenate([np.array([self.samplers.index(sampler)], np.uint8), packed])

    def unpack(self, block, packed):
        """Undo `pack`; every topic and count is checked, for kernels trust them."""
        if self.handover is None:
            return self.sampler.unpack(block, packed)
        if packed.dtype != np.uint8 or packed.ndim != 1 or not len(packed) or packed[0] > 1:
            raise damaged(block)
        return self.samplers[packed[0]].unpack(block, packed[1:])

    def read_block(self, block, value, fitted=None):
        """Read what the model needs of a block, where it lies; `fitted` is beta where priors are fitted.

        Returns its part of the log-likelihood, and as `pack_counts` the counts of its words that keep a row
        and of the others: the block itself may have the topics of all tokens.
        """
        sampler = self.sampler_of(block, value)
        beta = self.beta if fitted is None else np.full_like(self.beta, fitted)
        both = [pack_counts(counts) for counts in sampler.counts_of_block(block, value)]
        part = sampler.word_part(block, value, beta)
        self._put_away_block(value)
        return part, *both

    def background_of(self, block):
        """Counts of a block's words from documents of earlier batches: int32, a row a word."""
        return self.background[self.words.ids[self.words.of(block)]].toarray().astype(np.int32)

    @property
    def bytes_of_blocks(self):
        """Bytes of all blocks: the more of the samplers."""
        return max(sampler.bytes_of_blocks for sampler in self.samplers)

    @property
    def packed_bytes(self):
        """Bytes of all blocks as they travel, at most."""
        own = self.n_topics, self.kind().itemsize
        return max(sampler.words.bytes_packed(*own) for sampler in self.samplers)

    def word_counts(self, parts):
        """Topic counts of all words, CSR, from those of the blocks in their order; empties the list."""
        sizes = np.zeros(self.corpus.n_words, np.int64)
        sizes[self.words.ids] = np.concatenate([np.diff(part.indptr) for part in parts])
        indptr = np.concatenate([[0], np.cumsum(sizes)])
        wide = np.int32 if indptr[-1] <= np.iinfo(np.int32).max else np.int64
        indices, data = np.empty(indptr[-1], wide), np.empty(indptr[-1], np.int32)
        row = 0
        while parts:  # let go of one after the other: together they take as much as the result
            part = parts.pop(0)
            words = self.words.ids[row : row + part.shape[0]]
            shift = np.repeat(indptr[words] - part.indptr[:-1], np.diff(part.indptr))
            places = np.arange(part.nnz) + shift
            indices[places], data[places] = part.indices, part.data
            row += part.shape[0]
        return sparse.csr_array((data, indices, indptr.astype(wide)), shape=(len(sizes), self.n_topics))

    def in_order_of_X(self, documents):
        """Put the rows of all documents, those of the shards one after the other, into the order of X."""
        stacked = sparse.csr_array(sparse.vstack(documents, format="csr"))
        return stacked if self.rows is None else stacked[np.argsort(np.concatenate(self.rows))]

    # At the coordinator -------------------------------------------------------------------------------

    def publish(self):
        """Send the topic totals, and what the sampler fits."""
        return {"totals": self.totals} | self.sampler.publish()

    def join(self, partials):
        """Add up changes of the totals: those in partial results, dicts, or what this returned before."""
        parts = [part.pop("changes", None) if type(part) is dict else part for part in partials]
        parts = [part for part in parts if part is not None]
        if len(parts) < 2:
            return parts[0] if parts else None
        changes = np.zeros(self.n_topics, np.int64)
        for part in parts:
            add_changes(changes, part)
        return changes_of(0, changes)

    def message_of(self, state, joined):
        """Make the totals, which all shards of a worker share."""
        return {"totals": add_changes(state.totals.copy(), joined)}

    def hear(self, joined):
        """Take the changes of a round into the totals."""
        if joined is not None:
            self.totals = add_changes(self.totals.copy(), joined)

    def aggregate(self, tasks, partials):
        """Keep the figures of shards and blocks after a sweep; the sampler fits what it is time for."""
        sampler = self.sampler
        for task, partial in zip(tasks, partials, strict=True):
            of_words = {name for name in partial if name.startswith("word_")}
            self.block_figures[task.blocks].update({name: partial[name] for name in of_words})
            self.shard_figures[task.shard].update({name: partial[name] for name in partial.keys() - of_words})
        names = set().union(*partials)
        if "word_part" in names:
            self.word_part = sum(figures["word_part"] for figures in self.block_figures)
        message = sampler.update(names, tasks[0].round + 1 if tasks else 0)
        outcome = Outcome(message, updates=self.n_tokens * sampler.schedule.repeats)
        if self.handover is None:
            return outcome
        if self.stage:
            self.samplers[0].at_hand = None  # in one process all blocks were taken over in the first step
        elif self.handover.after(sampler.topics_per_document):
            self.priors = Priors(self.alpha, self.beta, 0, self.priors.first)
            self._take_sampler(1)
            return Outcome({"goes_over": True}, updates=outcome.updates, priorities=np.ones(1))
        return outcome

    def objective(self, parts):
        """Compute log p(w, z) per token from the parts of documents and of words."""
        return self.sampler.log_likelihood(parts, self.word_part)

    def collect(self, ask, documents=True):
        """Gather the model; without `documents` the counts of words alone."""
        parts = ask(lambda session, messages: session.measure(messages)) if documents else [np.nan]
        beta = float(self.beta[0]) if self.fits_priors else None
        read = ask(lambda session, messages: session.measure_blocks(messages, "read_block", beta))
        counted = [unpack_counts(counts, self.n_topics) for _, *both in read for counts in both]
        words, of_documents, shares = self.word_counts(counted), None, None
        if documents and self.rows is not None:
            rows = ask(lambda session, messages: session.measure(messages, "document_counts"))
            of_documents = self.in_order_of_X(rows)
        if documents and self.averages:
            averaged = ask(lambda session, messages: session.measure(messages, "document_shares"))
            shares = _rows_of(self, averaged)
        joint = self.sampler.log_likelihood(parts, sum(part for part, *_ in read))
        model = (self.ran, self.alpha, self.beta, self.seeds, self.labels)
        return self.sampler.completed(Gathered(*model, of_documents, words, joint, shares))

    def arrays(self):
        """Arrays of a checkpoint besides shards and blocks."""
        parts = {"seed": self.seed, "totals": self.totals} | self.priors.arrays() | self.sampler.arrays()
        return {name: np.asarray(value) for name, value in parts.items()} | (
            self.handover.arrays() if self.handover else {}
        )

    def restore(self, arrays):
        """Go on from the arrays of a checkpoint of the same corpus and parameters."""
        if self.handover:
            self.handover.restore(arrays)
            self._take_sampler(int(self.handover.done))
        seed, totals = taken(arrays, "seed", "totals")
        fits = self.fits_seed(seed) and totals.shape == self.totals.shape and totals.dtype == np.int64
        own_totals = totals - self.background_totals if fits else totals
        if not (fits and (own_totals >= 0).all() and int(own_totals.sum()) in (0, self.n_tokens)):
            raise unfit()
        priors = self.priors.of_checkpoint(arrays)
        self.sampler.restore(arrays)
        self.priors, self.seed, self.totals = priors, np.uint64(seed), totals.copy()


def _holders(shard):
    """What has the arrays of a shard."""
    return shard, shard.lists, shard.documents


def csr_of_segments(start, topics, n_topics):
    """Count the topics ``start[i]:start[i + 1]`` in row i of a CSR array."""
    indptr, indices, data = topic_counts.word_topic_csr(start, topics, n_topics)
    counts = narrow_csr(data, indices, indptr, n_topics)
    counts.sort_indices()
    return counts


def _rows_of(program, parts):
    """Put the rows of the shards' matrices into the order of X."""
    if any(part is None for part in parts):
        return None
    whole = np.empty((program.corpus.n_documents, parts[0].shape[1]))
    for rows, part in zip(program.rows, parts, strict=True):
        whole[rows] = part
    return whole
