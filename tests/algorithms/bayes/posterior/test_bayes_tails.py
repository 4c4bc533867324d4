"""Standard deviations that draws do not determine: heavy tails, and weights about a mode."""

import warnings

import numpy as np
import pytest

import stradask as sd
from stradask.algorithms.bayes.chains.sampling import sample_model
from stradask.algorithms.bayes.combine.collect import from_sample
from stradask.algorithms.bayes.models.density import user_model
from stradask.algorithms.bayes.posterior.tails import errors_of_sd, heaviest_tail, spread_lines
from stradask.algorithms.bayes.shards.chains import Densities
from stradask.errors import PosteriorWarning


def _columns(draws):
    return [str(j) for j in range(draws.shape[2])]


@pytest.mark.parametrize(("make", "truth"), [("standard_normal", 1.0), ("exponential", 1.0)])
def test_errors_are_those_of_repeated_draws(make, truth):
    rng = np.random.default_rng(0)
    draws = getattr(rng, make)(size=(4, 250, 150))
    rms = np.sqrt(((draws.std(axis=(0, 1)) - truth) ** 2).mean())
    assert 0.75 < np.median(errors_of_sd(draws)) / rms < 1.25


def test_units_do_not_matter_and_constants_have_no_error():
    draws = np.random.default_rng(0).standard_normal((4, 250, 1))
    scaled = np.concatenate([draws, 1e200 * draws, 1e-200 * draws, np.full_like(draws, 3.0)], axis=2)
    errors = errors_of_sd(scaled)
    np.testing.assert_allclose(errors[:3], errors[0])
    assert np.isnan(errors[3])
    assert spread_lines(scaled[:, :, 3:], ["constant"]) == []
    assert spread_lines(scaled, _columns(scaled))[0][3] == 0


@pytest.mark.parametrize("k", [0.2, 0.5, 1.0])
def test_k_hat_is_the_shape_of_a_pareto_tail_on_either_side(k):
    rng = np.random.default_rng(1)
    draws = ((1 - rng.random((4, 1000, 100))) ** -k - 1) / k
    for sign in (1, -1):
        found = [heaviest_tail(sign * draws[:, :, [j]], np.ones(1))[0] for j in range(100)]
        assert abs(np.mean(found) - k) < 0.05


def test_no_standard_deviation_of_heavy_tails_is_too_large_without_a_line():
    rng = np.random.default_rng(2)
    wrong = 0
    for _ in range(60):
        draws = rng.standard_t(3, (4, 1000, 10))
        ratio = (draws.std(axis=(0, 1)) / np.sqrt(3)).max()
        wrong += ratio > 1.25
        assert ratio < 1.25 or any(line[3] for line in spread_lines(draws, _columns(draws)))
    assert wrong > 2


def test_ordinary_draws_pass():
    rng = np.random.default_rng(3)
    for _ in range(30):
        draws = np.stack(
            [rng.standard_normal((4, 1000)), rng.exponential(size=(4, 1000)), rng.standard_t(7, (4, 1000))], 2
        )
        assert not any(line[3] for line in spread_lines(draws, _columns(draws)))


@pytest.mark.parametrize(("width", "aloud"), [(0.3, False), (2.0, True)])
def test_values_are_judged_on_the_scale_of_the_user(width, aloud):
    """log(scale) is normal: weights are equal, and the standard deviation of the scale still is not known."""

    def density(q, x):
        return -0.5 * (q[0] / width) ** 2, -q / width**2

    model = user_model(density, None, None, [0.1], constrain=np.exp)
    drawn = sample_model(model, "auto", n_samples=1000, seed=0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = from_sample(model, drawn, Densities([], lambda _: {"scale": ()}), 0)
    assert bool(found.diagnostics.level) == aloud
    assert aloud == any("draws do not determine the sd" in str(one.message) for one in caught)
    exact = np.sqrt(np.expm1(width**2) * np.exp(width**2))
    assert (abs(found.sd()["scale"] / exact - 1) > 0.2) == aloud


def test_weights_about_the_mode_of_a_banana_are_not_trusted():
    """k-hat is below 0.7, and the mean of q[1] off by half a standard deviation: its arms are missed."""

    def density(q, x):
        rest = (q[1] - q[0] ** 2) / 0.09
        return -0.5 * q[0] ** 2 - 0.045 * rest**2, np.array([-q[0] + 2 * q[0] * rest, -rest])

    with pytest.warns(PosteriorWarning, match=r"Do not use.*missed mass"):
        found = sd.sample(density, None, None, [0.1, 0.1], sampler="laplace", random_state=0)
    assert abs(found.mean()["theta"][1] - 1) > 0.15 * np.sqrt(2)


def test_auto_takes_no_split_hmc_of_heavy_tails():
    """By the metric of the mode its chains saw little of them: an sd of 1.2, with an R-hat of 1.01."""

    def student(q, x):
        return -2 * np.log1p(q[0] ** 2 / 3), -4 * q / (3 + q**2)

    found = sample_model(user_model(student, None, None, [0.1]), "auto", n_samples=1000, seed=6)
    assert 0.5 < found.k_hat < 0.7
    assert found.sampler == "nuts"
    assert abs(found.stacked().std() / np.sqrt(3) - 1) < 0.2
