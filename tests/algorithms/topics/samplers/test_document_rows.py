"""Rows of counts are as narrow as the longest document allows, and hold the same counts."""

import numpy as np
import pytest
from scipy import sparse

import stradask as sd
from stradask.algorithms.topics.samplers import gibbs
from stradask.algorithms.topics.samplers.document_rows import document_rows


@pytest.mark.parametrize(
    ("longest", "kind"),
    [(0, np.uint8), (255, np.uint8), (256, np.uint16), (65_535, np.uint16), (65_536, np.int32)],
)
def test_rows_are_as_narrow_as_the_longest_document_allows(longest, kind):
    rows = document_rows(np.array([0, 3]), longest, 100)
    assert rows.counts.dtype == kind
    assert rows.counts.shape == (2, 128)


def test_the_width_of_rows_changes_no_bit(monkeypatch):
    X = np.random.default_rng(0).multinomial(120, np.full(30, 1 / 30), 60)
    X[0] = 0
    X[0, 3] = 255  # of one word, and in the end of one topic: the largest count of a byte
    X = sparse.csr_array(X)
    model = sd.LatentDirichletAllocation(3, sampler="gibbs", max_iter=15, random_state=0, n_groups=2)
    expected = model.fit(X).doc_topic_counts_.toarray()
    assert expected[0].max() == 255
    for longest in (256, 70_000):
        monkeypatch.setattr(
            gibbs, "document_rows", lambda lengths, _, *rest, n=longest: document_rows(lengths, n, *rest)
        )
        np.testing.assert_array_equal(model.fit(X).doc_topic_counts_.toarray(), expected)
