"""Targets and weights on Dask beside the rows: they stay there, and the model is that of a local fit."""

import tracemalloc
import warnings

import dask
import dask.array as da
import distributed
import numpy as np
import pandas as pd
import pytest
from far_problems import MODELS, N, close, make_problem, two_workers
from sklearn.base import clone

from stradask.algorithms.linear.glm import choose, row_places
from stradask.algorithms.linear.logistic_regression import LogisticRegression
from stradask.algorithms.linear.poisson import PoissonRegressor
from stradask.algorithms.linear.ridge import Ridge
from stradask.algorithms.topics.corpus.shard_input import sources_of
from stradask.errors import DataError


@pytest.fixture(scope="module", autouse=True)
def client():
    with two_workers() as client:
        yield client


@pytest.fixture(scope="module")
def problem():
    return make_problem()


@pytest.fixture
def nothing_comes_here(monkeypatch):
    def refuse(vector, n_samples):
        assert not dask.is_dask_collection(vector)
        return vector

    monkeypatch.setattr(row_places, "check_vector", refuse)


@pytest.mark.parametrize(
    ("cls", "form"),
    [
        *((cls, "huge") for cls in MODELS),
        (LogisticRegression, "none"),
        pytest.param(PoissonRegressor, "none", marks=pytest.mark.slow),
        (Ridge, "one number"),
    ],
)
@pytest.mark.usefixtures("nothing_comes_here")
def test_targets_and_weights_stay_where_they_lie(problem, cls, form):
    X, targets, weights = problem
    weights, y = {"none": None, "one number": 2.5, "huge": 1e300 * weights}[form], targets[cls]
    lazily = da.from_array(X, (90, 4)), da.from_array(y, 70)
    lazily += (da.from_array(weights, 130) if form == "huge" else weights,)
    far = cls(tol=1e-12, warm_start=True).fit(*lazily)
    close(far, cls(tol=1e-12).fit(X, y, weights))
    assert far.fit(*lazily).n_iter_ <= 2


@pytest.mark.parametrize(
    ("names", "class_weight"),
    [
        (np.array(["no", "yes"]), "balanced"),
        (np.array(["no", "yes"], dtype=object), {"yes": 2.5}),
        (np.array([False, True]), None),
        (np.array([-1.0, 1.0]), {-1.0: 2.0, 1.0: 2.0}),
        (np.array([3, 7, 9]), {7: 0.2}),
    ],
)
@pytest.mark.usefixtures("nothing_comes_here")
def test_labels_stay_where_they_lie(problem, names, class_weight):
    """The first partition lacks a class, as those of sorted data do."""
    X, targets, weights = problem
    numbers = targets[LogisticRegression].copy()
    numbers[:100] = 0
    numbers[-150:] += len(names) == 3
    y = names[numbers]
    near = LogisticRegression(class_weight=class_weight, tol=1e-11).fit(X, y, weights)
    far = LogisticRegression(class_weight=class_weight, tol=1e-11)
    far.fit(da.from_array(X, (100, -1)), da.from_array(y, 100), da.from_array(weights, 100))
    close(far, near)
    np.testing.assert_array_equal(far.classes_, near.classes_)
    assert far.classes_.dtype == near.classes_.dtype


@pytest.mark.usefixtures("nothing_comes_here")
@pytest.mark.parametrize("class_weight", [None, "balanced"])
def test_labels_stay_where_they_lie_with_an_l1_penalty(problem, class_weight):
    X, targets, weights = problem
    y = targets[LogisticRegression]
    lazily = da.from_array(y, 70), da.from_array(weights, 130)
    model = LogisticRegression(0.05, l1_ratio=0.9, tol=1e-11, class_weight=class_weight)
    far, near = clone(model).fit(da.from_array(X, (90, 4)), *lazily), model.fit(X, y, weights)
    close(far, near)
    assert far.solver_ == "proximal-newton"
    np.testing.assert_array_equal(far.coef_ == 0, near.coef_ == 0)
    assert (far.coef_ == 0).any()


@pytest.mark.parametrize("most", [3, 6000])
def test_an_l1_penalty_over_several_classes_or_many_columns_takes_labels_here(problem, monkeypatch, most):
    X, targets, _ = problem
    y = np.arange(N) % 3 if most > 3 else targets[LogisticRegression]
    monkeypatch.setattr(choose, "NEWTON_MOST", most)
    model = LogisticRegression(0.05, l1_ratio=0.9, tol=1e-9)
    far = clone(model).fit(da.from_array(X, (90, 4)), da.from_array(y, 70))
    close(far, model.fit(X, y), rtol=1e-7)
    assert far.solver_ == "working-set"


