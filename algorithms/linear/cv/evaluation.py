"""Scores of a whole path of linear models at once, and the choice of the penalty from them.

A path is one sparse matrix: column k (or, with several outputs, columns k K to (k + 1) K - 1) holds the
coefficients at the k-th penalty. Scores are as in scikit-learn: the greater the better.
"""

import difflib
import inspect

import numpy as np
from scipy import sparse
from scipy.special import expit, logsumexp, softmax
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.metrics import get_scorer, get_scorer_names

from ....errors import DataError, shortened

_BLOCK = 1 << 22  # float64 values of a block of predictions: 32 MiB


# Predictions ---------------------------------------------------------------------------------------


def decision_path(X, rows, coefs, intercepts):
    """Return the linear predictors of some rows under all models of a path: float64 (n_rows, n_models).

    Only columns of `X` that some model uses are read. `coefs`: CSC (n_features, n_models).
    """
    used = np.unique(coefs.indices)
    decision = np.empty((len(rows), coefs.shape[1]))
    if not len(used):
        decision[:] = intercepts
        return decision
    beta = sparse.csr_array(coefs)[used].toarray()
    if not isinstance(X, np.ndarray):
        decision[:] = X[:, used][rows] @ beta
    else:
        step = max(1, _BLOCK // len(used))
        for start in range(0, len(rows), step):
            block = rows[start : start + step]
            decision[start : start + step] = X[np.ix_(block, used)] @ beta
    decision += intercepts
    return decision


def score_path(scorer, X, y, rows, coefs, intercepts, *, weights=None, offset=None, n_outputs=1):
    """Score all models of a path on some rows, in blocks of models of at most 32 MiB: array (n_alphas,).

    `scorer`: see `path_scorer`. `y`: targets, or numbers of classes. `rows` may repeat a row. `coefs`: CSC
    (n_features, n_alphas * n_outputs).
    """
    step = max(1, _BLOCK // max(1, len(rows) * n_outputs)) * n_outputs
    row_weights = None if weights is None else weights[rows]
    row_offset = 0.0 if offset is None else offset[rows].reshape(len(rows), 1, -1)
    scores = []
    for start in range(0, coefs.shape[1], step):
        part = slice(start, start + step)
        decision = decision_path(X, rows, coefs[:, part], intercepts[part])
        decision = decision.reshape(len(rows), -1, n_outputs) + row_offset
        scores.append(scorer(X, y[rows], rows, decision, row_weights))
    return np.concatenate(scores)


# Scores --------------------------------------------------------------------------------------------


def path_scorer(scoring, classes=None, quick=None):
    """Return a function that scores many models on the same rows.

    `scoring`: the name of a scorer of scikit-learn, "mse" or "deviance" (minus the mean deviance: of squared
    loss the mean squared error, of logistic loss twice the log loss), or ``scoring(estimator, X, y)``. With
    `classes` targets are numbers of classes. `quick`: functions by name, in place of these. The result is
    ``scorer(X, y, rows, decision, weights)``, with `decision` of shape (n_rows, n_models, n_outputs), and
    returns an array (n_models,).
    """
    quick = _quick_scores(classes) if quick is None else quick
    if isinstance(scoring, str) and scoring in quick:
        score = quick[scoring]
        return lambda X, y, rows, decision, weights: score(y, decision, weights)
    if isinstance(scoring, str) and scoring not in get_scorer_names():
        kind = "regression" if classes is None else "classification"
        near = difflib.get_close_matches(scoring, [*quick, *get_scorer_names()])
        guess = f" (did you mean {' or '.join(map(repr, dict.fromkeys(near)))}?)" if near else ""
        raise DataError(
            f"scoring={shortened(scoring)} is not a score of {kind}{guess}; there are "
            f"{', '.join(sorted(quick)) + ' and the others' if quick else 'those'} of "
            "sklearn.metrics.get_scorer_names()"
        )
    return _OneByOne(scoring, classes)


def _quick_scores(classes):
    """Scores that are computed for all models together."""
    if classes is None:
        squared = _minus_mean_squared_error
        return {"mse": squared, "deviance": squared, "neg_mean_squared_error": squared, "r2": _r2}
    scores = {
        "deviance": lambda y, decision, weights: -2 * _log_loss(y, decision, weights),
        "neg_log_loss": lambda y, decision, weights: -_log_loss(y, decision, weights),
        "accuracy": _accuracy,
    }
    return scores | {"roc_auc": _roc_auc} if len(classes) == 2 else scores


def _minus_mean_squared_error(y, decision, weights):
    return -np.average((decision[:, :, 0] - y[:, None]) ** 2, axis=0, weights=weights)


def _r2(y, decision, weights):
    """Share of the variance that is explained; of targets that are all the same 1 if met exactly, else 0."""
    if len(y) < 2:
        return np.full(decision.shape[1], np.nan)
    error = -_minus_mean_squared_error(y, decision, weights)
    spread = np.average((y - np.average(y, weights=weights)) ** 2, weights=weights)
    counted = y if weights is None else y[weights > 0]
    if spread == 0 or (counted == counted[0]).all():  # of equal values the mean may differ by rounding
        return (error == 0).astype(np.float64)
    return 1 - error / spread


def _log_loss(y, decision, weights):
    if decision.shape[2] == 1:
        losses = np.logaddexp(0, np.where(y[:, None] == 1, -1.0, 1.0) * decision[:, :, 0])
    else:
        own = np.take_along_axis(decision, y[:, None, None], axis=2)[:, :, 0]
        losses = logsumexp(decision, axis=2) - own
    return np.average(losses, axis=0, weights=weights)


def _accuracy(y, decision, weights):
    predicted = decision[:, :, 0] > 0 if decision.shape[2] == 1 else decision.argmax(axis=2)
    return np.average(predicted == y[:, None], axis=0, weights=weights)


def _roc_auc(y, decision, weights):
    """Share of pairs of a positive and a negative row in the right order; a tie counts one half."""
    weights = np.ones(len(y)) if weights is None else weights
    positive, negative = weights * (y == 1), weights * (y == 0)
    pairs = positive.sum() * negative.sum()
    if not pairs > 0:
        return np.full(decision.shape[1], np.nan)
    areas = np.empty(decision.shape[1])
    for model, values in enumerate(decision[:, :, 0].T):
        order = np.argsort(values, kind="stable")
        starts = np.flatnonzero(np.diff(values[order], prepend=-np.inf) != 0)
        above, below = (np.add.reduceat(part[order], starts) for part in (positive, negative))
        areas[model] = above @ (np.cumsum(below) - below / 2) / pairs
    return areas


class _OneByOne:
    """Any scorer of scikit-learn, called for one model after the other with predictions already made."""

    def __init__(self, scoring, classes):
        self.scorer = get_scorer(scoring)
        self.name = scoring if isinstance(scoring, str) else getattr(scoring, "__name__", repr(scoring))
        self.needs_rows = not isinstance(scoring, str)
        self.classes = classes

    def __call__(self, X, y, rows, decision, weights):
        """Score each model in turn."""
        # scikit-learn's own scorers use X for nothing but to hand it to the model.
        X = X[rows] if self.needs_rows else np.empty((len(rows), 1))
        options = {} if weights is None else {"sample_weight": weights}
        if options and "sample_weight" not in inspect.signature(self.scorer).parameters:
            raise DataError(
                f"scoring={shortened(self.name)} takes no sample_weight; give a scorer that does, or no "
                "weights"
            )
        y = y if self.classes is None else self.classes[y]
        models = (self._model(decision[:, k]) for k in range(decision.shape[1]))
        try:
            return np.array([self.scorer(model, X, y, **options) for model in models], dtype=float)
        except (ValueError, TypeError, AttributeError) as error:
            raise DataError(f"scoring={shortened(self.name)} cannot judge this model: {error}") from error

    def _model(self, decision):
        if self.classes is None:
            return _Predicted(decision[:, 0] if decision.shape[1] == 1 else decision)
        return _Classified(decision, self.classes)


class _Predicted(RegressorMixin, BaseEstimator):
    """A fitted regressor that has predicted already."""

    def __init__(self, predictions):
        self.predictions = predictions

    def predict(self, X):
        """Return the predictions."""
        return self.predictions


class _Classified(ClassifierMixin, BaseEstimator):
    """A fitted classifier that has decided already."""

    def __init__(self, decision, classes):
        self.decision = decision
        self.classes_ = classes

    def decision_function(self, X):
        """Return the linear predictors."""
        return self.decision[:, 0] if self.decision.shape[1] == 1 else self.decision

    def predict_proba(self, X):
        """Return the probabilities of the classes."""
        if self.decision.shape[1] > 1:
            return softmax(self.decision, axis=1)
        return np.column_stack([expit(-self.decision[:, 0]), expit(self.decision[:, 0])])

    def predict(self, X):
        """Return the most probable labels."""
        if self.decision.shape[1] > 1:
            return self.classes_[self.decision.argmax(axis=1)]
        return self.classes_[(self.decision[:, 0] > 0).astype(int)]


# The choice ----------------------------------------------------------------------------------------


def mean_and_error(scores, masses=None):
    """Return the mean over folds, by their masses if there are any, and its standard error.

    `scores`: array (..., n_folds). Returns `mean`, `error`: array (...); the standard error is the sample
    standard deviation of the folds over the root of their number; it is 0 for a single fold, of which nothing
    is known.
    """
    n_folds = scores.shape[-1]
    mean = scores.mean(axis=-1) if masses is None else scores @ (masses / masses.sum())
    if n_folds == 1:
        return mean, np.zeros_like(mean)
    with np.errstate(invalid="ignore"):  # of losses that overflow
        return mean, scores.std(axis=-1, ddof=1) / np.sqrt(n_folds)


def choose(mean, error):
    """Return the places of the best mean score, and of the largest penalty within one standard error of it.

    Penalties fall; of equals the largest is the best. Reference: Breiman, Friedman, Stone, Olshen,
    "Classification and regression trees", 1984, section 3.4.3.
    """
    best = int(np.argmax(mean))
    return best, int(np.argmax(mean >= mean[best] - error[best]))
