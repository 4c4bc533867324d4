"""Losses and penalties that have a name, and a penalty's terms from the parameters of an estimator."""

import inspect

import numpy as np

from ....errors import DataError, shortened
from .losses import (
    Gamma,
    Huber,
    Logistic,
    Multinomial,
    NegativeBinomial,
    Poisson,
    Squared,
    Tweedie,
)
from .penalties import Slope
from .solving.kinks import Hinge, Pinball, RootMeanSquare
from .solving.problem import Terms

LOSSES = {
    "squared": Squared,
    "logistic": Logistic,
    "multinomial": Multinomial,
    "poisson": Poisson,
    "gamma": Gamma,
    "tweedie": Tweedie,
    "negative-binomial": NegativeBinomial,
    "huber": Huber,
    "quantile": Pinball,
    "hinge": Hinge,
    "square-root": RootMeanSquare,
}
PENALTIES = ("l1", "elastic-net", "group", "sparse-group", "mcp", "scad", "log", "lq", "slope")
NOT_CONVEX = ("mcp", "scad", "log", "lq")


def make(name, given, known, options):
    """Make a loss or penalty from its name and options; one that is an object already is taken as it is."""
    if not isinstance(given, str):
        if options:
            raise DataError(f"{name}_options is for a {name} given by name: set them on the object")
        return given
    if not options:
        return known[given]()
    takes = list(inspect.signature(known[given]).parameters)
    unknown = next((key for key in options if key not in takes), None)
    if unknown is not None:
        those = f"takes {', '.join(takes)}" if takes else "takes no options"
        raise DataError(f"{name}_options has {shortened(unknown)}: {name}={given!r} {those}")
    try:
        return known[given](**options)
    except TypeError as error:
        raise DataError(
            f"{name}_options={shortened(options)} does not suit {name}={given!r}: {error}"
        ) from None


def named_terms(
    penalty,
    options,
    *,
    gamma,
    l1_ratio,
    groups,
    overlap=False,
    factors=None,
    bounds=None,
    positive=False,
):
    """Check the parameters of a penalty, without its strength."""
    if options and penalty != "slope":
        raise DataError("penalty_options is for penalty='slope': set those of an object on the object")
    low, high = _check_bounds(bounds, positive)
    kind, sparse_groups, ratio = "norm", False, 1.0
    if not isinstance(penalty, str) or penalty == "slope":
        kind = make("penalty", penalty, {"slope": Slope}, options)
        if positive or bounds is not None:
            raise DataError("positive and bounds are not for this penalty: let its prox respect them")
    elif penalty in NOT_CONVEX:
        kind = penalty
        if kind == "scad" and gamma is not None and gamma <= 2:
            raise DataError(f"gamma={gamma} of penalty='scad' must be above 2")
        if kind == "lq" and gamma is not None and gamma >= 1:
            raise DataError(f"gamma={gamma} of penalty='lq', its exponent, must be below 1; take 'l1' for 1")
        if bounds is not None and not (np.isin(low, (0, -np.inf)).all() and np.isin(high, (0, np.inf)).all()):
            raise DataError(f"bounds other than 0 and infinity are for convex penalties, not for {kind!r}")
    elif penalty in ("group", "sparse-group") and groups is None:
        raise DataError(
            f"penalty={penalty!r} needs groups: the size of groups, labels or lists of columns, a dict of "
            "names, or 'category'"
        )
    elif penalty == "sparse-group":
        sparse_groups, ratio = True, l1_ratio
    elif penalty == "elastic-net":
        ratio = l1_ratio
    return Terms(kind, ratio, groups, overlap, factors, low, high, gamma, sparse_groups)


def _check_bounds(bounds, positive):
    if bounds is None:
        return (0.0 if positive else -np.inf), np.inf
    if positive:
        raise DataError("positive=True and bounds are given: pass bounds=(0, high) alone")
    if len(bounds) != 2:
        raise DataError(
            f"bounds has {len(bounds)} entries: pass the least and the largest value of coefficients"
        )
    try:
        return tuple(np.asarray(bound, np.float64) for bound in bounds)
    except (TypeError, ValueError) as error:
        raise DataError("bounds must be two numbers, or two vectors of one entry a column") from error
