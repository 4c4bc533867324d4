"""Generated data against the laws they are said to follow.

Thresholds come from sampling theory: p-values of 1e-3 with fixed seeds, or five standard errors.
Where a check could be blind, it is also given data with a planted error, and must object.
"""

import numpy as np
import pytest
from scipy import sparse, stats

from stradask.datasets import (
    _common,
    generators,
    make_lda_corpus,
    make_ratings,
    make_sparse_classification,
    make_sparse_regression,
)
from stradask.errors import DataError


def assert_canonical(X):
    fresh = type(X)((X.data, X.indices, X.indptr), shape=X.shape)  # has not been told, and looks
    assert fresh.has_canonical_format
    assert (X.data != 0).all()
    X.check_format(full_check=True)


def within(values, expected, errors=5.0):
    """Whether the mean of independent values is the expected one, to so many standard errors."""
    values = np.asarray(values, dtype=float)
    return abs(values.mean() - expected) < errors * values.std(ddof=1) / np.sqrt(len(values))


# ---------------------------------------------------------------------------------- text


def word_law(X, topic_word, doc_topic):
    """p-value of the word counts given mixtures and topics.

    Given its length n and mixture, a document's words are multinomial with p = mixture @ topics.
    Every document has a law of its own, so cells are documents x groups of words: those likeliest
    in the same topic. Only documents that expect five tokens in each cell are counted.
    """
    expected = (doc_topic @ topic_word) * X.sum(axis=1).A1[:, None]
    groups = [np.flatnonzero(topic_word.argmax(axis=0) == k) for k in range(len(topic_word))]
    seen = np.column_stack([X[:, words].sum(axis=1).A1 for words in groups])
    cells = np.column_stack([expected[:, words].sum(axis=1) for words in groups])
    good = cells.min(axis=1) >= 5
    assert good.sum() > 200
    statistic = ((seen - cells) ** 2 / cells)[good].sum()
    return stats.chi2.sf(statistic, good.sum() * (len(groups) - 1))


def test_words_of_documents_follow_mixtures_and_topics():
    X, topic_word, doc_topic = make_lda_corpus(
        2000, 60, 4, mean_length=300, doc_topic_prior=0.5, n_common_words=1, word_spread=0.3, random_state=1
    )
    assert word_law(X, topic_word, doc_topic) > 1e-3
    # Planted: 8 % of the probability of every topic is spread evenly, mixtures are sharper than
    # they should be, or 20 documents of 2000 have the mixtures of others.
    assert word_law(X, 0.92 * topic_word + 0.08 / 60, doc_topic) < 1e-3
    sharp = doc_topic**1.2
    assert word_law(X, topic_word, sharp / sharp.sum(axis=1, keepdims=True)) < 1e-3
    exchanged = doc_topic.copy()
    exchanged[:20] = doc_topic[20:40]
    assert word_law(X, topic_word, exchanged) < 1e-3


def test_each_word_is_as_frequent_as_its_topic_says():
    # One topic: the corpus is one multinomial sample, and every word is a cell.
    X, topic_word, _ = make_lda_corpus(400, 50, 1, mean_length=200, word_spread=1.0, random_state=2)
    seen = X.sum(axis=0).A1
    expected = topic_word[0] * seen.sum()
    cells = expected >= 5
    assert cells.sum() > 40
    # conditional on falling into these cells
    expected = expected[cells] * seen[cells].sum() / expected[cells].sum()
    assert stats.chisquare(seen[cells], expected).pvalue > 1e-3
    assert stats.chisquare(np.roll(seen[cells], 1), expected).pvalue < 1e-6


def test_lengths_are_log_normal():
    X, _, _ = make_lda_corpus(20_000, 20, 1, mean_length=200, length_sigma=0.6, random_state=3)
    lengths = X.sum(axis=1).A1
    assert within(lengths, 200)
    assert not within(lengths, 200 * np.exp(0.6**2 / 2))  # the mean without its correction
    assert within((lengths - 200.0) ** 2, 200**2 * (np.exp(0.6**2) - 1))
    assert stats.kstest(np.log(lengths), stats.norm(np.log(200) - 0.18, 0.6).cdf).pvalue > 1e-3


