"""The page of topics: what it holds, and what a browser shows of it."""

import json
import re

import numpy as np
import pandas as pd
import pytest
from browser import in_a_browser, overflow, shown

import stradask as sd
from stradask.datasets import Texts
from stradask.errors import DataError

HOTEL = ["room", "bed", "bathroom", "shower", "towel", "quiet", "pillow", "lobby"]
FOOD = ["breakfast", "dinner", "waiter", "menu", "soup", "coffee", "tasty", "bread"]
EVIL = "</script><script>document.title='caught'</script> soup & <b>bread</b>"


def texts(n=40):
    rng = np.random.default_rng(0)
    made = [" ".join(rng.choice((HOTEL, FOOD)[i % 2], 25)) for i in range(n)]
    return [*made, f"{EVIL} {made[1]}", ""]


@pytest.fixture(scope="module")
def lda():
    X, vocabulary = sd.text_counts(texts()[:-2])
    return sd.LatentDirichletAllocation(2, max_iter=60, doc_topic_prior=0.1, random_state=0).fit(
        X, vocabulary=vocabulary
    )


def content(path):
    page = path.read_text(encoding="utf-8")
    return page, json.loads(
        re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)[1]
    )


def test_words_are_the_best_by_any_weight_of_relevance(lda, tmp_path):
    rng = np.random.default_rng(1)
    X = rng.poisson(rng.gamma(0.1, 4, size=(200, 150)))
    words = np.array([f"w{i}" for i in range(150)])
    model = sd.LatentDirichletAllocation(5, max_iter=20, random_state=0).fit(X, vocabulary=words)
    model.explore(path=tmp_path / "t.html")
    _, page = content(tmp_path / "t.html")
    phi = model.topic_word_
    shares = model.word_topic_counts_.sum(axis=0) / model.word_topic_counts_.sum()
    marginal = dict(zip(page["words"], page["p"], strict=True))
    assert marginal == pytest.approx(
        {w: p for w, p in zip(words, shares @ phi, strict=True) if w in marginal}, rel=1e-3
    )
    for k, topic in enumerate(page["topics"]):
        shown = {page["words"][w]: p for w, p in zip(topic["words"], topic["p"], strict=True)}
        assert shown == pytest.approx({w: phi[k, list(words).index(w)] for w in shown}, rel=1e-3)
        for weight in np.linspace(0, 1, 11):
            relevance = weight * np.log(phi[k]) + (1 - weight) * np.log(phi[k] / (shares @ phi))
            assert set(words[np.argsort(-relevance, kind="stable")[:30]]) <= set(shown)
    assert page["documents"] == []
    assert page["groups"] is None


def test_documents_marks_and_groups(lda, tmp_path):
    names = [f"review {i}" for i in range(42)]
    groups = np.array(["odd" if i % 2 else "even" for i in range(42)])
    path = lda.explore(texts(), tmp_path / "t.html", names=names, groups=groups)
    assert path == str(tmp_path / "t.html")
    page, found = content(tmp_path / "t.html")
    assert page.count("</script>") == 2  # its own
    X, _ = sd.text_counts(texts(), vocabulary=lda.vocabulary_)
    theta = lda.transform(X)
    food = int(lda.topic_word_[:, list(lda.vocabulary_).index("soup")].argmax())
    for k, topic in enumerate(found["topics"]):
        documents = [found["documents"][d] for d in topic["documents"]]
        rows = [names.index(d["name"]) for d in documents]
        np.testing.assert_allclose(topic["shares"], np.sort(theta[:-1, k])[::-1][: len(rows)], rtol=1e-3)
        np.testing.assert_allclose(topic["shares"], theta[rows, k], rtol=1e-3)
        for marks, document in zip(topic["marks"], documents, strict=True):
            words = {found["words"][w] for w in marks}
            assert words <= set(FOOD if k == food else HOTEL)
            assert words >= {w for w in document["text"].split() if w in (FOOD if k == food else HOTEL)}
    assert len(found["documents"]) == 41  # all that have words
    lengths = np.asarray(X.sum(axis=1)).ravel()
    for i, name in enumerate(found["groups"]["names"]):
        own = groups == name
        share = lengths[own] @ theta[own] / lengths[own].sum()
        np.testing.assert_allclose(found["groups"]["share"][i], share, rtol=1e-3)
        assert (np.array(found["groups"]["low"][i]) <= share + 1e-4).all()
        assert (np.array(found["groups"]["high"][i]) >= share - 1e-4).all()


