"""Proposals of shards: taken by priority, none that depends on one of another shard."""

import numpy as np
import pytest

from stradask.errors import DataError, ModelFileError
from stradask.scheduler.schedules.candidates import CandidateSchedule


def planned(schedule, ids, values):
    state = schedule.start()
    schedule.prioritise(state, np.array(ids), np.array(values, float))
    ((*step,),) = schedule.plan(0, state)
    assert [shard for shard, _ in step] == list(range(schedule.n_shards))
    return [blocks.tolist() for _, blocks in step]


@pytest.mark.parametrize("seed", range(5))
def test_sets_are_what_going_through_by_hand_keeps(seed):
    rng = np.random.default_rng(seed)
    first, n = [0, 7, 8, 20], 20
    depend = rng.random((n, n)) < 0.3
    depend |= depend.T
    ids = rng.permutation(n)[:12]
    values = rng.integers(1, 4, 12).astype(float)  # with ties
    owner = np.searchsorted(first, np.arange(n), side="right") - 1
    kept: list[int] = []
    for j in sorted(ids, key=lambda j: (-values[list(ids).index(j)], j)):
        if len(kept) < 5 and not any(depend[j, k] and owner[j] != owner[k] for k in kept):
            kept.append(int(j))
    schedule = CandidateSchedule(first, conflicts=lambda a, b: depend[np.ix_(a, b)], size=5)
    assert planned(schedule, ids, values) == [sorted(j for j in kept if owner[j] == k) for k in range(3)]


def test_without_conflicts_all_are_taken_and_a_round_voids_them():
    schedule = CandidateSchedule([0, 2, 4])
    assert planned(schedule, [3, 0, 1], [1, 2, 3]) == [[0, 1], [3]]
    state = schedule.start()
    schedule.prioritise(state, np.array([3]), np.ones(1))
    schedule.observe(state, 0, np.array([0]), np.zeros(1))
    assert [blocks.tolist() for _, blocks in schedule.plan(1, state)[0]] == [[], []]


@pytest.mark.parametrize("first", [[0], [1, 2], [0, 2, 2], [0.0, 2.0], [[0, 1]]])
def test_ranges_that_are_none(first):
    with pytest.raises(DataError, match="first must be integers that rise from 0"):
        CandidateSchedule(first)


def test_priorities_and_states_that_cannot_be_used():
    schedule = CandidateSchedule([0, 2])
    with pytest.raises(DataError, match="finite and not negative"):
        schedule.prioritise(schedule.start(), np.array([0]), np.array([np.nan]))
    with pytest.raises(ModelFileError, match="blocks and a priority for each"):
        schedule.plan(0, {})
