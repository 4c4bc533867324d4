"""Combiners against products that are known: Gaussians, gamma and beta densities, mixtures on a grid."""

import itertools
import warnings
from functools import partial

import numpy as np
import pytest
from scipy import stats
from scipy.special import digamma, polygamma

from stradask.algorithms.bayes import combine_auto, combine_smc
from stradask.algorithms.bayes.combine import (
    COMBINERS,
    CombinationRefused,
    CombinationWarning,
    Subposteriors,
    combine,
)
from stradask.algorithms.bayes.combine_exact import (
    Proposals,
    gaussian_proposals,
    kernel_proposals,
    passed,
    proposal_log_density,
    weighed,
)
from stradask.algorithms.bayes.combine_gaussian import (
    Gaussian,
    NotDefinite,
    from_moments,
    from_scores,
    gaussian_product,
    half_disagreement,
    non_gaussianity,
)
from stradask.algorithms.bayes.combine_kernel import kernel_product, pair_tree
from stradask.algorithms.bayes.combine_smc import tempered
from stradask.errors import DataError
from stradask.kernels.posterior_product import pair_choices, pair_sums, product_draws


class GaussianShards:
    """M Gaussians with unlike precisions and means, draws of them, and their exact product."""

    def __init__(self, M=6, T=2000, d=4, seed=0, scales=1.0):
        rng = np.random.default_rng(seed)
        roots = rng.standard_normal((M, d, d))
        self.precisions = (roots @ np.swapaxes(roots, 1, 2) + np.eye(d)) / np.outer(
            *[np.ones(d) * scales] * 2
        )
        self.means = 0.5 * rng.standard_normal((M, d)) * scales
        spread = np.linalg.cholesky(np.linalg.inv(self.precisions))
        noise = rng.standard_normal((M, T, d))
        self.draws = self.means[:, None] + noise @ np.swapaxes(spread, 1, 2)
        self.gradients = -(self.draws - self.means[:, None]) @ self.precisions
        self.covariance = np.linalg.inv(self.precisions.sum(axis=0))
        self.mean = self.covariance @ np.einsum("mij,mj->i", self.precisions, self.means)
        self.sd = np.sqrt(np.diag(self.covariance))

    def log_density(self, points):
        apart = points - self.means[:, None]
        return -np.einsum("mki,mij,mkj->k", apart, self.precisions, apart) / 2


class GammaShards:
    """log x for x ~ Gamma(k, 1): log p = k u - exp(u); the product of M shards is log Gamma(M k, rate M)."""

    def __init__(self, k, M=8, T=1000, d=1, seed=0):
        rng = np.random.default_rng(seed)
        self.draws = np.log(rng.gamma(k, 1, (M, T, d)))
        self.gradients = k - np.exp(self.draws)
        self.mean, self.sd = digamma(M * k) - np.log(M), np.sqrt(polygamma(1, M * k))
        self.log_density = lambda u: (M * (k * u - np.exp(u))).sum(axis=1)


class BetaShards:
    """logit x for x ~ Beta(a, b): log p = a u - (a + b) log(1 + e^u); products add up a and b."""

    def __init__(self, a, b, T=1000, d=1, seed=0):
        rng = np.random.default_rng(seed)
        a, b = np.asarray(a, float)[:, None, None], np.asarray(b, float)[:, None, None]
        x = rng.beta(a, b, (len(a), T, d))
        self.draws = np.log(x / (1 - x))
        self.gradients = a - (a + b) * x
        A, B = a.sum(), b.sum()
        self.mean, self.sd = digamma(A) - digamma(B), np.sqrt(polygamma(1, A) + polygamma(1, B))
        self.log_density = lambda u: (A * u - (A + B) * np.logaddexp(0, u)).sum(axis=1)


