"""The comparison with other samplers: its judge, its own densities and its tables; no peer runs."""

import numpy as np
import pytest
from scipy import optimize, special, stats

from stradask.algorithms.bayes.models.layout import NamedLayout
from stradask.benchmarks.experiments.mcmc import (
    peers,
    peers_densities,
    peers_loops,
    peers_worker,
    posteriordb,
)
from stradask.errors import DataError


def test_the_judge_finds_errors_ess_and_entries_by_their_names():
    rng = np.random.default_rng(0)
    draws = {"a": rng.normal(1, 2, (4, 1000)), "B": rng.normal(0, 1, (4, 1000, 2, 2))}
    draws["B"][:, :, 1, 0] = np.cumsum(rng.normal(0, 0.1, (4, 1000)), axis=1)  # a random walk
    reference = {"a": {"mean": 1.2, "sd": 2.0}, "B[1,2]": {"mean": 0.0, "sd": 1.0}}
    good = peers.judged(draws, reference)
    error = [(draws["a"].mean() - 1.2) / 2, draws["B"][:, :, 0, 1].mean()]
    assert good["mean_error"] == pytest.approx(np.sqrt(np.mean(np.square(error))))
    assert 3000 < good["bulk_ess"] < 5000
    assert good["sd_ratio"] < 1.05
    bad = peers.judged(draws, reference | {"B[2,1]": {"mean": 0.0, "sd": 1.0}})
    assert bad["bulk_ess"] < 50
    assert peers.judged(draws, reference, worth=7.0)["tail_ess"] == 7.0
    with pytest.raises(KeyError, match="c"):
        peers.judged(draws, {"c": {"mean": 0.0, "sd": 1.0}})


def test_the_student_density_is_that_of_scipy_with_its_gradient():
    data = {key: np.array(value)[:40] for key, value in peers.student_data().items() if key in "Xy"}
    rows, q = np.column_stack([data["X"], data["y"]]), np.array([1, -0.5, 0.3, 0.1, 0, 2, -0.3])
    density = peers_worker.student_density().py_func

    def expected(q):
        noise = stats.t.logpdf(rows[:, 6], 4, rows[:, :6] @ q[:6], np.exp(q[6])).sum()
        return noise + stats.norm.logpdf(q[:6], 0, 5).sum() + stats.norm.logpdf(q[6])

    gradient = np.zeros(7)
    found = density(q, rows, gradient) - density(0 * q, rows, np.zeros(7))
    assert found == pytest.approx(expected(q) - expected(0 * q), abs=1e-9)
    assert gradient == pytest.approx(optimize.approx_fprime(q, expected, 1e-7), rel=1e-4, abs=1e-3)
    looped = np.zeros(7)
    loops = peers_loops.student.py_func
    assert loops(q, (rows[:, :6], rows[:, 6]), looped) - loops(0 * q, (rows[:, :6], rows[:, 6]), 0 * q) == (
        pytest.approx(found, abs=1e-9)
    )
    assert looped == pytest.approx(gradient, abs=1e-9)


def test_the_logit_loop_is_the_bernoulli_likelihood_with_its_gradient():
    rng = np.random.default_rng(0)
    X, y, q = rng.standard_normal((30, 2)), np.repeat([0.0, 1.0], 15), np.array([0.3, -2.0])
    share, gradient = special.expit(X @ q), np.zeros(2)
    found = peers_loops.logit.py_func(q, (X, y), gradient)
    assert found == pytest.approx(stats.bernoulli.logpmf(y, share).sum(), rel=1e-12)
    assert gradient == pytest.approx(X.T @ (y - share), rel=1e-12)


Y = np.random.default_rng(2).normal([-1.0, 2.0], 1, (20, 2)).ravel()
SCHOOLS = {"J": 8, "y": Y[:8].tolist(), "sigma": (1 + np.abs(Y[:8])).tolist()}
RADON = {"J": 3, "county_idx": [1, 2, 3, 3, 1], "log_uppm": Y[:5].tolist(), "log_radon": Y[5:10].tolist()}
RADON["floor_measure"] = [0, 1, 0, 1, 1]
SEEDS = {"I": 5, "n": [3, 0, 7, 2, 9], "N": [9, 4, 8, 9, 9], "x1": [0, 1, 0, 1, 1], "x2": [0, 0, 1, 1, 0]}


