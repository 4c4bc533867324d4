"""A fit at a scheduler's address needs no current Dask client, and one of another cluster does not matter."""

import contextlib
import functools

import numpy as np
import pytest
from scipy import sparse

import stradask as sd

distributed = pytest.importorskip("distributed")
pytestmark = pytest.mark.cluster

_RNG = np.random.default_rng(0)
COUNTS = sparse.csr_array(_RNG.poisson(0.5, (60, 20)))
X = _RNG.standard_normal((60, 5))
Y = X @ np.arange(5) + _RNG.standard_normal(60)


def fitted(cls, X, y, attribute, engine, **options):
    model = cls(engine=engine, **options)
    return getattr(model.fit(X) if y is None else model.fit(X, y), attribute)


def draws(engine):
    options = {"n_samples": 400, "n_warmup": 100, "n_chains": 1, "n_shards": 2, "combine": "average"}
    model = sd.BayesianLogisticRegression(random_state=0, engine=engine, **options)
    return model.fit(X[:, :2], Y > 0).posterior_.draws


def network(engine):
    model = sd.MLPRegressor((3,), solver="sandblaster", max_iter=5, tol=0.5, random_state=0, engine=engine)
    return np.concatenate([W.ravel() for W in model.fit(X, Y).coefs_])


FITS = {
    "topics": functools.partial(
        fitted,
        sd.LatentDirichletAllocation,
        COUNTS,
        None,
        "components_",
        n_components=3,
        max_iter=3,
        random_state=0,
    ),
    "lasso": functools.partial(fitted, sd.Lasso, X, Y, "coef_", alpha=0.1, tol=1e-12),
    # Signs keep it from the steps that small problems take on one machine.
    "sparse logistic": functools.partial(
        fitted, sd.SparseLogisticRegression, X, Y > 0, "coef_", alpha=0.05, positive=True
    ),
    "logistic": functools.partial(
        fitted, sd.LogisticRegression, X, Y > 0, "coef_", solver="sandblaster", tol=1e-3
    ),
    "ridge": functools.partial(fitted, sd.Ridge, X, Y, "coef_", solver="sandblaster", tol=1e-3),
    "network": network,
    "factors": functools.partial(
        fitted,
        sd.MatrixFactorization,
        COUNTS.astype(float),
        None,
        "item_factors_",
        n_components=2,
        max_iter=3,
        random_state=0,
    ),
    "draws": draws,
}


@pytest.fixture(scope="module")
def clusters():
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": False, "dashboard_address": ":0"}
    with distributed.LocalCluster(**options) as here, distributed.LocalCluster(**options) as other:
        yield here, other


@pytest.mark.filterwarnings("ignore:.*not converge")
@pytest.mark.parametrize("name", FITS)
@pytest.mark.parametrize("current", [None, "another cluster's"])
def test_an_address_is_enough(name, current, clusters):
    here, other = clusters
    with pytest.raises(ValueError, match="No clients found"):
        distributed.default_client()
    with distributed.Client(other) if current else contextlib.nullcontext():
        there = FITS[name](here.scheduler_address)
        assert not other.scheduler.tasks
    np.testing.assert_allclose(there, FITS[name]("local"), rtol=1e-9)
