"""Chains in step: the bits of one chain alone, whoever goes with it; and trees from far away."""

import numpy as np
import pytest

from stradask.algorithms.bayes.chains.chain import advance, advance_all, init
from stradask.algorithms.bayes.chains.sampling import sample_model
from stradask.algorithms.bayes.models.model import Model, Prior, regression
from stradask.kernels.bayes import chain as bayes_chain
from stradask.kernels.bayes import nuts
from stradask.kernels.bayes import together as bayes_together

N, D = 1003, 5  # no multiple of the rows of a tile


@pytest.fixture(scope="module", params=[np.float64, np.float32], ids=["f64", "f32"])
def data(request):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, D))
    y = np.where(rng.random(N) < 1 / (1 + np.exp(-X[:, 0])), 1.0, -1.0)
    return X.astype(request.param), y


@pytest.mark.parametrize("kind", ["normal", "horseshoe"])
@pytest.mark.parametrize("n", range(1, 8))
def test_densities_evaluated_together_have_the_bits_of_each_alone(data, kind, n):
    model = regression("bernoulli", *data, prior=Prior(kind), power=0.3)
    Q = np.random.default_rng(n).standard_normal((n, model.n_params))
    G, logps = np.full_like(Q, np.nan), np.full(n, np.nan)
    model.together(n, Q, G, logps, model.data, model.meta)
    expected = model.logp_grads(Q)
    np.testing.assert_array_equal(logps, expected[0])
    np.testing.assert_array_equal(G, expected[1])


def test_a_density_that_is_no_number_stays_with_its_own_chain(data):
    model = regression("bernoulli", *data)
    Q = np.zeros((4, D))
    Q[2, 0] = np.nan
    G, logps = np.empty_like(Q), np.empty(4)
    model.together(4, Q, G, logps, model.data, model.meta)
    np.testing.assert_array_equal(np.isnan(logps), [False, False, True, False])
    np.testing.assert_array_equal(np.isnan(G).any(axis=1), [False, False, True, False])


@pytest.mark.parametrize(
    ("sampler", "metric"),
    [("nuts", "diagonal"), ("nuts", "dense"), ("nuts", "laplace"), ("split_hmc", "laplace")],
)
def test_draws_do_not_depend_on_how_chains_are_grouped(data, sampler, metric):
    model = regression("bernoulli", *data)
    settings = {"n_samples": 130, "n_warmup": 150, "n_chains": 5, "metric": metric, "seed": 3}
    alone, *grouped = (sample_model(model, sampler, n_jobs=n_jobs, **settings) for n_jobs in (5, 3, 2, 1))
    for sample in grouped:
        np.testing.assert_array_equal(sample.stacked(), alone.stacked())
        np.testing.assert_array_equal(sample.stacked("gradients"), alone.stacked("gradients"))
        for name in ("energy", "n_gradients", "step_size"):
            np.testing.assert_array_equal(sample.statistic(name), alone.statistic(name))


def test_a_chain_by_scales_beside_one_by_a_triangle(data):
    """The adapted metric may be either, chain by chain."""
    model = regression("bernoulli", *data)
    scales, triangle = np.full((1, D), 0.1), 0.1 * np.eye(D) + 0.02 * np.tri(D, k=-1)
    states = [init(model, np.zeros(D), A=A, size=0.4) for A in (scales, triangle)]
    together = advance_all(model, states, 40, seed=1, chains=[0, 1])
    for chain, (state, (after, made)) in enumerate(zip(states, together, strict=True)):
        end, draws = advance(model, state, 40, seed=1, chain=chain)
        np.testing.assert_array_equal(made.draws, draws.draws)
        np.testing.assert_array_equal(made.gradients, draws.gradients)
        assert after.A.shape == end.A.shape == state.A.shape


def test_chains_that_go_together_share_their_passes(data, monkeypatch):
    """Otherwise nothing is won, and no other test would tell."""
    sizes = []
    kept = bayes_together.run

    def counted(*arguments):
        sizes.append(len(arguments[2]))
        return kept(*arguments)

    monkeypatch.setattr(bayes_together, "run", counted)
    sample_model(regression("bernoulli", *data), "nuts", n_samples=20, n_warmup=20, n_chains=4, n_jobs=2)
    assert set(sizes) == {2}


def _normal():
    import numba as nb

    @nb.njit
    def density(q, g, data, meta):
        total = 0.0
        for i in range(len(q)):
            g[i] = -q[i]
            total -= 0.5 * q[i] * q[i]
        return total

    return Model(density, np.zeros(1), np.zeros(1, np.int64), ("a", "b"), np.zeros(2))


def test_a_tree_from_far_away_comes_back():
    """From 100 standard deviations the log density grows by 10,000 within one tree."""
    model = _normal()
    state = init(model, np.full(2, 100.0), size=0.3)
    state, draws = advance(model, state, 200, seed=0)
    assert draws.log_densities[0] > -9990
    assert (np.abs(draws.draws[-50:]) < 6).all()
    assert np.isfinite(draws.draws).all()
    assert not draws.statistics["divergent"].any()


def test_weights_of_a_tree_are_made_smaller_together():
    """Two nodes of weights 1 and e^-2, and a third of e^600: all are in its unit then."""
    numbers = np.zeros(nuts.scratch_numbers(3))
    numbers[nuts._WEIGHT], numbers[nuts._TOP] = 1.0, 2
    numbers[nuts._NODES], numbers[nuts._NODES + 2] = np.exp(450.0), np.exp(-2.0)
    kept = numbers.copy()
    np.testing.assert_allclose(nuts._weight.py_func(490.0, numbers), np.exp(490.0))
    np.testing.assert_array_equal(numbers, kept)
    assert nuts._weight.py_func(600.0, numbers) == 1.0
    places = [nuts._WEIGHT, nuts._NODES, nuts._NODES + 2]
    np.testing.assert_allclose(numbers[places], np.exp([-600.0, -150.0, -602.0]))
    np.testing.assert_allclose(nuts._weight.py_func(599.0, numbers), np.exp(-1.0))


def test_the_sampler_of_one_chain_takes_what_numba_gives_it():
    """Both loops are compiled for one signature, whatever the model."""
    assert len(bayes_chain.run.compiled.signatures) == len(bayes_together.run.compiled.signatures) == 1
