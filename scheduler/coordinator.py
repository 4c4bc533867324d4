"""A fit whose loop runs on the cluster, in a task on one of its workers, while this process watches.

The task has all that the call has: the method of an estimator, or the function (`sample`, `minimize`), its
arguments, and references to data that lie elsewhere.
It makes a client of its own, so that the fit uses all workers as it would from outside, and leaves the thread
that Dask counts. It publishes rounds as events of the scheduler; a stop is an event, too. So this process
needs the scheduler alone. The result is a published dataset of a name: `attach` finds it from any process.
"""

import contextlib
import contextvars
import functools
import importlib
import inspect
import io
import pickle
import secrets
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple, ParamSpec, TypeVar

from ..errors import DataError, InterruptedFitWarning, shortened
from .progress import Progress
from .threads import own_threads
from .workers import address_of, is_client

_WAYS = ("auto", "client", "cluster")
_EVERY = 0.25  # seconds between two events of rounds
_PREFIX = "stradask-fit-"
_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")
_coordinates: contextvars.ContextVar[bool] = contextvars.ContextVar("coordinates", default=False)
_reachable: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()  # by client: whether it reaches workers


def client_of(engine):
    """Return the client of a fit that is to run on the cluster, or None for one that runs from here.

    By ``stradask.coordinator`` of Dask's configuration: "cluster", "client", or "auto", the default, which is
    "cluster" for a client that reaches no worker. Only a client of this process is asked, none is made.
    """
    if not isinstance(engine, str) and not is_client(engine):  # a session, or what the fit refuses
        return None
    if engine == "local" and sys.modules.get("distributed") is None:
        return None
    import dask

    way = dask.config.get("stradask.coordinator", "auto")
    if way not in _WAYS:
        raise DataError(
            f"stradask.coordinator={shortened(way)} of Dask's configuration must be one of {_WAYS}"
        )
    client = None if way == "client" or _coordinates.get() else _client(engine)
    if client is None or own_threads() is not None:
        return None
    return client if way == "cluster" or not _reaches(client) else None


def _client(engine):
    import distributed

    if is_client(engine):
        return None if engine.asynchronous or engine.status != "running" else engine
    try:
        client = distributed.default_client()
    except ValueError:
        return None
    same = engine in ("local", "dask") or client.scheduler.address == engine
    return client if same and not client.asynchronous else None


def _reaches(client):
    """Whether this process reaches a worker; looked at once for each client, when there are workers."""
    if client not in _reachable:
        workers = list(client.scheduler_info()["workers"])[:3]
        if not workers:
            return True
        _reachable[client] = client.sync(_any_answers, client, workers)
    return _reachable[client]


async def _any_answers(client, workers):
    import asyncio

    from .sessions.clients import Connections, connect_timeout

    pool = Connections(client)

    async def answers(address):
        try:
            pool.reuse(address, await asyncio.wait_for(pool.connect(address), connect_timeout()))
        except (OSError, TimeoutError):
            return False
        return True

    return any(await asyncio.gather(*map(answers, workers)))


# In this process ------------------------------------------------------------------------------------------


def coordinated(function: Callable[_Given, _Result]) -> Callable[_Given, _Result]:
    """Decorate a function that has an `engine`: its calls run on the cluster where fits do."""

    @functools.wraps(function)
    def call(*args: _Given.args, **given: _Given.kwargs) -> _Result:
        engine: Any = given.get("engine", "local")
        client = None if isinstance(engine, str) and engine == "local" else client_of(engine)
        if client is None:
            return function(*args, **given)
        call_sent = _FunctionCall(function.__module__, function.__name__, args, given)
        return _run_there(client, call_sent, function.__name__, given.get("verbose", 0))

    return call


def on_cluster() -> bool:
    """Whether this is the task of a call whose loop runs on the cluster."""
    return _coordinates.get()


def fit_there(client, estimator, method, args, given):
    """Call a method of an estimator on the cluster, follow it, and take its attributes over.

    Ctrl-C ends it after the round that runs, with the model so far; a second one gives it up.
    """
    call = _MethodCall(estimator, method, args, given)
    fitted = _run_there(client, call, type(estimator).__name__, getattr(estimator, "verbose", 0))
    parameters = estimator.get_params(deep=False)
    vars(estimator).clear()
    vars(estimator).update(vars(fitted) | parameters)
    return estimator


def _run_there(client, call, label, verbose):
    """Run a call in a task, and return what `_followed` does."""
    import dask

    name = dask.config.get("stradask.coordinator-name", None) or secrets.token_hex(4)
    _check_free(client, name)
    payload = _packed(call, label)
    with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 PiB"}):
        key = f"{_PREFIX}{name}-{secrets.token_hex(4)}"
        future = client.submit(_coordinate, payload, name, key=key, pure=False)
    client.publish_dataset(future, name=_PREFIX + name)
    if verbose:
        _say(f"{label}: the fit runs on the cluster as {name!r}, see stradask.attach")
    return _followed(client, future, name, label, verbose)


