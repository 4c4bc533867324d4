"""What ``combine="auto"`` does with shards whose product is known, and what `combine` asks of its callers."""

import itertools
import warnings
from functools import partial

import numpy as np
import pytest
from known_products import BetaShards, GammaShards, GaussianShards, Mixtures, combined, errors, moments
from scipy import stats

from stradask.algorithms.bayes.combine import auto as combine_auto
from stradask.algorithms.bayes.combine import smc as combine_smc
from stradask.algorithms.bayes.combine.climbs import one_mode
from stradask.algorithms.bayes.combine.combiners import (
    COMBINERS,
    CombinationRefused,
    CombinationWarning,
    Subposteriors,
    combine,
)
from stradask.algorithms.bayes.combine.exact import gaussian_proposals, passed, proposal_log_density
from stradask.algorithms.bayes.combine.gaussian import Gaussian, from_scores
from stradask.algorithms.bayes.combine.kernel import pair_tree
from stradask.algorithms.bayes.combine.smc import tempered
from stradask.errors import DataError

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


def test_a_narrow_mode_that_the_product_prefers_is_not_lost_without_gradients():
    """Of eight shards each has 2 draws of 5 in a mode that holds .9 of their product; no Gaussian tells."""
    rng, M, T, d = np.random.default_rng(0), 8, 600, 24
    narrow = rng.random((M, T)) < 0.4
    draws = rng.standard_normal((M, T, d))
    draws[:, :, 0] = np.where(narrow, 3 + 0.33 * draws[:, :, 0], draws[:, :, 0])

    def log_density(q):
        wide = np.log(0.6) - q[:, 0] ** 2 / 2
        one = np.logaddexp(wide, np.log(0.4 / 0.33) - ((q[:, 0] - 3) / 0.33) ** 2 / 2)
        return M * (one - (q[:, 1:] ** 2).sum(axis=1) / 2)

    with pytest.raises(CombinationRefused, match="do not all end at one mode"):
        combine(draws, log_density=log_density, random_state=0)
    few = combine(draws[:, :, :2], log_density=log_density, random_state=0)
    grid = np.linspace(-6, 8, 4001)
    p = log_density(np.column_stack([grid, np.zeros(4001)]))
    p = np.exp(p - p.max()) / np.exp(p - p.max()).sum()
    assert moments(few)[0][0] == pytest.approx(p @ grid, abs=0.05)


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
    with pytest.raises(CombinationRefused, match="3 draws a shard are too few"):
        combined(GaussianShards(T=3, d=1), log_density=None)


def test_small_skewness_of_many_shards_is_refused_without_log_density():
    few, many = GammaShards(200.0, M=2, T=4000), GammaShards(60.0, M=64, T=4000)
    for gradients in (True, False):
        given = {"log_density": None} | ({} if gradients else {"gradients": None})
        assert max(errors(few, combined(few, **given))) < 0.15
        with pytest.raises(CombinationRefused, match=r"skew shift 0\.[4-7]"):
            combined(many, **given)
        # A product of Gaussians by name is off by what is said.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CombinationWarning)
            error, _ = errors(many, combined(many, "score" if gradients else "parametric", **given))
        assert 0.35 < error < 0.75


def test_modes_across_the_axes_are_refused_without_log_density():
    """Two modes in one direction of four, whose weights in the shards make skewness and kurtosis cancel."""
    case = Mixtures([0.21, 0.79] * 3, s=1.0, T=4000, d=4)
    turn = np.linalg.qr(np.random.default_rng(0).standard_normal((4, 4)))[0]
    for gradients in (None, case.gradients @ turn.T):
        with pytest.raises(CombinationRefused, match=r"Pass log_density"):
            combine(case.draws @ turn.T, gradients=gradients, random_state=0)


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


@pytest.mark.parametrize(("d", "narrow", "middle", "seed"), [(2, 0.05, 2.0, 0), (4, 0.1, 1.5, 2)])
def test_populations_that_agree_on_a_narrow_mode_are_not_believed(d, narrow, middle, seed):
    """85 % of the posterior, and nearly all, are in a mode of which few points know at first."""
    rng, logs = np.random.default_rng(seed), np.log([0.02, 0.98])
    middles = np.array([np.zeros(d), np.full(d, middle)])
    sds = np.array([narrow, 1.5])
    which = (rng.random((3, 4000)) > 0.02).astype(int)
    draws = middles[which] + sds[which][..., None] * rng.standard_normal((3, 4000, d))

    def log_density(points):
        squares = (((points[:, None] - middles) / sds[:, None]) ** 2).sum(axis=2)
        return 3 * np.logaddexp.reduce(logs - d * np.log(sds) - squares / 2, axis=1)

    shards, seen = Subposteriors(draws, None, log_density), []
    assert combine_auto._tempered(shards, 2000, np.random.default_rng(seed), seen) is None
    assert "narrow peak" in seen[0]


def test_climbs_come_back_from_a_tail_that_falls_off_like_an_exponential():
    def log_gamma(x):
        return (x - np.exp(x))[:, 0], 1 - np.exp(x)

    # Half of Newton's steps are 0.02 long in the tail: a thousand would be needed.
    assert one_mode(Gaussian(np.zeros(1), 0.04 * np.eye(1)), log_gamma, np.array([[-20.0], [-12.0]]))


def test_costly_densities_take_the_t_about_the_shards_and_are_never_tempered():
    case = GammaShards(0.3, M=3, T=500, d=4)
    found = combine(
        case.draws,
        gradients=case.gradients,
        log_density=costly(case.log_density),
        value_and_grad=lambda u: (case.log_density(u), 3 * (0.3 - np.exp(u))),
        random_state=0,
    )
    assert found.method == "t and shards' draws, second round"
    mean, sds = moments(found)
    np.testing.assert_allclose((mean - case.mean) / case.sd, 0, atol=0.1)
    np.testing.assert_allclose(np.log(sds / case.sd), 0, atol=0.1)
    two = Mixtures([0.5] * 4, d=3, s=0.4)
    with pytest.raises(CombinationRefused, match=r"a million integrals .* not tried.*n_shards=1"):
        combine(two.draws, gradients=two.gradients, log_density=costly(two.log_density), random_state=0)


def costly(function):
    def called(points):
        return function(points)

    called.is_costly = True
    return called


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
