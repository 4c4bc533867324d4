"""scikit-learn's own estimator checks over every estimator."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.utils.estimator_checks import check_estimator

import stradask as sd

FRACTIONAL = "the check's data are fractional; LDA takes counts and refuses them"


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


def test_lda_fails_only_the_checks_whose_data_are_fractional():
    for outcome in _outcomes(sd.LatentDirichletAllocation(2, max_iter=5)):
        error = outcome["exception"]
        seen = set()
        while error is not None and id(error) not in seen:  # some checks wrap what the estimator said
            seen.add(id(error))
            if "fractional value" in str(error):
                break
            error = error.__cause__ or error.__context__
        assert outcome["status"] != "failed" or error is not None, (
            outcome["check_name"],
            outcome["exception"],
        )


def test_lda_passes_every_check_once_the_data_are_counts():
    failed = [o for o in _outcomes(RoundsUp(2, max_iter=5)) if o["status"] == "failed"]
    assert not failed, [(o["check_name"], o["exception"]) for o in failed]


@pytest.mark.parametrize("tag", ["sparse", "positive_only"])
def test_lda_says_what_it_takes(tag):
    assert getattr(sd.LatentDirichletAllocation().__sklearn_tags__().input_tags, tag)
