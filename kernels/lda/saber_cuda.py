"""SaberLDA's sweep on a GPU: where its arrays lie, and the order of its launches (`lda/saber.cu`).

Documents are dealt into chunks, whose arrays (`SaberChunk`) stay on the device or take turns there
(`Chunks`). What all share stays: counts of words and, of rare ones, the topics.
"""

import numpy as np
from scipy.special import gammaln

from ..cuda.chunks import Chunks
from .host import LINE, listed
from .saber_chunks import ITEM, MOST_BLOCKS, RANGE

VARIANTS = ({"IN_SHARED": 1}, {"IN_SHARED": 0})

_FILE = "lda/saber.cu"
_THREADS, _WARPS = 256, 8  # of a block
_STATIC = 10240  # bytes of shared memory that is not dynamic: what is declared, and what the system takes
_PART = 2**24  # counts that are read from the device at a time


class SaberSampler:
    """The topics of a corpus on a device; `resident` says whether all chunks stay there."""

    def __init__(self, device, layout, resident, token_doc, topics):
        self.device, self.layout = device, layout
        K, self.n_chunks = layout.n_topics, len(layout.cuts) - 1
        n_words, n_groups = len(layout.word_start) - 1, -(-K // LINE)
        self._lay_out_shared_memory(K, n_groups)
        self._compute = device.stream()
        shapes = {"of_topics": 4 * K, "groups": n_groups, "tops": LINE, "per_beta": n_words}
        self._sent = {name: device.pinned(n, np.float32) for name, n in shapes.items()}
        self._on_device = {name: device.empty(n, np.float32) for name, n in shapes.items()}
        n_rows = max(len(layout.frequent), 1) * K
        self._rows = [device.zeros(n_rows, np.int32) for _ in range(2)]
        self._totals = device.zeros(self.n_chunks * K, np.int32)
        self._next = device.zeros(1, np.int32)
        self._lists = _Lists(device, layout.rare_start, layout.rare_lines)
        self._rare_topics = device.zeros(max(int(layout.rare_start[-1]), 1), np.uint16)
        made = [layout.chunk(c, token_doc, topics) for c in range(self.n_chunks)]
        self._allocate_lists(made)
        self.chunks = Chunks(device, made, resident, self._compute, written=("topics",))
        self._count_all(topics)

    def _lay_out_shared_memory(self, K, n_groups):
        """Choose where the weights lie, and how many counts a block takes at a time."""
        free = self.device.shared_memory - _STATIC
        tree = 4 * (LINE + n_groups)
        in_shared = tree + 4 * K <= free
        self._kernels = self.device.kernels(_FILE, IN_SHARED=int(in_shared))
        self._shared = tree + 4 * K * in_shared
        blocks = max(1, min(MOST_BLOCKS, free // (self._shared + _STATIC)))
        self._n_blocks = blocks * self.device.n_processors
        self._scratch = self.device.empty(1 if in_shared else self._n_blocks * K, np.float32)
        whole = -(-K // 64) * 64
        self._window = min(whole, free // (2 * _WARPS) // 64 * 64)
        self._count_window = min(whole, free // 4 // 64 * 64)

    def _allocate_lists(self, chunks):
        device = self.device
        n_documents = max(len(chunk.doc_start) for chunk in chunks)
        self._entries = device.empty(max(int(chunk.line_start[-1]) for chunk in chunks) * LINE, np.uint32)
        self._n_lines = device.zeros(n_documents, np.int32)
        self._cursor = device.zeros(n_documents, np.int32)
        self._placed = device.empty(max(len(chunk.topics) for chunk in chunks), np.uint16)

    # Sweeping -----------------------------------------------------------------------------------

    def sweep(self, seed, purpose, round_, **weights):
        """Draw all tokens once; return the topic totals.

        `of_topics` has alpha, inverse, lift and 0 of each topic, one topic after the other; the other float32
        arrays are as in `saber.sample_words`.
        """
        for name, array in weights.items():
            self._sent[name][...] = array
            self._compute.copy_in(self._on_device[name], self._sent[name])
        seed = int(seed)
        stream = (np.uint32(seed & 0xFFFFFFFF), np.uint32(seed >> 32), np.uint32(round_), np.uint32(purpose))
        self._clear(self._rows[1])
        self._clear(self._totals)
        for c, slot in self.chunks.visits():
            self._list_documents(slot)
            self._clear(self._next)
            n_items = slot.items.size // ITEM
            rare = self._lists
            self._launch(
                "sample", min(self._n_blocks, n_items), slot.items, np.int32(n_items), self._next,
                slot.token_doc, slot.topics, self._entries, slot.line_start, self._n_lines, self._rows[0],
                rare.entries, rare.line_start, rare.n_lines, self._rare_topics, *self._on_device.values(),
                self._scratch, np.int32(self.layout.n_topics), *stream, shared=self._shared,
            )  # fmt: skip
            self._count(c, slot)
        self._rows.reverse()
        self._list_rare()
        self._compute.synchronize()
        self.device.synchronize()
        return self._read_totals()

    def _list_documents(self, slot):
        n_tokens, n_documents = slot.topics.size, slot.doc_start.size - 1
        self._launch(
            "begin_documents", self._grid(n_documents), slot.doc_start, np.int32(n_documents), self._cursor
        )
        tokens = (slot.token_doc, slot.topics, np.int32(n_tokens), self._cursor, self._placed)
        self._launch("place_by_document", self._grid(n_tokens), *tokens)
        into = (slot.line_start, self._entries, self._n_lines)
        self._list(self._placed, slot.doc_start, n_documents, *into)

    def _list_rare(self):
        rare, n = self._lists, len(self.layout.rare)
        if n:
            self._list(self._rare_topics, rare.start, n, rare.line_start, rare.entries, rare.n_lines)

    def _list(self, topics, start, n, line_start, entries, n_lines):
        sizes = (np.int32(self.layout.n_topics), np.int32(self._window))
        segments = (topics, start, np.int32(n), line_start, *sizes, entries, n_lines)
        self._launch("list_segments", self._grid(n * LINE), *segments, shared=2 * _WARPS * self._window)

    def _count(self, c, slot):
        """Add the topics of a chunk to the next counts of words and to its totals."""
        self._count_ranges(slot.ranges, slot.topics, self._rows[1])
        self._count_ranges(slot.whole, slot.topics, self._totals[c * self.layout.n_topics :])

    def _count_ranges(self, ranges, topics, rows):
        if ranges.size:
            sizes = (np.int32(self.layout.n_topics), np.int32(self._count_window))
            shared = 4 * self._count_window
            self._launch("count_ranges", ranges.size // RANGE, ranges, topics, *sizes, rows, shared=shared)

    def _clear(self, array):
        self._launch("clear", self._grid(array.size), array, np.int64(array.size))

    def _grid(self, n_threads):
        most = self.device.n_processors * MOST_BLOCKS
        return max(1, min(most, -(-n_threads // _THREADS)))

    def _launch(self, name, grid, *arguments, shared=0):
        self._kernels.launch(name, grid, _THREADS, arguments, shared=shared, stream=self._compute)

    def _read_totals(self):
        totals = self.device.get(self._totals).reshape(self.n_chunks, self.layout.n_topics)
        return totals.sum(axis=0, dtype=np.int64)

    def joint(self, alpha, beta):
        """Parts of the documents, and of the words, of the joint log-likelihood.

        Of each, the sum over topics of ``lnG(count + prior) - lnG(prior)``, float64.
        """
        layout = self.layout
        documents, words = np.zeros(len(layout.lengths)), np.zeros(len(layout.word_start) - 1)
        prior = self._with_base(alpha)
        for c, slot in self.chunks.visits(keep=False):
            self._list_documents(slot)
            first, last = layout.cuts[c : c + 2]
            lists = (self._entries, slot.line_start, self._n_lines)
            documents[first:last] = self._joint("joint_of_lists", last - first, lists, np.bool_(True), *prior)
        if len(layout.rare):
            rare, prior = self._lists, self._with_base(beta[layout.rare])
            lists = (rare.entries, rare.line_start, rare.n_lines)
            found = self._joint("joint_of_lists", len(layout.rare), lists, np.bool_(False), *prior)
            words[layout.rare] = found
        if len(layout.frequent):
            prior, n_topics = self._with_base(beta[layout.frequent]), np.int32(layout.n_topics)
            n = len(layout.frequent)
            words[layout.frequent] = self._joint("joint_of_rows", n, (self._rows[0],), n_topics, *prior)
        return documents, words

    def _with_base(self, prior):
        """A prior and lnG of it, on the device."""
        there = tuple(self.device.put(array) for array in (prior, gammaln(prior)))
        self.device.synchronize()  # other streams are to see them
        return there

    def _joint(self, name, n, counts, *rest):
        out = self.device.empty(int(n), np.float64)
        self._launch(name, self._grid(int(n) * LINE), *counts, np.int32(n), *rest, out)
        self._compute.synchronize()
        return self.device.get(out)

    # Counts and topics --------------------------------------------------------------------------

    def document_counts(self):
        """Topics and counts of all documents, and how many each has: `lda_host.listed`."""
        parts = []
        for _, slot in self.chunks.visits(keep=False):
            self._list_documents(slot)
            self._compute.synchronize()
            line_start = self.device.get(slot.line_start)
            entries = self.device.get(self._entries[: line_start[-1] * LINE])
            parts.append(listed(entries, line_start, self.device.get(self._n_lines[: len(line_start) - 1])))
        return tuple(np.concatenate(part) for part in zip(*parts, strict=True))

    def word_counts(self):
        """Topics and counts of all words, and how many each has."""
        K, frequent, rare = self.layout.n_topics, self.layout.frequent, self.layout.rare
        parts, step = [], max(_PART // K, 1)
        for first in range(0, len(frequent), step):
            last = min(first + step, len(frequent))
            rows = self.device.get(self._rows[0][first * K : last * K]).reshape(-1, K)
            row, topic = np.nonzero(rows)
            parts.append((topic.astype(np.int32), rows[row, topic], np.bincount(row, minlength=len(rows))))
        if len(rare):
            lists = (self._lists.entries, self._lists.line_start, self._lists.n_lines)
            parts.append(listed(*map(self.device.get, lists)))
        topics, counts, sizes = (np.concatenate(part) for part in zip(*parts, strict=True))
        words = np.concatenate([frequent, rare])
        order = np.argsort(words)
        found = np.zeros(len(self.layout.word_start) - 1, np.int64)
        found[words] = sizes
        begin, n = (np.cumsum(sizes) - sizes)[order], sizes[order]
        take = np.repeat(begin - np.cumsum(n) + n, n) + np.arange(n.sum())
        return topics[take], counts[take], found

    def topics(self):
        """Read the topics of the corpus's tokens."""
        out = np.empty(self.layout.word_start[-1], np.uint16)
        for c in range(self.n_chunks):
            out[self.layout.tokens(c)] = self.chunks.get(c, "topics")
        return out

    def begin_from(self, topics):
        """Go on from topics of the corpus's tokens."""
        for c in range(self.n_chunks):
            self.chunks.put(c, "topics", topics[self.layout.tokens(c)])
        self._count_all(topics)

    def _count_all(self, topics):
        """Count the words' topics, which `topics` are."""
        layout = self.layout
        size = np.diff(layout.rare_start)
        shift = layout.word_start[layout.rare] - layout.rare_start[:-1]
        rare = topics[np.repeat(shift, size) + np.arange(layout.rare_start[-1])]
        if len(rare):
            self._compute.copy_in(self._rare_topics, rare)
        self._clear(self._rows[1])
        for c, slot in self.chunks.visits(keep=False):
            self._count(c, slot)
        self._rows.reverse()
        self._list_rare()
        self._compute.synchronize()
        self.device.synchronize()


class _Lists:
    """Lists of the topics of rare words."""

    def __init__(self, device, start, lines):
        self.start = device.put(start.astype(np.int64))
        self.line_start = device.put(np.concatenate([[0], np.cumsum(lines)]).astype(np.int32))
        self.entries = device.zeros(max(int(lines.sum()), 1) * LINE, np.uint32)
        self.n_lines = device.zeros(max(len(lines), 1), np.int32)
