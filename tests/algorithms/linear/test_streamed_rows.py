"""Rows beyond the workers' memory: the bits of rows that stay there, from files, errors that name them."""

import logging
import os
import signal
import threading
import time
import warnings

import dask
import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone

import stradask as sd
from stradask.algorithms.inputs import streamed
from stradask.algorithms.linear.glm import row_places
from stradask.algorithms.linear.sparse import distributed
from stradask.datasets import row_files
from stradask.errors import DataError
from stradask.scheduler.allocation import WorkerMemory
from stradask.scheduler.read_ahead import ReadAhead
from stradask.scheduler.workers import ClusterWorkers

RNG = np.random.default_rng(0)
N, D, CHUNK = 1200, 8, 150
DENSE = RNG.standard_normal((N, D))
SPARSE = sparse.random_array((N, D), density=0.3, rng=RNG, format="csr")
NUMBERS = DENSE @ np.linspace(-1, 1, D) + RNG.standard_normal(N)
LABELS = (NUMBERS > 0).astype(int)
COUNTS = RNG.poisson(np.exp(0.3 * DENSE[:, 0])).astype(float)

MODELS = {
    "newton": (sd.LogisticRegression(), LABELS),
    "lbfgs": (sd.LogisticRegression(solver="lbfgs"), LABELS),
    "sketch": (sd.LogisticRegression(solver="sketch"), LABELS),
    "l1": (sd.LogisticRegression(penalty="l1", C=0.1), LABELS),
    "classes": (sd.LogisticRegression(), np.digitize(NUMBERS, [-1, 1])),
    "ridge": (sd.Ridge(), NUMBERS),
    "poisson": (sd.PoissonRegressor(), COUNTS),
    "glm": (sd.GLM(family="poisson", covariance="HC3"), COUNTS),
    "lasso": (sd.Lasso(0.01), NUMBERS),
    "standardized": (sd.Lasso(0.01, standardize=True), NUMBERS),
    "sparse": (sd.SparseLogisticRegression(0.002, tol=1e-10), LABELS),
    "sparse-classes": (sd.SparseLogisticRegression(0.002, tol=1e-10), np.digitize(NUMBERS, [-1, 1])),
    "sparse-options": (
        sd.SparseLogisticRegression(
            0.002,
            l1_ratio=0.7,
            standardize=True,
            positive=True,
            penalty_factor=[0, *[1] * (D - 1)],
            tol=1e-10,
        ),
        LABELS,
    ),
}


@pytest.fixture(scope="module")
def cluster():
    from distributed import Client, LocalCluster

    quiet = {"dashboard_address": ":0", "silence_logs": logging.CRITICAL, "processes": False}
    quiet |= {"n_workers": 2, "threads_per_worker": 1, "memory_limit": "1GB"}
    # Workers are threads here, and the memory of the whole test run is not theirs: they must not pause.
    memory = {f"distributed.worker.memory.{at}": False for at in ("target", "spill", "pause", "terminate")}
    with dask.config.set(memory), LocalCluster(**quiet) as made, Client(made) as client:
        yield client


def lazy(X):
    """A Dask array whose blocks are to be computed, in chunks of rows."""
    import dask.array as da

    meta = sparse.csr_array((0, 0)) if sparse.issparse(X) else np.empty((0,) * X.ndim)
    blocks = [
        da.from_delayed(dask.delayed(_copied)(X[a : a + CHUNK]), X[a : a + CHUNK].shape, X.dtype, meta=meta)
        for a in range(0, N, CHUNK)
    ]
    return da.concatenate(blocks, allow_unknown_chunksizes=True)


def _copied(block):
    return block.copy()


@pytest.fixture
def reads(monkeypatch):
    """Numbers of blocks that were asked for and read."""
    counts, get, now = {"asked": 0, "read": 0}, ReadAhead.get, ReadAhead._now

    def getting(self, number):
        counts["asked"] += 1
        return get(self, number)

    def reading(self, number):
        counts["read"] += 1
        return now(self, number)

    monkeypatch.setattr(ReadAhead, "get", getting)
    monkeypatch.setattr(ReadAhead, "_now", reading)
    return counts


def stream(monkeypatch, kept):
    """Let X be too large, and each worker keep so many bytes of it."""
    for module in (row_places, distributed):
        monkeypatch.setattr(module, "bytes_to_keep", lambda X, engine, prepare: kept)