def test_intervals_of_groups_cover_the_mean_of_a_large_population(tmp_path):
    from stradask.algorithms.topics.reading.explore import _by_group

    rng, covered = np.random.default_rng(0), []
    for _ in range(100):
        shares = rng.dirichlet([1, 2, 4], size=80)
        found = _by_group(shares, np.full(80, 50.0), np.zeros(80, int))
        truth = np.array([1, 2, 4]) / 7
        covered += [(np.array(found["low"][0]) <= truth) & (truth <= np.array(found["high"][0]))]
    assert 0.8 <= np.mean(covered) <= 0.97


@pytest.mark.parametrize(
    ("labels", "names", "places"),
    [
        (["100", "20", "3"], ["3", "20", "100"], [0, 17, 97]),
        ([2001, 1999, 2010], ["1999", "2001", "2010"], [0, 2, 11]),
        (["2001-02", "1999-12", "2000-01"], ["1999-12", "2000-01", "2001-02"], [0, 31 * 86400, 428 * 86400]),
        (
            np.array(["2001-02-03", "1970-01-02", "1980-01-01"], "datetime64[D]"),
            None,
            [0, 3651 * 86400, 11355 * 86400],
        ),
        ([1_700_000_000, 1_700_000_001, 1_700_000_003], None, [0, 1, 3]),
        (np.array([0, 5, 9], "datetime64[ms]"), None, [0, 0.005, 0.009]),
        (["2001-02-03T04:05:06Z", "2001-02-03T04:05:07Z", "2001-02-03T04:05:09Z"], None, [0, 1, 3]),
        (["2001-02-03T04:05Z", "2001-02-03T04:06+01:00", "2001-02-03T04:07Z"], None, None),
        (["2001-02", "1999-13", "2000-01"], ["1999-13", "2000-01", "2001-02"], None),
        (["a", "1", "2"], ["1", "2", "a"], None),
        (["1", "2", "1"], ["1", "2"], None),
        (["1", "2", "nan"], ["1", "2", "nan"], None),
        (["1", "1.0", "2"], ["1", "1.0", "2"], None),
    ],
)
def test_numbers_and_dates_are_a_curve_over_time(lda, tmp_path, labels, names, places):
    lda.explore(texts()[:3], tmp_path / "t.html", groups=labels)
    groups = content(tmp_path / "t.html")[1]["groups"]
    assert groups["at"] == places
    if names is not None:
        assert groups["names"] == names
    X, _ = sd.text_counts(texts()[:3], vocabulary=lda.vocabulary_)
    own = dict(zip(map(str, labels), lda.transform(X), strict=True))
    for name, share in zip(groups["names"], groups["share"], strict=True):
        if len(own) == 3:  # the order of shares is that of names
            np.testing.assert_allclose(share, own[name], rtol=1e-3)


def test_groups_without_words_have_no_share_and_one_document_no_interval(lda, tmp_path):
    given = ["", "soup soup bread", "room bed", "soup menu"]
    lda.explore(given, tmp_path / "t.html", groups=["none", "one", "two", "two"], n_documents=1)
    _, found = content(tmp_path / "t.html")
    groups = found["groups"]
    assert groups["names"] == ["none", "one", "two"]
    assert [groups[name][0] for name in ("share", "low", "high")] == [None] * 3
    assert groups["share"][1] is not None
    assert groups["low"][1] is groups["high"][1] is None
    assert groups["low"][2] != groups["high"][2]
    assert "1 of 4 documents on this page" in found["facts"]


