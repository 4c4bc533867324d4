"""Topics over slices of time: enumeration, modes, generated truth, bits, and bad input."""

import itertools

import dask.array
import matplotlib.figure
import numpy as np
import pytest
from distributed import Client, LocalCluster
from scipy import sparse
from scipy.optimize import linear_sum_assignment, minimize
from scipy.special import gammaln, logsumexp

import stradask as sd
from stradask.algorithms.topics.corpus.shard_input import corpus_of_matrix
from stradask.algorithms.topics.reading.over_time import beta_interval
from stradask.algorithms.topics.samplers.chains import WordChains, expected_moves, log_deviations, raised
from stradask.algorithms.topics.samplers.slices import SlicedGibbs, _added, information
from stradask.errors import CheckpointMismatch, DataError
from stradask.scheduler.engine import run
from stradask.scheduler.schedules.static import StaticSchedule


class Kept:
    """What a run's chain visits: the topics of documents."""

    def __init__(self, every):
        self.every, self.found = every, []

    def take(self, sweep, collect):
        if sweep % self.every == 0:
            self.found.append(str([own.toarray().tolist() for own in collect().documents]))

    def arrays(self):
        return {}


def program_of(slices, n_topics, alpha, beta, first, **options):
    corpora = [
        None if X is None else corpus_of_matrix(sparse.csr_array(np.asarray(X, np.int32)), 1) for X in slices
    ]
    return SlicedGibbs(corpora, n_topics, alpha, beta, 0, first=sparse.csr_array(first), **options)


