"""The tasks of one call on one worker."""

import bisect
import time
from collections import Counter, defaultdict, deque
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..program import Task, is_nothing
from ..stores.trial import update
from ..threads import run_tasks
from .payloads import payload_bytes
from .routes import Barriers, joined_of
from .shards import StaleEpoch


@dataclass(frozen=True)
class Packed:
    """A block as it came from another worker."""

    array: np.ndarray

    def usable(self):
        """Return it as kernels want it: it may begin anywhere."""
        return np.require(self.array, requirements=["ALIGNED", "WRITEABLE"])


class CallTasks:
    """The tasks of one call, done by the worker's threads as shards and blocks become free.

    A thread takes the first task, in the order of steps, whose shard is idle and whose block is here. No
    thread waits while there is such a task, so any number of threads completes any plan. At a barrier one of
    them joins what the shards receive with other workers, and hands it to the shards here. Of a program that
    `takes_together` a thread takes its part of the tasks of a step at once, after those whose blocks go on.

    Attributes
    ----------
    partials : dict
        Partial results by position; where there are barriers, those of which something is left.
    seconds : dict
        Of work, by shard.
    sent, waited
        Bytes that were sent, and seconds without a task.
    joined : object
        What is reported to the coordinator of all barriers together.
    """

    def __init__(self, worker_state, round_, assignments, barriers: Barriers | None = None):
        self.worker_state, self.round, self.barriers = worker_state, round_, barriers
        self._takes_together = barriers is not None and worker_state.program.takes_together
        self.chains: dict[int, deque] = defaultdict(deque)  # of each shard: what is left to do
        self._firsts = [0] if barriers is None else barriers.firsts
        self._parts: list[list] = [[] for _ in self._firsts]  # positions
        for assignment in sorted(assignments, key=lambda a: a.position):
            if assignment.shard not in worker_state.states:
                raise StaleEpoch(f"shard {assignment.shard} is not here")
            self.chains[assignment.shard].append(assignment)
            self._parts[self._part(assignment)].append(assignment.position)
        self._now, self._left = 0, len(self._parts[0])  # the part that may be worked on, and its tasks to do
        self.busy: set[int] = set()
        # By step and worker to which blocks go: how many will, and those that wait to go together.
        self._going = Counter((a.step, a.to) for a in assignments if a.to)
        self._leaving: dict[tuple, list] = defaultdict(list)
        self.partials: dict[int, Any] = {}
        self.seconds: dict[int, float] = dict.fromkeys(self.chains, 0.0)
        self.sent, self.waited, self.joined = 0, 0.0, None
        self._idle_since: float | None = None

    def _part(self, a):
        return 0 if self.barriers is None else bisect.bisect_right(self._firsts, a.step) - 1

    def carry_out(self):
        """Do all tasks; return when the last one is done, or raise the error that ended the epoch."""
        n_threads = min(self.worker_state.n_threads, max(len(self.chains), self.barriers is not None))
        run_tasks([self._work] * n_threads, max(n_threads, 1))
        self.worker_state.check()

    def _work(self):
        try:
            while (found := self._next()) is not None:
                if found is _MEET:
                    self._meet()
                else:
                    self._do(found)
        except BaseException as error:
            self.worker_state.fail(error)  # the other threads may be waiting for what this one will not send
            raise

    def _next(self):
        """Wait for tasks that can be done; return them and their blocks, `_MEET`, or None if none is left."""
        worker_state = self.worker_state
        with worker_state.changed:
            while worker_state.failure is None:
                idle = (chain for shard, chain in self.chains.items() if shard not in self.busy)
                ready = [chain[0] for chain in idle if self._here(chain[0])]
                if ready:
                    taken = [self._taken(a) for a in self._together(ready)]
                    self._read_ahead(ready)
                    return taken
                if not self.chains and (self.barriers is None or self.busy or self._now == len(self._parts)):
                    return None
                if not self.busy and self._idle_since is None:
                    self._idle_since = time.monotonic()
                if self.barriers is not None and not self._left:
                    self._left = -1  # no other call goes
                    return _MEET
                worker_state.changed.wait()
            return None

    def _here(self, a):
        if self.barriers is not None and self._part(a) != self._now:
            return False
        return a.stamp < 0 or (
            self.worker_state.stamps.get(a.blocks) == a.stamp and a.blocks in self.worker_state.blocks
        )

    def _together(self, ready):
        """Of tasks that can be done, those that a thread does next."""
        first = min(ready, key=lambda a: a.position)
        if not self._takes_together:
            return [first]
        step = sorted((a for a in ready if a.step == first.step), key=lambda a: a.position)
        leaving = [a for a in step if a.to]
        if leaving:  # one by one: each sets out while the next is worked on
            return leaving[:1]
        return step[: -(-len(step) // self.worker_state.n_threads)]

    def _read_ahead(self, ready):
        """Have the program fetch what the next of these tasks needs."""
        program, states = self.worker_state.program, self.worker_state.states
        following = [a for a in ready if a.shard not in self.busy] if program.on_disk else []
        if following:
            a = min(following, key=lambda a: a.position)
            program.read_ahead(states[a.shard], a.blocks)

    def _taken(self, a):
        self._end_idle()
        chain = self.chains[a.shard]
        chain.popleft()
        if not chain:
            del self.chains[a.shard]
        self.busy.add(a.shard)
        return a, None if a.stamp < 0 else self.worker_state.blocks.pop(a.blocks)

    def _end_idle(self):
        if self._idle_since is not None:
            self.waited += time.monotonic() - self._idle_since
            self._idle_since = None

    def _do(self, found):
        worker_state, began = self.worker_state, time.monotonic()
        partials, values = self._updated(found)
        payload_bytes(partials)
        ended = time.monotonic()
        worked = (ended - began) / len(found)  # of each: what counts are those of all shards together
        done = []
        for (a, _), partial, value in zip(found, partials, values, strict=True):
            done.append((a, partial, worker_state.packed(a.blocks, value) if a.to else None))
            if a.stamp >= 0 and not a.to:
                worker_state.put(a.blocks, a.stamp + 1, value)
        with worker_state.changed:
            leaving = []
            for a, partial, packed in done:
                self.partials[a.position] = partial
                self.seconds[a.shard] += worked
                self.busy.discard(a.shard)
                leaving.append((a.to, self._going_together(a, packed) if a.to else []))
            self._left -= len(found)
            worker_state.changed.notify_all()
        for to, together in leaving:
            if together:
                worker_state.send_off(to, together, ended)

    def _updated(self, found):
        """Do tasks; return their partial results, and the blocks as they are then."""
        program, states, tasks = self.worker_state.program, [], []
        for a, value in found:
            if type(value) is Packed:
                value = program.unpack(a.blocks, value.usable())
            states.append(self.worker_state.states[a.shard])
            tasks.append(Task(self.round, a.step, a.shard, a.blocks, value))
        if self._takes_together:
            partials = program.update_together(states, tasks)
        else:
            partials = [update(program, states[0], tasks[0])]
        return partials, [task.value for task in tasks]

    def _going_together(self, a, packed):
        """Return blocks that leave now: of a step and to a worker, as many together as there are threads.

        So the messages of a worker do not grow with its threads, and one thread sends what it has done while
        it does more. What a block waits for needs no block of the same step.
        """
        self.sent += packed.nbytes
        which = a.step, a.to
        self._going[which] -= 1
        self._leaving[which].append((a.blocks, a.stamp + 1, packed))
        full = len(self._leaving[which]) == self.worker_state.n_threads
        return self._leaving.pop(which) if full or not self._going[which] else []

    def _meet(self):
        """Join what the shards of all workers receive after a part of the steps; hand it to those here."""
        worker_state, positions = self.worker_state, self._parts[self._now]
        program = worker_state.program
        own = program.join([self.partials[position] for position in positions])
        payload_bytes(own)
        joined, sent = worker_state.join(own, self.barriers, (self.round, self._now))
        if joined is not None:
            message = program.message_of(next(iter(worker_state.states.values())), joined)
            for state in worker_state.states.values():
                program.sync(state, message)
            self.joined = joined_of(program.join, (self.joined, program.reported(joined, message)))
        for position in positions:
            if is_nothing(self.partials[position]):
                del self.partials[position]
        with worker_state.changed:
            self._end_idle()
            self.sent += sent
            self._now += 1
            self._left = len(self._parts[self._now]) if self._now < len(self._parts) else -1
            worker_state.changed.notify_all()


_MEET = object()  # in place of a task
