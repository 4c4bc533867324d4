"""Searches on a Dask cluster: folds as tasks, the bits of a local search."""

import dask.array as da
import distributed
import numpy as np
import pytest
from scipy import sparse

import stradask as sd
from stradask.errors import DataError

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]
rng = np.random.default_rng(0)
X = rng.standard_normal((60, 90)) * (rng.random((60, 90)) < 0.5)
Y = X[:, :4] @ [2.0, -1, 1, 0.5] + rng.standard_normal(60)
OPTIONS = {"alphas": 6, "eps": 0.1, "cv": 3}


@pytest.fixture(scope="module")
def client():
    """Two processes."""
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0"}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
        yield client


def assert_same_bits(distant, local, names):
    for name in names:
        np.testing.assert_array_equal(getattr(distant, name), getattr(local, name))


@pytest.mark.parametrize("form", [np.asfortranarray, sparse.csc_array])
def test_folds_are_tasks(client, form):
    local = sd.ElasticNetCV(l1_ratio=[0.5, 1.0], **OPTIONS).fit(form(X), Y)
    for engine in ("dask", client.scheduler.address):
        distant = sd.ElasticNetCV(l1_ratio=[0.5, 1.0], engine=engine, **OPTIONS).fit(form(X), Y)
        assert_same_bits(distant, local, ("alphas_", "mse_path_", "scores_", "coef_", "intercept_"))
    assert client.status == "running"


def test_logistic_folds_are_tasks(client):
    y = np.array(["ant", "bee"])[(Y > 0).astype(int)]
    options = {"scoring": "roc_auc", "class_weight": "balanced", **OPTIONS}
    local = sd.SparseLogisticRegressionCV(**options).fit(X, y, offset=Y / 9)
    distant = sd.SparseLogisticRegressionCV(engine="dask", **options).fit(X, y, offset=Y / 9)
    assert_same_bits(distant, local, ("alphas_", "scores_", "coef_", "intercept_"))


@pytest.mark.parametrize("chunks", [(20, 90), (60, 30)])
def test_a_dask_array_stays_on_the_cluster(client, chunks):
    local = sd.LassoCV(**OPTIONS).fit(np.asfortranarray(X), Y)
    distant = sd.LassoCV(**OPTIONS).fit(da.from_array(X, chunks=chunks), da.from_array(Y, chunks=20))
    assert_same_bits(distant, local, ("alphas_", "mse_path_", "coef_", "intercept_"))
    assert distant.n_features_in_ == 90


def test_an_error_of_a_worker_arrives(client):
    wrong = X.copy()
    wrong[3, 4] = np.nan
    with pytest.raises(DataError, match="NaN"):
        sd.LassoCV(**OPTIONS).fit(da.from_array(wrong, chunks=(20, 90)), Y)
    with pytest.raises(DataError, match="cannot judge this model"):
        sd.LassoCV(scoring="roc_auc", engine="dask", **OPTIONS).fit(X, Y)


def test_nothing_is_left_behind(client):
    sd.LassoCV(engine="dask", **OPTIONS).fit(X, Y)

    def idle():
        return client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks)) == 0

    for _ in range(100):
        if idle():
            return
        client.sync(_nap)
    raise AssertionError("tasks are left on the cluster")


async def _nap():
    import asyncio

    await asyncio.sleep(0.05)


def test_inside_a_task_the_search_runs_there_and_says_so(client):
    def search():
        import warnings

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model = sd.LassoCV(engine="dask", alphas=6, eps=0.1, cv=3).fit(X, Y)
        return model.mse_path_, [str(warning.message) for warning in caught]

    found, messages = client.submit(search).result(timeout=60)
    np.testing.assert_array_equal(found, sd.LassoCV(**OPTIONS).fit(X, Y).mse_path_)
    assert len(messages) == 1
    assert "inside a Dask task" in messages[0]


def test_engines_that_are_not_there():
    with pytest.raises(DataError, match="engine must be 'local', 'dask' or a scheduler's address"):
        sd.LassoCV(engine="spark", **OPTIONS).fit(X, Y)
