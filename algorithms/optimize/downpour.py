"""Downpour SGD: replicas of a model, each on data of its own, over one table of parameters.

A replica fetches the parameters every `n_fetch` steps, takes a minibatch a step, pushes the gradient accrued
over `n_push` steps, and goes on from its own copy meanwhile. Steps are Adagrad's, made on the table's shards:
each parameter's own length falls with the sum of all its squared gradients, from whichever replica.

References
----------
Dean et al., "Large scale distributed deep networks", NIPS 2012. Duchi, Hazan, Singer, "Adaptive subgradient
methods for online learning and stochastic optimization", JMLR 2011.
"""

import functools
import hashlib
import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import OptimizeResult

from ...errors import DataError, shortened
from ...scheduler.parameters import check_count, seed_from, stream
from ...scheduler.table.replicas import run_replicas
from ...scheduler.table.state import Adagrad
from .._streams import Purpose

FINISHED, STILL, NOT_FINITE = 0, 1, 4  # `status` of a result
_RATES = 10.0 ** np.arange(-3.0, 0.6, 0.5)  # among which a learning rate is looked for
_TRIAL_STEPS, _TRIAL_ROWS = 40, 2000  # by which learning rates are tried
_NEAR = 0.01  # of the best gain: rates whose gains differ by less are taken for equals
_WIDTH = 1024  # parameters in a row of the table


