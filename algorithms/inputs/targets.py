"""Checks of targets, labels, weights, penalty factors and offsets."""

from numbers import Integral, Real

import numpy as np
from scipy import sparse
from sklearn.base import ClassifierMixin, RegressorMixin, is_classifier
from sklearn.utils import check_array
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d, validate_data

from ..._typing import Matrix, Vector
from ...errors import DataError, shortened
from .matrices import _as_data_errors, check_matrix, check_plain, check_text, check_vector, named
from .pieces import gathered
from .texts import reworded

_WIDEST_SPAN = 300.0  # of an offset: means that differ by 130 digits
_MOST = 1e150  # of a target: squares must not overflow


def check_names(estimator, X, y, *, first=True):
    """Set `n_features_in_` and `feature_names_in_`, or compare with them, and refuse a missing `y`.

    A warm start goes on from coefficients of the columns of the last fit, so that names must be the same.
    """
    last = vars(estimator).get("feature_names_in_") if getattr(estimator, "warm_start", False) else None
    if first and y is not None and (type(X) is np.ndarray or sparse.issparse(X)):  # which have no names
        estimator.n_features_in_ = X.shape[1]
        vars(estimator).pop("feature_names_in_", None)
        return
    with _as_data_errors():
        validate_data(estimator, named(X), y, reset=first, skip_check_array=True)
    now = vars(estimator).get("feature_names_in_", last)
    if last is not None and not np.array_equal(last, now):
        raise DataError(
            f"warm_start=True goes on from a model of the columns {shortened(last.tolist())}, but X has "
            f"{shortened(now.tolist())}: fit a new estimator, or set warm_start=False"
        )


def check_targets(y, n_samples, name, classes="fit classes with SparseLogisticRegression"):
    """Check the targets of a regression; return writable float64 of the same shape, in Fortran order.

    Magnitudes above 1e150, whose squares overflow, are refused; errors name the first wrong row. `classes` is
    the remedy for labels.
    """
    check_plain("y", y)
    with _as_data_errors():
        _check_real(y, name, classes)
        try:
            plain = type(y) is np.ndarray and y.dtype == np.float64 and y.ndim in (1, 2)
            y = (
                np.asarray(y, order="F")
                if plain
                else check_array(
                    y,
                    dtype=np.float64,
                    order="F",
                    ensure_2d=False,
                    ensure_min_samples=0,
                    ensure_all_finite=False,
                    estimator=name,
                    input_name="y",
                )
            )
        except (TypeError, OverflowError) as error:  # NumPy's, of what is no number, or too large a one
            raise DataError(f"y must hold {n_samples} targets: {reworded(str(error), '')}") from error
    if not y.ndim:
        raise DataError(f"y must be a vector of {n_samples} targets, got the number {y}")
    check_length("y", y, n_samples)
    if not np.abs(y).max(initial=0.0) <= _MOST:
        at = tuple(np.argwhere(~(np.abs(y) <= _MOST))[0].tolist())
        _check_present(y[at], at[0], name)
        raise DataError(f"y holds {y[at]:g} in row {at[0]}, above {_MOST:g}: its square overflows; scale y")
    # To numba an array that cannot be written is of another type, for which it would compile kernels anew.
    return y if y.flags.writeable else y.copy(order="K")


def target_vector(y):
    """Return y as a vector; a matrix of one column with scikit-learn's warning."""
    with _as_data_errors():
        check_plain("y", y)
        return y if type(y) is np.ndarray and y.ndim == 1 else column_or_1d(y, warn=True)


def check_not_negative(y, name):
    """Refuse targets below zero."""
    wrong = np.flatnonzero(y < 0)
    if len(wrong):
        raise DataError(
            f"y holds {y[wrong[0]]:g} in row {wrong[0]}: the targets of {name} are counts, 0 or above"
        )


def _check_real(y, name, classes):
    """Refuse text and complex numbers among targets."""
    given = np.asarray(y)
    if given.dtype.kind == "c":
        raise DataError(
            f"Complex data not supported: y is {given.dtype}; {name} takes real targets, such as y.real"
        )
    if given.dtype.kind not in "OUS":
        return
    for at, value in np.ndenumerate(np.asarray(y, dtype=object)):
        if isinstance(value, (str, bytes)):
            raise DataError(
                f"y holds the text {shortened(value)} in row {at[0] if at else 0}; {name} takes numbers: "
                f"convert it, for instance with y.astype(float), or {classes}"
            )


