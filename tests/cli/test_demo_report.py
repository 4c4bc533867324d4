"""The demo: what it prints, and its report as a browser would find it."""

import base64
import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from types import SimpleNamespace
from xml.etree import ElementTree

import numpy as np
import pytest
from browser import in_a_browser, overflow
from scipy import optimize, sparse

import stradask as sd
from stradask import datasets
from stradask.cli.arguments import main
from stradask.cli.inputs import Counts
from stradask.demo import bayes as _demo_bayes
from stradask.demo import factorization as _demo_factors
from stradask.demo import linear as _demo_linear
from stradask.demo import logistic as _demo_logistic
from stradask.demo import page as demo
from stradask.demo import topics as _demo_topics
from stradask.demo import topics_pictures as _demo_pictures
from stradask.demo.curves import Curve
from stradask.registry import MODELS


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    """Corpus, report and console of one quick demo on a few packages."""
    small = datasets.load_docstrings(packages=["dask", "joblib", "tqdm"], cache=False)
    path = tmp_path_factory.mktemp("demo") / "report.html"
    lines = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(datasets, "load_docstrings", lambda: small)
        document = demo.run(demo.Settings(n_components=6, quick=True), path, lines.append)
    return SimpleNamespace(corpus=small, path=path, text="\n".join(lines), document=document)


class Page(HTMLParser):
    """What of a page matters here."""

    VOID = frozenset({"meta", "img", "br", "hr"})

    def __init__(self, text):
        super().__init__()
        self.tags, self.open, self.text = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, text):
        self.text.append(text)

    def all(self, tag):
        """Return the attributes of all elements of a kind."""
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.fixture(scope="module")
def page(result):
    return Page(result.path.read_text(encoding="utf-8"))


@in_a_browser
@pytest.mark.parametrize("width", [400, 800, 1280])
@pytest.mark.parametrize("dark", [False, True])
def test_nothing_of_the_report_is_wider_than_the_page(result, tmp_path, width, dark):
    report = result.path.read_text(encoding="utf-8")
    found = overflow(tmp_path, report, width, dark=dark)
    assert found == {"width": width, "wide": 0, "out": "", "cut": ""}
    assert len(report) < 3e6


def test_report_is_whole_html(page):
    assert page.open == []
    assert [tag for tag, _ in page.tags].count("h1") == 1
    assert {"name": "viewport", "content": "width=device-width, initial-scale=1"} in page.all("meta")


def test_report_holds_its_pictures(page):
    pictures = page.all("img")
    assert len(pictures) == 11
    for picture in pictures:
        kind, _, data = picture["src"].partition(",")
        assert kind == "data:image/svg+xml;base64"
        assert ElementTree.fromstring(base64.b64decode(data)).tag == "{http://www.w3.org/2000/svg}svg"
        assert len(picture["alt"]) > 20


def test_report_needs_nothing_from_outside(result, page):
    assert not {"script", "link", "object"} & {tag for tag, _ in page.tags}
    for _, attributes in page.tags:
        assert "srcset" not in attributes
        assert attributes.get("href", "#").startswith("#")
        assert attributes.get("src", "data:").startswith("data:")
    assert "url(" not in result.path.read_text(encoding="utf-8")
    for picture in page.all("img"):
        svg = ElementTree.fromstring(base64.b64decode(picture["src"].partition(",")[2]))
        links = [value for element in svg.iter() for name, value in element.items() if name.endswith("href")]
        assert all(link.startswith(("#", "data:")) for link in links)


def test_contents_lead_to_every_part(page):
    targets = [attributes["href"].removeprefix("#") for attributes in page.all("a")]
    assert targets == [attributes["id"] for attributes in page.all("h2")]
    assert len(set(targets)) == len(targets) == 6


