"""LightLDA's sweep on a GPU: where its arrays lie, and the order of its launches (`lda/light.cu`).

A sweep goes through the sections of the corpus one after the other; their arrays (`lda_light_chunks`) stay on
the device or take turns there (`Chunks`). What all share stays: the topics of tokens and the counts of words.
"""

import itertools

import numpy as np
from scipy.special import gammaln

from ..cuda.chunks import Chunks
from .host import LANES, listed
from .light_chunks import table_sizes

VARIANTS = ({"TOPIC": "unsigned short"}, {"TOPIC": "unsigned int"})

_THREADS = 256  # of a block
_PART = 2**24  # counts that are read from the device at a time


class LightSampler:
    """The topics of a corpus on a device; `resident` says whether all sections stay there."""

    def __init__(self, device, layout, resident, token_doc, topics):
        self.device, self.layout, self._token_doc = device, layout, token_doc
        self.n_topics, n_words = layout.n_topics, len(layout.row_of_word)
        self._kernels = device.kernels("lda/light.cu", **VARIANTS[topics.dtype.itemsize == 4])
        self._compute = device.stream()
        frequency = np.diff(layout.word_start)
        self.cell_start = np.append(0, np.cumsum(table_sizes(frequency, layout.row_of_word)))
        n_rows = int(layout.row_of_word.max(initial=-1)) + 1
        common = np.zeros(n_words, np.int64)
        common[layout.common_words] = frequency[layout.common_words]
        put, empty = device.put, device.empty
        self._word_start, self._row_of_word = put(layout.word_start), put(layout.row_of_word)
        self.rows = empty(n_rows * self.n_topics, np.int32)
        self.cells = empty(int(self.cell_start[-1]), np.uint64)
        self._cell_start = put(self.cell_start)
        self._coming_start = put(np.append(0, np.cumsum(common)))
        self._coming = empty(int(common.sum()), topics.dtype)
        self._topics, self._totals = empty(len(topics), topics.dtype), empty(self.n_topics, np.int64)
        self._changes = device.zeros(self.n_topics, np.int32)
        made = [layout.chunk(s, token_doc, topics) for s in range(layout.n_sections)]
        self._range_start = [start for _, start in made]
        chunks = [chunk for chunk, _ in made]
        self.chunks = Chunks(device, chunks, resident, self._compute, written=("entries", "n_lines"))
        self._count(topics)

    # Sweeping -----------------------------------------------------------------------------------

    def set_alpha(self, alpha, aliases, limits):
        """Take over alpha, float64 by topic, and Walker's tables, which are empty if it is symmetric."""
        put, skewed = self.device.put, np.int32(len(limits) > 0)
        self.alpha = (put(alpha), np.float64(alpha.sum()), put(aliases), put(limits), skewed)
        self.device.synchronize()  # other streams are to see them

    def set_beta(self, beta, beta_sum):
        """Take over beta, float64 by word, as a sweep has it."""
        self.beta = (self.device.put(beta), np.float64(beta_sum))
        self.device.synchronize()

    def sweep(self, n_steps, seed, purpose, round_):
        """Move every token once, in each section common words first; return the topic totals.

        With one group the totals are live, and there must be no common words. The lists of documents have no
        gaps afterwards.
        """
        sizes = (np.int32(self.n_topics), np.int32(n_steps))
        model = (*self.alpha, *self.beta, *sizes, np.uint64(seed), np.uint32(purpose), np.uint32(round_))
        for s, chunk in self.chunks.visits():
            self._move_common(s, chunk, model)
            self._move_blocks(s, chunk, model)
            lists = (chunk.entries, chunk.line_start, chunk.n_lines, self._shift())
            self._per_warp("compact_lists", len(chunk.lengths), *lists, np.int32(len(chunk.lengths)))
        self._compute.synchronize()
        self.device.synchronize()
        return self.device.get(self._totals)

    def _move_blocks(self, s, chunk, model):
        """Move the tokens of the blocks of a section."""
        G = self.layout.n_groups
        groups, live = np.int32(G), np.int32(G == 1)
        place = (self._word_start, self._topics, *self._documents_of(chunk))
        counts = (*self._words(), self._totals, self._changes)
        for step in range(G):
            which = (chunk.places, chunk.block_start, groups, np.int32(step), np.int32(s * G), live)
            self._launch("sweep", G, 32, *which, *place, *counts, *model)
            self._settle()

    def _move_common(self, s, chunk, model):
        """Move the tokens of common words of a section, part by part, from counts that stand still."""
        if not len(chunk.common_places):
            return
        coming = (self._coming_start, self._coming)
        stream = np.uint32(self.layout.n_groups * self.layout.n_sections)
        place = (stream, self._word_start, self._topics, *self._documents_of(chunk))
        parts = self.layout.parts[s] - self.layout.cuts[s]
        ranges = self._range_start[s]
        for (first, last), (begin, end) in zip(
            itertools.pairwise(parts), itertools.pairwise(ranges), strict=True
        ):
            if begin == end:
                continue
            which = (chunk.common_places, chunk.doc_start, np.int32(first), np.int32(last), *coming)
            counts = (*self._words(), self._totals)
            self._per_warp("sweep_common", last - first, *which, *place, *counts, *model, threads=128)
            which = (chunk.ranges, np.int32(begin), np.int32(end), *coming, self._word_start, self._topics)
            counts = (*self._words(), self._changes, np.int32(self.n_topics))
            self._per_warp("take_over", end - begin, *which, *counts, threads=128)
            self._settle()

    def _documents_of(self, chunk):
        return chunk.entries, chunk.line_start, chunk.n_lines, self._shift(), chunk.lengths

    def _words(self):
        return self._row_of_word, self.rows, self.cells, self._cell_start

    def _shift(self):
        return np.int32(self.layout.shift)

    def _settle(self):
        """Take the changes over into the totals."""
        grid = -(-self.n_topics // _THREADS)
        self._launch("settle", grid, _THREADS, self._totals, self._changes, np.int32(self.n_topics))

    def _launch(self, name, grid, block, *arguments):
        self._kernels.launch(name, grid, block, arguments, stream=self._compute)

    def _per_warp(self, name, n, *arguments, threads=_THREADS):
        """Launch a kernel that gives a warp to each of n things."""
        if n:
            self._launch(name, -(-32 * int(n) // threads), threads, *arguments)

    def joint(self, alpha, beta):
        """Parts of the documents, and of the words, of the joint log-likelihood.

        Of each, the sum over topics of ``lnG(count + prior) - lnG(prior)``, float64.
        """
        priors = [tuple(self.device.put(a) for a in (prior, gammaln(prior))) for prior in (alpha, beta)]
        there = [self.device.empty(n, np.float64) for n in (len(self.layout.lengths), len(beta))]
        self.device.synchronize()
        cuts = self.layout.cuts
        for s, chunk in self.chunks.visits(keep=False):
            n = cuts[s + 1] - cuts[s]
            lists = (chunk.entries, chunk.line_start, chunk.n_lines, self._shift(), np.int32(n))
            out = there[0][cuts[s] : cuts[s + 1]]
            self._per_warp("joint_of_documents", n, *lists, *priors[0], out)
        counts = (self._word_start, *self._words(), np.int32(len(beta)), np.int32(self.n_topics))
        self._per_warp("joint_of_words", len(beta), *counts, *priors[1], there[1])
        self._compute.synchronize()
        return tuple(map(self.device.get, there))

    # Counts and topics --------------------------------------------------------------------------

    def topics(self):
        """Read the topics of the corpus's tokens."""
        return self.device.get(self._topics)

    def lists(self):
        """Read the documents' lists: entries and numbers of lines, of all sections one after the other."""
        parts = [
            [self.chunks.get(s, name) for s in range(len(self.chunks))] for name in ("entries", "n_lines")
        ]
        return tuple(map(np.concatenate, parts))

    def document_counts(self):
        """Topics and counts of all documents, and how many each has: `lda_host.listed`."""
        entries, n_lines = self.lists()
        return listed(entries, self.layout.line_start, n_lines, line=LANES, shift=self.layout.shift)

    def word_counts(self):
        """Words, topics and counts: a triple for each word and topic that has tokens."""
        row_words = np.argsort(self.layout.row_of_word, kind="stable")[np.sum(self.layout.row_of_word < 0) :]
        parts, step = [], max(_PART // self.n_topics, 1)
        for first in range(0, len(row_words), step):
            words = row_words[first : first + step]
            begin = first * self.n_topics
            rows = self.device.get(self.rows[begin : begin + len(words) * self.n_topics])
            row, topic = np.nonzero(rows.reshape(len(words), -1))
            parts.append((words[row], topic, rows.reshape(len(words), -1)[row, topic]))
        for first in range(0, len(self.cells), _PART):
            cells = self.device.get(self.cells[first : first + _PART])
            place = np.flatnonzero(cells)
            word = np.searchsorted(self.cell_start, first + place, side="right") - 1
            parts.append((word, cells[place] >> np.uint64(32), cells[place] & np.uint64(0xFFFFFFFF)))
        return tuple(np.concatenate([np.asarray(part[i], np.int64) for part in parts]) for i in range(3))

    def begin_from(self, topics, entries=None, n_lines=None):
        """Go on from topics of the corpus's tokens, and from their lists, as `lists` gives them, if any."""
        layout = self.layout
        for s, (first, last) in enumerate(itertools.pairwise(layout.cuts)):
            if entries is None:
                lists = layout.lists(s, self._token_doc, topics)
            else:
                lines = layout.line_start[[first, last]] * LANES
                lists = (entries[lines[0] : lines[1]], n_lines[first:last])
            for name, array in zip(("entries", "n_lines"), lists, strict=True):
                self.chunks.put(s, name, array)
        self._count(topics)

    def _count(self, topics):
        """Take over topics of the tokens, and count those of words and all."""
        for array in (self.rows, self.cells):
            self.device.clear(array)
        self.device.synchronize()  # in the queue of all
        topics = np.ascontiguousarray(topics)  # it lives until its copy is done, as do the totals
        totals = np.bincount(topics, minlength=self.n_topics).astype(np.int64)
        self._compute.copy_in(self._topics, topics)
        self._compute.copy_in(self._totals, totals)
        arrays = (self._topics, self._word_start, *self._words())
        n_words = len(self.layout.row_of_word)
        self._per_warp("count_words", n_words, *arrays, np.int32(n_words), np.int32(self.n_topics))
        self._compute.synchronize()
        self.device.synchronize()
