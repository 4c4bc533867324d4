"""For all tests of posteriors: no clock."""

import pytest

from stradask.algorithms.bayes.models import cost


@pytest.fixture(autouse=True)
def without_clock(monkeypatch):
    """A density costs nothing: else a busy machine warns of its time, and warnings are errors."""
    monkeypatch.setattr(cost, "_time", lambda model: 0.0)
