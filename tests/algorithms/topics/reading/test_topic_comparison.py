"""Comparing topics: distances, documents, groups and pictures, by plain means."""

import datetime
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import sparse
from scipy.cluster.hierarchy import linkage
from scipy.spatial.distance import pdist, squareform
from scipy.special import rel_entr
from topic_models import check_distances, few, larger_model, model, models

import stradask as sd
from stradask.algorithms.topics.reading import comparison, distances
from stradask.algorithms.topics.reading.plots import classical_scaling
from stradask.errors import DataError, StradaskError


@pytest.fixture(scope="module")
def random_model():
    return larger_model()


# Distances ----------------------------------------------------------------------------------------


@few
@given(models(), st.sampled_from(distances.METRICS))
def test_distances_are_those_of_the_dense_formula(lda, metric):
    check_distances(lda, metric)


@pytest.mark.parametrize("metric", distances.METRICS)
@pytest.mark.parametrize("cells", [1, 300, 1 << 20])
def test_distances_do_not_depend_on_the_blocks(random_model, metric, cells, monkeypatch):
    monkeypatch.setattr(distances, "_CELLS", cells)
    check_distances(random_model, metric)


@few
@given(models(min_topics=3), st.sampled_from(["jensen-shannon", "hellinger"]))
def test_two_of_the_distances_obey_the_triangle_inequality(lda, metric):
    found = lda.topic_distances(metric)
    assert not (found[:, None] > found[:, :, None] + found[None] + 1e-7).any()


def test_distances_by_hand_and_their_bounds():
    lda = model([[6, 0, 2], [0, 4, 2]], beta=1e-12)
    js = np.sqrt((rel_entr([1, 0], [0.75, 0.25]).sum() + rel_entr([0.5, 0.5], [0.75, 0.25]).sum()) / 2)
    found = lda.topic_distances()
    assert found[0, 1] == pytest.approx(np.sqrt(np.log(2)), rel=1e-9)
    assert found[0, 2] == pytest.approx(js, rel=1e-6)
    assert lda.topic_distances("hellinger")[0] == pytest.approx([0, 1, np.sqrt(1 - np.sqrt(0.5))], rel=1e-5)
    assert lda.topic_distances("cosine")[0] == pytest.approx([0, 1, 1 - np.sqrt(0.5)], rel=1e-5)


@pytest.mark.parametrize("metric", distances.METRICS)
def test_distances_of_some_topics_and_of_one(random_model, metric):
    whole = random_model.topic_distances(metric)
    chosen = [9, 0, 7]
    np.testing.assert_allclose(
        random_model.topic_distances(metric, chosen), whole[np.ix_(chosen, chosen)], atol=3e-8
    )
    np.testing.assert_array_equal(random_model.topic_distances(metric, 3), [[0]])
    twins = model([[4, 8, 0], [2, 4, 0], [0, 0, 0]], beta=1e-9).topic_distances(metric)
    assert twins[0, 1] < 1e-4


def test_stored_zeros_are_no_counts(random_model):
    lda = model(random_model.word_topic_counts_.toarray())
    whole = lda.topic_distances()
    lda.word_topic_counts_.data[::3] = 0
    changed = model(lda.word_topic_counts_.toarray()).topic_distances()
    assert not np.allclose(whole, changed)
    np.testing.assert_allclose(lda.topic_distances(), changed, atol=3e-8)
    assert (lda.word_topic_counts_.data == 0).any()  # and the model is as it was


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"metric": "euclidean"}, "metric='euclidean'"),
        ({"topics": 2}, "no topic 2: topics go from 0 to 1"),
        ({"topics": [-1]}, "no topic -1"),
        ({"topics": [0, 0]}, "twice"),
        ({"topics": []}, "topics=\\[\\]"),
        ({"topics": [0.5]}, "whole number"),
        ({"topics": [[0], [1, 2]]}, "numbers of topics"),
    ],
)
def test_distances_refuse(arguments, message):
    with pytest.raises(DataError, match=message):
        model([[1, 0], [0, 1]]).topic_distances(**arguments)


