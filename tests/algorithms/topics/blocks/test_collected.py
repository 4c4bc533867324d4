"""Blocks that collect from shards and give back: nothing is lost on the way, and damage is refused."""

import numpy as np
import pytest

from stradask.algorithms.topics.blocks.collected import Collected, Packing, Segment
from stradask.algorithms.topics.blocks.program import TopicProgram
from stradask.algorithms.topics.blocks.word_blocks import Block, CollectThenReturn, FirstCountThenRotate
from stradask.algorithms.topics.corpus.shard_input import corpus_of_matrix
from stradask.algorithms.topics.samplers.warp import Warp
from stradask.datasets.generators import make_lda_corpus
from stradask.errors import ModelFileError
from stradask.scheduler.engine import run
from stradask.scheduler.sessions.local import LocalSession
from stradask.scheduler.sessions.routes import plan_routes

SIZES = np.array([[9, 0, 130], [0, 1, 0], [0, 0, 0], [4, 300, 2]])  # tokens of words in shards


def segments(K, kind, shards=(0, 1, 2), seed=0):
    rng = np.random.default_rng(seed)
    pairs = {s: rng.integers(0, K, (SIZES[:, s].sum(), 2)).astype(kind) for s in shards}
    return {s: Segment(own, SIZES[:, s]) for s, own in pairs.items()}


def packing(K, kind):
    return Packing(4, int(SIZES.sum()), K, 3, kind)


def same(a, b):
    assert a.segments.keys() == b.segments.keys()
    for shard, (tokens, sizes) in a.segments.items():
        np.testing.assert_array_equal(b.segments[shard].tokens, tokens)
        assert b.segments[shard].tokens.dtype == tokens.dtype
        assert (sizes is None) == (b.segments[shard].sizes is None)
        if sizes is not None:
            np.testing.assert_array_equal(b.segments[shard].sizes, sizes)
    assert (a.tokens is None) == (b.tokens is None)
    if a.tokens is not None:
        np.testing.assert_array_equal(b.tokens, a.tokens)