def _check_present(value, row, name):
    """Refuse a target or label that is missing or infinite."""
    if isinstance(value, (float, np.floating)):
        what = "NaN" if value != value else "infinity" if np.isinf(value) else ""
    else:
        what = str(value) if value is None or type(value).__name__ == "NAType" else ""  # that of pandas
    if what:
        raise DataError(f"y contains {what} in row {row}: {name} needs a value for every row; drop the row")


def check_columns_and_vectors(estimator, X, y, sample_weight, **options):
    """Check X by columns, and that y and weights are vectors of its rows; keep the names of the columns.

    `options`: of `check_matrix`. Returns the matrix, y and weights.
    """
    columns = check_matrix(estimator, X, **options)
    y, sample_weight = (check_vector(vector, columns.shape[0]) for vector in (y, sample_weight))
    check_names(estimator, X, y)
    return columns, y, sample_weight


def check_same_classes(classes, now):
    """Refuse to go on, with ``warm_start=True``, from a model of other classes."""
    if not np.array_equal(classes, now):
        raise DataError(
            f"warm_start=True goes on from a model of the classes {classes.tolist()}, but y has "
            f"{now.tolist()}: fit a new estimator, or set warm_start=False"
        )


def check_labels(y, n_samples, name):
    """Check the labels of a classification; return the sorted classes and each row's class number (int64).

    Examples
    --------
    >>> from stradask.algorithms.inputs.targets import check_labels
    >>> classes, numbers = check_labels(["spam", "ham", "spam"], 3, "SparseLogisticRegression")
    >>> classes.tolist(), numbers.tolist()
    (['ham', 'spam'], [1, 0, 1])
    """
    classes, numbers = label_numbers(y, n_samples, name)
    check_class_names(classes, name)
    return classes, numbers


def check_class_names(classes, name):
    """Refuse labels of a single class."""
    if len(classes) < 2:
        raise DataError(
            f"y holds 1 class, {shortened(classes.tolist()[0])}: {name} needs two classes or more"
        )


def plain_labels(y):
    """Make an array of numbers of labels that are numbers as objects; scikit-learn takes objects for text."""
    is_array = isinstance(y, np.ndarray) or type(y).__module__.startswith("pandas.")
    if is_array and y.dtype == object and len(y) and all(isinstance(v, (Real, np.bool_)) for v in y):
        return np.array([*y])
    return y


def check_scored(X, y, name):
    """Refuse targets or labels of a score of another number of rows, missing or infinite; name the row."""
    if y is None:
        raise DataError("score needs y, the targets of X")
    check_plain("y", y)
    n_samples = len(X) if isinstance(X, (list, tuple)) else getattr(X, "shape", (None,))[0]
    if isinstance(n_samples, Integral):  # that of a Dask collection may be unknown
        check_length("y", y, n_samples)
    values = np.asarray(y)
    if values.dtype.kind not in "fO":
        return
    suspects = np.argwhere(~np.isfinite(values)) if values.dtype.kind == "f" else np.ndindex(values.shape)
    for at in map(tuple, suspects):
        _check_present(values[at], at[0], name)


class CheckedScore:
    """`score` of targets or labels that are checked."""

    def score(self, X: Matrix, y: Vector, sample_weight: Vector | None = None) -> float:
        """Score predictions: the share of right labels of a classifier, R^2 of a regression.

        Parameters
        ----------
        X : as in `predict`
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Labels or targets.
        sample_weight : array-like of shape (n_samples,), optional
            How much each row counts; not negative.

        Returns
        -------
        float
            At most 1.
        """
        y, sample_weight = (gathered(values, "dask") for values in (y, sample_weight))
        check_scored(X, y, type(self).__name__)
        weights = sample_weight if sample_weight is None else all_weights(sample_weight, len(y))
        return self._score_predicted(y, self.predict(X), weights)  # type: ignore[attr-defined]

    def _score_predicted(self, y, predicted, weights):
        """Compare targets with predictions, which may be a Dask collection."""
        predicted = gathered(predicted, "dask")
        check_length("y", y, len(predicted))
        return float(self._scored(plain_labels(y), predicted, weights))

    def _scored(self, y, predicted, weights):
        from sklearn.metrics import accuracy_score, r2_score

        metric = accuracy_score if is_classifier(self) else r2_score
        return metric(y, predicted, sample_weight=weights)


