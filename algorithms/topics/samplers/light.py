"""LightLDA's cycle of proposals with documents in shards and words in blocks that travel.

Shards, steps and layout are those of Gibbs sampling (`Gibbs`); a token is moved by
Metropolis-Hastings (`stradask.kernels.lda.light`) instead of drawn from its conditional, at a time that does
not grow with K, and with the topics of a document hardly.

All counts are live. In one shard (``exact=True``) a sweep leaves the posterior as it is; with more, a shard
sees the others' changes of the topic totals a step late. On corpora of ten tokens in two shards, that moves
the stationary distribution by a total variation of 0.03 to 0.08; in a real corpus the totals are thousands of
times larger than their lag.

Memory, in bytes a token: topic 2, in a block 2 (4 each above 65,535 topics), and document 4; and the
documents' lists, 64 for every 16 of ``min(length, K)`` topics. Besides, 8 K bytes for the totals, and for
each running task again; 4 K for each running block.
"""

import numpy as np

from ....kernels.lda import alias
from ....kernels.lda import blocks as lda_blocks
from ....kernels.lda import light as lda_light
from ....kernels.lda.gibbs import AHEAD
from ..._streams import Purpose
from ..blocks.document_rows import PackedLists
from .gibbs import Gibbs


class Light(Gibbs):
    """LightLDA's chain over shards of documents; a token is given `n_steps` pairs of proposals in a sweep.

    Held-out perplexity falls about as fast, by time, with 1 to 4. A proposal is the topic of any token of the
    word, so blocks carry the topics of all tokens.
    """

    name, rows, all_tokens, n_steps = "light", "none", True, 2

    def document_kind(self, lengths, storage, facts=None):
        """Make lists, for few topics too."""
        return PackedLists(lengths, self.program.n_topics, storage)

    def draw(self, shard, task, totals):
        """Move own tokens of a block's words among all tokens of these; keep what they come to."""
        block, tokens = task.blocks, task.value.tokens
        starts = self.starts_of(shard, block)
        first, last = starts[0], starts[-1]
        begin, end, _ = self.places_of(shard, block)
        docs = np.empty(len(tokens) + AHEAD, np.uint32)
        lda_blocks.lay_documents(begin, end, shard.docs[first:last], docs)
        place = (np.arange(len(begin), dtype=np.int32), begin, end, self.words.bounds(block), docs, tokens)
        self.sweep(shard, task, place, (np.full(len(begin), -1, np.int32), task.value.rows, totals))
        lda_blocks.take_own(begin, end, tokens, shard.topics[first:last])
        return {}

    def proposals(self, alpha):
        """Draws from alpha: its sum, and Walker's tables."""
        return float(alpha.sum()), *alias.tables_of(alpha)

    def sweep(self, shard, task, tokens, words):
        """Move tokens by proposals of documents and of words in turn."""
        lists, alpha = shard.documents, shard.priors.alpha
        beta, beta_sum = shard.priors.beta_of(task.round)
        span = self.words.of(task.blocks)
        names, firsts = self.words.ids[span], self.words.first_token[span]
        live = np.empty(0, np.int64)  # no changes of the totals are pending
        documents = (lists.entries, lists.line_start, lists.n_lines, lists.shift, shard.lengths)
        stream = (self.program.seed, Purpose.LIGHT_SWEEP.value, task.round, task.shard)
        lda_light.sweep(
            *tokens, *documents, *words, live, alpha, *self.proposals(alpha), beta[names], beta_sum,
            self.n_steps, *stream, names, firsts,
        )  # fmt: skip
