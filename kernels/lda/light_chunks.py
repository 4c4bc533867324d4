"""Sections of a corpus for LightLDA on a GPU: how tokens lie there, and what that takes.

Documents are dealt into sections, each of as many groups as words are. A sweep goes from section to section:
so a section can be on the device while others are not, and a section is the chunk of `Chunks`.
Their number follows from the corpus alone, and with it the model.

Memory of the device, in bytes: a token 2 for its topic (4 above 65,535 topics), twice for common words, and
at most 12 for the table of its word or 8 for its row; a topic 20 to 32; a word some 50. Of a section that is
at hand, a token 12 for its place in a block, a document 64 for every 16 of ``min(length, K)`` topics and some
30, and each of G² blocks 8.
"""

from typing import NamedTuple

import numpy as np
from scipy import sparse

from ...errors import DeviceError
from .host import LANES, cut, list_documents, tokens_between

PARTS = 64  # of a section's documents, in which common words are moved in turn
_PIECE = 2048  # tokens of a common word that a warp counts anew


class LightChunk(NamedTuple):
    """The arrays of a section for the kernels; documents are counted in it.

    Attributes
    ----------
    places : uint32 array
        Word, number among the tokens of the word, and document: three numbers a token, in the order of
        blocks.
    block_start : int64 array
        Where the tokens of document group g and word group (g + p) mod G begin, at ``p * G + g``.
    common_places : uint32 array
        Word and number of the tokens of common words, document by document.
    doc_start : int64 array, by document
        Where these begin.
    ranges : int32 array
        Word, first number and last of runs of tokens of common words, by part.
    entries, line_start, n_lines, lengths : arrays
        The documents' lists, as in `light.sweep`, and tokens.
    """

    places: np.ndarray
    block_start: np.ndarray
    common_places: np.ndarray
    doc_start: np.ndarray
    ranges: np.ndarray
    entries: np.ndarray
    line_start: np.ndarray
    n_lines: np.ndarray
    lengths: np.ndarray


class LightPlan(NamedTuple):
    """Whether all sections stay on the device, and the bytes taken there."""

    resident: bool
    n_bytes: int