class AccuracyMixin(CheckedScore, ClassifierMixin):
    """scikit-learn's `score` of classifiers, for labels in all containers that `fit` takes."""


class R2Mixin(CheckedScore, RegressorMixin):
    """scikit-learn's `score` of regressions, for weights that `fit` takes."""


def label_numbers(y, n_samples, name):
    """As `check_labels`, but a single class is allowed."""
    if np.ma.is_masked(y):
        check_plain("y", y)
    check_text("y", y)
    with _as_data_errors():
        if not (type(y) is np.ndarray and y.ndim == 1):
            y = column_or_1d(y, warn=True)
        check_length("y", y, n_samples)
        if y.dtype.kind == "T":
            raise DataError(
                "y holds NumPy's StringDType, of which scikit-learn has no classes: pass y.astype(object)"
            )
        if y.dtype.kind == "f":
            for row in np.flatnonzero(~np.isfinite(y))[:1]:
                _check_present(y[row], row, name)
        elif y.dtype.kind == "O":
            for row, label in enumerate(y):
                _check_present(label, row, name)
            y = plain_labels(y)
        if y.dtype.kind in "biuf" and len(y) and (pair := _two_classes(y)) is not None:
            return pair
        check_array(y, dtype=None, ensure_2d=False, ensure_min_samples=0, estimator=name, input_name="y")
        try:
            check_classification_targets(y)
            classes, numbers = np.unique(y, return_inverse=True)
        except TypeError as error:  # what has no order
            kinds = ", ".join(sorted({type(label).__name__ for label in y}))
            raise DataError(
                f"y holds labels of several kinds ({kinds}), which have no order: make them of one kind"
            ) from error
    return classes, numbers.astype(np.int64)


def labels_of_call(classes, y, n_samples, known, name):
    """Check the labels of a call of `partial_fit`; return the classes of all calls and each row's number.

    `classes` are those of the call, or None; `known` those of the calls before, None at the first.
    """
    if classes is None and known is None:
        raise DataError(
            f"classes: the first call of partial_fit needs them, as rows to come may hold more than y: "
            f"{name}().partial_fit(X, y, classes=...)"
        )
    if classes is not None:
        given, _ = label_numbers(classes, len(np.atleast_1d(classes)), name)
        if len(given) < 2:
            raise DataError(f"classes holds {given.tolist()}: {name} needs two classes or more")
        if known is not None and not np.array_equal(given, known):
            raise DataError(
                f"classes are {given.tolist()}, but the model knows {known.tolist()}: leave them "
                "out, or fit a new estimator"
            )
        known = given
    labels, numbers = label_numbers(y, n_samples, name)
    unknown = [label for label in labels.tolist() if label not in known.tolist()]
    if unknown:
        raise DataError(f"y holds {shortened(unknown[0])}, which is none of the classes {known.tolist()}")
    return known, np.searchsorted(known, labels)[numbers]


def _two_classes(y):
    """Classes and numbers of finite labels without sorting; None unless they are two integers."""
    low, high = y.min(), y.max()
    upper = y == high
    if low == high or low % 1 or high % 1 or not np.array_equal(upper, y != low):
        return None
    return np.array([low, high]), upper.astype(np.int64)


def check_weights(sample_weight, n_samples):
    """Check the weights of the rows and scale them to mean 1; None if all are equal.

    A float stands for all rows. Only ratios count, as objectives are weighted means.

    Examples
    --------
    >>> from stradask.algorithms.inputs.targets import check_weights
    >>> check_weights([1, 0, 5], 3)
    array([0.5, 0. , 2.5])
    """
    if sample_weight is None:
        return None
    if isinstance(sample_weight, Real):
        try:
            one = float(sample_weight)
        except OverflowError:  # of a whole number
            one = np.inf
        sample_weight = [one] * n_samples
    weights = check_row_weights(sample_weight, n_samples)
    most = weights.max()
    check_some_weight(most)
    if weights.min() == most:
        return None
    weights /= most  # first, lest the sum overflows
    return weights / weights.mean()


