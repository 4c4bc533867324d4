"""For all tests of posteriors: no clock."""

import pytest

from stradask.algorithms.bayes.models import density_check


@pytest.fixture(autouse=True)
def without_clock(monkeypatch):
    """A density costs nothing: else a busy machine warns of its time, and warnings are errors."""
    monkeypatch.setattr(density_check, "_seconds_of_gradient", lambda model: 0.0)