FEW = ("lbfgs-dense", "lbfgs-sparse", "lasso-dense", "glm-sparse", "sparse-dense", "sparse-sparse")
CASES = [
    pytest.param(name, kind, marks=() if f"{name}-{kind}" in FEW else pytest.mark.slow)
    for name in MODELS
    for kind in ("dense", "sparse")
]


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_the_bits_are_those_of_rows_in_memory(cluster, monkeypatch, reads, name, kind):
    model, y = MODELS[name]
    X = {"dense": DENSE, "sparse": SPARSE}[kind]
    model.set_params(engine="dask")
    stay = model.fit(lazy(X), lazy(y))
    coef, intercept = np.array(stay.coef_), np.array(stay.intercept_)
    assert not reads["asked"]
    stream(monkeypatch, 0)
    apart = 1e-8 if name.startswith("sparse") else 0.0  # those in memory are summed by columns
    np.testing.assert_allclose(model.fit(lazy(X), lazy(y)).coef_, coef, rtol=0, atol=apart)
    np.testing.assert_allclose(model.intercept_, intercept, rtol=0, atol=apart)
    assert reads["asked"] >= 2 * (N // CHUNK)


def test_what_fits_is_read_once(cluster, monkeypatch, reads):
    model = sd.LogisticRegression(solver="lbfgs", engine="dask")
    stream(monkeypatch, 10**9)
    model.fit(lazy(DENSE), lazy(LABELS))
    blocks = N // CHUNK
    assert blocks <= reads["read"] <= 2 * blocks  # once by each worker: late orders are begun again elsewhere
    assert reads["asked"] > 10 * blocks
    few = dict(reads)
    stream(monkeypatch, 2 * CHUNK * D * 8)  # of the four or more blocks that each worker has
    model.fit(lazy(DENSE), lazy(LABELS))
    read, asked = reads["read"] - few["read"], reads["asked"] - few["asked"]
    assert 2 * blocks < read < 0.9 * asked


def test_rows_are_streamed_where_they_would_fill_the_memory(cluster, monkeypatch):
    assert streamed.bytes_to_keep(lazy(DENSE), "dask", int) is None
    monkeypatch.setattr(streamed, "_MOST_MEMORY", 1e-6)
    for X, size in ((DENSE, DENSE.nbytes), (SPARSE, 12 * SPARSE.nnz + 8 * N)):
        kept = streamed.bytes_to_keep(lazy(X), "dask", int)
        assert 0 <= kept < 0.6e9
        assert streamed.bytes_of(lazy(X), "dask") == pytest.approx(size, rel=0.2)
    assert streamed.bytes_to_keep(lazy(DENSE).persist(), "dask", int) is None  # they are there
    assert streamed.bytes_to_keep(lazy(DENSE), "local", int) is None
    assert streamed.bytes_to_keep(DENSE, "dask", int) is None


def test_workers_without_memory_for_blocks_are_refused_at_once(cluster, monkeypatch):
    memory = [WorkerMemory(limit, 200e6, 1, True) for limit in (300e6, 230e6)]
    monkeypatch.setattr(ClusterWorkers, "memory_after", lambda self, prepare: memory)
    monkeypatch.setattr(streamed, "_MOST_MEMORY", 1e-6)
    with pytest.raises(DataError, match=r"a limit of 230 MB leaves too little .* 200 MB, targets"):
        sd.Ridge(engine="dask").fit(lazy(DENSE), NUMBERS)
    memory[1] = memory[1]._replace(limit=240e6)
    sd.Ridge(engine="dask").fit(lazy(DENSE), NUMBERS)


def test_bad_values_are_named_by_their_block(cluster, monkeypatch):
    stream(monkeypatch, 0)
    X = DENSE.copy()
    X[2 * CHUNK + 3, 1] = np.nan
    for model, y in (MODELS["lbfgs"], MODELS["lasso"], MODELS["glm"]):
        with pytest.raises(DataError, match=f"{2 * CHUNK}.*NaN"):
            model.set_params(engine="dask").fit(lazy(X), lazy(y))


@pytest.fixture
def files(tmp_path, monkeypatch):
    """A folder of npy and svmlight files that are cut into small parts."""
    from sklearn.datasets import dump_svmlight_file

    monkeypatch.setattr(row_files, "_BYTES", 8 * D * 100)
    monkeypatch.setattr(row_files, "_LINES", 4000)
    for k, half in enumerate((slice(0, 500), slice(500, N))):
        np.save(tmp_path / f"X{k}.npy", DENSE[half])
        np.save(tmp_path / f"y{k}.npy", LABELS[half])
        dump_svmlight_file(SPARSE[half], LABELS[half], str(tmp_path / f"{k}.svm"), zero_based=False)
    return tmp_path


@pytest.mark.parametrize("engine", ["local", "dask"])
def test_files_of_rows_give_the_model_of_their_arrays(cluster, files, monkeypatch, engine):
    stream(monkeypatch, 0)
    model = sd.LogisticRegression(solver="lbfgs", tol=1e-10, engine=engine)
    here = sd.LogisticRegression(solver="lbfgs", tol=1e-10)
    model.fit(f"{files}/X*.npy", f"{files}/y*.npy")
    np.testing.assert_allclose(model.coef_, here.fit(DENSE, LABELS).coef_, atol=1e-9)
    predicted = model.predict(f"{files}/X*.npy")
    np.testing.assert_array_equal(predicted.compute(), here.predict(DENSE))
    model.fit([str(files / "0.svm"), str(files / "1.svm")], None)
    X = SPARSE
    np.testing.assert_allclose(model.coef_, here.fit(X, LABELS).coef_, atol=1e-9)
    np.testing.assert_array_equal(model.predict(f"{files}/*.svm").compute(), here.predict(X))


@pytest.mark.parametrize("name", ["X0.npy", "0.svm"])
def test_a_file_that_changes_between_passes_is_named(cluster, files, monkeypatch, name):
    stream(monkeypatch, 0)

    def replace(info):
        if info.round == 2:
            path, aside = files / name, files / f"new-{name}"
            if name == "X0.npy":
                np.save(aside, np.full((500, D), 3.0))  # of the same shape
            else:
                aside.write_bytes(path.read_bytes().replace(b"1:", b"2:", 1)[:-1] + b"\n")
            aside.replace(path)  # a worker may be reading

    X, y = (f"{files}/X*.npy", LABELS) if name == "X0.npy" else (f"{files}/*.svm", None)
    with pytest.raises(DataError, match=rf"{name} has changed since the fit began"):
        sd.LogisticRegression(solver="lbfgs", tol=1e-12, engine="dask").fit(X, y, callback=replace)


STOPPED = [pytest.param(name, marks=() if name == "lasso" else pytest.mark.slow) for name in MODELS]


@pytest.mark.parametrize("name", STOPPED)
def test_ctrl_c_in_the_middle_of_a_pass_ends_the_fit(cluster, monkeypatch, name):
    stream(monkeypatch, 0)
    now, reads = ReadAhead._now, []

    def reading(self, number):
        reads.append(number)
        if len(reads) == 6:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.2)  # the pass is not over when it arrives
        return now(self, number)

    model, y = MODELS[name]
    model = clone(model).set_params(engine="dask")
    with monkeypatch.context() as patched:
        patched.setattr(ReadAhead, "_now", reading)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            try:
                model.fit(lazy(DENSE), lazy(y))
                assert "the model so far is kept" in str(said[0].message)
                assert np.isfinite(model.coef_).all()
            except KeyboardInterrupt:  # before the first round, or of a model without a middle
                assert not hasattr(model, "coef_")
    assert len(reads) <= 10 * (N // CHUNK)  # of many passes
    held = cluster.run(lambda dask_worker: dask_worker.plugins["stradask-sessions"].worker_sessions.keys())
    assert not any(held.values())
    again = clone(model).fit(lazy(DENSE), lazy(y))
    np.testing.assert_array_equal(model.fit(lazy(DENSE), lazy(y)).coef_, again.coef_)


def test_copies_of_a_file_may_have_times_of_their_own(files):
    (part,) = row_files.npy_parts([str(files / "y0.npy")], 1)
    there = part._replace(stamp="as on another machine")
    assert there.read().tolist() == part.read().tolist() == LABELS[:500].tolist()
    os.utime(files / "y0.npy", ns=(1, 1))
    for other in (part, there):
        with pytest.raises(DataError, match=r"y0.npy has changed"):
            other.read()


def test_compressed_lines_and_scores_of_files(files):
    import bz2
    import gzip

    text = [(files / f"{k}.svm").read_bytes() for k in range(2)]
    (files / "0.svm.gz").write_bytes(gzip.compress(text[0]))
    (files / "1.libsvm.bz2").write_bytes(bz2.compress(text[1]))
    plain, packed = [f"{files}/{k}.svm" for k in range(2)], [f"{files}/0.svm.gz", f"{files}/1.libsvm.bz2"]
    model, here = sd.LogisticRegression(), sd.LogisticRegression()
    model.fit(packed, None)
    np.testing.assert_allclose(model.coef_, here.fit(plain, None).coef_, rtol=1e-9)
    expected = here.score(SPARSE, LABELS)
    assert model.score(packed) == model.score(plain, LABELS) == expected
    model.fit(f"{files}/X*.npy", f"{files}/y*.npy")
    assert model.score(f"{files}/X*.npy", f"{files}/y*.npy") == here.fit(DENSE, LABELS).score(DENSE, LABELS)
    with pytest.raises(DataError, match="hold their labels"):
        model.score(plain, "clicked")
    (files / "cut.svm.gz").write_bytes(gzip.compress(text[0])[:-20])
    with pytest.raises(DataError, match="broken or cut off"):
        model.fit(f"{files}/cut.svm.gz", None)


def test_lines_are_those_of_the_file_however_it_is_cut(files):
    whole = sd.datasets.read_svmlight(files / "1.svm")
    for size in (50, 333, 10**6):
        row_files._LINES = size  # the fixture puts it back
        found = [part.read(D, False) for part in row_files.line_parts([str(files / "1.svm")])]
        assert sparse.vstack([X for X, _ in found]).shape == whole[0].shape
        np.testing.assert_array_equal(
            sparse.vstack([X for X, _ in found]).toarray(), whole[0].toarray(), str(size)
        )
        np.testing.assert_array_equal(np.concatenate([y for _, y in found]), whole[1])


def test_new_lines_count_columns_as_those_of_the_fit(tmp_path):
    from sklearn.datasets import dump_svmlight_file

    without = SPARSE[:50].toarray()
    without[:, [0, -1]] = 0  # no line says from which number on it counts
    whole = sparse.csr_array(np.vstack([SPARSE.toarray(), np.ones((1, D))]))
    y = np.append(NUMBERS, 0)
    for zero_based in (True, False):
        for name, rows in (("fit", whole), ("new", sparse.csr_array(without))):
            dump_svmlight_file(rows, np.zeros(rows.shape[0]), f"{tmp_path}/{name}.svm", zero_based=zero_based)
        model = sd.Ridge().fit(f"{tmp_path}/fit.svm", y)
        model.save(tmp_path / "model")
        for own in (model, sd.load(tmp_path / "model")):
            np.testing.assert_allclose(own.predict(f"{tmp_path}/new.svm").compute(), model.predict(without))
    (tmp_path / "zero.svm").write_text("1 0:2\n")
    with pytest.raises(DataError, match="index 0"):
        model.predict(f"{tmp_path}/zero.svm")
    assert not hasattr(model.fit(DENSE, NUMBERS), "zero_based_")


def test_urls_are_read_by_ranges(cluster, files, monkeypatch):
    fsspec = pytest.importorskip("fsspec")
    store = fsspec.filesystem("memory")
    for name in ("X0.npy", "X1.npy", "y0.npy", "y1.npy", "0.svm", "1.svm"):
        store.pipe(f"/rows/{name}", (files / name).read_bytes())
    stream(monkeypatch, 0)
    near, far = (sd.LogisticRegression(solver="lbfgs", engine="dask") for _ in range(2))
    near.fit(f"{files}/X*.npy", f"{files}/y*.npy")
    far.fit("memory://rows/X*.npy", "memory://rows/y*.npy")
    np.testing.assert_array_equal(far.coef_, near.coef_)
    near.fit(f"{files}/*.svm", None)
    np.testing.assert_array_equal(far.fit("memory://rows/*.svm", None).coef_, near.coef_)
    store.rm("/rows", recursive=True)


def test_wrong_files_are_refused_before_any_work(files):
    fit = sd.LogisticRegression().fit
    np.save(files / "columns.npy", np.asfortranarray(DENSE))
    np.save(files / "wide.npy", np.ones((3, D + 1)))
    np.save(files / "words.npy", np.array(["a", "b"]))
    (files / "none.npy").write_bytes(b"nothing of the kind")
    (files / "bad.svm").write_text("1 1:2\n0 2:x\n")
    cut = (files / "X1.npy").read_bytes()
    (files / "cut.npy").write_bytes(cut[: len(cut) // 2])
    for X, y, message in (
        ("columns.npy", LABELS, "Fortran order"),
        ("none.npy", LABELS, "no npy file"),
        ("words.npy", LABELS, "numbers are needed"),
        ("y0.npy", LABELS, "2 dimensions"),
        ("gone.npy", LABELS, "no such file"),
        ("gone*.npy", LABELS, "matches no file"),
        ("X0.npy", "y1.npy", "500 rows, but the files of y have 700"),
        ("X0.npy", "clicked", "names of npy files"),
        ("cut.npy", LABELS[500:], "cut off"),
        ("bad.svm", None, "the line at byte 6: the value of index 2"),
        ("0.svm", "clicked", "hold their labels"),
    ):
        y = f"{files}/{y}" if isinstance(y, str) and y.endswith(".npy") else y
        with pytest.raises(DataError, match=message):
            fit(f"{files}/{X}", y)
    with pytest.raises(DataError, match="make them alike"):
        fit([f"{files}/X0.npy", f"{files}/wide.npy"], LABELS)
    model = fit(f"{files}/0.svm", None)
    (files / "wider.svm").write_text(f"1 {D + 1}:2\n")
    with pytest.raises(DataError, match=f"has {D + 1} columns"):
        model.predict(f"{files}/wider.svm")


# Five times the workers' memory ----------------------------------------------------------------------------

LIMIT, TIMES, WIDTH = 550_000_000, 5, 400


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """Names of npy files of rows of five times the limits of two workers, of labels, and the labels."""
    rng, folder = np.random.default_rng(1), tmp_path_factory.mktemp("large")
    n, names, labels = TIMES * 2 * LIMIT // (8 * WIDTH) // 8, [], []
    coef = np.where(np.arange(WIDTH) % 80 == 0, 0.5, 0.0)
    for k in range(8):
        X = rng.standard_normal((n, WIDTH))
        labels.append((X @ coef + rng.logistic(size=n) > 0).astype(int))
        names.append(str(folder / f"{k}.npy"))
        np.save(names[-1], X)
    np.save(folder / "y.npy", np.concatenate(labels))
    return names, str(folder / "y.npy"), np.concatenate(labels)


def slopes(names, y, model):
    """Of the mean logistic loss: its derivatives with respect to coefficients and intercept."""
    total, first = np.zeros(WIDTH + 1), 0
    for name in names:
        X = np.load(name, mmap_mode="r")
        for a in range(0, len(X), 25_000):
            part = np.array(X[a : a + 25_000])
            rest = 1 / (1 + np.exp(-(part @ model.coef_[0] + model.intercept_)))
            rest -= y[first + a : first + a + len(part)]
            total += np.append(part.T @ rest, rest.sum())
        first += len(X)
    return total[:-1] / len(y), total[-1] / len(y)


@pytest.mark.slow
@pytest.mark.cluster
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", ["lbfgs", "sparse"])
def test_rows_of_five_times_the_memory_limits_end_at_the_optimum_after_a_kill(large, kind):
    """Two worker processes; one is killed in a pass, and another one reads its blocks."""
    from distributed import Client, LocalCluster

    names, labels, y = large
    quiet = {"dashboard_address": ":0", "silence_logs": logging.CRITICAL, "memory_limit": LIMIT}
    with LocalCluster(n_workers=2, threads_per_worker=1, **quiet) as cluster, Client(cluster) as client:
        before = set(client.run(os.getpid).values())

        def kill(info):
            if info.round == 2:
                threading.Timer(0.5, os.kill, (min(before), signal.SIGKILL)).start()

        there = sd.LogisticRegression(solver="lbfgs", engine="dask", tol=1e-9)
        if kind == "sparse":
            there = sd.SparseLogisticRegression(0.03, engine="dask", tol=1e-6)
        there.fit(names, labels, callback=kill)
        after = set(client.run(os.getpid).values())
    assert before - after == {min(before)}  # the other one stayed within its memory
    gradient, of_intercept = slopes(names, y, there)
    if kind == "lbfgs":
        gradient += there.coef_[0] / len(y)
        assert np.abs(gradient).max() < 1e-6
    else:
        chosen = there.coef_[0] != 0
        assert np.flatnonzero(chosen).tolist() == [0, 80, 160, 240, 320]
        np.testing.assert_allclose(gradient[chosen], -0.03 * np.sign(there.coef_[0][chosen]), atol=1e-5)
        assert np.abs(gradient).max() < 0.03 + 1e-5
    assert abs(of_intercept) < 1e-6
