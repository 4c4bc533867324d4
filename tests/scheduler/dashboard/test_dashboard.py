"""The page on fits in Dask's dashboard: fetched as a browser does, compared with the fit's own history."""

import asyncio
import json
import math
import re
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from types import SimpleNamespace

import msgpack
import numpy as np
import pytest

import stradask as sd
from stradask.errors import DataError, StradaskError
from stradask.scheduler.dashboard.plugin import Dashboard
from stradask.scheduler.dashboard.reports import PARTS, TOPIC, Reports
from stradask.scheduler.loop import report_round

pytestmark = pytest.mark.cluster


@pytest.fixture
def page(one_process):
    """A client whose scheduler has the page, and what fetches a path of it."""
    from distributed import Client

    with Client(one_process) as client:
        address = sd.dashboard()
        yield client, lambda path="": urllib.request.urlopen(address + path, timeout=60).read()
        client.unregister_scheduler_plugin("stradask-dashboard")


def figures_of(fetch, label):
    """The newest ended fit of a label; its last event is on the way when `fit` has returned."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        for fit in json.loads(fetch("/json"))["fits"]:
            if fit["label"] == label and fit["ended"]:
                return fit
        time.sleep(0.02)
    raise AssertionError(f"no fit {label} on the page")


def test_the_page_shows_the_rounds_and_workers_of_a_fit(page, fit):
    client, fetch = page
    _, done = fit("dask", rounds=6)
    shown, history = figures_of(fetch, "Rotating"), done.history.as_dict()
    assert [row["round"] for row in shown["rounds"]] == list(range(1, 7))
    assert shown["total"] == 6
    for name in ("objective", "updates", "bytes_sent", "waiting", "seconds"):
        assert [row[name] for row in shown["rounds"]] == history[name].tolist(), name
    assert shown["sums"]["bytes_sent"] == history["bytes_sent"].sum()
    rows, workers = done.activity.as_dict(), {about["worker"]: about for about in shown["workers"]}
    assert set(workers) == set(rows["worker"])
    for worker, about in workers.items():
        own = rows["worker"] == worker
        for name in ("working", "waiting", "sending", "bytes_sent"):
            assert about[name] == pytest.approx(rows[name][own].sum()), name
        assert about["shards"] == 2
        assert about["what"] == "steps"
        assert all(began <= ended for began, ended, _ in about["spans"])
    assert b"stradask/json" in fetch()
    assert b"<table" in fetch("/")
    address = client.dashboard_link.removesuffix("/status")
    links = re.findall(r'(?:href=|fetch\()"([^"#?]+)', fetch().decode())
    assert {"status", "stradask/json"} <= set(links)
    landed = urllib.request.urlopen(address + "/stradask/", timeout=60).geturl()  # links are relative
    assert urllib.parse.urljoin(landed, "stradask/json") == address + "/stradask/json"
    assert urllib.parse.urljoin(landed, "status") == address + "/status"


def test_passes_over_rows_are_shown_and_are_in_the_task_stream(page):
    from distributed import get_task_stream

    client, fetch = page
    X = np.random.default_rng(0).standard_normal((60, 3))
    with get_task_stream(client, plot=False) as stream:
        model = sd.LogisticRegression(engine="dask").fit(X, X[:, 0] > 0)
        shown = figures_of(fetch, "LogisticRegression")
    objective = [row["objective"] for row in shown["rounds"] if row["objective"] is not None]
    assert objective == model.history_["objective"].tolist()
    assert {about["what"] for about in shown["workers"]} == {"pass"}
    ours = [row for row in stream.data if str(row["key"]).startswith("('LogisticRegression-pass'")]
    assert {row["worker"] for row in ours} == {about["worker"] for about in shown["workers"]}
    spans = [span for row in ours for span in row["startstops"]]
    assert spans
    assert all(0 <= span["stop"] - span["start"] < 600 for span in spans)


def test_a_fit_before_the_page_is_there_is_shown_when_it_is(one_process, fit):
    from distributed import Client

    with Client(one_process) as client:
        client.log_event("stradask", {"of": "other code"})
        client.log_event("stradask", 5)
        fit("dask", rounds=2)
        address = sd.dashboard(client)
        assert sd.dashboard(client) == address  # a second time changes nothing
        shown = figures_of(lambda path: urllib.request.urlopen(address + path, timeout=60).read(), "Rotating")
        assert shown["rounds"][-1]["round"] in (2, 6)
        client.unregister_scheduler_plugin("stradask-dashboard")


def test_where_there_is_no_page_an_error_says_why(page, monkeypatch):
    client, _ = page

    def register(*_):
        raise ModuleNotFoundError("No module named 'stradask'")

    monkeypatch.setattr(client, "register_plugin", register)
    with pytest.raises(StradaskError, match=r"scheduler cannot import stradask.*install it there"):
        sd.dashboard(client)
    with pytest.raises(DataError, match="an asynchronous client does not"):
        sd.dashboard(SimpleNamespace(asynchronous=True))
    monkeypatch.setattr(type(client), "dashboard_link", "")
    with pytest.raises(DataError, match="dashboard_address"):
        sd.dashboard(client)

    def no_client():
        raise ValueError("No clients found")

    monkeypatch.setattr("distributed.default_client", no_client)
    with pytest.raises(DataError, match="dashboard needs a Dask client"):
        sd.dashboard()


class Scheduler:
    """A client and its scheduler, and the events that arrive."""

    def __init__(self, fails=False):
        self.status, self.loop, self.scheduler, self.events, self._fails = "running", self, self, [], fails
        self.id = "Client-1"

    def add_callback(self, function):
        asyncio.run(function())

    async def log_event(self, topic, msg):
        if self._fails:
            raise OSError("gone")
        self.events.append(msg)


def open_board():
    """The scheduler's side, of a scheduler without a task stream."""
    board = Dashboard()
    board._scheduler = SimpleNamespace(plugins={})
    return board