def test_equal_lengths_and_short_ones():
    X, _, _ = make_lda_corpus(50, 30, 2, mean_length=12.4, length_sigma=0, random_state=0)
    assert set(X.sum(axis=1).A1) == {12}
    X, _, _ = make_lda_corpus(2000, 30, 2, mean_length=1, length_sigma=2, random_state=0)
    assert X.sum(axis=1).A1.min() == 1


@pytest.mark.parametrize("prior", [0.1, [0.2, 1.0, 3.0]])
def test_mixtures_are_dirichlet(prior):
    _, _, theta = make_lda_corpus(8000, 10, 3, mean_length=5, doc_topic_prior=prior, random_state=4)
    alpha = np.broadcast_to(prior, 3)
    total = alpha.sum()
    for k in range(3):
        mean = alpha[k] / total
        assert within(theta[:, k], mean)
        assert within((theta[:, k] - mean) ** 2, mean * (1 - mean) / (total + 1))
    assert within(theta[:, 0] * theta[:, 1], alpha[0] * alpha[1] / (total * (total + 1)))
    np.testing.assert_allclose(theta.sum(axis=1), 1)


def test_vocabulary_is_zipfian_and_topics_share_common_words_only():
    _, topics, _ = make_lda_corpus(2, 5000, 40, n_common_words=50, random_state=5)
    np.testing.assert_allclose(topics.sum(axis=1), 1)
    mean = np.sort(topics.mean(axis=0))[::-1]
    ranks = np.arange(20, 2000)
    slope = np.polyfit(np.log(ranks), np.log(mean[ranks]), 1)[0]
    assert -1.4 < slope < -0.8  # sorting noisy frequencies steepens the law of exponent 1.05
    order = np.argsort(-topics.mean(axis=0))
    share = topics / topics.sum(axis=0)  # of each word among topics: even where common
    common, rare = share[:, order[:10]].max(axis=0), share[:, order[1000:2000]].max(axis=0)
    assert common.max() < 0.15
    assert np.median(rare) > 0.3
    assert abs(np.argsort(order)[:100].mean() - 2500) < 5 * 1443 / 10  # shuffled over the columns


def test_corpus_is_canonical_and_narrow():
    X, _, _ = make_lda_corpus(300, 400, 5, random_state=0)
    assert isinstance(X, sparse.csr_matrix)
    assert X.dtype == X.indices.dtype == X.indptr.dtype == np.int32
    assert_canonical(X)


def test_batches_do_not_show(monkeypatch):
    whole = make_lda_corpus(200, 100, 5, random_state=7)
    for tokens in (1, 37, 5000):
        monkeypatch.setattr(generators, "_BATCH_TOKENS", tokens)
        for one, other in zip(whole, make_lda_corpus(200, 100, 5, random_state=7), strict=True):
            assert (one != other).sum() == 0


# -------------------------------------------------------------- regression, classification


def test_regression_is_what_it_says():
    X, y, coef = make_sparse_regression(3000, 500, n_informative=12, density=0.02, snr=4, random_state=1)
    assert isinstance(X, sparse.csc_matrix)
    assert_canonical(X)
    assert X.nnz == 0.02 * 3000 * 500
    assert np.diff(X.indptr).min() >= 1
    support = np.flatnonzero(coef)
    assert len(support) == 12
    assert (np.abs(coef[support]) >= 0.5).all()
    assert (np.abs(coef[support]) <= 1.5).all()
    signal = X @ coef
    noise = y - signal
    assert within(noise**2, signal.var() / 4)
    assert within(noise, 0)
    assert not within(noise**2, signal.var() / 5)


def test_no_noise_no_signal():
    X, y, coef = make_sparse_regression(50, 30, n_informative=3, density=0.1, snr=np.inf, random_state=0)
    np.testing.assert_array_equal(y, X @ coef)
    _, y, coef = make_sparse_regression(4000, 5, n_informative=0, density=0.1, random_state=0)
    assert not coef.any()
    assert within(y**2, 1)


