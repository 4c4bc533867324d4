"""Pareto-smoothed importance sampling against arviz-stats' figures, exact tails and known expectations."""

import numpy as np
import pytest
from scipy import stats

from stradask.algorithms.bayes.posterior.psis import fit_pareto, importance_ess, khat_limit, psis, resample
from stradask.errors import DataError


def normal_points(n):
    """Quantiles of the normal distribution in a fixed disorder: the same on every version of numpy."""
    return stats.norm.ppf(np.arange(1, n + 1) * 0.6180339887498949 % 1.0)


# k-hat, largest smoothed log weight and 1 / sum w^2 by arviz_stats 0.8.0, array_stats.psislw.
ARVIZ = {
    0.3: (0.006699199133179278, -6.650769149912838, 1827.3275112910592),
    1.0: (0.26036498379670137, -4.780843635645043, 765.6118449264276),
    3.0: (1.0086613023894653, -1.7804661392827041, 18.719626103936637),
}


@pytest.mark.parametrize("spread", ARVIZ)
def test_figures_of_arviz(spread):
    smoothed, k_hat = psis(spread * normal_points(2000))
    np.testing.assert_allclose((k_hat, smoothed.max(), importance_ess(smoothed)), ARVIZ[spread], rtol=1e-10)


def test_agrees_with_arviz_where_installed():
    array_stats = pytest.importorskip("arviz_stats.base").array_stats
    rng = np.random.default_rng(0)
    for n in (31, 150, 400, 5000):
        log_weights = rng.standard_t(4, n)
        theirs, k_theirs = array_stats.psislw(-log_weights)
        ours, k_ours = psis(log_weights)
        np.testing.assert_allclose(ours, theirs, rtol=1e-9)
        assert k_ours == pytest.approx(float(k_theirs), rel=1e-9)


@pytest.mark.parametrize("k", [-0.5, 0.2, 0.7, 1.5])
def test_fit_finds_shape_and_scale(k):
    n = 20_000
    x = stats.genpareto.ppf((np.arange(n) + 0.5) / n, k, scale=3.0)
    k_hat, sigma = fit_pareto(x)
    assert k_hat == pytest.approx(k, abs=0.02)
    assert sigma == pytest.approx(3.0, rel=0.02)


def test_few_excesses_are_drawn_towards_a_half():
    # By ten observations: of 40 at k = 0 the estimate moves a fifth of the way.
    x = stats.expon.ppf((np.arange(40) + 0.5) / 40)
    k_hat, sigma = fit_pareto(x)
    b = -k_hat_without_prior(k_hat, 40) / sigma
    assert np.log1p(-b * x).mean() == pytest.approx(k_hat_without_prior(k_hat, 40), abs=1e-12)


def k_hat_without_prior(k_hat, n):
    return (k_hat * (n + 10) - 5) / n


def test_weights_mend_a_proposal_that_is_off_and_narrow():
    rng = np.random.default_rng(1)
    x = rng.standard_t(5, 20_000)
    smoothed, k_hat = psis(stats.norm.logpdf(x, 0.5, 1.0) - stats.t.logpdf(x, 5))
    weights = np.exp(smoothed)
    assert weights.sum() == pytest.approx(1, abs=1e-12)
    assert k_hat < 0.3
    assert weights @ x == pytest.approx(0.5, abs=0.03)
    assert weights @ (x - 0.5) ** 2 == pytest.approx(1.0, abs=0.05)


def test_smoothing_makes_the_estimate_of_a_heavy_tail_steadier():
    raw, smooth = [], []
    for seed in range(60):
        x = np.random.default_rng(seed).exponential(0.6, 1000)  # for Exp(1): weights of k = 0.4
        log_weights = -x + x / 0.6
        smoothed, _ = psis(log_weights)
        raw.append(np.exp(log_weights - np.log(np.exp(log_weights).sum())) @ x**2)
        smooth.append(np.exp(smoothed) @ x**2)
    assert np.std(smooth) < np.std(raw)


def test_equal_weights_need_no_smoothing():
    smoothed, k_hat = psis(np.full(100, -7.0))
    assert k_hat == -np.inf
    assert importance_ess(smoothed) == pytest.approx(100)
    assert psis(np.zeros(100) + 1e-13 * np.arange(100))[1] == -np.inf


def test_weights_that_cannot_be_fitted_are_called_bad():
    far = np.full(1000, -2000.0)
    far[:3] = 0.0
    smoothed, k_hat = psis(far)
    assert k_hat == np.inf
    assert importance_ess(smoothed) == pytest.approx(3)
    assert np.isnan(psis(np.arange(24.0))[1])


def test_zero_weights_stay_zero():
    log_weights = normal_points(400)
    log_weights[::4] = -np.inf
    smoothed, k_hat = psis(log_weights)
    assert (smoothed[::4] == -np.inf).all()
    assert np.isfinite(k_hat)


def test_no_smoothed_weight_is_above_the_largest_and_input_is_unchanged():
    log_weights = 3 * normal_points(500)
    before = log_weights.copy()
    smoothed, _ = psis(log_weights)
    np.testing.assert_array_equal(log_weights, before)
    gap = smoothed - log_weights  # a constant outside of the tail
    assert (smoothed <= log_weights.max() + np.median(gap) + 1e-12).all()
    assert (np.argsort(smoothed, kind="stable") == np.argsort(log_weights, kind="stable")).all()


@pytest.mark.parametrize(
    ("log_weights", "words"),
    [
        ([], "at least one number"),
        ([[0.0, 1.0]], "vector"),
        ([0.0, np.nan], "nan at position 1"),
        ([np.inf, 0.0], "inf at position 0"),
        ([-np.inf, -np.inf], "all log_weights are -inf"),
    ],
)
def test_bad_weights_are_refused(log_weights, words):
    with pytest.raises(DataError, match=words):
        psis(log_weights)


def test_limit():
    assert khat_limit(100) == pytest.approx(0.5)
    assert khat_limit(1000) == pytest.approx(2 / 3)
    assert khat_limit(10**6) == 0.7


def test_resampling_takes_each_draw_as_often_as_its_weight_says():
    weights = np.array([0.5, 0.25, 0.125, 0.125])
    chosen = resample(np.log(weights), 800, np.random.default_rng(0))
    np.testing.assert_array_equal(np.bincount(chosen), 800 * weights)
    assert (np.diff(chosen) < 0).any()  # in random order
    zero = resample(np.array([-np.inf, 0.0]), 50, np.random.default_rng(0))
    assert (zero == 1).all()


def test_resampling_keeps_all_draws_of_equal_weights():
    """Each is taken floor or ceil of n w times: of equal weights once, whatever the random number."""
    for n in (7, 1000):
        weights = np.full(n, -np.log(n))
        for seed in range(5):
            taken = resample(weights, n, np.random.default_rng(seed))
            assert len(np.unique(taken)) >= n - 1  # rounding at an edge may take one twice
    weights = np.random.default_rng(0).dirichlet(np.ones(50))
    counts = np.bincount(resample(np.log(weights), 400, np.random.default_rng(1)), minlength=50)
    assert (np.abs(counts - 400 * weights) < 1 + 1e-9).all()