# pyLDAvis -----------------------------------------------------------------------------------------
def test_ldavis_gets_what_it_takes():
    rng = np.random.default_rng(0)
    X = rng.poisson(0.8, size=(25, 12))
    X[[3, 24]] = 0
    X[:, 5] = 0
    lda = sd.LatentDirichletAllocation(4, max_iter=5, random_state=0, doc_topic_prior=[1, 2, 3, 4]).fit(X)
    given_ = lda.to_ldavis(sparse.coo_array(X), [f"w{i}" for i in range(12)])
    assert list(given_) == ["topic_term_dists", "doc_topic_dists", "doc_lengths", "vocab", "term_frequency"]
    assert given_["topic_term_dists"].shape == (4, 12)
    assert given_["doc_topic_dists"].shape == (25, 4)
    for name in ("topic_term_dists", "doc_topic_dists"):
        np.testing.assert_allclose(given_[name].sum(axis=1), 1)
        assert (given_[name] > 0).all()
    np.testing.assert_allclose(given_["doc_topic_dists"][3], [0.1, 0.2, 0.3, 0.4])
    np.testing.assert_array_equal(given_["doc_lengths"], X.sum(axis=1))
    np.testing.assert_array_equal(given_["term_frequency"], X.sum(axis=0))
    assert given_["vocab"] == [f"w{i}" for i in range(12)]


def test_ldavis_takes_no_other_documents():
    X = np.array([[2, 1, 0], [0, 0, 3], [1, 0, 0]])
    lda = sd.LatentDirichletAllocation(2, max_iter=2, random_state=0).fit(X)
    with pytest.raises(DataError, match="X has 2 documents, but the model was fitted to 3"):
        lda.to_ldavis(X[:2])
    with pytest.raises(DataError, match="1 tokens in row 1, where the fitted document has 3"):
        lda.to_ldavis(X[[0, 2, 1]])
    with pytest.raises(DataError, match="vocabulary has 1 words"):
        lda.to_ldavis(X, ["a"])


# Documents ----------------------------------------------------------------------------------------
@few
@given(
    arrays(
        np.int64, st.tuples(st.integers(1, 9), st.integers(1, 4)), elements=st.sampled_from([0, 0, 1, 2, 9])
    ),
    st.integers(1, 10),
    st.integers(0, 4),
    st.sampled_from([0.1, 1.0]),
)
def test_representative_documents_have_the_largest_shares(doc_topic, n_documents, min_tokens, alpha):
    lda = model(np.ones((2, doc_topic.shape[1]), int), doc_topic, alpha=alpha)
    eligible = np.flatnonzero(doc_topic.sum(axis=1) >= min_tokens)
    if not len(eligible):
        with pytest.raises(DataError, match=f"min_tokens={min_tokens} .*the longest has"):
            lda.representative_documents(min_tokens=min_tokens)
        return
    indices, shares = lda.representative_documents(n_documents=n_documents, min_tokens=min_tokens)
    # The formula itself: `doc_topic_` divides by sums whose rounding makes equal shares unequal.
    lengths = doc_topic.sum(axis=1) + lda.doc_topic_prior_.sum()
    for k, column in enumerate(((doc_topic + alpha) / lengths[:, None]).T):
        np.testing.assert_allclose(column, lda.doc_topic_[:, k])
        best = eligible[np.argsort(-column[eligible], kind="stable")][:n_documents]
        assert indices[k].tolist() == best.tolist()
        np.testing.assert_allclose(shares[k], column[best])
        one = lda.representative_documents(k, n_documents, min_tokens=min_tokens)
        np.testing.assert_array_equal(one.indices, indices[k])
        np.testing.assert_array_equal(one.shares, shares[k])


