"""Chunks of documents for SaberLDA on a GPU: how many, what they take there, and how their tokens lie.

Memory of the device, in bytes: a token 4 for its document and 2 for its topic; the chunk that is sampled 2 a
token more, and 128 for every 32 of ``min(length, K)`` topics of a document; a word of K / 4 tokens or more
8 K, for its counts before and after the sweep; another word 2 a token, and 128 for every 32 tokens. Work
lists take 60 for each word of each chunk.
"""

from typing import NamedTuple

import numpy as np

from ...errors import DeviceError
from .host import LINE, cut, tokens_between

RARE = 4  # as in `lda_saber`
ITEM, RANGE = 6, 3  # numbers of a row of the work lists
MOST_BLOCKS = 8  # of one multiprocessor: 2,048 threads
_PIECE, _WHOLE = 4096, 2**16  # tokens of a frequent word that are an item, and of a range of all
_MOST_TOKENS = 2**30  # of a chunk: places in it have 31 bits
_CHUNKS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256, 512, 1024)  # numbers to choose from
_USABLE = 0.95  # part of the free memory


class SaberChunk(NamedTuple):
    """The arrays of a chunk of documents for the kernels; tokens are word by word.

    Attributes
    ----------
    token_doc : uint32 array, by token
        Document, counted in the chunk.
    topics : uint16 array, by token
    doc_start : int64 array, by document; line_start : int32 array
        Where its topics are placed, and its list begins (in lines of 32).
    items : int64 array
        Work list of ``sample``, six numbers an item.
    ranges : int32 array
        Work list of ``count_ranges`` for frequent words, three numbers a range.
    whole : int32 array
        The same for the totals: all tokens, in row 0.
    """

    token_doc: np.ndarray
    topics: np.ndarray
    doc_start: np.ndarray
    line_start: np.ndarray
    items: np.ndarray
    ranges: np.ndarray
    whole: np.ndarray


class SaberPlan(NamedTuple):
    """How a corpus goes through a GPU.

    `cuts` (int64) is where the documents of each chunk begin, `resident` whether all chunks stay on the
    device, `n_bytes` the memory taken there.
    """

    cuts: np.ndarray
    resident: bool
    n_bytes: int


def choose_chunks(device, lengths, frequency, n_topics):
    """Choose into how many chunks a corpus goes, and whether all of them stay on the device: a `SaberPlan`.

    `lengths` and `frequency` are the tokens of each document and of each word. Raises DeviceError if there is
    no room for what all chunks share, or for any chunk.
    """
    return plan_for(device.free_memory(), device.n_processors, device.name, lengths, frequency, n_topics)


def plan_for(memory, n_processors, name, lengths, frequency, n_topics):
    """Do what `choose_chunks` does, for a GPU of which these figures are known; `name` is for messages."""
    free = int(memory * _USABLE)
    plans = plans_of(n_processors, lengths, frequency, n_topics)
    for plan in plans:
        if plan.n_bytes <= free:
            return plan
    least, shared = min(plans, key=lambda plan: plan.n_bytes), shared_bytes(n_processors, frequency, n_topics)
    raise DeviceError(
        f"{name} has {free:,} bytes that can be used; {n_topics:,} topics of this corpus take "
        f"{least.n_bytes:,} even in {len(least.cuts) - 1:,} chunks, {shared:,} of them for any number: "
        "take fewer topics, leave rare words out, or set device='cpu'"
    )


def plans_of(n_processors, lengths, frequency, n_topics):
    """All plans to choose from, the largest first; `n_processors` are the multiprocessors of the device."""
    shared = shared_bytes(n_processors, frequency, n_topics)
    ends, lines = np.cumsum(lengths), np.cumsum(_lines(lengths, n_topics))
    n_words, plans = np.count_nonzero(frequency), []
    for n_chunks in _CHUNKS:
        cuts = _cuts(ends, n_chunks)
        tokens, documents = np.diff(np.append(0, ends)[cuts]), np.diff(cuts)
        if tokens.max() > _MOST_TOKENS:
            continue
        items = np.minimum(tokens, n_words) + tokens // _PIECE
        slots = 6 * tokens + 12 * documents + (8 * ITEM + 4 * RANGE) * items
        work = int((2 * tokens + 4 * LINE * np.diff(np.append(0, lines)[cuts]) + 16 * documents).max())
        plans.append(SaberPlan(cuts, True, shared + int(slots.sum()) + work))
        plans.append(SaberPlan(cuts, False, shared + min(2, len(slots)) * int(slots.max()) + work))
    return plans


