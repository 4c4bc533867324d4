"""Clients of clusters that are not there, not ready, or gone: errors in words of ours."""

import asyncio
import time
from concurrent.futures import CancelledError

import numpy as np
import pytest

from stradask.errors import DataError, StradaskError
from stradask.scheduler.workers import open_session


@pytest.mark.parametrize("engine", ["tcp://127.0.0.1:9", "sctp://127.0.0.1:9", "tls://127.0.0.1:9"])
def test_an_address_without_a_scheduler_is_an_error(engine, make_rotation):
    import dask

    with dask.config.set({"stradask.scheduler-timeout": "500ms"}):
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

    from stradask.scheduler.sessions.clients import scheduler_named

    client = SimpleNamespace(status=status)
    with pytest.raises(StradaskError, match="scheduler went away"), scheduler_named(client):
        raise CancelledError("task-1")
    with pytest.raises(DataError, match="mine"), scheduler_named(client):
        raise DataError("mine")
    wanted = ZeroDivisionError if status == "running" else StradaskError
    with pytest.raises(wanted), scheduler_named(client):
        raise ZeroDivisionError("of a step")


# The caller's client ----------------------------------------------------------------------------------


@pytest.fixture
def caller(one_process):
    from distributed import Client

    with Client(one_process, set_as_default=False) as client:
        yield client


@pytest.fixture
def opened(monkeypatch):
    """Clients that sessions make, and plugins that they have installed."""
    import distributed

    from stradask.scheduler.sessions import clients

    made, open_client, register = [], clients.open_client, distributed.Client.register_plugin

    def noted(scheduler):
        made.append(open_client(scheduler))
        return made[-1]

    def installed(self, plugin):
        made.append(plugin.name)
        return register(self, plugin)

    monkeypatch.setattr(clients, "open_client", noted)
    monkeypatch.setattr(distributed.Client, "register_plugin", installed)
    return made


def session_on(client):
    from stradask.scheduler.workers import open_session

    return open_session(client)


def test_the_second_fit_of_a_client_opens_nothing(caller, opened, make_rotation):
    for expected in (["stradask-sessions"], []):
        opened.clear()
        session = session_on(caller)
        session.open(make_rotation())
        assert session.workers.client is caller
        session.close()
        assert opened == expected
        assert caller.status == "running"


def test_a_fit_by_address_makes_one_client_and_closes_it(caller, opened):
    """LDA asks for threads before it cuts the documents, and when it warns of groups, and opens a session."""
    import stradask as sd
    from stradask.datasets.generators import make_lda_corpus

    X, *_ = make_lda_corpus(1500, n_features=50, n_components=3, random_state=0)
    assert X.sum() > 100_000  # from so many tokens on there are groups
    model = sd.LatentDirichletAllocation(3, max_iter=2, random_state=0, engine=caller.scheduler.address)
    model.fit(X)
    client, *plugins = opened
    assert client is not caller
    assert client.status == "closed"
    assert plugins == ["stradask-sessions"]
    opened.clear()
    with pytest.raises(ZeroDivisionError):
        model.fit(X, callback=lambda info: 1 / 0)
    assert opened[0].status == "closed"


@pytest.mark.parametrize("of_files", [False, True])
def test_a_fit_connects_once(caller, monkeypatch, tmp_path, of_files):
    """Of files tasks survey them first. Threads and memory are asked of the client."""
    import stradask as sd
    from stradask.scheduler.sessions import clients

    X = np.random.default_rng(0).poisson(1.5, (1500, 50)).astype(np.int32)
    sd.datasets.save_uci_bow(X, tmp_path / "docword.txt")
    borrowed, echoes = [], []
    confirm = clients.BorrowedClient.confirm

    async def confirmed(self):
        borrowed.append(self)
        echoes.append(await confirm(self))
        return echoes[-1]

    monkeypatch.setattr(clients.BorrowedClient, "confirm", confirmed)
    model = sd.LatentDirichletAllocation(3, max_iter=2, random_state=0, engine=caller)
    model.fit(tmp_path / "docword.txt" if of_files else X)
    assert (len(borrowed), echoes) == (1, [True])
    caller.sync(asyncio.sleep, 0)  # the event loop ends the subscription
    assert clients._shared_of_clients[caller].listeners == []