def test_representative_documents_of_new_counts():
    X = np.repeat([[9, 9, 0, 0], [0, 0, 9, 9], [5, 4, 4, 5]], 10, axis=0)
    lda = sd.LatentDirichletAllocation(2, max_iter=30, random_state=0).fit(X)
    new = np.array([[1, 0, 0, 0], [20, 20, 0, 0], [10, 10, 10, 10], [0, 0, 15, 15], [0, 0, 0, 0]])
    found = lda.representative_documents(n_documents=2, X=new, min_tokens=20)
    assert sorted(found.indices.tolist()) == [[1, 2], [3, 2]]
    theta = lda.transform(new)
    np.testing.assert_array_equal(found.shares, np.take_along_axis(theta.T, found.indices, axis=1))
    assert lda.representative_documents(1, 99, new, min_tokens=0).indices.shape == (5,)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"topic": 2}, "no topic 2"),
        ({"topic": [0]}, "topic=\\[0\\]"),
        ({"n_documents": 0}, "n_documents=0"),
        ({"min_tokens": -1}, "min_tokens=-1"),
        ({"min_tokens": 99}, "longest has 4"),
        ({"X": [[1, 2, 3]]}, "3 features"),
    ],
)
def test_representative_documents_refuse(arguments, message):
    with pytest.raises(DataError, match=message):
        model([[1, 0], [0, 1]], [[4, 0], [0, 1]]).representative_documents(**arguments)


# Groups -------------------------------------------------------------------------------------------
DOC_TOPIC = np.array([[4, 0], [1, 3], [0, 2], [0, 0], [1, 1]])


def groups_of(labels, doc_topic=DOC_TOPIC):
    return model([[3, 3], [3, 3]], doc_topic).topics_by_group(labels)


def test_prevalence_by_hand():
    found = groups_of(["b", "a", "b", "c", "a"])
    assert found.groups.tolist() == ["a", "b", "c"]
    assert found.tokens.tolist() == [6, 6, 0]
    np.testing.assert_allclose(found.shares, [[2 / 6, 4 / 6], [4 / 6, 2 / 6], [np.nan, np.nan]])


@few
@given(
    arrays(np.int64, (12, 3), elements=st.integers(0, 5)), arrays(np.int64, 12, elements=st.integers(-2, 2))
)
def test_prevalence_is_that_of_the_tokens(doc_topic, labels):
    found = model(np.ones((2, 3), int), doc_topic).topics_by_group(labels)
    assert found.tokens.sum() == doc_topic.sum()
    for group, share, tokens in zip(found.groups, found.shares, found.tokens, strict=True):
        counts = sum(doc_topic[d] for d in range(12) if labels[d] == group)
        assert tokens == counts.sum()
        np.testing.assert_allclose(share * tokens, counts if tokens else [np.nan] * 3)
    assert found.groups.tolist() == sorted(set(labels.tolist()))


def test_labels_of_many_kinds():
    pandas = pytest.importorskip("pandas")
    strings = ["y", "x", "y", "x", "y"]
    days = np.array(["2020-02-01", "2020-01-01", "2020-02-01", "2020-01-01", "2020-02-01"], "datetime64[D]")
    expected = groups_of([1, 0, 1, 0, 1])
    kinds = {
        "str": strings,
        "object": np.array(strings, object),
        "float": np.array([1.5, -2, 1.5, -2, 1.5]),
        "bool": [True, False, True, False, True],
        "days": days,
        "dates": days.tolist(),
        "Series": pandas.Series(strings),
        "zoned times": pandas.Series(days).dt.tz_localize("UTC"),
        "nullable": pandas.Series([7, 3, 7, 3, 7], dtype="Int64"),
        "Period": pandas.Series(days).dt.to_period("M"),
        "Categorical": pandas.Categorical(strings),
        "Series of categories": pandas.Series(strings, dtype="category"),
        "CategoricalIndex": pandas.CategoricalIndex(strings),
    }
    for kind, labels in kinds.items():
        found = groups_of(labels)
        np.testing.assert_array_equal(found.shares, expected.shares, err_msg=kind)
        assert len(found.groups) == 2
    assert groups_of(kinds["dates"]).groups.tolist() == [datetime.date(2020, 1, 1), datetime.date(2020, 2, 1)]


def test_categories_keep_their_order_and_those_that_do_not_occur_are_left_out():
    pandas = pytest.importorskip("pandas")
    labels = pandas.Categorical(
        ["low", "high", "low", "mid", "high"], ["low", "none", "mid", "high"], ordered=True
    )
    found = groups_of(labels)
    assert found.groups.tolist() == ["low", "mid", "high"]
    assert found.tokens.tolist() == [6, 0, 6]


