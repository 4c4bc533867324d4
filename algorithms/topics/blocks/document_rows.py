"""Topic counts of documents while a sampler runs: dense rows for few topics, packed lists for many, the
topics of the tokens for many short documents, or places for the topics that a document is labelled with.

All offer the same steps; a sampler takes one and does not ask which.
"""

import threading

import numpy as np
from scipy import sparse

from ....kernels.lda import counts as topic_counts
from ....kernels.lda import gibbs as kernels
from ....kernels.lda import host, short_rows
from ....kernels.lda.models import labels as lda_labels
from ...inputs.indices import narrow_csr
from ..evaluation import padded_vector
from .averages import add_csr, add_rows, no_sums, shares_of
from .list_layout import DENSE_TOPICS, ListRoom, lists_do_not_fit
from .restoring import unfit
from .storage import Storage

_IN_MEMORY = Storage()
_SCRATCH = threading.local()
_MOST_KEPT = 2**16  # topics of which scratch, some 20 bytes each, is kept
# Bytes up to which rows of counts are taken for short documents, too: drawing from them is faster (26 to 33
# ns a token for 35 to 45, 100 topics), unless they fill the caches. Whole fits of 64,000 and 640,000 texts of
# 8 words take 1.03 to 1.08 and .86 to .96 of the CPU time with `ShortDocuments`.
_FAST_ROWS = 2**25
_AT_ONCE = 4096  # short documents that become rows
# Entries added to averages, a token and sweep. Of texts of 8 words, K = 100, every second sweep is averaged:
# the held-out perplexity of `fit_transform` is 1.003 times as high as with every sweep, and 1.010 times with
# every fourth, where it took 1.13 to 1.20 of the time of `fit` (1.32 to 1.48 with every sweep).
_TOPICS_PER_TOKEN = 8


def _work(make, n_topics, *sizes, seeds):
    """Scratch of this thread; a sweep over a small corpus makes hundreds of calls of some microseconds."""
    if n_topics > _MOST_KEPT:
        return make(n_topics, *sizes, seeds)
    key = (make, n_topics, *sizes, seeds is None)
    if getattr(_SCRATCH, "key", None) != key:
        _SCRATCH.key, _SCRATCH.work = key, make(n_topics, *sizes, seeds)
    return _SCRATCH.work


def scratch_of(documents):
    """Scratch of this thread for sweeps over dense rows without seed words."""
    return _work(kernels.dense_work, documents.n_topics, documents.width, seeds=None)


def sparse_scratch(n_topics, seeds):
    """Scratch of this thread for sweeps over lists."""
    return _work(kernels.sparse_work, n_topics, seeds=seeds)


def document_rows(lengths, longest, n_topics, labels=None, storage=_IN_MEMORY, n_documents=0, kinds=None):
    """Allocate the counts of documents of these lengths, and of these labels if they have any.

    `longest` are the most tokens of a document of the whole corpus, and `n_documents` how many it has; these
    may be a part of it. `kinds` take the place of `DenseDocuments`, `ShortDocuments` and `PackedLists`.
    """
    if labels is not None:
        return LabelledRows(labels, storage)
    ascending = bool((np.diff(lengths) >= 0).all())
    kind = document_class(n_documents if ascending else 0, longest, n_topics, kinds)
    about = len(lengths), longest
    return kind(*(about if issubclass(kind, DenseDocuments) else (lengths,)), n_topics, storage)


def document_class(n_documents, longest, n_topics, kinds=None):
    """Choose the class of the documents' counts, of the `kinds` of `document_rows`."""
    dense, short, listed = kinds or (DenseDocuments, ShortDocuments, PackedLists)
    if are_short(n_documents, longest, n_topics):
        return short
    return dense if n_topics <= DENSE_TOPICS else listed


def are_short(n_documents, longest, n_topics):
    """Whether a corpus of so many documents keeps the topics of their tokens, in place of rows of counts."""
    fits = longest <= short_rows.MOST_TOKENS and n_topics <= short_rows.MOST_TOPICS
    return fits and n_documents * row_width(n_topics) > _FAST_ROWS


def row_width(n_topics):
    """Return the entries of a row: whole lines of 32."""
    return (n_topics + 31) // 32 * 32


