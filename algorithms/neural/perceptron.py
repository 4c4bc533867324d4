"""Base of the multi-layer perceptrons: parameters, the fit by either solver, layers as attributes."""

import copy
import dataclasses
import functools
import itertools
import math
import warnings
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils._param_validation import Interval, Options, StrOptions
from sklearn.utils.validation import check_is_fitted

from ..._typing import Callback, Engine, Matrix, RandomState, Vector
from ...errors import DataError, shortened
from ...kernels.cuda.device import cuda_device, device_for, why_no_device
from ...scheduler.parameters import seed_from
from ...scheduler.threads import single_threaded_blas
from .._base import ENGINES, keep_parameters, weights_differ
from ..inputs.matrices import check_rows, real
from ..inputs.targets import check_names, check_weights, with_weight
from ..optimize.downpour import one_pass, watched
from ..optimize.minimize import minimize
from ..optimize.watch import Watch
from .network import Network
from .scheduled import SCHEDULED, by_schedule, check_schedules, next_pass
from .scores import OneMinusScore
from .training.fitting import PlannedFit, ScoreWatch, hold_out
from .training.optimizers import check_optimizer_state

_PORTION = 1024  # rows of a portion of Sandblaster's, on any number of threads
_SPLIT = 2**31  # random_state is a 32-bit number
# Operations of a step of minibatches from which "auto" is a GPU. An H100 against one thread of its host took
# 4.8 times as long at 9e6, as long at 2e8, .4 at 2e9 and .35 at 1e10 (docs/gpu.md).
_ON_GPU = 1e9
_ASTRAY = 100  # times the least loss of a fit: it has left that