def test_summary_has_the_figures_of_each_part(result, page):
    found = result.document
    text = " ".join(" ".join(page.text).split())
    assert f"held-out perplexity {found['lda']['stradask']['held_out_perplexity'][-1]:,.0f};" in text
    assert f"same seconds: {found['lda']['sklearn']['held_out_perplexity'][-1]:,.0f}" in text
    assert f"{found['lasso']['data']['columns']:,} columns" in text
    errors = found["bayesian-logistic"]["errors"]
    assert f"error of the mean {errors['stradask']['mean']:.2f} standard deviations" in text
    assert f"and {found['mf']['gibbs']['rmse']:.4f}; biases alone {found['mf']['biases']['rmse']:.4f}" in text


def test_the_page_of_topics_is_inside_and_closed_off(result, page):
    (frame,) = page.all("iframe")
    assert frame["sandbox"] == "allow-scripts"
    outside = r"<(link|object|img|iframe)|(src|href)=|url\(|https?://(?!www.w3.org)"
    assert not re.search(outside, frame["srcdoc"])
    data = re.search(r'id="data">(.*?)</script>', frame["srcdoc"], re.DOTALL)
    words = json.loads(data[1])["words"]
    assert set(result.document["lda"]["topics"][0]["words"]) <= set(words)


def test_report_is_small_enough_to_send(result):
    assert result.path.stat().st_size < 3e6


def test_kernels_are_compiled_for_the_counts_of_all_documents(monkeypatch):
    """Counts are bytes where no document has more than 255 tokens: a few short documents would lie."""
    lengths = np.full(200, 3)
    lengths[150] = 300
    X = sparse.csr_array(np.eye(200, dtype=np.int32) * lengths[:, None].astype(np.int32))
    counts = Counts(X, "made", np.arange(200).astype(str), np.arange(200).astype(str))
    fitted = []
    solver = SimpleNamespace(run=lambda watch: None)
    monkeypatch.setattr(_demo_topics, "_gibbs", lambda few, settings: fitted.append(few) or solver)
    _demo_topics.compile_kernels(SimpleNamespace(train=counts), demo.Settings())
    assert fitted[0].X.sum(axis=1).max() == 300
    assert fitted[0].X.shape[0] == 50


def test_report_shows_the_topics_as_bars(result, page):
    topics = result.document["lda"]["topics"]
    bars = [attributes for attributes in page.all("li") if "style" in attributes]
    assert len(bars) == 6 * _demo_topics.WORDS
    widths = [float(bar["style"].removeprefix("--width:").removesuffix("%")) for bar in bars]
    expected = [100 * p / max(topic["probabilities"]) for topic in topics for p in topic["probabilities"]]
    np.testing.assert_allclose(widths, expected, atol=0.051)
    words = [text.strip() for text in page.text]
    assert all(word in words for topic in topics for word in topic["words"])


def test_console_tells_the_same(result):
    found = result.document["lda"]
    assert str(result.path) in result.text
    assert " ".join(found["topics"][0]["words"]) in result.text
    assert f"{found['stradask']['held_out_perplexity'][-1]:8,.0f}" in result.text
    assert f"{found['sklearn']['held_out_perplexity'][-1]:,.0f}" in result.text
    json.dumps(result.document, allow_nan=False)


def test_comparison_is_fair_and_topics_help(result):
    found = result.document["lda"]
    ours, theirs = found["stradask"], found["sklearn"]
    assert ours["steps"] == [1, 2, 5, 10, 20, 40]
    assert ours["seconds"] == sorted(ours["seconds"])
    # The first mini-batch that ends at or past our last second is scikit-learn's last.
    assert theirs["seconds"][-1] >= ours["seconds"][-1]
    assert all(seconds < ours["seconds"][-1] for seconds in theirs["seconds"][:-1])
    assert ours["held_out_perplexity"][-1] < found["word_frequencies_perplexity"]
    documents = found["data"]["documents"] + found["data"]["test_documents"]
    assert documents == result.corpus.X.shape[0]


