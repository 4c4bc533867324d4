"""The engine: carries out a schedule's rounds in a session, keeps the history and recovers lost workers."""

import copy
import time
import warnings
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import numpy as np

from .._typing import Callback, FileName
from ..errors import DataError, ModelFileError, StradaskError, WorkerLost, in_brief, shortened
from .history import History, Run
from .loop import any_of, broken_off, check_end, iterate, small_change, time_over
from .parameters import ATTEMPTS
from .program import Outcome, Program, Task, barriers, is_nothing, own_figures
from .schedules.schedule import blocks_of, check_plan, events_of, plan_as_json, plan_from_json
from .stores.copies import Copies, CopiesLost
from .stores.saved import check_forgotten, check_restores, check_twins, first_task, identity_of
from .stores.shared_store import SharedCheckpoint, StoredState, open_checkpoint
from .stores.trial import check_on_workers, copied
from .workers import open_session

_OWN = ("program/", "schedule/", "draws/")  # arrays of a checkpoint that belong to no shard or block
_KEEP_SECONDS, _KEEP_SHARE = 5.0, 20.0  # between snapshots: at least these, and this multiple of their cost


def run(
    program: Program,
    schedule: Any,
    *,
    max_rounds: int,
    engine: Any = "local",
    n_jobs: int | None = None,
    tol: float | None = None,
    max_seconds: float | None = None,
    stop: Any = None,
    callback: Callback | None = None,
    snapshot: Any = None,
    checkpoint: FileName | None = None,
    checkpoint_every: int = 10,
    draws: Any = None,
    fingerprint: Any = None,
    label: str | None = None,
    verbose: int = 0,
    check: bool = True,
) -> Run:
    """Run a program: the one loop of all model-parallel algorithms.

    Each round the schedule plans, the session carries the plan out, and the program makes something of it
    (see `Program`). Ctrl-C ends the run after the round with an `InterruptedFitWarning`. A lost
    worker's shards are read again elsewhere and the rounds since the last snapshot are done again; since
    plans and random streams depend on the round alone, the result is *bitwise* that of a run without the
    loss, and the same on any number of threads and workers.

    Parameters
    ----------
    program : Program
        Its coordinator's state is changed.
    schedule : Schedule
        Takes the numbers of shards and blocks that it does not have from the program.
    max_rounds : int
        Rounds in all, those before a checkpoint included.
    engine : str, distributed.Client or Session, default="local"
        ``"local"``: threads of this process; ``"dask"``: the current Dask client; a client; or the address of
        a Dask scheduler, ``"tcp://host:8786"``.
    n_jobs : int or None, default=None
        Threads, as in scikit-learn; on Dask threads of each worker, None for as many as it has.
    tol : float or None, default=None
        Stop when the measured objective changes by no more than this part of itself.
    max_seconds : float or None, default=None
        Stop after the round in which this call has lasted so long.
    stop : callable, optional
        ``stop(history)`` returns True or a reason to stop; ``history.figures`` are the program's own
        (`Outcome.figures`).
    callback : callable, optional
        ``callback(info)`` after each round with a `stradask.scheduler.loop.Round`; True stops.
    snapshot : callable, optional
        ``snapshot(history)`` gives the model as it is, for ``info.snapshot()`` of the callbacks; of a program
        whose `collect` returns something it is ``snapshot(history, fetched)``.
    checkpoint : path-like or None, default=None
        Folder of states, or a URL for fsspec, where workers write and read their shards themselves. A run of
        the same `fingerprint` goes on from there.
    checkpoint_every : int, default=10
        Rounds between two states.
    draws : object, optional
        ``draws.take(round, collect)`` is called after each round, before its checkpoint, into which its
        ``arrays()`` go, for ``restore``; ``collect(**options)`` gives what `Program.collect` returns.
    fingerprint : dict, optional
        What a state belongs to, parameters and hashes of data, as JSON can hold them.
    label : str, optional
        Before the bar and in warnings; by default the program's class.
    verbose : int, default=0
        1 shows a progress bar.
    check : bool, default=True
        Whether a program of your own is tried in its first round: `sync`, `measure` and `update` of the first
        shard are called some times more, on copies, and must do on a worker what they do on threads. Programs
        and states above 64 MiB, and what cannot be copied, are not tried.

    Returns
    -------
    Run

    Raises
    ------
    DataError
        If the schedule was made for other numbers of shards or blocks than the program has; if `saved` is
        seen to forget a part of a shard's state, at the first checkpoint or snapshot; if `update`, `sync` or
        `measure` is seen to write ``self``, or to depend on what the coordinator changes in it (`check`).
    WorkerLost
        If five attempts at one round each lost a worker.
    CheckpointMismatch
        If `checkpoint` holds a run of another fingerprint.

    Examples
    --------
    See `Program`.
    """
    store = None if checkpoint is None else open_checkpoint(checkpoint)
    schedule = schedule.bound(len(program.shards), int(program.n_blocks))
    if store is not None:
        fingerprint = (fingerprint or {}) | identity_of(program, schedule)
    machine = Engine(program, schedule, open_session(engine, n_jobs), store, fingerprint, draws, check)
    enough = any_of(broken_off(program), small_change(tol), stop, time_over(max_seconds))
    try:
        start = machine.open()
        history = machine.history
        ended = machine.done or (len(history) and any_of(small_change(tol), stop)(history))
        if ended:  # a run that had come to its end before
            reason = ended if isinstance(ended, str) else "converged"
            return machine.result(start, reason)

        def collect(**options):
            return program.collect(machine.ask, **options)

        def looked():
            found = collect()
            return snapshot(history) if found is None else snapshot(history, found)

        def on_round(info):
            if draws is not None:
                draws.take(info.round, collect)
            if store is not None and info.round % checkpoint_every == 0:
                machine.save(info.round)

        label = label or type(program).__name__
        n_done, reason = iterate(
            machine.step,
            max(max_rounds - start, 0),
            history=history,
            label=label,
            unit=program.unit,
            verbose=verbose,
            callback=callback,
            on_round=on_round,
            stop=enough,
            snapshot=None if snapshot is None else looked,
            start=start,
        )
        saved = not n_done or (start + n_done) % checkpoint_every == 0
        if store is not None and not saved and not machine.save(start + n_done):
            warnings.warn(
                f"a worker was lost while the last state was fetched: {store.path} has the one before it",
                stacklevel=2,
            )
        return machine.result(start + n_done, check_end(program, history, reason, label))
    finally:
        machine.close()


