"""A fit by mini-batches: its plan, its run, early stopping, and the vectors of whole networks."""

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from sklearn.model_selection import train_test_split

from ...._typing import Array
from ....errors import DataError
from ....scheduler.engine import run
from ....scheduler.planning.arguments import given_stages
from ....scheduler.planning.costs import LayerPair
from ....scheduler.planning.measured import measure_link
from ....scheduler.planning.memory import gradient_vectors
from ....scheduler.planning.plan import plan_pipeline
from ....scheduler.schedules.pipeline import KINDS, PipelineSchedule
from ....scheduler.threads import single_threaded_blas
from ....scheduler.workers import open_workers
from ..._base import Estimator
from ...inputs.pieces import first_rows
from .plans import check_micro_batches, is_split, layout_of, make_plan
from .profiling import THREADS, profile_layers
from .program import Prepared, Training
from .split import Activation, DensePart, SplitStage, StageChain, cuts_of, indices, moved_bytes
from .stage import DenseStage

_CHECKPOINT_EVERY = 5  # epochs
_ASTRAY = 1e3  # growth of the loss with which no fit is of use
_OF_PROGRAM = (
    "loss", "optimizer", "seed", "first_epoch", "first_update", "counts_decay", "falling", "wire",
)  # fmt: skip
_ANYWHERE = 2**26  # bytes that any worker has
_EVENT = [
    ("place", np.int64),
    ("kind", "U10"),
    ("step", np.int64),
    ("micro", np.int64),
    ("start", np.float64),
    ("end", np.float64),
]
_LIKE = {"open": "forward", "close": "forward", "open back": "backward", "close back": "backward"}
_SHOWN = [kind if kind in ("forward", "backward") else _LIKE.get(kind, "all-reduce") for kind in KINDS]


class DenseLayers:
    """The layers of a `Network` as layers that can be cut; see `TorchLayers`."""

    def __init__(self, network, dtype=np.float32):
        self.network, self.dtype = network, np.dtype(dtype)
        self.sizes = [(a * b + b, 0) for a, b in network.shapes]

    def stage(self, first, last):
        """Return the layers first to last, without the latter, as a stage."""
        network, n = self.network, len(self.sizes)
        ends = not first, last == n
        return DenseStage(
            network.sizes[first : last + 1], network.activation, first, *ends, device=network.device
        )

    def pair(self, first, last):
        """Return the two layers with the most parameters."""
        sizes = self.network.sizes
        if last - first < 2:
            raise DataError(
                f"plan splits layers {first}:{last}, which are not two dense layers: give the stage more"
            )
        at = max(range(first, last - 1), key=lambda k: sizes[k + 1] * (sizes[k] + sizes[k + 2]))
        return LayerPair(at, at + 1, sizes[at : at + 3])

    def split(self, first, last, n_parts):
        """Return the layers as a `SplitStage`: each place has some hidden units of a pair of them."""
        if self.network.device != "cpu":
            raise DataError("plan splits layers, whose parts compute on the CPU: set device='cpu'")
        at, _, (n_in, n_hidden, n_out) = self.pair(first, last)
        activation = self.network.activation
        parts = [
            DensePart(n_in, b - a, n_out, activation, has_bias=not a, begins=not at)
            for a, b in cuts_of(n_hidden, n_parts)
        ]
        before, after = (
            [(self.stage(a, b), sum(n for n, _ in self.sizes[a:b]))] if a < b else []
            for a, b in ((first, at), (at + 2, last))
        )
        if at + 2 < len(self.sizes):  # not the output of the network
            after.insert(0, (Activation(activation), 0))
        index = indices(n_in, n_hidden, n_out, n_parts, columns_first=True)
        return SplitStage(StageChain(before), parts, StageChain(after), index)


@dataclass(frozen=True)
class TrainingSettings:
    """How a network is trained and cut: see the parameters of `TorchClassifier`, and `Training`."""

    loss: str
    optimizer: Any
    seed: int
    n_epochs: int
    batch_size: int = 0
    micro_batches: int | str = "auto"
    order: str = "1f1b"
    recompute: bool | str = False
    engine: Any = "local"
    n_jobs: int | None = None
    first_epoch: int = 0
    first_update: int = 0
    counts_decay: bool = False
    falling: Any = None
    wire: str | None = None
    label: str = ""
    verbose: int = 0

    @classmethod
    def of(cls, estimator, **given):
        """Take what is not given from the parameters of an estimator that have these names."""
        names = [field.name for field in dataclasses.fields(cls) if field.name in vars(estimator)]
        parameters = {name: getattr(estimator, name) for name in names}
        return cls(**parameters | {"label": type(estimator).__name__} | given)

    def chosen(self, *names):
        """Some of them by name."""
        return {name: getattr(self, name) for name in names}