def test_sparse_path_tells_what_the_estimators_find(result):
    found = result.document["lasso"]
    X, y, truth = _demo_linear.draw(demo.Settings(quick=True))
    assert found["data"] == {"rows": 2000, "columns": X.shape[1], "nonzeros": X.nnz, "informative": 20}
    best, sparing = found["best_mean"], found["one_standard_error"]
    for choice in (best, sparing):
        columns = np.flatnonzero(sd.Lasso(choice["alpha"], tol=1e-6).fit(X, y).coef_)
        assert choice["columns"] == pytest.approx(len(columns), rel=0.05)
        assert choice["true_columns"] == np.count_nonzero(truth[columns])
        assert f"{choice['squared_error']:22.4f}" in result.text
    assert best["alpha"] <= sparing["alpha"]
    assert best["squared_error"] <= sparing["squared_error"]


def test_gaps_of_both_systems_fall(result):
    for name in ("stradask", "sklearn"):
        curve = result.document["lasso"][name]
        assert len(curve["seconds"]) == len(curve["relative_gap"]) == len(_demo_linear.TOLERANCES)
        assert (np.diff(curve["relative_gap"]) <= 0).all()
    for gap, tolerance in zip(
        result.document["lasso"]["stradask"]["relative_gap"], _demo_linear.TOLERANCES, strict=True
    ):
        assert -1e-12 <= gap <= tolerance


def test_excesses_are_above_a_minimum_found_otherwise(result):
    found = result.document["logistic"]
    X, y, scales = _demo_logistic.draw(demo.Settings(quick=True))
    assert found["data"] == {"rows": X.shape[0], "columns": 50, "spread": scales.max() / scales.min()}
    Z = X / scales  # a change of variables that BFGS needs: w = u / scales

    def objective(u):
        margin = y * (Z @ u)
        value = np.logaddexp(0, -margin).sum() + np.square(u / scales).sum() / 2
        return value, -Z.T @ (y / (1 + np.exp(margin))) + u / scales**2

    least = optimize.minimize(objective, np.zeros(50), jac=True, method="L-BFGS-B", tol=1e-12).fun
    w, _ = _demo_logistic.fit_ours(X, y, 1e-2)
    excess = objective(w * scales)[0] / least - 1
    assert found["stradask"]["relative_excess"][0] == pytest.approx(excess, rel=1e-3, abs=1e-9)
    for name in ("stradask", "sklearn_newton"):
        assert found[name]["relative_excess"][-1] < 1e-8
    assert found["sklearn_lbfgs"]["relative_excess"] == sorted(
        found["sklearn_lbfgs"]["relative_excess"], reverse=True
    )


def test_points_at_or_below_an_excess():
    curve = Curve("stradask", "relative_excess", seconds=[0.5, 0.25], values=[1e-3, 1e-5], steps=[3, 5])
    assert [curve.to(target) for target in (1e-2, 1e-4, 1e-6)] == [(0.25, 5), (0.25, 5), None]
    assert "0.250 (5 steps)" in _demo_logistic.comparison([curve] * 3)


def test_the_combination_is_near_the_truth_and_averages_are_not(result):
    found = result.document["bayesian-logistic"]
    X, y = _demo_bayes.draw(demo.Settings(quick=True))
    assert found["data"] == {"rows": len(X), "positives": int(y.sum()), "columns": 4}
    ours, consensus, union = (found["errors"][way] for way in reversed(_demo_bayes.WAYS))
    assert ours["mean"] < 0.15
    assert 0.85 < ours["sd"] < 1.15
    assert consensus["mean"] > 2 * ours["mean"]
    assert union["sd"] > 3
    assert f"{ours['mean']:18.2f}" in result.text


def test_one_posterior_is_refused_with_its_reason(result, page):
    reason = result.document["bayesian-logistic"]["refused"]
    assert "R-hat" in reason
    assert reason in result.text
    assert any(reason.splitlines()[0] in text for text in page.text)


