"""The judge of sampled posteriors, the truths it judges by, and the command that runs the family."""

import argparse
import itertools
import json
import time
from importlib.machinery import SourceFileLoader
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from scipy import integrate, special

from stradask.algorithms.bayes.models.model import Prior, regression
from stradask.benchmarks import command, mcmc_cases, run, solvers
from stradask.benchmarks.mcmc_cases import load, log_density, truth
from stradask.benchmarks.objectives import mcmc
from stradask.benchmarks.objectives.mcmc import Objective
from stradask.benchmarks.pages import sampling
from stradask.errors import DataError


def settings(**changed):
    return {**Objective.defaults, **Objective.quick_defaults, **changed}


def test_the_truth_of_a_logistic_posterior_is_that_of_a_quadrature(monkeypatch):
    monkeypatch.setitem(mcmc_cases.CASES, "logistic", ("logistic", None, (80, 2)))
    _, arrays = load("logistic", seed=1, quick=True)

    def density(b, a):
        return np.exp(log_density("logistic", arrays, np.array([a, b]))[0] + 45)

    def moment(f):
        return integrate.dblquad(lambda b, a: f(a, b) * density(b, a), -5, 6, -5, 6, epsabs=1e-6)[0]

    found = truth("logistic", arrays)
    whole = moment(lambda a, b: 1.0)
    means = [moment(lambda a, b: a) / whole, moment(lambda a, b: b) / whole]
    np.testing.assert_allclose(found.mean, means, atol=0.03 * found.sd.max())
    second = moment(lambda a, b: b * b) / whole
    assert found.sd[1] == pytest.approx(np.sqrt(second - means[1] ** 2), rel=0.03)


def test_the_truth_of_eight_schools_is_the_known_one():
    found = truth(*load("eight-schools", seed=0))
    # Of 10,000 draws that posteriordb keeps: mean and standard deviation of mu.
    assert found.mean[0] == pytest.approx(4.4, abs=0.15)
    assert found.sd[0] == pytest.approx(3.3, abs=0.15)


def test_densities_are_those_that_solvers_sample(monkeypatch):
    kind, arrays = load("logistic", seed=0, quick=True)
    prior = Prior("normal", mcmc_cases.PRIOR_SCALE)
    model = regression("bernoulli", arrays["X"], 2 * arrays["y"] - 1, prior=prior)
    Q = np.random.default_rng(0).standard_normal((5, 20)) / 4
    gap = log_density(kind, arrays, Q) - model.logp_grads(Q)[0]
    np.testing.assert_allclose(gap, gap[0], rtol=0, atol=1e-7)
    file = solvers.find_solvers("mcmc")["stradask"].path
    monkeypatch.setitem(mcmc_cases.CASES, "saturation", ("saturation", None, (300, 1)))
    for case in ("poisson-gamma", "mixture", "saturation"):
        kind, arrays = load(case, seed=0, quick=True)
        theirs, rows = _densities(file, kind), arrays["y"]
        if case == "saturation":
            rows = np.column_stack([arrays[name] for name in ("x", "y", "s")])
        Q = mcmc_cases.start(kind, arrays) + np.random.default_rng(1).standard_normal((4, 1)) / 4
        gaps = log_density(kind, arrays, Q) - [theirs(q, rows) for q in Q]
        np.testing.assert_allclose(gaps, gaps[0], rtol=0, atol=1e-7)


def _module(file):
    module = ModuleType("solver")
    SourceFileLoader("solver", str(file)).exec_module(module)
    return module


def _densities(file, kind):
    likelihood, prior = (function.py_func for function in _module(file).DENSITIES[kind]())

    def density(q, y):
        slopes = (np.zeros(len(q)),)
        return likelihood(q, y, *slopes) + prior(q, *slopes)

    return density


def test_the_truth_of_a_shoulder_is_that_of_many_weighted_draws(monkeypatch):
    monkeypatch.setitem(mcmc_cases.CASES, "saturation", ("saturation", None, (200, 1)))
    kind, arrays = load("saturation", seed=0, quick=True)
    found, rng = truth(kind, arrays), np.random.default_rng(0)
    # From normal densities, that of b its prior.
    Q = rng.standard_normal((40_000, 2)) / [7, 1 / 1.5]
    blocks = np.split(Q, 40)
    heights = np.concatenate([log_density(kind, arrays, block) for block in blocks])
    heights += (Q**2 * [24.5, 1 / 4.5]).sum(axis=1)
    weights = special.softmax(heights)
    assert 1 / (weights**2).sum() > 3000
    draws = Q[rng.choice(len(Q), 40_000, p=weights)]
    np.testing.assert_allclose((draws.mean(axis=0) - found.mean) / found.sd, 0, atol=0.08)
    np.testing.assert_allclose(draws.std(axis=0), found.sd, rtol=0.08)
    ends = np.quantile(draws, (0.05, 0.95), axis=0)
    np.testing.assert_allclose((ends - found.quantiles) / found.sd, 0, atol=0.15)


