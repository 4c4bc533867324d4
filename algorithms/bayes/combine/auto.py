"""``combine="auto"``: from the cheapest combination to the costliest, until one passes; refuse if none does.

1. Score-matched product (without gradients the parametric one), second round.
2. With the posterior's gradients at the proposals: transports fitted to them, up to eight rounds.
3. The positive definite form of the product; then Student's t with 7 degrees of freedom, 1.2 times as wide.
4. The same t, moved towards where its weights are, up to eight times.
5. One or two parameters: tree of pairs, second round with a mixture of kernels.
6. Up to 20 parameters: tempered populations.

The first round that is worth a quarter of its draws is taken (half of them, with k-hat below 0.5, where there
are gradients), or the best that passes. Where a density holds integrals by quadrature a quarter is always
enough, 3 with a fifth of proposals about the shards' draws comes before 2, and 6 is not tried. A round passes
if k-hat and the effective size do, and if no shard's draws lie as high as the accepted ones where no
proposals are. Where shards may have more than one piece, 1 to 4 are left out: a Gaussian may cover one piece
and never learn of the others. Only 2 is tried if climbs by the gradients, from draws of all shards, end at
one mode. Shards without gradients do not show their pieces: climbs by differences of log_density decide
whether 1 to 4 are tried.
"""

from functools import partial

import numpy as np
from scipy.special import logsumexp

from ..chains.annealing import largest_power
from ..posterior.diagnostics import MOST_APART
from . import exact
from .climbs import one_mode, one_mode_by_values, starts
from .combination import Combination, CombinationRefused, taken
from .fit_transport import bent, fit_gaussian, lower_bound
from .gaussian import (
    Gaussian,
    NotDefinite,
    excess_moments,
    from_moments,
    from_scores,
    half_disagreement,
    non_gaussianity,
    skew_shift,
)
from .kernel import pair_tree
from .smc import MOST_PARAMETERS, tempered
from .transport import Transport

# Gates and their limits: docs/mcmc.md, "What auto does".
MOST_PIECES = 5.0  # of `non_gaussianity`: two modes at 2 widths from their middle
MOST_SKEW_SHIFT = 0.15  # of `skew_shift`, in sd, where there is no log_density to put things right
MOST_EXCESS = 0.25  # of `excess_moments`: two modes at 3/4 of a width, whose product is 1.2 times as wide
_GOOD = 0.25  # part of the draws that a round is worth from which nothing better is looked for
_GOOD_SCORED, _GOOD_K_HAT = 0.5, 0.5  # the same, and the k-hat, where transports can be had
_BENDS, _IN_VAIN = 8, 3  # rounds with transports, and how many in a row may bring nothing
_A_PARAMETER = 4  # points, without which no stage is fitted
_MOVES, _GAIN = 8, 1.2  # of proposals, and what another one must bring
_COSTLY_MOVES, _COSTLY_BENDS = 3, 3  # the same, and rounds with transports, where densities hold quadrature
_ENOUGH = 0.1  # part of the draws that a mean is found from
_TRIED = 1000  # draws of shards that are looked at for missed regions
_LOWER = 5.0  # log of the height, below the accepted draws', from which a region is too small to matter
_PEAK = 6.0  # log of the height, above the median of tempered populations and d, that speaks of a narrow mode
_HEAVIER = 3.0  # log of the weight, above the accepted draws', that speaks of a missed region


def combine_auto(shards, n, rng):
    """Combine shards, or raise CombinationRefused; see the module's text."""
    if shards.log_density is None:
        return _closed_form(shards, n, rng)
    seen: list[str] = []
    pieces = _pieces(shards)
    if shards.gradients is None and not _has_one_mode(shards):
        seen.append("climbs from the shards' draws do not all end at one mode")
        found = None
    elif pieces <= MOST_PIECES:
        found = _gaussian_rounds(shards, n, rng, seen)
    else:
        seen.append(f"a shard has more than one piece, or heavy tails: non-Gaussianity {pieces:.1f}")
        found = _climbed(shards, n, rng, seen)
    d = shards.draws.shape[2]
    if found is None and d <= 2:
        proposals = exact.kernel_proposals(pair_tree(shards.draws, n, rng), n, rng)
        found = _round("tree of pairs", proposals, shards, rng, seen)[0]
    if found is None and d <= MOST_PARAMETERS:
        if _is_costly(shards):
            seen.append("tempered populations take a million integrals over each group's effects: not tried")
        else:
            found = _tempered(shards, n, rng, seen)
    if found is not None:
        return found
    raise CombinationRefused(
        f"no combination of these {len(shards.draws)} shards can be trusted: {'; '.join(seen)}. Take fewer "
        "shards or more draws of each, or sample the whole data (n_shards=1)"
    )


def _pieces(shards):
    if shards.gradients is None or shards.draws.shape[1] < shards.draws.shape[2] + 2:
        return 1.0
    return float(non_gaussianity(shards.draws, shards.gradients).max())


def _has_one_mode(shards):
    """Whether climbs end at one mode, where no gradients of shards show their pieces."""
    return one_mode_by_values(
        from_moments(shards.draws), partial(exact.evaluated, shards.log_density), shards.draws
    )


