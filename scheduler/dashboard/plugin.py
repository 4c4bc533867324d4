"""The scheduler's side: keeps the newest fits, serves the page, and feeds Dask's task stream."""

import math
import time
from collections import deque
from pathlib import Path
from typing import Any

import distributed
from distributed.diagnostics.plugin import SchedulerPlugin
from tornado import web

from ...errors import DataError, StradaskError
from .reports import PARTS, TOPIC

NAME = "stradask-dashboard"
_PAGE = Path(__file__).with_name("page.html")
_MOST_FITS, _MOST_ROUNDS, _SPANS, _ALL_SPANS = 20, 1000, 200, 20_000  # that are kept; for each worker, in all
_ROUND = ("round", "seconds", "objective", "updates", "bytes_sent", "waiting")
_WORK = ("worker", "what", "began", "ended", "working", "waiting", "sending", "bytes_sent")


class Dashboard(SchedulerPlugin):
    """Follows the fits of a cluster by their events (`stradask.scheduler.dashboard.reports`).

    The page is ``/stradask`` of the scheduler's HTTP server, its figures are ``/stradask/json``. Each piece
    of work also goes into Dask's task stream, and so into `distributed.performance_report`, as ``LDA-steps``:
    it is no task, and Dask would not show it.
    """

    name = NAME
    idempotent = True

    def __init__(self):
        self.fits: dict[str, _FitShown] = {}

    async def start(self, scheduler):
        """Serve the page; read what was logged before."""
        self._scheduler = scheduler
        handlers: list[Any] = [
            (r"(?:/.*)?/stradask/json", _Figures, {"dashboard": self}),
            (r"(?:/.*)?/stradask/?", _FitsPage),
        ]
        # Before Dask's own, which answers to every path.
        scheduler.http_application.applications.insert(0, web.Application(handlers))
        for _, event in scheduler.get_events(TOPIC):
            if _is_ours(event):
                self._take_in(event)
        self._link()

    def _link(self):
        """Put the page into the list that all pages of Dask's dashboard show."""
        try:
            from distributed.dashboard.scheduler import template_variables
        except ImportError:  # without bokeh there is no dashboard, but our page is there
            return
        pages = template_variables(self._scheduler)["pages"]
        if "stradask" not in pages:
            pages.append("stradask")

    def log_event(self, topic, msg):
        """Take in an event of a fit; part of Dask's interface."""
        if topic == TOPIC and _is_ours(msg):
            self._take_in(msg)
            self._stream(msg)

    def remove_client(self, scheduler, client):
        """Mark the fits of a client that leaves; part of Dask's interface."""
        for fit in self.fits.values():
            fit.left = fit.left or (fit.client == client and not fit.ended)

    def _take_in(self, event):
        fit = self.fits.setdefault(event["fit"], _FitShown(event["fit"]))
        fit.take_in(event)
        while len(self.fits) > _MOST_FITS:
            del self.fits[next(iter(self.fits))]

    def _stream(self, event):
        """Show the work as Dask shows tasks, where somebody looks at tasks."""
        stream = self._scheduler.plugins.get("task-stream")
        label = event["label"] or "stradask"
        for number, row in enumerate(event["work"] if stream is not None else ()):
            work = dict(zip(_WORK, row, strict=True))
            busy = max(work["ended"] - work["began"] - work["waiting"], 0.0)
            span = {"action": "compute", "start": work["began"], "stop": work["began"] + busy}
            key = (f"{label}-{work['what']}", event["fit"], work["began"], number)
            about = {"worker": work["worker"], "thread": 0, "status": "OK", "startstops": [span]}
            stream.transition(key, "processing", "memory", type=b"", typename="", nbytes=0, **about)

    def figures(self, chosen=None):
        """Return what the page shows, the newest fit first.

        `chosen`: the name of the fit of which all is returned, or "" for the newest; of the others there is
        the last round. By default all is returned of all.
        """
        if chosen is not None and chosen not in self.fits:
            chosen = next(reversed(self.fits), "")
        return {
            "fits": [
                fit.figures(whole=chosen is None or name == chosen)
                for name, fit in reversed(self.fits.items())
            ]
        }


def _is_ours(event):
    """Whether an event is one of `Reports`: not of another version, nor of other code with this topic."""
    return isinstance(event, dict) and event.keys() >= PARTS