def test_tokens_are_drawn_from_their_posterior_given_the_topics(monkeypatch):
    monkeypatch.setattr(SlicedGibbs, "raises_after", lambda self, swept: False)
    alpha, slices = np.array([0.7, 0.4]), [[[2, 1], [0, 2]], None, [[1, 2]]]
    program = program_of(slices, 2, alpha, 0.1, [[3, 1], [1, 4]], variance=0.1, max_rounds=3000)
    rng = np.random.default_rng(0)
    phi = rng.dirichlet([2, 2], (3, 2))  # slice, topic, word
    program.topics = [WordChains.of(np.arange(2), np.log(phi[:, k].T), np.zeros(3), 2) for k in range(2)]
    kept = Kept(3)
    run(program, StaticSchedule(1), max_rounds=3000, draws=kept)
    tokens = [
        (t, d, w) for t in (0, 2) for d, row in enumerate(slices[t]) for w in range(2) for _ in range(row[w])
    ]
    expected: dict = {}
    for z in itertools.product(range(2), repeat=len(tokens)):
        documents = [np.zeros((2, 2), int), np.zeros((1, 2), int)]
        log_p = 0.0
        for (t, d, w), k in zip(tokens, z, strict=True):
            documents[t // 2][d, k] += 1
            log_p += np.log(phi[t, k, w])
        log_p += sum(gammaln(own + alpha).sum() for own in documents)
        place = str([own.tolist() for own in documents])
        expected[place] = expected.get(place, 0.0) + np.exp(log_p)
    p = np.array(list(expected.values())) / sum(expected.values())
    count = np.array([kept.found.count(place) for place in expected])
    assert count.sum() == len(kept.found) == 1000
    z = (count - p * 1000) / np.sqrt(p * (1 - p) * 1000)
    assert np.abs(z[p > 0.01]).max() < 4.5
    assert (z[p > 0.01] ** 2).mean() < 2


def test_topics_reach_the_mode_that_a_minimiser_finds():
    rng = np.random.default_rng(0)
    n_words, n_slices, beta, variance = 7, 5, 0.2, 0.05
    counts = rng.poisson(3, (n_words, n_slices)).astype(float)
    counts[5:] = 0  # words that the topic does not have share a chain
    counts[:, 2] = 0  # a slice without documents

    def loss(flat):
        eta = flat.reshape(n_words, n_slices)
        log_phi = eta - logsumexp(eta, axis=0)
        return -((counts + beta / n_slices) * log_phi).sum() + (np.diff(eta) ** 2).sum() / (2 * variance)

    found = minimize(
        loss, np.zeros(counts.size), method="L-BFGS-B", options={"maxiter": 10_000, "ftol": 1e-15}
    )
    begin = WordChains.of(np.arange(3), np.zeros((3, n_slices)), np.full(n_slices, -1.0), n_words)
    values, chain = [], begin
    for _ in range(150):
        chain = raised(chain, np.arange(5), counts[:5], beta, n_words, variance, 1)
        values.append(loss(chain.of_words(np.arange(n_words)).ravel()))
    assert (np.diff(values) < 1e-4).all()  # float32 holds the chains
    assert abs(values[-1] - found.fun) < 1e-3
    eta = found.x.reshape(n_words, n_slices)
    mine = chain.of_words(np.arange(n_words)) - chain.levels
    np.testing.assert_allclose(mine, eta - logsumexp(eta, axis=0), atol=0.02)


def test_moves_and_deviations_are_those_of_the_inverse_hessian():
    rng = np.random.default_rng(1)
    eta, rates, variance = rng.normal(size=(3, 6)), rng.gamma(2, size=6), 0.3
    chain = WordChains.of(np.arange(3), eta, np.zeros(6), 3)
    moves, n_moves = expected_moves(chain, np.full((3, 6), 50.0), rates, variance)
    total, deviations = 0.0, np.empty((3, 6))
    difference = np.diff(np.eye(6), axis=0)
    for w, own in enumerate(chain.eta.astype(float)):
        covariance = np.linalg.inv(np.diag(rates * np.exp(own)) + difference.T @ difference / variance)
        total += (np.diff(own) ** 2).sum() + np.trace(difference @ covariance @ difference.T)
        deviations[w] = np.sqrt(np.diag(covariance))
    assert n_moves == 15
    np.testing.assert_allclose(moves, total, rtol=1e-6)
    np.testing.assert_allclose(log_deviations(chain, np.arange(3), rates, variance), deviations, rtol=1e-6)


def model(n_components=2, **options):
    return sd.DynamicTopicModel(n_components, **({"random_state": 0, "max_iter": 24} | options))


def drawn(n_slices=10, n_words=40, n_documents=24, sigma=0.3, seed=0):
    """Documents of three topics that change as the model says, and the topics."""
    rng = np.random.default_rng(seed)
    eta = np.cumsum(rng.normal(0, sigma, (n_slices, 3, n_words)), axis=0) + rng.normal(0, 1.5, (3, n_words))
    phi = np.exp(eta) / np.exp(eta).sum(axis=2, keepdims=True)
    slices = np.repeat(np.arange(n_slices), n_documents)
    X = [rng.multinomial(60, rng.dirichlet([0.4] * 3) @ phi[t]) for t in slices]
    return sparse.csr_array(np.array(X, np.int32)), slices, phi


@pytest.fixture(scope="module")
def corpus():
    return drawn()


def topics_of(fitted):
    return np.array([fitted.at(label).topic_word_ for label in fitted.slices_])


@pytest.mark.slow
@pytest.mark.parametrize("sigma", [0.1, 0.2])
def test_a_fitted_drift_is_that_of_generated_topics(sigma):
    fitted = []
    for seed in range(4):
        X, slices, _ = drawn(20, n_documents=40, sigma=sigma, seed=seed)
        fitted.append(model(3, max_iter=200, drift=None).fit(X, slices=slices).drift_)
    np.testing.assert_allclose(np.mean(fitted), sigma, rtol=0.15)


def test_generated_topics_come_back_slice_by_slice(corpus):
    X, slices, phi = corpus
    order = np.random.default_rng(0).permutation(len(slices))
    fitted = model(3, max_iter=80, drift=None).fit(X[order], slices=1990 + slices[order])
    assert fitted.slices_.tolist() == list(range(1990, 2000))
    assert 0.2 < fitted.drift_ < 0.4
    found = topics_of(fitted)
    distance = np.abs(found[:, :, None] - phi[:, None]).sum(axis=(0, 3)) / 2 / len(phi)
    rows, columns = linear_sum_assignment(distance)
    assert distance[rows, columns].max() < 0.12  # mean total variation
    still = topics_of(model(3, drift=0.001, max_iter=80).fit(X, slices=slices))
    apart = np.abs(still[:, :, None] - phi[:, None]).sum(axis=(0, 3)) / 2 / len(phi)
    assert distance[rows, columns].mean() < 0.75 * apart[linear_sum_assignment(apart)].mean()
    # Intervals hold the words that a topic has.
    for k, true in zip(rows, columns, strict=True):
        followed = fitted.over_time(int(k), np.arange(40))
        within = (followed.low <= phi[:, true]) & (phi[:, true] <= followed.high)
        assert within[phi[:, true] > 0.01].mean() > 0.6
    shares = fitted.shares_over_time()
    assert shares.groups.tolist() == fitted.slices_.tolist()
    np.testing.assert_allclose(shares.shares.sum(axis=1), 1)
    assert shares.tokens.sum() == X.sum() == fitted.word_topic_counts_.sum()
    np.testing.assert_array_equal(
        np.asarray(fitted.doc_topic_counts_.sum(axis=1)), np.asarray(X[order].sum(axis=1))
    )
    np.testing.assert_array_equal(
        np.asarray(fitted.word_topic_counts_.sum(axis=1)), np.asarray(X.sum(axis=0))
    )


def test_a_still_chain_is_one_model_and_a_free_one_fits_slices_alone(corpus):
    X, slices, _ = corpus
    still, free = (model(3, drift=drift).fit(X, slices=slices) for drift in (0.001, 1.0))
    moved = [np.abs(np.diff(topics_of(own), axis=0)).sum(axis=2).mean() for own in (still, free)]
    assert moved[0] < 0.01 < 0.2 < moved[1]
    assert still.drift_ == 0.001
    counts = still.slice_totals_.sum(axis=1)
    np.testing.assert_allclose(counts.sum(), X.sum())


def same(a, b):
    for own, other in zip(a.chains_, b.chains_, strict=True):
        assert all((own[name] == other[name]).all() for name in ("words", "eta", "others"))
    assert (a.word_topic_counts_ != b.word_topic_counts_).nnz == 0
    assert (a.doc_topic_counts_ != b.doc_topic_counts_).nnz == 0
    np.testing.assert_array_equal(a.log_likelihood_, b.log_likelihood_)


def test_bits_are_the_same_on_threads_a_cluster_and_after_a_kill(corpus, tmp_path):
    X, slices, _ = corpus
    whole = model().fit(X, slices=slices)
    same(model(n_jobs=2).fit(X, slices=slices), whole)

    def killed(info):
        if info.round == 15:
            raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        model(checkpoint=tmp_path).fit(X, slices=slices, callback=killed)
    same(model(checkpoint=tmp_path).fit(X, slices=slices), whole)
    with pytest.raises(CheckpointMismatch):
        model(checkpoint=tmp_path, drift=0.3).fit(X, slices=slices)
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0") as cluster,
        Client(cluster),
    ):
        same(model(engine="dask").fit(X, slices=slices), whole)