@dataclass
class Vectors:
    """The numbers of a whole network, layer by layer: trained entries, buffers, slots of the optimiser.

    The latter are None where places begin them.
    """

    trained: Any
    buffers: Any
    slots: Any

    def cut(self, sizes, stages):
        """Return the vector and the slots of each stage."""
        ends = np.cumsum([(0, 0), *sizes], axis=0)
        found = []
        for first, last, _ in stages:
            (a, c), (b, d) = ends[first], ends[last]
            slots = None if self.slots is None else self.slots[:, a:b]
            found.append((np.concatenate([self.trained[a:b], self.buffers[c:d]]), slots))
        return found

    @classmethod
    def joined(cls, held, stages, sizes):
        """Put together what the stages hold."""
        counts = [sum(n for n, _ in sizes[first:last]) for first, last, _ in stages]
        pairs = list(zip(held, counts, strict=True))
        return cls(
            np.concatenate([one["params"][:n] for one, n in pairs]),
            np.concatenate([one["params"][n:] for one, n in pairs]),
            np.concatenate([one["slots"] for one in held], axis=1),
        )


class ScoreWatch:
    """Scores after each epoch: stops when more than `patience` in a row have not risen by `tol`.

    Keeps the numbers of the best.
    """

    def __init__(self, score, patience, tol):
        self._score, self._patience, self._tol = score, patience, tol
        self.scores: list[float] = []
        self.highest, self.best, self._idle = -math.inf, None, 0

    def enough(self, vectors):
        """Take in the numbers after an epoch; return whether to stop."""
        score = self._score(vectors)
        self.scores.append(score)
        self._idle = 0 if score >= self.highest + self._tol else self._idle + 1
        if score > self.highest:
            self.highest, self.best = score, vectors
        return self._idle > self._patience


@dataclass
class Trained:
    """What a fit came to."""

    vectors: Vectors
    history: Any
    plan: Any
    timeline: Any
    n_steps: int  # mini-batches an epoch
    reason: str


class PlannedFit(Estimator):
    """Base of networks: what the last fit by a plan left, which model files do not hold."""

    # Attributes of one solver, or of early stopping alone.
    _optional_attributes: ClassVar[tuple[str, ...]] = ("validation_scores_", "best_validation_score_")

    @property
    def plan_(self) -> Any:
        """The plan of the last fit by mini-batches."""
        return self._of_last_fit("plan")

    @property
    def timeline_(self) -> Array:
        """What each place did in the last epoch."""
        return self._of_last_fit("timeline")

    def _of_last_fit(self, name):
        found = vars(self).get(f"_{name}")
        if found is None:
            raise AttributeError(
                f"there is no {name}_: fits by mini-batches on a plan have one, but model files do not hold "
                "it"
            )
        return found

    def _forget(self):
        """Drop the attributes that the coming fit may not set."""
        for name in self._optional_attributes:
            self.__dict__.pop(name, None)


def hold_out(rows, seed, *, fraction, labels=None):
    """Split rows, a tuple of arrays, into those to train on and those that are held out."""
    n_rows = rows[0].shape[0]
    try:
        kept, aside = train_test_split(
            np.arange(n_rows), test_size=fraction, random_state=seed % 2**31, stratify=labels
        )
    except ValueError as error:
        raise DataError(
            f"early_stopping=True needs rows to hold out, but validation_fraction={fraction} of {n_rows} "
            f"rows cannot be: {error}"
        ) from error
    kept.sort()
    return tuple(part[kept] for part in rows), tuple(part[aside] for part in rows)


