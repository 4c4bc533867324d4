"""Single chains against closed forms."""

import math

import numba as nb
import numpy as np
import pytest
from reference_posteriors import eight_schools
from scipy import special, stats

from stradask.algorithms.bayes.chains import sampling
from stradask.algorithms.bayes.chains.adaptation import warm_up, warm_up_all, windows
from stradask.algorithms.bayes.chains.chain import SAMPLERS, advance, init, starting_point
from stradask.algorithms.bayes.chains.laplace import find_mode, hessian, laplace_draws
from stradask.algorithms.bayes.chains.modes import look_for_modes
from stradask.algorithms.bayes.chains.sampling import sample_model
from stradask.algorithms.bayes.models.density import user_model
from stradask.algorithms.bayes.models.model import Model, regression
from stradask.algorithms.bayes.posterior.convergence import ess
from stradask.errors import DataError, InterruptedFitWarning

GRADIENT_SAMPLERS = ("nuts", "split_hmc", "hmc", "mala")


@nb.njit(nogil=True, error_model="numpy")
def gaussian(q, g, data, meta):
    """data is the mean and the precision, row by row."""
    d, logp = len(q), 0.0
    for i in range(d):
        total = 0.0
        for j in range(d):
            total += data[d + i * d + j] * (q[j] - data[j])
        g[i] = -total
        logp -= 0.5 * total * (q[i] - data[i])
    return logp


@nb.njit(nogil=True, error_model="numpy")
def log_gamma(q, g, data, meta):
    """q_j is the logarithm of a Gamma(data_j) variable: skewed, so that an error of sign cannot hide."""
    logp = 0.0
    for j in range(len(q)):
        e = math.exp(q[j])
        logp += data[j] * q[j] - e
        g[j] = data[j] - e
    return logp


@nb.njit(nogil=True, error_model="numpy")
def centred_funnel(q, g, data, meta):
    """q_0 ~ N(0, 3), and the others ~ N(0, exp(q_0 / 2))."""
    precision, squares = math.exp(-q[0]), 0.0
    for j in range(1, len(q)):
        squares += q[j] * q[j]
        g[j] = -precision * q[j]
    g[0] = -q[0] / 9.0 - 0.5 * (len(q) - 1) + 0.5 * precision * squares
    return -0.5 * q[0] * q[0] / 9.0 - 0.5 * (len(q) - 1) * q[0] - 0.5 * precision * squares


@nb.njit(nogil=True, error_model="numpy")
def two_modes(q, g, data, meta):
    """Halves at -data_0 and data_0, of standard deviation 1."""
    near, far = -0.5 * (q[0] - data[0]) ** 2, -0.5 * (q[0] + data[0]) ** 2
    share = 1.0 / (1.0 + math.exp(far - near))
    g[0] = -share * (q[0] - data[0]) - (1.0 - share) * (q[0] + data[0])
    return max(near, far) + math.log1p(math.exp(-abs(near - far)))


@nb.njit(nogil=True, error_model="numpy")
def slope(q, g, data, meta):
    """An improper density that rises without end."""
    g[0] = 1.0
    return q[0]


def _model(density, d, data=(), start=None, **options):
    names = tuple(f"q{j}" for j in range(d))
    start = np.zeros(d) if start is None else np.asarray(start, dtype=float)
    return Model(density, np.array(data, dtype=float), np.zeros(1, np.int64), names, start, **options)


def _correlated():
    rng = np.random.default_rng(5)
    B = rng.standard_normal((4, 4))
    precision, mean = B @ B.T + 0.3 * np.eye(4), 3 * rng.standard_normal(4)
    return (
        _model(gaussian, 4, np.concatenate([mean, precision.ravel()]), concave=True),
        mean,
        np.linalg.inv(precision),
    )


def _z_scores(x, mean, variance, fourth):
    """Of the means of x and of its squared deviations, x (chains, draws, d)."""
    squares = (x - mean) ** 2
    z_mean = (x.mean(axis=(0, 1)) - mean) / np.sqrt(variance / ess(x))
    z_variance = (squares.mean(axis=(0, 1)) - variance) / np.sqrt((fourth - variance**2) / ess(squares))
    return np.concatenate([z_mean, z_variance])