class _FitShown:
    """What is known of one fit."""

    def __init__(self, name):
        self.name, self.label, self.total, self.ended, self.reason = name, "", 0, False, ""
        self.client, self.left, self._heard = "", False, time.monotonic()
        self._rounds: deque = deque(maxlen=_MOST_ROUNDS)
        self._workers: dict[str, dict[str, Any]] = {}
        self._sums = dict.fromkeys(("seconds", "updates", "bytes_sent", "waiting"), 0)
        self._shards: dict[str, int] = {}

    def take_in(self, event):
        """Add what an event says."""
        self.label, self.total = event["label"] or self.label, event["total"] or self.total
        self.ended, self.reason = event["ended"], event["reason"] or self.reason
        self.client, self.left, self._heard = event["client"], False, time.monotonic()
        self._shards, self._sums = event["shards"], event["sums"]
        for row in event["rounds"]:
            self._rounds.append(dict(zip(_ROUND, row, strict=True)))
        for row in event["work"]:
            self._add(dict(zip(_WORK, row, strict=True)))
        for worker, totals in event["totals"].items():
            if worker in self._workers:
                self._workers[worker].update(zip(_WORK[4:], totals, strict=True))

    def _add(self, work):
        about = self._workers.setdefault(
            work["worker"],
            {"working": 0.0, "waiting": 0.0, "sending": 0.0, "bytes_sent": 0, "spans": deque(maxlen=_SPANS)},
        )
        about["what"] = work["what"]
        about["spans"].append([work[name] for name in ("began", "ended", "waiting")])

    def figures(self, *, whole=True):
        """Return all of it as JSON can hold it, or what a row of the table of fits needs."""
        measured = [row["objective"] for row in self._rounds if math.isfinite(row["objective"])]
        rounds = [
            {name: value if math.isfinite(value) else None for name, value in row.items()}
            for row in (self._rounds if whole else list(self._rounds)[-1:])
        ]
        own = {name: getattr(self, name) for name in ("name", "label", "total", "ended", "reason", "left")}
        own |= {"silent": time.monotonic() - self._heard, "objective": measured[-1] if measured else None}
        return own | {"sums": self._sums, "rounds": rounds, "workers": self._at_work() if whole else []}

    def _at_work(self):
        spans = max(1, min(_SPANS, _ALL_SPANS // max(len(self._workers), 1)))
        return [
            about
            | {
                "worker": worker,
                "spans": list(about["spans"])[-spans:],
                "shards": self._shards.get(worker, 0),
            }
            for worker, about in sorted(self._workers.items())
        ]


class _Figures(web.RequestHandler):
    def initialize(self, dashboard):
        self._dashboard = dashboard

    def get(self):
        self.set_header("Cache-Control", "no-store")
        self.write(self._dashboard.figures(self.get_argument("fit", None)))


class _FitsPage(web.RequestHandler):
    def get(self):
        if self.request.path.endswith("/"):  # from where the page's links, also of a proxy, lead elsewhere
            self.redirect("../stradask")
            return
        self.set_header("Content-Type", "text/html; charset=utf-8")
        self.write(_PAGE.read_bytes())


async def dask_setup(scheduler):
    """Add the page where a scheduler starts with ``--preload stradask.scheduler.dashboard.plugin``."""
    plugin = Dashboard()
    scheduler.add_plugin(plugin)
    await plugin.start(scheduler)


def dashboard(client: Any = None) -> str:
    """Add a page on the fits of a cluster to Dask's dashboard; return its address.

    It shows the newest fits with their rounds, objective, bytes and waiting, and what each worker does. The
    steps of a fit then appear in Dask's task stream and in `distributed.performance_report`, too. It needs no
    bokeh.

    Parameters
    ----------
    client : distributed.Client, optional
        By default the current one.

    Returns
    -------
    str
        The page, ``http://host:8787/stradask``.

    Raises
    ------
    DataError
        If there is no Dask client in this process, it is asynchronous, or its scheduler serves no pages.
    StradaskError
        If the scheduler cannot import stradask.

    Examples
    --------
    >>> import stradask as sd
    >>> from dask.distributed import Client, LocalCluster
    >>> client = Client(LocalCluster(n_workers=1, processes=False, dashboard_address=":0"))
    >>> sd.dashboard().endswith("/stradask")
    True
    >>> client.shutdown()
    """
    if client is None:
        try:
            client = distributed.default_client()
        except ValueError as error:
            raise DataError(
                "dashboard needs a Dask client: make one with dask.distributed.Client(...) before, or give it"
            ) from error
    if client.asynchronous:
        raise DataError(
            "dashboard waits for the scheduler, which an asynchronous client does not: give a client with "
            "asynchronous=False, or start the scheduler with --preload stradask.scheduler.dashboard.plugin"
        )
    try:
        link = client.dashboard_link
    except KeyError:
        link = None
    if not link:
        raise DataError("the scheduler of this client serves no pages: start it with dashboard_address")
    try:
        client.register_plugin(Dashboard())
    except ImportError as error:
        raise StradaskError(
            f"the scheduler cannot import stradask ({error}): install it there, too"
        ) from error
    return link.removesuffix("/status") + "/stradask"
