"""The part that samplers over shards and blocks share: the coordinator, and the reading of the model.

Counts of words are in blocks, those of documents in shards; the coordinator has the topic totals and the
priors, and of the last sweep the figures from which the log-likelihood and new priors follow.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from scipy.special import gammaln

from ....kernels.lda import counts as topic_counts
from ....scheduler.program import Outcome, Program
from ...inputs.indices import narrow_csr
from .. import priors
from ..corpus.shard_input import CorpusSize
from ..samplers.annealing import MEASURE_EVERY, OneSampler, is_time_for_priors
from .restoring import taken, unfit
from .word_blocks import SeedsOfBlocks, Words, add_changes, changes_of


class RotatingModel(OneSampler, Program):
    """The part of `RotatingGibbs` that is not sampling."""

    corpus: CorpusSize
    words: Words
    schedule: Any
    seeds: Any
    seeded: SeedsOfBlocks | None
    background: Any
    background_totals: Any
    totals: Any
    n_topics: int
    n_tokens: int
    kind: Any
    documents: type  # of the counts of documents
    seed: Any
    fits_priors: bool
    in_process: bool
    on_disk: bool
    put_away: Any
    rows: list | None  # which documents of X each shard has, where they are not in order
    labels: Any
    labelled: bool
    averages: bool
    _word_part: float
    _figures: list[dict]
    _block_figures: list[dict]
    on_gpu = False
    travels, joins, keeps_copies, unit = True, True, True, "token"
    measure_every = MEASURE_EVERY
    prior_figures = "word_counts"  # figures with which priors are fitted after a sweep
    barrier: str | int = "step"

    def __getstate__(self):
        """Arrays of all documents stay with the coordinator."""
        return vars(self) | {"rows": None, "labels": None}

    # Reading ------------------------------------------------------------------------------------------

    def word_part(self, block, value, beta):
        """Sum over the words of a block of lnG(C_wk + beta_w) - lnG(beta_w).

        Of counts on top of a background B it is lnG(B_wk + C_wk + beta_w) - lnG(B_wk + beta_w).
        """
        n_rows = len(value.rows)
        beta = beta[self.words.ids[self.words.of(block)]]
        row, topic = np.nonzero(value.rows)
        before = 0 if self.background is None else self.background_of(block)[row, topic]
        both = gammaln(value.rows[row, topic] + beta[row]) - gammaln(before + beta[row])
        total = float(both.sum())
        start = self.words.bounds(block)[n_rows:]
        total += topic_counts.words(start, value.tokens, beta[n_rows:], self.n_topics)
        if self.seeded is not None:
            counts = sparse.vstack(self.counts_of_block(block, value), format="csr")
            background = None if self.background is None else self.background_of(block)
            total += self.seeded.log_likelihood(block, counts, beta, background)
        return total

    def measure(self, state):
        """Compute the part of a shard's documents for the log-likelihood."""
        alpha, lengths = state["priors"].alpha, state["lengths"]
        part = self.document_part(state, alpha)
        sums = state["documents"].prior_sums(alpha)
        part += (gammaln(sums) - gammaln(lengths + sums)).sum()
        self.put_away(state)
        return float(part)

    def document_counts(self, state):
        """Topic counts of a shard's documents, CSR, in the order of its data."""
        return self.document_csr(state)[np.argsort(state["order"])]

    def document_shares(self, state):
        """Topic shares of a shard's documents, in the order of its data; None if no sweep was averaged."""
        alpha, lengths = state["priors"].alpha, state["lengths"]
        shares = state["documents"].shares(state["sums"], lengths, alpha)
        self.put_away(state)
        return None if shares is None else shares[np.argsort(state["order"])]

    def document_part(self, state, alpha):
        """Sum over the documents of lnG(C_dk + alpha_k) - lnG(alpha_k)."""
        return state["documents"].log_likelihood(0, len(state["lengths"]), alpha)

    def document_csr(self, state):
        """Topic counts of the documents, CSR, in the order of lengths."""
        return state["documents"].csr()

    def counts_of_block(self, block, value):
        """Topic counts of a block's words: CSR of those that keep a row, and of the others."""
        start = self.words.bounds(block)[len(value.rows) :]
        others = csr_of_segments(start, value.tokens, self.n_topics)
        background = 0 if self.background is None else self.background_of(block)
        return sparse.csr_array(value.rows - background), others

    def read_block(self, block, value, fitted=None):
        """Read what the model needs of a block, where it lies; `fitted` is beta where priors are fitted.

        Returns its part of the log-likelihood, and as `packed_counts` the counts of its words that keep a row
        and of the others: the block itself may have the topics of all tokens.
        """
        beta = self.beta if fitted is None else np.full_like(self.beta, fitted)
        both = map(packed_counts, self.counts_of_block(block, value))
        return self.word_part(block, value, beta), *both

    def background_of(self, block):
        """Counts of a block's words from documents of earlier batches: int32, a row a word."""
        return self.background[self.words.ids[self.words.of(block)]].toarray().astype(np.int32)

    @property
    def bytes_of_blocks(self):
        """Bytes of all blocks."""
        return self.words.bytes_of_blocks(self.n_topics, self.kind().itemsize)

    @property
    def packed_bytes(self):
        """Bytes of all blocks as they are packed, at most: two for each count that is not zero."""
        words = self.words
        n_tokens = int(words.n_tokens.sum())
        n_counts = min(int(self.n_topics * words.n_rows.sum()), self.n_tokens - n_tokens)
        return 2 * max(n_counts, 0) + self.kind().itemsize * n_tokens

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
            there = np.arange(part.nnz) + shift
            indices[there], data[there] = part.indices, part.data
            row += part.shape[0]
        return sparse.csr_array((data, indices, indptr.astype(wide)), shape=(len(sizes), self.n_topics))

    def in_order_of_X(self, documents):
        """Put the rows of all documents, those of the shards one after the other, into the order of X."""
        stacked = sparse.csr_array(sparse.vstack(documents, format="csr"))
        return stacked if self.rows is None else stacked[np.argsort(np.concatenate(self.rows))]

    # At the coordinator -------------------------------------------------------------------------------

    def publish(self):
        """Send the topic totals, and priors where they are fitted."""
        return {"totals": self.totals} | self._fitted_priors()

    def _fitted_priors(self):
        return {"alpha": self.alpha, "beta": float(self.beta[0])} if self.fits_priors else {}

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
        return {"totals": add_changes(state["totals"].copy(), joined)}

    def hear(self, joined):
        """Take the changes of a round into the totals."""
        if joined is not None:
            self.totals = add_changes(self.totals.copy(), joined)

    def aggregate(self, tasks, partials):
        """Keep the figures of shards and blocks after a sweep, and fit priors where it is time."""
        for task, partial in zip(tasks, partials, strict=True):
            of_words = {name for name in partial if name.startswith("word_")}
            self._block_figures[task.blocks].update({name: partial[name] for name in of_words})
            self._figures[task.shard].update({name: partial[name] for name in partial.keys() - of_words})
        found = set().union(*partials)
        if "word_part" in found:
            self._word_part = sum(figures["word_part"] for figures in self._block_figures)
        message = None
        if self.prior_figures in found:
            self._fit_priors(tasks[0].round + 1)
            message = self._fitted_priors()
        return Outcome(message, updates=self.n_tokens * self.schedule.repeats)

    def objective(self, parts):
        """Compute log p(w, z) per token from the parts of documents and of words."""
        return self.joint(parts, self._word_part)

    def joint(self, document_parts, word_part):
        """Compute log p(w, z) per token; with a background, of it given the background."""
        beta = self.beta.sum() + (0 if self.seeded is None else self.seeded.sums)
        total = sum(document_parts) + word_part
        total += (gammaln(self.background_totals + beta) - gammaln(self.totals + beta)).sum()
        return float(total / self.n_tokens)

    def fits_priors_after(self, swept):
        """Whether priors are fitted when so many sweeps are done."""
        return self.fits_priors and is_time_for_priors(swept)

    def figures_of_documents(self, state):
        """Figures for new priors: how often each count occurs, or, of labelled documents, all counts."""
        if self.labelled:
            return {"document_counts": self.document_counts(state)}
        counts, lengths = priors.tally(self.document_csr(state)), priors.tally_values(state["lengths"])
        return {"document_counts": counts, "lengths": lengths}

    def figures_of_words(self, state, block, value):
        """Figures for new priors: how often each count occurs, or, with seed words, all counts."""
        counts = self.counts_of_block(block, value)
        if self.seeded is not None:
            return {"word_counts": counts}
        return {"word_counts": priors.tally_values(np.concatenate([part.data for part in counts]))}

    def _fit_priors(self, swept):
        documents = [figures.pop("document_counts") for figures in self._figures]
        words = [figures.pop("word_counts") for figures in self._block_figures]
        if self.labelled:
            alpha = priors.fit_doc_topic_prior(self.in_order_of_X(documents), self.alpha, labels=self.labels)
        else:
            lengths = priors.merged([figures["lengths"] for figures in self._figures])
            alpha = priors.fit_tallied_doc_topic_prior(priors.merged(documents), lengths, self.alpha)
        if self.seeded is not None:
            counts = self.word_counts([part for block in words for part in block])
            self.priors = self.priors.fitted(
                alpha, lambda: priors.fit_topic_word_prior(counts, self.beta[0], seeds=self.seeds), swept
            )
            self._word_part = priors.seeded_word_part(counts, self.beta[0], self.seeds)
        else:
            counts, times = merged = priors.merged(words)
            own = (self.totals, self.corpus.n_words, self.beta[0])
            self.priors = self.priors.fitted(
                alpha, lambda: priors.fit_tallied_topic_word_prior(merged, *own), swept
            )
            beta = self.beta[0]
            self._word_part = float((times * (gammaln(counts + beta) - gammaln(beta))).sum())

    def collect(self, ask, documents=True):
        """Gather the model, or without `documents` the counts of words alone."""
        return Gathered.of(self, ask, documents)

    def arrays(self):
        """Arrays of a checkpoint besides shards and blocks."""
        parts = {"seed": self.seed, "totals": self.totals} | self.priors.arrays()
        return {name: np.asarray(value) for name, value in parts.items()}

    def restore(self, arrays):
        """Go on from the arrays of a checkpoint of the same corpus and parameters."""
        seed, totals = taken(arrays, "seed", "totals")
        fits = seed.shape == () and seed.dtype == np.uint64
        fits = fits and totals.shape == self.totals.shape and totals.dtype == np.int64
        own_totals = totals - self.background_totals if fits else totals
        if not (fits and (own_totals >= 0).all() and int(own_totals.sum()) in (0, self.n_tokens)):
            raise unfit()
        self.priors = self.priors.of_checkpoint(arrays)
        self.seed, self.totals = np.uint64(seed), totals.copy()


