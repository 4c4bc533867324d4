"""Blocks of words: their words, their order of meeting shards, and the totals that travel with them."""

import itertools
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import sparse
from scipy.special import gammaln

from ....scheduler.schedules.schedule import Schedule
from .groups import deal_words

_MOST_EXCHANGES = 64  # a rotation of so many shards, the most that a fit takes by itself, has one a step


@dataclass(eq=False)
class Block:
    """A travelling group of words: `rows` of counts of the frequent ones, `tokens` of the others, if any.

    `segments` are what shards gave to it, or have yet to take from it, by shard (`collected.Segment`).
    """

    rows: np.ndarray
    tokens: Any
    segments: dict = field(default_factory=dict)


class Words:
    """The words of a corpus in blocks, each from the most frequent one down.

    The `n_kept` most frequent words keep a row of counts; with `all_tokens` a block has their tokens too.

    Attributes
    ----------
    ids : int32 array
        Words that occur, block by block; `frequency` is theirs.
    start : int64 array of shape (n_blocks + 1,)
    n_rows : int64 array of shape (n_blocks,)
        Words of a block that keep a row: the first ones.
    n_tokens : int64 array of shape (n_blocks,)
        Tokens that a block has.
    before : int64 array
        Tokens that blocks have of the words before each of `ids`, and of all.
    first_token : int64 array
        Of each of `ids`, the number of its first token, words counted as they are numbered.
    """

    def __init__(self, frequency, n_blocks, n_kept=0, all_tokens=False):
        self.all_tokens = all_tokens
        words, block = deal_words(frequency, n_blocks)
        self.ids = words[np.argsort(block, kind="stable")].astype(np.int32)
        self.frequency = frequency[self.ids]
        self.start = np.concatenate([[0], np.cumsum(np.bincount(block, minlength=n_blocks))])
        keeps = np.isin(self.ids, words[:n_kept])
        self.n_rows = np.add.reduceat(np.append(keeps, 0), self.start)[:-1] * (np.diff(self.start) > 0)
        sizes = np.where(keeps & (not all_tokens), 0, self.frequency)
        self.before = np.concatenate([[0], np.cumsum(sizes)])
        self.n_tokens = np.diff(self.before[self.start])
        self.first_token = (np.cumsum(frequency) - frequency)[self.ids]

    def bytes_of_blocks(self, n_topics, bytes_of_topic):
        """Bytes of all blocks: rows of counts, and topics of tokens."""
        return int(4 * n_topics * self.n_rows.sum() + bytes_of_topic * self.n_tokens.sum())

    def bytes_packed(self, n_topics, bytes_of_topic):
        """Bytes of all blocks as they travel, at most: two for each count that is not zero."""
        n_tokens = int(self.n_tokens.sum())
        n_counts = min(int(n_topics * self.n_rows.sum()), int(self.frequency.sum()) - n_tokens)
        return 2 * max(n_counts, 0) + bytes_of_topic * n_tokens

    def of(self, block):
        """The range of a block's words in `ids`."""
        return slice(self.start[block], self.start[block + 1])

    def bounds(self, block):
        """Where the tokens of each of a block's words begin in `Block.tokens`, and where the last ends."""
        here = self.before[self.start[block] : self.start[block + 1] + 1]
        return here - here[0]


class SeedsOfBlocks:
    """Weights of seed words (CSR, n_words x n_topics) by block, added to beta; `sums` by topic."""

    def __init__(self, seeds, words):
        self._words, self._all = words, seeds[words.ids]
        self.sums = np.asarray(seeds.sum(axis=0)).ravel()
        self._narrow = (self._all.data.astype(np.float32), self.sums.astype(np.float32))
        self._place = (self._all.indptr.astype(np.int64), self._all.indices.astype(np.int32))

    def of_all(self):
        """Those of the words of all blocks, as `kernels.lda_seeds` takes them."""
        return (*self._place, *self._narrow)

    def of(self, block):
        """Those of the words of a block."""
        here = self._words.of(block)
        indptr, topics = self._place
        return (indptr[here.start : here.stop + 1], topics, *self._narrow)

    def log_likelihood(self, block, counts, beta, known=None):
        """Sum, over the words of a block, what seeds change of `Gibbs.word_part`.

        `counts` is CSR, `known` the dense background if there is one; a word's topic without tokens changes
        nothing.
        """
        added = self._all[self._words.of(block)]
        seeded = sparse.csr_array(added.multiply(counts > 0))
        held = sparse.csr_array(counts.multiply(seeded > 0))
        for matrix in (seeded, held):
            matrix.sort_indices()  # of the same places, so that data lie side by side
        base = np.repeat(beta, np.diff(held.indptr))
        if known is not None:
            base += known[np.repeat(np.arange(len(beta)), np.diff(held.indptr)), held.indices]
        own, count = base + seeded.data, held.data
        return float((gammaln(count + own) - gammaln(own) - gammaln(count + base) + gammaln(base)).sum())


