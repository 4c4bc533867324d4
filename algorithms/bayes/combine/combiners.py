r"""Draws of the posterior from draws of its parts: :math:`p(\theta \mid x) \propto \prod_m p_m(\theta)`.

One registry, `COMBINERS`; each entry states what it needs. ``method="auto"`` (`combine_auto`) goes through
them until one passes its gates, and refuses if none does.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import special
from sklearn.utils import check_random_state

from ....errors import DataError, shortened
from ..posterior.convergence import split_rhat
from ..posterior.diagnostics import (
    LEAST_ACCEPTANCE,
    LEAST_SHIFT,
    LEAST_SPREAD,
    MOST_APART,
    MOST_SHIFT,
    MOST_SPREAD,
    MOST_WIDTH,
    RHAT_LIMIT,
)
from ..posterior.tables import as_floats
from .auto import combine_auto
from .combination import Combination, CombinationRefused, CombinationWarning, Subposteriors, taken
from .exact import FREEDOM, LEAST_ESS, WIDER, gaussian_proposals, passed, weighed
from .gaussian import (
    Gaussian,
    NotDefinite,
    centred_covariance,
    definite_maps,
    from_moments,
    from_scores,
    half_disagreement,
    inverses,
)
from .kernel import kernel_product, pair_tree

_N_CHECKED = 4000  # proposals that check a combination
_CHANCE = 1e-3  # of a right combination to be complained of
_FEW = 100  # draws of a chain, below which R-hat warns of noise


@dataclass(frozen=True)
class Combiner:
    """An entry of the registry: ``function(shards, n, rng)`` returns a `Combination`.

    `right_for` says when its draws tend to those of the posterior as T grows. `needs` names "gradients" and
    "log_density"; ``least_draws(d)`` is the number of draws a shard below which it cannot work.
    """

    function: Callable[[Subposteriors, int, np.random.Generator], Combination]
    right_for: str
    needs: tuple[str, ...] = ()
    least_draws: Callable[[int], int] = lambda d: 2
    most_parameters: int | None = None


def _average(shards, n, rng):
    """Mean over shards of draw t."""
    return Combination(taken(shards.draws.mean(axis=0), n, rng), "average")


def _consensus(shards, n, rng):
    """Mean over shards of draw t, weighted by the inverse covariances (Scott et al. 2016)."""
    weights = inverses(centred_covariance(shards.draws), "the covariance")
    sums = np.einsum("mij,mtj->it", weights, shards.draws)
    draws = taken(np.linalg.solve(weights.sum(axis=0), sums).T, n, rng)
    return Combination(draws, "consensus", figures={"half_disagreement": half_disagreement(shards.draws)})


def _swiss(shards, n, rng):
    """All shards' draws, shifted and scaled to the moments of the parametric product (Vyner et al. 2023)."""
    product, means = from_moments(shards.draws), shards.draws.mean(axis=1, keepdims=True)
    unit = np.sqrt(np.diag(product.covariance))
    target = product.covariance / np.outer(unit, unit)
    spread = centred_covariance(shards.draws / unit)
    moved = ((shards.draws - means) / unit) @ definite_maps(spread, np.broadcast_to(target, spread.shape))
    draws = taken(rng.permutation(product.mean + moved.reshape(-1, len(unit)) * unit), n, rng)
    return Combination(draws, "swiss", figures={"half_disagreement": half_disagreement(shards.draws)})


def _parametric(shards, n, rng):
    halves = {"half_disagreement": half_disagreement(shards.draws)}
    return Combination(from_moments(shards.draws).draw(n, rng), "parametric", figures=halves)


def _score(spd):
    def combine_scores(shards, n, rng):
        pair = shards.draws, shards.gradients
        figures = {"half_disagreement": half_disagreement(*pair, spd)}
        name = "score-spd" if spd else "score"
        return Combination(from_scores(*pair, spd).draw(n, rng), name, figures=figures)

    return combine_scores


def _kernels(semiparametric):
    def combine_kernels(shards, n, rng):
        draws, acceptance, width = kernel_product(shards.draws, n, rng, semiparametric=semiparametric)
        figures = {"acceptance": acceptance}
        if not semiparametric:  # whose kernels correct a Gaussian and do not widen it
            figures["kernel_width"] = width
        name = "semiparametric" if semiparametric else "nonparametric"
        return Combination(draws, name, figures=figures, n_chains=1)

    return combine_kernels


def _pairs(shards, n, rng):
    return Combination(pair_tree(shards.draws, n, rng), "pairs")


