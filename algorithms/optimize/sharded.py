"""Vectors in slices on the workers of a session: the coordinator sends commands and sees scalars.

Slice k of every vector lies on the k-th worker. A command (``axpy``, ``scale``, ``dots``...) is carried out
by each worker on its slices, by `LocalSpace`; one that returns no number waits until one is sent that does.
For a pass each worker puts x together from all slices, and keeps the partial sums of its orders; those that
count are then added up slice by slice, each where the slice lies, along the tree over portions. A worker
keeps with its slices the whole of two points: that of the pass, and the last one that was accepted, from
which the others begin anew when it is lost.
"""

import bisect
import itertools
from typing import Any, NamedTuple

import distributed
import numpy as np

from ...errors import DataError, WorkerLost
from ...scheduler.sessions.payloads import payload_bytes
from ...scheduler.sessions.worker import NAME
from ...scheduler.sums.cluster_passes import ClusterPasses
from ...scheduler.sums.portions import Begin, TreeSum
from ...scheduler.sums.summed import Summed, Trouble, raise_trouble
from .space import LocalSpace

_NO_VECTOR = np.zeros(0)
_PIECE = 1 << 17  # numbers that are sent from, or to, the coordinator at a time


class Name(NamedTuple):
    """A vector, in a command."""

    name: str


class ShardedProgram(Summed):
    """Work on slices, and on partial sums, on the workers."""

    # Commands ---------------------------------------------------------------------------------------

    def command(self, state, commands, dropped):
        """Run commands on the slices here; return the numbers."""
        local, numbers = LocalSpace(), []
        for method, output, args in commands:
            if method == "accept":  # keep the point of the last pass for the time after a loss
                state.spare.update(mark=args[0], whole=state.kept["whole"])
                continue
            done = getattr(local, method)(*_resolved(state.kept, args))
            if output is None:
                numbers.append(done)
            else:
                state.kept[output] = done
        for name in dropped:
            state.kept.pop(name, None)
        return numbers

    def lay(self, state, name, size, start, values):
        """Take in a part of a slice, from `start` on."""
        if start == 0:
            state.kept[name] = np.empty(size)
        state.kept[name][start : start + len(values)] = values

    # Passes -----------------------------------------------------------------------------------------

    def assemble(self, state, number, name, places):
        """Put the whole of a vector together, for the pass of this number."""
        for old in [key for key in list(state.kept) if key.startswith("part-")]:
            del state.kept[old]
        whole = np.concatenate([_part(state, worker, name, 0, size) for worker, size in places])
        state.kept["whole"] = whole
        state.set_message(number, whole)

    def answer(self, state, round_, first, last, ordered):
        """See `Summed.answer`; the vector stays here."""
        found, seconds = super().answer(state, round_, first, last, ordered)
        if found is None or isinstance(found, Trouble):
            return found, seconds
        state.kept[f"part-{round_}-{first}-{last}"] = found[1]
        return (found[0], _NO_VECTOR), seconds

    def settle(self, state, round_, orders, n, ordered):
        """Add up the partial sums that count; return the nodes of the tree that result."""
        total = TreeSum(n, ordered=ordered)
        for first, size, last in orders:
            total.add(first, size, 0.0, state.kept.pop(f"part-{round_}-{first}-{last}"), owned=True)
        for (first, size), (_, vector) in total.nodes.items():
            state.kept[f"part-node-{first}-{size}"] = vector
        return sorted(total.nodes)

    def gather(self, state, output, nodes, n, ordered, start, stop):
        """Add up this worker's slice over all workers' nodes."""
        total = TreeSum(n, ordered=ordered)
        for worker, first, size in nodes:
            part = _part(state, worker, f"part-node-{first}-{size}", start, stop)
            total.add(first, size, 0.0, part)
        state.kept[output] = total.vector

    # Losses -----------------------------------------------------------------------------------------

    def rescue(self, state):
        """Publish the point that was kept; return its mark, None without one."""
        if "whole" in state.spare:
            state.kept["rescued"] = state.spare["whole"]
        return state.spare.get("mark")

    def reread(self, state, output, worker, start, stop):
        """Take a slice of the point that a worker rescued."""
        state.kept[output] = _part(state, worker, "rescued", start, stop).copy()

    def forget_rescued(self, state):
        """Show it no more."""
        state.kept.pop("rescued", None)


def take(session, epoch, address, name):
    """Give a slice to Dask; a task on the worker that has it."""
    worker = distributed.get_worker()
    plugin: Any = worker.plugins.get(NAME)
    local = plugin and plugin._local(session, epoch)
    if worker.address != address or local is None:
        raise WorkerLost(f"{address} was lost before its part of the result was read")
    return local.state.kept[name]


def _same(value):
    return value


def _named(args):
    if isinstance(args, Vector):
        return Name(args.name)
    return [_named(arg) for arg in args] if type(args) in (list, tuple) else args