def test_intervals_of_a_fit_with_draws_are_of_the_posterior(tmp_path):
    given = [text + " tea" * (i % 3) for i, text in enumerate(texts()[:-2])]
    X, vocabulary = sd.text_counts(given)
    lda = sd.LatentDirichletAllocation(2, max_iter=80, n_draws=20, random_state=0).fit(
        X, vocabulary=vocabulary
    )
    groups = ["a", "a", "b", "c"] * 10
    lda.explore(given, tmp_path / "t.html", groups=groups)
    found, expected = content(tmp_path / "t.html")[1]["groups"], lda.topics_by_group(groups, level=0.9)
    assert found["kind"] == "of the posterior"
    for name, values in (("share", expected.shares), ("low", expected.low), ("high", expected.high)):
        np.testing.assert_allclose(found[name], values, rtol=1e-3)
    lda.explore(given[:-1], tmp_path / "t.html", groups=groups[:-1])  # other documents
    assert content(tmp_path / "t.html")[1]["groups"]["kind"] == "over documents"
    other = X[:, ::-1]  # as long, of other words
    lda.explore(X=other, path=tmp_path / "t.html", groups=groups)
    assert content(tmp_path / "t.html")[1]["groups"]["kind"] == "over documents"
    X = np.repeat(np.eye(4, dtype=int) * 5, 5, axis=0)  # all as long: they may come in another order
    lda.fit(X).explore(X=X[::-1], path=tmp_path / "t.html", vocabulary=list("abcd"), groups=groups[:20])
    assert content(tmp_path / "t.html")[1]["groups"]["kind"] == "over documents"
    lda.explore(path=tmp_path / "t.html", vocabulary=list("abcd"), groups=groups[:20])
    assert content(tmp_path / "t.html")[1]["groups"]["kind"] == "of the posterior"


def test_the_map_shows_where_words_are_and_topics_name_similar_ones(tmp_path):
    rng = np.random.default_rng(1)
    X = rng.poisson(rng.gamma(0.1, 4, size=(100, 60)))
    model = sd.LatentDirichletAllocation(5, max_iter=10, random_state=0).fit(X)
    model.explore(path=tmp_path / "t.html")
    _, page = content(tmp_path / "t.html")
    joint = model.topic_word_ * model._topic_shares()[:, None]
    joint /= joint.sum(axis=0)
    for word, pairs in zip(page["words"], page["where"], strict=True):
        own = dict(zip(pairs[::2], pairs[1::2], strict=True))
        percent = np.rint(100 * joint[:, int(word)])
        assert own == {k: percent[k] for k in np.flatnonzero(percent >= 1)}
    distances = model.topic_distances()
    for k, topic in enumerate(page["topics"]):
        others = [j for j in np.argsort(distances[k]) if j != k]
        assert topic["near"] == others[:3]


def test_a_text_of_a_million_letters_is_cut_at_once(lda, tmp_path):
    long = "filler " * 70_000 + "soup bread " * 20 + "filler " * 70_000
    given = [long, "room bed"]
    X, _ = sd.text_counts(given, vocabulary=lda.vocabulary_)
    lda.explore(given, tmp_path / "t.html", X=X, names=["x" * 10_000, "b"])
    first = content(tmp_path / "t.html")[1]["documents"]
    (cut,) = [one for one in first if one["name"].startswith("xx")]
    assert len(cut["text"]) < 500
    assert cut["text"].count("soup") >= 15
    assert len(cut["name"]) == 200


@pytest.mark.parametrize("n", [900, 1100])  # by the bootstrap, and by the normal distribution
def test_both_kinds_of_intervals_agree(n):
    from stradask.algorithms.topics.reading.explore import _by_group

    rng = np.random.default_rng(0)
    found = _by_group(rng.dirichlet([1, 2, 4], size=n), rng.integers(20, 200, n).astype(float), np.zeros(n))
    width = np.array(found["high"][0]) - np.array(found["low"][0])
    ratio = 1 + 2 * (rng.integers(20, 200, 10**5).std() / 109.5) ** 2 / 2  # of weights that differ
    expected = 2 * 1.645 * np.sqrt(np.array([1, 2, 4]) * np.array([6, 5, 3]) / 49 / 8 / n * ratio)
    np.testing.assert_allclose(width, expected, rtol=0.2)