@pytest.mark.parametrize(
    ("K", "kind"),
    [(2, np.uint16), (100, np.uint16), (256, np.uint16), (2**16 - 1, np.uint16), (2**17, np.uint32)],
)
def test_a_packed_block_is_the_block(K, kind):
    there, none = segments(K, kind), np.zeros((0, K), np.int32)
    tokens = np.concatenate([one.tokens[:, 0] for one in there.values()])
    blocks = [Block(none, None, {s: there[s] for s in shards}) for shards in ((), (1,), (0, 2), (0, 1, 2))]
    blocks += [Block(none, None, {2: Segment(there[2].tokens)})]
    blocks += [Block(none, tokens, {s: Segment(there[s].tokens[:, 1])}) for s in (0, 1)]
    for block in blocks:
        packed = packing(K, kind).pack(block)
        assert packing(K, kind).has_segments(packed)
        same(block, packing(K, kind).unpack(0, packed))
    n_bits = (K - 1).bit_length()
    packed = packing(K, kind).pack(blocks[3])
    assert len(packed) <= 3 + 3 * 4 + 12 * 2 + -(-2 * len(tokens) * n_bits // 8) + 3


def test_damaged_blocks_are_refused():
    own = packing(100, np.uint16)
    block = Block(np.zeros((0, 100), np.int32), None, segments(100, np.uint16, (0, 1)))
    packed = own.pack(block)
    wrong = [packed[:0], packed[:1], packed[:9], packed[:-1], np.append(packed, packed[:1])]
    for place, number in ((0, 2), (1, 3), (2, 4), (3, 1), (3, 9), (4, 1), (7, 200), (9, 250)):
        changed = packed.copy()
        changed[place] = number
        wrong.append(changed)
    beyond = packed.copy()
    beyond[-30:] = 255  # topics up to 127
    for bad in [*wrong, beyond]:
        with pytest.raises(ModelFileError, match="block 5 of the words is damaged"):
            own.unpack(5, bad)
    same(block, own.unpack(0, packed))
    frequency = SIZES.sum(axis=1)
    with pytest.raises(ModelFileError, match="block 5"):  # a shard is missing
        Collected.of(5, block, frequency, 3)
    whole = Block(block.rows, None, segments(100, np.uint16))
    with pytest.raises(ModelFileError, match="block 5"):
        Collected.of(5, whole, frequency[::-1], 3)
    there = Collected.of(5, whole, frequency, 3)
    for shard, segment in there.segments(proposals_alone=False).items():
        np.testing.assert_array_equal(segment.tokens, whole.segments[shard].tokens)
        np.testing.assert_array_equal(np.diff(there.starts[:, shard]), SIZES[:, shard])


@pytest.mark.parametrize("n", [1, 2, 5, 6, 12, 16])
def test_every_block_collects_from_every_shard_ends_at_home_and_gives_back(n):
    schedule = CollectThenReturn(n, repeats=2)
    plan = schedule.plan(1, {})
    assert schedule.plan(0, {})[n:] == plan
    assert len(plan) == 4 * n
    everything = sorted((shard, block) for shard in range(n) for block in range(n))
    for rotation in range(4):
        steps = plan[rotation * n : (rotation + 1) * n]
        assert sorted(pair for step in steps for pair in step) == everything
        assert all(len({block for _, block in step}) == n for step in steps)
        home = steps[-1] if rotation % 2 == 0 else steps[0]
        assert home == [(shard, shard) for shard in range(n)]
    kinds = [schedule.rotation(place)[:2] for place in range(0, 4 * n, n)]
    assert kinds == [(0, "documents"), (0, "words"), (1, "documents"), (1, "words")]
    assert [p for p in range(4 * n) if schedule.may_be_last_of_block(p)] == [3 * n]
    assert [p for p in range(4 * n) if schedule.is_last_of_shard(p)] == [2 * n - 1, 4 * n - 1]


@pytest.mark.parametrize("n_workers", [1, 2, 4, 8])
def test_a_block_comes_to_a_worker_once_in_a_rotation(n_workers):
    """By the routes of blocks: between W workers of the same number of shards W - 1 times."""
    n = 16
    at = [shard * n_workers // n for shard in range(n)]
    plan, stamps = CollectThenReturn(n).plan(1, {}), [0] * n
    homes = {block: shard for shard, block in plan[0]}
    block_at = [at[homes[block]] for block in range(n)]
    for begin in (0, n):
        plans, moves, block_at, stamps = plan_routes(begin, plan[begin : begin + n], at, block_at, stamps)
        sent = sum(a.to != "" for assignments in plans.values() for a in assignments)
        assert not moves
        assert sent == n * (n_workers - 1)
    usual = FirstCountThenRotate(n).plan(1, {})[:n]
    plans, moves, *_ = plan_routes(0, usual, at, at, [0] * n)
    assert sum(a.to != "" for own in plans.values() for a in own) >= n * (n_workers - 1)


def test_a_fit_whose_blocks_are_packed_at_every_step_is_the_fit():
    """Whatever the process of a shard, and with 5 shards, whose number has no divisor."""
    X = make_lda_corpus(60, n_features=50, n_components=3, random_state=0)[0]

    class Packs(TopicProgram):
        def update(self, state, task):
            block, own = task.blocks, task.value
            there = self.unpack(block, self.pack(block, own))
            own.tokens, own.rows, own.segments = there.tokens, there.rows, there.segments
            return super().update(state, task)

    for n_shards in (2, 5):
        done = []
        for kind in (Packs, TopicProgram):
            corpus, priors = corpus_of_matrix(X, n_shards), (np.full(7, 0.1), np.full(50, 0.01))
            program = kind(corpus, 7, *priors, 5, sampler=Warp(repeats=2))
            assert program.sampler.collects
            done.append(run(program, program.schedule, max_rounds=4, engine=LocalSession(1)).fetched)
        assert (done[0].words != done[1].words).nnz == 0
        assert (done[0].documents != done[1].documents).nnz == 0
        assert done[0].joint == done[1].joint
