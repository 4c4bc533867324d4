"""WarpLDA's order first, Gibbs sampling in the end, for many topics.

Passes of WarpLDA's order bring the model forward at a part of the cost of Gibbs sweeps, whose time grows
with the topics of a document. After a fixed number of sweeps Gibbs sampling takes over: its
counts are live, so that the assignments are draws of the posterior. Annealed sweeps are warp's. A fit may end
before: its model is then that of warp.

Shards report the topics of their documents. When it is time, the message after the sweep tells every shard,
and each turns its tokens' topics into the state of a Gibbs sampler in place. Blocks turn into those of Gibbs
sampling when they are next worked on.

Memory: that of `Warp` or of `Gibbs`; of a shard both while it goes over.
"""

import numpy as np

from ....errors import ModelFileError
from ....kernels.lda import blocks as lda_blocks
from ....kernels.lda.gibbs import AHEAD
from ..blocks.restoring import taken
from ..rules import WARP_SWEEPS
from .annealing import Priors

_SHARE = 3  # fourths of the sweeps of a fit that keeps draws, after which Gibbs sampling takes over anyway


class Handover:
    """The samplers that ran, whether it is time to hand over, and how shards and blocks go over.

    `sweeps` are those of a fit that keeps draws from its end.

    Attributes
    ----------
    ran : list of dict
        See `LatentDirichletAllocation.sampler_`.
    trace : list of float
        K_d, the topics of a document, of each sweep of warp.
    """

    def __init__(self, n_topics, sweeps=None):
        self.n_topics = n_topics
        self._warp_sweeps = WARP_SWEEPS if sweeps is None else min(WARP_SWEEPS, max(_SHARE * sweeps // 4, 1))
        self.trace: list[float] = []
        self._write([1])

    def _write(self, sweeps):
        topics = [None, *self.trace[-1:]]
        parts = zip(("warp", "gibbs"), sweeps, topics, strict=False)
        self.ran = [{"name": n, "sweep": s, "topics_per_document": t} for n, s, t in parts]

    @property
    def done(self):
        """Whether Gibbs sampling has taken over."""
        return len(self.ran) > 1

    def after(self, topics_per_document):
        """Take in what a sweep of warp met; return whether it was the last one."""
        self.trace.append(float(topics_per_document))
        if len(self.trace) >= self._warp_sweeps:
            self._write([1, len(self.trace) + 1])
        return self.done

    def move_shard(self, program, shard):
        """Turn the state of a shard into that of Gibbs sampling."""
        gibbs, storage = program.samplers[1], program.storage()
        pairs, priors = shard.topics, shard.priors
        shard.docs = shard.documents.name_tokens(storage.zeros(len(pairs) + AHEAD, np.uint32))
        shard.topics = storage.zeros(len(pairs), program.kind)
        shard.topics[:] = pairs[:, 0]
        shard.starts, shard.stage = shard.starts.copy(), 1
        shard.documents = gibbs.document_kind(shard.lengths, storage)
        shard.lists = shard.documents.arrays()
        shard.priors = Priors(priors.alpha, priors.beta, 0, priors.first)
        if shard.sums is not None:
            shard.sums[:] = 0  # the averages are those of the last sampler
        gibbs.make_ready(shard)
        program.keep_counts(shard)
        program.put_away(shard)

    def move_block(self, warp, gibbs, block, value):
        """Turn a block of warp into one of Gibbs sampling: rows, and the tokens of the other words."""
        if self.is_of_gibbs(gibbs, block, value):
            return
        n_rows, bounds = gibbs.words.n_rows[block], warp.words.bounds(block)
        tokens = warp.whole(block, value).tokens
        if len(value.rows) < n_rows:
            value.rows = gibbs.program.rows_of_counts(n_rows)
            lda_blocks.add_rows(bounds, tokens, value.rows)
        value.tokens = tokens[bounds[n_rows] :].copy()

    @staticmethod
    def is_of_gibbs(gibbs, block, value):
        """Whether a block is of Gibbs sampling; of no rows it is the same for both.

        One of warp has tokens of frequent words, too, or none, or segments.
        """
        n_tokens = gibbs.words.n_tokens[block]
        return value.tokens is not None and len(value.tokens) == n_tokens and not value.segments

    def arrays(self):
        """Arrays of a checkpoint."""
        sweeps = np.array([part["sweep"] for part in self.ran], np.int64)
        return {"ran_sweep": sweeps, "ran_trace": np.array(self.trace)}

    def restore(self, arrays):
        """Go on from the arrays of a checkpoint; it may be from before the samplers changed."""
        sweeps, trace = taken(arrays, "ran_sweep", "ran_trace")
        if not self._could_have_run(sweeps, trace):
            raise ModelFileError(
                "the checkpoint's samplers are not those of these parameters; remove the folder to start anew"
            )
        self.trace = trace.tolist()
        self._write(sweeps.tolist())

    def _could_have_run(self, sweeps, trace):
        """Whether warp from the first sweep on, and Gibbs after the last of the trace, can be what ran."""
        fits = sweeps.dtype == np.int64 and trace.dtype == np.float64 and sweeps.ndim == trace.ndim == 1
        fits = fits and bool((np.isfinite(trace) & (trace >= 1) & (trace <= self.n_topics)).all())
        return fits and sweeps.tolist() in ([1], [1, len(trace) + 1] if len(trace) else [1])
