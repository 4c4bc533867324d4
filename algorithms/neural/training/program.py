"""Training as a scheduled program: places are shards, micro-batches and gradients travel as blocks."""

import copy
import dataclasses
import math
import time
from typing import Any

import numpy as np

from ....errors import DataError
from ....scheduler.allocation import keep_freed_memory
from ....scheduler.parameters import stream
from ....scheduler.program import Outcome, Program
from ....scheduler.schedules.pipeline import KINDS, levels
from ....scheduler.threads import single_threaded_blas
from ....scheduler.wire import Wire
from ..._streams import Purpose
from ...inputs.pieces import computed, is_dask
from ..network import LOSSES
from .split import SplitOperations, SplitStage

_EMPTY = np.empty(0, np.float32)


class _Carrier:
    """A travelling block: an array that may be replaced by one of another shape."""

    def __init__(self, array):
        self.array = array


class Training(SplitOperations, Program):
    r"""Minimise the mean loss of a chain of stages by mini-batches, an epoch a round.

    Row i belongs to part ``i mod n_micro``. In each epoch the rows of a part are put into a new order, and
    micro-batch m of each mini-batch takes the next rows of part m. So a place holds only the rows of its
    micro-batches, and the rows of a mini-batch do not depend on the number of replicas.

    Gradients of micro-batches are summed as a binary counter carries (pairs, pairs of pairs...), inside a
    replica and between replicas. If ``n_micro / replicas`` is 1, 2, 4... for every stage, the result does not
    depend on the layout, *bitwise*, as long as the stages compute each layer in the same way.

    Parameters
    ----------
    stages : list of Stage
    layout : Layout
        ``n_steps`` mini-batches are an epoch.
    rows : tuple of ndarray
        X, the targets of `loss`, and perhaps weights of mean 1.
    loss : {"softmax", "logistic", "squared"}
        See `Network`.
    optimizer : SGD or Adam
    seed : int
        Of the order of rows, and of the random numbers of stages.
    starts : list of (params, slots), optional
        For each stage the initial vector, and the slots of the optimiser, or None for new ones. By default
        each place calls ``start(seed)`` of its stage, so that the whole network is in no memory.
    recompute : bool, default=False
        Keep the input of a micro-batch only, and compute the rest again before its backward pass.
    first_epoch, first_update : int, default=0
        Epochs and steps before these.
    counts_decay : bool, default=False
        Whether the weight decay is part of the objective; stages then have ``squares(params)``, one a layer.
    falling : FallingRate, optional
        Learning rates that follow the loss of the epochs.
    wire : {"float32", "bfloat16", "log8"}, optional
        How activations and gradients travel; see `Wire`. The result then depends on the layout.

    Attributes
    ----------
    held : list of dict
        For each stage, after a run: ``params``, ``slots``.
    events : list of ndarray
        For each place the operations of the last epoch: columns kind, step, micro, begin, end (seconds).
    """

    travels = spreads = True
    saved = ("params", "slots")
    unit = "row"

    def __init__(
        self,
        stages,
        layout,
        rows,
        *,
        loss,
        optimizer,
        seed=0,
        starts=None,
        recompute=False,
        first_epoch=0,
        first_update=0,
        counts_decay=False,
        falling=None,
        wire=None,
    ):
        if len(stages) != len(layout.replicas):
            raise DataError(f"{len(stages)} stages are given, but the layout has {len(layout.replicas)}")
        self.stages, self.layout, self.loss, self.optimizer = stages, layout, loss, optimizer
        self.falling, self.wire = falling, Wire(wire)
        self.seed, self.recompute, self.n_rows = int(seed), recompute, rows[0].shape[0]
        self.first_epoch, self.first_update, self.counts_decay = first_epoch, first_update, counts_decay
        self.n_blocks, self.unchecked = layout.n_blocks, is_dask(rows[0])
        starts = [(None, None)] * len(stages) if starts is None else starts
        self.shards = []
        for place, (stage, part) in enumerate(map(layout.stage_of, range(layout.n_places))):
            params, slots = starts[stage]
            if isinstance(stages[stage], SplitStage):
                index = stages[stage].index[part]
                params, slots = params[index], None if slots is None else slots[:, index]
            self.shards.append((stage, part, params, slots, self._parts(rows, place, stage)))
        self.twins = [self._twin(place) for place in range(layout.n_places)]
        self.held: Any = None
        self.events: Any = None

    def _twin(self, place):
        """Return the first replica of a place's stage, if all have the same numbers.

        Parts of a split stage have their own, and so have replicas where forward passes change buffers.
        """
        stage, _ = self.layout.stage_of(place)
        own = self.layout.parts[stage] > 1 or getattr(self.stages[stage], "n_buffers", 0)
        return place if own else self.layout.place(stage, 0)

    def _parts(self, rows, place, stage):
        """Return what a place holds of the rows: X at the first stage, the rest at the last."""
        M, last = self.layout.n_micro, len(self.stages) - 1
        wanted = (rows[:1] if stage == 0 else ()), (rows[1:] if stage == last else ())
        mine = [m for m in range(M) if self.layout.place(stage, m) == place]
        return {m: tuple(tuple(part[m::M] for part in kind) for kind in wanted) for m in mine}

    def sizes(self, step):
        """Return the number of rows of each micro-batch of a mini-batch."""
        return [b - a for a, b in (self._range(step, m) for m in range(self.layout.n_micro))]

    def _range(self, step, micro):
        M, T = self.layout.n_micro, self.layout.n_steps
        n = (self.n_rows - micro + M - 1) // M
        return n * step // T, n * (step + 1) // T

    # Where a place is -----------------------------------------------------------------------------

    def load(self, data):
        """Copy or draw the initial vectors; the stage is a copy, since torch's modules serve one thread."""
        keep_freed_memory()
        number, part, params, slots, parts = data
        if self.unchecked:  # a Dask collection's: a small one may come lazy, inside a task of Dask's
            parts = {m: (tuple(map(_checked, X)), rest) for m, (X, rest) in parts.items()}
        stage = self.stages[number]
        is_split = isinstance(stage, SplitStage)
        stage = copy.deepcopy(stage.places[part] if is_split else stage)
        params = np.array(stage.start(self.seed) if params is None else params)
        n_trained = _n_trained(stage, params)
        decays = self.optimizer.weight_decay and hasattr(stage, "decayed")  # which takes as many numbers
        return {
            "number": number,
            "part": part,
            "stage": stage,
            "params": params,
            "slots": self.optimizer.slots(params[:n_trained]) if slots is None else np.array(slots),
            "n_trained": n_trained,
            "decayed": stage.decayed() if decays else None,
            "parts": parts,
            "orders": {},  # of the rows of each part: epoch, permutation
            "kept": {},  # of each micro-batch under way
            "split": {} if is_split else None,  # the same, of the first place of a split stage
            "sums": [],  # (level, gradient): what the counter holds
            "spare": [],  # gradients that are free
            "events": [],
            "rate": None,  # of the optimiser, where it is not its own
        }

    def sync(self, state, message):
        """Take the learning rate."""
        state["rate"] = float(message)

    def block(self, block):
        """Begin empty."""
        return _Carrier(_EMPTY)

    def pack(self, block, value):
        """Send the array."""
        return np.ascontiguousarray(value.array)

    def unpack(self, block, packed):
        """Take the array."""
        return _Carrier(packed)

    def update(self, state, task):
        """Carry out the operation of this place in this step."""
        began, op = time.time(), self._operation(task)
        if not task.step or (state["events"] and state["events"][0][0] != task.round):
            state["events"] = []
        with np.errstate(over="ignore", invalid="ignore"), single_threaded_blas():
            found = getattr(self, "_" + op.kind.replace(" ", "_"))(state, task.value, task.round, op)
            if op.updates:
                found = self._learn(state, task.round, op)
        state["events"].append((task.round, KINDS.index(op.kind), op.step, op.micro, began, time.time()))
        return found

    def _operation(self, task):
        return next(op for op in levels(self.layout)[task.step] if op.place == task.shard)

    def _rows(self, state, epoch, op, kind):
        """Return the rows of a micro-batch: of kind 0 X, of kind 1 targets and weights."""
        arrays, first = state["parts"][op.micro][kind], self.first_epoch
        known, order = state["orders"].get(op.micro, (None, None))
        if known != epoch:
            random = stream(self.seed, Purpose.EPOCH.value, first + epoch, op.micro)
            order = random.permutation(arrays[0].shape[0])
            state["orders"][op.micro] = epoch, order
        a, b = self._range(op.step, op.micro)
        return [_read(array[order[a:b]], self._key(epoch, op)) for array in arrays]

    def _key(self, epoch, op):
        """Return the numbers from which random numbers of a micro-batch are drawn."""
        return self.seed, self.first_epoch + epoch, op.step, op.micro

    def _input(self, state, carrier, epoch, op):
        """Return the rows that a stage begins with, and their key."""
        if state["number"]:
            return self._came(state, carrier), self._key(epoch, op)
        x = self._rows(state, epoch, op, 0)[0]
        return x, self._key(epoch, op)

    def _came(self, state, carrier):
        """Return what a block brought from another place."""
        return self.wire.decode(carrier.array, state["params"].dtype)

    def _forward(self, state, carrier, epoch, op):
        if state["split"] is not None:
            return self._forward_part(state, carrier, epoch, op)
        if not self.sizes(op.step)[op.micro]:  # fewer rows than micro-batches are left
            carrier.array = _EMPTY
            return None
        x, key = self._input(state, carrier, epoch, op)
        params = state["params"]
        y, context = state["stage"].forward(params, x, key)
        again = (x, key) if self.recompute else None
        state["kept"][op.step, op.micro] = again, params, None if self.recompute else context
        return self._output(state, carrier, epoch, op, y)

    def _output(self, state, carrier, epoch, op, y):
        """Hand a stage's output on, or at the end of the network its gradient; return the loss there."""
        if not math.isfinite(float(y.sum())) and not np.isfinite(y).all():
            self._refuse("output", state, epoch, op)
        if state["number"] < len(self.stages) - 1:
            carrier.array = self.wire.encode(y)
            return None
        value, delta = LOSSES[self.loss](np, y, *self._rows(state, epoch, op, 1))
        if not math.isfinite(value):
            self._refuse("loss", state, epoch, op)
        delta /= y.dtype.type(sum(self.sizes(op.step)))
        carrier.array = delta.astype(y.dtype, copy=False)
        return value

    def _refuse(self, what, state, epoch, op):
        raise DataError(
            f"the {what} of stage {state['number']} is not finite in epoch {self.first_epoch + epoch + 1}, "
            f"mini-batch {op.step + 1}: scale X, or lower the learning rate "
            f"({self.optimizer.learning_rate:g})"
        )

    def _gradient_of(self, state):
        """Return the vector to which the gradient of a micro-batch is added, and its level in the counter.

        The second of two neighbours adds to that of the first: the same sum, without a vector of its own.
        """
        if state["sums"] and not state["sums"][-1][0]:
            return state["sums"].pop()[1], 1
        if not state["spare"]:
            return np.zeros(state["n_trained"], state["params"].dtype), 0
        gradient = state["spare"].pop()
        gradient[:] = 0
        return gradient, 0

    def _slope(self, state, carrier):
        """Return the gradient of a stage's output: at the end of the network it has not travelled."""
        last = state["number"] == len(self.stages) - 1
        return carrier.array if last else self._came(state, carrier)

    def _backward(self, state, carrier, epoch, op):
        if state["split"] is not None:
            self._backward_part(state, carrier, epoch, op)
            return
        gradient, level = self._gradient_of(state)
        if self.sizes(op.step)[op.micro]:
            again, params, context = state["kept"].pop((op.step, op.micro))
            if again is not None:
                buffers = params[state["n_trained"] :].copy()  # which must not move twice
                context = state["stage"].forward(params, *again)[1]
                params[state["n_trained"] :] = buffers
            dx = state["stage"].backward(context, self._slope(state, carrier), gradient)
            carrier.array = self.wire.encode(dx) if state["number"] else _EMPTY
        self._carry(state, gradient, level)

    def _carry(self, state, gradient, level):
        sums = state["sums"]
        while sums and sums[-1][0] == level:
            one = sums.pop()[1]
            one += gradient
            state["spare"].append(gradient)
            gradient, level = one, level + 1
        sums.append((level, gradient))

    def _gradient(self, state):
        """Return the sum of what the counter holds: all of it in one vector."""
        sums = state["sums"]
        while len(sums) > 1:
            (_, one), (level, two) = sums.pop(), sums.pop()
            two += one
            state["spare"].append(one)
            sums.append((level + 1, two))
        return sums[0][1]

    def _span(self, state, op):
        gradient, (first, last, n) = self._gradient(state), op.span
        return gradient[len(gradient) * first // n : len(gradient) * last // n]

    def _send(self, state, carrier, epoch, op):
        packed = self.wire.encode(self._span(state, op))
        carrier.array = packed if self.wire.name else packed.copy()

    def _add(self, state, carrier, epoch, op):
        here = self._span(state, op)
        here += self._came(state, carrier)

    def _fill(self, state, carrier, epoch, op):
        self._send(state, carrier, epoch, op)
        if self.wire.name:  # replicas must go on with the same numbers
            self._span(state, op)[:] = self._came(state, carrier)

    def _take(self, state, carrier, epoch, op):
        self._span(state, op)[:] = self._came(state, carrier)
        carrier.array = _EMPTY

    def _learn(self, state, epoch, op):
        """Make a step of the optimiser; return the penalties of the layers before it, or None."""
        if self.layout.order == "pipedream":
            state["params"] = state["params"].copy()  # backward passes to come need the old ones
        params = state["params"][: state["n_trained"]]
        penalties = None
        if self.counts_decay:
            penalties = [self.optimizer.weight_decay / 2 * s for s in state["stage"].squares(params)]
        number = self.first_update + epoch * self.layout.n_steps + op.step + 1
        gradient, optimizer = self._gradient(state), self.optimizer
        if state["rate"] is not None:
            optimizer = dataclasses.replace(optimizer, learning_rate=state["rate"])
        optimizer.step(params, gradient, state["slots"], number, state["decayed"])
        if hasattr(state["stage"], "changed"):
            state["stage"].changed()
        state["spare"].append(gradient)
        state["sums"] = []
        return penalties

    def hold(self, state):
        """Return what a place holds, for `collect`; of replicas the first one's numbers."""
        events = np.array(state["events"], float)
        if state["part"] and state["split"] is None:
            return {"events": events}
        return {"params": state["params"].copy(), "slots": state["slots"].copy(), "events": events}

    # At the coordinator -----------------------------------------------------------------------------

    def aggregate(self, tasks, partials):
        """Sum losses and penalties exactly: their order belongs to the layout."""
        losses, penalties = [], []
        for task, partial in zip(tasks, partials, strict=True):
            if partial is None:
                continue
            op = self._operation(task)
            stage, number = self.layout.stage_of(op.place)
            if op.kind in ("forward", "close"):
                losses.append(partial)
            elif number == 0 or self.layout.parts[stage] > 1:
                penalties += partial
        loss = math.fsum(losses) / self.n_rows + math.fsum(penalties) / self.layout.n_steps
        if self.falling is None:
            return Outcome(objective=loss, updates=self.n_rows)
        done = self.falling.after(loss)
        return Outcome(self.publish(), objective=loss, updates=self.n_rows, done=done)

    def publish(self):
        """The learning rate, if it follows the loss."""
        return None if self.falling is None else self.falling.now

    def arrays(self):
        """What the learning rate follows."""
        return {} if self.falling is None else {"rate": self.falling.array()}

    def restore(self, arrays):
        """Go on with the learning rate of that epoch; places need nothing else of the coordinator."""
        if self.falling is not None:
            self.falling.restore(arrays["rate"])

    def collect(self, ask):
        """Take in the vectors of every stage, and the events of every place."""
        held = ask(lambda session, messages: session.measure(messages, "hold"))
        self.held = []
        for number, stage in enumerate(self.stages):
            first = self.layout.place(number, 0)
            one = held[first]
            if isinstance(stage, SplitStage):
                of_parts = held[first : first + len(stage.places)]
                one = {name: stage.joined([part[name] for part in of_parts]) for name in ("params", "slots")}
            self.held.append(one)
        self.events = [one["events"] for one in held]


class Prepared:
    """Imports, as it is unpickled, what training needs, and compiles the step of an optimiser."""

    def __init__(self, optimizer):
        self.optimizer = optimizer

    def __call__(self):
        """Make a step of one number."""
        one = np.zeros(1, np.float32)
        self.optimizer.step(one, one, self.optimizer.slots(one), 1)


def _read(rows, key):
    """Read rows that are only described so far, as those of a data set; arrays are as they are."""
    return rows.read(key) if hasattr(rows, "read") else rows


def _checked(X):
    """Return rows of a Dask array as an array of finite numbers."""
    X = np.asarray(computed(X))
    if not np.isfinite(X).all():
        raise DataError("X contains NaN or infinity: impute it, or drop the rows, before the fit")
    return X


def _n_trained(stage, params):
    return len(params) - getattr(stage, "n_buffers", 0)