def test_a_missing_label_is_named():
    pandas = pytest.importorskip("pandas")
    missing = {
        "None": ["a", "b", None, "a", "b"],
        "NaN": [1.0, 2.0, np.nan, 1.0, 2.0],
        "NaN among str": np.array(["a", "b", np.nan, "a", "b"], object),
        "NaT": np.array(["2020-01-01", "2020-01-02", "NaT", "2020-01-01", "2020-01-01"], "datetime64[D]"),
        "NA": pandas.Series([1, 2, None, 1, 2], dtype="Int64"),
        "str of pandas": pandas.Series(["a", "b", None, "a", "b"], dtype="str"),
        "zoned NaT": pandas.to_datetime(["2020-01-01", "2020-01-02", None] * 2, utc=True)[:5],
        "category": pandas.Categorical(["a", "b", None, "a", "b"]),
    }
    for labels in missing.values():
        with pytest.raises(DataError, match="groups has no label for document 2"):
            groups_of(labels)


def test_groups_refuse():
    pandas = pytest.importorskip("pandas")
    for labels in (
        ["a"] * 4,
        [["a"]] * 5,
        "aaaaa",
        pandas.Categorical(["a"] * 6),
        [["a"], ["b", "c"], [], [], []],
    ):
        with pytest.raises(DataError, match="groups"):
            groups_of(labels)
    with pytest.raises(DataError, match="one kind"):
        groups_of(np.array(["a", 1, "a", 1, "a"], object))


# Pictures -----------------------------------------------------------------------------------------
@pytest.fixture
def ax():
    figure = pytest.importorskip("matplotlib.figure")
    return figure.Figure().subplots()


def test_scaling_returns_points_of_the_plane():
    points = np.random.default_rng(0).normal(size=(9, 2))
    between = squareform(pdist(points))
    np.testing.assert_allclose(squareform(pdist(classical_scaling(between))), between, atol=1e-12)
    line = classical_scaling(squareform(pdist(np.array([[0.0], [1.0], [4.0]]))))
    np.testing.assert_allclose(line[:, 1], 0, atol=1e-7)
    np.testing.assert_allclose(line[:, 0], [-5 / 3, -2 / 3, 7 / 3])
    np.testing.assert_array_equal(classical_scaling(np.zeros((1, 1))), [[0, 0]])


@pytest.mark.parametrize("metric", distances.METRICS)
def test_a_map_has_a_circle_for_each_topic(random_model, metric, ax):
    assert random_model.plot_topics(metric=metric, ax=ax) is ax
    (circles,) = ax.collections
    used = np.flatnonzero(random_model.topics().shares)
    places = classical_scaling(random_model.topic_distances(metric, used))
    np.testing.assert_allclose(circles.get_offsets(), places)
    shares = random_model.topics().shares[used]
    np.testing.assert_allclose(circles.get_sizes() / circles.get_sizes().max(), shares / shares.max())
    assert [text.get_text() for text in ax.texts] == [str(k) for k in used]
    ax.figure.canvas.draw()


def test_a_map_of_one_topic_and_of_two(ax):
    assert len(model([[3], [1]]).plot_topics(ax=ax).texts) == 1
    assert len(model([[3, 0], [1, 2]]).plot_topics(ax=ax.figure.subplots()).texts) == 2
    ax.figure.canvas.draw()


def test_a_map_of_many_topics_draws_the_largest(ax):
    counts = np.zeros((3, 130), int)
    counts[0] = 1 + np.arange(130)
    counts[2, 0] = 1000
    texts = [text.get_text() for text in model(counts).plot_topics(ax=ax).texts]
    assert texts == ["0", *map(str, range(31, 130))]


def test_a_dendrogram_joins_the_nearest_first(ax):
    lda = model([[9, 8, 0], [9, 9, 0], [0, 0, 9], [1, 1, 8]])
    assert lda.plot_topics("dendrogram", vocabulary=["a", "b", "c", "d"], n_words=1, ax=ax) is ax
    labels = [label.get_text() for label in ax.get_yticklabels()]
    assert sorted(labels) == ["0  a", "1  b", "2  c"]
    assert labels.index("2  c") != 1  # the two that are alike stand together
    heights = linkage(squareform(lda.topic_distances()), "average")[:, 2]
    drawn = sorted(path.vertices[:, 0].max() for path in ax.collections[0].get_paths())
    np.testing.assert_allclose(drawn, heights)
    ax.figure.canvas.draw()


