"""Dask DataFrames of ratings, of portions to add up, and of any density."""

import warnings

import numpy as np
import pytest

import stradask as sd

pytest.importorskip("distributed")
pd = pytest.importorskip("pandas")
dd = pytest.importorskip("dask.dataframe", exc_type=ImportError)  # needs pyarrow

pytestmark = [pytest.mark.cluster, pytest.mark.filterwarnings("ignore:.*not converge")]

N, D = 60, 4
NAMES = list("abcd")
_RNG = np.random.default_rng(0)
COUNTS = pd.DataFrame(1 + _RNG.integers(4, size=(N, D)), columns=NAMES).astype(float)
Y = pd.Series(COUNTS.to_numpy() @ np.array([1.0, -1.0, 0.5, 0.0]) + _RNG.standard_normal(N), name="y")
BRIEF = {"max_iter": 3, "random_state": 0}
DRAWS = {"n_samples": 100, "n_warmup": 50, "n_chains": 1, "n_shards": 3, "combine": "average"}
DRAWS |= {"random_state": 0}


@pytest.fixture(scope="module", autouse=True)
def client():
    from dask.distributed import Client, LocalCluster

    options = {"threads_per_worker": 1, "processes": False, "dashboard_address": ":0"}
    with LocalCluster(n_workers=2, **options) as cluster, Client(cluster) as client:
        yield client


@pytest.mark.parametrize("engine", ["dask", "local"])
def test_a_table_of_ratings_gives_its_factors_and_wider_frames_the_remedy(engine):
    table = pd.DataFrame({"user": np.arange(N) % 12, "item": np.arange(N) // 12, "rating": Y})
    lazy = dd.from_pandas(table, npartitions=3)
    model = sd.MatrixFactorization(2, engine=engine, **BRIEF)
    expected = model.fit(table[["user", "item"]], table["rating"]).item_factors_
    found = model.fit(lazy[["user", "item"]], lazy["rating"]).item_factors_
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(model.fit(lazy).item_factors_, expected)
    with pytest.raises(
        ValueError, match=r"takes ratings as a scipy sparse matrix, or as a table of three columns"
    ):
        model.fit(lazy.assign(time=0))


def test_portions_of_a_frame():
    """Each partition is a pandas frame to the function that adds up its rows."""

    def least_squares(portion, w):
        A, b = portion[NAMES].to_numpy(), portion["y"].to_numpy()
        residual = A @ w - b
        return 0.5 * float(residual @ residual), A.T @ residual

    lazy = dd.from_pandas(COUNTS.assign(y=Y), npartitions=3)
    found = sd.minimize(least_squares, np.zeros(D), lazy, engine="dask", tol=1e-12).x
    np.testing.assert_allclose(found, np.linalg.lstsq(COUNTS, Y, rcond=None)[0], atol=1e-5)


def test_draws_of_any_density_from_a_frame():
    """Rows of a frame are cut into shards as those of an array are."""

    def log_likelihood(q, rows):
        return -0.5 * float(((np.asarray(rows) - q) ** 2).sum())

    options = {"names": None, "sampler": "slice", **DRAWS}
    lazy = dd.from_pandas(COUNTS, npartitions=3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = sd.sample(log_likelihood, None, COUNTS, np.zeros(D), **options).draws
        try:
            found = sd.sample(log_likelihood, None, lazy, np.zeros(D), engine="dask", **options).draws
        except ValueError as error:
            assert "to_dask_array" in str(error) or "to_delayed" in str(error)  # noqa: PT017
        else:
            np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("model", [sd.Lasso(), sd.Ridge(), sd.LatentDirichletAllocation(2)], ids=repr)
def test_columns_of_text_are_refused(model):
    frame = dd.from_pandas(COUNTS.assign(b=list("xy") * (N // 2)), npartitions=3)
    with pytest.raises((ValueError, TypeError), match=r"text|string|number|'x'|object"):
        model.set_params(engine="dask").fit(frame, dd.from_pandas(Y, npartitions=3))
