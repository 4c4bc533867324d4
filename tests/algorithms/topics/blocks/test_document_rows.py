"""Rows of counts are as narrow as the longest document allows, and hold the same counts."""

import numpy as np
import pytest
from scipy import sparse

import stradask as sd
from stradask.algorithms.topics.blocks import document_rows as rows_module
from stradask.algorithms.topics.blocks.averages import is_added
from stradask.algorithms.topics.blocks.document_rows import document_rows
from stradask.algorithms.topics.samplers import gibbs


@pytest.mark.parametrize(
    ("longest", "kind"),
    [(0, np.uint8), (255, np.uint8), (256, np.uint16), (65_535, np.uint16), (65_536, np.int32)],
)
def test_rows_are_as_narrow_as_the_longest_document_allows(longest, kind):
    rows = document_rows(np.array([0, 3]), longest, 100)
    assert rows.counts.dtype == kind
    assert rows.counts.shape == (2, 128)


@pytest.mark.parametrize("longest", [256, pytest.param(70_000, marks=pytest.mark.slow)])
def test_the_width_of_rows_changes_no_bit(monkeypatch, longest):
    X = np.random.default_rng(0).multinomial(120, np.full(30, 1 / 30), 60)
    X[0] = 0
    X[0, 3] = 255  # of one word, and in the end of one topic: the largest count of a byte
    X = sparse.csr_array(X)
    model = sd.LatentDirichletAllocation(3, sampler="gibbs", max_iter=15, random_state=0, n_groups=2)
    expected = model.fit(X).doc_topic_counts_.toarray()
    assert expected[0].max() == 255
    monkeypatch.setattr(
        gibbs,
        "document_rows",
        lambda lengths, _, *rest, **more: document_rows(lengths, longest, *rest, **more),
    )
    np.testing.assert_array_equal(model.fit(X).doc_topic_counts_.toarray(), expected)


def _short_texts():
    """Texts of 0 to 32 words, also of just those lengths at which their places get wider."""
    lengths = np.append(np.repeat([0, 1, 7, 8, 9, 16, 17, 31, 32], 6), np.full(40, 6))
    rng = np.random.default_rng(0)
    X = np.stack([rng.multinomial(n, np.full(50, 1 / 50)) for n in rng.permutation(lengths)])
    X[lengths.argmax()] = 32 * (np.arange(50) == 3)  # all of one word, and in the end of one topic
    return sparse.csr_array(X)


@pytest.mark.parametrize(
    ("n_topics", "options"), [(3, {"n_groups": 2}), (40, {"exact": True}), (255, {"n_groups": 2})]
)
def test_topics_of_short_texts_give_the_bits_of_rows_of_counts(monkeypatch, n_topics, options):
    X, n_sweeps = _short_texts(), []
    model = sd.LatentDirichletAllocation(n_topics, sampler="gibbs", max_iter=12, random_state=0, **options)
    expected = model.fit_transform(X), model.components_, model.doc_topic_counts_, model.log_likelihood_

    sweep = rows_module.ShortDocuments.sweep
    monkeypatch.setattr(rows_module, "_FAST_ROWS", 0)
    monkeypatch.setattr(
        rows_module.ShortDocuments, "sweep", lambda *given: (n_sweeps.append(1), sweep(*given))
    )
    shares = model.fit_transform(X)
    assert len(n_sweeps) >= 12
    np.testing.assert_array_equal(model.components_, expected[1])
    np.testing.assert_array_equal(model.doc_topic_counts_.toarray(), expected[2].toarray())
    np.testing.assert_allclose(model.log_likelihood_, expected[3], rtol=1e-12)
    np.testing.assert_allclose(shares, expected[0], rtol=1e-5)  # sums in single precision


def test_a_text_of_eight_words_takes_eight_bytes():
    lengths = np.repeat([8, 16, 20], 100_000)
    held = document_rows(lengths, 20, 100, n_documents=len(lengths))
    assert held.slots.nbytes == 100_000 * (8 + 16 + 32) + 32
    for other in (
        document_rows(lengths, 33, 100, n_documents=len(lengths)),
        document_rows(lengths[:9], 20, 100, n_documents=9),
        document_rows(lengths, 20, 256, n_documents=len(lengths)),
    ):
        assert isinstance(other, rows_module.DenseDocuments)


def test_counts_are_averaged_over_fewer_sweeps_where_topics_are_many():
    rows = document_rows(np.full(10, 8), 8, 100)
    assert [sweep for sweep in range(6) if is_added(sweep, rows.sweeps_between(80))] == [0, 1, 3, 5]
    assert rows.sweeps_between(10_000) == 1
    assert document_rows(np.full(10, 8), 8, 1000).sweeps_between(80) == 1
