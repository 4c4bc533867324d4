"""What is said of draws that are not to be trusted: warnings, weights, divergences, NaN, bad numbers."""

import warnings

import numpy as np
import pytest
from scipy import signal, special, stats

import stradask as sd
from stradask.algorithms.bayes.chains.sampling import sample_model
from stradask.algorithms.bayes.combine.collect import from_sample
from stradask.algorithms.bayes.combine.combiners import CombinationWarning, combine
from stradask.algorithms.bayes.models.model import Prior, regression
from stradask.algorithms.bayes.posterior.diagnostics import diagnose, lines_of_warning
from stradask.algorithms.bayes.posterior.draws import Posterior
from stradask.algorithms.bayes.shards.chains import Densities
from stradask.errors import DataError, PosteriorWarning, StradaskError

SEPARATED = np.array([[-2.0], [-1.0], [1.0], [2.0]]), np.array([0, 0, 1, 1])
WIDE = 100.0  # scale of the coefficient's prior: with separated rows the posterior is skewed and long


def _grid_of_separated_rows():
    """Mean and sd of the coefficient, by quadrature over it and the intercept."""
    X, y = SEPARATED
    b, c = np.linspace(-60, 700, 2000)[:, None], np.linspace(-60, 60, 1201)
    logp = stats.norm.logpdf(b / WIDE) + stats.norm.logpdf(c / 10)
    for x, sign in zip(X[:, 0], 2 * y - 1, strict=True):
        logp = logp + special.log_expit(sign * (x * b + c))
    p = np.exp(logp - logp.max()).sum(axis=1)
    p /= p.sum()
    mean = p @ b[:, 0]
    return mean, np.sqrt(p @ (b[:, 0] - mean) ** 2)


def _rare_classes(n=4000):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3))
    return X, (rng.random(n) < special.expit(X[:, 0] - 6)).astype(int)


# Draws that are not to be used --------------------------------------------------------------------------


def test_weights_that_miss_the_posterior_are_told():
    model = sd.BayesianLogisticRegression(prior_scale=WIDE, sampler="laplace", random_state=0)
    with pytest.warns(PosteriorWarning, match=r"Do not use these draws.* k-hat 0\.\d+ \(limit < 0\.7\)"):
        model.fit(*SEPARATED)
    mean, spread = _grid_of_separated_rows()
    assert mean - model.coef_[0, 0] > spread / 4  # and rightly so


def test_chains_that_did_not_converge_are_told():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 20))
    model = sd.BayesianLogisticRegression(sampler="random_walk", n_samples=50, n_warmup=50, random_state=0)
    with pytest.warns(PosteriorWarning, match="R-hat .* did not converge"):
        model.fit(X, X[:, 0] > rng.standard_normal(200))


def test_good_draws_raise_no_warning():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sd.BayesianLogisticRegression(random_state=0).fit(X, X[:, 0] > rng.standard_normal(200))


# Weights -----------------------------------------------------------------------------------------------


def test_draws_by_weights_count_alike():
    """A Poisson rate under a wide prior, skewed in its logarithm: columns agree with a grid."""
    y = np.array([0, 1] * 7)
    options = {"fit_intercept": False, "n_samples": 5000, "random_state": 0}
    model = sd.BayesianPoissonRegression(**options).fit(np.ones((14, 1)), y)
    assert model.sampler_ == "laplace"
    grid = np.linspace(-4, 2, 20_001)
    p = np.exp(stats.norm.logpdf(grid / 2.5) + 7 * grid - 14 * np.exp(grid))
    mean = p @ grid / p.sum()
    spread = np.sqrt(p @ (grid - mean) ** 2 / p.sum())
    found, draws = model.posterior_, model.posterior_["coef"][:, 0]
    assert found.log_weights is None
    assert len(draws) == 20_000
    assert draws.mean() == pytest.approx(mean, abs=4 * spread / np.sqrt(10_000))  # unweighted: 0.2 sd off
    assert draws.mean() == pytest.approx(found.mean()["coef"][0])
    assert draws.std() == pytest.approx(spread, rel=0.04)
    assert np.quantile(draws, 0.05) == pytest.approx(
        np.interp(0.05, np.cumsum(p) / p.sum(), grid), abs=0.1 * spread
    )
    size = found.summary()["ess"][0]
    assert 4000 < size < 20_000  # what is there repeatedly counts once
    assert found.diagnostics.row("importance ESS")["value"] > size / 2


