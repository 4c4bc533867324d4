"""WarpLDA's order first, Gibbs sampling in the end, for many topics.

Passes of WarpLDA's order bring the model forward at a part of the cost of Gibbs sweeps, whose time grows
with the topics of a document. After a fixed number of sweeps Gibbs sampling takes over (`Handover`): its
counts are live, so that the assignments are draws of the posterior. Annealed sweeps are warp's. A fit may end
before: its model is then that of warp.

Shards report the topics of their documents. When it is time, the message after the sweep tells every shard,
and each turns its tokens' topics into the state of a Gibbs sampler in place. Blocks turn into those of Gibbs
sampling when they are next worked on.

Memory: that of `RotatingWarp` or of `RotatingGibbs`; of a shard both while it goes over.
"""

import numpy as np

from ....kernels.lda import blocks as lda_blocks
from ....kernels.lda.gibbs import AHEAD
from ....scheduler.program import Outcome, Program
from ....scheduler.schedules.switching import SwitchSchedule
from ..blocks.handover import Handover
from ..blocks.program import Gathered
from ..blocks.restoring import damaged
from ..blocks.storage import Storage
from ..rules import WARP_PASSES
from .annealing import Priors, annealed_sweeps
from .gibbs import RotatingGibbs
from .warp import RotatingWarp, name_documents

_WARP, _GIBBS = 0, 1  # which of the two parts