def test_slices_may_be_dates_periods_categories_or_an_index(corpus):
    pandas = pytest.importorskip("pandas")
    X, slices, _ = corpus
    options = {"max_iter": 4}
    days = np.datetime64("2001-01-01") + 700 * slices
    dated = model(**options).fit(X, slices=days)
    assert dated.slices_.dtype.kind == "M"
    assert dated.at("2001-01-01").doc_topic_counts_.shape[0] == 24
    periods = pandas.Series(days).dt.to_period("Y")
    spaced = model(**options).fit(X, slices=periods)
    years = np.unique([str(year) for year in periods])
    assert spaced.slices_.tolist() == [str(year) for year in range(2001, int(years[-1]) + 1)]
    assert len(spaced.slices_) > len(years)  # years without documents
    gap = next(year for year in spaced.slices_ if year not in years)
    np.testing.assert_allclose(spaced.at(gap).topic_word_.sum(axis=1), 1)
    assert spaced.shares_over_time().groups.tolist() == years.tolist()
    frame = pandas.DataFrame(X.toarray(), index=pandas.PeriodIndex(periods))
    same(model(**options).fit(frame), spaced)
    named = pandas.Categorical.from_codes(slices, list("zbacqefghijk"))
    ordered = model(**options).fit(X, slices=named)
    assert ordered.slices_.tolist() == list("zbacqefghijk")
    assert str(ordered.over_time(0, n_words=3)).startswith("topic 0\nz")