def _exact(shards, n, rng):
    """Second round with proposals from the score-matched product, without gradients the parametric one."""
    if shards.gradients is None:
        product = from_moments(shards.draws)
    else:
        try:
            product = from_scores(shards.draws, shards.gradients)
        except NotDefinite:
            product = from_scores(shards.draws, shards.gradients, spd=True)
    proposals = gaussian_proposals(product, n, rng)
    log_weights, _, figures = weighed(proposals, shards.log_density)
    return Combination(proposals.points, "exact", log_weights, figures)


COMBINERS: dict[str, Combiner] = {
    "auto": Combiner(combine_auto, "whatever passes its gates; refuses otherwise"),
    "exact": Combiner(_exact, "any posterior that the proposals cover: look at k_hat", ("log_density",)),
    "score": Combiner(_score(False), "Gaussian shards, from d + 2 draws on", ("gradients",), lambda d: d + 2),
    "score-spd": Combiner(_score(True), "Gaussian shards", ("gradients",), lambda d: d + 2),
    "parametric": Combiner(_parametric, "Gaussian shards", (), lambda d: d + 3),
    "consensus": Combiner(_consensus, "Gaussian shards", (), lambda d: d + 2),
    "swiss": Combiner(_swiss, "Gaussian shards", (), lambda d: d + 3),
    "average": Combiner(_average, "Gaussian shards of one covariance"),
    "semiparametric": Combiner(_kernels(True), "any shards, in few dimensions", (), lambda d: d + 3),
    "nonparametric": Combiner(_kernels(False), "any shards, in few dimensions", (), lambda d: d + 3),
    "pairs": Combiner(_pairs, "any shards, with separate modes as well", (), lambda d: 10, 2),
}


def combine(
    draws,
    *,
    method="auto",
    gradients=None,
    log_density=None,
    value_and_grad=None,
    n_draws=4000,
    random_state=None,
    names=None,
):
    r"""Combine draws of subposteriors into draws of the posterior.

    Parameters
    ----------
    draws : array-like of shape (M, T, d) or (M, chains, T, d)
        T draws of d parameters in each of M shards, in unconstrained space.
    method : str, default="auto"
        A name in `COMBINERS`:

        - ``"auto"``: the score-matched product, then the second round, and what else the gates ask for.
        - ``"exact"``: the second round: K = `n_draws` proposals, weighed by the shards' own densities.
        - ``"score"``, ``"score-spd"``: Gaussians by regression of gradients on draws.
        - ``"parametric"``, ``"consensus"``, ``"average"``: Gaussians by sample moments; weighted and plain
          means.
        - ``"swiss"``: the shards' draws, shifted and scaled to the moments of ``"parametric"``.
        - ``"nonparametric"``, ``"semiparametric"``: kernel density estimates (Neiswanger et al. 2014).
        - ``"pairs"``: kernel density estimates two shards at a time, for one or two parameters.
    gradients : array-like, as draws, optional
        Of log p_m at the draws of shard m.
    log_density : callable, optional
        ``log_density(points)`` with points (K, d) returns the sum over shards of log p_m, (K,), up to a
        constant.
    value_and_grad : callable, optional
        ``value_and_grad(points)`` returns the same and its gradients (K, d). With it ``"auto"`` fits
        proposals to the posterior's own gradients, which serves skewed shards of many parameters.
    n_draws : int, default=4000
        Draws to return, and proposals of a second round.
    random_state : int, RandomState or None
        Equal numbers give equal draws, bitwise.
    names : sequence of d str, optional
        Of the parameters, for messages; "parameter 0" and so on by default.

    Returns
    -------
    Combination

    Raises
    ------
    DataError
        For input that does not fit, too few draws, or a shard that is stuck.
    CombinationRefused
        With ``method="auto"``, when a chain did not converge, or nothing passes: says what was seen.

    Warns
    -----
    CombinationWarning
        With a method asked for by name: if a shard with at least 100 draws a chain did not converge, or if
        the method's own figures (acceptance, k-hat, disagreement of halves) are poor, or if the posterior,
        where there is log_density, is elsewhere.

    References
    ----------
    Neiswanger, Wang, Xing, "Asymptotically exact, embarrassingly parallel MCMC", UAI 2014.
    Scott, Blocker, Bonassi, Chipman, George, McCulloch, "Bayes and big data: the consensus Monte Carlo
    algorithm", 2016.
    Vyner, Nemeth, Sherlock, "SwISS: a scalable Markov chain Monte Carlo divide-and-conquer strategy", Stat,
    2023.

    Examples
    --------
    Two Gaussian shards, N(0, 1) and N(2, 1), whose product is N(1, 1/2); ten draws are enough:

    >>> import numpy as np
    >>> from stradask.algorithms.bayes.combine.combiners import combine
    >>> mu = np.array([0.0, 2.0])[:, None, None]
    >>> x = mu + np.random.default_rng(0).standard_normal((2, 10, 1))
    >>> product = combine(x, gradients=mu - x, method="score", n_draws=100_000, random_state=0)
    >>> round(float(product.draws.mean()), 2), round(float(product.draws.var()), 2)
    (1.0, 0.5)
    """
    if method not in COMBINERS:
        raise DataError(f"method={shortened(method)} is unknown: take one of {', '.join(COMBINERS)}")
    if isinstance(n_draws, bool) or not isinstance(n_draws, (int, np.integer)) or n_draws < 1:
        raise DataError(f"n_draws must be a positive integer, got {shortened(n_draws)}")
    shards, chains = _checked(draws, gradients, log_density, value_and_grad)
    _check_needs(method, shards)
    rng = np.random.Generator(np.random.Philox(check_random_state(random_state).randint(2**31)))
    names = [f"parameter {j}" for j in range(chains.shape[3])] if names is None else names
    unconverged = _unconverged(chains, names)
    if unconverged and method == "auto":
        raise CombinationRefused(unconverged)
    try:
        found = COMBINERS[method].function(shards, int(n_draws), rng)
    except NotDefinite as error:
        raise CombinationRefused(
            f"method={shortened(method)}: {error}: the shards' Gaussians do not multiply to a density; take "
            "more draws, or method='score-spd', or method='auto'"
        ) from error
    if method != "auto" and found.log_weights is None and shards.log_density is not None:
        found.figures.update(_check(found.draws, shards.log_density, rng))
    warns = unconverged and chains.shape[2] >= _FEW
    complaints = [unconverged] * bool(warns) + [*_complaints(found)]
    for complaint in complaints if method != "auto" else ():
        warnings.warn(f"method={shortened(method)}: {complaint}", CombinationWarning, stacklevel=2)
    return found