class Mixtures:
    """Shards with modes at -2 and 2 in the first parameter; others are standard normal in each shard."""

    def __init__(self, left, s=0.6, T=1000, d=1, seed=0, stuck=False):
        rng = np.random.default_rng(seed)
        left = np.asarray(left, float)[:, None]
        M = len(left)
        self.draws = rng.standard_normal((M, T, d))
        on_left = np.arange(M)[:, None] % 2 == 0 if stuck else rng.random((M, T)) < left
        self.draws[:, :, 0] = np.where(on_left, -2, 2) + s * rng.standard_normal((M, T))
        parts = np.log(left), np.log1p(-left)

        def logs(x):
            return parts[0] - (x + 2) ** 2 / (2 * s**2), parts[1] - (x - 2) ** 2 / (2 * s**2)

        self.gradients = -self.draws
        first = self.draws[:, :, 0]
        share = np.exp(logs(first)[0] - np.logaddexp(*logs(first)))
        self.gradients[:, :, 0] = -(share * (first + 2) + (1 - share) * (first - 2)) / s**2
        self.log_density = lambda q: (
            np.logaddexp(*logs(q[:, 0])).sum(axis=0) - M * (q[:, 1:] ** 2).sum(axis=1) / 2
        )
        grid = np.linspace(-6, 6, 40_001)
        heights = self.log_density(np.column_stack([grid] + [0 * grid] * (d - 1)))
        p = np.exp(heights - heights.max())
        p /= p.sum()
        self.on_left = p[grid < 0].sum()
        self.mean, self.sd = p @ grid, np.sqrt(p @ (grid - p @ grid) ** 2)


def moments(combination):
    weights = np.full(len(combination.draws), 1 / len(combination.draws))
    if combination.log_weights is not None:
        weights = np.exp(combination.log_weights)
    mean = weights @ combination.draws
    return mean, np.sqrt(weights @ (combination.draws - mean) ** 2)


def errors(case, combination):
    """Largest error of a mean, and of a logarithm of a standard deviation, in posterior sd."""
    mean, sd = moments(combination)
    return np.abs((mean - case.mean) / case.sd).max(), np.abs(np.log(sd / case.sd)).max()


def combined(case, method="auto", n_draws=4000, seed=0, **given):
    given = {"gradients": case.gradients, "log_density": case.log_density} | given
    return combine(case.draws, method=method, n_draws=n_draws, random_state=seed, **given)


# Gaussians -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spd", [False, True])
@pytest.mark.parametrize("scales", [1.0, np.array([1e-4, 1.0, 30.0, 1e5])])
def test_score_matching_is_exact_from_few_draws(spd, scales):
    case = GaussianShards(T=7, scales=scales)  # d + 3
    found = from_scores(case.draws, case.gradients, spd)
    assert np.abs((found.mean - case.mean) / case.sd).max() < 1e-9
    assert np.abs((found.covariance - case.covariance) / np.outer(case.sd, case.sd)).max() < 1e-9


def test_score_matching_adds_a_shard_that_knows_nothing_of_a_direction():
    case = GaussianShards(M=3, T=30, d=2)
    # A shard flat in the second parameter: its draws come from a wide proposal, its gradient there is 0.
    rng = np.random.default_rng(1)
    flat = 3 * rng.standard_normal((30, 2))
    draws = np.concatenate([case.draws, flat[None]])
    gradients = np.concatenate([case.gradients, np.column_stack([-flat[:, 0], 0 * flat[:, 0]])[None]])
    precision = case.precisions.sum(axis=0) + np.diag([1.0, 0.0])
    shift = np.einsum("mij,mj->i", case.precisions, case.means)
    found = from_scores(draws, gradients)
    np.testing.assert_allclose(found.covariance, np.linalg.inv(precision), atol=1e-10)
    np.testing.assert_allclose(found.mean, np.linalg.solve(precision, shift), atol=1e-10)


def test_precision_from_moments_is_unbiased():
    rng = np.random.default_rng(2)
    found = [
        np.linalg.inv(from_moments(rng.standard_normal((1, 12, 3))).covariance)[0, 0] for _ in range(4000)
    ]
    assert np.mean(found) == pytest.approx(1, abs=4 * np.std(found) / np.sqrt(4000))


@pytest.mark.parametrize("method", ["parametric", "consensus"])
def test_error_of_moments_falls_with_draws(method):
    def rms(T):
        squares = []
        for seed in range(6):
            case = GaussianShards(T=T, seed=seed)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", CombinationWarning)  # halves that differ
                mean, _ = moments(combined(case, method, n_draws=T))
            squares.append(((mean - case.mean) / case.sd) ** 2)
        return np.sqrt(np.mean(squares))

    few, many = rms(100), rms(6400)
    assert many < 0.06
    assert 4 < few / many < 16  # the root of 64 is 8


