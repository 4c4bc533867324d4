"""The record of a fit."""

import math

import numpy as np
import pytest

from stradask.scheduler.history import History

COLUMNS = ["round", "seconds", "objective", "updates", "bytes_sent", "waiting", "staleness"]


def test_columns_have_one_length_and_their_types():
    history = History()
    history.record(round=1, seconds=0.5)
    history.record(round=3, seconds=1, objective=-2, updates=7, bytes_sent=8, waiting=0.25, staleness=1)
    columns = history.as_dict()
    assert list(columns) == COLUMNS
    assert {name: column.dtype.kind for name, column in columns.items()} == dict(
        zip(COLUMNS, "iffiiff", strict=True)
    )
    np.testing.assert_array_equal(columns["objective"], [np.nan, -2])
    assert [columns[name].tolist() for name in COLUMNS if name != "objective"] == [
        [1, 3], [0.5, 1], [0, 7], [0, 8], [0, 0.25], [0, 1],
    ]  # fmt: skip
    assert len(history) == 2


def test_an_empty_history_has_typed_empty_columns():
    assert {len(column) for column in History().as_dict().values()} == {0}
    assert History().as_dict()["round"].dtype == np.int64


def test_recent_objectives_pass_over_rounds_without_one():
    history = History()
    assert history.recent_objectives(3) == []
    for r, objective in enumerate([-3.0, -2.0, math.nan, math.nan], start=1):
        history.record(round=r, seconds=0.0, objective=objective)
    assert history.recent_objectives(5) == [-2.0, -3.0]
    assert history.recent_objectives(1) == [-2.0]


def test_a_huge_count_of_updates_is_kept():
    history = History()
    history.record(round=1, seconds=1.0, updates=2**40)
    assert history.as_dict()["updates"][0] == 2**40


def test_from_dict_continues_where_as_dict_stopped():
    history = History()
    history.record(round=1, seconds=0.5, objective=-1.5, updates=3)
    history.record(round=2, seconds=0.25)
    again = History.from_dict(history.as_dict())
    again.record(round=3, seconds=1.0, updates=5)
    assert again.as_dict()["round"].tolist() == [1, 2, 3]
    assert again.as_dict()["updates"].tolist() == [3, 0, 5]
    assert len(history) == 2
    np.testing.assert_array_equal(again.as_dict()["objective"], [-1.5, np.nan, np.nan])


def test_as_dict_gives_copies():
    history = History()
    history.record(round=1, seconds=0.5)
    history.as_dict()["seconds"][0] = 9
    assert history.as_dict()["seconds"][0] == 0.5


def test_mistakes_are_errors():
    history = History()
    history.record(round=2, seconds=0.5)
    with pytest.raises(TypeError, match="objektive"):
        history.record(round=3, seconds=0.5, objektive=1)
    with pytest.raises(ValueError, match="round 2 cannot follow round 2"):
        history.record(round=2, seconds=0.5)
    assert len(history) == 1
    columns = history.as_dict()
    with pytest.raises(ValueError, match="a history has the columns"):
        History.from_dict({"round": [1]})
    with pytest.raises(ValueError, match=r"longer|shorter"):
        History.from_dict({**columns, "seconds": [1.0, 2.0]})
