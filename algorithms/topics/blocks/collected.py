"""Blocks of words that collect topics and proposals from shards, and give them back after a pass over words.

A segment has a shard's tokens of the words of a block, word by word. A block that collects has those of the
shards that it has met; when it has all, they lie one after the other, as those of one process do, and the
pass over words is one loop. A block that gives back has those of the shards that it has yet to meet. So
between two of W workers, with 1 / W of the shards each, a block carries a part of its tokens only.

A packed block has numbers of seven bits a byte (what there is, and a collecting shard's tokens of each word),
and topics of as many bits as the number of topics needs: with 1,000 topics 2.5 bytes for topic and proposal.
"""

from typing import Any, NamedTuple

import numpy as np

from ....kernels.lda import blocks as lda_blocks
from .restoring import damaged
from .word_blocks import Block


class Segment(NamedTuple):
    """Tokens of a shard, word by word.

    Attributes
    ----------
    tokens : array of shape (n, 2) or (n,)
        Topics and proposals; proposals alone where the block has all topics.
    sizes : int64 array of shape (n_words,) or None
        How many are of each word, while a block collects.
    """

    tokens: Any
    sizes: Any = None


class Collected(NamedTuple):
    """Tokens of all shards, those of one behind those of the one before, as `warp.word_pass` takes them."""

    starts: np.ndarray
    first: np.ndarray
    pairs: np.ndarray

    @classmethod
    def of(cls, block, value, frequency, n_shards, allocate=np.empty):
        """Put the segments of a block together, whose words have so many tokens."""
        segments = [value.segments[shard] for shard in range(n_shards) if shard in value.segments]
        sizes = np.array([segment.sizes for segment in segments], np.int64).reshape(
            len(segments), len(frequency)
        )
        if len(segments) != n_shards or (sizes.sum(axis=0) != frequency).any():
            raise damaged(block)
        first = np.concatenate([[0], np.cumsum(sizes.sum(axis=1))])
        narrow = np.int32 if np.diff(first).max() <= np.iinfo(np.int32).max else np.int64
        starts = np.zeros((len(frequency) + 1, n_shards), narrow)
        np.cumsum(sizes.T, axis=0, out=starts[1:])
        pairs = allocate((int(first[-1]), 2), segments[0].tokens.dtype)
        np.concatenate([segment.tokens for segment in segments], out=pairs)
        return cls(starts, first, pairs)

    def segments(self, proposals_alone):
        """Cut the tokens into those of the shards."""
        own = self.pairs[:, 1] if proposals_alone else self.pairs
        parts = zip(self.first[:-1], self.first[1:], strict=True)
        return {shard: Segment(own[begin:end]) for shard, (begin, end) in enumerate(parts)}


class Packing(NamedTuple):
    """The form of packed blocks: `n_tokens` and the number of words of the block, topics, and shards."""

    n_words: int
    n_tokens: int
    n_topics: int
    n_shards: int
    kind: Any

    @property
    def n_bits(self):
        """Bits of a topic."""
        return max(int(self.n_topics - 1).bit_length(), 1)

    def _bytes_of(self, n_values):
        return -(-int(n_values) * self.n_bits // 8)

    def pack(self, value):
        """Write a block that has segments."""
        shards = sorted(value.segments)
        segments = [value.segments[shard] for shard in shards]
        arrays = [np.ascontiguousarray(segment.tokens).reshape(-1) for segment in segments]
        sizes = [segment.sizes for segment in segments if segment.sizes is not None]
        if value.tokens is not None:
            arrays.append(value.tokens)
        about = [int(value.tokens is not None), int(bool(sizes)), len(shards)]
        about += [
            number for shard, one in zip(shards, segments, strict=True) for number in (shard, len(one.tokens))
        ]
        numbers = np.concatenate([np.array(about, np.int64), *sizes])
        packed = np.zeros(
            10 * len(numbers) + sum(self._bytes_of(len(array)) for array in arrays) + 1, np.uint8
        )
        end = lda_blocks.pack_numbers(numbers, packed)
        for array in arrays:
            lda_blocks.pack_bits(array, self.n_bits, packed[end:])
            end += self._bytes_of(len(array))
        return packed[: end + (end == self._n_plain)]

    @property
    def _n_plain(self):
        """Bytes of a block of all tokens and no segments: no other has this length."""
        return self.n_tokens * self.kind().itemsize

    def has_segments(self, packed):
        """Whether `pack` made these bytes."""
        return packed.dtype == np.uint8 and packed.ndim == 1 and len(packed) != self._n_plain

    def unpack(self, block, packed, allocate=np.empty):
        """Undo `pack`; everything is checked, for kernels trust it."""
        about = np.zeros(3, np.int64)
        at = lda_blocks.unpack_numbers(packed, 0, about)
        has_tokens, collects, n_segments = about.tolist()
        fits = at > 0 and max(has_tokens, collects) <= 1 and has_tokens + collects < 2
        if not fits or not 0 <= n_segments <= self.n_shards:
            raise damaged(block)
        whose = np.zeros((n_segments, 2), np.int64)
        sizes = np.zeros((n_segments if collects else 0, self.n_words), np.int64)
        for numbers in (whose, sizes):
            at = at if at < 0 else lda_blocks.unpack_numbers(packed, at, numbers.reshape(-1))
        shards, lengths = whose.T
        fits = at > 0 and (np.diff(shards) > 0).all() and shards.max(initial=0) < self.n_shards
        fits = fits and int(lengths.sum()) <= self.n_tokens and int(sizes.max(initial=0)) <= self.n_tokens
        if not fits or (collects and (sizes.sum(axis=1) != lengths).any()):
            raise damaged(block)
        of_segments = allocate((int(lengths.sum()), *([] if has_tokens else [2])), self.kind)
        arrays = np.split(of_segments, np.cumsum(lengths)[:-1]) if n_segments else []
        arrays += [allocate((self.n_tokens,), self.kind)] * has_tokens
        end = at + sum(self._bytes_of(array.size) for array in arrays)
        if len(packed) != end + (end == self._n_plain):
            raise damaged(block)
        for array in arrays:
            lda_blocks.unpack_bits(packed[at:], self.n_bits, array.reshape(-1))
            at += self._bytes_of(array.size)
            if array.max(initial=0) >= self.n_topics:
                raise damaged(block)
        own_sizes = list(sizes) if collects else [None] * n_segments
        segments = map(Segment, arrays, own_sizes)
        tokens = arrays[-1] if has_tokens else None
        none = np.zeros((0, self.n_topics), np.int32)
        return Block(none, tokens, dict(zip(shards.tolist(), segments, strict=False)))