def test_consensus_and_average_have_the_right_spread():
    rng = np.random.default_rng(3)
    draws = rng.standard_normal((5, 20_000, 2)) * [1.0, 3.0]
    for method in ("consensus", "average"):
        found = combine(draws, method=method, n_draws=20_000, random_state=0)
        np.testing.assert_allclose(found.draws.std(axis=0), np.array([1, 3]) / np.sqrt(5), rtol=0.03)
    unlike = draws * np.array([1, 1, 1, 1, 5.0])[:, None, None]
    right = np.array([1, 3]) / np.sqrt(4 + 1 / 25)
    found = combine(unlike, method="consensus", n_draws=20_000, random_state=0)
    np.testing.assert_allclose(found.draws.std(axis=0), right, rtol=0.03)
    found = combine(unlike, method="average", n_draws=20_000, random_state=0)
    assert (found.draws.std(axis=0) > 1.5 * right).all()


@pytest.mark.parametrize("method", ["score", "score-spd", "exact", "auto", "parametric"])
def test_gaussian_product_by_name(method):
    case = GaussianShards(T=10_000)
    error, width = errors(case, combined(case, method, n_draws=20_000))
    assert error < (0.1 if method == "parametric" else 0.04)
    assert width < 0.04


def test_product_that_is_no_density():
    with pytest.raises(NotDefinite, match="eigenvalue"):
        gaussian_product(np.array([np.diag([1.0, -2.0])]), np.zeros((1, 2)))
    with pytest.raises(NotDefinite, match="zero"):
        gaussian_product(np.zeros((1, 2, 2)), np.zeros((1, 2)))
    case = GaussianShards(M=2, T=50, d=2)
    with pytest.raises(CombinationRefused, match="do not multiply to a density"):
        combined(case, "score", gradients=-case.gradients)


def test_halves_tell_the_error():
    def pair(case, gradients):
        product = from_moments(case.draws) if gradients is None else from_scores(case.draws, gradients)
        error = np.abs((product.mean - case.mean) / case.sd).max()
        return half_disagreement(case.draws, gradients), error

    cases = [GaussianShards(T=200, seed=seed) for seed in range(12)]
    by_moments = np.array([pair(case, None) for case in cases])
    # The halves' difference has twice the error of the whole.
    assert 1.2 < np.median(by_moments[:, 0]) / np.median(by_moments[:, 1]) < 3.5
    assert max(pair(case, case.gradients)[0] for case in cases) < 1e-9
    assert np.isnan(half_disagreement(cases[0].draws[:, :8]))


def test_non_gaussianity_of_known_densities():
    gaussian = GaussianShards(T=40, d=4)
    np.testing.assert_allclose(non_gaussianity(gaussian.draws, gaussian.gradients), 1, atol=1e-9)
    rng = np.random.default_rng(4)
    x = rng.standard_t(5, (2, 200_000, 1))  # var 5/3, information 6/8
    np.testing.assert_allclose(non_gaussianity(x, -6 * x / (5 + x**2)), 1.25, atol=0.03)
    two = Mixtures([0.5, 0.5], T=50_000)
    np.testing.assert_allclose(non_gaussianity(two.draws, two.gradients), 1 + 4 / 0.36, rtol=0.05)


# Kernels ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("semi", [False, True])
def test_kernel_product_is_the_product_of_the_kernel_densities(semi):
    """Two shards of four draws, one width: the density is summed on a grid, by its definition."""
    x = np.array([[-1.0, 0.2, 0.9, 2.0], [-0.5, 0.1, 1.2, 3.0]])
    means, h = np.array([0.4, -0.4]), 0.7
    grid = np.linspace(-8, 8, 4001)
    density = np.ones_like(grid)
    for m in range(2):  # covariance 2 each, so that the product of the Gaussians is N(0, 1)
        kernels = np.exp(-((grid - x[m][:, None]) ** 2) / (2 * h**2))
        if semi:
            kernels *= np.exp(-((grid - means[m]) ** 2) / 4) / np.exp(-((x[m][:, None] - means[m]) ** 2) / 4)
        density *= kernels.sum(axis=0)
    exact = np.cumsum(density) / density.sum()
    n = 200_000
    logs = -((x - means[:, None]) ** 2) / 4
    noise = np.random.default_rng(0).standard_normal((n, 1))
    out, acceptance, width = product_draws(
        x[:, :, None], x**2, logs, semi, np.zeros(1), noise, 100, 4, h, 0.0, 0.1, np.uint64(5)
    )
    found = np.searchsorted(np.sort(out[:, 0]), grid) / n
    assert np.abs(found - exact).max() < 0.01  # ten standard errors of independent draws
    assert width == pytest.approx(h)
    assert 0.1 < acceptance < 1


