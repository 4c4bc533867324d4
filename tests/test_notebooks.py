"""What notebooks show of results: tables of HTML with everything that is printed, escaped."""

import html
import re

import numpy as np
import pytest

import stradask as sd

WORDS = ["<b>soup</b>", "bread & tea", "room", "bed"]


def cells(text):
    return [html.unescape(cell) for cell in re.findall(r"<t[dh] [^>]*>(.*?)</t[dh]>", text)]


def test_topics():
    X = np.repeat([[5, 5, 0, 0], [0, 0, 5, 5]], 20, axis=0)
    topics = sd.LatentDirichletAllocation(2, random_state=0, max_iter=20).fit(X).topics(WORDS, n_words=2)
    shown = topics._repr_html_()
    assert "<b>" not in shown
    expected = [
        [str(k), f"{share:.2%}", " ".join(words)]
        for k, (share, words) in enumerate(zip(topics.shares, topics, strict=True))
    ]
    assert cells(shown) == ["topic", "share", "words", *expected[0], *expected[1]]


def test_tables_of_posteriors():
    rng = np.random.default_rng(0)
    posterior = sd.Posterior(rng.standard_normal((400, 2)), {"<i>": (), "b": ()})
    for table in (posterior.summary(), posterior.diagnostics):
        shown, printed = table._repr_html_(), repr(table)
        assert "<i>" not in shown
        assert all(cell in printed for cell in cells(shown))
        assert len(cells(shown)) == (len(table) + 1) * (len(table.columns) + 1)
        assert table.note in html.unescape(shown)


def test_recommendations():
    ratings, _ = sd.datasets.make_ratings(60, 30, 3, density=0.3, random_state=0)
    found = sd.MatrixFactorization(3, max_iter=3, random_state=0).fit(ratings).recommend([0, 1], n=4)
    shown = cells(found._repr_html_())
    assert shown[:5] == ["user", "1", "2", "3", "4"]
    assert [cell.split(" ")[0] for cell in shown[6:10]] == [
        str(item) for item in np.atleast_2d(found.items)[0]
    ]
    assert float(shown[6].split("(")[1][:-1]) == pytest.approx(
        float(np.atleast_2d(found.scores)[0, 0]), rel=1e-2
    )