def test_a_frame_of_counts_and_texts_of_its_model_are_shown_without_a_warning(tmp_path):
    X, words = sd.text_counts(texts()[:-2])
    frame = pd.DataFrame(X.toarray(), columns=words)
    model = sd.LatentDirichletAllocation(2, max_iter=5, random_state=0).fit(frame)
    for given in ({"X": frame}, {"texts": texts()[:-2]}, {"texts": texts()[:-2], "X": frame}):
        model.explore(path=tmp_path / "t.html", **given)
        assert len(content(tmp_path / "t.html")[1]["documents"]) == 40
    with pytest.raises(DataError, match="feature names"):
        model.explore(path=tmp_path / "t.html", X=frame[frame.columns[::-1]])


def test_counts_in_place_of_texts_and_few_documents(lda, tmp_path):
    X, _ = sd.text_counts(texts(), vocabulary=lda.vocabulary_)
    lda.explore(X=X, path=tmp_path / "t.html", n_documents=3)
    _, found = content(tmp_path / "t.html")
    assert len(found["documents"]) == 3
    assert re.fullmatch(r"(\w+ \d+, )+\w+ \d+", found["documents"][0]["text"])
    lda.explore(path=tmp_path / "t.html", names=[f"d{i}" for i in range(40)])
    _, found = content(tmp_path / "t.html")
    assert {d["name"] for d in found["documents"]} == {f"d{i}" for i in range(40)}


def test_long_texts_are_cut_where_the_marked_words_are(lda, tmp_path):
    long = "filler " * 300 + "soup bread coffee menu " + "filler " * 300
    given = Texts([long, "room bed"], np.array(["long", "short"]))
    with pytest.raises(DataError, match="does not know 600 of 606 words"):
        lda.explore(given, tmp_path / "t.html")
    lda.explore(given, tmp_path / "t.html", X=sd.text_counts(given, vocabulary=lda.vocabulary_).X)
    _, found = content(tmp_path / "t.html")
    (text,) = (d["text"] for d in found["documents"] if d["name"] == "long")
    assert "soup bread coffee menu" in text
    assert len(text) <= 402


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"texts": ["a"], "X": np.ones((1, 16), int)}, "16 of 16 words that X counts are not in their texts"),
        ({"texts": ["a", "b"], "X": np.ones((1, 16), int)}, "X has 1 rows for 2 texts"),
        ({"texts": ["soup"], "names": ["a", "b"]}, "names has 2 entries for 1 documents"),
        ({"texts": ["soup", "bed"], "groups": ["a"]}, "groups has 1 entries for 2 documents"),
        ({"texts": ["soup"] * 300, "groups": np.arange(300)}, "groups has 300 different labels"),
        ({"texts": "soup"}, "texts is one text"),
        ({"texts": {"a": ["soup"]}}, "texts is a table"),
        ({"texts": ["soup"], "groups": 5}, "groups is 5: give a list"),
        ({"texts": ["soup", "bed"], "groups": ["a", None]}, "groups"),
        ({"texts": ["soup", "bed"], "groups": ["a", float("nan")]}, "groups"),
        ({"n_documents": -1}, "n_documents=-1"),
    ],
)
def test_wrong_input(lda, tmp_path, given, said):
    with pytest.raises(DataError, match=said):
        lda.explore(path=tmp_path / "t.html", **given)
    assert not (tmp_path / "t.html").exists()


def test_texts_need_a_model_that_knows_its_words(tmp_path):
    model = sd.LatentDirichletAllocation(2, max_iter=2, random_state=0).fit(np.eye(4, dtype=int))
    with pytest.raises(DataError, match="needs the model's words"):
        model.explore(["a"], tmp_path / "t.html")
    model.explore(path=tmp_path / "t.html")


