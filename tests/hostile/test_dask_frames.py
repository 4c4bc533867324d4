"""A Dask DataFrame gives the model of the Dask array with its partitions, or an error with the remedy."""

import warnings

import numpy as np
import pytest
from scipy import sparse

import stradask as sd

pytest.importorskip("distributed")
da = pytest.importorskip("dask.array")
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
NETWORK = {"hidden_layer_sizes": (2,), "solver": "sandblaster"} | BRIEF

ESTIMATORS = {
    "topics": (sd.LatentDirichletAllocation, {"n_components": 2} | BRIEF, None, "components_"),
    "lasso": (sd.Lasso, {"alpha": 0.1}, Y, "coef_"),
    "elastic net": (sd.ElasticNet, {"alpha": 0.1}, Y, "coef_"),
    "lasso path": (sd.LassoCV, {"alphas": 3, "cv": 2}, Y, "coef_"),
    "elastic net path": (sd.ElasticNetCV, {"alphas": 3, "cv": 2}, Y, "coef_"),
    "sparse logistic": (sd.SparseLogisticRegression, {"alpha": 0.05}, Y > 0, "coef_"),
    "sparse logistic path": (sd.SparseLogisticRegressionCV, {"alphas": 3, "cv": 2}, Y > 0, "coef_"),
    "logistic": (sd.LogisticRegression, {}, Y > 0, "coef_"),
    "ridge": (sd.Ridge, {}, Y, "coef_"),
    "poisson": (sd.PoissonRegressor, {}, Y.abs().round(), "coef_"),
    "network": (sd.MLPRegressor, NETWORK, Y, "coefs_"),
    "network of classes": (sd.MLPClassifier, NETWORK, Y > 0, "coefs_"),
    "linear draws": (sd.BayesianLinearRegression, DRAWS, Y, "coef_"),
    "logistic draws": (sd.BayesianLogisticRegression, DRAWS, Y > 0, "coef_"),
    "counts' draws": (sd.BayesianPoissonRegression, DRAWS, Y.abs().round(), "coef_"),
}


@pytest.fixture(scope="module", autouse=True)
def client():
    from dask.distributed import Client, LocalCluster

    options = {"threads_per_worker": 1, "processes": False, "dashboard_address": ":0"}
    with LocalCluster(n_workers=2, **options) as cluster, Client(cluster) as client:
        yield client


def fitted(name, X, y, engine):
    cls, options, _, attribute = ESTIMATORS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few rounds and draws
        model = cls(**options, engine=engine).fit(*([X] if y is None else [X, y]))
    value = getattr(model, attribute)
    return model, np.concatenate([np.ravel(part) for part in (value if isinstance(value, list) else [value])])


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("engine", ["dask", pytest.param("local", marks=pytest.mark.slow)])
def test_a_frame_is_as_good_as_the_array_of_its_partitions(name, engine):
    y = ESTIMATORS[name][2]
    frame = dd.from_pandas(COUNTS, npartitions=3)
    beside = None if y is None else dd.from_pandas(y, npartitions=3)
    chunks = frame.to_dask_array(lengths=True).chunks
    model, found = fitted(name, frame, beside, engine)
    array = da.from_array(COUNTS.to_numpy(), chunks)
    _, expected = fitted(name, array, None if y is None else da.from_array(y.to_numpy(), chunks[0]), engine)
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)
    assert model.feature_names_in_.tolist() == NAMES
    if hasattr(model, "predict"):
        of_frame, of_rows = np.asarray(model.predict(frame)), np.asarray(model.predict(COUNTS))
        np.testing.assert_allclose(of_frame.astype(float), of_rows.astype(float), rtol=1e-12)


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


def test_names_and_types_of_columns_are_told():
    frame = dd.from_pandas(COUNTS.assign(b=list("xy") * (N // 2)), npartitions=3)
    for name, (_, _, y, _) in ESTIMATORS.items():
        with pytest.raises((ValueError, TypeError)) as caught:
            fitted(name, frame, y, "dask")
        assert len(str(caught.value)) > 15, name


def test_ratings_in_wide_frames_are_refused_with_the_remedy():
    wide = dd.from_pandas(pd.DataFrame(sparse.eye(6).toarray()), npartitions=2)
    with pytest.raises(ValueError, match="scipy sparse matrix"):
        sd.MatrixFactorization(2, engine="dask").fit(wide)
