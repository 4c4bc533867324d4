"""The posterior object: names, weighted summaries, files, ArviZ, pictures."""

import sys

import numpy as np
import pytest
from scipy import integrate, stats

import stradask
from stradask import BayesianLinearRegression
from stradask.algorithms._table import Table
from stradask.algorithms.bayes.posterior.convergence import ess, split_rhat
from stradask.algorithms.bayes.posterior.diagnostics import diagnose
from stradask.algorithms.bayes.posterior.draws import Posterior
from stradask.errors import DataError, ModelFileError, StradaskError
from stradask.scheduler.stores.store import write_npz

VARIABLES = {"intercept": (), "coef": (2, 2), "scale": (1,)}


@pytest.fixture
def draws():
    return np.random.default_rng(0).standard_normal((400, 6)) + np.arange(6)


@pytest.fixture
def full():
    """A posterior of everything: weights, shards, diagnostics."""
    rng = np.random.default_rng(1)
    shards = rng.standard_normal((3, 2, 60, 2))
    figures = {"k_hat": 0.3, "k_hat_limit": 0.6, "importance_ess": 300.0, "importance_ess_limit": 100.0}
    return Posterior(
        rng.standard_normal((500, 2)),
        {"a": (), "b": ()},
        log_weights=rng.standard_normal(500) - 40,
        shard_draws=shards,
        diagnostics=diagnose(shards, figures=figures),
        method="exact",
    )


def test_draws_by_name(draws):
    posterior = Posterior(draws, VARIABLES)
    assert posterior.names == [
        "intercept",
        "coef[0,0]",
        "coef[0,1]",
        "coef[1,0]",
        "coef[1,1]",
        "scale[0]",
    ]
    assert [posterior[name].shape for name in VARIABLES] == [(400,), (400, 2, 2), (400, 1)]
    np.testing.assert_array_equal(posterior["coef"][:, 1, 0], draws[:, 3])
    np.testing.assert_array_equal(posterior["coef[1,0]"], draws[:, 3])
    assert Posterior(draws).names[5] == "theta[5]"
    assert len(posterior) == 400
    with pytest.raises(DataError, match="no variable 'slope'; there are intercept, coef, scale"):
        posterior["slope"]


def test_moments_and_quantiles_without_weights(draws):
    posterior = Posterior(draws, VARIABLES)
    np.testing.assert_allclose(posterior.mean()["coef"], draws[:, 1:5].mean(axis=0).reshape(2, 2))
    np.testing.assert_allclose(posterior.sd()["scale"], draws[:, 5:].std(axis=0))
    np.testing.assert_allclose(
        posterior.quantile([0.1, 0.9])["intercept"], np.quantile(draws[:, 0], [0.1, 0.9])
    )
    assert posterior.quantile(0.5)["intercept"].shape == ()


def test_weighted_moments_are_those_of_repeated_draws(draws):
    counts = np.random.default_rng(3).integers(1, 5, 400)
    weighted = Posterior(draws, log_weights=np.log(counts))
    repeated = np.repeat(draws, counts, axis=0)
    np.testing.assert_allclose(weighted.mean()["theta"], repeated.mean(axis=0))
    np.testing.assert_allclose(weighted.sd()["theta"], repeated.std(axis=0))
    levels = [0.05, 0.3, 0.5, 0.95]
    np.testing.assert_allclose(
        weighted.quantile(levels)["theta"], np.quantile(repeated, levels, axis=0), atol=0.06
    )
    assert weighted.weights.sum() == pytest.approx(1)


def test_weighted_quantiles_tend_to_the_truth():
    x = np.random.default_rng(0).uniform(-6, 6, 100_000)
    posterior = Posterior(x[:, None], {"x": ()}, log_weights=stats.norm.logpdf(x))
    levels = np.array([0.05, 0.25, 0.5, 0.9])
    np.testing.assert_allclose(posterior.quantile(levels)["x"], stats.norm.ppf(levels), atol=0.02)