# Words of the user's --------------------------------------------------------------------------------------


def stems(texts):
    """Counts of the first three letters of words, and these, as a tokenisation of a user's makes them."""
    cut = [[word[:3] for word in text.split()] for text in texts]
    words = sorted({word for text in cut for word in text})
    return np.array([[text.count(word) for word in words] for text in cut]), words


@pytest.fixture(scope="module")
def of_stems():
    rng = np.random.default_rng(3)
    short = [[*HOTEL[:4], "bed", "tub"], [*FOOD[:4], "tea", "jam"]]  # some words are their stems
    given = [" ".join(rng.choice(short[i % 2], rng.integers(5, 40))) for i in range(40)]
    X, words = stems(given)
    model = sd.LatentDirichletAllocation(2, max_iter=60, doc_topic_prior=0.1, random_state=0)
    return model.fit(X, vocabulary=words), given, X


def test_texts_of_the_fit_that_it_counted_otherwise_are_refused(of_stems, tmp_path):
    model, given, X = of_stems
    path = tmp_path / "t.html"
    half = [" ".join(word if i % 2 else word[:3] for i, word in enumerate(text.split())) for text in given]
    said = rf"seem to be those of the fit, which had {X.sum():,} tokens, where .* counts [\d,]+ of"
    with pytest.raises(DataError, match=said):
        model.explore(half, path)
    with pytest.raises(DataError, match="does not know"):
        model.explore(given, path)
    assert not path.exists()
    model.explore(half[:-1], path)  # other texts, and most of their words known
    model.explore(half[::-1], path)  # as many, and others: their lengths are not those of the fit


def test_texts_and_counts_together(of_stems, tmp_path):
    model, given, X = of_stems
    model.explore(given, tmp_path / "t.html", X=X, names=[str(i) for i in range(40)])
    _, found = content(tmp_path / "t.html")
    theta = model.transform(X)
    for document in found["documents"]:
        row = int(document["name"])
        assert (
            document["text"] == given[row][: len(document["text"])]
            or document["text"].strip("…") in given[row]
        )
        np.testing.assert_allclose(document["shares"], np.sort(theta[row])[::-1][:3], rtol=1e-3)
    other = [" ".join(FOOD[4:]) for _ in given]
    with pytest.raises(DataError, match="words that X counts are not in their texts, such as"):
        model.explore(other, tmp_path / "t.html", X=X)
    with pytest.raises(DataError, match="X has 39 rows for 40 texts"):
        model.explore(given, tmp_path / "t.html", X=X[1:])


def test_texts_of_the_fit_are_shown_where_its_limits_left_most_words_out(tmp_path):
    rng = np.random.default_rng(3)
    given = [" ".join([*rng.choice([HOTEL, FOOD][i % 2], 9), *["und"] * 9, "oder"]) for i in range(40)]
    X, words = sd.text_counts(given, stop_words=["und", "oder"])
    model = sd.LatentDirichletAllocation(2, max_iter=20, random_state=0).fit(X, vocabulary=words)
    model.explore(given, tmp_path / "t.html")
    with pytest.raises(DataError, match="does not know"):
        model.explore(given[1:], tmp_path / "t.html")


def test_counts_of_lemmas_that_mostly_are_not_in_the_texts_are_shown(tmp_path):
    rng = np.random.default_rng(3)
    lemma = {word: word if k % 3 == 0 else word[::-1] for k, word in enumerate([*HOTEL, *FOOD])}
    given = [list(rng.choice([HOTEL, FOOD][i % 2], 3)) for i in range(40)]
    X, words = sd.text_counts([[lemma[word] for word in text] for text in given], stop_words=None)
    model = sd.LatentDirichletAllocation(2, max_iter=20, random_state=0).fit(X, vocabulary=words)
    given = [" ".join(text) for text in given]
    model.explore(given, tmp_path / "t.html", X=X)
    with pytest.raises(DataError, match="give texts and rows of X in the same order"):
        model.explore([given[i] for i in rng.permutation(40)], tmp_path / "t.html", X=X)