def _check(z):
    """None above 4, and a root mean square below the quantile of 1 - 1e-6."""
    assert np.abs(z).max() < 4
    assert (z**2).sum() < stats.chi2.ppf(1 - 1e-6, len(z))


CASES = [
    (name, metric)
    for name in ("nuts", "hmc", "mala", "random_walk")
    for metric in ("diagonal", "dense", "laplace")
]
CASES += [("split_hmc", "laplace"), ("slice", "diagonal"), ("slice", "dense"), ("nuts", "adapted")]


@pytest.mark.parametrize(("sampler", "metric"), CASES)
def test_correlated_gaussian(sampler, metric):
    model, mean, covariance = _correlated()
    x = sample_model(model, sampler, metric=metric, n_samples=6000, seed=1).stacked()
    variance = np.diag(covariance)
    assert ess(x).min() > 100
    _check(_z_scores(x, mean, variance, 3 * variance**2))
    whole = np.cov(x.reshape(-1, 4).T) / np.sqrt(np.outer(variance, variance))
    np.testing.assert_allclose(whole, covariance / np.sqrt(np.outer(variance, variance)), atol=0.25)


@pytest.mark.parametrize(("sampler", "metric"), CASES)
def test_skewed_target(sampler, metric):
    # A tail that falls like exp(a q) holds split HMC fast for long if a is small.
    a = np.array([6.0, 10.0, 20.0, 40.0] if sampler == "split_hmc" else [0.5, 1.0, 3.0, 10.0])
    x = sample_model(_model(log_gamma, 4, a), sampler, metric=metric, n_samples=6000, seed=2).stacked()
    assert ess(x).min() > 100
    variance = special.polygamma(1, a)
    _check(_z_scores(x, special.digamma(a), variance, special.polygamma(3, a) + 3 * variance**2))


