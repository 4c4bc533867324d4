"""Multi-layer perceptrons: `MLPClassifier` and `MLPRegressor`."""

from typing import Self

import numpy as np
from sklearn.utils.metaestimators import available_if

from ..._typing import Array, Matrix, Vector
from .._base import check_classes, documented
from ..inputs.targets import (
    AccuracyMixin,
    R2Mixin,
    check_labels,
    check_same_classes,
    check_targets,
    labels_of_call,
)
from .perceptron import Perceptron
from .scheduled import learns_in_passes
from .scores import accuracy, determination

_SHARED_DOCS = {
    "parameters": """hidden_layer_sizes : int or sequence of int, default=(100,)
        Widths of the hidden layers; none for a linear model.
    activation : {"relu", "tanh", "logistic", "identity"}, default="relu"
        Of the hidden layers.
    solver : {"adam", "sgd", "sandblaster", "downpour"}, default="adam"
        Synchronous minibatches by Adam, or by descent with momentum, on places by a `plan`; L-BFGS on all
        rows, the portions computed on threads or workers, which goes furthest with few rows; or replicas of
        the network with minibatches of their own over one table of parameters.
    alpha : float, default=1e-4
        Weight of the penalty.
    batch_size : int or "auto", default="auto"
        Rows of a minibatch; "auto" is 200, or all rows if they are fewer.
    learning_rate : {"constant", "invscaling", "adaptive"}, default="constant"
        Of "sgd": the rate of all passes; divided by ``(1 + t) ** power_t`` after t rows; or divided by 5
        whenever the loss has not fallen by `tol` in `n_iter_no_change` passes, which end the fit once the
        rate is at most 1e-6 (not with `early_stopping`).
    learning_rate_init : float or None, default=None
        Downpour's gamma, which None looks for; the rate of "sgd" and "adam", where None is 0.001.
    power_t : float, default=0.5
        Of "invscaling".
    momentum : float, default=0.9
        Of "sgd".
    nesterovs_momentum : bool, default=True
        Of "sgd".
    plan : "auto", "data", "pipeline", "split" or list of (str, int), default="auto"
        Of "sgd" and "adam": ``[("0:2", 2), ("2:", 1)]`` puts the first two layers on two places, which share
        the rows, and the rest on one; "data" puts the whole network on each place. "auto" times the layers
        where there are several places. Places share a minibatch of 200 rows or more: 2 of 200, 4 of 400, up
        to 16 of 1,600; of a smaller one "data" uses a single place. Plans change no bit, as long as replicas
        are 1, 2, 4...; "split", which cuts two layers through their hidden units, changes last bits. See
        `TorchClassifier`.
    max_iter : int, default=200
        Steps of L-BFGS, or passes.
    tol : float, default=1e-4
        L-BFGS ends when the gradient has fallen to this part of its first norm; the others when the loss (or
        the score, with `early_stopping`) has not gained so much in more than `n_iter_no_change` passes.
    n_iter_no_change : int, default=10
    early_stopping : bool, default=False
        Hold rows out, stop by the score on them, and keep the parameters with the best.
    validation_fraction : float, default=0.1
        Share of rows that are held out.
    beta_1, beta_2, epsilon : float, default=0.9, 0.999 and 1e-8
        Of "adam": how slowly the means of gradients and of their squares move, and what is added to roots.
    warm_start : bool, default=False
        Begin from the layers of the last fit.
    n_replicas : int, default=2
        Replicas of Downpour's, a thread each. Their number is part of the method: it changes the result.
    staleness : int or float("inf"), default=0
        How many minibatches the replicas may be apart. Above 0 a result depends on who was faster.
    random_state : int, RandomState or None, default=None
    engine : str or distributed.Client, default="local"
        ``"local"``: threads of this process; ``"dask"``: the current Dask client; a client; or a scheduler's
        address.
    device : {"cpu", "cuda", "auto"}, default="cpu"
        Where layers are computed, of dense rows; "auto" is a GPU where there is one, for "adam" and "sgd"
        only if a minibatch is a billion operations or more. Optimisers, L-BFGS and Downpour's table stay on
        the CPU: of each pass or minibatch the parameters go to the GPU and the gradient comes back. Rows of
        "sandblaster" lie there as far as its memory goes; minibatches, and the rows of workers, are copied
        each time. A fitted network predicts on the GPU where there still is one, else on the CPU.
    n_jobs : int or None, default=None
        Threads of Sandblaster; they change no bit. None is 1, -1 all cores.
    verbose : int, default=0
        1 shows a progress bar: the steps done, of `max_iter` at most, and the objective.""",
    "attributes": """coefs_ : list of ndarray of shape (n_in, n_out)
        W of each layer, in the type of `X`.
    intercepts_ : list of ndarray of shape (n_out,)
    loss_ : float
        At the end; the last of `loss_curve_`.
    best_loss_ : float or None
        The least; None with `early_stopping`.
    loss_curve_ : list of float
        The objective after each step of L-BFGS; else the mean over the minibatches of each pass, of
        Downpour's first replica.
    validation_scores_ : list of float
    best_validation_score_ : float
        With `early_stopping`.
    n_iter_ : int
        Steps or passes.
    t_ : int
        Rows that gradients were computed of.
    learning_rate_ : float
        Downpour's gamma; the rate of "sgd" and "adam" at the end.
    squared_gradients_ : ndarray of shape (n_parameters,)
        Downpour's sums of squared gradients, layer by layer, from which `partial_fit` goes on.
    optimizer_state_ : ndarray of shape (n_slots, n_parameters)
        From which `partial_fit` goes on, layer by layer: the momentum of "sgd" (no row without one), or the
        means of gradients and of their squares of "adam".
    n_updates_ : int
        Steps of "sgd" and "adam"; with `early_stopping` up to the parameters that are kept.
    device_ : {"cpu", "cuda"}
        Where the fit computed.
    plan_ : Plan
    timeline_ : structured ndarray
        By "sgd" and "adam", see `TorchClassifier`. Not in model files.
    n_layers_, n_outputs_ : int
    out_activation_ : str
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        Only when `X` had feature names that are all strings.""",
    "references": """References
    ----------
    Dean et al., "Large scale distributed deep networks", NIPS 2012. Glorot, Bengio, "Understanding the
    difficulty of training deep feedforward neural networks", AISTATS 2010.""",
}


