"""Sessions in this process, on its threads, without a cluster."""

from typing import Any

from ..history import Activity
from ..program import Task, barriers
from ..stores.saved import (
    check_complete,
    check_same_form,
    check_saved,
    differing,
    is_saved,
    laid_over,
    twin_of,
)
from ..stores.trial import fault, update
from ..threads import effective_n_jobs, run_tasks
from .routes import joined_of


class LocalSession:
    """The reference session: holds the shards of a program and runs its calls, on threads, by reference.

    A *step* is a list of (shard, blocks); no shard and, where blocks travel, no block is in it twice. The
    tasks of a step run on `n_jobs` threads of the process's pool.

    Attributes
    ----------
    remote : bool
        Whether `WorkerLost` can come; `open` then begins anew, on the workers that there are.
    bytes_sent : int
        Bytes of arrays that left a process since the session was opened.
    waiting : float
        Seconds that shards waited for blocks or for one another, summed over workers.
    activity : Activity
        Empty where there are no workers.
    joined
        What a program that joins tells of all barriers of the last `run`; None for nothing.
    """

    remote = False
    bytes_sent = 0
    waiting = 0.0
    joined: Any = None

    def __init__(self, n_jobs=None):
        self.n_jobs = effective_n_jobs(n_jobs)
        self.activity = Activity()

    def open(self, program, snapshot=None):
        """Load every shard, make every travelling block, and lay a `snapshot` over them."""
        self.program = program
        loads = [(program.load, (data,)) for data in program.shards]
        self.states = run_tasks(loads, program.loads_at_once or self.n_jobs)
        for state in self.states if program.saved else ():
            check_saved(program, state)
        self.reports = [program.report(state) for state in self.states]
        self._first = self._ahead = set[int]()
        self.blocks: Any = [program.block(b) for b in range(program.n_blocks)] if program.travels else None
        if snapshot is not None:
            check_complete(program, snapshot)
        for name, array in (snapshot or {}).items():
            self._lay_over(name, array)

    def _lay_over(self, name, array):
        """Restore an array of a snapshot, which may come from a file."""
        place, _, key = name.partition("/")
        kind, _, number = place.partition("-")
        if kind == "block":
            self.blocks[int(number)] = laid_over(self.program, int(number), array, self.blocks[int(number)])
        else:
            for shard, there in enumerate(self.states):
                if twin_of(self.program, shard) == int(number):
                    check_same_form(name, array, there[key])
                    there[key] = array.copy()

    def run(self, round, first, steps, messages, later=()):
        """Give every shard the messages, carry out steps in order; return partial results in that order.

        The steps are those of the round that begin with number `first`. Called again for the same round and
        step, after `WorkerLost` and `open`, it does them again. `later` are the steps that follow.
        """
        self._sync(messages)
        partials: list = []
        self.joined, joins = None, self.program.joins
        for begin, part in barriers(self.program, steps) if joins else [(0, steps)]:
            done = self._run_rest(round, first + begin, steps[begin:])
            if done is not None:
                return partials + done
            if self.blocks is not None and part:
                self._read_ahead(first + begin, part, [*steps[begin + len(part) :], *later])
            found = [
                partial
                for number, step in enumerate(part, first + begin)
                for partial in run_tasks(
                    [(self._update, (round, number, *pair)) for pair in step], self.n_jobs
                )
            ]
            partials += found
            self._join(self.program.join(found) if joins else None)
        return partials

    def _run_rest(self, round, first, steps):
        """Let the program carry out steps by itself, if it does; return their partial results."""
        done = self.program.run_steps(self.states, self.blocks, round, first, steps, self.n_jobs)
        if done is None:
            return None
        partials, joined = done
        self._join(joined)
        return partials

    def _join(self, joined):
        if joined is not None:
            message = self.program.message_of(self.states[0], joined)
            self._sync([message])
            reported = self.program.reported(joined, message)
            self.joined = joined_of(self.program.join, (self.joined, reported))

    def _read_ahead(self, first, steps, later):
        """Announce to the program, once a turn, the shards that follow those of these steps."""
        here = {shard for step in steps for shard, _ in step}
        if not first:
            self._first = here  # they come again in the next round
        parties = ({shard for shard, _ in step} for step in later)
        after = next((party for party in parties if party != here), self._first)
        if after != here and after != self._ahead:
            for shard in after - here:
                self.program.read_ahead(self.states[shard])
        self._ahead = after

    def _update(self, round, step, shard, blocks):
        task = Task(round, step, shard, blocks, None if self.blocks is None else self.blocks[blocks])
        partial = update(self.program, self.states[shard], task)
        if self.blocks is not None:
            self.blocks[blocks] = task.value
        return partial

    def measure(self, messages, method="measure"):
        """Give every shard the messages, then call a method of the program for each."""
        self._sync(messages)
        asked = getattr(self.program, method)
        return run_tasks([(asked, (state,)) for state in self.states], self.n_jobs)

    def measure_blocks(self, messages, method, *args):
        """Call ``method(block, value, *args)`` of the program for each block; it changes no value."""
        self._sync(messages)
        asked = getattr(self.program, method)
        return run_tasks([(asked, (b, value, *args)) for b, value in enumerate(self.blocks)], self.n_jobs)

    def snapshot(self, messages):
        """Copy what `Program.saved` names, as ``"shard-3/residual"``, and packed blocks, as ``"block-7"``."""
        self._sync(messages)
        arrays = {
            f"shard-{s}/{name}": state[name].copy()
            for s, state in enumerate(self.states)
            for name in self.program.saved
            if is_saved(self.program, s)
        }
        pack = self.program.pack
        arrays.update((f"block-{b}", pack(b, value).copy()) for b, value in enumerate(self.blocks or ()))
        return arrays

    def copies(self, messages):
        """Workers would keep large snapshots, and return `Copies`; in one process the coordinator does."""
        return None

    def differing(self, program, trial):
        """Make the first shard again."""
        return differing(program, self.states[0], program.shards[0], trial)

    def fault(self, program, as_opened, messages, task):
        """Try the program on copies, with the first shard."""
        return fault(program, as_opened, self.states[0], messages, task)

    def n_threads(self):
        """Count the threads that work at once."""
        return self.n_jobs

    def close(self):
        """Let go of the shards."""
        self.states = self.blocks = None

    def _sync(self, messages):
        for message in messages:
            run_tasks([(self.program.sync, (state, message)) for state in self.states], self.n_jobs)