def slopes_of(layout):
    """Gradients of zero by name, arrays all."""
    return layout.all_named(np.zeros((1, layout.n_values)))[0]._replace(
        **{key: np.zeros(1) for key, one in layout.parameters.items() if not one.shape}
    )


@pytest.mark.parametrize(
    ("name", "d"),
    [
        ("low_dim_gauss_mix-low_dim_gauss_mix", {"y": Y.tolist()}),
        ("eight_schools-eight_schools_noncentered", SCHOOLS),
        ("seeds_data-seeds_model", SEEDS),
        ("radon_mn-radon_hierarchical_intercept_noncentered", RADON),
    ],
)
def test_other_forms_are_the_densities_of_the_table_of_errors(name, d):
    density, data, parameters, _, _ = peers_densities.MADE[name](d)
    plain = posteriordb.MODELS[name](d)[0]
    assert plain is not density
    layout = NamedLayout(parameters)
    values = layout.values(np.linspace(-1, 1, layout.n_free)[None])[0]

    def expected(values):
        rest = () if name.startswith("low_dim") else (slopes_of(layout),)
        return plain.py_func(layout.named(values), data, *rest)

    slopes = slopes_of(layout)
    assert density.py_func(layout.named(values), data, slopes) == pytest.approx(expected(values), rel=1e-12)
    gradient = optimize.approx_fprime(values, expected, 1e-7)
    assert np.concatenate(slopes) == pytest.approx(gradient, rel=1e-4, abs=1e-4)


def test_the_centred_radon_density_is_the_other_in_other_coordinates():
    other, data, parameters, _, _ = peers_densities.MADE["radon_mn-radon_hierarchical_intercept_noncentered"](
        RADON
    )
    density, _, mine, priors, derived = peers_densities.centred(RADON)
    assert set(mine) == set(priors)
    layout, p = NamedLayout(mine), NamedLayout(parameters)
    q = p.named(p.values(np.linspace(-1, 1, p.n_free)[None])[0])
    at = {"alpha": q.mu + q.spread * q.z, "beta": q.beta, "sigma": q.sigma, "mu_alpha": q.mu}
    at |= {"sigma_alpha": q.spread}
    values = np.concatenate([np.ravel(at[name]) for name in mine])

    theirs, ours = slopes_of(p), slopes_of(layout)
    found = density.py_func(layout.named(values), data, ours)
    assert found == pytest.approx(other.py_func(q, data, theirs), rel=1e-12)
    assert ours.alpha * q.spread == pytest.approx(theirs.z, rel=1e-12)
    assert np.concatenate([ours.beta, ours.sigma]) == pytest.approx(
        np.concatenate([theirs.beta, theirs.sigma])
    )
    assert derived(layout.named(values)) == {"sigma_y": q.sigma}


def test_tables_have_the_best_peer_and_medians_of_later_calls():
    def record(system, first, *later, status="ok"):
        call = {"bulk_ess": 1000.0, "tail_ess": 800.0, "mean_error": 0.01, "gradients": 20_000}
        call |= {"warm_up_gradients": 10_000}
        calls = [call | {"cpu_seconds": seconds} for seconds in (first, *later)]
        return {"model": "student", "system": system, "status": status, "calls": calls, "error": "it fell"}

    records = [record("stradask nuts", 4.0, 0.1, 0.2, 5.0), record("nutpie", 16.0, 0.4, 0.4)]
    records += [record("blackjax", 8.0, 0.8), record("numpyro", 8.0, 0.8, status="failed")]
    (later,) = peers.rates_table(records, "later").rows
    assert later == ["student", "4,000", "2,000", "1,000", "2.0", "-", "-", "nutpie"]
    assert peers.rates_table(records, "first").rows[0][-4:] == ["2.0", "-", "-", "blackjax"]
    assert peers.work_table(records).rows[1][:5] == ["student", "nutpie", "10.0", "20.0", "40"]
    assert "student, numpyro: it fell" in peers.show(records)


def test_a_model_without_reference_draws_needs_moments(tmp_path):
    folder = tmp_path / "posterior_database" / "posteriors"
    folder.mkdir(parents=True)
    (folder / "seeds.json").write_text('{"reference_posterior_name": null, "data_name": "seeds"}')
    with pytest.raises(DataError, match="seeds has no reference draws: give --moments"):
        peers._read("seeds", tmp_path, None)