def test_sessions_at_the_same_time_share_a_client(caller, make_rotation):
    first, second = session_on(caller), session_on(caller)
    first.open(make_rotation())
    second.open(make_rotation())
    first.close()
    event = {"action": "add-worker", "worker": "inproc://somebody"}
    caller.sync(caller._handle_event, "all", (0.0, event))
    assert "inproc://somebody" in second.moves.newcomers - first.moves.newcomers
    second.measure([])
    second.close()
    session_on(caller).close()


@pytest.mark.parametrize("kind", ["asynchronous", "listens"])
def test_a_client_that_cannot_be_shared_gets_one_beside_it(caller, opened, make_rotation, kind, monkeypatch):
    heard = []
    if kind == "listens":
        caller.subscribe_topic("all", heard.append)
    else:
        known = type(caller).asynchronous.fget
        monkeypatch.setattr(
            type(caller), "asynchronous", property(lambda self: self is caller or known(self))
        )
    session = session_on(caller)
    session.open(make_rotation())
    (client,) = (made for made in opened if made != "stradask-sessions")
    assert session.workers.client is client
    session.close()
    assert client.status == "closed"
    assert caller.status == "running"
    if kind == "listens":
        assert caller._event_handlers["all"] == heard.append


def test_a_plugin_that_has_gone_is_installed_again(caller, opened, make_rotation):
    """As after another scheduler has come up at the address."""
    session_on(caller)._join()
    caller.unregister_worker_plugin("stradask-sessions")
    opened.clear()
    session = session_on(caller)
    session.open(make_rotation())
    assert opened == ["stradask-sessions"]
    session.close()


def test_a_client_that_is_closed_in_mid_fit_is_named(one_process, make_rotation):
    from distributed import Client

    client = Client(one_process, set_as_default=False)
    session = session_on(client)
    session.open(make_rotation())
    client.close()
    with pytest.raises(StradaskError, match="the client was closed"):
        session.measure([])
    session.close()


def test_whoever_is_interrupted_while_a_session_begins_hears_no_more(caller, monkeypatch):
    from stradask.scheduler.sessions.clients import BorrowedClient, _shared_of_clients

    listen = BorrowedClient.listen

    def interrupted(lent, listener):
        listen(lent, listener)
        raise CancelledError

    monkeypatch.setattr(BorrowedClient, "listen", interrupted)
    with pytest.raises(StradaskError, match="scheduler went away"):
        session_on(caller).n_threads()
    caller.sync(_a_moment)
    assert _shared_of_clients[caller].listeners == []


async def _a_moment():
    await asyncio.sleep(0)


def test_a_client_that_finds_another_scheduler_puts_the_plugins_there(one_process):
    """It is connected anew; what the last scheduler knew is not taken for known."""
    import distributed

    from stradask.scheduler.sessions.clients import BorrowedClient

    class Plugin(distributed.WorkerPlugin):
        name, idempotent = "stradask-of-a-test", True

    with distributed.Client(one_process, set_as_default=False) as client:
        lent, asked = BorrowedClient(client), []

        async def register(plugin):
            asked.append(plugin.name)

        client.register_plugin = register
        for _ in range(2):
            client.sync(lent.install, Plugin())
        assert len(asked) == 1
        client.scheduler_comm.abort()
        for _ in range(1200):
            if client.status == "running" and not client.scheduler_comm.closed():
                break
            time.sleep(0.05)
        for _ in range(2):
            client.sync(lent.install, Plugin())
        assert len(asked) == 2
        lent.close()


