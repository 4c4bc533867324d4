"""Base of the estimators of torch modules: parameters, fit, prediction, the module with its numbers."""

import copy
import dataclasses
from functools import partial
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from ..._typing import Callback, Engine, FileName, RandomState, Vector
from ...errors import DataError, DeviceError, in_brief, shortened
from ...scheduler.parameters import seed_from
from ...scheduler.schedules.pipeline import ORDERS
from ...scheduler.threads import run_tasks
from ...scheduler.wire import WIDE_FORMATS
from ...scheduler.workers import open_workers
from .._base import ENGINES, keep_parameters
from ..inputs.dask_arrays import engine_for
from ..inputs.pieces import checksum, first_rows, gathered, is_lazy
from ..inputs.targets import all_weights, check_names, check_scored, check_weights, with_weight
from .torch_data import as_data
from .torch_rows import checksum_of, new_rows, read_rows
from .training.fitting import (
    PlannedFit,
    ScoreWatch,
    TrainingSettings,
    Vectors,
    hold_out,
    is_large,
    plan_for,
    train,
)
from .training.optimizers import SGD, Adam, check_optimizer_state
from .training.torch_stage import (
    TorchLayers,
    copied,
    filled,
    import_torch,
    is_undrawn,
    make_module,
    one_torch_thread,
    seeded,
)
from .training.torch_workers import check_workers, chosen_device, device_here

_FREE = ("max_iter", "n_jobs", "verbose", "random_state", "plan")  # a fit that goes on may have others
_ROWS = 1024  # that are predicted at once