def nested(n, step):
    """Pair n shards with as many blocks, in one of n steps, such that blocks meet neighbours in turn.

    Shards are halves of halves (or thirds, as their number divides), and a block leaves a part only for the
    next one. Where a worker has such a part, a block comes to it and leaves it once in n steps, together with
    all others that are there.
    """
    shards, size = np.arange(n), n
    blocks = np.zeros(n, np.int64)
    while size > 1:
        divisor = next(d for d in range(2, size + 1) if size % d == 0)
        size //= divisor
        blocks += (shards // size + step // size) % divisor * size
    return list(enumerate(blocks.tolist()))


def between_exchanges(n_shards):
    """Steps between exchanges of totals: they divide a rotation, into 64 exchanges or a few more.

    Examples
    --------
    >>> from stradask.algorithms.topics.blocks.word_blocks import between_exchanges
    >>> [between_exchanges(n) for n in (64, 96, 128, 1000, 2048)]
    [1, 1, 2, 10, 32]
    """
    return next(d for d in range(max(n_shards // _MOST_EXCHANGES, 1), 0, -1) if n_shards % d == 0)


class FirstCountThenRotate(Schedule):
    """A rotation whose first round has one turn more, in which blocks are filled; `repeats` turns a round.

    With `at_once` only so many shards take part at a time; these meet all blocks before the next ones do, so
    that others can be on disk. There are as many blocks as shards, or two for each shard at work: there are
    many shards then, and they meet blocks in pieces of some size.

    More than 64 shards are on a cluster, and many on each worker: blocks then meet neighbours one after the
    other (`nested`), and totals are exchanged after every `between` steps, 64 to 127 times a rotation where
    the number of shards divides so. So messages do not grow with the threads of a worker.

    In a turn shards meet all blocks once for each of `kinds`, and for `last`, the kind of a rotation after
    which others read the blocks: those of the next party, or those after the round. Where all shards
    are `at_hand` of a block, one step takes the place of each rotation.
    """

    def __init__(self, n_shards, at_once=None, repeats=1, *, kinds=("draw",), last=None, at_hand=False):
        self.n_shards, self.repeats = n_shards, repeats
        self.at_once = min(at_once or n_shards, n_shards)
        self.n_blocks = n_shards if at_once is None else min(n_shards, 2 * at_once)
        self._nested = self.n_blocks == n_shards > _MOST_EXCHANGES
        self.between = between_exchanges(n_shards) if self._nested else 1
        parties = range(-(-n_shards // self.at_once))
        self._filling, self._rotations = [(-1, party, "fill") for party in parties], []
        for turn, party in itertools.product(range(repeats), parties):
            read = last is not None and (len(parties) > 1 or turn == repeats - 1)
            self._rotations += [(turn, party, kind) for kind in (*kinds, *([last] if read else []))]
        self._length = 1 if at_hand else self.n_blocks  # steps of a rotation
        self._later: list | None = None
        self.n_filling = len(parties) * self.n_blocks

    def plan(self, round, state):
        """Pair shards with blocks, step by step; from the second round on it is one plan."""
        if round == 0:
            filling = [(*rotation, step) for rotation in self._filling for step in range(self.n_blocks)]
            return [self._step(*which) for which in filling] + self._rotating()
        if self._later is None:
            self._later = self._rotating()
        return self._later

    def _rotating(self):
        return [self._step(*rotation, step) for rotation in self._rotations for step in range(self._length)]

    def _step(self, turn, party, kind, step):
        if self._nested:
            return nested(self.n_shards, step)
        shards = range(party * self.at_once, min((party + 1) * self.at_once, self.n_shards))
        return [(shard, (shard + step) % self.n_blocks) for shard in shards]

    def place(self, round, step):
        """Number of a step among those that sample; negative in the turn that fills blocks."""
        return step - (self.n_filling if round == 0 else 0)

    def rotation(self, place):
        """Turn and kind of a step's rotation, and the number of the step in it."""
        number, step = divmod(place, self._length)
        turn, _, kind = self._rotations[number]
        return turn, kind, step

    def is_last_of_shard(self, place):
        """Whether a step is the last of its shards in a turn."""
        if place < 0:
            return place % self.n_blocks == self.n_blocks - 1
        number, step = divmod(place, self._length)
        after = self._rotations[number + 1 : number + 2]
        return step == self._length - 1 and [self._rotations[number][:2]] != [other[:2] for other in after]

    def may_be_last_of_block(self, place):
        """Whether a step belongs to the last shards: of those to meet a block, the last one leaves it."""
        together = self.n_blocks == self.at_once  # they meet all blocks in the last step
        return place >= self._length * len(self._rotations) - (1 if together else self._length)


class CollectThenReturn(FirstCountThenRotate):
    """A rotation in which blocks collect what shards have, and one in which they give it back, in each turn.

    The first ends, and the second begins, with the shard of a block's own number, at its home. A block meets
    neighbours one after the other (`nested`).

    Examples
    --------
    >>> from stradask.algorithms.topics.blocks.word_blocks import CollectThenReturn
    >>> plan = CollectThenReturn(4).plan(1, {})
    >>> [dict(map(reversed, step))[0] for step in plan]  # the shards that block 0 meets
    [3, 2, 1, 0, 0, 1, 2, 3]
    """

    def __init__(self, n_shards, repeats=1):
        super().__init__(n_shards, None, repeats, kinds=("documents", "words"))

    def _step(self, turn, party, kind, step):
        return nested(self.n_shards, self.n_blocks - 1 - step if kind == "documents" else step)

    def may_be_last_of_block(self, place):
        """Whether in a step blocks have the topics of a sweep's end, before they give them back."""
        return place == self._length * (len(self._rotations) - 1)


# Changes of totals: the few topics that changed, or all of them ----------------------------------------


def changes_of(before, after):
    """The difference of two vectors of counts in the shorter of two forms."""
    change = after - before
    topics = np.flatnonzero(change)
    if 2 * len(topics) >= len(change):
        return (change,)
    return topics.astype(np.uint32 if len(change) <= 2**32 else np.int64), change[topics]


def add_changes(totals, changes):
    """Add what `changes_of` made, in place; return the totals."""
    if len(changes) == 1:
        totals += changes[0]
    else:
        totals[changes[0]] += changes[1]
    return totals