def test_words_that_are_never_cut_from_texts_are_refused_without_counts(tmp_path):
    X = np.repeat([[5, 5, 0, 0], [0, 0, 5, 5]], 20, axis=0)
    words = ["New York", "city", "soup", "bread"]
    model = sd.LatentDirichletAllocation(2, max_iter=20, random_state=0).fit(X, vocabulary=words)
    given = ["New York city", "soup bread"]
    with pytest.raises(DataError, match="1 of 4 words of the model, such as 'New York', are never cut"):
        model.explore(given, tmp_path / "t.html")
    model.explore([["New York", "city"], ["soup", "bread"]], tmp_path / "t.html")
    _, found = content(tmp_path / "t.html")
    assert {d["text"] for d in found["documents"]} == set(given)
    assert max(d["shares"][0] for d in found["documents"]) > 0.6


@pytest.mark.filterwarnings("ignore:the fit ended after")
@pytest.mark.parametrize("kind", ["lda", "hdp", "gsdmm", "biterm", "dynamic"])
def test_models_know_the_lengths_of_their_documents(kind, tmp_path):
    """The check of texts of the fit is no obstacle for those that were counted as it counts."""
    given = [" ".join(text.split()[: 5 + i % 9]) for i, text in enumerate(texts()[:-2])]
    X, words = sd.text_counts(given)
    model, more = {
        "lda": (sd.LatentDirichletAllocation(2, max_iter=5), {}),
        "hdp": (sd.HDPTopicModel(max_iter=5), {}),
        "gsdmm": (sd.GSDMM(4, max_iter=5), {}),
        "biterm": (sd.BitermTopicModel(2, max_iter=5), {}),
        "dynamic": (sd.DynamicTopicModel(2, max_iter=5), {"slices": np.arange(len(given)) % 2}),
    }[kind]
    model.fit(X, vocabulary=words, **more).explore(given, tmp_path / "t.html")
    assert len(content(tmp_path / "t.html")[1]["documents"]) == len(given)


# In a browser -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def page(lda, tmp_path_factory):
    path = tmp_path_factory.mktemp("explore") / "t.html"
    lda.explore(texts(), path, groups=["a long name of a group " * 3 if i % 2 else "even" for i in range(42)])
    return path.read_text(encoding="utf-8")


@in_a_browser
def test_a_browser_shows_words_documents_and_groups(page, tmp_path):
    for k in (0, 1):
        seen = shown(tmp_path, page, fragment=f"#topic={k}&weight=1")
        words = set(re.findall(r'<span dir="auto">(\w+)</span>', seen))
        assert words == {*HOTEL, *FOOD}  # 16 words, all shown
        assert f"Topic {k}: 5" in seen or f"Topic {k}: 4" in seen
        assert seen.count("<article>") == 20
        assert "<mark>" in seen
        assert 'aria-label="a long name' in seen or "a long name of a gr…" in seen


@in_a_browser
def test_numbers_of_topics_at_one_place_do_not_cover_each_other(page, tmp_path):
    copies = "data.topics = Array.from({length: 9}, () => data.topics[0]).concat(data.topics.slice(1));"
    redrawn = f"{copies} order.splice(0, order.length, ...data.topics.keys()); places = null; draw();"
    seen = shown(tmp_path, page, redrawn)
    found = re.findall(r'<text x="([\d.]+)" y="([\d.]+)"[^>]*>\d+</text>', seen)
    points = np.array(found, float)
    assert len(points) == 10
    distances = np.linalg.norm(points[:, None] - points, axis=2)[np.triu_indices(10, 1)]
    assert distances.min() > 15
    assert points.min() >= 16


@in_a_browser
def test_texts_are_shown_and_not_run(page, tmp_path):
    seen = shown(tmp_path, page, fragment="#search=document.title")
    assert "<title>2 topics</title>" in seen
    assert "&lt;/script&gt;" in seen
    assert "<b>bread" not in seen