def test_sample_hands_out_no_weights():
    x = np.random.default_rng(0).normal(3, 1, 50)
    found = sd.sample(lambda q, x: -0.5 * ((x - q[0]) ** 2).sum(), None, x, [0.0], random_state=0)
    assert "laplace" in found.method
    assert found.log_weights is None
    assert found["theta"].mean() == pytest.approx(x.mean(), abs=4 / np.sqrt(50 * 3000))


def test_a_posterior_with_weights_keeps_its_columns():
    posterior = Posterior(np.arange(6.0)[:, None], log_weights=np.arange(6.0))
    for name in ("theta", "theta[0]"):
        with pytest.raises(StradaskError, match=r"have weights.* take sample\(\)"):
            posterior[name]
    assert posterior.sample(random_state=0)["theta"].mean() > 3


def test_repeated_draws_are_worth_what_they_are():
    rng = np.random.default_rng(0)
    once = rng.standard_normal((1000, 2))
    sizes = Posterior(np.repeat(once, 3, axis=0)).summary()["ess"]
    np.testing.assert_array_equal(sizes, 1000)
    np.testing.assert_array_equal(Posterior(once).summary()["ess"], 1000)


# Numbers at the door -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"n_samples": 10.5}, "n_samples must be an integer, got 10.5"),
        ({"n_samples": True}, "n_samples must be an integer, got True"),
        ({"n_chains": "a"}, "n_chains must be an integer, got 'a'"),
        ({"n_warmup": 0}, "n_warmup must be at least 1, got 0"),
        ({"n_jobs": "x"}, "n_jobs must be None or an integer"),
        ({"target_accept": 1.0}, "target_accept must be a number between 0 and 1, got 1.0"),
        ({"target_accept": "high"}, "target_accept must be a number between 0 and 1, got 'high'"),
    ],
)
def test_numbers_of_sample(changed, words):
    def untouched(*arguments):
        raise AssertionError("the density was called")

    with pytest.raises(DataError, match=words):
        sd.sample(untouched, None, np.ones(3), [0.0], **changed)


def test_names_say_how_many_parameters_there_are():
    def log_likelihood(q, x):
        return -0.5 * (((x - q[0]) ** 2).sum() + q[1] ** 2)

    x, names = np.arange(5.0), ["mean", "other"]
    given = sd.sample(log_likelihood, None, x, [0.0, 0.0], names=names, n_samples=50, random_state=0)
    found = sd.sample(log_likelihood, None, x, names=names, n_samples=50, random_state=0)
    np.testing.assert_array_equal(found.draws, given.draws)
    for wrong in (2, iter(names)):
        with pytest.raises(DataError, match="names must be a list of strings"):
            sd.sample(log_likelihood, None, x, names=wrong)


@pytest.mark.parametrize("model", [sd.BayesianLogisticRegression, sd.BayesianPoissonRegression])
def test_the_horseshoe_has_no_shards(model):
    X, y = np.random.default_rng(0).standard_normal((40, 2)), np.tile([0, 1], 20)

    def untouched(info):
        raise AssertionError("something was sampled")

    with pytest.raises(DataError, match=r"prior='horseshoe' makes funnels .* n_shards=1"):
        model(prior="horseshoe", n_shards=4).fit(X, y, callback=untouched)


# Divergences -------------------------------------------------------------------------------------------


def test_warm_up_begins_anew_where_it_diverges():
    """The long tail of separated rows: few divergences, and the mean and sd of a grid."""
    model = sd.BayesianLogisticRegression(
        prior_scale=WIDE, sampler="nuts", n_samples=2000, random_state=0
    ).fit(*SEPARATED)
    found = model.posterior_
    assert found.diagnostics.row("divergences")["value"] < 0.01 * 8000
    mean, spread = _grid_of_separated_rows()
    size = found.summary()["ess"][0]
    assert model.coef_[0, 0] == pytest.approx(mean, abs=4.5 * spread / np.sqrt(size))
    assert found.sd()["coef"][0] == pytest.approx(spread, rel=0.15)