def test_columns_fill_rows_by_a_power_law():
    X, _, _ = make_sparse_regression(50_000, 300, density=0.01, popularity_exponent=0.8, random_state=1)
    lengths = np.sort(np.diff(X.indptr))[::-1]
    law = np.arange(1, 301) ** -0.8
    np.testing.assert_allclose(lengths, 150_000 * law / law.sum(), atol=1)
    X, _, _ = make_sparse_regression(100, 300, density=0.31, popularity_exponent=0, random_state=1)
    assert set(np.diff(X.indptr)) == {31}
    X, _, _ = make_sparse_regression(40, 50, density=0.5, popularity_exponent=3, random_state=1)
    assert (np.diff(X.indptr).max(), X.nnz) == (40, 1000)  # limits of both sides, the total kept


@pytest.mark.parametrize("rho", [0.0, 0.7])
def test_correlation_within_blocks_and_none_between(rho):
    X, _, _ = make_sparse_regression(
        4000, 90, density=0.3, popularity_exponent=0.2, block_size=3, correlation=rho, random_state=2
    )
    rows = [X.indices[X.indptr[j] : X.indptr[j + 1]] for j in range(90)]
    for j in range(90):
        np.testing.assert_array_equal(rows[j], rows[j - j % 3])  # one pattern a block
    found = np.corrcoef(X.toarray().T)
    block = np.arange(90) // 3
    inside = found[(block[:, None] == block) & ~np.eye(90, dtype=bool)][::2]
    outside = found[block[:, None] > block]
    # 90 pairs of some 1200 common entries each; their standard error is below 1/sqrt(1000).
    assert abs(inside.mean() - rho) < 5 / np.sqrt(1000 * 30)
    assert abs(outside.mean()) < 5 / np.sqrt(4000 * len(outside))
    values = X.data
    assert within(values, 0, errors=10)  # factors are shared by three: fewer independent values
    assert within(values**2, 1, errors=10)


def test_last_block_may_be_smaller():
    X, _, _ = make_sparse_regression(60, 8, n_informative=1, density=0.2, block_size=3, random_state=0)
    lengths = np.diff(X.indptr)
    assert len(set(lengths[:3])) == len(set(lengths[3:6])) == len(set(lengths[6:])) == 1


def test_classes_follow_the_logistic_model():
    X, y, coef = make_sparse_classification(20_000, 50, n_informative=10, density=0.2, random_state=3)
    odds = X @ coef
    assert odds.std() == pytest.approx(3)
    assert calibrated(odds, y)
    assert not calibrated(1.2 * odds, y)  # planted: a model too sure of itself
    assert not calibrated(odds + 0.15, y)


def calibrated(odds, y):
    """Whether classes occur as often as predicted, overall and along the odds (5 standard errors)."""
    p = 1 / (1 + np.exp(-odds))
    scores = [(y - p).sum() / np.sqrt((p * (1 - p)).sum())]
    scores.append(((y - p) * odds).sum() / np.sqrt((p * (1 - p) * odds**2).sum()))
    return max(map(abs, scores)) < 5


def test_several_classes_follow_the_softmax():
    X, y, coef = make_sparse_classification(
        20_000, 40, n_classes=3, n_informative=6, density=0.2, log_odds_std=2, random_state=4
    )
    assert coef.shape == (3, 40)
    assert (np.count_nonzero(coef, axis=1) == 6).all()
    assert np.count_nonzero(coef.any(axis=0)) == 6
    odds = X @ coef.T
    assert odds.std() == pytest.approx(2)
    p = np.exp(odds) / np.exp(odds).sum(axis=1, keepdims=True)
    for k in range(3):
        deviation = ((y == k) - p[:, k]) * (1 + odds[:, k])
        assert within(deviation, 0)
        assert not within(((y == k) - p[:, (k + 1) % 3]) * (1 + odds[:, k]), 0)


def test_flipped_labels():
    clean = make_sparse_classification(
        10_000, 20, n_informative=5, density=0.9, log_odds_std=500, popularity_exponent=0, random_state=5
    )
    X, y, coef = make_sparse_classification(
        10_000,
        20,
        n_informative=5,
        density=0.9,
        log_odds_std=500,
        popularity_exponent=0,
        flip_y=0.2,
        random_state=5,
    )
    np.testing.assert_array_equal(coef, clean[2])
    assert within(y != clean[1], 0.1)  # half of the labels drawn anew come out the same
    assert (clean[1] != (X @ coef > 0)).mean() < 0.01  # such odds leave nothing to chance


# -------------------------------------------------------------------------------- ratings


