"""Topics with covariates: the posterior of coefficients, the same bits anywhere, and what is refused."""

import numpy as np
import pandas as pd
import pytest
from distributed import Client, LocalCluster
from scipy import sparse, stats
from scipy.special import gammaln

import stradask as sd
from stradask.algorithms._intervals import interval_of_draws
from stradask.algorithms.topics.blocks.storage import Storage
from stradask.algorithms.topics.covariates import Covariates
from stradask.algorithms.topics.samplers.regression import (
    CoefficientPosterior,
    CoefficientPrior,
    PriorRows,
    trajectory,
)
from stradask.datasets import save_uci_bow
from stradask.errors import CheckpointMismatch, DataError, ModelFileError, StradaskError

_K, _WORDS, _LENGTH = 3, 12, 25
_SEEDS = np.kron(np.eye(_K), np.full((1, _WORDS // _K), 2.0))  # so that topics keep their names
_PRIOR = {"doc_topic_prior": 0.3, "prior_scale": 0.7, "intercept_scale": 1.0, "topic_word_prior": 0.1}


def generated(seed, n_documents=80):
    """Coefficients from their prior, and a corpus from these: counts, covariates, design, coefficients."""
    rng = np.random.default_rng([7, seed])
    x = rng.normal(size=n_documents)
    x = (x - x.mean()) / x.std()
    g = (np.arange(n_documents) % 2).astype(float)
    design = np.column_stack([np.ones(n_documents), x, g])
    coefficients = rng.normal(size=(_K, 3)) * [1.0, 0.7, 0.7]
    coefficients[:, 0] += np.log(0.3)
    topics = np.array([rng.dirichlet(0.1 + own) for own in _SEEDS])
    shares = [rng.dirichlet(alpha) for alpha in np.exp(design @ coefficients.T)]
    X = np.array([rng.multinomial(_LENGTH, share @ topics) for share in shares])
    return sparse.csr_array(X), {"x": x, "g": g}, design, coefficients


def dmr(n_components=_K, **options):
    return sd.DMRTopicModel(n_components, **({"random_state": 0, "max_iter": 40} | _PRIOR | options))


pytestmark = pytest.mark.filterwarnings("ignore:intervals rest on:UserWarning")


@pytest.fixture(scope="module")
def data():
    X, covariates, *_ = generated(0, 120)
    X = X.tolil()
    X[5] = 0
    levels = np.array(["red", "green", "blue"])[np.arange(120) % 3]
    return sparse.csr_array(X), pd.DataFrame(covariates | {"colour": levels})


def same(a, b):
    assert (a.word_topic_counts_ != b.word_topic_counts_).nnz == 0
    np.testing.assert_array_equal(a.coef_draws_, b.coef_draws_)
    np.testing.assert_array_equal(a.log_likelihood_, b.log_likelihood_)


# The likelihood and the moves ---------------------------------------------------------------------------


def posterior_of(counts, design, prior):
    counts = np.asarray(counts)
    rows = PriorRows(design, int(counts.sum(axis=1).max()), counts.shape[1], Storage())
    rows.counts[:, : counts.shape[1]] = counts
    return CoefficientPosterior([rows.design], [rows.listed(counts.sum(axis=1))], prior)


def by_definition(coefficients, counts, design, prior):
    alpha = np.exp(design @ coefficients.T)
    sums, lengths = alpha.sum(axis=1), counts.sum(axis=1)
    total = (gammaln(sums) - gammaln(sums + lengths)).sum() + (gammaln(alpha + counts) - gammaln(alpha)).sum()
    return total - (((coefficients - prior.mean) / prior.scale) ** 2).sum() / 2


@pytest.mark.parametrize("scale", [1, 40, 3000])
@pytest.mark.parametrize("repeated", [False, True])
def test_likelihood_and_gradient_are_those_of_the_definition(scale, repeated):
    rng = np.random.default_rng(scale)
    counts = rng.poisson(scale * rng.random((30, 4)) ** 3)
    counts[4] = 0
    design = np.column_stack([np.ones(30), rng.normal(size=(30, 2))])
    if repeated:
        design[:] = design[rng.integers(0, 3, 30)]
    prior = CoefficientPrior(np.array([-1.0, 0, 0]), np.array([2.0, 1, 0.5]))
    coefficients = rng.normal(size=(4, 3))
    _, value, gradient, _ = posterior_of(counts, design, prior).at(coefficients)
    np.testing.assert_allclose(value, by_definition(coefficients, counts, design, prior), rtol=1e-10)
    for place in np.ndindex(4, 3):
        step = np.zeros((4, 3))
        step[place] = 1e-5
        ends = [by_definition(coefficients + s * step, counts, design, prior) for s in (1, -1)]
        np.testing.assert_allclose(gradient[place], (ends[0] - ends[1]) / 2e-5, rtol=1e-4, atol=1e-4 * scale)


def test_moves_have_the_moments_of_the_posterior_by_quadrature():
    rng = np.random.default_rng(1)
    counts = np.array([rng.multinomial(8, rng.dirichlet([0.4, 1.2])) for _ in range(12)])
    design, prior = np.ones((12, 1)), CoefficientPrior(np.array([-1.0]), np.array([1.0]))
    grid = np.linspace(-4.5, 4, 120)
    pairs = [np.array([[a], [b]]) for a in grid for b in grid]
    logs = np.array([by_definition(pair, counts, design, prior) for pair in pairs]).reshape(120, 120)
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    a, b = weights.sum(axis=1), weights.sum(axis=0)
    means = np.array([a @ grid, b @ grid])
    spreads = np.sqrt([a @ grid**2, b @ grid**2] - means**2)
    posterior = posterior_of(counts, design, prior)
    now, draws = posterior.at(np.array([[-1.0], [-1.0]])), []
    metric = posterior.curvature(now)
    for _ in range(6000):
        now, _ = trajectory(posterior, now, metric, 0.9, rng)
        draws.append(now.coefficients[:, 0])
    draws = np.array(draws)[100:]
    np.testing.assert_allclose(draws.mean(axis=0), means, atol=0.08)
    np.testing.assert_allclose(draws.std(axis=0), spreads, rtol=0.08)


def cover(n_sets, n_sweeps, exact):
    """Whether 90 % intervals hold coefficients and effects of generated corpora; and ranks."""
    inside, ranks = [], []
    for seed in range(n_sets):
        X, covariates, design, truth = generated(seed)
        groups = None if exact else 2
        model = dmr(max_iter=n_sweeps, exact=exact, n_groups=groups, random_state=seed)
        model.fit(X, covariates=covariates, seed_words=_SEEDS)
        low, high = interval_of_draws(model.coef_draws_, 0.9)
        effects, shares = model.effects(), shares_of(truth, design)
        slope = (shares * (truth[:, 1] - (shares @ truth[:, 1])[:, None])).mean(axis=0)
        with_g, without = design.copy(), design.copy()
        with_g[:, 2], without[:, 2] = 1, 0
        jump = (shares_of(truth, with_g) - shares_of(truth, without)).mean(axis=0)
        true_effects = np.array([slope, jump])
        inside.append(((low <= truth) & (truth <= high)).ravel().tolist())
        inside[-1] += ((effects.low <= true_effects) & (true_effects <= effects.high)).ravel().tolist()
        ranks.append((model.coef_draws_ < truth).mean(axis=0).ravel())
    return np.array(inside), np.array(ranks)


def shares_of(coefficients, design):
    alpha = np.exp(design @ coefficients.T)
    return alpha / alpha.sum(axis=1, keepdims=True)


def test_intervals_hold_what_generated_the_data():
    inside, ranks = cover(15, 600, exact=False)
    assert 0.75 < inside[:, :9].mean() < 0.98
    assert 0.75 < inside[:, 9:].mean() < 0.98
    assert abs(ranks.mean() - 0.5) < 0.12


@pytest.mark.slow
@pytest.mark.parametrize("exact", [True, False])
def test_intervals_of_90_per_cent_hold_so_many_of_200_data_sets(exact):
    inside, ranks = cover(200, 1000, exact)  # 50 draws
    low, high = stats.binom.interval(0.999, 200, 0.9)
    held = inside.sum(axis=0)
    assert ((held >= low) & (held <= high)).all(), held
    assert 0.88 < inside[:, :9].mean() < 0.92, inside[:, :9].mean()
    assert 0.88 < inside[:, 9:].mean() < 0.92, inside[:, 9:].mean()
    assert abs(ranks.mean() - 0.5) < 0.05


def test_with_coefficients_held_it_is_lda(data, monkeypatch):
    X, _ = data
    monkeypatch.setattr("stradask.algorithms.topics.samplers.annealing.ANNEALED_SWEEPS", 15)
    held = dmr(intercept_scale=1e-12, topic_word_prior=0.01, n_groups=3).fit(X)
    options = {"sampler": "gibbs", "doc_topic_prior": 0.3, "n_groups": 3, "max_iter": 40, "random_state": 0}
    plain = sd.LatentDirichletAllocation(_K, **options).fit(X)
    assert (held.word_topic_counts_ != plain.word_topic_counts_).nnz == 0
    np.testing.assert_allclose(held.log_likelihood_, plain.log_likelihood_, rtol=1e-6)
    np.testing.assert_allclose(held.doc_topic_, plain.doc_topic_, rtol=1e-5)
    np.testing.assert_allclose(held.transform(X), plain.transform(X), rtol=1e-4)
    np.testing.assert_allclose(held.score(X), plain.score(X), rtol=1e-5)


# The same bits, and files --------------------------------------------------------------------------------


@pytest.mark.parametrize("K", [3, 300])
def test_the_bits_of_one_thread_on_threads_disk_and_dask(data, K, tmp_path):
    X, covariates = data
    options = {"n_groups": 4, "max_iter": 22}
    one = dmr(K, **options).fit(X, covariates=covariates)
    same(one, dmr(K, **options, n_jobs=3).fit(X, covariates=covariates))
    same(one, dmr(K, **options, memmap_folder=tmp_path).fit(X, covariates=covariates))
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0") as cluster,
        Client(cluster),
    ):
        same(one, dmr(K, **options, engine="dask").fit(X, covariates=covariates))
    other = dmr(K, **options, random_state=1).fit(X, covariates=covariates)
    assert (other.coef_ != one.coef_).any()


def test_documents_in_files(data, tmp_path):
    X, covariates = data
    path = f"{tmp_path}/docword.txt"
    save_uci_bow(X, path)
    in_file = dmr(exact=True).fit(path, covariates=covariates)
    here = dmr(exact=True).fit(X, covariates=covariates)
    same(in_file, here)
    save_uci_bow(X, f"{tmp_path}/docword.b.txt")
    unsorted = [f"{tmp_path}/docword.txt", f"{tmp_path}/docword.b.txt"]
    with pytest.raises(DataError, match=r"covariates has a row a document.*sort X"):
        dmr().fit(unsorted, covariates=np.arange(240))
    with pytest.raises(DataError, match=r"doc_labels has a row a document.*sort X"):
        sd.LatentDirichletAllocation(_K).fit(unsorted, doc_labels=np.ones((240, _K)))
    dmr(max_iter=1).fit(unsorted[::-1], covariates=np.arange(240))
    with pytest.raises(AttributeError, match="transform"):
        in_file.doc_topic_  # noqa: B018


def test_a_checkpoint_goes_on_bitwise(data, tmp_path):
    X, covariates = data
    options = {"max_iter": 50, "n_groups": 2}
    whole = dmr(**options).fit(X, covariates=covariates)
    options["checkpoint"] = tmp_path
    dmr(**options).fit(X, covariates=covariates, callback=lambda info: info.round == 33)
    seen = []
    gone_on = dmr(**options).fit(X, covariates=covariates, callback=lambda info: seen.append(info.round))
    assert seen[0] == 34
    same(whole, gone_on)
    with pytest.raises(CheckpointMismatch, match="design"):
        dmr(**options).fit(X, covariates=covariates[["x", "g"]])
    with pytest.raises(CheckpointMismatch, match="prior"):
        dmr(**options, prior_scale=0.1).fit(X, covariates=covariates)


def test_a_model_file_with_other_names_of_coefficients_is_refused(data, tmp_path):
    X, covariates = data
    model = dmr().fit(X, covariates=covariates)
    model.coef_names_ = ["intercept", "x"]
    model.save(f"{tmp_path}/bad.npz")
    with pytest.raises(ModelFileError, match="makes no sense"):
        sd.load(f"{tmp_path}/bad.npz")


# Reading -------------------------------------------------------------------------------------------------


def test_effects_and_shares_by_definition(data):
    X, covariates = data
    model = dmr(max_iter=200).fit(X, covariates=covariates)  # ten draws
    assert model.coef_names_ == ["intercept", "x", "g", "colour=green", "colour=red"]
    design, draws = model.design_, model.coef_draws_
    effects = model.effects(level=0.8)
    found = []
    for draw in draws:
        base, red = design.copy(), design.copy()
        base[:, 3:], red[:, 3:] = 0, [0, 1]
        found.append((shares_of(draw, red) - shares_of(draw, base)).mean(axis=0))
    np.testing.assert_allclose(effects.mean[3], np.mean(found, axis=0), atol=1e-12)
    np.testing.assert_allclose(
        effects.high[3], np.sort(found, axis=0)[-1] * 0.9 + np.sort(found, axis=0)[-2] * 0.1, atol=1e-12
    )
    np.testing.assert_allclose(effects.mean.sum(axis=1), 0, atol=1e-12)
    step = 1e-6
    moved = design.copy()
    moved[:, 1] += step
    slopes = [(shares_of(d, moved) - shares_of(d, design)).mean(axis=0) / step for d in draws]
    np.testing.assert_allclose(effects.mean[0], np.mean(slopes, axis=0), rtol=1e-4, atol=1e-8)
    there = model.expected_shares(covariates[:2], level=0.8)
    np.testing.assert_allclose(there.mean, np.mean([shares_of(d, design[:2]) for d in draws], axis=0))
    apart = model.expected_shares(covariates[:2], minus=covariates[2:4], level=0.8)
    np.testing.assert_allclose(apart.mean.sum(axis=1), 0, atol=1e-12)
    assert str(effects).startswith("covariate     topic")
    with pytest.warns(UserWarning, match="rest on 10 draws.*max_iter=800"):
        model.effects(0.8)
    with pytest.raises(DataError, match=r"level=0.9 needs 19 draws, and there are 10: fit with max_iter=380"):
        model.effects()


def test_pictures(data):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    X, covariates = data
    model = dmr(max_iter=400).fit(X, covariates=covariates)
    assert model.effects().plot("colour=red").get_xlabel() == "change of the share with colour=red"
    axes = model.expected_shares(covariates[:3]).plot(x=[1, 2, 3], topics=[0, 2])
    assert len(axes.get_legend().get_texts()) == 2
    pyplot.close("all")


def test_new_documents_have_the_prior_of_their_covariates(data):
    X, covariates = data
    model = dmr(max_iter=100).fit(X, covariates=covariates, seed_words=_SEEDS)
    empty = sparse.csr_array((4, X.shape[1]), dtype=int)
    alpha = np.exp(model.design_[:4] @ model.coef_.T)
    expected = alpha / alpha.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(model.transform(empty, covariates=covariates[:4]), expected, rtol=1e-5)
    prior = model.doc_topic_prior_
    np.testing.assert_allclose(model.transform(empty), [prior / prior.sum()] * 4, rtol=1e-5)
    assert model.perplexity(X, covariates=covariates) < model.perplexity(X)
    averaged = dmr(max_iter=100).fit_transform(X, covariates=covariates, seed_words=_SEEDS)
    assert np.abs(averaged - model.doc_topic_).mean() < 0.1


def test_dask_arrays_and_files_are_transformed_with_their_covariates(data, tmp_path):
    da = pytest.importorskip("dask.array")
    X, covariates = data
    X = sparse.csr_array(X)
    save_uci_bow(X, tmp_path / "docword")
    cut = da.from_array(X.toarray(), chunks=(50, -1))
    unknown = cut[da.from_array(np.ones(X.shape[0], bool), chunks=50)]
    model = dmr(max_iter=10)
    shares = model.fit_transform(cut, covariates=covariates)
    expected = model.transform(X, covariates=covariates)
    assert isinstance(shares, da.Array)
    assert shares.chunks[0] == cut.chunks[0]
    np.testing.assert_allclose(shares.compute(), expected)
    for given in (unknown, tmp_path / "docword"):
        np.testing.assert_allclose(model.transform(given, covariates=covariates).compute(), expected)
    np.testing.assert_allclose(model.transform(cut).compute(), model.transform(X))
    with pytest.raises(DataError, match="covariates"):
        model.transform(cut, covariates=covariates[:7])


# Covariates ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "names"),
    [
        (None, ["intercept"]),
        (np.array([1.0, 2, 4]), ["intercept", "x0"]),
        (pd.Series(["a", "b", "a"], name="who"), ["intercept", "who=b"]),
        (pd.Categorical(["lo", "hi", "lo"], categories=["lo", "hi", "none"]), ["intercept", "x0=hi"]),
        ({"n": [1, 2, 3], "t": ["u", "u", "v"]}, ["intercept", "n", "t=v"]),
        (np.array([[1, 2], [3, 4], [5, 9]]), ["intercept", "x0", "x1"]),
    ],
)
def test_forms_of_covariates(given, names):
    known = Covariates.of(given, None, 3)
    assert known.names == names
    design = known.design(given, 3)
    assert design.shape == (3, len(names))
    np.testing.assert_array_equal(Covariates.of_dict(known.as_dict()).design(given, 3), design)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([1, 2], "covariates have 2 rows.*X has 120"),
        ({"a": np.ones(120)}, "'a' is 1 in all documents.*leave it out"),
        ({"a": ["u"] * 120}, "'a' is 'u' in all documents"),
        ({"a": [np.nan, *range(119)]}, "'a' holds nan in row 0"),
        ({"a": [None, *"u" * 119]}, "'a' has 1 missing values, the first in row 0"),
        ({"a": list(map(str, range(120)))}, "120 different values"),
        ({"a": np.array(["2020-01-01"] * 120, "M8[D]")}, "dates"),
        (np.zeros((2, 2, 120)), "3 dimensions"),
        ({"a": 1e200 * np.arange(120)}, "'a' goes from 0 to 1.19e\\+202"),
        ({"a": np.where(np.arange(120) % 2, 0.3, 0.1 + 0.2)}, "'a' goes from 0.3 to 0.3,"),
        ({"a": 1e-200 * np.arange(120)}, "'a' goes from 0 to 1.19e-198"),
    ],
)
def test_covariates_that_are_refused(data, given, message):
    with pytest.raises(DataError, match=message):
        dmr().fit(data[0], covariates=given)