def test_weighted_quantiles_of_few_draws():
    three = Posterior([[-1.0], [0.0], [4.0]], {"x": ()}, log_weights=np.log([0.25, 0.5, 0.25]))
    # A draw stands in the middle of its weight: -1 at 1/8, 0 at 1/2, 4 at 7/8.
    np.testing.assert_allclose(
        three.quantile([0.05, 0.125, 0.3125, 0.5, 0.6875, 0.99])["x"], [-1, -1, -0.5, 0, 2, 4]
    )


def test_summary_of_chains(draws):
    chains = draws.reshape(4, 100, 6)
    table = Posterior(draws, VARIABLES, n_chains=4).summary()
    np.testing.assert_allclose(table["ess"], np.round(ess(chains, "mean")))
    np.testing.assert_allclose(table["r_hat"], split_rhat(chains))
    np.testing.assert_allclose(table["mcse"], draws.std(axis=0) / np.sqrt(ess(chains, "mean")), rtol=1e-10)
    assert list(table.columns) == ["mean", "sd", "5%", "50%", "95%", "ess", "mcse", "r_hat"]
    assert table.row("coef[0,1]")["mean"] == pytest.approx(draws[:, 2].mean())


def test_standard_error_of_weighted_draws_is_what_repetitions_show():
    means, claimed = [], []
    for seed in range(300):
        x = np.random.default_rng(seed).standard_normal(400)
        posterior = Posterior(x[:, None], {"x": ()}, log_weights=0.7 * x)
        table = posterior.summary()
        means.append(table["mean"][0])
        claimed.append(table["mcse"][0])
    assert np.mean(claimed) == pytest.approx(np.std(means), rel=0.15)
    assert 250 > table["ess"][0] > 100


def test_rhat_of_shards_is_the_worst(full):
    worst = np.max([split_rhat(shard) for shard in full.shard_draws], axis=0)
    np.testing.assert_allclose(full.summary()["r_hat"], worst)
    assert full.diagnostics.verdict in str(full.summary())
    assert "weighted draws by exact" in repr(full)
    independent = Posterior(full.draws)
    assert np.isnan(independent.summary()["r_hat"]).all()
    assert (independent.summary()["ess"] == 500).all()


def test_sample_of_weighted_draws_has_their_mean_and_their_worth(full):
    values = full.sample(random_state=0)
    assert len(values["a"]) == int(1 / (full.weights**2).sum())
    many = np.concatenate([full.sample(500, random_state=s)["a"] for s in range(200)])
    assert many.mean() == pytest.approx(full.mean()["a"], abs=0.02)
    np.testing.assert_array_equal(full.sample(50, 7)["b"], full.sample(50, 7)["b"])
    plain = Posterior(full.draws).sample(random_state=0)["theta"]
    np.testing.assert_array_equal(np.sort(plain, axis=0), np.sort(full.draws, axis=0))
    for n in (0, 501, 2.0, True):
        with pytest.raises(DataError, match="n must be an integer between 1 and 500"):
            full.sample(n)


def test_predictive():
    rng = np.random.default_rng(0)
    posterior = Posterior(rng.normal([2.0, 3.0], 0.1, (4000, 2)), {"w": (2,)})
    X = np.array([[1.0, 0.0], [1.0, 1.0], [0.0, 2.0]])
    lines = posterior.predictive(lambda values, rng: values["w"] @ X.T, random_state=0)
    assert lines.shape == (4000, 3)
    np.testing.assert_allclose(lines.mean(axis=0), [2, 5, 6], atol=0.02)
    new = posterior.predictive(lambda v, rng: rng.normal(v["w"] @ X.T, 1.0), 1000, random_state=0)
    np.testing.assert_allclose(new.std(axis=0), 1.0, atol=0.1)
    again = posterior.predictive(lambda v, rng: rng.normal(v["w"] @ X.T, 1.0), 1000, random_state=0)
    np.testing.assert_array_equal(new, again)
    with pytest.raises(DataError, match="one row for each of 4000 draws"):
        posterior.predictive(lambda values, rng: np.zeros(3))