def table_sizes(frequency, row_of_word):
    """Cells of each word's table: half as many again as its tokens, and one; none with a dense row."""
    return np.where((row_of_word >= 0) | (frequency == 0), 0, frequency + frequency // 2 + 1)


def is_common(frequency, n_groups):
    """Which words are more than half of a group by themselves."""
    return (n_groups > 1) & (2 * n_groups * frequency > frequency.sum())


def plans_of(lengths, frequency, n_topics, n_groups, n_sections, n_rows):
    """The two plans there are, the one that asks for more first; `n_rows` words have rows of counts."""
    topic = 2 if n_topics < 2**16 else 4
    no_row = np.sort(frequency)[::-1][n_rows:]
    common = int(frequency[is_common(frequency, n_groups)].sum())
    shared = topic * (int(lengths.sum()) + common) + 4 * n_topics * n_rows
    shared += (
        8 * int(table_sizes(no_row, -np.ones_like(no_row)).sum()) + 48 * len(frequency) + 40 * n_topics + 64
    )
    lines = -(-np.minimum(lengths, n_topics) // LANES)
    each = (12 * lengths.sum() + 4 * LANES * lines.sum() + 32 * len(lengths)) / n_sections
    # sections are of nearly equal weight; what they differ by is at most a document
    section = int(each + 16 * lengths.max(initial=0)) + 8 * n_groups**2 + 4096 * (common > 0)
    section += 12 * (common // (_PIECE * n_sections) + PARTS * int(is_common(frequency, n_groups).sum()))
    return [
        LightPlan(True, shared + section * n_sections),
        LightPlan(False, shared + section * min(2, n_sections)),
    ]


def plan_for(memory, name, n_topics, n_sections, plans):
    """Choose the first of the plans that has room in the memory of the device of that name."""
    for plan in plans:
        if plan.n_bytes <= memory:
            return plan
    raise DeviceError(
        f"{name} has {max(memory, 0):,} bytes that can be used; {n_topics:,} topics of this corpus take "
        f"{plans[-1].n_bytes:,} even in {n_sections:,} chunks: take fewer documents, leave rare words out, "
        "or set device='cpu'"
    )


class LightLayout:
    """Places of the tokens of a corpus, section by section.

    `lengths` are in the order of a word's tokens. `group_docs` is where document groups begin, those of the
    first section, of the second, and so on; `group_words` the words of each group, in the order of a block.
    `begin` (int64, (sections + 1) x words) is where the tokens of each word begin in each section, and where
    they end. `shift` and `line_start` describe the documents' lists.
    """

    def __init__(
        self, lengths, n_topics, n_groups, group_docs, group_words, common_words, begin, row_of_word, shift,
        line_start,
    ):  # fmt: skip
        self.lengths, self.n_topics, self.n_groups, self.group_docs = lengths, n_topics, n_groups, group_docs
        self.words, self.common_words, self.begin = np.concatenate(group_words), common_words, begin
        self.group_of_word = np.repeat(np.arange(n_groups), [len(words) for words in group_words])
        self.row_of_word, self.shift, self.line_start = row_of_word, shift, line_start
        self.word_start = np.append(begin[0], begin[-1, -1])
        self.n_sections = len(begin) - 1
        self.cuts = group_docs[::n_groups]
        each = np.linspace(0, n_groups, min(n_groups, PARTS) + 1).astype(np.int64)
        self.parts = [np.unique(group_docs[s * n_groups + each]) for s in range(self.n_sections)]

    def chunk(self, s, token_doc, topics):
        """Make the chunk of a section, and where the ranges of each of its parts begin."""
        first, last = self.cuts[s : s + 2]
        places, block_start = self._blocks(s, token_doc)
        common_places, doc_start = self._common(s, token_doc)
        ranges, range_start = self._ranges(s, token_doc)
        entries, n_lines = self.lists(s, token_doc, topics)
        lines = self.line_start[first : last + 1] - self.line_start[first]
        held = (entries, lines, n_lines, self.lengths[first:last].astype(np.int32))
        return LightChunk(places, block_start, common_places, doc_start, ranges, *held), range_start

    def lists(self, s, token_doc, topics):
        """The lists of a section's documents: entries and numbers of lines."""
        first, last = self.cuts[s : s + 2]
        tokens = tokens_between(self.begin[s], self.begin[s + 1])
        lines = self.line_start[first : last + 1] - self.line_start[first]
        return list_documents(token_doc[tokens] - np.uint32(first), topics[tokens], lines, self.shift)

    def _tokens(self, s, words, token_doc):
        """Word, number and document of the tokens of some words, word by word."""
        begin, end = self.begin[s, words], self.begin[s + 1, words]
        word = np.repeat(words, end - begin)
        tokens = tokens_between(begin, end)
        return word, tokens - self.word_start[word], token_doc[tokens] - np.uint32(self.cuts[s])

    def _blocks(self, s, token_doc):
        G = self.n_groups
        word, number, document = self._tokens(s, self.words, token_doc)
        groups = np.diff(self.group_docs[s * G : (s + 1) * G + 1])
        g = np.repeat(np.arange(G), groups)[document]
        h = np.repeat(self.group_of_word, (self.begin[s + 1] - self.begin[s])[self.words])
        order, start = _by((h - g) % G * G + g, G * G)
        return np.column_stack([word, number, document]).astype(np.uint32)[order].reshape(-1), start

    def _common(self, s, token_doc):
        word, number, document = self._tokens(s, self.common_words, token_doc)
        order, start = _by(document, self.cuts[s + 1] - self.cuts[s])
        return np.column_stack([word, number]).astype(np.uint32)[order].reshape(-1), start

    def _ranges(self, s, token_doc):
        parts = self.parts[s]
        found = np.zeros((len(self.common_words), len(parts)), np.int64)
        for w, row in zip(self.common_words, found, strict=True):
            begin, end = self.begin[s : s + 2, w]
            row[:] = begin - self.word_start[w] + np.searchsorted(token_doc[begin:end], parts)
        begin, end = found[:, :-1].T.reshape(-1), found[:, 1:].T.reshape(-1)
        word = np.tile(self.common_words, len(parts) - 1)
        dense = self.row_of_word[word] >= 0
        n_pieces = np.where(dense, -(-(end - begin) // _PIECE), end > begin)
        which, begin, end = cut(begin, end, n_pieces)
        ends = np.cumsum(n_pieces.reshape(len(parts) - 1, len(self.common_words)).sum(axis=1))
        ranges = np.column_stack([word[which], begin, end]).astype(np.int32)
        return ranges.reshape(-1), np.append(0, ends)


def _by(key, n):
    """Order of tokens by a key below `n`, those of one key as they were; where each key begins."""
    kind = np.int32 if max(len(key), n) < 2**31 else np.int64
    row = (np.arange(len(key), dtype=kind), key.astype(kind), np.array([0, len(key)], kind))
    by_key = sparse.csr_array(row, shape=(1, n)).tocsc()
    return by_key.data, by_key.indptr.astype(np.int64)