def test_width_is_held_while_nothing_is_accepted():
    rng = np.random.default_rng(0)
    x = 20 * rng.standard_normal((6, 50, 3))
    arguments = (x, (x**2).sum(2), np.zeros((6, 50)), False, np.zeros(3), np.zeros((500, 3)), 0, 2, 1.0, -0.2)
    assert product_draws(*arguments, 0.0, np.uint64(1))[2] == pytest.approx(501**-0.2)
    # The running acceptance begins at 1 and needs 69 draws to fall to a half.
    assert product_draws(*arguments, 0.5, np.uint64(1))[2] == pytest.approx(70**-0.2, rel=0.03)


@pytest.mark.parametrize("semiparametric", [False, True])
def test_error_of_kernels_falls_with_draws(semiparametric):
    def rms(T):
        found = []
        for seed in range(5):
            case = GammaShards(3.0, M=4, T=T, seed=seed)
            rng = np.random.default_rng(seed)
            draws, *_ = kernel_product(case.draws, 4000, rng, semiparametric=semiparametric)
            found.append((draws.mean() - case.mean) / case.sd)
        return np.sqrt(np.mean(np.square(found)))

    few, many = rms(30), rms(3000)
    assert many < 0.15
    assert many < few / 1.5


@pytest.mark.filterwarnings("ignore:.*the combination misses the posterior")
def test_frozen_kernels_are_told():
    case = GaussianShards(M=20, T=200, d=25)
    with pytest.warns(CombinationWarning, match="the acceptance is 0.0"):
        combined(case, "semiparametric", n_draws=500)


def test_a_method_by_name_tells_of_a_shard_that_did_not_converge():
    draws = np.random.default_rng(0).standard_normal((4, 2, 300, 3))
    draws[2, 1, :, 1] += 5
    with pytest.warns(
        CombinationWarning, match="'average': shard 2 did not converge: R-hat is .* parameter 1"
    ):
        combine(draws, method="average", random_state=0)


def test_smoothing_by_kernels_is_told():
    rng = np.random.default_rng(0)
    draws = rng.standard_normal((6, 500, 5))
    with pytest.warns(CombinationWarning, match="kernels are .* standard deviations of the posterior wide"):
        found = combine(draws, method="nonparametric", random_state=0)
    wider = found.draws.std(axis=0).mean() * np.sqrt(6)
    assert wider == pytest.approx(np.sqrt(1 + found.figures["kernel_width"] ** 2), rel=0.1)


def test_pairs_are_weighed_and_chosen_by_their_definition():
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((5, 2)), rng.standard_normal((7, 2))
    weights = np.exp(-((a[:, None] - b) ** 2).sum(axis=2) / (2 * 0.3))
    np.testing.assert_allclose(pair_sums(a, b, 0.3), np.log(weights.sum(axis=1)), rtol=1e-12)
    rows, n = np.repeat(np.arange(5), 40_000), 40_000
    u = np.tile((np.arange(n) + 0.5) / n, 5)
    chosen = pair_choices(a, b, pair_sums(a, b, 0.3), rows, u, 0.3)
    for i in range(5):
        shares = np.bincount(chosen[rows == i], minlength=7) / n
        np.testing.assert_allclose(shares, weights[i] / weights[i].sum(), atol=1e-4)
    far = pair_sums(a + 1e3, b, 1.0)  # no weight underflows to log 0
    assert np.isfinite(far).all()


@pytest.mark.parametrize("case", [BetaShards([2, 3, 4], [5, 2, 3], T=2000), Mixtures([0.51] * 8, T=2000)])
def test_pair_tree(case):
    draws = pair_tree(case.draws, 20_000, np.random.default_rng(0))
    assert draws.mean() == pytest.approx(case.mean, abs=0.1 * case.sd)
    assert draws.std() == pytest.approx(case.sd, rel=0.15)  # smoothed a little
    if isinstance(case, Mixtures):
        assert (draws < 0).mean() == pytest.approx(case.on_left, abs=0.06)


def test_odd_numbers_of_shards_meet_in_the_tree():
    for M in (1, 3, 5):
        draws = np.random.default_rng(0).standard_normal((M, 2000, 1))
        found = pair_tree(draws, 5000, np.random.default_rng(1))
        assert found.std() == pytest.approx(1 / np.sqrt(M), rel=0.15)