class Perceptron(PlannedFit):
    """Base of `MLPClassifier` and `MLPRegressor`, which define targets and scores."""

    _optional_attributes = (
        *PlannedFit._optional_attributes,
        "learning_rate_",
        "squared_gradients_",
        "optimizer_state_",
        "n_updates_",
        "_plan",
        "_timeline",
    )
    # For check_estimator(model, expected_failed_checks=model._expected_failed_checks).
    _expected_failed_checks: ClassVar[dict] = weights_differ("in minibatches a repeated row is several")
    _parameter_constraints: ClassVar[dict] = {
        "hidden_layer_sizes": ["array-like", Interval(Integral, 1, None, closed="left")],
        "activation": [StrOptions({"relu", "tanh", "logistic", "identity"})],
        "solver": [StrOptions({"sandblaster", "downpour", *SCHEDULED})],
        "alpha": [Interval(Real, 0, None, closed="left")],
        "batch_size": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left")],
        "learning_rate": [StrOptions({"constant", "invscaling", "adaptive"})],
        "learning_rate_init": [None, Interval(Real, 0, None, closed="neither")],
        "power_t": [Interval(Real, 0, None, closed="left")],
        "momentum": [Interval(Real, 0, 1, closed="left")],
        "nesterovs_momentum": ["boolean"],
        "plan": [StrOptions({"auto", "data", "pipeline", "split"}), list, tuple],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
        "n_iter_no_change": [Interval(Integral, 1, None, closed="left")],
        "early_stopping": ["boolean"],
        "validation_fraction": [Interval(Real, 0, 1, closed="neither")],
        "beta_1": [Interval(Real, 0, 1, closed="left")],
        "beta_2": [Interval(Real, 0, 1, closed="left")],
        "epsilon": [Interval(Real, 0, None, closed="neither")],
        "warm_start": ["boolean"],
        "n_replicas": [Interval(Integral, 1, None, closed="left")],
        "staleness": [Interval(Integral, 0, None, closed="left"), Options(Real, {math.inf})],
        "random_state": ["random_state"],
        "engine": ENGINES,
        "device": [StrOptions({"cpu", "cuda", "auto"})],
        "n_jobs": [None, Integral],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        hidden_layer_sizes: Any = (100,),
        activation: str = "relu",
        *,
        solver: str = "adam",
        alpha: float = 1e-4,
        batch_size: int | str = "auto",
        learning_rate: str = "constant",
        learning_rate_init: float | None = None,
        power_t: float = 0.5,
        momentum: float = 0.9,
        nesterovs_momentum: bool = True,
        plan: Any = "auto",
        max_iter: int = 200,
        tol: float = 1e-4,
        n_iter_no_change: int = 10,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-8,
        warm_start: bool = False,
        n_replicas: int = 2,
        staleness: float = 0,
        random_state: RandomState | None = None,
        engine: Engine = "local",
        device: str = "cpu",
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        keep_parameters(self, locals())

    # Fitting ------------------------------------------------------------------------------------

    def fit(
        self, X: Matrix, y: Vector, sample_weight: Vector | None = None, *, callback: Callback | None = None
    ) -> Self:
        """Train the network.

        Ctrl-C stops after the running step, or pass of Downpour on threads, and keeps the model so far, with
        a warning.

        Parameters
        ----------
        X : ndarray, sparse matrix or DataFrame of shape (n_samples, n_features)
            float32 and float64 are kept; all arithmetic is in that type.
        y : array-like
            Labels of shape (n_samples,), or targets of shape (n_samples,) or (n_samples, n_outputs).
        sample_weight : float or array-like of shape (n_samples,), optional
            Not negative. Only ratios count: a factor that all weights share changes nothing, and a row of
            weight 0 is one left out.
        callback : callable, optional
            ``callback(info)`` after every step, or pass of Downpour; `info` has round, total, objective,
            seconds, history, and ``info.snapshot()``, the model so far as a fitted estimator. Returning True
            ends the fit. Not with Downpour on a cluster.

        Returns
        -------
        self
        """
        self._validate_params()
        check_schedules(self)
        with self._draft() as draft:
            hidden, X = draft._hidden(), draft._read(X, y)
            draft._forget()
            before = draft._last_layers() if draft.warm_start else None
            targets, loss, n_outputs = draft._targets(y, X)
            seed = seed_from(draft.random_state)
            rows, held_out = draft._split(_rows(X, targets, sample_weight), seed)
            sizes = (X.shape[1], *hidden, n_outputs)
            network = Network(sizes, draft.activation, loss, draft.alpha, rows[0].shape[0], draft.device_)
            w = draft._initial(network, before, seed, X.dtype)
            solve = by_schedule if draft.solver in SCHEDULED else type(draft)._by_portions
            with single_threaded_blas():
                w = solve(draft, network, w, rows, held_out, seed, callback)
            draft._refuse_divergence(loss, targets, n_outputs)
            draft._keep(network, w, X.dtype)
        return self

    def _refuse_divergence(self, loss, targets, n_outputs):
        """Refuse a model far worse than outputs of zero, or worse and far from where it was in between."""
        of_zeros = math.log(n_outputs + 1)
        if loss == "squared":
            of_zeros = np.einsum("ij,ij->", targets, targets, dtype=np.float64) / (2 * len(targets))
        rise = self.loss_ / max(min(self.loss_curve_, default=self.loss_), 1e-300)
        if self.loss_ > of_zeros > 0 and max(rise, self.loss_ / of_zeros / 100) > _ASTRAY:
            raise DataError(
                f"the fit diverged: its loss is {self.loss_:.3g}, that of outputs of zero {of_zeros:.3g}: "
                "scale the columns of X (and y), or lower learning_rate_init"
            )

    def _by_portions(self, network, w, rows, held_out, seed, callback):
        """Minimise by L-BFGS over portions of rows, or by Downpour."""
        watch = self._watch(network, rows[0].dtype, callback)
        solve = self._by_sandblaster if self.solver == "sandblaster" else self._by_downpour
        return solve(network, w, rows, held_out, seed, watch)

    def _read(self, X, y, dtype=None):
        """Check X, and find the device; `dtype` is that of the model that goes on, if there is one."""
        values = real(X, type(self).__name__, sparse_format="csr", order="C", finite=True)
        check_names(self, X, y, first=dtype is None)
        X = values if dtype is None else values.astype(dtype, copy=False)
        self.device_ = self._device(X)
        return X

    def _watch(self, network, dtype, callback):
        return Watch(
            self.max_iter,
            label=type(self).__name__,
            verbose=self.verbose,
            callback=callback,
            snapshot=functools.partial(self._snapshot, network, dtype),
            unit=1 / network.n_rows if self.solver == "sandblaster" else 1.0,
        )

    def _batch(self, n_rows):
        """Rows of a minibatch."""
        return min(200, n_rows) if self.batch_size == "auto" else self.batch_size

    def _hidden(self):
        sizes = tuple(np.atleast_1d(np.asarray(self.hidden_layer_sizes)).tolist())
        if any(type(n) is not int or n < 1 for n in sizes):
            raise DataError(
                f"hidden_layer_sizes must be integers above 0, got {shortened(self.hidden_layer_sizes)}"
            )
        return sizes

    def _device(self, X):
        """Return where the network is computed; raises before any work if it cannot be."""
        is_dense = isinstance(X, np.ndarray)
        if self.device == "cuda" and not is_dense:
            raise DataError(
                "device='cuda' takes a dense X, and this one is sparse: use device='cpu' or 'auto'"
            )
        if self.device == "auto" and self.solver in SCHEDULED and self._step(X) < _ON_GPU:
            return "cpu"
        return "cuda" if is_dense and device_for(self.device) is not None else "cpu"

    def _step(self, X):
        """Operations of a step of minibatches, but for the last layer."""
        widths = (X.shape[1], *self._hidden())
        return 6.0 * self._batch(X.shape[0]) * sum(a * b for a, b in itertools.pairwise(widths))

    def _last_layers(self):
        return (self.coefs_, self.intercepts_) if "coefs_" in vars(self) else None

    def _initial(self, network, before, seed, dtype, how="warm_start=True"):
        """Initial parameters: drawn, or those of the last fit."""
        if before is None:
            return network.start(seed, dtype)
        shapes = [coef.shape for coef in before[0]]
        if shapes != network.shapes:
            raise DataError(
                f"{how} goes on from layers of the shapes {shapes}, but these data and sizes make "
                f"{network.shapes}: fit a new estimator"
                + (", or set warm_start=False" if how == "warm_start=True" else "")
            )
        parts = [part.ravel() for pair in zip(*before, strict=True) for part in pair]
        return np.concatenate(parts).astype(dtype)

    def _split(self, rows, seed):
        """Hold rows out for early stopping; without it these are None."""
        if not self.early_stopping:
            return rows, None
        labels = rows[1] if self._stratified else None
        return hold_out(rows, seed, fraction=self.validation_fraction, labels=labels)

    def _by_sandblaster(self, network, w, rows, held_out, seed, watch):
        n_rows = rows[0].shape[0]
        size = _PORTION if network.device == "cpu" else network.rows_at_once()
        portions = [tuple(part[a : a + size] for part in rows) for a in range(0, n_rows, size)]
        if self.engine == "local":
            portions = _moved_to_device(network, portions)
        score = functools.partial(self._score, network, held_out)
        best = None if held_out is None else ScoreWatch(score, self.n_iter_no_change, self.tol)

        def each(iterate):
            over = best is not None and best.enough(iterate.x.copy())
            return watch(iterate) or over or iterate.gap <= self.tol

        # With tol, `minimize` bounds the excess relative to the loss too, which falls to 0 in a network that
        # overfits. From 1 on the gradient at the start is small enough.
        max_iter = self.max_iter if self.tol < 1 else 0
        with watch:
            result = minimize(
                network.loss,
                w.astype(np.float64),
                portions,
                engine=self.engine,
                n_jobs=self.n_jobs if network.device == "cpu" else 1,  # of a GPU the host's threads only wait
                max_iter=max_iter,
                tol=0.0,
                callback=each,
            )
        if result.status == 4:
            raise DataError(f"{result.message}: scale the columns of X")
        if result.status == 1 and max_iter:
            self._warn(f"max_iter={max_iter} steps")
        self.n_iter_ = int(result.nit)
        self.loss_curve_ = (result.history["objective"][1:] / n_rows).tolist()
        self.loss_ = float(result.fun) / n_rows
        self.t_ = int(result.nfev) * n_rows
        if best is None:
            return result.x
        self.validation_scores_, self.best_validation_score_ = best.scores, best.highest
        return result.x if best.best is None else best.best

    def _by_downpour(self, network, w, rows, held_out, seed, watch):
        n_rows, n_replicas = rows[0].shape[0], min(self.n_replicas, rows[0].shape[0])
        # Every n-th row: rows that are sorted by class are then no harm.
        portions = [tuple(part[r::n_replicas] for part in rows) for r in range(n_replicas)]
        result = watched(
            watch,
            self.engine,
            network.loss,
            w,
            portions,
            validation=held_out,
            evaluate=None if held_out is None else OneMinusScore(self._score, network),
            learning_rate=self.learning_rate_init,
            staleness=self.staleness,
            batch_size=min(self._batch(n_rows), portions[-1][0].shape[0]),
            max_epochs=self.max_iter,
            n_iter_no_change=self.n_iter_no_change,
            tol=self.tol,
            random_state=seed % _SPLIT,
        )
        if result.status == 4:
            raise DataError(f"{result.message}: scale the columns of X, or lower learning_rate_init")
        if result.status == 1:
            self._warn(f"max_iter={self.max_iter} passes")
        self.n_iter_ = len(result.history["loss"])
        self.loss_curve_ = result.history["loss"].tolist()
        self.loss_ = self.loss_curve_[-1]
        self.t_ = int(result.samples)
        self.learning_rate_ = float(result.learning_rate)
        self.squared_gradients_ = result.squares
        if held_out is not None:
            self.validation_scores_ = (1 - result.history["objective"]).tolist()
            self.best_validation_score_ = 1 - float(result.fun)
        return result.x

    def _pass(self, X, y, sample_weight, targets_of):
        """One pass over rows, from the state of the last call."""
        self._validate_params()
        check_schedules(self)
        with self._draft() as draft:
            draft._check_one_pass()
            before = draft._last_layers()
            hidden, X = draft._hidden(), draft._read(X, y, None if before is None else before[0][0].dtype)
            targets, loss, n_outputs = targets_of(draft, y, X, before is None)
            seed = seed_from(draft.random_state)
            rows = _rows(X, targets, sample_weight)
            sizes = (X.shape[1], *hidden, n_outputs)
            network = Network(sizes, draft.activation, loss, draft.alpha, rows[0].shape[0], draft.device_)
            w = draft._initial(network, before, seed, X.dtype, "partial_fit")
            learn = next_pass if draft.solver in SCHEDULED else type(draft)._one_pass
            with single_threaded_blas():
                w = learn(draft, network, w, rows, seed, is_first=before is None)
            draft._keep(network, w, X.dtype)
        return self

    def _check_one_pass(self):
        if self.early_stopping:
            raise DataError("partial_fit holds no rows out: set early_stopping=False, or call fit")
        if self.engine != "local" and self.solver == "downpour":
            raise DataError(
                f"partial_fit of solver='downpour' runs in this process, but engine={shortened(self.engine)}:"
                " set engine='local', or take solver='adam' or 'sgd'"
            )

    def _one_pass(self, network, w, rows, seed, *, is_first):
        """Take one replica's steps of Downpour, with the lengths of the pass before if there was one."""
        squares, n_rows_before = vars(self).get("squared_gradients_"), 0 if is_first else self.t_
        rate = self.learning_rate_init
        if rate is None and squares is not None:
            rate = self.learning_rate_
        passed = one_pass(
            network.loss,
            w,
            np.zeros_like(w) if squares is None else squares.astype(w.dtype, copy=False),
            rows,
            learning_rate=rate,
            batch_size=self._batch(network.n_rows),
            seed=seed % _SPLIT,
            number=n_rows_before,
        )
        if not math.isfinite(passed.loss):
            raise DataError(
                "the loss or its gradient is not finite: scale the columns of X, or lower learning_rate_init"
            )
        self._forget()
        self.squared_gradients_, self.learning_rate_ = passed.squares, float(passed.rate)
        self.n_iter_, self.t_ = 1 if is_first else self.n_iter_ + 1, n_rows_before + network.n_rows
        self.loss_curve_ = [*(() if is_first else self.loss_curve_), passed.loss]
        self.loss_ = passed.loss
        return passed.x

    def _snapshot(self, network, dtype, w, history):
        model: Any = copy.copy(self)
        model.loss_curve_ = history.as_dict()["objective"].tolist()
        model.loss_, model.n_iter_ = model.loss_curve_[-1], len(history)
        model.t_ = len(history) * network.n_rows
        model._keep(network, w, dtype)
        return model

    def _warn(self, limit):
        warnings.warn(
            f"{type(self).__name__} has not converged in {limit}: raise max_iter or tol, or scale the "
            "columns",
            ConvergenceWarning,
            stacklevel=4,
        )

    def _keep(self, network, w, dtype):
        """Set the fitted attributes from the vector of parameters."""
        self.coefs_: Any = [W.astype(dtype) for W, _ in network.layers(w)]
        self.intercepts_: Any = [b.astype(dtype) for _, b in network.layers(w)]
        self.n_layers_ = len(network.sizes)
        self.n_outputs_ = network.sizes[-1]
        self.out_activation_ = {"squared": "identity"}.get(network.loss_name, network.loss_name)
        self.best_loss_ = None if self.early_stopping else min([self.loss_, *self.loss_curve_])

    # Using --------------------------------------------------------------------------------------

    def _output(self, X):
        """Return the network's output, and the network."""
        check_is_fitted(self)
        X = check_rows(self, X)
        network, w = self._network()
        with single_threaded_blas():
            if not isinstance(X, np.ndarray):
                X, network = X.tocsr(), dataclasses.replace(network, device="cpu")
            return network.output(X, w), network

    def _network(self):
        sizes = (self.coefs_[0].shape[0], *(W.shape[1] for W in self.coefs_))
        loss = {"identity": "squared"}.get(self.out_activation_, self.out_activation_)
        pairs = zip(self.coefs_, self.intercepts_, strict=True)
        w = np.concatenate([part.ravel() for pair in pairs for part in pair])
        device = "cpu" if self.device == "cpu" or why_no_device() else "cuda"
        return Network(sizes, self.activation, loss, 0.0, 1, device), w

    def _check_state(self):
        super()._check_state()
        widths = [self.n_features_in_, *(W.shape[1] for W in self.coefs_)]
        shapes = [W.shape for W in self.coefs_]
        if shapes != list(itertools.pairwise(widths)):
            raise DataError(f"the layers do not fit together: {shapes}")
        if [b.shape for b in self.intercepts_] != [(n,) for n in widths[1:]]:
            raise DataError("intercepts_ are not those of coefs_")
        squares = vars(self).get("squared_gradients_")
        n_parameters = sum(part.size for part in (*self.coefs_, *self.intercepts_))
        check_optimizer_state(self, n_parameters)
        if squares is not None and (squares.shape != (n_parameters,) or not (squares >= 0).all()):
            raise DataError("squared_gradients_ are not those of coefs_")
        if any(part.dtype.kind != "f" for part in (*self.coefs_, *self.intercepts_)):
            raise DataError("coefs_ and intercepts_ are not numbers")
        self._network()


def _rows(X, targets, sample_weight):
    """X, targets and, unless all are equal, weights of the rows."""
    X, targets, *weights = with_weight(X, targets, check_weights(sample_weight, X.shape[0]))
    return (X, targets, *(part.astype(X.dtype) for part in weights))


def _moved_to_device(network, portions):
    """Copy portions to the GPU for all passes, as far as half of its free memory goes."""
    if network.device == "cpu":
        return portions
    free = cuda_device().free_memory() / 2
    sizes = np.cumsum([sum(part.nbytes for part in portion) for portion in portions])
    return [
        network.on_device(portion) if size <= free else portion
        for portion, size in zip(portions, sizes, strict=True)
    ]