class TorchEstimator(PlannedFit):
    """Base of `TorchClassifier` and `TorchRegressor`, which define targets, losses and scores."""

    _parameter_constraints: ClassVar[dict] = {
        "module": "no_validation",
        "optimizer": [StrOptions({"sgd", "nesterov", "adam"})],
        "learning_rate": [Interval(Real, 0, None, closed="neither")],
        "momentum": [Interval(Real, 0, 1, closed="left")],
        "weight_decay": [Interval(Real, 0, None, closed="left")],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "micro_batches": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "plan": [StrOptions({"auto", "data", "pipeline", "split"}), list, tuple],
        "order": [StrOptions(set(ORDERS))],
        "recompute": [StrOptions({"auto"}), "boolean"],
        "wire": [None, StrOptions(set(WIDE_FORMATS))],
        "early_stopping": ["boolean"],
        "validation_fraction": [Interval(Real, 0, 1, closed="neither")],
        "n_iter_no_change": [Interval(Integral, 1, None, closed="left")],
        "warm_start": ["boolean"],
        "engine": ENGINES,
        "device": [str],
        "n_jobs": [None, Integral],
        "checkpoint": "no_validation",
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }
    _losses: ClassVar[dict[str, str]]  # names of the losses, and those of `Network`
    _stratified = False
    loss_curve_: list[float]
    n_iter_: int

    def __init__(
        self,
        module: Any = None,
        *,
        loss: str = "auto",
        optimizer: str = "sgd",
        learning_rate: float = 0.01,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        batch_size: int = 256,
        micro_batches: int | str = "auto",
        max_iter: int = 10,
        plan: Any = "auto",
        order: str = "1f1b",
        recompute: bool | str = "auto",
        wire: str | None = None,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 10,
        warm_start: bool = False,
        engine: Engine = "local",
        device: str = "cpu",
        n_jobs: int | None = None,
        checkpoint: FileName | None = None,
        random_state: RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        keep_parameters(self, locals())

    # For check_estimator(model, expected_failed_checks=model._expected_failed_checks).
    _expected_failed_checks: ClassVar[dict] = {
        "check_sample_weight_equivalence_on_dense_data": "minibatches are of rows, a repeated one is several",
        "check_regressor_multioutput": "predictions are of the type of the module",
        **{
            f"check_{name}": "X of the check holds integers, which are refused"
            for name in (
                "estimators_dtypes", "classifier_data_not_an_array", "sample_weights_not_an_array",
                "sample_weights_pandas_series", "sample_weights_shape",
            )
        },
    }  # fmt: skip

    def __sklearn_tags__(self):
        """Dense input only; rows may have several axes."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = False
        tags.input_tags.three_d_array = True
        return tags

    # Fitting ------------------------------------------------------------------------------------

    def fit(
        self,
        X: Any,
        y: Vector | None = None,
        sample_weight: Vector | None = None,
        *,
        callback: Callback | None = None,
    ) -> Self:
        """Train the network.

        Ctrl-C ends the fit after the running epoch and keeps the model so far, with a warning.

        Parameters
        ----------
        X : ndarray, DataFrame or Dask array of shape (n_samples, ...), Dataset, DataLoader, or iterable
            Floating-point numbers, converted to the type of the module's parameters. A Dask array or
            DataFrame goes to the current client, if there is one, and is computed by the workers.

            A map-style data set of torch has items (x, y), or x where `y` is given. All items are read once
            before the fit, for targets and checks, and those of a mini-batch again where it is trained on;
            random transforms that use torch's generator are drawn anew in each epoch. Of a DataLoader the
            data set is taken.

            A function, or a list of functions, that returns an iterable of batches (x, y), and an
            IterableDataset: read on the workers, if there are any, once for the targets and once for the
            rows, which must be the same. An iterator is read here. These rows are held in memory.
        y : array-like, optional
            Labels of shape (n_samples,), or targets of shape (n_samples,) or (n_samples, n_outputs). Not
            where they are part of `X`.
        sample_weight : float or array-like of shape (n_samples,), optional
            Not negative. Only ratios count: weights of the rows' losses are scaled to mean 1, and a row of
            weight 0 is one left out.
        callback : callable, optional
            ``callback(info)`` after every epoch; `info` has round, total, objective, seconds, history, and
            ``info.snapshot()``, the model so far as a fitted estimator. Returning True ends the fit.

        Returns
        -------
        self
        """
        self._validate_params()
        with self._draft() as draft:
            before = None
            if draft.warm_start and "weights_" in vars(draft):  # the optimizer begins anew
                before = Vectors(draft.weights_, draft.buffers_, None)
            targets_of = partial(type(self)._targets, before=before)
            draft._train(X, y, sample_weight, targets_of, before, callback)
        return self

    def _go_on(self, X, y, sample_weight, targets_of):
        """Train for one more epoch, for `partial_fit`."""
        self._validate_params()
        with self._draft() as draft:
            if draft.early_stopping:
                raise DataError("partial_fit holds no rows out: set early_stopping=False, or call fit")
            if draft.checkpoint is not None:
                raise DataError("partial_fit writes no checkpoint: set checkpoint=None, or call fit")
            before = None
            if "weights_" in vars(draft):
                before = Vectors(draft.weights_, draft.buffers_, vars(draft).get("optimizer_state_"))
            draft._train(X, y, sample_weight, targets_of, before, n_epochs=1)
        return self

    def _train(self, X, y, sample_weight, targets_of, before, callback=None, n_epochs=None):
        """Fit, from the numbers of before if there are any; with `n_epochs` as many more of them."""
        goes_on = n_epochs is not None and before is not None
        device = device_here(self.device) if self.engine == "local" else chosen_device(self.device, {})
        given = read_rows(X, y, sample_weight, type(self).__name__, self.engine, self.n_jobs)
        X, engine = given.X, given.engine
        check_names(self, given.named, given.y, first=not goes_on)
        if goes_on:
            self._check_shape(X)
        targets, n_outputs = targets_of(self, given.y, X.shape[0])
        seed = seed_from(self.random_state)
        module = make_module(self.module, X.shape[1:], n_outputs, seed)
        layers, optimizer = TorchLayers(module, device), self._optimizer()
        vectors = self._start(layers, before, optimizer)
        weights = self._weights_of(check_weights(given.sample_weight, X.shape[0]), targets)
        rows = tuple(
            part if part.dtype.kind == "i" else part.astype(layers.dtype, copy=False)
            for part in with_weight(X, targets, weights)
        )
        _check_output(module, first_rows(rows[0], 2, engine), n_outputs, type(self).__name__)
        own = module, X.shape[1:], n_outputs
        n_updates = vars(self).get("n_updates_", 0) if goes_on and vectors is before else 0
        rows, watch = self._split(rows, seed, own, engine)
        # A pass of `partial_fit` may take less time than timings, and no other plan has other bits.
        wanted = "data" if n_epochs is not None and self.plan == "auto" else self.plan
        settings = TrainingSettings.of(
            self,
            loss=self._losses[self.loss],
            optimizer=optimizer,
            seed=seed,
            n_epochs=n_epochs or self.max_iter,
            engine=engine,
            first_epoch=self.n_iter_ if goes_on else 0,
            first_update=n_updates,
        )
        plan, n_steps = self._plan_for(wanted, layers, vectors, rows[0], settings)

        def store(model, vectors, history):
            return model._store(
                own, vectors, history, n_steps, n_updates, self.loss_curve_ if goes_on else ()
            )

        done = train(
            layers,
            vectors,
            rows,
            settings,
            plan,
            n_steps,
            watch=watch,
            callback=callback,
            snapshot=lambda vectors, history: store(copy.copy(self), vectors, history),
            checkpoint=self.checkpoint,
            fingerprint=None
            if self.checkpoint is None
            else self._fingerprint(rows, given.crc, vectors, seed, plan),
        )
        store(self, done.vectors, done.history)
        if not is_undrawn(module):  # else when it is asked for: it may be large
            self._filled = filled(module, self.weights_, self.buffers_)
        self._plan, self._timeline = done.plan, done.timeline
        if watch is not None:
            self.validation_scores_, self.best_validation_score_ = watch.scores, watch.highest

    def _weights_of(self, weights, targets):
        """Return the weights of the rows, from those that are given."""
        return weights

    def _optimizer(self):
        if self.optimizer == "adam":
            return Adam(self.learning_rate, weight_decay=self.weight_decay)
        return SGD(self.learning_rate, self.momentum, self.optimizer == "nesterov", self.weight_decay)

    def _start(self, layers, before, optimizer):
        """Return the initial numbers: the module's, or those of before; None where places draw them."""
        if before is None and layers.start is None:
            return None
        vectors = Vectors(layers.start[0], layers.start[1], None) if before is None else before
        found = [sum(counts) for counts in zip(*layers.sizes, strict=True)]
        if found != [len(vectors.trained), len(vectors.buffers)]:
            raise DataError(
                f"the model has {len(vectors.trained)} parameters and {len(vectors.buffers)} other numbers, "
                f"but module has {found[0]} and {found[1]}: give the same module, or fit a new estimator"
            )
        if vectors.slots is not None and vectors.slots.shape != optimizer.slots(vectors.trained).shape:
            vectors = Vectors(vectors.trained, vectors.buffers, None)
        return vectors

    def _split(self, rows, seed, own, engine):
        """Hold rows out for early stopping, and make what watches the score on them."""
        if not self.early_stopping:
            return rows, None
        if self.checkpoint is not None:
            raise DataError(
                "early_stopping=True and checkpoint: a checkpoint does not hold the best parameters so far; "
                "set one of them only"
            )
        labels = rows[1] if self._stratified else None
        rows, aside = hold_out(rows, seed, fraction=self.validation_fraction, labels=labels)
        aside = tuple(gathered(part, engine) for part in aside)

        def score(vectors):
            module = filled(own[0], vectors.trained, vectors.buffers)
            return self._score(_output(module, aside[0], self.n_jobs, self._device_here()), *aside[1:])

        return rows, ScoreWatch(score, self.n_iter_no_change, 0.0)

    def _plan_for(self, wanted, layers, vectors, X, settings):
        workers, memory, optimizer = open_workers(settings.engine, self.n_jobs), None, settings.optimizer
        if workers.remote:
            weighed = optimizer if is_large(layers, optimizer) else None
            memory, layers.device = check_workers(workers, layers.children, weighed, self.device)
        if self.checkpoint is not None and isinstance(wanted, str):
            # A state belongs to the stages of its fit, and other timings would choose others.
            if wanted == "pipeline":
                raise DataError(
                    "plan='pipeline' is chosen by timings, and a fit that resumes might find another: with "
                    "checkpoint give the stages as a list, such as [('0:2', 1), ('2:', 1)]"
                )
            wanted = "data"
        if self.wire is not None and wanted == "auto":  # the plan decides what is rounded
            wanted = "data"
        plan, n_steps = plan_for(
            wanted, layers, vectors, X, settings, memory, least_rows=2 if layers.has_batch_norm() else 1
        )
        if len(layers.sizes) == 1:
            plan = dataclasses.replace(
                plan, note="one stage: only the children of a nn.Sequential can be cut"
            )
        return plan, n_steps

    def _fingerprint(self, rows, crc, vectors, seed, plan):
        """What a checkpoint belongs to: data, parameters, the numbers of the module."""
        places = self._place_parameters()
        settings = {k: v for k, v in self.get_params(deep=False).items() if k not in (*places, *_FREE)}
        start = None if vectors is None else checksum((vectors.trained, vectors.buffers))
        return {
            "settings": repr(sorted(settings.items())),
            "stages": repr(plan.stages),
            "seed": seed,
            "rows": checksum((checksum_of(rows[0], crc), *rows[1:])),
            "start": start,
        }

    def _store(self, own, vectors, history, n_steps, n_updates, curve):
        """Set the fitted attributes."""
        module, self.row_shape_, self.n_outputs_ = own
        self._forget()
        made = type(module) if self.module is module else self.module
        self.module_name_ = f"{made.__module__}:{getattr(made, '__qualname__', type(made).__qualname__)}"
        self.weights_, self.buffers_, self.optimizer_state_ = vectors.trained, vectors.buffers, vectors.slots
        self.n_updates_ = n_updates + len(history) * n_steps
        self._template, self._filled = module, None
        self.history_ = history.as_dict()
        self.loss_curve_ = [*curve, *self.history_["objective"].tolist()]
        self.loss_, self.n_iter_ = self.loss_curve_[-1], len(self.loss_curve_)
        return self

    # Using ---------------------------------------------------------------------------------------

    @property
    def module_(self) -> Any:
        """The module with the fitted parameters."""
        shape, n_outputs, known = self.row_shape_, self.n_outputs_, vars(self)
        if known.get("_filled") is None:
            template = known.get("_template")
            if template is None and self.module is None:
                raise DataError(
                    "this model comes from a file, which holds no code: read it by stradask.load(path, "
                    f"module=...) with the module that it was fitted with, of {shortened(self.module_name_)}"
                )
            if template is None:
                template = make_module(self.module, shape, n_outputs, 0)
            self._filled = filled(template, self.weights_, self.buffers_)
        return self._filled

    def _output(self, X):
        """Compute the module's output for rows."""
        rows = new_rows(X, type(self).__name__)
        check_names(self, rows if as_data(X) is not None else X, "no_validation", first=False)
        self._check_shape(rows)
        rows = rows.astype(self.weights_.dtype, copy=False)
        return _output(self.module_, rows, self.n_jobs, self._device_here())

    def _scored(self, metric, X, y, sample_weight):
        """Compare predictions with targets, which data sets bring."""
        check_is_fitted(self)
        name, is_data = type(self).__name__, not is_lazy(X) and as_data(X) is not None
        if is_data:
            X, y, sample_weight = read_rows(X, y, sample_weight, name, "local", self.n_jobs)[1:4]
        if y is None:
            raise DataError(f"{name}.score needs y: pass it, or a data set of pairs (x, y)")
        engine = engine_for(X, self.engine)
        found, y, sample_weight = (gathered(part, engine) for part in (self.predict(X), y, sample_weight))
        check_scored(found, y, name)
        weights = sample_weight if sample_weight is None else all_weights(sample_weight, len(found))
        return float(metric(y, found, sample_weight=weights))

    def _device_here(self):
        """Return the device of predictions: the CPU where only the workers have the one of the fit."""
        try:
            return device_here(self.device)
        except DeviceError:
            return "cpu"

    def _check_shape(self, X):
        if X.shape[1:] != self.row_shape_:
            raise DataError(
                f"rows of X have the shape {X.shape[1:]}, but those of the fit had {self.row_shape_}"
            )

    def _check_state(self):
        super()._check_state()
        for name in ("weights_", "buffers_"):
            vector = getattr(self, name)
            if not isinstance(vector, np.ndarray) or vector.ndim != 1 or vector.dtype.kind != "f":
                raise DataError(f"{name} must be a vector of numbers")
        check_optimizer_state(self, len(self.weights_))
        if type(self.row_shape_) is not tuple or not all(type(n) is int and n > 0 for n in self.row_shape_):
            raise DataError(f"row_shape_ must be a shape, and is {shortened(self.row_shape_)}")
        if not isinstance(self.module_name_, str):
            raise DataError("module_name_ must be text")


def _output(module, X, n_jobs, device):
    """Compute a module's output for rows, in parts on threads: the same bits on any number of them."""
    torch = import_torch()
    if device != "cpu":
        module, n_jobs = copied(module).to(device), 1

    def compute(part):
        with one_torch_thread(), torch.no_grad():
            return module(torch.from_numpy(np.array(part)).to(device)).cpu().numpy()

    parts = [(compute, (X[first : first + _ROWS],)) for first in range(0, len(X), _ROWS)]
    return np.concatenate(run_tasks(parts, n_jobs))


def _check_output(module, X, n_outputs, name):
    """Call the module on rows; refuse an output of another form than the targets, or without a gradient."""
    torch = import_torch()
    trial = copied(module).eval()
    if not any(p.requires_grad for p in trial.parameters()):
        raise DataError(
            "module has no parameter to train: requires_grad is False for each; set it for those to be fitted"
        )
    try:
        with seeded(0), one_torch_thread(), torch.enable_grad():
            output = trial(torch.from_numpy(X).to("meta" if is_undrawn(trial) else "cpu"))
    except Exception as error:  # of the caller's module
        raise DataError(
            f"module fails on rows of the shape {X.shape[1:]}: {in_brief(error, 120)}; "
            f"module(torch.zeros{(2, *X.shape[1:])}) shows where. A layer of nn.Sequential is given what "
            "the one before returns, also a tuple, as of nn.LSTM; nn.Embedding needs x.long() before it"
        ) from error
    form = tuple(output.shape[1:]) if isinstance(output, torch.Tensor) else type(output).__name__
    if form != (n_outputs,):
        raise DataError(
            f"module gives {shortened(form)} for each row, and {name} needs a tensor of ({n_outputs},): one "
            "output for each class or target"
        )
    if len(output) != len(X):
        raise DataError(
            f"module gives {len(output)} rows for {len(X)}: it must keep the rows apart, one output for each"
        )
    if not output.requires_grad:
        raise DataError(
            "module's output has no gradient, so that nothing would be learned: is it detached, of whole "
            "numbers, or computed under torch.no_grad?"
        )