# The exact second round ------------------------------------------------------------------------------


@pytest.mark.parametrize("freedom", [None, 7])
def test_second_round_mends_a_proposal_that_is_off(freedom):
    case = GaussianShards()
    off = Gaussian(case.mean + 0.5 * case.sd, 1.44 * case.covariance)
    proposals = gaussian_proposals(off, 20_000, np.random.default_rng(0), freedom)
    log_weights, heights, figures = weighed(proposals, case.log_density)
    points = proposals.points
    assert passed(figures)
    np.testing.assert_array_equal(heights, case.log_density(points))
    weights = np.exp(log_weights)
    np.testing.assert_allclose((weights @ points - case.mean) / case.sd, 0, atol=0.05)
    np.testing.assert_allclose(np.sqrt(weights @ (points - case.mean) ** 2) / case.sd, 1, atol=0.05)


def test_kernel_proposals_know_their_density():
    rng = np.random.default_rng(0)
    draws = rng.standard_normal((3000, 2)) * [1, 10] + [5, -20]
    proposals = kernel_proposals(draws, 20_000, rng)
    points, log_q, _ = proposals
    log_weights, _, figures = weighed(
        proposals, lambda q: -((q[:, 0] - 5) ** 2) / 2 - ((q[:, 1] + 20) / 10) ** 2 / 2
    )
    assert passed(figures)
    assert figures["importance_ess"] > 0.7 * 20_000
    np.testing.assert_allclose(np.exp(log_weights) @ points, [5, -20], atol=0.2)
    # The mixture is a density: weights of a normalised target have the mean 1.
    log_p = stats.norm.logpdf(points, [5, -20], [1, 10]).sum(axis=1)
    assert np.exp(log_p - log_q).mean() == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        (lambda q: np.zeros(3), r"returned the shape \(3,\)"),
        (lambda q: np.where(np.arange(len(q)) == 4, np.nan, 0.0), "log_density is nan"),
        (lambda q: np.full(len(q), np.inf), "log_density is inf"),
        (lambda q: np.full(len(q), -np.inf), "-inf"),
    ],
)
def test_log_densities_that_are_none(returned, words):
    with pytest.raises(DataError, match=words):
        combined(GaussianShards(T=50), "exact", log_density=returned)


def test_a_heavy_draw_far_out_counts_against_a_round():
    """Nine in ten of the posterior where the proposals are; the tenth, far away, is told by a few of them."""
    x = np.random.default_rng(0).standard_normal((2000, 1))
    x[:4] += 8
    log_q = np.where(np.arange(2000) < 4, np.log(4 / 200), 0.0)  # 4 proposals stand for 200
    proposals = Proposals(x, log_q, lambda points: np.zeros(len(points)))
    _, _, figures = weighed(proposals, lambda points: np.zeros(len(points)))
    assert figures["importance_ess"] > 350
    weights = np.where(np.arange(2000) < 4, 50.0, 1.0) / 2196
    mean = weights @ x[:, 0]
    exact = weights @ (x[:, 0] - mean) ** 2 / (weights**2 @ (x[:, 0] - mean) ** 2)
    assert figures["mean_ess"] == pytest.approx(exact, rel=0.01)
    assert figures["mean_ess"] < 100
    assert not passed(figures | {"k_hat": 0.1})


def test_points_outside_of_the_posterior_weigh_nothing():
    case = GaussianShards(M=2, T=200, d=1)

    def half(points):
        return np.where(points[:, 0] > case.mean[0], case.log_density(points), -np.inf)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CombinationWarning)
        found = combined(case, "exact", log_density=half)
    mean, _ = moments(found)
    assert mean[0] == pytest.approx(case.mean[0] + case.sd[0] * np.sqrt(2 / np.pi), abs=0.05 * case.sd[0])


# What auto does --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "case",
    [
        GammaShards(20.0),
        GammaShards(1.0, d=3),
        GammaShards(0.2),
        GammaShards(0.3, M=12, d=2, T=400),
        BetaShards([2, 3, 4, 1], [5, 2, 3, 1], d=2),
        Mixtures([0.51] * 8),
        Mixtures([0.03, 0.97] * 3, s=0.5),
        Mixtures([0.5] * 4, d=2, stuck=True, s=0.4),
        Mixtures([0.52] * 8, d=5, s=0.4),
        Mixtures([0.1, 0.9] * 3, d=5, s=0.5),
    ],
)
def test_auto_is_right_or_refuses(case):
    try:
        found = combined(case, seed=1)
    except CombinationRefused:
        assert isinstance(case, Mixtures)  # the others have one mode, and have to be found
        return
    mean, sd = moments(found)
    assert np.abs(mean[0] - case.mean) / case.sd < 0.15
    assert np.abs(np.log(sd[0] / case.sd)) < 0.15