def test_log_likelihood(draws):
    y = np.array([0.5, 1.0, -2.0])
    posterior = Posterior(
        draws, VARIABLES, log_likelihood=lambda v: stats.norm.logpdf(y, v["intercept"][:, None])
    )
    values = posterior.log_likelihood(random_state=0)
    assert values.shape == (400, 3)
    rows = posterior.sample(random_state=0)["intercept"]
    np.testing.assert_allclose(values[7], stats.norm.logpdf(y, rows[7]))
    with pytest.raises(StradaskError, match="does not know its likelihood"):
        Posterior(draws).log_likelihood()


def test_file_holds_it_all(full, tmp_path):
    assert full.save(tmp_path / "p.npz") is full
    read = stradask.load(tmp_path / "p.npz")
    assert isinstance(read, Posterior)
    with pytest.raises(TypeError, match="for a posterior it takes only path"):
        stradask.load(tmp_path / "p.npz", engine="dask")
    np.testing.assert_array_equal(read.draws, full.draws)
    np.testing.assert_allclose(read.log_weights, full.log_weights, atol=1e-12)
    np.testing.assert_array_equal(read.shard_draws, full.shard_draws)
    assert (read.method, read.names, read.n_chains) == ("exact", ["a", "b"], None)
    assert str(read.diagnostics) == str(full.diagnostics)
    assert str(read.summary()) == str(full.summary())
    chains = Posterior(full.draws, {"v": (2, 1)}, n_chains=5).save(tmp_path / "c.npz")
    read = Posterior.load(tmp_path / "c.npz")
    assert (read.n_chains, read.variables, read.log_weights) == (5, chains.variables, None)


def test_files_that_are_no_posterior(full, tmp_path):
    path = tmp_path / "p.npz"
    write_npz(path, {}, {"format": "stradask model"})
    with pytest.raises(ModelFileError, match="not a posterior"):
        Posterior.load(path)
    write_npz(path, {}, {"format": "stradask posterior", "format_version": 99, "state": {}})
    with pytest.raises(ModelFileError, match="format version 99"):
        Posterior.load(path)
    state = full.state()
    for change in (
        {"variables": {"a": [7]}},
        {"n_chains": 3},
        {"diagnostics": [["R-hat", 1.0, "< 1.1", 9, "words"]]},
        {"diagnostics": 5},
        {"draws": np.full((4, 2), np.nan)},
        {"odd": 1},
    ):
        with pytest.raises(ModelFileError, match="makes no sense"):
            Posterior.from_state(state | change)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"draws": np.zeros(5)}, "draws must have 2 dimensions"),
        ({"draws": np.zeros((0, 2))}, "none of length 0"),
        ({"draws": [["a"]]}, "array of numbers"),
        ({"draws": np.array([[0.0, np.inf]])}, r"draws holds inf at \(0, 1\)"),
        ({"variables": {"a": (3,)}}, "have 3 parameters in all, the draws 2"),
        ({"variables": {"a": (2, 0)}}, "positive sides"),
        ({"variables": {"": (2,)}}, "positive sides"),
        ({"log_weights": np.zeros(3)}, "one number for each of 6 draws"),
        ({"log_weights": [0, 0, 0, 0, 0, np.nan]}, "numbers or -inf"),
        ({"log_weights": np.full(6, -np.inf)}, "one of them finite"),
        ({"n_chains": 4}, "n_chains=4 does not fit 6 draws"),
        ({"n_chains": 2, "log_weights": np.zeros(6)}, "n_chains=2 does not fit 6 weighted draws"),
        ({"shard_draws": np.zeros((2, 5, 2))}, "shard_draws must have 4 dimensions"),
        ({"shard_draws": np.zeros((2, 1, 5, 3))}, "shard_draws have 3 parameters, the draws 2"),
    ],
)
def test_bad_input(arguments, words):
    arguments = {"draws": np.zeros((6, 2))} | arguments
    with pytest.raises(DataError, match=words):
        Posterior(**arguments)


@pytest.mark.parametrize("levels", [[0.5, 1.5], np.nan, "half", [[0.5]]])
def test_quantiles_out_of_range(full, levels):
    with pytest.raises(DataError, match="q must be a number or a vector"):
        full.quantile(levels)
    with pytest.raises(DataError, match="quantiles must be a number or a vector"):
        full.summary(quantiles=levels)