def with_weight(X, targets, weights):
    """Return X, targets and, unless all are equal, weights of mean 1, of the rows whose weight is not 0.

    Minibatches would have the others in them, and counts would count them.
    """
    if weights is None:
        return X, targets
    kept = weights > 0
    if not kept.all():
        X, targets, weights = X[kept], targets[kept], weights[kept]
    return (X, targets) if np.ptp(weights) == 0 else (X, targets, weights / weights.mean())


def check_row_weights(sample_weight, n_samples):
    """Check the weights of rows, and return them as float64."""
    return _vector("sample_weight", sample_weight, n_samples, "row")


def all_weights(sample_weight, n_samples):
    """Check the weights of rows, as they are given: a float64 for each row, 1 if there are none."""
    if sample_weight is None:
        return np.ones(n_samples)
    alike = isinstance(sample_weight, Real)
    weights = check_row_weights([sample_weight] * n_samples if alike else sample_weight, n_samples)
    check_some_weight(weights.max())
    return weights


def total_weight(sample_weight, n_samples):
    """Sum of the checked weights of the rows; 1 each if there are none."""
    if sample_weight is None:
        return float(n_samples)
    if isinstance(sample_weight, Real):
        return float(sample_weight) * n_samples
    return float(np.asarray(sample_weight, np.float64).sum())


def check_some_weight(most):
    """Refuse weights whose largest is zero."""
    if most == 0:
        raise DataError("sample_weight is zero in every row: at least one row must have a weight above zero")


def check_class_weights(class_weight, classes, numbers, weights):
    """Multiply the row weights (of `check_weights`) by those of their classes; mean 1, None if all are equal.

    "balanced" is n_samples / (n_classes * n_rows_of_the_class), with weighted counts of rows. `classes` and
    `numbers` are from `check_labels`. A label that `y` lacks is refused unless all classes of `y` are named.
    """
    of_class = weights_of_classes(class_weight, classes, np.bincount(numbers, weights))
    if class_weight is None:
        return weights
    return check_weights(of_class[numbers] * (1.0 if weights is None else weights), len(numbers))


def weights_of_classes(class_weight, classes, mass):
    """Return the weight of each class; `mass` is the weight of its rows.

    "balanced" counts the classes whose rows have weight.
    """
    if class_weight is None:
        return np.ones(len(classes))
    if class_weight == "balanced":
        there = mass > 0
        return np.where(there, mass.sum() / (np.count_nonzero(there) * np.where(there, mass, 1.0)), 1.0)
    _check_class_weight(class_weight, classes)
    return np.array([float(class_weight.get(label, 1.0)) for label in classes.tolist()])


def _check_class_weight(class_weight, classes):
    labels = classes.tolist()
    all_named = all(label in class_weight for label in labels)
    for label, weight in class_weight.items():
        if label not in labels and not all_named:  # as in scikit-learn: it may be a slip for another
            raise DataError(
                f"class_weight names the class {shortened(label)}, which y does not have; "
                f"it has {shortened(labels)}"
            )
        if not (isinstance(weight, Real) and 0 < float(weight) < np.inf):
            raise DataError(
                f"class_weight of the class {shortened(label)} must be positive and finite, got "
                f"{shortened(weight)}; to fit without a class, leave out its rows"
            )


def check_penalty_factor(penalty_factor, n_features):
    """Check the penalty factors of the columns; return float64, or None if all are 1.

    0 leaves a column unpenalised, infinity excludes it.
    """
    if penalty_factor is None:
        return None
    factors = _vector("penalty_factor", penalty_factor, n_features, "column", endless=True)
    return None if (factors == 1).all() else factors


def check_alphas(alphas):
    """Check the penalties of a path; return them in falling order."""
    given = _numbers("alphas", alphas)
    if given.ndim != 1 or not len(given):
        raise DataError(
            f"alphas must be a number of penalties or a vector of them, got the shape {given.shape}"
        )
    return np.sort(_vector("alphas", given, len(given), "entry"))[::-1].copy()


def check_start(name, coef, n_features, positive):
    """Check initial coefficients; return the non-zero features, rising, and their values, or None.

    `name` is the parameter, for messages; with `positive` negative coefficients are left out.
    """
    if coef is None:
        return None
    coef = _numbers(name, coef)
    if coef.shape != (n_features,) or not np.isfinite(coef).all():
        raise DataError(f"{name} must be a vector of {n_features} finite numbers, got the shape {coef.shape}")
    features = np.flatnonzero(coef > 0 if positive else coef)
    return (features, coef[features]) if len(features) else None