def _check(draws, log_density, rng):
    """Weigh points about the draws by the posterior: errors of means and sd, if the weights can show them."""
    mean, d = draws.mean(axis=0), draws.shape[1]
    if len(draws) < d + 2:
        return {}
    covariance = WIDER * np.atleast_2d(np.cov(draws.T))
    try:
        proposals = gaussian_proposals(Gaussian(mean, covariance), _N_CHECKED, rng, FREEDOM)
    except np.linalg.LinAlgError:
        return {}
    log_weights, _, figures = weighed(proposals, log_density)
    weights, points, widths = np.exp(log_weights), proposals.points, draws.std(axis=0)
    there = weights @ points
    names = {"k_hat": "check_k_hat", "k_hat_limit": "check_k_hat_limit"}
    measured = {new: figures[name] for name, new in names.items()}
    measured["check_ess"] = figures["mean_ess"]
    # What chance alone does to the worst of d parameters, by the draws and by the weights.
    chance = special.ndtri(1 - _CHANCE / (2 * d)) * np.sqrt(1 / len(draws) + 1 / figures["mean_ess"])
    measured["shift_limit"] = float(np.clip(chance, LEAST_SHIFT, MOST_SHIFT))
    measured["spread_limit"] = float(np.clip(np.exp(chance), LEAST_SPREAD, MOST_SPREAD))
    measured["shift"] = float((np.abs(there - mean) / widths).max())
    if figures["mean_ess"] > LEAST_ESS:  # fewer do not tell widths
        times = widths / np.sqrt(weights @ (points - there) ** 2)
        measured["spread"] = float(np.maximum(times, 1 / times).max())
    return measured


def _checked(draws, gradients, log_density, value_and_grad):
    """Return the shards and their chains, (M, chains, T, d)."""
    chains = _finite("draws", draws)
    if chains.ndim == 3:
        chains = chains[:, None]
    M, C, T, d = chains.shape
    if min(M, C, d) < 1 or C * T < 2:
        raise DataError(f"draws must hold at least one shard, parameter and two draws, got {np.shape(draws)}")
    if gradients is not None:
        gradients = _finite("gradients", gradients)
        if gradients.shape != np.shape(draws):
            raise DataError(
                f"gradients must have the shape of draws, {np.shape(draws)}, got {gradients.shape}: one "
                "gradient of log p_m for each draw of shard m"
            )
        gradients = gradients.reshape(M, C * T, d)
    if log_density is not None and not callable(log_density):
        raise DataError(f"log_density must be a function of points (K, d), got {shortened(log_density, 60)}")
    if value_and_grad is not None and not callable(value_and_grad):
        given = shortened(value_and_grad, 60)
        raise DataError(f"value_and_grad must be a function of points (K, d), got {given}")
    if log_density is None and value_and_grad is not None:
        log_density = _values_of(value_and_grad)
    return Subposteriors(chains.reshape(M, C * T, d), gradients, log_density, value_and_grad), chains


def _values_of(value_and_grad):
    """The values alone of a function that returns gradients, too."""
    return lambda points: value_and_grad(points)[0]


