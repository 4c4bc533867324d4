"""Combiners against products that are known: Gaussians, gamma and beta densities, mixtures on a grid."""

import itertools
import warnings

import numpy as np
import pytest
from known_products import BetaShards, GammaShards, GaussianShards, Mixtures, combined, errors, moments
from scipy import stats
from scipy.special import polygamma

from stradask.algorithms.bayes.combine.combiners import CombinationRefused, CombinationWarning, combine
from stradask.algorithms.bayes.combine.exact import (
    Proposals,
    gaussian_proposals,
    kernel_proposals,
    passed,
    weighed,
)
from stradask.algorithms.bayes.combine.gaussian import (
    Gaussian,
    NotDefinite,
    excess_moments,
    from_moments,
    from_scores,
    gaussian_product,
    half_disagreement,
    non_gaussianity,
    skew_shift,
)
from stradask.algorithms.bayes.combine.kernel import kernel_product, pair_tree
from stradask.errors import DataError
from stradask.kernels.bayes.posterior_product import pair_choices, pair_sums, product_draws

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


@pytest.mark.parametrize("method", ["score", "score-spd", "exact", "auto", "parametric", "swiss"])
def test_gaussian_product_by_name(method):
    case = GaussianShards(T=10_000)
    error, width = errors(case, combined(case, method, n_draws=20_000))
    assert error < (0.1 if method in ("parametric", "swiss") else 0.04)
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


def test_skewness_and_kurtosis_of_known_densities():
    case = GammaShards(4.0, M=9, T=50_000, d=2)
    skewness, kurtosis = polygamma(2, 4) / polygamma(1, 4) ** 1.5, polygamma(3, 4) / polygamma(1, 4) ** 2
    turn = np.array([[0.8, -0.6], [0.6, 0.8]])  # both leant alike: the root of 2 in the diagonal's direction
    for draws in (case.draws, 10 * case.draws @ turn.T):
        assert skew_shift(draws) == pytest.approx(8 / 6 * np.sqrt(2) * -skewness, rel=0.05)
        assert excess_moments(draws) == pytest.approx(max(kurtosis, -np.sqrt(2) * skewness), rel=0.1)
    left = 4 * polygamma(1, 4) - 1  # of the gradients' variance, k, in units of what is explained
    assert skew_shift(case.draws, case.gradients) == pytest.approx(8 / 6 * np.sqrt(2 * left), rel=0.05)
    gaussian = GaussianShards(M=4, T=50_000)
    assert skew_shift(gaussian.draws) < 0.05
    assert excess_moments(gaussian.draws) < 0.15
    assert skew_shift(gaussian.draws, gaussian.gradients) < 1e-4


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


# Errors that fall where a method promises it -----------------------------------------------------------


class Alike(GaussianShards):
    """Gaussian shards of one covariance, as the plain average asks for."""

    def __init__(self, M=4, T=2000, d=2, seed=0):
        super().__init__(M, T, d, seed)
        rng = np.random.default_rng(seed)
        spread = np.linalg.cholesky(np.linalg.inv(self.precisions[0]))
        self.precisions = np.repeat(self.precisions[:1], M, axis=0)
        self.draws = self.means[:, None] + rng.standard_normal((M, T, d)) @ spread.T
        self.gradients = -(self.draws - self.means[:, None]) @ self.precisions
        self.covariance = np.linalg.inv(self.precisions.sum(axis=0))
        self.mean = self.means.mean(axis=0)
        self.sd = np.sqrt(np.diag(self.covariance))


PRODUCTS = {
    "Gaussian": lambda T, seed: GaussianShards(M=4, T=T, d=2, seed=seed),
    "alike": lambda T, seed: Alike(T=T, seed=seed),
    "gamma": lambda T, seed: GammaShards(3.0, M=4, T=T, seed=seed),
    "beta": lambda T, seed: BetaShards([2, 3, 4], [5, 2, 3], T=T, seed=seed),
    "mixture": lambda T, seed: Mixtures([0.4, 0.55, 0.5], s=1.0, T=T, seed=seed),
}
# Draws of a shard, few and many, by how much the error falls at least, and what it is then at most. The root
# of 64 is 8; kernels promise less.
BY_ROOT, BY_KERNELS = (50, 3200, 4, 0.12), (30, 2000, 1.4, 0.25)
PROMISES = [(method, "Gaussian", BY_ROOT) for method in ("consensus", "parametric")] + [
    ("average", "alike", BY_ROOT)
]
PROMISES += [
    (method, case, BY_KERNELS)
    for method in ("nonparametric", "semiparametric", "pairs")
    for case in ("Gaussian", "gamma", "beta", "mixture")
]
# The costliest by far; a product that is skewed and one of two humps stay in the default run.
PROMISES = [
    pytest.param(
        *given, marks=[pytest.mark.slow] if given[:2] in {("pairs", "Gaussian"), ("pairs", "gamma")} else []
    )
    for given in PROMISES
]


@pytest.mark.parametrize(("method", "case", "promise"), PROMISES)
def test_errors_fall_as_draws_grow(method, case, promise):
    few, many, factor, most = promise

    def rms(T):
        found = []
        for seed in range(4):
            known = PRODUCTS[case](T, seed)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", CombinationWarning)
                mean, sd = moments(combined(known, method, n_draws=3000, log_density=None, gradients=None))
            found += [(mean - known.mean) / known.sd, np.log(sd / known.sd)]
        return np.sqrt(np.mean(np.square(found)))

    error = rms(many)
    assert error < most
    assert error < rms(few) / factor


@pytest.mark.parametrize("method", ["exact", "auto"])
@pytest.mark.parametrize("case", ["gamma", "beta"])
def test_errors_of_second_rounds_fall_as_proposals_grow(method, case):
    def rms(n):
        found = []
        for seed in range(6):
            known = PRODUCTS[case](400, seed)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", CombinationWarning)
                mean, _ = moments(combined(known, method, n_draws=n, seed=seed))
            found.append((mean - known.mean) / known.sd)
        return np.sqrt(np.mean(np.square(found)))

    many = rms(16_000)
    assert many < 0.03
    assert many < rms(500) / 2.5  # the root of 32 is 5.7


def test_errors_grow_with_dimensions_and_shards_as_the_page_says():
    def error(method, M, d):
        known = GammaShards(4.0, M=M, T=300, d=d)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CombinationWarning)
            mean, _ = moments(combined(known, method))
        return np.sqrt(np.mean(((mean - known.mean) / known.sd) ** 2))

    in_dimensions = [error("nonparametric", 8, d) for d in (1, 5, 20)]
    assert in_dimensions[0] < 0.7 * in_dimensions[1] < 0.7 * in_dimensions[2]
    in_shards = [error("parametric", M, 5) for M in (4, 16, 64)]
    for fewer, more in itertools.pairwise(in_shards):
        assert 1.6 < more / fewer < 3  # a bias, by the root of M
    assert max(error("auto", M, d) for M, d in ((8, 1), (8, 20), (64, 5))) < 0.06