@documented(_SHARED_DOCS)
class MLPClassifier(AccuracyMixin, Perceptron):
    r"""A classifier: a network of dense layers.

    Minimises

    .. math:: \frac{1}{s} \sum_i s_i L(y_i, f(x_i)) + \frac{\alpha}{2 n} \sum_l |W_l|^2

    with s_i the weights of the rows (1 where none are given), s their sum, n the number of those above 0,
    f(x) the layers ``a <- activation(a W + b)`` one after another, and L the logistic loss of one output
    for two classes, ``-log softmax(f(x))[y]`` for more. Gradients are computed by hand, in the type of `X`.
    Columns should be scaled to about 1.

    Seeds and threads: with `solver` "sandblaster" the result is *bitwise* the same for any `n_jobs`, and with
    "downpour" and ``staleness=0`` repeatable. On a GPU sums differ from the CPU's in the last bits.

    Parameters
    ----------
    %(parameters)s

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    %(attributes)s

    Raises
    ------
    DataError
        For NaN, infinities, a single class, sizes that are no integers above 0, a sparse `X` with
        ``device="cuda"``, and the like.
    DeviceError
        If `device` asks for a GPU and none can be used, or it has no room.

    Warns
    -----
    ConvergenceWarning
        If `max_iter` did not suffice.

    %(references)s

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from stradask.algorithms.neural.mlp import MLPClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> X /= X.max(axis=0)
    >>> model = MLPClassifier(20, batch_size=30, learning_rate_init=0.05, random_state=0).fit(X, y)
    >>> model.score(X, y) > 0.95, [W.shape for W in model.coefs_]
    (True, [(4, 20), (20, 3)])
    """

    _stratified = True
    _score = staticmethod(accuracy)

    def _targets(self, y, X):
        before = vars(self).get("classes_") if self.warm_start else None
        self.classes_, numbers = check_labels(y, X.shape[0], type(self).__name__)
        if before is not None:
            check_same_classes(before, self.classes_)
        return numbers, *self._outputs()

    def _outputs(self):
        """Name of the loss, and number of outputs."""
        two = len(self.classes_) == 2
        return "logistic" if two else "softmax", 1 if two else len(self.classes_)

    @available_if(learns_in_passes)
    def partial_fit(
        self, X: Matrix, y: Vector, sample_weight: Vector | None = None, classes: Vector | None = None
    ) -> Self:
        """Take a pass of minibatches over these rows, from where the last call, or `fit`, ended.

        By "adam" and "sgd" the optimizer goes on with its state, and the learning rate with its schedule;
        calls with the rows of a fit are its passes. ``plan="auto"`` is "data", on threads or workers. By
        "downpour" one replica takes the steps, whose lengths go on falling as they did; gamma is looked for
        at the first call. The penalty's share is that of the rows of a call. With the same `random_state` and
        the same calls the result is *bitwise* the same.

        Parameters
        ----------
        X : ndarray, sparse matrix or DataFrame of shape (n_samples, n_features)
            Later calls compute in the type of the first.
        y : array-like of shape (n_samples,)
            Not all classes need be in it.
        sample_weight : float or array-like of shape (n_samples,), optional
            Not negative. Only ratios count, and a row of weight 0 is one left out.
        classes : array-like of shape (n_classes,), optional
            The labels of all calls; needed at the first.

        Returns
        -------
        self

        Raises
        ------
        AttributeError
            With ``solver="sandblaster"``, which takes no minibatches.
        DataError
            With `early_stopping`, or by "downpour" on a cluster; for labels that are none of the classes, and
            other columns or layers than before.
        """
        return self._pass(X, y, sample_weight, lambda draft, *rows: draft._labels_of_call(classes, *rows))

    def _labels_of_call(self, classes, y, X, first):
        known = None if first else self.classes_
        self.classes_, numbers = labels_of_call(classes, y, X.shape[0], known, type(self).__name__)
        return numbers, *self._outputs()

    def predict_proba(self, X: Matrix) -> Array:
        """Compute the probabilities of the classes.

        Parameters
        ----------
        X : ndarray, sparse matrix or DataFrame of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
        """
        output, network = self._output(X)
        return network.probabilities(output)

    def predict_log_proba(self, X: Matrix) -> Array:
        """Compute the logarithms of `predict_proba`, exact also where that is 0.

        Parameters
        ----------
        X : ndarray, sparse matrix or DataFrame of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
        """
        output, network = self._output(X)
        return network.log_probabilities(output)

    def predict(self, X: Matrix) -> Array:
        """Find the most probable class of each row.

        Parameters
        ----------
        X : ndarray, sparse matrix or DataFrame of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        output, network = self._output(X)
        return self.classes_[network.classes(output)]

    def _check_state(self):
        super()._check_state()
        check_classes(self.classes_, self.coefs_[-1].shape[1])


@documented(_SHARED_DOCS)
class MLPRegressor(R2Mixin, Perceptron):
    r"""A regression: a network of dense layers.

    Minimises

    .. math:: \frac{1}{2 s} \sum_i s_i |y_i - f(x_i)|^2 + \frac{\alpha}{2 n} \sum_l |W_l|^2

    with s_i the weights of the rows (1 where none are given), s their sum, n the number of those above 0,
    f(x) the layers ``a <- activation(a W + b)`` one after another. Gradients are computed by hand, in
    the type of `X`. Columns and targets should be scaled to about 1.

    Seeds and threads: with `solver` "sandblaster" the result is *bitwise* the same for any `n_jobs`, and with
    "downpour" and ``staleness=0`` repeatable. On a GPU sums differ from the CPU's in the last bits.

    Parameters
    ----------
    %(parameters)s

    Attributes
    ----------
    %(attributes)s

    Raises
    ------
    DataError
        For NaN, infinities, targets of another length, sizes that are no integers above 0, a sparse `X` with
        ``device="cuda"``, and the like.
    DeviceError
        If `device` asks for a GPU and none can be used, or it has no room.

    Warns
    -----
    ConvergenceWarning
        If `max_iter` did not suffice.

    %(references)s

    Examples
    --------
    >>> import numpy as np
    >>> from stradask.algorithms.neural.mlp import MLPRegressor
    >>> X = np.linspace(-1, 1, 200)[:, None]
    >>> y = np.sin(4 * X[:, 0])
    >>> options = {"solver": "sandblaster", "tol": 1e-3, "random_state": 0}  # L-BFGS: there are few rows
    >>> MLPRegressor(20, activation="tanh", **options).fit(X, y).score(X, y) > 0.99
    True
    """

    _stratified = False
    _score = staticmethod(determination)

    def __sklearn_tags__(self):
        """Tell scikit-learn that there may be several targets."""
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    @available_if(learns_in_passes)
    def partial_fit(self, X: Matrix, y: Vector, sample_weight: Vector | None = None) -> Self:
        """Take a pass of minibatches over these rows, from where the last call, or `fit`, ended.

        By "adam" and "sgd" the optimizer goes on with its state, and the learning rate with its schedule;
        calls with the rows of a fit are its passes. ``plan="auto"`` is "data", on threads or workers. By
        "downpour" one replica takes the steps, whose lengths go on falling as they did; gamma is looked for
        at the first call. The penalty's share is that of the rows of a call. With the same `random_state` and
        the same calls the result is *bitwise* the same.

        Parameters
        ----------
        X : ndarray, sparse matrix or DataFrame of shape (n_samples, n_features)
            Later calls compute in the type of the first.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
        sample_weight : float or array-like of shape (n_samples,), optional
            Not negative. Only ratios count, and a row of weight 0 is one left out.

        Returns
        -------
        self

        Raises
        ------
        AttributeError
            With ``solver="sandblaster"``, which takes no minibatches.
        DataError
            With `early_stopping`, or by "downpour" on a cluster; for other columns, targets or layers than
            before.
        """
        return self._pass(X, y, sample_weight, lambda draft, y, X, first: draft._targets(y, X))

    def _targets(self, y, X):
        y = check_targets(y, X.shape[0], type(self).__name__)
        y = np.ascontiguousarray(y.reshape(len(y), -1), X.dtype)
        return y, "squared", y.shape[1]

    def predict(self, X: Matrix) -> Array:
        """Predict the targets of each row.

        Parameters
        ----------
        X : ndarray, sparse matrix or DataFrame of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_outputs)
        """
        output, _ = self._output(X)
        return output[:, 0] if output.shape[1] == 1 else output