def test_a_summary_of_one_quantile(full):
    np.testing.assert_array_equal(full.summary(quantiles=0.25)["25%"], full.summary([0.25])["25%"])


def test_arviz_is_named_when_missing(full, monkeypatch):
    monkeypatch.setitem(sys.modules, "arviz_base", None)
    with pytest.raises(StradaskError, match=r"pip install 'stradask\[bayes\]'"):
        full.to_arviz()


def test_data_tree(full, draws):
    pytest.importorskip("arviz_base")
    chains = Posterior(
        draws,
        VARIABLES,
        n_chains=4,
        method="nuts",
        log_likelihood=lambda v: -((np.arange(3) - v["intercept"][:, None]) ** 2) / 50,
    )
    tree = chains.to_arviz(log_likelihood=True)
    assert dict(tree["posterior"].sizes)["chain"] == 4
    np.testing.assert_array_equal(tree["posterior"]["coef"].values[1, 5], draws[105, 1:5].reshape(2, 2))
    assert tree["log_likelihood"]["y"].shape == (4, 100, 3)
    np.testing.assert_allclose(
        tree["log_likelihood"]["y"].values[2, 3], -((np.arange(3) - draws[203, 0]) ** 2) / 50
    )
    assert tree["posterior"].attrs["inference_library"] == "stradask"
    for nothing in (None, False):
        assert "log_likelihood" not in chains.to_arviz(log_likelihood=nothing).children
    weighted = full.to_arviz(random_state=0)
    assert weighted["posterior"]["a"].shape == (1, int(1 / (full.weights**2).sum()))
    assert weighted["posterior"].attrs["verdict"] == full.diagnostics.verdict
    with pytest.raises(StradaskError, match="likelihood"):
        full.to_arviz(log_likelihood=True)
    loo = pytest.importorskip("arviz_stats").loo
    assert np.isfinite(loo(tree).elpd)


def test_names_of_entries_go_to_arviz(draws):
    pytest.importorskip("arviz_base")
    posterior = Posterior(draws, {"town": ["north", "south"], "coef": (2, 2)}, n_chains=4)
    tree = posterior.to_arviz()["posterior"]
    np.testing.assert_array_equal(tree["town"].sel(town_dim_0="south").values.ravel(), draws[:, 1])
    assert tree["coef"].shape == (4, 100, 2, 2)


def test_what_the_sampler_tells_goes_to_arviz(tmp_path):
    """The energy of a draw is at least minus the log density of the draw before, where its path began."""
    pytest.importorskip("arviz_base")
    X = np.random.default_rng(0).standard_normal((60, 2))
    options = {"sampler": "nuts", "n_samples": 150, "n_warmup": 200, "n_chains": 4, "random_state": 0}
    posterior = BayesianLinearRegression(**options).fit(X, X[:, 0] + X[:, 1] ** 2).posterior_
    posterior.save(tmp_path / "posterior.npz")
    told = Posterior.load(tmp_path / "posterior.npz").to_arviz()["sample_stats"]
    assert set(told.data_vars) == {
        *("lp", "acceptance_rate", "n_steps", "tree_depth", "diverging", "energy", "step_size")
    }
    assert told["diverging"].values.dtype == bool
    assert (told["n_steps"].values >= 1).all()
    assert (np.ptp(told["step_size"].values, axis=1) == 0).all()
    assert (told["energy"].values[:, 1:] >= -told["lp"].values[:, :-1]).all()
    with pytest.raises(DataError, match=r"statistics must have the shape \(6, 7\)"):
        Posterior(np.zeros((6, 2)), n_chains=2, statistics=np.zeros((6, 3)))