def test_gradients_at_the_draws_and_log_densities_belong_to_them():
    model, *_ = _correlated()
    for sampler, metric in CASES:
        sample = sample_model(model, sampler, metric=metric, n_samples=20, n_warmup=60, n_chains=1)
        draws = sample.chains[0]
        logps, gradients = model.logp_grads(draws.draws)
        np.testing.assert_allclose(draws.log_densities, logps, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(draws.gradients, gradients, rtol=1e-7, atol=1e-7)


def test_the_adapted_metric_is_dense_where_that_shortens_trajectories():
    def metric_and_gradients(correlation, d, metric):
        covariance = np.full((d, d), correlation) + (1 - correlation) * np.eye(d)
        model = _model(gaussian, d, np.concatenate([np.zeros(d), np.linalg.inv(covariance).ravel()]))
        state, _ = warm_up(model, np.zeros(d), metric=metric, seed=3)
        _, draws = advance(model, state, 500, seed=3)
        return state.A.shape, draws.statistics["n_gradients"].mean()

    shape, adapted = metric_and_gradients(0.98, 4, "adapted")
    other, diagonal = metric_and_gradients(0.98, 4, "diagonal")
    assert shape == (4, 4)
    assert other == (1, 4)
    assert adapted < diagonal / 2
    assert metric_and_gradients(0.0, 4, "adapted")[0] == (1, 4)
    assert metric_and_gradients(0.5, 4, "adapted")[0] == (1, 4)
    assert metric_and_gradients(0.95, 30, "dense")[0] == (30, 30)
    assert metric_and_gradients(0.95, 30, "adapted")[0] == (30, 30)  # gradients tell what 500 draws do not


def test_the_funnel_without_its_centre_and_divergences_with_it():
    whole = _model(gaussian, 10, np.concatenate([np.zeros(10), np.diag([1 / 9] + [1.0] * 9).ravel()]))
    q = sample_model(whole, "nuts", n_samples=5000, seed=4).stacked()
    v, x = q[..., :1], q[..., 1:2] * np.exp(q[..., :1] / 2)
    _check(_z_scores(v, np.zeros(1), np.full(1, 9.0), np.full(1, 243.0)))
    inside = (np.abs(x) < 1).astype(float)
    # P(|x| < 1) = E P(|z| < exp(-v / 2)), by quadrature
    points, weights = np.polynomial.hermite_e.hermegauss(80)
    truth = weights @ (2 * stats.norm.cdf(np.exp(-1.5 * points)) - 1) / weights.sum()
    assert abs(inside.mean() - truth) < 4 * math.sqrt(truth * (1 - truth) / ess(inside)[0])
    centred = sample_model(_model(centred_funnel, 10), "nuts", seed=4)
    assert centred.statistic("divergent").sum() > 0


# Chunks, threads, streams ------------------------------------------------------------------------------


@pytest.mark.parametrize("sampler", [name for name in SAMPLERS if name != "gibbs"])
def test_two_chunks_are_one_bit_for_bit(sampler):
    model, mean, _ = _correlated()
    mode = find_mode(model)
    numbers = {"seed": 2**40 + 5, "shard": 3, "chain": 2}
    metric = "laplace" if sampler == "split_hmc" else "diagonal"
    state, _ = warm_up(model, mean, sampler, n=100, mode=mode, metric=metric, **numbers)
    middle, first = advance(model, state, 100, **numbers)
    end, second = advance(model, middle, 100, **numbers)
    whole_end, whole = advance(model, state, 200, **numbers)
    assert (np.concatenate([first.draws, second.draws]) == whole.draws).all()
    assert (np.concatenate([first.gradients, second.gradients]) == whole.gradients).all()
    assert (end.z == whole_end.z).all()
    assert end.draw == whole_end.draw == 200
    again = advance(model, state, 200, **numbers)[1]
    assert (again.draws == whole.draws).all()  # the state is as it was
    for other in ({"seed": 5}, {"shard": 4}, {"chain": 3}):
        assert (advance(model, state, 200, **{**numbers, **other})[1].draws != whole.draws).any()


def test_two_chunks_of_gibbs_are_one_bit_for_bit():
    X = np.random.default_rng(0).standard_normal((30, 2))
    model = regression("normal", X, X[:, 0] + 1.0)
    state = init(model, np.zeros(3), "gibbs")
    middle, first = advance(model, state, 70, seed=1)
    _, second = advance(model, middle, 30, seed=1)
    _, whole = advance(model, state, 100, seed=1)
    assert (np.concatenate([first.draws, second.draws]) == whole.draws).all()


def test_threads_change_no_bit():
    model, *_ = _correlated()
    one, two = (sample_model(model, "nuts", n_samples=250, n_warmup=100, n_jobs=n).stacked() for n in (1, 2))
    assert (one == two).all()


@pytest.mark.parametrize(
    ("patience", "watched", "lengths"), [(1e9, False, {250}), (1e9, True, {50, 100}), (0, False, {50, 100})]
)
def test_rounds_are_long_where_nobody_looks_on_and_change_no_bit(patience, watched, lengths, monkeypatch):
    model, *_ = _correlated()
    settings = {"n_samples": 250, "n_warmup": 100, "n_chains": 2}
    kept, seen = sampling.advance_all, set()

    def counted(model, states, n, **numbers):
        seen.add(n)
        return kept(model, states, n, **numbers)

    expected = sample_model(model, "nuts", **settings).stacked()
    monkeypatch.setattr(sampling, "_PATIENCE", patience)
    monkeypatch.setattr(sampling, "advance_all", counted)
    found = sample_model(model, "nuts", callback=(lambda info: None) if watched else None, **settings)
    assert (found.stacked() == expected).all()
    assert seen == lengths


def test_a_callback_stops_and_the_draws_so_far_are_kept():
    model, *_ = _correlated()
    sample = sample_model(model, "nuts", n_samples=500, callback=lambda info: info.round == 3)
    assert sample.stacked().shape == (4, 200, 4)
    assert "callback" in sample.reason


def test_an_interrupt_keeps_the_draws_so_far():
    import os
    import signal

    def press(info):
        if info.round == 2:
            os.kill(os.getpid(), signal.SIGINT)

    model, *_ = _correlated()
    message = "nuts was interrupted after 100 of 500 draws of each of 4 chains; these are kept"
    with pytest.warns(InterruptedFitWarning, match=message):
        sample = sample_model(model, "nuts", n_samples=500, callback=press)
    assert sample.stacked().shape == (4, 100, 4)


# Adaptation and the mode -------------------------------------------------------------------------------


def test_windows_double():
    assert [length for length, _ in windows(1000)] == [75, 25, 50, 100, 200, 450, 25, 75]
    assert [length for length, renew in windows(1000) if renew] == [25, 50, 100, 200, 450]
    for n in (1, 19, 20, 75, 149, 150, 151, 999, 1000, 2345):
        assert sum(length for length, _ in windows(n)) == n


def test_adaptation_finds_scales_and_acceptance():
    scales = np.array([0.05, 1.0, 1e3])
    model = _model(gaussian, 3, np.concatenate([np.zeros(3), np.diag(scales**-2.0).ravel()]))
    state, _ = warm_up(model, scales, "nuts", n=1000, seed=0)
    np.testing.assert_allclose(state.A[0], scales, rtol=0.3)
    _, draws = advance(model, state, 1000, seed=0)
    assert 0.7 < draws.statistics["acceptance"].mean() < 0.95
    assert draws.statistics["depth"].mean() < 4


def test_a_warm_up_ends_where_the_density_is_normal():
    """Each chain on its own, with the acceptance that was asked for; a funnel has all its draws."""
    model, *_ = _correlated()
    made = warm_up_all(model, [np.zeros(4), np.full(4, 5.0)], metric="adapted", seed=0, chains=[0, 1])
    for chain, (state, draws) in enumerate(made):
        assert 250 <= len(draws.draws) < 500
        assert state.draw == 0
        _, further = advance(model, state, 1000, seed=0, chain=chain)
        assert further.statistics["acceptance"].mean() == pytest.approx(0.8, abs=0.05)
    _, draws = warm_up(_model(centred_funnel, 10), np.zeros(10), metric="adapted", seed=0)
    assert len(draws.draws) == 1000


def test_hessian_and_mode_of_a_gaussian():
    model, mean, covariance = _correlated()
    mode = find_mode(model)
    np.testing.assert_allclose(mode.q, mean, atol=1e-6)
    np.testing.assert_allclose(mode.A @ mode.A.T, covariance, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(hessian(model, mean), np.linalg.inv(covariance), rtol=1e-6, atol=1e-7)


def test_weights_about_the_mode():
    a = np.array([3.0, 10.0])
    model = _model(log_gamma, 2, a)
    draws, k_hat = laplace_draws(model, find_mode(model), 40_000, seed=1, freedom=7.0)
    weights = np.exp(draws.log_weights)
    assert weights.sum() == pytest.approx(1)
    assert k_hat < 0.5
    n, variance = 1 / (weights**2).sum(), special.polygamma(1, a)
    assert (np.abs(weights @ draws.draws - special.digamma(a)) < 4 * np.sqrt(variance / n)).all()
    square = weights @ (draws.draws - special.digamma(a)) ** 2
    np.testing.assert_allclose(square, variance, rtol=0.06)


def test_weights_are_even_where_the_approximation_is_exact():
    model, mean, covariance = _correlated()
    draws, _ = laplace_draws(model, find_mode(model), 20_000, seed=1)
    assert np.ptp(draws.log_weights) < 1e-6
    z = (draws.draws.mean(axis=0) - mean) / np.sqrt(np.diag(covariance) / 20_000)
    assert np.abs(z).max() < 4
    np.testing.assert_allclose(np.cov(draws.draws.T), covariance, atol=0.06 * covariance.max())


def test_a_spent_search_for_modes_keeps_the_draws():
    """One climb may take more evaluations than all searches after few draws may."""

    def student(q, data):
        return -4 * np.log1p(q**2 / 5).sum(), -8 * q / 5 / (1 + q**2 / 5)

    model = user_model(student, None, np.ones(1), np.full(12, 0.1))
    for seed in (2, 5, 7):  # of eight, which spent all of it
        sample = sample_model(model, "nuts", n_samples=20, n_warmup=20, n_chains=1, seed=seed)
        found = look_for_modes(model, sample, seed)
        np.testing.assert_array_equal(found.stacked(), sample.stacked())


def test_auto_takes_each_way():
    model, *_ = _correlated()
    assert sample_model(model, "auto", n_samples=500).sampler == "laplace"
    for concave, sampler in ((True, "split_hmc"), (False, "nuts")):  # k-hat .34 is within one limit
        model = _model(log_gamma, 10, np.full(10, 12.0), concave=concave)
        assert sample_model(model, "auto", n_samples=300).sampler == sampler
    skewed = sample_model(_model(log_gamma, 4, [0.2] * 4, concave=True), "auto", n_samples=300)
    assert skewed.sampler == "nuts"
    both = sample_model(_model(two_modes, 1, [2.0], [1.9]), "auto", n_samples=2000, seed=1)
    assert both.sampler == "laplace"
    assert "all 2 modes" in both.reason
    right = both.stacked()[0, :, 0] > 0
    assert abs(np.exp(both.chains[0].log_weights) @ right - 0.5) < 4 * 0.5 / math.sqrt(len(right))
    modes = sample_model(_model(two_modes, 1, [2.0], [1.9]), "auto", n_samples=2000, seed=1, weighted=False)
    assert modes.sampler == "nuts"
    assert "different modes" in modes.reason
    left = (modes.stacked() < 0).astype(float)
    assert abs(left.mean() - 0.5) < 4 * 0.5 / math.sqrt(ess(left)[0])
    assert sample_model(_model(eight_schools, 10, [1.0] * 16), "auto", n_samples=20).sampler == "nuts"


# Bad input ---------------------------------------------------------------------------------------------


def test_a_density_without_a_mode():
    model = _model(slope, 1)
    assert find_mode(model) is None
    for options in (
        {"sampler": "laplace"},
        {"sampler": "split_hmc"},
        {"sampler": "nuts", "metric": "laplace"},
    ):
        with pytest.raises(DataError, match="need a mode"):
            sample_model(model, **options)


def test_a_density_that_is_nowhere_finite():
    with pytest.raises(DataError, match="not finite at any of 500 starting points"):
        sample_model(_model(gaussian, 1, [np.nan, 1.0]), "nuts")
    with pytest.raises(DataError, match="must be finite where a chain begins"):
        init(_model(gaussian, 1, [np.nan, 1.0]), np.zeros(1))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sampler": "gibs"}, "sampler must be one of auto"),
        ({"metric": "round"}, "metric must be one of auto"),
        ({"target": 1.0}, "target must lie between 0 and 1"),
        ({"n_samples": 0}, "n_samples must be at least 1"),
        ({"n_chains": 0}, "n_chains must be at least 1"),
        ({"n_warmup": -1}, "n_warmup must be at least 1"),
    ],
)
def test_impossible_parameters(options, message):
    model, *_ = _correlated()
    with pytest.raises(DataError, match=message):
        sample_model(model, **options)
    for wrong in ({"size": 0.0}, {"size": np.nan}, {"limit": 0}, {"limit": 31}, {"limit": np.nan}):
        with pytest.raises(DataError, match="step size must be above 0 and limit from 1 to 30"):
            init(model, np.zeros(4), **wrong)
    with pytest.raises(DataError, match="n must be at least 1"):
        advance(model, init(model, np.zeros(4)), 0, seed=0)
    for wrong in ({"seed": -1}, {"seed": 2**64}, {"seed": 0, "shard": -1}, {"seed": 0, "chain": 2**32}):
        with pytest.raises(DataError, match="must be an integer from 0 to"):
            advance(model, init(model, np.zeros(4)), 1, **wrong)
    with pytest.raises(DataError, match="scales above zero"):
        init(model, np.zeros(4), A=np.zeros((1, 4)))
    with pytest.raises(DataError, match=r"points must have the shape \(n, 4\)"):
        model.logp_grads(np.zeros((2, 3)))
    assert starting_point(model, seed=0).shape == (4,)


def test_chains_of_a_narrow_density_begin_near_the_start():
    model = user_model(lambda q, x: 0.0 if (np.abs(q - 3) < 1e-4).all() else -np.inf, None, None, [3.0] * 5)
    points = np.array([starting_point(model, seed=0, chain=chain) for chain in range(4)])
    assert (np.abs(points - 3) < 1e-4).all()
    assert len(np.unique(points)) == points.size