class RotatingAuto(Program):
    """A `RotatingWarp`, and from some sweep on a `RotatingGibbs`, of the same shards: `parts`.

    `anneals` says whether the first sweeps are annealed; `sweeps` are those of a fit that keeps draws from
    its end. Other options are those of `RotatingGibbs`.
    """

    name, travels, joins, keeps_copies, unit, on_gpu = "auto", True, True, True, "token", False

    def __init__(
        self, corpus, n_topics, alpha, beta, seed, *, anneals=False, sweeps=None, fits_priors=False, **options
    ):  # fmt: skip
        model = (corpus, n_topics, alpha, beta, seed)
        self.handover = Handover(n_topics, sweeps)
        annealed = annealed_sweeps(WARP_PASSES, sweeps) if anneals else 0
        # Priors are fitted by Gibbs sampling alone: early counts of warp would make alpha too large.
        warp = RotatingWarp(*model, annealed=annealed, repeats=WARP_PASSES, **options)
        gibbs = RotatingGibbs(*model, fits_priors=fits_priors, **options)
        self.parts, self.shards, self.saved = (warp, gibbs), corpus.shards, gibbs.saved
        warp.shards = gibbs.shards = ()
        self.schedule = SwitchSchedule(warp.schedule, gibbs.schedule)
        for name in ("n_blocks", "measure_every", "shard_weights", "loads_at_once", "on_disk"):
            setattr(self, name, getattr(gibbs, name))
        self.rows = gibbs.rows

    def __getstate__(self):
        return vars(self) | {"rows": None}

    @property
    def current(self):
        """The part that runs."""
        return self.parts[_GIBBS if self.handover.done else _WARP]

    @property
    def barrier(self):  # type: ignore[override]
        """That of the part that runs."""
        return self.current.barrier

    @property
    def ran(self):
        """For `LatentDirichletAllocation.sampler_`."""
        return self.handover.ran

    def __getattr__(self, name):  # priors, joint, word_counts...
        if name.startswith("__") or "parts" not in vars(self):
            raise AttributeError(name)
        return getattr(self.current, name)

    # At a shard -----------------------------------------------------------------------------------

    def load(self, data):
        """See `RotatingGibbs`; what warp has no need to keep is kept empty."""
        return self._whole(self.current.load(data))

    def _whole(self, state):
        none = dict.fromkeys(self.saved, np.zeros(0, np.uint8))
        return none | state | {"gibbs": self.handover.done}

    def renew(self, state):
        """See `RotatingGibbs`."""
        return self._whole(self.current.begin(self._of(state).tokens(state), state["begun"]))

    def _of(self, state):
        return self.parts[_GIBBS if state["gibbs"] else _WARP]

    def sync(self, state, message):
        """See `RotatingGibbs`; hands over if the message says so."""
        self._of(state).sync(state, {name: value for name, value in message.items() if name != "goes_over"})
        if "goes_over" in message and not state["gibbs"]:
            self._go_over(state)

    def _go_over(self, state):
        gibbs, own = self.parts[_GIBBS], state["priors"]
        storage = gibbs.pool or Storage(gibbs.folder)
        pairs, lengths = state["topics"], state["lengths"]
        docs = storage.zeros(len(pairs) + AHEAD, np.uint32)
        name_documents(state.pop("doc_start"), state.pop("position"), docs)
        topics = storage.zeros(len(pairs), gibbs.kind)
        topics[:] = pairs[:, 0]
        documents = gibbs.document_kind(lengths, storage)
        for name in ("names", "number", "at_hand"):
            state.pop(name, None)
        state["starts"] = state["starts"].copy()
        state |= {"docs": docs, "topics": topics, "documents": documents, "gibbs": True} | documents.arrays()
        state["priors"] = Priors(own.alpha, own.beta, 0, own.first)
        if "sums" in state:
            state["sums"][:] = 0  # the averages are those of the last sampler
        gibbs.make_ready(state)
        gibbs.put_away(state)

    def join(self, partials):
        """See `RotatingModel`."""
        return self.parts[_GIBBS].join(partials)

    def message_of(self, state, joined):
        """See `RotatingModel`."""
        return self.parts[_GIBBS].message_of(state, joined)

    def update(self, state, task):
        """Do a step of the sampler that the shard is at."""
        if state["gibbs"]:
            self._take_over(task.blocks, task.value)
        return self._of(state).update(state, task)

    def _part_of(self, block, value):
        """The program of a block: one of warp has tokens of frequent words, too, or none, or segments."""
        n_tokens = self.parts[_GIBBS].words.n_tokens[block]
        is_gibbs = value.tokens is not None and len(value.tokens) == n_tokens and not value.segments
        return self.parts[_GIBBS if is_gibbs else _WARP]

    def _take_over(self, block, value):
        """Turn a block of warp into one of Gibbs sampling: rows, and the tokens of the other words."""
        warp, gibbs = self.parts
        if self._part_of(block, value) is gibbs:
            return
        n_rows, bounds = gibbs.words.n_rows[block], warp.words.bounds(block)
        tokens = warp.whole(block, value).tokens
        if len(value.rows) < n_rows:
            value.rows = np.zeros((n_rows, gibbs.n_topics), np.int32)
            lda_blocks.add_rows(bounds, tokens, value.rows)
        value.tokens = tokens[bounds[n_rows] :].copy()

    def measure(self, state):
        """See `RotatingModel`."""
        return self._of(state).measure(state)

    def document_counts(self, state):
        """See `RotatingModel`."""
        return self._of(state).document_counts(state)

    def document_shares(self, state):
        """See `RotatingModel`."""
        return self._of(state).document_shares(state)

    def read_ahead(self, state):
        """See `RotatingGibbs`."""
        self._of(state).read_ahead(state)

    # Blocks. Those of no rows are the same for both. --------------------------------------------------

    def block(self, block):
        """See `RotatingGibbs`."""
        return self.current.block(block)

    def pack(self, block, value):
        """See `RotatingGibbs`; the first byte says whose block it is."""
        part = self._part_of(block, value)
        return np.concatenate([np.array([self.parts.index(part)], np.uint8), part.pack(block, value)])

    def unpack(self, block, packed):
        """See `RotatingGibbs`."""
        fits = packed.dtype == np.uint8 and packed.ndim == 1 and len(packed) > 0
        if not fits or packed[0] not in (_WARP, _GIBBS):
            raise damaged(block)
        return self.parts[packed[0]].unpack(block, packed[1:])

    def word_part(self, block, value, beta):
        """See `RotatingModel`."""
        return self._part_of(block, value).word_part(block, value, beta)

    def counts_of_block(self, block, value):
        """See `RotatingModel`."""
        return self._part_of(block, value).counts_of_block(block, value)

    def read_block(self, block, value, fitted=None):
        """See `RotatingModel`."""
        return self._part_of(block, value).read_block(block, value, fitted)

    @property
    def bytes_of_blocks(self):
        """Bytes of all blocks: the more of the two samplers."""
        return max(part.bytes_of_blocks for part in self.parts)

    @property
    def packed_bytes(self):
        """Bytes of all blocks as they are packed: the more of the two samplers."""
        return max(part.packed_bytes for part in self.parts)

    # At the coordinator -------------------------------------------------------------------------------

    def publish(self):
        """See `RotatingModel`."""
        return self.current.publish()

    def hear(self, joined):
        """See `RotatingModel`."""
        self.current.hear(joined)

    def aggregate(self, tasks, partials):
        """Take over what was done; after a sweep of warp, go over to Gibbs sampling if it is time."""
        warp, gibbs = self.parts
        went_over = self.handover.done
        outcome = self.current.aggregate(tasks, partials)
        if went_over:
            warp.at_hand = None  # in one process all blocks were taken over in the first step
        if not outcome.updates or went_over:
            return outcome
        if not self.handover.after(warp.topics_per_document):
            return outcome
        gibbs.totals, gibbs._word_part = warp.totals, warp._word_part
        gibbs.priors = Priors(warp.alpha, warp.beta, 0, gibbs.priors.first)
        return Outcome({"goes_over": True}, updates=outcome.updates, priorities=np.ones(1))

    def objective(self, parts):
        """See `RotatingModel`."""
        return self.current.objective(parts)

    def collect(self, ask, documents=True):
        """Fetch the model, or without `documents` the counts of words alone."""
        return Gathered.of(self, ask, documents)

    def arrays(self):
        """See `RotatingModel`."""
        return self.handover.arrays() | self.current.arrays()

    def restore(self, arrays):
        """See `RotatingModel`; it may be from before the samplers changed."""
        own = self.handover.restore(arrays)  # which says whose they are
        self.current.restore(own)