@pytest.mark.usefixtures("nothing_comes_here")
@pytest.mark.parametrize(
    ("class_weight", "weighed"),
    [
        ({0: 2.0}, True),
        (None, False),
        pytest.param({0: 2.0}, False, marks=pytest.mark.slow),
        pytest.param(None, True, marks=pytest.mark.slow),
    ],
)
def test_replicas_have_labels_where_they_lie(problem, class_weight, weighed):
    """The model has the bits of one whose labels come from this process, but for how weights are scaled."""
    X, targets, weights = problem
    y, rows = targets[LogisticRegression], da.from_array(X, (90, 4))
    lazily = [da.from_array(y, 70), da.from_array(weights, 130) if weighed else None]
    model = LogisticRegression(
        solver="downpour", class_weight=class_weight, random_state=0, tol=1e-3, max_iter=60, n_replicas=3
    )
    far = clone(model).fit(rows, *lazily)
    near = model.fit(rows, y, weights if weighed else None)
    assert far.solver_ == "downpour"
    np.testing.assert_allclose(far.coef_, near.coef_, rtol=1e-9)
    bad = da.from_array(np.where(np.arange(N) == 200, np.nan, y), 100)
    with pytest.raises(DataError, match=r"in partition 2, which begins at row 180: .*NaN"):
        model.fit(rows, bad)


@pytest.mark.slow
def test_replicas_inside_a_task_are_threads_of_its_worker(problem, client):
    X, targets, weights = problem
    y, options = targets[LogisticRegression], {"solver": "downpour", "random_state": 0, "max_iter": 60}

    def fit(*given):
        warnings.simplefilter("ignore", UserWarning)  # that the fit runs on the worker's own threads
        rows, y, w = (da.from_array(part, 100) for part in given)
        model = LogisticRegression(n_replicas=2, tol=1e-3, **options)
        return [
            clone(model).fit(rows.rechunk((100, -1)), *beside).coef_ for beside in ((y, w), (y.compute(),))
        ]

    both = client.submit(fit, X, y, weights, pure=False).result(60)
    rows = da.from_array(X, (100, -1))
    near = LogisticRegression(n_replicas=2, tol=1e-3, **options)
    for got, beside in zip(both, ((y, weights), (y,)), strict=True):
        np.testing.assert_allclose(got, near.fit(rows, *beside).coef_, rtol=0.1, atol=0.02)