def test_times_are_put_into_units_and_few_documents_are_refused(corpus):
    X, slices, _ = corpus
    times = np.datetime64("2003-12-31T23:00") + 45 * np.arange(240) * np.timedelta64(1, "h") * 24
    with pytest.warns(UserWarning, match=r"each year is a slice, 31 in all, 31 with documents \(median 8\)"):
        fitted = model(max_iter=2).fit(X, slices=times)
    assert fitted.slice_unit_ == "year"
    assert fitted.slices_.tolist() == [str(year) for year in range(2003, 2034)]
    np.testing.assert_array_equal(
        fitted.transform(X[:9], slices=times[:9]), fitted.transform(X[:9], slices=["2003"] + ["2004"] * 8)
    )
    assert fitted.at(times[5]).doc_topic_counts_.shape == fitted.at("5 May 2004").doc_topic_counts_.shape
    months = np.char.add((1 + slices).astype(str), "/2004")
    assert model(max_iter=2).fit(X, slices=months).slices_[[0, 1, -1]].tolist() == [
        "1/2004", "2/2004", "10/2004",
    ]  # fmt: skip
    for few in (np.arange(240) // 4, times.astype(np.int64)):
        with pytest.raises(DataError, match=r"documents in the median: 5 or more are needed. Take longer"):
            model().fit(X, slices=few)


def test_one_slice_is_a_topic_model(corpus):
    X, slices, _ = corpus
    alone = model(3).fit(X[slices == 0], slices=np.zeros(24))
    assert alone.slice_totals_.shape == (3, 1)
    np.testing.assert_allclose(alone.fit_transform(X[:24], slices=np.zeros(24)).sum(axis=1), 1)


@pytest.mark.parametrize(
    ("slices", "message"),
    [
        (None, "slices is missing"),
        (np.zeros(5), r"slices has the shape \(5,\)"),
        (np.r_[np.nan, np.zeros(239)], "slices has no label for document 0"),
        ([None] + ["a"] * 239, "slices has no label for document 0"),
        (np.zeros((240, 2)), "slices has the shape"),
        (np.full(240, 1j), "pass dates, numbers, text"),
    ],
)
def test_odd_slices_are_named(corpus, slices, message):
    with pytest.raises(DataError, match=message):
        model().fit(corpus[0], slices=slices)


def test_periods_and_frames_that_do_not_fit_are_named(corpus):
    pandas = pytest.importorskip("pandas")
    X, slices, _ = corpus
    far = pandas.PeriodIndex(["1700-01-01"] + ["2020-01-01"] * 239, freq="D")
    with pytest.raises(DataError, match="take longer ones"):
        model().fit(X, slices=far)
    with pytest.raises(DataError, match="no label for document 3"):
        model().fit(X, slices=pandas.PeriodIndex(["1000"] * 3 + [pandas.NaT] + ["2001"] * 236, freq="Y"))
    frame = pandas.DataFrame(X.toarray(), index=np.arange(240))
    with pytest.raises(DataError, match="index of X in another order"):
        model().fit(frame, slices=pandas.Series(slices, index=np.arange(240)[::-1]))
    with pytest.raises(DataError, match="slices is missing"):
        model().fit(frame)


def test_what_a_model_does_not_know_is_named(corpus):
    X, slices, _ = corpus
    fitted = model().fit(X, slices=slices)
    with pytest.raises(DataError, match="slice='99' is none of the model's: 0, 1, 2"):
        fitted.at(99)
    with pytest.raises(DataError, match="slice='70' is none"):
        fitted.transform(X[:2], slices=[70, 0])
    with pytest.raises(DataError, match="there is no topic 5"):
        fitted.over_time(5)
    np.testing.assert_array_equal(fitted.transform(X[:3]), fitted.at(9).transform(X[:3]))
    followed = fitted.over_time(0, [3, 5])
    np.testing.assert_allclose(followed.probabilities, topics_of(fitted)[:, 0, [3, 5]], rtol=1e-6)
    axes = matplotlib.figure.Figure().subplots()
    assert len(followed.plot(axes).lines) == 2
    fitted.doc_slices_ = np.full(240, 99)
    with pytest.raises(DataError, match="doc_slices_"):
        fitted._check_state()


def test_files_and_collections_give_the_model_of_their_matrix(corpus, tmp_path):
    X, slices, _ = corpus
    whole = model(max_iter=3).fit(X, slices=slices)
    names = [tmp_path / f"docword.{part}.txt" for part in "ab"]
    for rows, name in zip((X[:100], X[100:]), names, strict=True):
        sd.datasets.save_uci_bow(rows, name)
    blocks = [dask.delayed(X[:30]), dask.delayed(X[30:])]
    array = dask.array.from_array(X.toarray(), chunks=(70, -1))
    for given in (names, f"{tmp_path}/docword.*.txt", blocks, array):
        own = model(max_iter=3).fit(given, slices=slices)
        np.testing.assert_array_equal(topics_of(own), topics_of(whole))
        assert (own.doc_topic_counts_ != whole.doc_topic_counts_).nnz == 0
        assert own.n_features_in_ == X.shape[1]
    shares = model(max_iter=3).fit_transform(names, slices=slices)
    np.testing.assert_array_equal(shares, model(max_iter=3).fit_transform(X, slices=slices))
    with pytest.raises(DataError, match="slices"):
        model().fit(names, slices=slices[:-1])
    with pytest.raises(DataError, match="sort X"):
        model().fit(names[::-1], slices=slices)
    with pytest.raises(DataError, match="n_features=99"):
        model().fit(X, slices=slices, n_features=99)
    with pytest.raises(DataError, match="slices is missing"):
        model().fit(names)


def test_unknown_topics_of_tokens_leave_a_part_of_the_information():
    rng = np.random.default_rng(0)
    tokens = rng.integers(5, 60, (3, 40))  # of words by slice: all in the topic, half of them, or a tenth
    parts = np.array([1.0, 0.5, 0.1])
    drawn = rng.binomial(tokens, parts[:, None], (400, 3, 40)).astype(float)
    sums = (np.zeros(0, np.int32), np.zeros((0, 40)), np.zeros(0))
    for counts in drawn:
        sums = _added(sums, np.arange(3), counts)
    # Tokens of probability p have the mean p and the variance p (1 - p): the part p is left.
    np.testing.assert_allclose(information(sums[1], sums[2], 400), parts, atol=0.02)
    np.testing.assert_array_equal(information(sums[1], sums[2], 3), 1)


def test_intervals_of_counts_hold_as_often_as_they_say():
    rng = np.random.default_rng(0)
    for true in (0.003, 0.05, 0.4, 0.97):
        n = np.maximum(rng.binomial(300, true, 4_000), 0.01)  # tokens of 300, of which the prior is worth .01
        low, high = beta_interval(n / 300, 1 / n, 0.9)
        assert 0.89 < np.mean((low <= true) & (true <= high)) < 0.99
        assert (low >= 0).all()
        assert (low <= n / 300).all()
        assert (n / 300 <= high).all()
        assert (high <= 1).all()


@pytest.mark.slow
def test_intervals_hold_the_probabilities_of_generated_topics():
    held = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        eta = np.log(rng.dirichlet(np.full(100, 0.5), 4) + 1e-4)
        steps = rng.normal(0, 0.2, (10, *eta.shape))
        steps[0] = 0
        truth = np.exp(eta + np.cumsum(steps, axis=0))
        truth /= truth.sum(axis=2, keepdims=True)
        X = np.array(
            [rng.multinomial(60, rng.dirichlet(np.full(4, 0.3)) @ p) for p in truth for _ in range(60)]
        )
        years = np.repeat(np.arange(10), 60)
        model = sd.DynamicTopicModel(4, drift=0.2, doc_topic_prior=0.3, random_state=seed)
        model.fit(X, slices=years)
        found = np.array([model.at(t).topic_word_ for t in range(10)])
        likeness = np.einsum("tiw,tjw->ij", np.sqrt(found), np.sqrt(truth))
        for i, j in zip(*linear_sum_assignment(-likeness), strict=True):
            followed = model.over_time(int(i), list(range(100)))
            own = truth[:, j]
            held.append(((followed.low <= own) & (own <= followed.high))[own > 0.01].mean())
    assert 0.85 < np.mean(held) < 0.95