def test_rows_in_another_order_are_refused(data):
    frame, covariates = pd.DataFrame(data[0].toarray()).add_prefix("w"), data[1]
    model = dmr(max_iter=1).fit(frame, covariates=covariates[["x"]])
    for given in (covariates[::-1], covariates["x"][::-1], {"x": covariates["x"][::-1]}):
        for use in (dmr().fit, model.transform, model.score):
            with pytest.raises(DataError, match="index of X in another order"):
                use(frame, covariates=given)
    dmr(max_iter=1).fit(frame, covariates=covariates.set_index(np.arange(120) + 1000))


def test_priors_out_of_range_and_wrong_names_are_refused(data):
    twice = {"a": data[1]["x"], "b": data[1]["x"]}
    for name in ("prior_scale", "intercept_scale"):
        for wrong in (1e-200, 1e8):
            with pytest.raises(ValueError, match=name):
                dmr(**{name: wrong}).fit(data[0], covariates=twice)
    assert np.isfinite(dmr(prior_scale=1e3).fit(data[0], covariates=twice).coef_).all()
    for wrong in ("doc_labels", "adds"):
        with pytest.raises(TypeError, match=wrong):
            dmr().fit_transform(data[0], covariates=twice, **{wrong: np.ones((120, _K))})


def test_one_warning_counts_the_words_that_the_fit_had_not(data):
    X, covariates = data[0].tolil(), data[1][["x"]]
    X[:, 0] = 0
    model = dmr(max_iter=1).fit(sparse.csr_array(X), covariates=covariates)
    with pytest.warns(UserWarning, match="of 1 words that did not occur") as caught:
        model.transform(data[0], covariates=covariates)
    assert len(caught) == 1