@in_a_browser
def test_search_keys_and_the_slider(page, tmp_path):
    press = "at('topics').dispatchEvent(new KeyboardEvent('keydown', {key: '%s'}));"
    first = re.search(r"<h2 id=\"name\">Topic (\d)", shown(tmp_path, page))[1]
    after = re.search(r"<h2 id=\"name\">Topic (\d)", shown(tmp_path, page, press % "ArrowDown"))[1]
    assert {first, after} == {"0", "1"}
    assert (
        re.search(r"<h2 id=\"name\">Topic (\d)", shown(tmp_path, page, press % "ArrowDown" + press % "Home"))[
            1
        ]
        == first
    )
    typed = "at('search').value = 'soup'; at('search').dispatchEvent(new Event('input'));"
    seen = shown(tmp_path, page, typed)
    assert "Documents with “soup”" in seen
    n = sum("soup" in text for text in texts())
    assert seen.count("<article>") == n
    seen = shown(tmp_path, page, "at('theme').click();", fragment="#theme=light")
    assert 'data-theme="dark"' in seen


@in_a_browser
@pytest.mark.parametrize("width", [400, 800, 1400])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_nothing_is_wider_than_the_page(page, tmp_path, width, theme):
    found = overflow(tmp_path, page, width, dark=theme == "dark")
    assert found == {"width": width, "wide": 0, "out": "", "cut": ""}


@in_a_browser
def test_words_are_marked_in_scripts_without_spaces_and_in_pairs(tmp_path):
    cut = [["我", "爱", "北京", "天安门"], ["soup", "new_york", "c++"]] * 10
    X, words = sd.text_counts(cut)
    model = sd.LatentDirichletAllocation(2, max_iter=30, random_state=0).fit(X, vocabulary=words)
    model.explore(["我爱北京天安门", "Soups: soup of New York (C++)"] * 10, tmp_path / "t.html", X=X)
    page = (tmp_path / "t.html").read_text(encoding="utf-8")
    marks = [
        set(re.findall(r"<mark>(.*?)</mark>", shown(tmp_path, page, fragment=f"#topic={k}"))) for k in (0, 1)
    ]
    assert sorted(marks, key=len) == [{"soup", "New York", "C++"}, {"我", "爱", "北京", "天安门"}]


@in_a_browser
def test_what_is_too_wide_is_found(page, tmp_path):
    """The measure itself: a wide line, and words that a picture cuts off."""
    wide = '<p style="width: 900px">wide</p>'
    wide += '<svg style="width: 50px; height: 20px"><text y="15">words cut off</text></svg>'
    found = overflow(tmp_path, page.replace("</body>", f"{wide}</body>"), 400)
    assert found["wide"] > 400
    assert found["out"].startswith("P wide")
    assert found["cut"] == "text words cut off"


@in_a_browser
@pytest.mark.parametrize("width", [400, 1400])
def test_shares_over_time_have_a_band(lda, tmp_path, width):
    years = [1900 + 3 * (i % 7) for i in range(42)]
    years[5] = 1925  # one document has no interval
    lda.explore(texts(), tmp_path / "t.html", groups=years)
    page = (tmp_path / "t.html").read_text(encoding="utf-8")
    found = overflow(tmp_path, page, width)
    assert found == {"width": width, "wide": 0, "out": "", "cut": ""}
    seen = shown(tmp_path, page)
    assert "(band: 90 % intervals" in re.sub(r"<[^>]*>", "", seen)
    (band,) = re.findall(r'<polygon points="([^"]*)"', seen)
    points = np.array([point.split(",") for point in band.split()], float)
    assert len(points) == 14
    assert (points[:7, 1] <= points[:6:-1, 1]).all()  # the upper end lies above the lower one
    np.testing.assert_allclose(points[:7, 0], points[:6:-1, 0])
    (line,) = re.findall(r'<polyline points="([^"]*)"', seen)
    assert len(line.split()) == 8