def _cuts(ends, n_chunks):
    """Where the documents of chunks of nearly equal numbers of tokens begin; no chunk is without."""
    inner = np.searchsorted(ends, ends[-1] * np.arange(1, n_chunks) / n_chunks, side="right")
    cuts = np.concatenate([[0], inner, [len(ends)]])
    cuts = cuts[np.unique(np.append(0, ends)[cuts], return_index=True)[1]]
    cuts[-1] = len(ends)  # documents without tokens at the end
    return cuts


def shared_bytes(n_processors, frequency, n_topics):
    """Bytes of what does not depend on chunks."""
    is_rare = frequency < n_topics // RARE
    rare = frequency[is_rare]
    rows = 8 * n_topics * int(np.count_nonzero(~is_rare & (frequency > 0)))
    lists = 2 * int(rare.sum()) + 4 * LINE * int(_lines(rare, n_topics).sum()) + 16 * len(rare)
    scratch = 4 * n_topics * (MOST_BLOCKS * n_processors + 8) + 4 * n_topics * _CHUNKS[-1] // 64
    return rows + lists + scratch + 28 * len(frequency) + 16 * n_topics


class SaberLayout:
    """Places of the tokens of a corpus, chunk by chunk, and the counts of its words.

    `lengths` are in the order of a word's tokens, `cuts` where the documents of each chunk begin, and `begin`
    (int64, (chunks + 1) x words) where the tokens of each word begin in each chunk (`host.begins`). `rare`
    are words of less than K / 4 tokens, `frequent` the others that occur.
    """

    def __init__(self, lengths, word_start, n_topics, cuts, begin):
        self.lengths, self.word_start, self.n_topics, self.cuts = lengths, word_start, n_topics, cuts
        self.begin = begin
        frequency = np.diff(word_start)
        is_rare = frequency < n_topics // RARE
        self.rare = np.flatnonzero(is_rare & (frequency > 0))
        self.frequent = np.flatnonzero(~is_rare & (frequency > 0))
        self.rare_start = np.concatenate([[0], np.cumsum(frequency[self.rare])])
        self.rare_lines = _lines(frequency[self.rare], n_topics)
        self.place = np.zeros(len(frequency), np.int64)
        self.place[self.frequent] = np.arange(len(self.frequent))
        self.place[self.rare] = -1 - np.arange(len(self.rare))

    def tokens(self, c):
        """Places in the corpus of the tokens of a chunk: numbers, or a slice of all."""
        if len(self.cuts) == 2:
            return slice(None)
        return tokens_between(self.begin[c], self.begin[c + 1])

    def chunk(self, c, token_doc, topics):
        """Make a chunk from the documents and topics of all tokens."""
        first, last = self.cuts[c : c + 2]
        tokens = self.tokens(c)
        lengths = self.lengths[first:last]
        items, ranges = self._work(c)
        n_tokens = int((self.begin[c + 1] - self.begin[c]).sum())
        ends = np.append(np.arange(_WHOLE, n_tokens, _WHOLE), n_tokens)
        return SaberChunk(
            token_doc[tokens] - np.uint32(first),
            np.array(topics[tokens]),
            np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
            np.concatenate([[0], np.cumsum(_lines(lengths, self.n_topics))]).astype(np.int32),
            items.reshape(-1),
            ranges.reshape(-1),
            np.column_stack([np.zeros_like(ends), np.append(0, ends[:-1]), ends])
            .astype(np.int32)
            .reshape(-1),
        )

    def _work(self, c):
        """Items and ranges of a chunk; items of frequent words first, the longest first."""
        size = self.begin[c + 1] - self.begin[c]
        start = np.cumsum(size) - size
        words = np.flatnonzero(size)
        n_pieces = -(-size[words] // np.where(self.place[words] >= 0, max(_PIECE, self.n_topics), 2**30))
        which, begin, end = cut(np.zeros_like(words), size[words], n_pieces)
        word = words[which]
        token, place = self.begin[c][word] + begin, self.place[word]
        rare = place < 0
        out = np.zeros(len(word), np.int64)
        out[rare] = self.rare_start[-1 - place[rare]] + token[rare] - self.word_start[word[rare]]
        order = np.lexsort((begin - end, rare))
        items = np.column_stack([word, start[word] + begin, start[word] + end, token, place, out])[order]
        ranges = np.column_stack([place, start[word] + begin, start[word] + end])[~rare]
        return items.astype(np.int64), ranges.astype(np.int32)


def _lines(lengths, n_topics):
    """Lines of 32 entries that lists of so many tokens can take."""
    return -(-np.minimum(lengths, n_topics) // LINE)