class Info:
    """A round."""

    def __init__(self, number):
        self.round, self.total, self.seconds, self.objective, self.updates = number, 5000, 0.1, math.nan, 1


def test_events_are_few_and_bounded_however_many_rounds_there_are():
    client = Scheduler()
    reports = Reports(client)
    for number in range(1, 5001):
        report_round("fit", Info(number), {}, None)
        now = number / 100
        reports.work("tcp://a:1", "steps", now, now + 0.009, working=0.009, n_bytes=np.int64(3))
    reports.close()
    report_round("other", Info(1), {}, None)  # of no session
    client.add_callback(reports.end)
    assert len(client.events) == reports.sent < 20
    assert max(len(event["rounds"]) for event in client.events) <= 201
    work = [row for event in client.events for row in event["work"]]
    assert len(work) < 300
    assert all(0 < row[3] - row[2] <= 0.21 for row in work)
    assert sum(row[4] for row in work) == pytest.approx(45)
    assert sum(row[7] for row in work) == 15000
    assert client.events[-1]["ended"]
    assert client.events[-1]["rounds"][-1][0] == 5000
    assert all(set(event) == PARTS for event in client.events)
    msgpack.packb(client.events)  # numbers of numpy would fail on their way
    board = open_board()
    for event in client.events[-1:]:  # the others were lost, and rounds were left out of it
        board.log_event(TOPIC, event)
    (shown,) = board.figures()["fits"]
    assert shown["sums"]["updates"] == 5000
    assert shown["sums"]["seconds"] == pytest.approx(500)
    assert shown["workers"][0]["bytes_sent"] == 15000


def test_the_page_asks_for_one_fit_and_says_which_clients_have_gone():
    board, clients = open_board(), [Scheduler() for _ in range(3)]
    for number, client in enumerate(clients):
        client.id = f"Client-{number}"
        reports = Reports(client)
        for round_ in (1, 2):
            reports.work("tcp://a:1", "steps", 0.0, 1.0, working=1.0)
            report_round(f"<b>fit {number}", Info(round_), {}, "the end" if number == 2 else None)
        reports.close()
        client.add_callback(reports.end if number == 2 else reports._send)
        for event in client.events:
            board.log_event(TOPIC, event)
    board.remove_client(None, "Client-1")
    board.remove_client(None, "Client-2")  # its fit had ended
    newest, gone, runs = board.figures("")["fits"]
    assert [fit["left"] for fit in (newest, gone, runs)] == [False, True, False]
    assert [fit["ended"] for fit in (newest, gone, runs)] == [True, False, False]
    assert [len(fit["rounds"]) for fit in (newest, gone, runs)] == [2, 1, 1]
    assert [len(fit["workers"]) for fit in (newest, gone, runs)] == [1, 0, 0]
    assert gone["label"] == "<b>fit 1"
    assert len(board.figures(runs["name"])["fits"][2]["rounds"]) == 2
    assert len(board.figures()["fits"][1]["rounds"]) == 2
    board.log_event(TOPIC, clients[1].events[-1])  # a client that comes back
    assert not board.figures()["fits"][1]["left"]


def test_a_scheduler_that_is_gone_or_a_session_without_work_gets_no_event():
    gone, idle = Scheduler(fails=True), Scheduler()
    reports = Reports(gone)
    report_round("fit", Info(1), {}, None)
    reports.close()
    quiet = Reports(idle)
    quiet.close()
    idle.add_callback(quiet.end)
    assert reports.sent == 0
    assert idle.events == []


@pytest.mark.slow
def test_a_scheduler_may_have_the_page_from_its_start_and_under_a_prefix(tmp_path):
    found = tmp_path / "scheduler.json"
    options = "--port 0 --dashboard-address 127.0.0.1:0 --dashboard-prefix /proxy/dask"
    command = [sys.executable, "-m", "dask", "scheduler", *options.split(), "--scheduler-file", str(found)]
    command += ["--preload", "stradask.scheduler.dashboard.plugin"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as scheduler:
        try:
            end = time.monotonic() + 60
            while not found.exists() and time.monotonic() < end:
                time.sleep(0.05)
            port = json.loads(found.read_text())["services"]["dashboard"]
            address = f"http://127.0.0.1:{port}/proxy/dask/stradask/json"
            assert json.loads(urllib.request.urlopen(address, timeout=60).read()) == {"fits": []}
        finally:
            scheduler.kill()


@pytest.mark.slow
def test_a_performance_report_shows_the_steps(page, fit, tmp_path):
    pytest.importorskip("bokeh")
    from distributed import performance_report

    with performance_report(tmp_path / "report.html"):
        fit("dask", rounds=3)
    assert "Rotating-steps" in (tmp_path / "report.html").read_text()