def packed_counts(counts):
    """Sizes of rows, columns and values of a CSR array of counts, each in the fewest bytes that hold it."""
    parts = np.diff(counts.indptr), counts.indices, counts.data
    return tuple(part.astype(np.min_scalar_type(part.max(initial=0))) for part in parts)


def opened_counts(packed, n_topics):
    """Undo `packed_counts`."""
    sizes, indices, data = packed
    indptr = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
    return narrow_csr(data.astype(np.int32), indices, indptr, n_topics)


def csr_of_segments(start, topics, n_topics):
    """Count the topics ``start[i]:start[i + 1]`` in row i of a CSR array."""
    indptr, indices, data = topic_counts.word_topic_csr(start, topics, n_topics)
    counts = narrow_csr(data, indices, indptr, n_topics)
    counts.sort_indices()
    return counts


@dataclass(frozen=True)
class Gathered:
    """A fitted model, taken from shards and blocks before they are let go."""

    ran: list
    alpha: Any
    beta: Any
    seeds: Any
    labels: Any
    documents: sparse.csr_array | None
    words: sparse.csr_array
    joint: float
    shares: np.ndarray | None

    @classmethod
    def of(cls, program, ask, documents=True):
        """Ask shards and blocks; without `documents` blocks alone, and the likelihood is not known."""
        parts = ask(lambda session, messages: session.measure(messages)) if documents else [np.nan]
        beta = float(program.beta[0]) if program.fits_priors else None
        read = ask(lambda session, messages: session.measure_blocks(messages, "read_block", beta))
        word_part = sum(part for part, *_ in read)
        counted = [opened_counts(counts, program.n_topics) for _, *both in read for counts in both]
        counts, found, shares = program.word_counts(counted), None, None
        if documents and program.rows is not None:
            own = ask(lambda session, messages: session.measure(messages, "document_counts"))
            found = program.in_order_of_X(own)
        if documents and program.averages:
            averaged = ask(lambda session, messages: session.measure(messages, "document_shares"))
            shares = _rows_of(program, averaged)
        model = (program.ran, program.alpha, program.beta, program.seeds, program.labels)
        return cls(*model, found, counts, program.joint(parts, word_part), shares)

    def doc_topic_counts(self):
        """Topic counts of documents, CSR; None where they stay in shards."""
        return self.documents

    def doc_topic_shares(self):
        """Topic shares of documents, averaged over sweeps; None if no sweep was."""
        return self.shares

    def word_topic_counts(self):
        """Topic counts of words, CSR."""
        return self.words

    def joint_log_likelihood(self, n_jobs=1):
        """Joint log-likelihood per token."""
        return self.joint


def _rows_of(program, parts):
    """Put the rows of the shards' matrices into the order of X."""
    if any(part is None for part in parts):
        return None
    whole = np.empty((program.corpus.n_documents, parts[0].shape[1]))
    for rows, part in zip(program.rows, parts, strict=True):
        whole[rows] = part
    return whole
