"""Turns of libraries of Stan that were compiled without threads."""

import time

import pytest

from stradask.algorithms.bayes.adapters.stan_density import TURN
from stradask.kernels.bayes import stan


def test_a_turn_that_is_interrupted_ends(monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    def take_and_interrupt(*who):
        assert take(*who)
        interrupt()

    take = stan.take_turn
    with pytest.raises(KeyboardInterrupt):
        TURN.call(interrupt)
    with monkeypatch.context() as patch:
        patch.setattr(stan, "take_turn", take_and_interrupt)
        with pytest.raises(KeyboardInterrupt):
            TURN.call(len, "")
    assert take(TURN.address, 1)  # free; and an interruption of one who waits leaves it to the other
    with monkeypatch.context() as patch:
        patch.setattr(time, "sleep", interrupt)
        with pytest.raises(KeyboardInterrupt):
            TURN.call(len, "")
    assert not take(TURN.address, 2)
    stan.end_turn(TURN.address, 1)
    assert TURN.call(len, "two") == 3