def _gaussian_rounds(shards, n, rng, seen):
    """Second rounds with Gaussian, bent and t proposals: the first that is good, or the best that passes."""
    best = nearest = None
    for name, spd, freedom in (
        ("Gaussian", False, None),
        ("definite Gaussian", True, None),
        ("t", True, exact.FREEDOM),
    ):
        try:
            product = _product(shards, spd)
        except NotDefinite:
            seen.append(f"{name}: the product is not positive definite")
            continue
        if freedom:
            product = Gaussian(product.mean, exact.WIDER * product.covariance)
        proposals = exact.gaussian_proposals(product, n, rng, freedom)
        found, tried = _round(name, proposals, shards, rng, seen)
        best = _worthier(best, found)
        if _is_good(best, shards, n):
            return best
        if nearest is None and shards.value_and_grad is not None:
            product = fit_gaussian(product, partial(exact.scored, shards.value_and_grad), n, rng)
            best = _transported(best, product, shards, n, rng, seen)
            if best is not None:
                return best
        if nearest is None or _worth(tried) > _worth(nearest[1]):
            nearest = product, tried
    return best if nearest is None else _moved_rounds(best, *nearest, shards, n, rng, seen)


def _is_good(found, shards, n):
    """Whether nothing better is looked for."""
    if shards.value_and_grad is None:
        return _worth(found) >= _GOOD * n
    part = _GOOD if _is_costly(shards) else _GOOD_SCORED
    return _worth(found) >= part * n and found.figures["k_hat"] < _GOOD_K_HAT


def _is_costly(shards):
    """See `Model.is_costly`; a function of the user's does not say."""
    return getattr(shards.log_density, "is_costly", False)


def _climbed(shards, n, rng, seen):
    """Fit transports where shards may have several pieces, if their product has one mode."""
    if shards.value_and_grad is None:
        return None
    try:
        product = _product(shards, spd=True)
    except NotDefinite:
        return None
    value_and_grad = partial(exact.scored, shards.value_and_grad)
    gaussian = fit_gaussian(product, value_and_grad, n, rng)
    if not one_mode(gaussian, value_and_grad, starts(shards.draws)):
        seen.append("climbs from the shards' draws do not all end at one mode")
        return None
    return _transported(None, gaussian, shards, n, rng, seen)


def _transported(best, gaussian, shards, n, rng, seen):
    """Second rounds with proposals that are fitted to the posterior's gradients at those before.

    A stage with which the divergence from the posterior grows is fitted again, a quarter as far.
    """
    d = len(gaussian.mean)
    if n < _A_PARAMETER * d:
        seen.append(f"transports of {d} parameters need n_draws of at least {_A_PARAMETER * d}, got {n}")
        return best
    if _is_costly(shards):  # one round, where transports take several
        wide = Gaussian(gaussian.mean, exact.WIDER * gaussian.covariance)
        proposals = exact.with_draws(
            exact.gaussian_proposals(wide, n, rng, exact.FREEDOM), shards.draws.reshape(-1, d), rng
        )
        best = _worthier(best, _round("t and shards' draws", proposals, shards, rng, seen)[0])
        if _is_good(best, shards, n):
            return best
    transport, kept, share = Transport(gaussian), None, 1.0
    most, bound, in_vain = 0.0, -np.inf, 0
    for _ in range(_COSTLY_BENDS if _is_costly(shards) else _BENDS):
        z = rng.standard_normal((n, d))
        points, log_q = transport.forward(z)
        if np.isfinite(points).all():
            heights, scores = exact.scored(shards.value_and_grad, points)
            name = f"transport of {len(transport.stages)} stages"
            proposals = exact.Proposals(points, log_q, transport.density)
            found, tried = _round(name, proposals, shards, rng, seen, heights)
            best = _worthier(best, found)
            in_vain = 0 if _worth(tried) > _GAIN * most else in_vain + 1
            most = max(most, _worth(tried))
            if _is_good(best, shards, n) or in_vain == _IN_VAIN:
                break
            reached, error = lower_bound(heights - log_q)
        else:
            reached, error = -np.inf, 0.0
        if kept is None or reached > bound - 2 * error:
            kept, share, bound = (transport, z, scores), min(1.0, 2 * share), max(bound, reached)
        else:
            share /= 4
        transport = bent(*kept, share)
    return best


def _moved_rounds(best, product, tried, shards, n, rng, seen):
    """Move the proposals towards where their weights are, as far as these can be believed each time.

    Weights to a power below 1 are those of a density between proposal and posterior: the power is the largest
    with which enough draws count to find a mean. With all of the power the covariance is found anew as well.
    """
    enough = min(max(_ENOUGH * n, 10 * shards.draws.shape[2]), n / 2)
    for number in range(1, (_COSTLY_MOVES if _is_costly(shards) else _MOVES) + 1):
        power = largest_power(tried.log_weights, enough)
        powered = power * tried.log_weights
        weights = np.exp(powered - logsumexp(powered))
        mean, covariance = weights @ tried.draws, product.covariance
        if power == 1:
            centred = tried.draws - mean
            covariance = exact.WIDER * (centred * weights[:, None]).T @ centred
        product = Gaussian(mean, covariance)
        proposals = exact.gaussian_proposals(product, n, rng, exact.FREEDOM)
        before = _worth(best)
        found, tried = _round(f"t, moved {number} times", proposals, shards, rng, seen)
        best = _worthier(best, found)
        if _worth(best) >= _GOOD * n or 0 < _worth(best) < _GAIN * before:
            break
    return best