def plan_for(plan, layers, vectors, X, settings, memory_limit=None, least_rows=1):
    """Return the plan of an estimator's parameters, and the mini-batches of an epoch.

    Where there is a choice, layers are timed, and the planner chooses. `vectors` is None where each place
    draws its own.
    """
    n_rows, n_layers = X.shape[0], len(layers.sizes)
    optimizer, engine, batch_size = settings.optimizer, settings.engine, settings.batch_size
    workers, most = open_workers(engine, settings.n_jobs), min(batch_size, n_rows)
    n_places = workers.n_threads()
    if memory_limit is None and is_large(layers, optimizer):
        memory_limit = workers.memory_a_thread(Prepared(optimizer))
    rows_to_cut = most if settings.micro_batches == "auto" else batch_size
    n_micro = check_micro_batches(settings.micro_batches, rows_to_cut, settings.order)
    n_steps = -(-n_rows // most)
    if n_rows // n_steps // n_micro < least_rows:
        raise DataError(
            f"module has batch normalisation, and {n_micro} micro-batches of {n_rows // n_steps} rows leave "
            "one row or none to normalise by: take a larger batch_size, or fewer micro_batches"
        )
    if plan == "pipeline" or (plan == "auto" and min(n_places, n_layers) > 1):
        given_stages(plan, n_layers, n_places)  # refuses a pipeline of nothing, before anything is timed
        check_layers(layers, optimizer, n_places, memory_limit)
        rows = most - most % n_micro or n_micro
        counts = sorted({rows // n_micro, rows})
        link = measure_link(engine) if workers.remote else THREADS
        x = first_rows(X, counts[-1], engine)
        profile = profile_layers(layers, vectors, x, optimizer, counts, workers, memory_limit)
        # Between threads nothing is gained that would be worth other last bits.
        if plan == "auto" and workers.remote and vectors is not None:
            profile = dataclasses.replace(profile, pair=_splittable(layers, n_layers))
        chosen = plan_pipeline(
            profile,
            n_places,
            link,
            batch_size=rows,
            plan=plan,
            micro_batches=n_micro,
            orders=settings.order,
            recompute=settings.recompute,
            memory_limit=memory_limit,
        )
        return chosen, n_steps
    note = ""
    if vectors is None and (plan == "split" or (not isinstance(plan, str) and any(map(is_split, plan)))):
        raise DataError(
            "plan splits layers whose parameters are on the meta device: give them values first "
            "(module.to_empty, then reset_parameters), or take another plan"
        )
    if plan == "split":
        at, _, pair = layers.pair(0, n_layers)
        n_parts = min(n_places, pair[1])
        if n_parts < 2:
            raise DataError("plan='split' needs two places or more, got 1: raise n_jobs, or start workers")
        plan, note = (
            [("0:", n_parts, "split")],
            moved_bytes(pair, n_parts, most, vectors.trained.itemsize, begins=not at),
        )
    found = make_plan(
        "data" if plan == "auto" else plan,
        n_layers,
        n_places,
        micro_batches=n_micro,
        bounded=workers.remote,
        **settings.chosen("order", "recompute"),
    )
    check_stages(layers, found, optimizer, memory_limit)
    return dataclasses.replace(found, note=note), n_steps


def _splittable(layers, n_layers):
    """Return the pair of layers that can be split over places, or None."""
    try:
        layers.split(0, n_layers, 2)
        return layers.pair(0, n_layers)
    except DataError:  # no such pair, or a layer that holds more than parameters
        return None


def check_layers(layers, optimizer, n_places, limit):
    """Refuse a network of which no plan fits into the places: a layer does not, or all of them together."""
    if limit is None:
        return
    needs = _layer_bytes(layers, optimizer)
    if max(needs) > limit:
        raise DataError(
            f"layer {needs.index(max(needs))} needs {max(needs) / 2**20:.0f} MiB for parameters, gradient, "
            f"optimizer and snapshots, and a place has {limit / 2**20:.0f}: no stage can hold it; take "
            "larger workers, fewer threads on each, or plan='split' if it is one of two dense layers"
        )
    if sum(needs) > n_places * limit:
        raise DataError(
            f"the network needs {sum(needs) / 2**20:.0f} MiB for parameters, gradient, optimizer and "
            f"snapshots, and {n_places} places have {n_places * limit / 2**20:.0f}: take more or larger "
            "workers"
        )


def check_stages(layers, plan, optimizer, limit):
    """Refuse a plan with a stage of which a place cannot hold parameters, gradient, slots and snapshot."""
    needs = _least_bytes(layers, plan, optimizer)
    if limit is not None and limit < max(needs):
        raise DataError(
            f"stage {needs.index(max(needs))} needs {max(needs) / 2**20:.0f} MiB for parameters, gradient, "
            f"optimizer and snapshots, and a place has {limit / 2**20:.0f}: cut the network into more stages "
            "by plan, or take larger workers"
        )


def is_large(layers, optimizer):
    """Whether a network may need more memory than any worker has left: to ask for that takes time."""
    return sum(_layer_bytes(layers, optimizer)) > _ANYWHERE


def _layer_bytes(layers, optimizer):
    """Return the bytes of each layer: a gradient, and parameters and slots with their snapshot."""
    copies = 1 + 2 * _saved_copies(layers, optimizer)
    return [copies * sum(counts) * layers.dtype.itemsize for counts in layers.sizes]


def _saved_copies(layers, optimizer):
    """Count the vectors that snapshots hold, in addition to those at work: parameters and slots."""
    return 1 + len(optimizer.slots(np.empty(0, layers.dtype)))


def _least_bytes(layers, plan, optimizer):
    """Return the bytes of parameters, gradients, slots and a snapshot of a place of each stage of a plan."""
    layout, found = layout_of(plan, 1), []
    saved = _saved_copies(layers, optimizer)
    for (first, last, _), n_parts, n in zip(plan.stages, layout.parts, layout.replicas, strict=True):
        whole = sum(map(sum, layers.sizes[first:last]))
        numbers = max(map(len, layers.split(first, last, n_parts).index)) if n_parts > 1 else whole
        copies = gradient_vectors(layout.n_micro // n) + 2 * saved
        found.append(copies * numbers * layers.dtype.itemsize)
    return found


def train(
    layers, vectors, rows, settings, plan, n_steps, *, watch=None, callback=None, snapshot=None, **options
):
    """Train a network; return a `Trained`. ``snapshot(vectors, history)`` makes the model of a callback.

    With `vectors` None each place draws the initial parameters of its stage. `options`: of `run`.
    """
    layout = layout_of(plan, n_steps)
    stages = [
        layers.split(first, last, n) if n > 1 else layers.stage(first, last)
        for (first, last, _), n in zip(plan.stages, layout.parts, strict=True)
    ]
    program = Training(
        stages,
        layout,
        rows,
        starts=None if vectors is None else vectors.cut(layers.sizes, plan.stages),
        recompute=plan.recompute,
        **settings.chosen(*_OF_PROGRAM),
    )

    def joined():
        return Vectors.joined(program.held, plan.stages, layers.sizes)

    def each(info):
        enough = False
        if watch is not None:
            info.snapshot()  # which makes the program collect
            enough = watch.enough(joined())
        return (callback is not None and callback(info) is True) or enough

    with single_threaded_blas():
        done = run(
            program,
            PipelineSchedule(layout),
            max_rounds=settings.n_epochs,
            callback=each if callback is not None or watch is not None else None,
            snapshot=lambda history: snapshot(joined(), history),
            checkpoint_every=_CHECKPOINT_EVERY,
            **settings.chosen("engine", "n_jobs", "label", "verbose"),
            **options,
        )
    found = joined() if watch is None or watch.best is None else watch.best
    if not np.isfinite(found.trained).all():  # no forward pass came after the last step
        epoch = settings.first_epoch + len(done.history)
        raise DataError(
            f"parameters are not finite after the last step of epoch {epoch}: "
            f"scale X, or lower the learning rate ({settings.optimizer.learning_rate:g})"
        )
    losses = done.history.as_dict()["objective"]
    if len(losses) > 1 and losses[-1] > _ASTRAY * losses[0] > 0:
        raise DataError(
            f"the loss rose from {losses[0]:.3g} in the first epoch to {losses[-1]:.3g}: scale X, or lower "
            f"the learning rate ({settings.optimizer.learning_rate:g})"
        )
    return Trained(found, done.history, plan, _timeline(program.events), n_steps, done.reason)


def _timeline(events):
    """Return who did what when in the last epoch: a structured array, in seconds since its beginning."""
    rows = [
        (place, _SHOWN[int(kind)], step, micro, start, end)
        for place, of_place in enumerate(events)
        for _, kind, step, micro, start, end in of_place.reshape(-1, 6).tolist()
    ]
    timeline = np.array(rows, _EVENT)
    began = timeline["start"].min(initial=math.inf)
    for name in ("start", "end"):
        timeline[name] -= began
    return timeline