@pytest.mark.parametrize(("d", "M"), [(50, 8), (5, 64)])
def test_auto_carries_skewed_shards_to_many_dimensions_and_shards(d, M):
    case = GammaShards(4.0, M=M, d=d, T=300)
    mean, sd = moments(combined(case))
    rms = np.sqrt(np.mean(((mean - case.mean) / case.sd) ** 2))
    assert rms < 0.06
    np.testing.assert_allclose(sd / case.sd, 1, atol=0.15)
    # Where every Gaussian product alone is off by its bias.
    product = from_scores(case.draws, case.gradients)
    assert np.sqrt(np.mean(((product.mean - case.mean) / case.sd) ** 2)) > 8 * rms


@pytest.mark.slow
def test_auto_is_right_or_refuses_random_mixtures():
    refused = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        M, d = int(rng.integers(2, 12)), int(rng.choice([1, 2, 3, 5]))
        left = rng.uniform(0.02, 0.98, M) if seed % 2 else np.where(np.arange(M) % 2, 0.1, 0.9)
        case = Mixtures(left, s=rng.uniform(0.4, 1.5), T=400, d=d, seed=seed, stuck=seed % 5 == 0)
        try:
            mean, _ = moments(combined(case, seed=seed))
        except CombinationRefused:
            refused += 1
            continue
        assert abs(mean[0] - case.mean) < 0.25 * case.sd, seed
    assert refused < 15


def test_auto_is_right_for_rare_events():
    """A logistic regression on a constant with 40 positives in 4000 rows, eight shards of about five."""
    M, N, k = 8, 4000, 40
    rng = np.random.default_rng(0)
    positives = np.bincount(rng.integers(M, size=k), minlength=M)
    # Of one coefficient b: log p_m = k_m b - n log(1 + e^b) - b^2 / (2 M 25).
    grid = np.linspace(-12, 0, 24_001)

    def logp(b, k_m, M=M):
        return k_m * b - N / M * np.logaddexp(0, b) - b**2 / (2 * 8 * 25)

    draws = np.empty((M, 500, 1))
    for m in range(M):
        p = np.exp(logp(grid, positives[m]) - logp(grid, positives[m]).max())
        draws[m, :, 0] = np.interp(rng.random(500), np.cumsum(p) / p.sum(), grid)
    gradients = positives[:, None, None] - N / M / (1 + np.exp(-draws)) - draws / (M * 25)
    whole = k * grid - N * np.logaddexp(0, grid) - grid**2 / 50
    p = np.exp(whole - whole.max()) / np.exp(whole - whole.max()).sum()
    mean, sd = p @ grid, np.sqrt(p @ (grid - p @ grid) ** 2)
    found = combine(
        draws,
        gradients=gradients,
        log_density=lambda q: sum(logp(q[:, 0], k_m) for k_m in positives),
        random_state=0,
    )
    ours, width = moments(found)
    assert abs(ours[0] - mean) < 0.06 * sd
    assert width[0] == pytest.approx(sd, rel=0.05)
    # The shards' union lies elsewhere: skewed shards are not to be pooled.
    assert abs(draws.mean() - mean) > 0.4 * sd


def test_auto_without_gradients():
    case = GammaShards(5.0, d=2)
    error, width = errors(case, combined(case, gradients=None))
    assert max(error, width) < 0.08


def test_auto_without_log_density_takes_gaussian_shards_only():
    case = GaussianShards(T=300)
    found = combined(case, log_density=None)
    assert found.method == "score-matched product"
    assert max(errors(case, found)) < 0.08
    skewed = GammaShards(1.0)
    for gradients in (skewed.gradients, None):
        with pytest.raises(CombinationRefused, match="Pass log_density"):
            combined(skewed, log_density=None, gradients=gradients)
    far = GaussianShards(T=20_000, d=2)
    assert combined(far, log_density=None, gradients=None).method == "parametric product"