@pytest.mark.slow
@pytest.mark.cluster
def test_the_memory_of_this_process_does_not_grow_with_the_rows():
    """Nothing comes here that has a number a row."""
    n = 500_000
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0"}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster):
        X = da.random.default_rng(0).standard_normal((n, 4), chunks=(n // 8, 4)).persist()
        y, weights = (X[:, 0] > X[:, 1]).persist(), da.fabs(X[:, 2]).persist()
        tracemalloc.start()
        try:
            for options in ({"solver": "newton"}, {"solver": "sandblaster"}, {"l1_ratio": 0.5}):
                model = LogisticRegression(**options).fit(X, y, weights)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 6 * n  # 1 MB, and not 8 bytes a row
        assert model.score(X[:1000], y[:1000]) > 0.99


# Other forms -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", [LogisticRegression, Ridge])
def test_vectors_of_dask_in_any_form(problem, cls):
    """Beside rows of this process, as columns, and of unknown length they come here."""
    X, targets, weights = problem
    y, w = da.from_array(targets[cls], 100), da.from_array(weights, 100)
    near = cls(tol=1e-12).fit(X, targets[cls], weights)
    for rows, engine in ((X, "local"), (X, "dask"), (da.from_array(X, (100, -1)), "dask")):
        close(cls(tol=1e-12, engine=engine).fit(rows, y, w), near)
    some = y[da.from_array(X, (100, -1))[:, 0] > -99]
    close(cls(tol=1e-12).fit(da.from_array(X, (100, -1)), some, w), near)
    with pytest.raises(DataError, match=r"sample_weight has the shape \(400, 1\)"):
        cls().fit(da.from_array(X, (100, -1)), y, w[:, None])


@pytest.mark.parametrize("cls", [LogisticRegression, PoissonRegressor])
def test_predictions_of_rows_that_nobody_has_counted(problem, cls):
    X, targets, weights = problem
    model, lazily = cls().fit(X, targets[cls]), da.from_array(X, (100, 4))
    found = model.predict(lazily[lazily[:, 0] > 0])
    np.testing.assert_allclose(found.compute(), model.predict(X[X[:, 0] > 0]))
    y, w = da.from_array(targets[cls], 50), da.from_array(weights, 100)
    assert model.score(lazily, y, w) == pytest.approx(model.score(X, targets[cls], weights))


def test_what_is_no_array_of_dasks_is_named(problem, client):
    (X, targets, _), cls = problem, Ridge
    y, future = targets[cls], client.scatter(X)
    with pytest.raises(DataError, match=r"X is a Future of Dask's: .*from_delayed"):
        cls().fit(future, y)
    with pytest.raises(DataError, match=r"X is a Delayed\w*; .*from_delayed"):
        cls().fit(dask.delayed(X), y)
    with pytest.raises(DataError, match="sample_weight is a Future of Dask's"):
        cls().fit(da.from_array(X, (100, -1)), y, client.scatter(y))
    close(cls().fit(da.from_delayed(future, X.shape, X.dtype), dask.delayed(y)), cls().fit(X, y))


def test_targets_and_weights_that_are_refused_where_they_lie(problem):
    (X, targets, weights), cls = problem, Ridge
    X, y, where = (
        da.from_array(X, (100, -1)),
        targets[cls].astype(float),
        "in partition 2, which begins at row 200: ",
    )
    for bad, said in ((np.nan, "y contains NaN in row 33"), (-np.inf, "y contains infinity in row 33")):
        broken = y.copy()
        broken[233] = bad
        with pytest.raises(DataError, match=where + said):
            cls().fit(X, da.from_array(broken, 100))
    for bad in (-1.0, np.nan):
        broken = weights.copy()
        broken[233] = bad
        with pytest.raises(DataError, match=f"{where}sample_weight must be .* got {bad:g} for row 33"):
            cls().fit(X, da.from_array(y, 100), da.from_array(broken, 100))
    with pytest.raises(DataError, match="sample_weight is zero in every row"):
        cls().fit(X, da.from_array(y, 100), da.zeros(N, chunks=100))
    with pytest.raises(DataError, match="sample_weight must be 0 or above and finite, got -2"):
        cls().fit(X, da.from_array(y, 100), -2.0)
    with pytest.raises(DataError, match="X has 400 rows, but y or a weight vector has 399"):
        cls().fit(X, da.from_array(y, 100), da.ones(399))
    wrong = da.from_delayed(dask.delayed(np.zeros)(7), (N,), float)
    with pytest.raises(DataError, match=r"in partition 0.*rows, but X has 400"):
        cls().fit(X.rechunk((N, -1)), wrong)


def _text_in_partition_2(block, block_info=None):
    return block.astype(str) if block_info[0]["chunk-location"] == (2,) else block


def test_labels_and_counts_that_are_refused_where_they_lie(problem):
    X, targets, weights = problem
    X, y = da.from_array(X, (100, -1)), targets[LogisticRegression]
    without = da.from_array(np.where(y == 1, 0.0, weights), 100)
    with pytest.raises(DataError, match="all rows of a class have the weight zero"):
        LogisticRegression(np.inf).fit(X, da.from_array(y, 100), without)
    with pytest.raises(DataError, match="class_weight names the class 5"):
        LogisticRegression(class_weight={5: 1.0}).fit(X, da.from_array(y, 100))
    mixed = da.map_blocks(_text_in_partition_2, da.from_array(y, 100), dtype=y.dtype, meta=y[:0])
    for solver in ("auto", "downpour"):
        with pytest.raises(DataError, match=r"y holds text in partition 2.* numbers in partition 0"):
            LogisticRegression(solver=solver).fit(X, mixed)
    with pytest.raises(DataError, match=r"in partition \d.*continuous"):
        LogisticRegression().fit(X, da.from_array(weights, 100))
    before = LogisticRegression(warm_start=True).fit(X, da.from_array(y, 100))
    with pytest.raises(DataError, match="goes on from a model of the classes"):
        before.fit(X, da.from_array(y + 1, 100))
    counts = np.ones(N)
    counts[-1] = -3
    with pytest.raises(
        DataError, match=r"partition 3.* y holds -3 in row 99: the targets of PoissonRegressor"
    ):
        PoissonRegressor().fit(X, da.from_array(counts, 100))


@pytest.mark.parametrize(
    "cls", [pytest.param(cls, marks=[] if cls is LogisticRegression else pytest.mark.slow) for cls in MODELS]
)
def test_frames_that_are_cut_otherwise(problem, cls):
    """Beside an array they are cut as it is; nullable columns come here; unlike frames are named."""
    dd = pytest.importorskip("dask.dataframe", exc_type=ImportError)
    X, targets, weights = problem
    y, near = targets[cls].astype(float), cls(tol=1e-12).fit(X, targets[cls], weights)
    frame = pd.DataFrame(X, columns=list("abcdef")).assign(y=y, w=weights, n=pd.array(y, "Float64"))
    parts = (dd.from_pandas(frame[a:b], npartitions=1) for a, b in ((0, 50), (50, 90), (90, N)))
    other, alike = dd.concat(list(parts)), dd.from_pandas(frame, npartitions=3)
    rows = da.from_array(X, (150, -1))
    for beside in (other, alike):
        close(cls(tol=1e-12).fit(rows, beside["y"], beside["w"]), near)
        close(cls(tol=1e-12).fit(rows, beside["n"], beside["w"]), near)
    with pytest.raises(DataError, match=r"in partition \d, .* rows, but X has .*pass sample_weight.compute"):
        cls().fit(alike[list("abcdef")], alike["y"], other["w"])
    gap = da.concatenate([rows[:90], rows[90:90], rows[90:]])
    with pytest.raises(DataError, match="X has 400 rows, but y or a weight vector has 450"):
        cls().fit(gap, dd.concat([other.partitions[k] for k in (0, 1, 0, 2)])["y"])


def test_columns_of_any_name():
    """Those of a frame are attributes, too."""
    dd = pytest.importorskip("dask.dataframe", exc_type=ImportError)
    names = ["key", "dask", "chunks", "npartitions"]
    assert len(sources_of(dd.from_pandas(pd.DataFrame(np.eye(8)[:, :4], columns=names), npartitions=3))) == 3