def _packed(call, label):
    """Pickle a call; futures become those of the client that unpickles them."""
    try:
        return _pickled(call)
    except Exception as error:  # what a pickle raises is up to the value
        for name, value in call.values():
            try:
                _pickled(value)
            except Exception:
                raise DataError(
                    f"{label} runs on the cluster (stradask.coordinator of Dask's configuration), and "
                    f"{name}={shortened(value)} cannot be sent there: {str(error)[:100]}. Leave it "
                    'out, or set stradask.coordinator to "client" where this process reaches the workers'
                ) from error
        raise


def _pickled(call):
    import cloudpickle
    import distributed

    class Pickler(cloudpickle.Pickler):
        def reducer_override(self, value):
            if isinstance(value, distributed.Future):
                return _future, (value.key,)
            if is_client(value):
                return str, (address_of(value),)
            return super().reducer_override(value)

    stream = io.BytesIO()
    Pickler(stream).dump(call)
    return stream.getvalue()


def _future(key):
    import distributed

    return distributed.Future(key, distributed.default_client())


def _check_free(client, name):
    if not isinstance(name, str) or not name:
        raise DataError(f"stradask.coordinator-name={shortened(name)} of Dask's configuration must be a name")
    if _PREFIX + name in client.list_datasets():
        raise DataError(
            f"there is a fit {name!r} on this cluster: fetch it by stradask.attach({name!r}), or choose "
            "another stradask.coordinator-name"
        )


def attach(name: str, *, verbose: int = 1) -> Any:
    """Come back to a fit that runs, or ended, on the cluster of the current Dask client.

    A fit runs there with ``dask.config.set({"stradask.coordinator": "cluster"})``, and where this process
    reaches the scheduler alone. It goes on if the process that began it ends.

    Parameters
    ----------
    name : str
        ``stradask.coordinator-name`` of Dask's configuration when the fit began; without one, what it printed
        with `verbose`.
    verbose : int, default=1
        Whether to show progress.

    Returns
    -------
    estimator
        Fitted. It is fetched once: the cluster then forgets it.

    Warns
    -----
    InterruptedFitWarning
        If Ctrl-C ended the fit, here or elsewhere; the model is that of the rounds before.

    Raises
    ------
    DataError
        If there is no Dask client in this process, or no fit of this name on its cluster.
    Exception
        What the fit raised.

    Examples
    --------
    >>> import dask
    >>> import stradask as sd
    >>> from dask.distributed import Client, LocalCluster
    >>> client = Client(LocalCluster(n_workers=1, processes=False, dashboard_address=None))
    >>> with dask.config.set({"stradask.coordinator": "cluster", "stradask.coordinator-name": "nightly"}):
    ...     model = sd.Ridge(engine="dask").fit([[0.0], [1.0], [2.0]], [1.0, 2.0, 3.0])
    >>> model.n_features_in_
    1
    >>> try:
    ...     sd.attach("weekly")
    ... except sd.errors.DataError as error:
    ...     print(str(error)[:41])
    there is no fit 'weekly' on this cluster;
    >>> client.shutdown()
    """
    import distributed

    try:
        client = distributed.default_client()
    except ValueError as error:
        raise DataError(
            "attach needs a Dask client: make one with dask.distributed.Client(...) before"
        ) from error
    there = client.list_datasets()
    if _PREFIX + str(name) not in there:
        names = [entry.removeprefix(_PREFIX) for entry in map(str, there) if entry.startswith(_PREFIX)]
        raise DataError(f"there is no fit {shortened(name)} on this cluster; it has {names or 'none'}")
    return _followed(client, client.get_dataset(_PREFIX + name), name, name, verbose)


def _followed(client, future, name, label, verbose):
    """Wait for a fit, showing its rounds; return what it returned, and forget the fit."""
    watch = _RoundsShown(label, verbose)
    client.subscribe_topic(_topic(name), watch)
    try:
        with watch:
            try:
                fitted, warned, stopped = future.result()
            except KeyboardInterrupt:
                client.log_event(_topic(name) + "-stop", "stop")
                _say("stopping after this round; Ctrl-C again gives the fit up")
                fitted, warned, stopped = future.result()
    except BaseException:
        client.log_event(_topic(name) + "-stop", "stop")
        client.unpublish_dataset(_PREFIX + name)
        raise
    finally:
        client.unsubscribe_topic(_topic(name))
    client.unpublish_dataset(_PREFIX + name)
    for category, message in warned:
        warnings.warn(category(message), stacklevel=5)
    if stopped:
        warnings.warn(
            InterruptedFitWarning(f"{label} was interrupted; the model so far is kept"), stacklevel=5
        )
    return fitted