class Engine:
    """Runs the rounds of one program in one session, and does them again after a loss."""

    def __init__(self, program, schedule, session, store=None, fingerprint=None, draws=None, check=True):
        self.program, self.schedule, self.session = program, schedule, session
        self.store, self.fingerprint, self.draws = store, fingerprint, draws
        # Whether workers write, and read, their shards themselves.
        self._shares = session.remote and isinstance(store, SharedCheckpoint)
        self.history = History()
        self.n_recoveries = 0
        self._plan: list | None = None  # of the next round, if it was prepared ahead
        self._checked: Any = None  # the last plan that was checked
        self._pending: list = []  # messages that the shards have not been given
        self._planner = ThreadPoolExecutor(1, "stradask-plan") if schedule.lookahead else None
        # Whether a lost worker costs more than the step that was running: if shards hold what neither
        # `load` nor `publish` gives back, or the coordinator has gone on before the round is over.
        held = bool(program.saved) or program.travels or program.barrier != "round"
        self._rewinds = session.remote and held
        self._done: bool | str = False
        self._done_rounds = 0
        self._tried = False  # whether a snapshot was seen to give back a shard
        self._is_users = program.is_users
        self._as_opened: Any = None  # a copy of the program
        self._checks = self._untried = check and self._is_users
        if program.twins is not None:
            check_twins(program)
        if schedule.lookahead not in (0, 1):
            raise DataError(
                f"lookahead must be 0 or 1, got {shortened(schedule.lookahead)}: one round is planned ahead"
            )
        if self._rewinds:
            check_restores(program)

    def open(self):
        """Load all shards, from the newest state of a checkpoint if there is one; return the rounds done."""
        self._state = self.schedule.start()
        if self._shares:
            self.session.probe(self.store)
        found = None if self.store is None else self.store.load(self.fingerprint)
        round_, shards = 0, None
        if found is not None:
            round_, arrays, header = found
            own = {name: a for name, a in arrays.items() if name.startswith(_OWN)}
            shards = {name: a for name, a in arrays.items() if name not in own}
            if isinstance(self.store, SharedCheckpoint):
                state = self.store.state(round_)
                shards = state if self._shares else state.arrays()
            try:
                self.history = History.from_dict(header["history"])
                if self.history.last_round > round_:
                    raise ValueError(f"its history ends with round {self.history.last_round}")
                self._restore(own, plan_from_json(header["plan"], self.program, self.schedule))
                self._done = header["done"]
            except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
                if isinstance(error, StradaskError):
                    raise
                raise ModelFileError(
                    f"the checkpoint of round {round_} does not hold what this fit needs "
                    f"({in_brief(error, 200)}); remove the folder to start anew"
                ) from error
        if self._rewinds:
            self._kept = self._base = _Kept(round_, _copied(self._coordinator()), self._plan, shards)
        self._open_session(shards)
        self._done_rounds = round_
        return round_

    def close(self):
        """End the session."""
        if self._planner is not None:
            self._planner.shutdown()
        self.session.close()

    # One round ------------------------------------------------------------------------------------

    def step(self, r):
        """Do round r, as often as workers are lost in it; return its figures for the history."""
        for attempt in range(ATTEMPTS):
            sent, waited, began = self.session.bytes_sent, self.session.waiting, time.monotonic()
            try:
                if attempt:
                    self._recover(r)
                figures = self._round(r)
                self._keep(r + 1)
            except WorkerLost as error:
                lost = error
                continue
            figures["bytes_sent"] = self.session.bytes_sent - sent
            figures["waiting"] = self.session.waiting - waited
            if self.session.remote:
                figures["shown"] = self._shown(r, figures, time.monotonic() - began)
            self._done_rounds = r + 1
            return figures
        raise WorkerLost(
            f"round {r + 1} lost a worker {ATTEMPTS} times; does it need more memory than a worker has? "
            f"({lost})"
        ) from lost

    def _round(self, r):
        plan = self._plan = self.schedule.plan(r, self._state) if self._plan is None else self._plan
        if plan is not self._checked:  # a schedule may give the same plan again
            check_plan(plan, self.program, self.schedule)
            self._checked = plan
        ahead = self._planner and self._planner.submit(self.schedule.plan, r + 1, self._state)
        figures: dict[str, Any] = {"updates": 0, "staleness": float(self.schedule.lookahead)}
        events: list[tuple] = []
        try:
            for first, steps in [(0, plan)] if self.program.joins else barriers(self.program, plan):
                later = plan[first + len(steps) :] if self.program.travels else []
                partials = self.session.run(r, first, steps, self._pending, later)
                self._pending = []
                places = [(n, *pair) for n, step in enumerate(steps, first) for pair in step]
                if self.program.joins:
                    self.program.hear(self.session.joined)
                    left = [at for at, partial in enumerate(partials) if not is_nothing(partial)]
                    places, partials = [places[at] for at in left], [partials[at] for at in left]
                tasks = [Task(r, *place) for place in places]
                outcome = self.program.aggregate(tasks, self._apart(partials))
                if outcome is not None:
                    self._take(outcome, tasks, figures, events)
        finally:  # no plan is being made when the state changes; a round done again has its old plan
            if ahead:
                wait([ahead])
        self._plan = ahead.result() if ahead else None
        if self._untried:
            self._untried, task = False, first_task(plan, r)
            check_on_workers(self.program, self.session, self._as_opened, self._pending, task)
            self._as_opened = None
        for blocks, priorities, others in events:
            self.schedule.observe(self._state, r, blocks, priorities)
            if others is not None:
                self.schedule.prioritise(self._state, *others)
        if self._measured and (r + 1) % self.program.measure_every == 0:
            figures["objective"] = self.program.objective(self._measure())
        return figures

    def _apart(self, value):
        """Copy what goes between shards and the coordinator of a user's program on threads, as workers do."""
        if self.session.remote or not self._is_users:
            return value
        try:
            return copy.deepcopy(value)
        except Exception:  # it holds a lock, a file or the like: almost anything may be raised
            return value

    def _shown(self, r, figures, seconds):
        """Return what the progress bar shows of the workers."""
        rows = self.session.activity.of_round(r + 1)
        n_workers = len({row["worker"] for row in rows})
        waiting, working = (sum(row[name] for row in rows) for name in ("waiting", "working"))
        speed = figures["updates"] / max(n_workers, 1) / max(seconds, 1e-9)
        return {
            "workers": n_workers,
            f"{self.program.unit}s/s each": float(f"{speed:.3g}"),
            "waiting %": round(100 * waiting / max(waiting + working, 1e-9)),
            "MB sent": round(figures["bytes_sent"] / 1e6, 2),
        }

    def ask(self, function):
        """Call ``function(session, messages)`` between two rounds, again after a loss."""
        for attempt in range(ATTEMPTS):
            try:
                if attempt:
                    self._recover(self._done_rounds)
                answer = function(self.session, self._pending)
            except WorkerLost:
                if attempt + 1 == ATTEMPTS:
                    raise
            else:
                self._pending = []
                return answer
        raise AssertionError("unreachable")

    def _measure(self):
        """Measure the shards; after a loss again, unless rounds have to be done again too."""
        for attempt in range(ATTEMPTS):
            try:
                parts = self.session.measure(self._pending)
            except WorkerLost:
                if self._rewinds or attempt + 1 == ATTEMPTS:
                    raise
                self.n_recoveries += 1
                self._open_session(None)
            else:
                self._pending = []
                return parts
        raise AssertionError("unreachable")

    def _take(self, outcome, tasks, figures, events):
        if not isinstance(outcome, Outcome):
            raise DataError(
                f"{type(self.program).__name__}.aggregate must return an Outcome or None, got "
                f"{shortened(outcome)}"
            )
        if outcome.message is not None:
            self._pending.append(self._apart(outcome.message))
        if not np.isnan(outcome.objective):
            figures["objective"] = outcome.objective
        if not np.isnan(outcome.gap):
            figures["gap"] = outcome.gap
        figures["updates"] += outcome.updates
        figures["done"] = self._done = outcome.done or figures.get("done", False)
        if outcome.figures is not None:
            figures["own"] = figures.get("own", {}) | own_figures(self.program, outcome.figures)
        if outcome.priorities is not None:
            events.append(events_of(self.program, blocks_of(tasks), outcome.priorities))

    def result(self, n_rounds, reason):
        """Let the program collect what shards and blocks hold; return the `Run`."""
        found = self.program.collect(self.ask)
        activity = self.session.activity if self.session.remote else None
        return Run(self.history, n_rounds, reason, self.n_recoveries, found, activity)

    @property
    def done(self):
        """Whether, or why, the program said that it is done."""
        return self._done

    @property
    def _measured(self):
        return bool(self.program.measure_every) and type(self.program).measure is not Program.measure

    # Losses and checkpoints -------------------------------------------------------------------------

    def _recover(self, r):
        """Open the session on the workers that are left and come back to the beginning of round r."""
        self.n_recoveries += 1
        if not self._rewinds:
            self._open_session(None)
            return
        try:
            self._return_to(self._kept)
        except CopiesLost:
            self._kept = self._base
            self._return_to(self._kept)
        for again in range(self._kept.round, r):
            self._round(again)
            self._keep(again + 1)

    def _return_to(self, kept):
        self._restore(_copied(kept.coordinator), kept.plan)
        self._open_session(kept.shards)

    def _open_session(self, shards):
        self.session.open(self.program, shards)
        if self._untried and not self.session.remote:
            self._as_opened = copied(self.program)
        message = self.program.publish()
        self._pending = [] if message is None else [message]

    def _coordinator(self):
        """Return the arrays of program and schedule, not copied."""
        arrays = {f"program/{name}": np.asarray(value) for name, value in self.program.arrays().items()}
        return arrays | {f"schedule/{name}": value for name, value in self._state.items()}

    def _restore(self, arrays, plan):
        parts: dict[str, dict] = {"program": {}, "schedule": {}, "draws": {}}
        for name, value in arrays.items():
            kind, _, key = name.partition("/")
            parts[kind][key] = value
        self.program.restore(parts["program"])
        if self.draws is not None and parts["draws"]:
            self.draws.restore(parts["draws"])
        self._state, self._plan = parts["schedule"], plan

    def _keep(self, round_):
        """Take a snapshot into memory from time to time, so that a lost worker costs seconds."""
        if not self._rewinds:
            return
        shards = self._kept.shards
        thin = isinstance(shards, Copies) and not self.session.has(shards.workers())
        # A program is not refused or let pass by a clock: the first round's is tried.
        if thin or time.monotonic() >= self._kept.due or (self._checks and not self._tried):
            self._snapshot(round_, on_workers=True)

    def _snapshot(self, round_, on_workers=False):
        """Return coordinator, shards and blocks; keep them where rounds may be done again."""
        began = time.monotonic()
        shards: Any
        if self._shares:
            folder = self.store.folder_for(round_)
            sizes = self.session.store(self._pending, self.store.url, folder)
            shards = StoredState(self.store.url, folder, sizes)
            self.store.check_seen(shards)
        else:
            shards = self.session.copies(self._pending) if on_workers else None
            if shards is None:
                shards = self.session.snapshot(self._pending)
        self._pending = []
        if not self._tried:
            plan = self._plan or self.schedule.plan(round_, self._state)
            check_forgotten(self.program, self.session, shards, plan, round_)
            self._tried = True
        coordinator = self._coordinator()
        if self._rewinds:
            cost = time.monotonic() - began
            self._kept = _Kept(round_, _copied(coordinator), self._plan, shards, cost)
            if isinstance(shards, Copies):
                self.session.forget_copies(shards.number)
            else:
                self._base = self._kept
        if self._shares:
            self.store.tidy()
        return coordinator, shards

    def save(self, round_):
        """Write a checkpoint; False if a worker was lost meanwhile, which the next round repairs."""
        try:
            coordinator, shards = self._snapshot(round_)
        except WorkerLost:
            return False
        if self.draws is not None:
            coordinator |= {f"draws/{name}": array for name, array in self.draws.arrays().items()}
        columns = {name: values.tolist() for name, values in self.history.as_dict().items()}
        header = {"history": columns, "plan": plan_as_json(self._plan), "done": self._done}
        if self._shares:
            self.store.finish(round_, shards, coordinator, header, self.fingerprint)
        else:
            self.store.save(round_, coordinator | shards, header, self.fingerprint)
        return True


class _Kept:
    """A snapshot from which rounds can be done again."""

    def __init__(self, round_, coordinator, plan, shards, cost=0.0):
        self.round, self.coordinator, self.plan, self.shards = round_, coordinator, plan, shards
        self.due = time.monotonic() + max(_KEEP_SECONDS, _KEEP_SHARE * cost)


def _copied(arrays):
    return {name: array.copy() for name, array in arrays.items()}
