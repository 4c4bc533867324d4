"""Dask arrays and frames give the model of local data, and its answers, or are refused with the remedy."""

import contextlib
import re

import numpy as np
import pandas as pd
import pytest
from contract_cases import CASES, Given, N, assert_close, cases, readers
from scipy import sparse

from stradask.errors import DataError

da = pytest.importorskip("dask.array")
dd = pytest.importorskip("dask.dataframe", exc_type=ImportError)  # needs pyarrow
distributed = pytest.importorskip("distributed")
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.filterwarnings("ignore:.*feature names"),
    pytest.mark.filterwarnings("ignore:Dask currently has limited support"),  # of strings in frames
]
ROWS = 20  # of a chunk


@pytest.fixture(scope="module")
def other():
    """A client of another cluster, which a fit at an address leaves alone."""
    options = {"processes": False, "dashboard_address": ":0", "protocol": "tcp://"}
    with (
        distributed.LocalCluster(n_workers=1, **options) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield client


def chunked(values, rows=ROWS):
    if values is None:
        return None
    if sparse.issparse(values):
        return da.from_array(values.toarray(), (10, -1)).map_blocks(sparse.csr_array)
    values = np.asarray(values)
    return da.from_array(values, (rows,) + (-1,) * (values.ndim - 1))


def partitioned(values, rows=ROWS):
    if values is None:
        return None
    if not hasattr(values, "iloc"):
        values = pd.DataFrame(values) if values.ndim == 2 or values.dtype.names else pd.Series(values)
    return dd.from_pandas(values, chunksize=rows)


def arrays(case, rows):
    X, y, by_row, also = case.given
    lazy = {name: chunked(values, rows) for name, values in by_row.items()}
    return Given(chunked(X, rows), chunked(y, rows), lazy, also)


def beside_local_targets(case, rows):
    return case.given._replace(X=chunked(case.given.X, rows))


def of_unknown_length(case, rows):
    lazy = beside_local_targets(case, rows)
    return lazy._replace(X=lazy.X[da.from_array(np.ones(lazy.X.shape[0], bool), lazy.X.chunks[0])])


def frames(case, rows):
    X, y, by_row, also = case.given if case.data in ("ratings", "table") else case.frame
    if case.data == "ratings":
        users, items = X.tocoo().coords
        X = pd.DataFrame({"user": users, "item": items, "rating": X.tocoo().data})
    lazy = {name: partitioned(values, rows) for name, values in by_row.items()}
    return Given(partitioned(X, rows), partitioned(y, rows), lazy, also)


UNKNOWN = "array, chunks of unknown length"  # may be refused
FORMS = {
    "array": arrays,
    "array, local y": beside_local_targets,
    UNKNOWN: of_unknown_length,
    "frame": frames,
}


REMEDY = r"compute|in this process|of this process|takes frames|npz files"
LAZY = {"transform"}
OF_ROWS = LAZY | {"predict", "predict_proba", "predict_log_proba", "decision_function"}
ASKS = {"DynamicTopicModel": LAZY}  # for the slices of blocks
IN_THIS_PROCESS = """
    SparseGLMCV GroupLassoCV MultiTaskLassoCV MultiTaskElasticNetCV StabilitySelection KnockoffSelection
    BayesianGLM
""".split()  # noqa: SIM905
# Which take single ratings, or labels of groups, in this process.
BESIDE = {f"MatrixFactorization, {kind}" for kind in ("ccd", "sgd", "gibbs", "choices")}
BESIDE |= {"BayesianLinearRegression, groups"}


@pytest.mark.parametrize("case", cases("dask"))
def test_dask_is_local_data_or_refused(case, client, other):
    """Arrays go to the current client; a frame to an address, whoever is the current client, or nobody."""
    rows = N if case.scales == "prior" else ROWS  # chunks are shards: draws of several are combined
    # Chunks of documents have chains of their own, the same ones wherever they lie.
    near = arrays(case, rows) if case.data.startswith("documents") else case.given
    expected, fitted = case.answer(case.fit(near, model=case.tight()), case.given), set()
    for name, form in FORMS.items():
        if case.data == "table" and name != "frame":
            continue
        lazy, options, current = form(case, rows), {}, client
        if name == "frame" and case.takes("engine", "__init__"):
            options = {"engine": client.scheduler.address}
            current = other if CASES.index(case) % 2 else None
        with current.as_current() if current else contextlib.nullcontext():
            model, refusal = fit(case, lazy, case.tight(**options))
        assert not other.cluster.scheduler.tasks
        if model is None:
            assert re.search("chunk|" * (name == UNKNOWN) + REMEDY, refusal), f"{name}: {refusal}"
            named = case.speaker in refusal or "formula=" in refusal
            assert named or name == UNKNOWN, refusal
            continue
        fitted.add(name)
        with client.as_current():
            answer = case.answer(model, case.frame if name == "frame" and case.has_columns else case.given)
            assert_close(answer, expected, name, 1e-6)
            if case.has_columns and case.name not in ASKS:
                assert_close(case.answer(model, lazy), answer, f"{name}, predictions")
    takes = {"frame"} if case.data == "ratings" else set(FORMS)
    takes = set() if type(case.make()).__name__ in IN_THIS_PROCESS or case.name in BESIDE else takes
    assert takes - {UNKNOWN} <= fitted <= takes


def answers_lazily(case):
    """Models of topics in `transform`, linear ones that are no selection and torch's in all methods."""
    linear = case.scales in ("", "penalty") and not hasattr(case.make(), "get_support")
    return case.has_columns and (linear or "Torch" in case.name or case.scales == "counts")


@pytest.mark.parametrize("case", cases("lazy answers", answers_lazily))
def test_answers_to_arrays_are_lazy(case):
    given = case.given._replace(X=chunked(case.given.X))
    methods = readers(case.fitted)
    for name in methods.keys() & (LAZY if case.scales == "counts" else OF_ROWS) - ASKS.get(case.name, set()):
        found, expected = methods[name](given), methods[name](case.given)
        assert isinstance(found, da.Array)
        assert (found.chunks[0], found.dtype) == (given.X.chunks[0], expected.dtype)
        assert_close(found.compute(scheduler="threads"), expected, name)
    if case.takes("y", "score") and np.ndim(given.y) == 1 and given.y.dtype.names is None:
        for X in (given.X, of_unknown_length(case, N).X):
            with pytest.raises(DataError, match=f"y has {N - 1} rows, but X has {N}"):
                case.fitted.score(X, da.from_array(given.y[:-1]))


def fit(case, lazy, model):
    """Return a model and no refusal, or None and its message."""
    try:
        return case.fit(lazy, model=model), ""
    except DataError as error:
        return None, str(error)