def test_prevalence_is_drawn_as_lines_over_time_and_as_points_over_labels(ax):
    days = np.array(["2020-01-01", "2020-01-09", "2020-01-03", "2020-01-01", "2020-01-01"], "datetime64[D]")
    found = groups_of(days)
    assert found.plot(ax, topics=[1], names=["x", "y"]) is ax
    (line,) = ax.lines
    assert (line.get_linestyle(), line.get_label()) == ("-", "y")
    np.testing.assert_array_equal(line.get_xdata(), found.groups)
    np.testing.assert_array_equal(line.get_ydata(), found.shares[:, 1])
    assert type(ax.xaxis.get_major_formatter()).__name__ == "ConciseDateFormatter"
    labelled = groups_of(["b", "a", "b", "c", "a"]).plot(ax.figure.subplots())
    assert [line.get_linestyle() for line in labelled.lines] == ["None", "None"]
    assert [label.get_text() for label in labelled.get_xticklabels()] == ["a", "b", "c"]
    dates = groups_of(days.tolist()).plot(ax.figure.subplots())
    assert dates.lines[0].get_linestyle() == "-"
    ax.figure.canvas.draw()


def test_prevalence_draws_the_six_topics_with_most_tokens(ax):
    doc_topic = np.array([[1, 9, 8, 0, 7, 6, 5, 4], [3, 0, 0, 0, 0, 0, 0, 0]])
    found = comparison.prevalence(sparse.csr_array(doc_topic), ["a", "b"])
    assert [line.get_label() for line in found.plot(ax).lines] == ["1", "2", "4", "5", "6", "0"]
    again = found.plot(ax.figure.subplots(), topics=range(8))
    looks = {(line.get_color(), line.get_marker()) for line in again.lines}
    assert len(looks) == 8


def test_pictures_refuse(ax):
    lda = model([[1], [0]])
    with pytest.raises(DataError, match="kind='tree'"):
        lda.plot_topics("tree", ax=ax)
    with pytest.raises(DataError, match="two or more"):
        lda.plot_topics("dendrogram", ax=ax)
    with pytest.raises(DataError, match="no topic 1"):
        lda.plot_topics(topics=[1], ax=ax)
    found = groups_of([1, 1, 2, 2, 2])
    with pytest.raises(DataError, match="no topic 2"):
        found.plot(ax, topics=[2])
    with pytest.raises(DataError, match="names"):
        found.plot(ax, names=["one"])


def test_without_matplotlib_the_remedy_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    lda = model([[1, 0], [0, 1]])
    for draw in (lda.plot_topics, lambda: lda.plot_topics("dendrogram"), groups_of([1, 1, 2, 2, 2]).plot):
        with pytest.raises(StradaskError, match=r"stradask\[plot\]"):
            draw()


def test_a_new_figure_is_made(monkeypatch):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("Agg")
    ax = model([[1, 0], [0, 1]]).plot_topics()
    assert ax.figure.number in pyplot.get_fignums()
    pyplot.close(ax.figure)


def test_nothing_is_read_before_a_fit():
    lda = sd.LatentDirichletAllocation(2)
    calls = [
        lda.topics,
        lambda: lda.coherence([[1]]),
        lda.topic_diversity,
        lda.topic_distances,
        lda.representative_documents,
        lambda: lda.topics_by_group([1]),
        lambda: lda.to_ldavis([[1]]),
        lda.plot_topics,
    ]
    for call in calls:
        with pytest.raises(ValueError, match="not fitted"):
            call()


def test_masked_labels_are_refused(random_model):
    labels = np.ma.zeros(random_model.doc_topic_counts_.shape[0])
    labels[0] = np.ma.masked
    with pytest.raises(DataError, match="masked"):
        random_model.topics_by_group(labels)
