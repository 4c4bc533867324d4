"""Default priors of mixed models, on the scale of the data, and those of a user in their place."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from ....errors import DataError, shortened
from ....kernels.bayes.densities import parameter_priors as codes
from .. import priors as densities
from ..models.prior_density import PriorDensity

AUXILIARY = {
    "normal": ("sigma",),
    "student_t": ("sigma", "freedom"),
    "negative_binomial": ("overdispersion",),
    "gamma": ("shape",),
    "ordered": ("cut",),
}
_LOCATED = (codes.NORMAL, codes.STUDENT_T, codes.LAPLACE)
_WIDE = 2.5  # of default priors, in standard deviations


def default_priors(family, design):
    """Priors that are wide for the data: see `BayesianGLM`. A dict by name, on the scale of the data."""
    centre, width = location(family, design)
    priors = {
        f"coef[{name}]": densities.normal(0, _WIDE * width / spread)
        for name, spread in zip(design.names, design.spreads, strict=True)
    }
    if design.intercept:
        priors["intercept"] = densities.student_t(3, centre, _WIDE * width)
    for term in design.terms:
        sizes = np.sqrt((term.Z**2).mean(axis=0))
        if not (sizes > 0).all():
            raise DataError(f"the column {term.columns[int(sizes.argmin())]} of ({term.name}) is zero")
        priors[f"sd_{term.name}"] = densities.half_normal(_WIDE * width / sizes)
        priors[f"cor_{term.name}"] = densities.lkj(1)
    aux = {
        "sigma": densities.exponential(1 / width),
        "freedom": densities.gamma(2, 0.1),
        "overdispersion": densities.half_cauchy(1),
        "shape": densities.lognormal(1, 2),
        "cut": densities.student_t(3, centre if family == "ordered" else 0, _WIDE),
    }
    return priors | {name: aux[name] for name in AUXILIARY.get(family, ())}


def location(family, design):
    """Where the predictor of all rows lies, and the unit in which its effects are measured."""
    y, weights = design.y, design.weights
    mean, offset = np.average(y, weights=weights), np.average(design.offsets, weights=weights)
    if family in ("normal", "student_t"):
        width = np.sqrt(np.average((y - mean) ** 2, weights=weights))
        if not width > 0:
            raise DataError("the target is constant, which says nothing")
        return mean - offset, width
    if family in ("logistic", "binomial"):
        share = (weights @ y + 0.5) / (weights.sum() + 1)
        return np.log(share / (1 - share)) - offset, 1.0
    if family == "ordered":
        return offset, 1.0
    return np.log(mean if family == "gamma" else max(mean, 0.5 / len(y))) - offset, 1.0


def chosen_priors(given, family, design):
    """The default priors, with those that a user gave by name in their place."""
    priors = default_priors(family, design)
    given = {} if given is None else given
    if not isinstance(given, Mapping):
        raise DataError(f"priors must be a dict of names to densities of priors, got {shortened(given, 60)}")
    general = {"coef": [f"coef[{name}]" for name in design.names]}
    for prefix in ("sd", "cor"):
        general[prefix] = [f"{prefix}_{t.name}" for t in design.terms if prefix == "sd" or t.has_correlations]
    for name, prior in sorted(
        given.items(), key=lambda pair: str(pair[0]) not in general
    ):  # special ones last
        if name not in priors and f"coef[{name}]" in priors:
            name = f"coef[{name}]"
        places = general.get(name, [name])
        if name not in general and name not in priors:
            known = [*(key for key, names in general.items() if names), *priors]
            raise DataError(f"priors has {shortened(name)}, but parameters are {', '.join(known)}")
        if not isinstance(prior, PriorDensity):
            raise DataError(
                f"priors[{name!r}] must be a density such as priors.normal(0, 1), got {shortened(prior, 60)}"
            )
        if prior.references():
            raise DataError(f"priors[{name!r}] is {prior}: arguments must be numbers here")
        priors |= dict.fromkeys(places, prior)
    return priors


def located(prior, name):
    """The prior of a coefficient, or of the intercept, which may be any number."""
    if prior.code not in _LOCATED or prior.support != "any":
        raise DataError(
            f"priors[{name!r}] is {prior}, but coefficients may be any numbers and are standardised: take "
            "normal, student_t, cauchy or laplace"
        )
    return prior


def stretched(prior, factor):
    """The density of factor times a number of the given density, whose arguments are numbers."""
    (first, a), *rest = prior.arguments
    constant, code = prior.constant, prior.code
    if code == codes.LOGNORMAL:
        a = a + np.log(factor)
    elif code in (*_LOCATED, codes.HALF_CAUCHY):
        a = a * factor
    if code in (codes.GAMMA, codes.INVERSE_GAMMA):
        constant = constant + a * np.log(factor) * (1 if code == codes.INVERSE_GAMMA else -1)
    powers = {codes.EXPONENTIAL: -1, codes.GAMMA: -1, codes.LOGNORMAL: 0}
    rest[:1] = [(name, b * factor ** powers.get(code, 1)) for name, b in rest[:1]]
    return replace(prior, arguments=((first, a), *rest), constant=constant)
