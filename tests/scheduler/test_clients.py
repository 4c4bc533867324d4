"""Clients of clusters that are not there, not ready, or gone: errors in words of ours."""

import pytest

from stradask.errors import DataError, StradaskError
from stradask.scheduler.session import open_session


@pytest.mark.parametrize("engine", ["tcp://127.0.0.1:9", "sctp://127.0.0.1:9", "tls://127.0.0.1:9"])
def test_an_address_without_a_scheduler_is_an_error(engine, make_rotation):
    import dask

    with dask.config.set({"stradask.timeout": "500ms"}):
        session = open_session(engine)
    with pytest.raises(DataError, match=f"engine='{engine}'.*scheduler"):
        session.open(make_rotation())
    session.close()


@pytest.mark.parametrize("engine", ["tcp://127.0.0.1:9", "local"])
def test_threads_that_there_cannot_be_are_an_error(engine):
    with pytest.raises(DataError, match="n_jobs must be"):
        open_session(engine, 0)


def test_workers_without_stradask_are_an_error(one_process, make_rotation, monkeypatch):
    import distributed

    async def register(self, plugin):
        raise ModuleNotFoundError("No module named 'stradask'")

    monkeypatch.setattr(distributed.Client, "register_plugin", register)
    session = open_session(one_process.scheduler_address)
    with pytest.raises(StradaskError, match=r"workers cannot import stradask.*install it there"):
        session.open(make_rotation())


def test_a_scheduler_that_goes_while_a_session_begins_is_named(one_process, make_rotation, monkeypatch):
    import distributed

    async def register(self, plugin):
        raise distributed.comm.CommClosedError("Stream is closed")

    monkeypatch.setattr(distributed.Client, "register_plugin", register)
    session = open_session(one_process.scheduler_address)
    with pytest.raises(StradaskError, match=r"the scheduler went away in mid-fit.*Stream is closed"):
        session.open(make_rotation())


@pytest.mark.parametrize("status", ["running", "closed"])
def test_errors_of_a_scheduler_that_went_are_told_from_others(status):
    from concurrent.futures import CancelledError
    from types import SimpleNamespace

    from stradask.scheduler.clients import scheduler_named

    client = SimpleNamespace(status=status)
    with pytest.raises(StradaskError, match="scheduler went away"), scheduler_named(client):
        raise CancelledError("task-1")
    with pytest.raises(DataError, match="mine"), scheduler_named(client):
        raise DataError("mine")
    wanted = ZeroDivisionError if status == "running" else StradaskError
    with pytest.raises(wanted), scheduler_named(client):
        raise ZeroDivisionError("of a step")