def check_offset(offset, n_samples, n_outputs):
    """Check the offset of the linear predictors; return float64.

    Its shape is (n_samples,) or (n_samples, n_outputs). `n_outputs` is 1 for two classes, else their number;
    magnitudes may be at most 1e150.
    """
    if offset is None:
        return None
    offset = _numbers("offset", offset)
    shapes = [(n_samples, n_outputs)] + [(n_samples,)] * (n_outputs == 1)
    if offset.shape not in shapes:
        raise DataError(f"offset has the shape {offset.shape}; pass {' or '.join(map(str, shapes))}")
    wrong = np.argwhere(~(np.abs(offset) <= _MOST))
    if len(wrong):
        at = tuple(wrong[0].tolist())
        raise DataError(
            f"offset holds {offset[at]:g} in row {at[0]}; entries must be finite, of at most {_MOST:g}"
        )
    return offset.ravel() if n_outputs == 1 else offset


def _vector(name, values, size, what, *, endless=False):
    """Return a float64 copy of `size` numbers, none negative; with `endless` they may be infinite."""
    vector = _numbers(name, values)
    if vector.shape != (size,):
        raise DataError(f"{name} has the shape {vector.shape}; pass a vector of {size}, one entry a {what}")
    wrong = np.flatnonzero(~((vector >= 0) & (endless | (vector < np.inf))))
    if len(wrong):
        allowed = "0 or above (inf excludes a column)" if endless else "0 or above and finite"
        raise DataError(f"{name} must be {allowed}, got {vector[wrong[0]]:g} for {what} {wrong[0]}")
    return vector


def _numbers(name, values):
    """Return a float64 copy of an array of real numbers."""
    check_plain(name, values)
    try:
        given = np.asarray(values)
        if given.dtype.kind not in "biufO":
            raise TypeError(f"got {given.dtype}")
        return np.array(given, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise DataError(f"{name} must hold numbers: {reworded(str(error), '')}") from error


def check_length(name, values, n_samples):
    """Refuse a vector whose length is not the number of rows of X."""
    if getattr(values, "ndim", 1) == 0:
        raise DataError(f"{name} is {shortened(values)}, and X has {n_samples} rows: give each row one")
    if len(values) != n_samples:
        raise DataError(
            f"{name} has {len(values)} rows, but X has {n_samples}, which is inconsistent: give each row one"
        )


def check_exposure(exposure, n_samples):
    """Check exposures, which are above 0; return their logarithms, float64."""
    exposure = _vector("exposure", exposure, n_samples, "row")
    if not exposure.all():
        raise DataError(
            f"exposure is 0 in row {int(np.argmin(exposure))}: it must be above 0; leave out rows "
            "that were not observed"
        )
    return np.log(exposure)


def check_span(offset):
    """Refuse offsets of logarithms of means so far apart that float64 cannot hold sums of the means."""
    if offset is not None and np.ptp(offset) > _WIDEST_SPAN:
        raise DataError(
            f"offset, with the logarithm of exposure, goes from {offset.min():g} to {offset.max():g}: it is "
            f"added to the logarithm of the mean and may span {_WIDEST_SPAN:g} at most; pass exposures "
            "themselves as exposure="
        )
    return offset


def check_row_labels(name, values, n_samples):
    """Check a label for each row, of any type that has an order; return sorted labels, and row numbers.

    For None the labels are a single 0, and the numbers None.
    """
    if values is None:
        return np.zeros(1, np.int64), None
    check_text(name, values)
    values = np.asarray(values)
    if values.shape != (n_samples,):
        raise DataError(f"{name} has the shape {values.shape}; pass a label for each of the {n_samples} rows")
    if values.dtype.kind == "O":
        absent = [value is None or type(value).__name__ == "NAType" for value in values]
        values = np.full(n_samples, np.nan) if any(absent) else np.asarray(values.tolist())
    if values.dtype.kind == "f" and np.isnan(values).any():
        raise DataError(f"{name} has missing labels: give every row a label")
    labels, numbers = np.unique(values, return_inverse=True)
    return labels, numbers.astype(np.int64)
