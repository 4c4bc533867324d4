"""A disk that promises nothing, for tests that write thousands of files."""

import pytest

from stradask.scheduler.stores import store


@pytest.fixture
def quick_disk(monkeypatch):
    monkeypatch.setattr(store.os, "fsync", lambda descriptor: None)