def test_an_asynchronous_client_lends_another_one(one_process):
    import distributed

    from stradask.scheduler.workers import open_workers

    async def notebook():
        async with distributed.Client(one_process.scheduler_address, asynchronous=True) as client:
            await asyncio.sleep(0)
            with open_workers(client).client() as lent:
                return lent.submit(sum, [1, 2]).result(60), client.status

    assert asyncio.run(notebook()) == (3, "running")


def test_how_long_a_scheduler_is_waited_for_is_configured(monkeypatch):
    import dask
    import distributed

    from stradask.scheduler.sessions.clients import connect_timeout, open_client

    waits, client = [], distributed.Client

    def noted(address, **options):
        waits.append(options["timeout"])
        return client(address, **options)

    monkeypatch.setattr(distributed, "Client", noted)
    with (
        dask.config.set({"stradask.scheduler-timeout": "300ms"}),
        pytest.raises(DataError, match=r"answers there within 0\.3 s .*stradask\.scheduler-timeout"),
    ):
        open_client("tcp://127.0.0.1:9")
    assert waits == [0.3]
    with dask.config.set({"stradask.connect-timeout": "7s"}):
        assert connect_timeout() == 7


def test_a_fit_ends_though_workers_go_on_without_the_scheduler(caller, make_rotation):
    """They close some seconds after it; the wait counts from the moment the connection broke."""
    import dask

    from stradask.scheduler import RotationSchedule, run

    def breaks(info):
        caller.status = "connecting"
        return info.round == 2000  # which take longer than the 50 ms

    options = {"max_rounds": 5000, "engine": caller, "callback": breaks}
    try:
        with (
            dask.config.set({"stradask.scheduler-timeout": "50ms"}),
            pytest.raises(StradaskError, match=r"went away in mid-fit: it has not answered for"),
        ):
            run(make_rotation(), RotationSchedule(4, 8), **options)
    finally:
        caller.status = "running"


def test_the_log_of_a_client_of_ours_that_closes_is_silent_of_cancelled_tasks(caplog):
    import logging

    from stradask.scheduler.sessions.clients import close_client

    class Client:
        status = "connecting"

        def close(self):
            for error in (asyncio.CancelledError(), RuntimeError("else")):
                try:
                    raise error
                except BaseException:
                    logging.getLogger("distributed.client").exception("failed")

    close_client(Client())
    assert [record.exc_info[0] for record in caplog.records] == [RuntimeError]
    assert not logging.getLogger("distributed.client").filters


def test_a_worker_that_is_lost_while_the_plugin_is_installed_ends_no_fit(
    one_process, make_rotation, monkeypatch
):
    """Dask tells of it as of a broken connection, which is not the scheduler's."""
    import distributed

    register, told = distributed.Client.register_plugin, []

    async def lose_one(self, plugin):
        told.append(plugin.name)
        if len(told) == 1:
            raise distributed.comm.CommClosedError("in <TCP (closed) ConnectionPool.register_worker_plugin")
        return await register(self, plugin)

    monkeypatch.setattr(distributed.Client, "register_plugin", lose_one)
    session = open_session(one_process.scheduler_address)
    session.open(make_rotation())
    session.close()
    assert told == ["stradask-sessions"] * 2


def test_newcomers_that_do_not_answer_are_not_waited_for(one_process, make_rotation, monkeypatch):
    """A process that has just been started imports for seconds; the others have the shards by then."""
    session = open_session(one_process.scheduler_address)
    session._join()
    first, late = sorted(one_process.scheduler_info["workers"])
    answers = session.workers._answers

    async def answer(member):
        if member == late:
            await asyncio.sleep(600)
            answered.append(member)
        return await answers(member)

    monkeypatch.setattr(session.workers, "_answers", answer)
    session.workers.newcomers.add(late)
    answered = []
    session.open(make_rotation())
    assert answered == []
    assert set(session.shard_at) == {first}
    session.close()