def test_new_covariates_that_are_refused(data):
    X, covariates = data
    model = dmr().fit(X, covariates=covariates)
    with pytest.raises(DataError, match="lack the column 'g'"):
        model.transform(X, covariates=covariates.drop(columns="g"))
    with pytest.raises(DataError, match="'pink' in row 0, which no document"):
        model.score(X, covariates=covariates.assign(colour="pink"))
    with pytest.raises(DataError, match="was numbers"):
        model.transform(X, covariates=covariates.assign(g="a"))
    with pytest.raises(DataError, match="without covariates"):
        dmr(max_iter=1).fit(X).effects()
    with pytest.raises(DataError, match="level"):
        model.effects(level=90)
    with pytest.raises(DataError, match="minus has 2 rows"):
        model.expected_shares(covariates[:3], minus=covariates[:2], level=0.3)


def test_levels_of_a_formula_that_no_document_has_make_no_column():
    pytest.importorskip("formulaic")
    frame = pd.DataFrame({"x": [1.0, 2, 3], "colour": pd.Categorical(list("rgg"), ["b", "g", "pink", "r"])})
    known = Covariates.of(frame, "x + C(colour)", 3)
    assert known.names[1:] == ["x", "C(colour)[T.r]"]
    np.testing.assert_array_equal(known.design(frame, 3)[:, -1], [1, 0, 0])


