"""Targets of survival models, their concordance, and the inference where nothing is penalised."""

import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from ....errors import DataError, shortened
from ...inputs.matrices import check_vector
from ...inputs.targets import check_length, check_targets
from ..inference.likelihood import dependent_columns, inverse_without, solve, without

_STEPS, _SETTLED = 8, 1e-10  # Newton steps to the maximum; in standard errors
_FAR = 0.5  # a step that moves a predictor so far, after the fit, has no end


def check_times(y, n_samples, name):
    """Check times and events; return float64 and bool arrays.

    Examples
    --------
    >>> from stradask.algorithms.linear.structured.survival import check_times
    >>> check_times([[2.0, 1], [3.0, 0]], 2, "CoxRegression")
    (array([2., 3.]), array([ True, False]))
    """
    y = check_vector(y, n_samples)
    if hasattr(y, "to_records") and "b" in {kind.kind for kind in y.dtypes}:
        y = y.to_records(index=False)  # a frame of an event and a time
    fields = getattr(getattr(y, "dtype", None), "names", None)
    if fields is not None:
        flags = [field for field in fields if y.dtype[field].kind == "b"]
        if len(fields) != 2 or len(flags) != 1:
            raise DataError(
                f"y has the fields {shortened(fields)}; {name} takes two, one of booleans (was there an "
                "event) and one of times"
            )
        other = next(field for field in fields if field != flags[0])
        time, event = np.asarray(y[other]), np.asarray(y[flags[0]])
        event = event.ravel()
    else:
        time, event = y, None
    time = check_targets(time, n_samples, name)
    if event is None and time.ndim == 2 and time.shape[1] == 2:
        time, flags = time[:, 0].copy(), time[:, 1]
        wrong = np.flatnonzero(~np.isin(flags, (0, 1)))
        if len(wrong):
            raise DataError(
                f"y holds the event {flags[wrong[0]]:g} in row {wrong[0]}: events are 1, censored rows 0"
            )
        event = flags == 1
    if time.ndim == 2 and time.shape[1] == 1:
        from sklearn.utils.validation import column_or_1d

        time = column_or_1d(time, warn=True)
    if time.ndim != 1:
        raise DataError(
            f"y has {time.shape[1]} columns; {name} takes two, times and events, or a structured array"
        )
    event = np.ones(n_samples, bool) if event is None else event
    check_length("y", event, n_samples)
    wrong = np.flatnonzero(time < 0)
    if len(wrong):
        raise DataError(f"y holds the time {time[wrong[0]]:g} in row {wrong[0]}: times are 0 or above")
    return time, event


def concordance(time, event, risk):
    """Harrell's concordance of risks with times: the share of comparable pairs in the right order, ties half.

    Examples
    --------
    >>> import numpy as np
    >>> from stradask.algorithms.linear.structured.survival import concordance
    >>> concordance(np.array([1.0, 2.0, 3.0]), np.array([True, True, False]), np.array([3.0, 1.0, 2.0]))
    0.6666666666666666
    """
    from ....kernels.linear.concordance import concordant_pairs

    values, ranks = np.unique(risk, return_inverse=True)
    order = np.argsort(-time, kind="stable")
    right, tied, total = concordant_pairs(order, time, event, ranks.astype(np.int64) + 1, len(values))
    return float((right + tied / 2) / total) if total else 0.5


def null_information(problem):
    """The information of all columns where their coefficients are 0."""
    loss, columns = problem.loss, problem.columns
    part, _ = columns.take(np.arange(columns.n_features))
    offset = np.zeros((part.shape[0], 1)) if loss.offset is None else loss.offset
    return loss.gram(offset, columns, part, False)[0]


def inference(problem, coef, total, name, left_out):
    """Maximise an unpenalised partial likelihood from nearby; return coefficients and their covariance.

    Columns that are `left_out` have a coefficient of 0, and keep it, with a covariance of NaN. `total`: the
    sum of the weights of the rows. The covariance is NaN, with a warning, where the likelihood rises without
    end.
    """
    loss, columns = problem.loss, problem.columns
    part, _ = columns.take(np.arange(columns.n_features))
    offset = 0.0 if loss.offset is None else loss.offset[:, 0]
    start = coef
    f = np.asarray(part @ coef) + offset
    unknown, stays = np.full((len(coef), len(coef)), np.nan), np.ones(len(coef), bool)
    stays[left_out] = False
    for _ in range(_STEPS):
        H = without(loss.gram(f[:, None], columns, part, False)[0], left_out)
        if len(dependent_columns(H)):  # at these coefficients alone
            moved = np.array([np.inf])
            break
        slopes = np.asarray(part.T @ loss.gradient(f[:, None])[:, 0])
        slopes[left_out] = 0.0
        step = -solve(H, slopes)
        covariance = inverse_without(H, left_out) / total  # the likelihood is a mean, of weights of mean 1
        moved = np.asarray(part @ step)
        coef, f = coef + step, f + moved
        if np.abs(step[stays] / np.sqrt(np.diag(covariance)[stays])).max(initial=0.0) <= _SETTLED:
            break
    if np.abs(moved).max() > _FAR or not np.isfinite(coef).all():
        warnings.warn(
            f"{name}: without a penalty there are no best coefficients, because a combination of columns "
            "orders the events and the likelihood rises along it without end; take alpha > 0",
            ConvergenceWarning,
            stacklevel=3,
        )
        return start, unknown
    covariance[left_out] = covariance[:, left_out] = np.nan
    return coef, covariance