def _finite(name, values):
    array = as_floats(f"{name} must be numbers of the shape (M, T, d), as many of each shard", values)
    if array.ndim not in (3, 4):
        raise DataError(f"{name} must have the shape (M, T, d) or (M, chains, T, d), got {array.shape}")
    wrong = np.argwhere(~np.isfinite(array))
    if len(wrong):
        place = tuple(int(i) for i in wrong[0])
        raise DataError(
            f"{name} holds {array[place]} in shard {place[0]} at {place[1:]}: its chain left the region "
            "where the density is finite; mend the density or run the shard anew"
        )
    return array


def _check_needs(method, shards):
    entry = COMBINERS[method]
    _, T, d = shards.draws.shape
    for need in entry.needs:
        if getattr(shards, need) is None:
            raise DataError(f"method={shortened(method)} needs {need}: pass them, or take method='auto'")
    if entry.most_parameters is not None and d > entry.most_parameters:
        raise DataError(
            f"method={shortened(method)} is for at most {entry.most_parameters} parameters, got {d}"
        )
    if entry.least_draws(d) > T:
        raise DataError(
            f"method={shortened(method)} needs at least {entry.least_draws(d)} draws a shard for {d} "
            f"parameters, got {T}: take more draws"
        )


def _unconverged(chains, names):
    """Say which shards did not converge; "" if none."""
    if chains.shape[2] < 4:
        return ""
    rhat = np.stack([split_rhat(shard) for shard in chains])
    stuck = np.argwhere(np.isnan(rhat))
    if len(stuck):
        m, j = stuck[0]
        return (
            f"{names[j]} does not move in shard {m}: its chain is stuck; run the shard anew from another "
            "start or with another sampler"
        )
    if rhat.max() > RHAT_LIMIT:
        m, j = np.unravel_index(rhat.argmax(), rhat.shape)
        poor = np.flatnonzero(rhat.max(axis=1) > RHAT_LIMIT)
        return (
            f"{'shard' if len(poor) == 1 else 'shards'} {', '.join(map(str, poor))} did not converge: R-hat "
            f"is {rhat[m, j]:.2f} for {names[j]} in shard {m}, and may be {RHAT_LIMIT} at most. Run "
            "longer chains there, or look whether the shard identifies the parameter and has one mode"
        )
    return ""


def _complaints(found):
    """List the faults of a combination."""
    figures = found.figures
    if figures.get("acceptance", 1) < LEAST_ACCEPTANCE:
        yield (
            f"the acceptance is {figures['acceptance']:.3f}, so that the draws tell of a few choices only; "
            "there are too many parameters or shards for kernels: take method='auto'"
        )
    if figures.get("kernel_width", 0) > MOST_WIDTH:
        yield (
            f"the kernels are {figures['kernel_width']:.2f} standard deviations of the posterior wide (at "
            f"most {MOST_WIDTH}), and so is the smoothing: take more draws, or method='auto'"
        )
    if "k_hat" in figures and not passed(figures):
        yield (
            f"k-hat is {figures['k_hat']:.2f} (limit {figures['k_hat_limit']:.2f}), the weighted draws are "
            f"worth {figures['importance_ess']:.0f} (least {figures['importance_ess_limit']:.0f}), for means "
            f"{figures['mean_ess']:.0f} (least {LEAST_ESS}): the proposals miss the posterior; take "
            "method='auto', or more draws a shard"
        )
    k_hat, shift = figures.get("check_k_hat", 0), figures.get("shift", 0)
    spread, size = figures.get("spread", 1), figures.get("check_ess", np.inf)
    most_shift, most_spread = figures.get("shift_limit", 1), figures.get("spread_limit", 2)
    trusted = k_hat < figures.get("check_k_hat_limit", 1) and size > LEAST_ESS
    if not (trusted and shift < most_shift and spread < most_spread):
        yield (
            f"weighed by the posterior, points about the draws have means {shift:.2f} standard deviations "
            f"away (at most {most_shift:.2f}), other widths by a factor of {spread:.2f} (at most "
            f"{most_spread:.2f}) and k-hat {k_hat:.2f} (limit {figures['check_k_hat_limit']:.2f}), and are "
            f"worth {size:.0f} draws (least {LEAST_ESS}): the combination misses the "
            "posterior; take method='auto'"
        )
    halves = figures.get("half_disagreement", 0)
    if np.isnan(halves):
        yield "the draws are too few to compare their two halves: nothing is known of their error; take more"
    elif halves > MOST_APART:
        yield (
            f"two halves of the draws give means {halves:.2f} standard deviations apart (at most "
            f"{MOST_APART}): take more draws a shard, or method='auto' with log_density"
        )