@pytest.mark.slow
def test_a_race_is_won_by_shards_where_laplace_fails(monkeypatch):
    looks = (
        itertools.count()
    )  # the clock shows how often it was looked at: so many draws for all on any machine
    monkeypatch.setattr(time, "process_time", lambda: float(next(looks)))
    judge = Objective("saturation", seed=0, parameters=settings(), quick=True)
    monkeypatch.syspath_prepend(str(solvers.find_solvers("mcmc")["stradask"].path.parent))
    solver = _module(solvers.find_solvers("mcmc")["stradask"].path).Solver(
        SimpleNamespace(n_chains=1, n_samples=100, n_warmup=100, n_jobs=1, seed=0)
    )
    solver.set_data(SimpleNamespace(**judge.arrays()))
    found = {
        problem.arguments["rival"]: judge.evaluate(problem, solver.race(**problem.arguments))
        for problem in judge.problems()
    }
    ours = found["shards"]
    for error in ("mean_error", "sd_error", "quantile_error"):
        assert ours[error] < 0.1
    assert ours["sd_error"] < found["laplace"]["sd_error"]
    assert ours["k_hat"] < 0.5 < 0.6 < found["laplace"]["k_hat"]
    assert {one["parallel_seconds"] for one in found.values()} == {ours["parallel_seconds"]}


def test_a_truth_that_is_not_known_is_refused(monkeypatch):
    monkeypatch.setattr(mcmc_cases, "LEAST_ESS", 1e9)
    with pytest.raises(DataError, match=r"the truth of mixture is not known: k-hat .*, worth \d+ draws"):
        truth(*load("mixture", seed=0, quick=True))


def test_errors_and_effective_draws_are_those_of_the_draws():
    judge = Objective("eight-schools", seed=0, parameters=settings(), quick=True)
    (whole, _) = judge.problems()
    rng = np.random.default_rng(0)
    exact = judge.truth.mean + judge.truth.sd * rng.standard_normal((4, 2000, 2))
    found = judge.evaluate(whole, {"draws": exact})
    assert found["mean_error"] < 0.03
    assert found["sd_error"] < 0.03
    assert 5000 < found["tail_ess"] < 10_000
    off = judge.evaluate(whole, {"draws": exact + judge.truth.sd, "worth": np.array(300.0)})
    assert off["mean_error"] == pytest.approx(1, abs=0.03)
    assert off["tail_ess"] == off["bulk_ess"] == 300
    wide = judge.evaluate(whole, {"draws": judge.truth.mean + 2 * (exact - judge.truth.mean)})
    assert wide["sd_error"] == pytest.approx(1, abs=0.06)
    shards = {"shard_seconds": np.array([1.0, 3.0]), "combine_seconds": np.array(0.5)}
    assert judge.evaluate(whole, {"draws": exact} | shards)["parallel_seconds"] == 3.5
    assert judge.evaluate(whole, {"refused": np.array("why")}) == {"refused": "why"}
    assert judge.evaluate(whole, {"draws": np.zeros((4, 20, 2))})["tail_ess"] == 0
    with pytest.raises(DataError, match=r"of the shape \(chains, n, 2\)"):
        judge.evaluate(whole, {"draws": exact[..., :1]})


def test_shards_have_rows_enough(monkeypatch):
    monkeypatch.setitem(mcmc_cases.CASES, "logistic", ("logistic", None, (200, 4)))
    judge = Objective("logistic", seed=0, parameters=settings(shards=(1, 4, 20)), quick=True)
    names = [problem.name for problem in judge.problems()]
    assert names == ["chains", "auto", "M=1 auto", "M=4 consensus", "M=4 auto"]


@pytest.mark.parametrize("name", mcmc_cases.CASES)
def test_a_seed_names_a_data_set(name):
    kind, arrays = load(name, seed=3, quick=True)
    _, again = load(name, seed=3, quick=True)
    _, other = load(name, seed=4, quick=True)
    assert kind == mcmc_cases.CASES[name][0]
    for key, array in arrays.items():
        np.testing.assert_array_equal(array, again[key])
        assert np.isfinite(array).all()
    assert (name == "eight-schools") == np.array_equal(arrays["y"], other["y"])
    if name == "rare":
        assert 0.002 < arrays["y"].mean() < 0.03