def test_auto_names_the_shard_that_did_not_converge():
    case = GaussianShards(T=400)
    draws = case.draws.copy()
    draws[3, 200:] += 4 * case.draws[3].std(axis=0)
    with pytest.raises(CombinationRefused, match=r"shard 3 did not converge: R-hat is .* in shard 3"):
        combine(draws, gradients=case.gradients, log_density=case.log_density)
    draws[3, :, 2] = 7.0
    with pytest.raises(CombinationRefused, match="parameter 2 does not move in shard 3"):
        combine(draws, gradients=case.gradients, log_density=case.log_density)


def test_several_chains_are_held_against_one_another():
    case = GaussianShards(T=400)
    chains, gradients = (a.reshape(6, 2, 200, 4).copy() for a in (case.draws, case.gradients))
    whole = combined(case)
    parts = combine(chains, gradients=gradients, log_density=case.log_density, random_state=0)
    np.testing.assert_array_equal(whole.draws, parts.draws)
    chains[1, 0] += 5
    with pytest.raises(CombinationRefused, match="shard 1 did not converge"):
        combine(chains, gradients=gradients, log_density=case.log_density)


def test_a_mode_that_no_proposal_reached_is_seen_by_the_shards_draws():
    case = Mixtures([0.5] * 4, d=3, s=0.4)
    shards = Subposteriors(case.draws, case.gradients, case.log_density)
    one_mode = Gaussian(np.array([2.0, 0, 0]), np.diag([0.16, 1, 1]) / 4)
    seen = []
    proposals = gaussian_proposals(one_mode, 4000, np.random.default_rng(0))
    found, tried = combine_auto._round("one mode", proposals, shards, np.random.default_rng(0), seen)
    assert passed(tried.figures)  # k-hat sees nothing
    assert found is None
    assert "where no proposals are" in seen[0]


def test_refusal_says_what_was_seen():
    def needles(points):  # a posterior that is nowhere near what the shards say
        return -1e6 * ((points - 40) ** 2).sum(axis=1)

    case = GaussianShards(T=300, d=25)
    with pytest.raises(CombinationRefused) as refused:
        combined(case, log_density=needles, n_draws=500)
    for words in ("Gaussian: k-hat", "t: k-hat", "6 shards", "Take fewer shards"):
        assert words in str(refused.value)


def test_populations_that_differ_are_refused(monkeypatch):
    case = Mixtures([0.5] * 4, d=3, s=0.4)
    found = np.zeros((4000, 3)), {"populations_apart": 0.5}
    monkeypatch.setattr(combine_auto, "tempered", lambda shards, n, rng: found)
    with pytest.raises(CombinationRefused, match=r"two of them differ by 0.50 sd"):
        combined(case)


def test_tempered_populations():
    case = Mixtures([0.55] * 4, d=4, s=0.4)
    shards = Subposteriors(case.draws, None, case.log_density)
    draws, figures = tempered(shards, 6000, np.random.default_rng(0))
    assert draws.shape == (6000, 4)
    assert figures["populations_apart"] < 0.2
    assert (draws[:, 0] < 0).mean() == pytest.approx(case.on_left, abs=0.06)
    np.testing.assert_allclose(draws[:, 1:].std(axis=0), 0.5, rtol=0.06)
    left = draws[draws[:, 0] < 0, 0]
    assert left.std() == pytest.approx(0.4 / 2, rel=0.1)


@pytest.mark.parametrize("t", [0.0, 0.3, 1.0])
def test_moves_keep_the_density_of_their_temperature(t):
    start = Gaussian(np.array([1.0]), np.array([[4.0]]))

    def log_density(points):
        return -((points[:, 0] - 3) ** 2) / (2 * 0.25)

    grid = np.linspace(-60, 60, 400_001)[:, None]
    density = partial(proposal_log_density, start, 7)
    heights = (1 - t) * density(grid) + t * log_density(grid)
    p = np.exp(heights - heights.max())
    sums = np.cumsum(p) / p.sum()
    levels = np.random.default_rng(0).permutation((np.arange(20_000) + 0.5) / 20_000)
    x = np.interp(levels, sums, grid[:, 0])[:, None]
    before = np.quantile(x, [0.1, 0.5, 0.9])
    state = x, log_density(x), density(x)
    rng = np.random.default_rng(1)
    for _ in range(12):
        state = combine_smc._moved(*state, t, log_density, density, rng)
    x, log_p, log_q = state
    np.testing.assert_allclose(log_p, log_density(x))
    np.testing.assert_allclose(log_q, density(x))
    np.testing.assert_allclose(np.quantile(x, [0.1, 0.5, 0.9]), before, atol=0.05 * x.std())
    assert (x[:, 0] != np.interp(levels, sums, grid[:, 0])).mean() > 0.9