def test_target_accept_shortens_steps():
    y = np.zeros(3)
    sizes = []
    for target in (0.6, 0.99):
        model = regression("poisson", np.array([[0.0], [1.0], [2.0]]), y, prior=Prior(scale=2.5))
        sample = sample_model(model, "nuts", target=target, n_samples=500, n_chains=2, seed=0)
        sizes.append(sample.statistic("step_size").mean())
    assert sizes[1] < 0.8 * sizes[0]
    X = np.random.default_rng(0).standard_normal((100, 2))
    steps = []
    for target in (0.8, 0.99):
        options = {"sampler": "nuts", "target_accept": target, "n_samples": 300, "random_state": 0}
        model = sd.BayesianLogisticRegression(**options).fit(X, X[:, 0] > 0.1)
        steps.append(model.posterior_["coef"])
    assert not np.array_equal(*steps)
    with pytest.raises(ValueError, match="target_accept"):
        sd.BayesianLogisticRegression(target_accept=1.0).fit(X, X[:, 0] > 0)


def test_few_divergences_alone_ask_for_no_care():
    rng = np.random.default_rng(0)
    draws, energy = rng.normal(size=(1, 4, 1000, 2)), rng.normal(size=(1, 4, 1000))
    slow = signal.lfilter([1], [1, -0.8], energy, axis=2)  # an E-BFMI about .4
    sticky = np.repeat(draws[:, :, :50], 20, axis=2)
    for level, count, chains, energies in (
        (0, 12, draws, energy), (2, 41, draws, energy), (1, 12, draws, slow), (1, 12, draws, None),
        (1, 12, sticky, energy),
    ):  # fmt: skip
        found = diagnose(chains, energy=energies, divergences=[count])
        assert found.row("divergences")["verdict"] == ("good", "care", "bad")[level]
    assert 0.3 < diagnose(draws, energy=slow, divergences=[12]).row("E-BFMI")["value"] < 0.5


@pytest.mark.parametrize("seed", [1000, 1008, 1020])
def test_draws_of_three_groups_are_trusted_and_those_of_slices(seed):
    pytest.importorskip("formulaic")
    rng = np.random.default_rng(seed)
    g = np.repeat(np.arange(3), 12)
    x, u = rng.normal(size=36), rng.normal(0, 0.5, 3)[g]
    data = {"y": 0.3 + 0.5 * x + u + rng.normal(size=36), "x": x, "g": g}
    found, slices = (
        sd.BayesianGLM("y ~ x + (1 | g)", random_state=0, **given).fit(data).posterior_
        for given in ({}, {"sampler": "slice", "n_samples": 4000})
    )
    assert found.diagnostics.row("divergences")["value"] > 0
    for table in (found.diagnostics, slices.diagnostics):
        assert not any(level for name, _, _, level, _ in table.lines if name != "prior")
        assert table.row("prior")["value"] < 0.4  # a seed stands at the limit, .3, of this line
    for name in ("coef", "intercept", "sd_g", "sigma"):
        one, other = (np.log(np.abs(posterior[name])) for posterior in (found, slices))
        assert one.mean() == pytest.approx(other.mean(), abs=0.15 * other.std())


@pytest.mark.filterwarnings("ignore::stradask.errors.PosteriorWarning")
@pytest.mark.parametrize("seed", range(3))
def test_a_funnel_is_still_told(seed):
    def funnel(q, x):
        v, z = q[0], q[1:]
        e = np.exp(-v)
        slope = np.append(-v / 9 - len(z) / 2 + e * (z @ z) / 2, -e * z)
        return -v * v / 18 - len(z) * v / 2 - e * (z @ z) / 2, slope

    found = sd.sample(
        funnel, None, np.ones(1), np.zeros(2), sampler="nuts", n_samples=500, n_warmup=500, random_state=seed
    )
    assert found.diagnostics.row("divergences")["verdict"] != "good"
    assert found.diagnostics.level > 0


