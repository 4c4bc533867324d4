"""A posterior as a DataTree for ArviZ: draws, likelihoods, new and observed data, statistics of chains."""

from collections.abc import Mapping

import numpy as np
from sklearn.utils import check_random_state

from ...._version import __version__
from ....errors import DataError, StradaskError
from .draws import STATISTICS, NamedValues
from .tables import by_name, in_chains, of_draws

_KINDS = (float, float, int, int, bool, float, float)  # of the statistics


def tree_of(posterior, n, random_state, log_likelihood, predictive, observed):
    """See `Posterior.to_arviz`."""
    try:
        import arviz_base
    except ModuleNotFoundError as error:
        raise StradaskError(
            "to_arviz needs arviz-base, which is not installed: pip install 'stradask[bayes]'"
        ) from error
    known = posterior._log_likelihood
    as_they_are = posterior.n_chains is not None and n is None
    chosen = slice(None) if as_they_are else posterior._chosen(n, random_state)
    chains = posterior.n_chains if as_they_are else 1
    values = by_name(posterior.variables, posterior.draws[chosen])
    groups = {"posterior": in_chains(values, chains)}
    if log_likelihood is not None and log_likelihood is not False:
        if log_likelihood is True and known is None:
            posterior.log_likelihood()  # says what is missing
        if callable(log_likelihood):
            found = _of_function(log_likelihood, values)
        elif log_likelihood is not True:
            found = of_draws(log_likelihood, len(posterior))[chosen]
        else:
            found = getattr(known, "by_name", known)(values)
        groups["log_likelihood"] = in_chains(_named(found), chains)
    groups |= _predicted(known, values, predictive, observed, chains, random_state)
    if posterior.statistics is not None and n is None:
        columns = zip(STATISTICS, _KINDS, posterior.statistics.T, strict=True)
        made = {name: column.astype(kind) for name, kind, column in columns}
        groups["sample_stats"] = in_chains(made, chains)
    attributes = {"inference_library": "stradask", "inference_library_version": __version__}
    labels = posterior.labels
    coords = {f"{name}_dim_0": own for name, own in labels.items()}
    tree = arviz_base.from_dict(groups, coords=coords, dims={n: [f"{n}_dim_0"] for n in labels})
    tree["posterior"].attrs.update(attributes, method=posterior.method, verdict=posterior.diagnostics.verdict)
    return tree


def _of_function(log_likelihood, values):
    """What a function of the draws returns for each observation, by name."""
    made = _named(log_likelihood(NamedValues(values)))
    expected = len(next(iter(values.values())))
    for name, part in made.items():
        if part.ndim < 2 or len(part) != expected:
            raise DataError(
                f"log_likelihood must return an array (draws, observations) for {expected} draws, got "
                f"{part.shape} for {name}"
            )
        if not np.isfinite(part).all():
            raise DataError(f"log_likelihood returns values for {name} that are not finite")
    return made


def _predicted(likelihood, values, predictive, observed, chains, random_state):
    """Return the groups ``posterior_predictive`` and ``observed_data``, where they are asked for and known.

    `likelihood` is that of a `Posterior`; it knows both if it has ``observations(values, seed)`` and
    ``observed``. For the rest see `Posterior.to_arviz`; `values` are the draws by name, of so many `chains`.
    """
    groups = {}
    seed = int(check_random_state(random_state).randint(2**31))
    if predictive is True:
        if not hasattr(likelihood, "observations"):
            raise StradaskError(
                "this posterior does not know how to draw new data: give predictive a function (values, rng)"
            )
        made = _named(likelihood.observations(values, seed))
    elif predictive is not False and predictive is not None:
        if not callable(predictive):
            raise DataError(
                f"predictive must be True, False or a function, got a {type(predictive).__name__}"
            )
        made = _named(predictive(NamedValues(values), np.random.Generator(np.random.Philox(seed))))
    else:
        made = {}
    expected = len(next(iter(values.values())))
    for name, part in made.items():
        if part.shape[:1] != (expected,):
            raise DataError(
                f"predictive must return a row for each of {expected} draws, got {part.shape} for {name}"
            )
    if made:
        groups["posterior_predictive"] = in_chains(made, chains)
    if observed is None and likelihood is not None:
        observed = getattr(likelihood, "observed", None)
    if observed is not None:
        groups["observed_data"] = _named(observed)
    return groups


def _named(made):
    made = made if isinstance(made, Mapping) else {"y": made}
    return {name: np.asarray(part) for name, part in made.items()}