def test_densities_of_proposals_are_scipys():
    rng = np.random.default_rng(0)
    root = rng.standard_normal((3, 3))
    gaussian = Gaussian(rng.standard_normal(3), root @ root.T + np.eye(3))
    points = 3 * rng.standard_normal((20, 3))
    theirs = stats.multivariate_t.logpdf(points, gaussian.mean, gaussian.covariance, df=7)
    np.testing.assert_allclose(proposal_log_density(gaussian, 7, points), theirs)
    theirs = stats.multivariate_normal.logpdf(points, gaussian.mean, gaussian.covariance)
    np.testing.assert_allclose(proposal_log_density(gaussian, None, points), theirs)


def test_the_union_is_never_returned():
    case = GammaShards(0.5, M=10, T=300)
    for method in COMBINERS:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CombinationWarning)
            _, sd = moments(combined(case, method))
        assert sd[0] < 0.7 * case.draws.std()


# What is asked of callers ----------------------------------------------------------------------------


def test_equal_seeds_give_equal_draws():
    case = GaussianShards(M=3, T=300, d=2)
    for method in COMBINERS:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CombinationWarning)
            one, two, other = (combined(case, method, n_draws=500, seed=s) for s in (3, 3, 4))
        np.testing.assert_array_equal(one.draws, two.draws)
        assert one.draws.shape == (500, 2)
        assert one.n_chains == (1 if method in ("nonparametric", "semiparametric") else None)
        assert not np.array_equal(one.draws, other.draws)


def test_input_is_unchanged():
    case = GaussianShards(T=100, d=2)
    before = case.draws.copy(), case.gradients.copy()
    for method in COMBINERS:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CombinationWarning)
            combined(case, method, n_draws=400)
    np.testing.assert_array_equal(case.draws, before[0])
    np.testing.assert_array_equal(case.gradients, before[1])


X = np.random.default_rng(0).standard_normal((2, 30, 3))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"method": "union"}, "method='union' is unknown: take one of auto"),
        ({"n_draws": 0}, "n_draws must be a positive integer"),
        ({"n_draws": True}, "n_draws must be a positive integer"),
        ({"draws": X[0]}, "shape"),
        ({"draws": [X[0].tolist(), X[1, :20].tolist()]}, "as many of each shard"),
        ({"draws": np.where(X[1, 4, 2] == X, np.nan, X)}, r"nan in shard 1 at \(4, 2\)"),
        ({"draws": X[:, :1]}, "two draws"),
        ({"gradients": X[:, :20]}, "gradients must have the shape of draws"),
        ({"gradients": np.where(X[0, 2, 1] == X, np.inf, X)}, "gradients holds inf in shard 0"),
        ({"log_density": 3.0}, "log_density must be a function"),
        ({"method": "score"}, "needs gradients"),
        ({"method": "exact"}, "needs log_density"),
        ({"method": "pairs"}, "at most 2 parameters"),
        ({"method": "parametric", "draws": X[:, :5]}, "at least 6 draws a shard for 3 parameters, got 5"),
        ({"method": "score", "draws": X[:, :4], "gradients": -X[:, :4]}, "at least 5 draws"),
        ({"method": "consensus", "draws": X * [1, 1, 0]}, "parameter 2 does not move in shard 0"),
        ({"method": "parametric", "draws": X[:, :, [0, 1, 1]]}, "singular"),
    ],
)
def test_bad_input(arguments, words):
    arguments = {"draws": X} | arguments
    with pytest.raises(DataError, match=words):
        combine(arguments.pop("draws"), **arguments)


def test_kernels_of_draws_that_repeat():
    repeated = np.repeat(np.random.default_rng(0).standard_normal((2, 4, 1)), 500, axis=1)
    with pytest.raises(DataError, match="hardly moves"):
        pair_tree(repeated, 100, np.random.default_rng(0))


def test_registry_states_its_needs():
    for (name, entry), T in itertools.product(COMBINERS.items(), (3, 40)):
        assert set(entry.needs) <= {"gradients", "log_density"}
        assert entry.right_for
        if "gradients" in entry.needs or name in ("pairs", "average"):
            continue
        assert (entry.least_draws(30) <= T) in (True, False)