def test_formulas(data, tmp_path):
    pytest.importorskip("formulaic")
    X, covariates = data
    model = dmr(formula="bs(x, df=4) + C(colour)").fit(X, covariates=covariates)
    assert model.coef_.shape == (_K, 7)
    grid = pd.DataFrame({"x": [-0.5, 0.5], "colour": ["red", "green"]})
    found = model.expected_shares(grid, level=0.3)
    np.testing.assert_allclose(found.mean.sum(axis=1), 1)
    again = sd.load(model.save(f"{tmp_path}/m.npz") and f"{tmp_path}/m.npz")
    np.testing.assert_array_equal(again.expected_shares(grid, level=0.3).mean, found.mean)
    np.testing.assert_array_equal(
        again.transform(X[:3], covariates=covariates[:3]), model.transform(X[:3], covariates=covariates[:3])
    )
    del again.covariates_["learned"]  # as in files of older versions
    with pytest.raises(DataError, match="pass covariates as a matrix"):
        again.expected_shares(grid, level=0.3)
    matrix = model._reader.design(grid, 2)[:, 1:]
    np.testing.assert_allclose(again.expected_shares(matrix, level=0.3).mean, found.mean)
    with pytest.raises(DataError, match="left side"):
        dmr(formula="g ~ x").fit(X, covariates=covariates)
    with pytest.raises(DataError, match="names"):
        dmr(formula="x").fit(X, covariates=np.ones(120))