def test_pictures(full, draws):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    (one, two) = full.plot()
    assert [ax.get_title() for ax in (one, two)] == ["a", "b"]
    assert len(one.lines) == 4  # three shards and the posterior
    x, y = one.lines[-1].get_data()
    assert x[np.argmax(y)] == pytest.approx(full.mean()["a"], abs=0.6)
    assert integrate.trapezoid(y, x) == pytest.approx(1, abs=0.05)
    assert one.get_legend() is not None
    (trace,) = full.plot("trace", "b")
    assert len(trace.lines) == 6  # three shards of two chains
    (rank,) = Posterior(draws, VARIABLES, n_chains=4).plot("rank", ["coef[0,0]"])
    heights = np.array([patch.get_data().values for patch in rank.patches])
    assert heights.shape == (4, 20)
    np.testing.assert_allclose(heights.mean(axis=1), 1)  # every chain has 100 of 400 ranks
    np.testing.assert_allclose(heights.sum(axis=0), 4)
    _, ax = plt.subplots()
    assert full.plot("marginals", ["a"], [ax])[0] is ax
    plt.close("all")


def test_pictures_that_cannot_be_drawn(full):
    pytest.importorskip("matplotlib").use("Agg")
    with pytest.raises(DataError, match="kind must be one of marginals, trace, rank"):
        full.plot("pairs")
    with pytest.raises(DataError, match="names must be of columns"):
        full.plot(names=["c"])
    with pytest.raises(DataError, match="axes must be as many as names"):
        full.plot(names=["a", "b"], axes=[None])
    with pytest.raises(DataError, match="has none: take kind='marginals'"):
        Posterior(full.draws).plot("trace", axes=[None, None])


def test_tables():
    table = Table(
        ["x", "long name"], {"value": [1.5, np.nan], "n": [10, 2000], "words": ["a", "bcd"]}, "note"
    )
    assert str(table).splitlines() == [
        "           value     n  words",
        "x           1.50    10  a",
        "long name         2000  bcd",
        "note",
    ]
    assert len(table) == 2
    assert table.row("x") == {"value": 1.5, "n": 10, "words": "a"}
    for wrong in (lambda: table["mean"], lambda: table.row("y"), lambda: Table(["a"], {"b": [1, 2]})):
        with pytest.raises(DataError):
            wrong()
    figures = [0.0, 0.00123, 999.4, 999.6, 2913.2, -123456.0, 1.5e6, np.inf]
    lines = str(Table("abcdefgh", {"x": figures})).splitlines()[1:]
    assert [line.split()[1] for line in lines] == [
        "0.00", "0.00123", "999", "1000", "2913", "-123456", "1.5e+06", "inf"
    ]  # fmt: skip
    frame = pytest.importorskip("pandas").DataFrame
    assert isinstance(table.to_pandas(), frame)
    assert table.to_pandas().loc["x", "n"] == 10


# As a mapping and a table -----------------------------------------------------------------------------------


def test_a_posterior_is_a_mapping_of_its_variables():
    posterior = Posterior(np.arange(12.0).reshape(4, 3), {"coef": (2,), "sigma": ()})
    assert list(posterior) == posterior.keys() == ["coef", "sigma"]
    assert {"sigma", "coef[1]"} <= {name for name in ("sigma", "coef[1]", "tau") if name in posterior}
    assert "tau" not in posterior
    assert {name: values.shape for name, values in dict(posterior).items()} == {"coef": (4, 2), "sigma": (4,)}
    both = posterior.predictive(lambda p, rng: p.sigma - p["sigma"])
    assert not both.any()
    with pytest.raises(AttributeError, match="there is no variable 'tau'; there are coef, sigma"):
        posterior.predictive(lambda p, rng: p.tau)


def test_draws_are_a_data_frame():
    pd = pytest.importorskip("pandas")
    draws = np.arange(12.0).reshape(4, 3)
    frame = Posterior(draws, {"coef": (2,), "sigma": ()}, n_chains=2).to_pandas()
    assert list(frame.columns) == ["coef[0]", "coef[1]", "sigma"]
    assert frame.index.equals(pd.MultiIndex.from_product([range(2), range(2)], names=["chain", "draw"]))
    np.testing.assert_array_equal(frame.loc[1].to_numpy(), draws[2:])
    weighted = Posterior(draws, log_weights=np.zeros(4)).to_pandas()
    np.testing.assert_allclose(weighted["log_weight"], -np.log(4))
