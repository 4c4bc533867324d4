"""scikit-learn's own estimator checks over every estimator."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.utils import estimator_checks
from sklearn.utils.estimator_checks import check_estimator

import stradask as sd


class RoundsUp(sd.LatentDirichletAllocation):
    """The estimator behind a door that rounds up, so that the checks' fractional data reach the code."""

    def fit(self, X, y=None, **options):
        return super().fit(_rounded(X), y, **options)

    def partial_fit(self, X, y=None, **options):
        return super().partial_fit(_rounded(X), y, **options)

    def fit_transform(self, X, y=None, **options):
        return super().fit_transform(_rounded(X), y, **options)

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


def test_with_counts_lda_fails_only_where_fit_transform_must_equal_transform():
    """fit_transform averages over the chain; transform holds the topics of the last sweep fixed."""
    failed = [o for o in _outcomes(RoundsUp(2, max_iter=5)) if o["status"] == "failed"]
    names = {o["check_name"] for o in failed}
    assert names == {"check_transformer_general", "check_transformer_data_not_an_array"}
    assert all("fit_transform and transform outcomes not consistent" in str(o["exception"]) for o in failed)


@pytest.mark.parametrize("tag", ["sparse", "positive_only"])
def test_lda_says_what_it_takes(tag):
    assert getattr(sd.LatentDirichletAllocation().__sklearn_tags__().input_tags, tag)


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize(
    "model",
    [
        sd.LogisticRegression(tol=1e-12),
        sd.LogisticRegression(l1_ratio=1.0, tol=1e-12),
        sd.SparseLogisticRegression(tol=1e-12),
        sd.Lasso(0.01, tol=1e-12),
        sd.ElasticNet(0.01, tol=1e-12),
        sd.LassoCV(alphas=20, tol=1e-12),
        sd.ElasticNetCV(alphas=20, tol=1e-12),
        sd.SparseLogisticRegressionCV(alphas=20, tol=1e-12),
    ],
    ids=lambda model: type(model).__name__ + ("-l1" if getattr(model, "l1_ratio", 0) == 1 else ""),
)
def test_weights_are_repeated_rows(model, kind):
    """To 1e-7, as scikit-learn asks: two fits of a tolerance differ by what it leaves."""
    getattr(estimator_checks, f"check_sample_weight_equivalence_on_{kind}_data")(type(model).__name__, model)


@pytest.mark.parametrize("tol", [1e-4, 1e-6, 1e-8])
@pytest.mark.parametrize("alpha", [0.01, 0.1])
def test_predictions_of_weighted_and_of_repeated_rows_differ_by_the_root_of_the_tolerance(alpha, tol):
    """Least squares bends by 1 in each prediction, so that a gap bounds their mean squared error."""
    rng = np.random.default_rng(0)
    X, y, weights = rng.normal(size=(40, 60)), rng.normal(size=40), rng.integers(1, 5, 40)
    weighted = sd.Lasso(alpha, tol=tol).fit(X, y, weights)
    repeated = sd.Lasso(alpha, tol=tol).fit(X.repeat(weights, axis=0), y.repeat(weights))
    apart = weights @ (weighted.predict(X) - repeated.predict(X)) ** 2 / weights.sum()
    assert np.sqrt(apart) <= 2 * np.sqrt(tol * np.cov(y, aweights=weights, ddof=0))