def _resolved(kept, args):
    if type(args) is Name:
        return kept[args.name]
    return [_resolved(kept, arg) for arg in args] if type(args) in (list, tuple) else args


def _part(state, worker, name, start, stop):
    """Part of a vector on a worker, "" for this one."""
    return state.fetch(worker, name, start, stop) if worker else state.kept[name][start:stop]


class Vector:
    """A vector in slices, which are dropped when this handle is."""

    def __init__(self, space, name):
        self.space, self.name = space, name

    def __len__(self):
        return self.space.n

    def __del__(self):
        self.space.dropped.append(self.name)


class ShardedRows:
    """n vectors; see `stradask.algorithms.optimize.space.LocalRows`."""

    def __init__(self, space, n):
        self.space, self.vectors = space, [None] * n

    def put(self, row, x):
        """Set a row: vectors are never changed, so it is the vector itself."""
        self.vectors[row] = x

    def dots(self, x):
        """Scalar products of all rows with x."""
        products = np.zeros(len(self.vectors))
        filled = [k for k, row in enumerate(self.vectors) if row is not None]
        products[filled] = self.space.dots([(self.vectors[k], x) for k in filled])
        return products

    def combine(self, weights, a, x):
        """Return a x plus the sum of all rows, each times its weight."""
        total = self.space.scale(a, x)
        for weight, row in zip(weights, self.vectors, strict=True):
            if row is not None and weight:
                total = self.space.axpy(weight, row, total)
        return total