def _worth(tried):
    return 0.0 if tried is None else tried.figures["importance_ess"]


def _worthier(one, two):
    return two if _worth(two) > _worth(one) else one


def _product(shards, spd):
    if shards.gradients is not None:
        return from_scores(shards.draws, shards.gradients, spd)
    return from_moments(shards.draws)


def _round(name, proposals, shards, rng, seen, heights=None):
    """Do a second round, with `heights` if they are known; return it or None if it fails, and it anyhow."""
    log_weights, heights, figures = exact.weighed(proposals, shards.log_density, heights)
    tried = Combination(proposals.points, f"{name}, second round", log_weights, figures, tuple(seen))
    worth = f"{figures['importance_ess']:.0f} of {len(heights)} draws, {figures['mean_ess']:.0f} for means"
    words = f"{name}: k-hat {figures['k_hat']:.2f}, worth {worth}"
    if exact.passed(figures):
        if not _missed_region(proposals, np.exp(log_weights), heights, shards, rng):
            return tried, tried
        words += ", but draws of a shard lie as high as these where no proposals are"
    seen.append(words)
    return None, tried


def _missed_region(proposals, weights, heights, shards, rng):
    """Look for draws of shards that are nearly as high as the accepted ones and would weigh far more.

    k-hat cannot see a mode that no proposal reached, or that a few did; draws of the shards lie there.
    """
    flat = shards.draws.reshape(-1, shards.draws.shape[2])
    points = flat[rng.permutation(len(flat))[:_TRIED]]
    there = exact.evaluated(shards.log_density, points)
    counted = weights > 0  # elsewhere heights may be -inf
    weights, heights = weights[counted], heights[counted]
    usual = weights @ heights
    spread = np.sqrt(weights @ (heights - usual) ** 2)
    high = there > usual - 3 * spread - _LOWER
    typical = weights @ (heights - proposals.log_q[counted])
    heavier = there[high] - proposals.density(points[high]) - typical
    return bool((heavier > _HEAVIER).any())


def _tempered(shards, n, rng, seen):
    if n < 400:
        seen.append(f"tempered populations need n_draws of at least 400, got {n}")
        return None
    draws, figures = tempered(shards, n, rng)
    words = f"tempered populations: two of them differ by {figures['populations_apart']:.2f} sd"
    if figures["populations_apart"] > MOST_APART:
        seen.append(words)
        return None
    if _has_peak(draws, shards, rng):
        seen.append(f"{words}, but the density has a narrow peak far above most of their draws")
        return None
    return Combination(draws, "tempered populations", None, figures, tuple(seen))


def _has_peak(draws, shards, rng):
    """Whether a draw lies far higher than most of the populations': in a narrow mode, inside a wide one.

    Few of the points are there at first, and the populations agree on a wrong share of it. The median of a
    normal density lies d / 2 below its top.
    """
    n, d = draws.shape
    flat = shards.draws.reshape(-1, d)
    tried = np.concatenate([draws, flat[rng.permutation(len(flat))[:_TRIED]]])
    heights = exact.evaluated(shards.log_density, tried)
    return bool(heights.max() > np.median(heights[:n]) + d + _PEAK)


def _closed_form(shards, n, rng):
    """Combine without log_density: a Gaussian product, if no test shows shards to be other than Gaussian."""
    if len(shards.draws) == 1:  # of any form
        return Combination(taken(shards.draws[0], n, rng), "one shard")
    pair = shards.draws, shards.gradients
    _, T, d = shards.draws.shape
    if d + 3 > T:
        raise CombinationRefused(
            f"{T} draws a shard are too few to see whether shards of {d} parameters are Gaussian: take more "
            "draws, or pass log_density"
        )
    gates = {"half_disagreement": (half_disagreement(*pair), MOST_APART)}
    gates["skew_shift"] = (skew_shift(*pair), MOST_SKEW_SHIFT)
    if shards.gradients is None:
        gates["excess_moments"] = (excess_moments(shards.draws), MOST_EXCESS)
    if all(figure <= limit for figure, limit in gates.values()):
        product = _product(shards, False)
        name = "score-matched product" if shards.gradients is not None else "parametric product"
        return Combination(
            product.draw(n, rng), name, None, {key: figure for key, (figure, _) in gates.items()}
        )
    limits = (
        f"{key.replace('_', ' ')} {figure:.2f} (limit {limit})" for key, (figure, limit) in gates.items()
    )
    words = ", ".join(limits)
    raise CombinationRefused(
        "without log_density only Gaussian shards can be combined, and these are not, or their draws are too "
        f"few: {words}. Pass log_density, and gradients if there are none; or take more draws"
    )