def test_ratings_follow_factors_and_biases():
    R, truth = make_ratings(800, 400, 5, density=0.1, noise=0.5, random_state=1)
    assert isinstance(R, sparse.csr_matrix)
    assert_canonical(R)
    assert R.nnz == 0.1 * 800 * 400
    R = R.tocoo()
    expected = (
        truth.mean
        + truth.user_biases[R.row]
        + truth.item_biases[R.col]
        + (truth.user_factors[R.row] * truth.item_factors[R.col]).sum(axis=1)
    )
    residual = R.data - expected
    assert within(residual, 0)
    assert within(residual**2, 0.25)
    assert not within((residual + truth.user_biases[R.row]) ** 2, 0.25)  # a truth without them
    product = truth.user_factors @ truth.item_factors.T
    assert product.std() == pytest.approx(0.7, rel=0.1)
    assert truth.user_biases.std() == pytest.approx(0.4, rel=5 / np.sqrt(2 * 800))
    assert truth.mean == 3.5


def test_levels_are_the_nearest():
    levels = [5, 1, 2.5, 4]
    real, _ = make_ratings(60, 40, density=0.3, random_state=2)
    rated, _ = make_ratings(60, 40, density=0.3, levels=levels, random_state=2)
    nearest = np.array(levels)[np.abs(real.data[:, None] - levels).argmin(axis=1)]
    np.testing.assert_array_equal(rated.data, nearest)
    np.testing.assert_array_equal(rated.indices, real.indices)


def test_users_are_busy_and_items_popular_as_asked():
    R, _ = make_ratings(30_000, 50, density=0.04, popularity_exponent=1, activity_sigma=0, random_state=3)
    assert set(np.diff(R.indptr)) == {2}
    # Of two different items drawn one after another in proportion to w, item i is one with
    # probability w_i + sum over j of w_j w_i / (1 - w_j).
    w = 1 / np.arange(1, 51)
    w /= w.sum()
    expected = w + w * ((w / (1 - w)).sum() - w / (1 - w))
    seen = np.sort(np.bincount(R.indices, minlength=50))[::-1]
    variance = 30_000 * expected * (1 - expected)
    assert (np.abs(seen - 30_000 * expected) < 5 * np.sqrt(variance)).all()
    with_replacement = 2 * w
    assert not (np.abs(seen - 30_000 * with_replacement) < 5 * np.sqrt(variance)).all()
    R, _ = make_ratings(3000, 1000, density=0.05, activity_sigma=0.5, random_state=3)
    assert np.log(np.diff(R.indptr)).std() == pytest.approx(0.5, rel=0.1)


def test_implicit_counts_follow_taste():
    R, truth = make_ratings(500, 300, 4, density=0.05, implicit=True, noise=0.1, random_state=4)
    assert_canonical(R)
    assert R.nnz == 0.05 * 500 * 300
    assert truth.mean == 0
    R = R.tocoo()
    everywhere = truth.user_biases[:, None] + truth.item_biases + truth.user_factors @ truth.item_factors.T
    scores = everywhere[R.row, R.col]
    mean = np.exp(scores)
    assert within((R.data - 1 - mean) / np.sqrt(mean), 0)
    assert within((R.data - 1 - mean) ** 2 / mean, 1)
    assert scores.mean() > everywhere.mean() + 0.3  # what is liked is chosen


def test_full_matrices():
    R, _ = make_ratings(7, 5, density=1, random_state=0)
    assert R.nnz == 35
    R, _ = make_ratings(7, 5, density=1, implicit=True, random_state=0)
    assert R.nnz == 35


# ---------------------------------------------------------------------- what they share