class ShardedSpace(ClusterPasses):
    """Vectors in slices, and the passes that evaluate the objective at them.

    See `stradask.algorithms.optimize.space.LocalSpace` for the methods that are not described here.

    `n`: parameters.
    """

    def __init__(self, session, program, n, *, ordered=False):
        self.n, self._names = n, itertools.count()
        self.dropped: list[str] = []
        self._pending: list[tuple] = []
        self._mark = 0
        super().__init__(session, program, ordered=ordered)

    def _open(self):
        super()._open()
        self.dropped, self._pending = [], []
        self._everyone = list(self.session.threads)
        self._owners = self._everyone[: self.n]  # an empty slice has no owner
        self._edges = [self.n * k // len(self._owners) for k in range(len(self._owners) + 1)]

    # Commands ---------------------------------------------------------------------------------------

    def _new(self):
        return Vector(self, f"v{next(self._names)}")

    def _vector(self, method, *args):
        made = self._new()
        self._pending.append((method, made.name, _named(args)))
        return made

    def _numbers(self, method, *args):
        return np.asarray(self._flush((method, None, _named(args)))[0])

    def _flush(self, *last):
        """Send the pending commands, and one that returns numbers; sum these over the slices."""
        commands, self._pending = [*self._pending, *last], []
        dropped, self.dropped = self.dropped, []
        if not commands and not dropped:
            return []
        answers = self._ask_all("command", dict.fromkeys(self._owners, (commands, dropped)))
        self.session.bytes_sent += sum(payload_bytes(numbers) for numbers in answers)
        return [sum(parts) for parts in zip(*answers, strict=True)]

    def _ask_all(self, name, args):
        """Ask workers, each once; answers in the order of `args`."""
        calls = {worker: (name, *rest) for worker, rest in args.items()}
        return self.session.sync(self.session.calls, "ask", calls, None)

    def dots(self, pairs):
        """Scalar products of pairs of vectors."""
        return self._numbers("dots", pairs)

    def axpy(self, a, x, y):
        """a x + y."""
        return self._vector("axpy", float(a), x, y)

    def scale(self, a, x):
        """a x."""
        return self._vector("scale", float(a), x)

    def rows(self, n, like):
        """WorkerState for n vectors."""
        return ShardedRows(self, n)

    def weights(self, l1, like):
        """A float, or a vector of the weights."""
        return float(l1) if np.ndim(l1) == 0 else self.lay(l1)

    def penalty(self, x, l1):
        """sum_j l1_j |x_j|."""
        return float(self._numbers("penalty", x, l1))

    def pseudo_gradient(self, x, g, l1):
        """See `LocalSpace`."""
        return self._vector("pseudo_gradient", x, g, l1)

    def aligned(self, d, pg):
        """See `LocalSpace`."""
        return self._vector("aligned", d, pg)

    def orthant_step(self, x, t, d, pg, l1):
        """See `LocalSpace`."""
        return self._vector("orthant_step", x, float(t), d, pg, l1)

    # Vectors that come and go ------------------------------------------------------------------------

    def lay(self, values):
        """Make a vector of an array of numpy or Dask, piece by piece."""
        return self.lay_pieces(
            self._checked(a, np.asarray(values[a:b], np.float64)) for a, b in self.pieces()
        )

    def _checked(self, start, piece):
        if not np.isfinite(piece).all():
            at = int(np.flatnonzero(~np.isfinite(piece))[0])
            raise DataError(f"x0 must be finite, but x0[{start + at}] is {piece[at]}")
        return piece

    def lay_pieces(self, values):
        """Make a vector of its `pieces`."""
        made = self._new()
        for (start, _), piece in zip(self.pieces(), values, strict=True):
            k = bisect.bisect_right(self._edges, start) - 1
            size = self._edges[k + 1] - self._edges[k]
            self.session.bytes_sent += piece.nbytes
            self._ask_all("lay", {self._owners[k]: (made.name, size, start - self._edges[k], piece)})
        return made

    def pieces(self):
        """Cut the range of parameters so that no piece is long, or is on two workers."""
        for start, stop in itertools.pairwise(self._edges):
            for at in range(start, stop, _PIECE):
                yield at, min(at + _PIECE, stop)

    def read_pieces(self, x):
        """Yield the `pieces` of a vector."""
        self._flush()
        for start, stop in self.pieces():
            k = bisect.bisect_right(self._edges, start) - 1
            first = self._edges[k]
            self.session.bytes_sent += 8 * (stop - start)
            yield self.session.sync(self._look, self._owners[k], x.name, start - first, stop - first)

    async def _look(self, worker, name, first, last):
        message = {"epoch": self.session.epoch, "name": name, "first": first, "last": last}
        return await self.session.ask(worker, "look", **message)

    def published(self, x):
        """Return a vector as a Dask array that outlives the session; as numpy if no client can hold it."""
        client = self.session.workers.scheduler
        if isinstance(client, str) or client.asynchronous:
            return np.concatenate(list(self.read_pieces(x)))
        import dask
        import dask.array

        self._flush()
        session, epoch = self.session.id, self.session.epoch
        parts = []
        for worker, size in zip(self._owners, np.diff(self._edges).tolist(), strict=True):
            where = {"workers": [worker], "allow_other_workers": True}  # or it waits for ever for a lost one
            future = client.submit(take, session, epoch, worker, x.name, pure=False, **where)
            distributed.wait(future)
            if future.status != "finished":
                raise WorkerLost(f"{worker} was lost before its part of the result was read")
            parts.append(dask.array.from_delayed(dask.delayed(_same)(future), (size,), np.float64))
        return dask.array.concatenate(parts)

    # Passes -----------------------------------------------------------------------------------------

    def __call__(self, x):
        """Return value and gradient, the latter as a vector."""
        n_portions, number = self.machine.n, self.machine.round + 1
        self._flush()
        self._ask_all("assemble", {m: (number, x.name, self._places(m)) for m in self._everyone})
        self._evaluated = x.name
        self._total = TreeSum(n_portions, ordered=self.ordered)
        self._counted: dict[str, list] = {}
        trouble = self.session.sync(self._pass, None, Begin)
        if trouble is not None:
            raise_trouble(trouble)
        settled = {m: (number, o, n_portions, self.ordered) for m, o in self._counted.items()}
        nodes = [
            (worker, *node)
            for worker, found in zip(settled, self._ask_all("settle", settled), strict=True)
            for node in found
        ]
        made, args = self._new(), {}
        for worker, ends in zip(self._owners, itertools.pairwise(self._edges), strict=True):
            seen = [("" if at == worker else at, *node) for at, *node in nodes]
            args[worker] = made.name, seen, n_portions, self.ordered, *ends
        self._ask_all("gather", args)
        return self._total.value, made

    def _places(self, worker):
        """The workers of the slices, from the view of one."""
        sizes = np.diff(self._edges).tolist()
        return [("" if m == worker else m, size) for m, size in zip(self._owners, sizes, strict=True)]

    def _count(self, order, answer):
        self._total.add(order.first, order.size, *answer)
        self._counted.setdefault(order.worker, []).append((order.first, order.size, order.last))

    def _lost(self, worker, now):
        """Slices are lost with their worker, and so is the pass."""
        super()._lost(worker, now)
        raise WorkerLost(f"{worker} is lost, and with it a slice of every vector")

    # Losses -----------------------------------------------------------------------------------------

    def accept(self, x):
        """Keep a point, if it is that of the last pass, for the time after a loss."""
        if x.name == self._evaluated:
            self._mark += 1
            self._pending.append(("accept", None, [self._mark]))

    def recover(self):
        """Restart on the remaining workers; return the last point that one of them kept, or None."""
        self._open()
        marks = self._ask_all("rescue", dict.fromkeys(self._owners, ()))
        newest = max((mark for mark in marks if mark is not None), default=None)
        if newest is None:
            return None
        holders = [m for m, mark in zip(self._owners, marks, strict=True) if mark == newest]
        made = self._new()
        slices = zip(self._owners, itertools.pairwise(self._edges), strict=True)
        self._ask_all(
            "reread",
            {m: (made.name, "" if m in holders else holders[0], *ends) for m, ends in slices},
        )
        self._ask_all("forget_rescued", dict.fromkeys(self._owners, ()))
        return made