class UnlabelledDocuments:
    """Documents that may have any topic: what follows from their number alone."""

    n_topics: int
    width: int
    takes_steps = False  # whether all steps of a sweep may run in compiled code (`samplers.gibbs_steps`)
    met_by_steps = True  # whether each step of a sweep needs all counts

    def drawn_with(self, alpha):
        """The prior as the kernels take it."""
        return padded_vector(alpha, self.width)

    def prior_sums(self, alpha):
        """Sum of alpha, of all documents."""
        return alpha.sum()

    def sums(self, lengths, storage):
        """Zeroed arrays for sums of counts over sweeps."""
        return no_sums(len(lengths), self.n_topics, storage)

    def sweeps_between(self, n_tokens):
        """Every how many sweeps counts are added to their sums."""
        return 1

    def shares(self, sums, lengths, alpha):
        """Topic shares from sums of counts; None if there are none yet."""
        return shares_of(sums, lengths, alpha)


class DenseDocuments(UnlabelledDocuments):
    """A row of counts a document: for every 32 topics 32 bytes if no document has more than 255 tokens.

    Twice that up to 65,535 tokens, four times that above. All shards of a corpus have rows of one kind, for
    which kernels are compiled.
    """

    takes_steps = True

    def __init__(self, n_documents, longest, n_topics, storage=_IN_MEMORY):
        self.n_topics = n_topics
        kind = next((kind for kind in (np.uint8, np.uint16) if longest <= np.iinfo(kind).max), np.int32)
        self.width = row_width(n_topics)
        self.counts = storage.zeros((n_documents, self.width), kind)

    @staticmethod
    def bytes_of(n_topics, n_tokens, n_documents, longest):
        """Bytes of the counts; numbers may be arrays, of several shards."""
        return n_documents * row_width(n_topics) * np.min_scalar_type(longest).itemsize

    def fill(self, token_doc, topics):
        """Count the tokens' topics anew."""
        kernels.count_documents(token_doc, topics, self.counts)

    @property
    def stored(self):
        """The counts as the kernels take them."""
        return self.counts.reshape(-1)

    def sweep(self, place, words, mode):
        """Draw the tokens of a block; seed words are the last of `mode`."""
        work = _work(kernels.dense_work, self.n_topics, self.width, seeds=mode[-1])
        kernels.sweep_dense(*place, self.stored, *words, *mode, work)

    def tidy(self, first, last):
        """Nothing gathers in dense rows."""

    def log_likelihood(self, first, last, alpha):
        """Sum over documents ``first:last`` of lnG(C_dk + alpha_k) - lnG(alpha_k)."""
        return topic_counts.documents_dense(first, last, self.counts, alpha)

    def sweeps_between(self, n_tokens):
        """Every how many sweeps counts are added to their sums, all topics of a document."""
        return -(-self.counts.size // max(_TOPICS_PER_TOKEN * n_tokens, 1))

    def add_to(self, sums, weight):
        """Add weighted counts to sums."""
        add_rows(self.counts, weight, sums)

    def csr(self):
        """Return the counts as a CSR array."""
        rows, topics = np.nonzero(self.counts[:, : self.n_topics])
        indptr = np.searchsorted(rows, np.arange(len(self.counts) + 1))
        counts = self.counts[rows, topics].astype(np.int32)
        return narrow_csr(counts, topics, indptr, self.n_topics)

    def arrays(self):
        """Arrays of a checkpoint besides the topics: none."""
        return {}

    def restore(self, arrays, token_doc, topics):
        """Take the counts of a checkpoint."""
        self.fill(token_doc, topics)


class ShortDocuments(UnlabelledDocuments):
    """The topics of the tokens: 8 bytes a document of up to 8 tokens, 16 of up to 16, 32 of up to 32.

    Draws are those of `DenseDocuments`, bit for bit. `lengths` ascend.
    """

    def __init__(self, lengths, n_topics, storage=_IN_MEMORY):
        self.n_topics, self.width, self.lengths = n_topics, row_width(n_topics), lengths
        n = len(lengths)
        n_eight, n_sixteen = (int(np.searchsorted(lengths, size, "right")) for size in (8, 16))
        n_bytes = 8 * n + 8 * (n - n_eight) + 16 * (n - n_sixteen) + short_rows.PAST_END
        self.slots, self._sizes = storage.zeros(n_bytes, np.uint8), (n_eight, n_sixteen)

    @staticmethod
    def bytes_of(n_topics, n_tokens, n_documents, longest):
        """Bytes of the topics, on average: see `DenseDocuments`."""
        return np.clip(2 * n_tokens, 8 * n_documents, 32 * n_documents)

    @property
    def stored(self):
        """The topics as the kernels take them."""
        return self.slots, *self._sizes

    def fill(self, token_doc, topics):
        """List the tokens' topics anew."""
        short_rows.fill_slots(token_doc, topics, self.stored, np.zeros(len(self.lengths), np.uint8))

    def sweep(self, place, words, mode):
        """Draw the tokens of a block; seed words are the last of `mode`."""
        work = _work(kernels.dense_work, self.n_topics, self.width, seeds=mode[-1])
        kernels.sweep_dense(*place, self.stored, *words, *mode, work)

    def tidy(self, first, last):
        """Nothing gathers here."""

    def log_likelihood(self, first, last, alpha):
        """Sum over documents ``first:last`` of lnG(C_dk + alpha_k) - lnG(alpha_k)."""
        total, rows = 0.0, np.empty((min(last - first, _AT_ONCE), self.width), np.uint8)
        for begin in range(first, last, _AT_ONCE):
            end = min(begin + _AT_ONCE, last)
            rows[:] = 0
            short_rows.add_slots(begin, end, self.stored, np.uint8(1), rows)
            total += topic_counts.documents_dense(0, end - begin, rows, alpha)
        return total

    def sweeps_between(self, n_tokens):
        """Every how many sweeps counts are added to their sums, all topics of a document."""
        return -(-len(self.lengths) * self.width // max(_TOPICS_PER_TOKEN * n_tokens, 1))

    def add_to(self, sums, weight):
        """Add weighted counts to sums."""
        short_rows.add_slots(0, len(sums), self.stored, weight, sums)

    def csr(self):
        """Return the counts as a CSR array."""
        topics = 255 - self.slots[np.flatnonzero(self.slots)].astype(np.int32)
        indptr = np.concatenate([[0], np.cumsum(self.lengths)])
        counts = narrow_csr(np.ones(len(topics), np.int32), topics, indptr, self.n_topics)
        counts.sum_duplicates()
        return counts

    def arrays(self):
        """Arrays of a checkpoint besides the topics: none."""
        return {}

    def restore(self, arrays, token_doc, topics):
        """Take the counts of a checkpoint."""
        self.fill(token_doc, topics)


class PackedLists(ListRoom, UnlabelledDocuments):
    """A list of the topics of each document, filled by numba."""

    def __init__(self, lengths, n_topics, storage=_IN_MEMORY):
        super().__init__(lengths, n_topics)
        self.width = kernels.padded(n_topics)
        self.n_lines = np.zeros(len(lengths), np.int32)
        # The last lines belong to no document: prefetches may reach past the end.
        self.entries = storage.zeros((self.line_start[-1] + 4) * kernels.LANES, np.uint32)

    @staticmethod
    def bytes_of(n_topics, n_tokens, n_documents, longest):
        """Bytes of the lists, whose last lines are half full on average: see `DenseDocuments`."""
        return 4 * _entries(n_topics, n_tokens, n_documents) + 12 * n_documents

    @staticmethod
    def bytes_saved(n_topics, n_tokens, n_documents, longest):
        """Bytes of the lists in a snapshot, which has the fewest for an entry."""
        entry = np.min_scalar_type((n_topics << longest.bit_length()) - 1).itemsize
        return entry * _entries(n_topics, n_tokens, n_documents) + 4 * n_documents

    def fill(self, token_doc, topics):
        """Count the tokens' topics anew."""
        kernels.list_documents(token_doc, topics, *self.stored)

    @property
    def stored(self):
        """The lists as the kernels take them."""
        return self.entries, self.line_start, self.n_lines, self.shift

    def sweep(self, place, words, mode):
        """Draw the tokens of a block; seed words are the last of `mode`."""
        work = sparse_scratch(self.n_topics, mode[-1])
        kernels.sweep_sparse(*place, *self.stored, *words, *mode, work)

    def tidy(self, first, last):
        """Close the gaps in the lists of documents ``first:last``."""
        kernels.compact_lists(first, last, self.entries, self.line_start, self.n_lines, self.shift)

    def log_likelihood(self, first, last, alpha):
        """Sum over documents ``first:last`` of lnG(C_dk + alpha_k) - lnG(alpha_k)."""
        return topic_counts.documents_sparse(
            first, last, self.entries, self.line_start, self.n_lines, self.shift, alpha
        )

    def add_to(self, sums, weight):
        """Add weighted counts to sums."""
        topics, counts, sizes = self._listed()
        add_csr(np.concatenate([[0], np.cumsum(sizes)]), topics, counts, weight, sums)

    def csr(self):
        """Return the counts as a CSR array."""
        topics, counts, sizes = self._listed()
        counts = narrow_csr(counts, topics, np.concatenate([[0], np.cumsum(sizes)]), self.n_topics)
        counts.sort_indices()
        return counts

    def _listed(self):
        """Topics and counts of all lists, and how many each document has."""
        lists = (self.entries, self.line_start, self.n_lines)
        return host.listed(*lists, line=kernels.LANES, shift=self.shift)

    def arrays(self):
        """Arrays of a checkpoint: the order inside a list decides which entry a draw picks."""
        return {"entries": self.entries, "n_lines": self.n_lines}

    def restore(self, arrays, token_doc, topics):
        """Take the lists of a checkpoint, after checking that they hold just these topics."""
        entries, n_lines = self.of_checkpoint(arrays, len(self.entries))
        self.fill(token_doc, topics)
        expected = self.csr()
        self.entries[:], self.n_lines[:] = entries, n_lines
        if (expected != self.csr()).nnz:
            raise lists_do_not_fit()


def _entries(n_topics, n_tokens, n_documents):
    entries = np.minimum(n_tokens, n_documents * n_topics) + n_documents * kernels.LANES / 2
    return np.maximum(entries, n_documents * kernels.LANES)


class LabelledRows:
    """A count for each topic that a document is labelled with: 20 bytes a label, and no others.

    Parameters
    ----------
    labels : CSR array of float64, shape (n_documents, n_topics)
        m_dk, by which alpha_k is multiplied; columns ascending, no zeros stored, no row empty.
    """

    takes_steps, met_by_steps = False, True

    def __init__(self, labels, storage=_IN_MEMORY):
        self.shape = labels.shape
        self.width = labels.shape[1]
        self.lists = (labels.indptr.astype(np.int64), labels.indices.astype(np.int32))
        self.weights, self._most = labels.data, int(np.diff(labels.indptr).max(initial=1))
        self._weights32 = labels.data.astype(np.float32)
        self.held = storage.zeros(labels.nnz, np.int32)

    def admit(self, token_doc, topics):
        """Turn topics that are any of all into topics of the documents, in place."""
        lda_labels.admit(token_doc, topics, self.shape[1], *self.lists)

    def fill(self, token_doc, topics):
        """Count the tokens' topics anew; return how many tokens have a topic that is not their document's."""
        return lda_labels.count_labelled(token_doc, topics, *self.lists, self.held)

    def sweep(self, place, words, mode):
        """Draw the tokens of a block; seed words are the last of `mode`."""
        work = _work(lda_labels.labelled_work, self.width, self._most, seeds=mode[-1])
        lda_labels.sweep_labelled(*place, *self.lists, self._weights32, self.held, *words, *mode, work)

    def drawn_with(self, alpha):
        """The prior as the kernels take it."""
        return padded_vector(alpha, self.width)

    def tidy(self, first, last):
        """Nothing gathers here."""

    def log_likelihood(self, first, last, alpha):
        """Sum over documents ``first:last`` of lnG(C_dk + alpha_dk) - lnG(alpha_dk)."""
        return lda_labels.documents_labelled(first, last, *self.lists, self.weights, self.held, alpha)

    def prior_sums(self, alpha):
        """Sum of alpha_dk, of each document."""
        indptr, indices = self.lists
        return sparse.csr_array((self.weights, indices, indptr), shape=self.shape) @ alpha

    def sweeps_between(self, n_tokens):
        """Every how many sweeps counts are added to their sums."""
        return 1

    def sums(self, lengths, storage):
        """Zeroed arrays for sums of counts over sweeps, one a label."""
        return storage.zeros(len(self.held), np.float32)

    def add_to(self, sums, weight):
        """Add weighted counts to sums."""
        sums += weight * self.held

    def shares(self, sums, lengths, alpha):
        """Topic shares from sums of counts, 0 where there is no label; None if there are none yet."""
        if lengths.any() and not sums.any():
            return None
        indptr, indices = self.lists
        place = (np.repeat(np.arange(len(lengths)), np.diff(indptr)), indices)
        weighed, priors = np.zeros(self.shape), np.zeros(self.shape)
        weighed[place], priors[place] = sums, self.weights * alpha[indices]
        return shares_of(weighed, lengths, priors)

    def csr(self):
        """Return the counts as a CSR array."""
        indptr, indices = self.lists
        counts = sparse.csr_array((self.held, indices, indptr), shape=self.shape, copy=True)
        counts.eliminate_zeros()
        return counts

    def arrays(self):
        """Arrays of a checkpoint besides the topics: none."""
        return {}

    def restore(self, arrays, token_doc, topics):
        """Take the counts of a checkpoint, after checking that its topics are those of the labels."""
        if self.fill(token_doc, topics):
            raise unfit("topics", "doc_labels")