@pytest.mark.parametrize("finish", ["rounds", "sorting"])
def test_draws_without_replacement_follow_the_weights(finish, monkeypatch):
    # Three of five items one after another: 60 sequences, added up over the order.
    weights = np.array([8.0, 4, 2, 1, 1])
    n = 8000
    if finish == "sorting":  # no round is run, all is left to the exponential variables
        monkeypatch.setattr(_common.np, "count_nonzero", lambda missing: -1)
    indptr, items = _common.distinct_draws(np.random.default_rng(1), np.full(n, 3), weights)
    assert indptr.tolist() == list(range(0, 3 * n + 1, 3))
    sets = items.reshape(n, 3)
    assert (np.diff(sets, axis=1) > 0).all()
    seen, expected = {}, {}
    for row in map(tuple, sets.tolist()):
        seen[row] = seen.get(row, 0) + 1
    for i in range(5):
        for j in set(range(5)) - {i}:
            for k in set(range(5)) - {i, j}:
                p = weights[i] / 16 * weights[j] / (16 - weights[i])
                p *= weights[k] / (16 - weights[i] - weights[j])
                key = tuple(sorted((i, j, k)))
                expected[key] = expected.get(key, 0) + n * p
    assert sum(expected.values()) == pytest.approx(n)
    keys = sorted(expected)
    counts = [seen.get(key, 0) for key in keys]
    assert stats.chisquare(counts, [expected[key] for key in keys]).pvalue > 1e-3
    assert stats.chisquare(counts, np.full(len(keys), n / len(keys))).pvalue < 1e-6


def test_rows_of_all_lengths_get_different_items():
    counts = np.array([0, 1, 500, 499, 3, 250, 0, 17] * 20)
    indptr, items = _common.distinct_draws(np.random.default_rng(0), counts, np.arange(1, 501) ** -1.5)
    assert np.diff(indptr).tolist() == counts.tolist()
    for some in np.split(items, indptr[1:-1]):
        assert (np.diff(some) > 0).all()
    assert items.min() >= 0
    assert items.max() < 500


SMALL = {
    make_lda_corpus: {},
    make_sparse_regression: {"density": 0.1},
    make_sparse_classification: {"density": 0.1},
    make_ratings: {"density": 0.1},
}


@pytest.mark.parametrize("make", SMALL)
def test_seed_repeats_and_another_differs(make):
    first, again, other = (make(80, 120, random_state=seed, **SMALL[make])[0] for seed in (1, 1, 2))
    assert (first != again).nnz == 0
    assert (first != other).nnz > 0
    state = np.random.RandomState(3)
    one, two = (make(80, 120, random_state=state, **SMALL[make])[0] for _ in range(2))
    assert (one != two).nnz > 0
    same = make(80, 120, random_state=np.random.RandomState(3), **SMALL[make])[0]
    assert (one != same).nnz == 0


@pytest.mark.parametrize(
    ("make", "parameter", "value"),
    [
        (make_lda_corpus, "n_documents", 0),
        (make_lda_corpus, "n_features", 2.5),
        (make_lda_corpus, "n_components", True),
        (make_lda_corpus, "mean_length", 0.5),
        (make_lda_corpus, "length_sigma", -1),
        (make_lda_corpus, "doc_topic_prior", 0.0),
        (make_lda_corpus, "doc_topic_prior", [0.1, 0.1]),
        (make_lda_corpus, "doc_topic_prior", "auto"),
        (make_lda_corpus, "zipf_exponent", np.nan),
        (make_lda_corpus, "n_common_words", 0),
        (make_lda_corpus, "word_spread", np.inf),
        (make_lda_corpus, "random_state", "seed"),
        (make_sparse_regression, "n_informative", 10_001),
        (make_sparse_regression, "density", 1e-4),
        (make_sparse_regression, "density", 1.5),
        (make_sparse_regression, "popularity_exponent", -1),
        (make_sparse_regression, "block_size", 0),
        (make_sparse_regression, "correlation", 1.0),
        (make_sparse_regression, "snr", 0),
        (make_sparse_classification, "n_classes", 1),
        (make_sparse_classification, "log_odds_std", -1),
        (make_sparse_classification, "flip_y", 2),
        (make_ratings, "density", 0),
        (make_ratings, "popularity_exponent", 2),
        (make_ratings, "activity_sigma", None),
        (make_ratings, "noise", -0.1),
        (make_ratings, "mean", np.inf),
        (make_ratings, "levels", [0, 1]),
        (make_ratings, "levels", []),
        (make_ratings, "levels", ["good", "bad"]),
    ],
)
def test_parameters_out_of_range_are_named(make, parameter, value):
    with pytest.raises(DataError, match=f"^{parameter} must") as error:
        make(**{parameter: value})
    assert "below" in str(error.value) or repr(value) in str(error.value)


def test_levels_are_no_part_of_counts():
    with pytest.raises(DataError, match="levels must be None with implicit=True"):
        make_ratings(levels=[1, 2], implicit=True)