def test_a_formula_says_what_the_columns_alone_say(data):
    pytest.importorskip("formulaic")
    X, covariates = data
    alone = dmr().fit(X, covariates=covariates[["x", "colour"]])
    by_formula = dmr(formula="x + C(colour)").fit(X, covariates=covariates)
    same(alone, by_formula)
    np.testing.assert_allclose(alone.effects(0.3).mean, by_formula.effects(0.3).mean, atol=1e-12)
    with pytest.raises(DataError, match=r"do not fit formula.*pink"):
        by_formula.transform(X, covariates=covariates.assign(colour="pink"))
    x = pd.Series(covariates["x"].to_numpy(), index=range(120)[::-1])  # matched by place, whatever the index
    known = Covariates.of({"x": x, "colour": covariates["colour"]}, "x + C(colour)", 120)
    np.testing.assert_array_equal(known.design(covariates, 120)[:, 1], covariates["x"])
    np.testing.assert_array_equal(known.design({"x": x, "colour": covariates["colour"]}, 120)[:, 1], x)


def test_a_formula_of_an_altered_file_does_not_run(data, tmp_path):
    pytest.importorskip("formulaic")
    X, covariates = data
    model = dmr(formula="x + C(colour)").fit(X, covariates=covariates)
    for formula, message in [("print(x) + C(colour)", "runs only arithmetic"), ("x", "other columns")]:
        model.covariates_["formula"] = formula
        again = sd.load(model.save(f"{tmp_path}/m.npz") and f"{tmp_path}/m.npz")
        with pytest.raises(DataError, match=message):
            again.expected_shares(covariates[:2], level=0.3)


@pytest.mark.parametrize("formula", ["x + year", "x + (", "np.log(x)"])
def test_formulas_that_are_refused(data, formula):
    pytest.importorskip("formulaic")
    with pytest.raises(DataError, match="covariates do not fit formula="), np.errstate(invalid="ignore"):
        dmr(formula=formula).fit(data[0], covariates=data[1].assign(x=-1.0 - data[1]["g"]))


def test_a_formula_without_formulaic(data, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "formulaic", None)
    with pytest.raises(StradaskError, match="pip install formulaic"):
        dmr(formula="x").fit(data[0], covariates=data[1])
