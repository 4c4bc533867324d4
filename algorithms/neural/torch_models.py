"""Torch modules as estimators: `TorchClassifier` and `TorchRegressor`."""

from typing import Any, ClassVar, Self

import numpy as np
from scipy.special import log_softmax, softmax
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.validation import check_is_fitted

from ..._typing import Array, Engine, FileName, Matrix, RandomState, Vector
from ...errors import DataError
from .._base import documented, keep_parameters
from ..inputs.pieces import is_lazy
from ..inputs.targets import (
    check_class_weights,
    check_labels,
    check_same_classes,
    check_targets,
    labels_of_call,
)
from .torch_docs import SHARED_DOCS
from .torch_estimator import TorchEstimator
from .torch_rows import lazily

_LOSS = """loss : {"auto", %s}, default="auto"
    %s"""


@documented(
    SHARED_DOCS
    | {"loss": _LOSS % ('"cross_entropy"', 'As in PyTorch, the mean over rows; "auto" is "cross_entropy".')}
)
class TorchClassifier(ClassifierMixin, TorchEstimator):
    """A classifier: a torch module, trained on threads or on the workers of a Dask cluster.

    The module has one output a class. Mini-batches are cut into micro-batches, which replicas share and
    which travel through the stages of a cut network.

    Columns should be of a scale of about 1, unless the module scales them.

    Parameters
    ----------
    %(parameters)s
    class_weight : None, "balanced" or dict of label to float, default=None
        Multiplies the weights of rows; "balanced" is n_samples / (n_classes * n_rows_of_the_class).

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    %(attributes)s

    Raises
    ------
    DataError
        For NaN, infinities, integers in `X`, a single class, a module whose output is no (n_classes,) a row,
        a plan that does not fit the module or the workers, and the like; if the loss is not finite any more.
    StradaskError
        If torch is not installed, or a worker has another version.
    DeviceError
        If `device` is a GPU that is not there.

    Notes
    -----
    %(notes)s

    References
    ----------
    Huang et al., "GPipe: efficient training of giant neural networks using pipeline parallelism", NeurIPS
    2019. Narayanan et al., "PipeDream: generalized pipeline parallelism for DNN training", SOSP 2019.
    Sergeev, Del Balso, "Horovod: fast and easy distributed deep learning in TensorFlow", arXiv:1802.05799.

    Examples
    --------
    >>> import stradask as sd
    >>> from sklearn.datasets import load_iris
    >>> from torch import nn  # doctest: +SKIP
    >>> X, y = load_iris(return_X_y=True)
    >>> net = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 3))  # doctest: +SKIP
    >>> model = sd.TorchClassifier(net, max_iter=100, batch_size=30, random_state=0)  # doctest: +SKIP
    >>> model.fit(X - X.mean(axis=0), y).score(X - X.mean(axis=0), y) > 0.9  # doctest: +SKIP
    True
    """

    _parameter_constraints: ClassVar[dict] = TorchEstimator._parameter_constraints | {
        "loss": [StrOptions({"auto", "cross_entropy"})],
        "class_weight": [None, dict, StrOptions({"balanced"})],
    }
    _losses: ClassVar[dict] = {"auto": "softmax", "cross_entropy": "softmax"}
    _stratified = True

    def __init__(
        self,
        module: Any = None,
        *,
        loss: str = "auto",
        optimizer: str = "sgd",
        learning_rate: float = 0.01,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        class_weight: Any = None,
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

    def _weights_of(self, weights, targets):
        return check_class_weights(self.class_weight, self.classes_, targets, weights)

    def _targets(self, y, n_rows, before):
        known = vars(self)["classes_"] if before is not None else None
        self.classes_, numbers = check_labels(y, n_rows, type(self).__name__)
        if known is not None:
            check_same_classes(known, self.classes_)
        return numbers, len(self.classes_)

    def partial_fit(
        self,
        X: Any,
        y: Vector | None = None,
        classes: Vector | None = None,
        sample_weight: Vector | None = None,
    ) -> Self:
        """Train for an epoch on these rows, from where the last call, or `fit`, ended.

        The optimizer goes on with its state. ``plan="auto"`` is "data", as timings may take longer than the
        epoch.

        Parameters
        ----------
        X : ndarray or DataFrame of shape (n_samples, ...), or as in `fit`
        y : array-like of shape (n_samples,), optional
            Not all classes need be in it.
        classes : array-like of shape (n_classes,), optional
            The labels of all calls; needed at the first.
        sample_weight : float or array-like of shape (n_samples,), optional

        Returns
        -------
        self
        """

        if isinstance(self.class_weight, str):
            raise DataError(
                f"class_weight={self.class_weight!r} would be another one in each call of partial_fit: give "
                "a dict of weights, or call fit"
            )

        def targets_of(draft, y, n_rows):
            known = vars(draft).get("classes_")
            draft.classes_, numbers = labels_of_call(classes, y, n_rows, known, type(draft).__name__)
            return numbers, len(draft.classes_)

        return self._go_on(X, y, sample_weight, targets_of)

    @staticmethod
    def _score(output, y, weights=None):
        return float(accuracy_score(y, output.argmax(axis=1), sample_weight=weights))

    def score(self, X: Any, y: Vector | None = None, sample_weight: Vector | None = None) -> float:
        """Compute the share of rows that are predicted right.

        Parameters
        ----------
        X : as in `fit`
            Also a data set or batches with targets.
        y : array-like, optional
            Not where it is part of `X`.
        sample_weight : array-like of shape (n_samples,), optional

        Returns
        -------
        float
        """
        return self._scored(accuracy_score, X, y, sample_weight)

    def predict_proba(self, X: Matrix) -> Array:
        """Compute the probabilities of the classes.

        Parameters
        ----------
        X : ndarray or DataFrame of shape (n_samples, ...), or Dataset
            Or a Dask array or DataFrame, and then the result is lazy.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
        """
        check_is_fitted(self)
        if is_lazy(X):
            return lazily(self.predict_proba, X, len(self.classes_), self.weights_.dtype)
        return softmax(self._output(X), axis=1)

    def predict_log_proba(self, X: Matrix) -> Array:
        """Compute the logarithms of `predict_proba`, exact also where that is 0.

        Parameters
        ----------
        X : ndarray or DataFrame of shape (n_samples, ...), or Dataset
            Or a Dask array or DataFrame, and then the result is lazy.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
        """
        check_is_fitted(self)
        if is_lazy(X):
            return lazily(self.predict_log_proba, X, len(self.classes_), self.weights_.dtype)
        return log_softmax(self._output(X), axis=1)

    def predict(self, X: Matrix) -> Array:
        """Find the most probable class of each row.

        Parameters
        ----------
        X : ndarray or DataFrame of shape (n_samples, ...), or Dataset
            Or a Dask array or DataFrame, and then the result is lazy.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        check_is_fitted(self)
        if is_lazy(X):
            return lazily(self.predict, X, None, self.classes_.dtype)
        best = self._output(X).argmax(axis=1)
        return self.classes_[best]

    def _check_state(self):
        super()._check_state()
        classes = self.classes_
        if not isinstance(classes, np.ndarray) or classes.ndim != 1 or len(classes) != self.n_outputs_:
            raise DataError("classes_ must be a vector, one entry for each output")


@documented(
    SHARED_DOCS
    | {
        "loss": _LOSS
        % ('"mse", "mae"', 'Mean square, or size, of the errors over rows and outputs; "auto" is "mse".')
    }
)
class TorchRegressor(RegressorMixin, TorchEstimator):
    """A regression: a torch module, trained on threads or on the workers of a Dask cluster.

    The module has one output a target. Mini-batches are cut into micro-batches, which replicas share and
    which travel through the stages of a cut network.

    Columns and targets should be of a scale of about 1, unless the module scales them.

    Parameters
    ----------
    %(parameters)s

    Attributes
    ----------
    %(attributes)s

    Raises
    ------
    DataError
        For NaN, infinities, integers in `X`, a module whose output is no (n_targets,) a row, a plan that does
        not fit the module or the workers, and the like; if the loss is not finite any more.
    StradaskError
        If torch is not installed, or a worker has another version.
    DeviceError
        If `device` is a GPU that is not there.

    Notes
    -----
    %(notes)s

    Examples
    --------
    See `TorchClassifier`.
    """

    _parameter_constraints: ClassVar[dict] = TorchEstimator._parameter_constraints | {
        "loss": [StrOptions({"auto", "mse", "mae"})]
    }
    _losses: ClassVar[dict] = {"auto": "mse", "mse": "mse", "mae": "mae"}

    def __sklearn_tags__(self):
        """Tell scikit-learn that there may be several targets."""
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _targets(self, y, n_rows, before):
        y = check_targets(y, n_rows, type(self).__name__)
        y = np.ascontiguousarray(y.reshape(len(y), -1))
        return y, y.shape[1]

    def partial_fit(self, X: Any, y: Vector | None = None, sample_weight: Vector | None = None) -> Self:
        """Train for an epoch on these rows, from where the last call, or `fit`, ended.

        The optimizer goes on with its state. ``plan="auto"`` is "data", as timings may take longer than the
        epoch.

        Parameters
        ----------
        X : ndarray or DataFrame of shape (n_samples, ...), or as in `fit`
        y : array-like of shape (n_samples,) or (n_samples, n_outputs), optional
        sample_weight : float or array-like of shape (n_samples,), optional

        Returns
        -------
        self
        """
        return self._go_on(X, y, sample_weight, lambda draft, y, n: draft._targets(y, n, None))

    @staticmethod
    def _score(output, y, weights=None):
        return float(r2_score(y, output, sample_weight=weights))

    def score(self, X: Any, y: Vector | None = None, sample_weight: Vector | None = None) -> float:
        """Compute the coefficient of determination.

        Parameters
        ----------
        X : as in `fit`
            Also a data set or batches with targets.
        y : array-like, optional
            Not where it is part of `X`.
        sample_weight : array-like of shape (n_samples,), optional

        Returns
        -------
        float
        """
        return self._scored(r2_score, X, y, sample_weight)

    def predict(self, X: Matrix) -> Array:
        """Predict the targets of each row.

        Parameters
        ----------
        X : ndarray or DataFrame of shape (n_samples, ...), or Dataset
            Or a Dask array or DataFrame, and then the result is lazy.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_outputs)
        """
        check_is_fitted(self)
        if is_lazy(X):
            n_outputs = None if self.n_outputs_ == 1 else self.n_outputs_
            return lazily(self.predict, X, n_outputs, self.weights_.dtype)
        output = self._output(X)
        return output[:, 0] if self.n_outputs_ == 1 else output