def minimize_downpour(
    fun_and_grad,
    x0,
    portions,
    *,
    validation=None,
    evaluate=None,
    learning_rate=None,
    staleness=0,
    n_fetch=1,
    n_push=1,
    batch_size=100,
    max_epochs=100,
    evaluate_every=None,
    n_iter_no_change=10,
    tol=1e-4,
    target=None,
    warm_steps=100,
    engine="local",
    random_state=None,
    callback=None,
    checkpoint=None,
    checkpoint_every=100,
):
    r"""Minimise the mean over rows of a sum over portions, one replica of the model on each portion.

    A step of parameter j against the gradient g of the mean over a minibatch (or the sum of `n_push` such) is

    .. math:: h_j \leftarrow h_j + g_j^2, \qquad w_j \leftarrow w_j - \gamma g_j / \sqrt{h_j}

    Before the replicas begin, one of them alone searches for gamma (`learning_rate`), if it is not given,
    among 0.001 to 3.16 by 40 steps with each, and takes `warm_steps` steps. With ``staleness=0`` the result
    is *bitwise* repeatable, on threads and on Dask alike; so is it with any staleness on a `SimulatedClock`.

    ``fun_and_grad(rows, w)`` returns the sum of a loss over rows of a portion, and its gradient; a penalty is
    the rows' share of it. A portion is an array, a sparse matrix, or a tuple of them; on Dask it may be a
    future. The objective on the `validation` rows, or ``evaluate(validation, w)``, decides when to stop, and
    the best parameters are returned; without it, the mean over the minibatches since the last evaluation,
    which the first replica makes every `evaluate_every` steps (a pass by default). All stop after
    `n_iter_no_change` evaluations without a gain of `tol`, or at `target`. `staleness`: clocks, of `n_push`
    steps each, between the replicas; ``inf`` is the paper's. ``callback(look)``, with `x`, `fun` and `nit`,
    is called on threads only; True stops all. `checkpoint`: folder of states, every `checkpoint_every`
    clocks; a run of the same problem and integer `random_state` goes on from the newest, without staleness
    bitwise.

    Returns an OptimizeResult: ``x``; ``fun``, the last objective, or the best with `validation`; ``nit``,
    clocks of the first replica; ``nfev``, minibatches, and ``samples``, rows of all; ``learning_rate``;
    ``squares``, h at the end; ``success``, ``status`` (0: it stopped by itself, or as `callback` said; 1:
    `max_epochs`; 4: a value, a gradient or its square was not finite, x being the last good point),
    ``message``; ``history``, arrays samples, seconds (simulated if the engine is), loss and objective;
    ``n_recoveries``.
    """
    x0 = _start(x0)
    portions = list(portions)
    if not portions:
        raise DataError("portions is empty: there is one replica for each of them")
    settings = ReplicaSettings(
        fun_and_grad=fun_and_grad,
        evaluate=evaluate,
        n_parameters=len(x0),
        n_fetch=check_count("n_fetch", n_fetch),
        n_push=check_count("n_push", n_push),
        batch_size=check_count("batch_size", batch_size),
        max_epochs=check_count("max_epochs", max_epochs),
        evaluate_every=None if evaluate_every is None else check_count("evaluate_every", evaluate_every),
        patience=check_count("n_iter_no_change", n_iter_no_change),
        tol=_positive("tol", tol, least=0.0),
        target=-math.inf if target is None else float(target),
        warm_steps=check_count("warm_steps", warm_steps, least=0),
        seed=seed_from(random_state),
        callback=callback,
    )
    if callback is not None and engine != "local" and not hasattr(engine, "deliver"):
        raise DataError(
            f"callback is called on threads only, but engine is {shortened(engine)}: leave it out"
        )
    rate = None if learning_rate is None else _positive("learning_rate", learning_rate)
    if evaluate is not None and validation is None:
        raise DataError("evaluate needs validation: the rows that it looks at")
    begun = _begin(settings, rate, x0, portions, engine)
    if begun.trouble:
        return _result(settings, begun, begun.w, begun.squares, [], None)
    values = np.zeros((-(-len(x0) // _WIDTH) + 1, _WIDTH), x0.dtype)  # the last row tells to stop
    slots = np.zeros((len(values), 1, _WIDTH), x0.dtype)
    values[:-1].ravel()[: len(x0)] = begun.w
    slots[:-1].ravel()[: len(x0)] = begun.squares
    run = run_replicas(
        functools.partial(_replica, settings, begun.rate),
        [(portion, validation if number == 0 else None) for number, portion in enumerate(portions)],
        values,
        slots=slots,
        staleness=staleness,
        rule=Adagrad(begun.rate),
        engine=engine,
        checkpoint=checkpoint,
        checkpoint_every=checkpoint_every,
        fingerprint=_identity(settings, x0),
    )
    x, squares = (part[:-1].ravel()[: len(x0)] for part in (run.values, run.slots))
    return _result(settings, begun, x, squares, run.results, run)


def watched(watch, engine, *args, **options):
    """Call `minimize_downpour` under a `Watch`.

    On a cluster the watch learns nothing before the end: its callback is refused, and Ctrl-C raises.
    """
    if engine == "local":
        with watch:
            return minimize_downpour(*args, **options, callback=watch)
    if watch.has_callback:
        raise DataError(
            f"callback with solver='downpour' needs engine='local', got engine={shortened(engine)}"
        )
    return minimize_downpour(*args, **options, engine=engine)


@dataclass(frozen=True, kw_only=True)
class ReplicaSettings:
    """The settings of all replicas."""

    fun_and_grad: Any
    n_parameters: int
    batch_size: int
    seed: int
    evaluate: Any = None
    n_fetch: int = 1
    n_push: int = 1
    max_epochs: int = 1
    evaluate_every: int | None = None
    patience: int = 1
    tol: float = 0.0
    target: float = -math.inf
    warm_steps: int = 0
    callback: Any = None

    def mean(self, rows, w):
        """Value and gradient of the mean over rows; None if they, or its squares, are not finite."""
        value, gradient = self.fun_and_grad(rows, w)
        n = n_rows_of(rows)
        gradient = np.asarray(gradient)
        if gradient.shape != w.shape:
            raise DataError(f"fun_and_grad must return a gradient of shape {w.shape}, got {gradient.shape}")
        most = math.sqrt(np.finfo(w.dtype).max)
        if not (math.isfinite(value) and np.abs(gradient).max() < most):  # also false for NaN
            return None
        return float(value) / n, (gradient / n).astype(w.dtype, copy=False)

    def batches(self, portion, replica):
        """The minibatches of a replica."""
        return Minibatches(portion, self.batch_size, self.seed, replica)


def _identity(settings, x0):
    """Identity of a checkpoint, besides the table; the data are not read."""
    names = ("n_fetch", "n_push", "batch_size", "warm_steps", "seed")
    return {
        "downpour": {name: getattr(settings, name) for name in names},
        "x0": hashlib.blake2b(x0.tobytes(), digest_size=16).hexdigest(),
    }


# One replica alone --------------------------------------------------------------------------------------


class _Begun(NamedTuple):
    """Where the replicas begin."""

    rate: float
    w: np.ndarray
    squares: np.ndarray
    n_steps: int
    trouble: str


def _begin(settings, rate, x0, portions, engine):
    """Look for a learning rate and take the first steps, on the first replica's data."""
    if rate is not None and not settings.warm_steps:
        return _Begun(rate, x0, np.zeros_like(x0), 0, "")
    alone = "local" if hasattr(engine, "deliver") else engine  # what is simulated begins with the replicas
    work = functools.partial(_alone, settings, rate, x0)
    return run_replicas(work, portions[:1], np.zeros((1, 1)), engine=alone).results[0]


def _alone(settings, rate, x0, table, portion):
    batches = settings.batches(portion, 0)
    start = settings.mean(batches[0], x0)
    if start is None:
        return _Begun(rate or math.nan, x0, np.zeros_like(x0), 0, "not finite at x0")
    rate = found_rate(settings, x0, batches) if rate is None else rate
    first = (batches[step] for step in range(settings.warm_steps))
    w, squares, losses = steps(settings, rate, x0, np.zeros_like(x0), first)
    done = len(losses)
    trouble = "" if done == settings.warm_steps else f"not finite at step {done} of the first replica alone"
    return _Begun(rate, w, squares, done, trouble)


def steps(settings, rate, x, squares, minibatches):
    """Take Adagrad's step with one replica for each minibatch, up to one that is not finite.

    Returns parameters, Adagrad's sums of squares, and the loss before each step.
    """
    rule, cells, losses = Adagrad(rate), np.stack([x, squares])[None], list[float]()
    for rows in minibatches:
        evaluated = settings.mean(rows, cells[0, 0])
        if evaluated is None:
            break
        losses.append(evaluated[0])
        rule.apply(cells, evaluated[1][None])
    return cells[0, 0], cells[0, 1], losses


def found_rate(settings, x0, batches):
    """The rate with which some steps lower the objective on a sample most; of near equals the least, since
    long runs want small steps.
    """
    rows = stream(settings.seed, Purpose.FIRST_STEP.value, 0).permutation(batches.n_rows)[:_TRIAL_ROWS]
    sample, values = take_rows(batches.portion, np.sort(rows)), []
    for rate in _RATES:
        first = (batches[step] for step in range(_TRIAL_STEPS))
        w, _, losses = steps(settings, rate, x0, np.zeros_like(x0), first)
        evaluated = settings.mean(sample, w) if len(losses) == _TRIAL_STEPS else None
        values.append(math.inf if evaluated is None else evaluated[0])
    start = settings.mean(sample, x0)
    best = min(values)
    margin = _NEAR * max(0.0, start[0] - best) if start is not None and math.isfinite(best) else 0.0
    return float(_RATES[next(i for i, value in enumerate(values) if value <= best + margin)])


# All replicas -------------------------------------------------------------------------------------------


class _Look(NamedTuple):
    """An evaluation of the objective by the first replica."""

    seconds: float
    loss: float  # mean over the minibatches since the look before
    objective: float


class _Ended(NamedTuple):
    """The result of a replica: seconds after each step, and evaluations of the first one."""

    seconds: list
    looks: list
    best: Any
    trouble: str
    still: bool


def _replica(settings, rate, table, task):
    """Be one replica: fetch, compute, push."""
    portion, validation = task
    batches = settings.batches(portion, table.replica)
    n_steps = settings.max_epochs * batches.in_a_pass
    watch = _Evaluations(settings, batches.in_a_pass, validation) if table.replica == 0 else None
    seconds, trouble, stopped = [], "", False
    for step in range(table.now * settings.n_push, n_steps):
        cells = table.get(refresh=step % settings.n_fetch == 0)
        if stopped := bool(cells[-1].any()):
            break
        w = cells[:-1].ravel()[: settings.n_parameters]
        # The warm start took the first orders of the first replica; its passes go on behind them.
        evaluated = settings.mean(batches[settings.warm_steps + step], w)
        if evaluated is None:
            trouble = f"not finite in portion {table.replica} at step {step}"
            _tell_to_stop(table)
            break
        _push(table, evaluated[1])
        if (step + 1) % settings.n_push == 0:
            table.clock()
        seconds.append(table.seconds)
        if watch is not None and watch.look(step, table.seconds, evaluated[0], w):
            _tell_to_stop(table)
            stopped = True
            break
    looks, best = (watch.looks, watch.best) if watch else ([], None)
    return _Ended(seconds, looks, best, trouble, not stopped)


def _push(table, gradient):
    delta = np.zeros((table.shape[0] - 1, table.shape[1]), table.dtype)
    delta.ravel()[: len(gradient)] = gradient
    table.inc(np.arange(len(delta)), delta)


def _tell_to_stop(table):
    table.inc(table.shape[0] - 1, -1.0)


class _Evaluations:
    """The first replica's looks at the objective: when to stop, and the best parameters."""

    def __init__(self, settings, in_a_pass, validation):
        self.settings, self.validation = settings, validation
        self.every = settings.evaluate_every or in_a_pass
        self.looks, self.best, self.least, self.idle = [], None, math.inf, 0
        self._sum, self._n = 0.0, 0

    def look(self, step, seconds, value, w):
        """Take in a step; True if all should stop."""
        self._sum, self._n = self._sum + value, self._n + 1
        if (step + 1) % self.every:
            return False
        loss = self._sum / self._n
        objective = loss if self.validation is None else self._held_out(w)
        self._sum, self._n = 0.0, 0
        self.looks.append(_Look(seconds, loss, objective))
        self.idle = 0 if objective < self.least - self.settings.tol else self.idle + 1
        if objective < self.least:
            self.least = objective
            self.best = None if self.validation is None else w.copy()
        callback = self.settings.callback
        look: Any = OptimizeResult()
        look |= {"x": w.copy(), "fun": objective, "nit": len(self.looks)}
        asked = callback is not None and callback(look) is True
        return asked or objective <= self.settings.target or self.idle >= self.settings.patience

    def _held_out(self, w):
        if self.settings.evaluate is not None:
            return float(self.settings.evaluate(self.validation, w))
        return float(self.settings.fun_and_grad(self.validation, w)[0]) / n_rows_of(self.validation)


def _result(settings, begun, x, squares, ended, run):
    trouble = begun.trouble or next((end.trouble for end in ended if end.trouble), "")
    looks = ended[0].looks if ended else []
    best = ended[0].best if ended else None
    objectives = np.array([look.objective for look in looks])
    warm = begun.n_steps * settings.batch_size
    samples = [
        warm + settings.batch_size * sum(np.searchsorted(end.seconds, look.seconds, "right") for end in ended)
        for look in looks
    ]
    n_steps = begun.n_steps + sum(len(end.seconds) for end in ended)
    still = bool(ended) and ended[0].still
    status = NOT_FINITE if trouble else STILL if still else FINISHED
    said = {
        FINISHED: "the objective did not fall any more, or reached the target, or the callback stopped it",
        STILL: f"max_epochs={settings.max_epochs} passes were made",
        NOT_FINITE: f"the objective or its gradient is {trouble}; x is the last good point",
    }[status]
    least = len(objectives) and (objectives.min() if best is not None else objectives[-1])
    result: Any = OptimizeResult()
    result |= {
        "x": x if best is None else best,
        "fun": float(least) if len(objectives) else math.nan,
        "nit": len(ended[0].seconds) // settings.n_push if ended else 0,
        "nfev": n_steps,
        "samples": n_steps * settings.batch_size,
        "squares": squares,
        "learning_rate": begun.rate,
        "success": status == FINISHED,
        "status": status,
        "message": said,
        "history": {
            "samples": np.array(samples, np.int64),
            "seconds": np.array([look.seconds for look in looks]),
            "loss": np.array([look.loss for look in looks]),
            "objective": objectives,
        },
        "n_recoveries": run.n_recoveries if run is not None else 0,
    }
    return result


def _start(x0):
    x = np.asarray(x0)
    x = np.array(x, x.dtype if x.dtype in (np.float32, np.float64) else np.float64)
    if x.ndim != 1 or not len(x) or not np.isfinite(x).all():
        raise DataError(
            f"x0 must be a vector of finite numbers, got shape {x.shape}: take zeros, for instance"
        )
    return x


def _positive(name, value, least=None):
    ok = (
        isinstance(value, (int, float, np.number))
        and math.isfinite(value)
        and (value > 0 if least is None else value >= least)
    )
    if not ok:
        raise DataError(
            f"{name} must be a number {'above 0' if least is None else 'of 0 or more'}, got "
            f"{shortened(value)}"
        )
    return float(value)


class Passed(NamedTuple):
    """Where a pass has ended.

    Attributes: `x`, `squares`: array (n_parameters,); parameters, and Adagrad's sums of squared gradients.
    `loss`: the mean over the minibatches, each before its step; NaN where a value or a gradient was not
    finite, `x` being the last good point.
    """

    x: np.ndarray
    squares: np.ndarray
    rate: float
    loss: float


def one_pass(fun_and_grad, x, squares, portion, *, learning_rate, batch_size, seed, number):
    """Take a step of Adagrad's for each minibatch of a portion, all of its rows once in a drawn order.

    `x`, `squares`: array (n_parameters,); where the pass begins; zeros where no gradient has come. Not
    changed. `portion`: array, sparse matrix, or tuple of them. `learning_rate`: gamma; None looks for one, as
    `minimize_downpour` does. `batch_size`: the last minibatch takes what is left. `seed`, `number`: of the
    order: what comes later has another number.
    """
    settings = ReplicaSettings(
        fun_and_grad=fun_and_grad, n_parameters=len(x), batch_size=batch_size, seed=seed
    )
    rate = learning_rate
    if rate is None:
        rate = found_rate(settings, x, settings.batches(portion, 0))
    order = stream(seed, Purpose.ONE_PASS.value, number).permutation(n_rows_of(portion))
    starts = range(0, len(order), batch_size)
    minibatches = (take_rows(portion, order[start : start + batch_size]) for start in starts)
    x, squares, losses = steps(settings, rate, x, squares, minibatches)
    return Passed(x, squares, rate, float(np.mean(losses)) if len(losses) == len(starts) else np.nan)


class Minibatches:
    """The minibatches of a replica: each pass over its portion takes the rows in another order.

    `portion`: array, sparse matrix, or tuple of them. `size`: rows of a minibatch. `replica`: whose orders
    these are. Attributes: `in_a_pass`: minibatches of a pass; what is left over at its end waits for another
    order.
    """

    def __init__(self, portion, size, seed, replica):
        self.portion, self.size, self.seed, self.replica = portion, size, seed, replica
        self.n_rows = n_rows_of(portion)
        self.in_a_pass = max(1, self.n_rows // size)
        self._pass, self._order = -1, np.empty(0, np.int64)

    def __getitem__(self, step):
        number, place = divmod(step, self.in_a_pass)
        if number != self._pass:
            random = stream(self.seed, Purpose.BATCHES.value, number, self.replica)
            self._pass, self._order = number, random.permutation(self.n_rows)
        return take_rows(self.portion, self._order[place * self.size : (place + 1) * self.size])


def n_rows_of(portion):
    """Count the rows of a portion: an array, a sparse matrix, or a tuple of them with equally many."""
    parts = portion if isinstance(portion, (tuple, list)) else (portion,)
    lengths = {part.shape[0] if getattr(part, "shape", ()) else -1 for part in parts}
    if len(lengths) != 1 or min(lengths) < 1:
        raise DataError(
            "a portion must be an array, a sparse matrix or a tuple of them, with equally many rows and at "
            f"least one; got {[(type(part).__name__, *getattr(part, 'shape', ())) for part in parts]}"
        )
    return lengths.pop()


def take_rows(portion, rows):
    """Take some rows of a portion."""
    if isinstance(portion, (tuple, list)):
        return tuple(part[rows] for part in portion)
    return portion[rows]