def test_divergences_are_excused_by_a_good_second_round():
    draws = np.random.default_rng(0).standard_normal((2, 2, 200, 1))
    good = {"k_hat": 0.1, "importance_ess": 900.0, "mean_ess": 900.0}
    for figures, level in (({}, 2), (good, 1), (good | {"k_hat": 0.9}, 2)):
        found = diagnose(draws, divergences=[50, 0], figures=figures)
        assert found.row("divergences")["verdict"] == ("good", "care", "bad")[level]


# Combinations by name ----------------------------------------------------------------------------------


def test_a_combination_far_off_is_told():
    X, y = _rare_classes()
    model = sd.BayesianLogisticRegression(n_shards=10, combine="average", n_samples=300, random_state=0)
    with pytest.warns(CombinationWarning, match="'average'.*the combination misses the posterior"):  # noqa: SIM117
        with pytest.warns(PosteriorWarning, match="k-hat of the check"):
            model.fit(X, y)
    assert model.posterior_.diagnostics.level == 2


def test_the_check_measures_the_shift():
    """Two normal shards of different widths: the plain mean is off by a known number of sd."""
    middles, widths = np.array([0.0, 3.0]), np.array([1.0, 3.0])
    z = np.random.default_rng(0).standard_normal((2, 4000, 1))
    draws = middles[:, None, None] + widths[:, None, None] * z

    def log_density(points):
        return -0.5 * sum(((points[:, 0] - m) / s) ** 2 for m, s in zip(middles, widths, strict=True))

    with pytest.warns(CombinationWarning, match="the combination misses the posterior"):
        found = combine(draws, method="average", log_density=log_density, random_state=0)
    weights = widths**-2.0
    truth = weights @ middles / weights.sum()
    off = abs(draws.mean() - truth) / found.draws.std()
    assert found.figures["shift"] == pytest.approx(off, abs=0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        right = combine(draws, method="parametric", log_density=log_density, random_state=0)
    assert right.figures["shift"] < 0.2
    assert right.figures["check_k_hat"] < right.figures["check_k_hat_limit"]


@pytest.mark.parametrize(("off", "told"), [(0.0, False), (0.4, True)])
def test_a_mean_two_fifths_of_a_deviation_off_is_told(off, told):
    """Draws of normal shards, all moved by a known part of the posterior's standard deviation."""
    d, M = 3, 4
    draws = np.sqrt(M) * np.random.default_rng(0).standard_normal((M, 4000, d)) + off

    def log_density(points):
        return -0.5 * (points**2).sum(axis=1)

    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        found = combine(draws, method="consensus", log_density=log_density, random_state=0)
    assert ["the combination misses the posterior" in str(one.message) for one in seen] == [True] * told
    assert diagnose(None, figures=found.figures).level == 2 * told
    assert found.figures["shift"] == pytest.approx(off, abs=0.1)


@pytest.mark.parametrize(("method", "wide"), [("average", True), ("parametric", False)])
def test_the_check_measures_the_spread(method, wide):
    """Shards of one middle and several widths: the plain mean of their draws is too wide, and not shifted."""
    widths, d = np.array([1.0, 3.0, 6.0]), 2
    draws = widths[:, None, None] * np.random.default_rng(0).standard_normal((3, 4000, d))

    def log_density(points):
        return -0.5 * (widths**-2.0).sum() * (points**2).sum(axis=1)

    truth = np.sqrt(1 / (widths**-2.0).sum())
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        found = combine(draws, method=method, log_density=log_density, random_state=0)
    times = found.draws.std() / truth
    assert found.figures["spread"] == pytest.approx(max(times, 1 / times), rel=0.1)
    assert found.figures["shift"] < 0.2
    assert ["other widths by a factor of" in str(one.message) for one in told] == [True] * wide
    assert diagnose(None, figures=found.figures).level == (2 if wide else 0)


def test_few_draws_come_from_many_proposals():
    """One chain of 300 draws of ten shards: effective proposals do not follow from the number of draws."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((3000, 3))
    y = rng.random(3000) < special.expit(X[:, 0] - 1)
    options = {"n_shards": 10, "n_samples": 300, "n_chains": 1, "random_state": 0}
    for n_proposals, least in ((300, 100), (4000, 3000)):
        found = sd.BayesianLogisticRegression(n_proposals=n_proposals, **options).fit(X, y).posterior_
        size = found.diagnostics.row("importance ESS")["value"]
        assert least < size <= n_proposals
        assert len(found.draws) == 300
    assert len(np.unique(found["coef"][:, 0])) > 280  # a quarter fewer, drawn at random
    with pytest.raises(DataError, match="n_proposals must be at least 1, got 0"):
        sd.sample(_normal, None, np.ones(3), [0.0], n_proposals=0)


@pytest.mark.parametrize(("n", "level", "aloud"), [(20, 1, True), (60, 1, False), (1000, 0, False)])
def test_few_draws_are_warned_of_where_they_are_worth_less_than_100(n, level, aloud):
    draws = np.random.default_rng(0).standard_normal((1, 4, n, 2))
    found = diagnose(draws)
    assert found.level == level
    assert bool(lines_of_warning(found)) == aloud
    assert ("of 240 draws, a standard error of 0.0" in str(found)) == (n == 60)


def test_chains_that_mix_badly_are_warned_of():
    """Autoregressive chains, whose effective size is known: n (1 - r) / (1 + r)."""
    rng = np.random.default_rng(0)
    for r, level in ((0.9, 1), (0.99, 2)):
        draws = np.zeros((1, 4, 1000, 1))
        draws[:, :, 0] = rng.standard_normal((1, 4, 1))
        for t in range(1, 1000):
            draws[:, :, t] = r * draws[:, :, t - 1] + np.sqrt(1 - r**2) * rng.standard_normal((1, 4, 1))
        found = diagnose(draws)
        assert 0.3 < found.row("bulk ESS")["value"] / (4000 * (1 - r) / (1 + r)) < 2
        assert found.level == level
        assert any(line[0] == "bulk ESS" for line in lines_of_warning(found))


# Densities that are NaN --------------------------------------------------------------------------------


def _rate(q, x):
    """Exponential waiting times, in the rate itself: below zero numpy gives NaN, and warns."""
    return len(x) * np.log(q[0]) - q[0] * x.sum()


def _normal(q, x):
    return -0.5 * ((x - q[0]) ** 2).sum()


@pytest.mark.filterwarnings("ignore:Do not use these draws.* divergences")  # where the density ends
@pytest.mark.parametrize("files", [False, True])
def test_nan_is_counted(files, tmp_path):
    """In one piece and by chunks, on one thread and two: as many, and the draws are of the Gamma(2)."""
    options = {"sampler": "nuts", "n_samples": 1000, "n_chains": 2, "n_warmup": 200, "random_state": 0}
    x = np.ones(1)
    found, again = (
        sd.sample(_rate, None, x, [1.0], n_jobs=n, checkpoint=tmp_path / str(n) if files else None, **options)
        for n in (1, 2)
    )
    line = found.diagnostics.row("undefined")
    assert line["value"] > 0
    assert line["verdict"] == "care"
    assert str(found.diagnostics) == str(again.diagnostics)
    clean = sd.sample(_normal, None, x, [1.0], **options)
    assert "undefined" not in clean.diagnostics.rows
    truth, size = stats.gamma(2), found.summary()["ess"][0]
    assert found.mean()["theta"][0] == pytest.approx(truth.mean(), abs=4.5 * truth.std() / np.sqrt(size))


def test_weighted_draws_of_one_seed_are_the_same():
    X = np.random.default_rng(0).standard_normal((60, 2))
    model = regression("bernoulli", X, np.where(X[:, 0] > 0.3, 1.0, -1.0), prior=Prior(scale=1.0))
    sample = sample_model(model, "laplace", n_samples=200, seed=0)
    shown = Densities([], lambda _: {"coef": (2,)})
    one, two, other = (from_sample(model, sample, shown, seed).draws for seed in (0, 0, 1))
    np.testing.assert_array_equal(one, two)
    assert not np.array_equal(one, other)