def _say(text):
    """Write a line to the screen, if there is one."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()


def _topic(name):
    return _PREFIX + name


class _RoundsShown:
    """Shows the rounds that arrive as events."""

    def __init__(self, label, verbose):
        self._label, self._verbose, self._lock = label, verbose, threading.Lock()
        self._progress: Any = None

    def __call__(self, event):
        """Take an event."""
        _, news = event
        with self._lock:
            if self._progress is None:
                options = {"label": self._label, "unit": "update", "verbose": self._verbose}
                self._progress = Progress(news["total"], **options)
                self._progress.__enter__()
            more = news["round"] - self._progress.done
            if more > 0:
                self._progress.advance(more, objective=news["objective"])

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        with self._lock:
            if self._progress is not None:
                self._progress.__exit__(*exc_info)


# On the worker --------------------------------------------------------------------------------------------


def _coordinate(sent, name):
    """Run a call in a task: return its result, its warnings, and whether it was stopped."""
    import distributed

    worker = distributed.get_worker()
    distributed.secede()
    # A context of its own has no task, in which every engine would be local.
    return contextvars.Context().run(_run, worker, sent, name)


def _run(worker, sent, name):
    import distributed

    _coordinates.set(True)
    address, security = worker.scheduler.address, worker.security
    options = {"security": security, "set_as_default": False, "name": "stradask-coordinator"}
    with distributed.Client(address, **options) as client, client.as_current():
        call = pickle.loads(sent)
        # Its futures are held by two clients now, and this process may go.
        client._send_to_scheduler({"op": "client-desires-keys", "keys": list(client.refcount)})
        stop = threading.Event()
        client.subscribe_topic(_topic(name) + "-stop", lambda event: stop.set())
        if client.get_events(_topic(name) + "-stop"):
            stop.set()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("default")
            result = call.run(functools.partial(_reporter, client, name, stop))
        warned = [(one.category, str(one.message)) for one in caught]
        return result, warned, stop.is_set()


class _MethodCall(NamedTuple):
    """A call of a method of an estimator, which returns the estimator."""

    estimator: Any
    method: str
    args: tuple
    given: dict

    def values(self):
        """Names and values of what is sent."""
        arguments = inspect.signature(getattr(type(self.estimator), self.method)).bind(
            self.estimator, *self.args, **self.given
        )
        return [*list(arguments.arguments.items())[1:], *self.estimator.get_params(deep=False).items()]

    def run(self, reporter):
        """Fit, and leave the parameters as they were given."""
        estimator, given = self.estimator, self.given
        before = estimator.get_params(deep=False)
        estimator.engine = _engine_here(estimator.engine)
        if "verbose" in before:
            estimator.verbose = 0
        if "callback" in inspect.signature(getattr(type(estimator), self.method)).parameters:
            given = given | {"callback": reporter(given.get("callback"))}
        getattr(estimator, self.method)(*self.args, **given)
        vars(estimator).update(before)
        return estimator


class _FunctionCall(NamedTuple):
    """A call of a function of this package, by its name; it has `engine`, `verbose` and `callback`."""

    module: str
    name: str
    args: tuple
    given: dict

    def values(self):
        """Names and values of what is sent."""
        return list(inspect.signature(self._function()).bind(*self.args, **self.given).arguments.items())

    def _function(self):
        return getattr(importlib.import_module(self.module), self.name)

    def run(self, reporter):
        """Call it."""
        function = self._function()
        steps = inspect.signature(function).parameters.get("max_iter")
        total = None if steps is None else self.given.get("max_iter", steps.default)
        own = {"engine": _engine_here(self.given["engine"]), "verbose": 0}
        own["callback"] = reporter(self.given.get("callback"), total)
        return function(*self.args, **(self.given | own))


def _engine_here(engine):
    """The engine on a worker: an address is that of outside."""
    return "dask" if "://" in engine else engine


def _reporter(client, name, stop, callback, total=None):
    """A callback that publishes rounds, calls the caller's, and ends the fit that is to stop.

    It gets the information of a round, or an iterate of `minimize`, of at most `total`.
    """
    last = [0.0]

    def report(info):
        now = time.monotonic()
        if total is None:
            round, last_round, objective = info.round, info.total, info.objective
        else:
            round, last_round, objective = info.nit, total, info.fun
        if now - last[0] >= _EVERY or round == last_round:
            last[0] = now
            figures = {"round": int(round), "total": int(last_round), "objective": float(objective)}
            client.log_event(_topic(name), figures)
        asked = callback(info) if callback is not None else None
        return True if stop.is_set() else asked

    return report
