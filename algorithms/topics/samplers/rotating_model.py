"""What is read of a topic model in shards and blocks, and what its coordinator keeps of it.

Counts of words lie in blocks, those of documents in shards; the coordinator has the topic totals and the
priors, and of the last sweep the figures from which the log-likelihood and new priors follow.
"""

from typing import Any

import numpy as np
from scipy import sparse
from scipy.special import gammaln

from ....errors import ModelFileError
from ....kernels.lda import counts as topic_counts
from ....scheduler.program import Outcome, Program
from ...inputs.indices import narrow_csr
from .. import priors
from ..shard_input import Summary
from .gathered import Fetched
from .state import FIRST_PRIOR_FIT, taken
from .word_blocks import Priors, SeedsOfBlocks, Words, add_changes, changes_of


class RotatingModel(Program):
    """The part of `RotatingGibbs` that is not sampling."""

    corpus: Summary
    words: Words
    priors: Priors
    schedule: Any
    seeds: Any
    seeded: SeedsOfBlocks | None
    background: Any
    background_totals: Any
    totals: Any
    n_topics: int
    n_tokens: int
    kind: Any
    seed: Any
    fits_priors: bool
    on_disk: bool
    first_places: Any
    put_away: Any
    _word_part: float
    _figures: list[dict]
    _block_figures: list[dict]

    # Reading ------------------------------------------------------------------------------------------

    def word_part(self, block, value, beta):
        """Sum over the words of a block of lnG(C_wk + beta_w) - lnG(beta_w).

        Of counts on top of a background B it is lnG(B_wk + C_wk + beta_w) - lnG(B_wk + beta_w).
        """
        here, n_rows = self.words.of(block), self.words.n_rows[block]
        beta = beta[self.words.ids[here]]
        row, topic = np.nonzero(value.rows)
        known = 0 if self.background is None else self.background_of(block)[row, topic]
        both = gammaln(value.rows[row, topic] + beta[row]) - gammaln(known + beta[row])
        total = float(both.sum())
        n_others = len(beta) - n_rows
        start = np.append(self.first_places(block)[n_rows:], len(value.tokens))
        none = (np.zeros((0, self.n_topics), np.int32), np.full(n_others, -1, np.int32))
        others = (0, n_others, start, value.tokens, *none, self.n_topics, beta[n_rows:])
        total += float(topic_counts.words(*others))
        if self.seeded is not None:
            counts = sparse.vstack(self.counts_of_block(block, value), format="csr")
            known = None if self.background is None else self.background_of(block)
            total += self.seeded.log_likelihood(block, counts, beta, known)
        return total

    def measure(self, state):
        """Compute what a shard's documents give to the log-likelihood."""
        alpha, lengths = state["priors"].alpha, state["lengths"]
        part = self.document_part(state, alpha)
        sums = state["documents"].prior_sums(alpha)
        part += (gammaln(sums) - gammaln(lengths + sums)).sum()
        self.put_away(state)
        return float(part)

    def document_counts(self, state):
        """Topic counts of a shard's documents, CSR, in the order of its data."""
        return self.document_csr(state)[np.argsort(state["order"])]

    def document_part(self, state, alpha):
        """Sum over the documents of lnG(C_dk + alpha_k) - lnG(alpha_k)."""
        return state["documents"].log_likelihood(0, len(state["lengths"]), alpha)

    def document_csr(self, state):
        """Topic counts of the documents, CSR, in the order of lengths."""
        return state["documents"].csr()

    def counts_of_block(self, block, value):
        """Topic counts of a block's words: CSR of those that keep a row, and of the others."""
        start = np.append(self.first_places(block)[len(value.rows) :], len(value.tokens))
        indptr, indices, data = topic_counts.word_topic_csr(start, value.tokens, self.n_topics)
        others = narrow_csr(data, indices, indptr, self.n_topics)
        others.sort_indices()
        known = 0 if self.background is None else self.background_of(block)
        return sparse.csr_array(value.rows - known), others

    def background_of(self, block):
        """Counts of a block's words that no token at hand has: int32, a row a word."""
        return self.background[self.words.ids[self.words.of(block)]].toarray().astype(np.int32)

    @property
    def bytes_of_blocks(self):
        """Bytes of all blocks."""
        words = self.words
        return int(4 * self.n_topics * words.n_rows.sum() + self.kind().itemsize * words.n_tokens.sum())

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
            own = self.words.ids[row : row + part.shape[0]]
            shift = np.repeat(indptr[own] - part.indptr[:-1], np.diff(part.indptr))
            there = np.arange(part.nnz) + shift
            indices[there], data[there] = part.indices, part.data
            row += part.shape[0]
        return sparse.csr_array((data, indices, indptr.astype(wide)), shape=(len(sizes), self.n_topics))

    # At the coordinator -------------------------------------------------------------------------------

    def publish(self):
        """Tell the topic totals, and priors where they are fitted."""
        return {"totals": self.totals} | self._fitted_priors()

    def _fitted_priors(self):
        own = self.priors
        return {"alpha": own.alpha, "beta": float(own.beta[0])} if self.fits_priors else {}

    def with_priors(self, alpha, beta):
        """Make the priors that these, alpha and one beta for all words, come to."""
        own = self.priors
        return Priors(alpha, np.full(len(own.beta), beta), own.annealed, own.first)

    def aggregate(self, tasks, partials):
        """Add up what the shards did to the totals."""
        changes = np.zeros(self.n_topics, np.int64)
        for partial in partials:
            add_changes(changes, partial["changes"])
        self.totals = self.totals + changes
        # With shards on disk, of which there are many in one process, a reference is less than all changes.
        message = {"changes": changes_of(np.zeros_like(changes), changes)}
        if self.on_disk:
            message = {"totals": self.totals}
        round_ = tasks[0].round
        place = self.schedule.place(round_, tasks[0].step)
        if place < 0:
            return Outcome(message)
        for task, partial in zip(tasks, partials, strict=True):
            of_words = {name for name in partial if name.startswith("word_")}
            self._block_figures[task.blocks].update({name: partial[name] for name in of_words})
            of_documents = partial.keys() - of_words - {"changes"}
            self._figures[task.shard].update({name: partial[name] for name in of_documents})
        if not self.schedule.is_end(place):
            return Outcome(message)
        if (round_ + 1) % self.measure_every == 0:
            self._word_part = sum(figures["word_part"] for figures in self._block_figures)
        if self.fits_priors_after(round_ + 1):
            self._fit_priors()
            message |= self._fitted_priors()
        return Outcome(message, updates=self.n_tokens * self.schedule.repeats)

    def objective(self, parts):
        """Compute log p(w, z) per token from the parts of documents and of words."""
        return self.joint(parts, self._word_part)

    def joint(self, document_parts, word_part):
        """Compute log p(w, z) per token; with a background, of it given the background."""
        beta = self.priors.beta.sum() + (0 if self.seeded is None else self.seeded.sums)
        total = sum(document_parts) + word_part
        total += (gammaln(self.background_totals + beta) - gammaln(self.totals + beta)).sum()
        return float(total / self.n_tokens)

    def fits_priors_after(self, swept):
        """Whether priors are fitted when so many sweeps are done."""
        is_time = swept % self.measure_every == 0 and swept >= max(FIRST_PRIOR_FIT, self.priors.annealed)
        return self.fits_priors and is_time

    def _counts_of(self, block, value):
        start = np.append(self.first_places(block)[len(value.rows) :], len(value.tokens))
        _, _, counts = topic_counts.word_topic_csr(start, value.tokens, self.n_topics)
        return np.concatenate([value.rows[value.rows > 0], counts])

    def _fit_priors(self):
        """Fit priors to how often each count occurs, which is all that their fixed points need."""
        documents = priors.merged([figures["document_counts"] for figures in self._figures])
        lengths = priors.merged([figures["lengths"] for figures in self._figures])
        words = priors.merged([figures["word_counts"] for figures in self._block_figures])
        alpha = priors.fit_tallied_doc_topic_prior(documents, lengths, self.priors.alpha)
        beta = priors.fit_tallied_topic_word_prior(
            words, self.totals, self.corpus.n_words, self.priors.beta[0]
        )
        self.priors = self.with_priors(alpha, beta)
        counts, times = words
        self._word_part = float((times * (gammaln(counts + beta) - gammaln(beta))).sum())

    def collect(self, ask):
        """Fetch the model."""
        return Fetched.of(self, ask)

    def arrays(self):
        """What a checkpoint must hold beside what lies in shards and blocks."""
        parts = {"seed": self.seed, "totals": self.totals, "alpha": self.priors.alpha}
        parts |= {"beta": self.priors.beta, "annealed": np.int64(self.priors.annealed)}
        return {name: np.asarray(value) for name, value in parts.items()}

    def restore(self, arrays):
        """Go on from the arrays of a checkpoint of the same corpus and parameters."""
        seed, totals, alpha, beta, annealed = taken(arrays, "seed", "totals", "alpha", "beta", "annealed")
        own = self.priors
        fits = seed.shape == annealed.shape == () and (seed.dtype, annealed.dtype) == (np.uint64, np.int64)
        fits = fits and totals.shape == self.totals.shape and totals.dtype == np.int64
        own_totals = totals - self.background_totals if fits else totals
        fits = fits and bool((own_totals >= 0).all()) and int(own_totals.sum()) in (0, self.n_tokens)
        for found, there in ((alpha, own.alpha), (beta, own.beta)):
            fits = fits and found.shape == there.shape and found.dtype == there.dtype
            fits = fits and bool((np.isfinite(found) & (found > 0)).all())
        if not fits or annealed < 0:
            raise ModelFileError(
                "the checkpoint's arrays do not fit its data; remove the folder to start anew"
            )
        self.seed, self.totals = np.uint64(seed), totals.copy()
        self.priors = Priors(alpha, beta, int(annealed), own.first)
