"""Figures drawn from records, and the page that shows them."""

import html.parser
import math

import pytest

from stradask.benchmarks.pages import page as pages
from stradask.benchmarks.pages import tables, training

PERPLEXITY = {"key": "held_out_perplexity", "label": "held-out perplexity", "lower_is_better": True}
JOINT = {"key": "joint_log_likelihood", "label": "joint log-likelihood per token", "lower_is_better": False}


def record(solver, points, *, repeat=0, ours=False, **changes):
    """A record with snapshots (seconds, perplexity, joint)."""
    keys = ("seconds", "held_out_perplexity", "joint_log_likelihood")
    made = {
        "family": "lda",
        "started": "2026-01-01T00:00:00+00:00",
        "work_unit": "tokens",
        "metrics": [PERPLEXITY, JOINT],
        "machine": {"processor": "<abacus & co>", "cores": 2},
        "data": {"name": "docstrings", "train_tokens": 1000},
        "settings": {"n_components": 5, "n_jobs": 1},
        "solver": solver,
        "method": "by hand",
        "ours": ours,
        "repeat": repeat,
        "status": "ok",
        "versions": {"numpy": "2"},
        "work": 4_000_000,
        "training_seconds": points[-1][0],
        "cpu_seconds": points[-1][0],
        "warm_up_seconds": 0.5,
        "setup_seconds": 0.1,
        "memory_before_mb": 100.0,
        "peak_mb": 150.0,
        "snapshots": [dict(zip(keys, point, strict=True)) for point in points],
    }
    return made | changes


OURS = [(1.0, 900.0, -9.0), (2.0, 700.0, -8.0), (4.0, 600.0, -7.0)]
PEER = [(1.0, 1000.0, None), (2.0, 900.0, None), (5.0, 800.0, None)]


@pytest.fixture
def records():
    return [
        record("peer", PEER),
        record("stradask", OURS, ours=True),
        record("peer", PEER, repeat=1, work=2_500_000),
        record("stradask", OURS, ours=True, repeat=1, work=8_000_000),
        record("broken", OURS, status="failed", error="<b>fell</b>"),
    ]


def test_time_to_a_level_is_interpolated():
    run = record("a", OURS)
    assert training.time_to(run, PERPLEXITY, 800) == pytest.approx(1.5)
    assert training.time_to(run, JOINT, -7.5) == pytest.approx(3.0)
    assert training.time_to(run, PERPLEXITY, 950) == 1.0
    assert math.isnan(training.time_to(run, PERPLEXITY, 500))


def test_the_common_level_is_the_worst_final_one_with_a_margin():
    runs = [record("a", OURS), record("b", PEER)]
    assert training.common_level(runs, PERPLEXITY) == pytest.approx(800.8)
    assert training.common_level(runs, JOINT) == pytest.approx(-7.007)


def test_summary_takes_medians_over_repeats_and_ratios_within_a_round(records):
    figures = training.summarise(records)
    assert list(figures["systems"]) == ["stradask", "peer"]
    ours, peer = figures["systems"].values()
    assert ours["rate"] == tables.Spread(1.5e6, 1e6, 2e6)
    assert peer["rate_ratio"] == tables.Spread(0.525, 0.25, 0.8)
    assert figures["equal_seconds"] == 4.0
    assert peer["at_equal_seconds"]["held_out_perplexity"].median == pytest.approx(900 - 100 * 2 / 3)
    assert ours["time_to_level"]["held_out_perplexity"].median == pytest.approx(1 + 99.2 / 200)
    assert peer["ours_there"].median == pytest.approx(1 + 99.2 / 200)
    assert math.isnan(peer["final"]["joint_log_likelihood"].median)
    assert peer["training_mb"].median == 50


def test_a_level_never_reached_counts_as_the_largest_time():
    assert tables.Spread.of([1.0, math.nan, 3.0]) == tables.Spread(3.0, 1.0, math.inf)


def test_the_table_has_a_column_a_system_and_names_failures(records):
    lines = training.table(records).splitlines()
    assert lines[0].split() == ["stradask", "peer"]
    rates = next(line for line in lines if line.startswith("million tokens"))
    assert "1.50 (1.00..2.00)" in rates
    assert lines[-1] == "broken: failed: <b>fell</b>"
    assert training.table(records[-1:]) == "broken: failed: <b>fell</b>"


def test_a_run_not_yet_judged_at_equal_seconds_is_shown_so():
    slow = record("slow", [(30.0, 700.0, None)])
    lines = training.table([record("quick", OURS), slow]).splitlines()
    line = next(line for line in lines if line.startswith("held-out perplexity at 4.0 s"))
    assert line.split()[-3:] == ["600", "not", "yet"]


class Reader(html.parser.HTMLParser):
    """Notes tags, text and addresses, and checks that tags close in order."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.addresses, self.alternatives, self.texts = [], [], [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag not in ("meta", "img"):
            self.open.append(tag)
        for name, value in attrs:
            if name in ("src", "href", "srcset", "data", "action", "poster"):
                self.addresses.append(value)
            if name == "alt":
                self.alternatives.append(value)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def test_the_page_is_whole_and_needs_nothing_from_outside(records, tmp_path):
    pytest.importorskip("matplotlib")
    path = training.page(records).write(tmp_path / "deep" / "report.html")
    text = path.read_text(encoding="utf-8")
    page = Reader(text)
    assert page.tags.count("figure") == page.tags.count("img") == 3
    assert all(address.startswith("data:image/") for address in page.addresses)
    assert "http" not in text.split("base64,")[0]
    assert not {"script", "link", "iframe"} & set(page.tags)
    assert all("peer" in alternative for alternative in (page.alternatives[0], page.alternatives[2]))
    assert "stradask ends at -7" in page.alternatives[1]
    said = "\n".join(page.texts)
    assert "<abacus & co>" in said
    assert "broken: failed: <b>fell</b>" in said
    assert list(path.parent.iterdir()) == [path]


def test_a_page_of_failures_alone_says_so(records):
    page = Reader(training.page(records[-1:]).html())
    assert "broken: failed: <b>fell</b>" in page.texts
    assert "img" not in page.tags


def test_equal_figures_give_equal_pages():
    figure_module = pytest.importorskip("matplotlib.figure")

    def page(format):
        figure = figure_module.Figure()
        figure.add_subplot().plot([1, 2], [3, 4])
        return pages.Page("t").figure(figure, "caption", 'a "quoted" line', format=format).html()

    for format in ("svg", "png"):
        assert page(format) == page(format)
        assert Reader(page(format)).alternatives == ['a "quoted" line']
    assert "data:image/png;base64,iVBOR" in page("png")


def test_a_page_that_cannot_be_written_leaves_the_old_one(tmp_path, monkeypatch):
    path = tmp_path / "page.html"
    pages.Page("old").write(path)
    page = pages.Page("new")
    monkeypatch.setattr(page, "html", lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        page.write(path)
    assert "old" in path.read_text()
    assert list(tmp_path.iterdir()) == [path]


def test_text_is_cut_into_paragraphs_and_escaped():
    page = Reader(
        pages.Page("a < b").text("one & two\n\n\n\nthree").table([["x", "<y>"]], ["h", "i"], "c").html()
    )
    assert page.tags.count("p") == 2
    assert {"one & two", "three", "<y>", "a < b"} <= set(page.texts)
