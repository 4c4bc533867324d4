"""scikit-learn's own estimator checks over every estimator."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.utils.estimator_checks import check_estimator

import stradask as sd


class RoundsUp(sd.LatentDirichletAllocation):
    """The estimator behind a door that rounds up, so that the checks' fractional data reach the code."""

    def fit(self, X, y=None, **options):
        return super().fit(_rounded(X), y, **options)

    def partial_fit(self, X, y=None, **options):
        return super().partial_fit(_rounded(X), y, **options)

    def transform(self, X):
        return super().transform(_rounded(X))

    def score(self, X, y=None):
        return super().score(_rounded(X), y)


def _rounded(X):
    """Round numbers up, leave everything else for the estimator to judge."""
    if sparse.issparse(X):
        return X.tocsr().ceil() if X.dtype.kind == "f" else X
    if hasattr(X, "columns"):
        return np.ceil(X)
    values = np.asarray(X)
    if values.dtype == object:
        try:
            values = values.astype(float)
        except (TypeError, ValueError):
            return X
    return np.ceil(values) if values.dtype.kind == "f" else X


def _outcomes(estimator):
    outcomes = check_estimator(estimator, on_fail=None, on_skip=None)
    assert len(outcomes) > 40
    return outcomes


def test_lda_fails_just_the_checks_that_it_declares():
    """Declared with their reason; what is declared must fail, and nothing else may."""
    outcomes = _outcomes(sd.LatentDirichletAllocation(2, max_iter=5))
    failed = {o["check_name"] for o in outcomes if o["status"] == "failed"}
    run = {o["check_name"] for o in _outcomes(RoundsUp(2, max_iter=5))}
    assert failed == set(sd.LatentDirichletAllocation._expected_failed_checks) & run


def test_scikit_learn_accepts_the_declaration():
    lda = sd.LatentDirichletAllocation(2, max_iter=5)
    check_estimator(lda, expected_failed_checks=lda._expected_failed_checks, on_skip=None)


def test_lda_passes_every_check_once_the_data_are_counts():
    failed = [o for o in _outcomes(RoundsUp(2, max_iter=5)) if o["status"] == "failed"]
    assert not failed, [(o["check_name"], o["exception"]) for o in failed]


@pytest.mark.parametrize("tag", ["sparse", "positive_only"])
def test_lda_says_what_it_takes(tag):
    assert getattr(sd.LatentDirichletAllocation().__sklearn_tags__().input_tags, tag)