@pytest.mark.parametrize(
    ("dataset", "parameters", "said"),
    [
        ("z", {}, "'z' is none of logistic"),
        ("mixture", {"n_chains": 0}, "n_chains is 0"),
        ("mixture", {"n_samples": 4}, "8 are needed"),
        ("mixture", {"shards": (0,)}, "integers of at least 1"),
        ("mixture", {"shards": "a"}, "type int"),
        ("mixture", {"methods": ("union",)}, "'union'.* none of average"),
    ],
)
def test_wrong_options_are_errors_that_name_them(dataset, parameters, said):
    with pytest.raises(DataError, match=said):
        Objective(dataset, seed=0, parameters=settings(**parameters), quick=True)


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    """Our solver and a peer written here, on small data, as the command runs them."""
    folder = tmp_path_factory.mktemp("solvers")
    (folder / "mcmc_peer.py").write_text(
        "class Solver:\n"
        "    name, method, requires = 'peer', 'none', ('numpy',)\n"
        "    def __init__(self, settings): self.settings = settings\n"
        "    def set_data(self, data): self.data = data\n"
        "    def sample(self):\n"
        "        import numpy, time\n"
        "        end = time.process_time() + 0.5\n"
        "        while time.process_time() < end: pass\n"
        "        shape = (2, self.settings.n_samples, 3)\n"
        "        return {'draws': numpy.random.default_rng(0).standard_normal(shape)}\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(mcmc_cases.CASES, "logistic", ("logistic", None, (400, 3)))
        patch.setattr(mcmc, "LEAST_ROWS", 10)
        parser = argparse.ArgumentParser()
        run.add_arguments(parser)
        out = folder / "out"
        words = f"mcmc --quick --dataset logistic --against peer --solvers {folder} --out {out}"
        options = "--param n_samples=100 n_warmup=100 shards=(2,) methods=('consensus','auto')"
        assert command.main(parser.parse_args([*words.split(), *options.split()])) == 0
    return run.read_records(out / "records.jsonl"), out


def test_the_command_samples_judges_and_keeps_records(records):
    found, out = records
    problems = [(record["solver"], record["problem"]) for record in found]
    ours = [("stradask", name) for name in ("chains", "auto", "M=2 consensus", "M=2 auto")]
    assert problems == [*ours, ("peer", "chains")]
    assert all(record["status"] == "ok" for record in found)
    for record in found[:2] + found[3:4]:
        assert record["mean_error"] < 0.25
        assert record["sd_error"] < 0.25
    assert found[4]["mean_error"] > 1  # noise about zero
    assert found[4]["cpu_seconds"] >= 0.5
    assert found[3]["parallel_seconds"] > 0
    assert "stradask bench mcmc" in (out / "report.html").read_text()
    json.dumps(found, allow_nan=False)


def test_the_table_puts_ours_beside_the_best_peer(records):
    found, _ = records
    body, header, _ = sampling.rates_table(found)
    assert header == ["tail ESS / CPU s (error)", "stradask", "stradask auto", "peer", "ours / best peer"]
    rates = {r["solver"] + r["problem"]: r["tail_ess"] / r["cpu_seconds"] for r in found}
    best = max(rates["stradaskchains"], rates["stradaskauto"]) / rates["peerchains"]
    assert float(body[0][-1].split()[0].replace(",", "")) == pytest.approx(best, rel=0.05)
    assert [row[1] for row in sampling.shards_table(found).rows] == ["M=2 consensus", "M=2 auto"]
    refused = found[3] | {"status": "refused", "refused": "R-hat of shard 1\nmore"}
    text = sampling.table([*found[:3], refused])
    assert "M=2 auto: refused: R-hat of shard 1" in text
    assert sampling.page([*found[:3], refused]).html().count("refused") >= 1


def test_a_picture_has_a_line_for_every_way_to_combine(records):
    runs = [r for r in records[0] if r["problem"].startswith("M=")]
    race = [runs[0] | {"problem": f"M=5, {way}"} for way in ("auto", "full data as long")]
    figure, _, said = sampling.errors_against_seconds("any", [*runs, *race])
    lines = {line.get_label(): line for line in figure.axes[0].get_lines()}
    assert {"auto", "full data as long"} <= set(lines)
    of_auto = sum(r["problem"].endswith("auto") for r in [*runs, *race])
    assert len(lines["auto"].get_xdata()) == of_auto
    assert said.startswith("Errors against seconds on any")


@pytest.mark.parametrize("name", ["numpyro", "blackjax", "nutpie", "pymc"])
def test_peers_are_found(name):
    found = solvers.find_solvers("mcmc")[name]
    assert found.calls.count("sample") == 1
    assert not found.is_ours