def test_seconds_to_a_gap():
    curve = Curve("stradask", "relative_gap", seconds=[1.0, 3.0, 2.0], values=[1e-2, 1e-4, 1e-5])
    assert [curve.to(gap) for gap in (1e-1, 1e-3, 1e-6)] == [(1.0, 0), (2.0, 0), None]
    assert "-" in _demo_linear.comparison(curve, curve).splitlines()[-1]


def test_word_frequencies_are_a_perplexity(result, monkeypatch):
    monkeypatch.setattr(datasets, "load_docstrings", lambda: result.corpus)
    text = _demo_topics.read_text(0)
    frequency = text.train.X.toarray().sum(axis=0) + 1
    held_out = text.held_out.toarray().sum(axis=0)
    expected = np.exp(-(held_out * np.log(frequency / frequency.sum())).sum() / held_out.sum())
    assert text.unigram == pytest.approx(expected)
    both = (text.observed + text.held_out).sum() + text.train.X.sum()
    assert both == result.corpus.X.sum()


def test_watch_judges_at_marks_while_it_stands_still(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(_demo_topics.time, "perf_counter", lambda: now[0])

    def judge(topic_word):
        now[0] += 100.0  # not training
        return topic_word

    watch = _demo_topics.Watch(judge, seconds=[1.0, 1.2, 3.0])
    going = []
    for step in range(1, 5):
        now[0] += 0.9
        going.append(watch.tick(0, lambda step=step: {"topic_word": -step}))
    # Step 2 ends at 1.8 and passes two marks; step 4 ends at 3.6.
    assert going == [True, True, True, False]
    assert watch.curve.seconds == pytest.approx([1.8, 3.6])
    assert (watch.curve.values, watch.curve.steps) == ([-2, -4], [2, 4])


def test_a_run_that_stops_early_was_interrupted():
    watch = _demo_topics.Watch(lambda topic_word: 0.0, steps=[1, 3])
    watch.tick(0, lambda: {"topic_word": None})
    with pytest.raises(KeyboardInterrupt):
        watch.check()


def test_curves_meet_in_one_table():
    curve = Curve("stradask", "held_out_perplexity", seconds=[0.5, 2.0], values=[9.0, 7.0], steps=[1, 2])
    assert _demo_topics.at(curve, [0.1, 0.4, 1.0, 2.0, 2.5]) == [None, 9.0, None, 7.0, None]


def test_package_shares_are_counted():
    counts = sparse.csr_array(np.array([[2, 0], [1, 1], [0, 4]]))
    names, shares = _demo_pictures.package_shares(np.array(["a", "a", "b"]), counts)
    assert names == ["a", "b"]
    np.testing.assert_allclose(shares, [[0.75, 0.25], [0, 1]])


def test_small_packages_share_a_group():
    packages = np.repeat(list("abcdefghi"), [9, 8, 7, 6, 5, 4, 3, 2, 1])
    group, names = _demo_pictures.grouped(packages)
    assert names == [*"abcdefg", "h, i"]
    assert group.tolist() == np.repeat([0, 1, 2, 3, 4, 5, 6, 7], [9, 8, 7, 6, 5, 4, 3, 3]).tolist()


def test_labels_on_the_map_keep_apart():
    places = np.array([[0, 0], [0, 0], [1, 1], [50, 50], [100, 100.0]])
    shares = np.eye(4)[[0, 0, 1, 2, 3]]
    assert sorted(_demo_pictures.topic_places(shares, places)) == [0, 2, 3]


# Where the report goes ------------------------------------------------------------------------------


@pytest.fixture
def instant(monkeypatch):
    """The demo with a part that takes no time."""
    part = demo.Part({"figure": 1}, lambda page: page.text("Said & done."), ("a", "b", "c", "d"))
    monkeypatch.setattr(demo, "resolve", lambda place: lambda settings, say: say("a part") or part)


@pytest.mark.usefixtures("instant")
def test_report_of_an_earlier_demo_is_replaced_and_nothing_else(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        assert main(["demo"]) == 0
        assert str(tmp_path / "stradask-demo.html") in capsys.readouterr().out
    assert "Said &amp; done." in (tmp_path / "stradask-demo.html").read_text()
    (tmp_path / "stradask-demo.html").write_text("my own page")
    assert main(["demo"]) == 2
    assert capsys.readouterr().out == ""
    assert (tmp_path / "stradask-demo.html").read_text() == "my own page"


@pytest.mark.usefixtures("instant")
def test_json_is_alone_on_stdout(tmp_path, capsys):
    assert main(["demo", "--json", "--out", str(tmp_path / "r.html")]) == 0
    out, err = capsys.readouterr()
    parts = {model.name: {"figure": 1} for model in MODELS.values() if model.demo}
    assert json.loads(out) == {"report": str(tmp_path / "r.html")} | parts
    assert {"lda", "lasso", "logistic"} <= set(parts)
    assert "a part" in err


@pytest.mark.usefixtures("instant")
def test_without_matplotlib_there_is_text_and_the_remedy(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["demo"]) == 0
    out = capsys.readouterr().out
    assert "a part" in out
    assert "pip install 'stradask[plot]'" in out
    assert list(tmp_path.iterdir()) == []
    assert main(["demo", "--out", "r.html"]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "pip install 'stradask[plot]'" in err


def test_a_recommendation_is_explained(result):
    found = result.document["mf"]
    errors = [point["rmse"] for point in found["sgd"]]
    assert [point["epochs"] for point in found["sgd"]] == list(_demo_factors.EPOCHS)
    assert found["truth"]["rmse"] < errors[-1] < found["biases"]["rmse"]
    assert found["truth"]["rmse"] == pytest.approx(_demo_factors.NOISE, abs=0.02)
    explained = found["explanation"]
    adds = [reason["adds"] for reason in explained["reasons"]]
    assert len(adds) == 3
    assert adds == sorted(adds, reverse=True)
    assert f"recommended item {explained['item']}" in result.text
    assert f"{errors[-1]:.4f}" in result.text


def test_times_of_posteriors_compare_the_same_sampler_and_draws(monkeypatch):
    """All data and shards: one sampler, as many chains, draws and warm-up; the long chain is not timed."""
    now, fits = [0.0], []

    def fit(X, y, settings, **options):
        fits.append(options)
        now[0] += 100.0 if options["n_samples"] == _demo_bayes.TRUTH_SAMPLES else options.get("n_shards", 1)
        draws = np.random.default_rng(len(fits)).standard_normal((500, 5))
        shards = np.random.default_rng(0).standard_normal((20, 2, 100, 5))
        return SimpleNamespace(draws=draws, shard_draws=shards, method="of a test")

    monkeypatch.setattr(_demo_bayes, "_fit", fit)
    monkeypatch.setattr(_demo_bayes, "refused", lambda settings: "")
    monkeypatch.setattr(_demo_bayes, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    document = _demo_bayes.run(demo.Settings(quick=True), lambda text: None).document
    assert document["seconds"] == {"all_data": 1.0, "shards": float(_demo_bayes.SHARDS)}
    timed = [{**options, "n_shards": 0} for options in fits if options["n_samples"] == _demo_bayes.N_SAMPLES]
    assert len(timed) == 2 * _demo_bayes.REPEATS
    assert all(options == timed[0] for options in timed)


@pytest.mark.slow
def test_the_logistic_curves_compile_nothing(tmp_path):
    """In a process that finds no machine code of an earlier one."""
    script = (
        "import numba\n"
        "from stradask.demo import logistic as d, page as demo\n"
        "from stradask.scheduler.compiling import compile_clock\n"
        "X, y, _ = d.draw(demo.Settings(quick=True))\n"
        "with compile_clock() as clock:\n"
        "    d.warm_up(X, y)\n"
        "    assert clock.seconds > 0\n"
        "    before = clock.seconds\n"
        "    d.curves(X, y)\n"
        "    assert clock.seconds == before\n"
    )
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", script], check=True, env=environment)
