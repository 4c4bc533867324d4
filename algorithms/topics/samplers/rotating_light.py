"""LightLDA's cycle of proposals with documents in shards and words in blocks that travel."""

import numpy as np

from ....kernels.lda import alias
from ....kernels.lda import blocks as lda_blocks
from ....kernels.lda import light as lda_light
from ....kernels.lda.gibbs import AHEAD
from .document_rows import PackedLists
from .rotating import RotatingGibbs

_SWEEP = 7  # purpose of a random stream


class RotatingLight(RotatingGibbs):
    """LightLDA's chain over shards of documents; see `LightState`.

    A proposal is the topic of any token of the word, so blocks carry the topics of all tokens.
    """

    name, keeps_rows, n_steps = "light", False, 2

    def document_kind(self, lengths, storage, labels=None):
        """Make lists, for few topics too."""
        return PackedLists(lengths, self.n_topics, storage)

    def draw(self, state, task, totals):
        """Move own tokens of a block's words among all tokens of these; keep what they come to."""
        block, tokens = task.blocks, task.value.tokens
        here = self.words.of(block)
        starts = state["starts"][here.start : here.stop + 1]
        first, last = starts[0], starts[-1]
        word_start = np.append(self.first_places(block), len(tokens))
        begin = word_start[:-1] + state["offset"][here]
        end = begin + np.diff(starts)
        docs = np.empty(len(tokens) + AHEAD, np.uint32)
        lda_blocks.lay_documents(begin, end, state["docs"][first:last], docs)
        place = (np.arange(len(begin), dtype=np.int32), begin, end, word_start, docs, tokens)
        self._sweep(state, task, place, (np.full(len(begin), -1, np.int32), task.value.rows, totals))
        lda_blocks.take_own(begin, end, tokens, state["topics"][first:last])
        return {}

    def _sweep(self, state, task, place, words):
        lists, known = state["documents"], state["priors"]
        beta, beta_sum = known.beta_of(task.round)
        here = self.words.of(task.blocks)
        names, firsts = self.words.ids[here], self.words.first_token[here]
        live, alpha = np.empty(0, np.int64), known.alpha  # no changes beside the totals
        size = 0 if np.ptp(alpha) == 0 else len(alpha)
        aliases, limits = np.empty(size, np.int64), np.empty(size, np.uint32)
        if size:
            alias.alias_tables(alpha, aliases, limits)
        documents = (lists.entries, lists.line_start, lists.n_lines, lists.shift, state["lengths"])
        stream = (self.seed, _SWEEP, task.round, task.shard)
        lda_light.sweep(
            *place, *documents, *words, live, alpha, float(alpha.sum()), aliases, limits, beta[names],
            beta_sum, self.n_steps, *stream, names, firsts,
        )  # fmt: skip
